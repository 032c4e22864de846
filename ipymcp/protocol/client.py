"""One connection to one server: negotiation, requests, tool calls, cancellation and messages from the server.

`ask`, `call_tool`, `give_up` and `notify` are thread-safe. Coroutines must run on the loop the client was created on,
and the listener is called there.

Source: MCP 2025-11-25 (lifecycle, cancellation, ping, tools) and 2026-07-28 (versioning, stdio backward compatibility,
discover, subscriptions, input rounds).
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from ipymcp.errors import CallTimeout, ConnectionLost, McpError, RpcError
from ipymcp.protocol import eras, jsonrpc, types
from ipymcp.protocol.headers import Headers
from ipymcp.protocol.jsonrpc import Background, Peer, PendingRequest, RequestTimeouts
from ipymcp.protocol.listing import TOOLS, list_all
from ipymcp.protocol.negotiation import SessionRecovery, negotiate
from ipymcp.protocol.server_requests import (
    InputRounds,
    RequestAnswers,
    ResponseInterceptors,
    ServerRequestDispatcher,
    UnexpectedRequests,
)
from ipymcp.protocol.subscriptions import Listener, ListenStream, ListenStreams, NotificationDispatcher
from ipymcp.protocol.tasks import Tasks
from ipymcp.protocol.transports.base import NO_HEADERS, OutboundMessage, Receiver
from ipymcp.protocol.types import is_object

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from msgspec import Raw

    from ipymcp.protocol.eras import Era, Identity
    from ipymcp.protocol.negotiation import EraChoice
    from ipymcp.protocol.recording import MessageRecorder
    from ipymcp.protocol.server_requests import Responder
    from ipymcp.protocol.transports.base import ReadLease, RequestId, Transport

__all__ = ["Client", "Listener"]

_HEADER_MISMATCH = -32020
_INVALID_REQUEST = -32600
_LIST_TOOLS_TIMEOUT = 30.0
"""Timeout for each page when tools are listed again while a call waits."""
_MAX_UNREAD = 64_000_000
"""Limit of unsent bytes for a server that sends requests without reading; above it, its requests are not answered."""


class Client:
    """The client of one connection, which exchanges MCP messages over a transport.

    Args:
        transport: A transport that is not open yet.
        listener: Receives notifications and connection events.
        identity: Name and version of this client.
        responder: Answers requests from the server.
        tag: Name of this connection in logs, unique in the process.
    """

    def __init__(
        self, transport: Transport, listener: Listener, identity: Identity, responder: Responder, *, tag: str
    ) -> None:
        self._transport = transport
        self._listener = listener
        self._identity = identity
        self.protocol_warning = listener.protocol_warning
        """Logs a protocol violation."""
        self._peer = Peer(
            self._requested,
            lambda method, params: self._notifications.dispatch(method, params),
            listener.protocol_warning,
            tag,
        )
        self._background = Background()
        self._timeouts = RequestTimeouts()
        self._headers = Headers()
        self._answers = RequestAnswers(responder, self._timeouts)
        self._dispatcher = ServerRequestDispatcher(
            self._answers, self._background, self._respond, self._find, listener.protocol_warning
        )
        self._rounds = InputRounds(self, self._peer, self._answers, self._background)
        self._recovery = SessionRecovery(self.shake_hands, self._resend, self._undelivered, self._background)
        self._unexpected = UnexpectedRequests(self._peer, listener)
        self._streams = ListenStreams(listener.protocol_warning)
        self.running_tasks: dict[str, PendingRequest] = {}
        """Calls that became tasks, by task id; requests from the server may refer to a task."""
        self.tasks = Tasks(self, self._peer, self._rounds, self._background, self.running_tasks)
        """The calls that run as tasks."""
        self._notifications = NotificationDispatcher(listener, self._streams, self.tasks.changed, self._cancelled)
        self._lost: str | None = None
        self.recorder: MessageRecorder | None = None
        """Records all messages, if a view shows them."""
        self.interceptors = ResponseInterceptors()
        """Handlers for responses that are not final, such as `input_required`."""
        self.era: Era = eras.handshake("")
        self.era_was_answered = True
        """False if the era was chosen because the server did not answer in time; such a choice must not be cached."""
        self.capabilities: dict[str, Any] = {}
        self.server_info: dict[str, Any] = {}
        self.instructions: str | None = None
        self.tools_ttl: float | None = None
        """Seconds for which the last list of tools is fresh; None if the server does not say."""

    @property
    def queued(self) -> int:
        """Number of bytes not yet taken by the server."""
        return self._transport.queued

    @property
    def unread_output(self) -> str:
        """A clause about output of the server that is not a message; empty if there was none."""
        if lines := self._peer.unread:
            return f"it wrote lines that are not MCP messages: {' / '.join(lines)}"
        size = self._transport.unfinished
        return f"it wrote {size:,} bytes without a line end" if size else ""

    # -- opening ------------------------------------------------------------------------------------------------------

    async def open(self, era: EraChoice, *, is_fixed: bool | None = None) -> None:
        """Connect and negotiate the protocol version.

        Args:
            era: The era to negotiate.
            is_fixed: Whether the user chose the era, so that it must not change; by default true unless it is `auto`.

        Raises:
            StartError: The transport could not connect.
            ConnectionLost: The connection closed during negotiation.
            ProtocolError: There is no common version, or a response is malformed.
            RpcError: The server refused.
            HttpError: The server responded with an HTTP error.
        """
        self._unexpected.may_reopen = not (era != "auto" if is_fixed is None else is_fixed)
        listener = self._listener
        receiver = Receiver(
            message=self._message,
            undelivered=self._undelivered,
            expired=self._recovery.expired,
            unreachable=listener.unreachable,
            protocol_warning=listener.protocol_warning,
            stderr=listener.stderr,
            lost=self._connection_lost,
        )
        await self._transport.open(receiver)
        await self._negotiate(era)
        if self.era.kind == "stateless":
            self.interceptors.on_result("input_required", self._rounds.begin)
            self.interceptors.on_error(_HEADER_MISMATCH, self._renew_headers)
            self.interceptors.on_error(_INVALID_REQUEST, self._unexpected.error)
            self.interceptors.on_tool_error(self._unexpected.tool_error)
            self.interceptors.on_result("task", self.tasks.begin)
            self._peer.intercept = self.interceptors.intercept
        elif self.tasks.are_supported:
            self._peer.intercept = self.tasks.intercept

    async def shake_hands(self) -> None:
        """Repeat the handshake after the server has lost the session; all that is known of the server may change."""
        self._dispatcher.withdraw_all()
        await self._negotiate("legacy")
        self._listener.tools_changed()
        self._listener.resources_changed()
        self._listener.prompts_changed()
        self._listener.subscriptions_lost()

    async def _negotiate(self, era: EraChoice) -> None:
        result = await negotiate(self._ask, self._identity, self._answers.declared, era)
        self.era = result.era
        self.era_was_answered = result.was_answered
        self.capabilities = result.capabilities
        self.server_info = result.server_info
        self.instructions = result.instructions
        self.tasks.configure(result.era, result.capabilities)
        if result.era.kind == "handshake":
            self.notify("notifications/initialized")

    def declare(self, capability: str) -> bool:
        """Declare the responder's current capabilities.

        Args:
            capability: The capability that may have changed.

        Returns:
            False if it has changed and cannot be declared any more, because the handshake fixed the capabilities.
        """
        if self.era.kind == "stateless":
            if self._answers.declare():
                self.era = eras.stateless(self.era.version, self._identity, self._answers.declared)
            return True
        return not self._answers.is_outdated(capability)

    def roots_changed(self) -> None:
        """Handshake era: notify the server that the roots have changed, if `listChanged` was declared."""
        roots = self._answers.declared.get("roots")
        if self.era.kind == "handshake" and is_object(roots) and roots.get("listChanged"):
            self.notify("notifications/roots/list_changed")

    # -- requests -----------------------------------------------------------------------------------------------------

    async def request(self, method: str, body: bytes = b"{}", *, timeout: float | None = None) -> Raw:
        """Send a request from the loop thread and wait for its result.

        Args:
            method: Method name, such as `tools/list`.
            body: JSON object of the params without `_meta`.
            timeout: Seconds, not counting the time in which the server waits for an answer of the host.

        Raises:
            CallTimeout: No response in time.
            RpcError: The server refused.
            ConnectionLost: The connection closed.
        """
        return (await self.exchange(method, body, timeout=timeout))[0]

    async def exchange(self, method: str, body: bytes, *, timeout: float | None) -> tuple[Raw, bool]:
        """Send a request; return its result and whether it took input rounds, so that the result must not be cached."""
        pending, future = jsonrpc.send_request(self.ask, method, body)
        try:
            async with self._timeouts.limit(pending, timeout):
                return await future, pending.retry is not None
        except TimeoutError:
            raise CallTimeout(f"no answer to {method} in {timeout:g} s") from None
        finally:
            self.give_up(pending, "the host stopped waiting")

    def pause_timeouts(self) -> AbstractContextManager[None]:
        """Pause the timeouts of all pending requests; on the loop thread."""
        return self._timeouts.paused(None)

    async def check(self, timeout: float) -> None:
        """Send a cheap request to check that the server responds. Raises the errors of `request`."""
        await self.request("server/discover" if self.era.kind == "stateless" else "ping", timeout=timeout)

    async def list_tools(self, *, timeout: float | None) -> list[types.ToolDefinition]:
        """List all callable tools of the server; `timeout` is per page."""
        tools, self.tools_ttl = await list_all(self, TOOLS, timeout=timeout)
        if not self._transport.uses_headers or self.era.kind == "handshake":
            return tools
        return self._headers.read_annotations(tools, self._listener.protocol_warning)

    def call_tool(self, pending: PendingRequest, name: str, arguments: bytes, *, as_task: bool = False) -> None:
        """Send a tool call, from any thread.

        Args:
            pending: A new request, which receives progress and the outcome.
            name: Exact name of the tool.
            arguments: JSON object of the arguments.
            as_task: Handshake era: request that the call runs as a task. In the stateless era the server decides.

        Raises:
            ConnectionLost: The connection is closed; `pending.deliver` is not called.
        """
        pending.name = name
        pending.wants_task = as_task
        self.ask(pending, "tools/call", arguments)

    def ask(self, pending: PendingRequest, method: str, body: bytes) -> None:
        """Send a request, from any thread.

        Args:
            pending: A new request, which receives the outcome.
            method: Method name, such as `resources/read`.
            body: JSON object of the params without `_meta`.

        Raises:
            ConnectionLost: The connection is closed; `pending.deliver` is not called.
        """
        self._peer.open(pending, method)
        pending.body = body
        try:
            self._send_request(pending)
        except BaseException:
            self._peer.claim(pending)
            raise
        if self._lost is not None and self._peer.claim(pending):
            raise ConnectionLost(self._lost)

    def lease_reads(self) -> ReadLease | None:
        """Lease the right to read in the calling thread, before a request is sent; None if unavailable."""
        return self._transport.lease_reads()

    def read_directly(self, pending: PendingRequest, lease: ReadLease, seconds: float) -> None:
        """Read messages for this request in the calling thread, for at most `seconds`."""
        lease.read(partial(self._receive_own, pending), pending.is_settled, seconds)

    def _receive_own(self, pending: PendingRequest, line: bytes | bytearray) -> bool:
        """Handle a line that is only this request's result or progress; anything else is handled on the loop."""
        if pending.wants_task or self._lost is not None:
            return False
        is_own = self._peer.receive_own(line, pending, self.interceptors.has_none)
        if (recorder := self.recorder) is not None and is_own:
            recorder.received(line)
        return is_own

    def give_up(self, pending: PendingRequest, reason: str) -> bool:
        """Abandon a request and notify the server, from any thread.

        Returns:
            False if the request was already settled.
        """
        if not self._peer.claim(pending):
            return False
        if pending.retry is None:
            self.cancel_request(pending, reason)
        else:
            self._rounds.withdraw(pending, reason)
        return True

    def cancel_request(self, pending: PendingRequest, reason: str) -> None:
        """Cancel, at the server, the message that was last sent for a pending request."""
        if not self._recovery.is_open and self._recovery.drop(pending.id):
            return
        if pending.method != "initialize" and not self._transport.abort(pending.id):
            with contextlib.suppress(ConnectionLost):
                self.notify("notifications/cancelled", {"requestId": pending.id, "reason": reason})

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Send a notification, from any thread."""
        members = b"" if params is None else b',"params":%s' % types.encode(params)
        frame = b'{"jsonrpc":"2.0","method":"%s"%s}' % (method.encode(), members)
        self._send(frame, "notification", None, method, self._headers_of(method))

    def listen(self, wanted: Mapping[str, Any]) -> ListenStream:
        """Stateless era: open a subscription stream.

        Args:
            wanted: The notification filter, such as `{"toolsListChanged": True}`.
        """
        body = types.encode({"notifications": wanted})
        stream = ListenStream(*jsonrpc.send_request(self.ask, "subscriptions/listen", body), wanted)
        self._streams.add(stream, self.give_up)
        return stream

    def _ask(self, method: str, params: bytes) -> asyncio.Future[Raw]:
        """Send a request of the negotiation. Cancelling the future abandons the request without a notification."""
        pending, future = jsonrpc.send_request(self.ask, method, params)

        def on_done(done: asyncio.Future[Raw]) -> None:
            if not done.cancelled():
                done.exception()
            elif self._peer.claim(pending):
                self._transport.abort(pending.id)

        future.add_done_callback(on_done)
        return future

    def _send_request(self, pending: PendingRequest, extra: bytes = b"") -> None:
        name, body = pending.name, pending.body
        headers = self._headers_of(pending.method, body, name)
        if name is not None:
            if pending.wants_task:
                extra = b'"task":{}'
            params = self.era.call_params(types.encode(name), body, pending.id, extra)
        else:
            if extra:
                body = b"%s%s%s}" % (body[:-1], b"" if body == b"{}" else b",", extra)
            params = self.era.params(body)
        members = b"" if params == b"{}" else b',"params":%s' % params
        frame = b'{"jsonrpc":"2.0","id":%d,"method":"%s"%s}' % (pending.id, pending.method.encode(), members)
        if not self._recovery.is_open and pending.method != "initialize":
            message = OutboundMessage(frame, "request", pending.id, pending.method, headers)
            if self._recovery.hold(message):
                return
        self._send(frame, "request", pending.id, pending.method, headers)

    def _send(
        self,
        frame: bytes,
        kind: Literal["request", "notification", "response"],
        identifier: int | str | float | None,
        method: str,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> None:
        """Send a frame; every outgoing frame passes here."""
        if (recorder := self.recorder) is not None:
            recorder.sent(frame, kind, identifier, method)
        self._transport.send(OutboundMessage(frame, kind, identifier, method, headers))

    def _headers_of(self, method: str, body: bytes = b"{}", name: str | None = None) -> Mapping[str, str]:
        return self._headers.build(self.era, method, body, name) if self._transport.uses_headers else NO_HEADERS

    # -- messages from the server -------------------------------------------------------------------------------------

    def _message(self, line: bytes | bytearray, origin_request_id: RequestId | None) -> None:
        if (recorder := self.recorder) is not None:
            recorder.received(line)
        if self._lost is None:  # messages after the end are dropped
            self._peer.receive(line, origin_request_id)

    def _undelivered(self, identifier: RequestId, error: McpError) -> None:
        pending = self._peer.find(identifier)
        if pending is None or not isinstance(error, RpcError) or not self.interceptors.handle_error(pending, error):
            self._peer.settle(identifier, error=error)

    def _connection_lost(self, reason: str) -> None:
        self._lost = self._lost or reason
        self._listener.lost(reason)  # first: a caller that sees its call fail may retry at once
        self._end(reason)

    def _requested(self, request: types.Envelope, origin_request_id: RequestId | None) -> None:
        if self.era.kind == "stateless":
            self._unexpected.request(request.method or "", origin_request_id)
        elif self._transport.queued > _MAX_UNREAD:
            self.protocol_warning(
                f"request {request.method} from the server not answered: the server does not read its input"
            )
        else:
            self._dispatcher.serve(request, origin_request_id)

    def _respond(self, identifier: int | str | float, member: str, value: Raw) -> None:
        frame = b'{"jsonrpc":"2.0","id":%s,"%s":%s}' % (types.encode(identifier), member.encode(), bytes(value))
        with contextlib.suppress(ConnectionLost):
            self._send(frame, "response", identifier, "", self._headers_of(""))

    def _find(self, task: str | None, origin_request_id: RequestId | None) -> PendingRequest | None:
        pending = self.running_tasks.get(task) if task is not None else None
        return pending or self._peer.find(origin_request_id)

    def _cancelled(self, identifier: int | str) -> None:
        """Withdraw a server's request (handshake era), or end a subscription (stateless era)."""
        stream = self._streams.find(identifier)
        if self.era.kind == "handshake":
            self._dispatcher.withdraw(identifier)
        elif stream is not None and self._peer.claim(stream.pending):
            stream.pending.settle(error=ConnectionLost("the server ended the subscription"))

    # -- requests that are sent again ---------------------------------------------------------------------------------

    def send_again(self, pending: PendingRequest, extra: bytes) -> bool:
        """Send a request with a new id and more params; False if it is no longer pending."""
        if not self._peer.is_pending(pending):
            return False
        self._send_request(pending, extra)
        return True

    def _resend(self, message: OutboundMessage) -> None:
        """Resend a rejected request, if it is still pending."""
        if self._peer.find(message.id) is not None:
            headers = {**message.headers, **self._headers_of("")}
            try:
                self._send(message.frame, message.kind, message.id, message.method, headers)
            except ConnectionLost as error:
                self._undelivered(message.id or 0, error)

    def _renew_headers(self, pending: PendingRequest, error: RpcError) -> bool:
        """Retry a call once after its headers were rejected: the tools may have changed, so they are listed again."""
        return pending.name is not None and self._rounds.resend_once(pending, self._look_up_headers())

    async def _look_up_headers(self) -> bytes:
        await self.list_tools(timeout=_LIST_TOOLS_TIMEOUT)
        self._listener.tools_changed()
        return b""

    # -- closing ------------------------------------------------------------------------------------------------------

    async def aclose(self, reason: str = "the server was stopped") -> None:
        """Close the connection; pending requests fail with `ConnectionLost`."""
        self._end(reason)
        await self._transport.aclose()

    def _end(self, reason: str) -> None:
        self._lost = self._lost or reason
        self._background.cancel_all()
        self._peer.fail_all(lambda: ConnectionLost(reason))
