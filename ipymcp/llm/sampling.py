"""Sampling: requests of servers, answered by the notebook's model with the user's consent.

Source: MCP 2025-11-25 and 2026-07-28, client/sampling.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from ipymcp.errors import RpcError
from ipymcp.interaction.questions import SamplingQuestion, WantedCall
from ipymcp.llm.prices import dollars
from ipymcp.llm.result_text import estimate_tokens
from ipymcp.protocol import types
from ipymcp.protocol.types import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipymcp.llm.chat import ModelChat
    from ipymcp.runtime.client_handlers import SamplingRequest
    from ipymcp.runtime.host import Host
    from ipymcp.security.rules import ServerGrants


_METHOD: Final = "sampling/createMessage"
_ANSWERS: Final = ("once", "notebook", "no")
_REJECTED: Final = -1
_DEFAULT_TOKENS: Final = 4_096
"""Maximum output tokens if the server requests no maximum."""
_MEDIA_TOKENS: Final = 1_500
"""Estimated tokens of an image."""


class Sampler:
    """Answers sampling requests with the notebook's model.

    Args:
        host: The host of the servers.
        chat: The chat with the notebook's model.
        budget: Returns the input and output tokens that one server may use in this notebook.
    """

    def __init__(self, host: Host, chat: ModelChat, budget: Callable[[], int]) -> None:
        self._budget = budget
        self._host = host
        self._chat = chat
        self._policy = host.guard.policy
        self._spent: dict[str, int] = {}
        """Used and reserved tokens, by the digest of the server's definition."""

    async def answer(self, request: SamplingRequest) -> dict[str, Any] | None:
        """Answer a request with a `CreateMessageResult`; None if the user refuses.

        Raises:
            RpcError: The server's token budget is spent.
            McpError: The model cannot answer.
        """
        return await self._host.loop.arun(self._answer(request))

    async def _answer(self, request: SamplingRequest) -> dict[str, Any] | None:
        session = self._host.find(request.server)
        key, log = session.rights.digest, session.log
        spent = self._spent.get(key, 0)
        estimate = _estimate(request)
        left = self._budget() - spent - estimate
        if left <= 0:
            text = f"it has used {spent:,} tokens of your model, and this request needs about {estimate:,} more"
            log.add("host", "warning", f"{text}: %config IPyMCP.sampling_tokens raises its budget")
            raise RpcError("the user's budget for this server is spent", code=_REJECTED)
        wanted = request.max_tokens if request.max_tokens is not None and request.max_tokens > 0 else _DEFAULT_TOKENS
        max_output = min(wanted, left)
        request = replace(request, max_tokens=max_output, params={**request.params, "maxTokens": max_output})
        used = 0
        self._spent[key] = (
            spent + estimate + max_output
        )  # reserved before any await, because requests may be concurrent
        try:
            if not await self._is_allowed(request, session.rights):
                return None
            message, usage = await self._chat.sample(request)
            used = usage.input_tokens + usage.output_tokens
            used = used or estimate + estimate_tokens(len(types.encode(message)))  # some providers report no usage
        finally:
            self._spent[key] += used - estimate - max_output
        count = len(request.messages)
        cost = f", about {dollars(usage.dollars)}" if usage.dollars else ""
        text = f"{self._chat.name} answered it: {count} message{'' if count == 1 else 's'}, {used:,} tokens{cost}"
        log.add("host", "info", text)
        self._show(f"{request.server} asked your model; {text}")
        return message

    async def _is_allowed(self, request: SamplingRequest, rights: ServerGrants) -> bool:
        return self._policy.has_agreed(self, rights, None) or await self._ask_consent(request, rights)

    def _show(self, text: str) -> None:
        """Notify the user in the thread where they wait."""
        caller = self._host.questions.caller()
        if caller is not None:
            caller.post(lambda: self._host.guard.notify(text))

    async def _ask_consent(self, request: SamplingRequest, rights: ServerGrants) -> bool:
        shown: dict[str, Any] = {"system": request.system_prompt} if request.system_prompt else {}
        shown |= {"messages": request.messages, "maxTokens": request.max_tokens}
        given = request.params.get("tools")
        for number, tool in enumerate(given if is_array(given) else (), start=1):
            name = tool.get("name") if is_object(tool) else None
            shown[f"tool {number}, {name}" if name else f"tool {number}"] = tool
        tokens, max_output = _estimate(request), request.max_tokens or _DEFAULT_TOKENS
        cost = self._chat.price(tokens, max_output)
        reason = f"it uses your tokens of {self._chat.name}: about {tokens:,} in, at most {max_output:,} out"
        reason += f", at most about {dollars(cost)}" if cost is not None else ""
        wanted = WantedCall(request.server, _METHOD, shown, "server", reason, "")
        answer = await self._host.questions.ask(SamplingQuestion((wanted,), _ANSWERS))
        if answer == "notebook":
            self._policy.agree(self, rights, None)
        return answer in ("once", "notebook")


def _estimate(request: SamplingRequest) -> int:
    """Estimate a request's input tokens. Images have a fixed estimate, independent of their base64."""
    given = {name: request.params.get(name) for name in ("tools", "systemPrompt")}
    texts = [_without_data(message) for message in request.messages]
    media = sum(_media(message) for message in request.messages)
    return estimate_tokens(len(types.encode([given, *texts]))) + _MEDIA_TOKENS * media


def _without_data(message: dict[str, Any]) -> Any:
    return [{**block, "data": ""} if "data" in block else block for block in _blocks(message)]


def _media(message: dict[str, Any]) -> int:
    return sum("data" in block for block in _blocks(message))


def _blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    return [block for block in (content if is_array(content) else [content]) if is_object(block)]
