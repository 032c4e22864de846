"""Display of the configuration, and changes to ipymcp's own files.

A definition that the user has typed may run. A copied or changed definition may run if the user had approved the
original. A definition that is imported from a file may run after the user has seen and approved it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct, structs

from ipymcp.config import unused_settings
from ipymcp.config.config_files import (
    changed,
    edit,
    editable,
    named_source,
    project_file,
    put,
    read_back,
    read_host,
    translated_entry,
    with_unit,
)
from ipymcp.config.definition import ServerDefinition, Source
from ipymcp.config.hosts import EXPORTED, HOSTS, IMPORTED, adopted, as_own, exported
from ipymcp.config.paths import own_files, user_file
from ipymcp.config.redaction import masked_definition, wanted_secrets
from ipymcp.config.variables import has_variables, references
from ipymcp.errors import ConfigError, UnknownName
from ipymcp.names import nearest
from ipymcp.results.tables import Table
from ipymcp.runtime.process_env import folder_of
from ipymcp.runtime.server_status import State
from ipymcp.security.trust import Grant
from ipymcp.security.untrusted import refuse_models
from ipymcp.setup.load_request import TYPED_SCOPES, read_definitions
from ipymcp.text import escaped, quoted, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ipymcp.config.config_files import Configuration
    from ipymcp.config.variables import Reference
    from ipymcp.runtime.host import Host


Row = tuple[str, str, str]
_ACTION = "change the configuration"


class ConfigListing:
    """A configuration document for another host, displayed with secrets masked; `.text` and `.data` are complete.

    Args:
        data: The document.
        shown: The document with secrets masked.
        notes: Lines about omitted parts.
    """

    def __init__(self, data: Mapping[str, Any], shown: Mapping[str, Any], notes: Sequence[str]) -> None:
        self.data = data
        self.notes = tuple(notes)
        self._shown = json.dumps(shown, indent=2, ensure_ascii=False)

    @property
    def text(self) -> str:
        """The whole document, as JSON."""
        return json.dumps(self.data, indent=2, ensure_ascii=False)

    def __repr__(self) -> str:
        masked = (
            "" if self._shown == self.text else "\n(likely secrets are masked here; .text is the complete document)"
        )
        return visible(self._shown) + masked

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": f"<pre>{escaped(repr(self))}</pre>"}


def listing(found: Configuration, host: Host) -> Table:
    """A table with a row per definition; a definition precedes those that it shadows."""
    rows: list[tuple[str, str, str, str]] = []
    for name, entry in found.servers.items():
        if isinstance(entry, ConfigError):
            rows.append((name, "", "error", entry.message))
            continue
        rows.append((name, _command_line(entry), _state(entry, host), _short(entry.source, host)))
        rows += [
            (name, _command_line(one), "shadowed", _short(one.source, host)) for one in found.shadowed.get(name, ())
        ]
    where = f"saves one in {user_file()}; a project's servers are in mcp.json, in {host.folder} or above it"
    note = "" if rows else f"no servers are configured: %mcp config add NAME -- COMMAND ARG… {where}"
    read = f"the notebook's folder is {host.folder}"
    return Table(("server", "runs", "state", "file"), rows, title="MCP configuration", note=note or read)


def explanation(name: str, found: Configuration, host: Host) -> Table:
    """A table of a server's values, each with the place where it is defined.

    Raises:
        ConfigError: The definition is invalid.
        UnknownName: The server is not defined anywhere.
    """
    session = host.sessions.get(name)
    entry = found.servers.get(name)
    shadowed: list[ServerDefinition] = list(found.shadowed.get(name, ()))
    loaded = session.definition if session is not None else None
    if loaded is not None and loaded.source.scope in TYPED_SCOPES:
        shadowed = [entry, *shadowed] if isinstance(entry, ServerDefinition) else shadowed
        entry = loaded
    if isinstance(entry, ConfigError):
        raise entry
    if entry is None:
        hint = nearest(name, [*found.servers, *host.sessions]) or "%mcp config lists them"
        raise UnknownName(f"no server {name!r} is configured here", hint=hint)
    rows = [*_values(entry), *_variables(entry, host), *_working_folder(entry, host)]
    rows += [("shadows", _command_line(one), one.source.where()) for one in shadowed]
    note = (
        ""
        if host.guard.trusts(entry)
        else f"it does not run before you have agreed to it: %mcp load {quoted(name)} asks"
    )
    title = f"{name}: from {entry.source}" + (f" ({entry.source.scope})" if entry.source.file else "")
    return Table(("value", "is", "from"), rows, title=title, note=note)


def export_to(target: str, names: Sequence[str], host: Host) -> ConfigListing:
    """Convert configured or loaded servers to another host's format.

    Raises:
        UnknownName: There is no such host or server.
    """
    if target not in EXPORTED:
        hint = nearest(target, EXPORTED, limit=1) or f"there are {', '.join(EXPORTED)}"
        raise UnknownName(f"there is no host {target!r} to export to", hint=hint)
    found = host.discovery.read().definitions
    loaded = {session.name: session.definition for session in host.sessions.values()}
    typed = {name: one for name, one in loaded.items() if name not in found or one.source.scope in TYPED_SCOPES}
    known = {**found, **typed}
    for name in names:
        if name not in known:
            raise UnknownName(f"no server {name!r} is configured here", hint=nearest(name, known) or "%mcp config")
    chosen = [known[name] for name in names or known]
    whole = exported(chosen, target, host.folder)
    shown = exported(map(masked_definition, chosen), target, host.folder)
    return ConfigListing(whole.document, shown.document, whole.notes)


def _short(source: Source, host: Host) -> str:
    """A file's path relative to the notebook's folder or the home folder."""
    path, home = str(source), os.path.expanduser("~")
    for folder, start in ((host.folder, ""), (home, f"~{os.sep}")):
        if path.startswith(folder + os.sep):
            return start + path[len(folder) + 1 :]
    return path


def _command_line(definition: ServerDefinition) -> str:
    shown = masked_definition(definition)
    return shown.url or " ".join([shown.command or "", *shown.args])


def _state(definition: ServerDefinition, host: Host) -> str:
    if definition.disabled:
        return "disabled"
    session = host.sessions.get(definition.name)
    if session is not None and session.definition == definition:
        return session.state.record.label
    if not host.guard.trusts(definition):
        return State.NEEDS_TRUST.record.label
    return "not loaded" if session is None else "changed"


def _values(definition: ServerDefinition) -> Iterator[Row]:
    shown, source = masked_definition(definition), definition.source
    for key, value in as_own(shown.replace(extra={})).items():
        items: list[tuple[str, Any]] = [("", value)]
        if isinstance(value, dict):
            items = list(cast("dict[str, Any]", value).items())
        for name, item in items:
            path = f"{key}.{name}" if name else key
            text = item if isinstance(item, str) else json.dumps(item, ensure_ascii=False)
            remark = f" ({source.remarks[path]})" if path in source.remarks else ""
            yield path, text, source.path(path) + remark
    for key in definition.extra:
        yield key, "kept, not used", source.path(key)


def _variables(definition: ServerDefinition, host: Host) -> Iterator[Row]:
    for one in references(definition):
        yield one.text, _variable_source(one, definition, host), definition.source.path(one.where)


def _variable_source(one: Reference, definition: ServerDefinition, host: Host) -> str:
    """A description of where a variable's value comes from, without the value."""
    if one.kind == "variable":
        if one.name in os.environ:
            return "a variable of this kernel"
        if one.name in definition.env and one.where != f"env.{one.name}":
            return "the definition's own env"
        return "unset: its default" if one.default is not None else "not set in this kernel"
    if one.kind == "input":
        return "asked for at the start" if one.name in definition.inputs else "not described"
    if one.kind == "secret":
        is_kept = any(kept.name == one.name for kept in host.store.secrets.kept())
        return "a kept secret" if is_kept else f"not kept: %mcp secret set {quoted(one.name)}"
    if one.kind == "file":
        return "the content of the file, at each start"
    return "a folder" if one.kind == "place" else "unknown to ipymcp"


