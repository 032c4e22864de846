"""Connections to the sockets that kernels serve."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from ipymcp.protocol.types import is_object
from ipymcp.storage.kernel_socket import VERSION, Announced, announced, file_of, is_alive, is_guarded, sweep
from ipymcp.version import __version__

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping


Why = Literal["unknown", "elsewhere", "absent", "foreign", "silent", "ended", "left"]


class KernelUnavailable(Exception):
    """No view reaches a kernel.

    Args:
        why: One word, for programs.
        message: What is so, for people.
        hint: What to do about it.
    """

    def __init__(self, why: Why, message: str, hint: str) -> None:
        super().__init__(message)
        self.why: Why = why
        self.message = message
        self.hint = hint

    @property
    def document(self) -> dict[str, str]:
        """As a view is told."""
        return {"state": self.why, "message": self.message, "hint": self.hint}


class Kernels:
    """The kernels of this server.

    Args:
        manager: Jupyter's.
    """

    def __init__(self, manager: Any) -> None:
        self._manager = manager

    @property
    def runtime(self) -> Path:
        """Where kernels of this user say how they are reached."""
        from jupyter_core.paths import jupyter_runtime_dir

        return Path(jupyter_runtime_dir())

    def ids(self) -> list[str]:
        """Of those that run."""
        return [*self._manager.list_kernel_ids()]

    def name(self, kernel_id: str) -> str:
        """The kernel's kind, such as `python3`."""
        return str(self._manager.get_kernel(kernel_id).kernel_name)

    def find(self, kernel_id: str) -> Announced:
        """Where a kernel serves views.

        Raises:
            Obstacle: It does not, or not to us.
        """
        if kernel_id not in self._manager:
            raise KernelUnavailable("unknown", "this kernel does not run", "start it, or choose another")
        kernel = self._manager.get_kernel(kernel_id)
        connection_file = str(getattr(kernel, "connection_file", ""))
        if not connection_file or not hasattr(os, "getuid"):
            raise KernelUnavailable(
                "elsewhere", "this server cannot reach the kernel's socket", "the panel in a cell can"
            )
        places = [*dict.fromkeys([self.runtime, Path(connection_file).parent])]
        for place in places:
            sweep(place)
        file = next((file for place in places if (file := file_of(place, connection_file)).exists()), None)
        if file is None:
            raise KernelUnavailable("absent", "ipymcp is not loaded in this kernel", "%load_ext ipymcp")
        found = announced(file)
        if found is not None and not found.is_here:
            raise KernelUnavailable(
                "elsewhere", "the kernel runs on another machine", "the panel in a cell can reach it"
            )
        if found is None or not _is_of(found, _pid(kernel)):
            raise KernelUnavailable("foreign", f"{file} cannot be believed", "it must be the kernel's, and yours alone")
        if not Path(found.socket).exists():
            raise KernelUnavailable("left", "the kernel's socket is gone", "%reload_ext ipymcp")
        if not is_guarded(found):
            raise KernelUnavailable(
                "foreign", f"{found.socket} cannot be believed", "it must be yours alone: restart the kernel"
            )
        return found


def other_version(found: Announced) -> Mapping[str, str] | None:
    """What a view is told of a kernel whose messages are of another version; None where they are of ours."""
    if found.version == VERSION:
        return None
    older = "the Jupyter server's" if found.version > VERSION else "the kernel's"
    versions = f"the kernel has ipymcp {found.ipymcp}, this Jupyter server {__version__}"
    return {
        "state": "version",
        "message": f"{versions}: the panel only shows",
        "hint": f"upgrade {older}: pip install -U ipymcp",
    }


def _pid(kernel: Any) -> int | None:
    """The process that Jupyter started; None where it does not know one here."""
    provisioner = getattr(kernel, "provisioner", None)
    pid = getattr(provisioner, "pid", None)
    return pid if isinstance(pid, int) and pid > 0 else None


def _is_of(found: Announced, pid: int | None) -> bool:
    """Whether the kernel's process wrote it, or one that it started: `conda run`, `uv run`."""
    import psutil

    if pid is None or found.pid == pid:
        return True
    try:
        return any(one.pid == pid for one in psutil.Process(found.pid).parents())
    except psutil.Error:
        return False


_CHUNK: Final = 65_536
_MAX_LINE: Final = 64_000_000
_TIMEOUT: Final = 2.0
"""Seconds for what is asked of a kernel in passing."""


class KernelConnection:
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
    async def open(cls, kernel: Announced) -> KernelConnection:
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
            raise KernelUnavailable("foreign", "another process serves the kernel's socket", "restart the kernel")
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
            if not data or sum(map(len, self._begun)) > _MAX_LINE:
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
    link = await KernelConnection.open(kernel)
    with _closed(link):
        try:
            async with asyncio.timeout(_TIMEOUT):
                await link.send(json.dumps({"version": VERSION, **message}).encode())
                while True:
                    answer = json.loads(await link.line())
                    if is_object(answer) and answer.get("kind") == kind:
                        return answer
        except TimeoutError:
            raise KernelUnavailable("silent", "the kernel does not answer", "it may be busy: try again") from None
        except (OSError, ValueError):
            raise _gone(kernel) from None


@contextlib.contextmanager
def _closed(link: KernelConnection) -> Generator[None]:
    try:
        yield
    finally:
        link.close()


def _gone(kernel: Announced) -> KernelUnavailable:
    if is_alive(kernel):
        return KernelUnavailable("left", "the kernel has closed its socket", "%load_ext ipymcp")
    return KernelUnavailable("ended", "the kernel has ended", "restart it")


def _listener(connected: socket.socket) -> int | None:
    """The process that made the socket; None where the system does not say."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return None
    with contextlib.suppress(OSError):
        pid, _, _ = struct.unpack("3i", connected.getsockopt(socket.SOL_SOCKET, option, 12))
        return pid or None
    return None
