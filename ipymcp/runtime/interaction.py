"""Asking the user: the questions there are, the one who asks them, and the desk that finds where the user waits.

A question is asked where somebody waits: in the thread of a call, in the task that awaits one, in a `%mcp load`. One
that names no call goes to the oldest wait there is, the main thread's first. Where nobody waits, or nobody can answer
(a notebook that is executed by a program), it is cancelled at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from ipymcp.policy.questions import ApprovalAnswer, ApprovalQuestion, QuestionKind, TrustAnswer, TrustQuestion
    from ipymcp.runtime.places import Place, Places

__all__ = [
    "CANCELLED",
    "UNANSWERED",
    "Answer",
    "Asking",
    "Desk",
    "Elsewhere",
    "Errand",
    "FormQuestion",
    "Forms",
    "GaveUp",
    "Interaction",
    "LoginQuestion",
    "Redirected",
    "UrlQuestion",
]

T = TypeVar("T")
Action = Literal["accept", "decline", "cancel"]


class FormQuestion(msgspec.Struct, frozen=True):
    """A server wants some values (elicitation, form mode)."""

    server: str
    tool: str | None
    """The tool whose call asks, where that is known."""
    message: str
    """The server's words, as it sent them."""
    schema: Mapping[str, Any]
    """The object it wants, as JSON Schema."""


class UrlQuestion(msgspec.Struct, frozen=True):
    """A server wants the user to visit an address (elicitation, URL mode)."""

    server: str
    tool: str | None
    message: str
    url: str


class Redirected(Protocol):
    """Knows whether a browser has come back from a login."""

    def wait(self, timeout: float) -> bool:
        """Wait at most so many seconds for that; whether it has."""
        ...


class LoginQuestion(msgspec.Struct, frozen=True):
    """A server wants the user to log in, in a browser."""

    server: str
    url: str
    """Where to log in."""
    domain: str
    """Of that address."""
    scopes: tuple[str, ...]
    """What the server will be allowed to do."""
    redirected: Redirected | None
    """Where the browser comes back; None if only the user can say where it went."""
    site: str
    """The host of the server that the login is for."""
    answer_to: str
    """The host that the answer to the login goes to."""
    gives_secret: bool = False
    """Whether a configured client secret goes there too."""
    slip: Callable[[str], str] = lambda _: ""
    """Says of a pasted address what it lacks to be the answer; nothing where it is one."""

    @property
    def parties(self) -> str:
        """Who takes part, as a line for the user."""
        secret = ", with your client secret" if self.gives_secret else ""
        return f"log in at {self.domain}, for the server at {self.site}; the answer goes to {self.answer_to}{secret}"


class Answer(msgspec.Struct, frozen=True):
    """What the user answered to a server's question."""

    action: Action
    content: dict[str, Any] | None = None
    """The values, with `accept` of a form."""
    note: str = ""
    """Why it was not asked, for the server's log."""


CANCELLED = Answer("cancel")
UNANSWERED = Answer("cancel", note="nobody could be asked")
"""Where no front end takes input, as in nbclient and papermill."""


class Interaction(Protocol):
    """Asks the user. Each method but `can_ask` is called where the user waits, and blocks until there is an answer."""

    def can_ask(self) -> bool:
        """Whether anybody could answer now; from any thread, at once."""
        ...

    def fill(self, question: FormQuestion) -> Answer:
        """Have a form filled."""
        ...

    def visit(self, question: UrlQuestion) -> Answer:
        """Have an address visited; `accept` says that the user agrees, not that it is done."""
        ...

    def login(self, question: LoginQuestion) -> str | None:
        """Have the user log in.

        Returns:
            The empty string once the browser has come back, the address it went to if the user gave that, or None if
            the user refuses or nobody can answer.
        """
        ...

    def trust(self, question: TrustQuestion) -> TrustAnswer | None:
        """Have the user look at servers and say which may run; None if nobody can answer."""
        ...

    def approve(self, question: ApprovalQuestion) -> ApprovalAnswer | None:
        """Have the user say whether calls may be made; None if nobody can answer."""
        ...


class Asking(Interaction, Protocol):
    """Asks one question. Its methods are called in a thread that nobody else uses."""

    def withdraw(self) -> None:
        """Nobody wants to know any more; from any thread, also before it is asked."""
        ...


class Elsewhere(Protocol):
    """Asks in a place of its own, such as a panel, while the user waits somewhere, or nowhere."""

    def reaches(self, kind: QuestionKind, place: Place | None, subject: object) -> bool:
        """Whether somebody who may answer such a question of this call would see it, and could answer meanwhile."""
        ...

    def begin(self, kind: QuestionKind, rests: Callable[[], object], place: Place | None) -> Asking:
        """Ask a question.

        Args:
            kind: What it is about.
            rests: Called, from any thread, once it only waits for a browser: the next one may be asked.
            place: Where the user waits for it; None where nobody does.
        """
        ...


class GaveUp(Exception):
    """The user stopped waiting before a question could be asked."""


class Forms(Protocol):
    """Draws a form for one question where the user waits, if a page there shows forms."""

    async def draw(self, kind: QuestionKind, place: Place) -> Elsewhere | None:
        """Draw one, on the background loop; None where nobody would see it, or its answer would not come through.

        Args:
            kind: What the question is about.
            place: Where the user waits.

        Raises:
            GaveUp: The user waits no more.
        """
        ...


class Desk:
    """Brings questions to where the user waits, one at a time; beside one that only waits for a browser, the next.

    Args:
        places: Who waits now.
    """

    def __init__(self, places: Places) -> None:
        self.interaction: Interaction | None = None
        """Who asks; without one every question is cancelled."""
        self.elsewhere: Elsewhere | None = None
        """Who asks instead, where that reaches the user."""
        self.forms: Forms | None = None
        """Who draws a form where there is no such place yet."""
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
        question: Callable[[Interaction], T],
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
            except GaveUp:
                return otherwise
            if form is not None:
                return await _ask_elsewhere(form, kind, question, otherwise, place, subject, end_turn)
            errand = Errand(lambda: question(interaction), otherwise)
            place.post(errand.run, errand.give_up)
            return await errand.outcome

    def place(self, subject: object = None) -> Place | None:
        """Where a question is asked: where its call is waited for, else the first place there is."""
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
    elsewhere: Elsewhere,
    kind: QuestionKind,
    question: Callable[[Interaction], T],
    otherwise: T,
    place: Place | None,
    subject: object,
    end_turn: Callable[[], None],
) -> T:
    """Ask in a thread, which is not the user's; the question is withdrawn with the wait that it belongs to."""
    loop = asyncio.get_running_loop()
    waits = place if place is not None and subject in (None, place.subject) else None
    asking = elsewhere.begin(kind, lambda: loop.call_soon_threadsafe(end_turn), waits)
    errand = Errand(lambda: question(asking), otherwise)
    if place is not None:
        place.post(_nothing, errand.give_up)
    threading.Thread(target=errand.run, name="ipymcp-question", daemon=True).start()
    try:
        return await errand.outcome
    finally:
        asking.withdraw()


def _nothing() -> None: ...


class Errand(Generic[T]):
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
        """What it came to."""

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
        """It will not be done any more, or nobody cares; from any thread."""
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
