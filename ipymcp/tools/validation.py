"""The validator of a tool's arguments, made from a stranger's schema without trusting it.

`jsonschema_rs` judges. It would fetch what a `$ref` names over the network or from a file, so such references are cut
out before it sees them, and it is given a retriever that refuses. A schema that is broken in one argument still
validates the others; one that cannot be used at all validates nothing, and the server judges.

Source: JSON Schema 2020-12 (the dialect of MCP 2025-11-25 and later where `$schema` names none); `format` is not
asserted, as in 2020-12.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from ipymcp.tools.schema_cost import SchemaCost
from ipymcp.tools.schema_tree import Schema, SchemaTree

if TYPE_CHECKING:
    import jsonschema_rs

__all__ = ["Validator"]

_MAX_NODES: Final = 50_000
_MAX_DEPTH: Final = 100
_MAX_MENDED: Final = 500
_MAX_ERRORS: Final = 8
_NOT_JUDGED: Final = ("BacktrackLimitExceeded", "RegexEngineFailure", "Referencing")
"""Errors that say that the validator gave up, not that the value is wrong."""
_LATEST: Final = "https://json-schema.org/draft/2020-12/schema"
_DRAFT_7: Final = "http://json-schema.org/draft-07/schema#"
_DRAFT_4: Final = "http://json-schema.org/draft-04/schema#"
_DIALECTS: Final = {
    "https://json-schema.org/draft/2020-12/schema": _LATEST,
    "https://json-schema.org/draft/2019-09/schema": "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema": _DRAFT_7,
    "http://json-schema.org/draft-06/schema": "http://json-schema.org/draft-06/schema#",
    "http://json-schema.org/draft-04/schema": _DRAFT_4,
    # Often written for "whatever is current".
    "http://json-schema.org/schema": _LATEST,
}
_DATA: Final = frozenset({"const", "default", "enum", "example", "examples"})
_NAMED: Final = frozenset(
    {"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"}
)
_CUT_ALWAYS: Final = frozenset({"$schema", "$id", "$dynamicRef", "$recursiveRef"})


class Validator:
    """What judges the arguments of one tool.

    Args:
        tree: The tool's input schema.
    """

    def __init__(self, tree: SchemaTree) -> None:
        self._tree = tree

    @cached_property
    def _judge(self) -> tuple[jsonschema_rs.Validator | None, SchemaCost | None]:
        return _compiled(self._tree)

    def accepts(self, arguments: Schema) -> bool:
        """Whether these JSON arguments are valid; True where the schema cannot say."""
        compiled, cost = self._judge
        if compiled is None or cost is None or not cost.affords(arguments):
            return True
        try:
            return compiled.is_valid(arguments)
        except ValueError:
            return True

    def errors(self, arguments: Schema) -> list[jsonschema_rs.ValidationError]:
        """What is wrong with arguments that are not accepted, the first few; empty where nothing can be said."""
        compiled, _ = self._judge
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
    # Older spellings are common where no dialect is named.
    for candidate in dict.fromkeys((dialect, _DRAFT_7, _DRAFT_4)):
        validator = _compile({**schema, "$schema": candidate})
        if validator is not None:
            return validator, cost
    mended = {**_without_broken_parts(schema), "$schema": dialect}
    alone = _Cutter(tree, keep_references=False).cut(mended)
    return _compile(mended) or _compile({**alone, "$schema": dialect}), cost


def _compile(schema: Schema) -> jsonschema_rs.Validator | None:
    import jsonschema_rs  # 8 ms: paid by the first call that needs judging, not at the import

    try:
        return jsonschema_rs.validator_for(schema, retriever=_refuse, validate_formats=False)
    except ValueError:
        return None


def _refuse(uri: str) -> NoReturn:
    raise ValueError(f"not opened: {uri}")


def _without_broken_parts(schema: Schema) -> Schema:
    """The root's `type` and `required`, and those members and definitions that make sense by themselves."""
    mended: Schema = {}
    for keyword in ("$defs", "definitions", "properties"):
        found = schema.get(keyword)
        if isinstance(found, dict):
            parts = list(cast("Schema", found).items())[:_MAX_MENDED]
            mended[keyword] = {name: part if _is_sound(part) else {} for name, part in parts}
    for keyword in ("type", "required"):
        if keyword in schema and _is_sound({keyword: schema[keyword]}):
            mended[keyword] = schema[keyword]
    return mended


def _is_sound(part: Any) -> bool:
    if not isinstance(part, dict):
        return isinstance(part, bool)
    own = cast("Schema", part)
    return _compile(_Cutter(SchemaTree(own), keep_references=False).cut(own)) is not None


class _Cutter:
    """Copies a schema without references that lead out of it or nowhere, and without ids that would redirect others."""

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
