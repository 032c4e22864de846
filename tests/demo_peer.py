"""A client of the demo server over raw pipes, which checks each frame against the types of its revision."""

import itertools
import json
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import ipymcp
from tests.environments import MissingEnvironment
from tests.wire.jsonrpc import envelope_faults, kind_of
from tests.wire.plugin import checker

PACKAGE = Path(ipymcp.__file__).parent
HANDSHAKE_VERSIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
STATELESS = "2026-07-28"
META = "io.modelcontextprotocol/"
BOUND = 20


class Judge:
    """The official wire types, in a process of their own environment."""

    def __init__(self) -> None:
        if not checker().exists():
            raise MissingEnvironment("sdk2")
        command = [str(checker()), str(Path(__file__).parent / "wire" / "judge.py")]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def fault(self, kind: str, revision: str, method: str, message: dict[str, Any]) -> str | None:
        """The fault of a message, or None: see `tests/wire/specification.py`."""
        self.process.stdin.write(json.dumps([kind, revision, method, message]) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(BOUND)


class Peer:
    """A client of a few lines, which checks all that it receives."""

    def __init__(self, judge: Judge, version: str, *command: str, ask_for: str = "") -> None:
        self.judge, self.version = judge, version
        self.stateless = version == STATELESS
        command = command or ("-I", "-S", str(PACKAGE / "demo"))
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([sys.executable, *command], stdin=pipe, stdout=pipe, stderr=pipe)
        self.frames: queue.Queue[Any] = queue.Queue()
        self.asked: dict[Any, str] = {}
        self.ids = itertools.count(1)
        threading.Thread(target=self.read, daemon=True).start()
        if not self.stateless:
            self.handshake(ask_for or version)

    def read(self) -> None:
        for line in self.process.stdout:
            self.frames.put(json.loads(line))
        self.frames.put(None)

    def line(self, text: bytes) -> None:
        self.process.stdin.write(text + b"\n")
        self.process.stdin.flush()

    def notify(self, method: str, **params: Any) -> None:
        self.line(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode())

    def request(self, method: str, /, meta: dict[str, Any] | None = None, **params: Any) -> int:
        identifier = next(self.ids)
        self.asked[identifier] = method
        envelope = {META + "protocolVersion": STATELESS, META + "clientCapabilities": {}} if self.stateless else {}
        if envelope or meta:
            params["_meta"] = {**envelope, **(meta or {})}
        self.line(json.dumps({"jsonrpc": "2.0", "id": identifier, "method": method, "params": params}).encode())
        return identifier

    def next(self) -> Any:
        frame = self.frames.get(timeout=BOUND)
        if isinstance(frame, dict):
            self.check(frame)
        return frame

    def check(self, frame: dict[str, Any]) -> None:
        kind = kind_of(frame)
        assert list(envelope_faults(kind, frame)) == []
        if kind == "error":
            return
        method = self.asked[frame["id"]] if kind == "result" else frame["method"]
        assert self.judge.fault(f"server {kind}", self.version, method, frame) is None

    def ask(self, method: str, /, meta: dict[str, Any] | None = None, **params: Any) -> dict[str, Any]:
        """Send a request and return its answer, past any notifications."""
        identifier = self.request(method, meta=meta, **params)
        while (frame := self.next()).get("id") != identifier:
            assert "method" in frame
        return frame

    def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        return self.ask("tools/call", name=tool, arguments=arguments)["result"]

    def handshake(self, version: str) -> None:
        client = {"name": "test", "version": "1"}
        answer = self.ask("initialize", protocolVersion=version, capabilities={}, clientInfo=client)
        self.handshake_result = answer["result"]
        self.notify("notifications/initialized")

    def close(self) -> tuple[list[Any], str]:
        """Close stdin and return the remaining frames and stderr."""
        self.process.stdin.close()
        rest = list(iter(self.next, None))
        stderr = self.process.stderr.read().decode()
        self.process.wait(BOUND)
        return rest, stderr

    def kill(self) -> None:
        with self.process:
            self.process.kill()


EVERY_VERSION = [*HANDSHAKE_VERSIONS, STATELESS]
every_version = pytest.mark.parametrize("peer", EVERY_VERSION, indirect=True)
newest_of_each_era = pytest.mark.parametrize("peer", [HANDSHAKE_VERSIONS[-1], STATELESS], indirect=True)
