"""The order of a model's calls to one server."""

import asyncio

import pytest

from ipymcp.llm.tool_calls import ReadWriteLimiter


class Calls:
    """Calls to one server that run until a test ends them."""

    def __init__(self, limit: int = 1) -> None:
        self._limiter = ReadWriteLimiter(limit)
        self._ends: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.running: list[str] = []

    async def start(self, *names: str) -> None:
        """Start calls by name: those that begin with `r` only read."""
        for name in names:
            self._ends[name] = asyncio.Event()
            self.tasks[name] = asyncio.ensure_future(self._run(name))
        await self.settle()

    async def _run(self, name: str) -> None:
        async with self._limiter.entered(writes=not name.startswith("r")):
            self.running.append(name)
            try:
                await self._ends[name].wait()
            finally:
                self.running.remove(name)

    def end_soon(self, *names: str) -> None:
        for name in names:
            self._ends[name].set()

    async def end(self, *names: str) -> None:
        self.end_soon(*names)
        await self.settle()

    async def cancel(self, name: str) -> None:
        self.tasks[name].cancel()
        await self.settle()

    async def settle(self) -> None:
        for _ in range(8):
            await asyncio.sleep(0)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("limit", "calls", "steps"),
    [
        (1, "w1 w2 w3", [("", "w1"), ("end w1", "w2"), ("end w3 w2", "")]),
        (1, "r1 r2 w1 r3 r4", [("", "r1 r2"), ("end r1", "r2"), ("end r2", "w1"), ("end w1", "r3 r4")]),
        (2, "w1 w2 w3", [("", "w1 w2"), ("end w2", "w1 w3")]),
        (1, "w1 w2 w3 r1", [("", "w1"), ("cancel w2", "w1"), ("cancel w1", "w3"), ("cancel w3", "r1")]),
    ],
    ids=["writes run alone and in order", "reads run together but do not pass a write", "more writes at a time",
         "a cancelled call lets the next run"],
)  # fmt: skip
async def test_calls_run_in_order(limit: int, calls: str, steps: list[tuple[str, str]]) -> None:
    server = Calls(limit)
    await server.start(*calls.split())
    for step, running in steps:
        if step:
            action, *names = step.split()
            await getattr(server, action)(*names)
        assert server.running == running.split(), step


@pytest.mark.anyio
async def test_a_call_that_is_cancelled_at_the_moment_of_its_turn_lets_the_next_run() -> None:
    server = Calls()
    await server.start("w1", "w2", "w3")
    server.end_soon("w1")
    while not server.tasks["w1"].done():
        await asyncio.sleep(0)
    await server.cancel("w2")
    assert server.running == ["w3"]
