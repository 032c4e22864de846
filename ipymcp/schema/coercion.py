"""Coercion of values to a schema: "5" for an integer becomes 5, "true" for a boolean becomes True.

A valid value is never changed, so strings stay strings wherever strings are allowed. A value that cannot be coerced is
returned unchanged, and the validator reports the error.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ipymcp.protocol.types import is_array, is_object
from ipymcp.schema.to_json import NotJson, to_json
from ipymcp.schema.tree import (
    ANYTHING,
    Budget,
    Schema,
    SchemaTree,
    form_kinds,
    has_json_type,
    item_schemas,
    json_equal,
    listed_values,
    properties,
    required_names,
)

_MAX_FIT_STEPS: Final = 400


def fits(tree: SchemaTree, value: Any, schema: Any) -> bool:
    """Whether a JSON value matches one of the schema's forms by types, listed values and member names.

    A quick check to choose between alternatives, not a validation; True if it would take too long.
    """
    try:
        return Fit(tree, Budget(_MAX_FIT_STEPS)).fits(value, schema)
    except RecursionError:
        return True


class Fit:
    """Checks whether values match schemas, with a budget for the number of lists and dicts to check.

    Raises:
        RecursionError: The budget is spent.
    """

    def __init__(self, tree: SchemaTree, budget: Budget) -> None:
        self.tree = tree
        self.budget = budget

    def fits(self, value: Any, schema: Any) -> bool:
        """Whether the value matches one of the schema's forms."""
        return any(self.fits_form(value, form) for form in self.tree.alternatives(schema))

    def fits_form(self, value: Any, form: Schema) -> bool:
        """Whether the value matches this form."""
        if form.get("not") == {}:
            return False
        listed = listed_values(form)
        if listed is not None:
            return any(json_equal(value, each) for each in listed)
        kinds = form_kinds(form)
        if kinds is not None and not has_json_type(value, kinds):
            return False
        if is_array(value):
            self.budget.spend()
            item_of = item_schemas(form)
            return all(self.fits(item, item_of(at)) for at, item in enumerate(value[:50]))
        if is_object(value):
            self.budget.spend()
            return self._members_fit(value, form)
        return True

    def _members_fit(self, value: Schema, form: Schema) -> bool:
        known = properties(form)
        if any(name not in value for name in required_names(form)):
            return False
        if form.get("additionalProperties") is False and "patternProperties" not in form and value.keys() - known:
            return False
        return all(self.fits(value[name], known[name]) for name in value.keys() & known)


_MAX_TRIALS: Final = 2
_MAX_BRANCHES: Final = 16
_MAX_COERCION_STEPS: Final = 5_000
_NOT_DECODED: Final = object()


def coerce(tree: SchemaTree, value: Any, schema: Any) -> Any:
    """Convert a JSON value to what its schema accepts, if that is possible.

    Of several alternatives, the first one that the value matches is used, else the first one that it can be converted
    to. The value stays unchanged if the schema has too many alternatives to try.

    Args:
        tree: The schema that the subschema belongs to.
        value: A value from `to_json`.
        schema: The subschema.
    """
    try:
        return _Coercion(tree).coerce(value, schema, _MAX_TRIALS)
    except RecursionError:
        return value


