"""Values coerced to a schema: "5" for an integer is 5, "true" for a boolean is True.

What the schema already takes is never changed, so text stays text wherever text is allowed. A value that cannot be
drawn there comes back as it was: the validator says what is wrong with it.
"""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec

from ipymcp.schema.to_json import NotJson, plain
from ipymcp.schema.tree import (
    ANYTHING,
    Budget,
    Schema,
    SchemaTree,
    form_kinds,
    is_kind,
    item_schemas,
    json_equal,
    listed_values,
    properties,
    required_names,
)

_MAX_FIT_STEPS: Final = 400


def fits(tree: SchemaTree, value: Any, schema: Any) -> bool:
    """Whether a JSON value has one of the schema's forms, as far as types, values and member names tell.

    Quick and bounded: it chooses between alternatives, the validator judges. Beyond the bound everything fits.
    """
    try:
        return Fit(tree, Budget(_MAX_FIT_STEPS)).fits(value, schema)
    except RecursionError:
        return True


class Fit:
    """A look at how values fit, with a budget of lists and dicts to look into.

    Raises:
        RecursionError: The budget is spent.
    """

    def __init__(self, tree: SchemaTree, budget: Budget) -> None:
        self.tree = tree
        self.budget = budget

    def fits(self, value: Any, schema: Any) -> bool:
        """Whether the value has one of the schema's forms."""
        return any(self.fits_form(value, form) for form in self.tree.alternatives(schema))

    def fits_form(self, value: Any, form: Schema) -> bool:
        """Whether the value has this form."""
        if form.get("not") == {}:
            return False
        listed = listed_values(form)
        if listed is not None:
            return any(json_equal(value, each) for each in listed)
        kinds = form_kinds(form)
        if kinds is not None and not is_kind(value, kinds):
            return False
        if isinstance(value, list):
            self.budget.spend()
            item_of = item_schemas(form)
            return all(self.fits(item, item_of(at)) for at, item in enumerate(cast("list[Any]", value)[:50]))
        if isinstance(value, dict):
            self.budget.spend()
            return self._members_fit(cast("Schema", value), form)
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
    """A JSON value in the form that its schema takes, where one is near.

    Of several alternatives the first that takes the value as it is decides; else the first it can be drawn to. A schema
    with so many alternatives that this would take long leaves the value as it is.

    Args:
        tree: The schema that the subschema belongs to.
        value: A value from `plain`.
        schema: The subschema.
    """
    try:
        return _Drawing(tree).draw(value, schema, _MAX_TRIALS)
    except RecursionError:
        return value


class _Drawing:
    """The work on one argument, with one budget for all of it."""

    def __init__(self, tree: SchemaTree) -> None:
        self.tree = tree
        self.fit = Fit(tree, Budget(_MAX_COERCION_STEPS))

    def draw(self, value: Any, schema: Any, trials: int) -> Any:
        """Towards the schema; `trials` nested choices between alternatives may still be tried out."""
        if type(value) in self.tree.settled(schema):
            return value
        forms = self.tree.alternatives(schema)
        if len(forms) == 1:
            return self._towards(value, forms[0], trials)
        for form in forms:
            if self.fit.fits_form(value, form):
                return self._towards(value, form, trials)
        if trials > 0:
            for form in forms[:_MAX_BRANCHES]:
                drawn = self._towards(value, form, trials - 1)
                if self.fit.fits_form(drawn, form):
                    return drawn
        return value

    def _towards(self, value: Any, form: Schema, trials: int) -> Any:
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
        if isinstance(value, list) and "array" in kinds:
            item_of = item_schemas(form)
            return [self.draw(item, item_of(at), trials) for at, item in enumerate(cast("list[Any]", value))]
        if isinstance(value, dict) and "object" in kinds:
            return self._members(cast("Schema", value), form, trials)
        return cast("Any", value)

    def _members(self, value: Schema, form: Schema, trials: int) -> Schema:
        known = properties(form)
        extra = form.get("additionalProperties", ANYTHING)
        required = required_names(form)
        return {
            name: self.draw(item, known.get(name, extra), trials)
            for name, item in value.items()
            if item is not None or name in required or name not in known or takes_none(self.tree, known[name])
        }


def takes_none(tree: SchemaTree, schema: Any) -> bool:
    """Whether None is a value of its own here. Where it is not, an optional argument that is None is left out."""
    kinds = tree.kinds(schema)
    return kinds is None or "null" in kinds


def _member_of(listed: list[Any], value: Any) -> Any:
    """The listed value that is meant; the value itself where none is."""
    candidates = [value]
    if isinstance(value, str):
        candidates += [decoded for decoded in [_json(value)] if decoded is not _NOT_DECODED]
    for candidate in candidates:
        for each in listed:
            if json_equal(candidate, each):
                return each
    return value


def _decode(text: str, kinds: frozenset[str]) -> Any:
    """What JSON text says, where that is of one of these types."""
    decoded = {"True": True, "False": False}.get(text.strip(), _NOT_DECODED) if "boolean" in kinds else _NOT_DECODED
    if decoded is _NOT_DECODED:
        decoded = _json(text)
    return decoded if decoded is not _NOT_DECODED and is_kind(decoded, kinds) else _NOT_DECODED


def _json(text: str) -> Any:
    try:
        return plain(msgspec.json.decode(text), ())
    except (msgspec.DecodeError, ValueError, RecursionError, NotJson):
        return _NOT_DECODED


def read_text(tree: SchemaTree, text: str, schema: Any) -> Any:
    """What is meant by the text typed for one argument of a `%mcp` line.

    - Where the schema takes this text as a string, it is sent as typed: `1.10`, `02139`, `true` and, for a string that
      may be null, `null` too (to send nothing, leave the argument out). The one exception is the text of a JSON array
      or object that another alternative takes.
    - Else it is read as JSON and drawn towards the schema.
    - A lone value for an array is a list of one where no comma or bracket makes one doubt it; text is never split.
    - Without a schema, or where nothing fits: JSON, else the text.
    """
    kinds = tree.kinds(schema)
    if kinds is None:
        decoded = _json(text)
        return text if decoded is _NOT_DECODED else coerce(tree, decoded, schema)
    if fits(tree, text, schema):
        bracketed = text.lstrip()[:1] in ("[", "{") and not kinds.isdisjoint(("array", "object"))
        decoded = _json(text) if bracketed else _NOT_DECODED
        return text if decoded is _NOT_DECODED or not fits(tree, decoded, schema) else decoded
    drawn = coerce(tree, text, schema)
    if drawn is text and isinstance(quoted := _json(text), str):
        drawn = coerce(tree, quoted, schema)
    if drawn is text and set(kinds) - {"null"} == {"array"}:
        return _lone_item(tree, text, schema)
    return drawn


def _lone_item(tree: SchemaTree, text: str, schema: Any) -> Any:
    """A list of the one value typed, or the text where that is in doubt."""
    if "," in text or text.lstrip()[:1] == "[":
        return text
    for form in tree.alternatives(schema):
        kinds = form_kinds(form)
        if kinds and "array" in kinds:
            item_schema = item_schemas(form)(0)
            item = read_text(tree, text, item_schema)
            return [item] if fits(tree, item, item_schema) else text
    return text
