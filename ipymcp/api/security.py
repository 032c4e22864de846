"""`mcp.policy`, `pins`, `trust` and `secret`: which servers may run, which tools may be called, and stored secrets."""

from __future__ import annotations

import asyncio
import time
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ipymcp.api.sync_and_async import sync_and_async
from ipymcp.argument_checks import FLAG, PATH, TEXT, checked
from ipymcp.errors import SecretError, UnknownName
from ipymcp.names import RESERVED_HOST, aliases, matches, nearest
from ipymcp.results.tables import Table, TableView
from ipymcp.runtime.catalog import ToolEntry
from ipymcp.runtime.server_status import State
from ipymcp.security.pins import INSTRUCTIONS, LOCK_FILE, canonical, described_instructions, diff, write_lock
from ipymcp.security.rules import CALLERS, USUAL, Rule, full_pattern
from ipymcp.security.scanner import look_alikes
from ipymcp.security.trust import digest_of
from ipymcp.security.untrusted import refuse_models
from ipymcp.text import escaped, one_line, visible

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping

    from ipymcp.runtime.host import Host
    from ipymcp.runtime.session import ServerSession
    from ipymcp.security.pins import Pin
    from ipymcp.security.rules import Decision
    from ipymcp.storage.secrets import StoredSecret


_HERE = "this notebook"
_DECIDES = "decides"
_MAX_CHANGED = 10


