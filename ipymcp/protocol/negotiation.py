"""Negotiation of the era and version, and recovery of a session that the server has forgotten.

The modern question (`server/discover`) is asked first and never given up: Python servers take seconds to start, so a
silence says nothing. After two seconds of it the handshake (`initialize`) is sent as well. The first success decides;
the other question is abandoned. Over HTTP an error status without a modern JSON-RPC error in its body means an old
server, as any other error does over stdio.

Source: MCP 2026-07-28 versioning, stdio and Streamable HTTP (backward compatibility), server/discover; 2025-11-25
lifecycle.

Source: MCP 2025-11-25 transports (session management): an answer 404 to a request with a session id.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar

from ipymcp.errors import ConnectionLost, HttpError, McpError, ProtocolError, RpcError
from ipymcp.protocol import eras, types
from ipymcp.protocol.types import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Callable

    from msgspec import Raw

    from ipymcp.protocol.eras import Era, Identity
    from ipymcp.protocol.jsonrpc import Background
    from ipymcp.protocol.transports.base import OutboundMessage, RequestId


EraChoice = Literal["auto", "legacy", "modern"]
T = TypeVar("T")
PROBE_SILENCE = 2.0
"""Seconds an unanswered `server/discover` waits for company: then `initialize` is sent as well."""
UNSUPPORTED_VERSION = -32022
_MODERN_ERRORS = frozenset({UNSUPPORTED_VERSION, -32020, -32021})
_NO_WORD_OF_AN_ERA = frozenset({401, 403, 407, 429, 503})
"""HTTP errors that a server of either era may give; any other may be an old server's way not to know the question."""
_OUR_VERSIONS = f"ipymcp speaks {', '.join(eras.STATELESS_VERSIONS + eras.HANDSHAKE_VERSIONS)}"


class Settled(NamedTuple):
    """What was agreed."""

    era: Era
    capabilities: dict[str, Any]
    server_info: dict[str, Any]
    instructions: str | None
    was_answered: bool = True
    """False when the era was decided after a silence: then it is not worth remembering."""


async def negotiate(
    ask: Callable[[str, bytes], asyncio.Future[Raw]],
    identity: Identity,
    capabilities: dict[str, Any],
    choice: EraChoice,
) -> Settled:
    """Ask until it is settled.

    Args:
        ask: Sends a request with its params; cancelling what it gives abandons the request.
        identity: Who we are.
        capabilities: What we declare.
        choice: `auto`, or the one era to try.

    Raises:
        ProtocolError: No version in common, or an answer that is none.
        RpcError: The server refused.
        HttpError: It answered with an HTTP error, to the handshake too where that was tried.
        ConnectionLost: It went away.
    """
    return await _Negotiation(ask, identity, capabilities).settle(choice)


class _Negotiation:
    def __init__(
        self, ask: Callable[[str, bytes], asyncio.Future[Raw]], identity: Identity, capabilities: dict[str, Any]
    ) -> None:
        self._ask = ask
        self._identity = identity
        self._capabilities = capabilities

    async def settle(self, choice: EraChoice) -> Settled:
        if choice == "legacy":
            return await self._handshake()
        discover = self._discover()
        try:
            if choice == "modern":
                return await self._modern(discover)
            await asyncio.wait({discover}, timeout=PROBE_SILENCE)
            if discover.done():
                return self._settle_probe(discover) or await self._handshake()
            return (await self._first_of_both(discover))._replace(was_answered=False)
        finally:
            discover.cancel()

    async def _modern(self, discover: asyncio.Future[Raw]) -> Settled:
        await asyncio.wait({discover})
        settled = self._settle_probe(discover)
        if settled is None:
            raise ProtocolError("the server does not speak the stateless era", hint=eras.OTHER_ERA)
        return settled

    async def _first_of_both(self, discover: asyncio.Future[Raw]) -> Settled:
        initialize = self._initialize()
        pending = {discover, initialize}
        try:
            while pending:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                settled = self._settle_probe(discover) if discover in done else None
                if settled is not None:
                    return settled
                if initialize in done and initialize.exception() is None:
                    break
            return _settle_initialized(initialize.result())
        finally:
            initialize.cancel()

    async def _handshake(self) -> Settled:
        try:
            return _settle_initialized(await self._initialize())
        except RpcError as error:
            if error.code != UNSUPPORTED_VERSION:
                raise
            supported = _supported_versions(error.data)
            if any(version in eras.STATELESS_VERSIONS for version in supported):
                raise ProtocolError("the server does not speak the handshake era", hint=eras.OTHER_ERA) from error
            raise _no_common_version(supported) from error

    def _discover(self) -> asyncio.Future[Raw]:
        return asyncio.ensure_future(self._discovered())

    async def _discovered(self) -> Raw:
        """The answer; asked once more in a version that the refusal of the first offers, be it the same one."""
        try:
            return await self._discover_in(eras.STATELESS_VERSIONS[0])
        except RpcError as error:
            offered = _supported_versions(error.data) if error.code == UNSUPPORTED_VERSION else []
            version = next((known for known in eras.STATELESS_VERSIONS if known in offered), None)
            if version is None:
                raise
            return await self._discover_in(version)

    def _discover_in(self, version: str) -> asyncio.Future[Raw]:
        era = eras.stateless(version, self._identity, self._capabilities)
        return self._ask("server/discover", era.params(b"{}"))

    def _initialize(self) -> asyncio.Future[Raw]:
        params = {
            "protocolVersion": eras.HANDSHAKE_VERSIONS[0],
            "capabilities": self._capabilities,
            "clientInfo": self._identity.info,
        }
        return self._ask("initialize", types.encode(params))

    def _settle_probe(self, discover: asyncio.Future[Raw]) -> Settled | None:
        """What the probe's answer settles; None where the handshake has to be tried."""
        try:
            result = shaped(discover.result(), types.DiscoverResult, "server/discover")
        except ProtocolError:  # a server that answers anything at all with a result, and knows no such question
            return None
        except HttpError as error:
            if error.status in _NO_WORD_OF_AN_ERA:
                raise
            return None
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
        era = eras.stateless(version, self._identity, self._capabilities)
        return Settled(era, result.capabilities, info if is_object(info) else {}, result.instructions)


