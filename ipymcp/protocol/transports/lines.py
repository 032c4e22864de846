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
        self._parts: list[bytes] = []
        self._size = 0
        self._head: bytes | None = None
        self._tail = b""

    def feed(self, chunk: bytes) -> list[bytes | Oversized]:
        """The lines that this chunk completes, without their ends; empty ones left out."""
        *ends, rest = chunk.split(b"\n")
        lines: list[bytes | Oversized] = []
        for end in ends:
            line = self._complete(end)
            if line:
                lines.append(line)
        if rest:
            self._keep(rest, lines)
        return lines

    def finish(self) -> bytes:
        """What came after the last line end."""
        line = b"".join(self._parts) if self._head is None else b""
        self._parts, self._size = [], 0
        return line

    def _complete(self, end: bytes) -> bytes | Oversized | None:
        if self._head is None and self._size + len(end) <= self._limit:
            if not self._parts:
                return end.removesuffix(b"\r")
            self._parts.append(end)
            line = b"".join(self._parts)
            self._parts, self._size = [], 0
            return line.removesuffix(b"\r")
        self._discard(end)
        over = Oversized(self._head or b"", self._tail, self._size, done=True)
        self._head, self._tail, self._size = None, b"", 0
        return over

    def _keep(self, rest: bytes, lines: list[bytes | Oversized]) -> None:
        if self._head is not None:
            self._discard(rest)
        elif self._size + len(rest) <= self._limit:
            self._parts.append(rest)
            self._size += len(rest)
        else:
            self._discard(rest)
            lines.append(Oversized(self._head or b"", self._tail, self._size, done=False))

    def _discard(self, part: bytes) -> None:
        if self._head is None:
            kept = b"".join(self._parts)
            self._parts = []
            self._head = (kept + part[:_KEPT])[:_KEPT]
            self._tail = kept[-_KEPT:]
        self._size += len(part)
        self._tail = (self._tail + part[-_KEPT:])[-_KEPT:]
