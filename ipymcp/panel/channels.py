"""Channels between the kernel and views: comms, and the socket that the Jupyter server relays.

Messages arrive on a thread of the kernel and are passed to the background loop, which also sends messages to views. A
comm has no flow control: it buffers everything that the page does not read. The kernel therefore requests the view's
read position at intervals, and sends nothing while too much is unread.

The background loop serves the socket, so that it works while a cell blocks the kernel. Both sides send one JSON message
per line. Until the first view connects, only the socket exists; `ipymcp.storage.kernel_socket` describes the file that
announces the socket to the Jupyter server.
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

import msgspec
from ipykernel._version import version_info
from msgspec import Struct

from ipymcp.files import PRIVATE, make_folder, write_file
from ipymcp.masking import mask
from ipymcp.panel.messages import Malformed, Mark
from ipymcp.protocol.types import is_object
from ipymcp.storage.kernel_socket import PREFIX, VERSION, file_of, machine_id, sweep
from ipymcp.text import visible
from ipymcp.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ipymcp.panel.messages import ViewHello
    from ipymcp.panel.panel import Panel, View
    from ipymcp.runtime.host import Host
    from ipymcp.runtime.oauth_redirects import Redirects


_MARK_BYTES = 250_000
"""Bytes between two requests for the view's read position."""
_MAX_UNREAD = 2_000_000
"""Maximum unread bytes of one view."""
_FIRST_WITH_AWAITING = (7, 4)
"""The first ipykernel that handles comm messages while a cell awaits."""


class CommChannel:
    """A `Channel` over a comm.

    Args:
        panel: The notebook's panel.
        comm: Returns the comm; None once it is closed.
        send: Sends a message over the comm.
    """

    def __init__(self, panel: Panel, comm: Callable[[], Any], send: Callable[[dict[str, Any]], None]) -> None:
        self._panel = panel
        self._comm = comm
        self._send = send
        self._view: View | None = None
        self._is_on_subshell = self._has_control = False
        self._sent = self._marked = self._read = 0
        self._has_room = asyncio.Event()
        if hasattr(comm(), "_reply_subshell_for"):
            # Otherwise ipykernel handles a message in the shell that published last, which is the main shell, so that
            # a click would wait for the cell that runs there.
            comm()._reply_subshell_for = _own_shell

    # -- on the background loop ---------------------------------------------------------------------------------------

    async def send_line(self, line: bytes) -> None:
        """Send a message at once; wait until the view has read most of what was sent."""
        if self._comm() is None:
            raise ConnectionError("the comm is closed")
        self._send(msgspec.json.decode(line))
        self._sent += len(line)
        if self._sent - self._marked > _MARK_BYTES:
            self._marked = self._sent
            self._send(msgspec.to_builtins(Mark(sent=self._sent)))
        while self._sent - self._read > _MAX_UNREAD:
            self._has_room = asyncio.Event()  # the loop may have been replaced
            await self._has_room.wait()

    def delivers_answers(self, *, blocked: bool, running: bool) -> bool:
        """Whether answers arrive: over the control channel, on a subshell, or while a cell awaits."""
        return (
            self._has_control
            or self._is_on_subshell
            or not running
            or (not blocked and version_info[:2] >= _FIRST_WITH_AWAITING)
        )

    def detach(self) -> None:
        """Do nothing: the view may send a hello again."""

    def acknowledge(self, count: int) -> None:
        """Let `send_line` continue if the view has read most of what was sent."""
        self._read = max(self._read, min(count, self._sent))
        self._has_room.set()

    def restart(self, hello: ViewHello) -> None:
        """Treat everything sent so far as read or lost."""
        self._has_control = hello.control and self._panel.context.has_control
        self.acknowledge(self._sent)

    def _handle(self, content: object) -> None:
        """Handle a message; on the background loop, since messages arrive on several threads."""
        if self._view is None:
            self._view = self._panel.attach(self)
        self._panel.receive(self._view, content)

    def _detach_view(self) -> None:
        if self._view is not None:
            self._panel.detach(self._view)

    # -- in the kernel's threads --------------------------------------------------------------------------------------

    def receive(self, content: object) -> None:
        """Handle a message from the view."""
        if self._panel.is_closed:
            return
        self._is_on_subshell = threading.current_thread() is not threading.main_thread()
        self._panel.host.loop.call(self._handle, content)

    def close(self) -> None:
        """Detach the view because its comm is closed."""
        if self._panel.host.loop.is_running:
            self._panel.host.loop.call(self._detach_view)


