"""Config files and the documents that scripts pass instead of files, read as server definitions."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ipymcp.config.definition import Source
from ipymcp.config.parsing import SHAPE, definitions, entries, no_shape
from ipymcp.config.paths import missing_file, read_text
from ipymcp.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ipymcp.config.definition import Scope, ServerDefinition


_STRING = r'"(?:\\.|[^"\\\n])*"'
_COMMENT = re.compile(rf"{_STRING}|(//[^\n]*|/\*(?:(?s:.)*?\*/|(?s:.)*))")
_COMMA = re.compile(rf"{_STRING}|(,)(?=\s*[}}\]])")
_VISIBLE = re.compile(r"[^\s]")


def without_comments(text: str) -> str:
    """The text with blanks in place of each comment and trailing comma, so that lines and columns stay."""
    for pattern in (_COMMENT, _COMMA):
        text = pattern.sub(_blank, text)
    return text


def _blank(match: re.Match[str]) -> str:
    return match[0] if match[1] is None else _VISIBLE.sub(" ", match[0])


JSON5_MAX_BYTES = 200_000
"""Beyond it single quotes and names without quotes are not tried: the JSON5 reader takes seconds."""
_JSON5_ERROR = re.compile(r"<string>:(\d+) (.*) at column (\d+)", re.DOTALL)
_UNEXPECTED = re.compile(r'Unexpected "(.)"', re.DOTALL)


class ConfigDocument(Struct, frozen=True):
    """What a file holds."""

    text: str
    data: Any
    is_plain: bool
    """Whether it is JSON as it stands, without comments or trailing commas."""


def read_each(source: Source) -> dict[str, ServerDefinition | ConfigError]:
    """The servers that a file defines, by name; in place of one that is wrong, what is wrong with it.

    That has the empty name where it has none to be used. The file is JSON, comments and trailing commas allowed.

    Raises:
        ConfigError: The file as a whole cannot be used: it cannot be read, or is not JSON. The message names the file
            and the line; `.hint` says what to do.
    """
    assert source.file is not None
    document = load(Path(source.file)).data
    read = entries(document, source)
    if read is None:
        raise no_shape(document, source.file)
    return dict(read)


def from_mapping(table: Mapping[str, Any], scope: Scope = "script") -> dict[str, ServerDefinition]:
    """The servers of a mapping from name to definition, or of a whole document such as `{"mcpServers": {…}}`.

    Raises:
        ConfigError: Something is defined wrongly. The message names the scope and the key.
    """
    return definitions(table, Source(scope=scope), bare=True)


def load(file: Path, *, owners: frozenset[int] | None = None) -> ConfigDocument:
    """Read and decode a file.

    Args:
        file: Absolute.
        owners: The user ids it may belong to; any, where this is None.

    Raises:
        ConfigError: It is not there, cannot be read, belongs to another or is not JSON. The message names the file and,
            in it, line and column.
    """
    document = load_if_there(file, owners=owners)
    if document is None:
        raise missing_file(file)
    return document


def load_if_there(file: Path, *, owners: frozenset[int] | None = None) -> ConfigDocument | None:
    """The same, but None where there is no such file."""
    text = read_text(file, owners)
    if text is None:
        return None
    data, is_plain = decode(text, str(file))
    return ConfigDocument(text, data, is_plain)


def decode(text: str, origin: str) -> tuple[Any, bool]:
    """The data, and whether plain JSON was enough.

    Args:
        text: JSON, perhaps with comments and trailing commas.
        origin: What errors begin with.

    Raises:
        ConfigError: It is none. The message names line and column.
    """
    if not text.strip():
        raise ConfigError(f"{origin}: is empty", hint=SHAPE)

    def once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        table: dict[str, Any] = {}
        for key, value in pairs:
            if key in table:
                raise ConfigError(f'{origin}: "{key}" is defined twice in one object', hint="keep one of the two")
            table[key] = value
        return table

    too_long = ConfigError(f"{origin}: a number in it is too long", hint="write it as a text, or shorter")
    try:
        return json.loads(text, object_pairs_hook=once), True
    except json.JSONDecodeError:
        pass
    except RecursionError:
        raise ConfigError(f"{origin}: nested too deeply", hint=SHAPE) from None
    except ValueError:  # more digits than Python reads
        raise too_long from None

    try:
        return json.loads(without_comments(text), object_pairs_hook=once), False
    except json.JSONDecodeError as error:
        if len(text) > JSON5_MAX_BYTES:
            raise _syntax_error(origin, error.lineno, error.colno, error.msg) from None
        strict = error
    except RecursionError:
        raise ConfigError(f"{origin}: nested too deeply", hint=SHAPE) from None
    except ValueError:
        raise too_long from None

    import json5  # only where all else has failed: it is slow to import and to read

    try:
        return json5.loads(text, object_pairs_hook=once), False
    except RecursionError:
        raise ConfigError(f"{origin}: nested too deeply", hint=SHAPE) from None
    except ValueError as error:
        match = _JSON5_ERROR.fullmatch(str(error))
        if match is None and "digits" in str(error):
            raise too_long from None
        if match is None:
            raise _syntax_error(origin, strict.lineno, strict.colno, strict.msg) from None
        raise _syntax_error(origin, int(match[1]), int(match[3]), match[2]) from None


def _syntax_error(origin: str, line: int, column: int, reason: str) -> ConfigError:
    found = _UNEXPECTED.fullmatch(reason)
    if found is not None:
        reason = f"unexpected {found[1]!r}" if found[1].isprintable() else "unexpected line break"
    hint = "look there, and just before, for a missing comma, quote or bracket"
    return ConfigError(f"{origin}, line {line}, column {column}: not JSON: {reason}", hint=hint)
