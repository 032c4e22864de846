"""What servers ask of a model, in pydantic-ai's words, and its answer in the protocol's.

Source: MCP 2025-11-25 and 2026-07-28, schema.ts, CreateMessageRequest and CreateMessageResult.
"""

from __future__ import annotations

import base64
import importlib
from typing import TYPE_CHECKING, Any, Final

from ipymcp.protocol.jsontypes import is_array, is_object

if TYPE_CHECKING:
    from ipymcp.runtime.responder import SamplingRequest

__all__ = ["as_message", "messages", "parameters", "settings"]

_REASONS: Final = {"stop": "endTurn", "length": "maxTokens", "tool_call": "toolUse"}
_FILES: Final = ("image", "audio")
_SETTINGS: Final = {"maxTokens": "max_tokens", "temperature": "temperature", "stopSequences": "stop_sequences"}


def messages(parts: Any, request: SamplingRequest) -> list[Any]:
    """The conversation.

    Args:
        parts: pydantic-ai's module of messages.
        request: The server's.
    """
    names: dict[str, str] = {}
    result: list[Any] = []
    if request.system_prompt:
        result.append(parts.ModelRequest(parts=[parts.SystemPromptPart(request.system_prompt)]))
    for message in request.messages:
        content = message.get("content")
        blocks = [block for block in (content if is_array(content) else [content]) if is_object(block)]
        if message.get("role") == "assistant":
            names |= {
                str(block.get("id")): str(block.get("name")) for block in blocks if block.get("type") == "tool_use"
            }
            result.append(parts.ModelResponse(parts=[_said(parts, block) for block in blocks]))
        else:
            result.append(parts.ModelRequest(parts=[_asked(parts, block, names) for block in blocks]))
    return result


def _said(parts: Any, block: dict[str, Any]) -> Any:
    if block.get("type") == "tool_use":
        return parts.ToolCallPart(str(block.get("name")), block.get("input") or {}, tool_call_id=str(block.get("id")))
    return parts.TextPart(str(block.get("text") or ""))


def _asked(parts: Any, block: dict[str, Any], names: dict[str, str]) -> Any:
    kind = block.get("type")
    if kind == "tool_result":
        call = str(block.get("toolUseId"))
        content = block.get("content")
        blocks = [each for each in content if is_object(each)] if is_array(content) else []
        told = block.get("structuredContent") or "\n".join(filter(None, map(_text, blocks)))
        files = [_file(parts, each) for each in blocks if each.get("type") in _FILES]
        return parts.ToolReturnPart(names.get(call, "tool"), [told, *files] if files else told, tool_call_id=call)
    if kind in _FILES:
        return parts.UserPromptPart([_file(parts, block)])
    return parts.UserPromptPart(_text(block))


def _file(parts: Any, block: dict[str, Any]) -> Any:
    return parts.BinaryContent(base64.b64decode(str(block.get("data") or "")), media_type=str(block.get("mimeType")))


def _text(block: dict[str, Any]) -> str:
    """What a block says in words; of a resource its text, or else its address."""
    resource = block.get("resource")
    inner = resource if is_object(resource) else block
    uri = inner.get("uri")
    return str(inner.get("text") or (f"[resource {uri}]" if uri else ""))


def settings(params: dict[str, Any]) -> dict[str, Any]:
    """How the model is to answer."""
    found = {ours: params[theirs] for theirs, ours in _SETTINGS.items() if params.get(theirs) is not None}
    choice = params.get("toolChoice")
    mode = choice.get("mode") if is_object(choice) else None
    return {**found, "tool_choice": mode} if mode in ("auto", "required", "none") and params.get("tools") else found


def parameters(params: dict[str, Any]) -> Any:
    """The server's own tools, which it calls itself."""
    models: Any = importlib.import_module("pydantic_ai.models")
    tools: Any = importlib.import_module("pydantic_ai.tools")
    given = params.get("tools")
    definitions = [
        tools.ToolDefinition(
            name=str(one.get("name")),
            description=str(one.get("description") or ""),
            parameters_json_schema=one.get("inputSchema") or {"type": "object"},
        )
        for one in (given if is_array(given) else ())
        if is_object(one)
    ]
    return models.ModelRequestParameters(function_tools=definitions)


def as_message(response: Any) -> dict[str, Any]:
    """The model's answer as a `CreateMessageResult`: one block, or a list where there are several."""
    blocks: list[dict[str, Any]] = []
    for part in response.parts:
        if part.part_kind == "text" and part.content:
            blocks.append({"type": "text", "text": part.content})
        elif part.part_kind == "tool-call":
            call = {"id": part.tool_call_id, "name": part.tool_name, "input": part.args_as_dict()}
            blocks.append({"type": "tool_use", **call})
    has_calls = any(block["type"] == "tool_use" for block in blocks)
    reason = "toolUse" if has_calls else _REASONS.get(str(response.finish_reason), "endTurn")
    content: Any = blocks[0] if len(blocks) == 1 and not has_calls else blocks
    return {
        "role": "assistant",
        "model": response.model_name or "unknown",
        "stopReason": reason,
        "content": content or {"type": "text", "text": ""},
    }
