"""What a server offers beside its tools, over one connection: resources, templates and prompts, listed and read.

Nothing is asked before somebody looks, so that a server starts no slower for what nobody uses; but a definition that
was never looked at is listed once, some time after its start, to be known when it does not run. A list is read again,
when somebody looks, once it is stale: the server said that it changed, or the time that it gave (`ttlMs`) has passed.
Where a server gives no time, its list is fresh until it announces a change if it says that it announces them, and for a
second if not. What is read is kept for its own `ttlMs`, until the server says that it changed.

Source: MCP 2026-07-28, utilities/caching. Nothing here outlives the connection, so `cacheScope` never matters.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from ipymcp.errors import McpError
from ipymcp.protocol import pages
from ipymcp.protocol import resources as requests
from ipymcp.protocol.subscriptions import announces
from ipymcp.runtime.events import OffersChanged

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from msgspec import Raw

    from ipymcp.protocol.client import Client
    from ipymcp.runtime.catalog import Catalog
    from ipymcp.runtime.server import ServerSession
    from ipymcp.state.known import KnownServers

__all__ = ["Kind", "Offers"]

Kind: TypeAlias = Literal["resources", "templates", "prompts"]
_ANNOUNCED_AS: dict[Kind, Literal["resources", "prompts"]] = {
    "resources": "resources",
    "templates": "resources",
    "prompts": "prompts",
}
_LEAST_TTL = 1.0
"""Seconds a list is fresh at least: showing it looks more than once."""
_MOST_READS = 200
_MOST_BYTES = 20_000_000
"""What is kept of reads, of one server."""


class _List(msgspec.Struct):
    """How fresh one list is."""

    is_known: bool = False
    fresh_until: float = 0.0
    lock: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)
    """Who looks while it is being read waits for the same reading."""


class Offers:
    """What one connection gives beside tools. Belongs to the loop.

    Args:
        session: Whose catalog is filled.
        client: The connection.
        known: Where what was listed is kept.
    """

    def __init__(self, session: ServerSession, client: Client, known: KnownServers) -> None:
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

    async def get_to_know(self, after: float) -> None:
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
            prompts, ttl = await pages.list_all(self._client, pages.PROMPTS, timeout=timeout)
            self._known.listed(session.digest, kind, prompts)
            session.catalog = session.catalog.with_prompts(session.name, prompts, self._noise)
        elif kind == "templates":
            templates, ttl = await pages.list_all(self._client, pages.TEMPLATES, timeout=timeout)
            self._known.listed(session.digest, kind, templates)
            session.catalog = session.catalog.with_templates(templates, self._noise)
        else:
            resources, ttl = await pages.list_all(self._client, pages.RESOURCES, timeout=timeout)
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
        """What the server suggests for an argument.

        Raises:
            McpError: It refused, or does not answer in time.
        """
        return await requests.complete(self._client, reference, argument, typed, others, timeout=timeout)

    def _keep(self, uri: str, raw: Raw, until: float) -> None:
        self._reads[uri] = until, raw
        self._read_bytes += memoryview(raw).nbytes
        while self._reads and (len(self._reads) > _MOST_READS or self._read_bytes > _MOST_BYTES):
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
