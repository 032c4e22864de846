"""What runs inside the kernel for kernel.py: nothing here but what a user's own cells could do."""

from __future__ import annotations

import asyncio
import gc
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.workers.harness import ECHO, Sample, Stopwatch, expect, forget_peak, resident_mb
from benchmarks.workers.ours import Stall

if TYPE_CHECKING:
    from collections.abc import Sequence

TAB_LINES = ("mcp.big.tool_012", "mcp.big.", "%mcp call big.tool_012", "mcp.big.tool_00012(li")


def load_servers(shell: Any, before: list[asyncio.AbstractEventLoop], count: int, command: Sequence[str]) -> Sample:
    """Many servers by one `%mcp load FILE`; `before` are the loops that are not ipymcp's."""
    shell.run_line_magic("load_ext", "ipymcp")
    shell.run_line_magic("mcp", f"load warm -- {' '.join(command)};")
    names = [f"server{number}" for number in range(count)]
    definitions = {name: {"command": command[0], "args": command[1:]} for name in names}
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "mcp.json"
        config.write_text(json.dumps({"mcpServers": definitions}), encoding="utf-8")
        base = forget_peak()
        stall = Stall(before)
        stall.start()
        with Stopwatch() as watch:
            shell.run_line_magic("mcp", f"load {config};")
        longest = stall.stop()
    gc.collect()
    grown = resident_mb() - base
    from ipymcp import mcp

    expect(all(mcp[name].echo(ECHO).text == ECHO for name in names), "echo")
    return {**watch.per(1), "stall_ms": longest, "mb": grown / count}


