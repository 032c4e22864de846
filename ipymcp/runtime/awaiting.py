"""Tasks on other loops that await the background loop: an interrupt must reach them, and what they await.

Two kinds of foreign loops fail them. ipykernel's SIGINT handler cancels the cell's task without waking the loop that
would notice: an idle loop would sleep through the interrupt until the answer comes. And where SIGINT raises
`KeyboardInterrupt` (a terminal's IPython), it breaks out of the running loop and leaves the task pending for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from ipymcp.runtime.waiting import get_signal, set_signal

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from ipymcp.runtime.loop import BackgroundLoop

__all__ = ["Awaiting"]


class _Wait(NamedTuple):
    loop: asyncio.AbstractEventLoop
    task: asyncio.Task[Any] | None
    give_up: Callable[[], object]


class _Entered:
    """Written as a class: a generator costs three times as much, on every call's way."""

    __slots__ = ("_awaiting", "_wait")

    def __init__(self, awaiting: Awaiting, wait: _Wait) -> None:
        self._awaiting = awaiting
        self._wait = wait

    def __enter__(self) -> None:
        self._awaiting.add(self._wait)

    def __exit__(self, *_: object) -> None:
        self._awaiting.remove(self._wait)


class Awaiting:
    """Who awaits us.

    Args:
        background: Where what they await runs.
    """

    def __init__(self, background: BackgroundLoop) -> None:
        self._background = background
        self._waits: dict[int, _Wait] = {}
        self._took_sigint = False

    def entered(self, give_up: Callable[[], object]) -> _Entered:
        """Round an await, on the loop of the task that awaits.

        Args:
            give_up: Called on the background loop when the awaiting loop was broken out of.
        """
        return _Entered(self, _Wait(asyncio.get_running_loop(), asyncio.current_task(), give_up))

    def add(self, wait: _Wait) -> None:
        """Somebody begins to await."""
        self._waits[id(wait)] = wait
        self._background.start_beat()
        if not self._took_sigint and _raises_keyboard_interrupt():
            self._took_sigint = True
            set_signal(signal.SIGINT, self._on_sigint)

    def remove(self, wait: _Wait) -> None:
        """Somebody awaits no more."""
        self._waits.pop(id(wait), None)
        if self._took_sigint and not self._waits and _on_main_thread():
            self._give_sigint_back()

    def wake(self) -> bool:
        """At every beat: wake the loops on which something of ours is awaited. False if there are none."""
        for key, wait in tuple(self._waits.items()):
            if wait.loop.is_closed():
                self._waits.pop(key, None)
        for loop in {wait.loop for wait in tuple(self._waits.values())}:
            with contextlib.suppress(RuntimeError):  # closed just now
                loop.call_soon_threadsafe(_nothing)
        return bool(self._waits)

    def _on_sigint(self, number: int, frame: FrameType | None) -> None:
        self._give_sigint_back()
        with contextlib.suppress(RuntimeError):  # no loop runs: no await is broken off
            broken = asyncio.get_running_loop()
            for wait in tuple(self._waits.values()):
                if wait.loop is broken:
                    self._background.call(wait.give_up)
                    if wait.task is not None:  # should that loop ever run again
                        broken.call_soon_threadsafe(wait.task.cancel)
        signal.default_int_handler(number, frame)

    def _give_sigint_back(self) -> None:
        self._took_sigint = False
        if get_signal(signal.SIGINT) == self._on_sigint:
            set_signal(signal.SIGINT, signal.default_int_handler)


def _on_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _raises_keyboard_interrupt() -> bool:
    return get_signal(signal.SIGINT) is signal.default_int_handler and _on_main_thread()


def _nothing() -> None: ...