def _working_folder(definition: ServerDefinition, host: Host) -> Iterator[Row]:
    if definition.command is None:
        return
    source = definition.source
    if definition.cwd is not None:
        reason = "its cwd"
    elif source.scope == "user":
        reason = "a private folder, as it has no cwd"
    else:
        reason = "the notebook's folder" if source.folder is None else "the folder of its file"
        if source.is_in_host_folder:
            reason = "the folder of its project"
    yield "runs in", folder_of(definition, host.folder), reason


class Imported(Struct, frozen=True):
    """The outcome of an import or addition."""

    file: Path
    names: tuple[str, ...]
    notes: tuple[str, ...]


def add(name: str | None, values: Mapping[str, Any], host: Host, *, project: bool, origin: str = "") -> Imported:
    """Write a new server, or all servers of a document.

    Args:
        name: The name of the server; for a document with several, the one to add.
        values: A definition, or a document of any host.
        host: The host of the notebook.
        project: Whether to write the project's file instead of the user's.
        origin: The link from which the values come, in which the user cannot read what would run; the user is asked.

    Raises:
        ConfigError: The name is taken, the definition is invalid, or the file cannot be written.
        UnknownName: The document has no server of that name.
        TrustError: No one could be asked.
    """
    file, source = _target(host, project)
    chosen = read_definitions(name, values, source)
    if origin:
        for one in chosen:
            _check_new(one.name, editable(file)[1]["mcpServers"], file)
        return _import(origin, chosen, [], host, project=project, replace=False, asks=True)
    added: list[ServerDefinition] = []

    def alter(document: dict[str, Any]) -> None:
        servers = document["mcpServers"]
        for one in chosen:
            _check_new(one.name, servers, file)
            added.append(put(one, document, source))

    _edit(file, alter, host, project)
    for one in added:
        host.loop.run(host.guard.trust.agree_to_typed(one))
    return Imported(file, tuple(one.name for one in added), tuple(unused_settings.lines(chosen)))


