"""Rules that allow, ask about or deny tools, saved and for the session, and filters that switch tools off.

In this order: who asks, the tool's hints, `autoApprove` (accepted with the definition), the definition's `tools`, what
was answered "always" and "never", what was said in this notebook. Read-only modes come before all of them.
"""

from __future__ import annotations

import time
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, cast

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ipymcp.config.definition import ServerDefinition
    from ipymcp.interaction.questions import Caller
    from ipymcp.protocol.types import ToolDefinition
    from ipymcp.storage.database import Database


class ToolRef(Protocol):
    """A tool, as rules are about it."""

    @property
    def server(self) -> str:
        """Its server's name."""
        ...

    @property
    def name(self) -> str:
        """The server's own name for it."""
        ...

    @property
    def alias(self) -> str:
        """What a user types for it."""
        ...

    @property
    def definition(self) -> ToolDefinition:
        """What the server says of it."""
        ...


def is_named(tool: ToolRef, pattern: str) -> bool:
    """Whether a glob over `server.tool` means this tool, by its own name or by what a user types for it."""
    return fnmatchcase(f"{tool.server}.{tool.name}", pattern) or fnmatchcase(f"{tool.server}.{tool.alias}", pattern)


def selects(patterns: Sequence[str], tool: ToolRef) -> bool:
    """Whether patterns select a tool. The last that matches decides; with only `!` patterns the rest is in.

    A pattern without a dot means a server: `fs` is `fs.*`.
    """
    selected = all(pattern.startswith("!") for pattern in patterns)
    for pattern in patterns:
        positive = pattern.removeprefix("!")
        if is_named(tool, positive if "." in positive else f"{positive}.*"):
            selected = positive == pattern
    return selected


class Filters:
    """What the user switched off and on again in this notebook, in that order."""

    def __init__(self) -> None:
        self._rules: tuple[tuple[str, bool], ...] = ()

    @property
    def rules(self) -> tuple[tuple[str, bool], ...]:
        """Patterns and whether they allow, oldest first."""
        return self._rules

    def set(self, pattern: str, *, allowed: bool) -> None:
        """Switch what matches `server.tool` off or on."""
        kept = tuple(rule for rule in self._rules if rule[0] != pattern)
        self._rules = (*kept, (pattern, allowed))

    def forbidding(self, tool: ToolRef) -> str | None:
        """The pattern that switches this tool off, if one does."""
        if not self._rules:
            return None
        found = None
        for pattern, allowed in self._rules:
            if is_named(tool, pattern):
                found = None if allowed else pattern
        return found


Decision: TypeAlias = Literal["allow", "ask", "deny"]
CALLERS: tuple[Caller, ...] = ("user", "model", "app")
_OTHERS: tuple[Caller, ...] = ("model", "app")


class ServerGrants(Struct, frozen=True):
    """What a server's definition says of its tools.

    Attributes:
        digest: Of the definition; empty until it is known.
        tools: Globs over its tools' names, or over `server.tool`, and what they decide, in order.
        auto_approve: Globs of the tools that others than a person may call unasked.
        read_only: True refuses what is not said to be read-only; `hinted` what is said not to be.
        hints: What the user says of tools, by glob, instead of the server.
        origin: Where it was defined.
    """

    digest: str = ""
    tools: tuple[tuple[str, Decision], ...] = ()
    auto_approve: tuple[str, ...] = ()
    read_only: bool | Literal["hinted"] = False
    hints: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    origin: str = ""


def rights_of(definition: ServerDefinition, digest: str = "") -> ServerGrants:
    """The part of a definition that policy is about."""
    return ServerGrants(
        digest,
        tuple((glob, cast("Decision", decision)) for glob, decision in definition.tools.items()),
        tuple(definition.auto_approve),
        definition.read_only,
        tuple(definition.hints.items()),
        str(definition.source),
    )


class Rule(Struct, frozen=True):
    """One rule.

    Attributes:
        pattern: A glob over `server.tool`; over the tool's name alone where it belongs to one server.
        decision: What it decides.
        origin: Where it comes from, for messages: `this notebook`, `always`, a file.
        digest: The definition whose tools it is about; empty for all.
        caller: Whose calls it is about, where it answers what was asked about those: it takes back no `deny`. Empty for
            everybody's.
    """

    pattern: str
    decision: Decision
    origin: str
    digest: str = ""
    caller: Caller | Literal[""] = ""

    def matches(self, entry: ToolRef, digest: str) -> bool:
        """Whether it is about this tool of this server."""
        if not self.digest:
            return _names(entry, self.pattern, f"{entry.server}.")
        # By the tool's own name alone: another tool may come that is typed as this one was.
        return self.digest == digest and fnmatchcase(entry.name, self.pattern)

    def __str__(self) -> str:
        return f"{self.decision} {self.pattern} ({self.origin})"


