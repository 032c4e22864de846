"""A form in the output of a cell, for one question. What is left of it is a line of what was asked and answered."""

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
_WITHOUT: Final = "ipymcp asks you something. Where no form is drawn here, you are asked at a prompt in a moment."


class CellForm:
    """An `QuestionUI`.

    Args:
        panel: Whose questions it shows.
        publisher: The shell's, of displays.
    """

    def __init__(self, panel: Panel, publisher: Any) -> None:
        self._questions = panel.questions
        self._publisher = publisher
        self._display = uuid.uuid4().hex
        self._widget: Any = PanelWidget(panel, asks=True)
        self._on_hello: Callable[[], None] | None = None
        self.has_spoken = False
        """Whether a page has drawn it."""
        self._is_greeted = False
        self._widget.on_msg(self._heard)

    def show(self) -> None:
        """Display it. An interrupt meanwhile leaves nothing of it."""
        bundle, metadata = self._widget._repr_mimebundle_()
        try:
            self._publish({**bundle, "text/plain": _WITHOUT}, metadata)
        except BaseException:
            self.remove()
            raise

    def _heard(self, _: object, content: object, __: object) -> None:
        self.has_spoken = True
        if is_object(content) and content.get("kind") == "hello":
            self._is_greeted = True
            if self._on_hello is not None:
                self._on_hello()

    def on_hello(self, act: Callable[[], None]) -> None:
        """Have something done when a page has drawn all of it."""
        self._on_hello = act
        if self._is_greeted:
            act()

    def remove(self) -> None:
        """Nothing is left of it."""
        self.end({})

    def reaches(self, kind: QuestionKind, place: WaitingCaller | None, subject: object) -> bool:
        """Whether its answers come through."""
        return self._questions.reaches(kind, place, subject)

    def begin(self, kind: QuestionKind, rests: Callable[[], object], place: WaitingCaller | None) -> QuestionHandle:
        """Ask the one question, here."""
        return _CellFormHandle(self, self._questions.begin(kind, rests, None))

    def _publish(self, data: dict[str, Any], metadata: dict[str, Any], *, update: bool = False) -> None:
        self._publisher.publish(data, metadata, transient={"display_id": self._display}, update=update)

    def end(self, left: dict[str, Any]) -> None:
        """It is over; leave that in its place."""
        self._publish(left, {}, update=True)
        self._widget.end()


class _CellFormHandle:
    """Asks in the form, and leaves a line there.

    Args:
        form: Which.
        asking: Of the panel whose questions it shows.
    """

    def __init__(self, form: CellForm, asking: QuestionHandle) -> None:
        self._form = form
        self._asking = asking
        self._line = ""

    def can_ask(self) -> bool:
        """Whether its page is still there."""
        return self._asking.can_ask()

    def withdraw(self) -> None:
        """It was answered, or nobody wants to know any more."""
        self._asking.withdraw()
        self._form.end({"text/plain": self._line} if self._line else {})

    def fill(self, question: FormQuestion) -> ElicitationAnswer:
        """Have a form filled."""
        return self._tell(questions.fill, question, self._asking.fill, CANCELLED)

    def visit(self, question: UrlQuestion) -> ElicitationAnswer:
        """Have an address visited."""
        return self._tell(questions.visit, question, self._asking.visit, CANCELLED)

    def login(self, question: LoginQuestion) -> str | None:
        """Have the user log in."""
        return self._tell(questions.login, question, self._asking.login, None)

    def trust(self, question: TrustQuestion) -> TrustAnswer | None:
        """Have the user say which servers may run."""
        return self._tell(questions.trust, question, self._asking.trust, None)

    def approve(self, question: ApprovalQuestion) -> ApprovalAnswer | None:
        """Have the user say whether calls may be made. What a card shows needs no line."""
        if question.card:
            return self._asking.approve(question)
        return self._tell(questions.approve, question, self._asking.approve, None)

    def _tell(self, line: Callable[[Q, A], str], question: Q, ask: Callable[[Q], A], otherwise: A) -> A:
        self._line = line(question, otherwise)
        answer = ask(question)
        self._line = line(question, answer)
        return answer
