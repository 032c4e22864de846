"""A `UserInterface` that gives the same reply to every page, or cannot ask at all."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ipymcp.interaction.questions import A, LoginQuestion, PageReply, Question, QuestionPage


@dataclass
class ScriptedInterface:
    reply: PageReply | Callable[[LoginQuestion], PageReply] = field(default_factory=lambda: PageReply("accept", {}))
    present: bool = True
    asked: list[Question[Any]] = field(default_factory=list)

    def can_ask(self) -> bool:
        return self.present

    def ask(self, question: Question[A]) -> A:
        self.asked.append(question)
        return question.ask(self._show)

    def _show(self, page: QuestionPage, login: LoginQuestion | None = None) -> PageReply:
        if isinstance(self.reply, PageReply):
            return self.reply
        assert login is not None, page
        return self.reply(login)
