"""The cache of a connection's resources, templates and prompts, and subscriptions to resources.

A list is requested when it is first used, so that starting a server does not take longer. Lists that no kernel ever
requested for a definition are requested some time after a start, so that they are known while the server is stopped. A
list is requested again when it is used and stale: the server announced a change, or its `ttlMs` has passed. Without a
`ttlMs`, a list is fresh until a change is announced if the server announces changes, and for one second otherwise. A
resource that was read is cached for its own `ttlMs`, unless the server announces a change.

Source: MCP 2026-07-28, utilities/caching. Nothing is cached beyond the connection, so `cacheScope` is irrelevant.

A subscription outlives its connection: the next connection subscribes again and reads the resource again. In the
handshake era each resource has its own request; in the stateless era one request covers all of them and is replaced
when their set changes or the server ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import msgspec

from ipymcp.errors import CallError, ConnectionLost, McpError, ServerError, doing
from ipymcp.protocol import listing
from ipymcp.protocol.subscriptions import announces
from ipymcp.protocol.types import is_object
from ipymcp.runtime.events import ListChanged
from ipymcp.runtime.server_status import ServerFacts

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from msgspec import Raw

    from ipymcp.protocol.client import Client
    from ipymcp.protocol.subscriptions import ListenStream
    from ipymcp.runtime.catalog import Catalog
    from ipymcp.runtime.context import Timing
    from ipymcp.runtime.events import Events
    from ipymcp.runtime.loop import BackgroundLoop
    from ipymcp.storage.known_servers import KnownServers


Kind: TypeAlias = Literal["resources", "templates", "prompts"]
_ANNOUNCED_AS: dict[Kind, Literal["resources", "prompts"]] = {
    "resources": "resources",
    "templates": "resources",
    "prompts": "prompts",
}
_MIN_TTL = 1.0
"""Minimum seconds for which a list is fresh: displaying it uses it more than once."""
_MAX_READS = 200
_MAX_BYTES = 20_000_000
"""Maximum size of the cached reads of one server."""


class _List(msgspec.Struct):
    """The freshness of one list."""

    is_known: bool = False
    fresh_until: float = 0.0
    lock: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)
    """Makes concurrent readers share one request."""


class ResourceOwner(ServerFacts, Protocol):
    """The server that offers the resources, on the background loop."""

    @property
    def resources(self) -> ResourceCache:
        """The resources of the live connection.

        Raises:
            ServerError: The server is not ready.
        """
        ...


class ResourceCache:
    """Resources, templates and prompts of one connection. Belongs to the loop.

    Args:
        session: The server; its catalog receives the lists.
        client: The connection.
        known: Stores the lists beyond this kernel.
        events: Announces changes.
    """

    def __init__(self, session: ServerFacts, client: Client, known: KnownServers, events: Events) -> None:
        self._session = session
        self._known = known
        self._events = events
        self._client = client
        self._lists: dict[Kind, _List] = {"resources": _List(), "templates": _List(), "prompts": _List()}
        self._reads: OrderedDict[str, tuple[float, Raw]] = OrderedDict()
        self._read_bytes = 0
        self._changes = 0
        """Number of changes that the server announced."""

    # -- lists --------------------------------------------------------------------------------------------------------

    async def refresh(self, *kinds: Kind, timeout: float | None = None, again: bool = False) -> Catalog:
        """Request the lists of these kinds that are stale, and return the catalog with them.

        Args:
            kinds: The lists that have to be fresh.
            again: Request all of them.
            timeout: Seconds for each page; the server's own timeout by default.

        Raises:
            McpError: A list was never received before, and cannot be requested now.
        """
        with self._with_server_name():
            for kind in kinds if again else ():
                self._lists[kind].fresh_until = 0.0
            await asyncio.gather(*(self._refresh_list(kind, timeout) for kind in kinds))
        return self._session.catalog

    async def prefetch(self, after: float) -> None:
        """Request and store the lists that no kernel has requested for this definition; failures are logged.

        Args:
            after: Seconds to wait, so that the user's first calls are not delayed.
        """
        await asyncio.sleep(after)
        kept = await self._known.kinds(self._session.digest)
        for kind, announced in _ANNOUNCED_AS.items():
            if announced in self._client.capabilities and kind not in kept:
                try:
                    await self._refresh_list(kind, None)
                except McpError as error:
                    self._warn(f"its {kind} could not be listed: {error.message}")

    def knows(self, *kinds: Kind) -> bool:
        """Whether all of these lists were requested over this connection, however long ago."""
        return all(self._lists[kind].is_known for kind in kinds)

    async def _refresh_list(self, kind: Kind, timeout: float | None) -> None:
        state = self._lists[kind]
        async with state.lock:
            if state.is_known and time.monotonic() < state.fresh_until:
                return
            state.fresh_until = float("inf")  # `changed` resets this if a change is announced meanwhile
            try:
                with doing(f"reading the {kind} of {self._session.name}"):
                    ttl = await self._list(kind, timeout or self._session.definition.timeout)
            except BaseException as error:
                state.fresh_until = 0.0
                if not isinstance(error, McpError) or not state.is_known:
                    raise
                self._warn(f"its {kind} could not be listed again: {error.message}")
                return
            state.is_known = True
            if ttl is not None:
                state.fresh_until = min(state.fresh_until, time.monotonic() + ttl)

    async def _list(self, kind: Kind, timeout: float) -> float | None:
        """Request a list; return the seconds for which it is fresh, or None if the server will announce changes."""
        session = self._session
        if kind == "prompts":
            prompts, ttl = await listing.list_all(self._client, listing.PROMPTS, timeout=timeout)
            self._known.listed(session.digest, kind, prompts)
            session.catalog = session.catalog.with_prompts(session.name, prompts, self._warn)
        elif kind == "templates":
            templates, ttl = await listing.list_all(self._client, listing.TEMPLATES, timeout=timeout)
            self._known.listed(session.digest, kind, templates)
            session.catalog = session.catalog.with_templates(templates, self._warn)
        else:
            resources, ttl = await listing.list_all(self._client, listing.RESOURCES, timeout=timeout)
            self._known.listed(session.digest, kind, resources)
            session.catalog = session.catalog.with_resources(resources, self._warn)
        if ttl:
            return max(ttl, _MIN_TTL)
        return None if announces(self._client.capabilities, _ANNOUNCED_AS[kind]) else _MIN_TTL

    # -- reading ------------------------------------------------------------------------------------------------------

    async def read(self, uri: str) -> Raw:
        """The JSON result of `resources/read`, from the cache while it is fresh.

        Raises:
            McpError: The resource could not be read.
        """
        kept = self._reads.get(uri)
        if kept is not None and time.monotonic() < kept[0]:
            return kept[1]
        changes = self._changes
        with self._with_server_name():
            raw, ttl = await listing.read_resource(self._client, uri, timeout=self._session.definition.timeout)
        self._drop(uri)
        if ttl and changes == self._changes:  # otherwise the result may be outdated already
            self._cache(uri, raw, time.monotonic() + ttl)
        return raw

    async def prompt(self, name: str, arguments: Mapping[str, str]) -> Raw:
        """The JSON result of `prompts/get`.

        Raises:
            McpError: The server refused.
        """
        with self._with_server_name():
            return await listing.get_prompt(self._client, name, arguments, timeout=self._session.definition.timeout)

    async def suggestions(
        self, reference: Mapping[str, str], argument: str, typed: str, others: Mapping[str, str], *, timeout: float
    ) -> list[str]:
        """The server's suggestions for an argument.

        Raises:
            McpError: The server refused, or did not answer in time.
        """
        return await listing.complete(self._client, reference, argument, typed, others, timeout=timeout)

    def _cache(self, uri: str, raw: Raw, until: float) -> None:
        self._reads[uri] = until, raw
        self._read_bytes += memoryview(raw).nbytes
        while self._reads and (len(self._reads) > _MAX_READS or self._read_bytes > _MAX_BYTES):
            self._drop(next(iter(self._reads)))

    def _drop(self, uri: str) -> None:
        kept = self._reads.pop(uri, None)
        if kept is not None:
            self._read_bytes -= memoryview(kept[1]).nbytes

    # -- changes ------------------------------------------------------------------------------------------------------

    def changed(self, kind: Literal["resources", "prompts"]) -> None:
        """Mark the lists as stale that the server announced as changed."""
        for listed, announced in _ANNOUNCED_AS.items():
            if announced == kind:
                self._lists[listed].fresh_until = 0.0
        if kind == "resources":
            self._reads.clear()
            self._read_bytes = 0
            self._changes += 1
        self._events.emit(ListChanged(self._session.name, kind))

    def updated(self, uri: str) -> None:
        """Remove a resource from the cache that the server announced as changed."""
        self._drop(uri)
        self._changes += 1

    def _warn(self, text: str) -> None:
        self._session.log.add("host", "warning", text)

    @contextlib.contextmanager
    def _with_server_name(self) -> Generator[None, None, None]:
        try:
            with doing(f"waiting for {self._session.name}"):
                yield
        except McpError as error:
            self._session.explain(error)
            raise


ResourceListener: TypeAlias = "Callable[[Raw | McpError, bool], None]"
"""Called on the loop with the content or the error, and whether it is an update: False for the first read."""
_MIN_READ_INTERVAL = 0.1
"""Seconds between two reads of a resource that changes all the time."""
MAX_LISTEN_DELAY = 60.0
"""Seconds before a subscription that the server keeps ending is opened again."""


class _SubscribedResource(msgspec.Struct, eq=False):
    """One subscribed resource and its listeners."""

    uri: str
    listeners: list[ResourceListener] = msgspec.field(default_factory=list["ResourceListener"])
    confirmed: asyncio.Future[None] | None = None
    """Not None until the server has answered; then done with its confirmation or its error."""
    raw: Raw | None = None
    """The latest content."""
    is_reading: bool = False
    is_stale: bool = False
    """Whether the resource has to be read (again)."""
    is_announced: bool = False
    """Whether the server announced the change: listeners are then called even if the content is the same."""


class Subscriptions:
    """The subscribed resources of one server. Belongs to the loop.

    Args:
        session: The server's session.
        loop: Runs the reads.
        timing: The host's intervals.
    """

    def __init__(self, session: ResourceOwner, loop: BackgroundLoop, timing: Timing) -> None:
        self._session = session
        self._loop = loop
        self._timing = timing
        self._subscriptions: dict[str, _SubscribedResource] = {}
        self._requested: set[str] = set()
        """Handshake era: URIs that were requested."""
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._subscriptions)

    def move_to(self, session: ResourceOwner) -> Subscriptions:
        """Continue the subscriptions in another session, after the server's definition has changed."""
        self._session = session
        return self

    async def add(self, uri: str, listener: ResourceListener) -> None:
        """Subscribe, and read the resource a first time.

        Raises:
            McpError: The server has no subscriptions, refused, or cannot read the resource.
        """
        resources = self._session.resources
        subscription = self._subscriptions.get(uri)
        if subscription is None:
            subscription = self._subscriptions[uri] = _SubscribedResource(
                uri, confirmed=asyncio.get_running_loop().create_future()
            )
            self._changed.set()
        subscription.listeners.append(listener)
        try:
            if subscription.confirmed is not None:
                await asyncio.shield(subscription.confirmed)
            subscription.raw = await resources.read(uri)
            listener(subscription.raw, False)
        except BaseException:
            self.remove(uri, listener)
            raise

    def remove(self, uri: str, listener: ResourceListener) -> None:
        """Remove a listener; after the last one, unsubscribe."""
        subscription = self._subscriptions.get(uri)
        if subscription is None or listener not in subscription.listeners:
            return
        subscription.listeners.remove(listener)
        if not subscription.listeners:
            self._subscriptions.pop(uri)
            self._changed.set()

    def updated(self, uri: str) -> None:
        """Read a subscribed resource again after it, or a resource below its URI, has changed (2025-11-25, schema)."""
        found = [subscription for subscription in self._subscriptions.values() if _is_same(subscription.uri, uri)]
        for subscription in found or [each for each in self._subscriptions.values() if uri.startswith(each.uri)]:
            subscription.is_announced = True
            self._read_again(subscription)

    def lost(self) -> None:
        """Handshake era: subscribe again after the server has lost its session."""
        self._requested.clear()
        for subscription in self._subscriptions.values():
            subscription.confirmed = subscription.confirmed or asyncio.get_running_loop().create_future()
        self._changed.set()

    # -- over one connection ------------------------------------------------------------------------------------------

    async def keep(self, client: Client) -> None:
        """Keep the server subscribed for as long as this connection lives."""
        self._changed = asyncio.Event()
        for subscription in self._subscriptions.values():
            subscription.confirmed = subscription.confirmed or asyncio.get_running_loop().create_future()
        self._changed.set()
        with contextlib.suppress(ConnectionLost):
            if client.era.kind == "stateless":
                await self._listen(client)
            else:
                await self._subscribe(client)

    async def _subscribe(self, client: Client) -> None:
        """Handshake era: send one request for each resource."""
        requested = self._requested = set[str]()
        timeout = self._session.definition.timeout
        while True:
            await self._changed.wait()
            self._changed.clear()
            for uri in requested - self._subscriptions.keys():
                requested.discard(uri)
                with contextlib.suppress(McpError):
                    await listing.unsubscribe(client, uri, timeout=timeout)
            for subscription in [each for uri, each in self._subscriptions.items() if uri not in requested]:
                requested.add(subscription.uri)
                try:
                    _check_offered(client)
                    await listing.subscribe(client, subscription.uri, timeout=timeout)
                except ConnectionLost:
                    raise
                except McpError as error:
                    self._record_answer(subscription, error)
                else:
                    self._record_answer(subscription, None)

    async def _listen(self, client: Client) -> None:
        """Stateless era: keep one request for all resources open; open the next one before the last is ended."""
        stream: ListenStream | None = None
        delay = self._timing.listen_again
        try:
            while True:
                await self._change(stream)
                if stream is not None and stream.ended.done():
                    await asyncio.sleep(delay)
                    delay = min(delay * 2, MAX_LISTEN_DELAY)
                self._changed.clear()
                previous, stream = stream, None
                if self._subscriptions:
                    stream = await self._listen_to(client, list(self._subscriptions.values()))
                if previous is not None:
                    previous.ended.cancel()
        finally:
            if stream is not None:
                stream.ended.cancel()

    async def _change(self, stream: ListenStream | None) -> None:
        """Wait until the set of resources changes or the server ends the subscription."""
        changed = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait({changed, *([stream.ended] if stream else [])}, return_when="FIRST_COMPLETED")
        finally:
            changed.cancel()

    async def _listen_to(self, client: Client, subscriptions: list[_SubscribedResource]) -> ListenStream | None:
        try:
            _check_offered(client)
            stream = client.listen({"resourceSubscriptions": [each.uri for each in subscriptions]})
            done, _ = await asyncio.wait(
                {stream.acknowledged, stream.ended},
                timeout=self._session.definition.timeout,
                return_when="FIRST_COMPLETED",
            )
            if stream.ended in done:
                stream.ended.result()
            if stream.acknowledged not in done:
                stream.ended.cancel()
                raise CallError(
                    "did not acknowledge the subscription", hint="a fault of the server; read the resource instead"
                )
        except ConnectionLost:
            raise
        except McpError as error:
            for each in subscriptions:
                self._record_answer(each, error)
            return None
        honoured = stream.acknowledged.result()
        for each in subscriptions:
            agreed = any(_is_same(uri, each.uri) for uri in honoured)
            self._record_answer(each, None if agreed else _refused(each.uri))
        return stream

    def _record_answer(self, subscription: _SubscribedResource, error: McpError | None) -> None:
        """Record that the server has confirmed a subscription, or refused it with an error."""
        confirmed, subscription.confirmed = subscription.confirmed, None
        if confirmed is None:
            return
        if error is not None and subscription.raw is None:  # it was never read
            confirmed.set_exception(self._session.explain(error))
            confirmed.exception()  # marks it as retrieved: the subscriber may no longer wait
            return
        confirmed.set_result(None)
        if error is not None:
            self._report(subscription, error)
        elif subscription.raw is not None:
            self._read_again(subscription)

    # -- reading ------------------------------------------------------------------------------------------------------

    def _read_again(self, subscription: _SubscribedResource) -> None:
        subscription.is_stale = True
        if not subscription.is_reading:
            subscription.is_reading = True
            self._loop.spawn(self._read(subscription), f"ipymcp-read-{self._session.name}")

    async def _read(self, subscription: _SubscribedResource) -> None:
        pause = _MIN_READ_INTERVAL
        try:
            while subscription.is_stale and subscription.listeners:
                is_update, subscription.is_stale, subscription.is_announced = subscription.is_announced, False, False
                try:
                    raw = await self._session.resources.read(subscription.uri)
                except ServerError:  # the next connection will read it again
                    return
                except McpError as error:
                    self._report(subscription, error)
                else:
                    is_update = is_update or raw != subscription.raw
                    subscription.raw = raw
                    if is_update:
                        _notify(subscription, raw)
                await asyncio.sleep(pause)
                pause = min(pause * 2, self._timing.slowest_refresh)  # reading may be what changes the resource
        finally:
            subscription.is_reading = False

    def _report(self, subscription: _SubscribedResource, error: McpError) -> None:
        _notify(subscription, error)
        self._session.log.add("host", "warning", f"{subscription.uri}, subscribed to: {error.message}")


def _notify(subscription: _SubscribedResource, update: Raw | McpError) -> None:
    for listener in tuple(subscription.listeners):
        listener(update, True)


def announces_changes(client: Client) -> bool:
    """Whether a server declares that its resources can be subscribed to."""
    declared = client.capabilities.get("resources")
    return is_object(declared) and bool(declared.get("subscribe"))


def _check_offered(client: Client) -> None:
    if not announces_changes(client):
        raise CallError("does not announce changes of its resources", hint="read the resource again instead")


def _refused(uri: str) -> CallError:
    return CallError(f"does not announce changes of {uri}", hint="read the resource again instead")


def _is_same(one: str, other: str) -> bool:
    """Whether two URIs are equal except for a final slash, which some libraries append."""
    return one == other or one.rstrip("/") == other.rstrip("/")
