"""What servers ask of the host: elicitation, sampling and roots, in both eras, answered by one `Responder`.

Source: MCP 2025-11-25 and 2026-07-28, client/elicitation, client/sampling, client/roots.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal, Protocol

from msgspec import Raw, Struct

from ipymcp.errors import RpcError
from ipymcp.protocol import wire
from ipymcp.protocol.jsontypes import is_object

if TYPE_CHECKING:
    from ipymcp.protocol.clocks import Clocks
    from ipymcp.protocol.rpc import Slot

__all__ = ["CAPABILITIES", "MAX_ASKED", "METHOD_NOT_FOUND", "Answers", "Responder"]

MAX_ASKED = 32
"""Requests of one server that the host answers at a time."""
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
BUSY = -32000
CAPABILITIES = {"elicitation/create": "elicitation", "roots/list": "roots", "sampling/createMessage": "sampling"}


class Responder(Protocol):
    """Answers what a server asks. Belongs to the client's loop."""

    def capabilities(self) -> dict[str, Any]:
        """What to declare now, as `ClientCapabilities`: `elicitation`, `sampling`, `roots`, `extensions`."""
        ...

    async def answer(self, method: str, params: dict[str, Any], slot: Slot | None) -> dict[str, Any]:
        """The result for one request of the server. Runs in a task of its own; may take as long as the user.

        Args:
            method: `elicitation/create`, `sampling/createMessage` or `roots/list`; only what was declared.
            params: Its params, checked as far as their shape goes.
            slot: The request of ours it belongs to, where that is known.

        Raises:
            RpcError: To refuse.
        """
        ...


class Answers:
    """One connection's answers: what was declared, what is allowed, how many at a time.

    Args:
        responder: Gives them.
        clocks: Stand still meanwhile.
    """

    def __init__(self, responder: Responder, clocks: Clocks) -> None:
        self._responder = responder
        self._clocks = clocks
        self.declared = responder.capabilities()
        self._in_progress = 0

    def declare(self) -> bool:
        """Ask the responder anew what to declare. True if it is not what it was."""
        before, self.declared = self.declared, self._responder.capabilities()
        return self.declared != before

    def is_outdated(self, capability: str) -> bool:
        """Whether the responder would declare this capability otherwise by now."""
        return self._responder.capabilities().get(capability) != self.declared.get(capability)

    def check(self, method: str, params: Raw) -> dict[str, Any]:
        """The params of a request that may be answered.

        Raises:
            RpcError: It may not; what to tell the server.
        """
        capability = CAPABILITIES.get(method)
        if capability is None or not is_object(self.declared.get(capability)):
            raise RpcError(f"{method} is not supported by this host", code=METHOD_NOT_FOUND)
        try:
            decoded: object = wire.loads(params) if len(params) else {}
            if method == "elicitation/create":
                self._check_elicitation(params)
            elif method == "sampling/createMessage":
                self._check_sampling(params)
        except ValueError as error:
            raise RpcError(f"the params of {method} are not what MCP says: {error}", code=INVALID_PARAMS) from None
        if not is_object(decoded):
            raise RpcError(f"the params of {method} are no object", code=INVALID_PARAMS)
        return decoded

    def _check_elicitation(self, params: Raw) -> None:
        mode = wire.decode(params, _Elicitation).mode
        modes: dict[str, Any] = self.declared["elicitation"] or {"form": {}}
        if mode not in modes:
            raise ValueError(f"the mode {mode!r} was not declared")
        wire.decode(params, _UrlElicitation if mode == "url" else _FormElicitation)

    def _check_sampling(self, params: Raw) -> None:
        request = wire.decode(params, _Sampling)
        if (request.tools is not None or request.toolChoice is not None) and "tools" not in self.declared["sampling"]:
            raise ValueError("tools, which were not declared")

    async def answer(self, method: str, params: dict[str, Any], slot: Slot | None) -> Raw:
        """The result, as JSON, for a request that `check` let through. Its asker's clock stands still meanwhile.

        Raises:
            RpcError: Refused, or there is none.
        """
        try:
            with self._clocks.held(slot):
                result: object = await self._responder.answer(method, params, slot)
                if not is_object(result):
                    raise TypeError(f"{type(result).__name__} is no result")
                return Raw(wire.encode(result))
        except RpcError:
            raise
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise RpcError(f"{method} was cancelled in the host", code=INTERNAL_ERROR) from error
        except Exception as error:  # the host's own, or a function of the user's: the server hears no more than that
            raise RpcError(f"{method} failed in the host", code=INTERNAL_ERROR) from error

    def reserve(self, wanted: int = 1) -> None:
        """Make room for so many answers, until `release`.

        Raises:
            RpcError: They would be more than 32 at a time.
        """
        if self._in_progress + wanted > MAX_ASKED:
            raise RpcError(f"this host answers {MAX_ASKED} requests at a time; ask again later", code=BUSY)
        self._in_progress += wanted

    def release(self, count: int = 1) -> None:
        """So many are answered, or will not be."""
        self._in_progress -= count


class _Elicitation(Struct):
    mode: str = "form"


class _FormSchema(Struct):
    properties: dict[str, dict[str, Any]]
    type: Literal["object"] = "object"
    required: list[str] | None = None


class _FormElicitation(Struct):
    message: str
    requestedSchema: _FormSchema


class _UrlElicitation(Struct):
    message: str
    url: str


class _SamplingMessage(Struct):
    role: Literal["user", "assistant"]
    content: dict[str, Any] | list[dict[str, Any]]


class _Sampling(Struct):
    messages: list[_SamplingMessage]
    maxTokens: int
    systemPrompt: str | None = None
    temperature: float | None = None
    stopSequences: list[str] | None = None
    modelPreferences: dict[str, Any] | None = None
    includeContext: str | None = None
    tools: list[dict[str, Any]] | None = None
    toolChoice: dict[str, Any] | None = None
