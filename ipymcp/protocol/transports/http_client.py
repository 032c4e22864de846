"""HTTP requests to one server on httpcore connections; imported at the first remote server.

httpx itself is not used for requests: cookies of other origins, redirects across origins and event hooks are unsafe or
unneeded for MCP, its pool checks every connection twice per request, and together they take two thirds of the CPU time
of a call. Proxies, CA bundles and compression work as in `httpx.Client`.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import importlib
import ipaddress
import os
import re
import socket
import ssl
import time
import urllib.request
import zlib
from collections import deque
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote

import httpcore
import httpx

from ipymcp.errors import CallError, ConfigError, ConnectionLost, McpError, ProtocolError
from ipymcp.masking import mask
from ipymcp.protocol.transports.addresses import Zone, within_origin, zone_of
from ipymcp.protocol.transports.base import too_large
from ipymcp.protocol.transports.http_errors import Unreachable
from ipymcp.protocol.transports.network import CONNECT_TIMEOUT, TLS_ENDED, Network, check_reach
from ipymcp.version import __version__

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping

    from ipymcp.protocol.transports.addresses import Address


try:
    SOCKSError: type[Exception] = importlib.import_module("socksio.exceptions").SOCKSError
except ImportError:  # no SOCKS proxies
    SOCKSError = httpcore.ProxyError
FAILURES: tuple[type[Exception], ...] = (
    *(httpcore.NetworkError, httpcore.ProtocolError, httpcore.ProxyError, httpcore.TimeoutException),
    *(httpcore.UnsupportedProtocol, httpcore.ConnectionNotAvailable, httpx.HTTPError, SOCKSError),
    *(OSError, ValueError, OverflowError, EOFError, zlib.error),
)
"""The errors of the network and of the libraries that are not bugs in this program."""

_CHECK_HOST = "check the URL and the network"
_CHECK_SCHEME = "is it http:// rather than https://?"
_CHECK_RUNNING = "is the server running?"


def request_error(error: Exception, shown: str) -> McpError | Unreachable:
    """Convert the error of a request that got no response.

    Args:
        error: One of `FAILURES`.
        shown: The server's address for messages.
    """
    if isinstance(error, (httpcore.ConnectError, httpcore.ConnectTimeout, httpcore.ProxyError, SOCKSError)):
        return _unreachable(f"cannot connect to {shown}", error)
    if isinstance(error, httpcore.LocalProtocolError):
        return CallError(f"the request cannot be sent ({error})", hint="check the server's URL and headers")
    return ConnectionLost(f"the connection was dropped before the response ({_reason(error)})")


def response_error(error: Exception) -> ConnectionLost:
    """Convert the error of a response that ended early."""
    return ConnectionLost(f"the connection was dropped before the response was complete ({_reason(error)})")


def _unreachable(problem: str, error: Exception) -> Unreachable:
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            hint = "if you trust this server, name its CA in SSL_CERT_FILE"
            return Unreachable(
                f"{problem}: TLS: certificate verify failed: {getattr(cause, 'verify_message', cause)}",
                hint,
                may_pass=False,
            )
        if isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLWantReadError):  # that one is a timeout
            reason = (getattr(cause, "reason", None) or str(cause)).replace("_", " ").lower()
            return Unreachable(f"{problem}: TLS: {reason}", _CHECK_SCHEME)
        if isinstance(cause, socket.gaierror):
            return Unreachable(f"{problem}: unknown host name ({cause.strerror})", _CHECK_HOST)
        if isinstance(cause, ConnectionRefusedError):
            return Unreachable(f"{problem}: connection refused", _CHECK_RUNNING)
        if isinstance(cause, FileNotFoundError):
            return Unreachable(f"{problem}: no such socket", _CHECK_RUNNING)
    if isinstance(error, httpcore.ConnectTimeout):
        return Unreachable(f"{problem}: no connection within {CONNECT_TIMEOUT:g} s", _CHECK_HOST, may_pass=False)
    return Unreachable(f"{problem}: {_reason(error)}", _CHECK_SCHEME if str(error) == TLS_ENDED else _CHECK_HOST)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Iterate over an error and its causes."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        members: tuple[BaseException, ...] = getattr(cause, "exceptions", ())  # of an ExceptionGroup
        for member in members:
            yield from _causes(member)
        cause = cause.__cause__ or cause.__context__


def _reason(error: Exception) -> str:
    """Find the system's message for an error."""
    words = next((str(cause) for cause in _causes(error) if str(cause)), type(error).__name__)
    return words.rstrip(".")


