"""Arguments that are sent as strings: of prompts and of URI templates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ipymcp.protocol import types
from ipymcp.protocol.types import is_array, is_object
from ipymcp.schema.annotations import Annotation, docstring
from ipymcp.schema.dynamic_class import callable_subclass
from ipymcp.schema.to_json import NotJson, to_json
from ipymcp.schema.tool_schema import ToolSchema

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Argument(NamedTuple):
    """One argument."""

    name: str
    required: bool
    description: str = ""
    is_explodable: bool = False
    """Whether a list or mapping stands for several strings."""


def schema_of(arguments: Iterable[Argument], *, server: str, owner: str) -> ToolSchema:
    """Make a schema that binds and checks these arguments like a tool's.

    Args:
        arguments: The arguments in positional order.
        server: The server's name in this notebook, for errors.
        owner: The name of the prompt or template, for errors.
    """
    listed = list(arguments)
    properties = {
        each.name: {
            "type": ["string", "array", "object"] if each.is_explodable else "string",
            **({"description": each.description} if each.description else {}),
        }
        for each in listed
    }
    required = [each.name for each in listed if each.required]
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return ToolSchema(schema, server=server, tool=owner)


def _as_text(value: Any) -> Any:
    """A Python value as a string: strings and None unchanged, others as JSON, or unchanged if that is impossible."""
    if value is None or isinstance(value, str):
        return value
    try:
        ready = to_json(value, ())
    except NotJson:  # binding reports it with the argument's name
        return value
    return ready if isinstance(ready, str) else types.encode(ready).decode()


def _as_texts(value: Any) -> Any:
    """A value as a string, or the members of a list or mapping as strings."""
    if is_array(value):
        return [_as_text(item) for item in value]
    return {key: _as_text(item) for key, item in value.items()} if is_object(value) else _as_text(value)


def callable_class(
    base: type[Any],
    schema: ToolSchema,
    *,
    alias: str,
    kind: str,
    gives: str,
    title: str | None,
    description: str | None,
) -> type[Any]:
    """Make a subclass whose call has these arguments, for `?`, Shift-Tab and Tab.

    Args:
        base: The class.
        schema: The schema of the arguments.
        alias: The subclass's name.
        kind: The noun for the docstring, such as `Prompt`.
        gives: The name of the returned type.
        title: The server's title for it.
        description: The server's description.
    """
    signature = schema.signature.replace(return_annotation=Annotation(gives))
    text = docstring(
        title, description, schema.parameters, None, None, server=schema.server, tool=schema.tool, kind=kind
    )
    return callable_subclass(base, alias, f"mcp.{schema.server}", signature, text)


def to_strings(schema: ToolSchema, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the arguments of one call to strings by exact name, without those that are None.

    Raises:
        ArgumentError: An argument is missing, unknown, or cannot be represented in JSON.
    """
    many = {each.name for each in schema.parameters if not isinstance(each.schema.get("type"), str)}
    many |= {each.alias for each in schema.parameters if each.name in many}
    positional = [each.name for each in schema.parameters if each.required]
    converted = tuple(
        _as_texts(value) if at < len(positional) and positional[at] in many else _as_text(value)
        for at, value in enumerate(args)
    )
    by_name = {
        name: _as_texts(value) if name in many else _as_text(value)
        for name, value in kwargs.items()
        if value is not None
    }
    return schema.bind(converted, by_name)
