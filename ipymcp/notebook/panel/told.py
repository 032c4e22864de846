"""Questions and their answers, each as the line that a notebook keeps. No secrets are in it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from ipymcp.masking import looks_secret, masks
from ipymcp.notebook.panel.messages import sound
from ipymcp.policy.questions import DECISIONS
from ipymcp.protocol.jsontypes import is_object
from ipymcp.runtime.web import domain
from ipymcp.text import visible

if TYPE_CHECKING:
    from ipymcp.policy.questions import ApprovalAnswer, ApprovalQuestion, TrustAnswer, TrustQuestion
    from ipymcp.runtime.interaction import Answer, FormQuestion, LoginQuestion, UrlQuestion

__all__ = ["approve", "fill", "login", "trust", "visit"]

_NOTHING: Final = DECISIONS[None]
_LONGEST: Final = 300
_HIDDEN: Final = "••••"
_ACTIONS: Final = {"accept": "agreed", "decline": "declined", "cancel": _NOTHING}


def fill(question: FormQuestion, answer: Answer) -> str:
    """A server wanted some values."""
    told = _ACTIONS[answer.action]
    if answer.action == "accept":
        properties = question.schema.get("properties")
        fields = properties if is_object(properties) else {}
        given = answer.content or {}
        told = ", ".join(f"{name} = {_value(name, fields.get(name), value)}" for name, value in given.items())
    return _line(f"{_asker(question)} asked: {question.message}", told or "answered")


def visit(question: UrlQuestion, answer: Answer) -> str:
    """A server wanted an address visited."""
    return _line(f"{_asker(question)} asked you to visit {domain(question.url)}", _ACTIONS[answer.action])


def login(question: LoginQuestion, answer: str | None) -> str:
    """A server wanted a login. The address that the user may have given holds a secret."""
    asked = f"{question.server} wanted you to log in at {question.domain}"
    return _line(asked, "not logged in" if answer is None else "logged in")


def trust(question: TrustQuestion, answer: TrustAnswer | None) -> str:
    """Which servers may run?"""
    agreed = answer.servers if answer is not None else frozenset[str]()
    refused = [one.name for one in question.candidates if one.name not in agreed]
    parts = [f"yes: {', '.join(sorted(agreed))}"] if agreed else []
    parts += [f"no: {', '.join(refused)}"] if refused else []
    return _line(f"May servers of {question.file} run?", _NOTHING if answer is None else " · ".join(parts))


def approve(question: ApprovalQuestion, answer: ApprovalAnswer | None) -> str:
    """May calls be made?"""
    calls = ", ".join(dict.fromkeys(f"{one.server}.{one.tool}" for one in question.calls))
    return _line(f"May {calls} be called?", DECISIONS[answer])


def _asker(question: FormQuestion | UrlQuestion) -> str:
    return f"{question.server}.{question.tool}" if question.tool else question.server


def _value(name: str, schema: Any, value: Any) -> str:
    is_password = is_object(schema) and schema.get("format") == "password"
    return _HIDDEN if is_password or looks_secret(name) else json.dumps(value, ensure_ascii=False)


def _line(asked: str, answered: str) -> str:
    return f"{_shortened(asked)} · {_shortened(answered)}"


def _shortened(text: str) -> str:
    line = " ".join(visible(sound(masks.head(text, 2 * _LONGEST))).split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"
