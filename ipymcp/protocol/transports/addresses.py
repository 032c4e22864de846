"""Addresses of HTTP servers: how close one is to this machine, and which URLs a login may use."""

from __future__ import annotations

import ipaddress
import re
import socket
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import SplitResult, urljoin, urlsplit

from ipymcp.errors import AuthError, CallError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

_PORTS = {"http": 80, "https": 443}
_UNIX = re.compile(r"unix://(?P<socket>/[^:?#]+)(?::(?P<path>/.*)?)?")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_NOT_IN_HEADERS = re.compile(r"[\0\r\n]")
_NOT_IN_URLS = re.compile(r"[\x00-\x20\x7f]")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


class Zone(IntEnum):
    """The distance of an IP address from this machine."""

    PUBLIC = 0
    PRIVATE = 1
    """A network that is not the internet: private, shared and reserved ranges."""
    LOCAL = 2
    """This machine or its link: loopback, unspecified, link-local, multicast, or an address of its own interfaces."""


class OutOfReach(CallError):
    """An address is closer to this machine than the server that named it, so it must not be connected to."""


class Address(NamedTuple):
    """The address of a server."""

    url: str
    socket: str | None
    """Path of the server's unix socket, if it has one."""
    shown: str
    """The address for messages, without password and query, which may hold secrets."""


def parse_address(text: str) -> Address:
    """Parse `http://…`, `https://…`, or `unix:///path/to.sock:/mcp` for a unix socket (the path is `/mcp` by default).

    Raises:
        ConfigError: The text is not an address.
    """
    unix = _UNIX.fullmatch(text)
    if unix is not None:
        return Address(f"http://localhost{unix['path'] or '/mcp'}", unix["socket"], f"unix://{unix['socket']}")
    url = _split(text)
    if url is None:
        raise ConfigError(
            f"{text[:200]!r} is not the address of an HTTP server",
            hint="http://…, https://… or unix:///path/to.sock:/mcp",
        )
    return Address(url._replace(fragment="").geturl(), None, _show_origin(url) + url.path)


def within_origin(base: str, location: str, verb: str) -> str:
    """Resolve an address named by the server, such as a redirect, within its origin.

    Args:
        base: The address that named it.
        location: The named address, absolute or relative.
        verb: The server's action, for the error message.

    Raises:
        CallError: The address has another origin, which headers and messages must not reach.
    """
    here, there = _split(base), _split(urljoin(base, location))
    assert here is not None
    if there is None:
        raise CallError(f"the server {verb} to an invalid address: {location[:200]!r}", hint="a fault of the server")
    if _origin(here) != _origin(there):
        raise CallError(
            f"the server at {_show_origin(here)} {verb} to another origin, {_show_origin(there)}: not followed",
            hint="if that is right, load the server by that address",
        )
    return there._replace(fragment="").geturl()


def literal_address(host: str) -> IpAddress | None:
    """Parse a host as an IP address in any notation that resolvers accept; None for a name.

    `127.1`, `0x7f000001`, `2130706433` and `0177.0.0.1` are all 127.0.0.1.
    """
    text = host.strip("[]").partition("%")[0]
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(text)) if text.isascii() and " " not in text else None
    except OSError:
        return None


def zone_of(host: str) -> Zone | None:
    """Find the zone of an IP address in any notation, or of `localhost`; None for other names."""
    if f".{host.lower().rstrip('.')}".endswith(".localhost"):
        return Zone.LOCAL
    ip = literal_address(host)
    if ip is None:
        return None
    if isinstance(ip, ipaddress.IPv6Address):  # the IPv4 address that it embeds, if any
        if ip in _NAT64:
            ip = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        else:
            ip = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else ip)
    if ip.is_loopback or ip.is_unspecified or ip.is_link_local or ip.is_multicast or str(ip) in _own_addresses():
        return Zone.LOCAL
    return Zone.PUBLIC if ip.is_global else Zone.PRIVATE


def _own_addresses() -> set[str]:
    """List the IP addresses of this machine's interfaces."""
    import psutil  # on logins only

    return {
        address.address.partition("%")[0]
        for addresses in psutil.net_if_addrs().values()
        for address in addresses
        if address.family in (socket.AF_INET, socket.AF_INET6)
    }


