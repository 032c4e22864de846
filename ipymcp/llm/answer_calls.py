"""The tool calls of one answer, with the cards that show them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from functools import partial
from typing import TYPE_CHECKING, Any

from ipymcp.errors import McpError
from ipymcp.llm.answer import ModelCall, ToolCallOutcome, ToolCallRequest
from ipymcp.llm.live_output import CallCard, CallDraft, LiveOutput
from ipymcp.llm.tool_definitions import NOTEBOOK, FunctionTool
from ipymcp.llm.tool_search import SEARCH, ToolSearch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ipymcp.interaction.questions import CallApp
    from ipymcp.llm.backend import Clock
    from ipymcp.llm.tool_calls import ToolCallRunner
    from ipymcp.runtime.catalog import ToolEntry
    from ipymcp.runtime.host import Host
    from ipymcp.runtime.session import ServerSession


class AnswerCalls:
    """Runs the tool calls of one answer and keeps their records, on the background loop."""

    def __init__(
        self,
        host: Host,
        runner: ToolCallRunner,
        output: LiveOutput,
        clock: Clock,
        turn: str,
        names: dict[str, str],
        note: Callable[[ModelCall], None],
        begin_app: Callable[[ServerSession, ToolEntry], CallApp | None],
    ) -> None:
        self._note = note
        self._begin_app = begin_app
        self._numbers = itertools.count(1)
        self._drafts: dict[int, CallDraft] = {}
        """The calls that the model is writing, by the numbers of their parts in the response."""
        self.made: list[ModelCall] = []
        self._host = host
        self._runner = runner
        self._output = output
        self._clock = clock
        self._turn = turn
        self._names = names
        self._by_id: dict[str, ModelCall] = {}
        self._is_over = False
        """Whether the answer has ended, so that no further call is made."""

    async def run(self, name: str, arguments: dict[str, Any], call_id: str) -> ToolCallOutcome:
        """Run a call. Awaited on the backend's loop."""
        return await self._host.loop.arun(self._make(ToolCallRequest(call_id, name, arguments)))

    def begin_draft(self, part: int, request: ToolCallRequest) -> None:
        """Show a call that the model begins to write, and its app. Called in the backend's thread."""
        if self._output.is_seen:
            self._host.loop.call(self._begin_draft, part, request)

    def add_to_draft(self, part: int, text: str) -> None:
        """Add to the arguments of a call that the model writes. Called in the backend's thread."""
        if self._output.is_seen:
            self._host.loop.call(self._add_to_draft, part, text)

    def _begin_draft(self, part: int, request: ToolCallRequest) -> None:
        if (left := self._drafts.pop(part, None)) is not None:  # of an earlier response
            left.cancel()
        found = None if self._is_over else self._runner.find(request.name)
        if found is None:
            return
        if isinstance(found, FunctionTool):
            card = self._card(NOTEBOOK, request.name, {}, request.name, is_draft=True)
            self._drafts[part] = CallDraft(request, card, None, lambda arguments: arguments)
            return
        session, entry = found
        app = self._begin_app(session, entry) if entry.app.uri else None
        card = self._card(session.name, entry.name, {}, request.name, app, is_draft=True)
        self._drafts[part] = CallDraft(request, card, app, partial(self._runner.restored, entry))
        if app is not None:
            self._host.loop.spawn(self._show_app(card, app), "ipymcp-app")

    async def _show_app(self, card: CallCard, app: CallApp) -> None:
        """Show an app, unless the user is to be asked about its page, which can wait for the result."""
        with contextlib.suppress(McpError):
            if await app.needs_no_question():
                self._output.show_app(card.call, app)

    def _add_to_draft(self, part: int, text: str) -> None:
        if (draft := self._drafts.get(part)) is not None:
            draft.add(text)

    def end(self) -> None:
        """End the answer: the calls that the model has begun to write are not made."""
        self._is_over = True
        for draft in self._drafts.values():
            draft.cancel()
        self._drafts.clear()

    def was_made(self, call_id: str) -> bool:
        """Whether a call may have reached its tool. The answer is over: from now on no other call is made."""
        self._is_over = True
        call = self._by_id.get(call_id)
        return call is not None and call.was_made

    async def find(self, search: ToolSearch, queries: Sequence[str]) -> list[str]:
        """Search tools. Awaited on the backend's loop."""

        async def find() -> list[str]:
            card = self._card(NOTEBOOK, SEARCH, {"queries": list(queries)}, SEARCH)
            self._add(card.call)
            found = await asyncio.to_thread(search.find, queries)
            card.finish("\n".join(found) or "no tool matches", found, is_error=False)
            return found

        return await self._host.loop.arun(find())

    async def _make(self, request: ToolCallRequest) -> ToolCallOutcome:
        part = next((number for number, draft in self._drafts.items() if draft.is_of(request)), None)
        if part is not None:
            card = self._drafts.pop(part).finish(request.arguments)
        else:
            server, _, tool = self._names.get(request.name, f"{NOTEBOOK}.{request.name}").partition(".")
            card = self._card(server, tool, request.arguments, request.name)
        call = card.call
        self._add(call)
        self._by_id[request.id] = call
        try:
            outcome = await self._runner.run(request, card)
        except asyncio.CancelledError:  # of the whole answer: a call that waits for this one is not made
            self._is_over = True
            call.is_cancelled = True
            card.finish("cancelled", None, is_error=True)
            raise
        except BaseException as error:
            card.finish(repr(error), None, is_error=True)
            raise
        call.is_refused = call.is_refused or outcome.is_refused
        card.finish(outcome.text, outcome.value, is_error=outcome.is_error)
        return outcome

    def _card(
        self, server: str, tool: str, arguments: Any, name: str, app: CallApp | None = None, *, is_draft: bool = False
    ) -> CallCard:
        """Show a call that is about to be made or that the model begins to write."""
        number = next(self._numbers)
        card = f"{self._turn}, call {number}" if self._output.is_seen else ""
        call = ModelCall(server, tool, arguments, number=number, card=card, name_for_model=name, is_draft=is_draft)
        return CallCard(call, self._output, self._clock, lambda: self._is_over, app)

    def _add(self, call: ModelCall) -> None:
        """Add a call to the answer."""
        self.made.append(call)
        self._note(call)
