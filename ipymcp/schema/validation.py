"""Validation of arguments against an untrusted schema, with a one-line error that names the argument.

`jsonschema_rs` validates. It would fetch the target of an external `$ref` over the network or from a file, so such
references are removed first, and its retriever refuses. A schema that is broken in one argument still validates the
others; one that cannot be used at all validates nothing, and the server decides.

Source: JSON Schema 2020-12 (the dialect of MCP 2025-11-25 and later where `$schema` names none); `format` is not
asserted, as in 2020-12.
"""

from __future__ import annotations

import reprlib
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

import msgspec

from ipymcp.names import nearest
from ipymcp.schema.tree import Schema, SchemaCost, SchemaTree

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import jsonschema_rs


_MAX_LISTED: Final = 8
_MAX_COMPARED: Final = 1_000
_LIMITS: Final = {
    "minimum": "{got} is less than {limit}",
    "maximum": "{got} is more than {limit}",
    "exclusiveMinimum": "{got} is not more than {limit}",
    "exclusiveMaximum": "{got} is not less than {limit}",
    "minLength": "{got} is shorter than {limit} characters",
    "maxLength": "{got} is longer than {limit} characters",
    "minItems": "has fewer than {limit} items",
    "maxItems": "has more than {limit} items",
    "pattern": "{got} does not match the pattern {pattern}",
    "uniqueItems": "has the same item twice",
}


class ArgumentProblem(msgspec.Struct, frozen=True):
    """One validation error.

    Attributes:
        path: The argument's exact name, then indices and members.
        problem: The error message without the path.
        hint: A suggestion more specific than the argument's type.
    """

    path: tuple[str | int, ...]
    problem: str
    hint: str | None = None

    @property
    def message(self) -> str:
        """`filters[2].value: expected integer, got 'abc'`."""
        where = format_path(self.path)
        return f"{where}: {self.problem}" if where else self.problem


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
        return ArgumentProblem(path, f"{_attribute(error, 'property')!r} is missing")
    if keyword in ("additionalProperties", "unevaluatedProperties"):
        surplus = cast("list[str]", _attribute(error, "unexpected") or [])
        return ArgumentProblem(path, f"no member {listing(surplus)} is allowed here")
    template = _LIMITS.get(keyword)
    if template is None:
        return ArgumentProblem(path, shortened(error.message, 120))
    limit, pattern = _attribute(error, "limit"), _attribute(error, "pattern")
    return ArgumentProblem(path, template.format(got=_short_repr(value), limit=limit, pattern=pattern))


def problem_at_field(error: jsonschema_rs.ValidationError) -> ArgumentProblem:
    """One error with the path of the field to fix: for a missing member, that member."""
    complaint = most_informative([error])
    member = _attribute(error, "property") if error.schema_path[-1:] == ["required"] else None
    return ArgumentProblem((*complaint.path, member), "is missing") if isinstance(member, str) else complaint


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


def _wrong_type(path: tuple[str | int, ...], value: Any, kinds: list[str]) -> ArgumentProblem:
    hint = None
    if "string" in kinds and isinstance(value, int | float) and not isinstance(value, bool):
        hint = f"quote it: '{value}'"
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
    if isinstance(options, list):
        return cast("list[Any]", options)
    return [_attribute(error, "expected_value")]


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


def shortened(text: str, width: int) -> str:
    """Collapse text to one line of at most this many characters."""
    line = " ".join(text.split())
    return line if len(line) <= width else f"{line[: width - 1]}…"


def _joined(words: Sequence[str]) -> str:
    each = list(dict.fromkeys(words))
    return each[0] if len(each) == 1 else f"{', '.join(each[:-1])} or {each[-1]}"


def _short_repr(value: Any) -> str:
    short = reprlib.Repr()
    short.maxstring = short.maxother = 40
    short.maxlist, short.maxdict, short.maxlevel = 3, 2, 2
    return short.repr(value)


_MAX_NODES: Final = 50_000
_MAX_DEPTH: Final = 100
_MAX_REPAIRED: Final = 500
_MAX_ERRORS: Final = 8
_NOT_JUDGED: Final = ("BacktrackLimitExceeded", "RegexEngineFailure", "Referencing")
"""Errors that mean that the validator gave up, not that the value is invalid."""
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
_DATA: Final = frozenset({"const", "default", "enum", "example", "examples"})
_NAMED: Final = frozenset(
    {"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"}
)
_CUT_ALWAYS: Final = frozenset({"$schema", "$id", "$dynamicRef", "$recursiveRef"})


