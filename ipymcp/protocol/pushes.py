"""Servers that ask the host for something on a stateless connection, as only the handshake era allows.

Their call fails, and the session is to be opened anew by the handshake. Some send the request nevertheless. In others
their SDK refuses it, and the refusal is the call's answer: a JSON-RPC error of the Python SDK 2.x, a tool's error of
fastmcp 4 and of the TypeScript SDK 2.x. No SDK gives these a code of their own, so it is their words that tell.

Source: MCP 2026-07-28, transports (servers send no requests); what the official SDKs' servers and fastmcp do.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import Raw, Struct

from ipymcp.errors import CallError
from ipymcp.protocol import wire
from ipymcp.protocol.eras import OTHER_ERA
from ipymcp.protocol.inputs import CAPABILITIES
from ipymcp.protocol.rounds import ROUND_METHODS

if TYPE_CHECKING:
    from ipymcp.errors import RpcError
    from ipymcp.protocol.listener import Listener
    from ipymcp.protocol.rpc import Peer, Slot

__all__ = ["HandshakeNeeded", "Pushes"]

_NO_CHANNEL = re.compile(
    r"\bno back-channel\b"
    r"|\bserver[- ](?:initiated|to[- ]client) requests?\b.{0,60}\b(?:unavailable|not (?:available|supported|possible))",
    re.IGNORECASE | re.DOTALL,
)
_LONGEST = 1000
"""Characters of an SDK's refusal, with what a server puts before it."""


class HandshakeNeeded(CallError):
    """A call failed because the server cannot ask for something on a stateless connection.

    Args:
        message: What the server said.
        is_reopening: Whether its session is being opened anew; otherwise the user has chosen the era.
    """

    def __init__(self, message: str, *, is_reopening: bool) -> None:
        reopened = "its session is opened anew with a handshake: call it again"
        super().__init__(message, hint=reopened if is_reopening else OTHER_ERA)
        self.is_reopening = is_reopening


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
        what = f"asked for {method} without a handshake"
        self._fail(meant, f"the server {what}", f"it {what.replace('asked', 'asks')}")

    def error(self, slot: Slot, error: RpcError) -> bool:
        """An answer -32600: false if it is about something else."""
        if not _NO_CHANNEL.search(error.message[:_LONGEST]):
            return False
        self._fail([slot], error.message, "it asks for something without a handshake")
        return True

    def tool_error(self, slot: Slot, result: Raw) -> bool:
        """A tool's own error: false if it is about something else."""
        try:
            texts = [block.text for block in wire.decode(result, _ToolError).content]
        except ValueError:
            return False
        text = " ".join(texts)
        if len(text) > _LONGEST or not _NO_CHANNEL.search(text):
            return False
        self._fail([slot], text, "it asks for something without a handshake")
        return True

    def _fail(self, slots: list[Slot], message: str, reason: str) -> None:
        if self.may_reopen:  # first: a call that fails now may be made again at once
            self._listener.wants_handshake(reason)
        for slot in slots:
            self._peer.fail(slot.id, HandshakeNeeded(message, is_reopening=self.may_reopen))


class _Text(Struct):
    text: str = ""


class _ToolError(Struct):
    content: list[_Text] = []
