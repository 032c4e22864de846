"""Where the user waits for us, and can be asked something meanwhile: a thread that blocks, a task that awaits."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from typing import TYPE_CHECKING, Any

from ipymcp.runtime.waiting import get_signal, set_signal

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from typing import TypeAlias

    from ipymcp.runtime.waiting import Waiter

    Errand: TypeAlias = Callable[[], None]

__all__ = ["Place", "Places", "in_task", "interruptible"]


class Places:
    """All who wait now."""

    def __init__(self) -> None:
        self.known: dict[int, Place] = {}

    def __iter__(self) -> Iterator[Place]:
        """Those of the main thread first, then the longest waiting.

        Without those that have no ear: what a thread waits for while it does something at another place of its own.
        """
        hearing: list[Place] = []
        blocked: set[threading.Thread] = set()
        for place in reversed([*self.known.values()]):
            if place.thread not in blocked:
                hearing.append(place)
            if place.is_blocked:
                blocked.add(place.thread)
        hearing.reverse()
        return iter(sorted(hearing, key=lambda place: not place.is_main))

    def blocked(self, waiter: Waiter, subject: object = None) -> Place:
        """To be entered round the wait of a thread, in that thread.

        Args:
            waiter: With which it waits.
            subject: What it waits for, if that is a call.
        """
        return _Blocked(self, waiter, subject)


class Place:
    """One thread or task that waits, entered for as long as it does."""

    __slots__ = ("_given_up", "_left", "_places", "is_blocked", "is_main", "loop", "subject", "thread")

    def __init__(
        self, places: Places, subject: object, loop: asyncio.AbstractEventLoop | None, *, is_blocked: bool
    ) -> None:
        self._places = places
        self._given_up: list[Errand] = []
        self._left = False
        self.subject = subject
        """The call that is waited for, if it is one."""
        self.loop = loop
        """The loop of that thread, if one runs there."""
        self.is_blocked = is_blocked
        """Whether that loop stands still meanwhile."""
        self.thread = threading.current_thread()
        self.is_main = self.thread is threading.main_thread()

    def __enter__(self) -> Place:
        self._places.known[id(self)] = self
        return self

    def __exit__(self, *_: object) -> None:
        del self._places.known[id(self)]
        self._left = True
        while self._given_up:
            self._given_up.pop(0)()

    def post(self, errand: Errand, give_up: Errand | None = None) -> None:
        """Have something done here, soon; from any thread.

        Args:
            errand: What.
            give_up: Called when the waiting ends, which may be before, during or after it; None where nobody minds.
        """
        if give_up is not None:
            self._given_up.append(give_up)
        self._put(errand)
        if self._left and give_up is not None:
            give_up()

    def _put(self, errand: Errand) -> None:
        """Have it done."""
        raise NotImplementedError


class _Blocked(Place):
    """A thread that blocks."""

    __slots__ = ("_waiter",)

    def __init__(self, places: Places, waiter: Waiter, subject: object) -> None:
        super().__init__(places, subject, asyncio._get_running_loop(), is_blocked=True)
        self._waiter = waiter

    def _put(self, errand: Errand) -> None:
        self._waiter.put(errand)


def in_task(task: asyncio.Task[Any] | None, function: Errand) -> None:
    """Run it as if the task did: an interrupt cancels the task, as the kernel's own handler would.

    Raised through a loop's callback, `KeyboardInterrupt` would end the loop, which is the kernel's.
    """
    try:
        with interruptible():
            function()
    except KeyboardInterrupt:
        if task is not None:
            task.cancel()


@contextlib.contextmanager
def interruptible() -> Generator[None]:
    """Have SIGINT raise `KeyboardInterrupt` where the main thread stands, whatever it would do now."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = get_signal(signal.SIGINT)
    if previous is None:  # not set from Python: not ours to replace
        yield
        return
    set_signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        set_signal(signal.SIGINT, previous)
