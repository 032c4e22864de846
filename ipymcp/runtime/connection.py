"""From a definition to a live connection: transport, era, tools, and the notifications that follow."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from ipymcp.errors import ConnectionLost, HttpError, ProtocolError, RpcError, StartError
from ipymcp.protocol.client import Client
from ipymcp.protocol.subscriptions import announces, changing_lists
from ipymcp.runtime.oauth_redirects import SessionUser
from ipymcp.runtime.resources import ResourceCache
from ipymcp.runtime.server_requests import SessionResponder
from ipymcp.runtime.transport_factory import authorizer, transport, transport_kinds
from ipymcp.runtime.variables import expanded_now

if TYPE_CHECKING:
    from ipymcp.protocol.negotiation import EraChoice
    from ipymcp.protocol.oauth.provider import OAuth
    from ipymcp.protocol.subscriptions import ListenStream
    from ipymcp.protocol.transports.base import Transport
    from ipymcp.runtime.context import RuntimeContext
    from ipymcp.runtime.session import ServerSession, Start
    from ipymcp.runtime.transport_factory import TransportKind


class Connection:
    """One connection of a session: the client, its transport, and the listener of both.

    Args:
        session: Whose it is.
        transport: Not yet opened.
        number: Tells it from the session's other connections, in logs.
        services: The host's.
    """

    def __init__(self, session: ServerSession, transport: Transport, number: int, services: RuntimeContext) -> None:
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
        self.subscription: ListenStream | None = None
        """Stateless era: what announces changes of lists."""
        self.offers = ResourceCache(session, self.client, services.store.known)
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
            self._session.mark_unreachable(reason)
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


_DOWNLOADERS = frozenset({"npx", "uvx", "uv", "bunx", "pnpm", "docker", "podman", "pipx"})
_NO_SUCH_TRANSPORT = frozenset({400, 404, 405})
"""How a server that knows legacy SSE alone answers a POST (2025-11-25 transports, backwards compatibility)."""


class Connector:
    """Opens the connections of one session, from one `start` to its `stop`.

    Args:
        session: Whose.
        services: The host's.
    """

    def __init__(self, session: ServerSession, services: RuntimeContext) -> None:
        self._session = session
        self._definition = session.definition
        self._services = services
        self._ways = transport_kinds(self._definition)
        self._login: OAuth | None = None

    async def connect(self, start: Start) -> Connection:
        """One start: the process or the address, the protocol, the tools."""
        await self._expand(start)
        first, *others = self._ways
        try:
            link = await self._settle_era(first, start)
            self._ways = (first,)
        except HttpError as error:
            if not others or error.status not in _NO_SUCH_TRANSPORT:
                raise
            self._say(f"it does not speak Streamable HTTP (HTTP {error.status}); trying the older HTTP with SSE")
            try:
                link = await self._settle_era(others[0], start)
            except (HttpError, ProtocolError):
                raise error from None
            self._ways = (others[0],)
        return link

    async def _expand(self, start: Start) -> None:
        expanded = await expanded_now(self._session, start, self._services)
        if self._login is None or expanded != self._session.expanded:
            user = SessionUser(self._session, self._services)
            self._login = authorizer(expanded, self._session.digest, user, self._services)
        self._session.expanded = expanded

    async def _settle_era(self, way: TransportKind, start: Start) -> Connection:
        era = self._definition.era
        if way == "sse":
            return await self._open(way, "legacy", start)
        if era != "auto":
            return await self._open(way, era, start)
        digest = self._session.digest
        link = None
        known = self._services.store.known
        remembered = await known.era(digest)
        if remembered is not None:
            known.forget_era(digest)
            try:
                link = await self._open(way, remembered, start)
            except (ConnectionLost, HttpError, ProtocolError, RpcError) as error:
                if way != "stdio" and isinstance(error, ConnectionLost):
                    known.keep_era(digest, remembered)  # it is not there: that says nothing of its era
                    raise
                self._say(f"it does not answer as it did before ({error.message}); asking anew")
        if link is None:
            link = await self._find_out(way, start)
        if link.client.era_was_answered:
            known.keep_era(digest, "modern" if link.client.era.kind == "stateless" else "legacy")
        return link

    async def _find_out(self, way: TransportKind, start: Start) -> Connection:
        """Ask which era it speaks; one that does not survive the question is started once more without it.

        That may be an end, or a handshake refused after it: there are bridges that take any first message for the
        opening of their session.
        """
        try:
            return await self._open(way, "auto", start)
        except (ConnectionLost, RpcError) as error:
            if way != "stdio" or self._session.is_hopeless():
                raise
            self._say(f"the question which era it speaks ended it ({error.message}); asking for the handshake only")
            return await self._open(way, "legacy", start)

    async def _open(self, way: TransportKind, era: EraChoice, start: Start) -> Connection:
        seconds = self._definition.start_timeout
        reached = transport(self._session.expanded, way, self._services, self._login)
        link = Connection(self._session, reached, next(self._session.numbers), self._services)
        self._session.use(link)
        hint = asyncio.get_running_loop().call_later(
            self._services.timing.download_hint, self._tell_what_it_waits_for, link
        )
        try:
            async with start.limited(seconds):
                await link.client.open(era, is_fixed=self._definition.era != "auto")
                changing = changing_lists(link.client.capabilities)
                if link.client.era.kind == "stateless" and changing:
                    link.subscription = link.client.listen(changing)  # before they are read: no change falls between
                await self._session.set_tools(await link.client.list_tools(timeout=None))
        except TimeoutError as error:
            await link.client.aclose("the start failed")
            raise StartError(f"did not answer within {seconds:g} s") from error
        except BaseException:
            await link.client.aclose("the start failed")
            raise
        finally:
            hint.cancel()
        return link

    def _say(self, text: str) -> None:
        self._session.log.add("host", "info", text)

    def _tell_what_it_waits_for(self, link: Connection) -> None:
        program = (self._definition.command or "").rpartition("/")[2]
        if not self._session.state.is_moving:
            return
        if link.client.era.version:
            waits = "it has answered, and is listing its tools"
        else:
            waits = "downloading?" if program in _DOWNLOADERS else "it has not answered yet"
        last = self._session.last_words[-1:]
        said = f"; it last wrote: {last[0]}" if last else ""
        self._session.tell(f"still starting; {waits}{said}")
