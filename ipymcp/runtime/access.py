"""Access control of a host: trust, policy, consent and pins, and the storage of their decisions."""

from __future__ import annotations

import asyncio
import time
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from ipymcp.errors import PolicyError
from ipymcp.security.policy import Policy
from ipymcp.security.untrusted import ASSUMED, UntrustedContent, current_actor
from ipymcp.text import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from ipymcp.config.definition import ServerDefinition
    from ipymcp.interaction.questions import Caller
    from ipymcp.protocol.types import ToolDefinition
    from ipymcp.runtime.call_options import CallOptions
    from ipymcp.runtime.catalog import ToolEntry
    from ipymcp.runtime.loop import BackgroundLoop
    from ipymcp.runtime.question_routing import QuestionRouter
    from ipymcp.runtime.server_status import ServerFacts
    from ipymcp.security.approvals import Approvals
    from ipymcp.security.pins import Pinning
    from ipymcp.security.rules import SavedRules, Verdict
    from ipymcp.security.scanner import Finding
    from ipymcp.security.trust import Trust
    from ipymcp.security.untrusted import Conversation
    from ipymcp.storage.database import Database


T = TypeVar("T")
_MAX_AGE = 1.0
"""Seconds after which rules that other kernels may have saved are read again."""
_MAX_LOGGED = 100
"""Findings of the scan that a server's log gets; `%mcp pins scan` lists all."""


