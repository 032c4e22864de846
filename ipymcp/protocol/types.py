"""Wire messages: JSON-RPC envelopes and the MCP messages that this host reads, in both eras.

Envelopes are decoded without `params`, `result` and `error`, which stay `Raw` until needed: decoding holds the GIL, and
results may be megabytes. There are no closed unions, so that an unknown content type does not hide the whole result.

Servers write invalid JSON (NaN, lone surrogates, a byte order mark, broken UTF-8). `decode` falls back to the lenient
decoder of the standard library if the strict one fails.

Source: MCP 2025-11-25 and 2026-07-28, schema.ts; JSON-RPC 2.0.
"""

from __future__ import annotations

import json
import re
from typing import Any, TypeGuard, TypeVar

import msgspec
from msgspec import Raw, Struct, field

from ipymcp.errors import McpError


def is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    """Return whether decoded JSON is an object."""
    return isinstance(value, dict)


def is_array(value: Any) -> TypeGuard[list[Any]]:
    """Return whether decoded JSON is an array."""
    return isinstance(value, list)


RequestId = int | str
T = TypeVar("T")


class InvalidJson(ValueError):
    """The data is not JSON, even for the lenient decoder."""


class Envelope(Struct, gc=False):
    """One JSON-RPC 2.0 message. Absent members are `None` or an empty `Raw`."""

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
    """Result of `initialize` (2024-11-05 to 2025-11-25, lifecycle)."""

    protocolVersion: str
    capabilities: dict[str, Any] = {}
    serverInfo: dict[str, Any] = {}
    instructions: str | None = None


class DiscoverResult(Struct, rename={"meta": "_meta"}):
    """Result of `server/discover` (2026-07-28, server/discover)."""

    supportedVersions: list[str]
    capabilities: dict[str, Any] = {}
    instructions: str | None = None
    meta: dict[str, Any] = {}


_MAX_ICONS_BYTES = 20_000
"""Maximum bytes of the icons of one definition; larger ones are not kept, because a server may have thousands."""


def _drop_large_icons(definition: ToolDefinition | ResourceDefinition | TemplateDefinition | PromptDefinition) -> None:
    if len(definition.icons) > _MAX_ICONS_BYTES:
        definition.icons = Raw()


class ToolDefinition(Struct, rename={"meta": "_meta"}):
    """A tool as defined by the server, with verbatim schemas."""

    name: str
    title: str | None = None
    description: str | None = None
    inputSchema: Raw = Raw(b"{}")
    outputSchema: Raw = Raw()
    annotations: Raw = Raw()
    execution: Raw = Raw()
    meta: Raw = Raw()
    icons: Raw = Raw()

    def __post_init__(self) -> None:
        _drop_large_icons(self)


class ResourceDefinition(Struct, rename={"meta": "_meta"}):
    """A readable resource."""

    uri: str
    name: str = ""
    title: str | None = None
    description: str | None = None
    mimeType: str | None = None
    size: float | None = None
    annotations: Raw = Raw()
    meta: Raw = Raw()
    icons: Raw = Raw()

    def __post_init__(self) -> None:
        _drop_large_icons(self)


class TemplateDefinition(Struct):
    """A URI template of resources (RFC 6570)."""

    uriTemplate: str
    name: str = ""
    title: str | None = None
    description: str | None = None
    mimeType: str | None = None
    annotations: Raw = Raw()
    icons: Raw = Raw()

    def __post_init__(self) -> None:
        _drop_large_icons(self)


class PromptArgument(Struct):
    """An argument of a prompt; its value is a string."""

    name: str
    title: str | None = None
    description: str | None = None
    required: bool | None = None


class PromptDefinition(Struct):
    """A prompt."""

    name: str
    title: str | None = None
    description: str | None = None
    arguments: list[PromptArgument] | None = None
    icons: Raw = Raw()

    def __post_init__(self) -> None:
        _drop_large_icons(self)


class Page(Struct, kw_only=True):
    """One page of a list. Items stay raw, so that a malformed one does not hide the others."""

    items: list[Raw]
    nextCursor: str | None = None
    ttlMs: float | None = None


class ListToolsResult(Page):
    """Result of `tools/list`."""

    items: list[Raw] = field(name="tools")


class ListResourcesResult(Page):
    """Result of `resources/list`."""

    items: list[Raw] = field(name="resources")


