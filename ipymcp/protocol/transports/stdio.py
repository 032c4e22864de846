"""The stdio transport: a child process, one JSON message per line, standard error for the log.

A calling thread can lease the right to read before it sends, so that the loop does not see the response: waking the
loop and then the thread would double the time of a call. The loop watches the pipe through an `epoll`, which any thread
can silence meanwhile (Linux only).

Source: MCP 2025-11-25 transports (stdio); 2026-07-28 transports/stdio.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Protocol

from ipymcp.errors import ConnectionLost
from ipymcp.protocol.jsonrpc import excerpt, find_id
from ipymcp.protocol.transports.base import Transport, too_large
from ipymcp.protocol.transports.pipes import LineSplitter, LoopReader, Oversized, Reader, Writer
from ipymcp.protocol.transports.process import Grace, Launch, ServerProcess, end_descendants, escaped_descendants

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipymcp.protocol.transports.base import OutboundMessage, ReadLease, Receiver


CAN_LEASE_READS = hasattr(select, "epoll")
_LEASE_TIMEOUT = 0.0005
"""Seconds to wait for the lease while the loop passes on the chunk it has read, which may have woken the caller."""


class LeasedReader(LoopReader):
    """Reads a pipe on the loop, and lets other threads read it. See `LoopReader` for the arguments."""

    def __init__(self, loop: asyncio.AbstractEventLoop, fd: int, on_chunk: Callable[[bytes], None]) -> None:
        self._lease = threading.Lock()
        """Held while reading or closing."""
        self._watch = select.epoll()
        self._watch.register(fd, select.EPOLLIN)
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)
        super().__init__(loop, fd, on_chunk, watched=self._watch.fileno())

    def take(self) -> bool:
        """Acquire the lease, from any thread but the loop's; False if it is taken or the pipe is closed."""
        if not self._lease.acquire(timeout=_LEASE_TIMEOUT):
            return False
        if self._fd is None:
            self._lease.release()
            return False
        self._watch.modify(self._fd, 0)
        return True

    def give_back(self) -> None:
        """Let the loop read again."""
        if self._fd is not None:
            self._watch.modify(self._fd, select.EPOLLIN)
        self._lease.release()

    def read(self, on_chunk: Callable[[bytes], None], done: Callable[[], bool], seconds: float) -> None:
        """Read in the thread that holds the lease, until `done` or the time is up. The loop handles the pipe's end."""
        fd = self._fd
        end = time.monotonic() + seconds
        while fd is not None and not done():
            rest = end - time.monotonic()
            if rest <= 0 or not self._poll.poll(rest * 1000):
                return
            try:
                chunk = os.read(fd, self._size)
            except OSError:
                return
            if not chunk:
                return
            on_chunk(chunk)

    def close(self) -> None:
        """Stop reading and close the pipe, once it is not being read."""
        with self._lease:
            super().close()

    def drop(self) -> None:
        """Close the pipe in a forked child, without touching any lock."""
        super().drop()
        self._watch.close()

    def _read(self) -> None:
        if not self._lease.acquire(blocking=False):
            return  # the data stays in the pipe until the lease is returned
        try:
            super()._read()
        finally:
            self._lease.release()

    def _close(self) -> None:
        super()._close()
        self._watch.close()


_DRAIN_TIMEOUT = 0.5
"""Seconds to read the remaining output of a server that has ended; a grandchild may hold its pipes open."""
_STDERR_LINE = 1 << 16
_STDERR_SHOWN = 900
"""Bytes of a line of stderr that are logged."""
_LARGE = 1 << 22


class ProcessWatch(Protocol):
    """Tracks server processes, so that none outlives the kernel."""

    def starting(self) -> None:
        """A process is about to be started. Called on a worker thread."""
        ...

    def started(self, process: ServerProcess) -> None:
        """A process was started. Called on a worker thread."""
        ...

    def ended(self, process: ServerProcess) -> None:
        """A process and its group have ended. Called on the loop thread."""
        ...


