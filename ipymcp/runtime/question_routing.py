"""The router that brings each question to the user to where the user waits.

A question is asked where somebody waits: in the thread of a call, in the task that awaits one, in a `%mcp load`. One
that names no call goes to the oldest wait there is, the main thread's first. Where nobody waits, or nobody can answer
(a notebook that is executed by a program), it is cancelled at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from ipymcp.interaction.questions import UserInterface

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from ipymcp.interaction.questions import QuestionKind
    from ipymcp.runtime.interrupts import WaitingCaller, WaitingCallers


T = TypeVar("T")


class QuestionHandle(UserInterface, Protocol):
    """Asks one question. Its methods are called in a thread that nobody else uses."""

    def withdraw(self) -> None:
        """Nobody wants to know any more; from any thread, also before it is asked."""
        ...


class QuestionUI(Protocol):
    """Asks in a place of its own, such as a panel, while the user waits somewhere, or nowhere."""

    def reaches(self, kind: QuestionKind, place: WaitingCaller | None, subject: object) -> bool:
        """Whether somebody who may answer such a question of this call would see it, and could answer meanwhile."""
        ...

    def begin(self, kind: QuestionKind, rests: Callable[[], object], place: WaitingCaller | None) -> QuestionHandle:
        """Ask a question.

        Args:
            kind: What it is about.
            rests: Called, from any thread, once it only waits for a browser: the next one may be asked.
            place: Where the user waits for it; None where nobody does.
        """
        ...


class CallerGone(Exception):
    """The user stopped waiting before a question could be asked."""


class CellFormFactory(Protocol):
    """Draws a form for one question where the user waits, if a page there shows forms."""

    async def draw(self, kind: QuestionKind, place: WaitingCaller) -> QuestionUI | None:
        """Draw one, on the background loop; None where nobody would see it, or its answer would not come through.

        Args:
            kind: What the question is about.
            place: Where the user waits.

        Raises:
            CallerGone: The user waits no more.
        """
        ...


class QuestionRouter:
    """Brings questions to where the user waits, one at a time; beside one that only waits for a browser, the next.

    Args:
        places: Who waits now.
    """

    def __init__(self, places: WaitingCallers) -> None:
        self.interaction: UserInterface | None = None
        """The interface that asks; without one every question is cancelled."""
        self.elsewhere: QuestionUI | None = None
        """The interface that asks instead, if it reaches the user."""
        self.forms: CellFormFactory | None = None
        """The factory that draws a form where no such interface exists yet."""
        self._places = places
        self._lock: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None

    def can_ask(self, kind: QuestionKind) -> bool:
        """Whether such a question would reach anybody now."""
        if self.elsewhere is not None and self.elsewhere.reaches(kind, self.place(), None):
            return True
        return self.interaction is not None and self.place() is not None and self.interaction.can_ask()

    async def ask(
        self,
        kind: QuestionKind,
        question: Callable[[UserInterface], T],
        otherwise: T,
        subject: object = None,
        *,
        unanswered: T | None = None,
    ) -> T:
        """Ask, on the background loop.

        Args:
            kind: What it is about: not everybody may answer everything.
            question: Asks it, where the user waits.
            otherwise: The answer where nobody can be asked, or the user stops waiting.
            subject: The call it belongs to, where that is known.
            unanswered: The answer where nobody can be asked, if it is another.
        """
        async with self._turn() as end_turn:
            interaction = self.interaction
            place = self.place(subject)
            if self.elsewhere is not None and self.elsewhere.reaches(kind, place, subject):
                return await _ask_elsewhere(self.elsewhere, kind, question, otherwise, place, subject, end_turn)
            if interaction is None or place is None or not interaction.can_ask():
                return otherwise if unanswered is None else unanswered
            try:
                form = await self.forms.draw(kind, place) if self.forms is not None else None
            except CallerGone:
                return otherwise
            if form is not None:
                return await _ask_elsewhere(form, kind, question, otherwise, place, subject, end_turn)
            errand = CrossThreadTask(lambda: question(interaction), otherwise)
            place.post(errand.run, errand.give_up)
            return await errand.outcome

    def place(self, subject: object = None) -> WaitingCaller | None:
        """The caller to ask: the one that waits for the question's call, else the first."""
        places = list(self._places)
        own = (place for place in places if subject is not None and place.subject is subject)
        return next(own, places[0] if places else None)

    @contextlib.asynccontextmanager
    async def _turn(self) -> AsyncGenerator[Callable[[], None]]:
        """Wait until nobody else asks; gives what lets the next one ask before this turn is over."""
        loop = asyncio.get_running_loop()
        if self._lock is None or self._lock[0] is not loop:
            self._lock = loop, asyncio.Lock()
        _, lock = self._lock
        await lock.acquire()
        with contextlib.ExitStack() as turn:
            turn.callback(lock.release)
            yield turn.close


async def _ask_elsewhere(
    elsewhere: QuestionUI,
    kind: QuestionKind,
    question: Callable[[UserInterface], T],
    otherwise: T,
    place: WaitingCaller | None,
    subject: object,
    end_turn: Callable[[], None],
) -> T:
    """Ask in a thread, which is not the user's; the question is withdrawn with the wait that it belongs to."""
    loop = asyncio.get_running_loop()
    waits = place if place is not None and subject in (None, place.subject) else None
    asking = elsewhere.begin(kind, lambda: loop.call_soon_threadsafe(end_turn), waits)
    errand = CrossThreadTask(lambda: question(asking), otherwise)
    if place is not None:
        place.post(_nothing, errand.give_up)
    threading.Thread(target=errand.run, name="ipymcp-question", daemon=True).start()
    try:
        return await errand.outcome
    finally:
        asking.withdraw()


def _nothing() -> None: ...


class CrossThreadTask(Generic[T]):
    """Something done in another thread, with the outcome awaited on the loop that this is made on.

    Args:
        function: What to do.
        otherwise: The outcome if it is never done, or interrupted.
    """

    def __init__(self, function: Callable[[], T], otherwise: T) -> None:
        self._function = function
        self._otherwise = otherwise
        self._loop = asyncio.get_running_loop()
        self.outcome: asyncio.Future[T] = self._loop.create_future()
        """The outcome of the task."""

    def run(self) -> None:
        """Do it, here. What it raises is the outcome; an interrupt is raised here as well."""
        if self.outcome.done():
            return
        try:
            value = self._function()
        except Exception as error:
            self._settle(self._fail, error)
        except BaseException:
            self.give_up()
            raise
        else:
            self._settle(self._succeed, value)

    def give_up(self) -> None:
        """Give up the task; from any thread."""
        self._settle(self._succeed, self._otherwise)

    def _settle(self, settle: Callable[[Any], None], value: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(settle, value)

    def _succeed(self, value: T) -> None:
        if not self.outcome.done():
            self.outcome.set_result(value)

    def _fail(self, error: Exception) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(error)
