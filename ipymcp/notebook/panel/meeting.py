"""Where the Jupyter server finds a kernel's socket: a private folder for it, and the file that names it.

What that file says, and who may believe it, stands in `state/meeting.py`: the server reads it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from ipymcp.files import PRIVATE, make_folder, write_file
from ipymcp.state.meeting import PREFIX, VERSION, file_of, here, sweep
from ipymcp.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Meeting", "arrange"]


class Meeting(Struct, frozen=True):
    """What was made.

    Attributes:
        folder: Private; the socket lies in it.
        socket: Bound, and not yet listened at.
        file: Names it.
        pid: Of the process that serves it; one that was forked from it takes nothing away.
    """

    folder: Path
    socket: socket.socket
    file: Path
    pid: int

    def announce(self) -> None:
        """Write the file: the socket is served."""
        kernel = {"pid": self.pid, "started": time.time(), "socket": self.socket.getsockname(), "machine": here()}
        text = json.dumps({**kernel, "version": VERSION, "ipymcp": __version__})
        write_file(self.file, text, PRIVATE, durable=False)

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
    make_folder(runtime)
    sweep(runtime)
    for place in _places():
        with contextlib.suppress(OSError):  # its path is too long, it takes no sockets, or nothing at all
            return _made(place, file_of(runtime, connection_file))
    raise OSError("no folder was found that takes a socket")


def _made(place: str, file: Path) -> Meeting:
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))  # 0700
    listener = socket.socket(socket.AF_UNIX)
    try:
        path = str(folder / "socket")
        listener.bind(path)
        os.chmod(path, 0o600)
    except BaseException:
        listener.close()
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return Meeting(folder, listener, file, os.getpid())


def _places() -> Iterator[str]:
    """Where a socket may lie; never a network's drive, which Jupyter's runtime folder may be on."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.access(runtime, os.W_OK | os.X_OK):
        yield runtime
    yield tempfile.gettempdir()
    if os.path.isdir("/tmp"):
        yield "/tmp"
