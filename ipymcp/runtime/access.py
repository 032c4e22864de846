"""Access control of a host: trust, policy, consent and pins, and what is saved of each."""

from __future__ import annotations

import asyncio
import time
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ipymcp.errors import PolicyError
from ipymcp.security.policy import Policy
from ipymcp.security.untrusted import UntrustedContent, current_actor
from ipymcp.text import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from ipymcp.interaction.questions import ApprovalAnswer, ApprovalQuestion, TrustAnswer, TrustQuestion
    from ipymcp.protocol.types import ToolDefinition
    from ipymcp.runtime.call import CallOptions
    from ipymcp.runtime.catalog import ToolEntry
    from ipymcp.runtime.interfaces import ServerFacts
    from ipymcp.runtime.loop import BackgroundLoop
    from ipymcp.runtime.question_routing import QuestionRouter
    from ipymcp.security.approvals import Approvals
    from ipymcp.security.pins import Pinning
    from ipymcp.security.rules import SavedRules, Verdict
    from ipymcp.security.scanner import Finding
    from ipymcp.security.trust import Trust
    from ipymcp.security.untrusted import Conversation
    from ipymcp.storage.database import Database


T = TypeVar("T")
_FRESH = 1.0
"""Seconds after which it is looked whether another kernel was told something."""


class AccessControl:
    """Decides for a host.

    Args:
        loop: The background loop.
        desk: Brings questions to the user.
        database: Keeps what was decided.
    """

    def __init__(self, loop: BackgroundLoop, desk: QuestionRouter, database: Callable[[], Database]) -> None:
        self.policy = Policy()
        self.untrusted = UntrustedContent()
        """Recent content of open-world tools, resources and prompts."""
        self.notify: Callable[[str], None] = _silently
        """Tells a person who calls, in one line."""
        self._loop = loop
        self._desk = desk
        self._database = database
        self.findings: dict[str, tuple[Finding, ...]] = {}
        """Findings of the scan, by server."""
        self._read = float("-inf")
        self._notified: set[str] = set()

    @cached_property
    def trust(self) -> Trust:
        """The servers that may run."""
        from ipymcp.security.trust import Trust

        return Trust(self._database, self._ask_trust)

    @cached_property
    def pinning(self) -> Pinning:
        """Whether tools are what they were."""
        from ipymcp.security.pins import Pinning

        return Pinning(self.policy, self._database)

    @cached_property
    def _approvals(self) -> Approvals:
        from ipymcp.security.approvals import Approvals

        return Approvals(self.policy, self.remembered, self._ask_approval)

    def remembered(self) -> SavedRules:
        """The rules that outlive the kernel."""
        from ipymcp.security.rules import SavedRules

        return SavedRules(self._database())

    async def refresh(self) -> None:
        """Read what is remembered, on the background loop."""
        self._read = time.monotonic()
        self.policy.remember(await self.remembered().rules())
        await self.pinning.refresh()

    def permit(
        self, session: ServerFacts, entry: ToolEntry, options: CallOptions, arguments: bytes
    ) -> Callable[[], Coroutine[Any, Any, None]] | None:
        """Let a call pass that may be made; from any thread, at once.

        Returns:
            What asks the user, on the background loop, where that is needed.

        Raises:
            PolicyError: It may not be made.
        """
        if time.monotonic() - self._read > _FRESH and self._loop.is_running:
            self._read = time.monotonic()
            self._loop.call(self._refresh_soon)
        rights = session.rights
        verdict = self.policy.check(entry, rights, options.caller, options.turn, options.conversation)
        if verdict.notice:
            self._notify_once(verdict)
        if verdict.decision == "ask":
            from ipymcp.security.approvals import PendingApproval

            wish = PendingApproval(
                entry, rights, options.caller, options.turn, arguments, options.conversation, options.card
            )
            return lambda: self._approvals.obtain(wish)
        return None

    def on_behalf(self, entry: ToolEntry, options: CallOptions) -> CallOptions:
        """The options of a call, which is made by whoever the code that makes it acts for.

        Raises:
            PolicyError: It is made by a model's code, which was not given this tool.
        """
        actor = current_actor()
        if actor is None:
            return options
        if actor.caller != "model":  # a function of the user's, called by a model
            if options.conversation is not None:
                return options
            return msgspec.structs.replace(options, conversation=actor.conversation)
        if not actor.permits(entry):
            raise PolicyError("is not among the tools that the model may use", server=entry.server, tool=entry.name)
        return msgspec.structs.replace(options, caller="model", turn=actor.turn, conversation=actor.conversation)

    def receiver(
        self, session: ServerFacts, entry: ToolEntry, conversation: Conversation | None
    ) -> Callable[[bytes | memoryview], None] | None:
        """The function that takes note of a call's result; None for a tool that works on its own data only."""
        if not self.policy.is_open_world(entry, session.rights):
            return None
        return partial(self.received, f"{session.name}.{entry.name}", conversation)

    def received(self, source: str, conversation: Conversation | None, content: bytes | memoryview) -> None:
        """An untrusted source has said something, in a conversation or to the user; from any thread."""
        self.untrusted.add(source, content)
        if conversation is not None:
            conversation.received(source)

    def heard(self, source: str, content: bytes | memoryview) -> None:
        """The same, of what no call brings, where it is asked for: whoever that acts for has received it."""
        actor = current_actor()
        self.received(source, actor.conversation if actor is not None else None, content)

    async def examine(self, session: ServerFacts, tools: list[ToolDefinition]) -> None:
        """Look at a server's tools before anybody may call them: against their pins, and for what should not be there.

        Raises:
            PolicyError: The server is starting, and is not what the lock file says.
        """
        from ipymcp.security.scanner import scan

        changed, new = await self.pinning.compare(
            session.rights.digest, session.name, tools, starting=session.client is None
        )
        notes = dict.fromkeys(changed, "has changed since it was pinned")
        notes |= dict.fromkeys(new, "is new since the others were pinned")
        for name, note in notes.items():
            session.log.add("host", "warning", f"{name} {note}: %mcp pins {quoted(f'{session.name}.{name}')}")
        found = await asyncio.to_thread(scan, session.name, tools)
        for finding in found:
            session.log.add("host", "warning", f"the scan found: {finding}")
        self.findings[session.name] = found

    def _refresh_soon(self) -> None:
        self._loop.spawn(self.refresh(), "ipymcp-policy")

    def _notify_once(self, verdict: Verdict) -> None:
        if verdict.notice not in self._notified:
            self._notified.add(verdict.notice)
            self.notify(verdict.notice)

    async def _ask_trust(self, question: TrustQuestion) -> TrustAnswer | None:
        return await self._desk.ask("trust", lambda interaction: interaction.trust(question), None)

    async def _ask_approval(self, question: ApprovalQuestion) -> ApprovalAnswer | None:
        return await self._desk.ask("approval", lambda interaction: interaction.approve(question), None)


def _silently(text: str) -> None: ...
