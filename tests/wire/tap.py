"""Records every frame that passes an ipymcp connection in this process. The package does not know the tap.

`SEAMS` names the methods that are wrapped, as soon as their module is imported. A frame is recorded before the wrapped
method runs, so a request always stands before its answer. One file a process, one JSON object a line:

    {"session": "demo#1 1", "direction": "out", "at": 12.5, "frame": "{\"jsonrpc\": …}"}

The session is the peer's tag and its number in the process: hosts that follow each other use the same tags again.

`base64` stands for `frame` where it is not UTF-8. Of an incoming frame over `KEPT` bytes only its `size` is recorded.
"""

from __future__ import annotations

import base64
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import itertools
import json
import os
import sys
import time
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

KEPT = 8_000_000


@dataclass(frozen=True)
class Seam:
    """A method all frames of one direction pass; its first argument is the frame, and `peer` finds the session.

    `reopened` is an event without a frame: later frames belong to a new session of the server.
    """

    module: str
    owner: str
    method: str
    direction: str
    peer: Callable[[Any], Any] = lambda self: self
    may_refuse: bool = False
    """Whether the method returns False for a frame that it leaves to another one."""


SEAMS = (
    Seam("ipymcp.protocol.client", "Client", "_send", "out", lambda client: client._peer),
    Seam("ipymcp.protocol.jsonrpc", "Peer", "receive", "in"),
    Seam("ipymcp.protocol.jsonrpc", "Peer", "receive_own", "in", may_refuse=True),
    Seam("ipymcp.protocol.client", "Client", "shake_hands", "reopened", lambda client: client._peer),
)


class Recorder:
    """Appends frames to this process's file. One `write` a line: a killed process leaves at most one cut line."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = Path(directory)
        self._started = time.time_ns()
        self._pid = -1
        self._file = -1
        self._numbers = itertools.count(1)
        self._sessions: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()

    def record(self, peer: Any, direction: str, frame: bytes | None) -> None:
        session = self._sessions.get(peer)
        if session is None:
            session = self._sessions.setdefault(peer, f"{peer.session_tag} {next(self._numbers)}")
        entry: dict[str, Any] = {"session": session, "direction": direction, "at": time.monotonic()}
        if frame is None:
            pass
        elif direction == "in" and len(frame) > KEPT:
            entry["size"] = len(frame)
        else:
            try:
                entry["frame"] = frame.decode()
            except UnicodeDecodeError:
                entry["base64"] = base64.b64encode(frame).decode()
        line = json.dumps(entry).encode() + b"\n"
        if self._pid != os.getpid():  # the first frame, or a forked child's first
            self._open()
        os.write(self._file, line)

    def _open(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self._directory / f"{self._started}-{os.getpid()}.jsonl"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._pid = os.getpid()


def install(directory: str | os.PathLike[str]) -> Callable[[], None]:
    """Tap this process, now or once the modules of `SEAMS` are imported.

    Returns:
        A function that removes the tap.
    """
    recorder = Recorder(directory)
    undo: list[Callable[[], None]] = []

    def patch(module: ModuleType) -> None:
        undo.extend(_wrap(module, seam, recorder) for seam in SEAMS if seam.module == module.__name__)

    waiting = {seam.module for seam in SEAMS} - set(sys.modules)
    for name in {seam.module for seam in SEAMS} - waiting:
        patch(sys.modules[name])
    finder = _Finder(waiting, patch)
    sys.meta_path.insert(0, finder)

    def uninstall() -> None:
        sys.meta_path.remove(finder)
        for restore in undo:
            restore()

    return uninstall


def _wrap(module: ModuleType, seam: Seam, recorder: Recorder) -> Callable[[], None]:
    owner = getattr(module, seam.owner)
    original = getattr(owner, seam.method)

    @functools.wraps(original)
    def recorded(self: Any, *args: Any, **options: Any) -> Any:
        if seam.may_refuse:
            outcome = original(self, *args, **options)
            if outcome:
                recorder.record(seam.peer(self), seam.direction, bytes(args[0]))
            return outcome
        recorder.record(seam.peer(self), seam.direction, bytes(args[0]) if args else None)
        return original(self, *args, **options)

    setattr(owner, seam.method, recorded)
    return lambda: setattr(owner, seam.method, original)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the awaited modules where they are anyway, and calls `patch` right after their import."""

    def __init__(self, waiting: set[str], patch: Callable[[ModuleType], None]) -> None:
        self._waiting = waiting
        self._patch = patch

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name not in self._waiting:
            return None
        self._waiting.discard(name)  # the search below comes through here again
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            self._waiting.add(name)
            return None
        loader, execute = spec.loader, spec.loader.exec_module

        def exec_and_patch(module: ModuleType) -> None:
            execute(module)
            self._patch(module)

        loader.exec_module = exec_and_patch  # the loader is this module's own, not shared
        return spec
