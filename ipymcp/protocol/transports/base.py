"""The transport interface: send a message with its routing data, and receive messages.

A transport moves bytes. It uses ids only for routing, and does not know tools or eras.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from ipymcp.errors import ConnectionLost, ResultTooLarge

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ipymcp.errors import McpError


RequestId = int | str | float

NO_HEADERS: Mapping[str, str] = {}


class NoConnection(ConnectionLost):
    """No connection could be made, after all attempts: the next request would meet the same."""


def too_large(limit: int) -> ResultTooLarge:
    """Build the error for a response over the limit."""
    return ResultTooLarge(
        f"the response is larger than {limit:,} bytes and was discarded",
        limit=limit,
        hint="ask for less, or load the server with a larger max_result_bytes",
    )


class OutboundMessage(NamedTuple):
    """An outgoing message."""

    frame: bytes
    """JSON of one message without a newline."""
    kind: Literal["request", "notification", "response"]
    id: RequestId | None
    """Id of the request or response; None for a notification."""
    method: str
    headers: Mapping[str, str] = NO_HEADERS
    """Headers that an HTTP transport adds, such as the protocol version and `Mcp-Name`."""


@dataclass(frozen=True)
class Receiver:
    """Functions that receive messages and events from a transport, on the loop thread."""

    message: Callable[[bytes | bytearray, RequestId | None], None]
    """Receives one complete message, and the id of our request whose response stream carried it, if any."""
    undelivered: Callable[[RequestId, McpError], None]
    """A request was not delivered, or its response was lost or too large; the connection continues."""
    expired: Callable[[OutboundMessage], None]
    """HTTP, handshake era: the server rejected this message because it does not know the session any more.

    The transport has already dropped the session. Open a new one and send the message again.
    """
    unreachable: Callable[[str], None]
    """HTTP: no connection could be made, for this reason; the next request tries again."""
    protocol_warning: Callable[[str], None]
    """Logs a protocol violation."""
    stderr: Callable[[list[str]], None]
    """Lines from the server's standard error."""
    lost: Callable[[str], None]
    """The connection ended without a request to close it, for this reason. Called once."""


class Authorizer(Protocol):
    """Logs in for an HTTP transport. Called on the loop; may wait for the user."""

    async def headers(self) -> Mapping[str, str]:
        """Return the headers for every request, such as `Authorization`; empty before the first login."""
        ...

    async def challenged(
        self, status: int, challenges: Sequence[str], sent: Mapping[str, str], peer: str | None = None
    ) -> bool:
        """Handle a response 401, or 403 with a challenge, to a request with the headers `sent`.

        Args:
            status: 401 or 403.
            challenges: The `WWW-Authenticate` values.
            sent: The result of `headers` for that request, which may be outdated by now.
            peer: The IP address of the server, if known.

        Returns:
            Whether to send the request again with new `headers`.

        Raises:
            AuthError: The login is impossible or failed.
        """
        ...


class ReadLease(Protocol):
    """The right to read the server's output in the thread that waits for it, for a moment.

    A response read by the loop wakes two threads, one after the other; a lease wakes one.
    """

    def read(self, receive: Callable[[bytes | bytearray], bool], done: Callable[[], bool], seconds: float) -> None:
        """Read in this thread until `done` returns True or the time is up.

        Args:
            receive: Handles a message in this thread; False if it is not the caller's. From the first such message
                on, all are received on the loop, to keep their order.
            done: Whether there is nothing left to wait for.
            seconds: A few milliseconds, because the loop waits meanwhile.
        """
        ...

    def give_back(self) -> None:
        """Return the right to the loop."""
        ...


class Transport(Protocol):
    """A connection to a server. Methods with a body have the behaviour of a transport that lacks the ability."""

    uses_headers: bool
    """Whether `OutboundMessage.headers` is used."""

    @property
    def exit_code(self) -> int | None:
        """Exit code of the server's process, once it has ended; negative for a signal."""
        return None

    @property
    def pid(self) -> int | None:
        """Process id of the server, if it is a child process."""
        return None

    async def open(self, receiver: Receiver) -> None:
        """Connect and start to deliver messages to the receiver. Raises `StartError`."""
        ...

    def send(self, message: OutboundMessage) -> None:
        """Send a message from any thread without waiting. Raises `ConnectionLost` if the connection is closed."""
        ...

    def abort(self, identifier: RequestId) -> bool:
        """Abort a request. False if the transport cannot, so that a cancel notification is needed."""
        ...

    def lease_reads(self) -> ReadLease | None:
        """Lease the right to read, to be returned soon. None if it is taken or not supported."""
        return None

    @property
    def queued(self) -> int:
        """Number of bytes accepted by `send` and not yet taken by the server."""
        ...

    @property
    def unfinished(self) -> int:
        """Number of bytes that the server has written since its last line end, if it writes lines."""
        return 0

    async def accepts_new_stream(self, seconds: float) -> bool:
        """Return whether all responses arrive on one stream, and the server would open another one now.

        If so, a silent server means that the stream was lost without notice, for example dropped by a NAT or a VPN.
        """
        return False

    async def aclose(self) -> None:
        """Close the connection, and end the process if there is one."""
        ...

    def close_input(self) -> None:
        """Close the server's input without waiting, at the interpreter's exit, if that is possible."""

    def close_in_fork(self) -> None:
        """Release the parent's resources in a forked child, without touching any lock."""
        ...
