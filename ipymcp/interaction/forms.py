"""Forms that servers ask the user to fill: fields from a schema, values from what was typed.

Source: MCP 2026-07-28 client/elicitation, requested schema; 2025-11-25 the same.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, cast
from urllib.parse import urlsplit

import msgspec

from ipymcp.text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


YES: Final = ("yes", "y", "ok", "okay", "true", "1")
NO: Final = ("no", "n", "false", "0")


def read_choice(
    prompt: str,
    choices: Mapping[str, Sequence[str]],
    default: str | None = None,
    read: Callable[[str], str] | None = None,
) -> str:
    """Ask until one of the choices is typed, in any case; what was not understood is repeated with what is expected.

    Args:
        prompt: What to show.
        choices: What each choice may be called besides its own name.
        default: The choice that Enter alone means; None where something must be typed.
        read: Shows the prompt and gives what was typed; `input` as it is then, which a kernel replaces, by default.

    Returns:
        The choice's own name.
    """
    while True:
        typed = (read or input)(one_line(prompt)).strip()
        word = typed.casefold()
        if not word and default is not None:
            return default
        for choice, names in choices.items():
            if word == choice.casefold() or word in names:
                return choice
        print(one_line(f"  {typed!r} is not one of: {', '.join(choices)}"), flush=True)  # noqa: T201 - meant for the cell


Kind = Literal["string", "number", "integer", "boolean", "choice", "choices"]
MISSING: Final = object()
"""No default."""
_MAX_FIELDS = 50
_MAX_CHOICES = 200


class CannotDraw(Exception):
    """The schema asks for what a form cannot give; the text says what."""


class Choice(msgspec.Struct, frozen=True):
    """One of the values of an enumeration."""

    value: str
    title: str


class Field(msgspec.Struct, frozen=True):
    """One value of a form."""

    name: str
    kind: Kind
    title: str
    description: str
    required: bool
    default: Any
    """What is sent where nothing is typed; `MISSING` where there is none."""
    choices: tuple[Choice, ...] = ()
    format: str = ""
    least: float | None = None
    """The smallest number, the shortest text, the fewest choices."""
    most: float | None = None

    @property
    def wanted(self) -> str:
        """What may be typed, in a few words."""
        if self.kind == "boolean":
            return "y/n"
        unit = {"string": " characters", "choices": " of them"}.get(self.kind, "")
        span = _span(self.least, self.most)
        word = {"integer": "a whole number", "number": "a number", "choice": "one of them", "choices": ""}
        what = _FORMATS[self.format][0] if self.format in _FORMATS else word.get(self.kind, "")
        return ", ".join(part for part in (what, f"{span}{unit}" if span else "") if part)

    def read(self, text: str) -> Any:
        """The value that a text means.

        Raises:
            ValueError: None; the message says what is wanted.
        """
        match self.kind:
            case "string":
                return self._text(text)
            case "boolean":
                return _flag(text)
            case "choice":
                return self._choice(text)
            case "choices":
                picked = [self._choice(part.strip()) for part in text.split(",") if part.strip()]
                return self._within(list(dict.fromkeys(picked)), len(set(picked)))
            case "integer" | "number":
                return self._number(text)

    def problem(self, value: object) -> str | None:
        """What is wrong with the format of a value; None if nothing is, or nothing is said of it."""
        if self.format not in _FORMATS or not isinstance(value, str):
            return None
        wanted, check = _FORMATS[self.format]
        return None if check(value) else f"expected {wanted}"

    def takes(self, value: object) -> bool:
        """Whether a value, such as the server's default, is one of this field's."""
        values = {choice.value for choice in self.choices}
        match self.kind:
            case "string":
                return isinstance(value, str)
            case "boolean":
                return isinstance(value, bool)
            case "choice":
                return value in values if isinstance(value, str) else False
            case "choices":
                return isinstance(value, list) and all(item in values for item in cast("list[object]", value))
            case "integer" | "number":
                return isinstance(value, int | float) and not isinstance(value, bool)

    def _text(self, text: str) -> str:
        if (problem := self.problem(text)) is not None:
            raise ValueError(problem)
        return self._within(text, len(text))

    def _number(self, text: str) -> int | float:
        try:
            value = int(text) if self.kind == "integer" or re.fullmatch(r"[+-]?\d+", text) else float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise ValueError("expected a whole number" if self.kind == "integer" else "expected a number")
        return self._within(value, value)

    def _choice(self, text: str) -> str:
        exact = {choice.title: choice.value for choice in self.choices}
        exact.update({choice.value: choice.value for choice in self.choices})
        folded = {name.casefold(): value for name, value in exact.items()}
        if text in exact or text.casefold() in folded:
            return exact[text] if text in exact else folded[text.casefold()]
        if text.isdecimal() and 1 <= int(text) <= len(self.choices):
            return self.choices[int(text) - 1].value
        raise ValueError(f"expected a number from 1 to {len(self.choices)}, or one of the names")

    def _within(self, value: Any, size: float) -> Any:
        if (self.least is not None and size < self.least) or (self.most is not None and size > self.most):
            unit = {"string": " characters", "choices": " of them"}.get(self.kind, "")
            raise ValueError(f"expected {_span(self.least, self.most)}{unit}")
        return value


def read_form(schema: Mapping[str, Any]) -> list[Field]:
    """The fields of a requested schema, in its order.

    Raises:
        CannotDraw: It is not a flat object of texts, numbers, yes-or-no and enumerations.
    """
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if schema.get("type", "object") != "object" or not isinstance(properties, Mapping):
        raise CannotDraw("the schema is not an object's")
    fields = cast("Mapping[str, object]", properties)
    if len(fields) > _MAX_FIELDS:
        raise CannotDraw(f"it has more than {_MAX_FIELDS} fields")
    needed = cast("list[object]", required) if isinstance(required, list) else []
    return [_field(name, _simple(name, part, schema), name in needed) for name, part in fields.items()]


def _field(name: str, schema: Mapping[str, Any], required: bool) -> Field:
    kind, choices = _kind(name, schema)
    least, most = {
        "string": ("minLength", "maxLength"),
        "choices": ("minItems", "maxItems"),
    }.get(kind, ("minimum", "maximum"))
    field = Field(
        name=name,
        kind=kind,
        title=str(schema.get("title") or name),
        description=str(schema.get("description") or ""),
        required=required,
        default=MISSING,
        choices=choices,
        format=str(schema.get("format") or ""),
        least=_number_or_none(schema.get(least)),
        most=_number_or_none(schema.get(most)),
    )
    default = schema.get("default")
    return msgspec.structs.replace(field, default=default) if field.takes(default) else field


def _simple(name: str, schema: object, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """A property's schema without the ways in which generators say that it may be null, or is defined below."""
    if not isinstance(schema, Mapping):
        raise CannotDraw(f"the schema of {name!r} is no object")
    plain = cast("Mapping[str, Any]", schema)
    reference = plain.get("$ref")
    if isinstance(reference, str):
        kept, _, target = reference.rpartition("/")
        defined = root.get(kept.removeprefix("#/")) if kept in ("#/$defs", "#/definitions") else None
        found: object = cast("Mapping[str, Any]", defined).get(target) if isinstance(defined, Mapping) else None
        if not isinstance(found, Mapping) or "$ref" in found:
            raise CannotDraw(f"{name!r} refers to {reference!r}")
        return {**cast("Mapping[str, Any]", found), **{key: plain[key] for key in plain if key != "$ref"}}
    alternatives = plain.get("anyOf")
    if isinstance(alternatives, list):
        real = [part for part in cast("list[object]", alternatives) if part != {"type": "null"}]
        if len(real) == 1 and isinstance(real[0], Mapping):
            rest = {key: plain[key] for key in plain if key != "anyOf" and plain[key] is not None}
            return {**cast("Mapping[str, Any]", real[0]), **rest}
    return plain


