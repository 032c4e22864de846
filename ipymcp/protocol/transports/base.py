"""What every transport is: a way to send one message with what is needed to route it, and to get messages back.

A transport moves bytes. It knows no tools, no ids but to route by, and no era but what the headers say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ipymcp.errors import McpError


RequestId = int | str | float

NO_HEADERS: Mapping[str, str] = {}


class OutboundMessage(NamedTuple):
    """One message on its way out."""

    frame: bytes
    """JSON, one message, no newline."""
    kind: Literal["request", "notification", "response"]
    id: RequestId | None
    """Of a request or response."""
    method: str
    headers: Mapping[str, str] = NO_HEADERS
    """What an HTTP transport adds: the protocol version, `Mcp-Name` and their like. Others ignore it."""


class Receiver(Protocol):
    """Where a transport puts what it gets. All calls come on the loop thread."""

    def message(self, line: bytes | bytearray, carrier: RequestId | None = None) -> None:
        """One complete message.

        Args:
            line: JSON.
            carrier: The request of ours in whose answer stream it came, where there is a stream for each.
        """
        ...

    def undelivered(self, identifier: RequestId, error: McpError) -> None:
        """One request could not be delivered, or its answer is lost or too large; the connection goes on."""
        ...

    def expired(self, message: OutboundMessage) -> None:
        """HTTP, handshake era: the server does not know our session any more and did not accept this message.

        The transport has forgotten the session already. A new one is to be opened, and the message sent once more.
        """
        ...

    def unreachable(self, reason: str) -> None:
        """HTTP: no connection could be made just now; the next request tries again."""
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


class Authorizer(Protocol):
    """Gets an HTTP transport past a login. Called on the loop; may take as long as the user takes to log in."""

    async def headers(self) -> Mapping[str, str]:
        """What every request carries now, such as `Authorization`; empty before the first login."""
        ...

    async def challenged(
        self, status: int, challenges: Sequence[str], sent: Mapping[str, str], peer: str | None = None
    ) -> bool:
        """The server answered 401, or 403 with a challenge, to a request that carried `sent`.

        Args:
            status: 401 or 403.
            challenges: The `WWW-Authenticate` values.
            sent: What `headers` gave for that request; another request may have got something newer meanwhile.
            peer: The IP address that answered, where it is known.

        Returns:
            Whether to send the request once more, with new `headers`.

        Raises:
            AuthError: There is no way in; the message says why.
        """
        ...


class ReadLease(Protocol):
    """The right to read what a server sends, for a moment, in the thread that waits for it.

    An answer that the loop reads wakes two threads, one after the other; this one wakes one.
    """

    def read(self, wanted: Callable[[bytes | bytearray], bool], done: Callable[[], bool], seconds: float) -> None:
        """Read until `done`, here, or until the seconds have passed.

        Args:
            wanted: Whether a message is the caller's; the receiver is told of those here, of others on the loop, and
                of all after one of those as well, so that nothing overtakes anything.
            done: Whether there is nothing more to wait for.
            seconds: A few thousandths: the loop must not wait long for its turn.
        """
        ...

    def give_back(self) -> None:
        """Let the loop read again."""
        ...


class Transport(Protocol):
    """One connection to one server."""

    uses_headers: bool
    """Whether `Message.headers` goes anywhere."""

    @property
    def exit_code(self) -> int | None:
        """The exit code of the process behind it, once that has ended; negative for a signal."""
        ...

    @property
    def pid(self) -> int | None:
        """The number of the process behind it, if there is one."""
        ...

    async def open(self, receiver: Receiver) -> None:
        """Connect; from now on the receiver is told. Raises a `StartError`."""
        ...

    def send(self, message: OutboundMessage) -> None:
        """Send, from any thread, without waiting. Raises `ConnectionLost` when there is nobody to send to."""
        ...

    def abort(self, identifier: RequestId) -> bool:
        """Give up a request by means of the transport. False: the era's cancel notification has to do it."""
        ...

    def turn(self) -> ReadLease | None:
        """Take the right to read; to be given back soon. None where another has it, or where it cannot be had."""
        ...

    @property
    def queued(self) -> int:
        """Bytes accepted by `send` and not yet taken by the other side."""
        ...

    async def answers_anew(self, seconds: float) -> bool:
        """Whether this connection has one stream for all answers, and the server would give another one now.

        Then a silence means that the stream was lost on the way, which nobody is told of (a NAT or a VPN that dropped).
        """
        ...

    async def aclose(self) -> None:
        """End the connection, and the process if there is one."""
        ...

    def close_input(self) -> None:
        """At the interpreter's exit: let the server know, now and without waiting, that nothing more will come."""
        ...

    def close_in_fork(self) -> None:
        """In a forked child: let go of what is the parent's, and touch nothing else, not even a lock."""
        ...
