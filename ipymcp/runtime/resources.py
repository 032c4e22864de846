"""Resources, templates and prompts over one connection, and resources that are kept fresh.

Nothing is asked before somebody looks, so that a server starts no slower for what nobody uses; but a definition that
was never looked at is listed once, some time after its start, to be known when it does not run. A list is read again,
when somebody looks, once it is stale: the server said that it changed, or the time that it gave (`ttlMs`) has passed.
Where a server gives no time, its list is fresh until it announces a change if it says that it announces them, and for a
second if not. What is read is kept for its own `ttlMs`, until the server says that it changed.

Source: MCP 2026-07-28, utilities/caching. Nothing here outlives the connection, so `cacheScope` never matters.

A subscription outlives the connection it was made on: the next one takes it up again, and reads what may have changed
meanwhile. The handshake era asks for each resource, the stateless era listens to all of them at once, anew whenever
their set changes or the server ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import msgspec

from ipymcp.errors import CallError, ConnectionLost, McpError, ServerError
from ipymcp.protocol import listing
from ipymcp.protocol import listing as requests
from ipymcp.protocol.subscriptions import announces
from ipymcp.protocol.types import is_object
from ipymcp.runtime.events import OffersChanged
from ipymcp.runtime.interfaces import ServerFacts

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Mapping
    from typing import Any

    from msgspec import Raw

    from ipymcp.protocol.client import Client
    from ipymcp.protocol.subscriptions import ListenStream
    from ipymcp.runtime.catalog import Catalog
    from ipymcp.runtime.context import Timing
    from ipymcp.runtime.events import Event
    from ipymcp.storage.known_servers import KnownServers


Kind: TypeAlias = Literal["resources", "templates", "prompts"]
_ANNOUNCED_AS: dict[Kind, Literal["resources", "prompts"]] = {
    "resources": "resources",
    "templates": "resources",
    "prompts": "prompts",
}
_LEAST_TTL = 1.0
"""Seconds a list is fresh at least: showing it looks more than once."""
_MAX_READS = 200
_MAX_BYTES = 20_000_000
"""Cached reads of one server, in bytes."""


class _List(msgspec.Struct):
    """How fresh one list is."""

    is_known: bool = False
    fresh_until: float = 0.0
    lock: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)
    """Concurrent readers share one read."""


class ResourceOwner(ServerFacts, Protocol):
    """The server whose resources these are, on the background loop."""

    @property
    def timing(self) -> Timing:
        """The host's intervals and timeouts."""
        ...

    @property
    def offers(self) -> ResourceCache:
        """The resources of the live connection.

        Raises:
            ServerError: The server is not ready.
        """
        ...

    def spawn(self, coroutine: Coroutine[Any, Any, None], what: str) -> object:
        """Start a task on the loop."""
        ...

    def emit(self, event: Event) -> None:
        """Announce a change to the host's subscribers."""
        ...


