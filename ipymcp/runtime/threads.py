"""Calls in worker threads of other libraries, cancelled when the main thread is interrupted."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

from ipymcp.errors import CallCancelled
from ipymcp.runtime.waiting import Waiter

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from ipymcp.runtime.loop import BackgroundLoop

__all__ = ["ThreadCalls"]

T = TypeVar("T")


class ThreadCalls:
    """The calls that other libraries make in threads of theirs.

    An interrupt cancels those in threads that the cell has started: its code is likely to wait for them. A thread that
    was there before belongs to something else, such as an app's server. In a script all that counts is whether it was
    there before the tools were made.

    Args:
        background: The loop that makes the calls.
    """

    def __init__(self, background: BackgroundLoop) -> None:
        self._background = background
        self._callers: WeakSet[Any] = WeakSet()
        self._waiting: dict[int, tuple[threading.Thread, Waiter, str]] = {}
        self._older: WeakSet[threading.Thread] | None = None
        self._interrupted: WeakSet[threading.Thread] = WeakSet()
        self._is_in_cell = False

    @property
    def is_watching(self) -> bool:
        """Whether an interrupt now is to cancel calls."""
        return self._older is not None and len(self._callers) > 0

    def watch(self, caller: object) -> None:
        """Cancel calls from now on, as long as this exists."""
        self._callers.add(caller)
        if self._older is None:
            self._older = WeakSet(threading.enumerate())

    def begin_cell(self) -> None:
        """A cell begins."""
        self._is_in_cell = True
        self._older = WeakSet(threading.enumerate()) if len(self._callers) else None

    def end_cell(self) -> None:
        """The cell is over."""
        self._is_in_cell = False
        self._older = None
        self._interrupted = WeakSet()

    def run(self, coroutine: Coroutine[Any, Any, T], name: str) -> T:
        """Run a coroutine on the background loop and wait for it in this thread.

        Args:
            coroutine: Ours.
            name: The tool's, for the error.

        Raises:
            CallCancelled: The main thread was interrupted meanwhile, or before in the same cell.
            KeyboardInterrupt: This is the main thread, and it was interrupted.
        """
        thread, waiter = threading.current_thread(), Waiter()
        self._waiting[id(waiter)] = (thread, waiter, name)
        try:
            if thread in self._interrupted:  # whoever joins it would wait for all that is still queued
                coroutine.close()
                raise _cancelled(name)
            return self._background.run(coroutine, waiter)
        finally:
            del self._waiting[id(waiter)]

    def cancel(self) -> bool:
        """Cancel the calls, from the handler of a signal. False if there are none."""
        older = self._older
        if older is None:
            return False
        if self._is_in_cell:
            self._interrupted = WeakSet(one for one in threading.enumerate() if one not in older)
        waiting = [one for one in tuple(self._waiting.values()) if one[0] not in older]
        for _, waiter, name in waiting:
            waiter.put(_Raising(name))
        return bool(waiting)


class _Raising:
    """What a waiting thread is given to run, to end its wait."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self) -> None:
        raise _cancelled(self._name)


def _cancelled(name: str) -> CallCancelled:
    return CallCancelled(f"{name} was cancelled by an interrupt")
