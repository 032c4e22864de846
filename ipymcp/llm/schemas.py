"""Input schemas compiled for a provider, with a report of what was lost.

A provider refuses the whole request because of one unsupported keyword. References are inlined, or kept if the
provider accepts them and the result is shorter; `allOf` is merged. Constraints without a keyword move to the
description if they are short.

Source: JSON Schema 2020-12, validation sections 6 and 9.
"""

from __future__ import annotations

import bisect
import hashlib
import json
import math
import re
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from ipymcp.masking import mask, masks
from ipymcp.names import UniqueNames
from ipymcp.protocol import types
from ipymcp.protocol.types import is_array, is_object
from ipymcp.schema.tree import (
    COMPOSING,
    KINDS,
    Budget,
    SchemaTree,
    form_kinds,
    has_json_type,
    json_equal,
    json_type,
    list_at,
    listed_values,
    merge,
    properties,
    reference_of,
    required_names,
    union,
    walk,
)
from ipymcp.text import shortened, stripped

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ipymcp.llm.providers import Profile
    from ipymcp.schema.tree import Record, Schema


_NUMBERS: Final = ("integer", "number")
TEXT_OR_NUMBER: Final = ("string", *_NUMBERS)
_OWNERS: Final = {
    **dict.fromkeys(("properties", "required", "additionalProperties"), ("object",)),
    **dict.fromkeys(("items", "minItems", "maxItems", "uniqueItems"), ("array",)),
    **dict.fromkeys(("minLength", "maxLength", "pattern", "format"), ("string",)),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), _NUMBERS),
}
"""The types that each keyword applies to."""


def is_valid_keyword(word: str, value: object) -> bool:
    """Whether a keyword has a valid value; unknown keywords may have any value that JSON can represent."""
    check = _CHECKS.get(word)
    return not _is_infinite(value) and (check is None or check(value))


def _is_infinite(value: object) -> bool:
    """Whether a value is, or a list of values has, an infinity: a number that was too long, which JSON lacks."""
    values = value if is_array(value) else (value,)
    return any(isinstance(one, float) and not math.isfinite(one) for one in values)


def split_types(result: Schema, names: list[str]) -> list[Schema]:
    """Split a schema of several types: move the keywords of each type to a schema of its own."""
    own = {word: result.pop(word) for word in _OWNERS if word in result}
    values = result.pop("enum", None)
    forms: list[Schema] = []
    for name in names:
        form = {"type": name, **{word: value for word, value in own.items() if name in _OWNERS[word]}}
        if values is not None and name != "null":
            form["enum"] = [value for value in values if has_json_type(value, frozenset({name}))]
        if form.get("enum") != []:
            forms.append(form)
    return forms


