"""Validation of arguments against an untrusted schema, with a one-line error that names the argument.

`jsonschema_rs` validates. It would fetch the target of an external `$ref` over the network or from a file, so such
references are removed first, and its retriever refuses every URI. A schema that is broken in one argument still
validates the others. With a schema that cannot be used at all, every value is accepted and the server validates it.

A schema of a few lines can require millions of checks of one value, for example forty definitions, each an `anyOf` of
twice the next one; or thirty alternatives that each contain themselves, for a value twenty levels deep. `SchemaCost`
estimates that.

Source: JSON Schema 2020-12 (the dialect of MCP 2025-11-25 and later where `$schema` names none); `format` is not
asserted, as in 2020-12.
"""

from __future__ import annotations

import reprlib
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

import msgspec

from ipymcp.names import nearest
from ipymcp.protocol.types import is_array, is_object
from ipymcp.schema.tree import DATA, MAPS, Budget, Schema, SchemaTree, list_at, subschemas
from ipymcp.text import counted, joined, shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import jsonschema_rs


_MAX_LISTED: Final = 8
_MAX_COMPARED: Final = 1_000
_LIMITS: Final = {
    "minimum": "must be at least {limit}",
    "maximum": "must be at most {limit}",
    "exclusiveMinimum": "must be more than {limit}",
    "exclusiveMaximum": "must be less than {limit}",
    "minLength": "must have at least {limit}",
    "maxLength": "must have at most {limit}",
    "minItems": "must have at least {limit}",
    "maxItems": "must have at most {limit}",
    "pattern": "must match the pattern {limit}",
    "uniqueItems": "must not have the same item twice",
}
_COUNTED: Final = {"minLength": "character", "maxLength": "character", "minItems": "item", "maxItems": "item"}


class ArgumentProblem(msgspec.Struct, frozen=True):
    """One validation error.

    Attributes:
        path: The argument's exact name, then indices and members.
        problem: The error message without the path.
        hint: A suggestion more specific than the argument's type.
        got: The value, if the problem does not name it.
    """

    path: tuple[str | int, ...]
    problem: str
    hint: str | None = None
    got: str = ""

    @property
    def message(self) -> str:
        """`filters[2].value: expected integer, got 'abc'`."""
        where = format_path(self.path)
        problem = f"{self.problem}, got {self.got}" if self.got else self.problem
        return f"{where}: {problem}" if where else problem

    @property
    def at_field(self) -> str:
        """The problem below the field of a form, which shows the value: `Must be at least 1`."""
        return self.problem[:1].upper() + self.problem[1:]


def most_informative(errors: Sequence[jsonschema_rs.ValidationError]) -> ArgumentProblem:
    """The most informative of several errors."""
    error, alternatives = _deepest(errors[0])
    path = tuple(error.instance_path)
    value: Any = error.instance
    keyword = next((part for part in reversed(error.schema_path) if isinstance(part, str)), "")
    if alternatives:
        return _no_alternative(path, value, alternatives)
    if keyword == "type":
        return _wrong_type(path, value, _expected(error))
    if keyword in ("enum", "const"):
        return _not_listed(path, value, _allowed(error))
    if keyword in ("required", "dependentRequired"):
        missing = [_attribute(each, "property") for each in _alike(errors, error)]
        return ArgumentProblem(path, f"{listing(missing)} {'is' if len(missing) == 1 else 'are'} missing")
    if keyword in ("additionalProperties", "unevaluatedProperties"):
        surplus = cast("list[str]", _attribute(error, "unexpected") or [])
        return ArgumentProblem(path, f"no member {listing(surplus)} is allowed here")
    template = _LIMITS.get(keyword)
    if template is None:
        return ArgumentProblem(path, shortened(error.message, 120))
    limit = _attribute(error, "pattern" if keyword == "pattern" else "limit")
    if isinstance(limit, int) and keyword in _COUNTED:
        limit = counted(limit, _COUNTED[keyword])
    got = "" if isinstance(value, dict | list) else _short_repr(value)
    return ArgumentProblem(path, template.format(limit=limit), got=got)


def _alike(
    errors: Iterable[jsonschema_rs.ValidationError], error: jsonschema_rs.ValidationError
) -> Iterator[jsonschema_rs.ValidationError]:
    """The errors, also within alternatives, of the same value and the same keyword of its schema."""
    for each in errors:
        if (each.instance_path, each.schema_path) == (error.instance_path, error.schema_path):
            yield each
        for branch in cast("list[list[jsonschema_rs.ValidationError]]", _attribute(each, "context") or []):
            yield from _alike(branch, error)


