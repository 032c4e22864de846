"""Bytes in, lines out, in time and memory linear in their size. Never touches a pipe."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["LineSplitter", "Oversized"]

_KEPT = 4096


class Oversized(NamedTuple):
    """A line over the limit, of which only the ends were kept."""

    head: bytes
    tail: bytes
    size: int
    """Bytes so far; the final size when `done`."""
    done: bool
    """False when it is reported for the first time, while the rest is still to come."""


class LineSplitter:
    r"""Splits a stream at `\n`. A line over `limit` bytes is reported as `Oversized` twice and not kept.

    Args:
        limit: Longest line in bytes, without its end.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._line = bytearray()  # grows in place: no second copy of a large line, ever
        self._size = 0
        self._head: bytes | None = None
        self._tail = b""

    def feed(self, chunk: bytes) -> list[bytes | bytearray | Oversized]:
        """The lines that this chunk completes, without their ends; empty ones left out."""
        *ends, rest = chunk.split(b"\n")
        lines: list[bytes | bytearray | Oversized] = []
        is_plain = len(chunk) <= self._limit and b"\r" not in chunk  # all but the first stand whole in the chunk
        for end in ends[:1] if is_plain else ends:
            line = self._complete(end)
            if line:
                lines.append(line)
        if is_plain:
            lines += filter(None, ends[1:])
        if rest:
            self._keep(rest, lines)
        return lines

    def finish(self) -> bytes:
        """What came after the last line end."""
        line = bytes(self._line)
        self._line, self._size = bytearray(), 0
        return line

    def _complete(self, end: bytes) -> bytes | bytearray | Oversized:
        if self._head is None and self._size + len(end) <= self._limit:
            if not self._line:
                return end.removesuffix(b"\r")
            line, self._line, self._size = self._line, bytearray(), 0
            line += end
            if line.endswith(b"\r"):
                del line[-1]
            return line
        self._discard(end)
        over = Oversized(self._head or b"", self._tail, self._size, done=True)
        self._head, self._tail, self._size = None, b"", 0
        return over

    def _keep(self, rest: bytes, lines: list[bytes | bytearray | Oversized]) -> None:
        if self._head is not None:
            self._discard(rest)
        elif self._size + len(rest) <= self._limit:
            self._line += rest
            self._size += len(rest)
        else:
            self._discard(rest)
            lines.append(Oversized(self._head or b"", self._tail, self._size, done=False))

    def _discard(self, part: bytes) -> None:
        if self._head is None:
            kept, self._line = self._line, bytearray()
            self._head = bytes(kept[:_KEPT] + part[:_KEPT])[:_KEPT]
            self._tail = bytes(kept[-_KEPT:])
        self._size += len(part)
        self._tail = (self._tail + part[-_KEPT:])[-_KEPT:]