def _settle_initialized(raw: Raw) -> Settled:
    result = shaped(raw, types.InitializeResult, "initialize")
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
        return types.decode(raw, kind)
    except ValueError as error:
        what = f"the answer to {method} is not what MCP says ({error})"
        raise ProtocolError(what, hint="a fault of the server") from error


def _no_common_version(supported: list[str]) -> ProtocolError:
    spoken = ", ".join(supported) or "versions it does not name"
    return ProtocolError(f"the server speaks only {spoken}", hint=_OUR_VERSIONS)


def _supported_versions(data: object) -> list[str]:
    supported = data.get("supported") if is_object(data) else None
    return [version for version in supported if isinstance(version, str)] if is_array(supported) else []


class SessionOwner(Protocol):
    """Whose session it is: the client."""

    async def shake_hands(self) -> None:
        """Open the session anew."""
        ...

    def undelivered(self, identifier: RequestId, error: McpError) -> None:
        """End one request."""
        ...

    def send_once_more(self, message: OutboundMessage) -> None:
        """Send a request again, if somebody still waits for it."""
        ...


class SessionRecovery:
    """Opens a forgotten session again. Belongs to the loop, but for `hold` and `drop`.

    Args:
        owner: The client.
        background: Where it happens.
    """

    def __init__(self, owner: SessionOwner, background: Background) -> None:
        self._owner = owner
        self._background = background
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._held: dict[RequestId, OutboundMessage] = {}
        self._resent: deque[RequestId] = deque(maxlen=256)
        self._is_opening = False
        self.is_open = True
        """Where it is not, what is sent now would belong to no session: `hold` it."""

    def expired(self, message: OutboundMessage) -> None:
        """The server knows the session of this message no more and did not accept it.

        A notification or a response meant something to the old session only.
        """
        identifier = message.id
        if message.kind != "request" or identifier is None:
            return
        if identifier in self._resent:
            self._resent.remove(identifier)
            self._owner.undelivered(identifier, ConnectionLost("the server forgot its session twice in a row"))
            return
        self._resent.append(identifier)
        self._held[identifier] = message
        self.is_open = False
        self._open()

    def hold(self, message: OutboundMessage) -> bool:
        """Keep a request until the session is open; from any thread. False if it is open already."""
        with self._lock:
            if self.is_open or message.id is None:
                return False
            self._held[message.id] = message
            if not self._is_opening:
                self._loop.call_soon_threadsafe(self._open)
            return True

    def drop(self, identifier: RequestId) -> bool:
        """Nobody waits for a held request any more; from any thread. False if it is not held."""
        return self._held.pop(identifier, None) is not None

    def _open(self) -> None:
        if not self.is_open and not self._is_opening:
            self._is_opening = True
            self._background.spawn(self._reopen(), "ipymcp-reopen")

    async def _reopen(self) -> None:
        try:
            await self._owner.shake_hands()
        except McpError as error:  # the next request tries again
            self._fail(error.message, error.hint)
        except Exception as error:  # a fault of ours: nobody may wait for ever
            self._fail(f"a fault of ipymcp: {error!r}", None)
            raise
        else:
            for message in self._end(is_open=True):
                self._owner.send_once_more(message)

    def _fail(self, reason: str, hint: str | None) -> None:
        what = f"the server forgot this session, and opening it anew failed: {reason}"
        for message in self._end(is_open=False):
            self._owner.undelivered(message.id or 0, ConnectionLost(what, hint=hint))

    def _end(self, *, is_open: bool) -> list[OutboundMessage]:
        with self._lock:
            held, self._held = list(self._held.values()), {}
            self._is_opening, self.is_open = False, is_open
            return held
