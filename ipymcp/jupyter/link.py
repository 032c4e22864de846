"""A connection to the socket of one kernel: lines of JSON both ways, each waited for, none piling up."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from ipymcp.jupyter.kernels import Obstacle
from ipymcp.protocol.jsontypes import is_object
from ipymcp.state.meeting import VERSION, is_alive

if TYPE_CHECKING:
    from collections.abc import Generator

    from ipymcp.state.meeting import Announced

__all__ = ["Link", "asked"]

_CHUNK: Final = 65_536
_LONGEST_LINE: Final = 64_000_000
_PATIENCE: Final = 2.0
"""Seconds for what is asked of a kernel in passing."""


class Link:
    """The connection. What is not read here stays with the kernel: at most two chunks wait in this process.

    Args:
        kernel: Whose it is.
        reader: What comes.
        writer: What goes.
    """

    def __init__(self, kernel: Announced, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._kernel = kernel
        self._reader = reader
        self._writer = writer
        self._whole: deque[bytes] = deque()
        self._begun: list[bytes] = []

    @classmethod
    async def open(cls, kernel: Announced) -> Link:
        """Connect.

        Raises:
            Obstacle: Nobody listens there, or another than the kernel does.
        """
        try:
            reader, writer = await asyncio.open_unix_connection(kernel.socket, limit=_CHUNK)
        except OSError:
            raise _gone(kernel) from None
        listener = _listener(writer.get_extra_info("socket"))
        if listener not in (None, kernel.pid):
            writer.close()
            raise Obstacle("foreign", "another process serves the kernel's socket", "restart the kernel")
        return cls(kernel, reader, writer)

    async def send(self, line: bytes) -> None:
        """Send a line; wait until the kernel has taken most of what was sent. Raises OSError where it is gone."""
        self._writer.write(line + b"\n")
        await self._writer.drain()

    async def line(self) -> bytes:
        """The next line, with its end.

        Raises:
            Obstacle: There will be none.
        """
        while not self._whole:
            try:
                data = await self._reader.read(_CHUNK)
            except OSError:
                data = b""
            if not data or sum(map(len, self._begun)) > _LONGEST_LINE:
                raise _gone(self._kernel)
            *ends, rest = data.split(b"\n")
            for end in ends:
                self._whole.append(b"".join([*self._begun, end]))
                self._begun.clear()
            if rest:
                self._begun.append(rest)
        return self._whole.popleft()

    def close(self) -> None:
        """Let go of it."""
        self._writer.transport.abort()


async def asked(kernel: Announced, message: dict[str, Any], kind: str) -> dict[str, Any]:
    """Say something to a kernel in passing, and give its first message of a kind.

    Raises:
        Obstacle: It does not answer.
    """
    link = await Link.open(kernel)
    with _closed(link):
        try:
            async with asyncio.timeout(_PATIENCE):
                await link.send(json.dumps({"version": VERSION, **message}).encode())
                while True:
                    answer = json.loads(await link.line())
                    if is_object(answer) and answer.get("kind") == kind:
                        return answer
        except TimeoutError:
            raise Obstacle("silent", "the kernel does not answer", "it may be busy: try again") from None
        except (OSError, ValueError):
            raise _gone(kernel) from None


@contextlib.contextmanager
def _closed(link: Link) -> Generator[None]:
    try:
        yield
    finally:
        link.close()


def _gone(kernel: Announced) -> Obstacle:
    if is_alive(kernel):
        return Obstacle("left", "the kernel has closed its socket", "%load_ext ipymcp")
    return Obstacle("ended", "the kernel has ended", "restart it")


def _listener(connected: socket.socket) -> int | None:
    """The process that made the socket; None where the system does not say."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return None
    with contextlib.suppress(OSError):
        pid, _, _ = struct.unpack("3i", connected.getsockopt(socket.SOL_SOCKET, option, 12))
        return pid or None
    return None
