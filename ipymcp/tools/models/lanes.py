"""The order of calls to one server: who reads goes with others that read, who may change something goes alone."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

__all__ = ["Lane"]


class Lane:
    """Lets calls go in the order in which they came. Belongs to one loop.

    Args:
        limit: How many of those that go alone may go at a time.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._alone = 0
        self._together = 0
        self._waiting: deque[tuple[bool, asyncio.Future[None]]] = deque()

    @contextlib.asynccontextmanager
    async def entered(self, *, alone: bool) -> AsyncGenerator[None]:
        """Wait for one's turn, and hold it.

        Args:
            alone: Whether it may change something.
        """
        if self._waiting or not self._is_free(alone):
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append((alone, turn))
            try:
                await turn
            except asyncio.CancelledError:
                if (alone, turn) in self._waiting:
                    self._waiting.remove((alone, turn))
                else:  # its turn had come
                    self._leave(alone)
                self._let_in()
                raise
        else:
            self._enter(alone)
        try:
            yield
        finally:
            self._leave(alone)
            self._let_in()

    def _is_free(self, alone: bool) -> bool:
        return self._alone < self._limit and not self._together if alone else not self._alone

    def _enter(self, alone: bool) -> None:
        self._alone += alone
        self._together += not alone

    def _leave(self, alone: bool) -> None:
        self._alone -= alone
        self._together -= not alone

    def _let_in(self) -> None:
        while self._waiting and self._is_free(self._waiting[0][0]):
            alone, turn = self._waiting.popleft()
            self._enter(alone)
            turn.set_result(None)
