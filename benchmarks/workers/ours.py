"""ipymcp through its public face: synchronous calls, `.aio` where many run at once.

The same class measures in a plain process (this module as a program) and in a cell of a real kernel (cell.py).
"""

from __future__ import annotations

import asyncio
import gc
import sys
from contextlib import ExitStack
from typing import Any

from benchmarks.workers.harness import (
    ECHO,
    Heartbeat,
    Sample,
    Stopwatch,
    check_payload,
    expect,
    forget_peak,
    payload_sample,
    reply,
)


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
        if word == "payload":
            return self.payload(int(arguments[0]), arguments[1])
        raise ValueError(f"unknown command {line!r}")

    async def run_async(self, line: str) -> Sample:
        _, count, at_once = line.split()
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
