"""What may run: allow, ask or deny, from every rule that names a tool. Of those that match the last decides.

In this order: who asks, the tool's hints, `autoApprove` (accepted with the definition), the definition's `tools`, what
was answered "always" and "never", what was said in this notebook. Read-only modes come before all of them.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ipymcp.config.definition import ServerDefinition
    from ipymcp.policy.filters import Subject

__all__ = [
    "CALLERS",
    "USUAL",
    "WHOSE",
    "Caller",
    "Decision",
    "Rights",
    "Rule",
    "Verdict",
    "forbidden_by_mode",
    "hints",
    "matching",
    "rights_of",
]

Caller: TypeAlias = Literal["user", "model", "app"]
Decision: TypeAlias = Literal["allow", "ask", "deny"]
CALLERS: tuple[Caller, ...] = ("user", "model", "app")
_OTHERS: tuple[Caller, ...] = ("model", "app")


class Rights(Struct, frozen=True):
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


def rights_of(definition: ServerDefinition, digest: str = "") -> Rights:
    """The part of a definition that policy is about."""
    return Rights(
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

    def matches(self, entry: Subject, digest: str) -> bool:
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


def hints(entry: Subject, rights: Rights) -> dict[str, Any]:
    """A tool's hints: the server's, and the user's instead where there are any. Missing ones are unknown."""
    from ipymcp.protocol import wire
    from ipymcp.protocol.jsontypes import is_object

    raw = entry.definition.annotations
    said = wire.loads(raw) if len(raw) else None
    known: dict[str, Any] = dict(said) if is_object(said) else {}
    for pattern, override in rights.hints:
        if _means(entry, pattern):
            known |= override
    return known


def forbidden_by_mode(entry: Subject, rights: Rights) -> Verdict | None:
    """What the read-only mode says against a tool, if it does."""
    if not rights.read_only:
        return None
    read_only = hints(entry, rights).get("readOnlyHint")
    hint = f'if it does only read: "hints": {{"{entry.name}": {{"readOnlyHint": true}}}} in its definition'
    if rights.read_only == "hinted":
        return Verdict("deny", "read-only mode: it says that it changes things", hint) if read_only is False else None
    return None if read_only is True else Verdict("deny", "read-only mode: it does not say that it only reads", hint)


def matching(entry: Subject, rights: Rights, caller: Caller, said: Iterable[Rule]) -> Iterator[Rule]:
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


def _means(entry: Subject, pattern: str) -> bool:
    """Whether a definition's glob means a tool of its server, by the tool's name or with the server's before it."""
    return _names(entry, pattern) or _names(entry, pattern, f"{entry.server}.")


def _names(entry: Subject, pattern: str, prefix: str = "") -> bool:
    return fnmatchcase(prefix + entry.name, pattern) or fnmatchcase(prefix + entry.alias, pattern)
