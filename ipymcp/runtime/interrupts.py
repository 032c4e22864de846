"""Interrupts that reach the tasks on other loops and the threads of libraries which wait for the background loop.

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
import signal
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar
from weakref import WeakSet

from ipymcp.errors import CallCancelled, interrupted, render_briefly
from ipymcp.runtime.waiting import Waiter, WaitingCaller, get_signal, set_signal

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator
    from types import FrameType

    from ipymcp.runtime.waiting import Action, WaitingCallers


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
        super().__init__(awaiting.background.callers, subject, is_blocked=False)
        self._awaiting = awaiting
        self._context = contextvars.copy_context()
        self.give_up = give_up
        self.task = asyncio.current_task()

    def __enter__(self) -> AwaitingTask:
        thread = threading.current_thread()
        self._begin(thread, is_main=thread is threading.main_thread())
        self._awaiting.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._awaiting.remove(self)
        self._end()

    def put(self, item: Action) -> None:
        """Run a function in the context of the task, on its loop."""
        assert self.loop is not None
        self._awaiting.background.call_on(self.loop, lambda: self._context.run(in_task, self.task, item))


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
