"""Providers: the limits of their tool declarations, and the form of their requests and responses.

A provider is one entry of `PROVIDERS` with its functions in this module.

A provider refuses the whole request if it does not accept one of its declarations. The limits are therefore the
narrowest in the provider's documentation and error messages.

A response is the provider's object (with `model_dump`) or its JSON, one of its messages, or a list of its tool calls.
Its provider is recognized by its shape.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from ipymcp.errors import ArgumentError
from ipymcp.llm.answer import IMAGE_TYPES, ToolCallOutcome, ToolCallRequest
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
        words: Accepted JSON Schema keywords, in addition to those that `schemas` handles itself.
        formats: Accepted values of `format`; None for all.
        type_lists: Whether `type` may be a list.
        any_choices: Whether `enum` may contain any JSON; else strings and numbers.
        references: Whether a schema may have references to parts of it.
        recursion: Whether a schema may refer to itself.
        beside: Accepted keywords next to a `$ref`.
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


_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
PLAIN: Final = Profile(
    "any provider",
    _ANNOTATIONS | _LIMITS | _MORE_LIMITS | {"format"},
    key=_PLAIN_KEY,
    description=1_024,
    functions=128,
)
"""The narrowest limits, for an unknown provider whose library rewrites the keywords."""
INLINE: Final = replace(PLAIN, name="any provider without references", references=False, recursion=False)
"""The narrowest limits, for a library that passes on only the properties of a schema."""


class Declaration(Struct, frozen=True):
    """One tool as it is declared to a model."""

    name: str
    server: str
    tool: str
    description: str
    encoded: bytes
    """The parameters' schema as JSON."""
    lost: tuple[tuple[str, str], ...] = ()
    """The facts that the declaration lacks, each with its path in the tool's schema."""
    renamed: Mapping[str, str] = {}
    """Renamed properties: `{new name: original name}`."""
    title: str = ""
    """The tool's title, for the search."""

    @property
    def schema(self) -> Schema:
        """The parameters' schema, a new copy each time."""
        return types.loads(self.encoded)


class Provider(Struct, frozen=True):
    """One provider's API: everything that differs between providers.

    Attributes:
        profile: The limits of its declarations.
        declare: Returns its list of `tools`.
        find_calls: Returns the items of a response that may be calls; None if the response is from another provider.
        read_call: Reads such an item; None if it is not a call in this provider's format.
        write_results: Returns the messages with the outcomes of at least one call.
        models: The names of the provider in pydantic-ai.
        name: The provider's name in the history; empty for an API that many providers have.
    """

    profile: Profile
    declare: Callable[[Sequence[Declaration]], list[dict[str, Any]]]
    find_calls: Callable[[dict[str, Any]], Any]
    read_call: Callable[[Any], ToolCallRequest | None]
    write_results: Callable[[Sequence[ToolCallOutcome]], list[dict[str, Any]]]
    models: tuple[str, ...] = ()
    name: str = ""


# -- OpenAI: Chat Completions, which others accept, too, and Responses -------------------------------------------------

_OPENAI: Final = Profile("OpenAI", _ANNOTATIONS | _LIMITS | _MORE_LIMITS | {"format"}, description=1_024, functions=128)
_CHAT_CALLS: Final = ("function", "custom", "tool_call")
"""Types of a call in Chat Completions and in LangChain's messages."""


def _about(one: Declaration) -> dict[str, Any]:
    return {"name": one.name, "description": one.description}


def _declare_to_chat(tools: Sequence[Declaration]) -> list[dict[str, Any]]:
    return [{"type": "function", "function": {**_about(one), "parameters": one.schema}} for one in tools]


def _find_chat_calls(response: dict[str, Any]) -> Any:
    if is_array(response.get("choices")):
        return _tool_calls(_first(response["choices"], "message"))
    is_text = response.get("role") == "assistant" and isinstance(response.get("content"), str)
    is_message = (is_text or "tool_calls" in response) and not _is_ollama_message(response)
    return _tool_calls(response) if is_message else None


def _tool_calls(message: Any) -> Any:
    """The calls of a message. Each gets a type, so that a malformed one is answered, too."""
    calls: Any = message.get("tool_calls") or [] if is_object(message) else []
    return [{"type": "function", **one} if is_object(one) else one for one in calls] if is_array(calls) else calls


def _first(items: list[Any], key: str) -> Any:
    return items[0].get(key) if items and is_object(items[0]) else None


