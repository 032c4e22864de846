"""What models answer, in each provider's words, and what they are answered.

An answer is the provider's response as its library gives it (an object with `model_dump`), the same as plain JSON, one
of its messages, or a list of its tool calls. Which provider's it is is seen from its shape.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from ipymcp.errors import ArgumentError
from ipymcp.protocol.jsontypes import is_array, is_object
from ipymcp.tools.models.outcome import SHOWN, Asked, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ipymcp.tools.models.declaring import Declaration

__all__ = ["SHAPES", "Dialect", "asked", "messages"]

Dialect: TypeAlias = Literal["openai", "openai_responses", "anthropic", "gemini", "ollama"]
_HINT: Final = "give the provider's response, one of its messages, or a list of its tool calls"
_CHAT_CALLS: Final = ("function", "custom", "tool_call")
"""The types of a call in Chat Completions, and in LangChain's messages, which are of its kind."""
_DEPTH: Final = 8
"""How deep in a response there may be objects of a library: one deeper than arguments are."""


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


# -- what a model answered --------------------------------------------------------------------------------------------


def asked(response: object) -> tuple[Dialect, list[Asked]]:
    """The calls that a response asks for, and whose words they are in.

    Raises:
        ArgumentError: It is nothing that a model answers.
    """
    return _read(_plain(response))


def _read(value: Any) -> tuple[Dialect, list[Asked]]:
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
        raise ArgumentError(f"no answer of a model: a dict of {', '.join(map(str, value)) or 'nothing'}", hint=_HINT)
    raise ArgumentError(f"no answer of a model: {type(value).__name__}", hint=_HINT)


def _read_items(items: Sequence[Any]) -> tuple[Dialect, list[Asked]]:
    readers: tuple[tuple[Dialect, Callable[[Any], Asked | None]], ...] = (
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
    raise ArgumentError(f"no tool calls of a model: a list of {kinds}", hint=_HINT)


def _calls(items: Any, read: Callable[[Any], Asked | None]) -> list[Asked]:
    return [call for item in items if (call := read(item)) is not None] if is_array(items) else []


def _chat_calls(message: Any) -> list[Asked]:
    return _calls(message.get("tool_calls"), _chat_call) if is_object(message) else []


def _chat_call(item: Any) -> Asked | None:
    """One of `tool_calls`, however it is malformed: a call without an answer costs the whole conversation."""
    if not is_object(item) or not (is_object(item.get("function")) or item.get("type") in _CHAT_CALLS):
        return None
    function = next((item[key] for key in ("function", "custom") if is_object(item.get(key))), item)
    arguments = function.get("arguments", function.get("args"))
    return Asked(str(item.get("id") or ""), str(function.get("name") or ""), arguments)


def _response_call(item: Any) -> Asked | None:
    if not is_object(item) or item.get("type") != "function_call":
        return None
    return Asked(str(item.get("call_id") or ""), str(item.get("name") or ""), item.get("arguments"))


def _anthropic_call(item: Any) -> Asked | None:
    if not is_object(item) or item.get("type") != "tool_use":
        return None
    return Asked(str(item.get("id") or ""), str(item.get("name") or ""), item.get("input"))


def _gemini_call(item: Any) -> Asked | None:
    if not is_object(item):
        return None
    call = item.get("functionCall") or item.get("function_call") or (item if "args" in item else None)
    if not is_object(call):
        return None
    return Asked(str(call.get("id") or ""), str(call.get("name") or ""), call.get("args"))


def _parts(content: Any) -> Any:
    return content.get("parts") if is_object(content) else None


def _first(items: Sequence[Any], key: str) -> Any:
    return items[0].get(key) if items and is_object(items[0]) else None


def _plain(value: Any, depth: int = _DEPTH) -> Any:
    """A response as JSON, also one that was put together of a library's objects by hand."""
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump()
    if depth and is_object(value):
        return {key: _plain(each, depth - 1) for key, each in value.items()}
    if depth and type(value) in (list, tuple):
        return [_plain(each, depth - 1) for each in value]
    return value


# -- what it is answered ----------------------------------------------------------------------------------------------


def messages(dialect: Dialect, outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """What to add to the conversation after the model's own message; nothing where it asked for nothing."""
    if not outcomes:
        return []
    if dialect == "openai":  # takes images from no tool
        return [{"role": "tool", "tool_call_id": one.asked.id, "content": one.parted(())[0]} for one in outcomes]
    if dialect == "ollama":  # knows calls by the tool's name
        return [{"role": "tool", "tool_name": one.asked.name, "content": one.parted(())[0]} for one in outcomes]
    if dialect == "openai_responses":
        return [
            {"type": "function_call_output", "call_id": one.asked.id, "output": _response_output(one)}
            for one in outcomes
        ]
    if dialect == "anthropic":
        return [{"role": "user", "content": [_anthropic_result(one) for one in outcomes]}]
    return [{"role": "user", "parts": [_gemini_result(one) for one in outcomes]}]


def _response_output(outcome: Outcome) -> Any:
    text, shown = outcome.parted(SHOWN)
    if not shown:
        return text
    images = [{"type": "input_image", "image_url": f"data:{kind};base64,{image.base64}"} for kind, image in shown]
    return [{"type": "input_text", "text": text}, *images] if text else images


def _anthropic_result(outcome: Outcome) -> dict[str, Any]:
    text, shown = outcome.parted(SHOWN)
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    blocks += [
        {"type": "image", "source": {"type": "base64", "media_type": kind, "data": image.base64}}
        for kind, image in shown
    ]
    result: dict[str, Any] = {"type": "tool_result", "tool_use_id": outcome.asked.id, "content": blocks}
    return {**result, "is_error": True} if outcome.is_error else result


def _gemini_result(outcome: Outcome) -> dict[str, Any]:
    text, shown = outcome.parted(SHOWN[:3])
    key = "error" if outcome.is_error else "output"
    response: dict[str, Any] = {"name": outcome.asked.name, "response": {key: text}}
    if outcome.asked.id:
        response["id"] = outcome.asked.id
    if shown:
        response["parts"] = [{"inlineData": {"mimeType": kind, "data": image.base64}} for kind, image in shown]
    return {"functionResponse": response}
