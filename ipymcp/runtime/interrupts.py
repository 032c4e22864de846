"""Interruptible waits of threads and tasks for the background loop.

While the main thread waits, SIGINT only sets a flag and wakes the waiter; `KeyboardInterrupt` is raised at one point.
Raised anywhere else, it would truncate frames and leave locks held: without this, interrupts in quick succession broke
one frame in seventeen. The user's own code, if it runs meanwhile, is interrupted at once.

Two kinds of foreign loops need help. ipykernel's SIGINT handler cancels the cell's task without waking its loop: an
idle loop would notice the interrupt only when the answer arrives. Where SIGINT raises `KeyboardInterrupt` (IPython in a
terminal), it breaks out of the running loop and leaves the task pending forever.

Threads receive no signals. A library that runs tools in worker threads joins them before it raises the interrupt
(`ThreadPoolExecutor.__exit__`), so the calls have to be cancelled while the main thread waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import importlib
import signal
import sys
import threading
import time
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol, TypeVar
from weakref import WeakSet

from ipymcp.errors import CallCancelled, interrupted, render_briefly

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Iterator
    from types import FrameType, TracebackType
    from typing import TypeAlias


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

    Args:
        queue: The queue of the waiter to wake; None for a short block of code that must not be interrupted.
    """

    __slots__ = ("_is_installed", "_is_pending", "_previous", "_queue", "_runs_users_code")

    def __init__(self, queue: SimpleQueue[Any] | None = None) -> None:
        self._queue = queue
        self._is_pending = False
        """Whether a SIGINT has arrived and is not handled yet."""
        self._is_installed = False
        self._runs_users_code = False
        self._previous: Any = None
        """The handler that this one replaces while it is installed."""

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            previous = get_signal(signal.SIGINT)
            if callable(previous) or previous == signal.SIG_DFL:
                self._previous = previous
                self._is_installed = True
                set_signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._is_installed:
            self._is_installed = False
            set_signal(signal.SIGINT, self._previous)
        if not isinstance(error, KeyboardInterrupt):
            self.handle_pending()

    def handle_pending(self) -> None:
        """Handle a deferred SIGINT, if there is one.

        Raises:
            KeyboardInterrupt: SIGINT has arrived, and the previous handler raises this, as most do.
        """
        if self._is_pending:
            self._is_pending = False
            try:
                self._handle()
            except KeyboardInterrupt as error:
                render_briefly(error, interrupted())
                raise

    def run_users_code(self, function: Callable[[], None]) -> None:
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
        if self._runs_users_code:
            self._handle()
            return
        self._is_pending = True
        if self._queue is not None:
            self._queue.put(_INTERRUPTED)

    def _handle(self) -> None:
        """Call the previous signal handler, with two exceptions.

        A handler that asks a running loop to cancel a task (ipykernel's in a cell with an await, asyncio's own) has no
        effect while this thread blocks that loop. The system's default handler would end the process.
        """
        if (self._queue is not None and _loop_runs_here()) or not callable(self._previous):
            raise KeyboardInterrupt("Interrupted by user")
        self._previous(signal.SIGINT, None)