class ListTemplatesResult(Page):
    """Result of `resources/templates/list`."""

    items: list[Raw] = field(name="resourceTemplates")


class ListPromptsResult(Page):
    """Result of `prompts/list`."""

    items: list[Raw] = field(name="prompts")


class ReadResourceResult(Struct, rename={"meta": "_meta"}):
    """Result of `resources/read`."""

    contents: list[Raw]
    ttlMs: float | None = None
    meta: Raw = Raw()


class GetPromptResult(Struct, rename={"meta": "_meta"}):
    """Result of `prompts/get`."""

    messages: list[Raw]
    description: str | None = None
    meta: Raw = Raw()


class Completion(Struct):
    """Suggested values, most likely first."""

    values: list[str]


class CompleteResult(Struct):
    """Result of `completion/complete`."""

    completion: Completion


class ResourceUpdated(Struct):
    """Params of `notifications/resources/updated`."""

    uri: str


class CallToolResult(Struct, rename={"meta": "_meta"}):
    """Result of `tools/call`, with raw content."""

    content: Raw = Raw(b"[]")
    structuredContent: Raw = Raw()
    isError: bool | None = None
    resultType: str = "complete"
    meta: Raw = Raw()


class Progress(Struct):
    """Params of `notifications/progress`."""

    progressToken: int | str
    progress: float
    total: float | None = None
    message: str | None = None


class LogMessage(Struct):
    """Params of `notifications/message`."""

    level: str = "info"
    logger: str | None = None
    data: Raw = Raw(b"null")


class Cancelled(Struct):
    """Params of `notifications/cancelled`."""

    requestId: int | str
    reason: str | None = None


_envelope = msgspec.json.Decoder(Envelope)
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}
_BOM = b"\xef\xbb\xbf"
_NOT_STRICT = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def encode(value: Any) -> bytes:
    """Encode JSON types as bytes. NaN would become null.

    Raises:
        McpError: The value is nested too deeply.
    """
    try:
        return msgspec.json.encode(value)
    except RecursionError:
        raise McpError("a value is nested too deeply for JSON", hint="nest it less than 900 levels deep") from None


def replace_surrogates(value: Any) -> Any:
    """Replace every lone surrogate in a JSON value with U+FFFD, because it cannot be encoded."""
    if isinstance(value, str):
        return value if value.isascii() else _LONE_SURROGATE.sub("\ufffd", value)
    if is_array(value):
        return [replace_surrogates(item) for item in value]
    if is_object(value):
        return {replace_surrogates(key): replace_surrogates(item) for key, item in value.items()}
    return value


def loads(data: bytes | bytearray | memoryview | Raw) -> Any:
    """Decode JSON, leniently if strict decoding fails.

    Lenient decoding accepts `NaN` and infinities (as floats), lone surrogates and broken UTF-8 (as U+FFFD), a byte
    order mark, and integers of thousands of digits (as infinities).

    Raises:
        InvalidJson: The data is not JSON.
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
    """Parse an integer; one with more digits than Python reads becomes an infinity, as in JavaScript."""
    try:
        return int(digits)
    except ValueError:
        return float(digits)


def decode(data: bytes | bytearray | memoryview | Raw, kind: type[T]) -> T:
    """Decode JSON as `kind`, as leniently as `loads`.

    Raises:
        InvalidJson: The data is not JSON.
        msgspec.ValidationError: The data does not have the shape of `kind`; also a `ValueError`.
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
    """Encode the members that `kind` declares as `Raw` again."""
    if kind is Raw:
        return Raw(json.dumps(value).encode())
    if is_array(value) and kind == list[Raw]:
        return [Raw(json.dumps(item).encode()) for item in value]
    if is_object(value) and isinstance(kind, type) and issubclass(kind, Struct):
        types = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
        return {key: _raw_fields(item, types.get(key)) for key, item in value.items()}
    return value


def read_envelope(line: bytes | bytearray) -> Envelope | list[Raw]:
    """Decode a line as an envelope, or as the messages of a batch (allowed in 2025-03-26).

    Raises:
        InvalidJson: The line is not JSON.
        msgspec.ValidationError: The line is not a JSON-RPC message.
    """
    try:
        return _envelope.decode(line)
    except _NOT_STRICT:
        if line[:64].removeprefix(_BOM).lstrip()[:1] == b"[":
            return decode(line, list[Raw])
        return decode(line, Envelope)
