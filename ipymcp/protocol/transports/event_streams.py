"""Server-sent events: a parser with linear time and memory, and resumable streams of messages.

Source: WHATWG HTML, server-sent events (parsing and interpreting an event stream).
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, NamedTuple

from ipymcp.errors import ConnectionLost, ResultTooLarge
from ipymcp.protocol import types
from ipymcp.protocol.jsonrpc import find_id
from ipymcp.protocol.transports.base import too_large
from ipymcp.protocol.transports.pipes import Oversized

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipymcp.protocol.transports.base import Receiver, RequestId
    from ipymcp.protocol.transports.http_client import HttpResponse
    from ipymcp.protocol.transports.remote import QueuedPost, SendQueue


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
            chunk = self._without_mark(chunk)
        if b"\r" in chunk or self._ends_with_cr:
            chunk = self._with_line_feeds(chunk)
        *ends, rest = chunk.split(b"\n")
        events: list[Event | Oversized] = []
        for end in ends:
            self._complete(end, events)
        if rest:
            self._keep(rest, events)
        return events

    def _without_mark(self, chunk: bytes) -> bytes:
        start = (self._start or b"") + chunk
        if len(start) < len(_BOM) and _BOM.startswith(start):
            self._start = start
            return b""
        self._start = None
        return start.removeprefix(_BOM)

    def _with_line_feeds(self, chunk: bytes) -> bytes:
        if self._ends_with_cr and chunk:
            chunk = chunk.removeprefix(b"\n")  # the other half of a line end already seen
            self._ends_with_cr = False
        self._ends_with_cr = self._ends_with_cr or chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

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
        if not line:
            self._dispatch(events)
        elif line.startswith(b"data"):
            self._add_data(line, events)
        elif len(line) <= _MAX_FIELD:
            self._read_field(bytes(line))

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

    def _read_field(self, line: bytes) -> None:
        name, _, _ = line.partition(b":")
        value = bytes(_value(line, len(name))).decode("utf-8", "replace")
        if name == b"event":
            self._type = value
        elif name == b"id" and "\0" not in value:
            self._id = value
        elif name == b"retry" and value.isascii() and value.isdigit() and len(value) < 10:
            self.retry = int(value) / 1000

    def _dispatch(self, events: list[Event | Oversized]) -> None:
        self.last_id = self._id
        if self._over is not None:
            events.append(self._over._replace(done=True))
        elif self._data is not None:
            events.append(Event(self._data, self._type or "message"))
        self._data, self._over, self._type = None, None, ""


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
"""Seconds that a stream may take to end after its response, so that its connection can be reused."""
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