def _chat_call(item: Any) -> ToolCallRequest | None:
    """Read one of `tool_calls`, even if malformed: providers refuse a conversation with an unanswered call."""
    if not is_object(item) or not (is_object(item.get("function")) or item.get("type") in _CHAT_CALLS):
        return None
    function = next((item[key] for key in ("function", "custom") if is_object(item.get(key))), item)
    arguments = function.get("arguments", function.get("args"))
    return ToolCallRequest(str(item.get("id") or ""), str(function.get("name") or ""), arguments)


def _write_chat_results(outcomes: Sequence[ToolCallOutcome]) -> list[dict[str, Any]]:
    # Chat Completions accepts no images in tool results.
    return [{"role": "tool", "tool_call_id": one.request.id, "content": one.text_and_images(())[0]} for one in outcomes]


def _declare_to_responses(tools: Sequence[Declaration]) -> list[dict[str, Any]]:
    return [{"type": "function", **_about(one), "parameters": one.schema, "strict": False} for one in tools]


def _response_call(item: Any) -> ToolCallRequest | None:
    if not is_object(item) or item.get("type") != "function_call":
        return None
    return ToolCallRequest(str(item.get("call_id") or ""), str(item.get("name") or ""), item.get("arguments"))


def _write_responses_results(outcomes: Sequence[ToolCallOutcome]) -> list[dict[str, Any]]:
    def output(outcome: ToolCallOutcome) -> Any:
        text, shown = outcome.text_and_images()
        if not shown:
            return text
        images = [{"type": "input_image", "image_url": f"data:{kind};base64,{image.base64}"} for kind, image in shown]
        return [{"type": "input_text", "text": text}, *images] if text else images

    return [{"type": "function_call_output", "call_id": one.request.id, "output": output(one)} for one in outcomes]


# -- Ollama, which otherwise is like Chat Completions ------------------------------------------------------------------


def _is_ollama_message(message: dict[str, Any]) -> bool:
    """Whether a message has calls without ids whose arguments are not text."""
    calls = _tool_calls(message)
    return bool(calls) and all(
        is_object(one)
        and "id" not in one
        and is_object(one.get("function"))
        and is_object(one["function"].get("arguments"))
        for one in calls
    )


def _find_ollama_calls(response: dict[str, Any]) -> Any:
    if _is_ollama_message(response):
        return _tool_calls(response)
    message = response.get("message")
    return _tool_calls(message) if is_object(message) and "model" in response else None


def _write_ollama_results(outcomes: Sequence[ToolCallOutcome]) -> list[dict[str, Any]]:
    # Calls are identified by the tool's name.
    return [{"role": "tool", "tool_name": one.request.name, "content": one.text_and_images(())[0]} for one in outcomes]


# -- Anthropic ---------------------------------------------------------------------------------------------------------

_ANTHROPIC: Final = Profile(
    "Anthropic", _ANNOTATIONS | _LIMITS | _MORE_LIMITS | {"format"}, _FORMATS, key=_KEY, depth=20
)


def _declare_to_anthropic(tools: Sequence[Declaration]) -> list[dict[str, Any]]:
    return [{**_about(one), "input_schema": one.schema} for one in tools]


def _anthropic_call(item: Any) -> ToolCallRequest | None:
    if not is_object(item) or item.get("type") != "tool_use":
        return None
    return ToolCallRequest(str(item.get("id") or ""), str(item.get("name") or ""), item.get("input"))


def _write_anthropic_results(outcomes: Sequence[ToolCallOutcome]) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [_anthropic_result(one) for one in outcomes]}]


def _anthropic_result(outcome: ToolCallOutcome) -> dict[str, Any]:
    text, shown = outcome.text_and_images()
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    blocks += [
        {"type": "image", "source": {"type": "base64", "media_type": kind, "data": image.base64}}
        for kind, image in shown
    ]
    result: dict[str, Any] = {"type": "tool_result", "tool_use_id": outcome.request.id, "content": blocks}
    return {**result, "is_error": True} if outcome.is_error else result


# -- Gemini ------------------------------------------------------------------------------------------------------------

_GEMINI: Final = Profile(
    "Gemini",
    (_ANNOTATIONS - {"default"}) | _LIMITS - {"pattern", "minLength", "maxLength"} | {"format"},
    frozenset({"date-time", "date", "time"}),
    type_lists=False,
    any_choices=False,
    recursion=False,
    beside=("description",),
    key=_PLAIN_KEY,
    description=8_000,
    functions=512,
)


