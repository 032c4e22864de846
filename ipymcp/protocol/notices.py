"""What a server says of its own accord and wants no answer to: its notifications, handed to the listener."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ipymcp.protocol import wire
from ipymcp.protocol.jsontypes import is_object
from ipymcp.protocol.rpc import excerpt

if TYPE_CHECKING:
    from collections.abc import Callable

    from msgspec import Raw

    from ipymcp.protocol.listener import Listener

__all__ = ["Notices"]

_IGNORED = frozenset(
    {
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
        "notifications/elicitation/complete",
        "notifications/tasks/status",
    }
)


class Notices:
    """Hands each notification to whom it concerns.

    Args:
        listener: The client's.
        cancelled: Told which request `notifications/cancelled` names: one of its own, or a subscription of ours.
    """

    def __init__(self, listener: Listener, cancelled: Callable[[int | str], None]) -> None:
        self._listener = listener
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
            if not _member(wire.loads(params) if len(params) else None, "notifications", "toolsListChanged"):
                self._listener.noise("the server does not announce changes of its tools; %mcp restart shows them")
        elif method not in _IGNORED:
            self._listener.noise(f"an unknown notification: {method}")

    def _log(self, params: Raw) -> None:
        try:
            message = wire.decode(params, wire.LogMessage)
            data = wire.loads(message.data)
        except ValueError:
            self._listener.noise(f"a malformed log message: {excerpt(bytes(params))}")
            return
        text = data if isinstance(data, str) else wire.encode(data).decode()
        self._listener.log(message.level, f"{message.logger}: {text}" if message.logger else text)

    def _cancel(self, params: Raw) -> None:
        try:
            identifier = wire.decode(params, wire.Cancelled).requestId
        except ValueError:
            identifier = None
        if identifier is None:
            self._listener.noise(f"a cancellation of nothing: {excerpt(bytes(params))}")
        else:
            self._cancelled(identifier)


def _member(value: object, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if is_object(value) else None
    return value