def _check_new(name: str, servers: Mapping[str, Any], file: Path) -> None:
    if name in servers:
        word = quoted(name)
        hint = f"%mcp config update {word} …, or %mcp config remove {word}"
        raise ConfigError(f"{file}: {name} is there already", hint=hint)


_STARTER: Mapping[str, Any] = {
    "//": "Each entry of mcpServers is a server: %mcp load starts those that are not disabled, %mcp config lists them."
    " Any key named // is a comment.",
    "mcpServers": {
        "example": {
            "//": "A program. A remote server has url, and perhaps headers, instead of command and args."
            ' Secrets stay out of this file: "env": {"TOKEN": "${TOKEN}"} is a variable of the kernel.',
            "command": "uvx",
            "args": ["mcp-server-time"],
            "disabled": True,
        }
    },
}


def create_starter_file(host: Host, *, project: bool) -> Path:
    """Create a config file with comments and one disabled example, and return its path.

    Raises:
        ConfigError: The file exists, or cannot be written.
    """
    file, _ = _target(host, project)

    def alter(document: dict[str, Any]) -> None:
        check()  # again, with the folder locked
        document.clear()
        document.update(_STARTER)

    def check() -> None:
        if os.path.lexists(file):
            hint = "%mcp config lists its servers, %mcp config add NAME -- COMMAND ARG… adds one"
            raise ConfigError(f"{file}: is there already", hint=hint)

    check()
    return _edit(file, alter, host, project)


def prepared(definition: ServerDefinition, host: Host, *, project: bool) -> ServerDefinition:
    """Return a definition in the form in which a file of ipymcp will have it, without writing it.

    Raises:
        ConfigError: The definition is invalid, or the file cannot be written.
    """
    file, source = _target(host, project)
    return put(definition, editable(file)[1], source)


def names_in_file(host: Host, *, project: bool) -> frozenset[str]:
    """Return the names of the servers in a file of ipymcp.

    Raises:
        ConfigError: The file cannot be written.
    """
    return frozenset(editable(_target(host, project)[0])[1]["mcpServers"])


def entry_in_file(name: str, host: Host, *, project: bool) -> ServerDefinition | None:
    """Return the definition of a server in a file of ipymcp; None if the file has none, or an invalid one.

    Raises:
        ConfigError: The file cannot be written.
    """
    file, source = _target(host, project)
    document = editable(file)[1]
    if name not in document["mcpServers"]:
        return None
    try:
        return read_back(name, document, source)
    except ConfigError:
        return None


