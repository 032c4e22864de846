"""A client of the demo server over raw pipes; every frame that comes is checked against its revision's schema."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

import ipymcp

PACKAGE = Path(ipymcp.__file__).parent
SCHEMAS = Path(os.environ.get("IPYMCP_MCP_SCHEMAS") or PACKAGE.parent.parent / "shared" / "mcp-schema")
HANDSHAKE_VERSIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
STATELESS = "2026-07-28"
RESULTS = {
    "initialize": "InitializeResult",
    "server/discover": "DiscoverResult",
    "tools/list": "ListToolsResult",
    "tools/call": "CallToolResult",
    "resources/list": "ListResourcesResult",
    "resources/templates/list": "ListResourceTemplatesResult",
    "resources/read": "ReadResourceResult",
    "prompts/list": "ListPromptsResult",
    "prompts/get": "GetPromptResult",
    "completion/complete": "CompleteResult",
    "ping": "EmptyResult",
    "logging/setLevel": "EmptyResult",
}
META = "io.modelcontextprotocol/"
BOUND = 20


class Schema:
    """The published schema of one revision, where the folder is there."""

    def __init__(self, version: str) -> None:
        path = SCHEMAS / f"{version}.json"
        self.document: dict[str, Any] | None = json.loads(path.read_text()) if path.exists() else None
        self.validators: dict[str, Any] = {}

    def check(self, name: str, value: Any) -> None:
        if self.document is None:
            return
        if name not in self.validators:
            root = "$defs" if "$defs" in self.document else "definitions"
            schema = {**self.document, "$ref": f"#/{root}/{name}"}
            self.validators[name] = jsonschema_rs.validator_for(schema)
        self.validators[name].validate(value)


class Peer:
    """A client of a few lines: sends what it is told, checks all it gets."""

    def __init__(self, version: str, *command: str) -> None:
        self.version, self.schema = version, Schema(version)
        self.stateless = version == STATELESS
        command = command or ("-I", "-S", str(PACKAGE / "demo"))
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([sys.executable, *command], stdin=pipe, stdout=pipe, stderr=pipe)
        self.frames: queue.Queue[Any] = queue.Queue()
        self.asked: dict[Any, str] = {}
        self.ids = iter(range(1, 1000))
        threading.Thread(target=self.read, daemon=True).start()

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
        message = {"jsonrpc": "2.0", "id": identifier, "method": method, "params": params}
        self.line(json.dumps(message).encode())
        return identifier

    def next(self) -> Any:
        frame = self.frames.get(timeout=BOUND)
        if isinstance(frame, dict):
            self.check(frame)
        return frame

    def check(self, frame: dict[str, Any]) -> None:
        self.schema.check("JSONRPCMessage", frame)
        if "result" in frame:
            self.schema.check(RESULTS[self.asked[frame["id"]]], frame["result"])
        elif "method" in frame:
            self.schema.check("ServerNotification", frame)

    def ask(self, method: str, /, meta: dict[str, Any] | None = None, **params: Any) -> dict[str, Any]:
        """The answer, past any notifications."""
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
        """Close stdin; the frames that were left, and stderr."""
        self.process.stdin.close()
        rest = list(iter(self.next, None))
        stderr = self.process.stderr.read().decode()
        self.process.wait(BOUND)
        return rest, stderr


both_eras = pytest.mark.parametrize("version", [*HANDSHAKE_VERSIONS, STATELESS])
newest_of_each_era = pytest.mark.parametrize("version", [HANDSHAKE_VERSIONS[-1], STATELESS])
