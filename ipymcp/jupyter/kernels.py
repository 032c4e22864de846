"""Locating the sockets that kernels serve, and connecting to them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from jupyter_core.paths import jupyter_runtime_dir

from ipymcp.protocol.types import is_object
from ipymcp.storage.kernel_socket import VERSION, Announced, announced, file_of, is_alive, is_guarded, sweep
from ipymcp.version import SOURCE, __version__

if TYPE_CHECKING:
    from collections.abc import Mapping


Reason = Literal["unknown", "elsewhere", "absent", "foreign", "silent", "ended", "left"]


class KernelUnavailable(Exception):
    """The kernel's socket cannot be used.

    Args:
        reason: The reason as a keyword, from which the relay derives its close code.
        message: The reason in words.
        hint: A remedy for the user.
    """

    def __init__(self, reason: Reason, message: str, hint: str) -> None:
        super().__init__(message)
        self.reason: Reason = reason
        self.message = message
        self.hint = hint

    @property
    def document(self) -> dict[str, str]:
        """The fields of the relay's message to a panel."""
        return {"state": self.reason, "message": self.message, "hint": self.hint}


class Kernels:
    """The kernels of this Jupyter server.

    Args:
        manager: Jupyter's kernel manager.
    """

    def __init__(self, manager: Any) -> None:
        self._manager = manager

    def ids(self) -> list[str]:
        """The ids of the running kernels."""
        return [*self._manager.list_kernel_ids()]

    def find(self, kernel_id: str) -> Announced:
        """Read and verify the file in which a kernel announces its socket. Blocking.

        Raises:
            KernelUnavailable: There is no socket, or the file or the socket was not made by the user's own kernel.
        """
        if kernel_id not in self._manager:
            raise KernelUnavailable("unknown", "this kernel does not run", "start it, or choose another")
        kernel = self._manager.get_kernel(kernel_id)
        connection_file = str(getattr(kernel, "connection_file", ""))
        if not connection_file or not hasattr(os, "getuid"):
            raise KernelUnavailable(
                "elsewhere", "this server cannot reach the kernel's socket", "use the panel in a cell"
            )
        folders = [*dict.fromkeys([Path(jupyter_runtime_dir()), Path(connection_file).parent])]
        for folder in folders:
            sweep(folder)
        file = next((file for folder in folders if (file := file_of(folder, connection_file)).exists()), None)
        if file is None:
            raise KernelUnavailable("absent", "ipymcp is not loaded in this kernel", "%load_ext ipymcp")
        found = announced(file)
        if found is not None and not found.is_here:
            raise KernelUnavailable("elsewhere", "the kernel runs on another machine", "use the panel in a cell")
        if found is None or not _is_written_by(found, _pid(kernel)):
            raise KernelUnavailable(
                "foreign", f"ignoring {file}", "the kernel must have written it, and only you may have access to it"
            )
        if not Path(found.socket).exists():
            raise KernelUnavailable("left", "the kernel's socket is gone", "%reload_ext ipymcp")
        if not is_guarded(found):
            raise KernelUnavailable(
                "foreign", f"ignoring {found.socket}", "only you may have access to it: restart the kernel"
            )
        return found


def other_version(found: Announced) -> Mapping[str, str] | None:
    """The relay's message about a kernel with another version of the panel protocol; None for the same version."""
    if found.version == VERSION:
        return None
    older = "the Jupyter server's" if found.version > VERSION else "the kernel's"
    versions = f"the kernel has ipymcp {found.ipymcp}, this Jupyter server {__version__}"
    return {
        "state": "version",
        "message": f"{versions}: the panel is read-only",
        "hint": f"upgrade {older}: pip install --upgrade {SOURCE}",
    }


def _pid(kernel: Any) -> int | None:
    """The id of the process that Jupyter started; None if it is unknown or not on this machine."""
    provisioner = getattr(kernel, "provisioner", None)
    pid = getattr(provisioner, "pid", None)
    return pid if isinstance(pid, int) and pid > 0 else None


