"""The runtime file by which the Jupyter server finds a kernel's socket, and the checks that make it trustworthy.

The file is `ipymcp-STEM.json` in Jupyter's runtime folder, beside the kernel's connection file `STEM.json`, readable
by the user alone. The kernel writes it, the server reads it, and both remove the files of killed kernels. Several
machines may share that folder without seeing each other's processes.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import socket
import stat
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

from ipymcp.files import read_file

VERSION: Final = 1
"""Version of the messages between a view and the kernel."""
PREFIX: Final = "ipymcp-"
_SLACK: Final = 5.0
"""Maximum number of seconds by which the recorded start of a process may precede its actual start."""
_MAX_LENGTH: Final = 10_000
_OTHERS: Final = 0o077
"""Permission bits of everyone but the user."""
_TIMEOUT: Final = 0.2


class Announced(msgspec.Struct, frozen=True):
    """Contents of a kernel's runtime file."""

    pid: int
    started: float
    """Start of the kernel, in seconds since the epoch."""
    version: int
    """Version of the kernel's messages."""
    ipymcp: str
    socket: str
    machine: str
    """Machine of the process and the socket, as returned by `machine_id`."""

    @property
    def is_here(self) -> bool:
        """Whether the kernel runs on this process's machine."""
        return self.machine == machine_id()


@cache
def machine_id() -> str:
    """Return an identifier of this machine or container, the scope in which process ids and socket paths are unique.

    Empty on systems without process namespaces: there, machines hardly ever share a folder, and the host name is not
    stable (macOS changes it with the network).
    """
    try:
        return f"{platform.node()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def file_of(runtime: Path, connection_file: str) -> Path:
    """Return the path of the runtime file of a kernel, given its connection file."""
    return runtime / f"{PREFIX}{Path(connection_file).stem}.json"


def announced(file: Path) -> Announced | None:
    """Read a runtime file; return None if it is invalid or other users may access it.

    With Jupyter's `allow_insecure_writes`, for drives without permissions, the file's permissions are not checked;
    `is_guarded` still checks the socket, which is on another drive.
    """
    from jupyter_core import paths

    others = 0 if paths.allow_insecure_writes else _OTHERS
    return _read(file) if _is_private(file, stat.S_ISREG, others) else None


def is_guarded(kernel: Announced) -> bool:
    """Whether the socket and its folder are accessible to the user alone, so that no one else can have created them."""
    path = Path(kernel.socket)
    return path.is_absolute() and _is_private(path, stat.S_ISSOCK) and _is_private(path.parent, stat.S_ISDIR)


def is_alive(kernel: Announced) -> bool:
    """Whether the kernel that wrote the file is running.

    A process that started after the recorded time has reused the process id, or the clock was changed: then the kernel
    counts as running if its socket accepts connections.
    """
    import psutil  # not needed by a Jupyter server without panels

    try:
        process = psutil.Process(kernel.pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return process.create_time() <= kernel.started + _SLACK or _accepts_connections(kernel.socket)
    except psutil.NoSuchProcess:
        return False
    except psutil.Error:
        return True


def sweep(runtime: Path) -> None:
    """Remove the runtime files and socket folders of kernels that no longer run."""
    for file in runtime.glob(f"{PREFIX}*.json"):
        kernel = _read(file)
        if kernel is None or not kernel.is_here or is_alive(kernel):
            continue
        file.unlink(missing_ok=True)
        folder = Path(kernel.socket).parent
        with contextlib.suppress(OSError):
            if folder.name.startswith(PREFIX) and not folder.is_symlink() and folder.stat().st_uid == os.getuid():
                shutil.rmtree(folder, ignore_errors=True)


def _read(file: Path) -> Announced | None:
    """Read a file; return None if it is invalid or still being written."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(read_file(file, _MAX_LENGTH, follow=False), type=Announced)
    return None


def _accepts_connections(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_TIMEOUT)
        try:
            connection.connect(path)
        except TimeoutError:
            return True
        except (OSError, ValueError):
            return False
        return True


def _is_private(path: Path, is_kind: Any, others: int = _OTHERS) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    return is_kind(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & others
