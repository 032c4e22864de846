"""The `Fetch` implementation on the transports' HTTP client; imported when a server requires a login."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ipymcp.errors import ConnectionLost
from ipymcp.protocol.oauth.http import MAX_BODY
from ipymcp.protocol.transports.addresses import parse_address
from ipymcp.protocol.transports.http_client import HttpClient
from ipymcp.protocol.transports.http_errors import Unreachable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ipymcp.protocol.transports.addresses import Zone


async def fetch(
    method: str, url: str, headers: Mapping[str, str], body: bytes, *, reach: Zone
) -> tuple[int, Mapping[str, str], bytes]:
    """Send one request over a new connection that is closed afterwards."""
    client = await asyncio.to_thread(HttpClient, parse_address(url), {}, reach)
    try:
        answer = await client.send(method, headers, body, follow=False)
        try:
            content = b""
            async for chunk in answer.chunks():
                content += chunk[: MAX_BODY + 1 - len(content)]
                if len(content) > MAX_BODY:
                    break
            return answer.status, answer.headers, content
        finally:
            await answer.aclose()
    except Unreachable as error:
        raise ConnectionLost(error.reason, hint=error.hint) from error
    finally:
        await client.aclose()
