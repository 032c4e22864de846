"""Files: the only module of ipymcp that opens, creates or replaces them.

In a cloned project a file may be a link to any of the user's files, so a link is not written to. Links in the path of
the folder are followed, because the user or ipymcp named that folder. A file is replaced atomically, by a temporary
file in the same folder, so that no reader sees a part of the content; only a file that is written in steps leaves one
in a crash, under a name that says so.

A link may also lead to a device without an end or to a pipe that blocks, so only regular files are read, up to a limit.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from typing import IO, TYPE_CHECKING, Final

if TYPE_CHECKING:
    import io
    from collections.abc import Generator
    from pathlib import Path


PRIVATE: Final = 0o600
"""Mode of a file for the user alone."""
SHARED: Final = 0o644
"""Mode of a file that others may read, such as a committed one."""
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_NEW = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


class UnreadableFile(OSError):
    """A file that is not read because of its kind, size or owner; `strerror` continues the sentence `FILE …`."""


def read_file(path: str | Path, limit: int, *, owners: frozenset[int] | None = None, follow: bool = True) -> bytes:
    """Read a regular file, without blocking on a pipe or a device.

    Args:
        path: The file.
        limit: Maximum size in bytes.
        owners: User ids that may own the file; None for anyone.
        follow: Whether the file may be a link.

    Raises:
        UnreadableFile: It is not a regular file, is larger than the limit, or belongs to someone else.
        OSError: It cannot be opened or read.
    """
    with open_file(path, owners=owners, follow=follow) as stream:
        data = stream.read(limit + 1)
    if len(data) > limit:
        raise UnreadableFile(errno.EFBIG, f"is larger than {_size(limit)}", str(path))
    return data


@contextlib.contextmanager
def open_file(
    path: str | Path, *, owners: frozenset[int] | None = None, follow: bool = True
) -> Generator[io.BufferedReader]:
    """Context manager for reading a regular file in parts; arguments and errors are those of `read_file`."""
    flags = os.O_RDONLY | (0 if follow else getattr(os, "O_NOFOLLOW", 0))
    for name in ("O_NONBLOCK", "O_CLOEXEC", "O_NOCTTY", "O_BINARY"):  # opening a pipe would block
        flags |= getattr(os, name, 0)
    descriptor = os.open(path, flags)
    try:
        _check_readable(os.fstat(descriptor), path, owners)  # of the very file that is read
    except OSError:
        os.close(descriptor)
        raise
    with open(descriptor, "rb") as stream:
        yield stream


def trusted_owners() -> frozenset[int] | None:
    """Return the ids of the trusted file owners, this user and root; None on systems without owners."""
    return frozenset({os.getuid(), 0}) if hasattr(os, "getuid") else None


def read_problem(error: OSError) -> str:
    """Return why a file could not be read, to follow its name."""
    return str(error.strerror) if isinstance(error, UnreadableFile) else f"cannot be read: {error.strerror or error}"


def write_file(path: Path, data: bytes | str, mode: int | None = None, *, durable: bool = True) -> None:
    """Write a file atomically. An existing file keeps its mode, except that others lose write access.

    Args:
        path: The file.
        data: The new content; a string is written as UTF-8.
        mode: Mode of a new file regardless of the umask, `PRIVATE` or `SHARED`; None is `SHARED` minus the umask.
        durable: Wait until the content is on disk, to survive a power cut.

    Raises:
        OSError: It cannot be written, or is a link or not a regular file; `strerror` has the reason.
    """
    before = _mode(path)
    mode = mode if before is None else before & ~_OTHERS_WRITE
    if isinstance(data, str):
        data = data.encode("utf-8", "backslashreplace")  # JSON and Python read an escaped lone surrogate as itself
    temporary = _temporary_path(path)
    try:
        _create(temporary, data, mode, durable=durable)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def partial_path(path: Path) -> Path:
    """The file in which `replacing` collects the new content of `path`. A killed process leaves it."""
    return path.with_name(f"{path.name}.partial")


@contextlib.contextmanager
def replacing(path: Path) -> Generator[IO[bytes]]:
    """Context manager for writing a file in several steps. It replaces `path` at the end, unless the block raises.

    Raises:
        FileExistsError: The partial file exists: a killed process has left it, or one is writing it.
        OSError: As for `write_file`.
    """
    before = _mode(path)
    temporary = partial_path(path)
    _create(temporary, b"", None if before is None else before & ~_OTHERS_WRITE, durable=False)
    try:
        with open(temporary, "r+b") as stream:
            yield stream
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def create_file(path: Path, data: bytes = b"") -> None:
    """Create a file for the user alone, atomically, in a private folder. An existing file is left as it is.

    Raises:
        OSError: It cannot be created, or is a link or not a regular file.
    """
    make_private_folder(path.parent)
    if _mode(path) is not None:
        return
    temporary = _temporary_path(path)
    try:
        _create(temporary, data, PRIVATE, durable=True)
        with contextlib.suppress(FileExistsError):
            try:
                os.link(temporary, path)
            except FileExistsError:
                raise
            except OSError:  # no hard links here
                _create(path, data, PRIVATE, durable=True)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)


def open_lock(path: Path) -> int:
    """Open or create a lock file for the user alone, in a private folder. A link is refused.

    Raises:
        OSError: It cannot be opened.
    """
    make_private_folder(path.parent)
    return os.open(path, os.O_CREAT | os.O_RDWR | getattr(os, "O_NOFOLLOW", 0), PRIVATE)


def try_lock(descriptor: int) -> bool:
    """Lock an open file or folder. False if another process holds the lock; True also if the file system has none."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EACCES, errno.EAGAIN, errno.EDEADLK)
    return True


