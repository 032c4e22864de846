"""Checks and comparisons of server, metadata and endpoint URLs."""

from __future__ import annotations

import ipaddress
from urllib.parse import SplitResult, urlsplit

from ipymcp.errors import AuthError
from ipymcp.protocol.transports.addresses import literal_address

_DEFAULT_PORTS = {"http": 80, "https": 443}
SERVER_FAULT = "a fault of the server: tell its operator"


def host(url: str) -> str:
    """Return the host that a user recognizes a site by, with a non-default port."""
    parts = _split(url)
    if parts is None or not parts.hostname:
        return "?"
    name = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return name if parts.port in (None, _DEFAULT_PORTS.get(parts.scheme)) else f"{name}:{parts.port}"


def origin(url: str) -> str:
    """Return `scheme://host[:port]` in lower case, without a default port."""
    return f"{urlsplit(url).scheme}://{host(url)}"


def same_origin(one: str, other: str) -> bool:
    """Return whether two URLs have the same scheme, host and port."""
    return origin(one) == origin(other)


def is_loopback(url: str) -> bool:
    """Return whether a URL names this machine: `localhost`, or a loopback address in any notation."""
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
    """Check that a URL is safe to send secrets to and to trust answers from, and return it.

    Args:
        url: A URL, usually from metadata.
        what: Description of the URL, for the error message.
        loopback: Whether plain http on this machine is allowed, as it is if the server is on this machine too. A remote
            server's metadata must not cause requests to local services.

    Raises:
        AuthError: The URL is not https, or has a user name or fragment.
    """
    parts = _split(url)
    is_plain = url.isascii() and url.isprintable() and " " not in url  # other letters may look like ASCII letters
    if parts is None or not parts.hostname or parts.scheme not in _DEFAULT_PORTS or not is_plain:
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


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    return parts
