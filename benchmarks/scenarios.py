"""What is measured and what ipymcp must reach: the rows of the cost table, one scenario each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.contenders import LIGHT_SERVER, SDK_SERVER, Contender, Worker

if TYPE_CHECKING:
    from collections.abc import Callable

Sample = dict[str, Any]
CONNECT = f"connect light {LIGHT_SERVER}"
CONNECT_HTTP = "connect light {url}"
PEERS = ("fastmcp", "mcp_use", "langchain")


@dataclass(frozen=True)
class Target:
    """A bound on a metric of one contender: on its median, or on its median ratio to another's of the same round."""

    metric: str
    bound: float
    of: str | None = None
    at_least: bool = False
    who: str = "ours"

    def __str__(self) -> str:
        sign = ">=" if self.at_least else "<="
        return f"{self.metric} {sign} {self.bound:g}" + (f" of {self.of}" if self.of else "")


@dataclass(frozen=True)
class Scenario:
    """A row of the table.

    `measure` takes a contender and its worker; the worker is None where each round needs a process of its own.
    `setup` are the lines that make a kept worker ready. `compare` names the metrics whose ratios are shown.
    """

    name: str
    title: str
    contenders: tuple[str, ...]
    measure: Callable[[Contender, Worker | None], Sample]
    compare: tuple[str, ...]
    targets: tuple[Target, ...] = ()
    setup: tuple[str, ...] = ()
    most_rounds: int = 1_000_000


def keeping(line: str) -> Callable[[Contender, Worker | None], Sample]:
    """The worker lives through all rounds: steady state."""

    def measure(_: Contender, worker: Worker | None) -> Sample:
        assert worker
        return worker.ask(line)[0]

    return measure


def fresh(*lines: str, labels: tuple[str, ...] = ("",)) -> Callable[[Contender, Worker | None], Sample]:
    """A new process each round, warmed by a few calls: memory is then that of these lines alone."""

    def measure(contender: Contender, _: Worker | None) -> Sample:
        worker = Worker(contender)
        try:
            worker.ask(CONNECT, "seq 5")
            samples = [worker.ask(line)[0] for line in lines]
        finally:
            worker.close()
        return {
            f"{label}{key}": value
            for label, sample in zip(labels, samples, strict=True)
            for key, value in sample.items()
        }

    return measure


def text_growth(contender: Contender, _: Worker | None) -> Sample:
    """10 MB, then 50 MB: five times the work may take little more than five times as long."""
    lines = ("payload 10 text", "payload 50 text")
    sample = fresh(*lines, labels=("10MB_", "50MB_"))(contender, None)
    return {**sample, "growth": sample["50MB_wall_ms"] / sample["10MB_wall_ms"]}


def first_result(server: str) -> Callable[[Contender, Worker | None], Sample]:
    """From starting the interpreter to the first tool's answer in hand."""

    def measure(contender: Contender, _: Worker | None) -> Sample:
        worker = Worker(contender)
        try:
            connected, _ = worker.ask(f"connect light {server}", "seq 0")
            taken = worker.heard - worker.started
        finally:
            worker.close()
        return {"wall_ms": taken * 1e3, "connect_ms": connected["wall_ms"]}

    return measure


def importing(contender: Contender, _: Worker | None) -> Sample:
    """ipymcp as a notebook's first cell; the others' client imported in a process that has asyncio."""
    cell = contender.name == "ours"
    worker = Worker(contender) if cell else Worker(contender, module="imports", arguments=(contender.client,))
    try:
        return worker.ask("load_ext")[0] if cell else worker.hear()
    finally:
        worker.close()


def loading(line: str) -> Callable[[Contender, Worker | None], Sample]:
    """A new process each round. In a notebook it is `%mcp load`, which warms itself."""

    def measure(contender: Contender, _: Worker | None) -> Sample:
        worker = Worker(contender)
        try:
            if contender.name != "ours":
                worker.ask(CONNECT, "seq 5")
            return worker.ask(line)[0]
        finally:
            worker.close()

    return measure


