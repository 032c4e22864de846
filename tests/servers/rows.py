"""A server for maps: tools that read, write, fail now and then, are slow, and die; over stdio or HTTP.

    python rows.py RECORD [DIES]         stdio; it dies at the DIESth call
    python rows.py RECORD --http PORT    HTTP; the tool `limited` answers 429 to every third request, `bucket` and
                                         `bare_bucket` (without Retry-After) to those beyond 20 a second, `late` to the
                                         first, `refusing` to all; `down` answers 503

Every call that arrives is a line in the file RECORD: the tool and the key. RECORD.json adds to the tools' definitions.
A call takes its argument `seconds`, or until the file RECORD.hurry exists. Where RECORD is emptied, counts start again.
"""

import json
import os
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

READS = {"readOnlyHint": True, "openWorldHint": False}
WRITES = {"readOnlyHint": False, "openWorldHint": False}
KEY = {
    "type": "object",
    "properties": {"key": {"type": "string"}, "seconds": {"type": "number"}, "times": {"type": "integer"}},
    "required": ["key"],
}
READING = ("read", "flaky", "limited", "compute", "broken", "bucket", "bare_bucket", "late", "down")
HINTS = {**dict.fromkeys(READING, READS), "write": WRITES, "refusing": WRITES}
TOOLS = [{"name": name, "inputSchema": KEY, "annotations": hints} for name, hints in HINTS.items()]
LOCK = threading.Lock()
COUNTS: Counter[str] = Counter()


def count(record: str, tool: str, key: str) -> int:
    with LOCK, open(record, "a") as file:
        if not file.tell():
            COUNTS.clear()
        COUNTS[tool] += 1
        file.write(f"{tool} {key}\n")
        return COUNTS[tool]


def wait(record: str, seconds: float) -> None:
    end, size = time.monotonic() + seconds, os.path.getsize(record)
    while (left := end - time.monotonic()) > 0 and not os.path.exists(f"{record}.hurry"):
        if os.path.getsize(record) < size:  # of a test that is over
            break
        time.sleep(min(left, 0.01))


def call(record: str, tool: str, arguments: dict) -> dict:
    key = arguments["key"]
    number = count(record, tool, key)
    wait(record, arguments.get("seconds", 0))
    if tool == "compute":
        end = time.process_time() + 0.02
        while time.process_time() < end:
            pass
    if tool == "broken" or (tool == "flaky" and number % 7 == 0):
        return {"content": [{"type": "text", "text": f"no luck with {key}"}], "isError": True}
    value = {"length": len(key), "name": {"upper": key.upper()}, "times": arguments.get("times")}
    return {"content": [{"type": "text", "text": json.dumps(value)}], "structuredContent": value}


def more(record: str) -> dict:
    """What the file RECORD.json adds to each tool's definition."""
    path = f"{record}.json"
    if not os.path.exists(path):
        return {}
    with open(path) as file:
        return json.load(file)


def answer(record: str, message: dict) -> dict:
    match message["method"]:
        case "initialize":
            info = {"name": "rows", "version": "1"}
            version = message["params"]["protocolVersion"]
            return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            return {"tools": [{**tool, **more(record)} for tool in TOOLS]}
        case "tools/call":
            return call(record, message["params"]["name"], message["params"].get("arguments", {}))
    return {}


def on_stdio(record: str, dies: int) -> None:
    pool = ThreadPoolExecutor(64)
    writing = threading.Lock()
    calls = 0

    def serve(message: dict) -> None:
        reply = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": answer(record, message)})
        with writing:
            sys.stdout.write(reply + "\n")
            sys.stdout.flush()

    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        if message["method"] == "server/discover":
            error = {"code": -32601, "message": "unknown method"}
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}), flush=True)
            continue
        if message["method"] == "tools/call":
            calls += 1
            if calls == dies:
                count(record, message["params"]["name"], message["params"]["arguments"]["key"])
                os._exit(3)
        pool.submit(serve, message)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    record = ""
    requests: ClassVar[Counter[str]] = Counter()
    tokens, filled = 2.0, time.monotonic()

    def log_message(self, *_: object) -> None: ...

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if message["method"] == "tools/call":
            tool = message["params"]["name"]
            with LOCK:
                refusal = self.refusal(tool)
            if refusal is not None:
                status, wait = refusal
                self.reply(status, {"error": "not now"}, {"retry-after": wait} if wait else {})
                return
        if "id" not in message:
            self.reply(202, None)
        elif message["method"] == "server/discover":
            self.reply(200, {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "unknown"}})
        else:
            self.reply(200, {"jsonrpc": "2.0", "id": message["id"], "result": answer(self.record, message)})

    def refusal(self, tool: str) -> tuple[int, str] | None:
        """The HTTP status with which a call is refused, and its Retry-After."""
        Handler.requests[tool] += 1
        number = Handler.requests[tool]
        match tool:
            case "limited":
                return (429, "0.2") if number % 3 == 0 else None
            case "bucket" | "bare_bucket":
                now = time.monotonic()
                Handler.tokens, Handler.filled = min(2.0, Handler.tokens + 20 * (now - Handler.filled)), now
                if Handler.tokens < 1:
                    return 429, "0.2" if tool == "bucket" else ""
                Handler.tokens -= 1
            case "late":
                return (429, "0.4") if number == 1 else None
            case "refusing":
                return 429, "60"
            case "down":
                return 503, ""
        return None

    def do_GET(self) -> None:
        self.reply(405, None)

    def do_DELETE(self) -> None:
        self.reply(200, None)

    def reply(self, status: int, body: dict | None, headers: dict[str, str] | None = None) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)


if __name__ == "__main__":
    if "--http" in sys.argv:
        Handler.record = sys.argv[1]
        with ThreadingHTTPServer(("127.0.0.1", int(sys.argv[3])), Handler) as server:
            print(server.server_address[1], flush=True)
            server.serve_forever()
    else:
        on_stdio(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0)
