"""What is wrong with an argument, in one line that names it: `limit: expected integer, got 'abc'`."""

from __future__ import annotations

import reprlib
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import jsonschema_rs

__all__ = ["Complaint", "complain", "listing", "near", "place", "placed", "shortened"]

_MAX_LISTED: Final = 8
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


class Complaint(msgspec.Struct, frozen=True):
    """One thing that is wrong.

    Attributes:
        path: Where: the argument's exact name, then indices and members.
        problem: What is wrong there.
        hint: What to do, where something better than the argument's type can be said.
    """

    path: tuple[str | int, ...]
    problem: str
    hint: str | None = None

    @property
    def message(self) -> str:
        """`filters[2].value: expected integer, got 'abc'`."""
        where = place(self.path)
        return f"{where}: {self.problem}" if where else self.problem


def complain(errors: Sequence[jsonschema_rs.ValidationError]) -> Complaint:
    """The one complaint that tells the user most."""
    error, alternatives = _deepest(errors[0])
    path = tuple(error.instance_path)
    value: Any = error.instance
    keyword = next((part for part in reversed(error.schema_path) if isinstance(part, str)), "")
    if alternatives:
        return _none_of(path, value, alternatives)
    if keyword == "type":
        return _wrong_type(path, value, _expected(error))
    if keyword in ("enum", "const"):
        return _not_listed(path, value, _allowed(error))
    if keyword in ("required", "dependentRequired"):
        return Complaint(path, f"{_attribute(error, 'property')!r} is missing")
    if keyword in ("additionalProperties", "unevaluatedProperties"):
        surplus = cast("list[str]", _attribute(error, "unexpected") or [])
        return Complaint(path, f"no member {listing(surplus)} is allowed here")
    template = _LIMITS.get(keyword)
    if template is None:
        return Complaint(path, shortened(error.message, 120))
    limit, pattern = _attribute(error, "limit"), _attribute(error, "pattern")
    return Complaint(path, template.format(got=_got(value), limit=limit, pattern=pattern))


def placed(error: jsonschema_rs.ValidationError) -> Complaint:
    """One complaint, at the place where it is mended: of a member that is missing, that member's."""
    complaint = complain([error])
    member = _attribute(error, "property") if error.schema_path[-1:] == ["required"] else None
    return Complaint((*complaint.path, member), "is missing") if isinstance(member, str) else complaint


def _deepest(
    error: jsonschema_rs.ValidationError,
) -> tuple[jsonschema_rs.ValidationError, list[jsonschema_rs.ValidationError]]:
    """The error to speak of: of several alternatives the one that went wrong furthest inside the value.

    Gives the alternatives' own errors as well where none went further than another.
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


def _none_of(path: tuple[str | int, ...], value: Any, firsts: Iterable[jsonschema_rs.ValidationError]) -> Complaint:
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
        return Complaint(path, f"expected {_or(kinds)} or one of {listing(listed)}, got {_got(value)}")
    return Complaint(path, f"{_got(value)} fits none of the forms this argument may have")


def _wrong_type(path: tuple[str | int, ...], value: Any, kinds: list[str]) -> Complaint:
    hint = None
    if "string" in kinds and isinstance(value, int | float) and not isinstance(value, bool):
        hint = f"quote it: '{value}'"
    elif "array" in kinds and isinstance(value, str):
        hint = f"give a list: [{_got(value)}]"
    return Complaint(path, f"expected {_or(kinds)}, got {_got(value)}", hint)


def _not_listed(path: tuple[str | int, ...], value: Any, listed: list[Any]) -> Complaint:
    if len(listed) == 1:
        return Complaint(path, f"expected {listed[0]!r}, got {_got(value)}")
    meant = near(value, [each for each in listed if isinstance(each, str)])
    return Complaint(path, f"{_got(value)} is none of {listing(listed)}", f"did you mean {meant!r}?" if meant else None)


def _expected(error: jsonschema_rs.ValidationError) -> list[str]:
    return [str(kind) for kind in cast("list[Any]", _attribute(error, "types") or [])]


def _allowed(error: jsonschema_rs.ValidationError) -> list[Any]:
    options = _attribute(error, "options")
    if isinstance(options, list):
        return cast("list[Any]", options)
    return [_attribute(error, "expected_value")]


def _attribute(error: jsonschema_rs.ValidationError, name: str) -> Any:
    """A detail of an error, which older releases of the validator may lack."""
    return getattr(error.kind, name, None)


def near(word: Any, words: Iterable[str]) -> str | None:
    """The word most like a mistyped one, where one is."""
    if not isinstance(word, str) or len(word) > 100:
        return None
    import difflib  # only when something went wrong

    by_lower = {each.lower(): each for each in list(words)[:1000] if len(each) <= 100}
    found = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[found[0]] if found else None


def listing(values: Sequence[Any]) -> str:
    """The first values as Python writes them: `'a', 'b' … (20 in all)`."""
    shown = ", ".join(_got(value) for value in values[:_MAX_LISTED])
    return shown if len(values) <= _MAX_LISTED else f"{shown} … ({len(values)} in all)"


def place(path: tuple[str | int, ...]) -> str:
    """A path as one would write it: `filters[2].value`."""
    words = ""
    for part in path:
        if isinstance(part, int):
            words += f"[{part}]"
        elif not words:
            words = shortened(part, 60)
        else:
            words += f".{part}" if part.isidentifier() else f"[{_got(part)}]"
    return shortened(words, 120)


def shortened(text: str, width: int) -> str:
    """One line of at most this many characters."""
    line = " ".join(text.split())
    return line if len(line) <= width else f"{line[: width - 1]}…"


def _or(words: Sequence[str]) -> str:
    each = list(dict.fromkeys(words))
    return each[0] if len(each) == 1 else f"{', '.join(each[:-1])} or {each[-1]}"


def _got(value: Any) -> str:
    short = reprlib.Repr()
    short.maxstring = short.maxother = 40
    short.maxlist, short.maxdict, short.maxlevel = 3, 2, 2
    return short.repr(value)
