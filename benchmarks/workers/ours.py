"""ipymcp through its public face: synchronous calls, `.aio` where many run at once.

The same class measures in a plain process (this module as a program) and in a cell of a real kernel (cell.py).
"""

from __future__ import annotations

import asyncio
import gc
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.workers.harness import (
    ECHO,
    Heartbeat,
    Sample,
    Stopwatch,
    check_payload,
    expect,
    forget_peak,
    in_chunks,
    map_sample,
    numbered,
    payload_sample,
    reply,
    resident_mb,
)

ROWS_SERVER = Path(__file__).resolve().parents[2] / "tests" / "servers" / "rows.py"


def running_loops() -> list[asyncio.AbstractEventLoop]:
    """Every event loop that runs in this process, whoever's it is."""
    return [thing for thing in gc.get_objects() if isinstance(thing, asyncio.AbstractEventLoop) and thing.is_running()]


class Stall:
    """Heartbeats on all of ipymcp's loops. They are no public names, so: whatever loop was not there before."""

    def __init__(self, before: list[asyncio.AbstractEventLoop]) -> None:
        self._hearts = [Heartbeat(loop) for loop in running_loops() if loop not in before]
        expect(bool(self._hearts), "ipymcp runs no loop")

    def start(self) -> None:
        for heart in self._hearts:
            heart.start()

    def stop(self) -> float:
        return max(heart.stop() for heart in self._hearts)


class Ours:
    """The measurements of harness.Worker, for a client that is called and not awaited."""

    def __init__(self) -> None:
        self.before = running_loops()
        self._stack = ExitStack()
        self.mcp: Any = None

    def run(self, line: str) -> Sample:
        word, *arguments = line.split()
        if word == "connect":
            with Stopwatch() as watch:
                self.mcp = self._open(arguments[1:])
            return watch.per(1)
        if word == "seq":
            return self.sequential(int(arguments[0]))
        if word == "map":
            return self.map(int(arguments[0]), int(arguments[1]))
        if word == "stream":
            return self.stream(int(arguments[0]))
        if word == "workers":
            return self.workers(int(arguments[0]))
        if word == "payload":
            return self.payload(int(arguments[0]), arguments[1])
        raise ValueError(f"unknown command {line!r}")

    async def run_async(self, line: str) -> Sample:
        word, count, at_once = line.split()
        if word == "gather":
            return await self.gather(int(count), int(at_once))
        return await self.concurrent(int(count), int(at_once))

    def _open(self, command: list[str]) -> Any:
        import ipymcp

        remote = command[0].startswith("http")
        light = {"url": command[0]} if remote else {"command": command[0], "args": command[1:]}
        return self._stack.enter_context(ipymcp.connect({"light": light}))

    def sequential(self, count: int) -> Sample:
        mcp = self.mcp
        expect(mcp.light.echo(ECHO).text == ECHO, "echo")
        with Stopwatch() as watch:
            for _ in range(count):
                mcp.light.echo(ECHO).text  # noqa: B018
        return watch.per(count)

    async def concurrent(self, count: int, at_once: int) -> Sample:
        mcp = self.mcp
        with Stopwatch() as watch:
            for _ in range(count // at_once):
                results = await asyncio.gather(*[mcp.light.echo.aio(ECHO) for _ in range(at_once)])
        expect([result.text for result in results] == [ECHO] * at_once, "echo")
        return {**watch.per(count), "calls_per_s": count / watch.wall}

    def map(self, count: int, at_once: int) -> Sample:
        rows = numbered(count)
        with Stopwatch() as watch:
            found = self.mcp.light.echo.map(rows, concurrency=at_once)
        expect([result.text for result in found.results] == rows, "echo")
        return map_sample(watch, count)

    async def gather(self, count: int, at_once: int) -> Sample:
        """The calls of `map` without it."""
        rows = numbered(count)
        with Stopwatch() as watch:
            answers = await in_chunks(self.mcp.light.echo.aio, rows, at_once)
        expect([result.text for result in answers] == rows, "echo")
        return map_sample(watch, count)

    def stream(self, count: int) -> Sample:
        """Rows that come and go; `grown_mb` is the memory gained after the first 10,000."""
        base, read = 0.0, 0
        rows = (f"{ECHO} {each}" for each in range(count))
        with Stopwatch() as watch:
            for row, result in self.mcp.light.echo.map.stream(rows, concurrency=16):
                read += result.text == row
                if read == 10_000:
                    base = forget_peak()
        expect(read == count, "echo")
        return {**map_sample(watch, count), "grown_mb": resident_mb(peak=True) - base}

    def workers(self, count: int) -> Sample:
        """Rows of a tool that computes for 20 ms, by one Dask worker and by two."""
        import ipymcp

        with tempfile.TemporaryDirectory() as folder:
            server = {"command": sys.executable, "args": [str(ROWS_SERVER), f"{folder}/record"]}
            with ipymcp.connect({"rows": server}) as mcp:
                one, two = (_rows_per_s(mcp.rows.compute, workers, count) for workers in (1, 2))
        return {"rows_per_s": two, "speedup": two / one}

    def payload(self, megabytes: int, kind: str) -> Sample:
        stall = Stall(self.before)
        base = forget_peak()
        stall.start()
        with Stopwatch() as watch:
            if kind == "text":
                value = self.mcp.light.text(megabytes).text
            else:
                value = self.mcp.light.rows(megabytes).data["rows"]
        longest = stall.stop()
        check_payload(value, megabytes, kind)
        return payload_sample(watch, megabytes, base, longest)

    def close(self) -> None:
        self._stack.close()


def _rows_per_s(tool: Any, workers: int, count: int) -> float:
    """The rate of a Dask cluster whose workers have begun."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        tool.map(numbered(4 * workers), executor=client, concurrency=1)
        with Stopwatch() as watch:
            found = tool.map(numbered(count), executor=client, concurrency=1)
    expect(found.summary["succeeded"] == count, "compute")
    return count / watch.wall


def main() -> None:
    ours = Ours()
    while (line := sys.stdin.readline().strip()) not in ("", "quit"):
        try:
            reply(asyncio.run(ours.run_async(line)) if line.startswith("concurrent") else ours.run(line))
        except Exception as error:
            reply({"error": f"{type(error).__name__}: {error}"})
    ours.close()


if __name__ == "__main__":
    main()
