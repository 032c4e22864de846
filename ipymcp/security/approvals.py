"""The user's consent to calls that need it. Calls that are asked for at once are one question."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from glob import escape
from typing import TYPE_CHECKING

from ipymcp.errors import PolicyError
from ipymcp.interaction.questions import ALLOWING, ApprovalQuestion, WantedCall, beforehand
from ipymcp.security.rules import WHOSE, Rule, hints
from ipymcp.text import quoted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ipymcp.interaction.questions import ApprovalAnswer, Caller, Card
    from ipymcp.security.policy import Policy
    from ipymcp.security.rules import Decision, SavedRules, ServerGrants, ToolRef
    from ipymcp.security.untrusted import Conversation


_TOGETHER = 0.02
"""Seconds without another wish after which those there are become a question."""
_HINTS = {
    ("readOnlyHint", True): "only reads",
    ("readOnlyHint", False): "changes things",
    ("destructiveHint", True): "may destroy",
    ("openWorldHint", True): "reaches outside",
}


@dataclass(eq=False)
class PendingApproval:
    """A call that needs consent."""

    entry: ToolRef
    rights: ServerGrants
    caller: Caller
    turn: str
    arguments: bytes
    conversation: Conversation | None = None
    card: Card | None = None
    """Shows it."""
    outcome: asyncio.Future[None] = field(init=False)

    def granted(self) -> None:
        """It may be made."""
        if not self.outcome.done():
            self.outcome.set_result(None)

    def refused(self, error: PolicyError) -> None:
        """It may not."""
        if not self.outcome.done():
            self.outcome.set_exception(error)

    @property
    def name(self) -> str:
        """`server.tool`."""
        return f"{self.entry.server}.{self.entry.name}"


class Approvals:
    """Asks for consent and keeps the answers. All of it belongs to the background loop.

    Args:
        policy: Whose rules they become.
        remembered: Keeps "always" and "never".
        ask: Brings a question to the user; None comes back where nobody can be asked, or nobody answered.
    """

    def __init__(
        self,
        policy: Policy,
        remembered: Callable[[], SavedRules],
        ask: Callable[[ApprovalQuestion], Awaitable[ApprovalAnswer | None]],
    ) -> None:
        self._policy = policy
        self._remembered = remembered
        self._ask = ask
        self._wishes: list[PendingApproval] = []
        self._asking: asyncio.Task[None] | None = None

    async def obtain(self, wish: PendingApproval) -> None:
        """Wait for the user's consent.

        Raises:
            PolicyError: It is not given; the message names the rule that asked for it.
        """
        wish.outcome = asyncio.get_running_loop().create_future()
        self._wishes.append(wish)
        if self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(self._ask_all())
        await wish.outcome

    async def _ask_all(self) -> None:
        while self._wishes:
            try:
                await self._gather()
                self._policy.remember(await self._remembered().rules())  # another kernel may have been told
                together, self._wishes = self._wishes, []
                await self._settle(together)
            except Exception as error:  # a fault of ours must not leave anybody waiting
                for wish in [*self._wishes]:
                    wish.refused(PolicyError(f"could not be asked about: {error!r}"))
                self._wishes = []
                raise

    async def _gather(self) -> None:
        count = 0
        while count != len(self._wishes):
            count = len(self._wishes)
            await asyncio.sleep(_TOGETHER)

    async def _settle(self, together: Sequence[PendingApproval]) -> None:
        open_wishes = sorted(filter(self._is_open, together), key=_order)
        if not open_wishes:
            return
        question = self._question(open_wishes)
        for wish in open_wishes:
            if wish.card is not None:
                wish.card.asks(question.card)
        try:
            answer = await self._ask(question)
            if answer in ("always", "never"):
                await self._keep(open_wishes, "allow" if answer == "always" else "deny")
        except Exception as error:
            for wish in open_wishes:
                wish.refused(PolicyError(f"could not be asked about: {error!r}"))
            raise
        for wish in open_wishes:
            self._apply(answer, wish)

    async def _keep(self, wishes: Sequence[PendingApproval], decision: Decision) -> None:
        remembered = self._remembered()
        rules = [
            await remembered.keep(wish.rights.digest, escape(wish.entry.name), decision, wish.entry.server, wish.caller)
            for wish in wishes
        ]
        self._policy.remember(await remembered.rules())
        for rule in rules:
            self._policy.add_rule(rule)

    def _is_open(self, wish: PendingApproval) -> bool:
        """Whether it still has to be asked about; what was answered meanwhile may decide it."""
        if wish.outcome.done():
            return False
        try:
            verdict = self._policy.check(wish.entry, wish.rights, wish.caller, wish.turn, wish.conversation)
        except PolicyError as error:
            wish.refused(error)
            return False
        if verdict.decision == "allow":
            wish.granted()
        return verdict.decision == "ask"

    def _question(self, wishes: Sequence[PendingApproval]) -> ApprovalQuestion:
        answers: list[ApprovalAnswer] = ["once", "server", "notebook", "always", "never", "no"]
        if all(wish.turn for wish in wishes):
            answers.insert(1, "answer")
        cards = [wish.card.key for wish in wishes if wish.card is not None]
        card = next(filter(None, reversed(cards)), "")
        return ApprovalQuestion(tuple(map(self._wanted, wishes)), tuple(answers), card)

    def _wanted(self, wish: PendingApproval) -> WantedCall:
        known = hints(wish.entry, wish.rights)
        said = ", ".join(text for (name, value), text in _HINTS.items() if known.get(name) is value)
        why = self._doubt(wish) or self._policy.verdict(wish.entry, wish.rights, wish.caller).why
        return WantedCall(wish.entry.server, wish.entry.name, wish.arguments, wish.caller, why, said)

    def _doubt(self, wish: PendingApproval) -> str:
        """The reason to ask that lies in the conversation."""
        conversation = wish.conversation
        if conversation is None or not self._policy.is_doubted(wish.entry, wish.rights, conversation):
            return ""
        return conversation.taint

    def _apply(self, answer: ApprovalAnswer | None, wish: PendingApproval) -> None:
        if wish.card is not None:
            wish.card.answered(answer)
        digest, caller = wish.rights.digest, wish.caller
        here = f"{WHOSE[caller]}, answered in this notebook"
        match answer:
            case "answer":
                self._policy.allow_turn(wish.turn, wish.rights, wish.entry)
            case "server":
                self._policy.add_rule(Rule("*", "allow", here, digest, caller))
            case "notebook":
                self._policy.add_rule(Rule(escape(wish.entry.name), "allow", here, digest, caller))
            case "never":
                wish.refused(_error(wish, "you said never"))
            case "no":
                wish.refused(_error(wish, "you said no"))
            case None:
                rule = self._policy.verdict(wish.entry, wish.rights, wish.caller).why
                doubt = self._doubt(wish)
                text = f"needs your consent by the rule {rule!r}, and nobody answered"
                hint = f"%mcp policy allow {quoted(wish.name)}"
                if doubt:  # which no rule outweighs
                    way = f"{beforehand(wish.name)}, or %config IPyMCP.doubts = False"
                    text = f"needs your consent because {doubt}, and nobody answered; {way} allows it beforehand"
                    hint = way
                wish.refused(_error(wish, text, hint))
            case _:
                pass
        if answer in ALLOWING and self._doubt(wish) and wish.conversation is not None:
            self._policy.agree(wish.conversation, wish.rights, None if answer == "server" else wish.entry)
        wish.granted()


def _order(wish: PendingApproval) -> int:
    return wish.card.number if wish.card is not None else 0


def _error(wish: PendingApproval, text: str, hint: str | None = None) -> PolicyError:
    hint = hint or f"%mcp policy explain {quoted(wish.name)}"
    return PolicyError(text, server=wish.entry.server, tool=wish.entry.name, hint=hint)