def _is_written_by(found: Announced, pid: int | None) -> bool:
    """Whether the process or a descendant of it (under `conda run` or `uv run`) wrote the file."""
    import psutil

    if pid is None or found.pid == pid:
        return True
    try:
        return any(parent.pid == pid for parent in psutil.Process(found.pid).parents())
    except psutil.Error:
        return False


_CHUNK: Final = 65_536
_MAX_LINE_BYTES: Final = 64_000_000
_REQUEST_TIMEOUT: Final = 2.0
_EXIT_CHECKS: Final = 25
_EXIT_CHECK_INTERVAL: Final = 0.02


class KernelConnection:
    """A connection to a kernel's socket.

    It buffers at most two chunks and one unfinished line; lines that are not read yet stay in the kernel.
    """

    def __init__(self, kernel: Announced, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._kernel = kernel
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, kernel: Announced) -> KernelConnection:
        """Connect.

        Raises:
            KernelUnavailable: No process listens on the socket, or a process other than the kernel.
        """
        try:
            reader, writer = await asyncio.open_unix_connection(kernel.socket, limit=_CHUNK)
        except OSError:
            raise await _closed(kernel) from None
        peer = _peer_pid(writer.get_extra_info("socket"))
        if peer not in (None, kernel.pid):
            writer.close()
            raise KernelUnavailable("foreign", "another process serves the kernel's socket", "restart the kernel")
        return cls(kernel, reader, writer)

    async def send(self, line: bytes) -> None:
        """Send a line, and wait until the kernel has read most of what was sent.

        Raises:
            OSError: The connection is closed.
        """
        self._writer.write(line + b"\n")
        await self._writer.drain()

    async def line(self) -> bytes:
        """Read the next line, without its line break.

        Raises:
            KernelUnavailable: The kernel has closed the connection, or the line is longer than 64 MB.
        """
        parts: list[bytes] = []
        try:
            while sum(map(len, parts)) <= _MAX_LINE_BYTES:
                try:
                    parts.append(await self._reader.readuntil(b"\n"))
                    return b"".join(parts)[:-1]
                except asyncio.LimitOverrunError as longer:
                    parts.append(await self._reader.readexactly(longer.consumed))
        except (OSError, EOFError):
            pass
        raise await _closed(self._kernel)

    def close(self) -> None:
        """Close the connection at once."""
        self._writer.transport.abort()


async def request(kernel: Announced, message: dict[str, Any], kind: str) -> dict[str, Any]:
    """Send a message over a connection of its own, and return the first reply of a kind.

    Raises:
        KernelUnavailable: No reply within 2 seconds.
    """
    connection = await KernelConnection.open(kernel)
    try:
        async with asyncio.timeout(_REQUEST_TIMEOUT):
            await connection.send(json.dumps({"version": VERSION, **message}).encode())
            while True:
                reply = json.loads(await connection.line())
                if is_object(reply) and reply.get("kind") == kind:
                    return reply
    except TimeoutError:
        raise KernelUnavailable("silent", "the kernel does not answer", "it may be busy: try again") from None
    except (OSError, ValueError):
        raise await _closed(kernel) from None
    finally:
        connection.close()


async def _closed(kernel: Announced) -> KernelUnavailable:
    """The error for a closed socket. A process that exits closes its sockets shortly before it counts as dead."""
    for _ in range(_EXIT_CHECKS):
        if not is_alive(kernel):
            return KernelUnavailable("ended", "the kernel has ended", "restart it")
        await asyncio.sleep(_EXIT_CHECK_INTERVAL)
    return KernelUnavailable("left", "the kernel has closed its socket", "%load_ext ipymcp")


def _peer_pid(connected: socket.socket) -> int | None:
    """The id of the process that listens on a socket; None on systems without `SO_PEERCRED`."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return None
    with contextlib.suppress(OSError):
        pid, _, _ = struct.unpack("3i", connected.getsockopt(socket.SOL_SOCKET, option, 12))
        return pid or None
    return None
