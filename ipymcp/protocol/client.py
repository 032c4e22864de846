"""One connection to one server: negotiate, ask, call, cancel, and hear what the server says of its own accord.

`ask`, `call_tool`, `give_up` and `notify` may be called from any thread; everything that awaits belongs to the loop the
client was made on, and so do all calls of the listener.

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
from ipymcp.protocol.input_rounds import InputRounds, ResponseInterceptors
from ipymcp.protocol.jsonrpc import Background, Clocks, Peer, PendingRequest
from ipymcp.protocol.listing import TOOLS, list_all
from ipymcp.protocol.negotiation import SessionRecovery, negotiate
from ipymcp.protocol.server_requests import RequestAnswers, ServerRequestDispatcher, UnexpectedRequests
from ipymcp.protocol.subscriptions import Listener, ListenStream, ListenStreams, NotificationDispatcher
from ipymcp.protocol.tasks import Tasks, takes_tasks
from ipymcp.protocol.transports.base import NO_HEADERS, OutboundMessage
from ipymcp.protocol.types import is_object

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from msgspec import Raw

    from ipymcp.protocol.eras import Era, Identity
    from ipymcp.protocol.negotiation import EraChoice
    from ipymcp.protocol.server_requests import Responder
    from ipymcp.protocol.transports.base import ReadLease, RequestId, Transport

__all__ = ["Client", "Listener"]

_HEADER_MISMATCH = -32020
_INVALID_REQUEST = -32600
_LOOK_UP = 30.0
"""Seconds for each page of the tools that are looked up again while a call waits."""
_MAX_UNREAD = 64_000_000
"""Bytes that may wait for a server which asks and does not read; further questions of its go unanswered."""


class Client:
    """The protocol half of a session.

    Args:
        transport: Not yet opened.
        listener: Hears what the server says of its own accord.
        identity: Who we are.
        responder: Answers what the server asks.
        tag: Names this connection in logs, unique in the process.
    """

    def __init__(
        self, transport: Transport, listener: Listener, identity: Identity, responder: Responder, *, tag: str
    ) -> None:
        self._transport = transport
        self._listener = listener
        self._identity = identity
        self._peer = Peer(self, tag)
        self._background = Background()
        self._clocks = Clocks()
        self._headers = Headers()
        self._answers = RequestAnswers(responder, self._clocks)
        self._serving = ServerRequestDispatcher(
            self._answers, self._background, self._respond, self._find, self.on_noise
        )
        self._rounds = InputRounds(self, self._answers, self._background)
        self._reopening = SessionRecovery(self, self._background)
        self._pushes = UnexpectedRequests(self._peer, listener)
        self._listenings = ListenStreams(listener.noise)
        self.task_slots: dict[str, PendingRequest] = {}
        """Calls that became tasks, by the task's id: a request of the server may name one."""
        self._tasks = Tasks(self, self._rounds, self._background, self.task_slots)
        self._notices = NotificationDispatcher(listener, self._listenings, self._tasks.changed, self._cancelled)
        self._lost: str | None = None
        self.continuations = ResponseInterceptors()
        """Who goes on with answers that are no outcome yet."""
        self.era: Era = eras.handshake("")
        self.era_was_answered = True
        """False when the era was decided after a silence: then it is not worth remembering."""
        self.capabilities: dict[str, Any] = {}
        self.server_info: dict[str, Any] = {}
        self.instructions: str | None = None
        self.tools_ttl: float | None = None
        """Seconds for which the tools listed last are fresh, where the server says so."""

    @property
    def in_flight(self) -> int:
        """Requests sent and not yet answered."""
        return len(self._peer)

    @property
    def queued(self) -> int:
        """Bytes sent and not yet taken by the server."""
        return self._transport.queued

    # -- opening ------------------------------------------------------------------------------------------------------

    async def open(self, era: EraChoice, *, is_fixed: bool | None = None) -> None:
        """Connect and settle the protocol version.

        Args:
            era: What to try.
            is_fixed: Whether the user has chosen it; by default where it is not `auto`. One that is only remembered
                may turn out to be wrong.

        Raises:
            StartError: The transport could not connect.
            ConnectionLost: The server went away meanwhile.
            ProtocolError: No version in common, or an answer that is none.
            RpcError: The server refused.
            HttpError: It answered with an HTTP error.
        """
        self._pushes.may_reopen = not (era != "auto" if is_fixed is None else is_fixed)
        await self._transport.open(self)
        await self._settle(era)
        if self.era.kind == "stateless":
            self.continuations.on_result("input_required", self._rounds.begin)
            self.continuations.on_error(_HEADER_MISMATCH, self._renew_headers)
            self.continuations.on_error(_INVALID_REQUEST, self._pushes.error)
            self.continuations.on_tool_error(self._pushes.tool_error)
            self.continuations.on_result("task", self._tasks.begin)
            self._peer.intercept = self.continuations.intercept
        elif self.takes_tasks:
            self._tasks.is_stateless = False
            self._peer.intercept = self._tasks.intercept

    async def shake_hands(self) -> None:
        """Open the session anew, in the handshake era: the server has forgotten it, and may be another by now."""
        self._serving.withdraw_all()
        await self._settle("legacy")
        self._listener.tools_changed()
        self._listener.resources_changed()
        self._listener.prompts_changed()
        self._listener.subscriptions_lost()

    async def _settle(self, era: EraChoice) -> None:
        settled = await negotiate(self._ask, self._identity, self._answers.declared, era)
        self.era = settled.era
        self.era_was_answered = settled.was_answered
        self.capabilities = settled.capabilities
        self.server_info = settled.server_info
        self.instructions = settled.instructions
        if settled.era.kind == "handshake":
            self.notify("notifications/initialized")

    def declare(self, capability: str) -> bool:
        """Declare what the responder is capable of now.

        Args:
            capability: What may have changed.

        Returns:
            False if that has changed and this connection cannot say so any more: the handshake has said it.
        """
        if self.era.kind == "stateless":
            if self._answers.declare():
                self.era = eras.stateless(self.era.version, self._identity, self._answers.declared)
            return True
        return not self._answers.is_outdated(capability)

    def roots_changed(self) -> None:
        """Tell a server of the handshake era that `roots/list` answers otherwise now, if that was declared."""
        roots = self._answers.declared.get("roots")
        if self.era.kind == "handshake" and is_object(roots) and roots.get("listChanged"):
            self.notify("notifications/roots/list_changed")

    # -- asking -------------------------------------------------------------------------------------------------------

    async def request(self, method: str, body: bytes = b"{}", *, timeout: float | None = None) -> Raw:
        """Ask on the loop thread and wait for the answer.

        Args:
            method: Such as `tools/list`.
            body: The params without `_meta`, a JSON object.
            timeout: Seconds, not counting those in which the host owes the server an answer; it is told when they pass.

        Raises:
            CallTimeout: No answer in time.
            RpcError: The server refused.
            ConnectionLost: It went away.
        """
        return (await self.exchange(method, body, timeout=timeout))[0]

    async def exchange(self, method: str, body: bytes, *, timeout: float | None) -> tuple[Raw, bool]:
        """As `request`; also whether it took input rounds, so that the answer depends on more than the question."""
        slot, future = jsonrpc.put(self.ask, method, body)
        try:
            async with self._clocks.limit(slot, timeout):
                return await future, slot.retry is not None
        except TimeoutError:
            raise CallTimeout(f"no answer to {method} in {timeout:g} s") from None
        finally:
            self.give_up(slot, "the host stopped waiting")

    def held(self) -> AbstractContextManager[None]:
        """While entered, none of the questions now in flight runs out of time; on the loop thread."""
        return self._clocks.held(None)

    async def check(self, timeout: float) -> None:
        """Ask something cheap, to see that the server is there. Raises as `request` does."""
        await self.request("server/discover" if self.era.kind == "stateless" else "ping", timeout=timeout)

    async def list_tools(self, *, timeout: float | None) -> list[types.ToolDefinition]:
        """All tools of the server that can be called, none if it has none; `timeout` is for each page."""
        tools, self.tools_ttl = await list_all(self, TOOLS, timeout=timeout)
        if not self._transport.uses_headers or self.era.kind == "handshake":
            return tools
        return self._headers.learn(tools, self._listener.noise)

    def call_tool(self, slot: PendingRequest, name: str, arguments: bytes, *, as_task: bool = False) -> None:
        """Send a call, from any thread. The slot hears of progress and of the outcome.

        Args:
            slot: New; it is given its id here.
            name: The tool's exact name.
            arguments: A JSON object.
            as_task: Handshake era: have it be a task. In the stateless era that is the server's choice.

        Raises:
            ConnectionLost: There is nobody to send to. The slot hears nothing then.
        """
        slot.name = name
        slot.wants_task = as_task
        self.ask(slot, "tools/call", arguments)

    @property
    def takes_tasks(self) -> bool:
        """Whether calls may be tasks: of this server in the handshake era, of any in the stateless era."""
        return self.era.kind == "stateless" or takes_tasks(self.capabilities, self.era.version)

    def pick_up(self, slot: PendingRequest, task: str) -> None:
        """Follow a task by its id, from any thread, as the call that it was."""
        self._peer.open(slot, "tools/call")
        self._rounds.on_loop(self._tasks.pick_up, slot, task)

    def leave(self, slot: PendingRequest) -> str | None:
        """Stop waiting for a call that has become a task, which goes on; from any thread.

        Returns:
            The task's id; None where it is no task, or was settled already.
        """
        task = self._tasks.leave(slot)
        return task if task is not None and self.give_up(slot, "left") else None

    def ask(self, slot: PendingRequest, method: str, body: bytes) -> None:
        """Send a question, from any thread. The slot hears of the outcome, however many requests it takes.

        Args:
            slot: New; it is given its id here.
            method: Such as `resources/read`.
            body: The params without `_meta`, a JSON object.

        Raises:
            ConnectionLost: There is nobody to send to. The slot hears nothing then.
        """
        self._peer.open(slot, method)
        slot.body = body
        try:
            self._send_request(slot)
        except BaseException:
            self._peer.claim(slot)
            raise
        if self._lost is not None and self._peer.claim(slot):
            raise ConnectionLost(self._lost)

    def turn(self) -> ReadLease | None:
        """The right to read in the calling thread, taken before a request is sent; None where it cannot be had."""
        return self._transport.turn()

    def read_directly(self, slot: PendingRequest, turn: ReadLease, seconds: float) -> None:
        """Read in the calling thread, for some seconds, what comes for this request."""
        turn.read(partial(self._is_outcome, slot), slot.is_settled, seconds)

    def _is_outcome(self, slot: PendingRequest, line: bytes | bytearray) -> bool:
        """Whether a line is nothing but this request's outcome or progress: all that goes on is the loop's business."""
        return not slot.wants_task and self._peer.concerns(slot, line) and self.continuations.has_none(line)

    def give_up(self, slot: PendingRequest, reason: str) -> bool:
        """Stop waiting for a question and tell the server, from any thread.

        Returns:
            False if it was settled already: its outcome stands.
        """
        if not self._peer.claim(slot):
            return False
        if slot.retry is None:
            self.call_off(slot, reason)
        else:
            self._rounds.withdraw(slot, reason)
        return True

    def call_off(self, slot: PendingRequest, reason: str) -> None:
        """Tell the server that nobody waits for the request last sent for this slot."""
        if not self._reopening.is_open and self._reopening.drop(slot.id):
            return
        if slot.method != "initialize" and not self._transport.abort(slot.id):
            with contextlib.suppress(ConnectionLost):
                self.notify("notifications/cancelled", {"requestId": slot.id, "reason": reason})

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Send a notification, from any thread."""
        members = b"" if params is None else b',"params":%s' % types.encode(params)
        frame = b'{"jsonrpc":"2.0","method":"%s"%s}' % (method.encode(), members)
        self._send(frame, "notification", None, method, self._headers_of(method))

    def listen(self, wanted: Mapping[str, Any]) -> ListenStream:
        """Stateless era: subscribe, now.

        Args:
            wanted: The notification filter, such as `{"toolsListChanged": True}`.
        """
        body = types.encode({"notifications": wanted})
        listening = ListenStream(*jsonrpc.put(self.ask, "subscriptions/listen", body), wanted)
        self._listenings.add(listening, self.give_up)
        return listening

    def _ask(self, method: str, params: bytes) -> asyncio.Future[Raw]:
        """The answer to a request of the opening; it may be ignored, and cancelling it abandons the request unsaid."""
        slot, future = jsonrpc.put(self.ask, method, params)

        def over(done: asyncio.Future[Raw]) -> None:
            if not done.cancelled():
                done.exception()
            elif self._peer.claim(slot):
                self._transport.abort(slot.id)

        future.add_done_callback(over)
        return future

    def _send_request(self, slot: PendingRequest, extra: bytes = b"") -> None:
        name, body = slot.name, slot.body
        headers = self._headers_of(slot.method, body, name)
        if name is not None:
            if slot.wants_task:
                extra = b'"task":{}'
            params = self.era.call_params(types.encode(name), body, slot.id, extra)
        else:
            if extra:
                body = b"%s%s%s}" % (body[:-1], b"" if body == b"{}" else b",", extra)
            params = self.era.params(body)
        members = b"" if params == b"{}" else b',"params":%s' % params
        frame = b'{"jsonrpc":"2.0","id":%d,"method":"%s"%s}' % (slot.id, slot.method.encode(), members)
        if not self._reopening.is_open and slot.method != "initialize":
            message = OutboundMessage(frame, "request", slot.id, slot.method, headers)
            if self._reopening.hold(message):
                return
        self._send(frame, "request", slot.id, slot.method, headers)

    def _send(
        self,
        frame: bytes,
        kind: Literal["request", "notification", "response"],
        identifier: int | str | float | None,
        method: str,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> None:
        """Where every frame goes out."""
        self._transport.send(OutboundMessage(frame, kind, identifier, method, headers))

    def _headers_of(self, method: str, body: bytes = b"{}", name: str | None = None) -> Mapping[str, str]:
        return self._headers.of(self.era, method, body, name) if self._transport.uses_headers else NO_HEADERS

    # -- hearing ------------------------------------------------------------------------------------------------------

    def message(self, line: bytes | bytearray, carrier: RequestId | None = None) -> None:
        """One message arrived (called by the transport). What a server says while it is being stopped is nobody's."""
        if self._lost is None:
            self._peer.receive(line, carrier)

    def undelivered(self, identifier: RequestId, error: McpError) -> None:
        """One request failed in the transport (called by it)."""
        slot = self._peer.slot(identifier)
        if slot is None or not isinstance(error, RpcError) or not self.continuations.remedy(slot, error):
            self._peer.fail(identifier, error)

    def expired(self, message: OutboundMessage) -> None:
        """The server has forgotten our session (called by the transport)."""
        self._reopening.expired(message)

    def unreachable(self, reason: str) -> None:
        """No connection could be made (called by the transport)."""
        self._listener.unreachable(reason)

    def noise(self, text: str) -> None:
        """Something for the log (called by the transport)."""
        self._listener.noise(text)

    def stderr(self, lines: list[str]) -> None:
        """Standard error of the server (called by the transport)."""
        self._listener.stderr(lines)

    def lost(self, reason: str) -> None:
        """The connection is over (called by the transport): everything in flight fails."""
        self._lost = self._lost or reason
        self._listener.lost(reason)  # first: whoever's call fails now may call again at once
        self._end(reason)

    def on_request(self, request: types.Envelope, carrier: RequestId | None) -> None:
        """A request of the server (called by the peer)."""
        if self.era.kind == "stateless":
            self._pushes.request(request.method or "", carrier)
        elif self._transport.queued > _MAX_UNREAD:
            self.on_noise(f"a request of the server ({request.method}) not answered: it does not read what is sent")
        else:
            self._serving.serve(request, carrier)

    def on_notification(self, method: str, params: Raw) -> None:
        """A notification of the server (called by the peer)."""
        self._notices.hear(method, params)

    def on_noise(self, text: str) -> None:
        """Something that is no message (called by the peer)."""
        self._listener.noise(text)

    def _respond(self, identifier: int | str | float, member: str, value: Raw) -> None:
        frame = b'{"jsonrpc":"2.0","id":%s,"%s":%s}' % (types.encode(identifier), member.encode(), bytes(value))
        with contextlib.suppress(ConnectionLost):
            self._send(frame, "response", identifier, "", self._headers_of(""))

    def _find(self, task: str | None, carrier: RequestId | None) -> PendingRequest | None:
        slot = self.task_slots.get(task) if task is not None else None
        return slot or self._peer.slot(carrier)

    def _cancelled(self, identifier: int | str) -> None:
        """The handshake era withdraws a request of the server so, the stateless era ends a subscription of ours."""
        listening = self._listenings.find(identifier)
        if self.era.kind == "handshake":
            self._serving.withdraw(identifier)
        elif listening is not None and self._peer.claim(listening.slot):
            listening.slot.settle(error=ConnectionLost("the server ended the subscription"))

    # -- questions of several requests --------------------------------------------------------------------------------

    def reassign_id(self, slot: PendingRequest) -> bool:
        """Give a question a new id; false if nobody waits for it any more."""
        return self._peer.reassign_id(slot)

    def fail(self, slot: PendingRequest, error: McpError) -> None:
        """End a question, if somebody still waits for it."""
        self._peer.fail(slot.id, error)

    def succeed(self, slot: PendingRequest, result: Raw) -> None:
        """End a question well, if somebody still waits for it."""
        self._peer.succeed(slot.id, result)

    def send_again(self, slot: PendingRequest, extra: bytes) -> bool:
        """Send a renewed question, with further members of its params; false if nobody waits for it any more."""
        if not self._peer.holds(slot):
            return False
        self._send_request(slot, extra)
        return True

    def send_once_more(self, message: OutboundMessage) -> None:
        """Send a request that was not accepted, if somebody still waits for it."""
        if self._peer.slot(message.id) is not None:
            headers = {**message.headers, **self._headers_of("")}
            try:
                self._send(message.frame, message.kind, message.id, message.method, headers)
            except ConnectionLost as error:
                self.undelivered(message.id or 0, error)

    def _renew_headers(self, slot: PendingRequest, error: RpcError) -> bool:
        """The server takes a call's headers for wrong: its tools may have changed. Looked up and tried again, once."""
        return slot.name is not None and self._rounds.mend(slot, self._look_up_headers())

    async def _look_up_headers(self) -> bytes:
        await self.list_tools(timeout=_LOOK_UP)
        self._listener.tools_changed()
        return b""

    # -- closing ------------------------------------------------------------------------------------------------------

    async def aclose(self, reason: str = "the server was stopped") -> None:
        """End the connection; whatever is in flight fails with `ConnectionLost`."""
        self._end(reason)
        await self._transport.aclose()

    def _end(self, reason: str) -> None:
        self._lost = self._lost or reason
        self._background.cancel_all()
        self._peer.fail_all(lambda: ConnectionLost(reason))
