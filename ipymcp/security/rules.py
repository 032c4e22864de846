"""Rules that allow, ask about or deny tools, saved and for the session, and filters that switch tools off.

In increasing precedence: the caller's default, the tool's hints, `autoApprove`, the definition's `tools`, saved answers
("always", "never"), rules of this notebook. Read-only modes come before all of them.
"""

from __future__ import annotations

import re
import time
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, cast

from msgspec import Struct

from ipymcp import names
from ipymcp.config.definition import LOOSENING_HINTS
from ipymcp.names import matches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ipymcp.config.definition import ServerDefinition
    from ipymcp.interaction.questions import Caller
    from ipymcp.protocol.types import ToolDefinition
    from ipymcp.storage.database import Database


class ToolRef(Protocol):
    """Interface of a tool that rules are matched against."""

    @property
    def server(self) -> str:
        """Name of the server."""
        ...

    @property
    def name(self) -> str:
        """Name of the tool at the server."""
        ...

    @property
    def alias(self) -> str:
        """Python identifier of the tool."""
        ...

    @property
    def definition(self) -> ToolDefinition:
        """Definition from the server."""
        ...


def is_named(tool: ToolRef, pattern: str) -> bool:
    """Whether a glob over `server.tool` matches a tool's name or alias."""
    return matches(_full_names(tool), pattern)


def selects(patterns: Sequence[str], tool: ToolRef) -> bool:
    """Whether patterns select a tool, as in `names.selects`."""
    return names.selects(list(map(full_pattern, patterns)), _full_names(tool))


def full_pattern(pattern: str) -> str:
    """Complete a pattern without a dot, which names a server: `fs` is `fs.*`."""
    return pattern if "." in pattern else f"{pattern}.*"


def _full_names(tool: ToolRef) -> tuple[str, str]:
    return f"{tool.server}.{tool.name}", f"{tool.server}.{tool.alias}"


_WILDCARDS: Final = re.compile(r"[*?\[]")


class Filters:
    """Patterns that switch tools off and on again in this notebook, in order."""

    def __init__(self) -> None:
        self.observer: Callable[[Iterable[str], bool], None] | None = None
        """Called with the patterns of every change, and whether they allow."""
        self.rules: tuple[tuple[str, bool], ...] = ()
        """Patterns, each with whether it allows, oldest first; another object after every change."""
        self._globs: list[tuple[int, str]] = []
        """The patterns with wildcards, newest first, each with its position in `rules`."""
        self._names: dict[str, int] = {}
        """The positions of the other patterns, which may be a thousand."""

    def set(self, *patterns: str, allowed: bool) -> None:
        """Switch the tools that match globs over `server.tool` on or off."""
        fresh = dict.fromkeys(patterns, allowed)
        self.rules = (*(rule for rule in self.rules if rule[0] not in fresh), *fresh.items())
        positions = [(position, pattern) for position, (pattern, _) in enumerate(self.rules)]
        self._globs = [(position, pattern) for position, pattern in reversed(positions) if _WILDCARDS.search(pattern)]
        self._names = {pattern: position for position, pattern in positions if not _WILDCARDS.search(pattern)}
        if self.observer is not None:
            self.observer(patterns, allowed)

    def forbidding(self, tool: ToolRef) -> str | None:
        """Return the pattern that switches a tool off, or None."""
        if not self.rules:
            return None
        named = max(self._names.get(name, -1) for name in _full_names(tool))
        matched = next((position for position, pattern in self._globs if is_named(tool, pattern)), -1)
        latest = max(named, matched)
        pattern, allowed = self.rules[latest] if latest >= 0 else ("", True)
        return None if allowed else pattern


Decision: TypeAlias = Literal["allow", "ask", "deny"]
DECISIONS: tuple[Decision, ...] = ("allow", "ask", "deny")
CALLERS: tuple[Caller, ...] = ("user", "model", "app")
_OTHER_CALLERS: tuple[Caller, ...] = ("model", "app")


