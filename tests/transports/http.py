"""Streamable HTTP, for the tests only: proof that the transport interface carries it as it is.

Source: MCP 2025-11-25 transports (sessions, GET stream) and 2026-07-28 transports/streamable-http.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import httpx

from ipymcp.errors import CallError, ConnectionLost, McpError, RpcError
from ipymcp.protocol import wire

if TYPE_CHECKING:
    from ipymcp.protocol.transports.base import Message, Receiver

__all__ = ["HttpTransport"]

_ACCEPT = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
_SESSION = "Mcp-Session-Id"


@dataclass
class _Post:
    """One message on its way; a request until its answer has come."""

    message: Message
    queued: int
    """Bytes the server has not yet taken."""
    task: asyncio.Task[None] | None = None
    is_aborted: bool = False

    @property
    def can_be_aborted(self) -> bool:
        """In the stateless era, which mirrors the method, the end of the response stream is the cancellation."""
        return "Mcp-Method" in self.message.headers


class HttpTransport:
    """A server behind one URL: a POST for each message, and in the handshake era a GET stream beside them."""

    uses_headers = True

    def __init__(self, url: str) -> None:
        self._url = url
        self._session: dict[str, str] = {}
        self._requests: dict[int | str | float, _Post] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._untaken: asyncio.Task[None] | None = None
        """The last notification, as long as the server has not taken it: what comes later waits for it."""
        self._queued = 0
        self._is_closed = False

    async def open(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._loop = asyncio.get_running_loop()
        self._http = httpx.AsyncClient(headers=_ACCEPT, timeout=httpx.Timeout(10, read=None), trust_env=False)

    def send(self, message: Message) -> None:
        if self._is_closed:
            raise ConnectionLost("the connection is closed")
        post = _Post(message, queued=len(message.frame))
        if message.kind == "request" and message.id is not None:
            self._requests[message.id] = post
        self._queued += post.queued
        self._loop.call_soon_threadsafe(self._start, post)

    def turn(self) -> None:
        return None

    def abort(self, identifier: int | str | float) -> bool:
        post = self._requests.get(identifier)
        if post is None or not post.can_be_aborted:
            return False
        post.is_aborted = True
        self._loop.call_soon_threadsafe(lambda: post.task and post.task.cancel())
        return True

    @property
    def queued(self) -> int:
        return self._queued

    async def aclose(self) -> None:
        self._is_closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._session:
            with contextlib.suppress(httpx.HTTPError):
                await self._http.delete(self._url, headers=self._session)
        await self._http.aclose()

    # -- one POST -----------------------------------------------------------------------------------------------------

    def _start(self, post: _Post) -> None:
        if self._is_closed or post.is_aborted:
            self._taken(post)
            return
        post.task = self._spawn(self._deliver(post, self._untaken))
        if post.message.kind == "notification":
            self._untaken = post.task

    def _spawn(self, work: object) -> asyncio.Task[None]:
        task = self._loop.create_task(work)  # type: ignore[arg-type]
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _deliver(self, post: _Post, before: asyncio.Task[None] | None) -> None:
        message = post.message
        try:
            if before is not None:
                await asyncio.wait({before})
            error = await self._exchange(post)
        except httpx.TransportError as failure:
            error = ConnectionLost(f"the connection was dropped before the answer ({type(failure).__name__})")
        finally:
            self._taken(post)
            self._requests.pop(message.id or 0, None)
        if message.kind == "request" and message.id is not None:
            self._receiver.undelivered(message.id, error)  # of no consequence where the answer has come
        elif message.method == "notifications/initialized":
            self._spawn(self._listen(message.headers))

    def _taken(self, post: _Post) -> None:
        self._queued, post.queued = self._queued - post.queued, 0

    async def _exchange(self, post: _Post) -> McpError:
        """Deliver one message and its answers; what to say to whoever still waits afterwards."""
        headers = {**post.message.headers, **self._session}
        async with self._http.stream("POST", self._url, content=post.message.frame, headers=headers) as response:
            self._taken(post)
            if response.is_error:
                return _refusal(response.status_code, await response.aread())
            if session := response.headers.get(_SESSION):
                self._session = {_SESSION: session}
            if response.headers.get("Content-Type", "").startswith("text/event-stream"):
                async for event in _events(response):
                    self._receiver.message(event)
            elif body := await response.aread():
                self._receiver.message(body)
        return ConnectionLost("the server ended its answer before the end")

    async def _listen(self, headers: Mapping[str, str]) -> None:
        """Handshake era: what the server says of its own accord comes on a GET stream."""
        with contextlib.suppress(httpx.TransportError):
            async with self._http.stream("GET", self._url, headers={**headers, **self._session}) as response:
                if response.is_success:
                    async for event in _events(response):
                        self._receiver.message(event)


def _refusal(status: int, body: bytes) -> McpError:
    """The JSON-RPC error of an HTTP error, which may name no id, or else the status alone."""
    with contextlib.suppress(ValueError):
        raw = wire.decode(body, wire.Envelope).error
        if len(raw):
            error = wire.decode(raw, wire.ErrorObject)
            data = wire.loads(error.data) if len(error.data) else None
            return RpcError(error.message, code=error.code, data=data)
    if 400 <= status < 500:
        return RpcError(f"the server answered HTTP {status}", code=status)
    return CallError(f"the server answered HTTP {status}")


async def _events(response: httpx.Response) -> AsyncIterator[bytes]:
    """The data of each event of an SSE stream."""
    data: list[bytes] = []
    rest = b""
    async for chunk in response.aiter_bytes():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                data.append(line.removeprefix(b"data:").strip())
            elif not line.strip():
                if any(data):
                    yield b"\n".join(data)
                data.clear()
