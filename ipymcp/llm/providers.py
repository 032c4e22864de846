"""Providers: the limits of their tool declarations, and the form of their requests and responses.

A provider refuses the whole request because of one declaration that it does not accept, so the limits are the
narrowest in its documentation and error messages.

A response is the provider's object (with `model_dump`) or its JSON, one of its messages, or a list of its tool calls.
Its provider is recognized by its shape.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from msgspec import Struct

from ipymcp.errors import ArgumentError
from ipymcp.llm.answer import SHOWN, ToolCallOutcome, ToolCallRequest
from ipymcp.protocol import types
from ipymcp.protocol.types import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ipymcp.schema.tree import Schema


_ANNOTATIONS: Final = frozenset({"title", "description", "default", "enum"})
_LIMITS: Final = frozenset({"minimum", "maximum", "minItems", "maxItems", "minLength", "maxLength", "pattern"})
_MORE_LIMITS: Final = frozenset({"exclusiveMinimum", "exclusiveMaximum", "multipleOf", "uniqueItems", "const"})
_FORMATS: Final = frozenset(
    {"date-time", "date", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"}
)
_KEY: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class Profile(Struct, frozen=True):
    """The limits of one provider's tool declarations.

    Attributes:
        name: The provider's name in errors and reports.
        words: Accepted JSON Schema keywords, in addition to those that the compiler writes itself.
        formats: Accepted values of `format`; None for all.
        type_lists: Whether `type` may be a list.
        any_choices: Whether `enum` may contain any JSON; else strings and numbers.
        references: Whether a schema may have `$ref` to its `$defs`.
        recursion: Whether a schema may refer to itself.
        beside: Accepted keywords beside a `$ref`.
        key: Pattern of property names; None for any name.
        depth: Maximum nesting of objects and arrays.
        description: Maximum characters of a tool's description.
        functions: Maximum tools in one request.
    """

    name: str
    words: frozenset[str]
    formats: frozenset[str] | None = None
    type_lists: bool = True
    any_choices: bool = True
    references: bool = True
    recursion: bool = True
    beside: tuple[str, ...] = ("title", "description", "default")
    key: re.Pattern[str] | None = None
    depth: int = 10
    description: int = 10_000
    functions: int = 1_000


PLAIN: Final = Profile(
    "any provider",
    _ANNOTATIONS | _LIMITS | _MORE_LIMITS | {"format"},
    key=_KEY,
    description=1_024,
    functions=128,
)
"""The narrowest limits, for an unknown provider whose library rewrites the keywords."""
_OPENAI: Final = Profile("OpenAI", _ANNOTATIONS | _LIMITS | _MORE_LIMITS | {"format"}, description=1_024, functions=128)
_ANTHROPIC: Final = Profile(
    "Anthropic", _ANNOTATIONS | _LIMITS | _MORE_LIMITS | {"format"}, _FORMATS, key=_KEY, depth=20
)
_GEMINI: Final = Profile(
    "Gemini",
    (_ANNOTATIONS - {"default"}) | _LIMITS - {"pattern", "minLength", "maxLength"} | {"format"},
    frozenset({"date-time", "date", "time"}),
    type_lists=False,
    any_choices=False,
    recursion=False,
    beside=("description",),
    key=re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}"),
    description=8_000,
    functions=512,
)
PROFILES: Final = {
    **dict.fromkeys(("openai", "openai_responses", "ollama"), _OPENAI),
    "anthropic": _ANTHROPIC,
    "gemini": _GEMINI,
}
"""Profiles by dialect."""
_PROVIDERS: Final = {
    **dict.fromkeys(("openai", "openai-chat", "openai-responses", "azure"), _OPENAI),
    "anthropic": _ANTHROPIC,
    **dict.fromkeys(("google", "google-gla", "google-vertex", "google-cloud"), _GEMINI),
}
"""Profiles by pydantic-ai's name of a provider."""


def profile_of(model: Any, base_url: str | None = None) -> Profile:
    """The limits for a model; the narrowest if its provider is unknown.

    Args:
        model: `provider:name`, or a model of pydantic-ai.
        base_url: URL of an OpenAI-compatible provider.
    """
    if base_url is not None:
        return _OPENAI
    provider = model.partition(":")[0] if isinstance(model, str) else getattr(model, "system", None)
    return _PROVIDERS.get(provider.removeprefix("gateway/"), PLAIN) if isinstance(provider, str) else PLAIN