class ToolPolicy(TableView):
    """The rules for calls: `mcp.policy.deny("fs.write_*")`, `mcp.policy.explain("fs.write_file")`.

    Args:
        host: The host whose calls the rules are for.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._policy = host.guard.policy

    @sync_and_async
    @checked(patterns=TEXT, always=FLAG, doubted=FLAG)
    async def allow(self, *patterns: str, always: bool = False, doubted: bool = False) -> None:
        """Allow calls of tools by any caller, for the current definitions of the loaded servers.

            mcp.policy.allow("demo.query")

        Args:
            patterns: Globs for `server.tool`; a name without a dot matches all tools of that server.
            always: Save the rule for all notebooks.
            doubted: Also allow calls of a model that has read untrusted content, which otherwise need your approval.
                For programs in which no one can be asked.

        Raises:
            UnknownName: A pattern matches no loaded server.
        """
        await self._host.relisted(patterns)
        owners = [owner for pattern in patterns for owner in self._owners(pattern)]  # an unknown one allows nothing
        for session, glob in owners:
            digest = session.rights.digest or await asyncio.to_thread(digest_of, session.definition)
            await self._decide(glob, "allow", digest, session.name, always=always, doubted=doubted)

    @sync_and_async
    @checked(patterns=TEXT, always=FLAG)
    async def ask(self, *patterns: str, always: bool = False) -> None:
        """Ask the user about calls of tools by any caller. Arguments as for `allow`.

        For example `mcp.policy.ask("demo.plot")`.
        """
        await self._host.relisted(patterns)
        for pattern in patterns:
            await self._decide(self._by_name(pattern), "ask", always=always)

    @sync_and_async
    @checked(patterns=TEXT, always=FLAG)
    async def deny(self, *patterns: str, always: bool = False) -> None:
        """Refuse calls of tools by any caller. Arguments as for `allow`.

        For example `mcp.policy.deny("demo.fail*")`.
        """
        await self._host.relisted(patterns)
        for pattern in patterns:
            await self._decide(self._by_name(pattern), "deny", always=always)

    @sync_and_async
    @checked(always=FLAG)
    async def reset(self, always: bool = False) -> None:
        """Remove all rules of this notebook.

            mcp.policy.reset()

        Args:
            always: Also remove all saved rules.
        """
        refuse_models("change the policy")
        self._policy.reset()
        if always:
            await self._host.guard.remembered().forget()
            await self._host.guard.refresh()

    @checked(name=TEXT)
    def explain(self, name: str) -> Table:
        """The rules that match a tool, in order, for each kind of caller; the last one decides.

            mcp.policy.explain("demo.query")

        Args:
            name: The tool as `server.tool`.
        """
        session, tool = self._host.resolve(name)
        entry = self._host.entry(session, tool)
        rows: list[tuple[str, str, str, str]] = []
        for caller in CALLERS:
            verdict = self._policy.verdict(entry, session.rights, caller)
            rules = self._policy.rules(entry, session.rights, caller)
            rows += [(caller, rule.decision, f"{rule.pattern} ({rule.origin})", "") for rule in rules]
            if verdict.decision == "deny" and rules[-1].decision != "deny":
                rows.append((caller, "deny", verdict.why, ""))
            rows[-1] = (*rows[-1][:3], _DECIDES)
        return Table(("who", "decision", "rule", ""), rows, title=f"{entry.server}.{entry.name}")

    @property
    def table(self) -> Table:
        """A table with a row per tool."""
        return self._table()

    @checked(patterns=TEXT)
    def changed(self, *patterns: str) -> Table:
        """A table of the first ten tools that the patterns match, to show the effect of a change of rules.

        For example `mcp.policy.changed("demo.*")`.
        """
        return self._table(patterns)

    def _table(self, patterns: tuple[str, ...] | None = None) -> Table:
        selected = None if patterns is None else [Rule(full_pattern(pattern), "ask", "") for pattern in patterns]
        rows: list[tuple[str, ...]] = []
        decided = dict.fromkeys((*self._policy.remembered, *self._policy.session_rules))
        unused = set(decided)
        for session in self._host.sessions.values():
            for entry in session.catalog.tools.values():
                unused -= {rule for rule in unused if rule.matches(entry, session.rights.digest)}
                if selected is not None and not any(rule.matches(entry, "") for rule in selected):
                    continue
                verdicts = [self._policy.verdict(entry, session.rights, caller) for caller in CALLERS]
                reasons = dict.fromkeys(verdict.why for verdict in verdicts if verdict.why not in USUAL)
                decisions = (verdict.decision for verdict in verdicts)
                rows.append((f"{entry.server}.{entry.alias}", *decisions, "; ".join(reasons)))
        here = set(self._policy.session_rules)
        rules = [f"{rule}: matches no loaded tool" if rule in unused & here else str(rule) for rule in decided]
        notes = rules or ["no rules: you may call every tool, and are asked about calls of models and apps"]
        if selected is not None and len(rows) > _MAX_CHANGED:
            notes.insert(0, f"and {len(rows) - _MAX_CHANGED} more: %mcp policy")
            del rows[_MAX_CHANGED:]
        if selected is not None and here:
            notes.append(self._host.lifetime)
        note = " · ".join(notes)
        return Table(("tool", "you", "models", "apps", "by"), rows, title="MCP policy", note=note)

    async def _decide(
        self,
        pattern: str,
        decision: Decision,
        digest: str = "",
        server: str = "",
        *,
        always: bool,
        doubted: bool = False,
    ) -> None:
        refuse_models("change the policy")
        if always:
            rule = await self._host.guard.remembered().keep(digest, pattern, decision, server, doubted=doubted)
            await self._host.guard.refresh()
            self._policy.add_rule(rule)
        else:
            origin = f"{_HERE}, for {server}" if server else _HERE
            self._policy.add_rule(Rule(pattern, decision, origin, digest, doubted=doubted))

    def _by_name(self, pattern: str) -> str:
        """Replace the alias of a loaded or configured server in a pattern by the server's name."""
        whole = full_pattern(pattern)
        known = aliases([*self._host.sessions, *self._host.discovery.peek().servers], RESERVED_HOST)
        names = {**{alias: name for name, alias in known.items()}, **{name: name for name in known}}
        owner = max((word for word in names if whole.startswith(f"{word}.")), key=len, default=None)
        return whole if owner is None else escape(names[owner]) + whole[len(owner) :]

    def _owners(self, pattern: str) -> list[tuple[ServerSession, str]]:
        """The loaded servers that a pattern matches, each with the glob for its tools.

        Raises:
            UnknownName: The pattern matches no loaded server.
        """
        found = list(self._split(pattern))
        if not found:
            hint = self._host.missing_hint(full_pattern(pattern).partition(".")[0])
            raise UnknownName(f"no loaded server matches {pattern!r}", hint=hint)
        return found

    def _split(self, pattern: str) -> Iterator[tuple[ServerSession, str]]:
        whole = full_pattern(pattern)
        server_glob, _, tool_glob = whole.partition(".")
        for name, alias in self._host.aliases().items():
            session = self._host.sessions[name]
            exact = next((known for known in (name, alias) if whole.startswith(f"{known}.")), None)
            if exact is not None:
                glob = whole[len(exact) + 1 :]
                entry = session.catalog.find(glob)
                yield session, escape(entry.name) if entry is not None else glob
            elif matches((name, alias), server_glob):
                yield session, tool_glob


