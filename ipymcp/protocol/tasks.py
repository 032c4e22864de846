"""Tool calls that the server runs as tasks: polled until they end.

The caller sees one `PendingRequest`, which receives progress and in the end the result.

Source: the extension io.modelcontextprotocol/tasks (stateless era: the server decides, `resultType: "task"`); MCP
2025-11-25 (tasks).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any

from msgspec import Raw, Struct

from ipymcp.errors import CallCancelled, CallError, CallTimeout, ConnectionLost, HttpError, McpError, RpcError
from ipymcp.protocol import types
from ipymcp.protocol.jsonrpc import POLL_INTERVAL, Retry, TaskState, rpc_error
from ipymcp.protocol.types import is_object

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ipymcp.protocol.eras import Era
    from ipymcp.protocol.jsonrpc import Background, Peer, PendingRequest
    from ipymcp.protocol.server_requests import InputRounds, RequestOwner


_TIMEOUT = 30.0
"""Timeout of one request about a task, in seconds."""
_FAILURES = 5
"""Maximum number of consecutive failed polls; after more the call fails."""
_GONE = "the server keeps a task only for some time"


class _Created(Struct):
    task: TaskState


def supports_tasks(capabilities: Mapping[str, Any], version: str) -> bool:
    """Return whether a server of the handshake era supports tool calls as tasks."""
    declared: object = capabilities.get("tasks") if version >= "2025-11-25" else None
    for name in ("requests", "tools", "call"):
        declared = declared.get(name) if is_object(declared) else None
    return declared is not None


class Tasks:
    """The tasks of one connection. Belongs to the loop, except `resume` and `detach`.

    Args:
        client: The client.
        peer: The peer with the pending requests.
        rounds: Answers the input requests of tasks.
        background: Runs the polling.
        running: Running calls by task id, filled here; requests from the server may refer to a task.
    """

    def __init__(
        self,
        client: RequestOwner,
        peer: Peer,
        rounds: InputRounds,
        background: Background,
        running: dict[str, PendingRequest],
    ) -> None:
        self._client = client
        self._peer = peer
        self._rounds = rounds
        self._background = background
        self._running = running
        self._detached: set[str] = set()
        self._changes: dict[str, asyncio.Event] = {}
        self.is_stateless = True
        self.are_supported = False
        """Whether calls may become tasks."""

    def configure(self, era: Era, capabilities: Mapping[str, Any]) -> None:
        """Set the form of tasks, and whether calls may become tasks, by the result of the negotiation."""
        self.is_stateless = era.kind == "stateless"
        self.are_supported = self.is_stateless or supports_tasks(capabilities, era.version)

    def intercept(self, pending: PendingRequest, result: Raw, error: Raw, line: bytes | bytearray) -> bool:
        """Handshake era: follow the task if a response created one; see `Intercept`."""
        if not pending.wants_task or not len(result):
            return False
        try:
            created = types.decode(result, _Created)
        except ValueError:
            return False  # the server answered at once
        self._follow(pending, created.task)
        return True

    def begin(self, pending: PendingRequest, result: Raw) -> None:
        """Stateless era: handle a result whose `resultType` is `task`."""
        try:
            if pending.method != "tools/call":
                raise ValueError(f"{pending.method} cannot be a task")
            state = types.decode(result, TaskState)
        except ValueError as error:
            hint = "a fault of the server"
            failure = CallError(f"the server answered with a malformed task ({error})", hint=hint)
            self._peer.settle(pending.id, error=failure)
            return
        self._follow(pending, state)

    def resume(self, pending: PendingRequest, identifier: str) -> None:
        """Follow an existing task as if it were the call that created it; from any thread."""
        self._peer.open(pending, "tools/call")
        self._rounds.on_loop(self._resume, pending, identifier)

    def _resume(self, pending: PendingRequest, identifier: str) -> None:
        self._follow(pending, TaskState(identifier), is_known=False)

    def detach(self, pending: PendingRequest) -> str | None:
        """Stop waiting for a call that became a task, and let the task continue; from any thread.

        Returns:
            The task id; None if the call is not a task or is settled.
        """
        if pending.task is None:
            return None
        self._detached.add(pending.task.id)
        return pending.task.id if self._client.give_up(pending, "left") else None

    def changed(self, identifier: str) -> None:
        """Poll a task that the server announced as changed."""
        if identifier in self._changes:
            self._changes[identifier].set()

    def _follow(self, pending: PendingRequest, state: TaskState, *, is_known: bool = True) -> None:
        if not self._peer.reassign_id(pending):
            if is_known:
                self._background.spawn(self._cancel(state.id), f"ipymcp-cancel-{pending.id}")
            return
        pending.task = state
        pending.retry = pending.retry or Retry()
        pending.retry.work = self._background.spawn(self._run(pending, state, is_known), f"ipymcp-task-{pending.id}")

    async def _run(self, pending: PendingRequest, state: TaskState, is_known: bool) -> None:
        identifier = state.id
        self._running[identifier] = pending
        self._changes[identifier] = asyncio.Event()
        poller = _TaskPoller(
            self._client, self._rounds, pending, self._changes[identifier], is_stateless=self.is_stateless
        )
        try:
            result = await poller.run(state if is_known else None, identifier)
            self._peer.settle(pending.id, result=result)
        except ConnectionLost as error:
            error.hint = error.hint or f"its task may continue: .task({identifier!r}) of the server waits for it again"
            self._peer.settle(pending.id, error=error)
        except McpError as error:
            self._peer.settle(pending.id, error=error)
            if poller.was_refused:  # the task would wait forever
                await self._cancel(identifier)
        except asyncio.CancelledError:
            if identifier not in self._detached:
                self._background.spawn(self._cancel(identifier), f"ipymcp-cancel-{pending.id}")
            raise
        finally:
            poller.close()
            self._detached.discard(identifier)
            self._changes.pop(identifier, None)
            self._running.pop(identifier, None)

    async def _cancel(self, identifier: str) -> None:
        """Cancel a task; the server may ignore it or have ended the task already."""
        with contextlib.suppress(McpError):
            await self._client.request("tasks/cancel", types.encode({"taskId": identifier}), timeout=_TIMEOUT)


class _TaskPoller:
    """Polls one task."""

    def __init__(
        self,
        client: RequestOwner,
        rounds: InputRounds,
        pending: PendingRequest,
        changes: asyncio.Event,
        *,
        is_stateless: bool,
    ) -> None:
        self._client = client
        self._rounds = rounds
        self._pending = pending
        self._changes = changes
        self._is_stateless = is_stateless
        self._began = time.monotonic()
        self._work: dict[str, asyncio.Task[Any]] = {}
        """Running answers by input request key; in the handshake era the pending `tasks/result` by `result`."""
        self._known_keys: set[str] = set()
        """The keys of the input requests that are answered or being answered."""
        self.was_refused = False
        """Whether an input request was refused."""

    def close(self) -> None:
        """Cancel everything that is running."""
        for work in self._work.values():
            work.cancel()

    async def run(self, state: TaskState | None, identifier: str) -> Raw:
        """Poll until the task ends, and return its result.

        Raises:
            McpError: The task failed, was cancelled, or cannot be followed.
        """
        failures = 0
        while True:
            if state is not None:
                self._report_progress(state)
                result = await self._advance(state)
                if result is not None:
                    return result
                await self._pause(state.interval)
            try:
                state = await self._ask(identifier)
                failures = 0
            except (CallTimeout, HttpError) as error:
                failures += 1
                if failures > _FAILURES:
                    raise
                await asyncio.sleep(
                    min((isinstance(error, HttpError) and error.retry_after) or POLL_INTERVAL, _TIMEOUT)
                )

    async def _advance(self, state: TaskState) -> Raw | None:
        """Act on the status; return the result once there is one."""
        if state.status == "cancelled":
            raise CallCancelled(f"its task was cancelled{_because(state)}")
        if not self._is_stateless:
            # Its result is requested early, because the server sends input requests only while that is pending.
            if (state.is_over or state.status == "input_required") and "result" not in self._work:
                body = types.encode({"taskId": state.id})
                self._work["result"] = asyncio.ensure_future(self._client.request("tasks/result", body))
                self._work["result"].add_done_callback(lambda _: self._changes.set())
            result = self._work.get("result")
            return await result if result is not None and (state.is_over or result.done()) else None
        if state.status == "completed":
            return state.result if len(state.result) else Raw(b"{}")
        if state.status == "failed":
            raise rpc_error(state.error) if len(state.error) else CallError(f"its task failed{_because(state)}")
        for key, work in tuple(self._work.items()):
            if work.done():
                await work  # raises its error
                self._work.pop(key)
        requests = state.inputRequests if state.status == "input_required" else None
        new = {key: raw for key, raw in (requests or {}).items() if key not in self._known_keys}
        if new:  # the server repeats each until it is answered
            self._known_keys.update(new)
            work = asyncio.ensure_future(self._gather(state.id, new))
            work.add_done_callback(lambda _: self._changes.set())
            self._work[next(iter(new))] = work
        return None

    async def _gather(self, identifier: str, requests: Mapping[str, Raw]) -> None:
        try:
            responses = await self._rounds.answer_all(self._pending, requests)
        except CallError:
            self.was_refused = True
            raise
        body = types.encode({"taskId": identifier, "inputResponses": responses})
        await self._client.request("tasks/update", body, timeout=_TIMEOUT)

    async def _ask(self, identifier: str) -> TaskState:
        try:
            raw = await self._client.request("tasks/get", types.encode({"taskId": identifier}), timeout=_TIMEOUT)
        except RpcError as error:
            error.message, error.hint = (
                f"its task {identifier} cannot be followed: {error.message}",
                error.hint or _GONE,
            )
            raise
        try:
            return types.decode(raw, TaskState)
        except ValueError as error:
            raise CallError(
                f"the response to tasks/get is malformed ({error})", hint="a fault of the server"
            ) from error

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changes.wait()
        self._changes.clear()

    def _report_progress(self, state: TaskState) -> None:
        """Report progress: elapsed seconds and the server's status message."""
        self._pending.task = state
        if not state.is_over:
            words = state.status.replace("_", " ")
            message = f"{words}: {state.message}" if state.message else words
            seconds = round(time.monotonic() - self._began, 1)
            self._pending.deliver(types.Progress(self._pending.id, seconds, message=message))


def _because(state: TaskState) -> str:
    return f": {state.message}" if state.message else ""
