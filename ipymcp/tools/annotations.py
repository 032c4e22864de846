"""JSON Schema as Python type annotations, in words: `int | None`, `list[str]`, `Literal['a', 'b']`."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, Final, Literal

from ipymcp.masking import masks
from ipymcp.tools.schema_tree import Schema, SchemaTree, form_kinds, listed_values, properties

__all__ = ["Annotation", "annotate"]

_NAMES: Final = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_ORDER: Final = ("str", "int", "float", "bool")
_MAX_LITERALS: Final = 16
_MAX_UNION: Final = 6
_MAX_DEPTH: Final = 4

ObjectNamer = Callable[[Schema], str | None]
"""Gives an object form a name of its own, such as a TypedDict's."""


class Annotation(str):
    """An annotation in words, which `inspect` prints without quotes, and the type that they name.

    Args:
        words: Such as `int | None`.
        type: That type; what has a name of its own elsewhere is a `dict[str, Any]`.
    """

    type: Any

    def __new__(cls, words: str, type: Any = Any) -> Annotation:
        """The words, with their type."""
        made = super().__new__(cls, words)
        made.type = type
        return made

    def __repr__(self) -> str:
        return str(self)


_ANY: Final = Annotation("Any")
_TYPES: Final = {
    word: Annotation(word, kind)
    for word, kind in (("str", str), ("int", int), ("float", float), ("bool", bool), ("None", type(None)))
}


def annotate(
    tree: SchemaTree, schema: Any, *, nullable: bool = False, name_object: ObjectNamer | None = None
) -> Annotation:
    """The annotation for values of a subschema; `Any` where it says nothing, or more than is readable.

    Args:
        tree: The schema that the subschema belongs to.
        schema: The subschema.
        nullable: Add `| None`.
        name_object: What names object forms; `dict[str, …]` without it or where it gives None.
    """
    return _Words(tree, name_object).of(schema, nullable=nullable)


class _Words:
    def __init__(self, tree: SchemaTree, name_object: ObjectNamer | None) -> None:
        self.tree = tree
        self.name_object = name_object

    def of(self, schema: Any, depth: int = _MAX_DEPTH, *, nullable: bool = False) -> Annotation:
        if depth <= 0:
            return _ANY
        literals: list[Any] = []
        words: dict[Annotation, None] = {}
        for form in self.tree.alternatives(schema):
            listed = _literals(form)
            if listed is not None:
                literals += [value for value in listed if value not in literals]
            else:
                words.update(dict.fromkeys(self._form(form, depth)))
        if len(literals) > _MAX_LITERALS:
            words.update(dict.fromkeys(_words_of(literals)))
        elif some := [repr(value) for value in literals if value is not None]:
            values = tuple(masks.json(value) for value in literals if value is not None)
            words = {Annotation(f"Literal[{', '.join(some)}]", Literal[values]): None, **words}
        if None in literals or nullable:
            words[_TYPES["None"]] = None
        return _union(words)

    def _form(self, form: Schema, depth: int) -> list[Annotation]:
        kinds = form_kinds(form)
        if kinds is None:
            return [_ANY]
        words = _ordered({_NAMES[kind] for kind in kinds if kind in _NAMES})
        if "array" in kinds:
            items = form.get("items", True) if "prefixItems" not in form else True
            item = self.of(items if isinstance(items, dict) else True, depth - 1)
            words.append(Annotation(f"list[{item}]", list[item.type]))
        if "object" in kinds:
            words.append(self._object(form, depth))
        return words

    def _object(self, form: Schema, depth: int) -> Annotation:
        named = self.name_object(form) if self.name_object and properties(form) else None
        if named:
            return Annotation(named, dict[str, Any])
        extra: Any = form.get("additionalProperties")
        values = self.of(extra, depth - 1) if isinstance(extra, dict) and not properties(form) else _ANY
        return Annotation(f"dict[str, {values}]", dict[str, values.type])


def _union(words: dict[Annotation, None]) -> Annotation:
    if _ANY in words or not words:
        return _ANY
    if len(words) > _MAX_UNION:
        return _ANY
    # None reads best at the end.
    listed = sorted(words, key=lambda word: word == "None")
    return Annotation(" | ".join(listed), reduce(lambda one, other: one | other, [word.type for word in listed]))


def _literals(form: Schema) -> list[Any] | None:
    """The listed values, where Python's `Literal` can say all of them."""
    listed = listed_values(form)
    if listed is None or not all(value is None or isinstance(value, str | int) for value in listed):
        return None
    return listed


def _words_of(literals: list[Any]) -> list[Annotation]:
    return _ordered({type(value).__name__ for value in literals if value is not None})


def _ordered(words: set[str]) -> list[Annotation]:
    ordered = sorted(words, key=lambda word: _ORDER.index(word) if word in _ORDER else len(_ORDER))
    return [_TYPES[word] for word in ordered]
