"""The background event loop: one thread for the wire, another for the user's own coroutines and callbacks.

The wire's loop runs only our code and never waits for anything else. Both start at their first use, in an empty
`contextvars.Context` (so that nothing they do belongs to the cell that happened to come first), and belong to the
process that started them: a forked child is refused.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from ipymcp.errors import LoopError
from ipymcp.runtime.waiting import Waiter

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

__all__ = ["BackgroundLoop"]

T = TypeVar("T")
_PULSE = 0.2
_WORKERS = 4


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
        self._foreign: dict[asyncio.AbstractEventLoop, int] = {}
        self._pulsing = False

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

    def refuse_own_thread(self) -> None:
        """Raise where waiting for this loop would be waiting for oneself."""
        if threading.current_thread() is self._thread:
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
        try:
            self.refuse_own_thread()
            future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        except BaseException:
            coroutine.close()
            raise
        waiter = waiter or Waiter()
        future.add_done_callback(lambda _: waiter.put(Waiter.DONE))
        try:
            waiter.wait()
        except BaseException:
            future.cancel()
            raise
        return future.result()

    async def arun(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and await it on the caller's; cancelling cancels it."""
        here = asyncio.get_running_loop()
        if here is self._loop:
            return await coroutine
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        self.pulse(here)
        try:
            return await asyncio.wrap_future(future)
        finally:
            self.unpulse(here)

    def pulse(self, foreign: asyncio.AbstractEventLoop) -> None:
        """Wake a loop five times a second while something of ours is awaited on it.

        ipykernel's SIGINT handler cancels the cell's task without waking the loop that would notice; an idle loop would
        sleep through the interrupt until the answer comes.
        """
        self._foreign[foreign] = self._foreign.get(foreign, 0) + 1
        if not self._pulsing:
            self._pulsing = True
            self.loop.call_soon_threadsafe(self._beat)

    def unpulse(self, foreign: asyncio.AbstractEventLoop) -> None:
        """The end of `pulse`; on the same thread as that."""
        count = self._foreign.get(foreign, 1) - 1
        if count:
            self._foreign[foreign] = count
        else:
            self._foreign.pop(foreign, None)

    def stop(self) -> None:
        """Stop the loop and its thread. It starts anew at the next use."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None or self._pid != os.getpid():
            return
        loop.call_soon_threadsafe(loop.stop)
        if thread is not threading.current_thread():
            thread.join(timeout=2)

    def _beat(self) -> None:
        for foreign in list(self._foreign):
            try:
                foreign.call_soon_threadsafe(_nothing)
            except RuntimeError:  # closed
                self._foreign.pop(foreign, None)
        self._pulsing = False
        if self._foreign:  # asked after the flag is down: whoever comes now either sees it down or is seen here
            self._pulsing = True
            self.loop.call_later(_PULSE, self._beat)

    def _start(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        loop.set_default_executor(ThreadPoolExecutor(_WORKERS, f"{self._name}-worker"))
        thread = threading.Thread(
            target=contextvars.Context().run, args=(_run_forever, loop), name=self._name, daemon=True
        )
        thread.start()
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


def _nothing() -> None: ...
