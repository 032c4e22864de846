"""Reading of config files, and of the mappings that scripts pass instead, as server definitions."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ipymcp.config.definition import Source
from ipymcp.config.parsing import FORMAT_HINT, definitions, entries, no_servers_error
from ipymcp.config.paths import missing_file, read_text
from ipymcp.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ipymcp.config.definition import Scope, ServerDefinition


_STRING = r'"(?:\\.|[^"\\\n])*"'
_COMMENT = rf"{_STRING}|(//[^\n]*|/\*(?:(?s:.)*?\*/|(?s:.)*))"
_COMMA = rf"{_STRING}|(,)(?=\s*[}}\]])"
_VISIBLE = r"[^\s]"


def without_comments(text: str) -> str:
    """Replace comments and trailing commas by spaces, so that lines and columns do not change."""
    for pattern in (_COMMENT, _COMMA):
        text = re.sub(pattern, _blank, text)
    return text


def _blank(match: re.Match[str]) -> str:
    return match[0] if match[1] is None else re.sub(_VISIBLE, " ", match[0])


JSON5_MAX_BYTES = 40_000
"""Maximum size for the JSON5 parser, which reads about 20,000 characters a second."""
_JSON5_ERROR = r"(?s)<string>:(\d+) (.*) at column (\d+)"
_UNEXPECTED = r'(?s)Unexpected "(.)"'


class ConfigDocument(Struct, frozen=True):
    """A decoded config file."""

    text: str
    data: Any
    is_plain: bool
    """Whether the text is strict JSON, without comments or trailing commas."""


def read_each(source: Source) -> dict[str, ServerDefinition | ConfigError]:
    """Return the servers of a file by name, each as its definition or its error; unnamed errors have the empty name.

    Raises:
        ConfigError: The file cannot be read, or is not JSON. The message names the file and the line.
    """
    assert source.file is not None
    document = load(Path(source.file)).data
    read = entries(document, source)
    if read is None:
        raise no_servers_error(document, source.file)
    return dict(read)


def from_mapping(table: Mapping[str, Any], scope: Scope = "script") -> dict[str, ServerDefinition]:
    """Return the servers of a mapping from name to definition, or of a document such as `{"mcpServers": {…}}`.

    Raises:
        ConfigError: A value is invalid. The message names the key.
    """
    return definitions(table, Source(scope=scope), bare=True)


def load(file: Path, *, owners: frozenset[int] | None = None) -> ConfigDocument:
    """Read and decode a file.

    Args:
        file: Absolute path.
        owners: User ids that may own the file; None for anyone.

    Raises:
        ConfigError: The file does not exist, cannot be read, belongs to someone else or is not JSON. The message names
            the file, line and column.
    """
    document = load_if_there(file, owners=owners)
    if document is None:
        raise missing_file(file)
    return document


def load_if_there(file: Path, *, owners: frozenset[int] | None = None) -> ConfigDocument | None:
    """Read and decode a file, as `load`; return None if it does not exist."""
    text = read_text(file, owners)
    if text is None:
        return None
    data, is_plain = decode(text, str(file))
    return ConfigDocument(text, data, is_plain)


def decode(text: str, origin: str) -> tuple[Any, bool]:
    """Decode JSON, JSON with comments or JSON5, and return the data and whether it was strict JSON.

    Args:
        text: The document.
        origin: Prefix of error messages.

    Raises:
        ConfigError: The text is invalid. The message names line and column.
    """
    if not text.strip():
        raise ConfigError(f"{origin}: is empty", hint=FORMAT_HINT)

    def once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        table: dict[str, Any] = {}
        for key, value in pairs:
            if key in table:
                raise ConfigError(f'{origin}: "{key}" is defined twice in one object', hint="keep one of the two")
            table[key] = value
        return table

    def parse(text: str, loads: Callable[..., Any] = json.loads) -> Any:
        try:
            return loads(text, object_pairs_hook=once)
        except RecursionError:
            raise ConfigError(f"{origin}: nested too deeply", hint=FORMAT_HINT) from None
        except json.JSONDecodeError:
            raise
        except ValueError as error:
            if "digits" not in str(error):
                raise
            raise ConfigError(
                f"{origin}: a number in it is too long", hint="write it as a string, or shorter"
            ) from None

    with contextlib.suppress(json.JSONDecodeError):
        return parse(text), True
    try:
        return parse(without_comments(text)), False
    except json.JSONDecodeError as error:
        strict = error
    wrong = _syntax_error(origin, strict.lineno, strict.colno, strict.msg)
    if len(text) > JSON5_MAX_BYTES:
        raise wrong
    import json5  # the last resort: slow to import and to parse

    try:
        return parse(text, json5.loads), False
    except ValueError as error:
        match = re.fullmatch(_JSON5_ERROR, str(error))
        raise (_syntax_error(origin, int(match[1]), int(match[3]), match[2]) if match else wrong) from None


def _syntax_error(origin: str, line: int, column: int, reason: str) -> ConfigError:
    found = re.fullmatch(_UNEXPECTED, reason)
    if found is not None:
        reason = f"unexpected {found[1]!r}" if found[1].isprintable() else "unexpected line break"
    hint = "look there, and just before, for a missing comma, quote or bracket"
    return ConfigError(f"{origin}, line {line}, column {column}: not JSON: {reason}", hint=hint)
