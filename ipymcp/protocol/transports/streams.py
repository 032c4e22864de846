"""Streams of events that carry messages: read, resumed, and let go once the answer has come."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from ipymcp.errors import ConnectionLost
from ipymcp.protocol import wire
from ipymcp.protocol.rpc import find_id
from ipymcp.protocol.transports.events import EventParser
from ipymcp.protocol.transports.lines import Oversized
from ipymcp.protocol.transports.refusals import too_large

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipymcp.protocol.transports.base import Receiver, RequestId
    from ipymcp.protocol.transports.events import Event
    from ipymcp.protocol.transports.http_client import Answer
    from ipymcp.protocol.transports.outbox import Outbox, Post

__all__ = ["Cursor", "EventReader"]

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 60.0
_LINGER = 0.25
"""Seconds a stream has to end by itself after its answer: then the connection can be used again."""
_SMALL = 1 << 14
"""Bytes of a message that is decoded to learn what it is; of a larger one only the ends are looked at."""


class Cursor:
    """How far a stream has been read, and when to connect to it again."""

    def __init__(self) -> None:
        self.last_id = ""
        self.retry: float | None = None
        self.events = 0
        """That have come, on all connections."""
        self.failures = 0
        """In a row; set by whoever reconnects."""

    @property
    def pause(self) -> float:
        """Seconds to wait before the next attempt: what the server asked for, or else more each time."""
        backoff = min(_FIRST_PAUSE * 2**self.failures, _LONGEST_PAUSE)
        return backoff if self.retry is None else max(self.retry, backoff if self.failures else 0)

    @property
    def headers(self) -> dict[str, str]:
        """What a request that resumes the stream carries."""
        return {"Last-Event-ID": self.last_id} if self.last_id else {}


class EventReader:
    """Hands the messages in a stream of events on.

    Args:
        receiver: Gets the messages.
        limit: Most bytes of a message.
        outbox: Told which requests have their answers, where each is answered by a stream of its own.
    """

    def __init__(self, receiver: Receiver, limit: int, outbox: Outbox | None = None) -> None:
        self._receiver = receiver
        self._limit = limit
        self._outbox = outbox

    async def read(
        self,
        answer: Answer,
        cursor: Cursor,
        post: Post | None = None,
        on_other: Callable[[Event], None] | None = None,
    ) -> None:
        """Read a stream until it ends, or shortly after the answer to `post` has come.

        Args:
            answer: An open one, of events.
            cursor: Kept up to date, also when the stream breaks.
            post: The request that this stream is for.
            on_other: Gets events that are no messages.

        Raises:
            ConnectionLost: It broke.
        """
        parser = EventParser(self._limit)
        carrier = post.message.id if post is not None else None

        def feed(chunk: bytes) -> None:
            for event in parser.feed(chunk):
                cursor.events += 1
                if isinstance(event, Oversized):
                    self._on_oversized(event)
                elif event.type != "message":
                    if on_other is not None:
                        on_other(event)
                elif event.data:
                    self._receiver.message(event.data, carrier)
                    if self._outbox is not None:
                        _mark_answered(self._outbox, event.data, post)
            cursor.last_id = parser.last_id or cursor.last_id
            cursor.retry = cursor.retry if parser.retry is None else parser.retry

        async with contextlib.aclosing(answer.chunks()) as chunks:
            async for chunk in chunks:
                feed(chunk)
                if post is not None and post.is_answered:
                    with contextlib.suppress(TimeoutError, ConnectionLost):
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
            self._receiver.noise(f"an event of {event.size:,} bytes was discarded; the limit is {self._limit:,}")


def _mark_answered(outbox: Outbox, data: bytes | bytearray, current: Post | None) -> None:
    for identifier in _answered_ids(data):
        post = outbox.answered(identifier)
        if post is not None and post is not current and post.task is not None:
            post.task.cancel()  # its own stream was cut, or says nothing


def _answered_ids(data: bytes | bytearray) -> list[RequestId]:
    """The requests that this message, or batch of messages, answers."""
    if len(data) > _SMALL:
        identifier = find_id(data[:4096], data[-4096:])
        if identifier is not None:
            return [identifier]
    with contextlib.suppress(ValueError):
        message = wire.read_envelope(data)
        parts = [wire.decode(part, wire.Envelope) for part in message] if isinstance(message, list) else [message]
        ids = [part.id for part in parts if part.method is None and part.id is not None]
        return [int(each) if isinstance(each, str) and each.isdecimal() and len(each) < 20 else each for each in ids]
    return []
