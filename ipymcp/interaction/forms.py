"""Elicitation forms: reading the fields from a schema, and the values from typed text.

Source: MCP 2025-11-25 and 2026-07-28, client/elicitation, requested schema.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, cast
from urllib.parse import urlsplit

import msgspec

from ipymcp.protocol.types import is_array, is_object
from ipymcp.text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


YES: Final = ("yes", "y", "ok", "okay", "true", "1")
NO: Final = ("no", "n", "false", "0")


def read_choice(
    prompt: str,
    choices: Mapping[str, Sequence[str]],
    default: str | None = None,
    read: Callable[[str], str] | None = None,
) -> str:
    """Ask until one of the choices is typed, ignoring case.

    Args:
        prompt: The prompt.
        choices: The other names of each choice.
        default: The choice for an empty line; None to require an answer.
        read: Shows the prompt and returns the typed line; by default `input`, looked up at each call, since a kernel
            replaces it.

    Returns:
        The name of the choice.
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
"""The value of a field without a default."""
_MAX_FIELDS = 50
_MAX_CHOICES = 200


class UnsupportedForm(Exception):
    """The schema asks for values that no form can provide."""


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
    """The value for an empty line; `MISSING` if there is none."""
    choices: tuple[Choice, ...] = ()
    format: str = ""
    minimum: float | None = None
    """The minimum of a number, of the length of a text, or of the number of choices."""
    maximum: float | None = None
    """The maximum of the same quantity."""

    @property
    def expected_input(self) -> str:
        """A short description of the accepted input."""
        if self.kind == "boolean":
            return "y/n"
        word = {"integer": "a whole number", "number": "a number", "choice": "one of them", "choices": ""}
        type_ = _FORMATS[self.format][0] if self.format in _FORMATS else word.get(self.kind, "")
        is_any = self.kind == "string" and self.maximum is None and (self.minimum or 0) <= 1
        return ", ".join(part for part in (type_, "" if is_any else self._range) if part)

    def parse(self, text: str) -> Any:
        """Parse typed text.

        Raises:
            ValueError: The text is not accepted; the message describes the expected input.
        """
        match self.kind:
            case "string":
                return self._parse_string(text)
            case "boolean":
                return _parse_boolean(text)
            case "choice":
                return self._parse_choice(text)
            case "choices":
                picked = [self._parse_choice(part.strip()) for part in text.split(",") if part.strip()]
                return self._in_range(list(dict.fromkeys(picked)), len(set(picked)))
            case "integer" | "number":
                return self._parse_number(text)

    def problem(self, value: object) -> str | None:
        """The error message for a value that does not match the field's `format`; None if it matches."""
        if self.format not in _FORMATS or not isinstance(value, str):
            return None
        wanted, check = _FORMATS[self.format]
        return None if check(value) else f"must be {wanted}"

    def accepts(self, value: object) -> bool:
        """Whether a value, such as the server's default, has the field's type."""
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

    def _parse_string(self, text: str) -> str:
        if (problem := self.problem(text)) is not None:
            raise ValueError(problem)
        return self._in_range(text, len(text))

    def _parse_number(self, text: str) -> int | float:
        try:
            value = int(text) if self.kind == "integer" or re.fullmatch(r"[+-]?\d+", text) else float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise ValueError("must be a whole number" if self.kind == "integer" else "must be a number")
        return self._in_range(value, value)

    def _parse_choice(self, text: str) -> str:
        exact = {choice.title: choice.value for choice in self.choices}
        exact.update({choice.value: choice.value for choice in self.choices})
        folded = {name.casefold(): value for name, value in exact.items()}
        if text in exact or text.casefold() in folded:
            return exact[text] if text in exact else folded[text.casefold()]
        if text.isdecimal() and 1 <= int(text) <= len(self.choices):
            return self.choices[int(text) - 1].value
        raise ValueError(f"must be a number from 1 to {len(self.choices)}, or one of the names")

    def _in_range(self, value: Any, size: float) -> Any:
        if (self.minimum is not None and size < self.minimum) or (self.maximum is not None and size > self.maximum):
            verb = {"string": "must have", "choices": "choose"}.get(self.kind, "must be")
            raise ValueError(f"{verb} {self._range}")
        return value

    @property
    def _range(self) -> str:
        letters = " character" if (self.maximum or self.minimum) == 1 else " characters"
        unit = {"string": letters, "choices": " of them"}.get(self.kind, "")
        if self.minimum is not None and self.maximum is not None:
            is_single = self.minimum == self.maximum
            span = f"{self.minimum:.15g}" + ("" if is_single else f" to {self.maximum:.15g}")
        elif self.minimum is not None:
            span = f"at least {self.minimum:.15g}"
        elif self.maximum is not None:
            span = f"at most {self.maximum:.15g}"
        else:
            return ""
        return f"{span}{unit}"


