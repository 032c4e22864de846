"""Tasks on other loops that await the background loop: an interrupt must reach them, and what they await.

Two kinds of foreign loops fail them. ipykernel's SIGINT handler cancels the cell's task without waking the loop that
would notice: an idle loop would sleep through the interrupt until the answer comes. And where SIGINT raises
`KeyboardInterrupt` (a terminal's IPython), it breaks out of the running loop and leaves the task pending for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import signal
import threading
from typing import TYPE_CHECKING

from ipymcp.errors import render_briefly
from ipymcp.runtime.places import Place, in_task
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
        self._waits: dict[int, Awaited] = {}
        self._took_sigint = False

    def entered(self, give_up: Callable[[], object] = _nothing, subject: object = None) -> Awaited:
        """Round an await, on the loop of the task that awaits. Arguments as `Awaited`."""
        return Awaited(self, give_up, subject)

    def add(self, wait: Awaited) -> None:
        """Somebody begins to await."""
        self._waits[id(wait)] = wait
        self.background.start_beat()
        if not self._took_sigint and wait.is_main and get_signal(signal.SIGINT) is signal.default_int_handler:
            self._took_sigint = True
            set_signal(signal.SIGINT, self._on_sigint)

    def remove(self, wait: Awaited) -> None:
        """Somebody awaits no more."""
        self._waits.pop(id(wait), None)
        if self._took_sigint and not self._waits and threading.current_thread() is threading.main_thread():
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
        self._give_sigint_back()
        with contextlib.suppress(RuntimeError):  # no loop runs: no await is broken off
            broken = asyncio.get_running_loop()
            for wait in tuple(self._waits.values()):
                if wait.loop is broken:
                    self.background.call(wait.give_up)
                    if wait.task is not None:  # should that loop ever run again
                        broken.call_soon_threadsafe(wait.task.cancel)
        try:
            signal.default_int_handler(number, frame)
        except KeyboardInterrupt as error:
            render_briefly(error, INTERRUPTED)
            raise

    def _give_sigint_back(self) -> None:
        self._took_sigint = False
        if get_signal(signal.SIGINT) == self._on_sigint:
            set_signal(signal.SIGINT, signal.default_int_handler)
