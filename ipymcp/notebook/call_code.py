"""A call as code that makes exactly that call: in Python, and as a `%mcp` line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ipymcp.api.parts import parts_of
from ipymcp.api.sync_and_async import host_of
from ipymcp.errors import McpError
from ipymcp.llm.answer import read_json_object
from ipymcp.llm.tool_definitions import CODE, NOTEBOOK
from ipymcp.masking import masks
from ipymcp.notebook.line_syntax import LineError, tokenize
from ipymcp.notebook.line_values import parse_arguments, parse_body
from ipymcp.text import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ipymcp.api.namespace import Mcp
    from ipymcp.llm.answer import ModelCall
    from ipymcp.runtime.catalog import ToolEntry
    from ipymcp.runtime.host import Host
    from ipymcp.schema.tool_schema import ToolSchema


_MAX_LENGTH = 100
"""Maximum characters of a call on one line of Python."""
_MAGIC = "%mcp call "


def python(host: Host, entry: ToolEntry, schema: ToolSchema, arguments: Mapping[str, Any], namespace: str) -> str:
    """Write a call in Python.

    Args:
        host: The host of the server.
        entry: The tool.
        schema: The schema of the tool's arguments.
        arguments: Values by exact argument name.
        namespace: The variable that `mcp` is bound to; if empty, the code imports `mcp`.
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


def of_model(mcp: Mcp, call: ModelCall, names: Mapping[str, Any]) -> str:
    """Write a model's call in Python; empty if a cell cannot make this call.

    Args:
        mcp: The notebook's servers.
        call: The call.
        names: The notebook's variables.
    """
    if call.server == NOTEBOOK:
        given = read_json_object(call.arguments) or {}
        if call.tool == CODE:
            return str(given.get("code", ""))
        words = [f"{name}={value!r}" for name, value in masks.json(given).items()]
        return f"{call.tool}({', '.join(words)})" if callable(names.get(call.tool)) else ""
    host = host_of(mcp)
    session = host.sessions.get(call.server)
    entry = session.catalog.tools.get(call.tool) if session is not None else None
    if entry is None or call.sent is None:
        return ""
    name = next((name for name in ("mcp", *names) if names.get(name) is mcp), "")
    return python(host, entry, parts_of(mcp).factory.schema(entry), masks.json(call.sent), name)


def magic(host: Host, entry: ToolEntry, schema: ToolSchema, arguments: Mapping[str, Any]) -> str:
    """Write a call as a `%mcp` line, with `key=value` arguments if these are parsed to the same values, else with JSON.

    Raises:
        McpError: No line can express the call.
    """
    path = _path(host, entry)
    words = " ".join(f"{name}={_word(value)}" for name, value in arguments.items())
    body = json.dumps(arguments, ensure_ascii=False)
    for rest in (words, body, json.dumps(arguments)):
        # Compared as JSON, because Python's `==` treats 1 and True as equal.
        if rest.isprintable() and _as_json(_read(f"call {path} {rest}".rstrip(), schema)) == _as_json(dict(arguments)):
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


def _word(value: Any) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return json.dumps(value, ensure_ascii=False)


def _as_json(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def _read(line: str, schema: ToolSchema) -> dict[str, Any] | None:
    """Parse the arguments of a line as the magic does; None if it is invalid."""
    try:
        words = tokenize(line).words[2:]
        if words and words[0].is_body:
            return parse_body(words[0].raw, ()) if len(words) == 1 else None
        return parse_arguments(words, (), schema)
    except (LineError, McpError):
        return None
