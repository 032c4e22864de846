"""Requests to an HTTP server, with a second connection attempt and logins.

httpx is imported when the link is opened.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from typing import TYPE_CHECKING

from ipymcp.errors import ConnectionLost, McpError
from ipymcp.protocol.transports import http_errors
from ipymcp.protocol.transports.addresses import checked_headers, parse_address
from ipymcp.protocol.transports.base import NO_HEADERS
from ipymcp.protocol.transports.http_errors import Unreachable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from ipymcp.protocol.transports.base import Authorizer, Receiver
    from ipymcp.protocol.transports.http_client import HttpClient, HttpResponse


_SECOND_ATTEMPT = 0.25
"""Seconds before the second attempt to connect."""
_MAX_LOGINS = 5
"""Maximum logins for one request."""


def _nothing() -> None: ...


class HttpLink:
    """Sends requests to one server.

    Args:
        url: See `parse_address`.
        headers: Headers of every request, from the server's definition.
        authorizer: Logs in if the server requires it.

    Raises:
        ConfigError: The URL or a header is invalid.
    """

    def __init__(self, url: str, headers: Mapping[str, str], authorizer: Authorizer | None) -> None:
        self.address = parse_address(url)
        self._headers = dict(checked_headers(headers))
        self._authorizer = authorizer
        self._client: HttpClient | None = None

    async def open(self, receiver: Receiver) -> None:
        """Create the HTTP client, without connecting."""
        self._receiver = receiver
        self._client = await asyncio.get_running_loop().run_in_executor(None, self._make_client)

    def _make_client(self) -> HttpClient:
        """Import httpx and read the CA bundle; both are slow, so this runs in a thread."""
        from ipymcp.protocol.transports.http_client import HttpClient

        return HttpClient(self.address, self._headers)

    @contextlib.asynccontextmanager
    async def request(
        self,
        method: str,
        headers: Mapping[str, str],
        content: bytes = b"",
        *,
        url: str | None = None,
        on_written: Callable[[], None] = _nothing,
    ) -> AsyncGenerator[HttpResponse, None]:
        """Send a request and yield its response, after a login if needed. See `HttpClient.send` for the arguments.

        Raises:
            AuthError: The login is impossible or failed.
            ConnectionLost: No connection could be made, or it was dropped.
            CallError: A redirect is not allowed.
        """
        for attempt in itertools.count(1):
            credentials = await self._credentials()
            fields = {**headers, **credentials} if credentials else headers
            answer = await self._connect(method, fields, content, url, on_written)
            try:
                challenges = answer.challenges if answer.status in (401, 403) else []
                if answer.status != 401 and not challenges:
                    yield answer
                    return
                await answer.read_beginning(http_errors.BEGINNING)
                peer = answer.peer
            finally:
                await answer.aclose()
            if (
                self._authorizer is None
                or attempt > _MAX_LOGINS
                or not await self._authorizer.challenged(answer.status, challenges, credentials, peer)
            ):
                had_credentials = bool(credentials) or any(name.lower() == "authorization" for name in self._headers)
                raise http_errors.unauthorized(answer.phrase, challenges, had_credentials=had_credentials)

    async def send_and_forget(self, method: str, headers: Mapping[str, str]) -> None:
        """Send a request and ignore its response and errors."""
        with contextlib.suppress(McpError, Unreachable):
            if self._client is not None:
                answer = await self._client.send(method, {**headers, **await self._credentials()})
                await answer.aclose()

    async def _credentials(self) -> Mapping[str, str]:
        return await self._authorizer.headers() if self._authorizer is not None else NO_HEADERS

    async def _connect(
        self,
        method: str,
        headers: Mapping[str, str],
        content: bytes,
        url: str | None,
        on_written: Callable[[], None],
    ) -> HttpResponse:
        client = self._client
        if client is None:
            raise ConnectionLost("the connection is closed")
        send = client.send
        try:
            return await send(method, headers, content, url=url, on_written=on_written)
        except Unreachable as error:
            failure = error
        if failure.may_pass:
            await asyncio.sleep(_SECOND_ATTEMPT)
            try:
                return await send(method, headers, content, url=url, on_written=on_written)
            except Unreachable as error:
                failure = error
        self._receiver.unreachable(failure.reason)
        raise ConnectionLost(failure.reason, hint=failure.hint) from failure

    async def aclose(self) -> None:
        """Close all connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def drop(self) -> None:
        """Release the sockets in a forked child."""
        if self._client is not None:
            self._client.drop()
