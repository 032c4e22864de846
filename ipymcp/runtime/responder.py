"""Answers what a server asks of the host: elicitation, sampling, roots.

Source: MCP 2025-11-25 and 2026-07-28, client/elicitation, client/sampling, client/roots.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import msgspec

from ipymcp.errors import ArgumentError, RpcError
from ipymcp.protocol.jsontypes import is_array, is_object
from ipymcp.runtime.folders import folder_of
from ipymcp.runtime.interaction import CANCELLED, UNANSWERED, Answer, FormQuestion, UrlQuestion
from ipymcp.runtime.reach import login_extension
from ipymcp.runtime.web import is_web_address
from ipymcp.text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipymcp.protocol.rpc import Slot
    from ipymcp.runtime.calls import Call
    from ipymcp.runtime.interaction import Interaction
    from ipymcp.runtime.server import ServerSession
    from ipymcp.runtime.services import Services

__all__ = ["SamplingRequest", "SessionResponder"]

_REJECTED = -1
_ANSWER_IN_CODE = "answer in code with mcp.on_elicitation(function)"
_INTERNAL = -32603
_METHOD_NOT_FOUND = -32601


class SamplingRequest(msgspec.Struct, frozen=True):
    """A server wants a model's words."""

    server: str
    tool: str | None
    """The tool whose call asks, where that is known."""
    messages: list[dict[str, Any]]
    """`role` and `content`, as the protocol has them."""
    system_prompt: str | None
    max_tokens: int | None
    params: dict[str, Any]
    """All of the request's params: `modelPreferences`, `temperature`, `stopSequences`, …"""

    def __repr__(self) -> str:
        return one_line(f"<SamplingRequest of {self.server}, {len(self.messages)} messages>")


class SessionResponder:
    """Answers one session's server.

    Args:
        session: Whose.
        services: The host's.
    """

    def __init__(self, session: ServerSession, services: Services) -> None:
        self._session = session
        self._services = services

    def capabilities(self) -> dict[str, Any]:
        """What to declare now, with the extension of MCP by which this server is logged in to."""
        declared = self._services.answers.capabilities()
        extension = login_extension(self._session.definition)
        return declared | ({"extensions": {extension: {}}} if extension else {})

    async def answer(self, method: str, params: dict[str, Any], slot: Slot | None) -> dict[str, Any]:
        """The result for one request of the server; the clocks of the calls that wait for it stand still meanwhile."""
        call, owed = self._concerned(slot)
        with contextlib.ExitStack() as clocks:
            for waiting in owed:
                clocks.enter_context(waiting.owing())
            if method == "roots/list":
                definition = self._session.expanded
                folder = folder_of(definition, self._services.folder)
                return {"roots": self._services.answers.roots_for(definition, folder)}
            if method == "elicitation/create":
                return _as_result(await self._elicit(params, call))
            if method == "sampling/createMessage":
                return await self._sample(params, call)
        raise RpcError(f"{method} is not supported by this host", code=_METHOD_NOT_FOUND)

    def _concerned(self, slot: Slot | None) -> tuple[Call[Any] | None, list[Call[Any]]]:
        """The call that asks, where that is known, and those that cannot go on before there is an answer."""
        running = [call for call in list(self._services.running.values()) if call.session is self._session]
        asking = next((call for call in running if slot is not None and call.is_at(slot)), None)
        if asking is None and slot is None and len(running) == 1:
            asking = running[0]
        return asking, running if asking is None else [asking]

    async def _elicit(self, params: dict[str, Any], call: Call[Any] | None) -> Answer:
        message, tool = str(params.get("message") or ""), call.tool if call else None
        if params.get("mode") == "url":
            visited = UrlQuestion(self._session.name, tool, message, str(params.get("url") or ""))
            if not is_web_address(visited.url):
                return self._noted(Answer("decline", note=f"asked to visit what is no web address: {visited.url!r}"))
            return await self._ask(visited, lambda desk: desk.visit(visited), call)
        schema = params.get("requestedSchema")
        filled = FormQuestion(self._session.name, tool, message, schema if is_object(schema) else {})
        return await self._ask(filled, lambda desk: desk.fill(filled), call)

    async def _ask(
        self, question: FormQuestion | UrlQuestion, ask: Callable[[Interaction], Answer], call: Call[Any] | None
    ) -> Answer:
        handler = self._services.answers.elicitation
        if handler is None:
            answer = self._noted(await self._services.desk.ask("form", ask, CANCELLED, call, unanswered=UNANSWERED))
            if answer is UNANSWERED:
                self._tell(call, "asked a question, nobody could be asked here, and it was cancelled", _ANSWER_IN_CODE)
            return answer
        try:
            return await self._services.answers.run(handler, question, call)
        except Exception as error:
            what = str(error) if isinstance(error, ArgumentError) else f"on_elicitation raised {error!r}"
            self._tell(call, "asked a question that was cancelled", what)
            return self._noted(Answer("cancel", note=what))

    async def _sample(self, params: dict[str, Any], call: Call[Any] | None) -> dict[str, Any]:
        handler = self._services.answers.sampling
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
            given = await self._services.answers.run(handler, request, call)
        except RpcError:
            raise
        except Exception as error:
            self._session.log.add("host", "error", f"on_sampling raised {error!r}")
            self._tell(call, "asked for a model's words and got none", f"on_sampling raised {error!r}")
            raise RpcError("the host's handler failed", code=_INTERNAL) from error
        if given is None:
            raise RpcError("the user rejected the request", code=_REJECTED)
        return _as_message(given)

    def _tell(self, call: Call[Any] | None, what: str, why: str) -> None:
        """Say below the cell what the server's own answer need not say."""
        asker = f"{self._session.name}.{call.tool}" if call else self._session.name
        self._services.notices.add(f"{asker} {what}: {why}")

    def _noted(self, answer: Answer) -> Answer:
        if answer.note:
            self._session.log.add("host", "warning", f"its question was answered {answer.action!r}: {answer.note}")
        return answer


def _as_result(answer: Answer) -> dict[str, Any]:
    result: dict[str, Any] = {"action": answer.action}
    if answer.action == "accept" and answer.content is not None:
        result["content"] = answer.content
    return result


def _as_message(given: object) -> dict[str, Any]:
    """What a handler returned as a `CreateMessageResult`: text, a content block, or the result itself."""
    message: dict[str, Any] = {"role": "assistant", "model": "unknown", "stopReason": "endTurn"}
    if is_object(given) and "content" in given:
        return {**message, **given}
    if is_object(given) and "type" in given:
        return {**message, "content": given}
    return {**message, "content": {"type": "text", "text": str(given)}}