def _kind(name: str, schema: Mapping[str, Any]) -> tuple[Kind, tuple[Choice, ...]]:
    kind = schema.get("type")
    if kind == "array":
        items = schema.get("items")
        choices = _choices(cast("Mapping[str, Any]", items), "anyOf") if isinstance(items, Mapping) else ()
        if choices:
            return "choices", choices
        raise CannotDraw(f"{name!r} is a list of other things than the values of an enumeration")
    if kind in ("string", None):
        choices = _choices(schema, "oneOf")
        if choices:
            return "choice", choices
    if kind in ("string", "number", "integer", "boolean"):
        return cast("Kind", kind), ()
    raise CannotDraw(f"{name!r} is {'an object' if kind == 'object' else f'of the type {kind!r}'}")


def _choices(schema: Mapping[str, Any], titled: str) -> tuple[Choice, ...]:
    """The values of an enumeration, in each of the forms it may have; none where it is no enumeration of texts."""
    values, names = schema.get("enum"), schema.get("enumNames")
    if isinstance(values, list):
        plain = cast("list[object]", values)
        titles = cast("list[object]", names) if isinstance(names, list) else []
        pairs = [(value, titles[index] if index < len(titles) else value) for index, value in enumerate(plain)]
    else:
        options = schema.get(titled) or schema.get("oneOf") or schema.get("anyOf")
        parts = cast("list[object]", options) if isinstance(options, list) else []
        known = [cast("Mapping[str, object]", part) for part in parts if isinstance(part, Mapping)]
        pairs = [(part.get("const"), part.get("title", part.get("const"))) for part in known]
    if len(pairs) > _MAX_CHOICES or not all(isinstance(value, str) for value, _ in pairs):
        return ()
    return tuple(Choice(str(value), str(title)) for value, title in pairs)


def _span(least: float | None, most: float | None) -> str:
    if least is not None and most is not None:
        return f"{least:.15g}" if least == most else f"{least:.15g} to {most:.15g}"
    if least is not None:
        return f"at least {least:.15g}"
    return f"at most {most:.15g}" if most is not None else ""


def _flag(text: str) -> bool:
    folded = text.casefold()
    if folded not in (*YES, *NO):
        raise ValueError("expected y or n")
    return folded in YES


def _number_or_none(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _is_email(text: str) -> bool:
    return re.fullmatch(r"[^@\s]+@[^@\s]+", text) is not None


def _is_uri(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return bool(parts.scheme and (parts.netloc or parts.path)) and not re.search(r"\s", text)


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return re.fullmatch(r"\d{4}-\d\d-\d\d", text) is not None


def _is_moment(text: str) -> bool:
    """RFC 3339: with a time zone."""
    try:
        return datetime.fromisoformat(text).tzinfo is not None and text[10:11] in ("T", "t")
    except ValueError:
        return False


_FORMATS: dict[str, tuple[str, Callable[[str], bool]]] = {
    "email": ("an email address", _is_email),
    "uri": ("an address, such as https://host/path", _is_uri),
    "date": ("a date, such as 2026-07-28", _is_date),
    "date-time": ("a moment, such as 2026-07-28T09:30:00Z", _is_moment),
}
