"""Reads config files, and what a script passes instead of one."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ipymcp.config.definition import Source
from ipymcp.config.formats import SHAPE, definitions, entries
from ipymcp.config.shapes import no_shape
from ipymcp.errors import ConfigError
from ipymcp.text import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ipymcp.config.definition import Scope, ServerDefinition

__all__ = ["Document", "decode", "from_mapping", "load", "load_if_there", "read_each", "read_env_file"]

MAX_BYTES = 10_000_000
JSON5_MAX_BYTES = 200_000
"""Beyond it single quotes and names without quotes are not tried: the JSON5 reader takes seconds."""
_JSON5_ERROR = re.compile(r"<string>:(\d+) (.*) at column (\d+)", re.DOTALL)
_UNEXPECTED = re.compile(r'Unexpected "(.)"', re.DOTALL)
_ASSIGNMENT = (
    r"(?:export\s+)?(?P<name>[A-Za-z_][\w.-]*)\s*="
    r"""\s*(?:'(?P<single>[^']*)'|"(?P<double>[^"]*)"|(?P<plain>[^'"#\s].*?|))(?:\s+\#.*)?"""
)


class Document(Struct, frozen=True):
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


def load(file: Path, *, owners: frozenset[int] | None = None) -> Document:
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
        raise _missing(file)
    return document


def load_if_there(file: Path, *, owners: frozenset[int] | None = None) -> Document | None:
    """The same, but None where there is no such file."""
    text = _text(file, owners)
    if text is None:
        return None
    data, is_plain = decode(text, str(file))
    return Document(text, data, is_plain)


def _missing(file: Path) -> ConfigError:
    return ConfigError(f"{file}: no such file", hint="a relative path starts at the notebook's folder")


def read_env_file(path: str, where: str) -> dict[str, str]:
    """The variables of a file with `NAME=VALUE` lines; comments and quotes as shells have them, nothing is expanded.

    Args:
        path: Absolute.
        where: What names the file, for errors: document and key.

    Raises:
        ConfigError: It cannot be read, or a line is none.
    """
    file = Path(path)
    try:
        text = _text(file, None)
        if text is None:
            raise _missing(file)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error.message}", hint=error.hint) from None
    variables: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        match = re.fullmatch(_ASSIGNMENT, stripped)
        if match is None:
            raise ConfigError(f"{where}: {path}, line {number}: expected NAME=VALUE", hint="begin a comment with #")
        quoted = match["single"] if match["single"] is not None else match["double"]
        variables[match["name"]] = quoted if quoted is not None else match["plain"].strip()
    return variables


def _text(file: Path, owners: frozenset[int] | None) -> str | None:
    try:
        # Opening a pipe would wait for its other end; what is looked at is what is read.
        descriptor = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
        try:
            _check(os.fstat(descriptor), file, owners)
        except ConfigError:
            os.close(descriptor)
            raise
        with open(descriptor, "rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}", hint="check the file's permissions") from None
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{file}: larger than 10 MB", hint="is this a config file?")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{file}, line {line}: not UTF-8", hint="save the file as UTF-8") from None


def _check(status: os.stat_result, file: Path, owners: frozenset[int] | None) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise ConfigError(f"{file}: is a folder", hint=f"name the file in it, such as {file / 'mcp.json'}")
    if not stat.S_ISREG(status.st_mode):
        raise ConfigError(f"{file}: is not a regular file", hint="name a file on disk")
    if owners is not None and status.st_uid not in owners:
        raise ConfigError(
            f"{file}: ignored: it belongs to another user ({_user(status.st_uid)})",
            hint=f"if you wrote it, make it yours; else read it, then %mcp load {quoted(str(file))}",
        )


def _user(number: int) -> str:
    try:
        import pwd

        return pwd.getpwuid(number).pw_name
    except (ImportError, KeyError):
        return f"uid {number}"


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

    from ipymcp.config.comments import without_comments

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
