"""Where a document keeps its servers: each host has its own shape, recognised by what is in it.

{"mcpServers": {NAME: …}}                      ipymcp, Claude Desktop, Claude Code, Cursor, Cline, Gemini, Windsurf
{"servers": {NAME: …}, "inputs": […]}          VS Code; Dispatch, without inputs; either inside `mcp` in settings
{"mcp": {NAME: {"type": "local", …}}}          opencode
{"mcp_servers": [{"name": NAME, …}]}           jupyter-ai, jupyter-mcp-manager (its settings: in `mcpSettings`)
{NAME: {"command": …}, …}                      a flat record
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeGuard, cast

from msgspec import Struct

from ipymcp.config.values import found
from ipymcp.errors import ConfigError

__all__ = ["SHAPE", "Shape", "Written", "bare_shape", "is_name", "is_server", "no_shape", "shape_of"]

SHAPE = 'the shape is {"mcpServers": {"NAME": {"command": "…", "args": ["…"]}}}'
_REACHED = ("command", "url", "serverUrl", "httpUrl", "transport")
"""What makes an object a server's."""
_TABLES = {"mcpServers": "mcpServers", "mcp_servers": "jupyter", "servers": "servers"}
_MENTIONED = 5


class Written(Struct, frozen=True):
    """One server as a document has it."""

    name: str
    key: str
    """The keys that lead to it, joined by dots."""
    values: Mapping[str, Any]


class Shape(Struct, frozen=True):
    """What a document holds."""

    host: str
    """Whose way of writing it is; `mcpServers` for that of many."""
    written: tuple[Written | ConfigError, ...]
    """Each server, or why it is none."""
    inputs: Mapping[str, Mapping[str, Any]]
    """What `${input:ID}` stand for, by id."""


def shape_of(document: object, origin: str) -> Shape | None:
    """What a document holds; None where it is an object in which nothing looks like servers.

    Args:
        document: Decoded.
        origin: What errors begin with.

    Raises:
        ConfigError: It is no object, or what should hold the servers does not.
    """
    if not isinstance(document, Mapping):
        raise ConfigError(f"{origin}: expected an object, got {found(document)}", hint=SHAPE)
    table = cast("Mapping[str, Any]", document)
    inputs = _inputs(table)
    for key, host in _TABLES.items():
        if key in table and not (key != "mcpServers" and is_server(table[key])):
            written = tuple(_written(table[key], key, origin))
            if key == "mcpServers" and os.path.basename(os.path.dirname(origin)) == ".gemini":
                host = "gemini"
            return Shape("vscode" if key == "servers" else host, written, inputs)
    settings = cast("object", table.get("mcpSettings"))
    if isinstance(settings, Mapping) and "mcp_servers" in settings:
        listed = cast("Mapping[str, object]", settings)["mcp_servers"]
        return Shape("jupyter", tuple(_written(listed, "mcpSettings.mcp_servers", origin)), {})
    inner = table.get("mcp")
    if isinstance(inner, Mapping) and not is_server(cast("object", inner)):
        held = cast("Mapping[str, Any]", inner)
        if isinstance(held.get("servers"), Mapping) and not is_server(held["servers"]):
            return Shape("vscode", tuple(_written(held["servers"], "mcp.servers", origin)), _inputs(held))
        if not any(is_server(table[name]) for name in table if name != "mcp"):
            return Shape("opencode", tuple(_written(held, "mcp", origin)), {})
    if any(is_server(value) for value in table.values()):
        return bare_shape(table, origin)
    return None


def bare_shape(table: object, origin: str) -> Shape:
    """An object from name to definition.

    Raises:
        ConfigError: It is no object.
    """
    return Shape("flat", tuple(_written(table, "", origin)), {})


def no_shape(document: Mapping[str, Any], origin: str) -> ConfigError:
    """The error for an object in which nothing looks like servers."""
    keys = ", ".join(f'"{key}"' for key in list(document)[:_MENTIONED]) or "an empty object"
    return ConfigError(f'{origin}: expected the key "mcpServers", found {keys}', hint=SHAPE)


def _written(table: object, path: str, origin: str) -> Iterator[Written | ConfigError]:
    where = f"{origin}: {path}".removesuffix(": ")
    if isinstance(table, list) and path != "mcpServers":
        yield from _listed(cast("Sequence[object]", table), path, origin)
        return
    if not isinstance(table, Mapping):
        wanted = "a list" if path.endswith("mcp_servers") else "an object"
        raise ConfigError(f"{where}: expected {wanted}, got {found(cast('object', table))}", hint=SHAPE)
    for name, values in cast("Mapping[object, object]", table).items():
        key = f"{path}.{name}" if path else str(name)
        if not is_name(name):
            yield ConfigError(f"{where}: expected a server's name, got {found(name)}", hint=SHAPE)
        elif not isinstance(values, Mapping):
            yield ConfigError(f"{origin}: {key}: expected an object, got {found(values)}", hint=SHAPE)
        else:
            yield Written(name, key, cast("Mapping[str, Any]", values))


def _listed(table: Sequence[object], path: str, origin: str) -> Iterator[Written | ConfigError]:
    seen: set[str] = set()
    for index, item in enumerate(table):
        key = f"{path}[{index}]"
        if not isinstance(item, Mapping):
            yield ConfigError(f"{origin}: {key}: expected an object, got {found(item)}", hint=SHAPE)
            continue
        values = dict(cast("Mapping[str, Any]", item))
        name = values.pop("name", None)
        if not is_name(name):
            yield ConfigError(f"{origin}: {key}.name: expected a server's name, got {found(name)}", hint=SHAPE)
        elif name in seen:
            yield ConfigError(f'{origin}: {key}.name: "{name}" is defined twice', hint="keep one of the two")
        elif values.keys() != {"disabled"}:  # jupyter-mcp-manager's way to switch off one that stands elsewhere
            seen.add(name)
            yield Written(name, key, values)


def is_name(name: object) -> TypeGuard[str]:
    """Whether a server may be called so: any text that can be seen."""
    return isinstance(name, str) and bool(name.strip()) and name.isprintable()


def is_server(value: object) -> bool:
    """Whether an object is one server's, and no table of them."""
    if not isinstance(value, Mapping):
        return False
    values = cast("Mapping[str, object]", value)
    return any(isinstance(values.get(key), str | list | Mapping) for key in _REACHED)


def _inputs(table: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """VS Code's `inputs`; what is none is left out, and named when a server asks for it."""
    listed = table.get("inputs")
    if not isinstance(listed, list):
        return {}
    items = cast("list[object]", listed)
    inputs = [cast("Mapping[str, Any]", item) for item in items if isinstance(item, Mapping)]
    return {item["id"]: item for item in inputs if isinstance(item.get("id"), str)}
