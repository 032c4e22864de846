"""Paginated lists, reading of resources, prompts and completions.

Source: MCP 2025-11-25 and 2026-07-28, utilities/pagination and (2026-07-28) utilities/caching. Also
server/resources, server/prompts and utilities/completion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from ipymcp.errors import ProtocolError, RpcError
from ipymcp.protocol import types
from ipymcp.protocol.jsonrpc import METHOD_NOT_FOUND, excerpt
from ipymcp.protocol.negotiation import decode_result

if TYPE_CHECKING:
    from collections.abc import Mapping

    from msgspec import Raw

    from ipymcp.protocol.eras import Era


T = TypeVar("T")
MAX_PAGES = 1000


class Requester(Protocol):
    """The part of a `Client` that sends requests."""

    era: Era
    capabilities: dict[str, Any]
    """Capabilities declared by the server."""

    async def request(self, method: str, body: bytes = ..., *, timeout: float | None = ...) -> Raw:
        """Send a request and wait for its result."""
        ...

    async def exchange(self, method: str, body: bytes, *, timeout: float | None) -> tuple[Raw, bool]:
        """Send a request; return its result and whether it took input rounds."""
        ...

    def protocol_warning(self, text: str) -> None:
        """Log a protocol violation."""
        ...


class ListMethod(NamedTuple, Generic[T]):
    """A method that lists one kind of item."""

    method: str
    capability: str
    """Servers that do not declare this capability have an empty list."""
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
    """All items of a list."""

    items: list[T]
    ttl: float | None
    """Seconds for which the list is fresh, the minimum over its pages; None if the server does not say."""


async def list_all(client: Requester, listing: ListMethod[T], *, timeout: float | None) -> Listed[T]:
    """Fetch all pages of a list, up to a repeated cursor or 1,000 pages. The list is empty if the server lacks it.

    An empty cursor leads to another page in the stateless era (2026-07-28, utilities/pagination). In the handshake era
    servers end their lists with it.

    Raises:
        McpError: See `Client.request`.
        ProtocolError: A page is malformed.
    """
    items: list[T] = []
    ttl: float | None = None
    if listing.capability not in client.capabilities:
        return Listed(items, ttl)
    cursors: set[str] = set()
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        body = b"{}" if cursor is None else types.encode({"cursor": cursor})
        try:
            raw = await client.request(listing.method, body, timeout=timeout)
        except RpcError as error:
            if error.code == METHOD_NOT_FOUND:
                return Listed(items, ttl)
            raise
        page = decode_result(raw, listing.page, listing.method)
        items += _items(client, listing, page.items)
        if page.ttlMs is not None:
            seconds = max(0.0, page.ttlMs / 1000)
            ttl = seconds if ttl is None else min(ttl, seconds)
        cursor = page.nextCursor
        if cursor is None or (not cursor and client.era.kind == "handshake"):
            return Listed(items, ttl)
        if cursor in cursors:
            client.protocol_warning(f"{listing.method} repeats its cursor {cursor!r}; the list ends here")
            return Listed(items, ttl)
        cursors.add(cursor)
    client.protocol_warning(f"{listing.method} has more than {MAX_PAGES:,} pages; the list ends here")
    return Listed(items, ttl)


def _items(client: Requester, listing: ListMethod[T], raws: list[Raw]) -> list[T]:
    items: list[T] = []
    for raw in raws:
        try:
            items.append(types.decode(raw, listing.item))
        except ValueError as error:
            client.protocol_warning(
                f"a {listing.noun} left out, its definition is malformed ({error}): {excerpt(bytes(raw))}"
            )
    return items


_UNDECLARED = "2024-11-05"
"""The latest revision in which servers need not declare the completions capability."""


class Read(NamedTuple):
    """The result of `resources/read`."""

    raw: Raw
    """JSON of the `result` object."""
    ttl: float
    """Seconds for which the result is fresh; 0 if the server does not say or requested input first."""


async def read_resource(client: Requester, uri: str, *, timeout: float | None) -> Read:
    """Read a resource.

    Raises:
        ProtocolError: The response is malformed.
        McpError: See `Client.request`.
    """
    raw, had_input = await client.exchange("resources/read", types.encode({"uri": uri}), timeout=timeout)
    result = decode_result(raw, types.ReadResourceResult, "resources/read")
    return Read(raw, 0.0 if had_input else max(0.0, (result.ttlMs or 0.0) / 1000))


async def get_prompt(client: Requester, name: str, arguments: Mapping[str, str], *, timeout: float | None) -> Raw:
    """Get a prompt as the JSON of `GetPromptResult`.

    Raises:
        ProtocolError: The response is malformed.
        McpError: See `Client.request`.
    """
    body = types.encode({"name": name, "arguments": arguments} if arguments else {"name": name})
    raw = await client.request("prompts/get", body, timeout=timeout)
    decode_result(raw, types.GetPromptResult, "prompts/get")
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
    """Request completions for an argument.

    Args:
        client: The connection.
        reference: `{"type": "ref/prompt", "name": …}` or `{"type": "ref/resource", "uri": …}`.
        argument: Name of the argument.
        typed: The incomplete value.
        others: Known values of the other arguments.
        timeout: Seconds.

    Returns:
        The suggested values.

    Raises:
        McpError: See `Client.request`.
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
        raise ProtocolError(f"the response to completion/complete is malformed ({error})") from error


async def subscribe(client: Requester, uri: str, *, timeout: float | None) -> None:
    """Handshake era: subscribe to changes of a resource."""
    await client.request("resources/subscribe", types.encode({"uri": uri}), timeout=timeout)


async def unsubscribe(client: Requester, uri: str, *, timeout: float | None) -> None:
    """Handshake era: cancel a subscription to a resource."""
    await client.request("resources/unsubscribe", types.encode({"uri": uri}), timeout=timeout)