class _Coercion:
    """The coercion of one argument, with one budget."""

    def __init__(self, tree: SchemaTree) -> None:
        self.tree = tree
        self.fit = Fit(tree, Budget(_MAX_COERCION_STEPS))

    def coerce(self, value: Any, schema: Any, trials: int) -> Any:
        """Coerce a value, trying alternatives in at most `trials` nested choices."""
        if type(value) in self.tree.scalar_types(schema):
            return value
        forms = self.tree.alternatives(schema)
        if len(forms) == 1:
            return self._to_form(value, forms[0], trials)
        for form in forms:
            if self.fit.fits_form(value, form):
                return self._to_form(value, form, trials)
        if trials > 0:
            for form in forms[:_MAX_BRANCHES]:
                coerced = self._to_form(value, form, trials - 1)
                if self.fit.fits_form(coerced, form):
                    return coerced
        return value

    def _to_form(self, value: Any, form: Schema, trials: int) -> Any:
        listed = listed_values(form)
        if listed is not None:
            return _member_of(listed, value)
        kinds = form_kinds(form)
        if kinds is None:
            return value
        if isinstance(value, str) and "string" not in kinds:
            decoded = _decode(value, kinds)
            value = value if decoded is _NOT_DECODED else decoded
        if isinstance(value, float):
            return int(value) if "integer" in kinds and "number" not in kinds and value.is_integer() else value
        if is_array(value) and "array" in kinds:
            item_of = item_schemas(form)
            return [self.coerce(item, item_of(at), trials) for at, item in enumerate(value)]
        return self._members(value, form, trials) if is_object(value) and "object" in kinds else value

    def _members(self, value: Schema, form: Schema, trials: int) -> Schema:
        known = properties(form)
        extra = form.get("additionalProperties", ANYTHING)
        required = required_names(form)
        return {
            name: self.coerce(item, known.get(name, extra), trials)
            for name, item in value.items()
            if item is not None or name in required or name not in known or takes_none(self.tree, known[name])
        }


def takes_none(tree: SchemaTree, schema: Any) -> bool:
    """Whether the schema accepts null. If not, an optional argument that is None is omitted."""
    kinds = tree.kinds(schema)
    return kinds is None or "null" in kinds


def _member_of(listed: list[Any], value: Any) -> Any:
    """The listed value that equals the value or its JSON text; else the value itself."""
    candidates = [value]
    if isinstance(value, str):
        candidates += [decoded for decoded in [_json(value)] if decoded is not _NOT_DECODED]
    for candidate in candidates:
        for each in listed:
            if json_equal(candidate, each):
                return each
    return value


def _decode(text: str, kinds: frozenset[str]) -> Any:
    """The decoded JSON text if it is of one of these types, else `_NOT_DECODED`."""
    decoded = {"True": True, "False": False}.get(text.strip(), _NOT_DECODED) if "boolean" in kinds else _NOT_DECODED
    if decoded is _NOT_DECODED:
        decoded = _json(text)
    return decoded if decoded is not _NOT_DECODED and has_json_type(decoded, kinds) else _NOT_DECODED


def _json(text: str) -> Any:
    try:
        return to_json(msgspec.json.decode(text), ())
    except (msgspec.DecodeError, ValueError, RecursionError, NotJson):
        return _NOT_DECODED


def read_text(tree: SchemaTree, text: str, schema: Any) -> Any:
    """Read the text typed for one argument of a `%mcp` line.

    - If the schema accepts the text as a string, it is sent as typed: `1.10`, `02139`, `true` and, for a nullable
      string, `null` too (to send nothing, omit the argument). The exception is the text of a JSON array or object that
      another alternative accepts.
    - Otherwise it is read as JSON and coerced to the schema.
    - A single value for an array becomes a list of one, unless it has a comma or begins with a bracket; text is never
      split.
    - Without a schema, or if nothing matches: JSON if it is valid, else the text.
    """
    kinds = tree.kinds(schema)
    if kinds is None:
        decoded = _json(text)
        return text if decoded is _NOT_DECODED else coerce(tree, decoded, schema)
    if fits(tree, text, schema):
        bracketed = text.lstrip()[:1] in ("[", "{") and not kinds.isdisjoint(("array", "object"))
        decoded = _json(text) if bracketed else _NOT_DECODED
        return text if decoded is _NOT_DECODED or not fits(tree, decoded, schema) else decoded
    coerced = coerce(tree, text, schema)
    if coerced is text and isinstance(quoted := _json(text), str):
        coerced = coerce(tree, quoted, schema)
    if coerced is text and set(kinds) - {"null"} == {"array"}:
        return _lone_item(tree, text, schema)
    return coerced


def _lone_item(tree: SchemaTree, text: str, schema: Any) -> Any:
    """The typed value as a list of one, or the text if it may mean something else."""
    if "," in text or text.lstrip()[:1] == "[":
        return text
    for form in tree.alternatives(schema):
        kinds = form_kinds(form)
        if kinds and "array" in kinds:
            item_schema = item_schemas(form)(0)
            item = read_text(tree, text, item_schema)
            return [item] if fits(tree, item, item_schema) else text
    return text
