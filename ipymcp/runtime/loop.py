"""The background event loop, and nested runs of the user's coroutines on a loop that a synchronous call blocks.

The background loop runs only our own code and never blocks. Loops start at their first use, in an empty
`contextvars.Context` (so that their output does not belong to the first cell), and belong to the process that started
them: a forked child cannot use them.

Nested loops are never the default: nested waits stack, and an interrupt may lose the cell. nest_asyncio 1.6 drops
queued cells under ipykernel 7, so only nest_asyncio2 >= 1.7.3 is used there; a notebook that has applied the older one
gets an error.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import importlib
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ipymcp.errors import LoopError, interrupted, render_briefly, track_work
from ipymcp.runtime.interrupts import AwaitingTasks
from ipymcp.runtime.waiting import Waiter, WaitingCallers
from ipymcp.security.untrusted import begin_thread_of_user, copy_actor_to_context

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sized
    from concurrent.futures import Future


T = TypeVar("T")
_BEAT_INTERVAL = 0.2
_WORKERS = 4
_FREEZE_TIMEOUT = 0.3
_END_TIMEOUT = 1.0
"""Seconds that cancelled tasks have to end when the loop stops."""


class BackgroundLoop:
    """An asyncio loop in a daemon thread.

    Args:
        name: The thread's name.
        runs_callbacks: Whether it also runs functions that are not ours, which a model's code may have registered.
    """

    def __init__(self, name: str, *, runs_callbacks: bool = False) -> None:
        self._name = name
        self._begin_thread = _nothing if runs_callbacks else begin_thread_of_user
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pid = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        self.awaiting = AwaitingTasks(self)
        """Tasks on other loops that await something of this loop."""
        self.callers = WaitingCallers()
        """Threads and tasks that wait for something on this loop."""
        self._watchers: tuple[Callable[[], bool], ...] = (self.awaiting.wake,)
        """Functions that are called at every beat; see `watch`."""
        self._outgoing: dict[asyncio.AbstractEventLoop, list[Callable[[], None]]] = {}
        """The functions of the current iteration that foreign loops are to run."""
        self._is_beating = False
        self._next_beat: asyncio.TimerHandle | None = None

    @property
    def is_running(self) -> bool:
        """Whether the loop was started in this process and not stopped."""
        return self._loop is not None and self._pid == os.getpid()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop; started at its first use.

        Raises:
            LoopError: The loop was started before this process was forked.
        """
        loop = self._loop
        if loop is not None:
            if self._pid != os.getpid():
                raise LoopError(
                    "this process was forked after ipymcp started", hint='use multiprocessing.set_start_method("spawn")'
                )
            return loop
        with self._lock:
            return self._loop or self._start()

    @property
    def is_own_thread(self) -> bool:
        """Whether this is the loop's own thread, which must not wait for the loop."""
        return threading.current_thread() is self._thread

    def refuse_own_thread(self) -> None:
        """Raise on the loop's own thread, which must not wait for the loop."""
        if threading.current_thread() is self._thread:
            raise LoopError("a synchronous call cannot wait on ipymcp's own loop", hint="await its .aio instead")

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Run a function on the loop, soon; from any thread."""
        self.loop.call_soon_threadsafe(function, *arguments)

    def spawn(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """On the loop: start a task in an empty context and keep it until it is done."""
        task = contextvars.Context().run(self.loop.create_task, coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def run(self, coroutine: Coroutine[Any, Any, T], waiter: Waiter | None = None) -> T:
        """Run a coroutine on the loop and wait for it in this thread; an interrupt cancels it.

        Args:
            coroutine: The coroutine.
            waiter: The waiter to use; a new one by default.

        Raises:
            KeyboardInterrupt: The user interrupted the wait.
            LoopError: Called on the loop's own thread.
        """
        waiter = waiter or Waiter()
        waiter.callers = self.callers
        with waiter:
            try:
                self.refuse_own_thread()
                future, work = self._submit(coroutine)
            except BaseException:
                coroutine.close()
                raise
            future.add_done_callback(lambda _: waiter.put(Waiter.DONE))
            try:
                waiter.wait()
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    render_briefly(error, interrupted(work))
                future.cancel()
                raise
        return future.result()

    async def arun(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and await it on the caller's loop; cancelling the await cancels the coroutine."""
        here = asyncio.get_running_loop()
        if here is self._loop:
            return await coroutine
        with self.awaiting.entered() as wait:
            future, work = self._submit(coroutine)
            wait.give_up = future.cancel
            try:
                return await asyncio.wrap_future(future)
            except asyncio.CancelledError as error:
                render_briefly(error, interrupted(work))
                raise

    def _submit(self, coroutine: Coroutine[Any, Any, T]) -> tuple[Future[T], list[str]]:
        """Start a coroutine on the loop, and return its future and the list of what it is doing; see `errors.doing`."""

        def submit() -> tuple[Future[T], list[str]]:
            work = track_work()
            with copy_actor_to_context():
                return asyncio.run_coroutine_threadsafe(coroutine, self.loop), work

        return contextvars.copy_context().run(submit)

    def watch(self, watcher: Callable[[], bool]) -> None:
        """Call a function at every beat; the beat continues while it returns True."""
        self._watchers = (*self._watchers, watcher)

    def start_beat(self) -> None:
        """Start the beat: call the watchers five times a second until none needs it; from any thread."""
        if not self._is_beating:
            self._is_beating = True
            self.loop.call_soon_threadsafe(self._beat)

    def call_on(self, foreign: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
        """Call a function on a foreign loop, soon; thread-safe.

        All functions of one iteration of our loop are passed together, because waking a loop is expensive.
        """
        if threading.current_thread() is not self._thread:
            _deliver(foreign, [function])
            return
        if not self._outgoing:
            self.loop.call_soon(self._send_outgoing)
        self._outgoing.setdefault(foreign, []).append(function)

    def stop(self) -> None:
        """Stop the loop and its thread. The next use starts it again."""
        self.awaiting.end_cell()
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = self._next_beat = None
            self._is_beating = False
        if loop is None or thread is None or self._pid != os.getpid():
            return
        loop.call_soon_threadsafe(loop.stop)
        if thread is not threading.current_thread():
            thread.join(timeout=2)

    def freeze(self) -> None:
        """Suspend the loop at the interpreter's exit, when its executor has no threads any more."""
        frozen = threading.Event()

        def freeze() -> None:
            frozen.set()
            threading.Event().wait()

        self.call(freeze)
        frozen.wait(_FREEZE_TIMEOUT)

    def _send_outgoing(self) -> None:
        outgoing, self._outgoing = self._outgoing, {}
        for foreign, functions in outgoing.items():
            _deliver(foreign, functions)

    def _beat(self) -> None:
        if self._next_beat is not None:
            self._next_beat.cancel()
        # The flag is cleared before the watchers are called, so that a concurrent `start_beat` is never lost.
        self._is_beating = False
        needed = [watcher() for watcher in self._watchers]
        if any(needed):
            self._is_beating = True
            self._next_beat = self.loop.call_later(_BEAT_INTERVAL, self._beat)

    def _start(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        loop.set_default_executor(ThreadPoolExecutor(_WORKERS, f"{self._name}-worker", self._begin_thread))
        thread = threading.Thread(
            target=contextvars.Context().run,
            args=(_run_forever, loop, self._begin_thread),
            name=self._name,
            daemon=True,
        )
        thread.start()
        self._is_beating, self._next_beat, self._outgoing = False, None, {}  # pending work of the last loop
        self._thread, self._pid, self._loop = thread, os.getpid(), loop
        return loop


def _run_forever(loop: asyncio.AbstractEventLoop, begin_thread: Callable[[], None]) -> None:
    begin_thread()
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.wait(tasks, timeout=_END_TIMEOUT))
        executor: Any = getattr(loop, "_default_executor", None)
        if executor is not None:
            executor.shutdown(wait=False, cancel_futures=True)
        loop.close()


def _deliver(foreign: asyncio.AbstractEventLoop, functions: list[Callable[[], None]]) -> None:
    with contextlib.suppress(RuntimeError):  # the foreign loop is closed
        foreign.call_soon_threadsafe(_run_all, functions)


def _run_all(functions: list[Callable[[], None]]) -> None:
    for function in functions:
        function()


NestedMode = Literal["off", "handlers", "always"]
_MIN_VERSION = (1, 7, 3)
"""The oldest version of nest-asyncio2 that loses no cells under ipykernel 7."""
_INSTALL = "pip install 'nest-asyncio2>=1.7.3', then restart the kernel; or %config IPyMCP.nested_loop = 'off'"


def run_nested(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the loop that runs in this thread, within its current iteration.

    Raises:
        LoopError: No installed package does this without losing cells.
    """
    loop = asyncio.get_running_loop()
    try:
        _patch(loop)
    except BaseException:
        coroutine.close()
        raise
    ready: Sized = getattr(loop, "_ready", ())
    before = len(ready)
    try:
        return loop.run_until_complete(coroutine)
    finally:
        # The loop's current iteration pops as many handles as there were before; the nested run has taken some of them.
        for _ in range(before - len(ready)):
            loop.call_soon(_nothing)


def is_harmfully_patched() -> bool:
    """Whether nest_asyncio 1.x is applied under ipykernel 7, where it loses cells."""
    return hasattr(asyncio, "_nest_patched") and not hasattr(asyncio, "_nest_asyncio2") and _kernel_is_new()


def _patch(loop: asyncio.AbstractEventLoop) -> None:
    if is_harmfully_patched():
        raise LoopError(
            "nest_asyncio 1.6 is applied in this kernel: a nested loop would drop queued cells", hint=_INSTALL
        )
    package = _package()
    try:
        package.apply(loop)
    except ValueError as error:  # a loop that is not asyncio's own
        raise LoopError(f"this loop cannot be nested: {error}", hint="%config IPyMCP.nested_loop = 'off'") from error


def _package() -> Any:
    try:
        if _version("nest-asyncio2") >= _MIN_VERSION:
            return importlib.import_module("nest_asyncio2")
    except ImportError:
        pass
    if _kernel_is_new():
        raise LoopError("a nested loop needs nest-asyncio2 1.7.3 or newer in this kernel", hint=_INSTALL)
    return importlib.import_module("nest_asyncio")


def _version(distribution: str) -> tuple[int, ...]:
    from importlib.metadata import version

    return tuple(int(part) for part in version(distribution).split(".")[:3] if part.isdigit())


def _kernel_is_new() -> bool:
    """Whether this is ipykernel 7 or newer."""
    ipykernel: Any = sys.modules.get("ipykernel")
    return ipykernel is not None and int(str(getattr(ipykernel, "__version__", "0")).split(".")[0]) >= 7


def _nothing() -> None: ...
