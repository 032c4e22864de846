"""What an HTTP transport mirrors of a message: version, method, name, and the parameters a tool designates.

Source: MCP 2026-07-28, transports/streamable-http (request metadata) and server/tools (x-mcp-header); before that
revision only `MCP-Protocol-Version` (2025-06-18 and 2025-11-25, transports).
"""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ipymcp.errors import CallError
from ipymcp.protocol import eras, types
from ipymcp.protocol.types import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from msgspec import Raw

    from ipymcp.protocol.eras import Era


_ANNOTATION = "x-mcp-header"
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_PLAIN = re.compile(r"(?! )[\x20-\x7e]*(?<! )")
_TYPES = ("string", "integer", "boolean")
_SAFE_INTEGER = 2**53 - 1
_NAMED_BY = {
    **{"tools/call": "name", "prompts/get": "name", "resources/read": "uri"},
    **dict.fromkeys(("tasks/get", "tasks/update", "tasks/cancel"), "taskId"),
}
_ONE_SCHEMA = frozenset(
    {
        "additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not",
        "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
    }
)  # fmt: skip
_SCHEMA_LISTS = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
_SCHEMA_MAPS = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})


class HeaderParameter(NamedTuple):
    """A parameter whose value is mirrored into a header."""

    header: str
    path: tuple[str, ...]
    """The property names that lead to it."""


class Headers:
    """The headers of each message of one connection."""

    def __init__(self) -> None:
        self._designated: dict[str, tuple[HeaderParameter, ...]] = {}

    def learn(self, tools: list[types.ToolDefinition], warn: Callable[[str], None]) -> list[types.ToolDefinition]:
        """Read the annotations of all tools of the server.

        Args:
            tools: As listed.
            warn: Told of each tool that must be left out, and why.

        Returns:
            The others.
        """
        valid: list[types.ToolDefinition] = []
        designated: dict[str, tuple[HeaderParameter, ...]] = {}
        for tool in tools:
            try:
                parameters = header_parameters(tool.inputSchema)
            except ValueError as error:
                warn(f"the tool {tool.name} left out: {error}")
                continue
            valid.append(tool)
            if parameters:
                designated[tool.name] = parameters
        self._designated = designated
        return valid

    def of(self, era: Era, method: str, body: bytes, name: str | None) -> dict[str, str]:
        """The headers of one message.

        Args:
            era: What was settled.
            method: The message's.
            body: Its params without `_meta`; of a tool call its arguments.
            name: The tool's name, of a tool call.

        Raises:
            CallError: A value that no header can carry.
        """
        if method == "server/discover":
            version, is_stateless = eras.STATELESS_VERSIONS[0], True
        else:
            version, is_stateless = era.version, era.kind == "stateless"
        if method == "initialize" or not version:
            return {}
        headers = {"MCP-Protocol-Version": version}
        if is_stateless and method:
            headers["Mcp-Method"] = method
            named = name if name is not None else _named(method, body)
            if named is not None:
                headers["Mcp-Name"] = header_value(named)
            parameters = self._designated.get(name) if name is not None else None
            if parameters:
                headers.update(_mirrored(parameters, types.loads(body)))
        return headers


def header_value(text: str) -> str:
    """A value as the specification encodes it: plain where a header can carry it, else base64 between sentinels."""
    plain = _PLAIN.fullmatch(text) and not (text.startswith("=?base64?") and text.endswith("?="))
    return text if plain else f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def header_parameters(schema: Raw) -> tuple[HeaderParameter, ...]:
    """The parameters that an input schema designates.

    Raises:
        ValueError: An annotation that the specification does not allow; the text says which and why.
    """
    if _ANNOTATION.encode() not in bytes(schema):
        return ()
    found: dict[str, HeaderParameter] = {}
    for path, subschema in _subschemas(types.loads(schema)):
        if _ANNOTATION not in subschema:
            continue
        header = subschema[_ANNOTATION]
        if not path:
            raise ValueError(f"{_ANNOTATION} {header!r} is not on a parameter, nor on a property of one")
        where = ".".join(path)
        if not isinstance(header, str) or not _TOKEN.fullmatch(header):
            raise ValueError(f"{_ANNOTATION} {header!r} of {where} is no header name")
        if subschema.get("type") not in _TYPES:
            raise ValueError(f"{_ANNOTATION} {header!r} of {where}, which is no string, integer or boolean")
        if header.lower() in found:
            raise ValueError(f"{_ANNOTATION} {header!r} stands on two parameters")
        found[header.lower()] = HeaderParameter(header, path)
    return tuple(found.values())


def _subschemas(root: object) -> Iterator[tuple[tuple[str, ...] | None, dict[str, Any]]]:
    """Every schema within a schema, with its path where only `properties` lead to it; values are not looked into."""
    waiting: list[tuple[tuple[str, ...] | None, object]] = [((), root)]
    while waiting:
        path, schema = waiting.pop()
        if not is_object(schema):
            continue
        yield path, schema
        for keyword, value in schema.items():
            if keyword in _SCHEMA_MAPS and is_object(value):
                reachable = path is not None and keyword == "properties"
                waiting += [
                    ((*path, name) if reachable and path is not None else None, sub) for name, sub in value.items()
                ]
            elif keyword in _SCHEMA_LISTS and is_array(value):
                waiting += [(None, item) for item in value]
            elif keyword in _ONE_SCHEMA:
                waiting.append((None, value))


def _named(method: str, body: bytes) -> str | None:
    member = _NAMED_BY.get(method)
    params = types.loads(body) if member else None
    named = params.get(member) if member and is_object(params) else None
    return named if isinstance(named, str) else None


def _mirrored(parameters: tuple[HeaderParameter, ...], arguments: object) -> Iterator[tuple[str, str]]:
    for header, path in parameters:
        value = arguments
        for name in path:
            value = value.get(name) if is_object(value) else None
        text = _text(value, header)
        if text is not None:
            yield f"Mcp-Param-{header}", header_value(text)


def _text(value: object, header: str) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        if abs(value) > _SAFE_INTEGER:
            what = f"{value} does not fit the header Mcp-Param-{header}"
            raise CallError(what, hint=f"it carries integers up to {_SAFE_INTEGER:,} only")
        return str(value)
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else str(value)
    return value if isinstance(value, str) else None