def _declare_to_gemini(tools: Sequence[Declaration]) -> list[dict[str, Any]]:
    functions = [{**_about(one), "parametersJsonSchema": one.schema} for one in tools]
    return [{"functionDeclarations": functions}] if functions else []


def _find_gemini_calls(response: dict[str, Any]) -> Any:
    if any(each in response for each in ("candidates", "promptFeedback", "prompt_feedback")):
        content = _first(response.get("candidates") or [], "content")
        return content.get("parts") or [] if is_object(content) else []
    return response.get("parts")


def _gemini_call(item: Any) -> ToolCallRequest | None:
    if not is_object(item):
        return None
    call = item.get("functionCall") or item.get("function_call") or (item if "args" in item else None)
    if not is_object(call):
        return None
    return ToolCallRequest(str(call.get("id") or ""), str(call.get("name") or ""), call.get("args"))


def _write_gemini_results(outcomes: Sequence[ToolCallOutcome]) -> list[dict[str, Any]]:
    return [{"role": "user", "parts": [_gemini_result(one) for one in outcomes]}]


def _gemini_result(outcome: ToolCallOutcome) -> dict[str, Any]:
    text, shown = outcome.text_and_images(IMAGE_TYPES[:3])
    key = "error" if outcome.is_error else "output"
    response: dict[str, Any] = {"name": outcome.request.name, "response": {key: text}}
    if outcome.request.id:
        response["id"] = outcome.request.id
    if shown:
        response["parts"] = [{"inlineData": {"mimeType": kind, "data": image.base64}} for kind, image in shown]
    return {"functionResponse": response}


# -- Amazon Bedrock's Converse, with models of many providers ----------------------------------------------------------


def _declare_to_bedrock(tools: Sequence[Declaration]) -> list[dict[str, Any]]:
    return [{"toolSpec": _bedrock_tool(one)} for one in tools]


def _bedrock_tool(one: Declaration) -> dict[str, Any]:
    schema = one.schema  # at the top level, some of the models accept only these three keywords
    description = "\n".join(filter(None, (one.description, str(schema.get("description") or ""))))
    kept = {word: schema[word] for word in ("type", "properties", "required") if word in schema}
    return {"name": one.name, "description": description or one.name, "inputSchema": {"json": kept}}


def _find_bedrock_calls(response: dict[str, Any]) -> Any:
    output = response.get("output")
    message = output.get("message") if is_object(output) else response
    content = message.get("content") if is_object(message) else None
    is_message = is_array(content) and any(is_object(one) and "toolUse" in one for one in content)
    return content if is_object(output) or is_message else None


def _bedrock_call(item: Any) -> ToolCallRequest | None:
    use = item.get("toolUse") if is_object(item) else None
    if not is_object(use):
        return None
    return ToolCallRequest(str(use.get("toolUseId") or ""), str(use.get("name") or ""), use.get("input"))


def _write_bedrock_results(outcomes: Sequence[ToolCallOutcome]) -> list[dict[str, Any]]:
    # Only some of the models accept images in tool results.
    results = [
        {
            "toolUseId": one.request.id,
            "content": [{"text": one.text_and_images(())[0]}],
            "status": "error" if one.is_error else "success",
        }
        for one in outcomes
    ]
    return [{"role": "user", "content": [{"toolResult": one} for one in results]}]


# -- all providers -----------------------------------------------------------------------------------------------------

Dialect: TypeAlias = Literal["openai", "openai_responses", "bedrock", "anthropic", "gemini", "ollama"]
PROVIDERS: Final[dict[Dialect, Provider]] = {
    "openai": Provider(
        _OPENAI,
        _declare_to_chat,
        _find_chat_calls,
        _chat_call,
        _write_chat_results,
        ("openai", "openai-chat", "openai-responses", "azure"),
    ),
    "openai_responses": Provider(
        _OPENAI,
        _declare_to_responses,
        lambda response: response.get("output"),
        _response_call,
        _write_responses_results,
    ),
    "bedrock": Provider(
        INLINE,
        _declare_to_bedrock,
        _find_bedrock_calls,
        _bedrock_call,
        _write_bedrock_results,
        ("bedrock",),
        "bedrock",
    ),
    "anthropic": Provider(
        _ANTHROPIC,
        _declare_to_anthropic,
        lambda response: response.get("content"),
        _anthropic_call,
        _write_anthropic_results,
        ("anthropic",),
        "anthropic",
    ),
    "gemini": Provider(
        _GEMINI,
        _declare_to_gemini,
        _find_gemini_calls,
        _gemini_call,
        _write_gemini_results,
        ("google", "google-gla", "google-vertex", "google-cloud"),
        "google",
    ),
    "ollama": Provider(_OPENAI, _declare_to_chat, _find_ollama_calls, _chat_call, _write_ollama_results, name="ollama"),
}
"""Providers by dialect, in the order in which a response is compared with them."""
_HINT: Final = "give the provider's response, one of its messages, or a list of its tool calls"
_DEPTH: Final = 8
"""Maximum nesting at which objects of a library are converted in a response."""


