"""Streamable HTTP: a POST for each message, answered by JSON or by a stream of events.

In the handshake era the server may keep a session, may speak of its own accord on a GET stream, and may let a stream
that was cut be resumed. In the stateless era there is nothing beside the POSTs, and closing one cancels it.

Source: MCP 2025-11-25 transports (Streamable HTTP); 2026-07-28 transports/streamable-http.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, NamedTuple

from ipymcp.errors import CallError, ConnectionLost, McpError
from ipymcp.protocol.transports import http_errors
from ipymcp.protocol.transports.event_streams import Cursor, EventReader
from ipymcp.protocol.transports.remote import RemoteTransport

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ipymcp.protocol.transports.base import Authorizer, Receiver
    from ipymcp.protocol.transports.http_client import HttpResponse
    from ipymcp.protocol.transports.remote import QueuedPost


_LASTING = frozenset({"ping", "server/discover", "subscriptions/listen"})
"""Requests that take no turn among the calls: they last, or must not wait for those that do."""
_SESSION = "Mcp-Session-Id"
_EVENTS = "text/event-stream"
_CLOSE_TIMEOUT = 2.0
"""Seconds for the server to hear that the session ends."""
_MAX_RESUMPTIONS = 3
"""Attempts in a row that fail before a stream that was cut is given up."""
_LONG_LIFE = 5.0
"""Seconds after which the end of a GET stream that said nothing is no sign of trouble."""


class _Cut(NamedTuple):
    """The stream of an answer ended before the answer, and can be resumed."""

    cursor: Cursor
    error: McpError


class StreamableHttpTransport(RemoteTransport):
    """A server that answers each POST; arguments as `RemoteTransport`."""

    def __init__(self, url: str, *, headers: Mapping[str, str], authorizer: Authorizer | None, limit: int) -> None:
        super().__init__(url, headers=headers, authorizer=authorizer, limit=limit)
        self._session: str | None = None
        self._session_headers: Mapping[str, str] = {}
        """What the last message of this session carried for the version."""
        self._is_expired = False
        """Whether the server has forgotten the session and no new one is open."""
        self._listening: asyncio.Task[None] | None = None

    async def open(self, receiver: Receiver) -> None:
        """Make ready; the first message connects."""
        self._receiver = receiver
        self._events = EventReader(receiver, self._limit, self._outbox)
        await self._link.open(receiver)
        self._outbox.open(receiver)

    # -- one message --------------------------------------------------------------------------------------------------

    async def _deliver(self, post: QueuedPost) -> McpError | None:
        """Deliver a message and its answer; what to say to whoever still waits afterwards."""
        message = post.message
        if message.kind == "request" and message.method not in _LASTING:
            async with self._turns:
                outcome = await self._exchange(post)
        else:
            outcome = await self._exchange(post)
        return await self._resume(post, outcome) if isinstance(outcome, _Cut) else outcome

    async def _exchange(self, post: QueuedPost) -> McpError | _Cut | None:
        message = post.message
        belongs = message.method != "initialize" and "Mcp-Method" not in message.headers
        while True:
            post.is_sent = True
            if post.is_aborted:
                return None
            if belongs and self._is_expired:
                self._receiver.expired(message)
                return None
            session = self._session if belongs else None
            headers = message.headers if session is None else {**message.headers, _SESSION: session}
            async with self._link.answer(
                "POST", headers, message.frame, on_written=lambda: self._outbox.written(post)
            ) as answer:
                if 200 <= answer.status < 300:
                    return await self._hear(post, answer)
                body = await answer.read_beginning(http_errors.BEGINNING)
            if session is None or not http_errors.forgets_session(answer.status, body):
                return http_errors.refusal(answer.status, answer.phrase, answer.headers, body)
            if self._session == session:
                self._forget_session()

    async def _hear(self, post: QueuedPost, answer: HttpResponse) -> McpError | _Cut | None:
        """A message was accepted; deliver what it is answered with."""
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
            return await self._hear_events(post, answer)
        body = await answer.read(self._limit)
        if not body:
            return CallError(f"the server answered HTTP {answer.phrase} and nothing else", hint="a fault of the server")
        if answer.media_type != "application/json" and body[:64].lstrip()[:1] not in (b"{", b"["):
            return http_errors.no_message(answer.media_type, body[: http_errors.BEGINNING])
        self._receiver.message(body, message.id)
        return CallError("the server's answer is none to this request", hint="a fault of the server; its log has it")

    async def _hear_events(self, post: QueuedPost, answer: HttpResponse) -> McpError | _Cut | None:
        cursor = Cursor()
        try:
            await self._events.read(answer, cursor, post)
        except ConnectionLost as failure:
            error = failure
        else:
            error = ConnectionLost("the server's stream ended before the answer", hint="a fault of the server")
        if post.is_answered:
            return None
        return _Cut(cursor, error) if cursor.last_id and not post.can_be_aborted else error

    async def _resume(self, post: QueuedPost, cut: _Cut) -> McpError | None:
        """Handshake era: take up the stream of an answer where it was cut (2025-11-25, resumability)."""
        cursor = cut.cursor
        while cursor.failures < _MAX_RESUMPTIONS:
            await asyncio.sleep(cursor.pause)
            try:
                async with self._open_stream(post.message.headers, cursor) as answer:
                    if answer.status != 200 or answer.media_type != _EVENTS:
                        return cut.error
                    cursor.failures = 0
                    await self._events.read(answer, cursor, post)
            except ConnectionLost:
                cursor.failures += 1
            if post.is_answered:
                return None
        return cut.error

    # -- the session --------------------------------------------------------------------------------------------------

    def _open_stream(
        self, headers: Mapping[str, str], cursor: Cursor
    ) -> contextlib.AbstractAsyncContextManager[HttpResponse]:
        session = {} if self._session is None else {_SESSION: self._session}
        fields = {**headers, **session, **cursor.headers, "Accept": _EVENTS}
        return self._link.answer("GET", fields)

    def _forget_session(self) -> None:
        self._session = None
        self._is_expired = True
        if self._listening is not None:
            self._listening.cancel()

    def _listen(self, headers: Mapping[str, str]) -> None:
        """Hear what the server says of its own accord, from now on."""
        if self._listening is not None:
            self._listening.cancel()
        self._session_headers = headers
        self._listening = self._outbox.spawn(self._hear_server(headers))

    async def _hear_server(self, headers: Mapping[str, str]) -> None:
        """Hold a GET stream, as long as the server offers one."""
        cursor = Cursor()
        loop = asyncio.get_running_loop()
        while True:
            begun, events = loop.time(), cursor.events
            try:
                async with self._open_stream(headers, cursor) as answer:
                    if 400 <= answer.status < 500 and answer.status != 429:
                        return  # it offers none (405), or the session is over, which the next message finds out
                    if answer.status == 200 and answer.media_type == _EVENTS:
                        await self._events.read(answer, cursor)
            except ConnectionLost:
                pass
            except McpError as error:
                self._receiver.noise(f"the server is heard only when asked: {error.message}")
                return
            was_of_use = cursor.events > events or loop.time() - begun > _LONG_LIFE
            cursor.failures = 0 if was_of_use else cursor.failures + 1
            await asyncio.sleep(cursor.pause)

    async def _say_goodbye(self) -> None:
        """Let the server know, if it has a session of ours; it may refuse, and it may be gone."""
        session, self._session = self._session, None
        if session is None:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_TIMEOUT):
                await self._link.farewell("DELETE", {**self._session_headers, _SESSION: session})