Dialect: TypeAlias = Literal["openai", "openai_responses", "anthropic", "gemini", "ollama"]
_HINT: Final = "give the provider's response, one of its messages, or a list of its tool calls"
_CHAT_CALLS: Final = ("function", "custom", "tool_call")
"""Types of a call in Chat Completions and in LangChain's messages."""
_DEPTH: Final = 8
"""Maximum nesting at which a response may contain objects of a library."""


# -- declarations -----------------------------------------------------------------------------------------------------


def _openai(one: Declaration) -> dict[str, Any]:
    return {"type": "function", "function": {**_about(one), "parameters": one.schema}}


def _responses(one: Declaration) -> dict[str, Any]:
    return {"type": "function", **_about(one), "parameters": one.schema, "strict": False}


def _anthropic(one: Declaration) -> dict[str, Any]:
    return {**_about(one), "input_schema": one.schema}


def _gemini(one: Declaration) -> dict[str, Any]:
    return {**_about(one), "parametersJsonSchema": one.schema}


def _about(one: Declaration) -> dict[str, Any]:
    return {"name": one.name, "description": one.description}


SHAPES: Final[dict[Dialect, Callable[[Declaration], dict[str, Any]]]] = {
    "openai": _openai,
    "openai_responses": _responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
    "ollama": _openai,
}


# -- responses --------------------------------------------------------------------------------------------------------


def read_response(response: object) -> tuple[Dialect, list[ToolCallRequest]]:
    """The dialect and the tool calls of a response.

    Raises:
        ArgumentError: The value is not a model's response.
    """
    return _read(_plain(response))


def _read(value: Any) -> tuple[Dialect, list[ToolCallRequest]]:
    if is_array(value):
        return _read_items(value)
    if is_object(value):
        if is_array(value.get("choices")):
            return "openai", _chat_calls(_first(value["choices"], "message"))
        if is_object(value.get("message")) and "model" in value:
            return "ollama", _chat_calls(value["message"])
        if "tool_calls" in value or (value.get("role") == "assistant" and isinstance(value.get("content"), str)):
            return "openai", _chat_calls(value)
        if is_array(value.get("output")):
            return "openai_responses", _calls(value["output"], _response_call)
        if any(each in value for each in ("candidates", "promptFeedback", "prompt_feedback")):
            return "gemini", _calls(_parts(_first(value.get("candidates") or [], "content")), _gemini_call)
        if is_array(value.get("parts")):
            return "gemini", _calls(value["parts"], _gemini_call)
        if is_array(value.get("content")):
            return "anthropic", _calls(value["content"], _anthropic_call)
        dialect, calls = _read_items([value])
        if calls or "type" in value:
            return dialect, calls
        raise ArgumentError(f"not a model's response: a dict of {', '.join(map(str, value)) or 'nothing'}", hint=_HINT)
    raise ArgumentError(f"not a model's response: {type(value).__name__}", hint=_HINT)


def _read_items(items: Sequence[Any]) -> tuple[Dialect, list[ToolCallRequest]]:
    readers: tuple[tuple[Dialect, Callable[[Any], ToolCallRequest | None]], ...] = (
        ("openai", _chat_call),
        ("openai_responses", _response_call),
        ("anthropic", _anthropic_call),
        ("gemini", _gemini_call),
    )
    for dialect, read in readers:
        found = _calls(items, read)
        if found:
            return dialect, found
    if all(is_object(item) for item in items):
        return "openai", []
    kinds = ", ".join(sorted({type(item).__name__ for item in items}))
    raise ArgumentError(f"not a model's tool calls: a list of {kinds}", hint=_HINT)


def _calls(items: Any, read: Callable[[Any], ToolCallRequest | None]) -> list[ToolCallRequest]:
    return [call for item in items if (call := read(item)) is not None] if is_array(items) else []


def _chat_calls(message: Any) -> list[ToolCallRequest]:
    return _calls(message.get("tool_calls"), _chat_call) if is_object(message) else []


def _chat_call(item: Any) -> ToolCallRequest | None:
    """Read one of `tool_calls`, even if malformed: providers refuse a conversation with an unanswered call."""
    if not is_object(item) or not (is_object(item.get("function")) or item.get("type") in _CHAT_CALLS):
        return None
    function = next((item[key] for key in ("function", "custom") if is_object(item.get(key))), item)
    arguments = function.get("arguments", function.get("args"))
    return ToolCallRequest(str(item.get("id") or ""), str(function.get("name") or ""), arguments)


