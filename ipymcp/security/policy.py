"""May this tool be called now, by this caller? Every call of every face is checked here, and nothing here waits."""

from __future__ import annotations

from collections import OrderedDict
from glob import escape
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

from ipymcp.errors import PolicyError
from ipymcp.security.rules import Filters, Verdict, forbidden_by_mode, hints, matching
from ipymcp.text import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TypeAlias

    from ipymcp.interaction.questions import Caller
    from ipymcp.security.rules import Rule, ServerGrants, ToolRef
    from ipymcp.security.untrusted import Conversation

    PinsMode: TypeAlias = Literal["models", "all", "off"]

__all__ = ["Policy", "PolicyError"]

_Agreed: TypeAlias = "tuple[str, str | None]"
"""A tool by its definition's digest and its name; None for all of the server's."""
_MAX_TURNS = 32
"""Answers of models whose consents are kept; one that is over is not told to us."""


class _Known(NamedTuple):
    """A verdict and all that it was made from, compared by identity."""

    entry: ToolRef
    rights: ServerGrants
    filters: tuple[Any, ...]
    state: object
    verdict: Verdict


class Policy:
    """The rules of this notebook, and what they decide."""

    def __init__(self) -> None:
        self.filters = Filters()
        """What `%mcp disable` switched off."""
        self.session_rules: tuple[Rule, ...] = ()
        """What was decided in this notebook, oldest first."""
        self.remembered: tuple[Rule, ...] = ()
        """What was answered "always" and "never", oldest first."""
        self.doubts = True
        """Whether a model is doubted once it has read what may be anybody's words."""
        self._pins: PinsMode = "models"
        self._changed: frozenset[tuple[str, str]] = frozenset()
        self._unlocked: frozenset[tuple[str, str]] = frozenset()
        self._new: frozenset[tuple[str, str]] = frozenset()
        self._turns: OrderedDict[str, set[_Agreed]] = OrderedDict()
        self._agreed: WeakKeyDictionary[object, set[_Agreed]] = WeakKeyDictionary()
        """What is agreed to within something, for as long as that lasts."""
        self._state = object()
        """Replaced with every change, so that what was made from the old one is seen to be stale."""
        self._known: dict[tuple[str, str, Caller], _Known] = {}
        self._worlds: dict[tuple[str, str], tuple[ToolRef, ServerGrants, bool]] = {}

    # -- asking it ----------------------------------------------------------------------------------------------------

    def check(
        self,
        entry: ToolRef,
        rights: ServerGrants,
        caller: Caller = "user",
        turn: str = "",
        conversation: Conversation | None = None,
    ) -> Verdict:
        """What is decided of a call, unless it is denied.

        Args:
            entry: The tool.
            rights: Its server's.
            caller: On whose behalf.
            turn: Names the model's answer that the call is a part of.
            conversation: That the answer is a part of; what was read there may be a reason to ask all the same.

        Raises:
            PolicyError: It is denied; the message names the rule.
        """
        verdict = self.verdict(entry, rights, caller)
        if verdict.decision == "allow" and conversation is not None and self.is_doubted(entry, rights, conversation):
            verdict = Verdict("ask", conversation.taint, notice=verdict.notice)
        if verdict.decision == "allow":
            return verdict
        if verdict.decision == "ask":
            if _covers(self._turns.get(turn), rights, entry):
                return Verdict("allow", "allowed for this answer")
            return verdict
        name = quoted(f"{entry.server}.{entry.name}")
        raise PolicyError(
            verdict.why,
            server=entry.server,
            tool=entry.name,
            hint=verdict.hint or f"%mcp policy explain {name} · %mcp policy allow {name}",
        )

    def is_doubted(self, entry: ToolRef, rights: ServerGrants, conversation: Conversation) -> bool:
        """Whether to ask about a tool since the model has read strangers' words: of what may change something, once."""
        return (
            bool(conversation.taint)
            and self.doubts
            and hints(entry, rights).get("readOnlyHint") is not True
            and not self.has_agreed(conversation, rights, entry)
        )

    def is_open_world(self, entry: ToolRef, rights: ServerGrants) -> bool:
        """Whether what a tool answers may be anybody's words: it is not said to stay with its own data."""
        key = (entry.server, entry.name)
        known = self._worlds.get(key)
        if known is None or known[0] is not entry or known[1] is not rights:
            is_open = hints(entry, rights).get("openWorldHint") is not False
            known = self._worlds[key] = (entry, rights, is_open)
        return known[2]

    @property
    def state(self) -> object:
        """Stands for all that was decided so far: another object after every change."""
        return self._state

    def verdict(self, entry: ToolRef, rights: ServerGrants, caller: Caller = "user") -> Verdict:
        """What is decided of a tool for a caller."""
        key = (entry.server, entry.name, caller)
        known = self._known.get(key)
        if (
            known is not None
            and known.entry is entry
            and known.rights is rights
            and known.filters is self.filters.rules
            and known.state is self._state
        ):
            return known.verdict
        filters, state = self.filters.rules, self._state
        verdict = self._decide(entry, rights, caller)
        self._known[key] = _Known(entry, rights, filters, state, verdict)
        return verdict

    def rules(self, entry: ToolRef, rights: ServerGrants, caller: Caller) -> list[Rule]:
        """Every rule that is about a tool for a caller; where nothing else forbids the tool the last decides."""
        found: list[Rule] = []
        for rule in matching(entry, rights, caller, self._decided()):
            if not (rule.caller and rule.decision == "allow" and found[-1].decision == "deny"):
                found.append(rule)
        return found

    def _decided(self) -> Iterable[Rule]:
        """What the user decided, in the order in which it counts: what was said in this notebook comes last.

        A rule for always that was made in this notebook counts from there as well, and with it what other kernels were
        told since; what they allow takes back nothing that was said here.
        """
        ordered = dict.fromkeys(self.remembered)
        for rule in self.session_rules:
            since = self.remembered[self.remembered.index(rule) + 1 :] if rule in ordered else ()
            for one in (rule, *(one for one in since if one.decision != "allow")):
                ordered.pop(one, None)
                ordered[one] = None
        return ordered

    def _decide(self, entry: ToolRef, rights: ServerGrants, caller: Caller) -> Verdict:
        forbidden = self._disabled(entry) or forbidden_by_mode(entry, rights) or self._pinned(entry, rights, caller)
        if forbidden is not None and forbidden.decision == "deny":
            return forbidden
        rule = self.rules(entry, rights, caller)[-1]
        notice = forbidden.notice if forbidden is not None else ""
        why = f"denied by the rule {str(rule)!r}" if rule.decision == "deny" else str(rule)
        return Verdict(rule.decision, why, notice=notice)

    def _disabled(self, entry: ToolRef) -> Verdict | None:
        pattern = self.filters.forbidding(entry)
        if pattern is None:
            return None
        name = f"{entry.server}.{entry.name}"
        by = "" if pattern in (name, escape(name)) else f" by {pattern!r}"
        return Verdict("deny", f"is disabled{by}", f"%mcp enable {quoted(escape(name))}")

    def _pinned(self, entry: ToolRef, rights: ServerGrants, caller: Caller) -> Verdict | None:
        key, name = (rights.digest, entry.name), quoted(f"{entry.server}.{entry.name}")
        if key in self._unlocked:
            return Verdict("deny", "differs from mcp.lock", f"%mcp pins {name}")
        if self._pins != "off" and caller != "user" and key in self._new and self._has_allowance(rights, caller):
            why = "is new since its server's other tools were pinned, and was not there to be allowed"
            return Verdict("deny", why, f"%mcp pins {name} shows it · %mcp pins accept {name}")
        if key not in self._changed or self._pins == "off":
            return None
        if self._pins == "all" or caller != "user":
            why = "its definition has changed since it was pinned"
            return Verdict("deny", why, f"%mcp pins {name} shows how · %mcp pins accept {name}")
        notice = f"{entry.server}.{entry.name} has changed since it was pinned: %mcp pins {name}"
        return Verdict("allow", "", notice=notice)

    def _has_allowance(self, rights: ServerGrants, caller: Caller) -> bool:
        """Whether the user has allowed something of a definition's server: they saw the tools that it had then."""
        return any(
            rule.decision == "allow" and rule.digest and rule.digest == rights.digest and rule.caller in ("", caller)
            for rule in self._decided()
        )

    # -- changing it --------------------------------------------------------------------------------------------------

    def add_rule(self, rule: Rule) -> None:
        """Decide something for this notebook, instead of what was decided of the same pattern."""
        kept = (known for known in self.session_rules if _about(known) != _about(rule))
        self.session_rules = (*kept, rule)
        self._state = object()

    def allow_turn(self, turn: str, rights: ServerGrants, entry: ToolRef | None) -> None:
        """Allow a tool, or all of its server's, for the rest of a model's answer."""
        self._turns.setdefault(turn, set()).add(_agreed(rights, entry))
        self._turns.move_to_end(turn)
        while len(self._turns) > _MAX_TURNS:
            self._turns.popitem(last=False)

    def agree(self, within: object, rights: ServerGrants, entry: ToolRef | None) -> None:
        """The user agrees to a tool, or to all of its server's, within something, such as a conversation."""
        self._agreed.setdefault(within, set()).add(_agreed(rights, entry))

    def has_agreed(self, within: object, rights: ServerGrants, entry: ToolRef | None) -> bool:
        """Whether the user did."""
        return _covers(self._agreed.get(within), rights, entry)

    def reset(self) -> None:
        """Take back all that was decided in this notebook."""
        self.session_rules = ()
        self._turns.clear()
        self._agreed.clear()
        self._state = object()

    def remember(self, rules: tuple[Rule, ...]) -> None:
        """These are what is remembered now."""
        if rules != self.remembered:
            self.session_rules = tuple(
                rule for rule in self.session_rules if rule in rules or rule not in self.remembered
            )
            self.remembered = rules
            self._state = object()

    @property
    def pins(self) -> PinsMode:
        """For whom a tool whose definition changed is out of reach: `models`, `all` or nobody (`off`)."""
        return self._pins

    @pins.setter
    def pins(self, mode: PinsMode) -> None:
        self._pins = mode
        self._state = object()

    def set_changed(
        self,
        changed: frozenset[tuple[str, str]],
        unlocked: frozenset[tuple[str, str]],
        new: frozenset[tuple[str, str]] = frozenset(),
    ) -> None:
        """These tools, by their definition's digest and their name, are not what they were.

        Args:
            changed: Since they were pinned.
            unlocked: From what the lock file has.
            new: They came after their server's others were pinned.
        """
        if (changed, unlocked, new) != (self._changed, self._unlocked, self._new):
            self._changed, self._unlocked, self._new = changed, unlocked, new
            self._state = object()


def _agreed(rights: ServerGrants, entry: ToolRef | None) -> _Agreed:
    return rights.digest, None if entry is None else entry.name


def _covers(agreed: set[_Agreed] | None, rights: ServerGrants, entry: ToolRef | None) -> bool:
    return agreed is not None and not agreed.isdisjoint({(rights.digest, None), _agreed(rights, entry)})


def _about(rule: Rule) -> tuple[str, str, str]:
    return rule.pattern, rule.digest, rule.caller