class Waiter:
    """The wait of one thread. Other threads `put` functions to run in it meanwhile, and `DONE` at the end."""

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
            deadline: Returns the time to give up, on the clock of `time.monotonic`; called again at that time, because
                the deadline may have moved.
            interrupts: The `Interrupts` that the caller has entered; None to enter one here.

        Returns:
            False if the deadline passed.

        Raises:
            KeyboardInterrupt: The user interrupted.
        """
        if interrupts is None:
            with Interrupts(self.queue) as entered:
                return self.wait(deadline, entered)
        while True:
            interrupts.handle_pending()
            timeout = None if deadline is None else deadline() - time.monotonic()
            if timeout is not None and timeout <= 0:
                return False
            try:
                item = self.queue.get(timeout=_wait_timeout(timeout))
            except Empty:
                continue
            if item is Waiter.DONE:
                return True
            if item is not _INTERRUPTED:
                interrupts.run_users_code(item)


def _wait_timeout(timeout: float | None) -> float | None:
    """The timeout of one wait: short on Windows, where a wait cannot be interrupted."""
    if sys.platform == "win32":
        return _WINDOWS_POLL if timeout is None else min(timeout, _WINDOWS_POLL)
    return timeout


def _loop_runs_here() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


if TYPE_CHECKING:
    Action: TypeAlias = Callable[[], None]


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

    def blocked(self, waiter: Waiter, subject: object = None) -> WaitingCaller:
        """Context manager for the wait of the current thread.

        Args:
            waiter: The thread's waiter.
            subject: The call that the thread waits for, if any.
        """
        return _BlockedThread(self, waiter, subject)


class WaitingCaller:
    """One thread or task that waits; a context manager for the duration of the wait."""

    __slots__ = ("_callers", "_cleanups", "_has_ended", "is_blocked", "is_main", "loop", "subject", "thread")

    def __init__(
        self, callers: WaitingCallers, subject: object, loop: asyncio.AbstractEventLoop | None, *, is_blocked: bool
    ) -> None:
        self._callers = callers
        self._cleanups: list[Action] = []
        """Called when the wait ends."""
        self._has_ended = False
        self.subject = subject
        """The call that is waited for, if any."""
        self.loop = loop
        """The event loop that runs in the thread, if any."""
        self.is_blocked = is_blocked
        """Whether the wait blocks the thread, and the loop that runs in it."""
        self.thread = threading.current_thread()
        self.is_main = self.thread is threading.main_thread()

    def __enter__(self) -> WaitingCaller:
        self._callers.active[id(self)] = self
        return self

    def __exit__(self, *_: object) -> None:
        del self._callers.active[id(self)]
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
        self._put(task)
        if self._has_ended and give_up is not None:
            give_up()

    def _put(self, task: Action) -> None:
        """Run a function in the waiting thread or task."""
        raise NotImplementedError


class _BlockedThread(WaitingCaller):
    """A thread that a wait blocks."""

    __slots__ = ("_waiter",)

    def __init__(self, callers: WaitingCallers, waiter: Waiter, subject: object) -> None:
        super().__init__(callers, subject, asyncio._get_running_loop(), is_blocked=True)
        self._waiter = waiter

    def _put(self, task: Action) -> None:
        self._waiter.put(task)


def in_task(task: asyncio.Task[Any] | None, function: Action) -> None:
    """Run a function on behalf of a task, from a callback of its loop: an interrupt cancels the task.

    A `KeyboardInterrupt` that leaves the callback would end the loop, which may be the kernel's.
    """
    try:
        with interruptible():
            function()
    except KeyboardInterrupt:
        if task is not None:
            task.cancel()


@contextlib.contextmanager
def interruptible() -> Generator[None]:
    """Make SIGINT raise `KeyboardInterrupt` in the main thread, whatever its handler is."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = get_signal(signal.SIGINT)
    if previous is None:  # not set from Python, so it cannot be restored
        yield
        return
    set_signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        set_signal(signal.SIGINT, previous)


T = TypeVar("T")


