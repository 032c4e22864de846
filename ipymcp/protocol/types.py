"""Messages on the wire: JSON-RPC envelopes and the MCP messages that this host reads, in both eras.

An envelope is decoded without looking into `params`, `result` or `error`: those stay `Raw`, a view of the line they
came in, until somebody needs them (a decoder holds the GIL; the loop thread has no time for a stranger's megabytes).
There are no closed unions: a content type nobody knows yet must not cost the user the whole result.

Servers write JSON that is not quite JSON (NaN, lone surrogates, a byte order mark, broken UTF-8). `decode` reads those
too, by the standard library's more lenient decoder, whenever the strict one refuses.

Source: MCP 2025-11-25 and 2026-07-28, schema.ts; JSON-RPC 2.0.
"""

from __future__ import annotations

import json
import re
from typing import Any, TypeGuard, TypeVar

import msgspec
from msgspec import Raw, Struct, field


def is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    """Whether decoded JSON is an object."""
    return isinstance(value, dict)


def is_array(value: Any) -> TypeGuard[list[Any]]:
    """Whether decoded JSON is an array."""
    return isinstance(value, list)


RequestId = int | str
T = TypeVar("T")


class InvalidJson(ValueError):
    """Not JSON, not even leniently read."""


class Envelope(Struct, gc=False):
    """One JSON-RPC 2.0 message. What is absent is `None` or an empty `Raw`."""

    id: int | str | float | None = None
    method: str | None = None
    params: Raw = Raw()
    result: Raw = Raw()
    error: Raw = Raw()


class ErrorObject(Struct):
    """A JSON-RPC error."""

    code: int = 0
    message: str = ""
    data: Raw = Raw()


class InitializeResult(Struct):
    """The server's half of the handshake (2024-11-05 to 2025-11-25, lifecycle)."""

    protocolVersion: str
    capabilities: dict[str, Any] = {}
    serverInfo: dict[str, Any] = {}
    instructions: str | None = None


class DiscoverResult(Struct, rename={"meta": "_meta"}):
    """The answer to `server/discover` (2026-07-28, server/discover)."""

    supportedVersions: list[str]
    capabilities: dict[str, Any] = {}
    instructions: str | None = None
    meta: dict[str, Any] = {}


class ToolDefinition(Struct):
    """One tool as the server defined it. Schemas stay verbatim."""

    name: str
    title: str | None = None
    description: str | None = None
    inputSchema: Raw = Raw(b"{}")
    outputSchema: Raw = Raw()
    annotations: Raw = Raw()
    execution: Raw = Raw()


class ResourceDefinition(Struct):
    """One resource that can be read."""

    uri: str
    name: str = ""
    title: str | None = None
    description: str | None = None
    mimeType: str | None = None
    size: float | None = None
    annotations: Raw = Raw()


class TemplateDefinition(Struct):
    """Resources by the parameters of a URI template (RFC 6570)."""

    uriTemplate: str
    name: str = ""
    title: str | None = None
    description: str | None = None
    mimeType: str | None = None
    annotations: Raw = Raw()


class PromptArgument(Struct):
    """One argument of a prompt; its value is always text."""

    name: str
    title: str | None = None
    description: str | None = None
    required: bool | None = None


class PromptDefinition(Struct):
    """One prompt."""

    name: str
    title: str | None = None
    description: str | None = None
    arguments: list[PromptArgument] | None = None


class Page(Struct, kw_only=True):
    """One page of a list, each item still raw so that one that is malformed does not hide the others."""

    items: list[Raw]
    nextCursor: str | None = None
    ttlMs: float | None = None


class ListToolsResult(Page):
    """The answer to `tools/list`."""

    items: list[Raw] = field(name="tools")


class ListResourcesResult(Page):
    """The answer to `resources/list`."""

    items: list[Raw] = field(name="resources")


class ListTemplatesResult(Page):
    """The answer to `resources/templates/list`."""

    items: list[Raw] = field(name="resourceTemplates")


class ListPromptsResult(Page):
    """The answer to `prompts/list`."""

    items: list[Raw] = field(name="prompts")


class ReadResourceResult(Struct, rename={"meta": "_meta"}):
    """The answer to `resources/read`."""

    contents: list[Raw]
    ttlMs: float | None = None
    meta: Raw = Raw()


class GetPromptResult(Struct, rename={"meta": "_meta"}):
    """The answer to `prompts/get`."""

    messages: list[Raw]
    description: str | None = None
    meta: Raw = Raw()


