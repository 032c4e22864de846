"""A tool's input schema as the rest of the Python face reads it: references followed, alternatives spelled out.

A schema comes from a stranger. It may be circular, enormous or nonsense; every walk here has a bound, and what cannot
be understood counts as "anything goes", so that the server judges it and the tool stays callable. Only references into
the schema itself (`#/…`) are followed; nothing is ever opened.

Source: JSON Schema 2020-12, core sections 8 and 10, validation section 6; draft-07 spellings are read as well.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "ANYTHING",
    "Budget",
    "KINDS",
    "Schema",
    "SchemaTree",
    "form_kinds",
    "is_kind",
    "item_schemas",
    "json_equal",
    "kind_of",
    "listed_values",
    "merged",
    "properties",
    "required_names",
    "says_only_types",
]

Schema = dict[str, Any]
"""One subschema. The boolean schemas are read as `{}` (true) and `{"not": {}}` (false)."""

ANYTHING: Final[Schema] = {}
KINDS: Final = ("string", "integer", "number", "boolean", "array", "object", "null")
_MAX_ALTERNATIVES: Final = 32
_MAX_REFERENCES: Final = 16
_MAX_STEPS: Final = 400
_SETTLED: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int,),
    "boolean": (bool,),
    "null": (type(None),),
}
_BRANCHES: Final = ("anyOf", "oneOf")
_NOTES: Final = frozenset(
    ("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "format", "$comment")
)
_OF_RECORDS: Final = _NOTES | {"$schema", "type", "properties", "required", "additionalProperties"}


def kind_of(value: Any) -> str:
    """The JSON Schema type of a JSON value: `integer` for 5 and for 5.0."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "integer" if value.is_integer() else "number"
    return "array" if isinstance(value, list) else "object"


def is_kind(value: Any, kinds: frozenset[str]) -> bool:
    """Whether a JSON value is of one of these types; every integer is a number too."""
    kind = kind_of(value)
    return kind in kinds or (kind == "integer" and "number" in kinds)


def json_equal(one: Any, other: Any) -> bool:
    """Equality as JSON has it: 1 is 1.0, but True is not 1."""
    return one == other and (isinstance(one, bool) == isinstance(other, bool))