def problem_at_field(error: jsonschema_rs.ValidationError) -> ArgumentProblem:
    """One error with the path of the field to fix: for a missing member, that member."""
    problem = most_informative([error])
    member = _attribute(error, "property") if error.schema_path[-1:] == ["required"] else None
    return ArgumentProblem((*problem.path, member), "required") if isinstance(member, str) else problem


def _deepest(
    error: jsonschema_rs.ValidationError,
) -> tuple[jsonschema_rs.ValidationError, list[jsonschema_rs.ValidationError]]:
    """The error to report: of several alternatives the one that failed deepest inside the value.

    Returns:
        The error, and the first error of each alternative if none failed deeper than the others.
    """
    branches = cast("list[list[jsonschema_rs.ValidationError]]", _attribute(error, "context") or [])
    firsts = [branch[0] for branch in branches if branch]
    if not firsts:
        return error, []
    here = len(error.instance_path)
    inner = [first for first in firsts if len(first.instance_path) > here]
    if inner:
        return _deepest(max(inner, key=lambda each: len(each.instance_path)))
    apart = [first for first in firsts if "type" not in first.schema_path[-1:]]
    return _deepest(apart[0]) if len(apart) == 1 else (error, firsts)


def _no_alternative(
    path: tuple[str | int, ...], value: Any, firsts: Iterable[jsonschema_rs.ValidationError]
) -> ArgumentProblem:
    kinds: list[str] = []
    listed: list[Any] = []
    for error in firsts:
        if error.schema_path[-1:] == ["type"]:
            kinds += _expected(error)
        elif error.schema_path[-1:] in (["enum"], ["const"]):
            listed += _allowed(error)
    if listed and not kinds:
        return _not_listed(path, value, listed)
    if kinds and not listed:
        return _wrong_type(path, value, kinds)
    if kinds and listed:
        return ArgumentProblem(path, f"expected {_joined(kinds)} or one of {listing(listed)}, got {_short_repr(value)}")
    return ArgumentProblem(path, f"{_short_repr(value)} fits none of the forms this argument may have")


AS_JSON: Final = "give it as text: json.dumps(…)"
"""The hint for a list or an object in place of a string."""


def _wrong_type(path: tuple[str | int, ...], value: Any, kinds: list[str]) -> ArgumentProblem:
    hint = None
    if "string" in kinds and isinstance(value, int | float) and not isinstance(value, bool):
        hint = f"quote it: '{value}'"
    elif "string" in kinds and isinstance(value, dict | list):
        hint = AS_JSON
    elif "array" in kinds and isinstance(value, str):
        hint = f"give a list: [{_short_repr(value)}]"
    return ArgumentProblem(path, f"expected {_joined(kinds)}, got {_short_repr(value)}", hint)


def _not_listed(path: tuple[str | int, ...], value: Any, listed: list[Any]) -> ArgumentProblem:
    if len(listed) == 1:
        return ArgumentProblem(path, f"expected {listed[0]!r}, got {_short_repr(value)}")
    names = [each for each in listed[:_MAX_COMPARED] if isinstance(each, str)]
    hint = nearest(value, names, limit=1) if isinstance(value, str) else ""
    return ArgumentProblem(path, f"{_short_repr(value)} is not one of {listing(listed)}", hint or None)


def _expected(error: jsonschema_rs.ValidationError) -> list[str]:
    return [str(kind) for kind in cast("list[Any]", _attribute(error, "types") or [])]


def _allowed(error: jsonschema_rs.ValidationError) -> list[Any]:
    options = _attribute(error, "options")
    return options if is_array(options) else [_attribute(error, "expected_value")]


def _attribute(error: jsonschema_rs.ValidationError, name: str) -> Any:
    """A detail of an error; None if this release of the validator lacks it."""
    return getattr(error.kind, name, None)


def listing(values: Sequence[Any]) -> str:
    """The first values as Python literals: `'a', 'b' … (20 in all)`."""
    shown = ", ".join(_short_repr(value) for value in values[:_MAX_LISTED])
    return shown if len(values) <= _MAX_LISTED else f"{shown} … ({len(values)} in all)"


def format_path(path: tuple[str | int, ...]) -> str:
    """A path as Python writes it: `filters[2].value`."""
    words = ""
    for part in path:
        if isinstance(part, int):
            words += f"[{part}]"
        elif not words:
            words = shortened(part, 60)
        else:
            words += f".{part}" if part.isidentifier() else f"[{_short_repr(part)}]"
    return shortened(words, 120)