_MAX_IDLE = 20
_KEEP_ALIVE = 4.0
"""Seconds, below the 5 after which many servers close, to avoid sending into a closing connection."""
_MAX_REDIRECTS = 5
_READ_OF_REDIRECTS = 65_536
_MAX_INFLATION = 100
"""Maximum size of an inflated stream, beyond one message, in proportion to what was received."""
_REDIRECTS = frozenset({301, 302, 307, 308})
_ENCODINGS = ("gzip", "deflate")
_AT_SERVER = "a fault of the server, or of a proxy before it"
_EXTENSIONS = {"timeout": {"connect": CONNECT_TIMEOUT}}
"""Only the connection has a timeout; requests have the deadline of their call."""


_MAX_COOKIES = 50
_MAX_MASKED = 200
_MAX_COOKIE = 4096
"""Characters of a `Set-Cookie` header; a longer one is ignored."""
_COOKIE = re.compile(
    r"\s*+(?P<name>[!#$%&'*+.^_`|~0-9A-Za-z-]++)\s*+=\s*+(?P<value>[!-:<-~]*+)\s*+(?P<attributes>(?:;.*)?)"
)
_AGE = re.compile(r";\s*+max-age\s*+=\s*+(?P<seconds>-?\d++)|;\s*+expires\s*+=(?P<date>[^;]*+)", re.IGNORECASE)


class _PooledConnection:
    """A connection, used by one request at a time."""

    def __init__(self, connection: httpcore.AsyncConnectionInterface) -> None:
        self.http = connection
        self.since = 0.0
        """Time of the last use."""

    @property
    def is_usable(self) -> bool:
        """Whether another request can be sent on the connection."""
        return self.http.is_idle() and not self.http.has_expired() and not self._has_leftover()

    def _has_leftover(self) -> bool:
        """Whether the last response was longer than it said: the rest would be read as the next response."""
        connection: object = self.http
        while (state := getattr(connection, "_h11_state", None)) is None:  # httpcore does not show it
            connection = getattr(connection, "_connection", None)
            if connection is None:
                return False
        return bool(state.trailing_data[0])


class HttpResponse:
    """A response whose body is still to be read. Must be closed."""

    def __init__(self, response: httpcore.Response, connection: _PooledConnection, client: HttpClient) -> None:
        self._response = response
        self._connection = connection
        self._client = client
        self._is_whole = False
        """Whether the body was read to the end, so that the connection can be reused."""
        self.status = response.status
        self.headers: Mapping[str, str] = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers
        }
        """Headers with lower-case names; the last value of a repeated name."""

    @property
    def phrase(self) -> str:
        """Status and reason, such as `429 Too Many Requests`."""
        with contextlib.suppress(ValueError):
            return f"{self.status} {HTTPStatus(self.status).phrase}"
        return str(self.status)

    @property
    def media_type(self) -> str:
        """Media type without parameters, such as `text/event-stream`."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def peer(self) -> str | None:
        """IP address of the server; None if it is unknown or a proxy's."""
        return self._client.peer_of(self._response)

    @property
    def challenges(self) -> list[str]:
        """The `WWW-Authenticate` values."""
        return self.all_of("www-authenticate")

    def all_of(self, header: str) -> list[str]:
        """Return all values of a header, whose name is given in lower case."""
        return [value.decode("latin-1") for name, value in self._response.headers if name.lower() == header.encode()]

    async def chunks(self, limit: int) -> AsyncGenerator[bytes, None]:
        """Iterate over the body.

        A compressed body may be inflated to `limit` bytes and a hundred times its size: a stream may be endless, but
        not by compression alone.

        Args:
            limit: Maximum size of a message in bytes.

        Raises:
            ConnectionLost: The connection was lost.
            ProtocolError: The body is compressed in a way that was not asked for.
            ResultTooLarge: The body is compressed too strongly; the rest was not read.
        """
        encodings = [name.strip().lower() for value in self.all_of("content-encoding") for name in value.split(",")]
        encodings = [name for name in encodings if name not in ("", "identity")]
        if len(encodings) > 1:  # each would be inflated as a whole before the size of the result is known
            raise ProtocolError(
                "the response is compressed more than once, which ipymcp does not read", hint=_AT_SERVER
            )
        if encodings and encodings[0] not in _ENCODINGS:
            raise ProtocolError(f"the response is compressed with {encodings[0][:40]}, unasked", hint=_AT_SERVER)
        try:
            if not encodings:
                async for chunk in self._response.aiter_stream():
                    yield chunk
            else:
                raw, inflated = _Raw(self._response), 0
                decoding = httpx.Response(self.status, headers=self._response.headers, stream=raw)
                async for chunk in decoding.aiter_bytes():
                    yield chunk
                    inflated += len(chunk)
                    if inflated > limit + raw.size * _MAX_INFLATION:
                        raise too_large(limit)
            self._is_whole = True
        except (httpx.DecodingError, zlib.error) as error:
            raise ConnectionLost(f"the response's compression is invalid ({error})") from error
        except FAILURES as error:
            raise response_error(error) from error

    async def read(self, limit: int) -> bytes:
        """Read the whole body.

        Raises:
            ConnectionLost: The connection was lost.
            ProtocolError: The body is compressed in a way that was not asked for.
            ResultTooLarge: The body exceeds `limit` bytes; the rest was not read.
        """
        announced = self.headers.get("content-length", "")
        if announced.isascii() and announced.isdigit() and int(announced) > limit:
            raise too_large(limit)
        parts: list[bytes] = []
        size = 0
        async for chunk in self.chunks(limit):
            parts.append(chunk)
            size += len(chunk)
            if size > limit:
                raise too_large(limit)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def read_beginning(self, size: int) -> bytes:
        """Read at most the first `size` bytes of the body."""
        body = b""
        with contextlib.suppress(ConnectionLost, ProtocolError):
            async with contextlib.aclosing(self.chunks(size)) as chunks:
                async for chunk in chunks:
                    body += chunk[:size]
                    if len(body) >= size:
                        break
        return body[:size]

    async def aclose(self) -> None:
        """Release the connection: keep it if the body was read to the end, otherwise close it."""
        is_clean = False
        try:
            await self._response.aclose()
            is_clean = self._is_whole
        finally:  # a cancelled connection is in an unknown state
            await (self._client.keep(self._connection) if is_clean else self._connection.http.aclose())


