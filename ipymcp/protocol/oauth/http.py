"""JSON documents and forms for logins over an abstract HTTP client.

`Fetch` sends the requests. This module limits their URLs, redirects (within the origin), duration and response size.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import parse_qsl, urlencode, urljoin

import msgspec

from ipymcp.errors import AuthError, ConnectionLost, McpError
from ipymcp.protocol.eras import HANDSHAKE_VERSIONS
from ipymcp.protocol.transports import addresses
from ipymcp.protocol.transports.addresses import OutOfReach, Zone, parse_address, zone_of
from ipymcp.protocol.types import InvalidJson, is_object, loads

if TYPE_CHECKING:
    from collections.abc import Mapping


MAX_BODY = 1_048_576
"""Maximum size of a response, in bytes."""

_TIMEOUT = 30.0
_ASK = {"Accept": "application/json", "MCP-Protocol-Version": HANDSHAKE_VERSIONS[0]}
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MAX_REDIRECTS = 3
_PASSING = frozenset({408, 425, 429})
_FORM = "application/x-www-form-urlencoded"
_MAX_ERROR_TEXT = 200
_NOT_THIS_WAY = "the authorization server does not allow this client to log in this way"
_HINTS = {
    "invalid_client": "check client_id and client_secret in its auth",
    "invalid_scope": "set scopes in its auth to scopes that the server supports",
    "unauthorized_client": _NOT_THIS_WAY,
    "unsupported_grant_type": _NOT_THIS_WAY,
}
"""Hints by OAuth error code."""


class Fetch(Protocol):
    """Sends an HTTP request and returns the response, whatever its status."""

    async def __call__(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, *, reach: Zone
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Send one request.

        It must follow no redirect, add no headers except protocol headers, keep no cookies, and read at most
        `MAX_BODY` + 1 bytes of the response.

        Args:
            method: `GET` or `POST`.
            url: The URL.
            headers: Request headers.
            body: Request body.
            reach: The closest zone that may be connected to, applied to the resolved addresses of the host.

        Returns:
            Status, headers and body.

        Raises:
            OutOfReach: The address is closer than allowed.
            McpError: There was no response. An `OSError` is accepted as well.
        """
        ...


class JsonDocument(NamedTuple):
    """The response to a metadata request."""

    document: dict[str, Any] | None
    problem: str | None
    """The reason that there is no document, unless it simply does not exist."""


class Reply(NamedTuple):
    """An endpoint's response to a form."""

    status: int
    document: dict[str, Any] | None
    """None if the response is not a JSON object."""


class OAuthError(AuthError):
    """The authorization server responded with an OAuth error. Shown to users as an `AuthError`."""

    def __init__(self, message: str, *, code: str, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.code = code
        """OAuth error code, such as `invalid_grant` (RFC 6749 section 5.2)."""


class MetadataClient:
    """Fetches documents and posts forms.

    URLs named by a server must not be closer to this machine than the server itself. Otherwise its metadata could cause
    requests to local services.

    Args:
        fetch: Sends the requests.
        loopback: Whether URLs on this machine are allowed; see `addresses.secure`.
        trusted: Hosts that the user configured, which may be anywhere.
    """

    def __init__(self, fetch: Fetch, *, loopback: bool, trusted: frozenset[str] = frozenset()) -> None:
        self._fetch = fetch
        self.loopback = loopback
        self._trusted = trusted
        self._reach = Zone.LOCAL if loopback else Zone.PUBLIC

    def answered_from(self, peer: str | None) -> None:
        """Set the server's IP address, from which it has just responded."""
        if peer is not None and not self.loopback:
            self._reach = zone_of(peer) or Zone.PUBLIC

    async def document(self, url: str, what: str) -> JsonDocument:
        """Fetch the JSON object at a URL, if there is one.

        Raises:
            AuthError: The URL is not allowed, or cannot be reached.
        """
        for _ in range(_MAX_REDIRECTS + 1):
            addresses.secure(url, what, loopback=self.loopback)
            status, headers, body = await self._send("GET", url, _ASK, b"")
            if status not in _REDIRECTS:
                return _found(status, body)
            target = urljoin(url, next((value for key, value in headers.items() if key.lower() == "location"), ""))
            if not addresses.same_origin(target, url):
                return JsonDocument(None, f"redirects to another site ({addresses.host(target)})")
            url = target
        return JsonDocument(None, f"redirects too often ({_MAX_REDIRECTS} redirects were followed)")

    async def post_form(self, url: str, fields: Mapping[str, str], headers: Mapping[str, str], what: str) -> Reply:
        """Post a form, without following redirects.

        Raises:
            AuthError: The URL is not allowed, or cannot be reached.
        """
        kind = {"Content-Type": _FORM}
        return await self._post(url, urlencode(fields).encode(), {**kind, **headers}, what)

    async def post_json(self, url: str, value: Mapping[str, Any], what: str) -> Reply:
        """Post a JSON object, without following redirects.

        Raises:
            AuthError: The URL is not allowed, or cannot be reached.
        """
        return await self._post(url, msgspec.json.encode(value), {"Content-Type": "application/json"}, what)

    async def _post(self, url: str, body: bytes, headers: Mapping[str, str], what: str) -> Reply:
        addresses.secure(url, what, loopback=self.loopback)
        status, answered, answer = await self._send("POST", url, {"Accept": "application/json", **headers}, body)
        kind = next((value for key, value in answered.items() if key.lower() == "content-type"), "")
        return Reply(status, _form(answer) if kind.startswith(_FORM) else _object(answer))

    async def _send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, Mapping[str, str], bytes]:
        try:
            async with asyncio.timeout(_TIMEOUT):
                reach = Zone.LOCAL if addresses.host(url) in self._trusted else self._reach
                return await self._fetch(method, url, headers, body, reach=reach)
        except TimeoutError:
            reason = f"no answer within {_TIMEOUT:g} s"
        except OutOfReach as error:
            raise AuthError(f"cannot log in: {error.message}", hint=addresses.SERVER_FAULT) from error
        except (McpError, OSError) as error:
            reason = getattr(error, "message", None) or str(error) or type(error).__name__
        hint = "check the network and the proxy settings, then %mcp start NAME"
        raise AuthError(f"cannot log in: {addresses.host(url)} cannot be reached ({reason})", hint=hint)


