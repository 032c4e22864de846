"""A TCP proxy that drops chosen connections: a network that fails, on demand."""

import asyncio
import contextlib
from collections.abc import AsyncIterator


class Proxy:
    """A TCP proxy to one server, which records what the clients send."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self.sent = b""
        """All that any client has sent."""
        self.tasks: set[asyncio.Task[object]] = set()
        self._latest: dict[asyncio.StreamWriter, bytes] = {}
        self._news = asyncio.Condition()

    async def wait_for(self, marker: bytes) -> None:
        """Wait until a client has sent this."""
        async with self._news:
            await self._news.wait_for(lambda: marker in self.sent)

    async def wait_for_end(self, marker: bytes) -> None:
        """Wait until the client has closed each connection with this in its last request."""
        async with self._news:
            await self._news.wait_for(lambda: not any(marker in latest for latest in self._latest.values()))

    def drop(self, marker: bytes) -> int:
        """Drop the connections with this in their last request; return their number."""
        chosen = [writer for writer, latest in self._latest.items() if marker in latest]
        for writer in chosen:
            writer.transport.abort()
        return len(chosen)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        server_reader, server_writer = await asyncio.open_connection(*self._target)
        self._latest[writer] = b""
        back = asyncio.create_task(_copy(server_reader, writer))
        try:
            while chunk := await reader.read(65536):
                head = chunk.startswith((b"POST ", b"GET ", b"DELETE "))
                self._latest[writer] = chunk if head else self._latest[writer] + chunk
                self.sent += chunk
                await self._tell()
                server_writer.write(chunk)
                await server_writer.drain()
        except ConnectionError:
            pass
        finally:
            del self._latest[writer]
            await self._tell()
            server_writer.transport.abort()
            writer.transport.abort()
            await asyncio.wait({back})

    async def _tell(self) -> None:
        async with self._news:
            self._news.notify_all()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while chunk := await reader.read(65536):
            writer.write(chunk)
            await writer.drain()
    writer.transport.abort()


@contextlib.asynccontextmanager
async def proxied(host: str, port: int) -> AsyncIterator[tuple[Proxy, int]]:
    """Run a proxy to a server; gives it and its port on the loopback address."""
    proxy = Proxy(host, port)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    try:
        yield proxy, server.sockets[0].getsockname()[1]
    finally:
        server.close()
        proxy.drop(b"")
        await asyncio.gather(*proxy.tasks, return_exceptions=True)
