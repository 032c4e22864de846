"""Lists that a server gives page by page: tools, resources, templates, prompts.

Source: MCP 2025-11-25 and 2026-07-28, utilities/pagination and (2026-07-28) utilities/caching.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from ipymcp.errors import RpcError
from ipymcp.protocol import wire
from ipymcp.protocol.negotiation import shaped
from ipymcp.protocol.rpc import excerpt

if TYPE_CHECKING:
    from msgspec import Raw

    from ipymcp.protocol.client import Client

__all__ = ["PROMPTS", "RESOURCES", "TEMPLATES", "TOOLS", "Listed", "Listing", "list_all"]

T = TypeVar("T")
MAX_PAGES = 1000
METHOD_NOT_FOUND = -32601


class Listing(NamedTuple, Generic[T]):
    """A list that servers have."""

    method: str
    capability: str
    """A server that does not declare it has nothing to list."""
    page: type[wire.Page]
    item: type[T]
    noun: str


TOOLS = Listing("tools/list", "tools", wire.ListToolsResult, wire.ToolDefinition, "tool")
RESOURCES = Listing("resources/list", "resources", wire.ListResourcesResult, wire.ResourceDefinition, "resource")
TEMPLATES = Listing(
    "resources/templates/list", "resources", wire.ListTemplatesResult, wire.TemplateDefinition, "template"
)
PROMPTS = Listing("prompts/list", "prompts", wire.ListPromptsResult, wire.PromptDefinition, "prompt")


class Listed(NamedTuple, Generic[T]):
    """All of a list."""

    items: list[T]
    ttl: float | None
    """Seconds for which it is fresh, by the page that goes stale first; None where the server does not say."""


async def list_all(client: Client, listing: Listing[T], *, timeout: float | None) -> Listed[T]:
    """All pages of a list; a repeated cursor or 1,000 pages end it. A server that knows no such list has an empty one.

    Raises:
        McpError: As `Client.request`.
        ProtocolError: An answer that is no page.
    """
    items: list[T] = []
    ttl: float | None = None
    if listing.capability not in client.capabilities:
        return Listed(items, ttl)
    cursors: set[str] = set()
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        body = wire.encode({"cursor": cursor}) if cursor else b"{}"
        try:
            raw = await client.request(listing.method, body, timeout=timeout)
        except RpcError as error:
            if error.code == METHOD_NOT_FOUND:
                return Listed(items, ttl)
            raise
        page = shaped(raw, listing.page, listing.method)
        items += _items(client, listing, page.items)
        if page.ttlMs is not None:
            seconds = max(0.0, page.ttlMs / 1000)
            ttl = seconds if ttl is None else min(ttl, seconds)
        cursor = page.nextCursor
        if not cursor:
            return Listed(items, ttl)
        if cursor in cursors:
            client.noise(f"{listing.method} repeats its cursor {cursor!r}; the list ends here")
            return Listed(items, ttl)
        cursors.add(cursor)
    client.noise(f"{listing.method} has more than {MAX_PAGES:,} pages; the list ends here")
    return Listed(items, ttl)


def _items(client: Client, listing: Listing[T], raws: list[Raw]) -> list[T]:
    found: list[T] = []
    for raw in raws:
        try:
            found.append(wire.decode(raw, listing.item))
        except ValueError as error:
            client.noise(f"a {listing.noun} left out, its definition is malformed ({error}): {excerpt(bytes(raw))}")
    return found
