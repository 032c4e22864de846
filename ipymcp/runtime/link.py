"""One connection of a session, and what it hears."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ipymcp.protocol.client import Client
from ipymcp.runtime.responder import SessionResponder

if TYPE_CHECKING:
    from msgspec import Raw

    from ipymcp.protocol.transports.base import Transport
    from ipymcp.runtime.server import ServerSession
    from ipymcp.runtime.services import Services

__all__ = ["Link"]


class Link:
    """One connection of a session: the client, its transport, and the listener of both.

    Args:
        session: Whose it is.
        transport: Not yet opened.
        number: Tells it from the session's other connections, in logs.
        services: The host's.
    """

    def __init__(self, session: ServerSession, transport: Transport, number: int, services: Services) -> None:
        self.transport = transport
        responder = SessionResponder(session, services)
        self.client = Client(transport, self, services.identity, responder, tag=f"{session.name}#{number}")
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Done when the connection is over; the reason."""
        self.tools_dirty = asyncio.Event()
        self.subscription: asyncio.Future[Raw] | None = None
        """Stateless era: what announces changes."""
        self._session = session
        self._log = session.log

    def tools_changed(self) -> None:
        """The tools are to be listed again."""
        self.tools_dirty.set()

    def log(self, level: str, text: str) -> None:
        """The server logs."""
        self._log.add("server", level, text)

    def noise(self, text: str) -> None:
        """The server said what it should not."""
        self._log.add("host", "warning", text)

    def stderr(self, lines: list[str]) -> None:
        """The server wrote to its standard error."""
        self._log.add_stderr(lines)

    def unreachable(self, reason: str) -> None:
        """No connection could be made just now."""
        self._log.add("host", "warning", reason)

    def wants_handshake(self, reason: str) -> None:
        """The session is to be opened anew, by the handshake."""
        self._log.add("host", "warning", reason)

    def lost(self, reason: str) -> None:
        """The connection is over."""
        self._session.disconnected(self.client, reason)
        if not self.ended.done():
            self.ended.set_result(reason)
