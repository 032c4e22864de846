"""URLs of servers, metadata and endpoints: which may be used, and which belong together."""

from __future__ import annotations

import ipaddress
from urllib.parse import SplitResult, urlsplit

from ipymcp.errors import AuthError
from ipymcp.protocol.transports.addresses import literal_address

_DEFAULT_PORTS = {"http": 80, "https": 443}
THEIR_FAULT = "a fault of the server: tell whoever runs it"


def host(url: str) -> str:
    """The host, with the port where that is not the scheme's own: what a person recognises a site by."""
    parts = _split(url)
    if parts is None or not parts.hostname:
        return "?"
    name = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return name if parts.port in (None, _DEFAULT_PORTS.get(parts.scheme)) else f"{name}:{parts.port}"


def origin(url: str) -> str:
    """`scheme://host[:port]`, in lower case, without a default port."""
    return f"{urlsplit(url).scheme}://{host(url)}"


def same_origin(one: str, other: str) -> bool:
    """Whether two URLs lie on the same scheme, host and port."""
    return origin(one) == origin(other)


def is_loopback(url: str) -> bool:
    """Whether it names this machine, as `localhost` or by a loopback address in any notation."""
    parts = _split(url)
    if parts is None or not parts.hostname:
        return False
    if parts.hostname == "localhost":
        return True
    ip = literal_address(parts.hostname)
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    ip = mapped or ip
    return ip is not None and ip.is_loopback


def secure(url: str, what: str, *, loopback: bool) -> str:
    """The URL itself, when secrets may be sent there or answers from there believed.

    Args:
        url: An address, usually from somebody's metadata.
        what: What it is, for the message.
        loopback: Whether plain http on this machine will do. Only where the server is on this machine too: a stranger's
            metadata must not make us call our own neighbours.

    Raises:
        AuthError: It is not https, or holds what such an address must not hold.
    """
    parts = _split(url)
    is_plain = url.isascii() and url.isprintable() and " " not in url  # other letters only look like those of a domain
    if parts is None or not parts.hostname or parts.scheme not in _DEFAULT_PORTS or not is_plain:
        raise AuthError(f"cannot log in: {what} is no web address: {url[:200]!a}", hint=THEIR_FAULT)
    if parts.username is not None or parts.fragment:
        raise AuthError(f"cannot log in: {what} on {host(url)} holds a user name or a fragment", hint=THEIR_FAULT)
    if is_loopback(url):
        if not loopback:
            message = f"cannot log in: {what} is on this machine ({host(url)}), and the server is not"
            raise AuthError(message, hint=THEIR_FAULT)
    elif parts.scheme != "https":
        message = f"cannot log in: {what} on {host(url)} is not https"
        raise AuthError(message, hint="only on this machine is http safe; use https, or give a token by headers")
    return url


def canonical(server_url: str) -> str:
    """The server's resource identifier (RFC 8707 section 2): no fragment, no bare trailing slash."""
    parts = urlsplit(server_url)
    path = "" if parts.path == "/" else parts.path
    return f"{origin(server_url)}{path}{'?' + parts.query if parts.query else ''}"


def same_resource(one: str, other: str) -> bool:
    """Whether two resource identifiers are the same, but for a bare trailing slash."""
    return canonical(one).rstrip("/") == canonical(other).rstrip("/")


def covers(resource: str, server_url: str) -> bool:
    """Whether a resource identifier is the server's, or a folder of its origin that the server lies in."""
    if not same_origin(resource, server_url):
        return False
    held = urlsplit(resource)
    asked = urlsplit(server_url)
    if held.query and held.query != asked.query:
        return False
    folder = held.path.rstrip("/")
    return asked.path.rstrip("/") == folder or asked.path.startswith(folder + "/")


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    return parts
