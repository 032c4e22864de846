"""Tasks on other loops, and calls in other threads, that wait for the background loop: an interrupt must reach them.

Two kinds of foreign loops fail their tasks. ipykernel's SIGINT handler cancels the cell's task without waking the loop
that would notice: an idle loop would sleep through the interrupt until the answer comes. And where SIGINT raises
`KeyboardInterrupt` (a terminal's IPython), it breaks out of the running loop and leaves the task pending for ever.

Threads get no signals at all. A library that runs tools in worker threads joins them before it lets the interrupt
through (`ThreadPoolExecutor.__exit__`), so the calls have to be cancelled while the main thread waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import signal
import threading
from typing import TYPE_CHECKING, Any

from ipymcp.errors import render_briefly
from ipymcp.runtime.places import Place, in_task
from ipymcp.runtime.threads import ThreadCalls
from ipymcp.runtime.waiting import INTERRUPTED, get_signal, set_signal

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from ipymcp.runtime.loop import BackgroundLoop

__all__ = ["Awaited", "Awaiting"]


def _nothing() -> None: ...


class Awaited(Place):
    """One task that awaits us, and where its user can be asked something.

    Args:
        awaiting: Who awaits us.
        give_up: Called on the background loop when the awaiting loop was broken out of.
        subject: What is awaited, if that is a call.
    """

    __slots__ = ("_awaiting", "_context", "give_up", "task")

    def __init__(self, awaiting: Awaiting, give_up: Callable[[], object], subject: object) -> None:
        super().__init__(awaiting.background.places, subject, asyncio.get_running_loop(), is_blocked=False)
        self._awaiting = awaiting
        self._context = contextvars.copy_context()
        self.give_up = give_up
        self.task = asyncio.current_task()

    def __enter__(self) -> Awaited:
        super().__enter__()
        self._awaiting.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._awaiting.remove(self)
        super().__exit__()

    def _put(self, errand: Callable[[], None]) -> None:
        assert self.loop is not None
        self._awaiting.background.tell(self.loop, lambda: self._context.run(in_task, self.task, errand))


class Awaiting:
    """Who awaits us.

    Args:
        background: Where what they await runs.
    """

    def __init__(self, background: BackgroundLoop) -> None:
        self.background = background
        self.threads = ThreadCalls(background)
        self._waits: dict[int, Awaited] = {}
        self._previous: Any = None
        """The handler that ours was installed over."""

    def begin_cell(self) -> None:
        """Have interrupts of this cell reach the threads it starts, if any tools were made that may run in threads."""
        if threading.current_thread() is not threading.main_thread():  # a subshell's
            return
        self.threads.begin_cell()
        self._take_sigint_for_threads()

    def end_cell(self) -> None:
        """Handle SIGINT no longer for threads."""
        if threading.current_thread() is not threading.main_thread():
            return
        self.threads.end_cell()
        self._give_sigint_back()

    def watch_threads(self, caller: object) -> None:
        """Have interrupts reach the calls that other threads make with these tools, as long as the tools exist.

        Args:
            caller: What makes the calls; held weakly.
        """
        self.threads.watch(caller)
        self._take_sigint_for_threads()

    def entered(self, give_up: Callable[[], object] = _nothing, subject: object = None) -> Awaited:
        """Round an await, on the loop of the task that awaits. Arguments as `Awaited`."""
        return Awaited(self, give_up, subject)

    def add(self, wait: Awaited) -> None:
        """Somebody begins to await."""
        self._waits[id(wait)] = wait
        self.background.start_beat()
        if self._previous is None and wait.is_main and get_signal(signal.SIGINT) is signal.default_int_handler:
            self._take_sigint()

    def remove(self, wait: Awaited) -> None:
        """Somebody awaits no more."""
        self._waits.pop(id(wait), None)
        if not self._waits and not self.threads.is_watching and threading.current_thread() is threading.main_thread():
            self._give_sigint_back()

    def wake(self) -> bool:
        """At every beat: wake the loops on which something of ours is awaited. False if there are none."""
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
            self._give_sigint_back()
        was_waiting = self.threads.cancel()
        if previous is signal.default_int_handler:
            was_waiting = self._break_off() or was_waiting
        try:
            previous(number, frame)
        except KeyboardInterrupt as error:
            if was_waiting:
                render_briefly(error, INTERRUPTED)
            raise

    def _break_off(self) -> bool:
        """Give up what is awaited on the loop that runs here. False if nothing is."""
        broken: asyncio.AbstractEventLoop | None = asyncio._get_running_loop()
        waits = [wait for wait in tuple(self._waits.values()) if broken is not None and wait.loop is broken]
        for wait in waits:
            self.background.call(wait.give_up)
            if broken is not None and wait.task is not None:  # should that loop ever run again
                broken.call_soon_threadsafe(wait.task.cancel)
        return bool(waits)

    def _take_sigint_for_threads(self) -> None:
        if not self.threads.is_watching or threading.current_thread() is not threading.main_thread():
            return
        current = get_signal(signal.SIGINT)
        # ipykernel's own, in a cell with an await, only cancels the cell's task.
        if current is signal.default_int_handler or getattr(current, "__module__", None) == "ipykernel.ipkernel":
            self._take_sigint()

    def _take_sigint(self) -> None:
        self._previous = get_signal(signal.SIGINT)
        set_signal(signal.SIGINT, self._on_sigint)

    def _give_sigint_back(self) -> None:
        if self._previous is None:
            return
        if get_signal(signal.SIGINT) == self._on_sigint:
            set_signal(signal.SIGINT, self._previous)
        self._previous = None
