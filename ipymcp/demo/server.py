"""The protocol of the demo server: reading, dispatching and writing messages, in both eras.

Source: MCP 2024-11-05 to 2025-11-25 (lifecycle, server/tools, utilities) and 2026-07-28 (basic/index, versioning,
server/discover, server/tools, patterns/subscriptions, patterns/cancellation). `tools` has the lists and their items.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` costs more than the rest of the start
    from collections.abc import Callable, Mapping
    from typing import Any, TypeAlias, TypeGuard

    Method: TypeAlias = Callable[["DemoRequest"], dict[str, Any] | None]
    RunTool: TypeAlias = Callable[[str, dict[str, Any], "DemoRequest"], dict[str, Any]]

HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
STATELESS_VERSION = "2026-07-28"
SERVER_INFO = {"name": "ipymcp-demo", "title": "ipymcp's demo server", "version": "1.0.0"}
INSTRUCTIONS = "A server to try MCP on. query reads a table of penguins, plot draws charts, slow waits."
CAPABILITIES: dict[str, Any] = {"tools": {}, "resources": {}, "prompts": {}, "completions": {}, "logging": {}}
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
META = "io.modelcontextprotocol/"
ONE_HOUR_MS = 3_600_000
SHUTDOWN_TIMEOUT = 1.0
"""Seconds for running requests to finish once the client has closed stdin."""

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602
UNSUPPORTED_VERSION = -32022


class Refusal(Exception):
    """An error response to a request."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.error: dict[str, Any] = {"code": code, "message": message} | ({} if data is None else {"data": data})


