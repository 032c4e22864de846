"""Changes to ipymcp's own config files, the only ones it writes: atomic, one kernel at a time.

A file with comments or trailing commas is refused, for they would be lost; so is one of another host's shape.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ipymcp.config.discovery import file_owners, project_folders
from ipymcp.config.export import as_own
from ipymcp.config.parsing import RawServer, definition_of, is_name, normal, shape_of
from ipymcp.config.paths import is_root
from ipymcp.config.reading import load_if_there
from ipymcp.errors import ConfigError
from ipymcp.files import PRIVATE, SHARED, make_folder, make_private_folder, write_file, write_hint

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from ipymcp.config.definition import ServerDefinition, Source


def put(definition: ServerDefinition, document: dict[str, Any], source: Source) -> ServerDefinition:
    """Write a definition; gives it as it stands then."""
    document["mcpServers"][definition.name] = as_own(definition)
    _add_inputs(document, definition)
    return standing(definition.name, document, source)


def _add_inputs(document: dict[str, Any], definition: ServerDefinition) -> None:
    there = document.get("inputs")
    inputs = cast("list[Mapping[str, Any]]", there) if isinstance(there, list) else []
    known = {one.get("id") for one in inputs}
    new = [dict(described) for name, described in definition.inputs.items() if name not in known]
    if new:
        document["inputs"] = [*inputs, *new]


def changed(entry: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """An entry with these values; None takes one out, and a table's are changed one by one."""
    result = dict(entry)
    for key, value in values.items():
        before = result.get(key)
        if isinstance(value, Mapping) and (before is None or isinstance(before, Mapping)):
            table = changed(cast("Mapping[str, Any]", before or {}), cast("Mapping[str, Any]", value))
            value = table or None
        if value is None:
            result.pop(key, None)
        else:
            result[key] = value
    return result


def ours(entry: Mapping[str, Any], values: Mapping[str, Any], source: Source) -> Mapping[str, Any]:
    """An entry, under our names where one of these values has another there, or means something else."""
    try:
        own, names = normal(entry, "mcpServers", source)
    except ConfigError:  # perhaps what is to be mended
        return entry
    return own if names.keys() & values.keys() else entry


def standing(name: str, document: Mapping[str, Any], source: Source) -> ServerDefinition:
    """A server as the document defines it; raises where that could not be read again."""
    if not is_name(name):
        raise ConfigError(f"{name!r} is no name of a server", hint="use a text that can be seen")
    listed = cast("list[Mapping[str, Any]]", document.get("inputs") or [])
    inputs = {str(one.get("id")): one for one in listed}
    written = RawServer(name, f"mcpServers.{name}", document["mcpServers"][name])
    return definition_of(written, "mcpServers", source, inputs)


_INDENT = re.compile(r"\n([ \t]+)\S")
_TIMEOUT = 5.0
"""Seconds to wait for another kernel that writes the same file."""


def project_file(folder: str) -> Path:
    """The project's `mcp.json`: the nearest there is, else one in the repository's root, else in this folder.

    Raises:
        ConfigError: The folder is home, and in no project.
    """
    folders = list(project_folders(folder))
    if not folders:
        raise ConfigError(f"{folder} belongs to no project", hint="leave --project out: the user's own file is for all")
    there = next((place for place in folders if os.path.lexists(os.path.join(place, "mcp.json"))), None)
    return Path(there or (folders[-1] if is_root(folders[-1]) else folders[0]), "mcp.json")


def edit(file: Path, alter: Callable[[dict[str, Any]], None], *, private: bool) -> None:
    """Change one of ipymcp's own files; it is made if need be.

    Args:
        file: Which.
        alter: Is given the document, which has an object `mcpServers`, and changes it.
        private: Whether a new file is for the user's eyes only.

    Raises:
        ConfigError: It cannot be read or written, is another host's, or its comments would be lost.
    """
    file = Path(os.path.realpath(file.parent), file.name)
    try:
        make_private_folder(file.parent) if private else make_folder(file.parent)
        with _alone(file):
            text, document = editable(file)
            alter(document)
            write_file(file, _text(document, text), PRIVATE if private else SHARED)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be written: {error.strerror}", hint=write_hint(error)) from None


def editable(file: Path) -> tuple[str, dict[str, Any]]:
    """The text of one of ipymcp's own files, and the document that it is; an empty one where there is none.

    Raises:
        ConfigError: As `edit`, but for what writing could meet.
    """
    read = load_if_there(file, owners=file_owners())
    if read is None:
        return "", {"mcpServers": {}}
    if not read.is_plain:
        raise ConfigError(
            f"{file}: its comments would be lost", hint="change it in an editor; ipymcp reads it as it is"
        )
    shape = shape_of(read.data, str(file))
    document = dict(cast("Mapping[str, Any]", read.data))
    if shape is not None and "mcpServers" not in document:
        raise ConfigError(f"{file}: is another host's", hint="change it there; ipymcp reads it as it is")
    document["mcpServers"] = dict(cast("Mapping[str, Any]", document.get("mcpServers", {})))
    return read.text, document


def _text(document: Mapping[str, Any], before: str) -> bytes:
    """In the form that the file had."""
    found = _INDENT.search(before)
    indent: str | int = found[1] if found else 2
    end = "\n" if not before or before.endswith("\n") else ""
    try:
        return (json.dumps(document, indent=indent, ensure_ascii=False) + end).encode()
    except UnicodeEncodeError:  # half a surrogate pair
        return (json.dumps(document, indent=indent) + end).encode()


@contextlib.contextmanager
def _alone(file: Path) -> Generator[None]:
    """Hold the file's folder against other kernels, where the system can; the lock leaves nothing behind."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    descriptor = os.open(file.parent, os.O_RDONLY)
    try:
        deadline = time.monotonic() + _TIMEOUT
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ConfigError(f"{file}: another kernel is writing it", hint="try again") from None
                time.sleep(0.02)
            except OSError:  # a file system without locks
                break
        yield
    finally:
        os.close(descriptor)