class Completion(Struct):
    """The values that the server suggests, the likeliest first."""

    values: list[str]


class CompleteResult(Struct):
    """The answer to `completion/complete`."""

    completion: Completion


class ResourceUpdated(Struct):
    """`notifications/resources/updated`."""

    uri: str


class CallToolResult(Struct, rename={"meta": "_meta"}):
    """The answer to `tools/call`; content and structured content still raw."""

    content: Raw = Raw(b"[]")
    structuredContent: Raw = Raw()
    isError: bool | None = None
    resultType: str = "complete"
    meta: Raw = Raw()


class Progress(Struct):
    """`notifications/progress`."""

    progressToken: int | str
    progress: float
    total: float | None = None
    message: str | None = None


class LogMessage(Struct):
    """`notifications/message`."""

    level: str = "info"
    logger: str | None = None
    data: Raw = Raw(b"null")


class Cancelled(Struct):
    """`notifications/cancelled`."""

    requestId: int | str | None = None
    reason: str | None = None


_envelope = msgspec.json.Decoder(Envelope)
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}
_BOM = b"\xef\xbb\xbf"
_NOT_STRICT = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
encode = msgspec.json.encode
"""A Python value as JSON bytes. Give it JSON types only: it would send NaN as null."""


def replace_surrogates(value: Any) -> Any:
    """The same JSON value with U+FFFD for every lone surrogate, which no output can encode."""
    if isinstance(value, str):
        return value if value.isascii() else _LONE_SURROGATE.sub("\ufffd", value)
    if is_array(value):
        return [replace_surrogates(item) for item in value]
    if is_object(value):
        return {replace_surrogates(key): replace_surrogates(item) for key, item in value.items()}
    return value


def loads(data: bytes | bytearray | memoryview | Raw) -> Any:
    """JSON bytes as Python values, strict first, then as leniently as is safe.

    Accepts what real servers emit: `NaN` and infinities (as floats), lone surrogates and broken UTF-8 (as U+FFFD), a
    byte order mark, integers of thousands of digits (as infinities).

    Raises:
        NotJson: It is no JSON at all.
    """
    try:
        return msgspec.json.decode(data)
    except _NOT_STRICT:
        return _loads_leniently(bytes(data))


def _loads_leniently(data: bytes) -> Any:
    text = data.removeprefix(_BOM).decode("utf-8", errors="replace")
    try:
        return replace_surrogates(json.loads(text, parse_int=_integer))
    except json.JSONDecodeError as error:
        raise InvalidJson(f"{error.msg} at character {error.pos + 1:,}") from error
    except RecursionError as error:
        raise InvalidJson("nested too deeply") from error


def _integer(digits: str) -> int | float:
    """A number; one of more digits than Python reads is infinite, as it is to JavaScript."""
    try:
        return int(digits)
    except ValueError:
        return float(digits)


def decode(data: bytes | bytearray | memoryview | Raw, kind: type[T]) -> T:
    """JSON bytes as `kind`, as lenient as `loads`.

    Raises:
        NotJson: It is no JSON.
        msgspec.ValidationError: It does not have the shape of `kind`; a `ValueError` like the other.
    """
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    try:
        return decoder.decode(data)
    except msgspec.ValidationError:
        raise
    except _NOT_STRICT:
        return msgspec.convert(_raw_fields(_loads_leniently(bytes(data)), kind), kind)


def _raw_fields(value: Any, kind: Any) -> Any:
    """Turn the members that `kind` declares as `Raw` back into bytes, NaN and all."""
    if kind is Raw:
        return Raw(json.dumps(value).encode())
    if is_array(value) and kind == list[Raw]:
        return [Raw(json.dumps(item).encode()) for item in value]
    if is_object(value) and isinstance(kind, type) and issubclass(kind, Struct):
        types = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
        return {key: _raw_fields(item, types.get(key)) for key, item in value.items()}
    return value


def read_envelope(line: bytes | bytearray) -> Envelope | list[Raw]:
    """One line as an envelope, or as the messages of a batch (2025-03-26 allows those).

    Raises:
        NotJson: It is not JSON.
        msgspec.ValidationError: It is JSON but no JSON-RPC message.
    """
    try:
        return _envelope.decode(line)
    except _NOT_STRICT:
        if line[:64].removeprefix(_BOM).lstrip()[:1] == b"[":
            return decode(line, list[Raw])
        return decode(line, Envelope)
