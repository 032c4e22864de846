"""An HTTP server in the test's own process: a function of the test answers each request."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMPLETE = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


@dataclass
class Heard:
    """One request as it came."""

    verb: str
    path: str
    headers: dict[str, str]
    """By name in lower case."""
    message: Any = None

    @property
    def method(self) -> str:
        return self.message.get("method", "") if isinstance(self.message, dict) else ""


@dataclass
class Reply:
    """A response: a message, a stream of messages, or another body."""

    message: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    events: Sequence[Any] | None = None
    """Sent one by one, bytes as they are; a function among them is waited for."""
    body: bytes = b""


def result(heard: Heard, **members: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": heard.message["id"], "result": members}


def refused(heard: Heard, code: int, message: str, **more: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": heard.message.get("id"), "error": {"code": code, "message": message, **more}}


@dataclass
class Site:
    """The server: its origin, its URL, and the requests it received."""

    origin: str
    heard: list[Heard] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"{self.origin}/mcp"

    def methods(self) -> list[str]:
        return [heard.method for heard in self.heard if heard.verb == "POST"]

    def of(self, method: str) -> list[Heard]:
        return [heard for heard in self.heard if heard.method == method]


@contextlib.contextmanager
def serving(answer: Callable[[Heard], Reply], *, gets: bool = False) -> Iterator[Site]:
    """Serve on the loopback interface. GET and DELETE are refused by 405, unless `gets`: they are answered as well."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self._serve(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def do_GET(self) -> None:
            self._serve(None)

        do_DELETE = do_GET

        def _serve(self, message: Any) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            heard = Heard(self.command, self.path, headers, message)
            site.heard.append(heard)
            reply = Reply(status=405) if message is None and not gets else answer(heard)
            with contextlib.suppress(OSError):
                self._reply(reply)

        def _reply(self, reply: Reply) -> None:
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            if reply.events is None:
                body = reply.body if reply.message is None else json.dumps(reply.message).encode()
                if reply.message is not None:
                    self.send_header("Content-Type", "application/json")
                if "Content-Length" not in reply.headers:
                    self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
                return
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            for event in reply.events:
                if callable(event):
                    event()
                else:
                    written = event if isinstance(event, bytes) else f"data: {json.dumps(event)}\n\n".encode()
                    self.wfile.write(written)
                    self.wfile.flush()
            self.close_connection = True

        def log_message(self, format: str, *arguments: Any) -> None: ...

    class Server(ThreadingHTTPServer):
        request_queue_size = 100
        daemon_threads = True

    server = Server(("127.0.0.1", 0), Handler)
    site = Site(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
