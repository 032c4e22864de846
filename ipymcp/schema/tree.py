"""JSON Schemas with references resolved and alternatives expanded, at a bounded cost.

Schemas are untrusted: they may be circular, enormous or invalid. Every walk here has a budget, and anything that cannot
be interpreted counts as "any value", so that the server validates it and the tool stays callable. Only references into
the schema itself are followed (`#/…`, `#anchor`, the `$id` of a subschema); nothing is ever fetched.

Source: JSON Schema 2020-12, core sections 8 and 10, validation section 6; the keywords of draft-07 are read as well.
"""

from __future__ import annotations

import re
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urljoin

import msgspec
from msgspec import Struct

from ipymcp.protocol.types import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


Schema = dict[str, Any]
"""One subschema. The boolean schemas are read as `{}` (true) and `{"not": {}}` (false)."""

ANYTHING: Final[Schema] = {}
KINDS: Final = ("string", "integer", "number", "boolean", "array", "object", "null")
_MAX_ALTERNATIVES: Final = 32
_MAX_REFERENCES: Final = 16
_MAX_STEPS: Final = 400
_MAX_MEMBERS: Final = 2_000
_MAX_NULLABLE: Final = 20_000
"""Maximum subschemas in which `nullable` is read."""
_SCALAR_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int,),
    "boolean": (bool,),
    "null": (type(None),),
}
_BRANCHES: Final = ("anyOf", "oneOf")
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_REFERENCE_KEYS: Final = tuple(f'"{word}":'.encode() for word in _REFERENCES)
COMPOSING: Final = frozenset({*_REFERENCES, "allOf", *_BRANCHES})
"""Keywords that compose a schema of other schemas."""
_ANCHORS: Final = ("$anchor", "$dynamicAnchor")
DATA: Final = frozenset(("enum", "const", "default", "example", "examples"))
"""Keywords whose values are data, even where they look like schemas."""
_MAX_DESCRIPTION: Final = 400
"""Characters of the joined descriptions of a union."""
_ANNOTATIONS: Final = frozenset(
    ("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "format", "$comment")
)
_RECORD_KEYWORDS: Final = _ANNOTATIONS | {"$schema", "type", "properties", "required", "additionalProperties"}


def json_type(value: Any) -> str:
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


def has_json_type(value: Any, kinds: frozenset[str]) -> bool:
    """Whether a JSON value is of one of these types; every integer is also a number."""
    return _includes(kinds, json_type(value))


def json_equal(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal: 1 equals 1.0, but True does not equal 1."""
    return one == other and (isinstance(one, bool) == isinstance(other, bool))


class Budget:
    """A limit on the steps of a walk; exceeding it raises `RecursionError`."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def spend(self, steps: int = 1) -> None:
        """Use up one or more steps."""
        self.left -= steps
        if self.left < 0:
            raise RecursionError("the schema branches too often")


class Record(Struct, frozen=True):
    """The members that a schema declares for an object, over all of its alternatives.

    Attributes:
        members: Schemas by exact member name; the union where several alternatives declare a member.
        required: Members that every alternative requires.
        is_closed: Whether other members are forbidden.
        unions: The alternatives of each `anyOf` and `oneOf`.
        about: The schema's description or title.
    """

    members: Schema
    required: list[str]
    is_closed: bool = False
    unions: tuple[tuple[Record, ...], ...] = ()
    about: str = ""


class SchemaTree:
    """One schema with a cache of lookups in it.

    Args:
        root: The whole schema; references are resolved against it.
    """

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.root: Schema = dict(root)
        # Keyed by the schema's id. Each entry also holds the schema, so that its id is not reused.
        self._alternatives: dict[int, tuple[Any, tuple[Schema, ...]]] = {}
        self._scalar_types: dict[int, tuple[Any, frozenset[type]]] = {}
        self._kinds: dict[int, tuple[Any, frozenset[str] | None]] = {}

    @property
    def has_references(self) -> bool:
        """Whether the name of a reference keyword occurs anywhere, even as a property's name or within data."""
        try:
            text = msgspec.json.encode(self.root)
        except (RecursionError, TypeError, ValueError):  # not JSON, or nested too deeply
            return True
        return any(word in text for word in _REFERENCE_KEYS)

    def pointer(self, reference: str) -> Any:
        """Resolve a reference such as `#/…`.

        Raises:
            LookupError: The target does not exist, or is outside this schema.
        """
        address, _, fragment = reference.partition("#")
        is_path = not fragment or fragment.startswith("/")
        if not address and is_path:
            try:
                return _part(self.root, fragment)
            except LookupError:
                if len(self._named) == 1:
                    raise
        for base in (*self._named,):  # the base URI of the referring subschema is unknown: try the root's first
            place = urljoin(base, address).partition("#")[0] if address else base
            if not is_path and f"{place}#{fragment}" in self._named:
                return self._named[f"{place}#{fragment}"]
            if is_path and place in self._named:
                try:
                    return _part(self._named[place], fragment)
                except LookupError:
                    continue
        raise LookupError(reference)

    @cached_property
    def _named(self) -> dict[str, Schema]:
        """Subschemas with an `$id` or an anchor, by `$id` and `$id#anchor`; the root comes first."""
        named: dict[str, Schema] = {}
        own = self.root.get("$id")
        named[own.partition("#")[0] if isinstance(own, str) else ""] = self.root

        def add(schema: Schema, base: str) -> None:
            own = schema.get("$id")
            if isinstance(own, str):
                address, _, anchor = urljoin(base, own).partition("#")
                named.setdefault(f"{address}#{anchor}" if anchor else address, schema)
                base = address
            for word in _ANCHORS:
                if isinstance(schema.get(word), str):
                    named.setdefault(f"{base}#{schema[word]}", schema)
            for each in subschemas(schema):
                add(each, base)

        add(self.root, next(iter(named)))
        return named

    def alternatives(self, schema: Any) -> tuple[Schema, ...]:
        """The forms of a schema: `$ref` resolved, `allOf` merged, `anyOf` and `oneOf` expanded.

        Returns:
            At least one form; `({},)`, which accepts any value, if a limit is exceeded.
        """
        entry = self._alternatives.get(id(schema))
        if entry is None:
            try:
                forms = tuple(self._expand(schema, Budget(_MAX_STEPS), _MAX_REFERENCES)) or (ANYTHING,)
            except (LookupError, RecursionError):
                forms = (ANYTHING,)
            if len(forms) > _MAX_ALTERNATIVES:
                forms = (ANYTHING,)
            entry = self._alternatives[id(schema)] = (schema, forms)
        return entry[1]

    def _expand(self, schema: Any, budget: Budget, left: int) -> list[Schema]:
        budget.spend()
        if not is_object(schema):
            return [{"not": {}} if schema is False else ANYTHING]
        if left <= 0:
            raise RecursionError
        forms = [schema]
        reference = reference_of(schema)
        if reference is not None:
            forms = _combine(forms, self._expand(self.pointer(reference), budget, left - 1))
        for part in list_at(schema, "allOf"):
            forms = _combine(forms, self._expand(part, budget, left - 1))
        for keyword in _BRANCHES:
            branches = list_at(schema, keyword)
            if branches:
                expanded = [form for branch in branches for form in self._expand(branch, budget, left - 1)]
                forms = _combine(forms, expanded)
        return forms

    def kinds(self, schema: Any) -> frozenset[str] | None:
        """The JSON types that a schema accepts; None if it accepts all."""
        entry = self._kinds.get(id(schema))
        if entry is None:
            kinds: frozenset[str] | None = frozenset()
            for form in self.alternatives(schema):
                of_form = form_kinds(form)
                kinds = None if kinds is None or of_form is None else kinds | of_form
            entry = self._kinds[id(schema)] = (schema, kinds)
        return entry[1]

    def scalar_types(self, schema: Any) -> frozenset[type]:
        """The Python types of scalars that a schema accepts without conversion or further checks."""
        entry = self._scalar_types.get(id(schema))
        if entry is None:
            kinds = self.kinds(schema) or ()
            listed = any(listed_values(form) is not None for form in self.alternatives(schema))
            types = frozenset(each for kind in kinds for each in _SCALAR_TYPES.get(kind, ()))
            entry = self._scalar_types[id(schema)] = (schema, frozenset() if listed else types)
        return entry[1]

    @property
    def is_record(self) -> bool:
        """Whether the root only declares members, so that validating each member validates the object."""
        members, required = self.root.get("properties"), self.root.get("required", [])
        return (
            _RECORD_KEYWORDS.issuperset(self.root)
            and self.root.get("type") == "object"
            and is_object(members)
            and is_array(required)
            and isinstance(self.root.get("additionalProperties", True), bool)
            and all(isinstance(name, str) and name in members for name in required)
        )

    @cached_property
    def record(self) -> Record:
        """The object that the root declares; only its direct members if a limit is exceeded."""
        try:
            record = self._record(self.root, Budget(_MAX_MEMBERS), _MAX_REFERENCES)
        except RecursionError:
            record = None
        return record or Record(properties(self.root), required_names(self.root))

    def _record(self, schema: Any, budget: Budget, left: int) -> Record | None:
        """Read a record; None if the schema does not accept objects."""
        budget.spend()
        if not is_object(schema):
            return None if schema is False else Record({}, [])
        kinds = form_kinds(schema)
        if left <= 0:
            raise RecursionError
        if schema.get("not") == {} or (kinds is not None and "object" not in kinds):
            return None
        is_closed = schema.get("additionalProperties") is False and "patternProperties" not in schema
        text = schema.get("description", schema.get("title"))
        about = text if isinstance(text, str) else ""
        record = Record(properties(schema), required_names(schema), is_closed, about=about)
        if COMPOSING.isdisjoint(schema):
            return record
        parts = list(list_at(schema, "allOf"))
        reference = reference_of(schema)
        if reference is not None:
            with suppress(LookupError):
                parts.append(self.pointer(reference))
        for part in parts:
            other = self._record(part, budget, left - 1)
            if other is None:
                return None
            record = _both(record, other)
        for keyword in _BRANCHES:
            variants = [self._record(branch, budget, left - 1) for branch in list_at(schema, keyword)]
            if objects := [each for each in variants if each is not None]:
                record = _both(record, _any_of(objects))
        return record

    def choices(self, schema: Any) -> tuple[Any, ...]:
        """The values that a schema lists (`enum`, `const`), without null; empty if it accepts others too."""
        values: list[Any] = []
        for form in self.alternatives(schema):
            listed = listed_values(form)
            if listed is None:
                if form_kinds(form) == frozenset({"null"}):
                    continue
                return ()
            values += [value for value in listed if value is not None and value not in values]
        return tuple(values)


def constrains_only_types(schema: Any) -> bool:
    """Whether a schema constrains nothing but the type; `format` is not asserted."""
    if not is_object(schema) or not _ANNOTATIONS.issuperset(schema.keys() - {"type"}):
        return False
    declared = schema.get("type")
    names = declared if is_array(declared) else [declared]
    return bool(names) and all(name in KINDS for name in names)


def form_kinds(form: Schema) -> frozenset[str] | None:
    """The JSON types that one form accepts; None if it accepts all."""
    values = listed_values(form)
    if values is not None:
        return frozenset(json_type(value) for value in values)
    declared = form.get("type")
    names = declared if is_array(declared) else [declared]
    kinds = frozenset(name for name in names if isinstance(name, str) and name in KINDS)
    if kinds:
        return kinds
    # Many servers omit an obvious type.
    if properties(form):
        return frozenset({"object"})
    return frozenset({"array"}) if "items" in form else None


def listed_values(form: Schema) -> list[Any] | None:
    """The values of `enum` or `const`; None if the form has neither."""
    if "const" in form:
        return [form["const"]]
    return list_at(form, "enum") or None


def properties(form: Schema) -> Schema:
    """The declared members by their exact names."""
    members = form.get("properties")
    return members if is_object(members) else {}


def required_names(form: Schema) -> list[str]:
    """The required members without duplicates, in the schema's order."""
    return list(dict.fromkeys(name for name in list_at(form, "required") if isinstance(name, str)))


def item_schemas(form: Schema) -> Callable[[int], Any]:
    """A function from an index to the schema of that item (`prefixItems`, `items`; draft-07's list of `items`)."""
    items = form.get("items", ANYTHING)
    first = list_at(form, "prefixItems")
    rest = items
    if is_array(items):
        first, rest = items, form.get("additionalItems", ANYTHING)
    return lambda index: first[index] if index < len(first) else rest


def list_at(schema: Schema, keyword: str) -> list[Any]:
    """The value of a keyword; empty if it is not a list."""
    value = schema.get(keyword)
    return value if is_array(value) else []


def _combine(forms: list[Schema], others: list[Schema]) -> list[Schema]:
    """Merge every form of one schema with every form of another, as `allOf` requires."""
    if len(forms) * len(others) > _MAX_ALTERNATIVES:
        raise RecursionError
    return [merge(one, other) for one in forms for other in others]


def merge(one: Schema, other: Schema, lost: list[str] | None = None) -> Schema:
    """Merge two schemas: the tighter of two limits, and the first schema's annotations.

    Args:
        one: A schema; its references and alternatives are ignored.
        other: The other schema.
        lost: Collects the keywords of `other` that cannot be expressed together with those of `one`.
    """
    result = {key: value for key, value in {**other, **one}.items() if key not in _EXPANDED}
    differing = [word for word in one if word in other and word in result and not json_equal(one[word], other[word])]
    for word in differing:
        both = _tighter(word, one[word], other[word])
        if both is not None:
            result[word] = both
        elif word not in _ANNOTATIONS - {"format"} and word not in ("enum", "const") and lost is not None:
            lost.append(word)
    values, others = listed_values(one), listed_values(other)
    if values is not None and others is not None:
        common = [value for value in values if any(json_equal(value, each) for each in others)]
        if common:
            result.pop("const", None)
            result["enum"] = common
        elif lost is not None:
            lost.append("enum")
    return result


def _tighter(word: str, one: Any, other: Any) -> Any:
    """The conjunction of two values of one keyword; None if it cannot be expressed."""
    if word in _UPPER or word in _LOWER:
        limits = [each for each in (one, other) if isinstance(each, int | float) and not isinstance(each, bool)]
        return (min if word in _UPPER else max)(limits) if limits else None
    if word == "required":
        return required_names({"required": [*list_at({word: one}, word), *list_at({word: other}, word)]})
    if word == "type":
        kinds, more = form_kinds({"type": one}), form_kinds({"type": other})
        if not kinds or not more:
            return None
        common = {kind for kind in kinds | more if _includes(kinds, kind) and _includes(more, kind)}
        names = sorted(common - {"integer"} if "number" in common else common)
        return names[0] if len(names) == 1 else names or None
    if word == "properties" and is_object(one) and is_object(other):
        return {**one, **other, **{name: _all_of(one[name], other[name]) for name in one if name in other}}
    if word in ("items", "additionalProperties"):
        return _all_of(one, other) if not isinstance(one, list) and not isinstance(other, list) else None
    if word in ("uniqueItems", "nullable") and isinstance(one, bool) and isinstance(other, bool):
        return (one or other) if word == "uniqueItems" else (one and other)
    return None


def _includes(kinds: frozenset[str], kind: str) -> bool:
    return kind in kinds or (kind == "integer" and "number" in kinds)


def _all_of(one: Any, other: Any) -> Any:
    """The conjunction of two schemas."""
    if one is False or other is False:
        return False
    if one is True or one == {} or json_equal(one, other):
        return other
    return one if other is True or other == {} else {"allOf": [one, other]}


def _both(one: Record, other: Record) -> Record:
    """The record of an object that matches both."""
    members = _tighter("properties", one.members, other.members)
    required = list(dict.fromkeys([*one.required, *other.required]))
    is_closed = one.is_closed or other.is_closed
    return Record(members, required, is_closed, one.unions + other.unions, one.about or other.about)


def _any_of(variants: list[Record]) -> Record:
    """The record of an object that matches any of these."""
    if len(variants) == 1:
        return variants[0]
    declared: dict[str, list[Any]] = {}
    for variant in variants:
        for name, member in variant.members.items():
            declared.setdefault(name, []).append(member)
    first, *others = variants
    required = [name for name in first.required if all(name in each.required for each in others)]
    members = {name: union(schemas) for name, schemas in declared.items()}
    return Record(members, required, all(each.is_closed for each in variants), (tuple(variants),))


def union(schemas: list[Any]) -> Any:
    """The union of schemas; a single `enum` if all of them list values."""
    distinct = _distinct([schema for schema in schemas if schema is not False])
    if len(distinct) <= 1:
        return distinct[0] if distinct else False
    alike: dict[str, list[Any]] = {}  # equal except for annotations
    for schema in distinct:
        alike.setdefault(repr(_without_annotations(schema)), []).append(schema)
    alternatives: list[Any] = []
    choices: list[Schema] = []
    for group in alike.values():
        bare = _without_annotations(group[0])
        if _is_choice(_as_schema(bare)):
            choices.append(_as_schema(bare))
        alternatives.append(group[0] if len(group) == 1 else bare)
    if len(choices) > 1:
        values = _distinct([value for choice in choices for value in listed_values(choice) or ()])
        kinds = {str(choice.get("type")) for choice in choices}
        kind = {"type": choices[0]["type"]} if len(kinds) == 1 and "type" in choices[0] else {}
        others = [each for each in alternatives if not _is_choice(_as_schema(_without_annotations(each)))]
        alternatives = [{**kind, "enum": values}, *others]
    if len(alternatives) > 1:
        return {"anyOf": alternatives}
    texts = [text for each in distinct if isinstance(text := _as_schema(each).get("description"), str)]
    text = " / ".join(dict.fromkeys(texts))
    about = {"description": text if len(text) <= _MAX_DESCRIPTION else texts[0]} if texts else {}
    return {**alternatives[0], **about} if is_object(alternatives[0]) else alternatives[0]


def _distinct(values: list[Any]) -> list[Any]:
    """JSON values without duplicates, in linear time."""
    return list({repr(value): value for value in reversed(values)}.values())[::-1]


def _as_schema(schema: Any) -> Schema:
    return schema if is_object(schema) else ANYTHING


def _is_choice(schema: Schema) -> bool:
    return _CHOICE_KEYWORDS.issuperset(schema) and listed_values(schema) is not None


def _without_annotations(schema: Any) -> Any:
    if not is_object(schema):
        return schema
    return {word: value for word, value in schema.items() if word == "format" or word not in _ANNOTATIONS}


def subschemas(schema: Schema, *, definitions: bool = True) -> Iterator[Schema]:
    """The schemas directly within a schema.

    A property may have the name of a keyword, so the members of the keywords in `MAPS` are always included.

    Args:
        schema: Any schema.
        definitions: Whether to include the schemas of `$defs` and `definitions`.
    """
    for word, value in schema.items():
        if word in DATA or (word in _DEFINITIONS and not definitions):
            continue
        parts = value.values() if word in MAPS and is_object(value) else value if is_array(value) else (value,)
        yield from filter(is_object, parts)


def allow_null(schema: Schema) -> None:
    """Write `nullable: true` of OpenAPI 3.0 as a type of JSON Schema, everywhere within a schema, in place."""
    with suppress(RecursionError):
        for part in walk(schema, Budget(_MAX_NULLABLE)):
            kinds = part.get("type")
            if part.get("nullable") is True and kinds is not None:
                part["type"] = [*(kinds if is_array(kinds) else [kinds]), "null"]
                if is_array(part.get("enum")) and None not in part["enum"]:
                    part["enum"] = [*part["enum"], None]


def walk(schema: Schema, budget: Budget, *, definitions: bool = True) -> Iterator[Schema]:
    """The schema and all schemas within, outer ones first, without following references.

    Args:
        schema: Any schema.
        budget: Reduced by one for each schema.
        definitions: Whether to include the schemas of `$defs` and `definitions`.
    """
    ahead = [schema]
    while ahead:
        budget.spend()
        each = ahead.pop()
        yield each
        ahead += reversed([*subschemas(each, definitions=definitions)])


def reference_of(schema: Schema) -> str | None:
    """The target of a schema's `$ref`, `$dynamicRef` or `$recursiveRef`; None if it has none of these."""
    for word in _REFERENCES:
        target = schema.get(word)
        if isinstance(target, str):
            return target
    return None


def _part(schema: Any, path: str) -> Any:
    """The subschema at a JSON pointer."""
    for part in path[1:].split("/") if path else ():
        key = unquote(part).replace("~1", "/").replace("~0", "~")
        if is_array(schema) and re.fullmatch("[0-9]{1,6}", key):
            schema = schema[int(key)]
        elif is_object(schema):
            schema = schema[key]
        else:
            raise LookupError(path)
    return schema


_DEFINITIONS: Final = frozenset(("$defs", "definitions"))
MAPS: Final = _DEFINITIONS | {"properties", "patternProperties", "dependentSchemas", "dependencies"}
"""Keywords whose values are schemas by name."""
_EXPANDED: Final = COMPOSING | _DEFINITIONS
_UPPER: Final = frozenset(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties", "maxContains"))
_LOWER: Final = frozenset(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties", "minContains"))
_CHOICE_KEYWORDS: Final = frozenset(("type", "enum", "const"))
