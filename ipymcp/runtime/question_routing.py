"""Router of questions to a front end, and to the thread or task in which the user waits.

A question about a call is asked in the thread or task that waits for the call; any other question goes to the caller
that has waited longest, of the main thread if possible. Without a waiting caller, or without a front end that accepts
input (in a notebook that a program executes), a question is cancelled immediately.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from ipymcp.interaction.questions import A, Question, QuestionKind, UserInterface
    from ipymcp.runtime.waiting import WaitingCaller, WaitingCallers


T = TypeVar("T")
A_co = TypeVar("A_co", covariant=True)


class QuestionHandle(Protocol[A_co]):
    """One question that a `QuestionUI` asks."""

    def answer(self) -> A_co:
        """Ask, and block until the question is answered or withdrawn; called in a thread of its own."""
        ...

    def withdraw(self) -> None:
        """Withdraw the question; thread-safe, also before `answer`."""
        ...


class QuestionUI(Protocol):
    """A front end that asks questions without the caller's thread, such as a panel."""

    def reaches(self, kind: QuestionKind, caller: WaitingCaller | None, subject: object) -> bool:
        """Whether a user who may answer questions of this kind sees them and can answer while the caller waits."""
        ...

    def begin(
        self, question: Question[A], caller: WaitingCaller | None, next_may_start: Callable[[], object]
    ) -> QuestionHandle[A]:
        """Prepare to ask a question.

        Args:
            question: The question.
            caller: The caller that waits for the answer; None if there is none.
            next_may_start: Called once the question only waits for a browser, so that the next can be asked;
                thread-safe.
        """
        ...


class CallerGone(Exception):
    """The user stopped waiting before a question could be asked."""


class CellFormFactory(Protocol):
    """Displays a form for one question in the waiting cell."""

    async def draw(self, kind: QuestionKind, caller: WaitingCaller) -> QuestionUI | None:
        """Display a form, on the background loop; None if it would not be seen or its answer could not arrive.

        Raises:
            CallerGone: The caller no longer waits.
        """
        ...


class QuestionRouter:
    """Asks questions one at a time; while one only waits for a browser, the next is asked.

    Args:
        callers: The callers that wait now.
    """

    def __init__(self, callers: WaitingCallers) -> None:
        self.terminal: Callable[[], UserInterface] | None = None
        """Returns the front end in the thread of the caller; without it, questions are cancelled."""
        self.panel: QuestionUI | None = None
        """The front end that is preferred, if it reaches the user."""
        self.cell_forms: CellFormFactory | None = None
        """Displays a form if the panel does not reach the user."""
        self.subjects: list[object] = []
        """The calls that wait for the answer to a question."""
        self._callers = callers
        self._lock: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None

    def can_ask(self, kind: QuestionKind) -> bool:
        """Whether a question of this kind would reach the user now."""
        if self.panel is not None and self.panel.reaches(kind, self.caller(), None):
            return True
        return self.terminal is not None and self.caller() is not None and self.terminal().can_ask()

    async def ask(
        self, question: Question[A], subject: object = None, *, is_current: Callable[[], bool] = lambda: True
    ) -> A:
        """Ask a question, on the background loop.

        Args:
            question: The question.
            subject: The call that the question belongs to, if known.
            is_current: Whether the question is still needed, called when no other question is open; if not, it counts
                as withdrawn.
        """
        async with self._turn(subject) as end_turn:
            if not is_current():
                return question.withdrawn
            terminal, caller = self.terminal and self.terminal(), self.caller(subject)
            ui = self.panel
            if ui is None or not ui.reaches(question.kind, caller, subject):
                if terminal is None or caller is None or not terminal.can_ask():
                    return question.unanswered
                try:
                    ui = await self.cell_forms.draw(question.kind, caller) if self.cell_forms is not None else None
                except CallerGone:
                    return question.withdrawn
                if ui is None:
                    task = CrossThreadTask(lambda: terminal.ask(question), question.withdrawn)
                    caller.post(task.run, task.give_up)
                    return await task.outcome
            return await _ask_in_thread(ui, question, caller, subject, end_turn)

    def caller(self, subject: object = None) -> WaitingCaller | None:
        """The caller to ask: the one that waits for the question's call, else the first."""
        callers = list(self._callers)
        own = (caller for caller in callers if subject is not None and caller.subject is subject)
        return next(own, callers[0] if callers else None)

    @contextlib.asynccontextmanager
    async def _turn(self, subject: object) -> AsyncGenerator[Callable[[], None]]:
        """Wait until no other question is open. Yields a function that lets the next question be asked early."""
        loop = asyncio.get_running_loop()
        if self._lock is None or self._lock[0] is not loop:
            self._lock = loop, asyncio.Lock()
        _, lock = self._lock
        self.subjects.append(subject)
        try:
            await lock.acquire()
            with contextlib.ExitStack() as turn:
                turn.callback(lock.release)
                yield turn.close
        finally:
            self.subjects.remove(subject)


async def _ask_in_thread(
    ui: QuestionUI, question: Question[A], caller: WaitingCaller | None, subject: object, end_turn: Callable[[], None]
) -> A:
    """Ask in a new thread; the question is withdrawn when the caller stops waiting."""
    loop = asyncio.get_running_loop()
    waiting = caller if caller is not None and subject in (None, caller.subject) else None
    handle = ui.begin(question, waiting, lambda: loop.call_soon_threadsafe(end_turn))
    task = CrossThreadTask(handle.answer, question.withdrawn)
    if caller is not None:
        caller.post(_nothing, task.give_up)
    threading.Thread(target=task.run, name="ipymcp-question", daemon=True).start()
    try:
        return await task.outcome
    finally:
        handle.withdraw()


def _nothing() -> None: ...


class CrossThreadTask(Generic[T]):
    """A function that is called in another thread; its outcome is awaited on the loop that creates the task.

    Args:
        function: The function.
        otherwise: The outcome if the function is never called or is interrupted.
    """

    def __init__(self, function: Callable[[], T], otherwise: T) -> None:
        self._function = function
        self._otherwise = otherwise
        self._loop = asyncio.get_running_loop()
        self.outcome: asyncio.Future[T] = self._loop.create_future()
        """The outcome of the task."""

    def run(self) -> None:
        """Call the function. An exception becomes the outcome; an interrupt is also raised here."""
        if self.outcome.done():
            return
        try:
            value = self._function()
        except Exception as error:
            self._call_on_loop(self._fail, error)
        except BaseException:
            self.give_up()
            raise
        else:
            self._call_on_loop(self._succeed, value)

    def give_up(self) -> None:
        """End the task with the outcome `otherwise`; thread-safe."""
        self._call_on_loop(self._succeed, self._otherwise)

    def _call_on_loop(self, function: Callable[[Any], None], value: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, value)

    def _succeed(self, value: T) -> None:
        if not self.outcome.done():
            self.outcome.set_result(value)

    def _fail(self, error: Exception) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(error)