def literal_secrets(names: Sequence[str], file: Path, host: Host) -> tuple[str, ...]:
    """Return the names of the settings of servers in a file whose values look like secrets."""
    found: dict[str, None] = {}

    def note(secret: str, name: str) -> str:
        if not has_variables(secret):
            found[name or "a value"] = None
        return secret

    for name in names:
        definition = entry_in_file(name, host, project=_target(host, False)[0] != file)
        if definition is not None:
            masked_definition(definition, note)
    return tuple(found)


async def save(definition: ServerDefinition, grant: Grant | None, host: Host, *, replaces: bool) -> None:
    """Write a server that was `prepared`, with the user's agreement to it; on the loop.

    Raises:
        ConfigError: The name is taken, or the file cannot be written.
        TrustError: The agreement is for another definition.
    """
    if grant is not None:
        await host.guard.trust.agreed_digest(grant, definition)  # before anything is written
    file, source = Path(str(definition.source.file)), definition.source

    def alter(document: dict[str, Any]) -> None:
        if definition.name in document["mcpServers"] and not replaces:
            raise ConfigError(f"{file}: {definition.name} is there already", hint="give it another name")
        put(definition, document, structs.replace(source, key="", names={}))

    await asyncio.to_thread(_edit, file, alter, host, source.scope == "project")
    await host.guard.trust.carry_over(grant, definition)


def written(name: str, host: Host) -> tuple[ServerDefinition, Source]:
    """Return a server of ipymcp's own files, and the source to write it to.

    Raises:
        ConfigError: ipymcp's own files do not define the server, or its definition is invalid.
    """
    file, source = _holder(name, host, False)
    document = editable(file)[1]
    _entry(name, document["mcpServers"], file)
    return read_back(name, document, source), source


def editable_text(name: str, host: Host) -> str:
    """Return a server's entry as JSON, to be changed by the user.

    Raises:
        ConfigError: ipymcp's own files do not define the server, or its definition shows a secret.
    """
    definition, _ = written(name, host)
    if masked_definition(definition) != definition:
        hint = f"%mcp config update {quoted(name)} KEY=VALUE changes single values; %mcp secret set NAME keeps secrets"
        raise ConfigError(f"{name} has what looks like a secret, which would be saved with the notebook", hint=hint)
    return json.dumps(as_own(definition), indent=2, ensure_ascii=False)


def masked_text(definition: ServerDefinition) -> str:
    """Return a server's entry as JSON with secrets masked; `unmasked` puts them back."""
    return json.dumps(as_own(masked_definition(definition)), indent=2, ensure_ascii=False)


def unmasked(values: Mapping[str, Any], original: ServerDefinition) -> dict[str, Any]:
    """Return an entry that the user has edited, with the original's secrets in place of their masks.

    Raises:
        ConfigError: Two secrets have the same mask.
    """
    masks: dict[str, set[str]] = {}
    _collect_masks(as_own(masked_definition(original)), as_own(original), masks)

    def restored(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: restored(item) for key, item in cast("Mapping[str, Any]", value).items()}
        if isinstance(value, list):
            return [restored(item) for item in cast("list[Any]", value)]
        secrets = masks.get(value, set[str]()) if isinstance(value, str) else set[str]()
        if len(secrets) > 1:
            raise ConfigError("two secrets look the same when they are masked", hint="enter them again")
        return next(iter(secrets), value)

    return cast("dict[str, Any]", restored(values))


def _collect_masks(shown: Any, original: Any, masks: dict[str, set[str]]) -> None:
    """Collect the originals of each masked text."""
    if isinstance(shown, str) and isinstance(original, str) and shown != original:
        masks.setdefault(shown, set()).add(original)
    elif isinstance(shown, Mapping) and isinstance(original, Mapping):
        for key, value in cast("Mapping[str, Any]", shown).items():
            _collect_masks(value, cast("Mapping[str, Any]", original).get(key), masks)
    elif isinstance(shown, list) and isinstance(original, list):
        for one, other in zip(cast("list[Any]", shown), cast("list[Any]", original), strict=False):
            _collect_masks(one, other, masks)


def rewrite(name: str, values: Mapping[str, Any], host: Host) -> Path:
    """Replace the definition of a server by the one that the user has edited, and return the file.

    As for `update`, the earlier agreement stays valid, and nothing is added to it.

    Raises:
        ConfigError: ipymcp's own files do not define the server, the definition is invalid, or the file cannot be
            written.
    """
    file, source = _holder(name, host, False)
    document = editable(file)[1]
    _entry(name, document["mcpServers"], file)
    grant = _grant(name, document, source, host)
    source = structs.replace(source, key="", names={})
    [one] = read_definitions(name, values, source, is_own=True)
    host.loop.run(save(put(one, document, source), grant, host, replaces=True))
    return file


