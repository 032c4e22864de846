"""HTTP headers that mirror a message: protocol version, method, name, and parameters marked with `x-mcp-header`.

Source: MCP 2026-07-28, transports/streamable-http (request metadata) and server/tools (x-mcp-header). Earlier revisions
have only `MCP-Protocol-Version` (2025-06-18 and 2025-11-25, transports).
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
"""The member of a method's params that is mirrored into `Mcp-Name`."""
_ONE_SCHEMA = frozenset(
    {
        "additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not",
        "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
    }
)  # fmt: skip
_SCHEMA_LISTS = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
_SCHEMA_MAPS = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})


class HeaderParameter(NamedTuple):
    """A tool parameter that is mirrored into a header."""

    header: str
    path: tuple[str, ...]
    """Property names from the root of the arguments to the value."""


class Headers:
    """The headers for the messages of one connection."""

    def __init__(self) -> None:
        self._parameters: dict[str, tuple[HeaderParameter, ...]] = {}

    def read_annotations(
        self, tools: list[types.ToolDefinition], warn: Callable[[str], None]
    ) -> list[types.ToolDefinition]:
        """Read the header annotations of all tools.

        Args:
            tools: The tools as listed.
            warn: Called with the reason for each tool that is left out.

        Returns:
            The tools whose annotations are valid.
        """
        valid: list[types.ToolDefinition] = []
        by_tool: dict[str, tuple[HeaderParameter, ...]] = {}
        for tool in tools:
            try:
                parameters = header_parameters(tool.inputSchema)
            except ValueError as error:
                warn(f"the tool {tool.name} left out: {error}")
                continue
            valid.append(tool)
            if parameters:
                by_tool[tool.name] = parameters
        self._parameters = by_tool
        return valid

    def build(self, era: Era, method: str, body: bytes, name: str | None) -> dict[str, str]:
        """Build the headers for one message.

        Args:
            era: The negotiated era.
            method: Method of the message.
            body: JSON of the params without `_meta`, or of the arguments for a tool call.
            name: Name of the tool, for a tool call.

        Raises:
            CallError: A value cannot be represented in a header.
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
            named = name
            if named is None and (member := _NAMED_BY.get(method)):
                params = types.loads(body)
                named = params.get(member) if is_object(params) else None
            if isinstance(named, str):
                headers["Mcp-Name"] = header_value(named)
            parameters = self._parameters.get(name) if name is not None else None
            if parameters:
                headers.update(_mirrored(parameters, types.loads(body)))
        return headers


def header_value(text: str) -> str:
    """Encode a header value: plain if possible, otherwise base64 between the sentinels of the specification."""
    plain = _PLAIN.fullmatch(text) and not (text.startswith("=?base64?") and text.endswith("?="))
    return text if plain else f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def header_parameters(schema: Raw) -> tuple[HeaderParameter, ...]:
    """Find the parameters that an input schema marks with `x-mcp-header`.

    Raises:
        ValueError: An annotation violates the specification.
    """
    if _ANNOTATION.encode() not in bytes(schema):
        return ()
    parameters: dict[str, HeaderParameter] = {}
    for path, subschema in _subschemas(types.loads(schema)):
        if _ANNOTATION not in subschema:
            continue
        header = subschema[_ANNOTATION]
        if not path:
            raise ValueError(f"{_ANNOTATION} {header!r} is not on a parameter or one of its properties")
        where = ".".join(path)
        if not isinstance(header, str) or not _TOKEN.fullmatch(header):
            raise ValueError(f"{_ANNOTATION} {header!r} of {where} is not a valid header name")
        if subschema.get("type") not in _TYPES:
            raise ValueError(f"{_ANNOTATION} {header!r} of {where}, which is not a string, integer or boolean")
        if header.lower() in parameters:
            raise ValueError(f"{_ANNOTATION} {header!r} is used by two parameters")
        parameters[header.lower()] = HeaderParameter(header, path)
    return tuple(parameters.values())


def _subschemas(root: object) -> Iterator[tuple[tuple[str, ...] | None, dict[str, Any]]]:
    """Iterate over all subschemas, each with its path if only `properties` lead to it."""
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


def _mirrored(parameters: tuple[HeaderParameter, ...], arguments: object) -> Iterator[tuple[str, str]]:
    for header, path in parameters:
        value = arguments
        for name in path:
            value = value.get(name) if is_object(value) else None
        if isinstance(value, bool):
            text = "true" if value else "false"
        elif isinstance(value, int):
            if abs(value) > _SAFE_INTEGER:
                message = f"{value} does not fit the header Mcp-Param-{header}"
                raise CallError(message, hint=f"the header carries only integers up to {_SAFE_INTEGER:,}")
            text = str(value)
        elif isinstance(value, float):
            text = str(int(value)) if value.is_integer() else str(value)
        elif isinstance(value, str):
            text = value
        else:
            continue
        yield f"Mcp-Param-{header}", header_value(text)
