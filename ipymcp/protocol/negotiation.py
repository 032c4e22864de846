"""Which era and version a connection speaks, and what the server says of itself.

The modern question (`server/discover`) is asked first and never given up: Python servers take seconds to start, so a
silence says nothing. After two seconds of it the handshake (`initialize`) is sent as well. The first success decides;
the error that comes to the other is ignored.

Source: MCP 2026-07-28 versioning and stdio (backward compatibility), server/discover; 2025-11-25 lifecycle.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from ipymcp.errors import ProtocolError, RpcError
from ipymcp.protocol import eras, wire
from ipymcp.protocol.jsontypes import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Callable

    from msgspec import Raw

    from ipymcp.protocol.eras import Era, Identity

__all__ = ["EraChoice", "Settled", "negotiate", "shaped"]

EraChoice = Literal["auto", "legacy", "modern"]
T = TypeVar("T")
PROBE_SILENCE = 2.0
"""Seconds an unanswered `server/discover` waits for company: then `initialize` is sent as well."""
UNSUPPORTED_VERSION = -32022
_MODERN_ERRORS = frozenset({UNSUPPORTED_VERSION, -32020, -32021})
_OTHER_ERA = "load it with --era auto"
_OUR_VERSIONS = f"ipymcp speaks {', '.join(eras.STATELESS_VERSIONS + eras.HANDSHAKE_VERSIONS)}"


class Settled(NamedTuple):
    """What was agreed."""

    era: Era
    capabilities: dict[str, Any]
    server_info: dict[str, Any]
    instructions: str | None
    was_answered: bool = True
    """False when the era was decided after a silence: then it is not worth remembering."""


async def negotiate(ask: Callable[[str, bytes], asyncio.Future[Raw]], identity: Identity, choice: EraChoice) -> Settled:
    """Ask until it is settled.

    Args:
        ask: Sends a request with its params; the answer may be ignored.
        identity: Who we are.
        choice: `auto`, or the one era to try.

    Raises:
        ProtocolError: No version in common, or an answer that is none.
        RpcError: The server refused.
        ConnectionLost: It went away.
    """
    modern = eras.stateless(eras.STATELESS_VERSIONS[0], identity).params(b"{}")
    if choice == "legacy":
        return await _initialize(ask, identity)
    discover = ask("server/discover", modern)
    if choice == "modern":
        await asyncio.wait({discover})
        settled = _settle_probe(discover, identity)
        if settled is None:
            raise ProtocolError("the server does not speak the stateless era", hint=_OTHER_ERA)
        return settled
    await asyncio.wait({discover}, timeout=PROBE_SILENCE)
    if discover.done():
        return _settle_probe(discover, identity) or await _initialize(ask, identity)
    return (await _first_of_both(discover, ask, identity))._replace(was_answered=False)


async def _first_of_both(
    discover: asyncio.Future[Raw], ask: Callable[[str, bytes], asyncio.Future[Raw]], identity: Identity
) -> Settled:
    initialize = ask("initialize", _initialize_params(identity))
    pending = {discover, initialize}
    while pending:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        settled = _settle_probe(discover, identity) if discover in done else None
        if settled is not None:
            return settled
        if initialize in done and initialize.exception() is None:
            break
    return _settle_initialized(initialize.result())


def _settle_probe(discover: asyncio.Future[Raw], identity: Identity) -> Settled | None:
    """What the probe's answer settles; None where the handshake has to be tried."""
    try:
        result = shaped(discover.result(), wire.DiscoverResult, "server/discover")
    except RpcError as error:
        if error.code not in _MODERN_ERRORS:
            return None
        if error.code != UNSUPPORTED_VERSION:
            raise
        supported = _supported_versions(error.data)
        if any(version in eras.HANDSHAKE_VERSIONS for version in supported):
            return None
        raise _no_common_version(supported) from error
    version = next((known for known in eras.STATELESS_VERSIONS if known in result.supportedVersions), None)
    if version is None:
        if any(known in result.supportedVersions for known in eras.HANDSHAKE_VERSIONS):
            return None
        raise _no_common_version(result.supportedVersions)
    info = result.meta.get("io.modelcontextprotocol/serverInfo")
    server_info = info if is_object(info) else {}
    return Settled(eras.stateless(version, identity), result.capabilities, server_info, result.instructions)


async def _initialize(ask: Callable[[str, bytes], asyncio.Future[Raw]], identity: Identity) -> Settled:
    try:
        return _settle_initialized(await ask("initialize", _initialize_params(identity)))
    except RpcError as error:
        if error.code != UNSUPPORTED_VERSION:
            raise
        supported = _supported_versions(error.data)
        if any(version in eras.STATELESS_VERSIONS for version in supported):
            raise ProtocolError("the server does not speak the handshake era", hint=_OTHER_ERA) from error
        raise _no_common_version(supported) from error


def _initialize_params(identity: Identity) -> bytes:
    return wire.encode(
        {
            "protocolVersion": eras.HANDSHAKE_VERSIONS[0],
            "capabilities": identity.capabilities,
            "clientInfo": identity.info,
        }
    )


def _settle_initialized(raw: Raw) -> Settled:
    result = shaped(raw, wire.InitializeResult, "initialize")
    if result.protocolVersion not in eras.HANDSHAKE_VERSIONS:
        what = f"the server answered with protocol version {result.protocolVersion!r}, which is unknown"
        raise ProtocolError(what, hint=_OUR_VERSIONS)
    era = eras.handshake(result.protocolVersion)
    return Settled(era, result.capabilities, result.serverInfo, result.instructions)


def shaped(raw: Raw, kind: type[T], method: str) -> T:
    """An answer as what it must be.

    Raises:
        ProtocolError: It is not.
    """
    try:
        return wire.decode(raw, kind)
    except ValueError as error:
        what = f"the answer to {method} is not what MCP says ({error})"
        raise ProtocolError(what, hint="a fault of the server") from error


def _no_common_version(supported: list[str]) -> ProtocolError:
    spoken = ", ".join(supported) or "versions it does not name"
    return ProtocolError(f"the server speaks only {spoken}", hint=_OUR_VERSIONS)


def _supported_versions(data: object) -> list[str]:
    supported = data.get("supported") if is_object(data) else None
    return [version for version in supported if isinstance(version, str)] if is_array(supported) else []
