"""`mcp.policy`: what may be called by whom, and the words that change it."""

from __future__ import annotations

import asyncio
from fnmatch import fnmatchcase
from glob import escape
from typing import TYPE_CHECKING

from ipymcp.errors import UnknownName
from ipymcp.policy.conversation import refuse_models
from ipymcp.policy.rules import CALLERS, USUAL, Rule
from ipymcp.runtime.checked import FLAG, TEXT, checked
from ipymcp.runtime.names import RESERVED_HOST, aliases
from ipymcp.tools.live import Listing
from ipymcp.tools.tables import Table
from ipymcp.tools.waits import waits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipymcp.policy.rules import Decision
    from ipymcp.runtime.host import Host
    from ipymcp.runtime.loop import BackgroundLoop
    from ipymcp.runtime.server import ServerSession

__all__ = ["ToolPolicy"]

_HERE = "this notebook"
_MARK = "decides"
_MOST_CHANGED = 10


class ToolPolicy(Listing):
    """The rules for calls: `mcp.policy.deny("fs.write_*")`, `mcp.policy.explain("fs.write_file")`.

    Args:
        host: Whose.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._policy = host.guard.policy

    @property
    def _loop(self) -> BackgroundLoop:
        return self._host.loop

    @waits
    @checked(patterns=TEXT, always=FLAG)
    async def allow(self, *patterns: str, always: bool = False) -> None:
        """Allow tools to whoever calls them. It is for the definitions of the servers that are loaded now.

        Args:
            patterns: Globs over `server.tool`; a name without a dot means all tools of that server.
            always: Remember it, for all notebooks.

        Raises:
            UnknownName: No server that is loaded is meant.
        """
        for pattern in patterns:
            for session, glob in self._owners(pattern):
                digest = session.rights.digest or await asyncio.to_thread(session.definition.digest)
                await self._decide(glob, "allow", digest, session.name, always=always)

    @waits
    @checked(patterns=TEXT, always=FLAG)
    async def ask(self, *patterns: str, always: bool = False) -> None:
        """Have the user asked about calls of tools, whoever makes them. Arguments as for `allow`."""
        for pattern in patterns:
            await self._decide(self._by_name(pattern), "ask", always=always)

    @waits
    @checked(patterns=TEXT, always=FLAG)
    async def deny(self, *patterns: str, always: bool = False) -> None:
        """Refuse calls of tools, whoever makes them. Arguments as for `allow`."""
        for pattern in patterns:
            await self._decide(self._by_name(pattern), "deny", always=always)

    @waits
    @checked(always=FLAG)
    async def reset(self, always: bool = False) -> None:
        """Take back all that was decided in this notebook.

        Args:
            always: And all that was remembered.
        """
        refuse_models("change the policy")
        self._policy.reset()
        if always:
            await self._host.guard.remembered().forget()
            await self._host.guard.refresh()

    @checked(name=TEXT)
    def explain(self, name: str) -> Table:
        """Every rule that is about a tool, for each who may call it, in order; the last decides.

        Args:
            name: `server.tool`.
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
            rows[-1] = (*rows[-1][:3], _MARK)
        return Table(("who", "decision", "rule", ""), rows, title=f"{entry.server}.{entry.name}")

    @property
    def table(self) -> Table:
        """One row a tool."""
        return self._table()

    @checked(patterns=TEXT)
    def changed(self, *patterns: str) -> Table:
        """What holds now for the tools that a change was about, the first ten of them."""
        return self._table(patterns)

    def _table(self, patterns: tuple[str, ...] | None = None) -> Table:
        meant = None if patterns is None else [Rule(_whole(pattern), "ask", "") for pattern in patterns]
        rows: list[tuple[str, ...]] = []
        decided = dict.fromkeys((*self._policy.remembered, *self._policy.said))
        idle = set(decided)
        for session in self._host.sessions.values():
            for entry in session.catalog.tools.values():
                idle -= {rule for rule in idle if rule.matches(entry, session.rights.digest)}
                if meant is not None and not any(rule.matches(entry, "") for rule in meant):
                    continue
                verdicts = [self._policy.verdict(entry, session.rights, caller) for caller in CALLERS]
                said = dict.fromkeys(verdict.why for verdict in verdicts if verdict.why not in USUAL)
                decisions = (verdict.decision for verdict in verdicts)
                rows.append((f"{entry.server}.{entry.alias}", *decisions, "; ".join(said)))
        here = set(self._policy.said)
        rules = [f"{rule}: no tool that is loaded" if rule in idle & here else str(rule) for rule in decided]
        notes = rules or ["the usual: you may; about models and apps you are asked"]
        if meant is not None and len(rows) > _MOST_CHANGED:
            notes.insert(0, f"and {len(rows) - _MOST_CHANGED} more: %mcp policy")
            del rows[_MOST_CHANGED:]
        note = " · ".join(notes)
        return Table(("tool", "you", "models", "apps", "by"), rows, title="MCP policy", note=note)

    async def _decide(
        self, pattern: str, decision: Decision, digest: str = "", server: str = "", *, always: bool
    ) -> None:
        refuse_models("change the policy")
        if always:
            rule = await self._host.guard.remembered().keep(digest, pattern, decision, server)
            await self._host.guard.refresh()
            self._policy.say(rule)
        else:
            self._policy.say(Rule(pattern, decision, f"{_HERE}, for {server}" if server else _HERE, digest))

    def _by_name(self, pattern: str) -> str:
        """A pattern with a server's alias replaced by its name; of servers that are loaded or configured."""
        whole = _whole(pattern)
        known = aliases([*self._host.sessions, *self._host.discovery.peek().servers], RESERVED_HOST)
        spelled = {**{alias: name for name, alias in known.items()}, **{name: name for name in known}}
        owner = max((word for word in spelled if whole.startswith(f"{word}.")), key=len, default=None)
        return whole if owner is None else escape(spelled[owner]) + whole[len(owner) :]

    def _owners(self, pattern: str) -> list[tuple[ServerSession, str]]:
        """The servers whose tools a pattern means, and the glob over their names.

        Raises:
            UnknownName: None is loaded.
        """
        found = list(self._split(pattern))
        if not found:
            names = ", ".join(self._host.sessions) or "none"
            raise UnknownName(f"no server that is loaded is meant by {pattern!r}", hint=f"loaded: {names}")
        return found

    def _split(self, pattern: str) -> Iterator[tuple[ServerSession, str]]:
        whole = _whole(pattern)
        server_glob, _, tool_glob = whole.partition(".")
        for name, alias in self._host.aliases().items():
            session = self._host.sessions[name]
            exact = next((known for known in (name, alias) if whole.startswith(f"{known}.")), None)
            if exact is not None:
                glob = whole[len(exact) + 1 :]
                entry = session.catalog.find(glob)
                yield session, escape(entry.name) if entry is not None else glob
            elif fnmatchcase(name, server_glob) or fnmatchcase(alias, server_glob):
                yield session, tool_glob


def _whole(pattern: str) -> str:
    return pattern if "." in pattern else f"{pattern}.*"
