"""Icons of servers and of what they offer, as data URLs that a page may show as images.

The kernel fetches them, never the page: a page that loads a stranger's address tells who reads it. Nothing is fetched
but from the origin of a server that runs, without credentials; a local server's icons have to be data.

Source: MCP 2025-11-25 and 2026-07-28, basic, icons.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote_to_bytes

from ipymcp.errors import McpError
from ipymcp.protocol import types
from ipymcp.protocol.transports.addresses import parse_address, same_origin
from ipymcp.results.content import image_type

if TYPE_CHECKING:
    from collections.abc import Iterable

    from msgspec import Raw


_MAX_ICON_BYTES: Final = 64_000
_MAX_CANDIDATES: Final = 3
_MAX_KEPT: Final = 200
_FETCH_TIMEOUT: Final = 5.0


class IconCache:
    """The icons that were read, by server's URL and icon's address; the least recently used are dropped."""

    def __init__(self) -> None:
        self._icons: OrderedDict[tuple[str | None, str], asyncio.Task[str | None]] = OrderedDict()
        self._limiter = asyncio.Semaphore(4)

    async def first(self, server_url: str | None, icons: Raw | Any) -> str | None:
        """Return the first of a server's listed icons that can be shown, as a data URL; None if there is none.

        Args:
            server_url: The server's URL; None for a local server.
            icons: The member `icons` of what has it.
        """
        for source in _sources(icons):
            if (found := await self._kept(server_url, source)) is not None:
                return found
        return None

    async def _kept(self, server_url: str | None, source: str) -> str | None:
        key = server_url, source
        if key not in self._icons:
            self._icons[key] = asyncio.create_task(self._read(server_url, source))
        self._icons.move_to_end(key)
        while len(self._icons) > _MAX_KEPT:
            self._icons.popitem(last=False)
        return await asyncio.shield(self._icons[key])

    async def _read(self, server_url: str | None, source: str) -> str | None:
        try:
            async with self._limiter, asyncio.timeout(_FETCH_TIMEOUT):
                data = _decoded(source) if source[:5].lower() == "data:" else await _fetch(server_url, source)
                kind = await asyncio.to_thread(image_type, data)
        except (McpError, OSError, ValueError, TimeoutError):
            return None
        return f"data:{kind};base64,{b64encode(data).decode()}" if kind is not None else None


def _decoded(source: str) -> bytes:
    """The contents of a data URL (RFC 2397).

    Raises:
        ValueError: It is malformed, or too large.
    """
    head, _, text = source.partition(",")
    data = b64decode(text, validate=True) if head.lower().endswith(";base64") else unquote_to_bytes(text)
    if len(data) > _MAX_ICON_BYTES:
        raise ValueError("the icon is too large")
    return data


async def _fetch(server_url: str | None, source: str) -> bytes:
    """Fetch an icon from the server's own origin, without credentials, cookies or redirects.

    Raises:
        McpError: It cannot be fetched, or is too large.
        ValueError: It lies elsewhere.
    """
    if (
        server_url is None
        or not source.lower().startswith(("https://", "http://"))
        or not same_origin(source, server_url)
    ):
        raise ValueError("the icon is not of the server's origin")
    from ipymcp.protocol.transports.http_client import HttpClient

    client = HttpClient(parse_address(source), {})
    try:
        response = await client.send("GET", {"Accept": "image/*"}, follow=False)
        try:
            if response.status != 200:
                raise ValueError(f"the status is {response.status}")
            return await response.read(_MAX_ICON_BYTES)
        finally:
            await response.aclose()
    finally:
        await client.aclose()


def _sources(icons: Raw | Any) -> list[str]:
    """The addresses of the icons that a server lists, the most suitable first: small ones, and no more than a few."""
    listed = types.loads(icons) if isinstance(icons, types.Raw) and len(icons) else icons
    entries = [one for one in listed if types.is_object(one)] if types.is_array(listed) else []
    entries.sort(key=_suitability)
    sources = [one.get("src") for one in entries]
    return [one for one in sources if isinstance(one, str)][:_MAX_CANDIDATES]


def _suitability(icon: dict[str, Any]) -> int:
    """How far an icon's size is from what a list shows; icons that do not name a size come after those that fit."""
    sizes = icon.get("sizes")
    texts: Iterable[Any] = sizes if types.is_array(sizes) else [sizes]
    widths = [
        int(text.partition("x")[0]) for text in texts if isinstance(text, str) and text.partition("x")[0].isdecimal()
    ]
    return min((abs(width - 48) for width in widths if width < 10_000), default=100)
