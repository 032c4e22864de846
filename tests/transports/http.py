"""HTTP transports as the tests use them, and a raw server."""

import contextlib
from collections.abc import AsyncIterator, Mapping

from ipymcp.protocol.transports.http import LegacySseTransport, StreamableHttpTransport
from tests.servers.raw_http import Handler, RawServer, serving_raw
from tests.transports.recorder import Recorder, opened


def http(url: str, *, limit: int = 1_000_000, **headers: str) -> StreamableHttpTransport:
    return StreamableHttpTransport(url, headers=headers, authorizer=None, limit=limit)


def sse(url: str) -> LegacySseTransport:
    return LegacySseTransport(url, headers={}, authorizer=None, limit=1_000_000)


@contextlib.asynccontextmanager
async def talking(
    handlers: Mapping[str, Handler] | None = None, *, handshake: bool = True, limit: int = 1_000_000, **headers: str
) -> AsyncIterator[tuple[RawServer, StreamableHttpTransport, Recorder]]:
    """A raw server, a transport that is open to it, and what that receives."""
    async with serving_raw(handlers) as server:
        transport = http(server.url, limit=limit, **headers)
        async with opened(transport, handshake=handshake) as recorder:
            yield server, transport, recorder
