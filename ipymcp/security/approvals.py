"""The user's consent to tool calls. Calls that wait at the same time are combined into one question."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from glob import escape
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ipymcp.errors import PolicyError
from ipymcp.interaction.questions import ALLOWING, ApprovalQuestion, WantedCall, permission_hint
from ipymcp.protocol import types
from ipymcp.schema.annotations import hint_words
from ipymcp.security.rules import CALLS_OF, Rule, hints
from ipymcp.text import quoted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ipymcp.interaction.questions import ApprovalAnswer, Caller, Card
    from ipymcp.security.policy import Policy
    from ipymcp.security.rules import CallBatch, Decision, SavedRules, ServerGrants, ToolRef
    from ipymcp.security.untrusted import Conversation


_MAX_SCHEMA_BYTES = 100_000
_GATHER_INTERVAL = 0.02
"""Seconds without another pending approval after which the question is asked."""


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
    """The card that shows the call."""
    batch: CallBatch | None = None
    """The batch that the consent covers, of which this is the first call."""
    is_editable: bool = False
    """Whether the user may change the arguments."""
    code_argument: str = ""
    """The argument that is written into a cell and shown as code; empty if there is none."""
    note: str = ""
    """A clause about the call's origin for the user; empty for none."""
    edited: bytes | None = field(init=False, default=None)
    """The arguments as the user changed them."""
    outcome: asyncio.Future[None] = field(init=False)
    asked: Callable[[str], None] = field(init=False)
    """Called with a summary of the question and its answer."""

    def grant(self) -> None:
        """Let the call be made."""
        if not self.outcome.done():
            self.outcome.set_result(None)

    def refuse(self, error: PolicyError) -> None:
        """Fail the call."""
        if not self.outcome.done():
            self.outcome.set_exception(error)

    @property
    def name(self) -> str:
        """The tool as `server.tool`."""
        return f"{self.entry.server}.{self.entry.name}"


