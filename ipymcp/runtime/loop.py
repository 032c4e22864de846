"""The background event loop, and coroutines of the user run on a loop that a synchronous call blocks.

The wire's loop runs only our code and never waits for anything else. Both start at their first use, in an empty
`contextvars.Context` (so that nothing they do belongs to the cell that happened to come first), and belong to the
process that started them: a forked child is refused.

Waiting that way is never the default: nested waits stack, and an interrupt may lose the cell. And nest_asyncio 1.6
under ipykernel 7 drops queued cells, so there only nest_asyncio2 >= 1.7.3 is used; where a notebook has applied the
harmful pair already, it is refused.
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

from ipymcp.errors import LoopError, render_briefly
from ipymcp.runtime.interrupts import INTERRUPTED, AwaitingTasks, Interrupts, Waiter, WaitingCallers

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sized


T = TypeVar("T")
_PULSE = 0.2
_WORKERS = 4
_FREEZING = 0.3


class BackgroundLoop:
    """An asyncio loop in a daemon thread.

    Args:
        name: The thread's name.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pid = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        self.awaiting = AwaitingTasks(self)
        """Entered round every await, on another loop, of something of this one's."""
        self.places = WaitingCallers()
        """Callers that wait for something on this loop."""
        self._watchers: tuple[Callable[[], bool], ...] = (self.awaiting.wake,)
        self._parcels: dict[asyncio.AbstractEventLoop, list[Callable[[], None]]] = {}
        self._pulsing = False
        self._next_beat: asyncio.TimerHandle | None = None

    @property
    def is_running(self) -> bool:
        """Whether it was started, in this process, and not stopped."""
        return self._loop is not None and self._pid == os.getpid()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop, started now if it was not.

        Raises:
            LoopError: It was started by the process this one was forked from.
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
        """Whether this is the thread that it runs in, where waiting for it would be waiting for oneself."""
        return threading.current_thread() is self._thread

    def refuse_own_thread(self) -> None:
        """Raise where waiting for this loop would be waiting for oneself."""
        if self.is_own_thread:
            raise LoopError("a call that waits, made on ipymcp's own loop", hint="await its .aio instead")

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
        """Run a coroutine on the loop and wait for it here; an interrupt cancels it.

        Args:
            coroutine: Ours.
            waiter: The waiter to use, where somebody else has things to do in this thread meanwhile.

        Raises:
            KeyboardInterrupt: The user interrupted.
            LoopError: Called on the loop's own thread.
        """
        waiter = waiter or Waiter()
        with Interrupts(waiter.queue) as interrupts, self.places.blocked(waiter):
            try:
                self.refuse_own_thread()
                future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
            except BaseException:
                coroutine.close()
                raise
            future.add_done_callback(lambda _: waiter.put(Waiter.DONE))
            try:
                waiter.wait(None, interrupts)
            except BaseException:
                future.cancel()
                raise
        return future.result()

    async def arun(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and await it on the caller's; cancelling cancels it."""
        here = asyncio.get_running_loop()
        if here is self._loop:
            return await coroutine
        with self.awaiting.entered() as wait:
            future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
            wait.give_up = future.cancel
            try:
                return await asyncio.wrap_future(future)
            except asyncio.CancelledError as error:
                render_briefly(error, INTERRUPTED)
                raise

    def watch(self, watcher: Callable[[], bool]) -> None:
        """Have a function called at every beat; the beat goes on as long as it returns true."""
        self._watchers = (*self._watchers, watcher)

    def start_beat(self) -> None:
        """Begin to beat, five times a second, until nobody needs it; from any thread."""
        if not self._pulsing:
            self._pulsing = True
            self.loop.call_soon_threadsafe(self._beat)

    def tell(self, foreign: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
        """Run a function on a foreign loop, soon.

        What one turn of our loop has to tell it travels together: waking a loop costs more than an answer.
        """
        if threading.current_thread() is not self._thread:
            _deliver(foreign, [function])
            return
        if not self._parcels:
            self.loop.call_soon(self._send_parcels)
        self._parcels.setdefault(foreign, []).append(function)

    def stop(self) -> None:
        """Stop the loop and its thread. It starts anew at the next use."""
        self.awaiting.end_cell()
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = self._next_beat = None
            self._pulsing = False
        if loop is None or thread is None or self._pid != os.getpid():
            return
        loop.call_soon_threadsafe(loop.stop)
        if thread is not threading.current_thread():
            thread.join(timeout=2)

    def freeze(self) -> None:
        """At the interpreter's exit: have the loop do nothing any more; what it awaits has no threads to run in."""
        frozen = threading.Event()

        def freeze() -> None:
            frozen.set()
            threading.Event().wait()

        self.call(freeze)
        frozen.wait(_FREEZING)

    def _send_parcels(self) -> None:
        parcels, self._parcels = self._parcels, {}
        for foreign, functions in parcels.items():
            _deliver(foreign, functions)

    def _beat(self) -> None:
        if self._next_beat is not None:
            self._next_beat.cancel()
        # The flag goes down before anybody is asked: who comes now either finds it down or is seen here.
        self._pulsing = False
        needed = [watcher() for watcher in self._watchers]
        if any(needed):
            self._pulsing = True
            self._next_beat = self.loop.call_later(_PULSE, self._beat)

    def _start(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        loop.set_default_executor(ThreadPoolExecutor(_WORKERS, f"{self._name}-worker"))
        thread = threading.Thread(
            target=contextvars.Context().run, args=(_run_forever, loop), name=self._name, daemon=True
        )
        thread.start()
        self._pulsing, self._next_beat, self._parcels = False, None, {}  # what the last loop had left to do
        self._thread, self._pid, self._loop = thread, os.getpid(), loop
        return loop


def _run_forever(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        executor: Any = getattr(loop, "_default_executor", None)
        if executor is not None:
            executor.shutdown(wait=False, cancel_futures=True)
        loop.close()


def _deliver(foreign: asyncio.AbstractEventLoop, functions: list[Callable[[], None]]) -> None:
    with contextlib.suppress(RuntimeError):  # closed: nobody waits there any more
        foreign.call_soon_threadsafe(_run_all, functions)


def _run_all(functions: list[Callable[[], None]]) -> None:
    for function in functions:
        function()


NestedMode = Literal["off", "handlers", "always"]
_WORKING = (1, 7, 3)
_INSTALL = "pip install 'nest-asyncio2>=1.7.3', then restart the kernel; or %config IPyMCP.nested_loop = 'off'"


def run_nested(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the loop that runs in this thread, whose current turn has not ended.

    Raises:
        LoopError: There is no package here that does this without losing cells.
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
        # A turn of the loop that began before the patch pops as many handles as there were; the nested run took some.
        for _ in range(before - len(ready)):
            loop.call_soon(_nothing)


def is_harmfully_patched() -> bool:
    """Whether nest_asyncio 1.x is at work under ipykernel 7, where it loses cells."""
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
        if _version("nest-asyncio2") >= _WORKING:
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
