"""Single servers within a document of ipymcp's own: put in, changed, read as they then stand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from ipymcp.config.convert import as_own
from ipymcp.config.dialects import normal
from ipymcp.config.formats import definition_of
from ipymcp.config.shapes import Written, is_name
from ipymcp.errors import ConfigError

if TYPE_CHECKING:
    from ipymcp.config.definition import ServerDefinition, Source

__all__ = ["changed", "ours", "put", "standing"]


def put(definition: ServerDefinition, document: dict[str, Any], source: Source) -> ServerDefinition:
    """Write a definition; gives it as it stands then."""
    document["mcpServers"][definition.name] = as_own(definition)
    _add_inputs(document, definition)
    return standing(definition.name, document, source)


def _add_inputs(document: dict[str, Any], definition: ServerDefinition) -> None:
    there = document.get("inputs")
    inputs = cast("list[Mapping[str, Any]]", there) if isinstance(there, list) else []
    known = {one.get("id") for one in inputs}
    new = [dict(described) for name, described in definition.inputs.items() if name not in known]
    if new:
        document["inputs"] = [*inputs, *new]


def changed(entry: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """An entry with these values; None takes one out, and a table's are changed one by one."""
    result = dict(entry)
    for key, value in values.items():
        before = result.get(key)
        if isinstance(value, Mapping) and (before is None or isinstance(before, Mapping)):
            table = changed(cast("Mapping[str, Any]", before or {}), cast("Mapping[str, Any]", value))
            value = table or None
        if value is None:
            result.pop(key, None)
        else:
            result[key] = value
    return result


def ours(entry: Mapping[str, Any], values: Mapping[str, Any], source: Source) -> Mapping[str, Any]:
    """An entry, under our names where one of these values has another there, or means something else."""
    try:
        own, names = normal(entry, "mcpServers", source)
    except ConfigError:  # perhaps what is to be mended
        return entry
    return own if names.keys() & values.keys() else entry


def standing(name: str, document: Mapping[str, Any], source: Source) -> ServerDefinition:
    """A server as the document defines it; raises where that could not be read again."""
    if not is_name(name):
        raise ConfigError(f"{name!r} is no name of a server", hint="use a text that can be seen")
    listed = cast("list[Mapping[str, Any]]", document.get("inputs") or [])
    inputs = {str(one.get("id")): one for one in listed}
    written = Written(name, f"mcpServers.{name}", document["mcpServers"][name])
    return definition_of(written, "mcpServers", source, inputs)
