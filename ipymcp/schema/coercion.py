"""Conversion of Python values to JSON values, and their coercion to a schema.

Objects of numpy, pandas, polars and pydantic are recognized by their methods, without an import. A value that JSON
cannot represent raises an error with its path and is never approximated: a NaN would become null, and a set a list in
arbitrary order.

Coercion makes "5" for an integer 5, and "true" for a boolean True. A valid value is never changed, so strings stay
strings wherever strings are allowed. A value that cannot be coerced is returned unchanged, and the validator reports
the error.
"""

from __future__ import annotations

import base64
import datetime
import enum
import math
import sys
import uuid
from collections.abc import KeysView, Mapping, Sequence, ValuesView
from decimal import Decimal
from pathlib import PurePath
from typing import Any, Final, NamedTuple, cast

import msgspec

from ipymcp.protocol.types import is_array, is_object
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
from ipymcp.text import cut

# -- conversion --------------------------------------------------------------------------------------------------------


_MAX_DEPTH: Final = 100
_ANY_LIMIT: Final = 10**600
"""Integers below this can be written whatever `sys.set_int_max_str_digits` was given."""
_HINTS: Final = (
    ("set", "give a list, such as sorted(…)"),
    ("frozenset", "give a list, such as sorted(…)"),
    ("bytes", "give text: .decode(), or base64.b64encode(…).decode()"),
    ("bytearray", "give text: .decode(), or base64.b64encode(…).decode()"),
    ("memoryview", "give text: base64.b64encode(…).decode()"),
    ("LazyFrame", "give its rows: .collect().to_dicts()"),
    ("generator", "give a list: list(…)"),
    ("timedelta", "give seconds: .total_seconds()"),
    ("Timedelta", "give seconds: .total_seconds()"),
    ("Image", "give its .base64, or .data, which are its bytes"),
    ("Audio", "give its .base64, or .data, which are its bytes"),
)
_MISSING_KINDS: Final = frozenset({"NAType", "NaTType"})
"""Names of the types of pandas' missing values."""


class NotJson(Exception):
    """A value that JSON cannot represent.

    Args:
        path: The place in the arguments, such as `("filters", 2, "value")`.
        problem: The problem with the value.
        hint: What to pass instead.
    """

    def __init__(self, path: tuple[str | int, ...], problem: str, hint: str) -> None:
        super().__init__(problem)
        self.path = path
        self.problem = problem
        self.hint = hint


class Target(NamedTuple):
    """The argument that a value is for.

    Attributes:
        tree: The tool's input schema.
        schema: The argument's schema.
    """

    tree: SchemaTree
    schema: Any

    def forms(self, path: tuple[str | int, ...]) -> list[Schema]:
        """The forms of the schema at a place, whose path begins with the argument's name."""
        schemas = [self.schema]
        for part in path[1:]:
            forms = [form for schema in schemas for form in self.tree.alternatives(schema)]
            if isinstance(part, int):
                schemas = [item_schemas(form)(part) for form in forms]
            else:
                schemas = [properties(form).get(part, form.get("additionalProperties", ANYTHING)) for form in forms]
        return [form for schema in schemas for form in self.tree.alternatives(schema)]


def to_json(value: Any, path: tuple[str | int, ...], depth: int = _MAX_DEPTH, target: Target | None = None) -> Any:
    """Convert a value to str, int, float, bool, None, list and dict, of exactly those types.

    Enum members become their value; dataclasses, pydantic models and mappings dicts; tuples, ranges, arrays, Series and
    other sequences lists; dates and times ISO 8601 strings; paths and UUIDs strings; Decimal a number. Integers may
    have as many digits as Python writes. In an argument a DataFrame becomes a list of rows, a result its data, or its
    text where a string is wanted, and bytes become base64 where the schema has that format.

    Args:
        value: Any object.
        path: The value's place, for the error.
        depth: The remaining levels of nesting.
        target: The argument that the value is for.

    Raises:
        NotJson: JSON cannot represent the value.
    """
    kind = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind is str:
        return _text(value, path)
    if value is None or kind is bool:
        return value
    if kind is int:
        if not -_ANY_LIMIT < value < _ANY_LIMIT:
            digits = sys.get_int_max_str_digits()
            if digits and abs(value) >= 10**digits:
                raise _too_long(digits, path)
        return value
    if kind is float:
        return _number(value, path)
    if depth <= 0:
        raise NotJson(path, f"is nested more than {_MAX_DEPTH} levels deep", "does it contain itself?")
    if kind is list or kind is tuple:
        # Most items are scalars, and there may be a million: building a path for each would be slow.
        return [
            item if is_plain(item) else to_json(item, (*path, at), depth - 1, target) for at, item in enumerate(value)
        ]
    if kind is dict:
        return _members(value, path, depth, target)
    if target is not None and (form := _for_argument(value, path, target)) is not None:
        return to_json(form, path, depth - 1, target)
    return _converted(value, path, depth, target)