class Approvals:
    """Questions for consent, and the rules that their answers become. Use only on the background loop.

    Args:
        policy: The notebook's rules.
        saved_rules: Returns the store for the answers "always" and "never".
        ask: Asks the user; returns None if no one can be asked, or no one answered.
    """

    def __init__(
        self,
        policy: Policy,
        saved_rules: Callable[[], SavedRules],
        ask: Callable[[ApprovalQuestion], Awaitable[ApprovalAnswer | None]],
    ) -> None:
        self._policy = policy
        self._saved_rules = saved_rules
        self._ask = ask
        self._pending: list[PendingApproval] = []
        self._task: asyncio.Task[None] | None = None

    async def obtain(self, approval: PendingApproval, asked: Callable[[str], None]) -> bytes | None:
        """Wait for the user's consent.

        Args:
            approval: The call.
            asked: Called with a summary of the question and its answer.

        Returns:
            The arguments to send instead, if the user changed them.

        Raises:
            PolicyError: The user did not consent; the message names the rule that required it.
        """
        approval.outcome, approval.asked = asyncio.get_running_loop().create_future(), asked
        self._pending.append(approval)
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._ask_all())
        await approval.outcome
        return approval.edited

    async def _ask_all(self) -> None:
        while self._pending:
            try:
                count = 0
                while count != len(self._pending):  # until no other call joins
                    count = len(self._pending)
                    await asyncio.sleep(_GATHER_INTERVAL)
                self._policy.remember(await self._saved_rules().rules())  # another kernel may have added some
                gathered, self._pending = self._pending, []
                await self._ask_about(gathered)
            except Exception as error:  # a bug must not leave a call waiting
                for approval in [*self._pending]:
                    approval.refuse(PolicyError(f"could not be asked about: {error!r}"))
                self._pending = []
                raise

    async def _ask_about(self, gathered: Sequence[PendingApproval]) -> None:
        pending = [approval for approval in gathered if self._is_open(approval)]
        pending.sort(key=lambda approval: approval.card.number if approval.card is not None else 0)
        if not pending:
            return
        question = self._question(pending)
        for approval in pending:
            if approval.card is not None:
                approval.card.show_question(question.card)
        try:
            answer = await self._answer(question, pending)
            if answer in ("always", "never"):
                await self._keep(pending, "allow" if answer == "always" else "deny")
        except Exception as error:
            for approval in pending:
                approval.refuse(PolicyError(f"could not be asked about: {error!r}"))
            raise
        summary = ApprovalQuestion(question.calls, question.answers).summary(answer)  # also where a card shows it
        for approval in pending:
            approval.asked(summary)
            if question.edits and answer == "once":
                approval.edited = types.encode(question.edits[-1])
            self._apply(answer, approval)

    async def _answer(self, question: ApprovalQuestion, approvals: Sequence[PendingApproval]) -> ApprovalAnswer | None:
        """Ask, and withdraw the question when no call waits for its answer any more."""
        asking = asyncio.ensure_future(self._ask(question))

        def withdraw(_: object) -> None:
            if all(approval.outcome.done() for approval in approvals):
                asking.cancel()

        for approval in approvals:
            approval.outcome.add_done_callback(withdraw)
        await asyncio.wait({asking})
        return None if asking.cancelled() else asking.result()

    async def _keep(self, approvals: Sequence[PendingApproval], decision: Decision) -> None:
        saved_rules = self._saved_rules()
        rules = [
            await saved_rules.keep(
                approval.rights.digest, escape(approval.entry.name), decision, approval.entry.server, approval.caller
            )
            for approval in approvals
        ]
        self._policy.remember(await saved_rules.rules())
        for rule in rules:
            self._policy.add_rule(rule)

    def _is_open(self, approval: PendingApproval) -> bool:
        """Whether the call still needs an answer; rules added meanwhile may have decided it."""
        if approval.outcome.done():
            return False
        try:
            verdict = self._policy.check(
                approval.entry,
                approval.rights,
                approval.caller,
                approval.turn,
                approval.conversation,
                approval.batch,
            )
        except PolicyError as error:
            approval.refuse(error)
            return False
        if verdict.decision == "allow":
            approval.grant()
        return verdict.decision == "ask"

    def _question(self, approvals: Sequence[PendingApproval]) -> ApprovalQuestion:
        answers: list[ApprovalAnswer] = ["once", "server", "notebook", "always", "never", "no"]
        if all(approval.turn for approval in approvals):
            answers.insert(1, "answer")
        cards = [approval.card.key for approval in approvals if approval.card is not None]
        card = next(filter(None, reversed(cards)), "")
        calls = tuple(map(self._wanted, approvals))
        if len(approvals) == 1 and approvals[0].is_editable and approvals[0].batch is None:
            raw = approvals[0].entry.definition.inputSchema
            schema = types.loads(raw) if len(raw) <= _MAX_SCHEMA_BYTES else None  # else too large to send
            calls = (replace(calls[0], schema=schema if types.is_object(schema) else None),)
        return ApprovalQuestion(calls, tuple(answers), card)

    def _wanted(self, approval: PendingApproval) -> WantedCall:
        described = hint_words(hints(approval.entry, approval.rights))
        why = self._taint(approval)
        if not why:
            why = f"rule: {self._policy.verdict(approval.entry, approval.rights, approval.caller).why}"
        why = " · ".join(filter(None, [why, approval.note]))
        arguments: dict[str, Any] = types.loads(approval.arguments) if approval.arguments else {}
        entry, batch = approval.entry, approval.batch
        code = arguments.get(approval.code_argument, "")
        wanted = WantedCall(entry.server, entry.name, arguments, approval.caller, why, described, code)
        if batch is None:
            return wanted
        return replace(wanted, count=batch.count, samples=tuple(map(types.loads, batch.samples)))

    def _taint(self, approval: PendingApproval) -> str:
        """Return the reason to ask because of untrusted content in the conversation, or the empty string."""
        conversation = approval.conversation
        if conversation is None:
            return ""
        is_doubted = self._policy.is_doubted(approval.entry, approval.rights, conversation, approval.caller)
        return conversation.taint if is_doubted else ""

    def _apply(self, answer: ApprovalAnswer | None, approval: PendingApproval) -> None:
        if approval.card is not None:
            approval.card.show_answer(answer)
        digest, caller = approval.rights.digest, approval.caller
        origin = f"{CALLS_OF[caller]}, answered in this notebook"
        match answer:
            case "answer":
                self._policy.allow_turn(approval.turn, approval.rights, approval.entry)
            case "server":
                self._policy.add_rule(Rule("*", "allow", origin, digest, caller))
            case "notebook":
                self._policy.add_rule(Rule(escape(approval.entry.name), "allow", origin, digest, caller))
            case "never":
                approval.refuse(_error(approval, "you said never"))
            case "no":
                approval.refuse(_error(approval, "you said no"))
            case None:
                rule = self._policy.verdict(approval.entry, approval.rights, approval.caller).why
                taint = self._taint(approval)
                text = f"needs your consent by the rule {rule!r}, and no one answered"
                hint = f"%mcp policy allow {quoted(approval.name)}"
                if taint:  # a taint requires consent regardless of the rules
                    hint = permission_hint(approval.name, is_doubted=True)
                    text = f"needs your consent because {taint}, and no one answered; {hint} allows it beforehand"
                approval.refuse(_error(approval, "; ".join(filter(None, [text, approval.note])), hint))
            case _:
                pass
        if answer in ALLOWING and approval.batch is not None:
            approval.batch.taint = "" if approval.conversation is None else approval.conversation.taint
            self._policy.agree(approval.batch, approval.rights, approval.entry)
        if answer in ALLOWING and self._taint(approval) and approval.conversation is not None:
            self._policy.agree(approval.conversation, approval.rights, None if answer == "server" else approval.entry)
        approval.grant()


def _error(approval: PendingApproval, text: str, hint: str | None = None) -> PolicyError:
    hint = hint or f"%mcp policy explain {quoted(approval.name)}"
    return PolicyError(text, server=approval.entry.server, tool=approval.entry.name, hint=hint)