def copy(name: str, new: str, host: Host) -> Path:
    """Write a copy of a server under another name to the same file. The agreement to the original applies to the copy.

    Raises:
        ConfigError: As for `written`, or the new name is taken.
    """
    definition, source = written(name, host)
    grant = host.loop.run(host.guard.trust.grant(definition))
    copied = definition.replace(name=new, source=structs.replace(source, key="", names={}))
    made = read_back(new, {"mcpServers": {new: as_own(copied)}, "inputs": [*definition.inputs.values()]}, source)
    host.loop.run(save(made, grant, host, replaces=False))
    return Path(str(source.file))


def update(name: str, values: Mapping[str, Any], host: Host, *, project: bool) -> Path:
    """Change some values of a server, where None removes a value, and return the file.

    Raises:
        ConfigError: ipymcp's own files do not define the server, the result is invalid, or the file cannot be written.
    """
    file, source = _holder(name, host, project)
    updated: list[tuple[Grant | None, ServerDefinition]] = []

    def alter(document: dict[str, Any]) -> None:
        servers = document["mcpServers"]
        entry = _entry(name, servers, file)
        grant = _grant(name, document, source, host)  # before the change
        before = translated_entry(entry, values, source)
        after = changed(before, values)
        servers[name] = with_unit(after, before) if "timeout" in values else after
        updated.append((grant, read_back(name, document, source)))

    _edit(file, alter, host, source.scope == "project")
    for grant, definition in updated:
        host.loop.run(host.guard.trust.carry_over(grant, definition))
    return file


def secret_prefix(server: str) -> str:
    """Return the prefix of the names of the secrets that are stored when a server is added."""
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", f"{server}-")
    return name if re.match(r"[A-Za-z_]", name) else f"_{name}"


class Removal(Struct, frozen=True):
    """A removed server's file, and the secrets that were deleted with it."""

    file: Path
    secrets: tuple[str, ...]


def remove(name: str, host: Host, *, project: bool) -> Removal:
    """Remove a server, and the secrets that were stored for it and that no other definition uses.

    Raises the errors of `update`.
    """
    file, source = _holder(name, host, project)
    wanted: list[str] = []

    def alter(document: dict[str, Any]) -> None:
        servers = document["mcpServers"]
        _entry(name, servers, file)
        with contextlib.suppress(ConfigError):
            wanted.extend(wanted_secrets(read_back(name, document, source)))
        del servers[name]

    _edit(file, alter, host, source.scope == "project")
    own = [secret for secret in wanted if secret.startswith(secret_prefix(name))]
    used = _used_secrets(name, str(file), host) if own else frozenset[str]()
    deleted = [one for one in own if used is not None and one not in used and host.store.secrets.delete(one)]
    return Removal(file, tuple(deleted))


def _used_secrets(removed: str, file: str, host: Host) -> frozenset[str] | None:
    """Return the secrets that are used by definitions other than a removed server's; None if a file cannot be read."""
    found = host.discovery.peek()
    if found.errors:
        return None
    loaded = (session.definition for session in host.sessions.values() if session.name != removed)
    definitions = [*found.definitions.values(), *itertools.chain(*found.shadowed.values()), *loaded]
    used = {secret for one in definitions for secret in wanted_secrets(one)}
    for one in host.loop.run(host.guard.trust.agreements()):  # also of other projects
        used |= one.secrets if (one.server, one.file) != (removed, file) else frozenset()
    return frozenset(used)


def import_from(place: str, names: Sequence[str], host: Host, *, project: bool, replace: bool) -> Imported:
    """Import servers from the files of another host, or from a given file.

    The user is asked about the servers of a given file, but not about those of another host, whose files are the
    user's own.

    Raises:
        UnknownName: There is no such host or server.
        ConfigError: There is nothing to read, or the file cannot be written.
        TrustError: No one could be asked whether the servers may run.
    """
    refuse_models(_ACTION)
    available, notes = _importable(place, host)
    for name in names:
        if name not in available:
            raise UnknownName(f"{place} has no server {name!r}", hint=nearest(name, available) or ", ".join(available))
    wanted = [available[name] for name in names or available]
    origin = place if place in IMPORTED else _path(place, host)
    return _import(origin, wanted, notes, host, project=project, replace=replace, asks=place not in IMPORTED)