def checked_headers(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    """Check and strip headers.

    Raises:
        ConfigError: A header is invalid; its value is not shown.
    """
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise ConfigError(f"{name!r} is not a valid header name")
        if _NOT_IN_HEADERS.search(value):
            raise ConfigError(f"the value of the header {name} contains a line break")
    return [(name, value.strip()) for name, value in headers.items()]


def _split(text: str) -> SplitResult | None:
    try:
        url = urlsplit(text)
        is_usable = url.scheme in _PORTS and bool(url.hostname) and (url.port is None or url.port > 0)
    except ValueError:
        return None
    return url if is_usable and not _NOT_IN_URLS.search(text) else None


def _origin(url: SplitResult) -> tuple[str, str | None, int]:
    return url.scheme, url.hostname, url.port or _PORTS[url.scheme]


def _show_origin(url: SplitResult) -> str:
    return f"{url.scheme}://{url.netloc.rpartition('@')[2]}"


# -- URLs of a login ---------------------------------------------------------------------------------------------------


SERVER_FAULT = "a fault of the server: tell its operator"


def host(url: str) -> str:
    """Return the host that a user recognizes a site by, with a non-default port."""
    parts = _parts_of(url)
    if parts is None or not parts.hostname:
        return "?"
    name = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return name if parts.port in (None, _PORTS.get(parts.scheme)) else f"{name}:{parts.port}"


def origin(url: str) -> str:
    """Return `scheme://host[:port]` in lower case, without a default port."""
    return f"{urlsplit(url).scheme}://{host(url)}"


def same_origin(one: str, other: str) -> bool:
    """Return whether two URLs have the same scheme, host and port."""
    return origin(one) == origin(other)


def is_loopback(url: str) -> bool:
    """Return whether a URL names this machine: `localhost`, or a loopback address in any notation."""
    parts = _parts_of(url)
    if parts is None or not parts.hostname:
        return False
    if parts.hostname == "localhost":
        return True
    ip = literal_address(parts.hostname)
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    ip = mapped or ip
    return ip is not None and ip.is_loopback


def secure(url: str, what: str, *, loopback: bool) -> str:
    """Check that a URL is safe to send secrets to and to trust answers from, and return it.

    Args:
        url: A URL, usually from metadata.
        what: Description of the URL, for the error message.
        loopback: Whether plain http on this machine is allowed, as it is if the server is on this machine too. A remote
            server's metadata must not cause requests to local services.

    Raises:
        AuthError: The URL is not https, or has a user name or fragment.
    """
    parts = _parts_of(url)
    is_plain = url.isascii() and url.isprintable() and " " not in url  # other letters may look like ASCII letters
    if parts is None or not parts.hostname or parts.scheme not in _PORTS or not is_plain:
        raise AuthError(f"cannot log in: {what} is not a web address: {url[:200]!a}", hint=SERVER_FAULT)
    if parts.username is not None or parts.fragment:
        raise AuthError(f"cannot log in: {what} on {host(url)} contains a user name or a fragment", hint=SERVER_FAULT)
    if is_loopback(url):
        if not loopback:
            message = f"cannot log in: {what} is on this machine ({host(url)}), but the server is not"
            raise AuthError(message, hint=SERVER_FAULT)
    elif parts.scheme != "https":
        message = f"cannot log in: {what} on {host(url)} is not https"
        raise AuthError(message, hint="only on this machine is http safe; use https, or give a token by headers")
    return url


def canonical(server_url: str) -> str:
    """Return the server's resource identifier (RFC 8707 section 2): no fragment, no bare trailing slash."""
    parts = urlsplit(server_url)
    path = "" if parts.path == "/" else parts.path
    return f"{origin(server_url)}{path}{'?' + parts.query if parts.query else ''}"


def same_resource(one: str, other: str) -> bool:
    """Compare two resource identifiers, ignoring a bare trailing slash."""
    return canonical(one).rstrip("/") == canonical(other).rstrip("/")


def covers(resource: str, server_url: str) -> bool:
    """Return whether a resource identifier is the server's, or a parent path on its origin."""
    if not same_origin(resource, server_url):
        return False
    held = urlsplit(resource)
    asked = urlsplit(server_url)
    if held.query and held.query != asked.query:
        return False
    folder = held.path.rstrip("/")
    return asked.path.rstrip("/") == folder or asked.path.startswith(folder + "/")


def _parts_of(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    return parts
