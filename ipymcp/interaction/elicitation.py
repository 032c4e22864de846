"""Answers of an `on_elicitation` function, checked before they are sent.

Source: MCP 2025-11-25 and 2026-07-28, client/elicitation, response actions: `accept` carries content that fits the
requested schema, `decline` and `cancel` carry none.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from ipymcp.argument_checks import is_async
from ipymcp.errors import ArgumentError
from ipymcp.interaction.questions import CANCELLED, ElicitationAnswer, UrlQuestion
from ipymcp.protocol.types import is_object
from ipymcp.schema.tool_schema import ToolSchema
from ipymcp.schema.validation import listing

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipymcp.interaction.questions import FormQuestion


_WANTED = "return a dict of values, True to accept, False to decline, or None to cancel"


def answering(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap a user's function so that it returns a checked `ElicitationAnswer`."""
    if is_async(function):

        @functools.wraps(function)
        async def answer_async(question: FormQuestion | UrlQuestion) -> ElicitationAnswer:
            return read_answer(await function(question), question)

        return answer_async

    @functools.wraps(function)
    def answer(question: FormQuestion | UrlQuestion) -> ElicitationAnswer:
        return read_answer(function(question), question)

    return answer


def read_answer(given: object, question: FormQuestion | UrlQuestion) -> ElicitationAnswer:
    """Convert the value that a function returned: a dict, True to accept, False to decline, or None to cancel.

    Raises:
        ArgumentError: The value is something else, or does not match the requested schema.
    """
    if given is None:
        return CANCELLED
    if given is False:
        return ElicitationAnswer("decline")
    if isinstance(given, ElicitationAnswer):
        if given.action != "accept" or isinstance(question, UrlQuestion):
            return given
        given = given.content or {}
    elif given is not True and not is_object(given):
        raise ArgumentError(f"on_elicitation returned {listing((given,))}: {_WANTED}")
    if isinstance(question, UrlQuestion):
        return ElicitationAnswer("accept")
    values = {**_defaults(question), **(given if is_object(given) else {})}
    return ElicitationAnswer(
        "accept", _checked({name: value for name, value in values.items() if value is not None}, question)
    )


def _checked(values: dict[str, Any], question: FormQuestion) -> dict[str, Any]:
    properties = question.schema.get("properties")
    schema = {"type": "object", **question.schema, "properties": properties if is_object(properties) else {}}
    schema.setdefault("additionalProperties", False)
    try:
        return ToolSchema(schema, server=question.server, tool=question.tool or "").check(values)
    except ArgumentError as error:
        raise ArgumentError(f"on_elicitation returned what was not asked for: {error.message}") from None


def _defaults(question: FormQuestion) -> dict[str, Any]:
    properties = question.schema.get("properties")
    fields = properties.items() if is_object(properties) else ()
    return {name: schema["default"] for name, schema in fields if is_object(schema) and "default" in schema}
