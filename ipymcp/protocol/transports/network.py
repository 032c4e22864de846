"""Sockets for httpcore, by asyncio alone.

httpcore's own go through anyio, which is half of the CPU time of a small request. These write head and body of a
request at once, hand on what the loop has read as it is, and close at once when they are cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import select
import socket
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

import httpcore

from ipymcp.protocol.transports.addresses import OutOfReach, Zone, zone_of

if TYPE_CHECKING:
    import ssl
    from collections.abc import Coroutine, Generator, Iterable


CONNECT_TIMEOUT = 10.0
"""Seconds in which a connection is made, TLS and all."""
_MAX_UNREAD = 1 << 20
"""Bytes that may wait to be read before the other side has to."""
_LARGE = 1 << 16
_LAST_CONNECTIONS = 0.25
"""Seconds, at the end, for connections that are being made."""
TLS_ENDED = "TLS: the server ended the handshake"
_ERRNO = re.compile(r"\[Errno (\d+)\]")


class Network(httpcore.AsyncNetworkBackend):
    """Makes connections, and knows them all.

    Args:
        reach: The closest zone that connections may be made to. Judged by the addresses that names resolve to, and
            only these are connected to: another answer of the resolver a moment later changes nothing.
    """

    def __init__(self, reach: Zone = Zone.LOCAL) -> None:
        self._reach = reach
        self._streams: weakref.WeakSet[_Stream] = weakref.WeakSet()
        self._connecting: set[asyncio.Task[_Stream]] = set()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first of the host's addresses that answers.

        Raises:
            OutOfReach: All of them are closer to this machine than they may be.
        """
        loop = asyncio.get_running_loop()
        if self._reach < Zone.LOCAL:
            return await self._connected(self._connect_within_reach(host, port), timeout)
        return await self._connected(loop.create_connection(_Stream, host, port, happy_eyeballs_delay=0.25), timeout)

    async def _connect_within_reach(self, host: str, port: int) -> tuple[asyncio.Transport, _Stream]:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        resolved = dict.fromkeys(str(info[4][0]) for info in found)
        check_reach(host, resolved, self._reach)
        failure: OSError | None = None
        for address in resolved:
            if (zone_of(address) or Zone.PUBLIC) <= self._reach:
                try:
                    return await loop.create_connection(_Stream, address, port)
                except OSError as error:
                    failure = failure or error
        raise failure or OSError("the host's name has no address")

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore.AsyncNetworkStream:
        """Connect to a unix socket."""
        return await self._connected(asyncio.get_running_loop().create_unix_connection(_Stream, path), timeout)

    async def _connected(
        self, connecting: Coroutine[None, None, tuple[asyncio.Transport, _Stream]], timeout: float | None
    ) -> _Stream:
        """In a task of its own: asyncio, cancelled while it connects, may leave a socket open that nobody knows."""

        async def connect() -> _Stream:
            with _translated():
                async with asyncio.timeout(timeout):
                    _, stream = await connecting
            self._streams.add(stream)
            return stream

        task = asyncio.get_running_loop().create_task(connect())
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_close_connected)
            raise

    async def aclose(self) -> None:
        """Give up what is still connecting for nobody."""
        if self._connecting:
            _, late = await asyncio.wait(self._connecting, timeout=_LAST_CONNECTIONS)
            for task in late:
                task.cancel()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    def drop(self) -> None:
        """In a forked child: let go of the sockets, or the server would not see them end when the parent closes them.

        They are the parent's event loop's as well, and Python may close the numbers once more: so each becomes the
        null device, and nothing else is touched.
        """
        null = os.open(os.devnull, os.O_RDWR)
        for stream in list(self._streams):
            with contextlib.suppress(Exception):  # whatever state the parent's thread has left it in
                number = stream.fileno()
                if number >= 0:
                    os.dup2(null, number)
        os.close(null)


