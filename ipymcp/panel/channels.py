"""Channels between the kernel and views: comms, and the socket that the Jupyter server relays.

Messages arrive on a thread of the kernel's, and are handed to the background loop; messages to the view leave from
there. A comm takes whatever it is given, and keeps it wherever the page does not read. So the view is asked, now and
then, how far it has read; while it owes too much it is sent nothing.

It is served by the background loop, and so answers while a cell blocks the kernel. One JSON message a line, both ways.
Nothing but the socket is made before the first view comes.

What that file says, and who may believe it, stands in `state/meeting.py`: the server reads it.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import os
import shutil
import socket
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ipykernel._version import version_info
from msgspec import Struct

from ipymcp.files import PRIVATE, make_folder, write_file
from ipymcp.panel.messages import is_hello
from ipymcp.protocol.types import is_object
from ipymcp.storage.kernel_socket import PREFIX, VERSION, file_of, here, sweep
from ipymcp.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ipymcp.panel.messages import Message
    from ipymcp.panel.panel import Panel, View
    from ipymcp.runtime.host import Host
    from ipymcp.runtime.oauth_redirects import Redirects


_MARK_EVERY = 250_000
"""Bytes after which a view is asked how far it has read."""
_MAX_UNREAD = 2_000_000
"""Bytes that may be on their way to one view."""
_SERVES_WHILE_AWAITING = (7, 4)
"""The ipykernel from which on comm messages are served while a cell awaits."""


class CommChannel:
    """Carries one view's messages.

    Args:
        panel: The notebook's.
        comm: Gives the comm; None once it is closed.
        tell: Sends a message over it.
    """

    def __init__(self, panel: Panel, comm: Callable[[], Any], tell: Callable[[Message], None]) -> None:
        self._panel = panel
        self._comm = comm
        self._tell = tell
        self._view: View | None = None
        self._is_on_subshell = self._has_control = False
        self._sent = self._marked = self._read = 0
        self._has_room = asyncio.Event()
        if hasattr(comm(), "_reply_subshell_for"):
            # Else a click would wait for the main shell, where we last published, and so for the cell that runs there.
            comm()._reply_subshell_for = _own_shell

    # -- as a carrier -------------------------------------------------------------------------------------------------

    async def carry(self, message: Message, line: bytes) -> None:
        """Send a message, which the kernel takes at once; wait until the view has read most of what was sent."""
        if self._comm() is None:
            raise ConnectionError("the comm is closed")
        self._tell(message)
        self._sent += len(line)
        if self._sent - self._marked > _MARK_EVERY:
            self._marked = self._sent
            self._tell({"kind": "mark", "sent": self._sent})
        while self._sent - self._read > _MAX_UNREAD:
            self._has_room = asyncio.Event()  # the loop may be another than before
            await self._has_room.wait()

    def serves(self, *, blocked: bool, running: bool) -> bool:
        """Whether answers come while a cell runs: by the control channel, on a subshell, from 7.4 on in an await."""
        return (
            self._has_control
            or self._is_on_subshell
            or not running
            or (not blocked and version_info[:2] >= _SERVES_WHILE_AWAITING)
        )

    def left(self) -> None:
        """The panel has let go of it. It may say hello again."""

    def _take(self, content: object) -> None:
        """The view says something, on the background loop: its messages come on several threads."""
        if is_object(content) and content.get("kind") == "read":
            return self._was_read(content)
        if is_object(content) and is_hello(content):
            self._has_control = content.get("control") is True and self._panel.context.has_control
            self._begins()
        if self._view is None:
            self._view = self._panel.attach(self)
        return self._panel.receive(self._view, content)

    def _was_read(self, message: Message) -> None:
        """It has read so many bytes of what was sent."""
        count = message.get("sent")
        if isinstance(count, int):
            self._read = max(self._read, min(count, self._sent))
            self._has_room.set()

    def _begins(self) -> None:
        """It begins anew: what was sent before is read, or lost."""
        self._read = self._sent
        self._has_room.set()

    def _go(self) -> None:
        if self._view is not None:
            self._panel.detach(self._view)

    # -- in the kernel's threads --------------------------------------------------------------------------------------

    def heard(self, content: object) -> None:
        """The view says something."""
        if self._panel.is_closed:
            return
        self._is_on_subshell = threading.current_thread() is not threading.main_thread()
        self._panel.host.loop.call(self._take, content)

    def gone(self) -> None:
        """The view is gone."""
        if self._panel.host.loop.is_running:
            self._panel.host.loop.call(self._go)


def opened(panel: Panel, comm: Any) -> None:
    """A page has opened a comm for a view of the whole panel."""
    is_open = True
    carrier = CommChannel(panel, lambda: comm if is_open else None, comm.send)

    def closed(_: object) -> None:
        nonlocal is_open
        is_open = False
        carrier.gone()

    def heard(message: dict[str, Any]) -> None:
        carrier.heard(message["content"]["data"])

    comm.on_msg(heard)
    comm.on_close(closed)


def _own_shell(_: object, default: object) -> object:
    return default


_MAX_LINE = 8_000_000
_MAX_VIEWS = 32
_LAST_WORDS = 0.1
"""Seconds in which it may read why it is let go."""
_TIMEOUT = 5.0
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
            server = await asyncio.start_unix_server(self._greet, sock=meeting.socket, limit=_MAX_LINE)
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
            if self._count <= _MAX_VIEWS:
                await _RelayConnection(self._panel(), self._host.redirects, reader, writer).serve()
        except (OSError, TimeoutError):
            pass  # it is gone, or never spoke
        finally:
            self._count -= 1
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


class _RelayConnection:
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
            async with asyncio.timeout(_TIMEOUT):
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
            view.refuse(f"a message is over {_MAX_LINE:,} bytes")
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
    try:
        from ipykernel.connect import get_connection_file

        connection_file = get_connection_file()
    except (ImportError, RuntimeError):
        return None
    return arrange(connection_file)


class Meeting(Struct, frozen=True):
    """What was made.

    Attributes:
        folder: Private; the socket lies in it.
        socket: Bound, and not yet listened at.
        file: Names it.
        pid: Of the process that serves it; one that was forked from it takes nothing away.
    """

    folder: Path
    socket: socket.socket
    file: Path
    pid: int

    def announce(self) -> None:
        """Write the file: the socket is served."""
        kernel = {"pid": self.pid, "started": time.time(), "socket": self.socket.getsockname(), "machine": here()}
        text = json.dumps({**kernel, "version": VERSION, "ipymcp": __version__})
        write_file(self.file, text, PRIVATE, durable=False)

    def end(self) -> None:
        """Take all of it away."""
        if self.pid == os.getpid():
            self.file.unlink(missing_ok=True)
            shutil.rmtree(self.folder, ignore_errors=True)


def arrange(connection_file: str) -> Meeting:
    """Make a folder for a kernel's socket.

    Raises:
        OSError: There is no place for one.
    """
    from jupyter_core.paths import jupyter_runtime_dir

    runtime = Path(jupyter_runtime_dir())
    make_folder(runtime)
    sweep(runtime)
    for place in _places():
        with contextlib.suppress(OSError):  # its path is too long, it takes no sockets, or nothing at all
            return _made(place, file_of(runtime, connection_file))
    raise OSError("no folder was found that takes a socket")


def _made(place: str, file: Path) -> Meeting:
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))  # 0700
    listener = socket.socket(socket.AF_UNIX)
    try:
        path = str(folder / "socket")
        listener.bind(path)
        os.chmod(path, 0o600)
    except BaseException:
        listener.close()
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return Meeting(folder, listener, file, os.getpid())


def _places() -> Iterator[str]:
    """Where a socket may lie; never a network's drive, which Jupyter's runtime folder may be on."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.access(runtime, os.W_OK | os.X_OK):
        yield runtime
    yield tempfile.gettempdir()
    if os.path.isdir("/tmp"):
        yield "/tmp"
