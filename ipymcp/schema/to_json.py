"""Conversion of Python values (arrays, timestamps, paths, models) to JSON values.

Objects of numpy, pandas, polars and pydantic are recognized by their methods, without an import. A value that JSON
cannot represent raises an error with its path and is never approximated: a NaN would become null, and a set a list in
arbitrary order.
"""

from __future__ import annotations

import datetime
import enum
import math
import sys
import uuid
from collections.abc import KeysView, Mapping, Sequence, ValuesView
from decimal import Decimal
from pathlib import PurePath
from typing import Any, Final, cast

from ipymcp.text import cut

_MAX_DEPTH: Final = 100
_ANY_LIMIT: Final = 10**600
"""Integers below this can be written whatever `sys.set_int_max_str_digits` was given."""
_HINTS: Final = (
    ("set", "give a list, such as sorted(…)"),
    ("frozenset", "give a list, such as sorted(…)"),
    ("bytes", "give text: .decode(), or base64.b64encode(…).decode()"),
    ("bytearray", "give text: .decode(), or base64.b64encode(…).decode()"),
    ("memoryview", "give text: base64.b64encode(…).decode()"),
    ("DataFrame", "give its rows: .to_dict('records') in pandas, .to_dicts() in polars"),
    ("LazyFrame", "give its rows: .collect().to_dicts()"),
    ("generator", "give a list: list(…)"),
    ("timedelta", "give seconds: .total_seconds()"),
    ("Timedelta", "give seconds: .total_seconds()"),
    ("ToolResult", "give its .data or its .text"),
)


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


def to_json(value: Any, path: tuple[str | int, ...], depth: int = _MAX_DEPTH) -> Any:
    """Convert a value to str, int, float, bool, None, list and dict, of exactly those types.

    Enum members become their value; dataclasses, pydantic models and mappings dicts; tuples, ranges, arrays, Series and
    other sequences lists; dates and times ISO 8601 strings; paths and UUIDs strings; Decimal a number. Integers may
    have as many digits as Python writes.

    Args:
        value: Any object.
        path: The value's place, for the error.
        depth: The remaining levels of nesting.

    Raises:
        NotJson: JSON cannot represent the value.
    """
    kind = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind is str:
        return _text(value, path)
    if value is None or kind is bool:
        return value
    if kind is int:
        return _integer(value, path)
    if kind is float:
        return _number(value, path)
    if depth <= 0:
        raise NotJson(path, f"is nested more than {_MAX_DEPTH} levels deep", "does it contain itself?")
    if kind is list or kind is tuple:
        return _items(value, path, depth)
    if kind is dict:
        return _members(value, path, depth)
    return _converted(value, path, depth)


def _text(value: str, path: tuple[str | int, ...]) -> str:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            problem = f"holds half a character (a lone surrogate, {value[error.start]!r}), which cannot be sent"
            raise NotJson(path, problem, "fix it: text.encode('utf-8', 'replace').decode()") from None
    return value


def _integer(value: int, path: tuple[str | int, ...]) -> int:
    if not -_ANY_LIMIT < value < _ANY_LIMIT:
        digits = sys.get_int_max_str_digits()
        if digits and abs(value) >= 10**digits:
            raise _too_long(digits, path)
    return value


def _too_long(digits: int, path: tuple[str | int, ...]) -> NotJson:
    return NotJson(path, f"has more than {digits:,} digits", "give it as text, such as hex(…)")


def _number(value: float, path: tuple[str | int, ...]) -> float:
    if math.isfinite(value):
        return value
    raise NotJson(path, f"is {value}, which JSON cannot represent", "leave it out, or give a number or None")


def _items(value: Any, path: tuple[str | int, ...], depth: int) -> list[Any]:
    # Most items are scalars, and there may be a million: building a path for each would be slow.
    return [item if is_plain(item) else to_json(item, (*path, at), depth - 1) for at, item in enumerate(value)]


def is_plain(value: Any) -> bool:
    """Return whether JSON has a value as it is. False for some that it has."""
    kind = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind is str:
        return value.isascii()
    if kind is int:
        return -_ANY_LIMIT < value < _ANY_LIMIT
    return value is None or kind is bool or (kind is float and math.isfinite(value))


def _members(value: Mapping[Any, Any], path: tuple[str | int, ...], depth: int) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for key, item in value.items():
        name = key.value if isinstance(key, enum.Enum) else key
        if not isinstance(name, str):
            raise NotJson(path, f"has the key {cut(repr(key), 40)}; JSON's keys are text", "make it text: str(key)")
        members[_text(str(name), path)] = to_json(item, (*path, name), depth - 1)
    return members


def _converted(value: Any, path: tuple[str | int, ...], depth: int) -> Any:
    """Convert a value of a type that JSON lacks."""
    if isinstance(value, enum.Enum):
        return to_json(value.value, path, depth - 1)
    name = type(value).__name__
    if name in ("NAType", "NaTType"):
        raise NotJson(path, f"is {value}, a missing value", "give None, or leave it out")
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, PurePath | uuid.UUID):
        return _text(str(value), path)
    if isinstance(value, Decimal):
        return _decimal(value, path)
    simple = _builtin(value)
    if simple is not None:
        return to_json(simple, path, depth)
    container = _container(value)
    if container is not None:
        return to_json(container, path, depth - 1)
    hint = dict(_HINTS).get(name, "give text, numbers, booleans, None, lists or dicts of them")
    raise NotJson(path, f"is of type {name}, which JSON lacks", hint)


def _decimal(value: Decimal, path: tuple[str | int, ...]) -> int | float:
    if not value.is_finite():
        return _number(float(value), path)
    digits = sys.get_int_max_str_digits()
    if digits and value.adjusted() >= digits:
        raise _too_long(digits, path)
    return int(value) if value == value.to_integral_value() else float(value)


def _builtin(value: Any) -> Any:
    """An instance of a subclass of str, int or float as that type; None for other values."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    return None


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
    if callable(getattr(value, "tolist", None)):
        return _array(value)
    if callable(to_list := getattr(value, "to_list", None)):
        return to_list()
    if isinstance(value, Sequence | KeysView | ValuesView):
        return list(cast("Sequence[Any]", value))
    return None


def _array(value: Any) -> Any:
    """An array, Series, Index or numpy scalar as a list or a Python scalar."""
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    # numpy converts its nanosecond times to plain integers.
    if kind == "m":
        return None
    if kind == "M" and type(value).__module__ == "numpy":
        return None if (value != value).any() else value.astype(str).tolist()
    return value.tolist()