class StdioTransport(Transport):
    """A server behind the pipes of a child process.

    Args:
        launch: The program to run.
        watch: Tracks the process.
        limit: Maximum length of a line in bytes; a longer one fails its call.
        grace: Time for the server to end.
    """

    uses_headers = False

    def __init__(self, launch: Launch, watch: ProcessWatch, *, limit: int, grace: Grace) -> None:
        self._launch = launch
        self._watch = watch
        self._grace = grace
        self._limit = limit
        self._lines = LineSplitter(limit)
        self._unfinished = 0
        """Number of bytes after the last line end, once the output has ended."""
        self._stderr_lines = LineSplitter(_STDERR_LINE)
        self._is_returned = False
        """Whether the last output to stderr ended with a carriage return."""
        self._spawning: asyncio.Future[ServerProcess] | None = None
        self._process: ServerProcess | None = None
        self._writer: Writer | None = None
        self._readers: list[Reader] = []
        self._lease: _PipeLease | None = None
        self._receiver: Receiver | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._input_broken = asyncio.Event()
        self._output_ended = asyncio.Event()
        self._stderr_ended = asyncio.Event()
        self._oversized_reported = False

    @property
    def exit_code(self) -> int | None:
        """Exit code of the process once it has ended; negative for a signal."""
        return self._process.exit_code if self._process else None

    @property
    def pid(self) -> int | None:
        """Process id of the server."""
        return self._process.pid if self._process else None

    @property
    def queued(self) -> int:
        """Number of bytes accepted by `send` and not yet taken by the server."""
        return self._writer.queued if self._writer else 0

    @property
    def unfinished(self) -> int:
        """Number of bytes that the server has written since its last line end."""
        return self._lines.unfinished or self._unfinished

    async def open(self, receiver: Receiver) -> None:
        """Start the process."""
        self._receiver = receiver
        self._spawning = asyncio.get_running_loop().run_in_executor(None, self._spawn)
        self._adopt(await asyncio.shield(self._spawning))

    def _adopt(self, process: ServerProcess) -> None:
        """Take over a process that was started: its pipes are read and written, and its end is handled."""
        loop = asyncio.get_running_loop()
        self._process = process
        stdin, stdout, stderr = process.detach_pipes()
        self._writer = Writer(loop, stdin, self._input_broken.set)
        if CAN_LEASE_READS:
            output = LeasedReader(loop, stdout, self._on_output)
            self._lease = _PipeLease(output, self._lines, partial(loop.call_soon_threadsafe, self._on_line))
        else:
            output = Reader(loop, stdout, self._on_output)
        self._readers = [output, Reader(loop, stderr, self._on_stderr)]
        self._supervisor = loop.create_task(self._supervise(process), name=f"ipymcp-process-{process.pid}")

    def send(self, message: OutboundMessage) -> None:
        """Send a message from any thread without waiting."""
        writer = self._writer
        if writer is None:
            raise ConnectionLost("the connection is closed")
        writer.send(message.frame)

    def lease_reads(self) -> ReadLease | None:
        """Lease the right to read, from any thread but the loop's."""
        lease = self._lease
        return lease if lease is not None and lease.take() else None

    def abort(self, identifier: int | str | float) -> bool:
        """Return False: one stream carries all responses, so a cancel notification is needed."""
        return False

    async def aclose(self) -> None:
        """End the process, by force if necessary; this continues if the caller is cancelled."""
        self._closing.set()
        if self._ending is None:
            self._ending = asyncio.get_running_loop().create_task(self._wait_for_end(), name="ipymcp-end")
        await asyncio.shield(self._ending)

    async def _wait_for_end(self) -> None:
        if self._spawning is not None and self._supervisor is None:  # the start was cancelled, or failed
            await asyncio.wait({self._spawning})
            if self._spawning.exception() is None and self._process is None:
                self._adopt(self._spawning.result())
        if self._supervisor is not None:
            await self._supervisor

    def close_in_fork(self) -> None:
        """Release the pipes in a forked child, so that the server sees its input end."""
        for end in (self._writer, *self._readers):
            if end is not None:
                end.drop()

    def close_input(self) -> None:
        """Close the server's input without waiting, at the interpreter's exit."""
        if self._writer is not None:
            self._writer.close()

    def _spawn(self) -> ServerProcess:
        self._watch.starting()
        process = ServerProcess(self._launch)
        self._watch.started(process)
        return process

    async def _supervise(self, process: ServerProcess) -> None:
        """Watch the process until it ends, for whatever reason."""
        ended = process.watch(asyncio.get_running_loop())
        events = (self._closing, self._output_ended, self._input_broken)
        waits = [asyncio.ensure_future(event.wait()) for event in events]
        await asyncio.wait({ended, *waits}, return_when=asyncio.FIRST_COMPLETED)
        if self._closing.is_set():
            await self._end(process, ended)
        else:
            rest = [asyncio.ensure_future(event.wait()) for event in (self._output_ended, self._stderr_ended)]
            await asyncio.wait({ended, *rest}, timeout=_DRAIN_TIMEOUT)
            waits += rest
            exit_code = process.reap() if ended.done() else None
            if self._receiver is not None and not self._closing.is_set():
                self._receiver.lost(
                    _exit_message(exit_code, ended.done(), "output" if self._output_ended.is_set() else "input")
                )
            await self._end(process, ended)
        for wait in waits:
            wait.cancel()
        self._watch.ended(process)

    async def _end(self, process: ServerProcess, ended: asyncio.Future[None]) -> None:
        loop = asyncio.get_running_loop()
        escaped = [] if ended.done() else await loop.run_in_executor(None, escaped_descendants, [process.pid])
        if self._writer is not None:
            self._writer.close()
        await process.end_group(ended, self._grace)
        if escaped:
            await loop.run_in_executor(None, end_descendants, escaped, 1.0)
        for reader in self._readers:
            reader.close()

    def _on_output(self, chunk: bytes) -> None:
        if not chunk:
            self._unfinished = self._lines.unfinished
            line = self._lines.finish()
            if line and self._receiver is not None:
                if line.rstrip().endswith((b"}", b"]")):
                    self._receiver.message(line, None)
                else:  # the server's death cut it off
                    self._receiver.protocol_warning(f"its output ends within a line: {excerpt(line)}")
            self._output_ended.set()
            return
        loop = asyncio.get_running_loop()
        later = False
        for line in self._lines.feed(chunk):
            # A large message is decoded in its own iteration of the loop, and later messages wait for it.
            later = later or _is_large(line)
            if later:
                loop.call_soon(self._on_line, line)
            else:
                self._on_line(line)

    def _on_line(self, line: bytes | bytearray | Oversized) -> None:
        assert self._receiver is not None
        if not isinstance(line, Oversized):
            self._receiver.message(line, None)
            return
        # The call of an oversized response fails as soon as its id is found; the rest is discarded.
        if not self._oversized_reported:
            identifier = find_id(line.head, line.tail if line.done else b"")
            if identifier is not None:
                self._oversized_reported = True
                self._receiver.undelivered(identifier, too_large(self._limit))
        if line.done:
            text = f"a line of {line.size:,} bytes was discarded; the limit is {self._limit:,}"
            self._receiver.protocol_warning(text)
            self._oversized_reported = False

    def _on_stderr(self, chunk: bytes) -> None:
        if chunk:
            lines = self._stderr_lines.feed(self._after_returns(chunk))
        else:
            rest = self._stderr_lines.finish(keeps_end=True)
            lines = [rest] if rest else []
        whole = [
            line.head + line.tail if isinstance(line, Oversized) else line
            for line in lines
            if not isinstance(line, Oversized) or line.done
        ]
        if whole and self._receiver is not None:
            text = b"\n".join(map(_both_ends, whole))
            self._receiver.stderr(text.decode("utf-8", "replace").split("\n"))
        if not chunk:
            self._stderr_ended.set()

    def _after_returns(self, chunk: bytes) -> bytes:
        """Drop what a carriage return overwrites, as a terminal does: of a progress bar the last state counts."""
        if self._is_returned and not chunk.startswith(b"\n"):
            self._stderr_lines.restart()
        self._is_returned = chunk.endswith(b"\r")
        if b"\r" not in chunk:
            return chunk
        parts = chunk.split(b"\n")
        for index, part in enumerate(parts):
            _, is_overwritten, last = part.rstrip(b"\r").rpartition(b"\r")
            if is_overwritten and not index:
                self._stderr_lines.restart()
            parts[index] = last
        return b"\n".join(parts)