def _response_call(item: Any) -> ToolCallRequest | None:
    if not is_object(item) or item.get("type") != "function_call":
        return None
    return ToolCallRequest(str(item.get("call_id") or ""), str(item.get("name") or ""), item.get("arguments"))


def _anthropic_call(item: Any) -> ToolCallRequest | None:
    if not is_object(item) or item.get("type") != "tool_use":
        return None
    return ToolCallRequest(str(item.get("id") or ""), str(item.get("name") or ""), item.get("input"))


def _gemini_call(item: Any) -> ToolCallRequest | None:
    if not is_object(item):
        return None
    call = item.get("functionCall") or item.get("function_call") or (item if "args" in item else None)
    if not is_object(call):
        return None
    return ToolCallRequest(str(call.get("id") or ""), str(call.get("name") or ""), call.get("args"))


def _parts(content: Any) -> Any:
    return content.get("parts") if is_object(content) else None


def _first(items: Sequence[Any], key: str) -> Any:
    return items[0].get(key) if items and is_object(items[0]) else None


def _plain(value: Any, depth: int = _DEPTH) -> Any:
    """A response as JSON, including lists and dicts that contain objects of a library."""
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump()
    if depth and is_object(value):
        return {key: _plain(each, depth - 1) for key, each in value.items()}
    if depth and type(value) in (list, tuple):
        return [_plain(each, depth - 1) for each in value]
    return value


# -- results of calls -------------------------------------------------------------------------------------------------


def messages(dialect: Dialect, outcomes: Sequence[ToolCallOutcome]) -> list[dict[str, Any]]:
    """The messages that follow the model's own in the conversation; empty if it called no tool."""
    if not outcomes:
        return []
    if dialect == "openai":  # accepts no images in tool results
        return [{"role": "tool", "tool_call_id": one.request.id, "content": one.parted(())[0]} for one in outcomes]
    if dialect == "ollama":  # identifies calls by the tool's name
        return [{"role": "tool", "tool_name": one.request.name, "content": one.parted(())[0]} for one in outcomes]
    if dialect == "openai_responses":
        return [
            {"type": "function_call_output", "call_id": one.request.id, "output": _response_output(one)}
            for one in outcomes
        ]
    if dialect == "anthropic":
        return [{"role": "user", "content": [_anthropic_result(one) for one in outcomes]}]
    return [{"role": "user", "parts": [_gemini_result(one) for one in outcomes]}]


def _response_output(outcome: ToolCallOutcome) -> Any:
    text, shown = outcome.parted(SHOWN)
    if not shown:
        return text
    images = [{"type": "input_image", "image_url": f"data:{kind};base64,{image.base64}"} for kind, image in shown]
    return [{"type": "input_text", "text": text}, *images] if text else images


def _anthropic_result(outcome: ToolCallOutcome) -> dict[str, Any]:
    text, shown = outcome.parted(SHOWN)
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    blocks += [
        {"type": "image", "source": {"type": "base64", "media_type": kind, "data": image.base64}}
        for kind, image in shown
    ]
    result: dict[str, Any] = {"type": "tool_result", "tool_use_id": outcome.request.id, "content": blocks}
    return {**result, "is_error": True} if outcome.is_error else result


def _gemini_result(outcome: ToolCallOutcome) -> dict[str, Any]:
    text, shown = outcome.parted(SHOWN[:3])
    key = "error" if outcome.is_error else "output"
    response: dict[str, Any] = {"name": outcome.request.name, "response": {key: text}}
    if outcome.request.id:
        response["id"] = outcome.request.id
    if shown:
        response["parts"] = [{"inlineData": {"mimeType": kind, "data": image.base64}} for kind, image in shown]
    return {"functionResponse": response}


class Declaration(Struct, frozen=True):
    """One tool as it is declared to a model."""

    name: str
    server: str
    tool: str
    description: str
    parameters: Schema
    lost: tuple[tuple[str, str], ...] = ()
    """Path in the tool's schema and description of each fact that the declaration lacks."""
    renamed: Mapping[str, str] = {}
    """Renamed properties: `{new name: the tool's own}`."""

    @property
    def schema(self) -> Schema:
        """A copy of the parameters."""
        return types.loads(types.encode(self.parameters))
