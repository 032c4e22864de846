"""A call that became a task of the server's, picked up again."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ipymcp.runtime.calls import Call

if TYPE_CHECKING:
    from collections.abc import Callable

    from msgspec import Raw

    from ipymcp.protocol.client import Client
    from ipymcp.runtime.calling import CallOptions, CallServices
    from ipymcp.runtime.server import ServerSession

__all__ = ["TaskCall"]

T = TypeVar("T")


class TaskCall(Call[T]):
    """A task that is followed again, by its id.

    Args:
        task: The id. The rest is as for a call.
    """

    __slots__ = ("_task",)

    def __init__(
        self,
        task: str,
        number: int,
        session: ServerSession,
        tool: str,
        options: CallOptions,
        convert: Callable[[Raw], T],
        services: CallServices,
        receiver: Callable[[bytes | memoryview], None] | None = None,
    ) -> None:
        super().__init__(number, session, tool, b"", options, convert, services, receiver=receiver)
        self._task = task

    def _send(self, client: Client) -> None:
        client.pick_up(self._slot, self._task)
