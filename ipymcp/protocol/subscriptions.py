"""What a server announces of its own accord, and how it is asked to.

Handshake era: changes of lists come unasked, those of resources after `resources/subscribe`. Stateless era: all of it
only to who listens (`subscriptions/listen`), for as long as that request stays open.

Source: MCP 2025-11-25 server/tools, server/resources, server/prompts; 2026-07-28 patterns/subscriptions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ipymcp.protocol import wire
from ipymcp.protocol.jsontypes import is_array, is_object

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping

    from msgspec import Raw

    from ipymcp.protocol.rpc import Slot

__all__ = ["Listening", "Listenings", "announces", "changing_lists"]

_LISTS = {"tools": "toolsListChanged", "resources": "resourcesListChanged", "prompts": "promptsListChanged"}
_RESOURCES = "resourceSubscriptions"
_ID = "io.modelcontextprotocol/subscriptionId"


def changing_lists(capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """The filter for all lists that a server says may change; empty where none does."""
    return {word: True for kind, word in _LISTS.items() if announces(capabilities, kind)}


def announces(capabilities: Mapping[str, Any], kind: str) -> bool:
    """Whether a server says that it tells when its `tools`, `resources` or `prompts` change."""
    declared = capabilities.get(kind)
    return is_object(declared) and bool(declared.get("listChanged"))


class Listening:
    """One `subscriptions/listen`.

    Attributes:
        wanted: The filter that was asked for.
        ended: Done when the server ends it, with an `RpcError` if it has no subscriptions; cancelling it ends it.
        acknowledged: The URIs of the resources that the server will tell of, once it has said so.
    """

    def __init__(self, slot: Slot, ended: asyncio.Future[Raw], wanted: Mapping[str, Any]) -> None:
        self.slot = slot
        self.wanted = wanted
        self.ended = ended
        self.acknowledged: asyncio.Future[frozenset[str]] = ended.get_loop().create_future()


class Listenings:
    """Those that are open on one connection.

    Args:
        noise: Told what a server does not honour.
    """

    def __init__(self, noise: Callable[[str], None]) -> None:
        self._noise = noise
        self._open: dict[int, Listening] = {}

    def add(self, listening: Listening, give_up: Callable[[Slot, str], object]) -> None:
        """Keep one until it ends; `give_up` tells the server when it is cancelled."""
        self._open[listening.slot.id] = listening

        def over(done: asyncio.Future[Raw]) -> None:
            self._open.pop(listening.slot.id, None)
            if done.cancelled() or done.exception() is None:
                give_up(listening.slot, "no longer listening")
            if not listening.acknowledged.done():
                listening.acknowledged.cancel()

        listening.ended.add_done_callback(over)

    def find(self, identifier: object) -> Listening | None:
        """The one of this request id."""
        return self._open.get(identifier) if isinstance(identifier, int) else None

    def acknowledge(self, params: Raw) -> None:
        """`notifications/subscriptions/acknowledged` has come."""
        said = wire.loads(params) if len(params) else None
        meta, honoured = (said.get("_meta"), said.get("notifications")) if is_object(said) else (None, None)
        listening = self.find(meta.get(_ID)) if is_object(meta) else None
        if listening is None and len(self._open) == 1:  # a server that forgot to name it
            listening = next(iter(self._open.values()))
        if listening is None or listening.acknowledged.done():
            return
        kept: dict[str, Any] = honoured if is_object(honoured) else {}
        for kind, word in _LISTS.items():
            if listening.wanted.get(word) and not kept.get(word):
                self._noise(f"the server does not announce changes of its {kind}; a restart shows them")
        uris = kept.get(_RESOURCES)
        listening.acknowledged.set_result(
            frozenset(uri for uri in uris if isinstance(uri, str)) if is_array(uris) else frozenset()
        )
