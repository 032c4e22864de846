"""The transports over HTTP: Streamable HTTP, and HTTP+SSE, which came before it.

Streamable HTTP: a POST for each message, whose response is JSON or an event stream. In the handshake era the server may
keep a session, send messages on a GET stream, and resume broken streams. In the stateless era there are only POSTs, and
closing one cancels it.

HTTP+SSE: one event stream from the server, and POSTs to it. The first event, `endpoint`, names the URL for POSTs. All
responses arrive on the stream, and its end is the end of the connection. There is only the handshake era.

Source: MCP 2025-11-25 transports (Streamable HTTP); 2026-07-28 transports/streamable-http; MCP 2024-11-05 transports
(HTTP with SSE).
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, NamedTuple

from ipymcp.errors import CallError, ConnectionLost, McpError, StartError
from ipymcp.protocol.transports import http_errors
from ipymcp.protocol.transports.addresses import within_origin
from ipymcp.protocol.transports.event_streams import Cursor, EventReader
from ipymcp.protocol.transports.remote import RemoteTransport

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ipymcp.protocol.transports.base import Authorizer, Receiver
    from ipymcp.protocol.transports.event_streams import Event
    from ipymcp.protocol.transports.http_client import HttpResponse
    from ipymcp.protocol.transports.remote import QueuedPost


_UNLIMITED_METHODS = frozenset({"ping", "server/discover", "subscriptions/listen"})
"""Requests exempt from the concurrency limit, because they are long-lived or must not wait."""
_SESSION = "Mcp-Session-Id"
_EVENTS = "text/event-stream"
_CLOSE_TIMEOUT = 2.0
"""Maximum seconds for the request that ends the session."""
_MAX_RESUMPTIONS = 3
"""Consecutive failed attempts after which a broken stream is given up."""
_LONG_LIFE = 5.0
"""A GET stream that lasted this many seconds did not fail, even without events."""


class _BrokenStream(NamedTuple):
    """A response stream that ended early and can be resumed."""

    cursor: Cursor
    error: McpError


class StreamableHttpTransport(RemoteTransport):
    """Transport for a server that responds to each POST; see `RemoteTransport` for the arguments."""

    def __init__(self, url: str, *, headers: Mapping[str, str], authorizer: Authorizer | None, limit: int) -> None:
        super().__init__(url, headers=headers, authorizer=authorizer, limit=limit)
        self._session: str | None = None
        self._session_headers: Mapping[str, str] = {}
        """Headers with the protocol version of the session."""
        self._is_expired = False
        """Whether the server has lost the session and no new one is open."""
        self._server_stream: asyncio.Task[None] | None = None

    async def open(self, receiver: Receiver) -> None:
        """Prepare the connection; the first message connects."""
        self._events = EventReader(receiver, self._limit, self._outbox)
        await super().open(receiver)

    # -- one message --------------------------------------------------------------------------------------------------

    async def _deliver(self, post: QueuedPost) -> McpError | None:
        """Deliver a message and its response; return the error for a request that is still pending then."""
        message = post.message
        if message.kind == "request" and message.method not in _UNLIMITED_METHODS:
            async with self._concurrency:
                outcome = await self._exchange(post)
        else:
            outcome = await self._exchange(post)
        return await self._resume(post, outcome) if isinstance(outcome, _BrokenStream) else outcome

    async def _exchange(self, post: QueuedPost) -> McpError | _BrokenStream | None:
        message = post.message
        needs_session = message.method != "initialize" and "Mcp-Method" not in message.headers
        while True:
            post.is_sent = True
            if post.is_aborted:
                return None
            if needs_session and self._is_expired:
                self._receiver.expired(message)
                return None
            session = self._session if needs_session else None
            headers = message.headers if session is None else {**message.headers, _SESSION: session}
            async with self._link.request(
                "POST", headers, message.frame, on_written=lambda: self._outbox.written(post)
            ) as answer:
                if 200 <= answer.status < 300:
                    return await self._deliver_response(post, answer)
                body = await answer.read_beginning(http_errors.BEGINNING)
            if session is None or not http_errors.is_unknown_session(answer.status, body):
                return http_errors.refusal(answer.status, answer.phrase, answer.headers, body)
            if self._session == session:
                self._forget_session()

    async def _deliver_response(self, post: QueuedPost, answer: HttpResponse) -> McpError | _BrokenStream | None:
        """Handle an accepted message: deliver its response."""
        message = post.message
        self._outbox.written(post)
        if message.method == "initialize":
            self._session = answer.headers.get(_SESSION.lower())
            self._is_expired = False
        elif message.method == "notifications/initialized":
            self._listen(message.headers)
        if message.kind != "request":
            await answer.read_beginning(http_errors.BEGINNING)
            return None
        if answer.media_type == _EVENTS:
            return await self._read_events(post, answer)
        body = await answer.read(self._limit)
        if not body:
            return CallError(f"the server sent an empty HTTP response ({answer.phrase})", hint="a fault of the server")
        if answer.media_type != "application/json" and body[:64].lstrip()[:1] not in (b"{", b"["):
            return http_errors.unexpected_content(answer.media_type, body[: http_errors.BEGINNING])
        self._receiver.message(body, message.id)
        return CallError("the response does not answer this request", hint="a fault of the server; see its log")

    async def _read_events(self, post: QueuedPost, answer: HttpResponse) -> McpError | _BrokenStream | None:
        cursor = Cursor()
        try:
            await self._events.read(answer, cursor, post)
        except ConnectionLost as failure:
            error = failure
        else:
            error = ConnectionLost("the server's stream ended before the response", hint="a fault of the server")
        if post.is_answered:
            return None
        return _BrokenStream(cursor, error) if cursor.last_id and not post.can_be_aborted else error

    async def _resume(self, post: QueuedPost, broken: _BrokenStream) -> McpError | None:
        """Handshake era: resume a broken response stream (2025-11-25, resumability)."""
        cursor = broken.cursor
        while cursor.failures < _MAX_RESUMPTIONS:
            await asyncio.sleep(cursor.pause)
            try:
                async with self._open_stream(post.message.headers, cursor) as answer:
                    if answer.status != 200 or answer.media_type != _EVENTS:
                        return broken.error
                    cursor.failures = 0
                    await self._events.read(answer, cursor, post)
            except ConnectionLost:
                cursor.failures += 1
            if post.is_answered:
                return None
        return broken.error

    # -- the session --------------------------------------------------------------------------------------------------

    def _open_stream(
        self, headers: Mapping[str, str], cursor: Cursor
    ) -> contextlib.AbstractAsyncContextManager[HttpResponse]:
        session = {} if self._session is None else {_SESSION: self._session}
        fields = {**headers, **session, **cursor.headers, "Accept": _EVENTS}
        return self._link.request("GET", fields)

    def _forget_session(self) -> None:
        self._session = None
        self._is_expired = True
        if self._server_stream is not None:
            self._server_stream.cancel()

    def _listen(self, headers: Mapping[str, str]) -> None:
        """Start to read messages that the server sends outside of responses."""
        if self._server_stream is not None:
            self._server_stream.cancel()
        self._session_headers = headers
        self._server_stream = self._outbox.spawn(self._read_server_stream(headers))

    async def _read_server_stream(self, headers: Mapping[str, str]) -> None:
        """Keep a GET stream open as long as the server offers one."""
        cursor = Cursor()
        loop = asyncio.get_running_loop()
        while True:
            opened, events = loop.time(), cursor.events
            try:
                async with self._open_stream(headers, cursor) as answer:
                    if 400 <= answer.status < 500 and answer.status != 429:
                        return  # no stream is offered (405), or the session is lost, which the next message detects
                    if answer.status == 200 and answer.media_type == _EVENTS:
                        await self._events.read(answer, cursor)
            except ConnectionLost:
                pass
            except McpError as error:
                self._receiver.protocol_warning(f"notifications from the server are unavailable: {error.message}")
                return
            was_useful = cursor.events > events or loop.time() - opened > _LONG_LIFE
            cursor.failures = 0 if was_useful else cursor.failures + 1
            await asyncio.sleep(cursor.pause)

    async def _end_session(self) -> None:
        """Ask the server to end the session; errors are ignored."""
        session, self._session = self._session, None
        if session is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_TIMEOUT):
                await self._link.send_and_forget("DELETE", {**self._session_headers, _SESSION: session})


class LegacySseTransport(RemoteTransport):
    """Transport for a server with an event stream; see `RemoteTransport` for the arguments."""

    def __init__(self, url: str, *, headers: Mapping[str, str], authorizer: Authorizer | None, limit: int) -> None:
        super().__init__(url, headers=headers, authorizer=authorizer, limit=limit)
        self._is_lost = False

    async def open(self, receiver: Receiver) -> None:
        """Open the stream and wait for the endpoint."""
        self._events = EventReader(receiver, self._limit)
        self._endpoint: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._endpoint.add_done_callback(lambda done: done.cancelled() or done.exception())
        await super().open(receiver)
        self._outbox.spawn(self._read_stream())
        await asyncio.shield(self._endpoint)

    async def _read_stream(self) -> None:
        try:
            async with self._link.request("GET", {"Accept": _EVENTS}) as answer:
                if answer.status != 200 or answer.media_type != _EVENTS:
                    body = await answer.read_beginning(http_errors.BEGINNING)
                    if answer.status >= 400:
                        raise http_errors.refusal(answer.status, answer.phrase, answer.headers, body)
                    raise http_errors.unexpected_content(answer.media_type, body)
                await self._events.read(answer, Cursor(), on_other=self._on_event)
            error: McpError = ConnectionLost("the server ended its stream")
        except McpError as failure:
            error = failure
        except Exception as fault:  # a bug must end the connection rather than leave it silent
            error = ConnectionLost(f"its stream was lost because of a bug in ipymcp: {fault!r}")
        if self._endpoint.done():
            self._lose(error.message)
        else:
            self._endpoint.set_exception(error)

    def _on_event(self, event: Event) -> None:
        if event.type != "endpoint" or self._endpoint.done():
            return
        try:
            location = event.data.decode("utf-8", "replace").strip()
            self._endpoint.set_result(within_origin(self._link.address.url, location, "wants messages sent"))
        except McpError as error:
            self._endpoint.set_exception(StartError(error.message, hint=error.hint))

    async def accepts_new_stream(self, seconds: float) -> bool:
        """Return whether the server opens another stream on a new connection."""
        try:
            async with asyncio.timeout(seconds), self._link.request("GET", {"Accept": _EVENTS}) as answer:
                return answer.status == 200 and answer.media_type == _EVENTS
        except (McpError, TimeoutError):
            return False

    async def _deliver(self, post: QueuedPost) -> McpError | None:
        message = post.message
        async with self._concurrency:
            post.is_sent = True
            if post.is_aborted:
                return None
            async with self._link.request(
                "POST",
                message.headers,
                message.frame,
                url=self._endpoint.result(),
                on_written=lambda: self._outbox.written(post),
            ) as answer:
                body = await answer.read_beginning(http_errors.BEGINNING)
        if 200 <= answer.status < 300:
            return None  # the response arrives on the stream
        if http_errors.is_unknown_session(answer.status, body):
            self._lose("the server does not know this connection any more")
        return http_errors.refusal(answer.status, answer.phrase, answer.headers, body)

    def _lose(self, reason: str) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._receiver.lost(reason)
