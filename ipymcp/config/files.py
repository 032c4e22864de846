"""Reads config files, and what a script passes instead of one."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ipymcp.config.formats import SHAPE, definitions, servers
from ipymcp.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ipymcp.config.definition import ServerDefinition

__all__ = ["from_mapping", "read"]

MAX_BYTES = 10_000_000
JSON5_MAX_BYTES = 200_000
"""Beyond it comments and trailing commas are not tried: the JSON5 reader takes seconds."""
_JSON5_ERROR = re.compile(r"<string>:(\d+) (.*) at column (\d+)", re.DOTALL)


def read(path: str | os.PathLike[str]) -> dict[str, ServerDefinition]:
    """The servers a config file defines, by name. The file is JSON, with comments and trailing commas if need be.

    Raises:
        ConfigError: The file cannot be read, is not JSON, or defines something wrongly. The message names the file
            and the line or key; `.hint` says what to do.
    """
    file = Path(os.path.abspath(os.path.expanduser(path)))
    document = _decode(_text(file), file)
    return definitions(document, origin=str(file), base=str(file.parent))


def from_mapping(table: Mapping[str, Mapping[str, Any]], origin: str = "script") -> dict[str, ServerDefinition]:
    """The servers of a mapping from name to definition, or of a whole `{"mcpServers": {…}}`.

    Raises:
        ConfigError: As `read`, with `origin` in the file's place.
    """
    if "mcpServers" in table:
        return definitions(table, origin=origin, base=None)
    return servers(table, origin=origin, base=None)


def _text(file: Path) -> str:
    try:
        kind = file.stat().st_mode
        if stat.S_ISDIR(kind):
            raise ConfigError(f"{file}: is a folder", hint=f"name the file in it, such as {file / 'mcp.json'}")
        if not stat.S_ISREG(kind):
            raise ConfigError(f"{file}: is not a regular file", hint="name a file on disk")
        with file.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(f"{file}: no such file", hint="a relative path starts at the working folder") from None
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}", hint="check the file's permissions") from None
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{file}: larger than 10 MB", hint="is this a config file?")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{file}, line {line}: not UTF-8", hint="save the file as UTF-8") from None


def _decode(text: str, file: Path) -> Any:
    if not text.strip():
        raise ConfigError(f"{file}: is empty", hint=SHAPE)

    def once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        table: dict[str, Any] = {}
        for key, value in pairs:
            if key in table:
                raise ConfigError(f'{file}: "{key}" is defined twice in one object', hint="keep one of the two")
            table[key] = value
        return table

    try:
        return json.loads(text, object_pairs_hook=once)
    except json.JSONDecodeError as error:
        if len(text) > JSON5_MAX_BYTES:
            raise _syntax_error(file, error.lineno, error.colno, error.msg) from None
        strict = error
    except RecursionError:
        raise ConfigError(f"{file}: nested too deeply", hint=SHAPE) from None

    import json5  # only where plain JSON has failed: it is slow to import and to read

    try:
        return json5.loads(text, object_pairs_hook=once)
    except RecursionError:
        raise ConfigError(f"{file}: nested too deeply", hint=SHAPE) from None
    except ValueError as error:
        match = _JSON5_ERROR.fullmatch(str(error))
        if match is None:
            raise _syntax_error(file, strict.lineno, strict.colno, strict.msg) from None
        raise _syntax_error(file, int(match[1]), int(match[3]), match[2]) from None


def _syntax_error(file: Path, line: int, column: int, reason: str) -> ConfigError:
    printable = reason if reason.isprintable() else "Unexpected line break"
    hint = "look there, and just before, for a missing comma, quote or bracket"
    return ConfigError(f"{file}, line {line}, column {column}: not JSON: {printable}", hint=hint)
