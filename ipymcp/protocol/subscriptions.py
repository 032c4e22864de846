"""Notifications from the server, and the subscriptions that ask for them.

Handshake era: changes of lists come unasked, those of resources after `resources/subscribe`. Stateless era: all of it
only to who listens (`subscriptions/listen`), for as long as that request stays open.

Source: MCP 2025-11-25 server/tools, server/resources, server/prompts; 2026-07-28 patterns/subscriptions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ipymcp.protocol import types
from ipymcp.protocol.jsonrpc import TaskState, excerpt
from ipymcp.protocol.types import is_array, is_object

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping

    from msgspec import Raw

    from ipymcp.protocol.jsonrpc import PendingRequest


class Listener(Protocol):
    """What the client's owner hears. Called on the loop thread; must not block."""

    def tools_changed(self) -> None:
        """The server's list of tools is not what it was."""
        ...

    def resources_changed(self) -> None:
        """Nor are its lists of resources and templates."""
        ...

    def prompts_changed(self) -> None:
        """Nor is its list of prompts."""
        ...

    def resource_updated(self, uri: str) -> None:
        """A resource has changed that was subscribed to."""
        ...

    def subscriptions_lost(self) -> None:
        """Handshake era: the server, which had forgotten the session, knows of none any more."""
        ...

    def log(self, level: str, text: str) -> None:
        """A log message of the server, with its MCP level."""
        ...

    def noise(self, text: str) -> None:
        """Something the server should not have sent."""
        ...

    def stderr(self, lines: list[str]) -> None:
        """Lines from the server's standard error."""
        ...

    def lost(self, reason: str) -> None:
        """The connection ended without our asking."""
        ...

    def unreachable(self, reason: str) -> None:
        """HTTP: no connection could be made just now; the next request tries again."""
        ...

    def wants_handshake(self, reason: str) -> None:
        """It asks something of us on a stateless connection: the session is to be opened anew by the handshake."""
        ...


_IGNORED = frozenset(
    {
        "notifications/elicitation/complete",
    }
)


class NotificationDispatcher:
    """Hands each notification to whom it concerns.

    Args:
        listener: The client's.
        listenings: What the client listens to, in the stateless era.
        task_changed: Told which task there is news of.
        cancelled: Told which request `notifications/cancelled` names: one of its own, or a subscription of ours.
    """

    def __init__(
        self,
        listener: Listener,
        listenings: ListenStreams,
        task_changed: Callable[[str], None],
        cancelled: Callable[[int | str], None],
    ) -> None:
        self._listener = listener
        self._listenings = listenings
        self._tell_task = task_changed
        self._cancelled = cancelled

    def hear(self, method: str, params: Raw) -> None:
        """Act on one notification."""
        if method == "notifications/tools/list_changed":
            self._listener.tools_changed()
        elif method == "notifications/message":
            self._log(params)
        elif method == "notifications/cancelled":
            self._cancel(params)
        elif method == "notifications/subscriptions/acknowledged":
            self._listenings.acknowledge(params)
        elif method == "notifications/resources/list_changed":
            self._listener.resources_changed()
        elif method == "notifications/prompts/list_changed":
            self._listener.prompts_changed()
        elif method == "notifications/resources/updated":
            self._resource_updated(params)
        elif method in ("notifications/tasks", "notifications/tasks/status"):
            self._task_changed(params)
        elif method not in _IGNORED:
            self._listener.noise(f"an unknown notification: {method}")

    def _log(self, params: Raw) -> None:
        try:
            message = types.decode(params, types.LogMessage)
            data = types.loads(message.data)
        except ValueError:
            self._listener.noise(f"a malformed log message: {excerpt(bytes(params))}")
            return
        text = data if isinstance(data, str) else types.encode(data).decode()
        self._listener.log(message.level, f"{message.logger}: {text}" if message.logger else text)

    def _resource_updated(self, params: Raw) -> None:
        try:
            self._listener.resource_updated(types.decode(params, types.ResourceUpdated).uri)
        except ValueError:
            self._listener.noise(f"a malformed notice of a changed resource: {excerpt(bytes(params))}")

    def _task_changed(self, params: Raw) -> None:
        try:
            self._tell_task(types.decode(params, TaskState).id)
        except ValueError:
            self._listener.noise(f"a malformed notice of a task: {excerpt(bytes(params))}")

    def _cancel(self, params: Raw) -> None:
        try:
            identifier = types.decode(params, types.Cancelled).requestId
        except ValueError:
            identifier = None
        if identifier is None:
            self._listener.noise(f"a cancellation of nothing: {excerpt(bytes(params))}")
        else:
            self._cancelled(identifier)


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


class ListenStream:
    """One `subscriptions/listen`.

    Attributes:
        wanted: The filter that was asked for.
        ended: Done when the server ends it, with an `RpcError` if it has no subscriptions; cancelling it ends it.
        acknowledged: The URIs of the resources that the server will tell of, once it has said so.
    """

    def __init__(self, slot: PendingRequest, ended: asyncio.Future[Raw], wanted: Mapping[str, Any]) -> None:
        self.slot = slot
        self.wanted = wanted
        self.ended = ended
        self.acknowledged: asyncio.Future[frozenset[str]] = ended.get_loop().create_future()


class ListenStreams:
    """Those that are open on one connection.

    Args:
        noise: Told what a server does not honour.
    """

    def __init__(self, noise: Callable[[str], None]) -> None:
        self._noise = noise
        self._open: dict[int, ListenStream] = {}

    def add(self, listening: ListenStream, give_up: Callable[[PendingRequest, str], object]) -> None:
        """Keep one until it ends; `give_up` tells the server when it is cancelled."""
        self._open[listening.slot.id] = listening

        def over(done: asyncio.Future[Raw]) -> None:
            self._open.pop(listening.slot.id, None)
            if done.cancelled() or done.exception() is None:
                give_up(listening.slot, "no longer listening")
            if not listening.acknowledged.done():
                listening.acknowledged.cancel()

        listening.ended.add_done_callback(over)

    def find(self, identifier: object) -> ListenStream | None:
        """The one of this request id."""
        return self._open.get(identifier) if isinstance(identifier, int) else None

    def acknowledge(self, params: Raw) -> None:
        """`notifications/subscriptions/acknowledged` has come."""
        said = types.loads(params) if len(params) else None
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
