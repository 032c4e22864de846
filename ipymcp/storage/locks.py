"""Locks between processes, and files that only the user may read or write."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import os
import stat
import sys
import time
from typing import TYPE_CHECKING

from ipymcp.files import open_lock

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path


_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def make_private(path: Path) -> bool:
    """Remove other users' permissions from a file, and return whether they have none now.

    Raises:
        OSError: The file does not exist.
    """
    if not hasattr(os, "getuid"):  # Windows: the folder decides who may read
        return True
    if not path.stat().st_mode & _OTHERS:
        return True
    try:
        path.chmod(0o600)
    except OSError:
        return False
    return not path.stat().st_mode & _OTHERS  # some file systems ignore chmod


def foreign(path: Path) -> bool:
    """Whether a file exists and belongs to another user."""
    try:
        return hasattr(os, "getuid") and path.stat().st_uid != os.getuid()
    except FileNotFoundError:
        return False


_POLL = 0.05
_TAKEN = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)


@contextlib.asynccontextmanager
async def process_lock(folder: Path, name: str, timeout: float) -> AsyncGenerator[None]:
    """Context manager for a lock between all processes and tasks that use a folder.

    The body runs without the lock after the timeout, or where the file system cannot lock.

    Args:
        folder: Folder of the lock file.
        name: Name of the lock.
        timeout: Seconds to wait for the lock.
    """
    descriptor = await asyncio.to_thread(_open, folder, name)
    if descriptor is None:
        yield
        return
    try:
        deadline = time.monotonic() + timeout
        while not _try_lock(descriptor) and time.monotonic() < deadline:
            await asyncio.sleep(_POLL)
        yield
    finally:
        os.close(descriptor)  # which unlocks it


def _open(folder: Path, name: str) -> int | None:
    path = folder / f"{hashlib.sha256(name.encode()).hexdigest()[:24]}.lock"
    try:
        return open_lock(path)
    except OSError:
        return None


def _try_lock(descriptor: int) -> bool:
    """Return False if another process holds the lock; True also where the file system cannot lock."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in _TAKEN
    return True
