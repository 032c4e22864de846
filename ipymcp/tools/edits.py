"""Changes of ipymcp's own files, as the user asks for them: servers added, updated, removed, imported."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from ipymcp.config.convert import adopted
from ipymcp.config.definition import ServerDefinition, Source
from ipymcp.config.edit import edit, project_file
from ipymcp.config.entries import changed, ours, put, standing
from ipymcp.config.files import read_each
from ipymcp.config.hosts import HOSTS, read_host
from ipymcp.config.places import own_files, user_file
from ipymcp.errors import ConfigError, UnknownName
from ipymcp.runtime.names import nearest, quoted
from ipymcp.tools.given import given

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ipymcp.runtime.host import Host

__all__ = ["Imported", "add", "import_from", "remove", "update"]


class Imported(Struct, frozen=True):
    """What an import did."""

    file: Path
    names: tuple[str, ...]
    notes: tuple[str, ...]


def add(name: str | None, values: Mapping[str, Any], host: Host, *, project: bool) -> Imported:
    """Write a new server, or all of a document.

    Args:
        name: What to call it; of a document with several, which of them.
        values: Its definition, or a document of any host.
        host: The notebook's.
        project: Whether to write the project's file, and not the user's own.

    Raises:
        ConfigError: There is one of that name, it is wrong, or the file cannot be written.
        UnknownName: The document has no server of that name.
    """
    file, source = _target(host, project)
    chosen = given(name, values, source)
    added: list[ServerDefinition] = []

    def alter(document: dict[str, Any]) -> None:
        servers = document["mcpServers"]
        for one in chosen:
            if one.name in servers:
                word = quoted(one.name)
                hint = f"%mcp config update {word} …, or %mcp config remove {word}"
                raise ConfigError(f"{file}: {one.name} is there already", hint=hint)
            added.append(put(one, document, source))

    _edit(file, alter, host, project, added)
    return Imported(file, tuple(one.name for one in added), ())


def update(name: str, values: Mapping[str, Any], host: Host, *, project: bool) -> Path:
    """Change some values of a server; None takes one out. Gives the file.

    Raises:
        ConfigError: ipymcp's own files do not define it, it would be wrong, or the file cannot be written.
    """
    file, source = _holder(name, host, project)
    agreed: list[ServerDefinition] = []

    def alter(document: dict[str, Any]) -> None:
        servers = document["mcpServers"]
        entry = _entry(name, servers, file)
        is_trusted = _is_trusted(name, document, source, host)
        servers[name] = changed(ours(entry, values, source), values)
        definition = standing(name, document, source)
        if is_trusted:  # else what somebody else changed would come to be agreed to
            agreed.append(definition)

    return _edit(file, alter, host, source.scope == "project", agreed)


def remove(name: str, host: Host, *, project: bool) -> Path:
    """Take a server out; gives the file. Raises as `update`."""
    file, source = _holder(name, host, project)

    def alter(document: dict[str, Any]) -> None:
        servers = document["mcpServers"]
        _entry(name, servers, file)
        del servers[name]

    return _edit(file, alter, host, source.scope == "project")


def import_from(place: str, names: Sequence[str], host: Host, *, project: bool, replace: bool) -> Imported:
    """Take another host's servers over, from its own files or from one that is named.

    Raises:
        UnknownName: No such host, or it has no such server.
        ConfigError: There is nothing to read, or the file cannot be written.
    """
    theirs, notes = _theirs(place, host)
    for name in names:
        if name not in theirs:
            raise UnknownName(f"{place} has no server {name!r}", hint=nearest(name, theirs) or ", ".join(theirs))
    chosen = [theirs[name] for name in names or theirs]
    file, source = _target(host, project)
    taken: list[ServerDefinition] = []

    def alter(document: dict[str, Any]) -> None:
        servers = document["mcpServers"]
        for one in chosen:
            if one.name in servers and not replace:
                notes.append(f"{one.name} is there already, and stays; --replace takes the imported one")
                continue
            taken.append(put(one, document, source))

    if chosen:
        _edit(file, alter, host, project, taken)
    return Imported(file, tuple(one.name for one in taken), tuple(notes))


def _theirs(place: str, host: Host) -> tuple[dict[str, ServerDefinition], list[str]]:
    if place in HOSTS:
        found = read_host(place, host.folder)
        return dict(found.definitions), [error.message for error in found.problems]
    if "/" not in place and os.sep not in place and "." not in place:
        hint = nearest(place, HOSTS, limit=1) or f"a file's path, or one of {', '.join(HOSTS)}"
        raise UnknownName(f"there is no host {place!r} to import from", hint=hint)
    path = os.path.abspath(os.path.join(host.folder, os.path.expanduser(place)))
    found = read_each(Source(scope="named", file=path, folder=os.path.dirname(path)))
    wrong = [entry.message for entry in found.values() if isinstance(entry, ConfigError)]
    return {name: adopted(entry) for name, entry in found.items() if not isinstance(entry, ConfigError)}, wrong


def _target(host: Host, project: bool) -> tuple[Path, Source]:
    file = project_file(host.folder) if project else Path(user_file())
    return file, Source(scope="project" if project else "user", file=str(file), folder=str(file.parent))


def _holder(name: str, host: Host, project: bool) -> tuple[Path, Source]:
    """Which of ipymcp's own files defines a server; the project's where that is asked for, or the user's does not."""
    file, source = _target(host, project)
    if project:
        return file, source
    own = {*own_files(), str(file)}
    found = host.discovery.peek()
    everywhere = [found.servers.get(name), *found.shadowed.get(name, ())]
    definitions = [one for one in everywhere if isinstance(one, ServerDefinition)]
    for one in sorted(definitions, key=lambda one: one.source.scope != "user"):
        place = str(one.source.file)
        is_projects = one.source.scope == "project" and place == os.path.join(one.source.folder or "", "mcp.json")
        if place in own or is_projects:
            return Path(place), one.source
    if definitions:
        hint = f"change it there, or copy it: %mcp config import {quoted(str(definitions[0].source))} {quoted(name)}"
        raise ConfigError(f"{name} is defined in {definitions[0].source}, which ipymcp does not write", hint=hint)
    return file, source


def _entry(name: str, servers: Mapping[str, Any], file: Path) -> Mapping[str, Any]:
    entry = servers.get(name)
    if not isinstance(entry, Mapping):
        raise ConfigError(
            f"{file}: defines no server {name!r}", hint=nearest(name, servers) or "%mcp config lists them"
        )
    return cast("Mapping[str, Any]", entry)


def _is_trusted(name: str, document: Mapping[str, Any], source: Source, host: Host) -> bool:
    """Whether a server may run as it stands, or could not anyhow."""
    try:
        return host.trusts(standing(name, document, source))
    except ConfigError:
        return True


def _edit(
    file: Path,
    alter: Callable[[dict[str, Any]], None],
    host: Host,
    project: bool,
    agreed: Sequence[ServerDefinition] = (),
) -> Path:
    """Change the file. What the user has had us write, which `alter` puts into `agreed`, may run."""
    edit(file, alter, private=not project)
    host.discovery.wrote(file)
    for definition in agreed:
        host.agree(definition)
    return file