_DEFAULTS: dict[Caller, Rule] = {
    "user": Rule("*", "allow", "a person's own call"),
    "model": Rule("*", "ask", "a model's call"),
    "app": Rule("*", "ask", "an app's call"),
}
WHOSE: dict[str, str] = {"user": "your own calls", "model": "models' calls", "app": "apps' calls"}
USUAL = frozenset(str(rule) for rule in _DEFAULTS.values())
"""The rules where no other is about a tool, in words."""


class Verdict(Struct, frozen=True):
    """What was decided and why.

    Attributes:
        decision: For one caller.
        why: The rule, in words.
        hint: What to do about it, where that is special.
        notice: What a person who calls it is to be told.
    """

    decision: Decision
    why: str
    hint: str = ""
    notice: str = ""


def hints(entry: ToolRef, rights: ServerGrants) -> dict[str, Any]:
    """A tool's hints: the server's, and the user's instead where there are any. Missing ones are unknown."""
    from ipymcp.protocol import types
    from ipymcp.protocol.types import is_object

    raw = entry.definition.annotations
    said = types.loads(raw) if len(raw) else None
    known: dict[str, Any] = dict(said) if is_object(said) else {}
    for pattern, override in rights.hints:
        if _means(entry, pattern):
            known |= override
    return known


def forbidden_by_mode(entry: ToolRef, rights: ServerGrants) -> Verdict | None:
    """What the read-only mode says against a tool, if it does."""
    if not rights.read_only:
        return None
    read_only = hints(entry, rights).get("readOnlyHint")
    hint = f'if it does only read: "hints": {{"{entry.name}": {{"readOnlyHint": true}}}} in its definition'
    if rights.read_only == "hinted":
        return Verdict("deny", "read-only mode: it says that it changes things", hint) if read_only is False else None
    return None if read_only is True else Verdict("deny", "read-only mode: it does not say that it only reads", hint)


def matching(entry: ToolRef, rights: ServerGrants, caller: Caller, said: Iterable[Rule]) -> Iterator[Rule]:
    """Every rule that is about this tool, called by this caller; the last of them decides.

    Args:
        entry: The tool.
        rights: Its server's.
        caller: Who calls.
        said: What the user decided, oldest first.
    """
    yield _DEFAULTS[caller]
    if caller in _OTHERS:
        known = hints(entry, rights)
        if known.get("readOnlyHint") is True and known.get("openWorldHint") is False:
            yield Rule(entry.name, "allow", "its hints: only reads its own data")
        for pattern in rights.auto_approve:
            if _means(entry, pattern):
                yield Rule(pattern, "allow", f"autoApprove in {rights.origin}")
    for pattern, decision in rights.tools:
        if _means(entry, pattern):
            yield Rule(pattern, decision, f"tools in {rights.origin}")
    for rule in said:
        if rule.caller in ("", caller) and rule.matches(entry, rights.digest):
            yield rule


def _means(entry: ToolRef, pattern: str) -> bool:
    """Whether a definition's glob means a tool of its server, by the tool's name or with the server's before it."""
    return _names(entry, pattern) or _names(entry, pattern, f"{entry.server}.")


def _names(entry: ToolRef, pattern: str, prefix: str = "") -> bool:
    return fnmatchcase(prefix + entry.name, pattern) or fnmatchcase(prefix + entry.alias, pattern)


_DECISIONS: dict[str, Decision] = {"allow": "allow", "ask": "ask", "deny": "deny"}


class SavedRules:
    """The rules that outlive the kernel.

    Args:
        database: Where they are kept.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def rules(self) -> tuple[Rule, ...]:
        """All of them, oldest first."""
        sql = "SELECT digest, pattern, decision, server, caller FROM approvals ORDER BY id"
        rows = await self._database.aquery(sql)
        return tuple(_rule(one, glob, _DECISIONS.get(said, "ask"), name, who) for one, glob, said, name, who in rows)

    async def keep(
        self, digest: str, pattern: str, decision: Decision, server: str = "", caller: Caller | Literal[""] = ""
    ) -> Rule:
        """Remember one, instead of what was remembered for the same pattern; it is the newest now.

        Args:
            digest: Of the definition whose tools it is about; empty for those of any.
            pattern: As a `Rule`'s.
            decision: What it decides.
            server: The server's name, for people.
            caller: Whose calls it is about; empty for everybody's.

        Returns:
            It, as `rules` has it.
        """
        await self._database.aexecute(
            "INSERT OR REPLACE INTO approvals (digest, pattern, decision, server, caller, decided)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (digest, pattern, decision, server, caller, time.time()),
        )
        return _rule(digest, pattern, decision, server, caller)

    async def forget(self) -> None:
        """Forget all of them."""
        await self._database.aexecute("DELETE FROM approvals")


def _rule(digest: str, pattern: str, decision: Decision, server: str, caller: Caller | Literal[""]) -> Rule:
    origin = ", ".join(filter(None, [WHOSE.get(caller, ""), "always", server and f"for {server}"]))
    return Rule(pattern, decision, origin, digest, caller)
