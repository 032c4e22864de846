"""From a definition to a live connection: which transport, which era, and the tools."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ipymcp.errors import ConnectionLost, HttpError, ProtocolError, RpcError, StartError
from ipymcp.protocol.subscriptions import changing_lists
from ipymcp.runtime.link import Link
from ipymcp.runtime.login import SessionUser
from ipymcp.runtime.reach import authorizer, transport, ways
from ipymcp.runtime.values import expanded_now

if TYPE_CHECKING:
    from ipymcp.protocol.negotiation import EraChoice
    from ipymcp.protocol.oauth.provider import OAuth
    from ipymcp.runtime.reach import Way
    from ipymcp.runtime.server import ServerSession
    from ipymcp.runtime.services import Services
    from ipymcp.runtime.starting import Start

__all__ = ["Opener"]

_DOWNLOADERS = frozenset({"npx", "uvx", "uv", "bunx", "pnpm", "docker", "podman", "pipx"})
_NO_SUCH_TRANSPORT = frozenset({400, 404, 405})
"""How a server that knows legacy SSE alone answers a POST (2025-11-25 transports, backwards compatibility)."""


class Opener:
    """Opens the connections of one session, from one `start` to its `stop`.

    Args:
        session: Whose.
        services: The host's.
    """

    def __init__(self, session: ServerSession, services: Services) -> None:
        self._session = session
        self._definition = session.definition
        self._services = services
        self._ways = ways(self._definition)
        self._login: OAuth | None = None

    async def connect(self, start: Start) -> Link:
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

    async def _settle_era(self, way: Way, start: Start) -> Link:
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

    async def _find_out(self, way: Way, start: Start) -> Link:
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

    async def _open(self, way: Way, era: EraChoice, start: Start) -> Link:
        seconds = self._definition.start_timeout
        reached = transport(self._session.expanded, way, self._services, self._login)
        link = Link(self._session, reached, next(self._session.numbers), self._services)
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
                await self._session.adopt(await link.client.list_tools(timeout=None))
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

    def _tell_what_it_waits_for(self, link: Link) -> None:
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