def _found(status: int, body: bytes) -> JsonDocument:
    if len(body) > MAX_BODY:
        return JsonDocument(None, f"is larger than {MAX_BODY:,} bytes")
    if 200 <= status < 300:
        return JsonDocument(_object(body), None)  # a web page at an unknown path means no document
    if 400 <= status < 500 and status not in _PASSING:
        return JsonDocument(None, None)
    return JsonDocument(None, f"was answered with HTTP {status}")


def _object(body: bytes) -> dict[str, Any] | None:
    if len(body) > MAX_BODY:
        return None
    try:
        value = loads(body)
    except InvalidJson:
        return None
    return value if is_object(value) else None


def _form(body: bytes) -> dict[str, Any] | None:
    """Decode a response in the encoding of forms, which some token endpoints use whatever they are asked for."""
    try:
        return dict(parse_qsl(body.decode("ascii"), max_num_fields=50))
    except ValueError:
        return None


def read_reply(reply: Reply, host: str, what: str, hidden: list[str]) -> dict[str, Any]:
    """Check an endpoint's response and return its document.

    Args:
        reply: The response.
        host: Host of the endpoint.
        what: Description of the request, as a noun.
        hidden: Secrets to remove from error messages.

    Raises:
        OAuthError: The response is an OAuth error.
        AuthError: The response is unreadable.
    """
    document = reply.document
    if document is not None and isinstance(document.get("error"), str):
        raise refusal(document["error"], str(document.get("error_description") or ""), host, what, hidden)
    if document is None or not 200 <= reply.status < 300:
        raise AuthError(
            f"{host} answered {what} with HTTP {reply.status} without a readable reason",
            hint="try again with %mcp start NAME, or tell the server's operator",
        )
    return document


def refusal(error: str, description: str, host: str, what: str, hidden: list[str]) -> OAuthError:
    """Build the exception for an OAuth error, with a short message that contains no secrets."""
    reason = f"{error}: {description}" if description else error
    for secret in hidden:
        if len(secret) >= 8:
            reason = reason.replace(secret, "***")
    reason = "".join(each if each.isprintable() else " " for each in reason[: 4 * _MAX_ERROR_TEXT])
    reason = " ".join(reason.split())[:_MAX_ERROR_TEXT]
    hint = _HINTS.get(error, "%mcp start NAME tries again")
    return OAuthError(f"{host} refused {what} ({reason})", code=error, hint=hint)


async def fetch(
    method: str, url: str, headers: Mapping[str, str], body: bytes, *, reach: Zone
) -> tuple[int, Mapping[str, str], bytes]:
    """Send one request over a new connection that is closed afterwards. A `Fetch` on the transports' HTTP client."""
    from ipymcp.protocol.transports.http_client import HttpClient  # slow to import
    from ipymcp.protocol.transports.http_errors import Unreachable

    client = await asyncio.to_thread(HttpClient, parse_address(url), {}, reach)
    try:
        answer = await client.send(method, headers, body, follow=False)
        try:
            content = b""
            async for chunk in answer.chunks(MAX_BODY):
                content += chunk[: MAX_BODY + 1 - len(content)]
                if len(content) > MAX_BODY:
                    break
            return answer.status, answer.headers, content
        finally:
            await answer.aclose()
    except Unreachable as error:
        raise ConnectionLost(error.reason, hint=error.hint) from error
    finally:
        await client.aclose()
