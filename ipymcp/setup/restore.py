"""`%mcp restore`: the servers and rules that this notebook had before its kernel was restarted.

Only what this user ran in this notebook on this machine comes back: a definition that was typed is stored in the
user's own database, one from a file has to be as it was, and a project's needs the user's agreement as ever.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field

from ipymcp.config.definition import ServerDefinition
from ipymcp.errors import ConfigError, McpError
from ipymcp.results.tables import Table
from ipymcp.security.rules import DECISIONS, Rule
from ipymcp.security.untrusted import refuse_models
from ipymcp.setup.load_request import remembered_definition
from ipymcp.text import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ipymcp.config.config_files import Configuration
    from ipymcp.runtime.host import Host
    from ipymcp.storage.notebooks import NotebookRule, UsedServer


class RestorePlan(Struct):
    """The servers and rules that can be restored.

    Attributes:
        definitions: The servers to load.
        originals: The definitions of their files, by name, of servers that were changed in a cell.
        rules: The decisions about tools, oldest first.
        disabled: The servers that are disabled in this notebook.
        notes: Why a server cannot be restored, or not as it was, by its name.
    """

    definitions: list[ServerDefinition] = field(default_factory=list[ServerDefinition])
    originals: dict[str, ServerDefinition] = field(default_factory=dict[str, ServerDefinition])
    rules: Sequence[NotebookRule] = ()
    disabled: frozenset[str] = frozenset()
    notes: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def started(self) -> list[str]:
        """The names of the servers that are started."""
        return [one.name for one in self.definitions if one.name not in self.disabled]

    @property
    def missing(self) -> dict[str, str]:
        """Why a server cannot be restored, by its name."""
        restored = {one.name for one in self.definitions}
        return {name: why for name, why in self.notes.items() if name not in restored}


async def plan(host: Host) -> RestorePlan:
    """Find out what this notebook had, and what of it can be restored.

    Raises:
        McpError: It is not known which notebook this is.
        PolicyError: The running code is a model's.
    """
    import asyncio

    refuse_models("restore servers")
    if host.remembered_as is None:
        raise McpError("there is no notebook here whose servers are known", hint="mcp.load(…) loads servers")
    return await asyncio.to_thread(_plan, host, host.remembered_as)


def _plan(host: Host, notebook: str) -> RestorePlan:
    decided = host.store.notebooks.rules(notebook)
    found = RestorePlan(
        rules=[one for one in decided if one.kind != "server"],
        disabled=frozenset(one.pattern for one in decided if one.kind == "server" and one.decision == "off"),
    )
    used = host.used_servers()
    configuration = host.discovery.read() if any(one.file for one in used) else None
    for one in used:
        try:
            definition = _definition(one, configuration, host, found)
        except McpError as error:
            found.notes[one.name] = f"{error.message} · {error.hint}" if error.hint else error.message
        else:
            found.definitions.append(definition)
    return found


def _definition(
    used: UsedServer, configuration: Configuration | None, host: Host, found: RestorePlan
) -> ServerDefinition:
    from ipymcp.security.trust import digest_of

    if not used.file:
        return remembered_definition(used)
    written = configuration.servers.get(used.name) if configuration is not None else None
    if isinstance(written, ConfigError):
        raise written
    again = f"%mcp load {quoted(used.file)} {quoted(used.name)}"
    if written is None or written.source.file != used.file:
        entry = host.discovery.read_named(host.discovery.named(Path(used.file))).get(used.name)
        if isinstance(entry, ConfigError):
            raise entry
        if entry is None:
            raise ConfigError(f"{used.file} no longer defines it", hint="%mcp config lists what is defined")
        written = entry
    if digest_of(written) != used.original:
        if written.source.scope == "named":  # nothing else would ask about it
            raise ConfigError(f"its definition in {used.file} has changed", hint=again)
        found.notes[used.name] = f"its definition in {used.file} has changed, and is loaded as it is there now"
        return written
    if used.changes:
        found.originals[used.name] = written
    return _changed(written, used)


def _changed(written: ServerDefinition, used: UsedServer) -> ServerDefinition:
    """A definition of a file with the values that the user gave it in a cell."""
    import msgspec

    values = {**msgspec.to_builtins(written), **used.changes}
    return msgspec.convert(values, ServerDefinition)


async def load(host: Host, found: RestorePlan, *, wait: bool = True, again: bool = True) -> None:
    """Restore what was found. A project's server that you have not agreed to is asked about.

    Args:
        host: The host of the notebook.
        found: What can be restored.
        wait: Whether to wait until each server is ready or has failed.
        again: Whether to ask again about servers that the user has refused.
    """
    policy = host.guard.policy
    for one in found.rules:
        if one.kind == "tool":
            policy.filters.set(one.pattern, allowed=one.decision == "on")
        elif one.decision in DECISIONS:
            policy.add_rule(Rule(one.pattern, one.decision, "this notebook", one.digest, doubted=one.doubted))
    definitions = [one.replace(disabled=True) if one.name in found.disabled else one for one in found.definitions]
    originals = {name: one for name, one in found.originals.items() if name not in found.disabled}
    sessions = await host.load(definitions, wait=wait, again=again, originals=originals, remember=False)
    for session, definition in zip(sessions, found.definitions, strict=True):
        session.definition = definition  # it is disabled in this notebook, and not by its definition


def outcome(host: Host, found: RestorePlan) -> Table:
    """A table of what was restored, with a note on each server that could not be, or not as it was."""
    sessions = [host.sessions[definition.name] for definition in found.definitions]
    rows = [(session.name, session.state.record.label, session.last_error) for session in sessions]
    owners = {session.rights.digest: f"{session.name}." for session in host.sessions.values()}
    for one in found.rules:
        decision = {"on": "enabled", "off": "disabled"}.get(one.decision, one.decision)
        rows.append((owners.get(one.digest, "") * bool(one.digest) + one.pattern, decision, ""))
    rows += [(name, "not restored", "") for name in found.missing]
    notes = [f"{name}: {why}" for name, why in found.notes.items()]
    if not rows:
        notes = [f"{host.rememberer} used nothing that is not here"]
    return Table(("what", "is", "last error"), rows, title="MCP restored", note=" · ".join(notes))