def scenarios(quick: bool) -> tuple[Scenario, ...]:
    calls = 500 if quick else 2000
    return (
        Scenario(
            "import",
            "`import ipymcp` and `%load_ext ipymcp` in a kernel; for the others their client's import beside asyncio",
            ("ours", "sdk", *PEERS),
            importing,
            ("cpu_ms", "mb"),
            (Target("cpu_ms", 60), Target("mb", 8), Target("heavy", 0)),
        ),
        Scenario(
            "first-light",
            "fresh process to first result, light server",
            ("floor", "script", "sdk", *PEERS),
            first_result(LIGHT_SERVER),
            ("wall_ms",),
            (Target("wall_ms", 0.25, "sdk", who="script"),),
        ),
        Scenario(
            "first-sdk",
            "fresh process to first result, a server on the official SDK",
            ("floor", "script", "sdk"),
            first_result(SDK_SERVER),
            ("wall_ms",),
            (Target("wall_ms", 0.65, "sdk", who="script"),),
        ),
        Scenario(
            "call",
            "one call; ours synchronous from a cell, the others awaited in their own loop",
            ("floor", "ours", "sdk", *PEERS),
            keeping(f"seq {calls}"),
            ("wall_ms", "cpu_ms"),
            (Target("wall_ms", 1.3, "floor"), Target("wall_ms", 0.5, "sdk")),
            setup=(CONNECT, "seq 300"),
        ),
        Scenario(
            "history",
            "one call in a cell, with the history of calls off and on in turn",
            ("ours",),
            keeping(f"history {2 * calls}"),
            (),
            (Target("ratio", 1.03),),
            setup=(CONNECT, "seq 300"),
        ),
        Scenario(
            "check",
            "may this call be made: microseconds, again and for the first time after a rule was made",
            ("ours",),
            keeping("check 20000"),
            (),
            (Target("us", 20), Target("first_us", 20)),
            setup=(CONNECT,),
        ),
        Scenario(
            "panel",
            "one call in a cell, with no panel and an open one in turn",
            ("ours",),
            loading(f"panel {calls} {LIGHT_SERVER}"),
            (),
            (Target("ratio", 1.1),),
        ),
        Scenario(
            "flood",
            "a panel follows the log of a server that writes 50,000 lines a second",
            ("ours",),
            loading(f"flood 5 {LIGHT_SERVER} --stderr 50000"),
            (),
            (Target("main_share", 0.05), Target("mb", 20), Target("lines_per_s", 45_000, at_least=True)),
        ),
        Scenario(
            "concurrent",
            "100 calls at once",
            ("floor", "ours", "sdk", *PEERS),
            keeping(f"concurrent {calls} 100"),
            ("calls_per_s",),
            (Target("calls_per_s", 4, "sdk", at_least=True),),
            setup=(CONNECT, "concurrent 300 100"),
        ),
        Scenario(
            "map",
            "a call for each of many rows, 16 at a time, as each client's users do it; ours also beside `gather`",
            ("ours", "sdk", "fastmcp", "langchain"),
            keeping(f"map {5 * calls} 16"),
            ("rows_per_s",),
            (
                Target("ratio", 0.9, at_least=True),
                Target("overhead_us", 60),
                Target("rows_per_s", 4, "sdk", at_least=True),
                Target("rows_per_s", 4, "fastmcp", at_least=True),
                Target("rows_per_s", 4, "langchain", at_least=True),
            ),
            setup=(CONNECT, "map 320 16"),
        ),
        Scenario(
            "map-stream",
            "a million rows streamed, once because it takes so long",
            ("script",),
            keeping(f"stream {100_000 if quick else 1_000_000}"),
            (),
            (Target("grown_mb", 20, who="script"),),
            setup=(CONNECT, "seq 300"),
            most_rounds=1,
        ),
        Scenario(
            "map-workers",
            "rows of a tool that computes for 20 ms, by two Dask workers and by one in turn",
            ("script",),
            keeping(f"workers {100 if quick else 300}"),
            (),
            (Target("speedup", 1.8, at_least=True, who="script"),),
            setup=(CONNECT,),
            most_rounds=3,
        ),
        Scenario(
            "http-call",
            "one call over HTTP; ours synchronous from a cell, the others awaited in their own loop",
            ("httpx", "aiohttp", "ours", "sdk"),
            keeping(f"seq {calls // 2}"),
            ("wall_ms", "cpu_ms"),
            (Target("cpu_ms", 0.9, "sdk"), Target("cpu_ms", 1.15, "httpx")),
            setup=(CONNECT_HTTP, "seq 200"),
        ),
        Scenario(
            "http-concurrent",
            "100 calls at once over HTTP",
            ("httpx", "aiohttp", "ours", "sdk"),
            keeping(f"concurrent {calls // 2} 100"),
            ("calls_per_s",),
            (Target("calls_per_s", 2, "sdk", at_least=True),),
            setup=(CONNECT_HTTP, "concurrent 200 100"),
        ),
        Scenario(
            "http-10",
            "a text of 10 MB in a JSON answer over HTTP",
            ("httpx", "aiohttp", "ours", "sdk"),
            keeping("payload 10 text"),
            ("wall_ms",),
            (Target("wall_ms", 1.3, "httpx"), Target("stall_ms", 150)),
            setup=(CONNECT_HTTP, "seq 20"),
        ),
        Scenario(
            "http-rows-10",
            "10 MB of structured rows in a JSON answer over HTTP, decoded",
            ("httpx", "aiohttp", "ours", "sdk"),
            keeping("payload 10 rows"),
            ("wall_ms",),
            (Target("wall_ms", 1.3, "httpx"), Target("stall_ms", 150)),
            setup=(CONNECT_HTTP, "seq 20"),
        ),
        Scenario(
            "text-10",
            "a text of 10 MB",
            ("floor", "ours", "sdk", *PEERS),
            fresh("payload 10 text"),
            ("wall_ms",),
            (Target("wall_ms", 1.5, "floor"), Target("stall_ms", 150), Target("peak_frames", 4)),
        ),
        Scenario(
            "rows-10",
            "10 MB of structured rows, decoded",
            ("floor", "ours", "sdk"),
            fresh("payload 10 rows"),
            ("wall_ms",),
            (Target("wall_ms", 1.5, "floor"), Target("stall_ms", 150)),
        ),
        Scenario(
            "text-50",
            "a text of 10 MB, then one of 50 MB",
            ("floor", "ours"),
            text_growth,
            ("50MB_wall_ms",),
            (
                Target("50MB_wall_ms", 1.5, "floor"),
                Target("growth", 6.5),
                Target("50MB_stall_ms", 150),
                Target("50MB_peak_frames", 4),
            ),
        ),
        Scenario(
            "text-50-sdk",
            "a text of 50 MB beside the official SDK, once because it is so slow",
            ("floor", "ours", "sdk"),
            fresh("payload 50 text"),
            ("wall_ms",),
            most_rounds=1,
        ),
        Scenario(
            "servers",
            "50 servers at once, each asked for its tools; ours by `%mcp load FILE`",
            ("floor", "ours", "sdk"),
            loading(f"servers 50 {LIGHT_SERVER}"),
            ("wall_ms",),
            (Target("wall_ms", 1.3, "floor"), Target("stall_ms", 50), Target("mb", 0.3)),
        ),
        Scenario(
            "config",
            "20 config files of 200 servers, some with comments: found, read and parsed in a fresh kernel",
            ("ours",),
            loading("config 20 200"),
            (),
            (Target("wall_ms", 50),),
        ),
        Scenario(
            "declare",
            "1,000 tools, declared to each provider",
            ("ours",),
            loading(f"declare 1000 {LIGHT_SERVER}"),
            ("openai_ms", "anthropic_ms", "gemini_ms"),
            (Target("openai_ms", 100), Target("anthropic_ms", 100), Target("gemini_ms", 100)),
        ),
        Scenario(
            "search",
            "2,000 tools, searched for a model",
            ("ours",),
            loading(f"search 2000 {LIGHT_SERVER}"),
            ("index_ms", "search_ms"),
            (Target("search_ms", 10),),
        ),
        Scenario(
            "catalog",
            "a server of 10,000 tools, 1,000 a page",
            ("floor", "ours", "sdk"),
            loading(f"catalog 10000 {LIGHT_SERVER}"),
            ("wall_ms", "mb"),
            (Target("build_ms", 1000), Target("mb", 30), Target("tab_ms", 50), Target("tab_inside_ms", 50)),
        ),
    )
