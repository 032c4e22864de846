"""The light server every contender talks to: standard library only, both eras, quick to start, cheap to ask.

Run it as `python -I -S servers.py [--tools N] [--stderr N]`. Without N it has three tools: `echo`, `text` and `rows`;
with N it has N more, listed a thousand a page. It answers in order, one request at a time, and never sends on its own;
with --stderr it writes that many lines a second on stderr besides.

Source: MCP 2025-11-25 (lifecycle, tools) and 2026-07-28 (server/discover, tools).
"""

import json
import sys
import threading
import time

HANDSHAKE = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
STATELESS = "2026-07-28"
SERVER = {"name": "light", "version": "1"}
CACHE = {"ttlMs": 0, "cacheScope": "private"}
PAGE = 1000
TEXT_LINE = b"The quick brown fox jumps over the lazy dog; so it goes on for eighty letters..\\n"
ROW = b'{"id":%7d,"island":"Torgersen","species":"Adelie","bill_length":39.125,"year":2007,"sex":null}'


def main() -> None:
    tools = [*BASE_TOOLS, *map(numbered_tool, range(number("--tools")))]
    if number("--stderr"):
        threading.Thread(target=write_lines, args=(number("--stderr"),), daemon=True).start()
    write = sys.stdout.buffer.write
    flush = sys.stdout.buffer.flush
    for line in sys.stdin.buffer:
        request = json.loads(line)
        if "id" in request and "method" in request:
            write(answer(request, tools))
            write(b"\n")
            flush()


def number(option: str) -> int:
    return int(sys.argv[sys.argv.index(option) + 1]) if option in sys.argv else 0


def write_lines(a_second: int) -> None:
    """For ever, in a hundred pieces a second; late ones at once."""
    due = time.monotonic()
    lines = b"INFO a line of sixty characters, as programs write them to logs\n" * (a_second // 100)
    while True:
        sys.stderr.buffer.write(lines)
        sys.stderr.buffer.flush()
        due += 0.01
        time.sleep(max(0, due - time.monotonic()))


def answer(request: dict, tools: list[dict]) -> bytes:
    method, params = request["method"], request.get("params") or {}
    stateless = "io.modelcontextprotocol/protocolVersion" in params.get("_meta", ())
    if method == "tools/call":
        return call(request["id"], params["name"], params.get("arguments") or {}, stateless)
    if method == "tools/list":
        start = int(params.get("cursor") or 0)
        result = {"tools": tools[start : start + PAGE]}
        if start + PAGE < len(tools):
            result["nextCursor"] = str(start + PAGE)
        return respond(request["id"], {**result, **CACHE} if stateless else result, stateless)
    if method == "initialize":
        asked = params.get("protocolVersion")
        version = asked if asked in HANDSHAKE else HANDSHAKE[-1]
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": SERVER}
        return respond(request["id"], result, False)
    if method == "server/discover":
        result = {
            "supportedVersions": [STATELESS],
            "capabilities": {"tools": {}},
            "_meta": {"io.modelcontextprotocol/serverInfo": SERVER},
            **CACHE,
        }
        return respond(request["id"], result, True)
    if method == "ping":
        return respond(request["id"], {}, stateless)
    error = {"code": -32601, "message": "Method not found"}
    return json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error}).encode()


def respond(request_id: object, result: dict, stateless: bool) -> bytes:
    if stateless:
        result["resultType"] = "complete"
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "result": result}).encode()


def call(request_id: object, name: str, arguments: dict, stateless: bool) -> bytes:
    """The big results are put together as bytes, so that what is measured is the client."""
    kind = b'"resultType":"complete",' if stateless else b""
    head = b'{"jsonrpc":"2.0","id":' + json.dumps(request_id).encode() + b',"result":{' + kind
    if name == "text":
        body = TEXT_LINE * (arguments["megabytes"] * 1_000_000 // len(TEXT_LINE))
        return head + b'"content":[{"type":"text","text":"' + body + b'"}]}}'
    if name == "rows":
        count = arguments["megabytes"] * 1_000_000 // (len(ROW % 1_000_000) + 1)
        body = b",".join([ROW % (1_000_000 + number) for number in range(count)])
        return head + b'"content":[],"structuredContent":{"rows":[' + body + b"]}}}"
    text = arguments["text"] if name == "echo" else name
    return head + b'"content":[{"type":"text","text":' + json.dumps(text).encode() + b"}]}}"


def tool(name: str, description: str, **properties: dict) -> dict:
    schema = {"type": "object", "properties": properties, "required": list(properties)[:1]}
    return {"name": name, "description": description, "inputSchema": schema}


def numbered_tool(number: int) -> dict:
    return tool(
        f"tool_{number:05d}",
        f"Number {number} of many tools, described at about the length that real servers take for theirs.",
        path={"type": "string", "description": "Where to look"},
        limit={"type": "integer", "description": "How many at most", "default": 10},
        mode={"type": "string", "enum": ["fast", "exact"], "default": "fast"},
    )


BASE_TOOLS = [
    tool("echo", "The text, unchanged", text={"type": "string"}),
    tool("text", "So many megabytes of text", megabytes={"type": "integer"}),
    tool("rows", "So many megabytes of records", megabytes={"type": "integer"}),
]

if __name__ == "__main__":
    main()
