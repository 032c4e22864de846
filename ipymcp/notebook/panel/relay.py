"""The socket by which the Jupyter server brings JupyterLab's sidebar to this kernel.

It is served by the background loop, and so answers while a cell blocks the kernel. One JSON message a line, both ways.
Nothing but the socket is made before the first view comes.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipymcp.notebook.panel.meeting import Meeting
    from ipymcp.notebook.panel.messages import Message
    from ipymcp.notebook.panel.panel import Panel
    from ipymcp.notebook.panel.view import View
    from ipymcp.runtime.host import Host
    from ipymcp.runtime.redirects import Redirects

__all__ = ["Relay"]

_LONGEST_LINE = 8_000_000
_MOST_VIEWS = 32
_LAST_WORDS = 0.1
"""Seconds in which it may read why it is let go."""
_PATIENCE = 5.0
"""Seconds within which a view must say hello."""


class Relay:
    """Serves views over a socket, where the system has such sockets and Jupyter gave the kernel a connection file.

    Args:
        panel: Gives the notebook's panel.
        host: Whose background loop serves it.
    """

    def __init__(self, panel: Callable[[], Panel], host: Host) -> None:
        self._panel = panel
        self._host = host
        self.is_started = False
        """Whether it serves, or cannot; not any more once the background loop was stopped."""
        self._meeting: Meeting | None = None
        self._count = 0

    def start(self) -> None:
        """Begin to serve, soon."""
        self.is_started = True
        if hasattr(asyncio, "start_unix_server"):
            atexit.register(self.close)
            self._host.loop.call(lambda: self._host.loop.spawn(self._serve(), "ipymcp-relay"))

    def close(self) -> None:
        """Nobody finds it any more; from any thread."""
        atexit.unregister(self.close)
        meeting, self._meeting = self._meeting, None
        if meeting is not None:
            meeting.end()

    async def _serve(self) -> None:
        try:
            self._meeting = meeting = await asyncio.to_thread(_arranged)
            if meeting is None:
                return
            server = await asyncio.start_unix_server(self._greet, sock=meeting.socket, limit=_LONGEST_LINE)
            await asyncio.to_thread(meeting.announce)
        except OSError as error:
            self._host.notices.add(f"the sidebar cannot reach this kernel: {error}")
            return
        async with server:
            try:
                await server.serve_forever()
            finally:
                self.close()
                self.is_started = False

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._count += 1
        try:
            if self._count <= _MOST_VIEWS:
                await _Connection(self._panel(), self._host.redirects, reader, writer).serve()
        except (OSError, TimeoutError):
            pass  # it is gone, or never spoke
        finally:
            self._count -= 1
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


class _Connection:
    """One view's carrier."""

    def __init__(
        self, panel: Panel, redirects: Redirects, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._panel = panel
        self._redirects = redirects
        self._reader = reader
        self._writer = writer

    async def serve(self) -> None:
        """Hear it until it goes."""
        view = self._panel.attach(self)
        try:
            async with asyncio.timeout(_PATIENCE):
                while not view.is_greeted and await self._hear(view):
                    await asyncio.sleep(0)  # what was heard is handled in its turn
            while await self._hear(view):
                pass
        finally:
            self._panel.detach(view)

    async def _hear(self, view: View) -> bool:
        """One line; False at the end."""
        try:
            line = await self._reader.readline()
        except ValueError:  # too long: what follows cannot be told apart
            view.refuse(f"a message is over {_LONGEST_LINE:,} bytes")
            await asyncio.sleep(_LAST_WORDS)
            return False
        if not line.endswith(b"\n"):
            return False
        message = _decoded(line)
        if (answer := self._redirects.heard(message)) is not None:  # the server's own word, not the view's
            self._writer.write(json.dumps(answer).encode() + b"\n")
        else:
            self._panel.receive(view, message)
        return True

    async def carry(self, message: Message, line: bytes) -> None:
        """Send a line, and wait until the other side has taken most of it."""
        self._writer.write(line + b"\n")
        await self._writer.drain()

    def serves(self, *, blocked: bool, running: bool) -> bool:
        """Always."""
        return True

    def left(self) -> None:
        """The panel has let go of it."""
        if self._writer.transport.get_write_buffer_size():  # it does not read: closing would wait for it
            self._writer.transport.abort()
        else:
            self._writer.close()


def _decoded(line: bytes) -> Any:
    """The message; None for what is no JSON."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _arranged() -> Meeting | None:
    """Where to serve; None where Jupyter did not start this kernel."""
    from ipymcp.notebook.panel.meeting import arrange

    try:
        from ipykernel.connect import get_connection_file

        connection_file = get_connection_file()
    except (ImportError, RuntimeError):
        return None
    return arrange(connection_file)