def serve_comm(panel: Panel, comm: Any) -> None:
    """Serve a view of the whole panel over a comm that a page has opened."""
    is_open = True
    channel = CommChannel(panel, lambda: comm if is_open else None, comm.send)

    def on_close(_: object) -> None:
        nonlocal is_open
        is_open = False
        channel.close()

    def on_message(message: dict[str, Any]) -> None:
        channel.receive(message["content"]["data"])

    comm.on_msg(on_message)
    comm.on_close(on_close)


def _own_shell(_: object, default: object) -> object:
    return default


_MAX_LINE = 8_000_000
_MAX_VIEWS = 32
_CLOSE_DELAY = 0.1
"""Seconds for a view to read the reason before it is disconnected."""
_HELLO_TIMEOUT = 5.0
"""Seconds for the hello of a new view."""


class Relay:
    """Serves views over a Unix socket, if the system has Unix sockets and the kernel has a connection file.

    Args:
        panel: Returns the notebook's panel.
        host: The host whose background loop serves the socket.
    """

    def __init__(self, panel: Callable[[], Panel], host: Host) -> None:
        self._panel = panel
        self._host = host
        self.is_started = False
        """Whether serving has started or is impossible; False again after the background loop has stopped."""
        self._socket: KernelSocket | None = None
        self._serving: asyncio.Task[None] | None = None
        self._count = 0

    def start(self) -> None:
        """Schedule serving on the background loop."""
        self.is_started = True
        if hasattr(asyncio, "start_unix_server"):
            atexit.register(self.close)
            self._host.loop.call(self._spawn)

    def restart(self) -> None:
        """Serve on another socket, in case the present one was removed; views that are connected stay so."""
        if self._socket is not None:
            self.close()
            self.start()

    def _spawn(self) -> None:
        if self._serving is not None:
            self._serving.cancel()
        self._serving = self._host.loop.spawn(self._serve(), "ipymcp-relay")

    def close(self) -> None:
        """Remove the socket and its file; thread-safe."""
        atexit.unregister(self.close)
        kernel_socket, self._socket = self._socket, None
        if kernel_socket is not None:
            kernel_socket.end()

    async def _serve(self) -> None:
        try:
            self._socket = kernel_socket = await asyncio.to_thread(_create_socket)
            if kernel_socket is None:
                return
            server = await asyncio.start_unix_server(self._serve_view, sock=kernel_socket.socket, limit=_MAX_LINE)
            await asyncio.to_thread(kernel_socket.announce)
        except OSError as error:
            self._host.notices.add(f"the sidebar cannot reach this kernel: {error}")
            return
        async with server:
            try:
                await server.serve_forever()
            finally:
                if self._socket is kernel_socket:  # it has not been replaced
                    self.close()
                    self.is_started = False

    async def _serve_view(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._count += 1
        try:
            if self._count <= _MAX_VIEWS:
                await _RelayConnection(self._panel(), self._host.redirects, reader, writer).serve()
        except (OSError, TimeoutError):
            pass  # the view has disconnected, or did not send a hello
        finally:
            self._count -= 1
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


class _RelayConnection:
    """A `Channel` over a connection of the socket."""

    def __init__(
        self, panel: Panel, redirects: Redirects, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._panel = panel
        self._redirects = redirects
        self._reader = reader
        self._writer = writer

    async def serve(self) -> None:
        """Serve the view until it disconnects."""
        view = self._panel.attach(self)
        try:
            async with asyncio.timeout(_HELLO_TIMEOUT):
                while not view.is_greeted and await self._read_message(view):
                    await asyncio.sleep(0)  # let the loop handle the message
            while await self._read_message(view):
                pass
        finally:
            self._panel.detach(view)

    async def _read_message(self, view: View) -> bool:
        """Read and handle one line; False at the end."""
        try:
            line = await self._reader.readline()
        except ValueError:  # the line is too long, and its end cannot be found
            view.refuse(Malformed(f"a message is over {_MAX_LINE:,} bytes"))
            await asyncio.sleep(_CLOSE_DELAY)
            return False
        if not line.endswith(b"\n"):
            return False
        message = _decode(line)
        answer = self._redirects.reply_to(message) or _status(message, self._panel.host)
        if answer is not None:  # from the Jupyter server, not from the view
            self._writer.write(json.dumps(answer).encode() + b"\n")
        else:
            self._panel.receive(view, message)
        return True

    async def send_line(self, line: bytes) -> None:
        """Send a line, and wait until the peer has read most of what was sent."""
        self._writer.write(line + b"\n")
        await self._writer.drain()

    def restart(self, hello: ViewHello) -> None:
        """Do nothing: a socket has flow control."""

    def acknowledge(self, count: int) -> None:
        """Do nothing: a socket has flow control."""

    def delivers_answers(self, *, blocked: bool, running: bool) -> bool:
        """Return True: the socket does not depend on the main thread."""
        return True

    def detach(self) -> None:
        """Close the connection."""
        if self._writer.transport.get_write_buffer_size():  # the view does not read: closing would wait for it
            self._writer.transport.abort()
        else:
            self._writer.close()


def _status(message: object, host: Host) -> dict[str, Any] | None:
    """The reply to the Jupyter server's question for the servers; None for another message."""
    if not is_object(message) or message.get("kind") != "status":
        return None
    servers = [
        {
            "name": visible(session.name),
            "state": session.state.value,
            "protocol": session.protocol_version,
            "tools": len(session.catalog.tools),
            "calls": session.calls,
            "last_error": mask(visible(session.last_error)),
        }
        for session in host.sessions.values()
    ]
    return {"kind": "status", "servers": servers}


def _decode(line: bytes) -> Any:
    """Decode a message; None if it is not JSON."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _create_socket() -> KernelSocket | None:
    """Create the socket; None if Jupyter did not start this kernel."""
    try:
        from ipykernel.connect import get_connection_file

        connection_file = get_connection_file()
    except (ImportError, RuntimeError):
        return None
    return create_socket(connection_file)


class KernelSocket(Struct, frozen=True):
    """A kernel's socket and the file that announces it.

    Attributes:
        folder: The private folder of the socket.
        socket: The bound socket, which does not listen yet.
        file: The file that announces the socket.
        pid: The process that serves the socket; forked processes must not remove it.
    """

    folder: Path
    socket: socket.socket
    file: Path
    pid: int

    def announce(self) -> None:
        """Write the file, once the socket is served."""
        kernel = {"pid": self.pid, "started": time.time(), "socket": self.socket.getsockname(), "machine": machine_id()}
        text = json.dumps({**kernel, "version": VERSION, "ipymcp": __version__})
        write_file(self.file, text, PRIVATE, durable=False)

    def end(self) -> None:
        """Remove the socket, its folder and its file."""
        if self.pid == os.getpid():
            self.file.unlink(missing_ok=True)
            shutil.rmtree(self.folder, ignore_errors=True)


def create_socket(connection_file: str) -> KernelSocket:
    """Create a kernel's socket in a private folder.

    Raises:
        OSError: No folder accepts a socket.
    """
    from jupyter_core.paths import jupyter_runtime_dir

    runtime = Path(jupyter_runtime_dir())
    make_folder(runtime)
    sweep(runtime)
    for place in _folders():
        with contextlib.suppress(OSError):  # the path is too long, or the file system has no sockets
            return _create_in(place, file_of(runtime, connection_file))
    raise OSError("no folder accepts a socket")


def _create_in(place: str, file: Path) -> KernelSocket:
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
    return KernelSocket(folder, listener, file, os.getpid())


def _folders() -> Iterator[str]:
    """Folders for a socket; not Jupyter's runtime folder, which may be on a network drive."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.access(runtime, os.W_OK | os.X_OK):
        yield runtime
    yield tempfile.gettempdir()
    if os.path.isdir("/tmp"):
        yield "/tmp"
