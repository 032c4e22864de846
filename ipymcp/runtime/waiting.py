"""Blocking a thread until something happens, so that the user can always get out.

While the main thread waits, SIGINT only sets a flag and wakes the waiter; `KeyboardInterrupt` is raised at one place.
Raised anywhere else it would tear frames and leave locks held: in a storm of interrupts the naive way broke one frame
in seventeen. The user's own handler is back whenever the user's own code runs.
"""

from __future__ import annotations

import importlib
import signal
import sys
import threading
import time
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, TracebackType

__all__ = ["Interrupts", "Waiter"]

_INTERRUPTED: Final = object()
_WINDOWS_POLL = 0.1
# The C functions below the `signal` module: converting to enums and back costs more than all the rest of a wait.
_raw: Any = importlib.import_module("_signal")
_set_signal: Any = _raw.signal
_get_signal: Any = _raw.getsignal


class Interrupts:
    """While entered on the main thread, SIGINT wakes the waiter instead of raising where it strikes.

    On leaving, an interrupt that came and was not raised yet is raised.
    """

    __slots__ = ("_flagged", "_mine", "_previous", "_queue")

    def __init__(self, queue: SimpleQueue[Any]) -> None:
        self._queue = queue
        self._flagged = False
        self._mine = False
        self._previous: Any = None

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            previous = _get_signal(signal.SIGINT)
            if callable(previous) or previous == signal.SIG_DFL:  # else ignored, or not Python's to put back
                self._previous = previous
                self._mine = True
                _set_signal(signal.SIGINT, self._flag)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._mine:
            self._mine = False
            _set_signal(signal.SIGINT, self._previous)
        if self._flagged and not isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt("Interrupted by user")

    def run_users_code(self, function: Callable[[], None]) -> None:
        """Run what may raise KeyboardInterrupt anywhere, as the user's code may."""
        if self._flagged or not self._mine:
            function()
            return
        _set_signal(signal.SIGINT, self._previous)
        try:
            function()
        finally:
            _set_signal(signal.SIGINT, self._flag)

    def _flag(self, number: int, frame: FrameType | None) -> None:
        self._flagged = True
        self._queue.put(_INTERRUPTED)


class Waiter:
    """One thread, waiting. Others `put` functions for it to run meanwhile, and `DONE` in the end."""

    DONE: Final = object()

    __slots__ = ("queue",)

    def __init__(self) -> None:
        self.queue: SimpleQueue[Any] = SimpleQueue()

    def put(self, item: object) -> None:
        """Wake the waiter, from any thread: with `DONE`, or with a function to run in the waiting thread."""
        self.queue.put(item)

    def wait(self, deadline: Callable[[], float] | None = None, interrupts: Interrupts | None = None) -> bool:
        """Wait for `DONE`.

        Args:
            deadline: When to give up, on `time.monotonic`'s clock; asked again whenever it seems to have passed.
            interrupts: Those already entered; without, they are entered here.

        Returns:
            False if the deadline passed.

        Raises:
            KeyboardInterrupt: The user interrupted.
        """
        if interrupts is None:
            with Interrupts(self.queue) as entered:
                return self.wait(deadline, entered)
        while True:
            timeout = None if deadline is None else deadline() - time.monotonic()
            if timeout is not None and timeout <= 0:
                return False
            try:
                item = self.queue.get(timeout=_patience(timeout))
            except Empty:
                continue
            if item is Waiter.DONE:
                return True
            if item is _INTERRUPTED:
                raise KeyboardInterrupt("Interrupted by user")
            interrupts.run_users_code(item)


def _patience(timeout: float | None) -> float | None:
    """On Windows a wait cannot be interrupted, so it is made of short ones."""
    if sys.platform == "win32":
        return _WINDOWS_POLL if timeout is None else min(timeout, _WINDOWS_POLL)
    return timeout
