"""The configuration as the user sees it: every server that was found, and each value of one with its origin."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, cast

from ipymcp.config.convert import TARGETS, as_own, exported
from ipymcp.config.definition import ServerDefinition
from ipymcp.config.places import user_file
from ipymcp.config.secrecy import masked_definition
from ipymcp.config.variables import references
from ipymcp.errors import ConfigError, UnknownName
from ipymcp.runtime.folders import folder_of
from ipymcp.runtime.names import nearest
from ipymcp.runtime.states import State
from ipymcp.text import escaped, quoted, visible
from ipymcp.tools.tables import Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ipymcp.config.definition import Source
    from ipymcp.config.discovery import Configuration
    from ipymcp.config.variables import Reference
    from ipymcp.runtime.host import Host

__all__ = ["Document", "explanation", "export_to", "listing"]

_TYPED = frozenset({"cell", "script", "named"})
"""The scopes of definitions that are nearer than any file that was found."""
Row = tuple[str, str, str]


class Document:
    """A document of another host. What it shows is masked; `.text` and `.data` hold all of it, to be copied.

    Args:
        data: What to write.
        shown: The same as it may be shown.
        notes: What is not in it, a line each.
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
        masked = "" if self._shown == self.text else "\n(what looks secret is masked here; .text has all of it)"
        return visible(self._shown) + masked

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": f"<pre>{escaped(repr(self))}</pre>"}


def listing(found: Configuration, host: Host) -> Table:
    """One row a definition, nearest first."""
    rows: list[tuple[str, str, str, str]] = []
    for name, entry in found.servers.items():
        if isinstance(entry, ConfigError):
            rows.append((name, "", "error", entry.message))
            continue
        rows.append((name, _runs(entry), _state(entry, host), _short(entry.source, host)))
        rows += [(name, _runs(one), "shadowed", _short(one.source, host)) for one in found.shadowed.get(name, ())]
    where = f"keeps one in {user_file()}; a project's stand in mcp.json, in {host.folder} or above it"
    note = "" if rows else f"no servers are configured: %mcp config add NAME -- COMMAND ARG… {where}"
    read = f"the notebook's folder is {host.folder}"
    return Table(("server", "runs", "state", "file"), rows, title="MCP configuration", note=note or read)


def explanation(name: str, found: Configuration, host: Host) -> Table:
    """One row a value of a server: what it is, and where it stands.

    Raises:
        ConfigError: Its definition is wrong.
        UnknownName: It is nowhere defined.
    """
    session = host.sessions.get(name)
    entry = found.servers.get(name)
    farther: list[ServerDefinition] = list(found.shadowed.get(name, ()))
    loaded = session.definition if session is not None else None
    if loaded is not None and loaded.source.scope in _TYPED:
        farther = [entry, *farther] if isinstance(entry, ServerDefinition) else farther
        entry = loaded
    if isinstance(entry, ConfigError):
        raise entry
    if entry is None:
        hint = nearest(name, [*found.servers, *host.sessions]) or "%mcp config lists them"
        raise UnknownName(f"no server {name!r} is configured here", hint=hint)
    rows = [*_values(entry), *_variables(entry, host), *_place(entry, host)]
    rows += [("shadows", _runs(one), one.source.where()) for one in farther]
    note = "" if host.trusts(entry) else f"it does not run before you agreed to it: %mcp load {quoted(name)} asks"
    title = f"{name}: from {entry.source}" + (f" ({entry.source.scope})" if entry.source.file else "")
    return Table(("value", "is", "from"), rows, title=title, note=note)


def export_to(target: str, names: Sequence[str], host: Host) -> Document:
    """Servers as another host writes them: those that are configured, or loaded under these names.

    Raises:
        UnknownName: No such host, or no such server.
    """
    if target not in TARGETS:
        hint = nearest(target, TARGETS, limit=1) or f"there are {', '.join(TARGETS)}"
        raise UnknownName(f"there is no host {target!r} to export to", hint=hint)
    found = host.discovery.read().definitions
    loaded = {session.name: session.definition for session in host.sessions.values()}
    typed = {name: one for name, one in loaded.items() if name not in found or one.source.scope in _TYPED}
    known = {**found, **typed}
    for name in names:
        if name not in known:
            raise UnknownName(f"no server {name!r} is configured here", hint=nearest(name, known) or "%mcp config")
    chosen = [known[name] for name in names or known]
    whole = exported(chosen, target, host.folder)
    shown = exported(map(masked_definition, chosen), target, host.folder)
    return Document(whole.document, shown.document, whole.notes)


def _short(source: Source, host: Host) -> str:
    """A file as it may be typed in the notebook's folder."""
    path, home = str(source), os.path.expanduser("~")
    for folder, start in ((host.folder, ""), (home, f"~{os.sep}")):
        if path.startswith(folder + os.sep):
            return start + path[len(folder) + 1 :]
    return path


def _runs(definition: ServerDefinition) -> str:
    shown = masked_definition(definition)
    return shown.url or " ".join([shown.command or "", *shown.args])


def _state(definition: ServerDefinition, host: Host) -> str:
    if definition.disabled:
        return "disabled"
    session = host.sessions.get(definition.name)
    if session is not None and session.definition == definition:
        return session.state.word
    if not host.trusts(definition):
        return State.NEEDS_TRUST.word
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
            yield path, text, source.path(path)
    for key in definition.extra:
        yield key, "kept, not used", source.path(key)


def _variables(definition: ServerDefinition, host: Host) -> Iterator[Row]:
    for one in references(definition):
        yield one.text, _standing(one, definition, host), definition.source.path(one.where)


def _standing(one: Reference, definition: ServerDefinition, host: Host) -> str:
    """What a variable stands for, without its value."""
    if one.kind == "variable":
        if one.name in os.environ:
            return "a variable of this kernel"
        if one.name in definition.env and one.where != f"env.{one.name}":
            return "the definition's own env"
        return "unset: its default" if one.default is not None else "not set in this kernel"
    if one.kind == "input":
        return "asked for at the start" if one.name in definition.inputs else "described nowhere"
    if one.kind == "secret":
        is_kept = any(kept.name == one.name for kept in host.state.secrets.kept())
        return "a kept secret" if is_kept else f"not kept: %mcp secret set {quoted(one.name)}"
    return "a folder" if one.kind == "place" else "nothing ipymcp knows"


def _place(definition: ServerDefinition, host: Host) -> Iterator[Row]:
    if definition.command is None:
        return
    source = definition.source
    if definition.cwd is not None:
        why = "its cwd"
    elif source.scope == "user":
        why = "a private folder, as it has no cwd"
    else:
        why = "the notebook's folder" if source.folder is None else "the folder of its file"
    yield "runs in", folder_of(definition, host.folder), why
