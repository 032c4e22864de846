"""Writes files: the only module of ipymcp that creates or replaces one.

A file in a cloned project may be a link to any of the user's files, so a link is never written through: it is refused.
Folders above the file are followed, links or not: they are what the user or ipymcp named. A file is replaced as a
whole, by a temporary one made in the same folder, so that no reader and no crash meets half of it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path


PRIVATE: Final = 0o600
"""The mode of a file for the user alone."""
SHARED: Final = 0o644
"""The mode of a file that others may read, such as one that is committed."""
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_NEW = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


def write_file(path: Path, data: bytes | str, mode: int | None = None, *, durable: bool = True) -> None:
    """Write a file as a whole. One that is there is replaced and keeps its mode, but for the right of others to write.

    Args:
        path: The file.
        data: Its new content; text is written as UTF-8.
        mode: Of a new file, whatever the umask is: `PRIVATE` or `SHARED`. None is `SHARED` less what the umask forbids.
        durable: Wait until the content is on the disk, so that not even a power cut loses it.

    Raises:
        OSError: It cannot be written, or is a link or no regular file; `strerror` says which.
    """
    before = _mode(path)
    mode = mode if before is None else before & ~_OTHERS_WRITE
    if isinstance(data, str):
        data = data.encode("utf-8", "backslashreplace")  # JSON and Python read an escaped lone surrogate as itself
    draft = _draft(path)
    try:
        _create(draft, data, mode, durable=durable)
        os.replace(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise


def create_file(path: Path, data: bytes = b"") -> None:
    """Make a file for the user alone, as a whole, in a private folder. One that is there is left as it is.

    Raises:
        OSError: It cannot be made, or is a link or no regular file.
    """
    make_private_folder(path.parent)
    if _mode(path) is not None:
        return
    draft = _draft(path)
    try:
        _create(draft, data, PRIVATE, durable=True)
        with contextlib.suppress(FileExistsError):
            try:
                os.link(draft, path)
            except FileExistsError:
                raise
            except OSError:  # no hard links here
                _create(path, data, PRIVATE, durable=True)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(draft)


def open_lock(path: Path) -> int:
    """Open a file for the user alone to be locked, in a private folder. It is made if need be; a link is refused.

    Raises:
        OSError: It cannot be opened.
    """
    make_private_folder(path.parent)
    return os.open(path, os.O_CREAT | os.O_RDWR | getattr(os, "O_NOFOLLOW", 0), PRIVATE)


def make_folder(path: Path) -> None:
    """Make sure there is such a folder. Each that has to be made is for the user alone.

    Raises:
        OSError: It cannot be made.
    """
    if path.is_dir():
        return
    if path.parent != path:
        make_folder(path.parent)
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    if not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))


def make_private_folder(path: Path) -> None:
    """The same for a folder of ipymcp's own; others lose their rights to one that is there.

    A shared folder such as `/tmp` (its sticky bit is set), and one of another user's, are left as they are.

    Raises:
        OSError: It cannot be made.
    """
    make_folder(path)
    if not hasattr(os, "getuid"):  # Windows: folders of the user's are the user's
        return
    status = path.stat()
    if status.st_uid == os.getuid() and status.st_mode & _OTHERS and not status.st_mode & stat.S_ISVTX:
        with contextlib.suppress(OSError):  # some file systems have no modes
            path.chmod(0o700)


def write_hint(error: OSError) -> str:
    """What to do where a file could not be written."""
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return "name a file in a folder that exists"
    return "remove it, or change what it leads to" if error.errno == errno.ELOOP else "check the folder's permissions"


def _mode(path: Path) -> int | None:
    """The permissions of a regular file; None where there is none.

    Raises:
        OSError: It is something else.
    """
    try:
        found = path.lstat().st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(found):
        raise OSError(errno.ELOOP, "it is a link, and ipymcp writes through none", str(path))
    if not stat.S_ISREG(found):
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return stat.S_IMODE(found)


def _draft(path: Path) -> Path:
    """A name in the same folder that nobody can foresee."""
    return path.with_name(f".ipymcp-{os.urandom(8).hex()}.tmp")


def _create(path: Path, data: bytes, mode: int | None, *, durable: bool) -> None:
    descriptor = os.open(path, _NEW, SHARED if mode is None else PRIVATE)
    with open(descriptor, "wb") as stream:
        stream.write(data)
        if mode is not None:
            os.chmod(path, mode)
        if durable:
            stream.flush()
            os.fsync(stream.fileno())