class Changes:
    """The differences between pinned and current tool definitions.

    Args:
        diffs: Unified diffs by `server.tool`.
    """

    def __init__(self, diffs: Mapping[str, list[str]]) -> None:
        self.diffs = dict(diffs)

    def __len__(self) -> int:
        return len(self.diffs)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        parts = [f"{name}\n" + "\n".join(f"  {visible(line)}" for line in lines) for name, lines in self.diffs.items()]
        return "\n\n".join(parts) or "nothing has changed since it was pinned"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": f"<pre>{escaped(repr(self))}</pre>"}


class ToolPins(TableView):
    """The pinned tool definitions of the loaded servers: `mcp.pins.diff("fs")`, `mcp.pins.accept("fs.read_file")`.

    Args:
        host: The host of the servers.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._pinning = host.guard.pinning

    @property
    def table(self) -> Table:
        """A table with a row per tool."""
        rows: list[tuple[str, ...]] = []
        for session in self._host.sessions.values():
            pinned = self._host.loop.run(self._pinning.pins.of(session.rights.digest))
            suspicious = {finding.tool for finding in self._host.guard.findings.get(session.name, ())}
            for entry in self._entries(session):
                name = f"{entry.server}.{entry.name}"
                state = self._state(session, entry, pinned)
                scan = "suspicious" if name in suspicious else ""
                pin = pinned.get(entry.name)
                day = time.strftime("%Y-%m-%d", time.localtime(pin.pinned)) if pin is not None else ""
                rows.append((name, state, day, scan))
        states = {state for _, state, *_ in rows}
        notes = ["%mcp pins NAME shows what changed, %mcp pins accept NAME accepts it"] if "changed" in states else []
        if "new" in states:
            notes.append("new: added after the others were pinned; %mcp pins accept NAME accepts it")
        if any(scan for *_, scan in rows):
            notes.append("%mcp pins scan shows what is suspicious")
        return Table(("tool", "definition", "pinned", "scan"), rows, title="MCP pins", note=" · ".join(notes))

    @sync_and_async
    @checked(names=TEXT)
    async def diff(self, *names: str) -> Changes:
        """The changes of tool definitions since they were pinned.

            mcp.pins.diff("demo")

        Args:
            names: `server` or `server.tool`; by default all servers.
        """
        diffs: dict[str, list[str]] = {}
        for session, entries in self._selected(names):
            pinned = await self._pinning.pins.of(session.rights.digest)
            for entry in entries:
                if self._state(session, entry, pinned) in ("changed", "new"):
                    before = pinned[entry.name].definition if entry.name in pinned else "{}"
                    diffs[f"{entry.server}.{entry.name}"] = diff(before, canonical(entry.definition))
        return Changes(diffs)

    @sync_and_async
    @checked(names=TEXT)
    async def accept(self, *names: str) -> list[str]:
        """Accept and pin the current definitions of changed tools.

            mcp.pins.accept("demo.query")

        Args:
            names: `server` or `server.tool`; by default all servers.

        Returns:
            The accepted tools as `server.tool`.
        """
        refuse_models("accept pins")
        accepted: list[str] = []
        for session, entries in self._selected(names):
            digest = session.rights.digest
            changed = [
                entry
                for entry in entries
                if self._pinning.has_changed(digest, entry.name) or self._pinning.is_new(digest, entry.name)
            ]
            await self._pinning.accept(digest, session.name, [entry.definition for entry in changed])
            accepted += [f"{entry.server}.{entry.name}" for entry in changed]
        return accepted

    @checked()
    def scan(self) -> Table:
        """A table of suspicious content in the servers' tool definitions: `mcp.pins.scan().df`."""
        sessions = self._host.sessions
        found = [finding for name in sessions for finding in self._host.guard.findings.get(name, ())]
        found += look_alikes({name: session.catalog.tools for name, session in sessions.items()})
        rows = [(finding.tool, finding.where, finding.what) for finding in found]
        return Table(("tool", "where", "what"), rows, title="MCP scan", note="" if rows else "nothing suspicious")

    @checked(path=PATH.or_none)
    def export(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Write the current tool definitions of all ready servers, by default to `mcp.lock` beside the notebook.

            mcp.pins.export()

        Returns:
            The file. `load(locked=True)` and `%mcp load --locked` refuse tools that differ from it.
        """
        file = Path(self._host.folder, path or LOCK_FILE)
        ready = {name: session for name, session in self._host.sessions.items() if session.client is not None}
        tools = {name: session.catalog.tools.values() for name, session in ready.items()}
        write_lock(file, {name: [entry.definition for entry in entries] for name, entries in tools.items()})
        return file

    def _state(self, session: ServerSession, entry: ToolEntry, pinned: Mapping[str, Pin]) -> str:
        if self._pinning.is_new(session.rights.digest, entry.name):
            return "new"
        if entry.name not in pinned:
            return "not pinned"
        return "changed" if self._pinning.has_changed(session.rights.digest, entry.name) else "as pinned"

    def _entries(self, session: ServerSession) -> list[ToolEntry]:
        """The tools of a server, and its instructions if they differ from their pin."""
        entries, digest, client = [*session.catalog.tools.values()], session.rights.digest, session.client
        differs = self._pinning.has_changed(digest, INSTRUCTIONS) or self._pinning.is_new(digest, INSTRUCTIONS)
        if differs and client is not None and client.instructions:
            definition = described_instructions(client.instructions)
            entries.append(ToolEntry(session.name, INSTRUCTIONS, INSTRUCTIONS, definition))
        return entries

    def _selected(self, names: tuple[str, ...]) -> list[tuple[ServerSession, list[ToolEntry]]]:
        if not names:
            return [(session, self._entries(session)) for session in self._host.sessions.values()]
        selected: list[tuple[ServerSession, list[ToolEntry]]] = []
        for name in names:
            try:
                session = self._host.find(name)
            except UnknownName:
                session, tool = self._host.resolve(name)
                selected.append((session, [self._host.entry(session, tool)]))
            else:
                selected.append((session, self._entries(session)))
        return selected


_DIGEST_LENGTH = 12
"""Characters shown of a definition's digest."""


class TrustedServers(TableView):
    """The servers that the user has allowed to run: `mcp.trust`, `mcp.trust.revoke("fs")`.

    Args:
        host: The host of the servers.
    """

    def __init__(self, host: Host) -> None:
        self._host = host

    @property
    def table(self) -> Table:
        """A table with a row per definition."""
        rows = [
            (
                one.server,
                one.file,
                one.digest[:_DIGEST_LENGTH],
                one.bound or "no file",
                ", ".join(sorted(one.secrets)),
                time.strftime("%Y-%m-%d", time.localtime(one.decided)),
            )
            for one in self._host.loop.run(self._host.guard.trust.agreements())
        ]
        note = "" if rows else "no permissions yet; servers that you type in a cell need none"
        return Table(
            ("server", "file", "definition", "bound to", "secrets", "since"), rows, title="MCP trust", note=note
        )

    @sync_and_async
    @checked(names=TEXT, everything=FLAG)
    async def revoke(self, *names: str, everything: bool = False) -> list[str]:
        """Revoke permissions to run, and stop the affected servers of this notebook.

            mcp.trust.revoke("demo")

        Args:
            names: Servers, files, or prefixes of definition hashes, as in the table.
            everything: Revoke all permissions.

        Returns:
            The names of the servers.

        Raises:
            UnknownName: There is no permission of that name.
        """
        trust = self._host.guard.trust
        revoked = await trust.revoke(None) if everything else []
        for name in names:
            found = await trust.revoke(name)
            if not found:
                raise UnknownName(f"there is no permission for {name!r}", hint="%mcp trust lists the permissions")
            revoked += found
        digests = {one.digest for one in revoked}
        running = [name for name, session in self._host.sessions.items() if session.rights.digest in digests]
        await self._host.stop(running, State.NEEDS_TRUST)
        return [one.server for one in revoked]


_INPUT = "input:"
_PLACES = {"keyring": "keyring", "vault": "encrypted file", "memory": "memory, until this kernel ends"}


class SavedSecrets(TableView):
    """The stored secrets, without their values: `mcp.secret.set("github-token")`, `mcp.secret.delete("github-token")`.

    Args:
        host: The host of the notebook.
    """

    def __init__(self, host: Host) -> None:
        self._store = host.store

    @property
    def table(self) -> Table:
        """A table with a row per secret: where it is kept, and why it cannot be read."""
        secrets, inputs = self._store.secrets, self._store.inputs
        rows = [(kept.name, *_where(kept), "", secrets.check(kept.name)) for kept in secrets.kept()]
        rows += [
            (_INPUT + one.id, *_where(one.kept), f"{one.server} in {one.file}", inputs.check(one))
            for one in inputs.kept()
        ]
        columns = ("secret", "kept in", "changed", "only for", "problem")
        used = [index for index, _ in enumerate(columns) if index < 3 or any(row[index] for row in rows)]
        return Table(
            [columns[index] for index in used],
            [[row[index] for index in used] for row in rows],
            title="secrets",
            note="" if rows else "none yet: %mcp secret set NAME",
        )

    def __getitem__(self, name: str) -> NoReturn:
        message = "the value of a secret cannot be read here"
        raise UnknownName(message, hint=f"a server's definition refers to it as ${{secret:{name}}}")

    @checked(name=TEXT, value=TEXT.or_none)
    def set(self, name: str, value: str | None = None) -> str:
        """Store a secret, which definitions refer to as `${secret:NAME}`.

            mcp.secret.set("GITHUB_TOKEN")

        Args:
            name: The name.
            value: The value; by default a prompt asks for it, so that it is in no notebook.

        Returns:
            Where it is kept: `keyring`, `encrypted file`, or in memory until the kernel ends.

        Raises:
            SecretError: No one can be asked, or it cannot be stored.
            PolicyError: The running code is a model's.
        """
        refuse_models("store secrets")
        given = _ask_value(name) if value is None else value
        return _PLACES[self._store.secrets.set(name, given).place]

    @checked(name=TEXT)
    def delete(self, name: str) -> None:
        """Delete a secret; `input:ID` deletes a password that was entered for `${input:ID}`.

            mcp.secret.delete("GITHUB_TOKEN")

        Raises:
            UnknownName: There is no such secret.
        """
        refuse_models("delete secrets")
        secrets, inputs = self._store.secrets, self._store.inputs
        is_input = name.startswith(_INPUT)
        if not (inputs.forget(name.removeprefix(_INPUT)) if is_input else secrets.delete(name)):
            names = [kept.name for kept in secrets.kept()] + [_INPUT + one.id for one in inputs.kept()]
            hint = nearest(name, names) or "%mcp secret list"
            raise UnknownName(f"there is no secret {name!r}", hint=hint)


def _ask_value(name: str) -> str:
    import getpass

    from ipymcp.interaction.terminal import NO_INPUT_ERRORS

    try:
        return getpass.getpass(one_line(f"{name}: "))
    except NO_INPUT_ERRORS:
        raise SecretError(f"cannot ask for {name!r}: there is no user", hint="run this line in a notebook") from None


def _where(kept: StoredSecret) -> tuple[str, str]:
    return _PLACES[kept.place], time.strftime("%Y-%m-%d", time.localtime(kept.changed))