class _Raw(httpx.AsyncByteStream):
    """A response body for httpx to decode."""

    def __init__(self, response: httpcore.Response) -> None:
        self._response = response
        self.size = 0
        """Number of bytes received."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._response.aiter_stream():
            self.size += len(chunk)
            yield chunk


class _Body:
    """A request body that reports when it was written."""

    def __init__(self, content: bytes, on_written: Callable[[], None]) -> None:
        self._content = content
        self._on_written = on_written

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._content
        self._on_written()


class Cookies:
    """The cookies that a server has set, for exactly its origin: a load balancer finds the node of a session by them.

    `Domain` and `Path` are ignored, because no other origin is ever requested. Source: RFC 6265 sections 5.2 and 5.4.
    """

    def __init__(self) -> None:
        self._values: dict[str, str] = {}
        self._masked = 0
        self.header = b""
        """The value of the `Cookie` header; empty if there are no cookies."""

    def store(self, values: Iterable[str]) -> None:
        """Store the cookies of `Set-Cookie` headers."""
        for value in values:
            match = _COOKIE.fullmatch(value)
            if match is None or len(value) > _MAX_COOKIE:
                continue
            if _is_expired(match["attributes"]):
                self._values.pop(match["name"], None)
            elif match["name"] in self._values or len(self._values) < _MAX_COOKIES:
                self._values[match["name"]] = match["value"]
                if self._masked < _MAX_MASKED:  # not all of a server that sends another one with every answer
                    self._masked += 1
                    mask.add_tokens(match["value"])
            self.header = "; ".join(f"{name}={value}" for name, value in self._values.items()).encode()

    def clear(self) -> None:
        """Forget them, because the session that they belong to is over."""
        self._values.clear()
        self.header = b""


def _is_expired(attributes: str) -> bool:
    """Return whether the attributes of a cookie remove it; `Max-Age` counts more than `Expires`."""
    ages = {match.lastgroup: match[match.lastgroup or 0] for match in _AGE.finditer(attributes)}
    if "seconds" in ages:
        return int(ages["seconds"][:9]) <= 0
    with contextlib.suppress(KeyError, ValueError):
        return parsedate_to_datetime(ages["date"]).timestamp() <= time.time()
    return False


class HttpClient:
    """HTTP requests to one origin. Each request has its own connection; callers limit their number.

    Creating a client reads the CA bundle, which takes a while, and does not connect.

    Args:
        address: Address of the server.
        headers: Checked headers of every request, such as `Authorization`.
        reach: The closest zone that may be connected to; any zone for an address named by the user.

    Raises:
        ConfigError: The address cannot be used.
        OutOfReach: The address is too close to this machine.
    """

    def __init__(self, address: Address, headers: Mapping[str, str], reach: Zone = Zone.LOCAL) -> None:
        self.address = address
        self._is_closed = False
        url = _parse(address.url)
        self._proxy = None if address.socket else _environment_proxy(url)
        if self._proxy is not None:  # the proxy, chosen by the user, resolves names
            if zone_of(url.host) is not None:
                check_reach(url.host, [url.host], reach)
            reach = Zone.LOCAL
        self._network = Network(reach)
        self._factory = _make_factory(address, self._proxy, self._network)
        self.cookies = Cookies()
        self._urls = {address.url: _target(address.url)}
        self._headers = _encode(_base_headers(url, headers))
        self._idle: deque[_PooledConnection] = deque()
        """Idle connections, most recently used last."""

    async def send(
        self,
        method: str,
        headers: Mapping[str, str],
        content: bytes = b"",
        *,
        url: str | None = None,
        on_written: Callable[[], None] = lambda: None,
        follow: bool = True,
    ) -> HttpResponse:
        """Send a request, following redirects within the origin.

        Args:
            method: `GET`, `POST` or `DELETE`.
            headers: Additional headers, which override those of every request.
            content: The body.
            url: Another URL of the same origin.
            on_written: Called when the body has been written.
            follow: Whether to follow redirects.

        Raises:
            Unreachable: No connection could be made.
            ConnectionLost: The connection was dropped before the response.
            CallError: A redirect led to another origin, or there were too many.
        """
        target = url or self.address.url
        for _ in range(_MAX_REDIRECTS + 1):
            request = httpcore.Request(
                method,
                self._urls.get(target) or self._urls.setdefault(target, _target(target)),
                headers=self._fields(headers, len(content) if method == "POST" else None),
                content=_Body(content, on_written),
                extensions=_EXTENSIONS,
            )
            answer = await self._send_once(request)
            self.cookies.store(answer.all_of("set-cookie"))
            location = answer.headers.get("location")
            if answer.status not in _REDIRECTS or not location or not follow:
                return answer
            await answer.read_beginning(_READ_OF_REDIRECTS)
            await answer.aclose()
            target = within_origin(target, location, "redirects")
        raise CallError(f"{self.address.shown} redirects too often", hint="check the URL's path")

    def peer_of(self, response: httpcore.Response) -> str | None:
        """Get the IP address behind a response; None if unknown."""
        extensions = cast("Mapping[str, object]", response.extensions)  # pyright: ignore[reportUnknownMemberType]
        stream = extensions.get("network_stream")
        if self._proxy is not None or self.address.socket or not isinstance(stream, httpcore.AsyncNetworkStream):
            return None
        peer: tuple[str, int] | None = stream.get_extra_info("peername")
        return peer[0] if peer else None

    def _fields(self, headers: Mapping[str, str], length: int | None) -> list[tuple[bytes, bytes]]:
        fields = list(self._headers)
        if headers:
            more = _encode(headers)
            names = {name.lower() for name, _ in more}
            fields = [field for field in fields if field[0].lower() not in names]
            fields += more
        if cookies := self.cookies.header:
            own = b"".join(b"%s; " % value for name, value in fields if name.lower() == b"cookie")
            fields = [field for field in fields if field[0].lower() != b"cookie"]
            fields.append((b"Cookie", own + cookies))
        if length is not None:
            fields.append((b"Content-Length", b"%d" % length))
        return fields

    async def _send_once(self, request: httpcore.Request) -> HttpResponse:
        if self._is_closed:
            raise ConnectionLost("the connection is closed")
        connection: _PooledConnection | None = None
        while self._idle and connection is None:
            idle = self._idle.pop()
            if idle.is_usable:
                connection = idle
            else:
                await idle.http.aclose()
        connection = connection or _PooledConnection(self._factory.create_connection(request.url.origin))
        try:
            response = await connection.http.handle_async_request(request)
        except BaseException as error:
            await connection.http.aclose()
            if isinstance(error, FAILURES):
                proxy = f" through the proxy {self._proxy.url.host}" if self._proxy is not None else ""
                raise request_error(error, f"{self.address.shown}{proxy}") from error
            raise
        return HttpResponse(response, connection, self)

    async def keep(self, connection: _PooledConnection) -> None:
        """Keep a connection for the next request, and close connections that were idle for long."""
        idle = self._idle
        connection.since = now = asyncio.get_running_loop().time()
        idle.append(connection)
        while idle and (self._is_closed or len(idle) > _MAX_IDLE or now - idle[0].since > _KEEP_ALIVE):
            await idle.popleft().http.aclose()

    async def aclose(self) -> None:
        """Close all connections."""
        self._is_closed = True
        while self._idle:
            await self._idle.pop().http.aclose()
        await self._network.aclose()

    def drop(self) -> None:
        """Release the sockets in a forked child."""
        self._network.drop()


def _make_factory(
    address: Address, proxy: httpx.Proxy | None, network: Network
) -> httpcore.AsyncConnectionPool | httpcore.AsyncHTTPProxy:
    """Create the httpcore pool that makes connections; it is used as a factory only."""
    is_plain = address.url.startswith("http:") and (proxy is None or proxy.url.scheme != "https")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if is_plain else httpx.create_ssl_context()
    if proxy is None:
        return httpcore.AsyncConnectionPool(
            tls, keepalive_expiry=_KEEP_ALIVE, uds=address.socket, network_backend=network
        )
    url, auth = str(proxy.url), proxy.raw_auth
    if proxy.url.scheme.startswith("socks"):
        try:
            return httpcore.AsyncSOCKSProxy(url, auth, tls, keepalive_expiry=_KEEP_ALIVE, network_backend=network)
        except (ImportError, RuntimeError) as error:
            raise ConfigError(
                f"the proxy {proxy.url.host} uses SOCKS, which needs the package socksio", hint="pip install socksio"
            ) from error
    return httpcore.AsyncHTTPProxy(
        url,
        auth,
        ssl_context=tls,
        proxy_ssl_context=tls if proxy.url.scheme == "https" else None,
        proxy_headers=proxy.headers.raw,
        keepalive_expiry=_KEEP_ALIVE,
        network_backend=network,
    )


def _parse(url: str) -> httpx.URL:
    try:
        return httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ConfigError(f"{url[:200]!a} is not the address of an HTTP server ({error})") from error


def _target(url: str) -> httpcore.URL:
    parsed = _parse(url)
    return httpcore.URL(scheme=parsed.raw_scheme, host=parsed.raw_host, port=parsed.port, target=parsed.raw_path)


def _base_headers(url: httpx.URL, given: Mapping[str, str]) -> dict[str, str]:
    """Build the headers of every request; given headers override the defaults."""
    headers = {
        "host": url.netloc.decode("ascii"),
        "user-agent": f"ipymcp/{__version__}",
        "accept": "application/json, text/event-stream",
        "accept-encoding": ", ".join(_ENCODINGS),
        "content-type": "application/json",
    }
    if url.userinfo:
        name, _, password = url.userinfo.partition(b":")
        pair = f"{unquote(name)}:{unquote(password)}"
        headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return headers | {name.lower(): value for name, value in given.items()}


def _encode(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in headers.items()]


_PROXY_SCHEMES = ("http", "https", "socks5", "socks5h")


def _environment_proxy(url: httpx.URL) -> httpx.Proxy | None:
    """Return the proxy for a URL, as the environment or the system names it.

    Raises:
        ConfigError: Its address is invalid, or of a kind that is not supported.
    """
    proxies = urllib.request.getproxies()
    kind = next((kind for kind in (url.scheme, "all") if proxies.get(kind)), None)
    if kind is None or urllib.request.proxy_bypass(url.netloc.decode("ascii")) or _is_in_no_proxy_network(url.host):
        return None
    names = [name for name in (f"{kind}_proxy", f"{kind}_PROXY".upper()) if os.environ.get(name)]
    source = names[0] if names else "the system's settings"
    scheme, separator, rest = proxies[kind].rpartition("://")
    scheme = {"socks": "socks5"}.get(scheme.lower(), scheme.lower()) if separator else "http"
    if scheme not in _PROXY_SCHEMES:
        raise ConfigError(
            f"the proxy in {source} is of a kind that ipymcp does not support: {scheme[:20]}://",
            hint=f"supported are {', '.join(_PROXY_SCHEMES)}; unset it, or list the server's host in NO_PROXY",
        )
    try:
        proxy = httpx.Proxy(f"{scheme}://{rest}")
        if not proxy.url.host or not 0 < (proxy.url.port or 1) < 1 << 16:
            raise ValueError("no host, or no port")
    except (httpx.InvalidURL, ValueError) as error:
        raise ConfigError(
            f"the proxy in {source} is not an address ({type(error).__name__})",
            hint=f"write {source}=http://HOST:PORT, unset it, or list the server's host in NO_PROXY",
        ) from error
    return proxy


def _is_in_no_proxy_network(host: str) -> bool:
    """Return whether `NO_PROXY` has a network that contains an IP address, such as `10.0.0.0/8`, as curl reads it."""
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    for entry in urllib.request.getproxies().get("no", "").split(","):
        with contextlib.suppress(ValueError):
            if address in ipaddress.ip_network(entry.strip().strip("[]"), strict=False):
                return True
    return False
