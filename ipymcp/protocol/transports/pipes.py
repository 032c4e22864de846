"""The host's ends of a child's pipes, and the split of their bytes into lines.

Writing: any thread may send. A frame that fits into a pipe atomically (`PIPE_BUF`) is written by the sender; everything
else is queued, and only the loop writes parts of frames. So neither an interrupt nor another thread can tear a frame.

Reading: the loop reads. On Windows, whose pipes cannot be watched by a loop, threads read and write.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import threading
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from ipymcp.errors import ConnectionLost, LoopError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable


_KEPT = 4096


class Oversized(NamedTuple):
    """A line or event over the limit, of which only the ends were kept."""

    head: bytes
    tail: bytes
    size: int
    """Bytes so far; the final size if `done`."""
    done: bool = False
    """False for the first report, while the rest is still to come."""

    @classmethod
    def begin(cls, data: bytes | bytearray) -> Oversized:
        """Keep the ends of the data received so far."""
        return cls(bytes(data[:_KEPT]), bytes(data[-_KEPT:]), len(data))

    def extended(self, part: bytes | bytearray) -> Oversized:
        """Return the same line or event after more data has arrived."""
        return self._replace(tail=(self.tail + part[-_KEPT:])[-_KEPT:], size=self.size + len(part))


class LineSplitter:
    """Splits a stream at line feeds. A line over `limit` bytes is reported as `Oversized` twice and not kept.

    Args:
        limit: Maximum length of a line in bytes, without its end.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._line = bytearray()  # grows in place, without copies of large lines
        self._over: Oversized | None = None

    def feed(self, chunk: bytes) -> list[bytes | bytearray | Oversized]:
        """Return the non-empty lines completed by this chunk, without their ends."""
        *ends, rest = chunk.split(b"\n")
        lines: list[bytes | bytearray | Oversized] = []
        is_plain = len(chunk) <= self._limit and b"\r" not in chunk  # all but the first are complete in this chunk
        for end in ends[:1] if is_plain else ends:
            line = self._complete(end)
            if line:
                lines.append(line)
        if is_plain:
            lines += filter(None, ends[1:])
        if not rest:
            return lines
        if self._over is None and len(self._line) + len(rest) <= self._limit:
            self._line += rest
        else:
            is_new = self._over is None
            self._over = self._extended(rest)
            if is_new:
                lines.append(self._over)
        return lines

    @property
    def unfinished(self) -> int:
        """Number of bytes of the current line so far."""
        return self._over.size if self._over is not None else len(self._line)

    def restart(self) -> None:
        """Forget the beginning of the current line."""
        self._line = bytearray()
        self._over = None

    def finish(self, *, keeps_end: bool = False) -> bytes:
        """Return the rest after the last line end.

        Args:
            keeps_end: Whether to return the end of a line over the limit, rather than nothing.
        """
        line = self._over.tail if keeps_end and self._over is not None else bytes(self._line)
        self.restart()
        return line

    def _complete(self, end: bytes) -> bytes | bytearray | Oversized:
        if self._over is None and len(self._line) + len(end) <= self._limit:
            if not self._line:
                return end.removesuffix(b"\r")
            line, self._line = self._line, bytearray()
            line += end
            if line.endswith(b"\r"):
                del line[-1]
            return line
        over, self._over = self._extended(end), None
        return over._replace(done=True)

    def _extended(self, part: bytes) -> Oversized:
        if self._over is not None:
            return self._over.extended(part)
        line, self._line = self._line, bytearray()
        line += part
        return Oversized.begin(line)


_SMALL_READ = 1 << 16
_LARGE_READ = 1 << 20
_F_SETPIPE_SZ = 1031
_LARGE_FRAME = 1 << 16
_PIPE_BUF: int = getattr(select, "PIPE_BUF", 512)


class LoopWriter:
    """Writes to a non-blocking pipe (POSIX).

    Args:
        loop: The loop that writes queued frames.
        fd: Descriptor of the pipe.
        on_broken: Called on the loop when the pipe is broken; later frames are dropped.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, fd: int, on_broken: Callable[[], None]) -> None:
        os.set_blocking(fd, False)
        self._on_broken = on_broken
        self._is_broken = False
        self._loop = loop
        self._fd: int | None = fd
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._queue: deque[bytes | memoryview] = deque()
        self._queued = 0

    @property
    def queued(self) -> int:
        """Number of bytes accepted and not yet written."""
        return self._queued

    def send(self, frame: bytes) -> None:
        """Write a frame and a newline, from any thread, without waiting."""
        if os.getpid() != self._pid:
            raise LoopError("this process was forked after its servers were started", hint="use them from the parent")
        with self._lock:
            if self._fd is None:
                raise ConnectionLost("the connection is closed")
            if self._is_broken:
                return
            if not self._queue and len(frame) < _PIPE_BUF:
                try:
                    os.write(self._fd, frame + b"\n")
                    return
                except BlockingIOError:
                    pass
                except OSError:
                    self._is_broken = True
                    self._loop.call_soon_threadsafe(self._on_broken)
                    return
            parts = (frame + b"\n",) if len(frame) < _LARGE_FRAME else (frame, b"\n")
            self._queue.extend(parts)
            self._queued += len(frame) + 1
        self._loop.call_soon_threadsafe(self._arm)

    def close(self) -> None:
        """Close the pipe and drop queued frames."""
        with self._lock:
            fd, self._fd = self._fd, None
            self._queue.clear()
            self._queued = 0
            if fd is None:
                return
            if not self._loop.is_closed():
                self._loop.remove_writer(fd)
            os.close(fd)

    def drop(self) -> None:
        """Close the pipe in a forked child, without touching any lock."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def _arm(self) -> None:
        with self._lock:
            if self._fd is not None and self._queue:
                self._loop.add_writer(self._fd, self._write_queued)

    def _write_queued(self) -> None:
        with self._lock:
            if self._fd is None:
                return
            try:
                while self._queue:
                    part = self._queue[0]
                    written = os.write(self._fd, part)
                    self._queued -= written
                    if written < len(part):
                        self._queue[0] = memoryview(part)[written:]
                        return
                    self._queue.popleft()
            except BlockingIOError:
                return
            except OSError:
                self._is_broken = True
                self._queue.clear()
                self._queued = 0
                self._loop.call_soon(self._on_broken)
            self._loop.remove_writer(self._fd)


