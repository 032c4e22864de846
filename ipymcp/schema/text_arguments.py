"""Arguments whose values are text on the wire: those of prompts, and the parameters of URI templates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ipymcp.protocol import types
from ipymcp.protocol.types import is_array, is_object
from ipymcp.schema.annotations import Annotation, docstring
from ipymcp.schema.dynamic_class import specialised
from ipymcp.schema.to_json import NotJson, plain
from ipymcp.schema.tool_schema import ToolSchema

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Argument(NamedTuple):
    """One argument."""

    name: str
    required: bool
    description: str = ""
    takes_many: bool = False
    """Whether a list or a mapping is more than one text."""


def schema_of(arguments: Iterable[Argument], *, server: str, owner: str) -> ToolSchema:
    """What binds, names and checks these arguments as a tool's are.

    Args:
        arguments: In the order they are passed in.
        server: The server's name in this notebook, for errors.
        owner: Whose arguments they are, for errors.
    """
    listed = list(arguments)
    properties = {
        each.name: {
            "type": ["string", "array", "object"] if each.takes_many else "string",
            **({"description": each.description} if each.description else {}),
        }
        for each in listed
    }
    required = [each.name for each in listed if each.required]
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return ToolSchema(schema, server=server, tool=owner)


def _as_text(value: Any) -> Any:
    """A Python value as text: text as it is, None as None, the rest as JSON; what JSON cannot say as it is."""
    if value is None or isinstance(value, str):
        return value
    try:
        ready = plain(value, ())
    except NotJson:  # binding says so, and to which argument it was given
        return value
    return ready if isinstance(ready, str) else types.encode(ready).decode()


def _as_texts(value: Any) -> Any:
    """The same, but for a list or mapping, whose members are."""
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
    """A subclass whose call has these arguments, for `?`, Shift-Tab and Tab.

    Args:
        base: The class.
        schema: Of the arguments.
        alias: The subclass's name.
        kind: What it is called in its docstring: `Prompt`.
        gives: The name of what the call gives.
        title: The server's title for it.
        description: The server's description.
    """
    signature = schema.signature.replace(return_annotation=Annotation(gives))
    text = docstring(
        title, description, schema.parameters, None, None, server=schema.server, tool=schema.tool, kind=kind
    )
    return specialised(base, alias, f"mcp.{schema.server}", signature, text)


def named(schema: ToolSchema, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of one call by their exact names, as texts; what is None is left out.

    Raises:
        ArgumentError: One is missing, surplus, or nothing that JSON can say.
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
