"""A call as the user would type it, in Python and as a `%mcp` line; both make exactly that call."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ipymcp.errors import McpError
from ipymcp.notebook.line_syntax import LineError, tokenize
from ipymcp.notebook.line_values import Object, parse_arguments, parse_body
from ipymcp.text import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ipymcp.runtime.catalog import ToolEntry
    from ipymcp.runtime.host import Host
    from ipymcp.schema.tool_schema import ToolSchema


_MAX_LENGTH = 100
"""Maximum characters of a call on one line of Python."""
_MAGIC = "%mcp call "


def python(host: Host, entry: ToolEntry, schema: ToolSchema, arguments: Mapping[str, Any], namespace: str) -> str:
    """A call in Python.

    Args:
        host: The host of the server.
        entry: The tool.
        schema: The schema of the tool's arguments.
        arguments: Values by exact argument name.
        namespace: The name that `mcp` is bound to; if empty, the code imports `mcp`.
    """
    server = host.aliases()[entry.server]
    head = f"{namespace or 'mcp'}.{server}.{entry.alias}"
    aliases = {each.name: each.alias for each in schema.parameters}
    words = [f"{aliases[name]}={value!r}" for name, value in arguments.items() if name in aliases]
    # Arguments that the schema does not declare have no alias.
    others = {name: value for name, value in arguments.items() if name not in aliases}
    words += [f"**{others!r}"] if others else []
    call = f"{head}({', '.join(words)})"
    if len(call) > _MAX_LENGTH and words:
        call = "\n".join([f"{head}(", *(f"    {word}," for word in words), ")"])
    return call if namespace else f"from ipymcp import mcp\n\n{call}"


def magic(host: Host, entry: ToolEntry, schema: ToolSchema, arguments: Mapping[str, Any]) -> str:
    """A call as a `%mcp` line, with `key=value` words if they are read back the same, else with JSON.

    Raises:
        McpError: No line can express the call.
    """
    path = _path(host, entry)
    for rest in (_words(arguments), _body(arguments)):
        if rest is not None and _same(_read(f"call {path} {rest}".rstrip(), schema), dict(arguments)):
            return f"{_MAGIC}{path} {rest}".rstrip()
    raise McpError("no %mcp line can express this call", server=entry.server, tool=entry.name, hint="insert it as code")


def _path(host: Host, entry: ToolEntry) -> str:
    """The tool's path on a line: the exact name if it needs no quotes, else the alias."""
    alias = f"{host.aliases()[entry.server]}.{entry.alias}"
    for path in (f"{entry.server}.{entry.name}", alias):
        session, tool = host.resolve(path)
        is_plain = quoted(path) == path and path.isprintable() and not path.endswith("?")
        if is_plain and session.name == entry.server and session.catalog.find(tool) is entry:
            return path
    raise McpError("no %mcp line can name it", server=entry.server, tool=entry.name, hint="insert it as code")


def _words(arguments: Mapping[str, Any]) -> str | None:
    """`key=value` words; None if a value does not fit on a line."""
    words = [f"{name}={_value(value)}" for name, value in arguments.items()]
    return " ".join(words) if all(map(_is_line, words)) else None


def _value(value: Any) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return json.dumps(value, ensure_ascii=False)


def _body(arguments: Mapping[str, Any]) -> str:
    text = json.dumps(arguments, ensure_ascii=False)
    return text if _is_line(text) else json.dumps(arguments)


def _is_line(text: str) -> bool:
    """Whether a text is visible as it is on one line."""
    return text.isprintable()


def _same(one: object, other: object) -> bool:
    """Whether two values are the same JSON; Python's `==` treats 1 and True as equal."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _read(line: str, schema: ToolSchema) -> dict[str, Any] | None:
    """Parse the arguments of a line as the magic does; None if it is invalid."""
    try:
        words = tokenize(line).words[2:]
        if words and words[0].is_body:
            return parse_body(words[0].raw, ()) if len(words) == 1 else None
        return dict(_arguments(words, schema))
    except (LineError, McpError):
        return None


def _arguments(words: Any, schema: ToolSchema) -> Iterator[tuple[str, Any]]:
    for name, value in parse_arguments(words, ()):
        if isinstance(value, Object):
            yield name, value.value
        else:
            yield name, value.text if value.quoted else schema.read_text(name, value.text)
