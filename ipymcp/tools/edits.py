"""Changes of ipymcp's own files, as the user asks for them: servers added, updated, removed, imported.

What the user typed may run; what is changed may run if the user had agreed to it before; what is imported from a file
may run once the user has been shown it and agreed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from ipymcp.config.convert import adopted
from ipymcp.config.definition import ServerDefinition, Source
from ipymcp.config.edit import edit, editable, project_file
from ipymcp.config.entries import changed, ours, put, standing
from ipymcp.config.files import read_each
from ipymcp.config.hosts import HOSTS, read_host
from ipymcp.config.places import own_files, user_file
from ipymcp.errors import ConfigError, UnknownName
from ipymcp.policy.trust import Grant
from ipymcp.runtime.names import nearest
from ipymcp.text import quoted
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

    _edit(file, alter, host, project)
    for one in added:
        host.loop.run(host.guard.trust.agree_to_typed(one))
    return Imported(file, tuple(one.name for one in added), ())


def update(name: str, values: Mapping[str, Any], host: Host, *, project: bool) -> Path:
    """Change some values of a server; None takes one out. Gives the file.

    Raises:
        ConfigError: ipymcp's own files do not define it, it would be wrong, or the file cannot be written.
    """
    file, source = _holder(name, host, project)
    updated: list[tuple[Grant | None, ServerDefinition]] = []

    def alter(document: dict[str, Any]) -> None:
        servers = document["mcpServers"]
        entry = _entry(name, servers, file)
        grant = _grant(name, document, source, host)  # before it is changed
        servers[name] = changed(ours(entry, values, source), values)
        updated.append((grant, standing(name, document, source)))

    _edit(file, alter, host, source.scope == "project")
    for grant, definition in updated:
        host.loop.run(host.guard.trust.carry_over(grant, definition))
    return file


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

    Another host's own files are the user's. Of any other file the user is shown what would run, and asked.

    Raises:
        UnknownName: No such host, or it has no such server.
        ConfigError: There is nothing to read, or the file cannot be written.
        TrustError: Nobody could be asked whether it may run.
    """
    theirs, notes = _theirs(place, host)
    for name in names:
        if name not in theirs:
            raise UnknownName(f"{place} has no server {name!r}", hint=nearest(name, theirs) or ", ".join(theirs))
    file, source = _target(host, project)
    scratch = editable(file)[1]
    there = frozenset(scratch["mcpServers"])
    chosen: list[ServerDefinition] = []
    for one in (theirs[name] for name in names or theirs):
        if one.name in there and not replace:
            notes.append(f"{one.name} is there already, and stays; --replace takes the imported one")
        else:
            chosen.append(one)
    shown: dict[str, ServerDefinition] = {}
    granted: Mapping[str, Grant] = {one.name: Grant() for one in chosen}
    if chosen and place not in HOSTS:
        shown = {one.name: put(one, scratch, source) for one in chosen}  # as it will stand
        asked = [one.shadowing(str(file)) if one.name in there else one for one in shown.values()]
        answer = host.loop.run(host.guard.trust.ask_about_import(_path(place, host), str(file), asked))
        notes += [f"{name} is not imported: {why}" for name, why in answer.refused.items()]
        chosen = [one for one in chosen if one.name not in answer.refused]
        granted = answer.granted
    taken: list[ServerDefinition] = []

    def alter(document: dict[str, Any]) -> None:
        for one in chosen:
            definition = put(one, document, source)
            if shown.get(one.name, definition) != definition:
                raise ConfigError(f"{file}: has changed meanwhile", hint="import it again")
            taken.append(definition)

    if chosen:
        _edit(file, alter, host, project)
    for one in taken:
        host.loop.run(host.guard.trust.carry_over(granted.get(one.name), one))
    return Imported(file, tuple(one.name for one in taken), tuple(notes))


def _path(place: str, host: Host) -> str:
    return os.path.abspath(os.path.join(host.folder, os.path.expanduser(place)))


def _theirs(place: str, host: Host) -> tuple[dict[str, ServerDefinition], list[str]]:
    if place in HOSTS:
        found = read_host(place, host.folder)
        return dict(found.definitions), [error.message for error in found.problems]
    if "/" not in place and os.sep not in place and "." not in place:
        hint = nearest(place, HOSTS, limit=1) or f"a file's path, or one of {', '.join(HOSTS)}"
        raise UnknownName(f"there is no host {place!r} to import from", hint=hint)
    path = _path(place, host)
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


def _grant(name: str, document: Mapping[str, Any], source: Source, host: Host) -> Grant | None:
    """What the user agreed to for a server as it stands: nothing, where it cannot be read."""
    try:
        definition = standing(name, document, source)
    except ConfigError:
        return None
    return host.loop.run(host.guard.trust.grant(definition))


def _edit(file: Path, alter: Callable[[dict[str, Any]], None], host: Host, project: bool) -> Path:
    edit(file, alter, private=not project)
    host.discovery.wrote(file)
    return file
