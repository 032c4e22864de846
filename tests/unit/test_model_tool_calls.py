"""The order of a model's calls to one server."""

import asyncio

from ipymcp.llm.tool_calls import ReadWriteLimiter


class Road:
    """Calls that end when they are told to, and who is on the way."""

    def __init__(self, limit: int = 1) -> None:
        self._lane = ReadWriteLimiter(limit)
        self._ends: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.going: list[str] = []

    async def send(self, *names: str) -> None:
        """Calls by name: those that begin with `r` only read."""
        for name in names:
            self._ends[name] = asyncio.Event()
            self.tasks[name] = asyncio.ensure_future(self._go(name))
        await self.settle()

    async def _go(self, name: str) -> None:
        async with self._lane.entered(writes=not name.startswith("r")):
            self.going.append(name)
            try:
                await self._ends[name].wait()
            finally:
                self.going.remove(name)

    async def end(self, *names: str) -> None:
        for name in names:
            self._ends[name].set()
        await self.settle()

    async def cancel(self, name: str) -> None:
        self.tasks[name].cancel()
        await self.settle()

    async def settle(self) -> None:
        for _ in range(8):
            await asyncio.sleep(0)


def test_what_may_change_something_goes_alone_and_in_order() -> None:
    async def main() -> None:
        road = Road()
        await road.send("w1", "w2", "w3")
        assert road.going == ["w1"]
        await road.end("w1")
        assert road.going == ["w2"]
        await road.end("w3", "w2")
        assert road.going == []

    asyncio.run(main())


def test_what_only_reads_goes_together_but_not_past_a_change() -> None:
    async def main() -> None:
        road = Road()
        await road.send("r1", "r2", "w1", "r3", "r4")
        assert road.going == ["r1", "r2"]
        await road.end("r1")
        assert road.going == ["r2"]
        await road.end("r2")
        assert road.going == ["w1"]
        await road.end("w1")
        assert road.going == ["r3", "r4"]

    asyncio.run(main())


def test_more_may_go_at_a_time_where_that_is_said() -> None:
    async def main() -> None:
        road = Road(limit=2)
        await road.send("w1", "w2", "w3")
        assert road.going == ["w1", "w2"]
        await road.end("w2")
        assert road.going == ["w1", "w3"]

    asyncio.run(main())


def test_who_is_cancelled_lets_the_next_go() -> None:
    async def main() -> None:
        road = Road()
        await road.send("w1", "w2", "w3", "r1")
        await road.cancel("w2")
        assert road.going == ["w1"]
        await road.cancel("w1")
        assert road.going == ["w3"]
        await road.cancel("w3")
        assert road.going == ["r1"]

    asyncio.run(main())


def test_who_is_cancelled_in_the_moment_its_turn_comes_lets_the_next_go() -> None:
    async def main() -> None:
        road = Road()
        await road.send("w1", "w2", "w3")
        road._ends["w1"].set()
        while not road.tasks["w1"].done():
            await asyncio.sleep(0)
        road.tasks["w2"].cancel()
        await road.settle()
        assert road.going == ["w3"]

    asyncio.run(main())