class LoopReader:
    """Reads a pipe on the loop (POSIX); an empty chunk is its end.

    Args:
        loop: The loop that reads.
        fd: Descriptor of the pipe.
        on_chunk: Called on the loop with each chunk.
        watched: Descriptor that the loop watches instead of the pipe.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, fd: int, on_chunk: Callable[[bytes], None], watched: int | None = None
    ) -> None:
        os.set_blocking(fd, False)
        self._loop = loop
        self._fd: int | None = fd
        self._on_chunk = on_chunk
        self._size = _SMALL_READ
        self._watched = fd if watched is None else watched
        loop.add_reader(self._watched, self._read)

    def close(self) -> None:
        """Stop reading and close the pipe."""
        self._close()

    def drop(self) -> None:
        """Close the pipe in a forked child."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def _read(self) -> None:
        if self._fd is None:
            return
        try:
            chunk = os.read(self._fd, self._size)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if not chunk:
            self._close()
        elif len(chunk) == self._size:
            self._widen(self._fd)
        self._on_chunk(chunk)

    def _close(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            if not self._loop.is_closed():
                self._loop.remove_reader(self._watched)
            os.close(fd)

    def _widen(self, fd: int) -> None:
        """Enlarge the pipe's buffer when the first large message arrives."""
        if self._size == _LARGE_READ:
            return
        self._size = _LARGE_READ
        if sys.platform == "linux":
            import fcntl

            with contextlib.suppress(OSError):  # the number of large pipes per user is limited
                fcntl.fcntl(fd, _F_SETPIPE_SZ, _LARGE_READ)


class ThreadWriter:
    """Writes to a pipe from its own thread (Windows). See `LoopWriter` for the arguments."""

    def __init__(self, loop: asyncio.AbstractEventLoop, fd: int, on_broken: Callable[[], None]) -> None:
        self._loop = loop
        self._on_broken = on_broken
        self._is_broken = False
        self._fd = fd
        self._closed = False
        self._queue: deque[bytes] = deque()
        self._queued = 0
        self._changed = threading.Condition()
        threading.Thread(target=self._run, name="ipymcp-writer", daemon=True).start()

    @property
    def queued(self) -> int:
        """Number of bytes accepted and not yet written."""
        return self._queued

    def send(self, frame: bytes) -> None:
        """Write a frame and a newline, from any thread, without waiting."""
        with self._changed:
            if self._closed:
                raise ConnectionLost("the connection is closed")
            if self._is_broken:
                return
            self._queue.append(frame + b"\n")
            self._queued += len(frame) + 1
            self._changed.notify()

    def drop(self) -> None:
        """Do nothing: Windows has no fork."""

    def close(self) -> None:
        """Have the thread close the pipe when it is not writing, and drop queued frames."""
        with self._changed:
            self._closed = True
            self._queue.clear()
            self._queued = 0
            self._changed.notify()

    def _run(self) -> None:
        while (frame := self._next_frame()) is not None:
            left = memoryview(frame)
            try:
                while left:
                    left = left[os.write(self._fd, left) :]
            except OSError:
                self._break()
            with self._changed:
                self._queued = max(0, self._queued - len(frame))
        os.close(self._fd)

    def _break(self) -> None:
        with self._changed:
            self._is_broken = True
            self._queue.clear()
            self._queued = 0
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._on_broken)

    def _next_frame(self) -> bytes | None:
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closed)
            return None if self._closed else self._queue.popleft()


class ThreadReader:
    """Reads a pipe in a thread and passes chunks to the loop, a few at a time (Windows); an empty chunk is its end."""

    def __init__(self, loop: asyncio.AbstractEventLoop, fd: int, on_chunk: Callable[[bytes], None]) -> None:
        self._loop = loop
        self._fd = fd
        self._on_chunk = on_chunk
        self._free_slots = threading.Semaphore(8)
        self._closed = False
        threading.Thread(target=self._run, name="ipymcp-reader", daemon=True).start()

    def drop(self) -> None:
        """Do nothing: Windows has no fork."""

    def close(self) -> None:
        """Stop passing chunks on; the thread closes the pipe when the child closes its end."""
        self._closed = True
        self._free_slots.release()

    def _run(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            while not self._closed:
                try:
                    chunk = os.read(self._fd, _SMALL_READ)
                except OSError:
                    chunk = b""
                self._free_slots.acquire()
                self._loop.call_soon_threadsafe(self._pass_on, chunk)
                if not chunk:
                    break
        os.close(self._fd)

    def _pass_on(self, chunk: bytes) -> None:
        self._free_slots.release()
        if not self._closed:
            self._on_chunk(chunk)


if sys.platform == "win32":
    Writer = ThreadWriter
    Reader = ThreadReader
else:
    Writer = LoopWriter
    Reader = LoopReader