class LoopRunner(Protocol):
    """The background loop as the threads and tasks that wait for it use it."""

    callers: WaitingCallers

    def run(self, coroutine: Coroutine[Any, Any, T], waiter: Waiter | None = ...) -> T:
        """Run a coroutine on the loop, and block this thread until it ends."""
        ...

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function on the loop, soon."""
        ...

    def call_on(self, foreign: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
        """Call a function on another loop, soon."""
        ...

    def start_beat(self) -> None:
        """Wake idle foreign loops from time to time, so that they notice an interrupt."""
        ...


class ThreadCalls:
    """The calls that other libraries make in their own threads.

    An interrupt cancels the calls in threads that the cell has started, because its code probably waits for them. An
    older thread belongs to something else, such as an app's server. In a script, there are no cells: an interrupt
    cancels the calls in threads that are newer than the tools.

    Args:
        background: The loop that makes the calls.
    """

    def __init__(self, background: LoopRunner) -> None:
        self._background = background
        self._callers: WeakSet[Any] = WeakSet()
        """The objects that make calls in threads."""
        self._waiting: dict[int, tuple[threading.Thread, Waiter, str]] = {}
        """The calls in progress: thread, waiter, and the name of the tool."""
        self._older_threads: WeakSet[threading.Thread] | None = None
        """The threads that are not interrupted; None while an interrupt cancels nothing."""
        self._interrupted: WeakSet[threading.Thread] = WeakSet()
        """The threads whose further calls in this cell are cancelled."""
        self._is_in_cell = False

    @property
    def is_watching(self) -> bool:
        """Whether an interrupt would cancel calls now."""
        return self._older_threads is not None and len(self._callers) > 0

    def watch(self, caller: object) -> None:
        """Cancel calls from now on, as long as an object exists that makes them; the object is held weakly."""
        self._callers.add(caller)
        if self._older_threads is None:
            self._older_threads = WeakSet(threading.enumerate())

    def begin_cell(self) -> None:
        """Cancel the calls of threads that are started from now on."""
        self._is_in_cell = True
        self._older_threads = WeakSet(threading.enumerate()) if len(self._callers) else None

    def end_cell(self) -> None:
        """Cancel no more calls, as the cell is over."""
        self._is_in_cell = False
        self._older_threads = None
        self._interrupted = WeakSet()

    def run(self, coroutine: Coroutine[Any, Any, T], name: str) -> T:
        """Run a coroutine on the background loop and wait for it in this thread.

        Args:
            coroutine: The coroutine.
            name: The name of the tool, for the error message.

        Raises:
            CallCancelled: The main thread was interrupted, now or earlier in the same cell.
            KeyboardInterrupt: This is the main thread, and it was interrupted.
        """
        thread, waiter = threading.current_thread(), Waiter()
        self._waiting[id(waiter)] = (thread, waiter, name)
        try:
            if thread in self._interrupted:  # joining this thread would wait for all queued calls
                coroutine.close()
                _raise_cancelled(name)
            return self._background.run(coroutine, waiter)
        finally:
            del self._waiting[id(waiter)]

    def cancel(self) -> bool:
        """Cancel the calls in threads that are not older; called by a signal handler. False if there are none."""
        older = self._older_threads
        if older is None:
            return False
        if self._is_in_cell:
            self._interrupted = WeakSet(thread for thread in threading.enumerate() if thread not in older)
        waits = [(waiter, name) for thread, waiter, name in tuple(self._waiting.values()) if thread not in older]
        for waiter, name in waits:
            waiter.put(partial(_raise_cancelled, name))
        return bool(waits)


def _raise_cancelled(name: str) -> NoReturn:
    raise CallCancelled(f"{name} was cancelled by an interrupt")


def _nothing() -> None: ...


class AwaitingTask(WaitingCaller):
    """One task on another loop that awaits something of the background loop.

    Args:
        awaiting: The registry of awaiting tasks.
        give_up: Called on the background loop after an interrupt has broken out of the awaiting loop.
        subject: The call that is awaited, if any.
    """

    __slots__ = ("_awaiting", "_context", "give_up", "task")

    def __init__(self, awaiting: AwaitingTasks, give_up: Callable[[], object], subject: object) -> None:
        super().__init__(awaiting.background.callers, subject, asyncio.get_running_loop(), is_blocked=False)
        self._awaiting = awaiting
        self._context = contextvars.copy_context()
        self.give_up = give_up
        self.task = asyncio.current_task()

    def __enter__(self) -> AwaitingTask:
        super().__enter__()
        self._awaiting.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._awaiting.remove(self)
        super().__exit__()

    def _put(self, task: Callable[[], None]) -> None:
        assert self.loop is not None
        self._awaiting.background.call_on(self.loop, lambda: self._context.run(in_task, self.task, task))


class AwaitingTasks:
    """The tasks on other loops that await something of the background loop.

    Args:
        background: The background loop.
    """

    def __init__(self, background: LoopRunner) -> None:
        self.background = background
        self.threads = ThreadCalls(background)
        self._waits: dict[int, AwaitingTask] = {}
        self._previous: Any = None
        """The SIGINT handler that ours has replaced; None while ours is not installed."""

    def begin_cell(self) -> None:
        """Pass interrupts of this cell to the threads it starts, if tools exist that may run in threads."""
        if threading.current_thread() is not threading.main_thread():  # the cell runs in a subshell of the kernel
            return
        self.threads.begin_cell()
        self._install_handler_for_threads()

    def end_cell(self) -> None:
        """Stop handling SIGINT for threads."""
        if threading.current_thread() is not threading.main_thread():
            return
        self.threads.end_cell()
        self._restore_handler()

    def watch_threads(self, caller: object) -> None:
        """Pass interrupts to the calls that an object makes in other threads, as long as the object exists.

        Args:
            caller: The object that makes the calls; held weakly.
        """
        self.threads.watch(caller)
        self._install_handler_for_threads()

    def entered(self, give_up: Callable[[], object] = _nothing, subject: object = None) -> AwaitingTask:
        """Context manager for an await, on the loop of the awaiting task. Arguments as for `AwaitingTask`."""
        return AwaitingTask(self, give_up, subject)

    def add(self, wait: AwaitingTask) -> None:
        """Add a task that begins to await."""
        self._waits[id(wait)] = wait
        self.background.start_beat()
        if self._previous is None and wait.is_main and get_signal(signal.SIGINT) is signal.default_int_handler:
            self._install_handler()

    def remove(self, wait: AwaitingTask) -> None:
        """Remove a task that no longer awaits."""
        self._waits.pop(id(wait), None)
        if not self._waits and not self.threads.is_watching and threading.current_thread() is threading.main_thread():
            self._restore_handler()

    def wake(self) -> bool:
        """Wake the loops of awaiting tasks, at every beat. False if there are none."""
        for key, wait in tuple(self._waits.items()):
            if wait.loop is None or wait.loop.is_closed():
                self._waits.pop(key, None)
        for loop in {wait.loop for wait in tuple(self._waits.values()) if wait.loop is not None}:
            with contextlib.suppress(RuntimeError):  # closed just now
                loop.call_soon_threadsafe(_nothing)
        return bool(self._waits)

    def _on_sigint(self, number: int, frame: FrameType | None) -> None:
        previous = self._previous or signal.default_int_handler
        if not self.threads.is_watching:
            self._restore_handler()
        was_waiting = self.threads.cancel()
        if previous is signal.default_int_handler:
            was_waiting = self._give_up_waits() or was_waiting
        try:
            previous(number, frame)
        except KeyboardInterrupt as error:
            if was_waiting:
                render_briefly(error, interrupted())
            raise

    def _give_up_waits(self) -> bool:
        """Give up everything that is awaited on the loop of this thread, which ends now. False if there is nothing."""
        loop: asyncio.AbstractEventLoop | None = asyncio._get_running_loop()
        if loop is None:
            return False
        waits = [wait for wait in tuple(self._waits.values()) if wait.loop is loop]
        for wait in waits:
            self.background.call(wait.give_up)
            if wait.task is not None:  # in case the loop runs again
                loop.call_soon_threadsafe(wait.task.cancel)
        return bool(waits)

    def _install_handler_for_threads(self) -> None:
        if not self.threads.is_watching or threading.current_thread() is not threading.main_thread():
            return
        current = get_signal(signal.SIGINT)
        # ipykernel's handler, which is installed in a cell with an await, only cancels the cell's task.
        if current is signal.default_int_handler or getattr(current, "__module__", None) == "ipykernel.ipkernel":
            self._install_handler()

    def _install_handler(self) -> None:
        self._previous = get_signal(signal.SIGINT)
        set_signal(signal.SIGINT, self._on_sigint)

    def _restore_handler(self) -> None:
        if self._previous is None:
            return
        if get_signal(signal.SIGINT) == self._on_sigint:
            set_signal(signal.SIGINT, self._previous)
        self._previous = None
