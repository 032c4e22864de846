"""Servers that ask the host for something on a stateless connection, as only the handshake era allows.

Their call fails, and the session is to be opened anew by the handshake.

Source: MCP 2026-07-28, transports (servers send no requests); what the official SDK's servers 2.x do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipymcp.errors import CallError
from ipymcp.protocol.inputs import CAPABILITIES
from ipymcp.protocol.rounds import ROUND_METHODS

if TYPE_CHECKING:
    from ipymcp.errors import RpcError
    from ipymcp.protocol.listener import Listener
    from ipymcp.protocol.rpc import Peer, Slot

__all__ = ["Pushes"]


class Pushes:
    """What is done about them. Belongs to the loop.

    Args:
        peer: Has the requests in flight.
        listener: Told that the session wants a handshake.
    """

    def __init__(self, peer: Peer, listener: Listener) -> None:
        self._peer = peer
        self._listener = listener
        self.may_reopen = True
        """Whether the era may be another than the present one."""

    def request(self, method: str, carrier: int | str | float | None) -> None:
        """The server sent a request: the question it came for fails, or all that it may have come for."""
        self._listener.noise(f"a request of the server ({method}), which this era does not know: not answered")
        if method not in CAPABILITIES:
            return
        slot = self._peer.slot(carrier)
        meant = [slot] if slot else [waiting for waiting in self._peer.waiting() if waiting.method in ROUND_METHODS]
        for slot in meant:
            error = CallError(f"the server asked for {method} without a handshake", hint=self._hint())
            self._peer.fail(slot.id, error)
        self._reopen(f"it asks for {method} without a handshake")

    def error(self, slot: Slot, error: RpcError) -> bool:
        """An answer -32600: false if it is about something else."""
        if "back-channel" not in error.message:
            return False
        error.hint = self._hint()
        self._peer.fail(slot.id, error)
        self._reopen("it asks for something without a handshake")
        return True

    def _hint(self) -> str:
        if self.may_reopen:
            return "its session is opened anew with a handshake: call it again"
        return "load it with --era auto"

    def _reopen(self, reason: str) -> None:
        if self.may_reopen:
            self._listener.wants_handshake(reason)
