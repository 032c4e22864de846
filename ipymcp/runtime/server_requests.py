"""Responses to one server's requests: elicitation, sampling, roots.

Source: MCP 2025-11-25 and 2026-07-28, client/elicitation, client/sampling, client/roots.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, cast

from ipymcp.errors import ArgumentError, RpcError
from ipymcp.protocol.types import is_array, is_object
from ipymcp.runtime.call import Call
from ipymcp.runtime.client_handlers import SamplingRequest
from ipymcp.runtime.process_env import folder_of

if TYPE_CHECKING:
    from ipymcp.config.definition import ServerDefinition
    from ipymcp.interaction.elicitation import ElicitationAnswer
    from ipymcp.interaction.questions import Question
    from ipymcp.protocol.jsonrpc import PendingRequest
    from ipymcp.runtime.context import RuntimeContext
    from ipymcp.runtime.server_status import ServerFacts


_REJECTED = -1
_INTERNAL = -32603
_METHOD_NOT_FOUND = -32601
_LOGIN_EXTENSIONS = {
    "client_credentials": "io.modelcontextprotocol/oauth-client-credentials",
    "enterprise": "io.modelcontextprotocol/enterprise-managed-authorization",
}
"""MCP extensions by type of login (2026-07-28, extensions/auth)."""
_ANSWER_IN_CODE = "answer in code with mcp.on_elicitation(function)"


class SessionResponder:
    """Answers the requests of one session's server.

    Args:
        session: The server.
        expanded: Its definition with the values of its variables.
        context: The host's services.
    """

    def __init__(self, session: ServerFacts, expanded: ServerDefinition, context: RuntimeContext) -> None:
        self._session = session
        self._expanded = expanded
        self._context = context

    def capabilities(self) -> dict[str, Any]:
        """The capabilities to declare, with the MCP extension used to log in to this server."""
        declared = self._context.client_handlers.capabilities()
        extension = _LOGIN_EXTENSIONS.get(self._session.definition.auth.get("type", ""))
        if extension:
            declared["extensions"] = {**declared.get("extensions", {}), extension: {}}
        return declared

    async def answer(self, method: str, params: dict[str, Any], request: PendingRequest | None) -> dict[str, Any]:
        """Return the result of one request of the server; the timeouts of the calls that depend on it are paused.

        Args:
            method: The method of the server's request.
            params: The params of the server's request.
            request: Our request whose response stream carried it, if known.
        """
        call, waiting = self._calls_concerned(request)
        with contextlib.ExitStack() as pauses:
            for each in waiting:
                pauses.enter_context(each.pause_timeout())
            if method == "roots/list":
                folder = folder_of(self._expanded, self._context.folder)
                return {"roots": self._context.client_handlers.roots_for(self._expanded, folder)}
            if method == "elicitation/create":
                return _as_result(await self._elicit(params, call))
            if method == "sampling/createMessage":
                return await self._sample(params, call)
        raise RpcError(f"{method} is not supported by this host", code=_METHOD_NOT_FOUND)

    def _calls_concerned(self, request: PendingRequest | None) -> tuple[Call[Any] | None, list[Call[Any]]]:
        """The call that caused a request, if known, and the calls that cannot continue before it is answered."""
        calls = [cast("Call[Any]", call) for call in self._context.running.copy().values() if isinstance(call, Call)]
        running = [call for call in calls if call.session is self._session]
        origin = next((call for call in running if request is not None and call.has_request(request)), None)
        if origin is None and request is None and len(running) == 1:
            origin = running[0]
        return origin, running if origin is None else [origin]

    async def _elicit(self, params: dict[str, Any], call: Call[Any] | None) -> ElicitationAnswer:
        from ipymcp.interaction.elicitation import UNANSWERED, ElicitationAnswer, read_elicitation

        question = read_elicitation(self._session.name, call.tool if call else None, params)
        if isinstance(question, ElicitationAnswer):
            return self._logged(question)
        handler = self._context.client_handlers.elicitation
        if handler is None:
            answer = self._logged(await self._ask(question, call))
            if call is not None:
                call.note_question(question.summary(answer))
            if answer is UNANSWERED:
                self._notify(call, "asked a question, which was cancelled because no one can be asked", _ANSWER_IN_CODE)
            return answer
        try:
            return await self._context.client_handlers.run(handler, question, call)
        except Exception as error:
            reason = str(error) if isinstance(error, ArgumentError) else f"on_elicitation raised {error!r}"
            self._notify(call, "asked a question that was cancelled", reason)
            return self._logged(ElicitationAnswer("cancel", note=reason))

    async def _ask(self, question: Question[ElicitationAnswer], call: Call[Any] | None) -> ElicitationAnswer:
        """Ask the user, and withdraw the question when its call is over: not every server cancels its request then."""
        asking = asyncio.ensure_future(self._context.questions.ask(question, call))
        if call is not None:
            call.when_over(asking.cancel)
        try:
            return await asking
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return question.withdrawn

    async def _sample(self, params: dict[str, Any], call: Call[Any] | None) -> dict[str, Any]:
        handler = self._context.client_handlers.sampling
        if handler is None:
            raise RpcError("sampling/createMessage is not supported by this host", code=_METHOD_NOT_FOUND)
        messages, limit, prompt = params.get("messages"), params.get("maxTokens"), params.get("systemPrompt")
        request = SamplingRequest(
            self._session.name,
            call.tool if call else None,
            [message for message in messages if is_object(message)] if is_array(messages) else [],
            prompt if isinstance(prompt, str) else None,
            limit if isinstance(limit, int) else None,
            params,
        )
        try:
            response = await self._context.client_handlers.run(handler, request, call)
        except RpcError:
            raise
        except Exception as error:
            self._session.log.add("host", "error", f"on_sampling raised {error!r}")
            self._notify(call, "asked for a model's response and got none", f"on_sampling raised {error!r}")
            raise RpcError("the host's handler failed", code=_INTERNAL) from error
        if response is None:
            raise RpcError("the user rejected the request", code=_REJECTED)
        return _as_message(response)

    def _notify(self, call: Call[Any] | None, event: str, reason: str) -> None:
        """Show a notice below the cell, because the result of the server's tool may not mention this."""
        asker = f"{self._session.name}.{call.tool}" if call else self._session.name
        self._context.notices.add(f"{asker} {event}: {reason}")

    def _logged(self, answer: ElicitationAnswer) -> ElicitationAnswer:
        if answer.note:
            self._session.log.add("host", "warning", f"its question was answered {answer.action!r}: {answer.note}")
        return answer


def _as_result(answer: ElicitationAnswer) -> dict[str, Any]:
    result: dict[str, Any] = {"action": answer.action}
    if answer.action == "accept" and answer.content is not None:
        result["content"] = answer.content
    return result


def _as_message(response: object) -> dict[str, Any]:
    """A handler's return value as a `CreateMessageResult`: from text, a content block, or the result itself."""
    message: dict[str, Any] = {"role": "assistant", "model": "unknown", "stopReason": "endTurn"}
    if is_object(response) and "content" in response:
        return {**message, **response}
    if is_object(response) and "type" in response:
        return {**message, "content": response}
    return {**message, "content": {"type": "text", "text": str(response)}}
