"""Changes of ipymcp's own files, as the user asks for them: servers added, updated, removed, imported."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from ipymcp.config.convert import adopted, as_own
from ipymcp.config.definition import ServerDefinition, Source
from ipymcp.config.dialects import normal
from ipymcp.config.edit import edit, project_file
from ipymcp.config.files import read_each
from ipymcp.config.formats import definition_of, definitions
from ipymcp.config.hosts import HOSTS, read_host
from ipymcp.config.places import own_files, user_file
from ipymcp.config.shapes import Written, is_name, is_server, no_shape, shape_of
from ipymcp.errors import ConfigError, UnknownName
from ipymcp.runtime.names import nearest, quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ipymcp.runtime.host import Host

__all__ = ["Imported", "add", "import_from", "placed", "remove", "settings", "update"]

_TEXTS = frozenset({"command", "cwd", "url", "env_file", "era", "transport", "type", "restart"})
"""The keys whose values are texts, as they were typed."""
_TABLES_OF_TEXTS = frozenset({"env", "headers", "auth", "tools"})
_PASTED = "pasted"
_JSON = 'values are JSON, such as timeout=60 or inherit_env=["HOME"]; texts stand as they are'


class Imported(Struct, frozen=True):
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


def placed(text: str, host: Host, *, project: bool) -> str:
    """A path that was typed in the notebook's folder, as it stands in the file; what does not begin as one stays.

    The user's own servers run elsewhere, and a project's in the folder of its file.
    """
    if text not in (".", "..", "~") and not text.startswith(("./", "../", "~/", ".\\", "..\\")):
        return text
    path = os.path.normpath(os.path.join(host.folder, os.path.expanduser(text)))
    if not project or not os.path.samefile(host.folder, _target(host, project)[0].parent):
        return path
    return text


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
    given = _given(name, values, source)

    def alter(document: dict[str, Any]) -> None:
        servers = document["mcpServers"]
        for one in given:
            if one.name in servers:
                word = quoted(one.name)
                hint = f"%mcp config update {word} …, or %mcp config remove {word}"
                raise ConfigError(f"{file}: {one.name} is there already", hint=hint)
            _put(one, document, source)

    names = tuple(one.name for one in given)
    return Imported(_edit(file, alter, host, project, names), names, ())


def _given(name: str | None, values: Mapping[str, Any], source: Source) -> list[ServerDefinition]:
    """What is to be added: a definition, or those of a document."""
    if is_server(values) or shape_of(values, _PASTED) is None:
        if name is None and not is_server(values):
            raise no_shape(values, _PASTED)
        if name is None:
            raise ConfigError("the server needs a name", hint="%mcp config add NAME {…}, or a whole document")
        return [definition_of(Written(name, f"mcpServers.{name}", _changed({}, values)), "mcpServers", source, {})]
    found = definitions(values, Source(scope=source.scope, file=_PASTED))
    if name is None or not found:
        return list(found.values())
    if name not in found and len(found) > 1:
        hint = nearest(name, found) or "without a name, all of it is added"
        raise UnknownName(f"there is no server {name!r} in what was pasted", hint=hint)
    return [found.get(name) or next(iter(found.values())).replace(name=name)]


def update(name: str, values: Mapping[str, Any], host: Host, *, project: bool) -> Path:
    """Change some values of a server; None takes one out. Gives the file.

    Raises:
        ConfigError: ipymcp's own files do not define it, it would be wrong, or the file cannot be written.
    """
    file, source = _holder(name, host, project)

    def alter(document: dict[str, Any]) -> None:
        servers = document["mcpServers"]
        servers[name] = _changed(_ours(_entry(name, servers, file), values, source), values)
        _check(name, document, source)

    before = _standing_in(file, name, host)
    is_trusted = before is None or host.trusts(before)  # else what somebody else changed would come to be agreed to
    return _edit(file, alter, host, source.scope == "project", [name] if is_trusted else [])


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
    taken: list[str] = []

    def alter(document: dict[str, Any]) -> None:
        servers = document["mcpServers"]
        for one in chosen:
            if one.name in servers and not replace:
                notes.append(f"{one.name} is there already, and stays; --replace takes the imported one")
                continue
            _put(one, document, source)
            taken.append(one.name)

    if chosen:
        _edit(file, alter, host, project, taken)
    return Imported(file, tuple(taken), tuple(notes))


def _theirs(place: str, host: Host) -> tuple[dict[str, ServerDefinition], list[str]]:
    if place in HOSTS:
        found = read_host(place, host.folder)
        return dict(found.definitions), [error.message for error in found.problems]
    if "/" not in place and os.sep not in place and "." not in place:
        hint = nearest(place, HOSTS, limit=1) or f"a file's path, or one of {', '.join(HOSTS)}"
        raise UnknownName(f"there is no host {place!r} to import from", hint=hint)
    path = os.path.join(host.folder, os.path.expanduser(place))
    found = read_each(path)
    wrong = [entry.message for entry in found.values() if isinstance(entry, ConfigError)]
    return {name: adopted(entry) for name, entry in found.items() if not isinstance(entry, ConfigError)}, wrong


def _put(definition: ServerDefinition, document: dict[str, Any], source: Source) -> None:
    document["mcpServers"][definition.name] = as_own(definition)
    _add_inputs(document, definition)
    _check(definition.name, document, source)


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


def _ours(entry: Mapping[str, Any], values: Mapping[str, Any], source: Source) -> Mapping[str, Any]:
    """An entry, under our names where one of these values has another there, or means something else."""
    try:
        own, names = normal(entry, "mcpServers", source)
    except ConfigError:  # perhaps what is to be mended
        return entry
    return own if names.keys() & values.keys() else entry


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


def _edit(file: Path, alter: Any, host: Host, project: bool, agreed: Sequence[str] = ()) -> Path:
    """Change the file. What the user has had us write of the servers in `agreed` may run."""
    edit(file, alter, private=not project)
    host.discovery.read()  # we know that it has changed
    for name in agreed:
        written = _standing_in(file, name, host)
        if written is not None:
            host.agree(written)
    return file


def _standing_in(file: Path, name: str, host: Host) -> ServerDefinition | None:
    """A server as a file defines it, whatever shadows it."""
    found = host.discovery.read()
    everywhere = (found.servers.get(name), *found.shadowed.get(name, ()))
    return next((one for one in everywhere if isinstance(one, ServerDefinition) and str(one.source) == str(file)), None)


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