class Validator:
    """Validates the arguments of one tool.

    Args:
        tree: The tool's input schema.
    """

    def __init__(self, tree: SchemaTree) -> None:
        self._tree = tree

    @cached_property
    def _compiled_schema(self) -> tuple[jsonschema_rs.Validator | None, SchemaCost | None]:
        return _compiled(self._tree)

    def accepts(self, arguments: Schema) -> bool:
        """Whether these JSON arguments are valid; True if the schema cannot be used."""
        compiled, cost = self._compiled_schema
        if compiled is None or cost is None or not cost.affords(arguments):
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
            found = list(zip(compiled.iter_errors(arguments), range(_MAX_ERRORS), strict=False))
        except ValueError:
            return []
        return [error for error, _ in found if not type(error.kind).__name__.endswith(_NOT_JUDGED)]


def _compiled(tree: SchemaTree) -> tuple[jsonschema_rs.Validator | None, SchemaCost | None]:
    declared = tree.root.get("$schema", _LATEST)
    dialect = _DIALECTS.get(declared.rstrip("#")) if isinstance(declared, str) else None
    if dialect is None:
        return None, None
    try:
        schema = _Cutter(tree).cut(tree.root)
        cost = SchemaCost(schema)
    except RecursionError:
        return None, None
    # Schemas without a dialect often use older spellings.
    for candidate in dict.fromkeys((dialect, _DRAFT_7, _DRAFT_4)):
        validator = _compile({**schema, "$schema": candidate})
        if validator is not None:
            return validator, cost
    repaired = {**_without_broken_parts(schema), "$schema": dialect}
    alone = _Cutter(tree, keep_references=False).cut(repaired)
    return _compile(repaired) or _compile({**alone, "$schema": dialect}), cost


def _compile(schema: Schema) -> jsonschema_rs.Validator | None:
    import jsonschema_rs  # 8 ms, paid at the first call that needs validation

    try:
        return jsonschema_rs.validator_for(schema, retriever=_refuse, validate_formats=False)
    except ValueError:
        return None


def _refuse(uri: str) -> NoReturn:
    raise ValueError(f"not opened: {uri}")


def _without_broken_parts(schema: Schema) -> Schema:
    """The root's `type` and `required`, and the members and definitions that are valid schemas on their own."""
    repaired: Schema = {}
    for keyword in ("$defs", "definitions", "properties"):
        found = schema.get(keyword)
        if isinstance(found, dict):
            parts = list(cast("Schema", found).items())[:_MAX_REPAIRED]
            repaired[keyword] = {name: part if _is_sound(part) else {} for name, part in parts}
    for keyword in ("type", "required"):
        if keyword in schema and _is_sound({keyword: schema[keyword]}):
            repaired[keyword] = schema[keyword]
    return repaired


def _is_sound(part: Any) -> bool:
    if not isinstance(part, dict):
        return isinstance(part, bool)
    own = cast("Schema", part)
    return _compile(_Cutter(SchemaTree(own), keep_references=False).cut(own)) is not None


class _Cutter:
    """Copies a schema without external or dangling references and without ids that would redirect others."""

    def __init__(self, tree: SchemaTree, *, keep_references: bool = True) -> None:
        self.tree = tree
        self.keep_references = keep_references
        self.left = _MAX_NODES

    def cut(self, schema: Schema, depth: int = _MAX_DEPTH) -> Schema:
        return {
            key: value if key in _DATA else self._value(key, value, depth)
            for key, value in schema.items()
            if not isinstance(value, str) or self._keeps(key, value)
        }

    def _value(self, key: str, value: Any, depth: int) -> Any:
        self.left -= 1
        if self.left < 0 or depth < 0:
            raise RecursionError("the schema is too large")
        if isinstance(value, dict):
            members = cast("Schema", value)
            if key not in _NAMED:
                return self.cut(members, depth - 1)
            return {name: self._value("", part, depth - 1) for name, part in members.items()}
        if isinstance(value, list):
            return [self._value("", part, depth - 1) for part in cast("list[Any]", value)]
        return value

    def _keeps(self, key: str, value: str) -> bool:
        if key != "$ref":
            return key not in _CUT_ALWAYS
        if not self.keep_references:
            return False
        try:
            return isinstance(self.tree.pointer(value), dict | bool)
        except LookupError:
            return False