def find_config(files: int, servers: int) -> Sample:
    """Discover and parse: so many files, in a folder and those above it, of so many servers.

    The first import of what does it is counted apart: a session pays it once, at its first `%mcp` line that reads.
    """
    import os

    with Stopwatch() as importing:
        from ipymcp.config.config_files import PROJECT_FILES, candidates, discover
    with tempfile.TemporaryDirectory() as top:
        names = PROJECT_FILES[:5]
        folder = Path(top, *map(str, range(files // len(names))))
        (folder.parents[files // len(names) - 2] / ".git").mkdir(parents=True)
        places = [place for place in (folder, *folder.parents) if place.is_relative_to(top) and place != Path(top)]
        for place in places:
            for name in names:
                file = place / name
                file.parent.mkdir(parents=True, exist_ok=True)
                definition = {"command": "npx", "args": ["-y", "${A:-b}"], "env": {"TOKEN": "${env:TOKEN}"}}
                own = {f"{place.name}-{name}-{number}": definition for number in range(servers // files)}
                note = "// VS Code's own have comments\n" if "vscode" in name else ""
                file.write_text(note + json.dumps({"mcpServers": own}), encoding="utf-8")
        with Stopwatch() as watch:
            found = discover(candidates(os.fspath(folder), {}, ()))
    expect((len(found.files), len(found.definitions)) == (files, servers), f"{len(found.files)} files")
    return {**watch.per(1), "import_ms": importing.wall * 1e3}


def load_catalog(shell: Any, tools: int, command: Sequence[str]) -> Sample:
    """One server with many tools by `%mcp load`; `build_ms` is what it takes beyond a server with three."""
    line = " ".join(command)
    shell.run_line_magic("load_ext", "ipymcp")
    shell.run_line_magic("mcp", f"load warm -- {line};")
    with Stopwatch() as small:
        shell.run_line_magic("mcp", f"load small -- {line};")
    base = forget_peak()
    with Stopwatch() as watch:
        shell.run_line_magic("mcp", f"load big -- {line} --tools {tools};")
    grown = resident_mb() - base
    return {**watch.per(1), "build_ms": (watch.wall - small.wall) * 1e3, "mb": grown}


def declare(shell: Any, tools: int, command: Sequence[str]) -> Sample:
    """A selection of many tools as providers take it, the first time for each of them."""
    shell.run_line_magic("load_ext", "ipymcp")
    shell.run_line_magic("mcp", f"load big -- {' '.join(command)} --tools {tools};")
    selection = shell.user_ns["mcp"].tools
    selection("!*").to_openai()  # what is imported for it
    sample: dict[str, float] = {}
    for name in ("openai", "anthropic", "gemini"):
        with Stopwatch() as watch:
            declared = getattr(selection, f"to_{name}")()
        expect(bool(declared), f"nothing is declared to {name}")
        sample[f"{name}_ms"] = watch.wall * 1e3
    return sample


def search(shell: Any, tools: int, command: Sequence[str]) -> Sample:
    """The index of many tools made for a model's search, and what a query takes."""
    shell.run_line_magic("load_ext", "ipymcp")
    shell.run_line_magic("mcp", f"load big -- {' '.join(command)} --tools {tools};")
    from ipymcp.llm.tool_definitions import DeclarationCache
    from ipymcp.llm.tool_search import ToolSearch

    selection = shell.user_ns["mcp"].tools.selection
    finder = ToolSearch(selection.declarations, selection.server_texts, DeclarationCache().index, tools)
    finder.declared()
    with Stopwatch() as building:
        finder.find(["first"])
    queries = ["open a pull request", "what is in this folder", "send a message to the team", "number of a tool"] * 5
    with Stopwatch() as searching:
        for query in queries:
            finder.find([query])
    return {"index_ms": building.wall * 1e3, "search_ms": searching.wall / len(queries) * 1e3}


def history_cost(mcp: Any, count: int) -> Sample:
    """Synchronous calls with the history off and on, in turn, so many that what came is written meanwhile."""
    history = mcp._host.history
    wall: dict[str, float] = {"off": 0.0, "sizes": 0.0}
    cpu = dict(wall)
    for mode in ("off", "sizes", "sizes", "off"):
        history.mode = mode
        with Stopwatch() as watch:
            for _ in range(count):
                mcp.light.echo(ECHO).text  # noqa: B018
        wall[mode] += watch.wall / 2 / count * 1e3
        cpu[mode] += watch.cpu / 2 / count * 1e3
    expect(mcp.history(limit=count).entries[0].tool == "echo", "history")
    ratios = {"ratio": wall["sizes"] / wall["off"], "cpu_ratio": cpu["sizes"] / cpu["off"]}
    return {"wall_ms": wall["sizes"], "cpu_ms": cpu["sizes"], **ratios}


def calls(mcp: Any, count: int) -> Sample:
    """Synchronous calls, one after the other."""
    expect(mcp.light.echo(ECHO).text == ECHO, "echo")
    with Stopwatch() as watch:
        for _ in range(count):
            mcp.light.echo(ECHO).text  # noqa: B018
    return watch.per(count)


async def flood(mcp: Any, seconds: float) -> Sample:
    """While a server's lines come in: the shares of the main thread and of all others, and the memory of the whole."""
    log = mcp._host.sessions["light"].log
    await asyncio.sleep(1)
    base = forget_peak()
    before, busy = log.total, time.thread_time()
    with Stopwatch() as watch:
        await asyncio.sleep(seconds)
    busy = time.thread_time() - busy
    shares = {"main_share": busy / watch.wall, "other_share": (watch.cpu - busy) / watch.wall}
    return {**shares, "lines_per_s": (log.total - before) / watch.wall, "mb": resident_mb(peak=True) - base}


def policy_check(mcp: Any, count: int) -> Sample:
    """The check of one call, in microseconds: as it is call after call, and the first after a rule was made."""
    host = mcp._host
    session, policy = host.sessions["light"], host.guard.policy
    entry = session.catalog.tools["echo"]
    rights = session.rights
    with Stopwatch() as again:
        for _ in range(count):
            policy.check(entry, rights, "user")
    first = 0.0
    for _ in range(count // 10):
        policy.pins = "models"  # as any change does, this makes what is known stale
        with Stopwatch() as watch:
            policy.check(entry, rights, "model")
        first += watch.wall
    return {"us": again.wall / count * 1e6, "first_us": first / (count // 10) * 1e6}


def tab_inside(shell: Any) -> Sample:
    """Tab without the wire: the slowest of several lines, each by its median."""
    from IPython.core.completer import provisionalcompleter

    def once(line: str) -> float:
        with Stopwatch() as watch, provisionalcompleter():
            found = list(shell.Completer.completions(line, len(line)))
        expect(bool(found), f"nothing completes {line}")
        return watch.wall * 1e3

    return {"tab_inside_ms": max(statistics.median(once(line) for _ in range(5)) for line in TAB_LINES)}
