"""One start under way: its place among those that start at once, and its clock; both wait while the user logs in."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

__all__ = ["Start"]


class Start:
    """Entered for as long as a start takes.

    Args:
        places: How many may start at once.
    """

    def __init__(self, places: asyncio.Semaphore) -> None:
        self._places = places
        self._has_place = False
        self._clock: asyncio.Timeout | None = None

    async def __aenter__(self) -> Start:
        await self._places.acquire()
        self._has_place = True
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._has_place:
            self._places.release()

    @contextlib.asynccontextmanager
    async def limited(self, seconds: float) -> AsyncGenerator[None]:
        """Raise `TimeoutError` when these seconds have passed, those of a login not counted."""
        async with asyncio.timeout(seconds) as self._clock:
            yield
        self._clock = None

    @contextlib.asynccontextmanager
    async def paused(self) -> AsyncGenerator[None]:
        """While the user logs in: others may start, and no time passes."""
        loop, clock = asyncio.get_running_loop(), self._clock
        end = clock.when() if clock is not None else None
        left = end - loop.time() if end is not None else None
        if clock is not None and left is not None:
            clock.reschedule(None)
        self._has_place = False
        self._places.release()
        yield
        await self._places.acquire()
        self._has_place = True
        if clock is not None and left is not None:
            clock.reschedule(loop.time() + left)
