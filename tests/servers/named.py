"""A raw MCP server whose tools are those of its arguments, each the JSON of a definition; no more than that.

A call of any of them gives back {"tool": NAME, "arguments": ARGUMENTS}. With --many N it has N tools, tool_0 and so on.
"""

from __future__ import annotations

import json
import sys
from typing import Any

MANY = {"type": "object", "properties": {"path": {"type": "string", "description": "Which file."}}}


def definitions() -> list[dict[str, Any]]:
    if sys.argv[1:2] == ["--many"]:
        description = "Does something with a file, as the name does not say. " * 3
        return [
            {"name": f"tool_{number}", "description": description, "inputSchema": MANY}
            for number in range(int(sys.argv[2]))
        ]
    return [{"inputSchema": {"type": "object"}, **json.loads(text)} for text in sys.argv[1:]]


def result(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    if method == "initialize":
        info = {"name": "named", "version": "1"}
        return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": definitions()}
    if method == "tools/call":
        value = {"tool": params["name"], "arguments": params.get("arguments", {})}
        return {"content": [{"type": "text", "text": json.dumps(value)}], "structuredContent": value}
    return {} if method == "ping" else None


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        found = result(message["method"], message.get("params") or {})
        unknown = {"code": -32601, "message": "unknown method"}
        answer = {"error": unknown} if found is None else {"result": found}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
