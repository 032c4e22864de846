"""What every worker shares: a tiny line protocol, a stopwatch, a heartbeat, a look at one's own memory.

A worker is one process for one contender. The driver writes a command a line, the worker answers a JSON object a line:

    connect NAME COMMAND ARG…     start that server, negotiate, list its tools
    seq N                         N echoes, one after the other, after one that is not counted
    concurrent N K                N echoes, K at a time
    map N K                       N different echoes, K at a time, as this client's users do it for a table
    payload MB text|rows          one big result
    servers N COMMAND ARG…        N servers at once, each asked for its tools
    catalog N COMMAND ARG…        one server with N tools
    quit

The kernel's worker has `load_ext` besides. Nothing but the standard library is imported here, and nothing an asyncio
program would not have: a fresh process to its first result is one of the things measured.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

ECHO = "twenty bytes of text"
BEAT = 0.005
Sample = dict[str, float | str]


class Contender(Protocol):
    """A client under test. Every call gives back what a user would look at, so that no one can leave work undone."""

    async def open(self, servers: dict[str, list[str]]) -> None:
        """Start these servers at once and list the tools of each."""

    async def echo(self, text: str) -> str:
        """Call `echo` of the first server."""

    async def text(self, megabytes: int) -> str:
        """Call `text` of the first server."""

    async def rows(self, megabytes: int) -> list[Any]:
        """Call `rows` of the first server."""

    async def close(self) -> None:
        """End all servers."""


class Stopwatch:
    """Wall and CPU seconds of a block; CPU is the process's own, all threads, without children."""

    wall = cpu = 0.0

    def __enter__(self) -> Stopwatch:
        self._cpu = time.process_time()
        self._wall = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall = time.perf_counter() - self._wall
        self.cpu = time.process_time() - self._cpu

    def per(self, count: int) -> Sample:
        each = 1e3 / max(count, 1)
        return {"wall_ms": self.wall * each, "cpu_ms": self.cpu * each}