def _joined(words: Sequence[str]) -> str:
    return joined(list(dict.fromkeys(words)), "or")


def _short_repr(value: Any) -> str:
    short = reprlib.Repr()
    short.maxstring = short.maxother = 40
    short.maxlist, short.maxdict, short.maxlevel = 3, 2, 2
    return short.repr(value)


_MAX_NODES: Final = 50_000
_MAX_DEPTH: Final = 100
_MAX_REPAIRED: Final = 500
_MAX_ERRORS: Final = 8
_UNDECIDED: Final = ("BacktrackLimitExceeded", "RegexEngineFailure", "Referencing")
"""Endings of the errors that mean that the validator gave up, not that the value is invalid."""
_LATEST: Final = "https://json-schema.org/draft/2020-12/schema"
_DRAFT_7: Final = "http://json-schema.org/draft-07/schema#"
_DRAFT_4: Final = "http://json-schema.org/draft-04/schema#"
_DIALECTS: Final = {
    "https://json-schema.org/draft/2020-12/schema": _LATEST,
    "https://json-schema.org/draft/2019-09/schema": "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema": _DRAFT_7,
    "http://json-schema.org/draft-06/schema": "http://json-schema.org/draft-06/schema#",
    "http://json-schema.org/draft-04/schema": _DRAFT_4,
    # Often used for "the current draft".
    "http://json-schema.org/schema": _LATEST,
}
_REMOVED_KEYWORDS: Final = frozenset({"$schema", "$id", "$dynamicRef", "$recursiveRef"})


class Validator:
    """Validates the arguments of one tool.

    Args:
        tree: The tool's input schema.
    """

    def __init__(self, tree: SchemaTree) -> None:
        self._tree = tree

    @cached_property
    def _compiled_schema(self) -> tuple[jsonschema_rs.Validator | None, SchemaCost | None]:
        declared = self._tree.root.get("$schema", _LATEST)
        dialect = _DIALECTS.get(declared.rstrip("#")) if isinstance(declared, str) else None
        if dialect is None:
            return None, None
        try:
            schema = _ReferenceFilter(self._tree).copy(self._tree.root)
            cost = SchemaCost(schema)
        except RecursionError:
            return None, None
        # Schemas without a dialect often use older spellings.
        for candidate in dict.fromkeys((dialect, _DRAFT_7, _DRAFT_4)):
            validator = _compile({**schema, "$schema": candidate})
            if validator is not None:
                return validator, cost
        repaired = {**_without_broken_parts(schema), "$schema": dialect}
        alone = _ReferenceFilter(self._tree, keep_references=False).copy(repaired)
        return _compile(repaired) or _compile({**alone, "$schema": dialect}), cost

    def accepts(self, arguments: Schema) -> bool:
        """Whether these JSON arguments are valid; True if the schema cannot be used."""
        compiled, cost = self._compiled_schema
        if compiled is None or cost is None or not cost.is_affordable(arguments):
            return True
        try:
            return compiled.is_valid(arguments)
        except ValueError:
            return True

    def errors(self, arguments: Schema) -> list[jsonschema_rs.ValidationError]:
        """The first few validation errors; empty if the schema cannot be used."""
        compiled, _ = self._compiled_schema
        if compiled is None:
            return []
        try:
            errors = list(zip(compiled.iter_errors(arguments), range(_MAX_ERRORS), strict=False))
        except ValueError:
            return []
        return [error for error, _ in errors if not type(error.kind).__name__.endswith(_UNDECIDED)]


def _compile(schema: Schema) -> jsonschema_rs.Validator | None:
    import jsonschema_rs  # 8 ms, paid at the first call that needs validation

    try:
        return jsonschema_rs.validator_for(schema, retriever=_refuse, validate_formats=False)
    except ValueError:
        return None


def _refuse(uri: str) -> NoReturn:
    raise ValueError(f"external reference: {uri}")


def _without_broken_parts(schema: Schema) -> Schema:
    """The root's `type` and `required`, and the members and definitions that are valid schemas on their own."""
    repaired: Schema = {}
    for keyword in ("$defs", "definitions", "properties"):
        members = schema.get(keyword)
        if is_object(members):
            parts = list(members.items())[:_MAX_REPAIRED]
            repaired[keyword] = {name: part if _is_sound(part) else {} for name, part in parts}
    for keyword in ("type", "required"):
        if keyword in schema and _is_sound({keyword: schema[keyword]}):
            repaired[keyword] = schema[keyword]
    return repaired


