"""An `Interaction` for tests of the desk: there, or not there."""

from __future__ import annotations

from dataclasses import dataclass

from ipymcp.interaction.questions import Answer, FormQuestion, LoginQuestion, UrlQuestion


@dataclass
class Asker:
    present: bool = True

    def can_ask(self) -> bool:
        return self.present

    def fill(self, question: FormQuestion) -> Answer:
        return Answer("accept", {})

    def visit(self, question: UrlQuestion) -> Answer:
        return Answer("accept")

    def login(self, question: LoginQuestion) -> str | None:
        return None
