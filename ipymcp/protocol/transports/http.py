"""The transports over HTTP: Streamable HTTP, and HTTP+SSE, which came before it, with their event streams.

Streamable HTTP: a POST for each message, whose response is JSON or an event stream. In the handshake era the server may
keep a session, send messages on a GET stream, and resume broken streams. In the stateless era there are only POSTs, and
closing one cancels it.

HTTP+SSE: one event stream from the server, and POSTs to it. The first event, `endpoint`, names the URL for POSTs. All
responses arrive on the stream, and its end is the end of the connection. There is only the handshake era.

Events are parsed with linear time and memory.

Source: MCP 2025-11-25 transports (Streamable HTTP); 2026-07-28 transports/streamable-http; MCP 2024-11-05 transports
(HTTP with SSE); WHATWG HTML, server-sent events (parsing and interpreting an event stream).
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from ipymcp.errors import CallError, ConnectionLost, McpError, ResultTooLarge, StartError
from ipymcp.protocol import types
from ipymcp.protocol.jsonrpc import find_id
from ipymcp.protocol.transports import http_errors
from ipymcp.protocol.transports.addresses import within_origin
from ipymcp.protocol.transports.base import too_large
from ipymcp.protocol.transports.pipes import Oversized
from ipymcp.protocol.transports.remote import RemoteTransport

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ipymcp.protocol.transports.base import Authorizer, OutboundMessage, Receiver, RequestId
    from ipymcp.protocol.transports.http_client import HttpResponse
    from ipymcp.protocol.transports.remote import QueuedPost, SendQueue

# -- event streams -----------------------------------------------------------------------------------------------------


_BOM = b"\xef\xbb\xbf"
_MAX_FIELD = 1 << 16
"""Maximum length of a line that is not data, in bytes; a longer one is ignored."""


class Event(NamedTuple):
    """A server-sent event."""

    data: bytes | bytearray
    """The data lines, joined by line feeds: a JSON message, or nothing."""
    type: str
    """Name of the event; `message` by default."""


class EventParser:
    r"""Splits a stream into events. Lines end with `\n`, `\r\n` or `\r`, even if a chunk ends between `\r` and `\n`.

    An event over `limit` bytes is discarded and reported as `Oversized` twice, like a line by `LineSplitter`: when it
    passes the limit, and when it ends.

    Args:
        limit: Maximum data of an event in bytes.
    """

    def __init__(self, limit: int) -> None:
        self.last_id = ""
        """Id of the last complete event, from which to resume."""
        self.retry: float | None = None
        """Seconds to wait before reconnecting; None if the server did not say."""
        self._limit = limit
        self._start: bytes | None = b""
        """The first bytes while they may be a byte order mark."""
        self._ends_with_cr = False
        self._line = bytearray()  # the beginning of a line; grows in place, without copies of large lines
        self._line_is_dropped = False
        self._dropped_is_data = False
        self._data: bytes | bytearray | None = None
        self._type = ""
        self._id = ""
        self._over: Oversized | None = None

    def feed(self, chunk: bytes) -> list[Event | Oversized]:
        """Return the events completed by this chunk."""
        if self._start is not None:
            chunk = self._start + chunk
            if len(chunk) < len(_BOM) and _BOM.startswith(chunk):
                self._start = chunk
                return []
            self._start = None
            chunk = chunk.removeprefix(_BOM)
        if b"\r" in chunk or self._ends_with_cr:
            if self._ends_with_cr and chunk:
                chunk = chunk.removeprefix(b"\n")  # the other half of a line end already seen
                self._ends_with_cr = False
            self._ends_with_cr = self._ends_with_cr or chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *ends, rest = chunk.split(b"\n")
        events: list[Event | Oversized] = []
        for end in ends:
            self._complete(end, events)
        if rest:
            self._keep(rest, events)
        return events

    def _complete(self, end: bytes, events: list[Event | Oversized]) -> None:
        if self._line_is_dropped:
            self._line_is_dropped = False
            if self._dropped_is_data:
                self._discard(end)
            return
        line: bytes | bytearray = end
        if self._line:
            line, self._line = self._line, bytearray()
            line += end
        if line.startswith(b"data"):
            self._add_data(line, events)
        elif line:
            if len(line) > _MAX_FIELD:
                return
            name = bytes(line).partition(b":")[0]
            value = bytes(_value(line, len(name))).decode("utf-8", "replace")
            if name == b"event":
                self._type = value
            elif name == b"id" and "\0" not in value:
                self._id = value
            elif name == b"retry" and value.isascii() and value.isdigit() and len(value) < 10:
                self.retry = int(value) / 1000
        else:  # the end of the event
            self.last_id = self._id
            if self._over is not None:
                events.append(self._over._replace(done=True))
            elif self._data is not None:
                events.append(Event(self._data, self._type or "message"))
            self._data, self._over, self._type = None, None, ""

    def _keep(self, rest: bytes, events: list[Event | Oversized]) -> None:
        if self._line_is_dropped:
            if self._dropped_is_data:
                self._discard(rest)
            return
        self._line += rest
        is_data = self._line.startswith(b"data"[: len(self._line)])
        if is_data and len(self._line) + len(self._data or b"") > self._limit + 6:
            line, self._line = self._line, bytearray()
            self._line_is_dropped = True
            self._dropped_is_data = line.startswith(b"data:")
            self._add_data(line, events)
        elif not is_data and len(self._line) > _MAX_FIELD:
            self._line.clear()
            self._line_is_dropped, self._dropped_is_data = True, False

    def _add_data(self, line: bytes | bytearray, events: list[Event | Oversized]) -> None:
        if line[4:5] not in (b":", b""):
            return  # an unknown field whose name begins with "data"
        value = _value(line, 4)
        if self._over is not None:
            self._discard(b"\n")
            self._discard(value)
            return
        if self._data is None:
            self._data = value
        else:
            self._data = self._data if isinstance(self._data, bytearray) else bytearray(self._data)
            self._data += b"\n"
            self._data += value
        if len(self._data) > self._limit:
            data, self._data = self._data, None
            self._over = Oversized.begin(data)
            events.append(self._over)

    def _discard(self, part: bytes | bytearray) -> None:
        assert self._over is not None
        self._over = self._over.extended(part)


def _value(line: bytes | bytearray, name: int) -> bytes | bytearray:
    """Return the value in a line of a field whose name has `name` bytes. A bytearray is cut in place."""
    start = name + 2 if line[name + 1 : name + 2] == b" " else name + 1
    if isinstance(line, bytes):
        return line[start:]
    del line[:start]
    return line


_FIRST_PAUSE = 1.0
_MAX_PAUSE = 60.0
_LINGER = 0.25
"""Seconds that a response may take to end once all of it that matters is read, so that its connection can be reused."""
_SMALL = 1 << 14
"""Maximum size of a message that is decoded to find its ids, in bytes; of a larger one only the ends are searched."""


class Cursor:
    """The position in a stream, and the delay before reconnecting."""

    def __init__(self) -> None:
        self.last_id = ""
        self.retry: float | None = None
        self.events = 0
        """Number of events received on all connections."""
        self.failures = 0
        """Number of consecutive failures; maintained by the code that reconnects."""

    @property
    def pause(self) -> float:
        """Seconds to wait before the next attempt: the server's value, or an exponential backoff."""
        backoff = min(_FIRST_PAUSE * 2**self.failures, _MAX_PAUSE)
        return backoff if self.retry is None else max(self.retry, backoff if self.failures else 0)

    @property
    def headers(self) -> dict[str, str]:
        """Headers of a request that resumes the stream."""
        return {"Last-Event-ID": self.last_id} if self.last_id else {}


