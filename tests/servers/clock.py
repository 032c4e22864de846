"""The server of the package `clock-mcp`, which tells its settings. Standard library only: it is the whole wheel."""

import json
import os
import sys
from typing import Any

TOOL = {
    "name": "settings",
    "description": "What the clock was started with.",
    "inputSchema": {"type": "object"},
    "annotations": {"readOnlyHint": True},
}


def answer(method: str) -> dict[str, Any]:
    if method == "initialize":
        info = {"name": "clock", "version": "1"}
        return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        given = {
            "zone": os.environ.get("CLOCK_ZONE"),
            "key": len(os.environ.get("CLOCK_KEY", "")),
            "args": sys.argv[1:],
        }
        return {"content": [{"type": "text", "text": json.dumps(given)}], "structuredContent": given}
    return {}


def main() -> None:
    if "broken" in sys.argv[0]:
        sys.exit("the clock has no hands")
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        reply: dict[str, Any] = {"result": answer(message["method"])}
        if message["method"] == "server/discover":
            reply = {"error": {"code": -32601, "message": "unknown method"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **reply}), flush=True)


if __name__ == "__main__":
    main()
