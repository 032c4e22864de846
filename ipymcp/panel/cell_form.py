"""A form for one question in the output of a cell; a line with question and answer replaces it."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ipymcp.interaction.questions import CANCELLED
from ipymcp.panel import questions
from ipymcp.panel.widget import PanelWidget
from ipymcp.protocol.types import is_object

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipymcp.interaction.questions import (
        ApprovalAnswer,
        ApprovalQuestion,
        ElicitationAnswer,
        FormQuestion,
        LoginQuestion,
        QuestionKind,
        TrustAnswer,
        TrustQuestion,
        UrlQuestion,
    )
    from ipymcp.panel.panel import Panel
    from ipymcp.runtime.interrupts import WaitingCaller
    from ipymcp.runtime.question_routing import QuestionHandle


Q = TypeVar("Q")
A = TypeVar("A")
_WITHOUT: Final = "ipymcp has a question. If no form appears here, a prompt follows in a moment."


class CellForm:
    """A `QuestionUI` that shows one question in a cell.

    Args:
        panel: The notebook's panel.
        publisher: The shell's display publisher.
    """

    def __init__(self, panel: Panel, publisher: Any) -> None:
        self._questions = panel.questions
        self._publisher = publisher
        self._display = uuid.uuid4().hex
        self._widget: Any = PanelWidget(panel, asks=True)
        self._on_hello: Callable[[], None] | None = None
        self.has_messages = False
        """Whether a page has sent any message."""
        self._is_greeted = False
        self._widget.on_msg(self._handle)

    def show(self) -> None:
        """Display the form; an interrupt removes it."""
        bundle, metadata = self._widget._repr_mimebundle_()
        try:
            self._publish({**bundle, "text/plain": _WITHOUT}, metadata)
        except BaseException:
            self.remove()
            raise

    def _handle(self, _: object, content: object, __: object) -> None:
        self.has_messages = True
        if is_object(content) and content.get("kind") == "hello":
            self._is_greeted = True
            if self._on_hello is not None:
                self._on_hello()

    def on_hello(self, act: Callable[[], None]) -> None:
        """Call a function once a page has drawn the form."""
        self._on_hello = act
        if self._is_greeted:
            act()

    def remove(self) -> None:
        """Remove the form without a trace."""
        self.end({})

    def reaches(self, kind: QuestionKind, place: WaitingCaller | None, subject: object) -> bool:
        """Whether an answer can arrive while the caller waits."""
        return self._questions.reaches(kind, place, subject)

    def begin(self, kind: QuestionKind, rests: Callable[[], object], place: WaitingCaller | None) -> QuestionHandle:
        """Begin to ask the question."""
        return _CellFormHandle(self, self._questions.begin(kind, rests, None))

    def _publish(self, data: dict[str, Any], metadata: dict[str, Any], *, update: bool = False) -> None:
        self._publisher.publish(data, metadata, transient={"display_id": self._display}, update=update)

    def end(self, remainder: dict[str, Any]) -> None:
        """Close the form and display `remainder`, a MIME bundle, in its place."""
        self._publish(remainder, {}, update=True)
        self._widget.end()


class _CellFormHandle:
    """A `QuestionHandle` that leaves a summary line in place of the form."""

    def __init__(self, form: CellForm, handle: QuestionHandle) -> None:
        self._form = form
        self._handle = handle
        self._line = ""

    def can_ask(self) -> bool:
        """Whether a page still shows the form."""
        return self._handle.can_ask()

    def withdraw(self) -> None:
        """Withdraw the question and replace the form with the summary line."""
        self._handle.withdraw()
        self._form.end({"text/plain": self._line} if self._line else {})

    def fill(self, question: FormQuestion) -> ElicitationAnswer:
        """Ask for the values of a form."""
        return self._summarized(questions.fill, question, self._handle.fill, CANCELLED)

    def visit(self, question: UrlQuestion) -> ElicitationAnswer:
        """Ask the user to visit a URL."""
        return self._summarized(questions.visit, question, self._handle.visit, CANCELLED)

    def login(self, question: LoginQuestion) -> str | None:
        """Ask the user to log in."""
        return self._summarized(questions.login, question, self._handle.login, None)

    def trust(self, question: TrustQuestion) -> TrustAnswer | None:
        """Ask which servers may run."""
        return self._summarized(questions.trust, question, self._handle.trust, None)

    def approve(self, question: ApprovalQuestion) -> ApprovalAnswer | None:
        """Ask whether calls may be made; a question in a card leaves no line."""
        if question.card:
            return self._handle.approve(question)
        return self._summarized(questions.approve, question, self._handle.approve, None)

    def _summarized(self, line: Callable[[Q, A], str], question: Q, ask: Callable[[Q], A], otherwise: A) -> A:
        self._line = line(question, otherwise)
        answer = ask(question)
        self._line = line(question, answer)
        return answer