class EventReader:
    """Passes the messages of event streams to a receiver.

    Args:
        receiver: Receives the messages.
        limit: Maximum message size in bytes.
        outbox: Queue in which answered requests are marked, if each request has its own stream.
    """

    def __init__(self, receiver: Receiver, limit: int, outbox: SendQueue | None = None) -> None:
        self._receiver = receiver
        self._limit = limit
        self._outbox = outbox

    async def read(
        self,
        answer: HttpResponse,
        cursor: Cursor,
        post: QueuedPost | None = None,
        on_other: Callable[[Event], None] | None = None,
    ) -> None:
        """Read a stream until it ends, or shortly after the response to `post`.

        Args:
            answer: An open event stream.
            cursor: Updated with each event, even if the stream breaks.
            post: The request that the stream belongs to.
            on_other: Called with events that are not messages.

        Raises:
            ConnectionLost: The stream broke.
            ResultTooLarge: The stream is compressed too strongly.
        """
        parser = EventParser(self._limit)
        origin_request_id = post.message.id if post is not None else None

        def feed(chunk: bytes) -> None:
            for event in parser.feed(chunk):
                cursor.events += 1
                if isinstance(event, Oversized):
                    self._on_oversized(event)
                elif event.type != "message":
                    if on_other is not None:
                        on_other(event)
                elif event.data:
                    self._receiver.message(event.data, origin_request_id)
                    if self._outbox is not None:
                        _mark_answered(self._outbox, event.data, post)
            cursor.last_id = parser.last_id or cursor.last_id
            cursor.retry = cursor.retry if parser.retry is None else parser.retry

        async with contextlib.aclosing(answer.chunks(self._limit)) as chunks:
            async for chunk in chunks:
                feed(chunk)
                if post is not None and post.is_answered:
                    with contextlib.suppress(TimeoutError, ConnectionLost, ResultTooLarge):
                        async with asyncio.timeout(_LINGER):
                            async for rest in chunks:
                                feed(rest)
                    return

    def _on_oversized(self, event: Oversized) -> None:
        identifier = find_id(event.head, event.tail if event.done else b"")
        if identifier is not None:
            self._receiver.undelivered(identifier, too_large(self._limit))
            if self._outbox is not None:
                self._outbox.answered(identifier)
        if event.done:
            self._receiver.protocol_warning(
                f"an event of {event.size:,} bytes was discarded; the limit is {self._limit:,}"
            )


