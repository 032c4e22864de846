"""Elicitation: questions of servers, answered by the user or by an `on_elicitation` function.

Source: MCP 2025-11-25 and 2026-07-28, client/elicitation. Response actions: `accept` has content that matches the
requested schema, `decline` and `cancel` have none.
"""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

from msgspec import Struct

from ipymcp.argument_checks import is_async
from ipymcp.errors import ArgumentError
from ipymcp.interaction.forms import UnsupportedForm
from ipymcp.interaction.questions import (
    NOT_ANSWERED,
    Action,
    FormPage,
    LinkPage,
    Question,
    QuestionKind,
    domain,
    is_web_address,
    summarized,
)
from ipymcp.masking import looks_secret
from ipymcp.protocol.types import is_object

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ipymcp.interaction.questions import Show


_HIDDEN: Final = "••••"
_ACTION_WORDS: Final = {"accept": "agreed", "decline": "declined", "cancel": NOT_ANSWERED}
_EXPECTED: Final = "return a dict of values, True to accept, False to decline, or None to cancel"


class ElicitationAnswer(Struct, frozen=True):
    """The answer to a server's question."""

    action: Action
    content: dict[str, Any] | None = None
    """The values of an accepted form."""
    note: str = ""
    """The reason why the user was not asked, for the server's log."""


CANCELLED: Final = ElicitationAnswer("cancel")
UNANSWERED: Final = ElicitationAnswer("cancel", note="no one could be asked")
"""The answer if no front end accepts input, as in nbclient and papermill."""


class _ServerQuestion(Question[ElicitationAnswer], frozen=True):
    """A question of a server."""

    kind: ClassVar[QuestionKind] = "form"
    withdrawn: ClassVar[ElicitationAnswer] = CANCELLED
    unanswered: ClassVar[ElicitationAnswer] = UNANSWERED

    server: str
    tool: str | None
    """The tool whose call led to the question, if known."""
    message: str
    """The server's message, unmodified."""

    @property
    def _origin(self) -> str:
        return f"{self.server}.{self.tool}" if self.tool else self.server


class FormQuestion(_ServerQuestion, frozen=True):
    """A request for values (form mode)."""

    schema: Mapping[str, Any]
    """The JSON Schema of the requested object."""

    def ask(self, show: Show) -> ElicitationAnswer:
        """Show the form."""
        try:
            reply = show(FormPage(self.server, f"{self._origin} asks for your input", self.message, dict(self.schema)))
        except UnsupportedForm as error:
            return ElicitationAnswer("decline", note=f"a form that cannot be shown: {error}")
        return ElicitationAnswer(reply.action or "cancel", reply.content)

    def summary(self, answer: ElicitationAnswer) -> str:
        """The message and the values, without secrets."""
        text = _ACTION_WORDS[answer.action]
        if answer.action == "accept":
            fields = _properties(self.schema)
            values = (answer.content or {}).items()
            text = ", ".join(f"{name} = {_shown(name, fields.get(name), value)}" for name, value in values)
        return summarized(f"{self._origin} asked: {self.message}", text or "answered")


class InputQuestion(FormQuestion, frozen=True):
    """A request for values that a definition needs before its server starts."""

    kind: ClassVar[QuestionKind] = "secret"


class UrlQuestion(_ServerQuestion, frozen=True):
    """A request to visit a URL (URL mode); `accept` means that the user agrees, not that the visit is complete."""

    url: str

    def ask(self, show: Show) -> ElicitationAnswer:
        """Show the link with its host."""
        host = domain(self.url)
        reply = show(LinkPage(self.server, f"{self.server} wants you to open {host}", self.message, self.url, host))
        return ElicitationAnswer(reply.action or "cancel")

    def summary(self, answer: ElicitationAnswer) -> str:
        """The host and the answer."""
        return summarized(f"{self.server} wanted you to open {domain(self.url)}", _ACTION_WORDS[answer.action])


Elicitation: TypeAlias = FormQuestion | UrlQuestion


def read_elicitation(server: str, tool: str | None, params: Mapping[str, Any]) -> Elicitation | ElicitationAnswer:
    """Read a server's request. Returns the question, or the answer to a request that must not be shown to the user."""
    message = str(params.get("message") or "")
    if params.get("mode") == "url":
        url = str(params.get("url") or "")
        if is_web_address(url):
            return UrlQuestion(server, tool, message, url)
        return ElicitationAnswer("decline", note=f"asked to visit a URL that is not a web address: {url!r}")
    schema = params.get("requestedSchema")
    return FormQuestion(server, tool, message, schema if is_object(schema) else {})


# -- answers of functions ---------------------------------------------------------------------------------------------


def checked_handler(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap a user's `on_elicitation` function so that it returns a checked `ElicitationAnswer`."""
    if is_async(function):

        @functools.wraps(function)
        async def answer_async(question: Elicitation) -> ElicitationAnswer:
            return read_answer(await function(question), question)

        return answer_async

    @functools.wraps(function)
    def answer(question: Elicitation) -> ElicitationAnswer:
        return read_answer(function(question), question)

    return answer


def read_answer(given: object, question: Elicitation) -> ElicitationAnswer:
    """Convert the value that a function returned: a dict, True to accept, False to decline, or None to cancel.

    Raises:
        ArgumentError: The value is something else, or does not match the requested schema.
    """
    from ipymcp.schema.validation import listing

    if given is None:
        return CANCELLED
    if given is False:
        return ElicitationAnswer("decline")
    if isinstance(given, ElicitationAnswer):
        if given.action != "accept" or isinstance(question, UrlQuestion):
            return given
        given = given.content or {}
    elif given is not True and not is_object(given):
        raise ArgumentError(f"on_elicitation returned {listing((given,))}: {_EXPECTED}")
    if isinstance(question, UrlQuestion):
        return ElicitationAnswer("accept")
    fields = _properties(question.schema).items()
    values = {name: schema["default"] for name, schema in fields if is_object(schema) and "default" in schema}
    values |= given if is_object(given) else {}
    return ElicitationAnswer("accept", _checked({key: one for key, one in values.items() if one is not None}, question))


def _checked(values: dict[str, Any], question: FormQuestion) -> dict[str, Any]:
    from ipymcp.schema.tool_schema import ToolSchema

    schema = {"type": "object", **question.schema, "properties": _properties(question.schema)}
    schema.setdefault("additionalProperties", False)
    try:
        return ToolSchema(schema, server=question.server, tool=question.tool or "").check(values)
    except ArgumentError as error:
        raise ArgumentError(f"on_elicitation returned values that do not match the schema: {error.message}") from None


def _properties(schema: Mapping[str, Any]) -> dict[str, Any]:
    properties = schema.get("properties")
    return properties if is_object(properties) else {}


def _shown(name: str, schema: Any, value: Any) -> str:
    is_password = is_object(schema) and schema.get("format") == "password"
    return _HIDDEN if is_password or looks_secret(name) else json.dumps(value, ensure_ascii=False)
