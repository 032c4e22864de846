"""Where HTTP requests go, and where they must not go."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import SplitResult, urljoin, urlsplit

from ipymcp.errors import CallError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Address", "checked_headers", "parse_address", "within_origin"]

_PORTS = {"http": 80, "https": 443}
_UNIX = re.compile(r"unix://(?P<socket>/[^:?#]+)(?::(?P<path>/.*)?)?")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_NOT_IN_HEADERS = re.compile(r"[\0\r\n]")
_NOT_IN_URLS = re.compile(r"[\x00-\x20\x7f]")


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