class Heartbeat:
    """The longest time a loop went without serving a 5 ms timer. Any thread may start and stop it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._last = 0.0
        self._longest = 0.0
        self._beating = False

    def start(self) -> None:
        self._beating = True
        self._last = time.perf_counter()
        self._loop.call_soon_threadsafe(self._beat)

    def _beat(self) -> None:
        now = time.perf_counter()
        self._longest = max(self._longest, now - self._last)
        self._last = now
        if self._beating:
            self._loop.call_later(BEAT, self._beat)

    def stop(self) -> float:
        """Milliseconds."""
        self._beating = False
        return max(self._longest, time.perf_counter() - self._last) * 1e3


def resident_mb(peak: bool = False) -> float:
    """Memory of this process now, or at its highest since `forget_peak`.

    Linux keeps the peak that `ru_maxrss` reports across exec, so a child would start with its parent's: the kernel's
    own account of this address space is read where there is one.
    """
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            fields = dict(line.split(":", 1) for line in status)
    except OSError:
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6
    return int(fields["VmHWM" if peak else "VmRSS"].split()[0]) * 1024 / 1e6


def forget_peak() -> float:
    """Let the peak start from here; gives the memory now, in MB."""
    gc.collect()
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as control:
            control.write("5")
    except OSError:
        pass  # the peak then counts from the start of the process: too high, never too low
    return resident_mb()


def expect(fact: bool, what: str) -> None:
    if not fact:
        raise RuntimeError(f"wrong answer: {what}")


def numbered(count: int) -> list[str]:
    """The rows of a map."""
    return [f"{ECHO} {number}" for number in range(count)]


async def in_chunks(echo: Callable[[str], Awaitable[Any]], rows: list[str], at_once: int) -> list[Any]:
    """What one writes without `.map`: `asyncio.gather` of so many rows at a time."""
    answers: list[Any] = []
    for start in range(0, len(rows), at_once):
        answers += await asyncio.gather(*[echo(row) for row in rows[start : start + at_once]])
    return answers


def map_sample(watch: Stopwatch, count: int) -> Sample:
    return {"rows_per_s": count / watch.wall, "cpu_us": watch.cpu / count * 1e6}


def payload_sample(watch: Stopwatch, megabytes: int, base: float, stall: float) -> Sample:
    frames = (resident_mb(peak=True) - base) / megabytes
    return {**watch.per(1), "stall_ms": stall, "peak_frames": frames}


def check_payload(value: str | list[Any], megabytes: int, kind: str) -> None:
    smallest = megabytes * (970_000 if kind == "text" else 9_000)
    expect(len(value) > smallest, f"{len(value)} of {kind}, {smallest} expected")


class Worker:
    """The measurements, for a contender that is awaited on this process's own loop."""

    def __init__(self, contender: Contender) -> None:
        self.contender = contender

    async def run(self, line: str) -> Sample:
        word, *arguments = line.split()
        if word == "connect":
            with Stopwatch() as watch:
                await self.contender.open({arguments[0]: arguments[1:]})
            return watch.per(1)
        if word == "seq":
            return await self.sequential(int(arguments[0]))
        if word == "concurrent":
            return await self.concurrent(int(arguments[0]), int(arguments[1]))
        if word == "map":
            return await self.map(int(arguments[0]), int(arguments[1]))
        if word == "payload":
            return await self.payload(int(arguments[0]), arguments[1])
        if word == "servers":
            return await self.servers(int(arguments[0]), arguments[1:])
        if word == "catalog":
            return await self.servers(1, [*arguments[1:], "--tools", arguments[0]])
        raise ValueError(f"unknown command {line!r}")

    async def sequential(self, count: int) -> Sample:
        echo = self.contender.echo
        expect(await echo(ECHO) == ECHO, "echo")
        with Stopwatch() as watch:
            for _ in range(count):
                await echo(ECHO)
        return watch.per(count)

    async def concurrent(self, count: int, at_once: int) -> Sample:
        echo = self.contender.echo
        with Stopwatch() as watch:
            for _ in range(count // at_once):
                answers = await asyncio.gather(*[echo(ECHO) for _ in range(at_once)])
        expect(answers == [ECHO] * at_once, "echo")
        return {**watch.per(count), "calls_per_s": count / watch.wall}

    async def map(self, count: int, at_once: int) -> Sample:
        rows, own = numbered(count), getattr(self.contender, "map", None)
        with Stopwatch() as watch:
            answers = await (own(rows, at_once) if own else in_chunks(self.contender.echo, rows, at_once))
        expect(answers == rows, "echo")
        return map_sample(watch, count)

    async def payload(self, megabytes: int, kind: str) -> Sample:
        ask = self.contender.text if kind == "text" else self.contender.rows
        base = forget_peak()
        heart = Heartbeat(asyncio.get_running_loop())
        heart.start()
        with Stopwatch() as watch:
            value = await ask(megabytes)
        stall = heart.stop()
        check_payload(value, megabytes, kind)
        return payload_sample(watch, megabytes, base, stall)

    async def servers(self, count: int, command: list[str]) -> Sample:
        base = forget_peak()
        heart = Heartbeat(asyncio.get_running_loop())
        heart.start()
        with Stopwatch() as watch:
            await self.contender.open({f"server{number}": command for number in range(count)})
        stall = heart.stop()
        gc.collect()
        return {**watch.per(1), "stall_ms": stall, "mb": (resident_mb() - base) / count}


def reply(sample: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(sample) + "\n")
    sys.stdout.flush()


async def serve(contender: Contender) -> None:
    """Answer the driver's commands until `quit` or the end of stdin."""
    loop = asyncio.get_running_loop()
    worker = Worker(contender)
    try:
        while (line := (await loop.run_in_executor(None, sys.stdin.readline)).strip()) not in ("", "quit"):
            try:
                reply(await worker.run(line))
            except Exception as error:
                reply({"error": f"{type(error).__name__}: {error}"})
    finally:
        await contender.close()


def main(contender: Contender) -> None:
    asyncio.run(serve(contender))
    sys.stdout.flush()
    os._exit(0)  # what a client does at exit is no part of any figure
