"""Lists that a server gives page by page, and the requests that read resources and get prompts.

Source: MCP 2025-11-25 and 2026-07-28, utilities/pagination and (2026-07-28) utilities/caching. Also
server/resources, server/prompts and utilities/completion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from ipymcp.errors import ProtocolError, RpcError
from ipymcp.protocol import types
from ipymcp.protocol.jsonrpc import excerpt
from ipymcp.protocol.negotiation import shaped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from msgspec import Raw

    from ipymcp.protocol.eras import Era


T = TypeVar("T")
MAX_PAGES = 1000
METHOD_NOT_FOUND = -32601


class Requester(Protocol):
    """The part of a `Client` that sends requests."""

    era: Era
    capabilities: dict[str, Any]
    """The capabilities that the server declared."""

    async def request(self, method: str, body: bytes = ..., *, timeout: float | None = ...) -> Raw:
        """Send a request and wait for its result."""
        ...

    async def exchange(self, method: str, body: bytes, *, timeout: float | None) -> tuple[Raw, bool]:
        """Send a request; the result, and whether it took input rounds."""
        ...

    def noise(self, text: str) -> None:
        """Log something that the server should not have sent."""
        ...


class ListMethod(NamedTuple, Generic[T]):
    """A list that servers have."""

    method: str
    capability: str
    """A server that does not declare it has nothing to list."""
    page: type[types.Page]
    item: type[T]
    noun: str


TOOLS = ListMethod("tools/list", "tools", types.ListToolsResult, types.ToolDefinition, "tool")
RESOURCES = ListMethod("resources/list", "resources", types.ListResourcesResult, types.ResourceDefinition, "resource")
TEMPLATES = ListMethod(
    "resources/templates/list", "resources", types.ListTemplatesResult, types.TemplateDefinition, "template"
)
PROMPTS = ListMethod("prompts/list", "prompts", types.ListPromptsResult, types.PromptDefinition, "prompt")


class Listed(NamedTuple, Generic[T]):
    """All of a list."""

    items: list[T]
    ttl: float | None
    """Seconds for which it is fresh, by the page that goes stale first; None where the server does not say."""


async def list_all(client: Requester, listing: ListMethod[T], *, timeout: float | None) -> Listed[T]:
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
        body = types.encode({"cursor": cursor}) if cursor else b"{}"
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


def _items(client: Requester, listing: ListMethod[T], raws: list[Raw]) -> list[T]:
    found: list[T] = []
    for raw in raws:
        try:
            found.append(types.decode(raw, listing.item))
        except ValueError as error:
            client.noise(f"a {listing.noun} left out, its definition is malformed ({error}): {excerpt(bytes(raw))}")
    return found


_UNDECLARED = "2024-11-05"
"""The last revision in which a server completes without declaring that it does."""


class Read(NamedTuple):
    """A resource as it was read."""

    raw: Raw
    """The JSON of the `result` object of `resources/read`."""
    ttl: float
    """Seconds for which it is fresh; 0 where the server does not say, or asked for input first."""


async def read_resource(client: Requester, uri: str, *, timeout: float | None) -> Read:
    """Read a resource.

    Raises:
        ProtocolError: The answer is none.
        McpError: As `Client.request`.
    """
    raw, is_for_us_alone = await client.exchange("resources/read", types.encode({"uri": uri}), timeout=timeout)
    result = shaped(raw, types.ReadResourceResult, "resources/read")
    return Read(raw, 0.0 if is_for_us_alone else max(0.0, (result.ttlMs or 0.0) / 1000))


async def get_prompt(client: Requester, name: str, arguments: Mapping[str, str], *, timeout: float | None) -> Raw:
    """The JSON of a prompt's messages, with these arguments.

    Raises:
        ProtocolError: The answer is none.
        McpError: As `Client.request`.
    """
    body = types.encode({"name": name, "arguments": arguments} if arguments else {"name": name})
    raw = await client.request("prompts/get", body, timeout=timeout)
    shaped(raw, types.GetPromptResult, "prompts/get")
    return raw


async def complete(
    client: Requester,
    reference: Mapping[str, str],
    argument: str,
    typed: str,
    others: Mapping[str, str],
    *,
    timeout: float | None,
) -> list[str]:
    """What the server suggests for an argument; nothing where it suggests nothing.

    Args:
        client: The connection.
        reference: `{"type": "ref/prompt", "name": …}` or `{"type": "ref/resource", "uri": …}`.
        argument: Its name.
        typed: What is there of its value.
        others: The values of the other arguments, as far as they are known.
        timeout: Seconds.

    Raises:
        McpError: As `Client.request`.
    """
    if "completions" not in client.capabilities and client.era.version > _UNDECLARED:
        return []
    body: dict[str, Any] = {"ref": reference, "argument": {"name": argument, "value": typed}}
    if others and client.era.version >= "2025-06-18":
        body["context"] = {"arguments": others}
    raw = await client.request("completion/complete", types.encode(body), timeout=timeout)
    try:
        return types.decode(raw, types.CompleteResult).completion.values
    except ValueError as error:
        raise ProtocolError(f"the answer to completion/complete is not what MCP says ({error})") from error


async def subscribe(client: Requester, uri: str, *, timeout: float | None) -> None:
    """Handshake era: have the server tell when this resource changes."""
    await client.request("resources/subscribe", types.encode({"uri": uri}), timeout=timeout)


async def unsubscribe(client: Requester, uri: str, *, timeout: float | None) -> None:
    """Handshake era: no longer."""
    await client.request("resources/unsubscribe", types.encode({"uri": uri}), timeout=timeout)
