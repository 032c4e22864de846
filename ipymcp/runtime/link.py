"""One connection of a session, and what it hears."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from ipymcp.protocol.client import Client
from ipymcp.protocol.subscriptions import announces
from ipymcp.runtime.offers import Offers
from ipymcp.runtime.responder import SessionResponder

if TYPE_CHECKING:
    from ipymcp.protocol.subscriptions import Listening
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
        self.tools_wanted = asyncio.Event()
        """Somebody waits for them: no pause before they are listed."""
        self.tools_waiters: list[asyncio.Future[None]] = []
        """Done when they have been listed the next time, or could not be."""
        self.tools_stale_at = float("inf")
        self.check_soon = asyncio.Event()
        """Something happened that makes the next look at the server due sooner."""
        self.is_checked = False
        """Whether somebody is asking the server just now if it is there."""
        self.subscription: Listening | None = None
        """Stateless era: what announces changes of lists."""
        self.offers = Offers(session, self.client, services.store.known)
        self._session = session
        self._log = session.log

    def tools_changed(self) -> None:
        """The tools are to be listed again."""
        self.tools_dirty.set()

    def list_tools_again(self) -> asyncio.Future[None]:
        """Have them listed now; done when that is over."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.tools_waiters.append(waiter)
        self.tools_wanted.set()
        self.tools_dirty.set()
        return waiter

    def tools_listed(self) -> None:
        """They were: they are fresh for the time that the server gave, or until it says that they changed."""
        ttl = self.client.tools_ttl
        says = announces(self.client.capabilities, "tools")
        self.tools_stale_at = time.monotonic() + ttl if ttl and not says else float("inf")

    def resources_changed(self) -> None:
        """The resources and templates are stale."""
        self.offers.changed("resources")

    def prompts_changed(self) -> None:
        """The prompts are stale."""
        self.offers.changed("prompts")

    def resource_updated(self, uri: str) -> None:
        """What was read of a resource is stale."""
        self.offers.updated(uri)
        self._session.subscriptions.updated(uri)

    def subscriptions_lost(self) -> None:
        """The resources are to be subscribed to again."""
        self._session.subscriptions.lost()

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
        if self._session.client is self.client:
            self._session.lose_sight(reason)
        else:
            self._log.add("host", "warning", reason)

    def wants_handshake(self, reason: str) -> None:
        """The session is to be opened anew, by the handshake."""
        self._session.reopen(self, reason)

    def lost(self, reason: str) -> None:
        """The connection is over."""
        self._session.disconnected(self.client, reason)
        if not self.ended.done():
            self.ended.set_result(reason)
