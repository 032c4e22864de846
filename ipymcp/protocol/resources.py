"""Resources, prompts and completions: reading, getting, suggesting, subscribing.

Source: MCP 2025-11-25 and 2026-07-28, server/resources, server/prompts, utilities/completion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ipymcp.errors import ProtocolError
from ipymcp.protocol import wire
from ipymcp.protocol.negotiation import shaped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from msgspec import Raw

    from ipymcp.protocol.client import Client

__all__ = ["Read", "complete", "get_prompt", "read_resource", "subscribe", "unsubscribe"]

_UNDECLARED = "2024-11-05"
"""The last revision in which a server completes without declaring that it does."""


class Read(NamedTuple):
    """A resource as it was read."""

    raw: Raw
    """The JSON of the `result` object of `resources/read`."""
    ttl: float
    """Seconds for which it is fresh; 0 where the server does not say, or asked for input first."""


async def read_resource(client: Client, uri: str, *, timeout: float | None) -> Read:
    """Read a resource.

    Raises:
        ProtocolError: The answer is none.
        McpError: As `Client.request`.
    """
    raw, is_for_us_alone = await client.exchange("resources/read", wire.encode({"uri": uri}), timeout=timeout)
    result = shaped(raw, wire.ReadResourceResult, "resources/read")
    return Read(raw, 0.0 if is_for_us_alone else max(0.0, (result.ttlMs or 0.0) / 1000))


async def get_prompt(client: Client, name: str, arguments: Mapping[str, str], *, timeout: float | None) -> Raw:
    """The JSON of a prompt's messages, with these arguments.

    Raises:
        ProtocolError: The answer is none.
        McpError: As `Client.request`.
    """
    body = wire.encode({"name": name, "arguments": arguments} if arguments else {"name": name})
    raw = await client.request("prompts/get", body, timeout=timeout)
    shaped(raw, wire.GetPromptResult, "prompts/get")
    return raw


async def complete(
    client: Client,
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
    raw = await client.request("completion/complete", wire.encode(body), timeout=timeout)
    try:
        return wire.decode(raw, wire.CompleteResult).completion.values
    except ValueError as error:
        raise ProtocolError(f"the answer to completion/complete is not what MCP says ({error})") from error


async def subscribe(client: Client, uri: str, *, timeout: float | None) -> None:
    """Handshake era: have the server tell when this resource changes."""
    await client.request("resources/subscribe", wire.encode({"uri": uri}), timeout=timeout)


async def unsubscribe(client: Client, uri: str, *, timeout: float | None) -> None:
    """Handshake era: no longer."""
    await client.request("resources/unsubscribe", wire.encode({"uri": uri}), timeout=timeout)
