"""Server-sent events: bytes in, events out, in time and memory linear in their size. Never touches a socket.

Source: WHATWG HTML, server-sent events (parsing and interpreting an event stream).
"""

from __future__ import annotations

from typing import NamedTuple

from ipymcp.protocol.transports.lines import Oversized

__all__ = ["Event", "EventParser"]

_BOM = b"\xef\xbb\xbf"
_KEPT = 4096
_LONGEST_FIELD = 1 << 16
"""Bytes of a line that is no data: an id, a name. A longer one is ignored."""


class Event(NamedTuple):
    """One event."""

    data: bytes | bytearray
    """All its data lines, joined by line feeds; often one JSON message, sometimes nothing."""
    type: str
    """`message` where the server gives it no name."""


class EventParser:
    r"""Splits a stream into events. Lines end with `\n`, `\r\n` or `\r`, also where a chunk ends between the two.

    An event over `limit` bytes is not kept. It is reported as `Oversized` twice, like a line by `LineSplitter`: as soon
    as it passes the limit, and when it ends.

    Args:
        limit: Most bytes of data in an event.
    """

    def __init__(self, limit: int) -> None:
        self.last_id = ""
        """The id to resume after: that of the last event that was complete."""
        self.retry: float | None = None
        """Seconds to wait before connecting again, where the server has said so."""
        self._limit = limit
        self._start: bytes | None = b""
        """The first bytes, as long as they may be a byte order mark."""
        self._ends_with_cr = False
        self._line = bytearray()  # the beginning of a line; grows in place: no second copy of a large one, ever
        self._line_is_dropped = False
        self._dropped_is_data = False
        self._data: bytes | bytearray | None = None
        self._type = ""
        self._id = ""
        self._over: Oversized | None = None

    def feed(self, chunk: bytes) -> list[Event | Oversized]:
        """The events that this chunk completes."""
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
        """A line has ended."""
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
        elif len(line) <= _LONGEST_FIELD:
            self._read_field(bytes(line))

    def _keep(self, rest: bytes, events: list[Event | Oversized]) -> None:
        """A line has begun or goes on."""
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
        elif not is_data and len(self._line) > _LONGEST_FIELD:
            self._line.clear()
            self._line_is_dropped, self._dropped_is_data = True, False

    def _add_data(self, line: bytes | bytearray, events: list[Event | Oversized]) -> None:
        if line[4:5] not in (b":", b""):
            return  # a field nobody knows whose name begins like ours
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
            self._over = Oversized(bytes(data[:_KEPT]), bytes(data[-_KEPT:]), len(data), done=False)
            events.append(self._over)

    def _discard(self, part: bytes | bytearray) -> None:
        assert self._over is not None
        head, tail, size, _ = self._over
        self._over = Oversized(head, (tail + part[-_KEPT:])[-_KEPT:], size + len(part), done=False)

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
        """An empty line: the event is complete."""
        self.last_id = self._id
        if self._over is not None:
            events.append(self._over._replace(done=True))
        elif self._data is not None:
            events.append(Event(self._data, self._type or "message"))
        self._data, self._over, self._type = None, None, ""


def _value(line: bytes | bytearray, name: int) -> bytes | bytearray:
    """What follows the field's name of so many bytes, a colon and at most one space. A bytearray is cut in place."""
    start = name + 2 if line[name + 1 : name + 2] == b" " else name + 1
    if isinstance(line, bytes):
        return line[start:]
    del line[:start]
    return line
