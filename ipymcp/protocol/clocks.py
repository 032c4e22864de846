"""Timeouts that stand still while the host owes the server an answer."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from ipymcp.protocol.rpc import Slot

__all__ = ["Clocks"]


class Clocks:
    """The timeouts of one connection's requests. Belongs to the loop."""

    def __init__(self) -> None:
        self._running: dict[Slot, _Clock] = {}

    @contextlib.asynccontextmanager
    async def limit(self, slot: Slot, seconds: float | None) -> AsyncGenerator[None]:
        """As `asyncio.timeout`, for as long as nothing holds the slot's clock.

        Raises:
            TimeoutError: The seconds have passed.
        """
        async with asyncio.timeout(seconds) as scope:
            self._running[slot] = _Clock(scope)
            try:
                yield
            finally:
                del self._running[slot]

    @contextlib.contextmanager
    def held(self, slot: Slot | None) -> Generator[None]:
        """Hold the clock of one request, or of all where it is not known which one the server asks for."""
        clocks = [clock for of, clock in self._running.items() if slot is None or of is slot]
        for clock in clocks:
            clock.hold()
        try:
            yield
        finally:
            for clock in clocks:
                clock.release()


class _Clock:
    def __init__(self, scope: asyncio.Timeout) -> None:
        self._scope = scope
        self._holds = 0
        self._left: float | None = None

    def hold(self) -> None:
        self._holds += 1
        end = self._scope.when()
        if self._holds == 1 and end is not None and not self._scope.expired():
            self._left = max(end - asyncio.get_running_loop().time(), 0)
            self._scope.reschedule(None)

    def release(self) -> None:
        self._holds -= 1
        if self._holds == 0 and self._left is not None:
            with contextlib.suppress(RuntimeError):  # its request is over
                self._scope.reschedule(asyncio.get_running_loop().time() + self._left)
            self._left = None
