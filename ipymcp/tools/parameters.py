"""The parameters of a tool: its input schema as a Python signature."""

from __future__ import annotations

import inspect
import keyword
import re
import unicodedata
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from ipymcp.masking import mask, masks
from ipymcp.tools.annotations import Annotation, annotate
from ipymcp.tools.schema_tree import ANYTHING, Schema, SchemaTree

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Parameter", "ParameterList", "read_parameters"]

_MAX_CHOICES: Final = 1_000
_APPLICATORS: Final = frozenset(
    {"$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "dependencies"}
)


class Parameter(msgspec.Struct, frozen=True):
    """One argument of a tool."""

    name: str
    """The exact name in the tool's schema."""
    alias: str
    """What Python code writes: the name itself, or an identifier made from it (`from_`, `max_results`)."""
    required: bool
    annotation: Any
    """The type in words, such as `int | None`, with the type itself."""
    default: Any
    """The schema's default, None for an optional one without, `inspect.Parameter.empty` for a required one."""
    description: str
    """One paragraph, often empty."""
    enum: tuple[Any, ...]
    """The allowed values where the schema lists them."""
    schema: Mapping[str, Any]
    """The argument's own schema."""


class _ShownParameter(inspect.Parameter):
    """A parameter whose annotation is a type, and is shown in words."""

    __slots__ = ("_words",)

    def __init__(self, name: str, kind: Any, *, default: Any = inspect.Parameter.empty, annotation: Any) -> None:
        self._words = annotation
        kind_of_value = annotation.type if isinstance(annotation, Annotation) else annotation
        super().__init__(name, kind, default=default, annotation=kind_of_value)

    def __str__(self) -> str:
        return str(inspect.Parameter(self.name, self.kind, default=self.default, annotation=self._words))


class ParameterList(msgspec.Struct, frozen=True):
    """All parameters of a tool, the required ones first."""

    parameters: tuple[Parameter, ...]
    open: bool
    """Whether arguments that are not declared may be given."""
    says_open: bool
    """Whether the schema says so, or says nothing; `properties: {}` is how servers declare a tool without arguments."""

    def signature(self) -> inspect.Signature:
        """Required arguments by position or name, optional ones by name; `**arguments` where others are allowed.

        It is for people to look at: secrets among the defaults are masked.
        """
        kinds = {True: inspect.Parameter.POSITIONAL_OR_KEYWORD, False: inspect.Parameter.KEYWORD_ONLY}
        listed: list[inspect.Parameter] = [
            _ShownParameter(
                each.alias, kinds[each.required], default=masks.json(each.default), annotation=each.annotation
            )
            for each in self.parameters
        ]
        if self.says_open:
            rest = _free("arguments", {each.alias for each in self.parameters})
            listed.append(_ShownParameter(rest, inspect.Parameter.VAR_KEYWORD, annotation=Annotation("Any")))
        return inspect.Signature(listed, return_annotation=Annotation("ToolResult"))


def read_parameters(tree: SchemaTree) -> ParameterList:
    """The parameters that a tool's input schema declares."""
    members = tree.record.members
    required = tree.record.required  # in the author's order, even where the members were sorted by a serialiser
    order = required + [name for name in members if name not in set(required)]
    aliases = _aliases(order)
    listed = tuple(
        _parameter(tree, name, aliases[name], members.get(name, ANYTHING), required=at < len(required))
        for at, name in enumerate(order)
    )
    is_open = _is_open(tree.root, members)
    empty_on_purpose = tree.root.get("properties") == {} and not tree.root.get("additionalProperties")
    return ParameterList(listed, open=is_open, says_open=is_open and not empty_on_purpose)


def _parameter(tree: SchemaTree, name: str, alias: str, schema: Any, *, required: bool) -> Parameter:
    own = cast("Schema", schema) if isinstance(schema, dict) else ANYTHING
    default = inspect.Parameter.empty if required else own.get("default")
    annotation = annotate(tree, schema, nullable=not required and default is None)
    return Parameter(
        name=name,
        alias=alias,
        required=required,
        annotation=Annotation(mask(annotation), annotation.type),
        default=default,
        description=_description(tree, own),
        enum=tree.choices(schema)[:_MAX_CHOICES],
        schema=own,
    )


def _description(tree: SchemaTree, schema: Schema) -> str:
    found = schema.get("description")
    if not isinstance(found, str):
        found = next(
            (text for form in tree.alternatives(schema) if isinstance(text := form.get("description"), str)), ""
        )
    return " ".join(found.split())


def _is_open(root: Schema, members: Schema) -> bool:
    """Whether undeclared arguments are let through.

    JSON Schema lets them through whenever `additionalProperties` is absent. Authors who list the arguments and leave
    that word out do not mean it; then a surplus argument is a typo and better said than sent.
    """
    extra = root.get("additionalProperties")
    if extra is not None:
        return extra is not False or "patternProperties" in root
    return not members or "patternProperties" in root or not _APPLICATORS.isdisjoint(root)


def _aliases(names: list[str]) -> dict[str, str]:
    """An identifier for each name, all different; a name that is one keeps it."""
    found = {name: name for name in names if _identifier(name) == name}
    taken = set(found.values())
    for name in names:
        if name not in found:
            found[name] = _free(_identifier(name), taken)
            taken.add(found[name])
    return found


def _identifier(name: str) -> str:
    """The identifier nearest to a name, as Python would read it in a source (NFKC)."""
    word = re.sub(r"\W", "_", unicodedata.normalize("NFKC", name)) or "_"
    if not word.isidentifier():
        word = f"_{word}"
    if not word.isidentifier():
        word = re.sub(r"[^A-Za-z0-9_]", "_", word)
    return f"{word}_" if keyword.iskeyword(word) or word == "__debug__" else word


def _free(word: str, taken: set[str]) -> str:
    number, free = 1, word
    while free in taken:
        number += 1
        free = f"{word}_{number}"
    return free
