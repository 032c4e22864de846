"""Requests of a server in the handshake era: each answered in a task of its own, or refused at once.

Source: MCP 2025-11-25 basic (messages), ping, cancellation, tasks (related-task metadata).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Raw

from ipymcp.errors import RpcError
from ipymcp.protocol import wire
from ipymcp.protocol.inputs import METHOD_NOT_FOUND
from ipymcp.protocol.jsontypes import is_object

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from ipymcp.protocol.background import Background
    from ipymcp.protocol.inputs import Answers
    from ipymcp.protocol.rpc import Slot

__all__ = ["Serving"]

_RELATED_TASK = "io.modelcontextprotocol/related-task"


class Serving:
    """Answers a server's requests. Belongs to the loop.

    Args:
        answers: Gives them.
        background: Where they run.
        respond: Sends a response: the request's id, the name of its other member, and that, as JSON.
        find: The request of ours with this task, or with this id.
        noise: For the log.
    """

    def __init__(
        self,
        answers: Answers,
        background: Background,
        respond: Callable[[int | str | float, str, Raw], None],
        find: Callable[[str | None, int | str | float | None], Slot | None],
        noise: Callable[[str], None],
    ) -> None:
        self._answers = answers
        self._background = background
        self._respond = respond
        self._find = find
        self._noise = noise
        self._tasks: dict[int | str | float, asyncio.Task[None]] = {}

    def serve(self, request: wire.Envelope, carrier: int | str | float | None) -> None:
        """Answer one request, now or later.

        Args:
            request: The server's.
            carrier: The request of ours in whose stream it came.
        """
        identifier, method = request.id, request.method or ""
        assert identifier is not None
        if method == "ping":
            self._respond(identifier, "result", Raw(b"{}"))
            return
        if identifier in self._tasks:  # two answers under one id would tell it nothing
            self._noise(f"the server asked for {method} under an id in use ({identifier!r}): not answered")
            return
        try:
            params = self._answers.check(method, request.params)
            self._answers.reserve()
        except RpcError as error:
            why = "which this host does not offer" if error.code == METHOD_NOT_FOUND else f"refused: {error.message}"
            self._noise(f"the server asked for {method}, {why}")
            self._refuse(identifier, error)
            return
        slot = self._find(_related_task(params), carrier)
        work = self._answer(identifier, method, params, slot)
        task = self._background.spawn(work, f"ipymcp-answer-{identifier}")
        self._tasks[identifier] = task
        task.add_done_callback(lambda _: self._over(identifier))

    def withdraw(self, identifier: int | str) -> bool:
        """The server does not want the answer any more. False if it asked no such thing."""
        task = self._tasks.get(identifier)
        if task is None:
            return False
        task.cancel()
        self._noise(f"the server withdrew its request {identifier!r}")
        return True

    def withdraw_all(self) -> None:
        """The session they belong to is over."""
        for task in self._tasks.values():
            task.cancel()

    def _over(self, identifier: int | str | float) -> None:
        del self._tasks[identifier]
        self._answers.release()

    async def _answer(
        self, identifier: int | str | float, method: str, params: dict[str, Any], slot: Slot | None
    ) -> None:
        try:
            result = await self._answers.answer(method, params, slot)
        except RpcError as error:
            if error.__cause__ is not None:
                self._noise(f"{error.message}: {error.__cause__!r}")
            self._refuse(identifier, error)
        else:
            self._respond(identifier, "result", result)

    def _refuse(self, identifier: int | str | float, error: RpcError) -> None:
        data = {} if error.data is None else {"data": error.data}
        error_object = {"code": error.code, "message": error.message, **data}
        self._respond(identifier, "error", Raw(wire.encode(error_object)))


def _related_task(params: dict[str, Any]) -> str | None:
    meta = params.get("_meta")
    related = meta.get(_RELATED_TASK) if is_object(meta) else None
    task = related.get("taskId") if is_object(related) else None
    return task if isinstance(task, str) else None
