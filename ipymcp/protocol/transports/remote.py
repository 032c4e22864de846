"""What both HTTP transports have in common: the way to the server, and a queue of what is on its way there."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ipymcp.protocol.transports.http_link import HttpLink
from ipymcp.protocol.transports.outbox import Outbox

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ipymcp.errors import McpError
    from ipymcp.protocol.transports.base import Authorizer, Message, RequestId
    from ipymcp.protocol.transports.outbox import Post

__all__ = ["RemoteTransport"]

_AT_ONCE = 20
"""Messages on their way at a time, but for those that last or must get through."""


class RemoteTransport:
    """A server behind one URL.

    Args:
        url: `http://…`, `https://…`, or `unix:///path/to.sock:/mcp` for a unix socket (`/mcp` if nothing follows).
        headers: Of every request, from the server's definition.
        authorizer: Logs in, where there is one.
        limit: Largest message in bytes; a larger one fails its call.

    Raises:
        ConfigError: The URL or a header cannot be used.
    """

    uses_headers = True

    def __init__(self, url: str, *, headers: Mapping[str, str], authorizer: Authorizer | None, limit: int) -> None:
        self._link = HttpLink(url, headers, authorizer)
        self._limit = limit
        self._outbox = Outbox(self._deliver)
        self._turns = asyncio.Semaphore(_AT_ONCE)

    @property
    def exit_code(self) -> int | None:
        """None: the process is not ours."""
        return None

    @property
    def pid(self) -> int | None:
        """None: the process is not ours."""
        return None

    @property
    def queued(self) -> int:
        """Bytes accepted by `send` and not yet given to the server."""
        return self._outbox.queued

    def send(self, message: Message) -> None:
        """Send, from any thread, without waiting."""
        self._outbox.send(message)

    async def answers_anew(self, seconds: float) -> bool:
        """False: each request has an answer of its own."""
        return False

    def turn(self) -> None:
        """Answers are the loop's to read: there is no turn to take."""

    def abort(self, identifier: RequestId) -> bool:
        """Give up a request: in the stateless era by ending its answer, and in any where it was not sent yet."""
        return self._outbox.abort(identifier)

    async def aclose(self) -> None:
        """End the session and all connections."""
        try:
            await self._outbox.aclose()
            await self._say_goodbye()
        finally:
            await self._link.aclose()

    def close_input(self) -> None:
        """At the interpreter's exit: nothing can be said without waiting; the connections end with the process."""

    def close_in_fork(self) -> None:
        """In a forked child: let go of the sockets."""
        self._link.drop()

    async def _deliver(self, post: Post) -> McpError | None:
        """Deliver a message; what to say to whoever still waits for its answer afterwards."""
        raise NotImplementedError

    async def _say_goodbye(self) -> None:
        """Tell the server that the session ends, where it keeps one."""
