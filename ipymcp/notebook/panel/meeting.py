"""Where the Jupyter server finds a kernel's socket: a private folder for it, and the file that names it.

What that file says, and who may believe it, stands in `state/meeting.py`: the server reads it.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from ipymcp.state.meeting import PREFIX, VERSION, file_of, sweep
from ipymcp.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Meeting", "arrange"]

_LONGEST_PATH: Final = 103
"""Bytes of a unix socket's path, on every system."""


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
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))  # 0700
        if len(os.fsencode(folder / "socket")) <= _LONGEST_PATH:
            return Meeting(folder, folder / "socket", file_of(runtime, connection_file), os.getpid())
        folder.rmdir()
    raise OSError("no folder's path is short enough for a socket")


def _places() -> Iterator[str]:
    """Where a socket may lie; never a network's drive, which Jupyter's runtime folder may be on."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.access(runtime, os.W_OK | os.X_OK):
        yield runtime
    yield tempfile.gettempdir()
    if os.path.isdir("/tmp"):
        yield "/tmp"


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)