class ResourceCache:
    """Resources, templates and prompts of one connection. Belongs to the loop.

    Args:
        session: Whose catalog is filled.
        client: The connection.
        known: Where what was listed is kept.
    """

    def __init__(self, session: ResourceOwner, client: Client, known: KnownServers) -> None:
        self._session = session
        self._known = known
        self._client = client
        self._lists: dict[Kind, _List] = {"resources": _List(), "templates": _List(), "prompts": _List()}
        self._reads: OrderedDict[str, tuple[float, Raw]] = OrderedDict()
        self._read_bytes = 0
        self._changes = 0
        """How often the server said that something changed."""

    # -- looking ------------------------------------------------------------------------------------------------------

    async def look(self, *kinds: Kind, timeout: float | None = None) -> Catalog:
        """The catalog, in which these lists are fresh.

        Args:
            kinds: Which.
            timeout: Seconds for each page; the server's own by default.

        Raises:
            McpError: One could not be listed, and never was before.
        """
        with self._explained():
            await asyncio.gather(*(self._refresh(kind, timeout) for kind in kinds))
        return self._session.catalog

    async def prefetch(self, after: float) -> None:
        """Have what was never listed for this definition, in any kernel, listed and kept; what fails is in the log.

        Args:
            after: Seconds in which the user does what the server was loaded for.
        """
        await asyncio.sleep(after)
        kept = await self._known.kinds(self._session.digest)
        for kind, announced in _ANNOUNCED_AS.items():
            if announced in self._client.capabilities and kind not in kept:
                try:
                    await self._refresh(kind, None)
                except McpError as error:
                    self._noise(f"its {kind} could not be listed: {error.message}")

    def knows(self, *kinds: Kind) -> bool:
        """Whether all of these were listed over this connection, however long ago."""
        return all(self._lists[kind].is_known for kind in kinds)

    async def _refresh(self, kind: Kind, timeout: float | None) -> None:
        state = self._lists[kind]
        async with state.lock:
            if state.is_known and time.monotonic() < state.fresh_until:
                return
            state.fresh_until = float("inf")  # a change that is announced from here on makes it stale again
            try:
                ttl = await self._list(kind, timeout or self._session.definition.timeout)
            except BaseException as error:
                state.fresh_until = 0.0
                if not isinstance(error, McpError) or not state.is_known:
                    raise
                self._noise(f"its {kind} could not be listed anew: {error.message}")
                return
            state.is_known = True
            if ttl is not None:
                state.fresh_until = min(state.fresh_until, time.monotonic() + ttl)

    async def _list(self, kind: Kind, timeout: float) -> float | None:
        """List it and give the seconds for which it is fresh; None where the server will say when it is not."""
        session = self._session
        if kind == "prompts":
            prompts, ttl = await listing.list_all(self._client, listing.PROMPTS, timeout=timeout)
            self._known.listed(session.digest, kind, prompts)
            session.catalog = session.catalog.with_prompts(session.name, prompts, self._noise)
        elif kind == "templates":
            templates, ttl = await listing.list_all(self._client, listing.TEMPLATES, timeout=timeout)
            self._known.listed(session.digest, kind, templates)
            session.catalog = session.catalog.with_templates(templates, self._noise)
        else:
            resources, ttl = await listing.list_all(self._client, listing.RESOURCES, timeout=timeout)
            self._known.listed(session.digest, kind, resources)
            session.catalog = session.catalog.with_resources(resources, self._noise)
        if ttl:
            return max(ttl, _LEAST_TTL)
        return None if announces(self._client.capabilities, _ANNOUNCED_AS[kind]) else _LEAST_TTL

    # -- reading ------------------------------------------------------------------------------------------------------

    async def read(self, uri: str) -> Raw:
        """The JSON of the answer to `resources/read`: kept from before while that is fresh, else read now.

        Raises:
            McpError: It could not be read.
        """
        kept = self._reads.get(uri)
        if kept is not None and time.monotonic() < kept[0]:
            return kept[1]
        changes = self._changes
        with self._explained():
            raw, ttl = await requests.read_resource(self._client, uri, timeout=self._session.definition.timeout)
        self._forget(uri)
        if ttl and changes == self._changes:  # else what was read may be what it was before
            self._keep(uri, raw, time.monotonic() + ttl)
        return raw

    async def prompt(self, name: str, arguments: Mapping[str, str]) -> Raw:
        """The JSON of the answer to `prompts/get`.

        Raises:
            McpError: The server refused.
        """
        with self._explained():
            return await requests.get_prompt(self._client, name, arguments, timeout=self._session.definition.timeout)

    async def suggestions(
        self, reference: Mapping[str, str], argument: str, typed: str, others: Mapping[str, str], *, timeout: float
    ) -> list[str]:
        """The server's suggestions for an argument.

        Raises:
            McpError: It refused, or does not answer in time.
        """
        return await requests.complete(self._client, reference, argument, typed, others, timeout=timeout)

    def _keep(self, uri: str, raw: Raw, until: float) -> None:
        self._reads[uri] = until, raw
        self._read_bytes += memoryview(raw).nbytes
        while self._reads and (len(self._reads) > _MAX_READS or self._read_bytes > _MAX_BYTES):
            self._forget(next(iter(self._reads)))

    def _forget(self, uri: str) -> None:
        kept = self._reads.pop(uri, None)
        if kept is not None:
            self._read_bytes -= memoryview(kept[1]).nbytes

    # -- hearing ------------------------------------------------------------------------------------------------------

    def changed(self, kind: Literal["resources", "prompts"]) -> None:
        """The server says that these are not what they were."""
        for listed, announced in _ANNOUNCED_AS.items():
            if announced == kind:
                self._lists[listed].fresh_until = 0.0
        if kind == "resources":
            self._reads.clear()
            self._read_bytes = 0
            self._changes += 1
        self._session.emit(OffersChanged(self._session.name, kind))

    def updated(self, uri: str) -> None:
        """The server says that this resource has changed."""
        self._forget(uri)
        self._changes += 1

    def _noise(self, text: str) -> None:
        self._session.log.add("host", "warning", text)

    @contextmanager
    def _explained(self) -> Generator[None, None, None]:
        try:
            yield
        except McpError as error:
            self._session.explain(error)
            raise


Heard: TypeAlias = "Callable[[Raw | McpError, bool], None]"
"""Told, on the loop, what was read or why it could not be, and whether that is news: False for the first reading."""
_INTERVAL = 0.1
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

    def __init__(self, session: ResourceOwner) -> None:
        self._session = session
        self._watched: dict[str, _Watched] = {}
        self._held: set[str] = set()
        """Handshake era: those the server has been asked for."""
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._watched)

    def move_to(self, session: ResourceOwner) -> Subscriptions:
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
        listening: ListenStream | None = None
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

    async def _change(self, listening: ListenStream | None) -> None:
        """Until the set changes or the server ends the listening."""
        changed = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait({changed, *([listening.ended] if listening else [])}, return_when="FIRST_COMPLETED")
        finally:
            changed.cancel()

    async def _listen_to(self, client: Client, watched: list[_Watched]) -> ListenStream | None:
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
                await asyncio.sleep(_INTERVAL)
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