class AccessControl:
    """Decides which servers of a host may run, and which calls may be made.

    Args:
        loop: The background loop.
        questions: Asks the user.
        database: Returns the database that stores the decisions.
        add_notice: Shows a notice below the user's next cell.
    """

    def __init__(
        self,
        loop: BackgroundLoop,
        questions: QuestionRouter,
        database: Callable[[], Database],
        add_notice: Callable[[str], None],
    ) -> None:
        self.policy = Policy()
        self.untrusted = UntrustedContent()
        """Recent content of open-world tools, resources and prompts."""
        self.notify: Callable[[str], None] = _silently
        """Shows a one-line notice to a user who calls a tool."""
        self._loop = loop
        self._questions = questions
        self._database = database
        self._add_notice = add_notice
        self.findings: dict[str, tuple[Finding, ...]] = {}
        """Findings of the scan, by server."""
        self._refreshed = float("-inf")
        """When the saved rules were last read, on the clock of `time.monotonic`."""
        self._notified: set[str] = set()
        """Notices that were already shown."""

    @cached_property
    def trust(self) -> Trust:
        """The servers that may run."""
        from ipymcp.security.trust import Trust

        return Trust(self._database, self._questions.ask)

    @cached_property
    def pinning(self) -> Pinning:
        """Pins of tool definitions."""
        from ipymcp.security.pins import Pinning

        return Pinning(self.policy, self._database, self._add_notice)

    @cached_property
    def _approvals(self) -> Approvals:
        from ipymcp.security.approvals import Approvals

        return Approvals(self.policy, self.remembered, self._questions.ask)

    def remembered(self) -> SavedRules:
        """The rules that are saved beyond the kernel."""
        from ipymcp.security.rules import SavedRules

        return SavedRules(self._database())

    async def refresh(self) -> None:
        """Read the saved rules, on the background loop."""
        self._refreshed = time.monotonic()
        self.policy.remember(await self.remembered().rules())
        await self.pinning.refresh()

    def permit(
        self, session: ServerFacts, entry: ToolEntry, options: CallOptions, arguments: bytes
    ) -> Callable[[Callable[[str], None]], Coroutine[Any, Any, bytes | None]] | None:
        """Check whether a call may be made; from any thread, without waiting.

        Returns:
            A coroutine function that asks the user for consent, on the background loop, or None if none is needed. Its
            argument is called with a summary of the question and its answer. It returns the arguments to send instead,
            if the user changed them.

        Raises:
            PolicyError: The call is not allowed.
        """
        if time.monotonic() - self._refreshed > _MAX_AGE and self._loop.is_running:
            self._refreshed = time.monotonic()
            self._loop.call(self._spawn_refresh)
        rights = session.rights
        if not _is_for(entry, options.caller):
            allowed = "apps of its server" if options.caller == "model" else "models"
            raise PolicyError(f"is for {allowed} only", server=entry.server, tool=entry.name)
        verdict = self.policy.check(entry, rights, options.caller, options.turn, options.conversation, options.batch)
        if verdict.notice:
            self._notify_once(verdict)
        if verdict.decision == "ask":
            from ipymcp.runtime.catalog import ToolEntry as ServerTool  # not of the notebook
            from ipymcp.security.approvals import PendingApproval

            is_editable = options.caller == "model" and isinstance(cast("object", entry), ServerTool)
            pending = PendingApproval(
                entry,
                rights,
                options.caller,
                options.turn,
                arguments,
                options.conversation,
                options.card,
                options.batch,
                is_editable,
                getattr(entry, "code_argument", ""),
                ASSUMED if options.is_assumed else "",
            )
            return partial(self._approvals.obtain, pending)
        return None

    def is_denied(self, session: ServerFacts, entry: ToolEntry, caller: Caller = "user") -> bool:
        """Whether a tool is not offered to a caller, or the policy denies it without asking the user."""
        if not _is_for(entry, caller):
            return True
        return self.policy.verdict(entry, session.rights, caller).decision == "deny"

    def instructions_of(self, session: ServerFacts) -> str:
        """The instructions of a running server that models may be given; empty if there are none.

        They are held back if they have changed, or were added, since the server was pinned.
        """
        from ipymcp.security.pins import INSTRUCTIONS

        client, digest = session.client, session.rights.digest
        if client is None or not client.instructions:
            return ""
        is_pinned = not (self.pinning.has_changed(digest, INSTRUCTIONS) or self.pinning.is_new(digest, INSTRUCTIONS))
        return client.instructions if is_pinned or self.policy.pins == "off" else ""

    def trusts(self, definition: ServerDefinition) -> bool:
        """Whether a definition may run without asking the user; not on the loop's own thread."""
        return self._loop.run(self.trust.allows(definition))

    def on_behalf(self, entry: ToolEntry, options: CallOptions) -> CallOptions:
        """Complete the options of a call with the model on whose behalf the current code runs, if any.

        Raises:
            PolicyError: The code of a model calls a tool that the model was not given.
        """
        actor = current_actor()
        if actor is None:
            return options
        if actor.caller != "model":  # a function of the user, called by a model
            if options.conversation is not None:
                return options
            turn = options.turn or actor.turn
            return msgspec.structs.replace(options, conversation=actor.conversation, turn=turn, model=actor.model)
        if not actor.permits(entry):
            hint = f"{ASSUMED}; asyncio.to_thread() in a cell keeps it yours" if actor.is_assumed else None
            message = "is not among the tools that the model may use"
            raise PolicyError(message, server=entry.server, tool=entry.name, hint=hint)
        return msgspec.structs.replace(
            options,
            caller="model",
            turn=actor.turn,
            model=actor.model,
            conversation=actor.conversation,
            is_assumed=actor.is_assumed,
        )

    def received(self, source: str, conversation: Conversation | None, content: bytes | memoryview) -> None:
        """Record untrusted content that a conversation, or the user if None, has received; thread-safe."""
        self.untrusted.add(source, content)
        if conversation is not None:
            conversation.received(source)

    def received_outside_call(self, source: str, content: bytes | memoryview) -> None:
        """Record untrusted content that the current code has received without a call of a tool; thread-safe."""
        actor = current_actor()
        self.received(source, actor.conversation if actor is not None else None, content)

    async def examine(
        self, session: ServerFacts, tools: list[ToolDefinition], instructions: str, setting: str = ""
    ) -> None:
        """Check a server's tools before they may be called: compare them with their pins, and scan their texts.

        Args:
            session: The server.
            tools: Its tools.
            instructions: Its instructions for models; empty for none.
            setting: A setting of the user for which a server may offer more tools, such as `sampling is on`.

        Raises:
            PolicyError: The server is starting, and differs from the lock file.
        """
        from ipymcp.security.pins import INSTRUCTIONS, described_instructions
        from ipymcp.security.scanner import scan

        if instructions:
            tools = [*tools, described_instructions(instructions)]
        found = await self.pinning.compare(session.rights.digest, session.name, tools, starting=session.client is None)
        notes = dict.fromkeys(found.changed, "has changed since it was pinned")
        new = "is new since the others were pinned" + (f", perhaps because {setting}" if setting else "")
        notes |= dict.fromkeys(found.new, new)
        if (about := notes.pop(INSTRUCTIONS, None)) is not None:
            text = f"its instructions for models are held back: {INSTRUCTIONS} {about}"
            session.log.add("host", "warning", f"{text}: %mcp pins {quoted(session.name)}")
        for name, note in notes.items():
            level = "info" if setting and note == new else "warning"
            session.log.add("host", level, f"{name} {note}: %mcp pins {quoted(f'{session.name}.{name}')}")
        findings = await asyncio.to_thread(scan, session.name, tools)
        for finding in findings[:_MAX_LOGGED]:
            session.log.add("host", "warning", f"the scan found: {finding}")
        if len(findings) > _MAX_LOGGED:
            session.log.add("host", "warning", f"the scan found {len(findings) - _MAX_LOGGED:,} more: %mcp pins scan")
        self.findings[session.name] = findings

    def _spawn_refresh(self) -> None:
        self._loop.spawn(self.refresh(), "ipymcp-policy")

    def _notify_once(self, verdict: Verdict) -> None:
        if verdict.notice not in self._notified:
            self._notified.add(verdict.notice)
            self.notify(verdict.notice)


def _is_for(entry: ToolEntry, caller: Caller) -> bool:
    """Whether the server offers a tool to a caller (MCP Apps, visibility). A person may call any."""
    if caller == "user" or not len(entry.definition.meta):
        return True
    app = entry.app
    return app.is_for_models if caller == "model" else app.is_for_apps


def _silently(text: str) -> None: ...
