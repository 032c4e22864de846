"""The policy that decides whether a caller may call a tool. Every call is checked here, without blocking."""

from __future__ import annotations

from collections import OrderedDict
from glob import escape
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

from ipymcp.errors import PolicyError
from ipymcp.security.rules import Filters, Verdict, forbidden_by_mode, has_allowance, hints, matching
from ipymcp.text import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TypeAlias

    from ipymcp.interaction.questions import Caller
    from ipymcp.security.rules import CallBatch, Rule, ServerGrants, ToolRef
    from ipymcp.security.untrusted import Conversation

    PinsMode: TypeAlias = Literal["models", "all", "off"]

__all__ = ["Policy", "PolicyError"]

_Agreed: TypeAlias = "tuple[str, str | None]"
"""A tool by its server's digest and its name; None for all tools of the server."""
_MAX_TURNS = 32
"""Number of model answers whose consents are kept, because the policy is not notified of an answer's end."""


class _CachedVerdict(NamedTuple):
    """A cached verdict with its inputs, which are compared by identity."""

    entry: ToolRef
    rights: ServerGrants
    filters: tuple[Any, ...]
    state: object
    verdict: Verdict


class Policy:
    """The rules of this notebook, and the verdicts they give."""

    def __init__(self) -> None:
        self.filters = Filters()
        """Tools switched off by `%mcp disable`."""
        self.observer: Callable[[Rule | None], None] | None = None
        """Called with every rule that the user makes for this notebook only; with None when they are removed."""
        self.session_rules: tuple[Rule, ...] = ()
        """Rules of this notebook, oldest first."""
        self.remembered: tuple[Rule, ...] = ()
        """Saved rules from the answers "always" and "never", oldest first."""
        self.doubts = True
        """Whether calls need consent again once the model has read untrusted content."""
        self._pins: PinsMode = "models"
        self._changed: frozenset[tuple[str, str]] = frozenset()
        self._unlocked: frozenset[tuple[str, str]] = frozenset()
        self._new: frozenset[tuple[str, str]] = frozenset()
        self._turns: OrderedDict[str, set[_Agreed]] = OrderedDict()
        self._agreed: WeakKeyDictionary[object, set[_Agreed]] = WeakKeyDictionary()
        """Consents by the object they are limited to, such as a conversation, for its lifetime."""
        self._state = object()
        """Token replaced with every change, which invalidates cached verdicts."""
        self._verdicts: dict[tuple[str, str, Caller], _CachedVerdict] = {}
        self._worlds: dict[tuple[str, str], tuple[ToolRef, ServerGrants, bool]] = {}

    # -- verdicts -----------------------------------------------------------------------------------------------------

    def check(
        self,
        entry: ToolRef,
        rights: ServerGrants,
        caller: Caller = "user",
        turn: str = "",
        conversation: Conversation | None = None,
        batch: CallBatch | None = None,
    ) -> Verdict:
        """Return the verdict on a call: `allow` or `ask`.

        Args:
            entry: The tool.
            rights: The grants of the tool's server.
            caller: The caller, a person, a model or an app.
            turn: Identifier of the model answer that makes the call.
            conversation: The conversation of that answer; untrusted content in it may require consent.
            batch: The batch that the call belongs to.

        Raises:
            PolicyError: The call is denied; the message names the rule.
        """
        verdict = self.verdict(entry, rights, caller)
        is_doubted = conversation is not None and self.is_doubted(entry, rights, conversation, caller)
        if verdict.decision == "allow" and conversation is not None and is_doubted:
            verdict = Verdict("ask", conversation.taint, notice=verdict.notice)
        if verdict.decision == "allow":
            return verdict
        if verdict.decision == "ask":
            if _covers(self._turns.get(turn), rights, entry):
                return Verdict("allow", "allowed for this answer")
            taint = "" if conversation is None else conversation.taint
            if batch is not None and batch.taint == taint and self.has_agreed(batch, rights, entry):
                return Verdict("allow", "allowed for this map")
            return verdict
        name = quoted(f"{entry.server}.{entry.name}")
        raise PolicyError(
            verdict.why,
            server=entry.server,
            tool=entry.name,
            hint=verdict.hint or f"%mcp policy explain {name} · %mcp policy allow {name}",
        )

    def is_doubted(self, entry: ToolRef, rights: ServerGrants, conversation: Conversation, caller: Caller) -> bool:
        """Whether a tool that is not read-only needs consent because the conversation has untrusted content."""
        return (
            bool(conversation.taint)
            and self.doubts
            and hints(entry, rights).get("readOnlyHint") is not True
            and not self.has_agreed(conversation, rights, entry)
            and not self.verdict(entry, rights, caller).covers_doubt
        )

    def is_open_world(self, entry: ToolRef, rights: ServerGrants) -> bool:
        """Whether a tool's results may contain untrusted content: no hint limits the tool to its own data."""
        key = (entry.server, entry.name)
        cached = self._worlds.get(key)
        if cached is None or cached[0] is not entry or cached[1] is not rights:
            is_open = hints(entry, rights).get("openWorldHint") is not False
            cached = self._worlds[key] = (entry, rights, is_open)
        return cached[2]

    @property
    def state(self) -> object:
        """Token for all rules so far; another object after every change."""
        return self._state

    def verdict(self, entry: ToolRef, rights: ServerGrants, caller: Caller = "user") -> Verdict:
        """Return the verdict on a tool for a caller, from the cache if nothing has changed."""
        key = (entry.server, entry.name, caller)
        cached = self._verdicts.get(key)
        if (
            cached is not None
            and cached.entry is entry
            and cached.rights is rights
            and cached.filters is self.filters.rules
            and cached.state is self._state
        ):
            return cached.verdict
        filters, state = self.filters.rules, self._state
        forbidden = self._disabled(entry) or forbidden_by_mode(entry, rights) or self._pinned(entry, rights, caller)
        if forbidden is not None and forbidden.decision == "deny":
            verdict = forbidden
        else:
            rule = self.rules(entry, rights, caller)[-1]
            notice = forbidden.notice if forbidden is not None else ""
            why = f"denied by the rule {str(rule)!r}" if rule.decision == "deny" else str(rule)
            covers_doubt = rule.decision == "allow" and rule.doubted
            verdict = Verdict(rule.decision, why, notice=notice, covers_doubt=covers_doubt)
        self._verdicts[key] = _CachedVerdict(entry, rights, filters, state, verdict)
        return verdict

    def rules(self, entry: ToolRef, rights: ServerGrants, caller: Caller) -> list[Rule]:
        """Return every rule that applies to a tool and a caller; the last one decides."""
        rules: list[Rule] = []
        for rule in matching(entry, rights, caller, self._decided()):
            if not (rule.caller and rule.decision == "allow" and rules[-1].decision == "deny"):
                rules.append(rule)
        return rules

    def _decided(self) -> Iterable[Rule]:
        """Return the user's rules in increasing precedence: saved rules, then those of this notebook.

        A saved rule made in this notebook takes its place among the notebook's rules, followed by newer saved rules of
        other kernels, except those that allow: they override nothing in this notebook.
        """
        ordered = dict.fromkeys(self.remembered)
        for rule in self.session_rules:
            since = self.remembered[self.remembered.index(rule) + 1 :] if rule in ordered else ()
            for last in (rule, *(newer for newer in since if newer.decision != "allow")):
                ordered.pop(last, None)
                ordered[last] = None
        return ordered

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
            why = "was added after its server's other tools were pinned, so no rule of yours allows it"
            return Verdict("deny", why, f"%mcp pins {name} shows it · %mcp pins accept {name}")
        if key not in self._changed or self._pins == "off":
            return None
        if self._pins == "all" or caller != "user":
            why = "its definition has changed since it was pinned"
            return Verdict("deny", why, f"%mcp pins {name} shows how · %mcp pins accept {name}")
        notice = f"{entry.server}.{entry.name} has changed since it was pinned: %mcp pins {name}"
        return Verdict("allow", "", notice=notice)

    def _has_allowance(self, rights: ServerGrants, caller: Caller) -> bool:
        """Whether a rule allows tools of this server; the user has seen only the tools it had at that time."""
        return has_allowance(rights) or any(
            rule.decision == "allow" and rule.digest and rule.digest == rights.digest and rule.caller in ("", caller)
            for rule in self._decided()
        )

    # -- changes ------------------------------------------------------------------------------------------------------

    def add_rule(self, rule: Rule) -> None:
        """Add a rule for this notebook, replacing one of the same pattern."""
        kept = (other for other in self.session_rules if _key(other) != _key(rule))
        self.session_rules = (*kept, rule)
        self._state = object()
        is_consent = bool(rule.caller)  # an answer to a question of this kernel
        if self.observer is not None and not is_consent and rule not in self.remembered:
            self.observer(rule)

    def allow_turn(self, turn: str, rights: ServerGrants, entry: ToolRef | None) -> None:
        """Allow a tool, or all tools of the server with None, for the rest of a model answer."""
        self._turns.setdefault(turn, set()).add(_agreed(rights, entry))
        self._turns.move_to_end(turn)
        while len(self._turns) > _MAX_TURNS:
            self._turns.popitem(last=False)

    def agree(self, within: object, rights: ServerGrants, entry: ToolRef | None) -> None:
        """Record the user's consent to a tool, or to all tools of the server with None, for an object's lifetime.

        Args:
            within: The object that the consent is limited to, such as a conversation or a batch.
            rights: The grants of the tool's server.
            entry: The tool.
        """
        self._agreed.setdefault(within, set()).add(_agreed(rights, entry))

    def has_agreed(self, within: object, rights: ServerGrants, entry: ToolRef | None) -> bool:
        """Whether `agree` has recorded the user's consent to a tool."""
        return _covers(self._agreed.get(within), rights, entry)

    def reset(self) -> None:
        """Remove all rules and consents of this notebook."""
        self.session_rules = ()
        self._turns.clear()
        self._agreed.clear()
        self._state = object()
        if self.observer is not None:
            self.observer(None)

    def remember(self, rules: tuple[Rule, ...]) -> None:
        """Replace the saved rules."""
        if rules != self.remembered:
            self.session_rules = tuple(
                rule for rule in self.session_rules if rule in rules or rule not in self.remembered
            )
            self.remembered = rules
            self._state = object()

    @property
    def pins(self) -> PinsMode:
        """Callers that may not call a changed tool: `models`, `all` or none (`off`)."""
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
        """Set the tools that differ from their pins, by the digest of the server's definition and by name.

        Args:
            changed: Tools that differ from their pin.
            unlocked: Tools that differ from the lock file.
            new: Tools added after the server's others were pinned.
        """
        if (changed, unlocked, new) != (self._changed, self._unlocked, self._new):
            self._changed, self._unlocked, self._new = changed, unlocked, new
            self._state = object()


def _agreed(rights: ServerGrants, entry: ToolRef | None) -> _Agreed:
    return rights.digest, None if entry is None else entry.name


def _covers(agreed: set[_Agreed] | None, rights: ServerGrants, entry: ToolRef | None) -> bool:
    return agreed is not None and not agreed.isdisjoint({(rights.digest, None), _agreed(rights, entry)})


def _key(rule: Rule) -> tuple[str, str, str]:
    return rule.pattern, rule.digest, rule.caller
