"""What servers ask of the host: elicitation, sampling and roots, in both eras, answered by one `Responder`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ipymcp.errors import RpcError

if TYPE_CHECKING:
    from ipymcp.protocol.rpc import Slot

__all__ = ["METHOD_NOT_FOUND", "NoAnswers", "Responder"]

METHOD_NOT_FOUND = -32601


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


class NoAnswers:
    """Offers nothing, so that nothing is asked."""

    def capabilities(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    async def answer(self, method: str, params: dict[str, Any], slot: Slot | None) -> dict[str, Any]:
        """Never called by a client, which refuses what is not declared."""
        raise RpcError(f"{method} is not supported by this host", code=METHOD_NOT_FOUND)
