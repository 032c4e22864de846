"""Sockets for httpcore on plain asyncio.

httpcore's own backend uses anyio, which takes half of the CPU time of a small request. This one writes head and body of
a request at once, passes on data as it was read, and closes immediately when cancelled.
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
"""Seconds to connect, including TLS."""
_MAX_UNREAD = 1 << 20
"""Bytes that may wait to be read before reading pauses."""
_LARGE = 1 << 16
_LAST_CONNECTIONS = 0.25
"""Seconds at close for connections that are still being made."""
TLS_ENDED = "TLS: the server ended the handshake"
_ERRNO = re.compile(r"\[Errno (\d+)\]")


class Network(httpcore.AsyncNetworkBackend):
    """Makes connections and tracks them.

    Args:
        reach: The closest zone that may be connected to. It applies to the resolved addresses, and only those are
            connected to, so that a later change of the name's address has no effect.
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
        """Connect to the first address of the host that answers.

        Raises:
            OutOfReach: All addresses are closer to this machine than allowed.
        """
        loop = asyncio.get_running_loop()
        if self._reach < Zone.LOCAL:
            return await self._connected(self._connect_within_reach(host, port), timeout)
        return await self._connected(loop.create_connection(_Stream, host, port, happy_eyeballs_delay=0.25), timeout)

    async def _connect_within_reach(self, host: str, port: int) -> tuple[asyncio.Transport, _Stream]:
        loop = asyncio.get_running_loop()
        infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        resolved = dict.fromkeys(str(info[4][0]) for info in infos)
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
        """Connect in a separate task: asyncio may leak a socket if it is cancelled while connecting."""

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
        """Cancel the connections that are still being made."""
        if self._connecting:
            _, late = await asyncio.wait(self._connecting, timeout=_LAST_CONNECTIONS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)  # closes their sockets while there is a loop
            await asyncio.sleep(0)

    async def sleep(self, seconds: float) -> None:
        """Sleep."""
        await asyncio.sleep(seconds)

    def drop(self) -> None:
        """Release the sockets in a forked child, so that the server sees them end when the parent closes them.

        The parent's event loop uses the same descriptors, and Python may close them again, so each is replaced by the
        null device.
        """
        null = os.open(os.devnull, os.O_RDWR)
        for stream in list(self._streams):
            with contextlib.suppress(Exception):  # the parent's thread may have left it in any state
                number = stream.fileno()
                if number >= 0:
                    os.dup2(null, number)
        os.close(null)


class _Stream(asyncio.Protocol, httpcore.AsyncNetworkStream):
    def __init__(self) -> None:
        self._transport: asyncio.Transport
        self._chunks: deque[bytes] = deque()
        self._unread = 0
        self._is_over = False
        self._error: Exception | None = None
        self._head = b""
        """The head of a request, held back until its body is written."""
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._is_full = False

    # -- for httpcore -------------------------------------------------------------------------------------------------

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Return the next received chunk; empty at the end."""
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
        """Send data; a request's head is sent together with its body."""
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
        """Close at once, discarding buffered data."""
        self.abort()
        await asyncio.sleep(0)

    def abort(self) -> None:
        """Close without waiting for the socket."""
        self._transport.abort()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        """Switch to TLS."""
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
        if new is None:  # asyncio's result if the server has closed the connection
            raise httpcore.ConnectError(TLS_ENDED)
        self._transport = new
        return self

    def get_extra_info(self, info: str) -> Any:
        """Return the information that httpcore uses: whether an idle connection is closed, the negotiated protocol."""
        if info == "is_readable":
            return self._is_over or bool(self._chunks) or _is_readable(self.fileno())
        return self._transport.get_extra_info(info)

    def fileno(self) -> int:
        """Return the socket's descriptor; -1 if closed."""
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
    """Check that at least one address of a host may be connected to.

    Args:
        host: The name of the host.
        resolved: Its IP addresses.
        reach: The closest zone allowed.

    Raises:
        OutOfReach: No address may be connected to.
    """
    zones = {address: zone_of(address) or Zone.PUBLIC for address in resolved}
    if zones and min(zones.values()) > reach:
        address, zone = min(zones.items(), key=lambda item: item[1])
        shown = host if host == address else f"{host} ({address})"
        where = "on this machine" if zone is Zone.LOCAL else "in a private network"
        raise OutOfReach(f"{shown} is {where}, but the server is not")


def _close_connected(task: asyncio.Task[_Stream]) -> None:
    if not task.cancelled() and task.exception() is None:
        task.result().abort()


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


def _is_readable(number: int) -> bool:
    """Return whether the socket has data or its end, which the loop may not have seen yet."""
    if number < 0:
        return True
    if not hasattr(select, "poll"):
        return bool(select.select([number], [], [], 0)[0])
    poll = select.poll()
    poll.register(number, select.POLLIN)
    return bool(poll.poll(0))


@contextlib.contextmanager
def _translated() -> Generator[None, None, None]:
    """Convert connection errors to those of httpcore; `ValueError` is that of an invalid host name or port."""
    try:
        yield
    except TimeoutError as error:
        raise httpcore.ConnectTimeout(str(error)) from error
    except (ValueError, OverflowError, EOFError) as error:
        raise httpcore.ConnectError(str(error)) from error
    except OSError as error:
        numbers = set(_ERRNO.findall(str(error))) if error.errno is None else set[str]()
        if len(numbers) == 1:  # each of several addresses failed in the same way
            number = int(numbers.pop())
            error = OSError(number, os.strerror(number))
        raise httpcore.ConnectError(str(error)) from error
