"""A pipe that two may read: the loop, and for a few milliseconds a thread that waits for what comes next.

The thread takes its turn before it asks, so that the loop does not see the answer at all: a loop that wakes, reads and
wakes the thread costs as much again as the whole call. The pipe is watched through an `epoll` of its own, whose number
is what the loop's selector knows; that one can be told from any thread to say nothing for a while (Linux only).
"""

from __future__ import annotations

import os
import select
import threading
import time
from typing import TYPE_CHECKING

from ipymcp.protocol.transports.pipes import LoopReader

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

__all__ = ["CAN_TAKE_TURNS", "TurnReader"]

CAN_TAKE_TURNS = hasattr(select, "epoll")
_PATIENCE = 0.0005
"""Seconds to wait for the loop to hand on what it has just read: it may be what woke the caller."""


class TurnReader(LoopReader):
    """Reads a pipe on the loop, and gives its turn to another thread when that asks. Arguments as `LoopReader`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, fd: int, on_chunk: Callable[[bytes], None]) -> None:
        self._turn = threading.Lock()
        """Held by whoever reads, or closes."""
        self._watch = select.epoll()
        self._watch.register(fd, select.EPOLLIN)
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)
        super().__init__(loop, fd, on_chunk, watched=self._watch.fileno())

    def take(self) -> bool:
        """Take the turn, from any thread but the loop's; False where another has it or the pipe is closed."""
        if not self._turn.acquire(timeout=_PATIENCE):
            return False
        if self._fd is None:
            self._turn.release()
            return False
        self._watch.modify(self._fd, 0)
        return True

    def give_back(self) -> None:
        """Let the loop read again."""
        if self._fd is not None:
            self._watch.modify(self._fd, select.EPOLLIN)
        self._turn.release()

    def read(self, on_chunk: Callable[[bytes], None], done: Callable[[], bool], seconds: float) -> None:
        """Having taken the turn: read here until `done`, or for some seconds. The pipe's end is left to the loop."""
        fd = self._fd
        end = time.monotonic() + seconds
        while fd is not None and not done():
            rest = end - time.monotonic()
            if rest <= 0 or not self._poll.poll(rest * 1000):
                return
            try:
                chunk = os.read(fd, self._size)
            except OSError:
                return
            if not chunk:
                return
            on_chunk(chunk)

    def close(self) -> None:
        """Stop reading and close the pipe, once nobody reads it."""
        with self._turn:
            super().close()

    def drop(self) -> None:
        """In a forked child: close the pipe and touch nothing else, not even a lock."""
        super().drop()
        self._watch.close()

    def _read(self) -> None:
        if not self._turn.acquire(blocking=False):
            return  # what is there now will be there when the turn comes back
        try:
            super()._read()
        finally:
            self._turn.release()

    def _close(self) -> None:
        super()._close()
        self._watch.close()