class Budget:
    """So many steps and no more: `RecursionError` at the one too many."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def spend(self) -> None:
        """Take one step."""
        self.left -= 1
        if self.left < 0:
            raise RecursionError("the schema branches too often")


class SchemaTree:
    """One schema and the memory of what was already looked up in it.

    Args:
        root: The whole schema; references are read from here.
    """

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.root: Schema = dict(root)
        # By identity. The schema is kept beside the answer so that its id is never given to another.
        self._alternatives: dict[int, tuple[Any, tuple[Schema, ...]]] = {}
        self._settled: dict[int, tuple[Any, frozenset[type]]] = {}
        self._kinds: dict[int, tuple[Any, frozenset[str] | None]] = {}

    def pointer(self, reference: str) -> Any:
        """What `#/…` points at.

        Raises:
            LookupError: It points at nothing, or out of this schema.
        """
        if reference == "#":
            return self.root
        if not reference.startswith("#/"):
            raise LookupError(reference)
        found: Any = self.root
        for part in reference[2:].split("/"):
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and re.fullmatch("[0-9]{1,6}", key):
                found = cast("list[Any]", found)[int(key)]
            elif isinstance(found, dict):
                found = cast("Schema", found)[key]
            else:
                raise LookupError(reference)
        return found

    def alternatives(self, schema: Any) -> tuple[Schema, ...]:
        """The forms a value may take: `$ref` followed, `allOf` merged, `anyOf` and `oneOf` spelled out.

        Never empty. Where a bound is met the answer is `({},)`: anything.
        """
        known = self._alternatives.get(id(schema))
        if known is None:
            try:
                found = tuple(self._spell_out(schema, Budget(_MAX_STEPS), _MAX_REFERENCES)) or (ANYTHING,)
            except (LookupError, RecursionError):
                found = (ANYTHING,)
            if len(found) > _MAX_ALTERNATIVES:
                found = (ANYTHING,)
            known = self._alternatives[id(schema)] = (schema, found)
        return known[1]

    def _spell_out(self, schema: Any, budget: Budget, left: int) -> list[Schema]:
        budget.spend()
        if not isinstance(schema, dict):
            return [{"not": {}} if schema is False else ANYTHING]
        own = cast("Schema", schema)
        if left <= 0:
            raise RecursionError
        forms = [own]
        reference = own.get("$ref")
        if isinstance(reference, str):
            forms = _combine(forms, self._spell_out(self.pointer(reference), budget, left - 1))
        for part in _listed(own, "allOf"):
            forms = _combine(forms, self._spell_out(part, budget, left - 1))
        for keyword in _BRANCHES:
            branches = _listed(own, keyword)
            if branches:
                spelled = [form for branch in branches for form in self._spell_out(branch, budget, left - 1)]
                forms = _combine(forms, spelled)
        return forms

    def kinds(self, schema: Any) -> frozenset[str] | None:
        """The JSON types a value of this schema may have; None where any will do."""
        known = self._kinds.get(id(schema))
        if known is None:
            kinds: frozenset[str] | None = frozenset()
            for form in self.alternatives(schema):
                of_form = form_kinds(form)
                kinds = None if kinds is None or of_form is None else kinds | of_form
            known = self._kinds[id(schema)] = (schema, kinds)
        return known[1]

    def settled(self, schema: Any) -> frozenset[type]:
        """The Python types of scalars that this schema takes as they are, so that nobody need look closer."""
        known = self._settled.get(id(schema))
        if known is None:
            kinds = self.kinds(schema) or ()
            listed = any(listed_values(form) is not None for form in self.alternatives(schema))
            types = frozenset(each for kind in kinds for each in _SETTLED.get(kind, ()))
            known = self._settled[id(schema)] = (schema, frozenset() if listed else types)
        return known[1]

    @property
    def is_record(self) -> bool:
        """Whether it says of an object only which members it has, so that judging these is judging all of it."""
        members, required = self.root.get("properties"), self.root.get("required", [])
        return (
            _OF_RECORDS.issuperset(self.root)
            and self.root.get("type") == "object"
            and isinstance(members, dict)
            and isinstance(required, list)
            and isinstance(self.root.get("additionalProperties", True), bool)
            and all(isinstance(name, str) and name in members for name in cast("list[Any]", required))
        )

    def members(self) -> Schema:
        """The declared members of the root in all its forms, by their exact names."""
        found: Schema = {}
        for form in self.alternatives(self.root):
            found = {**properties(form), **found}
        return found

    def choices(self, schema: Any) -> tuple[Any, ...]:
        """The values a schema lists (`enum`, `const`), null apart; empty where it takes others as well."""
        found: list[Any] = []
        for form in self.alternatives(schema):
            listed = listed_values(form)
            if listed is None:
                if form_kinds(form) == frozenset({"null"}):
                    continue
                return ()
            found += [value for value in listed if value is not None and value not in found]
        return tuple(found)


def says_only_types(schema: Any) -> bool:
    """Whether any value of the types that a schema names is valid; `format` is not asserted."""
    if not isinstance(schema, dict) or not _NOTES.issuperset(cast("Schema", schema).keys() - {"type"}):
        return False
    declared = cast("Schema", schema).get("type")
    names: list[Any] = cast("list[Any]", declared) if isinstance(declared, list) else [declared]
    return bool(names) and all(name in KINDS for name in names)


def form_kinds(form: Schema) -> frozenset[str] | None:
    """The types one form takes; None where any will do."""
    listed = listed_values(form)
    if listed is not None:
        return frozenset(kind_of(value) for value in listed)
    declared = form.get("type")
    names: list[Any] = cast("list[Any]", declared) if isinstance(declared, list) else [declared]
    kinds = frozenset(name for name in names if isinstance(name, str) and name in KINDS)
    if kinds:
        return kinds
    # Many servers leave the type out where it goes without saying.
    if properties(form):
        return frozenset({"object"})
    return frozenset({"array"}) if "items" in form else None


def listed_values(form: Schema) -> list[Any] | None:
    """The values of `enum` or `const`; None where the form lists none."""
    if "const" in form:
        return [form["const"]]
    listed = form.get("enum")
    return cast("list[Any]", listed) if isinstance(listed, list) and listed else None


def properties(form: Schema) -> Schema:
    """The declared members by their exact names."""
    found = form.get("properties")
    return cast("Schema", found) if isinstance(found, dict) else {}


def required_names(form: Schema) -> list[str]:
    """The members that must be there, in the schema's order, each once."""
    return list(dict.fromkeys(name for name in _listed(form, "required") if isinstance(name, str)))


def item_schemas(form: Schema) -> Callable[[int], Any]:
    """What gives the schema of the item at an index (`prefixItems`, `items`; draft-07's list of `items`)."""
    items = form.get("items", ANYTHING)
    first = _listed(form, "prefixItems")
    rest = items
    if isinstance(items, list):
        first, rest = cast("list[Any]", items), form.get("additionalItems", ANYTHING)
    return partial(_item_schema, first, rest)


def _item_schema(first: list[Any], rest: Any, index: int) -> Any:
    return first[index] if index < len(first) else rest


def _listed(schema: Schema, keyword: str) -> list[Any]:
    found = schema.get(keyword)
    return cast("list[Any]", found) if isinstance(found, list) else []


def _combine(forms: list[Schema], others: list[Schema]) -> list[Schema]:
    """Every form of one with every form of the other, as `allOf` has it."""
    if len(forms) * len(others) > _MAX_ALTERNATIVES:
        raise RecursionError
    return [merged(one, other) for one in forms for other in others]


def merged(one: Schema, other: Schema) -> Schema:
    """What holds for both; the first speaks where both describe the same thing."""
    result = {key: value for key, value in {**other, **one}.items() if key not in _SPELLED}
    if properties(one) and properties(other):
        result["properties"] = {**properties(one), **properties(other)}
    if "required" in one and "required" in other:
        result["required"] = required_names(one) + required_names(other)
    kinds, more = form_kinds(one), form_kinds(other)
    if "type" in one and "type" in other and kinds and more:
        result["type"] = sorted(kinds & more) or one["type"]
    return result


_SPELLED: Final = frozenset({"$ref", "allOf", *_BRANCHES, "$defs", "definitions"})