def _mark_answered(outbox: SendQueue, data: bytes | bytearray, current: QueuedPost | None) -> None:
    for identifier in _answered_ids(data):
        post = outbox.answered(identifier)
        if post is not None and post is not current and post.task is not None:
            post.task.cancel()  # its own stream was cut, or is silent


def _answered_ids(data: bytes | bytearray) -> list[RequestId]:
    """List the ids of the requests that a message or batch answers."""
    if len(data) > _SMALL:
        identifier = find_id(data[:4096], data[-4096:])
        if identifier is not None:
            return [identifier]
    with contextlib.suppress(ValueError):
        message = types.read_envelope(data)
        parts = [types.decode(part, types.Envelope) for part in message] if isinstance(message, list) else [message]
        ids = [part.id for part in parts if part.method is None and part.id is not None]
        return [int(each) if isinstance(each, str) and each.isdecimal() and len(each) < 20 else each for each in ids]
    return []


# -- transports --------------------------------------------------------------------------------------------------------


_UNLIMITED_METHODS = frozenset({"ping", "server/discover", "subscriptions/listen"})
"""Requests exempt from the concurrency limit, because they are long-lived or must not wait."""
_SESSION = "Mcp-Session-Id"
_EVENTS = "text/event-stream"
_CLOSE_TIMEOUT = 2.0
"""Maximum seconds for the request that ends the session."""
_MAX_RESUMPTIONS = 3
"""Consecutive failed attempts after which a broken stream is given up."""
_BLOCKED_AFTER = 2.0
"""Seconds without a response after which a GET stream may be what keeps the server busy."""
_FREED_WITHIN = 1.0
"""Seconds after the end of the GET stream within which a server that it kept busy responds."""
_LONG_LIFE = 5.0
"""A GET stream that lasted this many seconds did not fail, even without events."""


class _SessionLost(Exception):
    """A message was accepted, and answered with the error that its session is unknown."""


class _BrokenStream(NamedTuple):
    """A response stream that ended early and can be resumed."""

    cursor: Cursor
    error: McpError


class _RefusedPost(NamedTuple):
    """A message that an endpoint did not accept."""

    status: int
    body: bytes
    error: McpError

    @property
    def is_misdirected(self) -> bool:
        """Whether nothing of the server seems to be at the address."""
        return self.status in (404, 405) and not http_errors.names_session(self.error.message)


