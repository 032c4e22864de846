"""One model's attempt at an answer."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from ipymcp.errors import McpError
from ipymcp.llm.answer import Answer, ModelCall, Usage
from ipymcp.llm.answer_calls import AnswerCalls
from ipymcp.llm.backend import AnswerRequest, ModelResponse, ModelSettings
from ipymcp.llm.live_output import LiveOutput
from ipymcp.llm.planning import estimate, require_affordable
from ipymcp.llm.providers import model_name, profile_of
from ipymcp.llm.recording import FILE, AnswerKey, AnswerRecorder, digest, repeatable_part, type_text
from ipymcp.llm.tool_calls import ToolCallRunner, calling_model
from ipymcp.llm.tool_definitions import convert
from ipymcp.masking import masks
from ipymcp.protocol.types import is_object
from ipymcp.security.rules import selects
from ipymcp.text import counted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ipymcp.interaction.questions import CallApp
    from ipymcp.llm.backend import Clock, Limits, ModelBackend, RequestPreview
    from ipymcp.llm.chats import Chat, Chats
    from ipymcp.llm.live_output import OutputListener
    from ipymcp.llm.planning import AskRequest, Plan, Planner
    from ipymcp.llm.providers import Declaration
    from ipymcp.llm.recording import RecordedAnswer, Replay
    from ipymcp.runtime.catalog import ToolEntry
    from ipymcp.runtime.host import Host
    from ipymcp.runtime.session import ServerSession


class AnswerServices(Struct, frozen=True):
    """The services that all answers of a kernel share.

    Attributes:
        host: The host.
        chats: The conversations.
        planner: The planner of answers.
        backend: Returns the backend, which is loaded with the first answer.
        default_replay: Returns the configured mode of the recording.
        begin_app: Makes the app of a call that a model begins to write; None if apps cannot be shown.
        count: Adds a cost to the kernel's usage.
    """

    host: Host
    chats: Chats
    planner: Planner
    backend: Callable[[], Awaitable[ModelBackend]]
    default_replay: Callable[[], Replay]
    begin_app: Callable[[ServerSession, ToolEntry], CallApp | None]
    count: Callable[[Usage], None]


class Attempt:
    """Asks one model: plans the answer, looks for a recorded one, checks the price, sends the request and finishes.

    Args:
        services: What all answers use.
        wanted: The question to this model.
        chat: Its conversation.
        clock: The limit on the time of all attempts.
        listener: Shows the answer; None if nothing does.
        reason: The failure of the previous model, because of which this one is asked; empty for the first model.
        earlier: The cost of the earlier attempts.
        is_last: Whether no other model can be asked.
    """

    def __init__(
        self,
        services: AnswerServices,
        wanted: AskRequest,
        chat: Chat,
        clock: Clock,
        listener: OutputListener | None,
        *,
        reason: str,
        earlier: Usage,
        is_last: bool,
    ) -> None:
        self._services = services
        self._wanted = wanted
        self._chat = chat
        self._clock = clock
        self._reason = reason
        self._earlier = earlier
        self._is_last = is_last
        self._output = LiveOutput(services.host, listener)
        self._turn = f"answer {services.host.calls.next_number()}"
        self._events: list[str | ModelCall] = []
        """Text and calls in their order."""
        self._has_thought = False
        """Whether there was reasoning."""
        self._partial: ModelResponse | None = None
        """The response of a model that was stopped or failed."""
        self._has_failed = False
        self.spent = earlier
        """The cost of all attempts so far."""

    @property
    def may_go_on(self) -> bool:
        """Whether another model may be asked, because this one failed before it wrote, thought or called anything."""
        return self._has_failed and self._is_silent and not self._is_last and self._wanted.limits.has_room(self.spent)

    @property
    def _is_silent(self) -> bool:
        return not self._events and not self._has_thought

    async def run(self) -> Answer:
        """Return the answer. Runs on the background loop.

        Raises:
            McpError: The model cannot answer. The error's `.answer` has the partial answer, which is also in the chat.
        """
        wanted, chat, services = self._wanted, self._chat, self._services
        asking = calling_model(wanted.model, wanted.base_url, services.host.history.cell())
        # In a thread, because there may be thousands of tools, and variables with slow reprs.
        planning = asyncio.to_thread(services.planner.prepare, wanted, chat, self._turn, asking)
        plan, request = await self._clock.run(planning)
        earlier_as = chat.earlier_as if services.chats.saved.is_kept else ""
        request = replace(request, note=self._reason, earlier_as=earlier_as)
        if request.source:
            chat.conversation.read(request.source)
        self._allow_tools()
        profile = profile_of(wanted.model, wanted.base_url)
        runner = ToolCallRunner(plan.tools, self._turn, chat.conversation, profile, asking)

        mode, limits, recorder = wanted.replay or services.default_replay(), wanted.limits, None
        if mode != "off":
            key = await asyncio.to_thread(self._key, plan, request)
            recorder = AnswerRecorder(services.host.folder, key)
            recorded = None if mode == "new" else await recorder.find(runner, limits.calls)
            if recorded is not None:
                return self._replay(request, recorded, recorder.repeated)
            if mode == "only":
                self._has_failed = True  # the answer of another model may be recorded
                raise McpError(
                    f"{FILE} has no such answer: {recorder.changed}",
                    hint='replay="auto" asks the model and records its answer',
                )
            limits = replace(limits, calls=limits.calls - recorder.repeated)
            note = f"asked again: {recorder.changed}" if mode == "auto" else "asked again"
            request = replace(request, note=" · ".join(filter(None, [request.note, note])))

        if limits.dollars is not None:
            cost = await asyncio.to_thread(estimate, wanted, request, plan, chat.messages)
            require_affordable(cost, limits, request.model, self._earlier)

        calls = self._calls(runner, plan)
        finished = await self._send(self._request(plan, request, limits, calls), request, calls)
        return await self._finish(finished, request, calls, recorder)

    def _allow_tools(self) -> None:
        """Give the user's consent to the tools that the question allows."""
        if self._wanted.allow:
            for session, entry in self._wanted.tools.selected():
                if selects(self._wanted.allow, entry):
                    self._services.host.guard.policy.allow_turn(self._turn, session.rights, entry)

    # -- a recorded answer --------------------------------------------------------------------------------------------

    def _key(self, plan: Plan, request: RequestPreview) -> AnswerKey:
        """Return the key under which the answer to this request is recorded."""
        wanted = self._wanted
        searched = dict.fromkeys(plan.names.values(), "")
        declared = {f"{tool.server}.{tool.tool}": digest([tool.description, tool.schema]) for tool in plan.declared()}
        return AnswerKey(
            model=masks(request.model),
            prompt=digest([request.prompt, *(attached.image.base64 for attached in request.images)]),
            system=digest([wanted.system, plan.search is not None, plan.coder is not None, plan.notes]),
            conversation=digest(repeatable_part([*self._chat.messages])),
            settings="" if wanted.settings == ModelSettings() else digest(to_builtins(wanted.settings)),
            returns=digest("" if wanted.returns is None else type_text(wanted.returns)),
            tools=searched | declared,
        )

    def _replay(self, request: RequestPreview, recorded: RecordedAnswer, repeated: int) -> Answer:
        """Show a recorded answer, and continue the chat from it."""
        self._chat.conversation.read(f"the recording {FILE}")  # the file may be from anyone
        output = self._output
        output.show_request(replace(request, note=f"replayed from {FILE}"))
        calls: list[ModelCall] = []
        for event in recorded.events:
            if isinstance(event, str):
                output.add_text(event)
            else:
                number = len(calls) + 1
                calls.append(event.as_call(number, f"{self._turn}, call {number}" if output.is_seen else ""))
                output.show_call(calls[-1])
        output.flush()
        is_typed = recorded.data is not None and not is_object(self._wanted.returns)
        data = convert(recorded.data, self._wanted.returns) if is_typed else recorded.data
        response = ModelResponse(recorded.text, data, recorded.messages, Usage(), recorded.reason, recorded.thinking)
        self._keep(response)
        answer = self._answer(response, calls, Usage())
        what = f"{counted(repeated, 'call')} repeated, the model was not asked" if repeated else "nothing was sent"
        answer.is_replayed, answer.note = True, f"replayed from {FILE} of {recorded.recorded}: {what}"
        return answer

    # -- an answer of the model ---------------------------------------------------------------------------------------

    def _calls(self, runner: ToolCallRunner, plan: Plan) -> AnswerCalls:
        return AnswerCalls(
            self._services.host,
            runner,
            self._output,
            self._clock,
            self._turn,
            plan.names,
            self._events.append,
            self._services.begin_app,
        )

    def _request(self, plan: Plan, request: RequestPreview, limits: Limits, calls: AnswerCalls) -> AnswerRequest:
        wanted, conversation = self._wanted, self._chat.conversation

        def declare() -> list[Declaration]:
            conversation.given()  # with the declarations, the model also receives all results so far
            return plan.declared()

        return AnswerRequest(
            model=wanted.model,
            base_url=wanted.base_url,
            prompt=request.prompt,
            images=request.images,
            system=request.system,
            history=self._chat.messages,
            returns=wanted.returns,
            limits=limits,
            declared=declare,
            call=calls.run,
            search=plan.search,
            find=None if plan.search is None else partial(calls.find, plan.search),
            on_text=self._show_text,
            on_thinking=self._show_thinking,
            on_call=calls.begin_draft,
            on_arguments=calls.add_to_draft,
            settings=wanted.settings,
            on_partial=self._keep_partial,
            was_made=calls.was_made,
            spent=self._earlier,
        )

    def _show_text(self, text: str) -> None:
        self._events.append(text)
        self._output.show_text(text)

    def _show_thinking(self, text: str) -> None:
        self._has_thought = True
        self._output.show_thinking(text)

    def _keep_partial(self, partial_response: ModelResponse) -> None:
        """Keep what a stopped or failed model has answered. Called in the backend's thread."""
        self._partial = partial_response
        self.spent = self._earlier + partial_response.usage
        # On the loop and not in `_send`, which may be cancelled already.
        if self._is_silent and not self._is_last:  # the chat goes on with the next model's answer
            self._services.host.loop.call(self._services.count, partial_response.usage)
        else:
            self._services.host.loop.call(self._keep, partial_response)

    async def _send(self, question: AnswerRequest, request: RequestPreview, calls: AnswerCalls) -> ModelResponse:
        self._output.show_request(request)
        self._output.begin_waiting()
        backend = await self._services.backend()
        try:
            return await self._clock.run(backend.answer(question))
        except McpError as error:
            self._has_failed = True
            chat, states = self._wanted.chat, []
            if self._partial is not None:
                error.answer = self._answer(self._partial, calls.made, self._earlier)
            if chat:
                is_changed = self._partial is not None
                states = [f"chat {chat!r} has the partial answer" if is_changed else f"chat {chat!r} is unchanged"]
            error.hint = " · ".join(filter(None, [error.hint, *states])) or None
            raise
        finally:
            calls.end()
            self._output.flush()
            self._output.end_waiting()

    async def _finish(
        self, finished: ModelResponse, request: RequestPreview, calls: AnswerCalls, recorder: AnswerRecorder | None
    ) -> Answer:
        self._keep(finished)
        answer = self._answer(finished, calls.made, self._earlier)
        if recorder is not None:
            answer.note = await asyncio.to_thread(recorder.add, request.prompt, answer, self._events)
        if self._reason:
            answer.note = " · ".join(filter(None, [f"answered by {answer.model}", answer.note]))
        return answer

    def _keep(self, response: ModelResponse) -> None:
        """Add the cost of a complete or partial response to the usage, and keep the response in its chat."""
        self._services.count(response.usage)
        self._services.chats.keep(self._wanted.chat, self._chat, response.messages)

    def _answer(self, response: ModelResponse, calls: Sequence[ModelCall], earlier: Usage) -> Answer:
        """Return the answer of a complete or partial response.

        Args:
            response: The response.
            calls: Its calls.
            earlier: The cost of earlier attempts.
        """
        usage = earlier + response.usage
        model = model_name(self._wanted.model)
        answer = Answer(response.text, response.data, calls, response.messages, usage, model)
        answer.reason, answer.thinking = response.reason, response.thinking
        answer.is_untrusted = bool(self._chat.conversation.sources)
        if answer.is_untrusted:
            self._services.host.guard.received(answer.source, None, answer.text.encode("utf-8", "replace"))
        return answer
