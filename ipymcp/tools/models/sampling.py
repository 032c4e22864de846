"""Sampling: a server asks for a model's words, and the notebook's model gives them, once the user has agreed to that.

Source: MCP 2025-11-25 and 2026-07-28, client/sampling.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ipymcp.errors import RpcError
from ipymcp.policy.questions import ApprovalQuestion, WantedCall
from ipymcp.protocol import wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipymcp.policy.rules import Rights
    from ipymcp.runtime.host import Host
    from ipymcp.runtime.responder import SamplingRequest
    from ipymcp.tools.models.asking import Asker

__all__ = ["Sampler"]

_METHOD: Final = "sampling/createMessage"
_ANSWERS: Final = ("once", "notebook", "no")
_REJECTED: Final = -1


class Sampler:
    """Answers servers with the notebook's model.

    Args:
        host: Whose servers.
        asker: Knows the model.
        budget: Gives the tokens, in and out, that one server may cost in this notebook.
    """

    def __init__(self, host: Host, asker: Asker, budget: Callable[[], int]) -> None:
        self._budget = budget
        self._host = host
        self._asker = asker
        self._policy = host.guard.policy
        self._spent: dict[str, int] = {}
        """By the digest of the server's definition: another of the same name inherits nothing."""

    async def answer(self, request: SamplingRequest) -> dict[str, Any] | None:
        """The model's message as the protocol has it; None where the user refuses.

        Raises:
            RpcError: The server has cost what it may.
            McpError: The model cannot answer.
        """
        return await self._host.loop.arun(self._answer(request))

    async def _answer(self, request: SamplingRequest) -> dict[str, Any] | None:
        session = self._host.find(request.server)
        key, log = session.rights.digest, session.log
        spent = self._spent.get(key, 0)
        if spent >= self._budget():
            text = f"it has used {spent:,} tokens of your model: %config IPyMCP.sampling_tokens raises what it may"
            log.add("host", "warning", text)
            raise RpcError("the user's budget for this server is spent", code=_REJECTED)
        if not (self._policy.has_agreed(self, session.rights, None) or await self._agrees(request, session.rights)):
            return None
        message, tokens = await self._asker.sampled(request)
        self._spent[key] = self._spent.get(key, 0) + tokens  # another may have been answered meanwhile
        count = len(request.messages)
        text = f"{self._asker.name} answered it: {count} message{'' if count == 1 else 's'}, {tokens:,} tokens"
        log.add("host", "info", text)
        self._show(f"{request.server} asked your model; {text}")
        return message

    def _show(self, text: str) -> None:
        """Tell whoever waits, where they wait."""
        place = self._host.desk.place()
        if place is not None:
            place.post(lambda: self._host.guard.notify(text))

    async def _agrees(self, request: SamplingRequest, rights: Rights) -> bool:
        shown = {"messages": request.messages}
        if request.system_prompt:
            shown = {"system": request.system_prompt, **shown}
        why = f"it would cost you tokens of {self._asker.name}"
        wanted = WantedCall(request.server, _METHOD, wire.encode(shown), "server", why, "")
        question = ApprovalQuestion((wanted,), _ANSWERS)
        answer = await self._host.desk.ask("sampling", lambda asker: asker.approve(question), None)
        if answer == "notebook":
            self._policy.agree(self, rights, None)
        return answer in ("once", "notebook")