class _Stream(asyncio.Protocol, httpcore.AsyncNetworkStream):
    """One connection."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport
        self._chunks: deque[bytes] = deque()
        self._unread = 0
        self._is_over = False
        self._error: Exception | None = None
        self._head = b""
        """The head of a request, which waits for its body."""
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._is_full = False

    # -- for httpcore -------------------------------------------------------------------------------------------------

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """What has come, in the pieces in which it came; nothing at the end."""
        if self._head:
            await self._flush(b"")
        while not self._chunks:
            if self._is_over:
                if self._error is not None:
                    raise httpcore.ReadError(str(self._error)) from self._error
                return b""
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        chunk = self._chunks.popleft()
        if self._unread > _MAX_UNREAD >= self._unread - len(chunk) and not self._is_over:
            self._transport.resume_reading()
        self._unread -= len(chunk)
        return chunk

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Give it to the other side; a request's head goes with what follows it."""
        if not self._head and buffer.endswith(b"\r\n\r\n"):
            self._head = buffer
        else:
            await self._flush(buffer)

    async def _flush(self, buffer: bytes) -> None:
        head, self._head = self._head, b""
        if self._is_over:
            raise httpcore.WriteError("the connection is closed")
        if head and len(buffer) < _LARGE:
            self._transport.write(head + buffer)
        elif head or buffer:
            self._transport.writelines((head, buffer))
        while self._is_full and not self._is_over:
            self._writer = asyncio.get_running_loop().create_future()
            try:
                await self._writer
            finally:
                self._writer = None

    async def aclose(self) -> None:
        """Close, now: nothing that is not yet sent or read matters."""
        self.abort()
        await asyncio.sleep(0)

    def abort(self) -> None:
        """The same, without waiting for the socket to be gone."""
        self._transport.abort()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        """Go on encrypted."""
        loop = asyncio.get_running_loop()
        old = self._transport
        if self._is_over or old.is_closing():  # asyncio would wait for its handshake timeout
            old.abort()
            raise httpcore.ConnectError(TLS_ENDED)
        try:
            with _translated():
                async with asyncio.timeout(timeout):
                    new = await loop.start_tls(old, self, ssl_context, server_hostname=server_hostname)
        except httpcore.ConnectError as error:
            old.abort()
            raise httpcore.ConnectError(str(error) or TLS_ENDED) from error.__cause__
        except BaseException:
            old.abort()
            raise
        if new is None:  # what asyncio gives where the other side has gone meanwhile
            raise httpcore.ConnectError(TLS_ENDED)
        self._transport = new
        return self

    def get_extra_info(self, info: str) -> Any:
        """What httpcore asks for: whether the server has closed an idle connection, and the negotiated protocol."""
        if info == "is_readable":
            return self._is_over or bool(self._chunks) or _is_readable(self.fileno())
        return self._transport.get_extra_info(info)

    def fileno(self) -> int:
        """The socket's number; -1 once it is closed."""
        sock: socket.socket | None = self._transport.get_extra_info("socket")
        return sock.fileno() if sock is not None else -1

    # -- for the loop -------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._chunks.append(data)
        before, self._unread = self._unread, self._unread + len(data)
        if before <= _MAX_UNREAD < self._unread:
            self._transport.pause_reading()
        _wake(self._reader)

    def eof_received(self) -> None:
        self._is_over = True
        _wake(self._reader)

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        _wake(self._writer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_over = True
        self._error = exc
        _wake(self._reader)
        _wake(self._writer)


def check_reach(host: str, resolved: Iterable[str], reach: Zone) -> None:
    """See that one of a host's addresses may be connected to.

    Args:
        host: As it was named.
        resolved: Its IP addresses.
        reach: The closest zone allowed.

    Raises:
        OutOfReach: None may.
    """
    zones = {address: zone_of(address) or Zone.PUBLIC for address in resolved}
    if zones and min(zones.values()) > reach:
        address, zone = min(zones.items(), key=lambda item: item[1])
        shown = host if host == address else f"{host} ({address})"
        where = "on this machine" if zone is Zone.LOCAL else "in a private network"
        raise OutOfReach(f"{shown} is {where}, and the server is not")


def _close_connected(task: asyncio.Task[_Stream]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().abort()


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


def _is_readable(number: int) -> bool:
    """Whether there is something to read, or the end, that the loop may not have seen yet."""
    if number < 0:
        return True
    if not hasattr(select, "poll"):
        return bool(select.select([number], [], [], 0)[0])
    poll = select.poll()
    poll.register(number, select.POLLIN)
    return bool(poll.poll(0))


@contextlib.contextmanager
def _translated() -> Generator[None, None, None]:
    """What goes wrong while a connection is made, as httpcore's errors."""
    try:
        yield
    except TimeoutError as error:
        raise httpcore.ConnectTimeout(str(error)) from error
    except OSError as error:
        numbers = set(_ERRNO.findall(str(error))) if error.errno is None else set[str]()
        if len(numbers) == 1:  # each of several addresses failed in the same way
            number = int(numbers.pop())
            error = OSError(number, os.strerror(number))
        raise httpcore.ConnectError(str(error)) from error
