"""Where the Jupyter server and a kernel meet: a file that names the kernel's socket, and who may believe it.

The file lies in Jupyter's runtime folder, `ipymcp-STEM.json` beside the kernel's connection file `STEM.json`, for the
user's eyes alone. The kernel writes it, the server reads it, and either removes what a killed kernel left. Several
machines may share that folder, and none of them knows what runs on another.
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

VERSION: Final = 1
"""Of the messages between a view and the kernel."""
PREFIX: Final = "ipymcp-"
_SLACK: Final = 5.0
"""Seconds by which a process may seem younger than what it wrote."""
_MAX_LENGTH: Final = 10_000
_OTHERS: Final = 0o077
"""The rights of everybody but the user."""
_TIMEOUT: Final = 0.2


class Announced(msgspec.Struct, frozen=True):
    """What a kernel has written."""

    pid: int
    started: float
    """When, in seconds since the epoch."""
    version: int
    """Of its messages."""
    ipymcp: str
    socket: str
    machine: str
    """Where the process and the socket are: see `here`."""

    @property
    def is_here(self) -> bool:
        """Whether that is where this process runs, too."""
        return self.machine == here()


@cache
def here() -> str:
    """This machine, or container: where a process's number means one process, and a path one socket.

    Empty where the system has no such spaces; a folder is hardly ever shared by several machines there, and macOS has
    another name in each network.
    """
    try:
        return f"{platform.node()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def file_of(runtime: Path, connection_file: str) -> Path:
    """Where the kernel of a connection file says how it is reached."""
    return runtime / f"{PREFIX}{Path(connection_file).stem}.json"


def announced(file: Path) -> Announced | None:
    """What a file says that is the user's alone; None for any other, and what is none of ours.

    Jupyter may have been told that its folder is on a drive that knows no rights. Then the socket's folder, which is on
    none, and who listens there must do.
    """
    from jupyter_core import paths

    others = 0 if paths.allow_insecure_writes else _OTHERS
    return _read(file) if _is_private(file, stat.S_ISREG, others) else None


def is_guarded(found: Announced) -> bool:
    """Whether its socket, and the folder that holds it, are the user's alone: nobody else may have put it there."""
    path = Path(found.socket)
    return path.is_absolute() and _is_private(path, stat.S_ISSOCK) and _is_private(path.parent, stat.S_ISDIR)


def is_alive(found: Announced) -> bool:
    """Whether the kernel that wrote it is there.

    Its number may have been given to another process since. That is younger; but so a kernel seems when the clock was
    set, and then its socket tells.
    """
    import psutil  # the server may never need it

    try:
        process = psutil.Process(found.pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return process.create_time() <= found.started + _SLACK or _is_listened_at(found.socket)
    except psutil.NoSuchProcess:
        return False
    except psutil.Error:
        return True


def sweep(runtime: Path) -> None:
    """Take away what kernels that are gone left."""
    for file in runtime.glob(f"{PREFIX}*.json"):
        found = _read(file)
        if found is None or not found.is_here or is_alive(found):
            continue
        file.unlink(missing_ok=True)
        folder = Path(found.socket).parent
        if folder.name.startswith(PREFIX) and not folder.is_symlink() and _is_own(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _read(file: Path) -> Announced | None:
    """What a file says; None for what is none of ours, or is being written."""
    with contextlib.suppress(OSError, msgspec.MsgspecError), open(file, "rb", opener=_itself) as stream:
        return msgspec.json.decode(stream.read(_MAX_LENGTH), type=Announced)
    return None


def _is_listened_at(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_TIMEOUT)
        try:
            connection.connect(path)
        except TimeoutError:
            return True
        except (OSError, ValueError):
            return False
        return True


def _itself(path: str, flags: int) -> int:
    """Not what a link leads to, and no pipe that nobody writes."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))


def _is_private(path: Path, is_kind: Any, others: int = _OTHERS) -> bool:
    """Whether it is of a kind, the user's, and for no one else."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return is_kind(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & others


def _is_own(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        return folder.stat().st_uid == os.getuid()
    return False
