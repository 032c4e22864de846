"""`Fetch` on httpx. To be imported only once a server wants a login."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING

import httpx

from ipymcp.errors import ConnectionLost
from ipymcp.protocol.oauth.fetching import MAX_BODY
from ipymcp.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["HttpxFetch"]


class HttpxFetch:
    """Sends each request over a connection of its own: logins are rare, and leave nothing open behind them."""

    def __init__(self) -> None:
        self._context: ssl.SSLContext | None = None

    async def __call__(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Send one request; see `Fetch`."""
        if url.startswith("http:"):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        else:
            context = self._context = self._context or await asyncio.to_thread(httpx.create_ssl_context)
        own = {"User-Agent": f"ipymcp/{__version__}", **headers}
        try:
            async with (
                httpx.AsyncClient(verify=context, follow_redirects=False, timeout=None) as client,
                client.stream(method, url, headers=own, content=body or None) as response,
            ):
                answer = b""
                async for chunk in response.aiter_bytes():
                    answer += chunk[: MAX_BODY + 1 - len(answer)]
                    if len(answer) > MAX_BODY:
                        break
                return response.status_code, response.headers, answer
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ConnectionLost(str(error) or type(error).__name__) from error