def model_name(model: Any) -> str:
    """Return a model's `provider:name`, or the name of a model object."""
    return model if isinstance(model, str) else str(getattr(model, "model_name", type(model).__name__))


def profile_of(model: Any, base_url: str | None = None) -> Profile:
    """The limits for a model; the narrowest if its provider is unknown.

    Args:
        model: `provider:name`, or a model of pydantic-ai.
        base_url: URL of an OpenAI-compatible provider.
    """
    if base_url is not None:
        return _OPENAI
    name = model.partition(":")[0] if isinstance(model, str) else getattr(model, "system", None)
    name = name.removeprefix("gateway/") if isinstance(name, str) else None
    return next((one.profile for one in PROVIDERS.values() if name in one.models), PLAIN)


_TEXT_ONLY: Final = re.compile(
    r"gpt-3\.5|gpt-4(-32k)?(-0\d{3})?$|gpt-oss|o1-mini|o1-preview|o3-mini|claude-2|claude-instant|deepseek"
    r"|llama-?(2|3|3[.-]1|3[.-]2|3[.-]3)(-(1b|3b|8b|70b|405b)|:|$)(?!.*vision)|mixtral|codestral|codellama|qwen[23](\.5)?(:|-coder|$)"
    r"|phi-?[34](:|$)|command-r|smollm"
)
"""Names of models that are known to accept no images; most others do."""


def sees_images(model: Any) -> bool:
    """Whether a model accepts images: False only for names of models that are known to accept none.

    Args:
        model: `provider:name`, or a model of pydantic-ai.
    """
    name = model if isinstance(model, str) else str(getattr(model, "model_name", ""))
    return _TEXT_ONLY.match(re.split(r"^[a-z-]+:(?=[a-z])|/", name.lower())[-1]) is None


def model_of(response: object) -> str:
    """The model's name in a response; empty if the response has none."""
    for key in ("model", "model_version", "modelVersion"):
        name = response.get(key) if is_object(response) else getattr(response, key, None)
        if isinstance(name, str):
            return name
    return ""


def read_response(response: object) -> tuple[Dialect, list[ToolCallRequest]]:
    """The dialect and the tool calls of a response.

    Raises:
        ArgumentError: The value is not a model's response.
    """
    value = _plain(response)
    if is_array(value):
        return _read_items(value)
    if not is_object(value):
        raise ArgumentError(f"not a model's response: {type(value).__name__}", hint=_HINT)
    for dialect, provider in PROVIDERS.items():
        items = provider.find_calls(value)
        if is_array(items):
            return dialect, _read_calls(items, provider)
    dialect, calls = _read_items([value])
    if calls or "type" in value:
        return dialect, calls
    raise ArgumentError(f"not a model's response: a dict of {', '.join(map(str, value)) or 'nothing'}", hint=_HINT)


def _read_items(items: list[Any]) -> tuple[Dialect, list[ToolCallRequest]]:
    for dialect, provider in PROVIDERS.items():
        if found := _read_calls(items, provider):
            return dialect, found
    if all(is_object(item) for item in items):
        return "openai", []
    kinds = ", ".join(sorted({type(item).__name__ for item in items}))
    raise ArgumentError(f"not a model's tool calls: a list of {kinds}", hint=_HINT)


def _read_calls(items: list[Any], provider: Provider) -> list[ToolCallRequest]:
    return [call for item in items if (call := provider.read_call(item)) is not None]


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


def messages(dialect: Dialect, outcomes: Sequence[ToolCallOutcome]) -> list[dict[str, Any]]:
    """The messages that follow the model's own in the conversation; empty if it called no tool."""
    return PROVIDERS[dialect].write_results(outcomes) if outcomes else []
