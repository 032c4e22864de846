"""Notifications from the server, and the subscriptions that request them.

Handshake era: list changes are sent unasked, resource changes after `resources/subscribe`. Stateless era: both are sent
only while a `subscriptions/listen` request is open.

Source: MCP 2025-11-25 server/tools, server/resources, server/prompts; 2026-07-28 patterns/subscriptions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec import Struct

from ipymcp.protocol import types
from ipymcp.protocol.jsonrpc import TaskState, excerpt
from ipymcp.protocol.types import is_array, is_object

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping

    from msgspec import Raw

    from ipymcp.protocol.jsonrpc import PendingRequest


T = TypeVar("T", bound=Struct)


class Listener(Protocol):
    """Receives notifications and connection events on the loop thread; must not block."""

    def tools_changed(self) -> None:
        """The server's list of tools has changed."""
        ...

    def resources_changed(self) -> None:
        """The server's list of resources or templates has changed."""
        ...

    def prompts_changed(self) -> None:
        """The server's list of prompts has changed."""
        ...

    def resource_updated(self, uri: str) -> None:
        """A subscribed resource has changed."""
        ...

    def subscriptions_lost(self) -> None:
        """Handshake era: the server lost the session and with it all subscriptions."""
        ...

    def log(self, level: str, text: str) -> None:
        """A log message from the server, with its MCP level."""
        ...

    def protocol_warning(self, text: str) -> None:
        """A protocol violation by the server."""
        ...

    def stderr(self, lines: list[str]) -> None:
        """Lines from the server's standard error."""
        ...

    def lost(self, reason: str) -> None:
        """The connection ended without a request to close it."""
        ...

    def unreachable(self, reason: str) -> None:
        """HTTP: no connection could be made; the next request tries again."""
        ...

    def wants_handshake(self, reason: str) -> None:
        """The server needs requests to the client, so the session has to be reopened with a handshake."""
        ...


_IGNORED = frozenset({"notifications/elicitation/complete"})


class NotificationDispatcher:
    """Dispatches notifications to their handlers.

    Args:
        listener: The client's listener.
        streams: Subscription streams of the stateless era.
        task_changed: Called with the id of a task that has changed.
        cancelled: Called with the request id of `notifications/cancelled`: a server's request or our subscription.
    """

    def __init__(
        self,
        listener: Listener,
        streams: ListenStreams,
        task_changed: Callable[[str], None],
        cancelled: Callable[[int | str], None],
    ) -> None:
        self._listener = listener
        self._streams = streams
        self._on_task_changed = task_changed
        self._cancelled = cancelled

    def dispatch(self, method: str, params: Raw) -> None:
        """Handle one notification."""
        if method == "notifications/tools/list_changed":
            self._listener.tools_changed()
        elif method == "notifications/message":
            self._log(params)
        elif method == "notifications/cancelled":
            if cancelled := self._decode(params, types.Cancelled, "a cancellation without a request id"):
                self._cancelled(cancelled.requestId)
        elif method == "notifications/subscriptions/acknowledged":
            self._streams.acknowledge(params)
        elif method == "notifications/resources/list_changed":
            self._listener.resources_changed()
        elif method == "notifications/prompts/list_changed":
            self._listener.prompts_changed()
        elif method == "notifications/resources/updated":
            if updated := self._decode(params, types.ResourceUpdated, "a malformed resource update"):
                self._listener.resource_updated(updated.uri)
        elif method in ("notifications/tasks", "notifications/tasks/status"):
            if state := self._decode(params, TaskState, "a malformed task notification"):
                self._on_task_changed(state.id)
        elif method not in _IGNORED:
            self._listener.protocol_warning(f"an unknown notification: {method}")

    def _decode(self, params: Raw, kind: type[T], problem: str) -> T | None:
        """Decode the params of a notification; None, with a warning, if the server sent something else."""
        try:
            return types.decode(params, kind)
        except ValueError:
            self._listener.protocol_warning(f"{problem}: {excerpt(bytes(params))}")
            return None

    def _log(self, params: Raw) -> None:
        try:
            message = types.decode(params, types.LogMessage)
            data = types.loads(message.data)
        except ValueError:
            self._listener.protocol_warning(f"a malformed log message: {excerpt(bytes(params))}")
            return
        text = data if isinstance(data, str) else types.encode(data).decode()
        self._listener.log(message.level, f"{message.logger}: {text}" if message.logger else text)


_LISTS = {"tools": "toolsListChanged", "resources": "resourcesListChanged", "prompts": "promptsListChanged"}
_RESOURCES = "resourceSubscriptions"
_ID = "io.modelcontextprotocol/subscriptionId"


def changing_lists(capabilities: Mapping[str, Any]) -> dict[str, Any]:
    """Build the filter for all lists whose changes the server announces."""
    return {word: True for kind, word in _LISTS.items() if announces(capabilities, kind)}


def announces(capabilities: Mapping[str, Any], kind: str) -> bool:
    """Return whether a server declares `listChanged` for `tools`, `resources` or `prompts`."""
    declared = capabilities.get(kind)
    return is_object(declared) and bool(declared.get("listChanged"))


class ListenStream:
    """One `subscriptions/listen` request.

    Attributes:
        wanted: The requested filter.
        ended: Completes when the server ends the stream, with an `RpcError` if it has no subscriptions. Cancel it
            to end the stream.
        acknowledged: The URIs of the resources that the server confirmed.
    """

    def __init__(self, pending: PendingRequest, ended: asyncio.Future[Raw], wanted: Mapping[str, Any]) -> None:
        self.pending = pending
        self.wanted = wanted
        self.ended = ended
        self.acknowledged: asyncio.Future[frozenset[str]] = ended.get_loop().create_future()


class ListenStreams:
    """The open subscription streams of one connection.

    Args:
        warn: Called with a warning for each part of a filter that the server ignores.
    """

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._open: dict[int, ListenStream] = {}

    def add(self, stream: ListenStream, give_up: Callable[[PendingRequest, str], object]) -> None:
        """Track a stream until it ends; `give_up` cancels its request at the server."""
        self._open[stream.pending.id] = stream

        def on_done(done: asyncio.Future[Raw]) -> None:
            self._open.pop(stream.pending.id, None)
            if done.cancelled() or done.exception() is None:
                give_up(stream.pending, "no longer listening")
            if not stream.acknowledged.done():
                stream.acknowledged.cancel()

        stream.ended.add_done_callback(on_done)

    def find(self, identifier: object) -> ListenStream | None:
        """Find the stream with this request id."""
        return self._open.get(identifier) if isinstance(identifier, int) else None

    def acknowledge(self, params: Raw) -> None:
        """Handle `notifications/subscriptions/acknowledged`."""
        message = types.loads(params) if len(params) else None
        meta, honoured = (message.get("_meta"), message.get("notifications")) if is_object(message) else (None, None)
        stream = self.find(meta.get(_ID)) if is_object(meta) else None
        if stream is None and len(self._open) == 1:  # the server omitted the id
            stream = next(iter(self._open.values()))
        if stream is None or stream.acknowledged.done():
            return
        kept: dict[str, Any] = honoured if is_object(honoured) else {}
        for kind, word in _LISTS.items():
            if stream.wanted.get(word) and not kept.get(word):
                self._warn(f"the server does not announce changes of its {kind}; restart it to see them")
        uris = kept.get(_RESOURCES)
        stream.acknowledged.set_result(
            frozenset(uri for uri in uris if isinstance(uri, str)) if is_array(uris) else frozenset()
        )
