"""A `UserInterface` that gives fixed answers, or cannot ask at all."""

from __future__ import annotations

from dataclasses import dataclass

from ipymcp.interaction.questions import ElicitationAnswer, FormQuestion, LoginQuestion, UrlQuestion


@dataclass
class ScriptedInterface:
    present: bool = True

    def can_ask(self) -> bool:
        return self.present

    def fill(self, question: FormQuestion) -> ElicitationAnswer:
        return ElicitationAnswer("accept", {})

    def visit(self, question: UrlQuestion) -> ElicitationAnswer:
        return ElicitationAnswer("accept")

    def login(self, question: LoginQuestion) -> str | None:
        return None
