"""HTTP+SSE, the transport before Streamable HTTP: one event stream from the server, and POSTs to it.

The first event, `endpoint`, names the URL for POSTs. All responses arrive on the stream, and its end is the end of the
connection. There is only the handshake era.

Source: MCP 2024-11-05 transports (HTTP with SSE).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ipymcp.errors import ConnectionLost, McpError, StartError
from ipymcp.protocol.transports import http_errors
from ipymcp.protocol.transports.addresses import within_origin
from ipymcp.protocol.transports.event_streams import Cursor, EventReader
from ipymcp.protocol.transports.remote import RemoteTransport

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ipymcp.protocol.transports.base import Authorizer, Receiver
    from ipymcp.protocol.transports.event_streams import Event
    from ipymcp.protocol.transports.remote import QueuedPost


_EVENTS = "text/event-stream"


class LegacySseTransport(RemoteTransport):
    """Transport for a server with an event stream; see `RemoteTransport` for the arguments."""

    def __init__(self, url: str, *, headers: Mapping[str, str], authorizer: Authorizer | None, limit: int) -> None:
        super().__init__(url, headers=headers, authorizer=authorizer, limit=limit)
        self._is_lost = False

    async def open(self, receiver: Receiver) -> None:
        """Open the stream and wait for the endpoint."""
        self._receiver = receiver
        self._events = EventReader(receiver, self._limit)
        self._endpoint: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._endpoint.add_done_callback(lambda done: done.cancelled() or done.exception())
        await self._link.open(receiver)
        self._outbox.open(receiver)
        self._outbox.spawn(self._read_stream())
        await asyncio.shield(self._endpoint)

    async def _read_stream(self) -> None:
        try:
            async with self._link.request("GET", {"Accept": _EVENTS}) as answer:
                if answer.status != 200 or answer.media_type != _EVENTS:
                    body = await answer.read_beginning(http_errors.BEGINNING)
                    if answer.status >= 400:
                        raise http_errors.refusal(answer.status, answer.phrase, answer.headers, body)
                    raise http_errors.unexpected_content(answer.media_type, body)
                await self._events.read(answer, Cursor(), on_other=self._on_event)
            error: McpError = ConnectionLost("the server ended its stream")
        except McpError as failure:
            error = failure
        except Exception as fault:  # a bug must end the connection rather than leave it silent
            error = ConnectionLost(f"its stream was lost because of a bug in ipymcp: {fault!r}")
        if self._endpoint.done():
            self._lose(error.message)
        else:
            self._endpoint.set_exception(error)

    def _on_event(self, event: Event) -> None:
        if event.type != "endpoint" or self._endpoint.done():
            return
        try:
            location = event.data.decode("utf-8", "replace").strip()
            self._endpoint.set_result(within_origin(self._link.address.url, location, "wants messages sent"))
        except McpError as error:
            self._endpoint.set_exception(StartError(error.message, hint=error.hint))

    async def accepts_new_stream(self, seconds: float) -> bool:
        """Tell whether the server opens another stream on a new connection."""
        try:
            async with asyncio.timeout(seconds), self._link.request("GET", {"Accept": _EVENTS}) as answer:
                return answer.status == 200 and answer.media_type == _EVENTS
        except (McpError, TimeoutError):
            return False

    async def _deliver(self, post: QueuedPost) -> McpError | None:
        message = post.message
        async with self._concurrency:
            post.is_sent = True
            if post.is_aborted:
                return None
            async with self._link.request(
                "POST",
                message.headers,
                message.frame,
                url=self._endpoint.result(),
                on_written=lambda: self._outbox.written(post),
            ) as answer:
                body = await answer.read_beginning(http_errors.BEGINNING)
        if 200 <= answer.status < 300:
            return None  # the response arrives on the stream
        if http_errors.is_unknown_session(answer.status, body):
            self._lose("the server does not know this connection any more")
        return http_errors.refusal(answer.status, answer.phrase, answer.headers, body)

    def _lose(self, reason: str) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._receiver.lost(reason)