def _is_string(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_pattern(value: Any) -> bool:
    try:
        return isinstance(value, str) and len(value) <= _MAX_PATTERN and bool(re.compile(value))
    except (re.error, RecursionError, OverflowError):
        return False


_MAX_PATTERN: Final = 4_000
"""Maximum length of a pattern: compiling alternatives with a long common beginning takes quadratic time."""
_JAVASCRIPT_ONLY: Final = re.compile(r"\\[pP]\{[^{}]*\}|\\u\{[0-9A-Fa-f]+\}|\\k<\w+>|(?<=\()\?<(?=\w)\w+>|\\c[A-Za-z]")


def _is_javascript_pattern(value: Any) -> bool:
    """Whether a string is a pattern apart from what JavaScript has and Python lacks."""
    return isinstance(value, str) and _is_pattern(_JAVASCRIPT_ONLY.sub("x", value.replace("[^]", ".")))


_CHECKS: Final[dict[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(("title", "description", "format"), _is_string),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _is_number),
    **dict.fromkeys(
        ("minLength", "maxLength", "minItems", "maxItems"),
        lambda value: _is_number(value) and isinstance(value, int) and value >= 0,
    ),
    "multipleOf": lambda value: _is_number(value) and value > 0,
    "uniqueItems": lambda value: isinstance(value, bool),
    "enum": lambda value: is_array(value) and bool(value),
    "pattern": _is_pattern,
}


_MIN_SHARED_BYTES: Final = 100
"""Minimum size of a repeated part that becomes a definition."""
_MAX_CHAINED: Final = 16
_MAX_PARTS: Final = 500
"""Maximum parts in the search for cycles; if there are more, all are treated as cyclic."""
_MAX_WALKED: Final = 100_000
"""Maximum schemas in the search for references."""
_INVALID_CHARACTER: Final = re.compile(r"[^A-Za-z0-9_.-]")


class SharedParts:
    """The parts of a schema to keep as definitions: those that it uses repeatedly or recursively.

    Args:
        tree: The schema.
        profile: The provider, which may not accept recursion.
    """

    def __init__(self, tree: SchemaTree, profile: Profile) -> None:
        self._tree = tree
        self._parts: dict[int, tuple[str, Schema]] = {}
        """Referenced parts by identity, with the first reference to each."""
        self._targets: dict[int, set[int]] = {}
        """The parts that each part refers to."""
        self._names: dict[int, str] = {}
        self.has_references = tree.has_references
        """Whether the schema may contain references."""
        if not self.has_references or not profile.references:
            return
        try:
            uses = self._count_uses()
        except RecursionError:
            return
        unique = UniqueNames()
        circular = {part for part in self._parts if self._is_circular(part)}
        for part, (reference, schema) in self._parts.items():
            is_worth_it = uses[part] > 1 and len(types.encode(schema)) > _MIN_SHARED_BYTES
            if is_worth_it or (part in circular and profile.recursion):
                name = _INVALID_CHARACTER.sub("_", reference.rpartition("/")[2].lstrip("#")).strip("_") or "root"
                self._names[part] = unique.add(name)

    def target(self, reference: str) -> Schema | None:
        """The final target of a chain of references; None if there is none."""
        for _ in range(_MAX_CHAINED):
            try:
                found = self._tree.pointer(reference)
            except LookupError:
                return None
            if not is_object(found):
                return {} if found is True else None
            further = reference_of(found)
            if further is None or len(found) > 1:
                return found
            reference = further
        return None

    def name(self, schema: Schema) -> str | None:
        """The name of a part's definition; None if the part is inlined."""
        return self._names.get(id(schema))

    def _count_uses(self) -> dict[int, int]:
        """Count the uses of each part: references to it, and its own place if it is not a mere definition."""
        uses: dict[int, int] = {}
        budget = Budget(_MAX_WALKED)
        ahead = [self._tree.root]
        for part in ahead:  # the loop appends the targets
            targets = self._targets.setdefault(id(part), set())
            for node in walk(part, budget, definitions=False):
                reference = reference_of(node)
                found = self.target(reference) if reference is not None else None
                if reference is None or found is None:
                    continue
                targets.add(id(found))
                uses[id(found)] = uses.get(id(found), 0) + 1
                if id(found) not in self._parts:
                    self._parts[id(found)] = (reference, found)
                    ahead.append(found)
        for node in walk(self._tree.root, budget, definitions=False):
            if id(node) in uses:
                uses[id(node)] += 1
        return uses

    def _is_circular(self, part: int) -> bool:
        if len(self._parts) > _MAX_PARTS:
            return True
        seen: set[int] = set()
        ahead = [*self._targets[part]]
        while ahead:
            each = ahead.pop()
            if each == part:
                return True
            if each not in seen:
                seen.add(each)
                ahead += self._targets[each]
        return False


_MAX_NODES: Final = 3_000
_LEVELS: Final = (64, 32, 20, 14, 10, 8, 6, 5, 4, 3, 2, 1, 0)
"""Nesting limits, of which the highest is used with which the schema is small enough."""
_MAX_GROWTH: Final = 1.2
"""Maximum size of a schema with inlined references, relative to the original."""
_MIN_LIMITED_BYTES: Final = 2_000
"""Minimum size of a schema whose growth is limited."""
_MAX_COMBINED: Final = 16
_MAX_COMPARED: Final = 100
_MAX_VARIANTS: Final = 1_500
"""Maximum characters of the description of alternatives at the top level."""
_MAX_NOTE: Final = 120
_SHORT: Final = 40
_UNIONS: Final = ("anyOf", "oneOf")
_SCALARS: Final = ("string", "integer", "number", "boolean")
_BESIDE_TYPE: Final = frozenset({*_UNIONS, "nullable"})
"""Keywords that may change the compiled `type`."""
_REFERENCES: Final = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
_COMPILED_KEYWORDS: Final = frozenset(
    {"type", "properties", "required", "items", "prefixItems", "additionalProperties", "nullable", "additionalItems"}
    | {*_REFERENCES, "$defs", "definitions", "allOf", *_UNIONS}
)
"""Keywords that the compiler handles itself."""
_SUBSCHEMA_KEYWORDS: Final = _COMPILED_KEYWORDS - {"type", "required", "nullable"}
"""Keywords with subschemas."""
_NOT_AT_TOP_LEVEL: Final = frozenset({"nullable", "enum", "const", "not", "default", *_UNIONS})
"""Keywords that do not apply at the top level, which is always an object, or become text there."""
_DROPPED_KEYWORDS: Final = frozenset(
    {"$schema", "$id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$comment"}
    | {"examples", "deprecated", "readOnly", "writeOnly"}
)
"""Keywords without information for a model, dropped without a report."""
_NOT_COPIED: Final = _COMPILED_KEYWORDS | _DROPPED_KEYWORDS
_BESIDE_REFERENCE: Final = frozenset({"title", "description", "default"}) | _DROPPED_KEYWORDS
"""Keywords next to which a reference may be kept."""
_ANY: Final = "any JSON"
_to_json: Final = json.JSONEncoder(ensure_ascii=False).encode


class Loss(Struct, frozen=True):
    """A fact that the compiled schema lacks."""

    path: str
    """The path in the schema, such as `a.b[].c`; empty for the whole schema."""
    what: str


class Compiled(Struct, frozen=True):
    """A schema that a provider accepts.

    Attributes:
        parameters: The compiled schema, which is that of an object.
        lost: The facts that the compiled schema lacks.
        renamed: Renamed properties: `{new name: original name}`.
    """

    parameters: Schema
    lost: tuple[Loss, ...] = ()
    renamed: Mapping[str, str] = {}


def compile_schema(schema: object, profile: Profile) -> Compiled:
    """Compile a tool's decoded input schema. If it is too large, its deepest parts are dropped first."""
    tree = SchemaTree(schema if is_object(schema) else {})
    parts = SharedParts(tree, profile)
    max_bytes = None
    if parts.has_references:  # what is inlined may be repeated many times
        max_bytes = max(_MIN_LIMITED_BYTES, _MAX_GROWTH * len(types.encode(tree.root)))
    fitting: list[tuple[_Compiler, Schema]] = []

    def fits(levels: int) -> bool:
        compiler = _Compiler(tree, profile, parts, levels)
        try:
            parameters = compiler.root()
        except RecursionError:
            return False
        if max_bytes is not None and len(types.encode(parameters)) > max_bytes:
            return False
        fitting.append((compiler, parameters))
        return True

    if not fits(_LEVELS[0]):
        bisect.bisect_left(_LEVELS, True, lo=1, key=fits)
    if not fitting:
        return Compiled({"type": "object", "properties": {}}, (Loss("", "too large: any arguments"),))
    compiler, parameters = fitting[-1]
    shown = masks.json(parameters)
    if shown != parameters:
        compiler.lose("", "secrets in the schema: masked")
    return Compiled(shown, tuple(dict.fromkeys(compiler.lost)), compiler.renamed)


def restore_names(arguments: Any, renamed: Mapping[str, str]) -> Any:
    """Give renamed properties in arguments their original names."""
    if not renamed:
        return arguments
    if is_object(arguments):
        return {renamed.get(key, key): restore_names(value, renamed) for key, value in arguments.items()}
    return [restore_names(each, renamed) for each in arguments] if is_array(arguments) else arguments


class _Compiler:
    def __init__(self, tree: SchemaTree, profile: Profile, parts: SharedParts, levels: int) -> None:
        self.lost: list[Loss] = []
        self.renamed: dict[str, str] = {}
        self._tree = tree
        self._profile = profile
        self._parts = parts
        self._levels = levels
        self._level = 0
        self._budget = Budget(_MAX_NODES)
        self._definitions: dict[str, Any] = {}
        self._unfinished: set[str] = set()
        """The definitions being compiled."""
        self._following: list[int] = []
        """The targets of references that are being inlined, by identity."""

    def root(self) -> Schema:
        """Compile the whole schema to an object without alternatives at the top level, which no provider accepts."""
        record = self._tree.record
        root = self._tree.root
        whole = root if COMPOSING.isdisjoint(root) else self._intersect({}, root, "")
        own: Schema = {}
        for word, value in whole.items():
            if word not in _NOT_AT_TOP_LEVEL:
                own[word] = value
            elif word in ("not", "enum", "const"):
                self.lose("", f"{word}: {_shown(value)}")
        if record.members or "properties" in own:
            own["properties"] = record.members
        if record.is_closed:
            own["additionalProperties"] = False
        result = self._compile_keywords({**own, "required": record.required, "type": "object"}, "", 0)
        members: Schema = {}
        result = {"type": "object", "properties": members, **result}
        if record.unions:
            self.lose("", "alternatives at the top: the arguments of all of them")
            texts: list[Any] = [result.get("description"), *map(self._describe_variants, record.unions)]
            if description := " ".join(filter(None, texts)):
                result["description"] = description
        return {**result, "$defs": self._definitions} if self._definitions else result

    def _describe_variants(self, variants: tuple[Record, ...]) -> str:
        """Describe the alternatives at the top: `One of: {action: "create", name, size?} | {action: "drop", id}`."""
        names = {own: new for new, own in self.renamed.items()}
        forms: list[str] = []
        for variant in variants:
            order = [*variant.required, *(name for name in variant.members if name not in variant.required)]
            parts: list[str] = []
            for name in order:
                member = variant.members.get(name)
                values = listed_values(member) if is_object(member) else None
                value = f": {_shown(values[0])}" if values is not None and len(values) == 1 else ""
                parts.append(f"{names.get(name, name)}{value}{'' if name in variant.required else '?'}")
            about = f" ({shortened(' '.join(variant.about.split()), 80)})" if variant.about else ""
            forms.append(f"{{{', '.join(parts)}}}{about}")
        forms = list(dict.fromkeys(forms))
        return stripped(shortened(f"One of: {' | '.join(forms)}", _MAX_VARIANTS)) if len(forms) > 1 else ""

    # -- one subschema ------------------------------------------------------------------------------------------------

    def _compile(self, schema: object, path: str, depth: int) -> Schema:
        if not is_object(schema):
            if schema is False:
                self.lose(path, "the property is forbidden")
            return {}
        if depth > self._profile.depth or self._level >= self._levels:
            if _SUBSCHEMA_KEYWORDS.isdisjoint(schema):
                return self._compile_keywords(schema, path, depth)
            cause = "nested too deeply" if depth > self._profile.depth else "too large"
            return self._reduce(schema, path, f"{cause}: any JSON")
        if not self._parts.has_references:
            return self._compile_body(schema, path, depth)
        name = self._parts.name(schema)
        if name is not None:
            return self._reference(name, schema, {}, path, depth)
        reference = reference_of(schema)
        if reference is None:
            return self._compile_body(schema, path, depth)
        target = self._parts.target(reference)
        if target is None:
            self.lose(path, f"unresolved reference: {reference[:60]}")
            target = {}
        beside = {word: value for word, value in schema.items() if word not in _REFERENCES}
        name = self._parts.name(target)
        if name is not None and _BESIDE_REFERENCE.issuperset(beside):
            return self._reference(name, target, beside, path, depth)
        if id(target) in self._following:
            return self._recursive(path)
        self._following.append(id(target))
        try:
            return self._compile_body(self._intersect(beside, target, path) if beside else target, path, depth)
        finally:
            self._following.pop()

    def _recursive(self, path: str) -> Schema:
        self.lose(path, "recursive: any JSON from there on")
        return {"description": f"as above, or {_ANY}"}

    def _reference(self, name: str, target: Schema, beside: Schema, path: str, depth: int) -> Schema:
        """Compile a reference that is kept, and its definition."""
        if name not in self._definitions:
            self._definitions[name] = {}  # before the body is compiled, which may refer to it
            following, self._following = self._following, []
            self._unfinished.add(name)
            try:
                self._definitions[name] = self._compile_body(target, path, 1)
            finally:
                self._following = following
                self._unfinished.remove(name)
        elif name in self._unfinished and not self._profile.recursion:
            return self._recursive(path)
        about = self._compile_keywords(beside, path, depth) if beside else {}
        return {"$ref": f"#/$defs/{name}", **{word: about[word] for word in self._profile.beside if word in about}}

    def _compile_body(self, schema: Schema, path: str, depth: int) -> Schema:
        self._budget.spend()
        self._level += 1
        try:
            return self._compile_keywords(self._merge_all_of(schema, path), path, depth)
        finally:
            self._level -= 1

    def _reduce(self, schema: Schema, path: str, reason: str) -> Schema:
        """Reduce a schema to its type and description."""
        self.lose(path, reason)
        kinds = self._tree.kinds(schema) or frozenset[str]()
        names = sorted(kinds - {"integer"} if "number" in kinds else kinds)
        text = schema.get("description")
        result: Schema = {"description": stripped(text) if isinstance(text, str) else _ANY}
        if len(names) == 1 or (names and self._profile.type_lists):
            result["type"] = names[0] if len(names) == 1 else names
            if "array" in names:
                result["items"] = {}
        return result

    def _merge_all_of(self, schema: Schema, path: str) -> Schema:
        """Merge `allOf`, and combine `anyOf` and `oneOf` into one."""
        if "allOf" not in schema and not ("anyOf" in schema and "oneOf" in schema):
            return schema
        parts = [*list_at(schema, "allOf")]
        whole = {word: value for word, value in schema.items() if word != "allOf"}
        if all(list_at(whole, union) for union in _UNIONS):
            parts.append({"oneOf": whole.pop("oneOf")})
        for part in parts:
            whole = self._intersect(whole, part, path)
        return whole

    def _intersect(self, whole: Schema, part: object, path: str) -> Schema:
        """Intersect two schemas; the result has neither references nor `allOf`."""
        if not is_object(part):
            if part is False:
                self.lose(path, "no value is valid")
            return whole
        reference = reference_of(part)
        if reference is None:
            return self._merge(whole, self._merge_all_of(part, path), path)
        target = self._parts.target(reference)
        if target is None or id(target) in self._following:
            self.lose(path, f"{'unresolved' if target is None else 'recursive'} reference: {reference[:60]}")
            target = {}
        self._following.append(id(target))
        try:
            beside = {word: value for word, value in part.items() if word not in _REFERENCES}
            return self._intersect(self._merge(whole, self._merge_all_of(beside, path), path), target, path)
        finally:
            self._following.pop()

    def _merge(self, whole: Schema, part: Schema, path: str) -> Schema:
        self._budget.spend(1 + len(properties(part)) // 8)
        lost: list[str] = []
        result = merge(whole, part, lost)
        for word in lost:
            self.lose(path, f"{word}: {_shown(part.get(word))}, which conflicts with another value")
        for one, other in ((whole, part), (part, whole)):
            if one.get("additionalProperties") is False and not one.get("patternProperties"):
                for name in properties(other).keys() - properties(one).keys():
                    self.lose(f"{path}.{name}" if path else name, "another part of the schema forbids it")
        mine, its = (
            [(union, branches) for union in _UNIONS if (branches := list_at(each, union))] for each in (whole, part)
        )
        if not mine or not its:
            return {**result, **dict(mine or its)}
        (union, ours), (other, theirs) = mine[0], its[0]
        if len(ours) * len(theirs) > _MAX_COMBINED:
            self.lose(path, f"{other}: alternatives combined with others")
            return {**result, union: ours}
        is_one = "oneOf" if "oneOf" in (union, other) else "anyOf"
        return {**result, is_one: [{"allOf": [one, another]} for one in ours for another in theirs]}

    def _compile_keywords(self, schema: Schema, path: str, depth: int) -> Schema:
        result: Schema = {}
        notes: list[str] = []
        if "const" in schema and ("const" not in self._profile.words or schema.get("nullable") is True):
            schema = {**{word: value for word, value in schema.items() if word != "const"}, "enum": [schema["const"]]}
        for word, value in schema.items():
            if word in _NOT_COPIED or word.startswith("x-"):
                continue
            if word == "pattern" and not _is_pattern(value) and _is_javascript_pattern(value):
                self._describe_keyword(word, value, path, notes)
            elif not is_valid_keyword(word, value):
                self.lose(path, f"{word}: {_shown(value)} is invalid")
            elif word == "description":
                result[word] = stripped(value)
            elif word == "enum":
                self._put_choice(value, path, result, notes)
            elif not self._keeps(word, value):
                self._describe_keyword(word, value, path, notes)
            else:
                result[word] = stripped(value) if isinstance(value, str) else value
        self._put_type(schema, path, depth, result, notes)
        if notes:
            result["description"] = " ".join(filter(None, (result.get("description"), f"({'; '.join(notes)})")))
        return result

    def _keeps(self, word: str, value: object) -> bool:
        profile = self._profile
        if word == "format":
            return word in profile.words and value in (profile.formats or (value,))
        return word in profile.words

    def _describe_keyword(self, word: str, value: object, path: str, notes: list[str]) -> None:
        if word == "title":
            return
        note = f"{word}: {_to_json(value)}"
        if len(note) <= _MAX_NOTE:
            notes.append(stripped(note))
            if word != "default":
                self.lose(path, f"{word}: described in words")
        else:
            self.lose(path, word)

    def _put_choice(self, values: list[Any], path: str, result: Schema, notes: list[str]) -> None:
        """Add `enum`. If the provider accepts only strings and numbers in it, null is expressed by the type."""
        if self._profile.any_choices:
            result["enum"] = values
        elif all(json_type(value) in TEXT_OR_NUMBER for value in values if value is not None):
            if found := [value for value in values if value is not None]:
                result["enum"] = found
        else:
            self._describe_keyword("enum", values, path, notes)

    def _put_type(self, schema: Schema, path: str, depth: int, result: Schema, notes: list[str]) -> None:
        declared = schema.get("type")
        if declared in _SCALARS and _BESIDE_TYPE.isdisjoint(schema):  # most parameters
            result["type"] = declared
            return
        branches = [*list_at(schema, "anyOf"), *list_at(schema, "oneOf")]
        names = self._declared_types(schema, path, notes)
        if not names:
            names = self._implied_types(schema, branches)
        is_nullable = schema.get("nullable") is True and "null" not in names
        if is_nullable and names:
            names.append("null")
        if "object" in names:
            self._put_members(schema, path, depth, result)
        if "array" in names:
            self._put_items(schema, path, depth, result)
        if len(names) == 1:
            result["type"] = names[0]
        elif names and self._profile.type_lists:
            result["type"] = names
        elif names:
            result["anyOf"] = split_types(result, names)
        if branches and "anyOf" in result:
            self.lose(path, "alternatives beside a list of types")
        elif branches:
            if "oneOf" in schema and not self._are_disjoint(branches):
                self.lose(path, "exactly one alternative must match")
            variants = [self._compile(each, path, depth) for each in branches if each is not False]
            result["anyOf"] = [*variants, {"type": "null"}] if is_nullable else variants or [{}]
        if (
            "null" in names
            and is_array(result.get("enum"))
            and None not in result["enum"]
            and self._profile.any_choices
        ):
            result["enum"] = [*result["enum"], None]

    def _implied_types(self, schema: Schema, branches: list[Any]) -> list[str]:
        """Infer the types from the other keywords; none if an alternative has other types."""
        own = {word: value for word, value in schema.items() if word not in _UNIONS}
        kinds = form_kinds(own) or (frozenset({"object"}) if required_names(own) else frozenset[str]())
        for branch in branches:
            of_branch = self._tree.kinds(branch)
            if of_branch is not None and not of_branch <= kinds:
                return []
        return sorted(kinds)

    def _are_disjoint(self, branches: list[Any]) -> bool:
        """Whether alternatives are disjoint, judged by their types and their listed values."""
        if len(branches) > _MAX_COMPARED:
            return False
        found: list[tuple[frozenset[str], Schema]] = []
        for branch in branches:
            kinds: frozenset[str] | None
            kinds, forms = self._tree.kinds(branch), self._tree.alternatives(branch)
            if kinds is None or len(forms) != 1:
                return False
            numbers: frozenset[str] = kinds | {"integer"} if "number" in kinds else kinds
            found.append((numbers, next(iter(forms))))
        return all(
            not one[0] & other[0] or _differ(one[1], other[1])
            for at, one in enumerate(found)
            for other in found[at + 1 :]
        )

    def _declared_types(self, schema: Schema, path: str, notes: list[str]) -> list[str]:
        """The valid types in `type`."""
        declared = schema.get("type")
        if declared is None:
            return []
        names = declared if is_array(declared) else [declared]
        if any(name not in KINDS for name in names):
            self._describe_keyword("type", declared, path, notes)
        return [name for name in dict.fromkeys(filter(_is_string, names)) if name in KINDS]

    def _put_members(self, schema: Schema, path: str, depth: int, result: Schema) -> None:
        members: Schema = {}
        names: dict[str, str] = {}
        declared, needed = properties(schema), required_names(schema)
        others = schema.get("additionalProperties")
        patterns = schema.get("patternProperties")
        if is_object(patterns) and patterns and (others is False or is_object(others)):
            others = union([each for each in (others, *patterns.values()) if each is not False])
            others = None if others in (True, False) else others
        undeclared = [name for name in needed if name not in declared]
        for name, member in {**declared, **dict.fromkeys(undeclared, others if is_object(others) else {})}.items():
            if member is False:
                if others is not False:
                    self.lose(f"{path}.{name}" if path else name, "the property is forbidden")
            else:
                names[name] = self._key(name, path)
                members[names[name]] = self._compile(member, f"{path}.{name}" if path else name, depth + 1)
        if members or "properties" in schema:
            result["properties"] = members
        required = [names[name] for name in needed if name in names]
        if required:
            result["required"] = required
        if is_object(others) and others:
            result["additionalProperties"] = self._compile(others, f"{path}.*", depth + 1)
        elif others is False:
            result["additionalProperties"] = False

    def _put_items(self, schema: Schema, path: str, depth: int, result: Schema) -> None:
        items = schema.get("items")
        first = list_at(schema, "prefixItems")
        rest = items
        if not first and is_array(items):
            first, rest = items, schema.get("additionalItems")
        if first:
            self.lose(path, "the positions of its items: any item anywhere")
            kinds = union([*first, *([rest] if is_object(rest) or rest is True else [])])
            result["items"] = self._compile(kinds, f"{path}[]", depth + 1)
            if rest is False and "maxItems" not in schema and "maxItems" in self._profile.words:
                result["maxItems"] = len(first)
        elif items is False:
            self.lose(path, "no items are allowed")
            result["items"] = {}
        else:
            result["items"] = self._compile(items, f"{path}[]", depth + 1)

    def _key(self, name: str, path: str) -> str:
        pattern, shown = self._profile.key, mask(name)
        if shown == name and (pattern is None or pattern.fullmatch(name)):
            return name
        digest = hashlib.sha256(name.encode()).hexdigest()[:8]
        clean = "".join(each if each.isascii() and each.isalnum() else "_" for each in shown)[:50]
        new = f"{'_' if clean[:1].isdigit() else ''}{clean}_{digest}"
        self.renamed[new] = name
        self.lose(f"{path}.{name}" if path else name, f"its name: {new}")
        return new

    def lose(self, path: str, what: str) -> None:
        self.lost.append(Loss(path, what))


def _differ(one: Schema, other: Schema) -> bool:
    """Whether the listed values of two schemas, or of a property that both require, are disjoint."""
    values, others = listed_values(one), listed_values(other)
    if values is not None and others is not None:
        return not any(json_equal(value, each) for value in values for each in others)
    required = set(required_names(one)) & set(required_names(other))
    return any(
        is_object(mine) and is_object(its) and _differ(mine, its)
        for name in required
        for mine, its in ((properties(one).get(name), properties(other).get(name)),)
        if is_object(mine) and is_object(its) and {"enum", "const"} & mine.keys() and {"enum", "const"} & its.keys()
    )


def _shown(value: object) -> str:
    return shortened(stripped(_to_json(value)), _SHORT)
