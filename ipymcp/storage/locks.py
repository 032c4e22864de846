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
    """Take other users' rights to a file away. Whether they have none now.

    Raises:
        OSError: There is no such file.
    """
    if not hasattr(os, "getuid"):  # Windows: who may read it is the folder's business
        return True
    if not path.stat().st_mode & _OTHERS:
        return True
    try:
        path.chmod(0o600)
    except OSError:
        return False
    return not path.stat().st_mode & _OTHERS  # some file systems take the order and do nothing


def foreign(path: Path) -> bool:
    """Whether a file, if it exists, is another user's."""
    try:
        return hasattr(os, "getuid") and path.stat().st_uid != os.getuid()
    except FileNotFoundError:
        return False


_POLL = 0.05
_TAKEN = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)


@contextlib.asynccontextmanager
async def process_lock(folder: Path, name: str, patience: float) -> AsyncGenerator[None]:
    """Held by one at a time, among all processes and tasks that use this folder.

    Who has waited too long, or finds that nothing can be locked here, goes on without it.

    Args:
        folder: Where the file lies.
        name: Of the lock.
        patience: Seconds to wait for it.
    """
    descriptor = await asyncio.to_thread(_open, folder, name)
    if descriptor is None:
        yield
        return
    try:
        deadline = time.monotonic() + patience
        while not _try(descriptor) and time.monotonic() < deadline:
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


def _try(descriptor: int) -> bool:
    """Lock it, if nobody else has. True also where nothing can be locked."""
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
