"""Where HTTP requests go, and where they must not go."""

from __future__ import annotations

import ipaddress
import re
import socket
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import SplitResult, urljoin, urlsplit

from ipymcp.errors import CallError, ConfigError

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
    """How close to this machine an IP address is."""

    PUBLIC = 0
    PRIVATE = 1
    """A network that is not the internet: private, shared and reserved ranges."""
    LOCAL = 2
    """This machine or its link: loopback, unspecified, link-local, multicast, or an address of its own interfaces."""


class OutOfReach(CallError):
    """An address must not be connected to, because who named it is farther away than the address is."""


class Address(NamedTuple):
    """A server's address."""

    url: str
    socket: str | None
    """The path of the unix socket behind it."""
    shown: str
    """As messages name it: without a password, and without the query, which may hold a secret."""


def parse_address(text: str) -> Address:
    """`http://…`, `https://…`, or `unix:///path/to.sock:/mcp` for a unix socket (`/mcp` if nothing follows).

    Raises:
        ConfigError: It is none of these.
    """
    unix = _UNIX.fullmatch(text)
    if unix is not None:
        return Address(f"http://localhost{unix['path'] or '/mcp'}", unix["socket"], f"unix://{unix['socket']}")
    url = _split(text)
    if url is None:
        raise ConfigError(
            f"{text[:200]!r} is no address of an HTTP server", hint="http://…, https://… or unix:///path/to.sock:/mcp"
        )
    return Address(url._replace(fragment="").geturl(), None, _show_origin(url) + url.path)


def within_origin(base: str, location: str, verb: str) -> str:
    """An address the server names, such as that of a redirect.

    Args:
        base: The address that named it.
        location: What it named, absolute or relative.
        verb: What the server does with it, for the error.

    Raises:
        CallError: It is of another origin, where headers and messages must not go.
    """
    here, there = _split(base), _split(urljoin(base, location))
    assert here is not None
    if there is None:
        raise CallError(f"the server {verb} to what is no address: {location[:200]!r}", hint="a fault of the server")
    if _origin(here) != _origin(there):
        raise CallError(
            f"the server at {_show_origin(here)} {verb} to another origin, {_show_origin(there)}: not followed",
            hint="if that is right, load the server by that address",
        )
    return there._replace(fragment="").geturl()


def literal_address(host: str) -> IpAddress | None:
    """The IP address that a host is written as, in any form that a resolver takes; None for a name.

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
    """The zone of an IP address, however it is written, or of `localhost`; None for any other name."""
    if f".{host.lower().rstrip('.')}".endswith(".localhost"):
        return Zone.LOCAL
    ip = literal_address(host)
    if ip is None:
        return None
    ip = _embedded(ip)
    if ip.is_loopback or ip.is_unspecified or ip.is_link_local or ip.is_multicast or str(ip) in _own_addresses():
        return Zone.LOCAL
    return Zone.PUBLIC if ip.is_global else Zone.PRIVATE


def _embedded(ip: IpAddress) -> IpAddress:
    """The IPv4 address that an IPv6 address stands for, where it does."""
    if isinstance(ip, ipaddress.IPv6Address):
        if ip in _NAT64:
            return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        return ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else ip)
    return ip


def _own_addresses() -> set[str]:
    """The IP addresses of this machine's interfaces."""
    import psutil  # on logins only

    return {
        address.address.partition("%")[0]
        for addresses in psutil.net_if_addrs().values()
        for address in addresses
        if address.family in (socket.AF_INET, socket.AF_INET6)
    }


def checked_headers(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    """Headers as they can be sent.

    Raises:
        ConfigError: One cannot; its value is not shown.
    """
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise ConfigError(f"{name!r} is no name of a header")
        if _NOT_IN_HEADERS.search(value):
            raise ConfigError(f"the value of the header {name} holds a line break")
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