def make_folder(path: Path) -> None:
    """Create a folder and its missing parents, for the user alone.

    Raises:
        OSError: It cannot be created.
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
    """Create a folder for the user alone; an existing folder becomes inaccessible to other users.

    Shared folders such as `/tmp` (with a sticky bit) and folders of other users are not changed.

    Raises:
        OSError: It cannot be created.
    """
    make_folder(path)
    if not hasattr(os, "getuid"):  # Windows: the user's folders are private
        return
    status = path.stat()
    if status.st_uid == os.getuid() and status.st_mode & _OTHERS and not status.st_mode & stat.S_ISVTX:
        with contextlib.suppress(OSError):  # some file systems have no modes
            path.chmod(0o700)


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


def write_hint(error: OSError) -> str:
    """Return the hint for a file that could not be written."""
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return "name a file in a folder that exists"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "free some space, or name a file elsewhere"
    if error.errno in (errno.EINVAL, errno.EISDIR):
        return "give it another name"
    return "remove the link, or name its target" if error.errno == errno.ELOOP else "check the folder's permissions"


def _mode(path: Path) -> int | None:
    """Return the permissions of a regular file, or None if it does not exist.

    Raises:
        OSError: It is a link or not a regular file.
    """
    try:
        found = path.lstat().st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(found):
        raise OSError(errno.ELOOP, "it is a link, which ipymcp does not write to", str(path))
    if not stat.S_ISREG(found):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return stat.S_IMODE(found)


def _check_readable(status: os.stat_result, path: str | Path, owners: frozenset[int] | None) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise UnreadableFile(errno.EISDIR, "is a folder", str(path))
    if not stat.S_ISREG(status.st_mode):
        raise UnreadableFile(errno.EINVAL, "is not a regular file", str(path))
    if owners is not None and status.st_uid not in owners:
        raise UnreadableFile(errno.EPERM, f"belongs to another user ({_user(status.st_uid)})", str(path))


def _user(number: int) -> str:
    try:
        import pwd

        return pwd.getpwuid(number).pw_name
    except (ImportError, KeyError):
        return f"uid {number}"


def _size(count: int) -> str:
    if count >= 1_000_000:
        return f"{count // 1_000_000} MB"
    return f"{count // 1_000} kB" if count >= 1_000 else f"{count} bytes"


def _temporary_path(path: Path) -> Path:
    """Build an unpredictable name in the same folder."""
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