def _text(value: str, path: tuple[str | int, ...]) -> str:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            problem = f"holds half a character (a lone surrogate, {value[error.start]!r}), which cannot be sent"
            raise NotJson(path, problem, "fix it: text.encode('utf-8', 'replace').decode()") from None
    return value


def _too_long(digits: int, path: tuple[str | int, ...]) -> NotJson:
    return NotJson(path, f"has more than {digits:,} digits", "give it as text, such as hex(…)")


def _number(value: float, path: tuple[str | int, ...]) -> float:
    if math.isfinite(value):
        return value
    raise NotJson(path, f"is {value}, which JSON cannot represent", "leave it out, or give a number or None")


def is_plain(value: Any) -> bool:
    """Return whether JSON has a value as it is. False for some that it has."""
    kind = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind is str:
        return value.isascii()
    if kind is int:
        return -_ANY_LIMIT < value < _ANY_LIMIT
    return value is None or kind is bool or (kind is float and math.isfinite(value))


def _members(
    value: Mapping[Any, Any], path: tuple[str | int, ...], depth: int, target: Target | None
) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for key, item in value.items():
        name = key.value if isinstance(key, enum.Enum) else key
        if not isinstance(name, str):
            raise NotJson(path, f"has the key {cut(repr(key), 40)}; JSON's keys are text", "make it text: str(key)")
        members[_text(str(name), path)] = to_json(item, (*path, name), depth - 1, target)
    return members


def _for_argument(value: Any, path: tuple[str | int, ...], target: Target) -> Any:
    """A table, a result or bytes in the form that an argument's schema wants; None for other values."""
    kind: type[Any] = type(value)  # pyright: ignore[reportUnknownVariableType]
    if hasattr(kind, "json_bytes"):  # a result of a server
        return _content(value, path, target)
    if kind.__name__ in ("DataFrame", "Table", "RecordBatch", "FoundTable"):
        return _records(value, path)
    content: Any = value.data if hasattr(kind, "base64") else value  # an image or audio in a result
    if isinstance(content, bytes | bytearray | memoryview):
        written = _binary_format(target.forms(path))
        encode = base64.urlsafe_b64encode if written == "base64url" else base64.b64encode
        return encode(bytes(cast("bytes", content))).decode() if written else None
    return None


def _content(result: Any, path: tuple[str | int, ...], target: Target) -> Any:
    """The data of a result, or its text if the schema accepts a string and not the data."""
    forms, data = target.forms(path), getattr(result, "data", result.text)
    if isinstance(data, str) and (images := getattr(result, "images", None)):
        if _binary_format(forms):
            return images[0].data
        raise NotJson(path, "is a result with an image, not only text", "give its .text, or .images[0].base64")
    accepts_text = any("string" in (form_kinds(form) or ()) for form in forms)
    if isinstance(data, bytes) or not accepts_text or any(fits(target.tree, data, form) for form in forms):
        return data
    return result.text


def _binary_format(forms: list[Schema]) -> str:
    """The format in which the schema wants bytes as a string; empty if it has none.

    `binary` is none: some servers that declare it, such as those of pydantic, expect text and not base64.
    """
    formats = {form.get(word) for form in forms for word in ("contentEncoding", "format")}
    return next((word for word in ("base64url", "base64", "byte") if word in formats), "")


