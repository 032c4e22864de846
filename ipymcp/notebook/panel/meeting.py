"""Where the Jupyter server finds a kernel's socket: a private folder for it, and a file that names it.

The file lies in Jupyter's runtime folder, `ipymcp-STEM.json` beside the connection file `STEM.json`, for the user's
eyes alone. What a killed kernel left is removed by the next.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psutil
from msgspec import Struct

from ipymcp.notebook.panel.messages import VERSION
from ipymcp.protocol.jsontypes import is_object
from ipymcp.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Meeting", "arrange", "sweep"]

_PREFIX: Final = "ipymcp-"
_LONGEST_PATH: Final = 103
"""Bytes of a unix socket's path, on every system."""
_SLACK: Final = 5.0
"""Seconds by which a process may seem younger than what it wrote."""


class Meeting(Struct, frozen=True):
    """What was made.

    Attributes:
        folder: Private; the socket lies in it.
        socket: The socket's path, where nothing is yet.
        file: Names it.
        pid: Of the process that serves it; one that was forked from it takes nothing away.
    """

    folder: Path
    socket: Path
    file: Path
    pid: int

    def announce(self) -> None:
        """Write the file: the socket is served."""
        document = {"pid": self.pid, "started": time.time(), "version": VERSION, "ipymcp": __version__}
        text = json.dumps({**document, "socket": str(self.socket)})
        temporary = self.file.with_name(f"{self.file.name}.{self.pid}")
        with open(temporary, "w", opener=_private, encoding="utf-8") as file:
            file.write(text)
        temporary.replace(self.file)

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
    runtime.mkdir(parents=True, exist_ok=True, mode=0o700)
    sweep(runtime)
    for place in _places():
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))  # 0700
        if len(os.fsencode(folder / "socket")) <= _LONGEST_PATH:
            file = runtime / f"{_PREFIX}{Path(connection_file).stem}.json"
            return Meeting(folder, folder / "socket", file, os.getpid())
        folder.rmdir()
    raise OSError("no folder's path is short enough for a socket")


def sweep(runtime: Path) -> None:
    """Take away what kernels that are gone left."""
    for file in runtime.glob(f"{_PREFIX}*.json"):
        found = _read(file)
        if found is None or _is_alive(found):
            continue
        file.unlink(missing_ok=True)
        folder = Path(str(found.get("socket"))).parent
        if folder.name.startswith(_PREFIX) and not folder.is_symlink() and _is_own(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _places() -> Iterator[str]:
    """Where a socket may lie; never a network's drive, which Jupyter's runtime folder may be on."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.access(runtime, os.W_OK | os.X_OK):
        yield runtime
    yield tempfile.gettempdir()
    if os.path.isdir("/tmp"):
        yield "/tmp"


def _read(file: Path) -> dict[str, Any] | None:
    """What a file says; None for what is none of ours, or is being written."""
    with contextlib.suppress(OSError, ValueError):
        document: Any = json.loads(file.read_text("utf-8"))
        if is_object(document) and isinstance(document.get("pid"), int) and is_number(document.get("started")):
            return document
    return None


def is_number(value: Any) -> bool:
    """Whether JSON is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_alive(document: dict[str, Any]) -> bool:
    """Whether the kernel that wrote it is there; a number may have been given to another process since."""
    try:
        return psutil.Process(document["pid"]).create_time() <= document["started"] + _SLACK
    except psutil.NoSuchProcess:
        return False
    except psutil.Error:
        return True


def _is_own(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        return folder.stat().st_uid == os.getuid()
    return False


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)
