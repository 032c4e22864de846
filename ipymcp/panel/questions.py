"""Questions to the user in the panel, and the line in a cell that waits for an answer.

A question blocks a thread of its own until a view answers it, it is withdrawn, or no view remains that may answer it.
"""

from __future__ import annotations

import itertools
import threading
import uuid
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, Generic, NewType, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ipymcp.errors import UnknownName
from ipymcp.interaction.questions import A, ApprovalPage, InvalidFields, PageReply, QuestionKind, QuestionPage, WaitPage
from ipymcp.panel.messages import Malformed, Text, ToView
from ipymcp.text import unmasked, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ipymcp.interaction.questions import LoginQuestion, Question
    from ipymcp.panel.messages import Channel
    from ipymcp.panel.permissions import Permissions
    from ipymcp.panel.state import PanelState
    from ipymcp.runtime.loop import BackgroundLoop
    from ipymcp.runtime.waiting import WaitingCaller


_WAITING: Final = "Waiting for your answer in the MCP panel."
_MAX_MESSAGE: Final = 4_000
_REDIRECT_INTERVAL: Final = 0.3
"""Seconds between two checks for the redirect of a login."""


class QuestionHead(ToView):
    """The fields of a question that its page does not have. A view only receives questions that it may answer."""

    id: str
    kind: QuestionKind


QuestionRow = NewType("QuestionRow", dict[str, Any])
"""A `QuestionHead` and a `QuestionPage` in one object."""


class AnswerFields(PageReply, frozen=True, kw_only=True):
    """A reply to a question."""

    question: Text


class FieldError(ToView):
    """The error of one value of a form."""

    path: list[str | int]
    message: str


class FieldErrors(ToView):
    """The errors of a form's values."""

    errors: list[FieldError]


class QuestionForm(Protocol):
    """A form in a cell that shows a question, which no view showed when the form was drawn."""

    def supersede(self, channel: Channel) -> None:
        """Remove the form if another view, which shows its question as well, can deliver the answer."""
        ...

    def end(self, line: str = "") -> None:
        """Replace the form with a line; without one, remove the form."""
        ...


class _OpenPage(Struct, eq=False):
    """A page of a question that the views show."""

    id: str
    kind: QuestionKind
    page: QuestionPage
    reply: Future[PageReply]
    form: QuestionForm | None = None

    def row(self) -> QuestionRow:
        """The page as the views receive it."""
        shown = unmasked if isinstance(self.page, ApprovalPage) or self.kind == "login" else visible
        page = replace(self.page, title=shown(self.page.title), message=shown(self.page.message[:_MAX_MESSAGE]))
        return QuestionRow(msgspec.to_builtins(page) | {"id": self.id, "kind": self.kind})

    def supersede_form(self, channel: Channel) -> None:
        """Remove the form of a model's call if a view shows the call's card, and with it the question."""
        if self.form is not None and isinstance(self.page, ApprovalPage) and self.page.card:
            self.form.supersede(channel)


class WaitingLine:
    """A line in the output of a cell that waits for an answer in the panel. The answer removes it.

    Args:
        publisher: The shell's display publisher.
        caller: The waiting caller.
    """

    def __init__(self, publisher: Any, caller: WaitingCaller) -> None:
        self._publisher = publisher
        self._display = uuid.uuid4().hex
        self._lock = threading.Lock()
        self._is_over = self._is_shown = False
        caller.post(self._show, _nothing)

    def _show(self) -> None:
        with self._lock:
            if not self._is_over:
                self._is_shown = True
                self._publish({"text/plain": _WAITING}, update=False)

    def remove(self) -> None:
        """Remove the line; thread-safe."""
        with self._lock:
            if self._is_shown and not self._is_over:
                self._publish({}, update=True)
            self._is_over = True

    def _publish(self, data: dict[str, Any], *, update: bool) -> None:
        self._publisher.publish(data, {}, transient={"display_id": self._display}, update=update)


def _nothing() -> None: ...


