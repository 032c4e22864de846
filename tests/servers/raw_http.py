"""An HTTP server that sends exactly what a test asks for, byte by byte: every fault a network or a server can have.

It runs in the test's own event loop. A handler is found by the JSON-RPC method of the body (with a tool's name, if it
calls one), or else by the HTTP method; where there is none, it behaves like a small server of the handshake era.
"""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Request:
    """A request of a client."""

    method: str
    target: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def message(self) -> dict[str, Any]:
        return json.loads(self.body) if self.body else {}

    @property
    def names(self) -> list[str]:
        """The handlers that may serve it, the most particular first."""
        method = self.message.get("method", "")
        tool = self.message.get("params", {}).get("name", "") if method == "tools/call" else ""
        return [name for name in (f"{method} {tool}" if tool else "", method, self.method) if name]


class Reply:
    """The way back to the client."""

    def __init__(self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._request = request
        self._reader = reader
        self._writer = writer
        self.is_over = False
        """Whether the connection must not be used again."""

    async def raw(self, data: bytes) -> None:
        """These bytes, as they are."""
        self._writer.write(data)
        await self._writer.drain()

    async def full(self, status: str, body: bytes = b"", **headers: str) -> None:
        """A whole answer; `Retry_After` is the header `Retry-After`."""
        lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        head = "\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *lines])
        await self.raw(f"{head}\r\n\r\n".encode() + body)

    async def json(self, message: Mapping[str, Any], status: str = "200 OK", **headers: str) -> None:
        """A JSON answer; `id` is the request's unless given."""
        body = {"jsonrpc": "2.0", "id": self._request.message.get("id"), **message}
        await self.full(status, json.dumps(body).encode(), Content_Type="application/json", **headers)

    async def result(self, text: str = "done", **headers: str) -> None:
        """A tool's answer."""
        await self.json({"result": {"content": [{"type": "text", "text": text}]}}, **headers)

    async def stream(self, **headers: str) -> None:
        """The head of a stream of events, which ends with the connection."""
        self.is_over = True
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        await self.raw(f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{lines}\r\n".encode())

    async def event(self, message: Mapping[str, Any] | None = None, **fields: str) -> None:
        """An event; `id` of the message is the request's unless given, and without one its data is empty."""
        data = "" if message is None else json.dumps({"jsonrpc": "2.0", **message})
        lines = [*(f"{name}: {value}" for name, value in fields.items()), f"data: {data}"]
        await self.raw("\n".join(lines).encode() + b"\n\n")

    async def answer_event(self, text: str = "done", **fields: str) -> None:
        """A tool's answer as an event."""
        content = [{"type": "text", "text": text}]
        await self.event({"id": self._request.message.get("id"), "result": {"content": content}}, **fields)

    async def closed(self) -> None:
        """Wait until the client closes the connection."""
        self.is_over = True
        with contextlib.suppress(ConnectionError):
            await self._reader.read()

    def drop(self) -> None:
        """Drop the connection, now."""
        self.is_over = True
        self._writer.transport.abort()


Handler = Callable[[Request, Reply], Awaitable[None]]


@dataclass
class RawServer:
    """The server: its handlers, and the requests it received."""

    handlers: dict[str, Handler] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    session: str | None = "session-1"
    origin: str = ""
    open_connections: int = 0
    most_connections: int = 0
    _news: asyncio.Condition = field(default_factory=asyncio.Condition)
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"{self.origin}/mcp"

    def asked(self, name: str) -> list[Request]:
        """The requests that a handler of this name would serve."""
        return [request for request in self.requests if name in request.names]

    async def wait_for(self, name: str, times: int = 1) -> Request:
        """Wait until it was asked for this so often; the last of these requests."""
        async with asyncio.timeout(30), self._news:
            await self._news.wait_for(lambda: len(self.asked(name)) >= times)
        return self.asked(name)[times - 1]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.open_connections += 1
        self.most_connections = max(self.most_connections, self.open_connections)
        try:
            while (request := await _read(reader)) is not None:
                self.requests.append(request)
                async with self._news:
                    self._news.notify_all()
                reply = Reply(request, reader, writer)
                names = [name for name in request.names if name in self.handlers]
                await (self.handlers[names[0]] if names else self._behave)(request, reply)
                if reply.is_over:
                    break
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError, asyncio.CancelledError):
            pass
        finally:
            self.open_connections -= 1
            self._tasks.discard(task)
            writer.transport.abort()

    async def aclose(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _behave(self, request: Request, reply: Reply) -> None:
        """Answer as a small server of the handshake era."""
        method = request.message.get("method", "")
        if request.method != "POST":
            await reply.full("405 Method Not Allowed")
        elif method == "initialize":
            result = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "raw", "version": "1"},
            }
            session = {} if self.session is None else {"Mcp_Session_Id": self.session}
            await reply.json({"result": result}, **session)
        elif method == "tools/call":
            await reply.result()
        elif method == "ping":
            await reply.json({"result": {}})
        elif "id" in request.message and method:
            await reply.json({"error": {"code": -32601, "message": f"no {method} here"}})
        else:
            await reply.full("202 Accepted")


async def _read(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.split("\r\n")
    method, target, _ = first.split(" ")
    pairs = (line.partition(":") for line in lines if line)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, target, headers, body)


class Held:
    """A handler that does not answer, or does not end its stream after the answer.

    `closed` is set once the client has closed its request.
    """

    def __init__(self, *, streams: bool = False, answer: str | None = None) -> None:
        self._streams = streams
        self._answer = answer
        self.closed = asyncio.Event()

    async def __call__(self, _: Request, reply: Reply) -> None:
        if self._streams:
            await reply.stream()
        if self._answer is not None:
            await reply.answer_event(self._answer)
        await reply.closed()
        self.closed.set()


@contextlib.asynccontextmanager
async def serving_raw(
    handlers: Mapping[str, Handler] | None = None,
    *,
    port: int = 0,
    tls: ssl.SSLContext | None = None,
    socket: str | None = None,
) -> AsyncIterator[RawServer]:
    """Run one on the loopback address, or at a unix socket."""
    raw = RawServer(dict(handlers or {}))
    if socket is not None:
        server = await asyncio.start_unix_server(raw.serve, socket)
        raw.origin = f"unix://{socket}:"
    else:
        server = await asyncio.start_server(raw.serve, "127.0.0.1", port, ssl=tls)
        scheme = "http" if tls is None else "https"
        raw.origin = f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield raw
    finally:
        server.close()
        await raw.aclose()