def _import(
    origin: str,
    wanted: Sequence[ServerDefinition],
    notes: list[str],
    host: Host,
    *,
    project: bool,
    replace: bool,
    asks: bool,
) -> Imported:
    """Write servers that are defined elsewhere.

    Args:
        origin: The place of their definitions, for the question.
        wanted: The servers.
        notes: Lines for the user, which are completed.
        host: The host of the notebook.
        project: Whether to write the project's file instead of the user's.
        replace: Whether to replace servers of the same names.
        asks: Whether to ask the user about the servers.
    """
    file, source = _target(host, project)
    scratch = editable(file)[1]
    existing = frozenset(scratch["mcpServers"])
    chosen: list[ServerDefinition] = []
    for one in wanted:
        if one.name in existing and not replace:
            notes.append(f"{one.name} is there already, and is kept; --replace replaces it")
        else:
            chosen.append(one)
    shown: dict[str, ServerDefinition] = {}
    granted: Mapping[str, Grant] = {one.name: Grant() for one in chosen}
    if chosen and asks:
        shown = {one.name: put(one, scratch, source) for one in chosen}  # in the form in which they will be written
        asked = [one.shadowing(str(file)) if one.name in existing else one for one in shown.values()]
        answer = host.loop.run(host.guard.trust.ask_about_import(origin, str(file), asked))
        notes += [f"{name} is not imported: {why}" for name, why in answer.refused.items()]
        chosen = [one for one in chosen if one.name not in answer.refused]
        granted = answer.granted
    taken: list[ServerDefinition] = []

    def alter(document: dict[str, Any]) -> None:
        for one in chosen:
            definition = put(one, document, source)
            if shown.get(one.name, definition) != definition:
                raise ConfigError(f"{file}: has changed in the meantime", hint="import it again")
            taken.append(definition)

    if chosen:
        _edit(file, alter, host, project)
    for one in taken:
        host.loop.run(host.guard.trust.carry_over(granted.get(one.name), one))
    names = {one.name for one in taken}
    notes += unused_settings.lines(one for one in wanted if one.name in names)
    return Imported(file, tuple(one.name for one in taken), tuple(notes))


def _path(place: str, host: Host) -> str:
    return os.path.abspath(os.path.join(host.folder, os.path.expanduser(place)))


def _importable(place: str, host: Host) -> tuple[dict[str, ServerDefinition], list[str]]:
    if place in HOSTS and HOSTS[place].files is not None:
        found = read_host(place, host.folder)
        return dict(found.definitions), [error.message for error in found.problems]
    if "/" not in place and os.sep not in place and "." not in place:
        hint = nearest(place, IMPORTED, limit=1) or f"a file's path, or one of {', '.join(IMPORTED)}"
        raise UnknownName(f"there is no host {place!r} to import from", hint=hint)
    found = host.discovery.read_named(named_source(_path(place, host)))
    wrong = [entry.message for entry in found.values() if isinstance(entry, ConfigError)]
    return {name: adopted(entry) for name, entry in found.items() if not isinstance(entry, ConfigError)}, wrong


def _target(host: Host, project: bool) -> tuple[Path, Source]:
    file = project_file(host.folder) if project else Path(user_file())
    return file, Source(scope="project" if project else "user", file=str(file), folder=str(file.parent))


def _holder(name: str, host: Host, project: bool) -> tuple[Path, Source]:
    """The file of ipymcp that defines a server: the project's if `project` is true, else preferably the user's."""
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
    """The user's permission for the current definition of a server; None if the definition cannot be read."""
    try:
        definition = read_back(name, document, source)
    except ConfigError:
        return None
    return host.loop.run(host.guard.trust.grant(definition))


def _edit(file: Path, alter: Callable[[dict[str, Any]], None], host: Host, project: bool) -> Path:
    refuse_models(_ACTION)
    edit(file, alter, private=not project)
    host.discovery.ignore_change(file)
    return file
