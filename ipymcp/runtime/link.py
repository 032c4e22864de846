"""One connection of a session, and what it hears."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ipymcp.protocol.client import Client

if TYPE_CHECKING:
    from msgspec import Raw

    from ipymcp.protocol.eras import Identity
    from ipymcp.protocol.transports.base import Transport
    from ipymcp.runtime.server import ServerSession

__all__ = ["Link"]


class Link:
    """One connection of a session: the client, its transport, and the listener of both.

    Args:
        session: Whose it is.
        transport: Not yet opened.
        number: Tells it from the session's other connections, in logs.
        identity: Who we are.
    """

    def __init__(self, session: ServerSession, transport: Transport, number: int, identity: Identity) -> None:
        self.transport = transport
        self.client = Client(transport, self, identity, tag=f"{session.name}#{number}")
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

    def lost(self, reason: str) -> None:
        """The connection is over."""
        self._session.disconnected(self.client, reason)
        if not self.ended.done():
            self.ended.set_result(reason)