class ServerGrants(Struct, frozen=True):
    """The part of a server's definition that grants or restricts calls of its tools.

    Attributes:
        digest: Digest of the definition; empty until it is known.
        tools: Globs over tool names or `server.tool`, each with its decision, in order.
        auto_approve: Globs of tools that models and apps may call without consent.
        read_only: True refuses tools without a read-only hint; `hinted` refuses only tools with a hint to the contrary.
        hints: Annotations that override the server's, by glob.
        origin: Source of the definition, for messages.
    """

    digest: str = ""
    tools: tuple[tuple[str, Decision], ...] = ()
    auto_approve: tuple[str, ...] = ()
    read_only: bool | Literal["hinted"] = False
    hints: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    origin: str = ""


def rights_of(definition: ServerDefinition, digest: str = "") -> ServerGrants:
    """Return the grants of a definition."""
    return ServerGrants(
        digest,
        tuple((glob, cast("Decision", decision)) for glob, decision in definition.tools.items()),
        tuple(definition.auto_approve),
        definition.read_only,
        tuple(definition.hints.items()),
        str(definition.source),
    )


class Rule(Struct, frozen=True):
    """A rule about tools.

    Attributes:
        pattern: Glob over `server.tool`, or over tool names for a rule with a digest.
        decision: The decision for matching tools.
        origin: Origin for messages: `this notebook`, `always`, a file.
        digest: Digest of the server's definition; empty for all servers.
        caller: The only caller the rule applies to; such a rule does not override `deny`. Empty for all callers.
        doubted: Whether a rule that allows also covers calls of a model that has read untrusted content.
    """

    pattern: str
    decision: Decision
    origin: str
    digest: str = ""
    caller: Caller | Literal[""] = ""
    doubted: bool = False

    def matches(self, entry: ToolRef, digest: str) -> bool:
        """Whether the rule applies to a tool of a server."""
        if not self.digest:
            return is_named(entry, self.pattern)
        # Not the alias: a later tool may get the same one.
        return self.digest == digest and fnmatchcase(entry.name, self.pattern)

    def __str__(self) -> str:
        doubted = ", also for doubted models" if self.doubted else ""
        return f"{self.decision} {self.pattern} ({self.origin}{doubted})"


_DEFAULTS: dict[Caller, Rule] = {
    "user": Rule("*", "allow", "a person's call"),
    "model": Rule("*", "ask", "a model's call"),
    "app": Rule("*", "ask", "an app's call"),
}
CALLS_OF: dict[str, str] = {"user": "your own calls", "model": "models' calls", "app": "apps' calls"}
"""The calls of each caller as a phrase."""
USUAL = frozenset(str(rule) for rule in _DEFAULTS.values())
"""The default rules as text."""


class Verdict(Struct, frozen=True):
    """A decision and its reason.

    Attributes:
        decision: The decision for one caller.
        why: The deciding rule as text.
        hint: Advice for the user; empty for the default one.
        notice: A notice to show to a user who calls the tool.
        covers_doubt: Whether the deciding rule also allows the call once the model has read untrusted content.
    """

    decision: Decision
    why: str
    hint: str = ""
    notice: str = ""
    covers_doubt: bool = False


class CallBatch:
    """Calls that one consent covers, such as those of a map, for as long as the object lives.

    Args:
        number: The number of the map in this notebook.
        count: The number of calls; 0 if unknown.
        samples: The arguments of some calls after the first one, which the question displays.

    Attributes:
        taint: The taint of the conversation when the user consented; the consent does not cover a later taint.
    """

    def __init__(self, number: int, count: int, samples: Sequence[bytes] = ()) -> None:
        self.number = number
        self.count = count
        self.samples = samples
        self.taint = ""


def hints(entry: ToolRef, rights: ServerGrants) -> dict[str, Any]:
    """Return a tool's hints: the server's, overridden by the user's. A missing hint is unknown."""
    from ipymcp.protocol import types
    from ipymcp.protocol.types import is_object

    raw = entry.definition.annotations
    annotations = types.loads(raw) if len(raw) else None
    merged: dict[str, Any] = dict(annotations) if is_object(annotations) else {}
    for pattern, override in rights.hints:
        if _glob_matches(entry, pattern, allowing=True):
            merged |= override
        elif _glob_matches(entry, pattern, allowing=False):
            merged |= {name: value for name, value in override.items() if (name, value) not in LOOSENING_HINTS}
    return merged