class PanelQuestions:
    """A `QuestionUI` that asks in the views of a panel.

    Args:
        loop: The background loop.
        state: The rows that the views show.
        channels: Returns the channels of the views that may answer questions of a kind.
        is_own: Returns whether its argument is a call that a view made.
        publisher: The shell's display publisher; None to show nothing in waiting cells.
    """

    def __init__(
        self,
        loop: BackgroundLoop,
        state: PanelState,
        channels: Callable[[QuestionKind], Sequence[Channel]],
        is_own: Callable[[object], bool],
        publisher: Any = None,
    ) -> None:
        self._loop = loop
        self._state = state
        self._channels = channels
        self._is_own = is_own
        self._publisher = publisher
        self._numbers = itertools.count(1)
        self._open: dict[str, _OpenPage] = {}
        """Open pages by id; the thread that pops one sets its reply."""

    def reaches(self, kind: QuestionKind, caller: WaitingCaller | None, subject: object) -> bool:
        """Whether a view may answer, and its answer arrives while the caller waits."""
        running = caller is not None and not self._is_own(subject)
        blocked = running and caller is not None and caller.is_blocked
        return any(channel.delivers_answers(blocked=blocked, running=running) for channel in self._channels(kind))

    def begin(
        self, question: Question[A], caller: WaitingCaller | None, next_may_start: Callable[[], object]
    ) -> PanelQuestionHandle[A]:
        """Prepare to ask a question, with a line in the output of the waiting cell."""
        return PanelQuestionHandle(self, question, caller, next_may_start)

    def waiting_line(self, caller: WaitingCaller | None) -> WaitingLine | None:
        """Show in the caller's cell that it waits for an answer in the panel."""
        return WaitingLine(self._publisher, caller) if self._publisher is not None and caller is not None else None

    def answer(self, answer: AnswerFields, permissions: Permissions) -> FieldErrors | None:
        """Handle a view's reply, on the background loop.

        Args:
            answer: The reply.
            permissions: The view's permissions.

        Returns:
            The errors if the user can correct the reply.

        Raises:
            PolicyError: The view may not answer such questions.
            UnknownName: The page is not open.
            Malformed: The page cannot have this reply.
        """
        opened = self._open.get(answer.question)
        if opened is None:
            raise UnknownName("the question is no longer open", hint="it was answered or withdrawn")
        permissions.check_answer(opened.kind)
        page = opened.page
        if isinstance(page, ApprovalPage):
            page = replace(page, answers=tuple(permissions.answers(page.answers)))
        try:
            reply = page.read(answer)
        except InvalidFields as invalid:
            return FieldErrors(errors=msgspec.convert(invalid.errors, list[FieldError]))
        except ValueError as error:
            raise Malformed(str(error)) from None
        self.close(opened, reply)
        return None

    def drop_unanswerable(self) -> None:
        """Withdraw the questions that no remaining view may answer."""
        for opened in [*self._open.values()]:
            if not self._channels(opened.kind):
                self.close(opened)

    def supersede_forms(self, channel: Channel) -> None:
        """Remove the forms of model's calls whose cards a new view shows with their questions, in the same output."""
        for opened in [*self._open.values()]:
            opened.supersede_form(channel)

    def open(self, kind: QuestionKind, page: QuestionPage, form: QuestionForm | None = None) -> _OpenPage:
        """Show a page; thread-safe."""
        opened = _OpenPage(f"q{next(self._numbers)}", kind, page, Future(), form)
        self._open[opened.id] = opened
        self._loop.call(self._show, opened)
        return opened

    def close(self, opened: _OpenPage, reply: PageReply | None = None) -> None:
        """Close a page with its reply, or withdraw it; thread-safe."""
        if self._open.pop(opened.id, None) is not None:
            opened.reply.set_result(reply or PageReply())
            if self._loop.is_running:
                self._loop.call(self._remove_row, opened.id)
            else:  # the loop is being stopped, and must not start again
                self._remove_row(opened.id)

    def _remove_row(self, question: str) -> None:
        self._state.keep("questions", self._state.rows["questions"].keys() - {question})

    def _show(self, opened: _OpenPage) -> None:
        if opened.reply.done():
            return
        self._state.put("questions", opened.id, opened.row())
        for channel in self._channels(opened.kind):  # of views that connected while the form was being drawn
            opened.supersede_form(channel)


class PanelQuestionHandle(Generic[A]):
    """A `QuestionHandle` of the panel.

    Args:
        questions: The questions of the panel.
        question: The question.
        caller: The caller whose cell shows a line while it waits; None for no line.
        next_may_start: Called when the question only waits for a browser, so that the next one may be asked.
        form: The form that shows the question in a cell, if any; at its end, a line takes its place.
    """

    def __init__(
        self,
        questions: PanelQuestions,
        question: Question[A],
        caller: WaitingCaller | None,
        next_may_start: Callable[[], object],
        form: QuestionForm | None = None,
    ) -> None:
        self._questions = questions
        self._question = question
        self._caller = caller
        self._next_may_start = next_may_start
        self._form = form
        self._answer: A = question.withdrawn
        self._waiting: WaitingLine | None = None
        self._opened: _OpenPage | None = None
        self._is_withdrawn = False

    def answer(self) -> A:
        """Ask, and block until the question is answered or withdrawn."""
        self._answer = self._question.ask(self._show)
        return self._answer

    def withdraw(self) -> None:
        """Withdraw the question; thread-safe."""
        self._is_withdrawn = True  # first: a page opened later checks this flag
        self._close()
        if self._form is not None:
            self._form.end(self._question.summary(self._answer) if self._opened is not None else "")

    def _close(self) -> None:
        if self._waiting is not None:
            self._waiting.remove()
        if self._opened is not None:
            self._questions.close(self._opened)

    def _show(self, page: QuestionPage, login: LoginQuestion | None = None) -> PageReply:
        if self._waiting is None and not (isinstance(page, ApprovalPage) and page.card):
            self._waiting = self._questions.waiting_line(self._caller)
        opened = self._opened = self._questions.open(self._question.kind, page, self._form)
        if self._is_withdrawn:
            self._close()
        if isinstance(page, WaitPage):
            self._next_may_start()
        redirected = login.redirected if login is not None else None
        while redirected is not None and not opened.reply.done():
            if redirected.wait(_REDIRECT_INTERVAL):
                self._questions.close(opened, PageReply("accept", {"address": ""}))
        return opened.reply.result()