def _both_ends(line: bytes | bytearray) -> bytes | bytearray:
    """Shorten a long line in its middle: the reason for a failure often is at its end."""
    return line if len(line) <= _STDERR_SHOWN else line[: _STDERR_SHOWN // 2] + b" ... " + line[-_STDERR_SHOWN // 2 :]


class _PipeLease:
    """The right to read the server's output in the thread that waits for it.

    Args:
        reader: The reader that grants the lease.
        lines: Splits the output; used by the thread that holds the lease.
        call_on_loop: Has a line handled on the loop, in order, because the reading thread does not handle it.
    """

    def __init__(
        self,
        reader: LeasedReader,
        lines: LineSplitter,
        call_on_loop: Callable[[bytes | bytearray | Oversized], object],
    ) -> None:
        self._reader = reader
        self._lines = lines
        self._call_on_loop = call_on_loop
        self.take = reader.take
        self.give_back = reader.give_back

    def read(self, receive: Callable[[bytes | bytearray], bool], done: Callable[[], bool], seconds: float) -> None:
        """Read until `done` or the time is up."""
        is_handled_here = True

        def on_chunk(chunk: bytes) -> None:
            nonlocal is_handled_here
            for line in self._lines.feed(chunk):
                is_handled_here = (
                    is_handled_here and not isinstance(line, Oversized) and not _is_large(line) and receive(line)
                )
                if not is_handled_here:
                    self._call_on_loop(line)

        self._reader.read(on_chunk, done, seconds)


def _is_large(line: bytes | bytearray | Oversized) -> bool:
    return not isinstance(line, Oversized) and len(line) > _LARGE


def _exit_message(exit_code: int | None, ended: bool, closed: str) -> str:
    if not ended:
        return f"the server closed its {closed}"
    if exit_code is None or exit_code >= 0:
        return f"the server exited with code {exit_code}"
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:
        name = f"signal {-exit_code}"
    return f"the server was ended by {name}"
