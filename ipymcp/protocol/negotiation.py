"""Negotiation of the era and version, and recovery of a session that the server has lost.

The stateless probe (`server/discover`) is sent first and never times out: Python servers take seconds to start. After
two seconds without a response the handshake (`initialize`) is sent as well. The first success decides, and the other
request is abandoned. Whatever else the probe meets leads to the handshake, because old servers, and proxies in front of
them, react in every way to a method that they do not know; except a login, a request limit (429), and no connection.

Source: MCP 2026-07-28 versioning, stdio and Streamable HTTP (backward compatibility), server/discover; 2025-11-25
lifecycle and transports (session management).
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from ipymcp.errors import AuthError, ConnectionLost, HttpError, McpError, ProtocolError, RpcError
from ipymcp.protocol import eras, types
from ipymcp.protocol.transports.base import NoConnection
from ipymcp.protocol.types import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from msgspec import Raw

    from ipymcp.protocol.eras import Era, Identity
    from ipymcp.protocol.jsonrpc import Background
    from ipymcp.protocol.transports.base import OutboundMessage, RequestId


EraChoice = Literal["auto", "legacy", "modern"]
T = TypeVar("T")
PROBE_SILENCE = 2.0
"""Seconds without a response to `server/discover` after which `initialize` is sent as well."""
UNSUPPORTED_VERSION = -32022
_MODERN_ERRORS = frozenset({UNSUPPORTED_VERSION, -32020, -32021})
_TOO_MANY_REQUESTS = 429
_OUR_VERSIONS = f"ipymcp supports {', '.join(eras.STATELESS_VERSIONS + eras.HANDSHAKE_VERSIONS)}"


class NegotiationResult(NamedTuple):
    """The result of the negotiation."""

    era: Era
    capabilities: dict[str, Any]
    server_info: dict[str, Any]
    instructions: str | None
    was_answered: bool = True
    """False if the era was chosen because the server did not answer in time; such a choice must not be cached."""


async def negotiate(
    ask: Callable[[str, bytes], asyncio.Future[Raw]],
    identity: Identity,
    capabilities: dict[str, Any],
    choice: EraChoice,
) -> NegotiationResult:
    """Negotiate the era and version.

    Args:
        ask: Sends a request with its params. Cancelling the future abandons the request.
        identity: Name and version of this client.
        capabilities: Client capabilities.
        choice: `auto`, or the only era to try.

    Raises:
        ProtocolError: There is no common version, or a response is malformed.
        RpcError: The server refused.
        HttpError: The server responded with an HTTP error, also to the handshake if that was tried.
        AuthError: The server requires a login.
        ConnectionLost: The connection closed.
    """
    return await _Negotiation(ask, identity, capabilities).run(choice)


class _Negotiation:
    def __init__(
        self, ask: Callable[[str, bytes], asyncio.Future[Raw]], identity: Identity, capabilities: dict[str, Any]
    ) -> None:
        self._ask = ask
        self._identity = identity
        self._capabilities = capabilities

    async def run(self, choice: EraChoice) -> NegotiationResult:
        if choice == "legacy":
            return await self._handshake()
        discover = asyncio.ensure_future(self._discover())
        try:
            await asyncio.wait({discover}, timeout=None if choice == "modern" else PROBE_SILENCE)
            if choice == "modern":
                if result := self._read_probe(discover):
                    return result
                failure = discover.exception()
                if isinstance(failure, McpError) and not isinstance(failure, (RpcError, HttpError, ProtocolError)):
                    raise failure
                raise ProtocolError("the server does not support the stateless era", hint=eras.OTHER_ERA) from failure
            if discover.done():
                return self._read_probe(discover) or await self._handshake_after(discover)
            return (await self._first_of_both(discover))._replace(was_answered=False)
        finally:
            discover.cancel()

    async def _handshake_after(self, discover: asyncio.Future[Raw]) -> NegotiationResult:
        """Shake hands after the probe has failed; if that fails as well, the hint says what the probe met."""
        try:
            return await self._handshake()
        except McpError as error:
            failure = discover.exception()
            if not isinstance(failure, McpError) or isinstance(failure, RpcError) or failure.message == error.message:
                raise
            if isinstance(error, ConnectionLost) and isinstance(failure, ConnectionLost):
                raise failure from None  # a program has ended: the second message did not reach it
            probe = f'to server/discover: {failure.message}; "era": "legacy" in its definition leaves that request out'
            error.hint = " · ".join(filter(None, [error.hint, probe]))
            raise

    async def _first_of_both(self, discover: asyncio.Future[Raw]) -> NegotiationResult:
        initialize = self._initialize()
        pending = {discover, initialize}
        try:
            while pending:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                result = self._read_probe(discover) if discover in done else None
                if result is not None:
                    return result
                if initialize in done and initialize.exception() is None:
                    break
            return _read_initialize(initialize.result())
        finally:
            initialize.cancel()

    async def _handshake(self) -> NegotiationResult:
        try:
            return _read_initialize(await self._initialize())
        except RpcError as error:
            if error.code != UNSUPPORTED_VERSION:
                raise
            supported = _supported_versions(error.data)
            if any(version in eras.STATELESS_VERSIONS for version in supported):
                raise ProtocolError("the server does not support the handshake era", hint=eras.OTHER_ERA) from error
            raise _no_common_version(supported) from error

    async def _discover(self) -> Raw:
        """Send `server/discover`; if refused, once more in a version that the refusal offers."""
        try:
            return await self._discover_in(eras.STATELESS_VERSIONS[0])
        except RpcError as error:
            offered = _supported_versions(error.data) if error.code == UNSUPPORTED_VERSION else []
            version = next((each for each in eras.STATELESS_VERSIONS if each in offered), None)
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

    def _read_probe(self, discover: asyncio.Future[Raw]) -> NegotiationResult | None:
        """Read the response to the probe; None if the handshake has to be tried."""
        try:
            result = decode_result(discover.result(), types.DiscoverResult, "server/discover")
        except ProtocolError:  # the server answers unknown methods with arbitrary results
            return None
        except (AuthError, NoConnection):
            raise
        except RpcError as error:
            if error.code not in _MODERN_ERRORS:
                return None
            if error.code != UNSUPPORTED_VERSION:
                raise
            supported = _supported_versions(error.data)
            if any(version in eras.HANDSHAKE_VERSIONS for version in supported):
                return None
            raise _no_common_version(supported) from error
        except McpError as error:
            if isinstance(error, HttpError) and error.status == _TOO_MANY_REQUESTS:
                raise
            return None
        version = next((each for each in eras.STATELESS_VERSIONS if each in result.supportedVersions), None)
        if version is None:
            if any(each in result.supportedVersions for each in eras.HANDSHAKE_VERSIONS):
                return None
            raise _no_common_version(result.supportedVersions)
        info = result.meta.get("io.modelcontextprotocol/serverInfo")
        era = eras.stateless(version, self._identity, self._capabilities)
        return NegotiationResult(era, result.capabilities, info if is_object(info) else {}, result.instructions)


def _read_initialize(raw: Raw) -> NegotiationResult:
    result = decode_result(raw, types.InitializeResult, "initialize")
    if result.protocolVersion not in eras.HANDSHAKE_VERSIONS:
        message = f"the server answered with the unknown protocol version {result.protocolVersion!r}"
        raise ProtocolError(message, hint=_OUR_VERSIONS)
    era = eras.handshake(result.protocolVersion)
    return NegotiationResult(era, result.capabilities, result.serverInfo, result.instructions)


def decode_result(raw: Raw, kind: type[T], method: str) -> T:
    """Decode a result.

    Raises:
        ProtocolError: It does not have the expected shape.
    """
    try:
        return types.decode(raw, kind)
    except ValueError as error:
        message = f"the response to {method} is malformed ({error})"
        raise ProtocolError(message, hint="a fault of the server") from error


def _no_common_version(supported: list[str]) -> ProtocolError:
    versions = ", ".join(supported) or "unnamed versions"
    return ProtocolError(f"the server supports only {versions}", hint=_OUR_VERSIONS)


def _supported_versions(data: object) -> list[str]:
    supported = data.get("supported") if is_object(data) else None
    return [version for version in supported if isinstance(version, str)] if is_array(supported) else []


class SessionRecovery:
    """Reopens a session that the server has lost. Belongs to the loop, except `hold` and `drop`.

    Args:
        shake_hands: Opens a new session.
        resend: Sends a request again, if it is still pending.
        undelivered: Fails a request.
        background: Runs the recovery.
    """

    def __init__(
        self,
        shake_hands: Callable[[], Coroutine[Any, Any, None]],
        resend: Callable[[OutboundMessage], None],
        undelivered: Callable[[RequestId, McpError], None],
        background: Background,
    ) -> None:
        self._shake_hands = shake_hands
        self._resend = resend
        self._undelivered = undelivered
        self._background = background
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._held: dict[RequestId, OutboundMessage] = {}
        self._resent: deque[RequestId] = deque(maxlen=256)
        self._is_opening = False
        self.is_open = True
        """False while there is no session; requests must then be held by `hold`."""

    def expired(self, message: OutboundMessage) -> None:
        """Handle a message that the server rejected because it does not know the session.

        Only requests are sent again: notifications and responses belong to the old session.
        """
        identifier = message.id
        if message.kind != "request" or identifier is None:
            return
        if identifier in self._resent:
            self._resent.remove(identifier)
            self._undelivered(identifier, ConnectionLost("the server forgot its session twice in a row"))
            return
        self._resent.append(identifier)
        self._held[identifier] = message
        self.is_open = False
        self._open()

    def hold(self, message: OutboundMessage) -> bool:
        """Hold a request until the session is open; from any thread. False if the session is open already."""
        with self._lock:
            if self.is_open or message.id is None:
                return False
            self._held[message.id] = message
            if not self._is_opening:
                self._loop.call_soon_threadsafe(self._open)
            return True

    def drop(self, identifier: RequestId) -> bool:
        """Drop a held request; from any thread. False if it is not held."""
        return self._held.pop(identifier, None) is not None

    def _open(self) -> None:
        if not self.is_open and not self._is_opening:
            self._is_opening = True
            self._background.spawn(self._reopen(), "ipymcp-reopen")

    async def _reopen(self) -> None:
        try:
            await self._shake_hands()
        except McpError as error:  # the next request tries again
            self._fail(error.message, error.hint)
        except Exception as error:  # a bug must not leave callers waiting forever
            self._fail(f"a bug in ipymcp: {error!r}", None)
            raise
        else:
            for message in self._end(is_open=True):
                self._resend(message)

    def _fail(self, reason: str, hint: str | None) -> None:
        text = f"the server forgot this session, and reopening it failed: {reason}"
        for message in self._end(is_open=False):
            self._undelivered(message.id or 0, ConnectionLost(text, hint=hint))

    def _end(self, *, is_open: bool) -> list[OutboundMessage]:
        with self._lock:
            held, self._held = list(self._held.values()), {}
            self._is_opening, self.is_open = False, is_open
            return held
