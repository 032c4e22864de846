"""Waits of threads for the background loop, which an interrupt ends at one safe point, and the callers that wait now.

While the main thread waits, SIGINT only sets a flag and wakes the waiter; `KeyboardInterrupt` is raised at one point.
Raised anywhere else, it would truncate frames and leave locks held: without this, interrupts in quick succession broke
one frame in seventeen. The user's own code, if it runs meanwhile, is interrupted at once.
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

from ipymcp.errors import interrupted, render_briefly

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType, TracebackType
    from typing import TypeAlias

    Action: TypeAlias = Callable[[], None]


_INTERRUPTED: Final = object()
_WINDOWS_POLL = 0.1
# The C functions below the `signal` module: its conversion to enums costs more than the rest of a wait.
_raw: Any = importlib.import_module("_signal")
set_signal: Final[Callable[[int, Any], object]] = _raw.signal
get_signal: Final[Callable[[int], Any]] = _raw.getsignal


class Interrupts:
    """Context manager that defers SIGINT on the main thread to a safe point, at the latest its exit.

    The handler is replaced only on entry and exit. In between, a flag tells whether the user's code runs: setting a
    flag cannot be interrupted, while calling `signal.signal` can.
    """

    _is_pending = False
    """Whether a SIGINT has arrived and is not handled yet."""
    _is_installed = False
    _runs_users_code = False
    _previous: Any = None
    """The handler that this one replaces while it is installed."""

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._install()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._is_installed:
            self._is_installed = False
            set_signal(signal.SIGINT, self._previous)
        if isinstance(error, KeyboardInterrupt):
            self._is_pending = False  # a second one meanwhile is not another interrupt of the next wait
        elif self._is_pending:
            self._handle_pending()

    def _install(self) -> None:
        previous = get_signal(signal.SIGINT)
        if callable(previous) or previous == signal.SIG_DFL:
            self._previous = previous
            self._is_installed = True
            set_signal(signal.SIGINT, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._runs_users_code:
            self._handle()
        else:
            self._is_pending = True

    def _handle_pending(self) -> None:
        """Handle the deferred SIGINT.

        Raises:
            KeyboardInterrupt: The previous handler raises this, as most do.
        """
        self._is_pending = False
        try:
            self._handle()
        except KeyboardInterrupt as error:
            render_briefly(error, interrupted())
            raise

    def _handle(self) -> None:
        """Call the previous signal handler, unless it is the system's default, which would end the process."""
        if not callable(self._previous):
            raise KeyboardInterrupt("Interrupted by user")
        self._previous(signal.SIGINT, None)


class WaitingCallers:
    """The threads and tasks that wait now."""

    def __init__(self) -> None:
        self.active: dict[int, WaitingCaller] = {}
        """By the id of the object, oldest first."""

    def __iter__(self) -> Iterator[WaitingCaller]:
        """The main thread's callers first, then by age, oldest first.

        Callers whose thread is blocked by a later wait, and so cannot run functions, are left out.
        """
        available: list[WaitingCaller] = []
        blocked: set[threading.Thread] = set()
        for caller in reversed([*self.active.values()]):
            if caller.thread not in blocked:
                available.append(caller)
            if caller.is_blocked:
                blocked.add(caller.thread)
        available.reverse()
        return iter(sorted(available, key=lambda caller: not caller.is_main))


class WaitingCaller:
    """One thread or task that waits.

    Args:
        callers: The registry of all that wait; None for a wait in which nothing is asked.
        subject: The call that is waited for, if any.
        is_blocked: Whether the wait blocks the thread, and the loop that runs in it.
    """

    thread: threading.Thread
    is_main = False
    loop: asyncio.AbstractEventLoop | None = None
    """The event loop that runs in the thread, if any."""
    _has_ended = False

    def __init__(self, callers: WaitingCallers | None, subject: object, *, is_blocked: bool) -> None:
        self.callers = callers
        self.subject = subject
        self.is_blocked = is_blocked
        self._cleanups: list[Action] = []
        """Called when the wait ends."""

    def _begin(self, thread: threading.Thread, *, is_main: bool) -> None:
        """Register the current thread, or its current task, as waiting."""
        self.thread, self.is_main = thread, is_main
        self.loop = asyncio._get_running_loop()
        self._has_ended = False
        if self.callers is not None:
            self.callers.active[id(self)] = self

    def _end(self) -> None:
        if self.callers is not None:
            del self.callers.active[id(self)]
        self._has_ended = True
        while self._cleanups:
            self._cleanups.pop(0)()

    def post(self, task: Action, give_up: Action | None = None) -> None:
        """Run a function in the waiting thread or task, soon; thread-safe.

        Args:
            task: The function.
            give_up: Called when the wait ends, which may be before, during or after the function runs.
        """
        if give_up is not None:
            self._cleanups.append(give_up)
        self.put(task)
        if self._has_ended and give_up is not None:
            give_up()

    def put(self, item: Any) -> None:
        """Run a function in the waiting thread or task."""
        raise NotImplementedError


class Waiter(Interrupts, WaitingCaller):
    """The wait of one thread, entered for its duration. Other threads `put` functions to run in it, and then `DONE`.

    Args:
        callers: As for `WaitingCaller`.
        subject: The call that is waited for, if any.
    """

    DONE: Final = object()

    def __init__(self, callers: WaitingCallers | None = None, subject: object = None) -> None:
        WaitingCaller.__init__(self, callers, subject, is_blocked=True)
        self._queue: SimpleQueue[Any] = SimpleQueue()

    def __enter__(self) -> Waiter:
        thread = threading.current_thread()
        is_main = thread is threading.main_thread()
        if (
            is_main
        ):  # before it is registered: an interrupt in between would leave it there, and questions would go to it
            self._install()
        self._begin(thread, is_main=is_main)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self._end()
        finally:
            super().__exit__(kind, error, traceback)

    def put(self, item: object) -> None:
        """Wake the waiter, from any thread: with `DONE`, or with a function to run in the waiting thread."""
        self._queue.put(item)

    def wait(self, deadline: Callable[[], float] | None = None) -> bool:
        """Wait for `DONE`.

        Args:
            deadline: Returns the time to give up, on the clock of `time.monotonic`; called again at that time, because
                the deadline may have moved.

        Returns:
            False if the deadline passed.

        Raises:
            KeyboardInterrupt: The user interrupted.
        """
        while True:
            if self._is_pending:
                self._handle_pending()
            timeout = None if deadline is None else deadline() - time.monotonic()
            if timeout is not None and timeout <= 0:
                return False
            if sys.platform == "win32":  # where a wait cannot be interrupted
                timeout = _WINDOWS_POLL if timeout is None else min(timeout, _WINDOWS_POLL)
            try:
                item = self._queue.get(timeout=timeout)
            except Empty:
                continue
            if item is Waiter.DONE:
                return True
            if item is not _INTERRUPTED:
                self._run_users_code(item)

    def _run_users_code(self, function: Action) -> None:
        """Run the user's code, which may be interrupted at any point."""
        try:
            self._runs_users_code = self._is_installed
            function()
        except KeyboardInterrupt as error:
            render_briefly(error, interrupted())
            raise
        finally:
            self._runs_users_code = False

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        super()._on_signal(number, frame)
        if self._is_pending:
            self._queue.put(_INTERRUPTED)

    def _handle(self) -> None:
        # A handler that asks a running loop to cancel a task (ipykernel's in a cell with an await, asyncio's own) has
        # no effect while this thread blocks that loop.
        if self.loop is not None:
            raise KeyboardInterrupt("Interrupted by user")
        super()._handle()