class DemoRequest:
    """A running request. All messages for it are written by this object, so that none follows a cancellation."""

    def __init__(self, server: DemoServer, identifier: int | str, params: dict[str, Any], batch: Batch | None) -> None:
        self.server = server
        self.id = identifier
        self.params = params
        self.batch = batch
        self.meta = as_object(params.get("_meta")) or {}
        self.stateless = META + "protocolVersion" in self.meta
        self.version = STATELESS_VERSION if self.stateless else server.version or HANDSHAKE_VERSIONS[-1]
        self.cancelled = threading.Event()

    def notify(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification, unless the request is cancelled."""
        with self.server.lock:
            if not self.cancelled.is_set():
                self.server.write({"jsonrpc": "2.0", "method": method, "params": params})

    def log(self, level: str, data: Any) -> None:
        """Send a log message, if the client asked for its level."""
        wanted = self.meta.get(META + "logLevel") if self.stateless else self.server.level
        if wanted is not None and LEVELS.index(level) >= LEVELS.index(wanted):
            self.notify("notifications/message", {"level": level, "logger": "demo", "data": data})

    def progress(self, done: int, total: int, message: str) -> None:
        """Report progress, if the client sent a progress token."""
        token = self.meta.get("progressToken")
        if isinstance(token, int | str):
            extra = {"message": message} if self.version > "2024-11-05" else {}
            self.notify("notifications/progress", {"progressToken": token, "progress": done, "total": total, **extra})

    def finish(self, **outcome: Any) -> None:
        """Respond with `result=` or `error=`, unless the request is cancelled."""
        if self.stateless and "result" in outcome:
            outcome["result"] = {
                "resultType": "complete",
                "_meta": {META + "serverInfo": SERVER_INFO},
                **outcome["result"],
            }
        self._close({"jsonrpc": "2.0", "id": self.id, **outcome})

    def cancel(self) -> None:
        """Cancel the request; nothing more is sent for it."""
        self._close(None)

    def _close(self, answer: dict[str, Any] | None) -> None:
        with self.server.lock:
            if self.cancelled.is_set() or self.server.requests.pop(self.id, None) is None:
                return
            if answer is None:
                self.cancelled.set()
            if self.batch is not None:
                self.batch.add(answer)
            elif answer is not None:
                self.server.write(answer)


class Batch:
    """The responses to a batch, which are sent together (2025-03-26, basic/index#batching)."""

    def __init__(self, server: DemoServer, size: int) -> None:
        self.server = server
        self.missing = size
        self.answers: list[dict[str, Any]] = []

    def add(self, answer: dict[str, Any] | None) -> None:
        """Add a response, or None if there is none; the last one sends the batch."""
        self.missing -= 1
        if answer is not None:
            self.answers.append(answer)
        if not self.missing and self.answers:
            self.server.write(self.answers)


class DemoServer:
    """Reads requests and responds to them.

    The tool `slow` runs in a thread; every other request is handled before the next line is read.

    Args:
        output: The file descriptor to write to.
        tools: The definitions of the tools.
        run_tool: Runs a tool: from its name, arguments and request to a `CallToolResult`.
        offers: The request handlers for lists, resources, prompts and completion, by method.
    """

    def __init__(
        self, output: int, tools: list[dict[str, Any]], run_tool: RunTool, offers: Mapping[str, Method]
    ) -> None:
        self.output = output
        self.tools = tools
        self.run_tool = run_tool
        self.lock = threading.RLock()
        self.requests: dict[int | str, DemoRequest] = {}
        self.version: str | None = None
        self.level = "info"
        both: dict[str, Method] = {"tools/call": self.call_tool, **offers}
        self.stateless_methods = {"server/discover": self.discover, "subscriptions/listen": self.listen, **both}
        self.handshake_methods = {
            "initialize": self.initialize,
            "ping": ping,
            "logging/setLevel": self.set_level,
            **both,
        }

    def write(self, message: Any) -> None:
        """Write a message as one line; the caller holds the lock."""
        rest = memoryview(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        while rest:
            rest = rest[os.write(self.output, rest) :]

    def receive(self, line: bytes) -> None:
        """Handle a line of input."""
        try:
            message: Any = json.loads(line)
        except (ValueError, RecursionError) as error:
            return self.send_error(PARSE_ERROR, f"not JSON: {error}")
        if not isinstance(message, list):
            return self.handle(message)
        items: list[Any] = [*message]
        if self.version != "2025-03-26" or not items:
            return self.send_error(INVALID_REQUEST, "a batch is not allowed here")
        batch = Batch(self, sum(isinstance(item, dict) and {"id", "method"} <= item.keys() for item in items))
        for item in items:
            self.handle(item, batch)
        return None

    def send_error(self, code: int, message: str) -> None:
        """Send an error response without an id, which the schemas allow since 2025-11-25."""
        sys.stderr.write(f"{SERVER_INFO['name']}: {message}\n")
        if self.version is None or self.version == HANDSHAKE_VERSIONS[-1]:
            with self.lock:
                self.write({"jsonrpc": "2.0", "error": {"code": code, "message": message}})

    def handle(self, item: Any, batch: Batch | None = None) -> None:
        """Handle a request or a cancellation; responses are ignored, since this server sends no requests."""
        message = as_object(item)
        params = as_object(message.get("params", {})) if message else None
        if message is None or params is None:
            return self.send_error(INVALID_REQUEST, "not a JSON-RPC message")
        method, identifier = message.get("method"), message.get("id")
        if not isinstance(method, str):
            return None
        if "id" not in message:
            return self.cancel(params.get("requestId")) if method == "notifications/cancelled" else None
        if not is_id(identifier):
            return self.send_error(INVALID_REQUEST, "the id of a request is a string or an integer")
        request = self.requests[identifier] = DemoRequest(self, identifier, params, batch)
        try:
            result = self.dispatch(request, method)
        except Refusal as refusal:
            return request.finish(error=refusal.error)
        return None if result is None else request.finish(result=result)

    def cancel(self, identifier: Any) -> None:
        """Cancel the request with that id, if it is still running."""
        if is_id(identifier) and (request := self.requests.get(identifier)):
            request.cancel()

    def dispatch(self, request: DemoRequest, method: str) -> dict[str, Any] | None:
        """Run the handler of a request, and return its result; None if the response follows later."""
        if request.stateless:
            check_envelope(request.meta)
        elif self.version is None and method not in ("initialize", "ping"):
            raise Refusal(INVALID_PARAMS, f"params._meta lacks {META}protocolVersion, and there was no initialize")
        methods = self.stateless_methods if request.stateless else self.handshake_methods
        if method not in methods:
            raise Refusal(METHOD_NOT_FOUND, f"Method not found: {method}")
        return methods[method](request)

    def initialize(self, request: DemoRequest) -> dict[str, Any]:
        """Negotiate the revision: the client's if it is known, else the newest."""
        asked = request.params.get("protocolVersion")
        if not isinstance(asked, str):
            raise Refusal(INVALID_PARAMS, "protocolVersion is missing")
        self.version = asked if asked in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1]
        about = {"capabilities": CAPABILITIES, "serverInfo": SERVER_INFO, "instructions": INSTRUCTIONS}
        return {"protocolVersion": self.version, **about}

    def discover(self, request: DemoRequest) -> dict[str, Any]:
        """Describe this server and its revisions (2026-07-28, server/discover)."""
        about = {"capabilities": CAPABILITIES, "instructions": INSTRUCTIONS}
        return {"supportedVersions": [STATELESS_VERSION], **about, "ttlMs": ONE_HOUR_MS, "cacheScope": "public"}

    def listen(self, request: DemoRequest) -> None:
        """Acknowledge a subscription, then send nothing: this server never changes."""
        if not isinstance(request.params.get("notifications"), dict):
            raise Refusal(INVALID_PARAMS, "notifications is missing")
        about = {"_meta": {META + "subscriptionId": request.id}, "notifications": {}}
        request.notify("notifications/subscriptions/acknowledged", about)

    def set_level(self, request: DemoRequest) -> dict[str, Any]:
        """Set the minimum level of log messages."""
        self.level = check_level(request.params.get("level"))
        return {}

    def call_tool(self, request: DemoRequest) -> dict[str, Any] | None:
        """Run a tool; `slow` in a thread."""
        name, arguments = request.params.get("name"), request.params.get("arguments", {})
        if not isinstance(name, str) or all(tool["name"] != name for tool in self.tools):
            raise Refusal(INVALID_PARAMS, f"Unknown tool: {name}")
        arguments = as_object(arguments)
        if arguments is None:
            raise Refusal(INVALID_PARAMS, "arguments must be an object")
        if name != "slow":
            return self.tool_result(name, request, arguments)
        threading.Thread(target=self.finish_later, args=(name, request, arguments), daemon=True).start()
        return None

    def tool_result(self, name: str, request: DemoRequest, arguments: dict[str, Any]) -> dict[str, Any]:
        """Run a tool and return its result in the format of the request's revision."""
        result = self.run_tool(name, arguments, request)
        if request.version < "2025-06-18":
            result.pop("structuredContent", None)
        return result

    def finish_later(self, name: str, request: DemoRequest, arguments: dict[str, Any]) -> None:
        """Run the tool and respond, in a thread."""
        try:
            request.finish(result=self.tool_result(name, request, arguments))
        except BrokenPipeError:
            return  # the client has exited

    def close(self) -> None:
        """Shut down: cancel all requests, and wait up to `SHUTDOWN_TIMEOUT` for their threads."""
        for request in list(self.requests.values()):
            request.cancel()
        end = time.monotonic() + SHUTDOWN_TIMEOUT
        for thread in threading.enumerate():
            if thread is not threading.current_thread():
                thread.join(max(0.0, end - time.monotonic()))


def check_envelope(meta: dict[str, Any]) -> None:
    """Refuse a request whose metadata does not match its revision (2026-07-28, basic/index#meta)."""
    version = meta[META + "protocolVersion"]
    if not isinstance(version, str):
        raise Refusal(INVALID_PARAMS, f"params._meta[{META}protocolVersion] must be a string")
    if version != STATELESS_VERSION:
        data = {"supported": [STATELESS_VERSION], "requested": version}
        raise Refusal(UNSUPPORTED_VERSION, "Unsupported protocol version", data)
    if not isinstance(meta.get(META + "clientCapabilities"), dict):
        raise Refusal(INVALID_PARAMS, f"params._meta lacks {META}clientCapabilities")
    if META + "logLevel" in meta:
        check_level(meta[META + "logLevel"])


def check_level(level: Any) -> str:
    """Return the value if it is a log level, else refuse the request."""
    if level not in LEVELS:
        raise Refusal(INVALID_PARAMS, f"no such log level: {level}")
    return level


def as_object(value: Any) -> dict[str, Any] | None:
    """Return the value if it is a JSON object, else None."""
    return {**value} if isinstance(value, dict) else None


def is_id(value: Any) -> TypeGuard[int | str]:
    """Whether a value is a valid request id."""
    return isinstance(value, int | str) and not isinstance(value, bool)


def ping(_request: DemoRequest) -> dict[str, Any]:
    """Respond to a ping."""
    return {}
