"""HTTP transports as the tests use them, and servers behind a port."""

import contextlib
import os
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator, Mapping

from ipymcp.protocol.transports.http import LegacySseTransport, StreamableHttpTransport
from tests.servers.raw_http import Handler, RawServer, serving_raw
from tests.transports.recorder import Recorder, opened


@contextlib.contextmanager
def serving(command: list[str], marker: str, **env: str) -> Iterator[str]:
    """Run an HTTP server; gives the first line of its standard error that holds `marker`, which says that it is up."""
    with subprocess.Popen(
        command, env={**os.environ, **env}, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        line = next(line.strip() for line in process.stderr if marker in line)
        drain = threading.Thread(target=process.stderr.read, daemon=True)
        drain.start()
        try:
            yield line
        finally:
            process.kill()
            drain.join()


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