def _is_sound(part: Any) -> bool:
    if not is_object(part):
        return isinstance(part, bool)
    return _compile(_ReferenceFilter(SchemaTree(part), keep_references=False).copy(part)) is not None


class _ReferenceFilter:
    """Copies schemas without external or dangling references, and without ids that change what references refer to."""

    def __init__(self, tree: SchemaTree, *, keep_references: bool = True) -> None:
        self.tree = tree
        self.keep_references = keep_references
        self.left = _MAX_NODES

    def copy(self, schema: Schema, depth: int = _MAX_DEPTH) -> Schema:
        return {
            key: value if key in DATA else self._value(key, value, depth)
            for key, value in schema.items()
            if not isinstance(value, str) or self._keeps(key, value)
        }

    def _value(self, key: str, value: Any, depth: int) -> Any:
        self.left -= 1
        if self.left < 0 or depth < 0:
            raise RecursionError("the schema is too large")
        if is_object(value):
            if key not in MAPS:
                return self.copy(value, depth - 1)
            return {name: self._value("", part, depth - 1) for name, part in value.items()}
        return [self._value("", part, depth - 1) for part in value] if is_array(value) else value

    def _keeps(self, key: str, value: str) -> bool:
        if key != "$ref":
            return key not in _REMOVED_KEYWORDS
        if not self.keep_references:
            return False
        try:
            return isinstance(self.tree.pointer(value), dict | bool)
        except LookupError:
            return False


_MAX_CHECKS: Final = 2_000
_MAX_PATHS: Final = 50_000
_MAX_WALKED: Final = 100_000
"""Schemas within one schema."""
_SUBSCHEMA_LISTS: Final = ("allOf", "anyOf", "oneOf")
_CONDITIONS: Final = ("not", "if", "then", "else")
_UNBOUNDED: Final = float("inf")


class SchemaCost:
    """An upper bound for the cost of validating values against a schema.

    Args:
        schema: A schema whose references all resolve within itself.

    Raises:
        RecursionError: The schema would check one value thousands of times, or forever.
    """

    def __init__(self, schema: Schema) -> None:
        self._tree = SchemaTree(schema)
        counted: dict[int, float] = {}
        self._paths = self._count(self._tree.root, subschemas, {}, _UNBOUNDED)
        """The number of paths from the root to all subschemas; infinite if the schema is recursive."""
        parts = _all_objects(self._tree.root, Budget(_MAX_WALKED))
        self._checks = max(self._count(part, _in_place, counted, _MAX_CHECKS) for part in parts)
        """The largest number of checks of one value by any subschema."""

    def is_affordable(self, value: Any) -> bool:
        """Whether validating this value is cheap enough."""
        if self._paths <= _MAX_PATHS:
            return True
        return self._checks ** _depth(value) <= _MAX_PATHS

    def _count(
        self, part: Any, children: Callable[[Schema], Iterable[Any]], counts: dict[int, float], limit: float
    ) -> float:
        """Count the paths from a schema to all schemas below, through its children and the target of its reference."""
        if not is_object(part):
            return 1
        if id(part) not in counts:
            counts[id(part)] = _UNBOUNDED  # the value if this schema is found again below itself
            below = [*children(part)]
            with suppress(LookupError):  # a dangling reference can only be data, for example in a default
                below += [self._tree.pointer(part["$ref"])] if isinstance(part.get("$ref"), str) else []
            counts[id(part)] = max(1, sum(self._count(child, children, counts, limit) for child in below))
        if counts[id(part)] > limit:
            raise RecursionError("the schema branches too often")
        return counts[id(part)]


def _all_objects(schema: Schema, budget: Budget) -> Iterator[Schema]:
    """All JSON objects in a schema, below any keyword: a reference may refer to any of them."""
    ahead: list[Any] = [schema]
    while ahead:
        node = ahead.pop()
        if is_object(node):
            budget.spend()
            yield node
            ahead += node.values()
        elif is_array(node):
            budget.spend()
            ahead += node


def _in_place(schema: Schema) -> list[Any]:
    """Subschemas that apply to the same value."""
    listed = [each for keyword in _SUBSCHEMA_LISTS for each in list_at(schema, keyword)]
    return listed + [schema[keyword] for keyword in _CONDITIONS if keyword in schema]


def _depth(value: Any) -> int:
    members = value.values() if is_object(value) else value if is_array(value) else None
    return 1 if members is None else 1 + max(map(_depth, members), default=0)