def _records(table: Any, path: tuple[str | int, ...]) -> list[Any] | None:
    """The rows of a table as dicts, in which missing values are None."""
    if hasattr(table, "to_dicts"):
        rows = table.to_dicts()
    elif hasattr(table, "to_pylist"):
        rows = table.to_pylist()
    elif hasattr(table, "to_dict"):
        if not table.columns.is_unique:  # pandas would leave out columns
            raise NotJson(path, "has several columns of the same name", "rename them")
        rows = table.to_dict("records")
    else:
        rows = getattr(table, "records", None)
    return rows and [{name: None if is_missing(cell) else cell for name, cell in row.items()} for row in rows]


def is_missing(value: Any) -> bool:
    """Whether a cell has no value: None, a NaN, NaT or NA. An optional argument is left out."""
    return value is None or (isinstance(value, float) and value != value) or type(value).__name__ in _MISSING_KINDS


def _converted(value: Any, path: tuple[str | int, ...], depth: int, target: Target | None) -> Any:
    """Convert a value of a type that JSON lacks."""
    if isinstance(value, enum.Enum):
        return to_json(value.value, path, depth - 1)
    name = type(value).__name__
    if name in _MISSING_KINDS:
        raise NotJson(path, f"is {value}, a missing value", "give None, or leave it out")
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, PurePath | uuid.UUID):
        return _text(str(value), path)
    if isinstance(value, Decimal):
        if not value.is_finite():
            return _number(float(value), path)
        digits = sys.get_int_max_str_digits()
        if digits and value.adjusted() >= digits:
            raise _too_long(digits, path)
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, str):  # of a subclass, as the numbers below
        return to_json(str.__str__(value), path, depth)
    if isinstance(value, int | float):
        return to_json(int(value) if isinstance(value, int) else float(value), path, depth)
    container = _container(value)
    if container is not None:
        return to_json(container, path, depth - 1, target)
    hint = dict(_HINTS).get(name, "give text, numbers, booleans, None, lists or dicts of them")
    raise NotJson(path, f"is of type {name}, which JSON lacks", hint)


def _container(value: Any) -> Any:
    """The content of a value as a builtin list, dict or scalar; None if its type is unknown."""
    if hasattr(type(value), "__dataclass_fields__"):  # pyright: ignore[reportUnknownArgumentType]
        import dataclasses  # 3 ms; already imported where such a value exists

        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return dict(cast("Mapping[Any, Any]", value))
    if isinstance(value, type | bytes | bytearray | memoryview):
        return None
    if callable(dump := getattr(value, "model_dump", None)):
        return dump(by_alias=True)
    if callable(getattr(value, "tolist", None)):  # an array, Series, Index or numpy scalar
        kind = getattr(getattr(value, "dtype", None), "kind", "")
        # numpy converts its nanosecond times to plain integers.
        if kind == "m":
            return None
        if kind == "M" and type(value).__module__ == "numpy":
            return None if (value != value).any() else value.astype(str).tolist()
        return value.tolist()
    if callable(to_list := getattr(value, "to_list", None)):
        return to_list()
    if isinstance(value, Sequence | KeysView | ValuesView):
        return list(cast("Sequence[Any]", value))
    return None


# -- coercion ----------------------------------------------------------------------------------------------------------


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
            declared = properties(form)
            if any(name not in value for name in required_names(form)):
                return False
            if (
                form.get("additionalProperties") is False
                and "patternProperties" not in form
                and value.keys() - declared
            ):
                return False
            return all(self.fits(value[name], declared[name]) for name in value.keys() & declared)
        return True


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
        if not is_object(value) or kinds.isdisjoint(("object", "array")):
            return value
        if "object" in kinds:
            return self._members(value, form, trials)
        item_schema = item_schemas(form)(0)  # one object where a list of objects is wanted
        return [self.coerce(value, item_schema, trials)] if "object" in (self.tree.kinds(item_schema) or ()) else value

    def _members(self, value: Schema, form: Schema, trials: int) -> Schema:
        declared = properties(form)
        extra = form.get("additionalProperties", ANYTHING)
        required = required_names(form)
        return {
            name: self.coerce(item, declared.get(name, extra), trials)
            for name, item in value.items()
            if item is not None or name in required or name not in declared or takes_none(self.tree, declared[name])
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
            return [item] if is_object(item) or fits(tree, item, item_schema) else text
    return text
