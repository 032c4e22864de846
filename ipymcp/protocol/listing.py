"""The lists a server gives page by page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from ipymcp.protocol import wire
from ipymcp.protocol.negotiation import shaped
from ipymcp.protocol.rpc import excerpt

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from ipymcp.protocol.client import Client

__all__ = ["MAX_PAGES", "list_tools", "pages"]

MAX_PAGES = 1000
T = TypeVar("T", bound="Page")


class Page(Protocol):
    """One page of a list."""

    nextCursor: str | None


async def pages(client: Client, method: str, kind: type[T], *, timeout: float | None) -> AsyncIterator[T]:
    """Every page of a list; a repeated cursor or 1,000 pages end it.

    Args:
        client: Open.
        method: Such as `tools/list`.
        kind: The shape of a page.
        timeout: Seconds for each page.
    """
    cursors: set[str] = set()
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        body = wire.encode({"cursor": cursor}) if cursor else b"{}"
        page = shaped(await client.request(method, body, timeout=timeout), kind, method)
        yield page
        cursor = page.nextCursor
        if not cursor:
            return
        if cursor in cursors:
            client.on_noise(f"{method} repeats its cursor {cursor!r}; the list ends here")
            return
        cursors.add(cursor)
    client.on_noise(f"{method} has more than {MAX_PAGES:,} pages; the list ends here")


async def list_tools(client: Client, *, timeout: float | None) -> list[wire.ToolDefinition]:
    """All tools of a server, without those whose definition is malformed."""
    tools: list[wire.ToolDefinition] = []
    async for page in pages(client, "tools/list", wire.ListToolsResult, timeout=timeout):
        for raw in page.tools:
            try:
                tools.append(wire.decode(raw, wire.ToolDefinition))
            except ValueError as error:
                client.on_noise(f"a tool left out, its definition is malformed ({error}): {excerpt(bytes(raw))}")
    return tools
