"""Typed access to a server's object in a document, with errors that name the key."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from ipymcp.config.redaction import masked
from ipymcp.errors import ConfigError
from ipymcp.masking import looks_secret
from ipymcp.text import cut

if TYPE_CHECKING:
    from ipymcp.config.definition import Source


_SHOWN = 60
_MAX_SECONDS = 1e9
"""The maximum for timers, about thirty years."""
_MAX_SIZE = 2**53


def shown(value: object) -> str:
    """Return an invalid value for an error message: masked and shortened; only the kind of an object or long list."""
    if isinstance(value, Mapping):
        return "an object"
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        return type(value).__name__
    if len(text) > _SHOWN and isinstance(value, list | tuple):
        return "a list"
    return cut(masked(text), _SHOWN)


class ServerReader:
    """Typed access to a server's object in a document. Each method reads a key, or raises a `ConfigError` naming it.

    Args:
        values: The object.
        source: Source of the server, the prefix of errors.
        within: Path of the object in the server.
    """

    def __init__(self, values: Mapping[str, Any], source: Source, within: str = "") -> None:
        self._values = values
        self._source = source
        self._within = within
        self._read: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return self._values.get(key) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def get(self, key: str) -> Any:
        """Return a value; None if the key is absent or null."""
        self._read.add(key)
        return self._values.get(key)

    def rest(self) -> dict[str, Any]:
        """Return the values that were never read."""
        return {key: value for key, value in self._values.items() if key not in self._read}

    def error(self, message: str, *, key: str | None = None, hint: str) -> ConfigError:
        """Return the error for a key, or for the whole object."""
        path = ".".join(part for part in (self._within, key) if part)
        error = ConfigError(": ".join(filter(None, (self._source.where(path), message))), hint=hint)
        error.key = path
        return error

    def expected(self, key: str, what: str, value: object, *, hint: str) -> ConfigError:
        """Return the error for a value of the wrong type."""
        return self.error(f"expected {what}, got {shown(value)}", key=key, hint=hint)

    def text(self, key: str, *, hint: str) -> str | None:
        """Read a non-empty string or path object."""
        value = self.get(key)
        if value is None:
            return None
        text = _text(value)
        if not text:
            raise self.expected(key, "a string", value, hint=hint)
        return text

    def secret(self, key: str) -> str | None:
        """Read a non-empty string that errors must not show."""
        value = self.get(key)
        if value is not None and (not isinstance(value, str) or not value):
            raise self.error("expected a string", key=key, hint=f'write "{key}": "…"')
        return value

    def within(self, key: str, values: Mapping[str, Any]) -> ServerReader:
        """Return a reader for the object under a key."""
        return ServerReader(values, self._source, key)

    def texts(self, key: str, *, hint: str) -> tuple[str, ...]:
        """Read a list of strings."""
        value = self.get(key)
        if value is None:
            return ()
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise self.expected(key, "a list of strings", value, hint=hint)
        items = cast("Sequence[object]", value)
        texts = [_text(item) for item in items]
        for index, text in enumerate(texts):
            if text is None:
                raise self.expected(f"{key}[{index}]", "a string", items[index], hint=_quoting_hint(items[index], hint))
        return tuple(text for text in texts if text is not None)

    def table(self, key: str, *, hint: str) -> dict[str, str]:
        """Read an object of strings. Errors show only the kind of a value that may be secret."""
        value = self.get(key)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise self.error(f"expected an object of strings, got {_kind(value)}", key=key, hint=hint)
        table: dict[str, str] = {}
        for name, item in cast("Mapping[str, object]", value).items():
            text = _text(item)
            if text is None:
                is_hidden = looks_secret(name)
                message = f"expected a string, got {_kind(item) if is_hidden else shown(item)}"
                raise self.error(message, key=f"{key}.{name}", hint=hint if is_hidden else _quoting_hint(item, hint))
            table[name] = text
        return table

    def seconds(self, key: str, default: float) -> float:
        """Read a positive number of seconds."""
        value = self.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= _MAX_SECONDS:
            hint = f'write the seconds as a number, such as "{key}": {default:g}'
            raise self.expected(key, "a number of seconds greater than 0", value, hint=hint)
        return float(value)

    def size(self, key: str, default: int, *, of: str = "bytes") -> int:
        """Read a positive integer; `of` is its unit in errors."""
        value = self.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= _MAX_SIZE:
            hint = f'write the {of} as a whole number, such as "{key}": {default}'
            raise self.expected(key, f"a number of {of} greater than 0", value, hint=hint)
        return value

    def flag(self, key: str, default: bool) -> bool:
        """Read a boolean."""
        value = self.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.expected(key, "true or false", value, hint=f'write "{key}": true or "{key}": false, unquoted')
        return value

    def choice(self, key: str, choices: Iterable[str]) -> str | None:
        """Read one of some words."""
        value = self.get(key)
        words = list(choices)
        if value is None or value in words:
            return value
        raise self.expected(key, "one of " + ", ".join(words), value, hint=f'leave "{key}" out for the default')


def _kind(value: object) -> str:
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return "a list"
    return "a string" if isinstance(value, str) else "a number or a boolean"


def _text(value: object) -> str | None:
    if isinstance(value, str):
        return value
    path = os.fspath(cast("os.PathLike[Any]", value)) if isinstance(value, os.PathLike) else None
    return path if isinstance(path, str) else None


def _quoting_hint(value: object, hint: str) -> str:
    """Return the hint for a value that should be a string."""
    if isinstance(value, bool | int | float):
        return f'put it in quotes: "{json.dumps(value)}"'
    return hint