def has_allowance(rights: ServerGrants) -> bool:
    """Whether a definition allows calls of tools, or declares tools to be harmless."""
    return (
        bool(rights.auto_approve)
        or any(decision == "allow" for _, decision in rights.tools)
        or any(hint in LOOSENING_HINTS for _, override in rights.hints for hint in override.items())
    )


def forbidden_by_mode(entry: ToolRef, rights: ServerGrants) -> Verdict | None:
    """Return the verdict of the read-only mode against a tool, or None."""
    if not rights.read_only:
        return None
    read_only = hints(entry, rights).get("readOnlyHint")
    hint = f'if it only reads: "hints": {{"{entry.name}": {{"readOnlyHint": true}}}} in its definition'
    if rights.read_only == "hinted":
        return Verdict("deny", "read-only mode: it is declared as not read-only", hint) if read_only is False else None
    return None if read_only is True else Verdict("deny", "read-only mode: it is not declared as read-only", hint)


def matching(entry: ToolRef, rights: ServerGrants, caller: Caller, user_rules: Iterable[Rule]) -> Iterator[Rule]:
    """Yield every rule that applies to a tool and a caller; the last one decides.

    Args:
        entry: The tool.
        rights: The grants of the tool's server.
        caller: The caller.
        user_rules: The user's rules in increasing precedence.
    """
    yield _DEFAULTS[caller]
    if caller in _OTHER_CALLERS:
        hinted = hints(entry, rights)
        if hinted.get("readOnlyHint") is True and hinted.get("openWorldHint") is False:
            yield Rule(entry.name, "allow", "its hints: only reads its own data")
        for pattern in rights.auto_approve:
            if _glob_matches(entry, pattern, allowing=True):
                yield Rule(pattern, "allow", f"autoApprove in {rights.origin}")
    for pattern, decision in rights.tools:
        if _glob_matches(entry, pattern, allowing=decision == "allow"):
            yield Rule(pattern, decision, f"tools in {rights.origin}")
    for rule in user_rules:
        if rule.caller in ("", caller) and rule.matches(entry, rights.digest):
            yield rule


def _glob_matches(entry: ToolRef, pattern: str, *, allowing: bool) -> bool:
    """Whether a definition's glob matches a tool of its server, as `tool` or as `server.tool`.

    What allows does not match aliases: a later tool may get the same one.
    """
    full, full_alias = _full_names(entry)
    return matches((entry.name, full) if allowing else (entry.name, entry.alias, full, full_alias), pattern)


_DECISIONS: dict[str, Decision] = {"allow": "allow", "ask": "ask", "deny": "deny"}


class SavedRules:
    """The stored rules that all kernels of a user share."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def rules(self) -> tuple[Rule, ...]:
        """Return all saved rules, oldest first."""
        sql = "SELECT digest, pattern, decision, server, caller, doubted FROM approvals ORDER BY id"
        return tuple(
            _rule(digest, pattern, _DECISIONS.get(decision, "ask"), server, caller, doubted=bool(doubted))
            for digest, pattern, decision, server, caller, doubted in await self._database.aquery(sql)
        )

    async def keep(
        self,
        digest: str,
        pattern: str,
        decision: Decision,
        server: str = "",
        caller: Caller | Literal[""] = "",
        *,
        doubted: bool = False,
    ) -> Rule:
        """Save a rule as the newest one, replacing one of the same pattern, and return it.

        Args:
            digest: As in `Rule`.
            pattern: As in `Rule`.
            decision: As in `Rule`.
            server: Display name of the server.
            caller: As in `Rule`.
            doubted: As in `Rule`.
        """
        await self._database.aexecute(
            "INSERT OR REPLACE INTO approvals (digest, pattern, decision, server, caller, doubted, decided)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (digest, pattern, decision, server, caller, doubted, time.time()),
        )
        return _rule(digest, pattern, decision, server, caller, doubted=doubted)

    async def forget(self) -> None:
        """Delete all saved rules."""
        await self._database.aexecute("DELETE FROM approvals")


def _rule(
    digest: str, pattern: str, decision: Decision, server: str, caller: Caller | Literal[""], *, doubted: bool
) -> Rule:
    origin = ", ".join(filter(None, [CALLS_OF.get(caller, ""), "always", server and f"for {server}"]))
    return Rule(pattern, decision, origin, digest, caller, doubted)
