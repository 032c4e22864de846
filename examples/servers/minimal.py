"""The part of MCP that the servers of the examples have in common, over stdio. Standard library only.

    server = Server("birds")

    @server.tool("How many birds of a species were seen.", {"species": {"type": "string"}}, readOnlyHint=True)
    def count(species):
        return str(len(species))

    server.run()

A server for daily use is better written with the official SDK: `pip install mcp`.
"""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

Message = dict[str, Any]
VERSION = "2025-11-25"


class ToolFailure(Exception):
    """A failure that the caller should read."""


class Server:
    """Answers the messages of one client."""

    def __init__(self, name: str, instructions: str = "") -> None:
        self.name = name
        self.instructions = instructions
        self.tools: dict[str, tuple[Message, Callable[..., Any]]] = {}
        self.waiting: deque[Message] = deque()
        """Messages that came while the user was asked."""
        self.questions = 0

    def tool(self, description: str, properties: Message | None = None, **hints: bool) -> Callable[..., Any]:
        """Declare a function as a tool; arguments without a default are required."""

        def declare(function: Callable[..., Any]) -> Callable[..., Any]:
            schema: Message = {"type": "object", "properties": properties or {}, "additionalProperties": False}
            schema["required"] = [name for name, one in schema["properties"].items() if "default" not in one]
            declared = {"description": description, "inputSchema": schema, "annotations": hints}
            self.tools[function.__name__] = ({"name": function.__name__, **declared}, function)
            return function

        return declare

    def answer(self, message: Message) -> Message | None:
        """The response to a request; None for a notification."""
        if "id" not in message:
            return None
        handler = {"initialize": self.initialize, "ping": lambda _: {}, "tools/list": self.list_tools}
        handler["tools/call"] = self.call_tool
        method = message.get("method", "")
        if method not in handler:
            outcome: Message = {"error": {"code": -32601, "message": f"Method not found: {method}"}}
        else:
            outcome = {"result": handler[method](message.get("params", {}))}
        return {"jsonrpc": "2.0", "id": message["id"], **outcome}

    def initialize(self, params: Message) -> Message:
        """Agree on a version."""
        about = {"name": self.name, "version": "1.0.0"}
        capabilities: Message = {"tools": {}}
        return {
            "protocolVersion": VERSION,
            "capabilities": capabilities,
            "serverInfo": about,
            "instructions": self.instructions,
        }

    def list_tools(self, params: Message) -> Message:
        """Describe the tools."""
        return {"tools": [described for described, _ in self.tools.values()]}

    def call_tool(self, params: Message) -> Message:
        """Run a tool: a dict it returns is structured content, a string is text."""
        if params["name"] not in self.tools:
            return {"content": [{"type": "text", "text": f"there is no tool {params['name']}"}], "isError": True}
        _, function = self.tools[params["name"]]
        try:
            value = function(**params.get("arguments", {}))
        except ToolFailure as failure:
            return {"content": [{"type": "text", "text": str(failure)}], "isError": True}
        text = value if isinstance(value, str) else json.dumps(value)
        result: Message = {"content": [{"type": "text", "text": text}]}
        return result if isinstance(value, str) else {**result, "structuredContent": value}

    def ask(self, message: str, properties: Message, required: list[str]) -> Message | None:
        """Ask the user for the values of a form, during a call; None if they decline."""
        form = {"type": "object", "properties": properties, "required": required}
        params = {"mode": "form", "message": message, "requestedSchema": form}
        self.questions += 1
        identifier = f"question-{self.questions}"
        self.write({"jsonrpc": "2.0", "id": identifier, "method": "elicitation/create", "params": params})
        while "method" in (reply := json.loads(sys.stdin.readline())):
            self.waiting.append(reply)
        result = reply.get("result", {})
        return result.get("content", {}) if result.get("action") == "accept" else None

    def write(self, message: Message) -> None:
        """Send a message."""
        print(json.dumps(message), flush=True)

    def run(self) -> None:
        """Serve over stdio until the client closes it."""
        while True:
            if self.waiting:
                message = self.waiting.popleft()
            elif line := sys.stdin.readline():
                message = json.loads(line)
            else:
                return
            if response := self.answer(message):
                self.write(response)
