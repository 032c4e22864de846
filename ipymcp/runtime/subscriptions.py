"""Resources that are kept fresh: subscribed to, read again when the server says that they changed.

A subscription outlives the connection it was made on: the next one takes it up again, and reads what may have changed
meanwhile. The handshake era asks for each resource, the stateless era listens to all of them at once, anew whenever
their set changes or the server ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from ipymcp.errors import CallError, ConnectionLost, McpError, ServerError
from ipymcp.protocol import resources as requests
from ipymcp.protocol.jsontypes import is_object

if TYPE_CHECKING:
    from collections.abc import Callable

    from msgspec import Raw

    from ipymcp.protocol.client import Client
    from ipymcp.protocol.subscriptions import Listening
    from ipymcp.runtime.server import ServerSession

__all__ = ["Heard", "Subscriptions"]

Heard: TypeAlias = "Callable[[Raw | McpError, bool], None]"
"""Told, on the loop, what was read or why it could not be, and whether that is news: False for the first reading."""
_PACE = 0.1
"""Seconds between two readings of a resource that changes all the time."""
_SLOWEST = 60.0


class _Watched(msgspec.Struct, eq=False):
    """One resource, and who wants to hear of it."""

    uri: str
    hearers: list[Heard] = msgspec.field(default_factory=list["Heard"])
    confirmed: asyncio.Future[None] | None = None
    """While the server has not been asked: done when it has agreed, with its error if it has not."""
    raw: Raw | None = None
    is_reading: bool = False
    is_stale: bool = False
    """Whether it is to be read (again)."""
    is_announced: bool = False
    """Whether that is because the server said so: it is news then, whatever is read."""


class Subscriptions:
    """The subscribed resources of one server. Belongs to the loop.

    Args:
        session: Their server's.
    """

    def __init__(self, session: ServerSession) -> None:
        self._session = session
        self._watched: dict[str, _Watched] = {}
        self._held: set[str] = set()
        """Handshake era: those the server has been asked for."""
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._watched)

    def move_to(self, session: ServerSession) -> Subscriptions:
        """The server's definition has changed: they are those of its next session."""
        self._session = session
        return self

    async def add(self, uri: str, heard: Heard) -> None:
        """Subscribe, and have the resource read a first time.

        Raises:
            McpError: The server does not offer it, refused, or cannot read it.
        """
        offers = self._session.offers
        watched = self._watched.get(uri)
        if watched is None:
            watched = self._watched[uri] = _Watched(uri, confirmed=asyncio.get_running_loop().create_future())
            self._changed.set()
        watched.hearers.append(heard)
        try:
            if watched.confirmed is not None:
                await asyncio.shield(watched.confirmed)
            watched.raw = await offers.read(uri)
            heard(watched.raw, False)
        except BaseException:
            self.remove(uri, heard)
            raise

    def remove(self, uri: str, heard: Heard) -> None:
        """End it for this hearer; for the last one, on the server too."""
        watched = self._watched.get(uri)
        if watched is None or heard not in watched.hearers:
            return
        watched.hearers.remove(heard)
        if not watched.hearers:
            self._watched.pop(uri)
            self._changed.set()

    def updated(self, uri: str) -> None:
        """The server says that this resource, or a part of one of ours (2025-11-25, schema), has changed."""
        found = [watched for watched in self._watched.values() if _same(watched.uri, uri)]
        for watched in found or [each for each in self._watched.values() if uri.startswith(each.uri)]:
            watched.is_announced = True
            self._read_again(watched)

    def lost(self) -> None:
        """Handshake era: the server has forgotten all of them."""
        self._held.clear()
        for watched in self._watched.values():
            watched.confirmed = watched.confirmed or asyncio.get_running_loop().create_future()
        self._changed.set()

    # -- over one connection ------------------------------------------------------------------------------------------

    async def keep(self, client: Client) -> None:
        """Hold them on the server for as long as this connection lives."""
        self._changed = asyncio.Event()
        for watched in self._watched.values():
            watched.confirmed = watched.confirmed or asyncio.get_running_loop().create_future()
        self._changed.set()
        with contextlib.suppress(ConnectionLost):
            if client.era.kind == "stateless":
                await self._listen(client)
            else:
                await self._subscribe(client)

    async def _subscribe(self, client: Client) -> None:
        """Handshake era: one request for each."""
        held = self._held = set[str]()
        timeout = self._session.definition.timeout
        while True:
            await self._changed.wait()
            self._changed.clear()
            for uri in held - self._watched.keys():
                held.discard(uri)
                with contextlib.suppress(McpError):
                    await requests.unsubscribe(client, uri, timeout=timeout)
            for watched in [each for uri, each in self._watched.items() if uri not in held]:
                held.add(watched.uri)
                try:
                    _check_offered(client)
                    await requests.subscribe(client, watched.uri, timeout=timeout)
                except ConnectionLost:
                    raise
                except McpError as error:
                    self._settle(watched, error)
                else:
                    self._settle(watched, None)

    async def _listen(self, client: Client) -> None:
        """Stateless era: one request for all, which stays open; the next one before the last is ended."""
        timing = self._session.timing
        listening: Listening | None = None
        delay = timing.listen_again
        try:
            while True:
                await self._change(listening)
                if listening is not None and listening.ended.done():
                    await asyncio.sleep(delay)
                    delay = min(delay * 2, _SLOWEST)
                self._changed.clear()
                previous, listening = listening, None
                if self._watched:
                    listening = await self._listen_to(client, list(self._watched.values()))
                if previous is not None:
                    previous.ended.cancel()
        finally:
            if listening is not None:
                listening.ended.cancel()

    async def _change(self, listening: Listening | None) -> None:
        """Until the set changes or the server ends the listening."""
        changed = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait({changed, *([listening.ended] if listening else [])}, return_when="FIRST_COMPLETED")
        finally:
            changed.cancel()

    async def _listen_to(self, client: Client, watched: list[_Watched]) -> Listening | None:
        try:
            _check_offered(client)
            listening = client.listen({"resourceSubscriptions": [each.uri for each in watched]})
            done = await asyncio.wait(
                {listening.acknowledged, listening.ended},
                timeout=self._session.definition.timeout,
                return_when="FIRST_COMPLETED",
            )
            if listening.ended in done[0]:
                listening.ended.result()
            if listening.acknowledged not in done[0]:
                listening.ended.cancel()
                raise CallError("does not acknowledge the subscription", hint="a fault of the server: read it instead")
        except ConnectionLost:
            raise
        except McpError as error:
            for each in watched:
                self._settle(each, error)
            return None
        honoured = listening.acknowledged.result()
        for each in watched:
            agreed = any(_same(uri, each.uri) for uri in honoured)
            self._settle(each, None if agreed else _refused(each.uri))
        return listening

    def _settle(self, watched: _Watched, error: McpError | None) -> None:
        """The server has agreed to tell of this one, or has not."""
        confirmed, watched.confirmed = watched.confirmed, None
        if confirmed is None:
            return
        if error is not None and watched.raw is None:  # nobody has it yet
            confirmed.set_exception(self._session.explain(error))
            confirmed.exception()  # whoever waits may have gone
            return
        confirmed.set_result(None)
        if error is not None:
            self._say(watched, error)
        elif watched.raw is not None:
            self._read_again(watched)

    # -- reading ------------------------------------------------------------------------------------------------------

    def _read_again(self, watched: _Watched) -> None:
        watched.is_stale = True
        if not watched.is_reading:
            watched.is_reading = True
            self._session.spawn(self._read(watched), "read")

    async def _read(self, watched: _Watched) -> None:
        try:
            while watched.is_stale and watched.hearers:
                is_news, watched.is_stale, watched.is_announced = watched.is_announced, False, False
                try:
                    raw = await self._session.offers.read(watched.uri)
                except ServerError:  # the next connection reads it again
                    return
                except McpError as error:
                    self._say(watched, error)
                else:
                    is_news = is_news or raw != watched.raw
                    watched.raw = raw
                    if is_news:
                        _tell(watched, raw)
                await asyncio.sleep(_PACE)
        finally:
            watched.is_reading = False

    def _say(self, watched: _Watched, error: McpError) -> None:
        _tell(watched, error)
        self._session.log.add("host", "warning", f"{watched.uri}, subscribed to: {error.message}")


def _tell(watched: _Watched, news: Raw | McpError) -> None:
    for heard in tuple(watched.hearers):
        heard(news, True)


def _check_offered(client: Client) -> None:
    declared = client.capabilities.get("resources")
    if not (is_object(declared) and declared.get("subscribe")):
        raise CallError("does not tell when its resources change", hint="read the resource again instead")


def _refused(uri: str) -> CallError:
    return CallError(f"does not tell when {uri} changes", hint="read the resource again instead")


def _same(one: str, other: str) -> bool:
    """Whether two URIs are the same but for the slash that some libraries put at the end."""
    return one == other or one.rstrip("/") == other.rstrip("/")
