"""What every transport is: a way to send one message with what is needed to route it, and to get messages back.

A transport moves bytes. It knows no tools, no ids but to route by, and no era but what the headers say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ipymcp.errors import McpError

__all__ = ["NO_HEADERS", "Message", "Receiver", "Transport"]

NO_HEADERS: Mapping[str, str] = {}


class Message(NamedTuple):
    """One message on its way out."""

    frame: bytes
    """JSON, one message, no newline."""
    kind: Literal["request", "notification", "response"]
    id: int | str | float | None
    """Of a request or response."""
    method: str
    headers: Mapping[str, str] = NO_HEADERS
    """What an HTTP transport adds: the protocol version, `Mcp-Name` and their like. Others ignore it."""


class Receiver(Protocol):
    """Where a transport puts what it gets. All calls come on the loop thread."""

    def message(self, line: bytes | bytearray) -> None:
        """One complete message."""
        ...

    def undelivered(self, identifier: int | str | float, error: McpError) -> None:
        """One request could not be delivered, or its answer is lost or too large; the connection goes on."""
        ...

    def noise(self, text: str) -> None:
        """Something for the log."""
        ...

    def stderr(self, lines: list[str]) -> None:
        """Lines the server wrote to its standard error."""
        ...

    def lost(self, reason: str) -> None:
        """The connection is over, for this reason. Comes once, unless we closed it ourselves."""
        ...


class Transport(Protocol):
    """One connection to one server."""

    uses_headers: bool
    """Whether `Message.headers` goes anywhere."""

    async def open(self, receiver: Receiver) -> None:
        """Connect; from now on the receiver is told. Raises a `StartError`."""
        ...

    def send(self, message: Message) -> None:
        """Send, from any thread, without waiting. Raises `ConnectionLost` when there is nobody to send to."""
        ...

    def abort(self, identifier: int | str | float) -> bool:
        """Give up a request by means of the transport. False: the era's cancel notification has to do it."""
        ...

    @property
    def queued(self) -> int:
        """Bytes accepted by `send` and not yet taken by the other side."""
        ...

    async def aclose(self) -> None:
        """End the connection, and the process if there is one."""
        ...
