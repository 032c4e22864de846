"""Atomic changes of ipymcp's own config files, by one kernel at a time.

A file with comments or trailing commas is refused, because they would be lost; so is a file in another host's format.
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

from ipymcp.config.discovery import project_folders
from ipymcp.config.export import as_own
from ipymcp.config.parsing import RawServer, definition_of, is_name, recognise_format, translated
from ipymcp.config.paths import is_root
from ipymcp.config.reading import load_if_there
from ipymcp.errors import ConfigError
from ipymcp.files import (
    PRIVATE,
    SHARED,
    make_folder,
    make_private_folder,
    trusted_owners,
    try_lock,
    write_file,
    write_hint,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from ipymcp.config.definition import ServerDefinition, Source


def put(definition: ServerDefinition, document: dict[str, Any], source: Source) -> ServerDefinition:
    """Add a definition to a document and return it as it is read back."""
    document["mcpServers"][definition.name] = as_own(definition)
    _add_inputs(document, definition)
    return read_back(definition.name, document, source)


def _add_inputs(document: dict[str, Any], definition: ServerDefinition) -> None:
    existing = document.get("inputs")
    inputs = cast("list[Mapping[str, Any]]", existing) if isinstance(existing, list) else []
    known = {one.get("id") for one in inputs}
    new = [dict(described) for name, described in definition.inputs.items() if name not in known]
    if new:
        document["inputs"] = [*inputs, *new]


def changed(entry: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry with some values changed; None removes a value, and objects are merged."""
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


def translated_entry(entry: Mapping[str, Any], values: Mapping[str, Any], source: Source) -> Mapping[str, Any]:
    """Return an entry, with our names for all keys if it uses another name for one of the values."""
    try:
        own, names = translated(entry, "", source)
    except ConfigError:  # perhaps the error that the change fixes
        return entry
    return own if names.keys() & values.keys() else entry


def read_back(name: str, document: Mapping[str, Any], source: Source) -> ServerDefinition:
    """Return a server of a document; raise `ConfigError` if it cannot be read back."""
    if not is_name(name):
        raise ConfigError(f"{name!r} is not a valid server name", hint="use visible characters")
    listed = cast("list[Mapping[str, Any]]", document.get("inputs") or [])
    inputs = {str(one.get("id")): one for one in listed}
    written = RawServer(name, f"mcpServers.{name}", document["mcpServers"][name])
    return definition_of(written, "", source, inputs)


_INDENT = re.compile(r"\n([ \t]+)\S")
_TIMEOUT = 5.0
"""Seconds to wait for another kernel that writes the same file."""


def project_file(folder: str) -> Path:
    """Return the project's `mcp.json`: the nearest existing one, else in the repository's root, else in this folder.

    Raises:
        ConfigError: The folder is home, which is not a project.
    """
    folders = list(project_folders(folder))
    if not folders:
        raise ConfigError(f"{folder} belongs to no project", hint="leave --project out: the user's own file is for all")
    existing = next((one for one in folders if os.path.lexists(os.path.join(one, "mcp.json"))), None)
    return Path(existing or (folders[-1] if is_root(folders[-1]) else folders[0]), "mcp.json")


def edit(file: Path, alter: Callable[[dict[str, Any]], None], *, private: bool) -> None:
    """Change or create one of ipymcp's own files.

    Args:
        file: The file.
        alter: Function that changes the document, which has an object `mcpServers`, in place.
        private: Create a new file readable by the user alone.

    Raises:
        ConfigError: The file cannot be read or written, is in another host's format, or has comments.
    """
    file = Path(os.path.realpath(file.parent), file.name)
    try:
        make_private_folder(file.parent) if private else make_folder(file.parent)
        with _locked(file):
            text, document = editable(file)
            alter(document)
            write_file(file, _text(document, text), PRIVATE if private else SHARED)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be written: {error.strerror}", hint=write_hint(error)) from None


def editable(file: Path) -> tuple[str, dict[str, Any]]:
    """Return the text and document of one of ipymcp's own files; an empty document if it does not exist.

    Raises:
        ConfigError: The file cannot be read, is in another host's format, or has comments.
    """
    read = load_if_there(file, owners=trusted_owners())
    if read is None:
        return "", {"mcpServers": {}}
    if not read.is_plain:
        raise ConfigError(
            f"{file}: its comments would be lost", hint="change it in an editor; ipymcp reads it as it is"
        )
    document_format = recognise_format(read.data, str(file))
    document = dict(cast("Mapping[str, Any]", read.data))
    if document_format is not None and "mcpServers" not in document:
        raise ConfigError(f"{file}: is in another host's format", hint="change it there; ipymcp reads it as it is")
    document["mcpServers"] = dict(cast("Mapping[str, Any]", document.get("mcpServers", {})))
    return read.text, document


def _text(document: Mapping[str, Any], before: str) -> bytes:
    """Encode a document with the indentation of the file's previous text."""
    found = _INDENT.search(before)
    indent: str | int = found[1] if found else 2
    end = "\n" if not before or before.endswith("\n") else ""
    try:
        return (json.dumps(document, indent=indent, ensure_ascii=False) + end).encode()
    except UnicodeEncodeError:  # half a surrogate pair
        return (json.dumps(document, indent=indent) + end).encode()


@contextlib.contextmanager
def _locked(file: Path) -> Generator[None]:
    """Lock the file's folder against other kernels, where the system supports it, without a lock file."""
    if os.name == "nt":  # folders cannot be locked
        yield
        return
    descriptor = os.open(file.parent, os.O_RDONLY)
    try:
        deadline = time.monotonic() + _TIMEOUT
        while not try_lock(descriptor):
            if time.monotonic() > deadline:
                raise ConfigError(f"{file}: another kernel is writing it", hint="try again")
            time.sleep(0.02)
        yield
    finally:
        os.close(descriptor)
