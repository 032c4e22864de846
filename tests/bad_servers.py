"""Servers that misbehave, and a host quick enough to see all they do in a test."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ipymcp import Mcp, McpError
from ipymcp.protocol.transports.process import Grace
from ipymcp.runtime.context import Timing
from ipymcp.runtime.host import Host

SCRIPT = Path(__file__).parent / "servers" / "misbehaving.py"
QUICK = Timing(retries=(0.05, 0.1, 0.2), refresh=0.05, listen_again=0.05, grace=Grace(0.5, 0.5))
PATIENCE = 20.0
"""Seconds to wait for what must happen, on a machine with other things to do."""


def bad(*words: str, era: str = "both", version: str | None = None, **definition: Any) -> dict[str, Any]:
    """The definition of a misbehaving server; its own era, and any key of the definition (`ours` is the era there)."""
    newest = ["--version", version] if version else []
    if "ours" in definition:
        definition["era"] = definition.pop("ours")
    return {"command": sys.executable, "args": [str(SCRIPT), "--era", era, *newest, *words], **definition}


_SCRIPT = """
import json, sys, threading

def say(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

%s

tools = [{"name": "work", "inputSchema": {"type": "object"}}]
complete = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
for line in sys.stdin:
    message = json.loads(line)
    method = message["method"]
    result = {
        "initialize": {
            "protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}
        },
        "server/discover": {
            "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {"listChanged": True}}, **complete
        },
        "tools/list": {"tools": tools, **complete},
    }.get(method)
    answer = on(method, message)
    if answer or result:
        say(id=message["id"], result=answer or result)
"""


def scripted(code: str, *, ours: str = "legacy") -> dict[str, Any]:
    """The definition of a server of one tool, `work`, and one function: `on(method, message)`.

    It may `say(**members)`, and give back the result where that is not the usual one.
    """
    return {"command": sys.executable, "args": ["-c", _SCRIPT % code], "era": ours}


@contextlib.contextmanager
def connected(
    servers: Mapping[str, Any], *, timing: Timing = QUICK, folder: Path | None = None, load: bool = True
) -> Iterator[Mcp]:
    """`ipymcp.connect` with other timing."""
    mcp = Mcp(Host(str(folder) if folder else None, timing))
    try:
        if load:
            mcp.load(servers)
        yield mcp
    finally:
        mcp.close()


class News(logging.Handler):
    """Waits until something is true that a server's events or log lines bring about."""

    def __init__(self, mcp: Mcp) -> None:
        super().__init__()
        self._mcp = mcp
        self._changed = threading.Condition()
        self.events: list[Any] = []
        self.records: list[logging.LogRecord] = []

    def __enter__(self) -> News:
        self._unsubscribe = self._mcp._host.events.subscribe(self._hear)
        self._logger = logging.getLogger("ipymcp.server")
        self._level = self._logger.level
        self._logger.setLevel(logging.DEBUG)
        self._logger.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)
        self._logger.setLevel(self._level)
        self._unsubscribe()

    def emit(self, record: logging.LogRecord) -> None:
        with self._changed:
            self.records.append(record)
            self._changed.notify_all()

    def _hear(self, event: Any) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def until(self, what: Callable[[], object], within: float = PATIENCE) -> None:
        """Wait, and fail if it does not come true. It may wait for the background loop, which notifies us."""
        deadline = time.monotonic() + within
        while True:
            with self._changed:
                seen = len(self.events), len(self.records)
            if what():
                return
            with self._changed:
                self._changed.wait_for(
                    lambda seen=seen: (len(self.events), len(self.records)) != seen, deadline - time.monotonic()
                )
            assert time.monotonic() < deadline, f"did not happen; {self.lines[-20:]}"

    @property
    def lines(self) -> list[str]:
        """The log, in lines `NAME source: text`."""
        return [f"{record.name.removeprefix('ipymcp.server.')} {record.getMessage()}" for record in self.records]

    def says(self, text: str) -> bool:
        return any(text in line for line in self.lines)


def rendered(error: McpError) -> list[str]:
    """The two lines a user sees."""
    return error._render_traceback_()


def log_of(mcp: Mcp, name: str, source: str | None = None) -> list[str]:
    return [line.text for line in mcp._host.sessions[name].log.tail(source=source)]


def pid_of(mcp: Mcp, name: str) -> int:
    return mcp[name].pid().data["pid"]


def frames_read(path: Path) -> list[dict[str, Any]]:
    """The JSON messages that a server with `record=PATH` has read."""
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [json.loads(line[2:]) for line in lines if line.startswith(b"< ") and line[2:].strip()]


def calls_read(path: Path, tool: str) -> int:
    """Number of calls of the tool."""
    return sum(frame.get("method") == "tools/call" and frame["params"]["name"] == tool for frame in frames_read(path))


def runs(path: Path) -> int:
    """Number of starts of a server with `runs=PATH`."""
    return len(path.read_text().splitlines()) if path.exists() else 0
