"""An HTTP server in the test's own process: each request is answered by a function of the test's."""

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
    headers: dict[str, str]
    """By name in lower case."""
    message: Any = None

    @property
    def method(self) -> str:
        return self.message.get("method", "") if isinstance(self.message, dict) else ""


@dataclass
class Reply:
    """A response: a message, or a stream of messages."""

    message: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    events: Sequence[Any] | None = None
    """Sent one by one; a function among them is waited for."""


def result(heard: Heard, **members: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": heard.message["id"], "result": members}


def refused(heard: Heard, code: int, message: str, **more: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": heard.message.get("id"), "error": {"code": code, "message": message, **more}}


@dataclass
class Site:
    """The server: its URL, and the requests it received."""

    url: str
    heard: list[Heard] = field(default_factory=list)

    def methods(self) -> list[str]:
        return [one.method for one in self.heard if one.verb == "POST"]

    def of(self, method: str) -> list[Heard]:
        return [one for one in self.heard if one.method == method]


@contextlib.contextmanager
def serving(answer: Callable[[Heard], Reply]) -> Iterator[Site]:
    """Serve on a free port of the loopback interface."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self._serve(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def do_GET(self) -> None:
            self._serve(None)

        do_DELETE = do_GET

        def _serve(self, message: Any) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            heard = Heard(self.command, headers, message)
            site.heard.append(heard)
            reply = Reply(status=405) if message is None else answer(heard)
            with contextlib.suppress(OSError):
                self._reply(reply)

        def _reply(self, reply: Reply) -> None:
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            if reply.events is None:
                body = b"" if reply.message is None else json.dumps(reply.message).encode()
                if body:
                    self.send_header("Content-Type", "application/json")
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
                    self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
                    self.wfile.flush()
            self.close_connection = True

        def log_message(self, format: str, *arguments: Any) -> None: ...

    class Server(ThreadingHTTPServer):
        request_queue_size = 100
        daemon_threads = True

    server = Server(("127.0.0.1", 0), Handler)
    site = Site(f"http://127.0.0.1:{server.server_port}/mcp")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
