"""What a server says of its own accord and wants no answer to: its notifications, handed to the listener."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipymcp.protocol import wire
from ipymcp.protocol.rpc import excerpt
from ipymcp.protocol.tasks import TaskState

if TYPE_CHECKING:
    from collections.abc import Callable

    from msgspec import Raw

    from ipymcp.protocol.listener import Listener
    from ipymcp.protocol.subscriptions import Listenings

__all__ = ["Notices"]

_IGNORED = frozenset(
    {
        "notifications/elicitation/complete",
    }
)


class Notices:
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
        listenings: Listenings,
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
            message = wire.decode(params, wire.LogMessage)
            data = wire.loads(message.data)
        except ValueError:
            self._listener.noise(f"a malformed log message: {excerpt(bytes(params))}")
            return
        text = data if isinstance(data, str) else wire.encode(data).decode()
        self._listener.log(message.level, f"{message.logger}: {text}" if message.logger else text)

    def _resource_updated(self, params: Raw) -> None:
        try:
            self._listener.resource_updated(wire.decode(params, wire.ResourceUpdated).uri)
        except ValueError:
            self._listener.noise(f"a malformed notice of a changed resource: {excerpt(bytes(params))}")

    def _task_changed(self, params: Raw) -> None:
        try:
            self._tell_task(wire.decode(params, TaskState).id)
        except ValueError:
            self._listener.noise(f"a malformed notice of a task: {excerpt(bytes(params))}")

    def _cancel(self, params: Raw) -> None:
        try:
            identifier = wire.decode(params, wire.Cancelled).requestId
        except ValueError:
            identifier = None
        if identifier is None:
            self._listener.noise(f"a cancellation of nothing: {excerpt(bytes(params))}")
        else:
            self._cancelled(identifier)