async def _read_rest(answer: HttpResponse) -> None:
    """Read the body of an accepted message, which has no meaning; a server may also leave it open."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LINGER):
            await answer.read_beginning(http_errors.BEGINNING)


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
        self._is_stream_open = False
        """Whether the server has begun to answer the GET."""
        self._is_concurrent = False
        """Whether the server has answered a request while the GET stream was open."""
        self._closed_at: float | None = None
        """When the GET stream was closed because it seemed to block a request."""

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
            watch = self._watch_server_stream(message)
            try:
                async with self._link.request(
                    "POST", headers, message.frame, on_written=lambda: self._outbox.written(post)
                ) as answer:
                    self._heard_beside_stream(message)
                    if 200 <= answer.status < 300:
                        return await self._deliver_response(post, answer, session)
                    body = await answer.read_beginning(http_errors.BEGINNING)
            except _SessionLost:
                pass
            else:
                if session is None or not http_errors.is_unknown_session(answer.status, body):
                    return http_errors.refusal(answer.status, answer.phrase, answer.headers, body)
            finally:
                if watch is not None:
                    watch.cancel()
            if self._session == session:
                self._forget_session()

    async def _deliver_response(
        self, post: QueuedPost, answer: HttpResponse, session: str | None
    ) -> McpError | _BrokenStream | None:
        """Handle an accepted message: deliver its response.

        Raises:
            _SessionLost: The response is the error of a session that the server does not know any more.
        """
        message = post.message
        self._outbox.written(post)
        if message.method == "initialize":
            self._session = answer.headers.get(_SESSION.lower())
            self._is_expired = False
        elif message.method == "notifications/initialized":
            self._listen(message.headers)
        if message.kind != "request":
            await _read_rest(answer)
            return None
        if answer.media_type == _EVENTS:
            return await self._read_events(post, answer)
        body = await answer.read(self._limit)
        if not body:
            return CallError(f"the server sent an empty HTTP response ({answer.phrase})", hint="a fault of the server")
        if body[:64].removeprefix(_BOM).lstrip()[:1] not in (b"{", b"["):
            return http_errors.unexpected_content(answer.media_type, body[: http_errors.BEGINNING])
        if session is not None and http_errors.is_unknown_session(answer.status, body):
            raise _SessionLost
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
        self._link.forget_cookies()
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
                        self._is_stream_open = True
                        await self._events.read(answer, cursor)
            except ConnectionLost:
                pass
            except McpError as error:
                self._receiver.protocol_warning(f"notifications from the server are unavailable: {error.message}")
                return
            finally:
                self._is_stream_open = False
            was_useful = cursor.events > events or loop.time() - opened > _LONG_LIFE
            cursor.failures = 0 if was_useful else cursor.failures + 1
            await asyncio.sleep(cursor.pause)

    def _watch_server_stream(self, message: OutboundMessage) -> asyncio.TimerHandle | None:
        """Watch whether the GET stream blocks a request, as it does at a server with one worker."""
        if message.kind != "request" or self._is_concurrent or not self._session_headers:
            return None
        return asyncio.get_running_loop().call_later(_BLOCKED_AFTER, self._free_worker, message.method)

    def _free_worker(self, method: str) -> None:
        if self._is_stream_open and not self._is_concurrent and self._server_stream is not None:
            self._closed_at = asyncio.get_running_loop().time()
            self._server_stream.cancel()
            said = f"{method} was not answered within {_BLOCKED_AFTER:g} s beside the stream of notifications"
            self._receiver.protocol_warning(f"{said}; closed that stream, in case the server has only one worker")

    def _heard_beside_stream(self, message: OutboundMessage) -> None:
        """Note that the server responds to a request: at once after the GET stream was closed, it has one worker."""
        if message.kind != "request" or self._is_concurrent:
            return
        if self._closed_at is None:
            self._is_concurrent = self._is_stream_open
        elif asyncio.get_running_loop().time() - self._closed_at > _FREED_WITHIN:
            self._is_concurrent, self._closed_at = True, None
            self._listen(self._session_headers)

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
        self._is_confirmed = False
        """Whether the endpoint has accepted a message."""

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
        async with self._concurrency:
            post.is_sent = True
            if post.is_aborted:
                return None
            url = self._endpoint.result()
            refused = await self._post(post, url)
            if refused is not None and not self._is_confirmed and refused.is_misdirected:
                return await self._post_below_prefix(post, url, refused)
        self._is_confirmed = self._is_confirmed or refused is None
        if refused is None:
            return None  # the response arrives on the stream
        if http_errors.is_unknown_session(refused.status, refused.body):
            self._lose("the server does not know this connection any more")
        return refused.error

    async def _post(self, post: QueuedPost, url: str) -> _RefusedPost | None:
        message = post.message
        async with self._link.request(
            "POST", message.headers, message.frame, url=url, on_written=lambda: self._outbox.written(post)
        ) as answer:
            if 200 <= answer.status < 300:
                await _read_rest(answer)
                return None
            body = await answer.read_beginning(http_errors.BEGINNING)
        return _RefusedPost(
            answer.status, body, http_errors.refusal(answer.status, answer.phrase, answer.headers, body)
        )

    async def _post_below_prefix(self, post: QueuedPost, url: str, refused: _RefusedPost) -> McpError | None:
        """Send the first message to the endpoint below the stream's own folder: a proxy may cut that prefix."""
        stream, endpoint = urlsplit(self._link.address.url), urlsplit(url)
        prefix = stream.path.rpartition("/")[0]
        if prefix and not endpoint.path.startswith(f"{prefix}/"):
            below = urlunsplit(endpoint._replace(path=prefix + endpoint.path))
            if await self._post(post, below) is None:
                self._endpoint = asyncio.get_running_loop().create_future()
                self._endpoint.set_result(below)
                self._is_confirmed = True
                self._receiver.protocol_warning(
                    f"messages go below {prefix}, which the address that the server named lacks"
                )
                return None
        error = refused.error
        named = urlunsplit(endpoint._replace(query=""))  # which may hold the id of the session
        error.message = f"messages go to {named}, as the server said: {error.message}"
        error.hint = f"a proxy may cut the prefix {prefix}" if prefix else "check the server's address behind its proxy"
        return error

    def _lose(self, reason: str) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._receiver.lost(reason)
