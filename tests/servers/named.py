"""A raw MCP server with a tool for each of its arguments, which are definitions in JSON.

A call of any of them gives back {"tool": NAME, "arguments": ARGUMENTS}. With --many N it has N tools, tool_0 and so on.
"""

import json
import sys
from typing import Any

from raw_stdio import opened, serve, text_result, unknown

MANY = {"type": "object", "properties": {"path": {"type": "string", "description": "Which file."}}}


def definitions() -> list[dict[str, Any]]:
    if sys.argv[1:2] == ["--many"]:
        description = "Does something with a file, as the name does not say. " * 3
        return [
            {"name": f"tool_{number}", "description": description, "inputSchema": MANY}
            for number in range(int(sys.argv[2]))
        ]
    return [{"inputSchema": {"type": "object"}, **json.loads(text)} for text in sys.argv[1:]]


def result(method: str, params: dict[str, Any]) -> dict[str, Any]:
    match method:
        case "initialize":
            return opened("named", "tools")
        case "tools/list":
            return {"tools": definitions()}
        case "tools/call":
            value = {"tool": params["name"], "arguments": params.get("arguments", {})}
            return text_result(json.dumps(value), structuredContent=value)
        case "ping":
            return {}
        case _:
            raise unknown(method)


if __name__ == "__main__":
    serve(result)
