"""What judging a value by a schema may cost, so that a hostile schema costs nothing.

A schema of a few lines can ask one value millions of questions: forty definitions, each `anyOf` twice the next one; or
thirty alternatives that each contain themselves, and a value twenty levels deep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final, cast

from ipymcp.tools.schema_tree import Schema, SchemaTree

__all__ = ["SchemaCost"]

_MAX_QUESTIONS: Final = 2_000
_MAX_PATHS: Final = 50_000
_BRANCHES: Final = ("allOf", "anyOf", "oneOf")
_CONDITIONS: Final = ("not", "if", "then", "else")
_LISTED: Final = ("prefixItems", "items")
_SINGLE: Final = ("items", "additionalItems", "additionalProperties", "contains", "propertyNames", "unevaluatedItems")
_NAMED: Final = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
_UNBOUNDED: Final = float("inf")

Children = Callable[[Schema], Iterator[Any]]


class SchemaCost:
    """How many questions a schema asks.

    Args:
        schema: A schema whose references all lead into itself.

    Raises:
        RecursionError: It asks the same value thousands of questions, or the same question for ever.
    """

    def __init__(self, schema: Schema) -> None:
        self._tree = SchemaTree(schema)
        counted: dict[int, float] = {}
        self._paths = self._count(self._tree.root, self._all_children, {}, _UNBOUNDED)
        """Ways from the root to any part of the schema; without bound where it contains itself."""
        self._questions = max(
            self._count(part, self._in_place, counted, _MAX_QUESTIONS) for part in self._parts(self._tree.root)
        )
        """The most that any part asks of one value."""

    def affords(self, value: Any) -> bool:
        """Whether judging this value is cheap enough."""
        if self._paths <= _MAX_PATHS:
            return True
        return self._questions ** _depth(value) <= _MAX_PATHS

    def _count(self, part: Any, children: Children, known: dict[int, float], most: float) -> float:
        if not isinstance(part, dict):
            return 1
        own = cast("Schema", part)
        count = known.get(id(own))
        if count is not None:
            return self._checked(count, most)
        known[id(own)] = _UNBOUNDED  # met again below itself: a circle
        known[id(own)] = total = max(1, sum(self._count(child, children, known, most) for child in children(own)))
        return self._checked(total, most)

    @staticmethod
    def _checked(count: float, most: float) -> float:
        if count > most:
            raise RecursionError("the schema branches too often")
        return count

    def _in_place(self, schema: Schema) -> Iterator[Any]:
        """The subschemas that judge the same value."""
        reference = schema.get("$ref")
        if isinstance(reference, str):
            # What looks like a dangling reference here is data, such as a default's.
            with suppress(LookupError):
                yield self._tree.pointer(reference)
        for keyword in _BRANCHES:
            yield from _listed(schema, keyword)
        yield from (schema[keyword] for keyword in _CONDITIONS if keyword in schema)

    def _all_children(self, schema: Schema) -> Iterator[Any]:
        """Those, and the ones that judge what the value contains."""
        yield from self._in_place(schema)
        yield from _below(schema)

    def _parts(self, schema: Any) -> Iterator[Schema]:
        """Every subschema as it stands in the text."""
        if isinstance(schema, dict):
            own = cast("Schema", schema)
            yield own
            for child in own.values():
                yield from self._parts(child)
        elif isinstance(schema, list):
            for child in cast("list[Any]", schema):
                yield from self._parts(child)


def _below(schema: Schema) -> Iterator[Any]:
    for keyword in _LISTED:
        yield from _listed(schema, keyword)
    yield from (schema[keyword] for keyword in _SINGLE if keyword in schema)
    for keyword in _NAMED:
        found = schema.get(keyword)
        if isinstance(found, dict):
            yield from cast("Schema", found).values()


def _listed(schema: Schema, keyword: str) -> list[Any]:
    found = schema.get(keyword)
    return cast("list[Any]", found) if isinstance(found, list) else []


def _depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(_depth, cast("Schema", value).values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(_depth, cast("list[Any]", value)), default=0)
    return 1
