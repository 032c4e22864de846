"""ipymcp in a cell: the same commands, each run as a cell of a real ipykernel over the wire."""

from __future__ import annotations

import ast
import json
import os
import statistics
import sys
import tempfile
import time
from typing import Any

from jupyter_client.manager import start_new_kernel

from benchmarks.workers.cell import TAB_LINES
from benchmarks.workers.harness import Sample, expect, reply
from benchmarks.workers.watching import Watcher

PATIENCE = 120
FIRST_CELL = """
import json
from benchmarks.workers.extension import load_extension
answer = json.dumps(load_extension(get_ipython()))
"""
SETUP = """
import json
from benchmarks.workers import cell
from benchmarks.workers.ours import Ours
ours = Ours()
"""


PANEL = """
get_ipython().run_line_magic("load_ext", "ipymcp")
get_ipython().run_line_magic("mcp", "load light -- {command};")
"""


class CellError(RuntimeError):
    """What a cell raised."""


class Kernel:
    def __init__(self) -> None:
        self._manager, self._client = start_new_kernel(startup_timeout=PATIENCE, kernel_name="python3")
        self._is_set_up = False

    def set_up(self) -> None:
        """Before the first measurement that needs more than a bare kernel."""
        if not self._is_set_up:
            self.cell(SETUP)
            self._is_set_up = True

    def cell(self, code: str) -> Any:
        """Run it as a cell; the value of its name `answer`."""
        request = self._client.execute(code, store_history=False, user_expressions={"answer": "answer"})
        content = self._reply_to(request)
        if content["status"] != "ok":
            raise CellError(f"{content.get('ename')}: {content.get('evalue')}")
        found = content["user_expressions"]["answer"]
        return json.loads(ast.literal_eval(found["data"]["text/plain"])) if found["status"] == "ok" else None

    def tab(self, line: str) -> float:
        """Milliseconds from the request to the reply that a front end would draw."""
        start = time.perf_counter()
        found = self._reply_to(self._client.complete(line, len(line)))
        taken = time.perf_counter() - start
        expect(bool(found["matches"]), f"nothing completes {line}")
        return taken * 1e3

    def _reply_to(self, request: str) -> dict[str, Any]:
        while True:
            message = self._client.get_shell_msg(timeout=PATIENCE)
            if message["parent_header"].get("msg_id") == request:
                return message["content"]

    def watch(self, log_of: str = "") -> Watcher:
        """Open a panel."""
        return Watcher(self._manager.connection_file, log_of)

    def close(self) -> None:
        self._client.stop_channels()
        self._manager.shutdown_kernel(now=True)


def run(kernel: Kernel, line: str) -> Sample:
    word, *arguments = line.split()
    if word == "load_ext":
        return kernel.cell(FIRST_CELL)
    kernel.set_up()
    if word == "catalog":
        load = f"cell.load_catalog(get_ipython(), {int(arguments[0])}, {arguments[1:]!r})"
        sample = kernel.cell(f"answer = json.dumps({load})")
        tabs = [statistics.median(kernel.tab(line) for _ in range(7)) for line in TAB_LINES]
        inside = kernel.cell("answer = json.dumps(cell.tab_inside(get_ipython()))")
        return {**sample, "tab_ms": max(tabs), **inside}
    if word == "search":
        search = f"cell.search(get_ipython(), {int(arguments[0])}, {arguments[1:]!r})"
        return kernel.cell(f"answer = json.dumps({search})")
    if word == "declare":
        declare = f"cell.declare(get_ipython(), {int(arguments[0])}, {arguments[1:]!r})"
        return kernel.cell(f"answer = json.dumps({declare})")
    if word == "servers":
        load = f"cell.load_servers(get_ipython(), ours.before, {int(arguments[0])}, {arguments[1:]!r})"
        return kernel.cell(f"answer = json.dumps({load})")
    if word == "history":
        return kernel.cell(f"answer = json.dumps(cell.history_cost(ours.mcp, {int(arguments[0])}))")
    if word == "check":
        return kernel.cell(f"answer = json.dumps(cell.policy_check(ours.mcp, {int(arguments[0])}))")
    if word == "panel":
        return panel_cost(kernel, int(arguments[0]), arguments[1:])
    if word == "flood":
        return flood_cost(kernel, int(arguments[0]), arguments[1:])
    if word == "config":
        return kernel.cell(f"answer = json.dumps(cell.find_config({int(arguments[0])}, {int(arguments[1])}))")
    if word == "map":
        return map_cost(kernel, line)
    if word == "concurrent":
        return kernel.cell(f"answer = json.dumps(await ours.run_async({line!r}))")
    return kernel.cell(f"answer = json.dumps(ours.run({line!r}))")


def map_cost(kernel: Kernel, line: str) -> Sample:
    """A map and the same calls by `asyncio.gather` in chunks, in turn."""
    of: dict[bool, list[dict[str, float]]] = {False: [], True: []}
    for is_map in (True, False, False, True):
        code = f"ours.run({line!r})" if is_map else f"await ours.run_async({line.replace('map', 'gather')!r})"
        of[is_map].append(kernel.cell(f"answer = json.dumps({code})"))
    mapped, bare = _means(of[True]), _means(of[False])
    ratio, overhead = mapped["rows_per_s"] / bare["rows_per_s"], mapped["cpu_us"] - bare["cpu_us"]
    return {**mapped, "ratio": ratio, "overhead_us": overhead}


def _means(samples: list[dict[str, float]]) -> dict[str, float]:
    return {key: statistics.fmean(each[key] for each in samples) for key in samples[0]}


def panel_cost(kernel: Kernel, count: int, command: list[str]) -> Sample:
    """Synchronous calls with a panel closed and open, in turn and so often that a busy moment meets both."""
    kernel.cell(PANEL.format(command=" ".join(command)))
    wall: dict[bool, list[float]] = {False: [], True: []}
    for is_open in (False, True, True, False) * 2:
        watcher = kernel.watch() if is_open else None
        wall[is_open].append(kernel.cell(f"answer = json.dumps(cell.calls(mcp, {count}))")["wall_ms"])
        if watcher is not None:
            watcher.close()
    without, beside = statistics.median(wall[False]), statistics.median(wall[True])
    return {"wall_ms": beside, "ratio": beside / without}


def flood_cost(kernel: Kernel, seconds: int, command: list[str]) -> Sample:
    """A panel follows the log of a server that writes and writes, while the kernel has nothing else to do."""
    kernel.cell(PANEL.format(command=" ".join(command)))
    watcher = kernel.watch(log_of="light")
    try:
        sample = kernel.cell(f"answer = json.dumps(await cell.flood(mcp, {seconds}))")
    finally:
        watcher.close()
    expect(watcher.lines > 0, "no lines came")
    return sample


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["IPYTHONDIR"] = folder  # nobody's start-up files
        os.environ["IPYMCP_STATE_DIR"] = folder  # nor anybody's history
        kernel = Kernel()
        try:
            while (line := sys.stdin.readline().strip()) not in ("", "quit"):
                try:
                    reply(run(kernel, line))
                except CellError as error:
                    reply({"error": str(error)})
                except Exception as error:
                    reply({"error": f"{type(error).__name__}: {error}"})
        finally:
            kernel.close()


if __name__ == "__main__":
    main()
