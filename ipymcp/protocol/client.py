"""One connection to one server: negotiate, ask, call, cancel, and hear what the server says of its own accord.

`call_tool`, `cancel` and `notify` may be called from any thread; everything that awaits belongs to the loop the client
was opened on, and so do all calls of the listener.

Source: MCP 2025-11-25 (lifecycle, cancellation, ping, tools) and 2026-07-28 (versioning, stdio backward compatibility,
discover, subscriptions).
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from typing import TYPE_CHECKING, Any, Literal, Protocol

from ipymcp.errors import CallTimeout, ConnectionLost, McpError
from ipymcp.protocol import eras, wire
from ipymcp.protocol.negotiation import negotiate
from ipymcp.protocol.pages import TOOLS, list_all
from ipymcp.protocol.rpc import Peer, Slot, excerpt
from ipymcp.protocol.subscriptions import Listening, Listenings
from ipymcp.protocol.transports.base import NO_HEADERS, Message

if TYPE_CHECKING:
    from collections.abc import Mapping

    from msgspec import Raw

    from ipymcp.protocol.eras import Era, Identity
    from ipymcp.protocol.negotiation import EraChoice
    from ipymcp.protocol.transports.base import RequestId, Transport

__all__ = ["Client", "Listener"]

_LOG_LEVEL = "info"
"""Asked for with each call of the stateless era, declared or not: many a server logs without saying that it can."""
METHOD_NOT_FOUND = -32601
_MAX_UNREAD = 64_000_000
"""Bytes that may wait for a server which asks and does not read; further questions of its go unanswered."""
_KNOWN_NOTIFICATIONS = frozenset(
    {
        "notifications/cancelled",
        "notifications/elicitation/complete",
        "notifications/tasks/status",
    }
)


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


class Client:
    """The protocol half of a session.

    Args:
        transport: Not yet opened.
        listener: Hears what the server says of its own accord.
        identity: Who we are.
        tag: Names this connection in logs, unique in the process.
    """

    def __init__(self, transport: Transport, listener: Listener, identity: Identity, *, tag: str) -> None:
        self._transport = transport
        self._listener = listener
        self._identity = identity
        self._peer = Peer(self, tag)
        self._listenings = Listenings(listener.noise)
        self._lost: str | None = None
        self.era: Era = eras.handshake("")
        self.era_was_answered = True
        """False when the era was decided after a silence: then it is not worth remembering."""
        self.capabilities: dict[str, Any] = {}
        self.server_info: dict[str, Any] = {}
        self.instructions: str | None = None

    @property
    def in_flight(self) -> int:
        """Requests sent and not yet answered."""
        return len(self._peer)

    @property
    def queued(self) -> int:
        """Bytes sent and not yet taken by the server."""
        return self._transport.queued

    # -- opening ------------------------------------------------------------------------------------------------------

    async def open(self, era: EraChoice) -> None:
        """Connect and settle the protocol version.

        Raises:
            StartError: The transport could not connect.
            ConnectionLost: The server went away meanwhile.
            ProtocolError: No version in common, or an answer that is none.
            RpcError: The server refused.
        """
        await self._transport.open(self)
        settled = await negotiate(self._ask, self._identity, era)
        self.era = settled.era
        self.era_was_answered = settled.was_answered
        self.capabilities = settled.capabilities
        self.server_info = settled.server_info
        self.instructions = settled.instructions
        if settled.era.kind == "handshake":
            self.notify("notifications/initialized")

    # -- asking -------------------------------------------------------------------------------------------------------

    async def request(
        self, method: str, body: bytes = b"{}", *, timeout: float | None = None, name: str | None = None
    ) -> Raw:
        """Ask on the loop thread and wait for the answer.

        Args:
            method: Such as `tools/list`.
            body: The params without `_meta`, a JSON object.
            timeout: Seconds; the server is told when it passes.
            name: What the request is about, for HTTP's `Mcp-Name`: a prompt's name, a resource's URI, a task's id.

        Raises:
            CallTimeout: No answer in time.
            RpcError: The server refused.
            ConnectionLost: It went away.
        """
        slot, future = self._open_request(method, self.era.params(body), name)
        try:
            async with asyncio.timeout(timeout):
                return await future
        except TimeoutError:
            raise CallTimeout(f"no answer to {method} in {timeout:g} s") from None
        finally:
            self.give_up(slot, "the host stopped waiting")

    async def list_tools(self, *, timeout: float) -> list[wire.ToolDefinition]:
        """All pages of the server's tools; a repeated cursor or 1,000 pages end the list."""
        return (await list_all(self, TOOLS, timeout=timeout)).items

    def call_tool(self, slot: Slot, name: str, arguments: bytes) -> None:
        """Send a call, from any thread. The slot hears of progress and of the outcome.

        Args:
            slot: New; it is given its id here.
            name: The tool's exact name.
            arguments: A JSON object.

        Raises:
            ConnectionLost: There is nobody to send to. The slot hears nothing then.
        """
        identifier = self._peer.open(slot, "tools/call")
        body = b'{"name":%s,"arguments":%s}' % (wire.encode(name), arguments)
        params = self.era.params(body, progress_token=identifier, log_level=_LOG_LEVEL)
        try:
            self._send_request(identifier, "tools/call", params, name)
        except BaseException:
            self._peer.take(slot)
            raise
        if self._lost is not None and self._peer.take(slot):
            raise ConnectionLost(self._lost)

    def give_up(self, slot: Slot, reason: str) -> bool:
        """Stop waiting for a request and tell the server, from any thread.

        Returns:
            False if it was settled already: its outcome stands.
        """
        if not self._peer.take(slot):
            return False
        if slot.method != "initialize" and not self._transport.abort(slot.id):
            with contextlib.suppress(ConnectionLost):
                self.notify("notifications/cancelled", {"requestId": slot.id, "reason": reason})
        return True

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Send a notification, from any thread."""
        members = b"" if params is None else b',"params":%s' % wire.encode(params)
        frame = b'{"jsonrpc":"2.0","method":"%s"%s}' % (method.encode(), members)
        self._send(frame, "notification", None, method)

    def listen(self, wanted: Mapping[str, Any]) -> Listening:
        """Stateless era: subscribe, now.

        Args:
            wanted: The notification filter, such as `{"toolsListChanged": True}`.
        """
        body = wire.encode({"notifications": wanted})
        listening = Listening(*self._open_request("subscriptions/listen", self.era.params(body)), wanted)
        self._listenings.add(listening, self.give_up)
        return listening

    def _ask(self, method: str, params: bytes) -> asyncio.Future[Raw]:
        """The answer to a request of the opening, which only the end of the connection cancels; it may be ignored."""
        future = self._open_request(method, params)[1]
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        return future

    def _open_request(self, method: str, params: bytes, name: str | None = None) -> tuple[Slot, asyncio.Future[Raw]]:
        future: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()

        def deliver(progress: wire.Progress | None) -> None:
            if progress is not None or future.done():
                return
            if slot.error is not None:
                future.set_exception(slot.error)
            elif slot.result is not None:
                future.set_result(slot.result)

        slot = Slot(deliver)
        identifier = self._peer.open(slot, method)
        try:
            self._send_request(identifier, method, params, name)
        except BaseException:
            self._peer.take(slot)
            raise
        return slot, future

    def _send_request(self, identifier: int, method: str, params: bytes, name: str | None) -> None:
        members = b"" if params == b"{}" else b',"params":%s' % params
        frame = b'{"jsonrpc":"2.0","id":%d,"method":"%s"%s}' % (identifier, method.encode(), members)
        self._send(frame, "request", identifier, method, name)

    def _send(
        self,
        frame: bytes,
        kind: Literal["request", "notification", "response"],
        identifier: int | str | float | None,
        method: str,
        name: str | None = None,
    ) -> None:
        """Where every frame goes out."""
        headers = self._headers(method, name) if self._transport.uses_headers else NO_HEADERS
        self._transport.send(Message(frame, kind, identifier, method, headers))

    def _headers(self, method: str, name: str | None = None) -> dict[str, str]:
        """What the HTTP transport mirrors (2026-07-28, Streamable HTTP, request metadata)."""
        if method == "server/discover":
            version, stateless = eras.STATELESS_VERSIONS[0], True
        else:
            version, stateless = self.era.version, self.era.kind == "stateless"
        if method == "initialize" or not version:
            return {}
        headers = {"MCP-Protocol-Version": version}
        if stateless:
            headers["Mcp-Method"] = method
            if name is not None:
                headers["Mcp-Name"] = _header_value(name)
        return headers

    # -- hearing ------------------------------------------------------------------------------------------------------

    def message(self, line: bytes | bytearray, carrier: RequestId | None = None) -> None:
        """One message arrived (called by the transport). What a server says while it is being stopped is nobody's."""
        if self._lost is None:
            self._peer.receive(line)

    def undelivered(self, identifier: RequestId, error: McpError) -> None:
        """One request failed in the transport (called by it)."""
        self._peer.fail(identifier, error)

    def expired(self, message: Message) -> None:
        """The server has forgotten our session (called by the transport)."""
        if message.id is not None:
            self._peer.fail(message.id, ConnectionLost("the server has forgotten this session"))

    def unreachable(self, reason: str) -> None:
        """No connection could be made (called by the transport)."""
        self._listener.noise(reason)

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

    def on_request(self, request: wire.Envelope) -> None:
        """A request of the server: `ping` is answered, the rest is nothing we declared."""
        if self.era.kind == "stateless":
            self.on_noise(f"a request of the server ({request.method}), which this era does not know: not answered")
            return
        if self._transport.queued > _MAX_UNREAD:
            self.on_noise(f"a request of the server ({request.method}) not answered: it does not read what is sent")
            return
        identifier = wire.encode(request.id)
        if request.method == "ping":
            frame = b'{"jsonrpc":"2.0","id":%s,"result":{}}' % identifier
        else:
            error = wire.encode(
                {"code": METHOD_NOT_FOUND, "message": f"{request.method} is not supported by this host"}
            )
            frame = b'{"jsonrpc":"2.0","id":%s,"error":%s}' % (identifier, error)
            self.on_noise(f"the server asked for {request.method}, which this host does not offer")
        with contextlib.suppress(ConnectionLost):
            self._send(frame, "response", request.id, "")

    def on_notification(self, method: str, params: Raw) -> None:
        """A notification of the server."""
        if method == "notifications/tools/list_changed":
            self._listener.tools_changed()
        elif method == "notifications/message":
            self._log(params)
        elif method == "notifications/cancelled":
            self._cancelled(params)
        elif method == "notifications/subscriptions/acknowledged":
            self._listenings.acknowledge(params)
        elif method == "notifications/resources/list_changed":
            self._listener.resources_changed()
        elif method == "notifications/prompts/list_changed":
            self._listener.prompts_changed()
        elif method == "notifications/resources/updated":
            self._resource_updated(params)
        elif method not in _KNOWN_NOTIFICATIONS:
            self.on_noise(f"an unknown notification: {method}")

    def on_noise(self, text: str) -> None:
        """Something that is no message (called by the peer)."""
        self._listener.noise(text)

    def _log(self, params: Raw) -> None:
        try:
            message = wire.decode(params, wire.LogMessage)
            data = wire.loads(message.data)
        except ValueError:
            self.on_noise(f"a malformed log message: {excerpt(bytes(params))}")
            return
        text = data if isinstance(data, str) else wire.encode(data).decode()
        self._listener.log(message.level, f"{message.logger}: {text}" if message.logger else text)

    def _resource_updated(self, params: Raw) -> None:
        try:
            self._listener.resource_updated(wire.decode(params, wire.ResourceUpdated).uri)
        except ValueError:
            self.on_noise(f"a malformed notice of a changed resource: {excerpt(bytes(params))}")

    def _cancelled(self, params: Raw) -> None:
        """The stateless era ends a subscription so; the handshake era has nothing of ours that a server may cancel."""
        try:
            identifier = wire.decode(params, wire.Cancelled).requestId
        except ValueError:
            return
        listening = self._listenings.find(identifier)
        if listening is not None and self._peer.take(listening.slot):
            listening.slot.settle(error=ConnectionLost("the server ended the subscription"))

    # -- closing ------------------------------------------------------------------------------------------------------

    async def aclose(self, reason: str = "the server was stopped") -> None:
        """End the connection; whatever is in flight fails with `ConnectionLost`."""
        self._end(reason)
        await self._transport.aclose()

    def _end(self, reason: str) -> None:
        self._lost = self._lost or reason
        self._peer.fail_all(lambda: ConnectionLost(reason))


def _header_value(text: str) -> str:
    """As the specification's value encoding: plain where a header can carry it, else base64 with its sentinel."""
    plain = text.isascii() and text.isprintable() and text == text.strip() and not text.startswith("=?base64?")
    return text if plain else f"=?base64?{base64.b64encode(text.encode()).decode()}?="
