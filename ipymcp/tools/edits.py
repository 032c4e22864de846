"""Changes of ipymcp's own files, as the user asks for them: servers added, updated, removed, imported."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ipymcp.config.convert import adopted, as_own
from ipymcp.config.definition import ServerDefinition, Source
from ipymcp.config.edit import edit, project_file
from ipymcp.config.files import read
from ipymcp.config.formats import definition_of
from ipymcp.config.hosts import HOSTS, read_host
from ipymcp.config.places import own_files, user_file
from ipymcp.config.shapes import Written, is_name
from ipymcp.errors import ConfigError, UnknownName
from ipymcp.runtime.names import nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ipymcp.runtime.host import Host

__all__ = ["Imported", "add", "import_from", "remove", "settings", "update"]

_TEXTS = frozenset({"command", "cwd", "url", "env_file", "era", "transport", "type", "restart"})
"""The keys whose values are texts, as they were typed."""
_TABLES_OF_TEXTS = frozenset({"env", "headers", "auth", "tools"})
_JSON = 'values are JSON, such as timeout=60 or inherit_env=["HOME"]; texts stand as they are'


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import did."""

    file: Path
    names: tuple[str, ...]
    notes: tuple[str, ...]


def settings(pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """`key=value` as a change of a definition: `env.TOKEN` reaches into a table, an empty value takes a key out."""
    change: dict[str, Any] = {}
    for path, text in pairs:
        key, dot, inner = path.partition(".")
        value = None if not text else text if (dot and key in _TABLES_OF_TEXTS) or key in _TEXTS else _decoded(text)
        if dot:
            change[key] = {**(change.get(key) or {}), inner: value}
        else:
            change[key] = value
    return change


def add(name: str, values: Mapping[str, Any], host: Host, *, project: bool) -> Path:
    """Write a new server; gives the file.

    Raises:
        ConfigError: There is one of that name, it is wrong, or the file cannot be written.
    """
    file, source = _target(host, project)

    def alter(document: dict[str, Any]) -> None:
        servers = document["mcpServers"]
        if name in servers:
            hint = f"%mcp config update {name} …, or %mcp config remove {name}"
            raise ConfigError(f"{file}: {name} is there already", hint=hint)
        servers[name] = _changed({}, values)
        _check(name, document, source)

    _edit(file, alter, host, project)
    _agree(name, file, host)
    return file


def update(name: str, values: Mapping[str, Any], host: Host, *, project: bool) -> Path:
    """Change some values of a server; None takes one out. Gives the file.

    Raises:
        ConfigError: ipymcp's own files do not define it, it would be wrong, or the file cannot be written.
    """
    file, source = _holder(name, host, project)
    before = host.discovery.read().definitions.get(name)

    def alter(document: dict[str, Any]) -> None:
        servers = document["mcpServers"]
        servers[name] = _changed(_entry(name, servers, file), values)
        _check(name, document, source)

    _edit(file, alter, host, source.scope == "project")
    if before is not None and host.trusts(before):  # else there is more in it than the user typed
        _agree(name, file, host)
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

    Raises:
        UnknownName: No such host, or it has no such server.
        ConfigError: There is nothing to read, or the file cannot be written.
    """
    definitions, notes = _theirs(place, host)
    for name in names:
        if name not in definitions:
            raise UnknownName(
                f"{place} has no server {name!r}", hint=nearest(name, definitions) or ", ".join(definitions)
            )
    chosen = [definitions[name] for name in names or definitions]
    file, source = _target(host, project)
    taken: list[str] = []

    def alter(document: dict[str, Any]) -> None:
        servers = document["mcpServers"]
        for one in chosen:
            if one.name in servers and not replace:
                notes.append(f"{one.name} is there already, and stays; --replace takes the imported one")
                continue
            servers[one.name] = as_own(one)
            _add_inputs(document, one)
            _check(one.name, document, source)
            taken.append(one.name)

    if chosen:
        _edit(file, alter, host, project)
    return Imported(file, tuple(taken), tuple(notes))


def _theirs(place: str, host: Host) -> tuple[dict[str, ServerDefinition], list[str]]:
    if place in HOSTS:
        found = read_host(place, host.folder)
        return dict(found.definitions), [error.message for error in found.problems]
    if "/" not in place and os.sep not in place and "." not in place:
        hint = nearest(place, HOSTS, limit=1) or f"a file's path, or one of {', '.join(HOSTS)}"
        raise UnknownName(f"there is no host {place!r} to import from", hint=hint)
    path = os.path.join(host.folder, os.path.expanduser(place))
    return {name: adopted(one) for name, one in read(path).items()}, []


def _add_inputs(document: dict[str, Any], definition: ServerDefinition) -> None:
    there = document.get("inputs")
    inputs = cast("list[Mapping[str, Any]]", there) if isinstance(there, list) else []
    known = {one.get("id") for one in inputs}
    new = [dict(described) for name, described in definition.inputs.items() if name not in known]
    if new:
        document["inputs"] = [*inputs, *new]


def _target(host: Host, project: bool) -> tuple[Path, Source]:
    file = project_file(host.folder) if project else Path(user_file())
    return file, Source(scope="project" if project else "user", file=str(file), folder=str(file.parent))


def _holder(name: str, host: Host, project: bool) -> tuple[Path, Source]:
    """Which of ipymcp's own files defines a server; the project's where that is asked for, or the user's does not."""
    file, source = _target(host, project)
    if project:
        return file, source
    own = {*own_files(), str(file)}
    found = host.discovery.read()
    everywhere = [found.servers.get(name), *found.shadowed.get(name, ())]
    definitions = [one for one in everywhere if isinstance(one, ServerDefinition)]
    for one in sorted(definitions, key=lambda one: one.source.scope != "user"):
        if one.source.file in own or (one.source.scope == "project" and Path(str(one.source)).name == "mcp.json"):
            return Path(str(one.source)), one.source
    if definitions:
        hint = f"change it there, or copy it: %mcp config import {definitions[0].source} {name}"
        raise ConfigError(f"{name} is defined in {definitions[0].source}, which ipymcp does not write", hint=hint)
    return file, source


def _entry(name: str, servers: Mapping[str, Any], file: Path) -> Mapping[str, Any]:
    entry = servers.get(name)
    if not isinstance(entry, Mapping):
        raise ConfigError(
            f"{file}: defines no server {name!r}", hint=nearest(name, servers) or "%mcp config lists them"
        )
    return cast("Mapping[str, Any]", entry)


def _changed(entry: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """With these values; None takes one out, and a table's are changed one by one."""
    changed = dict(entry)
    for key, value in values.items():
        before = changed.get(key)
        if isinstance(value, Mapping) and (before is None or isinstance(before, Mapping)):
            table = _changed(cast("Mapping[str, Any]", before or {}), cast("Mapping[str, Any]", value))
            value = table or None
        if value is None:
            changed.pop(key, None)
        else:
            changed[key] = value
    return changed


def _check(name: str, document: Mapping[str, Any], source: Source) -> None:
    """Raise where what is to be written could not be read again."""
    if not is_name(name):
        raise ConfigError(f"{name!r} is no name of a server", hint="use a text that can be seen")
    listed = cast("list[Mapping[str, Any]]", document.get("inputs") or [])
    inputs = {str(one.get("id")): one for one in listed}
    definition_of(Written(name, f"mcpServers.{name}", document["mcpServers"][name]), "mcpServers", source, inputs)


def _edit(file: Path, alter: Any, host: Host, project: bool) -> Path:
    edit(file, alter, private=not project)
    host.discovery.read()  # we know that it has changed
    return file


def _agree(name: str, file: Path, host: Host) -> None:
    """What the user typed into a project's file may run."""
    definition = host.discovery.read().definitions.get(name)
    if definition is not None and definition.source.file == str(file):
        host.agree(definition)


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
