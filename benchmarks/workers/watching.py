"""An open panel without a page: reads all that the kernel's relay sends, as fast as it comes."""

from __future__ import annotations

import json
import socket
import threading
import time
from pathlib import Path
from typing import Any

from jupyter_core.paths import jupyter_runtime_dir

from benchmarks.workers.harness import expect

PATIENCE = 30


class Watcher:
    """Open until it is closed.

    Args:
        connection_file: The kernel's.
        log_of: The server whose log it follows; none for an empty name.
    """

    def __init__(self, connection_file: str, log_of: str = "") -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(json.loads(meeting(connection_file).read_text("utf-8"))["socket"])
        self._is_shown = threading.Event()
        self.lines = 0
        """Of the log, that came."""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        self._say({"kind": "hello", "version": 1, "client": "sidebar", "wants": ["servers", "calls", "questions"]})
        if log_of:
            self._say({"kind": "intent", "id": 1, "do": "logs", "server": log_of, "on": True})
        expect(self._is_shown.wait(PATIENCE), "the panel shows nothing")

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def _say(self, message: dict[str, Any]) -> None:
        self._socket.sendall(json.dumps(message).encode() + b"\n")

    def _read(self) -> None:
        with self._socket.makefile("rb") as stream:
            for line in stream:
                message = json.loads(line)
                self.lines += len(message["lines"]) if message["kind"] == "log" else 0
                if message["kind"] == "snapshot":
                    self._is_shown.set()


def meeting(connection_file: str) -> Path:
    """The file that says where the relay is: there soon after the extension was loaded."""
    file = Path(jupyter_runtime_dir(), f"ipymcp-{Path(connection_file).stem}.json")
    deadline = time.monotonic() + PATIENCE
    while not file.exists():
        expect(time.monotonic() < deadline, f"there is no {file}")
        time.sleep(0.01)
    return file