def read_form(schema: Mapping[str, Any]) -> list[Field]:
    """The fields of a requested schema, in the schema's order.

    Raises:
        UnsupportedForm: The schema is not a flat object of strings, numbers, booleans and enumerations.
    """
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if schema.get("type", "object") != "object" or not isinstance(properties, Mapping):
        raise UnsupportedForm("the schema is not that of an object")
    fields = cast("Mapping[str, object]", properties)
    if len(fields) > _MAX_FIELDS:
        raise UnsupportedForm(f"it has more than {_MAX_FIELDS} fields")
    needed = cast("list[object]", required) if isinstance(required, list) else []
    return [_field(name, _simple(name, part, schema), name in needed) for name, part in fields.items()]


def format_errors(
    schema: object, value: object, root: Mapping[str, Any] | None = None
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """The paths and errors of strings in a value that do not match their `format` (email, URI, date, date-time).

    In JSON Schema `format` is an annotation, and validators ignore it. Alternatives, such as `anyOf`, are not searched.

    Args:
        schema: The schema of the value.
        value: The value.
        root: The schema that `$ref`s refer to; by default `schema`.
    """
    if not is_object(schema):
        return
    root = schema if root is None else root
    try:
        plain = _simple("", schema, root)
    except UnsupportedForm:
        return
    if isinstance(value, str):
        wanted, check = _FORMATS.get(str(plain.get("format")), ("", None))
        if check is not None and not check(value):
            yield (), f"must be {wanted}"
        return
    parts: list[tuple[str | int, object, object]] = []
    properties = plain.get("properties")
    if is_object(value) and is_object(properties):
        parts = [(name, properties[name], item) for name, item in value.items() if name in properties]
    elif is_array(value):
        parts = [(index, plain.get("items"), item) for index, item in enumerate(value)]
    for key, inner, item in parts:
        for path, problem in format_errors(inner, item, root):
            yield (key, *path), problem


def _field(name: str, schema: Mapping[str, Any], required: bool) -> Field:
    kind, choices = _kind(name, schema)
    lower, upper = {
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
        minimum=_number_or_none(schema.get(lower)),
        maximum=_number_or_none(schema.get(upper)),
    )
    default = schema.get("default")
    return msgspec.structs.replace(field, default=default) if field.accepts(default) else field


def _simple(name: str, schema: object, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """A property's schema with the `$ref` and the nullable `anyOf` resolved that schema generators write."""
    if not isinstance(schema, Mapping):
        raise UnsupportedForm(f"the schema of {name!r} is not an object")
    plain = cast("Mapping[str, Any]", schema)
    reference = plain.get("$ref")
    if isinstance(reference, str):
        kept, _, target = reference.rpartition("/")
        defined = root.get(kept.removeprefix("#/")) if kept in ("#/$defs", "#/definitions") else None
        found: object = cast("Mapping[str, Any]", defined).get(target) if isinstance(defined, Mapping) else None
        if not isinstance(found, Mapping) or "$ref" in found:
            raise UnsupportedForm(f"{name!r} refers to {reference!r}")
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
        raise UnsupportedForm(f"{name!r} is a list whose items are not the values of an enumeration")
    if kind in ("string", None):
        choices = _choices(schema, "oneOf")
        if choices:
            return "choice", choices
    if kind in ("string", "number", "integer", "boolean"):
        return cast("Kind", kind), ()
    raise UnsupportedForm(f"{name!r} is {'an object' if kind == 'object' else f'of the type {kind!r}'}")


def _choices(schema: Mapping[str, Any], titled: str) -> tuple[Choice, ...]:
    """The choices of an enumeration in any of its spellings; empty if it is not an enumeration of strings."""
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


def _parse_boolean(text: str) -> bool:
    folded = text.casefold()
    if folded not in (*YES, *NO):
        raise ValueError("must be y or n")
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


def _is_timestamp(text: str) -> bool:
    """Whether a text is an RFC 3339 timestamp with a time zone."""
    try:
        return datetime.fromisoformat(text).tzinfo is not None and text[10:11] in ("T", "t")
    except ValueError:
        return False


_FORMATS: dict[str, tuple[str, Callable[[str], bool]]] = {
    "email": ("an email address", _is_email),
    "uri": ("an address, such as https://host/path", _is_uri),
    "date": ("a date, such as 2026-07-28", _is_date),
    "date-time": ("a timestamp, such as 2026-07-28T09:30:00Z", _is_timestamp),
}
