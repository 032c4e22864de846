"""Blocking a thread until something happens, so that the user can always get out.

While the main thread waits, SIGINT only sets a flag and wakes the waiter; `KeyboardInterrupt` is raised at one place.
Raised anywhere else it would tear frames and leave locks held: in a storm of interrupts the naive way broke one frame
in seventeen. The user's own code, where it runs meanwhile, is interrupted where it stands.
"""

from __future__ import annotations

import asyncio
import importlib
import signal
import sys
import threading
import time
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from ipymcp.errors import render_briefly

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, TracebackType

__all__ = ["INTERRUPTED", "Interrupts", "Waiter", "get_signal", "set_signal"]

INTERRUPTED: Final = "interrupted"
"""What the cell says of an interrupt where there is no more to say."""
_INTERRUPTED: Final = object()
_WINDOWS_POLL = 0.1
# The C functions below the `signal` module: converting to enums and back costs more than all the rest of a wait.
_raw: Any = importlib.import_module("_signal")
set_signal: Final[Callable[[int, Any], object]] = _raw.signal
get_signal: Final[Callable[[int], Any]] = _raw.getsignal


class Interrupts:
    """While entered on the main thread, SIGINT is put off to where it does no harm: to the leaving at the latest.

    The handler is swapped only on entering and leaving. In between a flag tells whose turn it is: setting that cannot
    be interrupted, calling `signal.signal` can.

    Args:
        queue: Of the waiter to wake. Without one this is a short stretch of code that must not be torn.
    """

    __slots__ = ("_due", "_mine", "_previous", "_queue", "_users_turn")

    def __init__(self, queue: SimpleQueue[Any] | None = None) -> None:
        self._queue = queue
        self._due = False
        self._mine = False
        self._users_turn = False
        self._previous: Any = None

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            previous = get_signal(signal.SIGINT)
            if callable(previous) or previous == signal.SIG_DFL:
                self._previous = previous
                self._mine = True
                set_signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._mine:
            self._mine = False
            set_signal(signal.SIGINT, self._previous)
        if not isinstance(error, KeyboardInterrupt):
            self.act_if_due()

    def act_if_due(self) -> None:
        """Do now what SIGINT would have done when it came.

        Raises:
            KeyboardInterrupt: In most cases.
        """
        if self._due:
            self._due = False
            try:
                self._act()
            except KeyboardInterrupt as error:
                render_briefly(error, INTERRUPTED)
                raise

    def run_users_code(self, function: Callable[[], None]) -> None:
        """Run what may be interrupted anywhere, as the user's code may."""
        try:
            self._users_turn = self._mine
            function()
        except KeyboardInterrupt as error:
            render_briefly(error, INTERRUPTED)
            raise
        finally:
            self._users_turn = False

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._users_turn:
            self._act()
            return
        self._due = True
        if self._queue is not None:
            self._queue.put(_INTERRUPTED)

    def _act(self) -> None:
        """What the handler before us does, with two exceptions.

        One that only asks a running loop to cancel something (ipykernel's in a cell with an await, asyncio's own) would
        wait for us, who block that loop. And the system's default would end the process.
        """
        if (self._queue is not None and _loop_runs_here()) or not callable(self._previous):
            raise KeyboardInterrupt("Interrupted by user")
        self._previous(signal.SIGINT, None)


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
            interrupts.act_if_due()
            timeout = None if deadline is None else deadline() - time.monotonic()
            if timeout is not None and timeout <= 0:
                return False
            try:
                item = self.queue.get(timeout=_patience(timeout))
            except Empty:
                continue
            if item is Waiter.DONE:
                return True
            if item is not _INTERRUPTED:
                interrupts.run_users_code(item)


def _patience(timeout: float | None) -> float | None:
    """On Windows a wait cannot be interrupted, so it is made of short ones."""
    if sys.platform == "win32":
        return _WINDOWS_POLL if timeout is None else min(timeout, _WINDOWS_POLL)
    return timeout


def _loop_runs_here() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
