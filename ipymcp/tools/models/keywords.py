"""The keywords of a schema: whether one says what it may, and what types it is about.

Providers refuse a whole request for one that does not.

Source: JSON Schema 2020-12, validation sections 6 and 9.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from ipymcp.protocol.jsontypes import is_array
from ipymcp.tools.schema_tree import is_kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipymcp.tools.schema_tree import Schema

__all__ = ["TEXT_OR_NUMBER", "is_sound", "parted"]

_NUMBERS: Final = ("integer", "number")
TEXT_OR_NUMBER: Final = ("string", *_NUMBERS)
_OWNERS: Final = {
    **dict.fromkeys(("properties", "required", "additionalProperties"), ("object",)),
    **dict.fromkeys(("items", "minItems", "maxItems", "uniqueItems"), ("array",)),
    **dict.fromkeys(("minLength", "maxLength", "pattern", "format"), ("string",)),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), _NUMBERS),
}
"""The types that each keyword says something of."""


def is_sound(word: str, value: object) -> bool:
    """Whether a keyword may have this value. One that is not known may have any."""
    check = _CHECKS.get(word)
    return check is None or check(value)


def parted(result: Schema, names: list[str]) -> list[Schema]:
    """A form for each type, with what only it has taken out of the whole."""
    own = {word: result.pop(word) for word in _OWNERS if word in result}
    values = result.pop("enum", None)
    forms: list[Schema] = []
    for name in names:
        form = {"type": name, **{word: value for word, value in own.items() if name in _OWNERS[word]}}
        if values is not None and name != "null":
            form["enum"] = [value for value in values if is_kind(value, frozenset({name}))]
        if form.get("enum") != []:
            forms.append(form)
    return forms


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_above_zero(value: Any) -> bool:
    return _is_number(value) and value > 0


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_choice(value: Any) -> bool:
    return is_array(value) and bool(value)


def _is_pattern(value: Any) -> bool:
    try:
        return isinstance(value, str) and bool(re.compile(value))
    except (re.error, RecursionError, OverflowError):
        return False


_CHECKS: Final[dict[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(("title", "description", "format"), _is_text),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _is_number),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), _is_count),
    "multipleOf": _is_above_zero,
    "uniqueItems": lambda value: isinstance(value, bool),
    "enum": _is_choice,
    "pattern": _is_pattern,
}
