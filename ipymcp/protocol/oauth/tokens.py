"""The tokens of logins, the interfaces to their storage and to the user, and the requests that get them.

The grants go from authorization code with PKCE to enterprise login.

Sources: RFC 6749, RFC 7636 (PKCE), RFC 8707 (resource), RFC 9207 (`iss`), RFC 8693 and RFC 7523 (enterprise).
"""

from __future__ import annotations

import base64
import hashlib
import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import parse_qs, urlencode, urlsplit

from ipymcp.errors import AuthError
from ipymcp.protocol.oauth.clients import Registration, proof
from ipymcp.protocol.oauth.discovery import server_urls
from ipymcp.protocol.oauth.http import OAuthError, read_reply, refusal
from ipymcp.protocol.transports import addresses

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from ipymcp.protocol.oauth.clients import OAuthSettings
    from ipymcp.protocol.oauth.discovery import AuthorizationServer
    from ipymcp.protocol.oauth.http import MetadataClient

# -- tokens and interfaces ---------------------------------------------------------------------------------------------


_MARGIN = 60.0


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of a login."""

    access_token: str = field(repr=False)
    client: Registration
    """The client that the tokens were issued to; only this client can use the refresh token."""
    refresh_token: str | None = field(default=None, repr=False)
    obtained_at: float = 0.0
    """Seconds since 1970."""
    lifetime: float | None = None
    """Seconds; None if unknown."""
    requested: tuple[str, ...] = ()
    """The requested scopes; empty if none were named."""
    granted: tuple[str, ...] = ()
    """The granted scopes."""

    @property
    def is_ending(self) -> bool:
        """Whether the access token has expired or is about to."""
        if self.lifetime is None:
            return False
        return time.time() >= self.obtained_at + self.lifetime - min(_MARGIN, self.lifetime / 5)


@dataclass(frozen=True, slots=True)
class TokenKey:
    """Identity of the server that tokens belong to, without its name, which another definition could reuse."""

    issuer: str
    resource: str
    definition: str
    """Digest of the server's definition."""


class TokenStore(Protocol):
    """Stores secrets. Several kernels may share a store."""

    async def registration(self, issuer: str, redirect_uri: str) -> Registration | None:
        """Find the client registered at an issuer for a redirect URI."""
        ...

    async def redirect_uris(self, issuer: str) -> tuple[str, ...]:
        """List the redirect URIs of registered clients, newest first."""
        ...

    async def keep_registration(self, issuer: str, redirect_uri: str, registration: Registration) -> None:
        """Store a client, replacing an older one."""
        ...

    async def forget_registration(self, issuer: str, redirect_uri: str) -> None:
        """Delete a client, if there is one."""
        ...

    async def find(self, definition: str) -> tuple[TokenKey, Tokens] | None:
        """Find the newest tokens of a server definition."""
        ...

    async def tokens(self, key: TokenKey) -> Tokens | None:
        """Find the tokens of a key."""
        ...

    async def keep_tokens(self, key: TokenKey, tokens: Tokens) -> None:
        """Store tokens, replacing older ones."""
        ...

    async def forget_tokens(self, key: TokenKey) -> None:
        """Delete tokens, if there are any."""
        ...

    def refreshing(self, key: TokenKey) -> AbstractAsyncContextManager[None]:
        """Lock a key while its tokens are refreshed, across all kernels that share the store."""
        ...


@dataclass(frozen=True, slots=True)
class LoginRequest:
    """A login to show to the user."""

    url: str
    """URL of the login page, to open in a browser."""
    domain: str
    """Host of the login page."""
    site: str
    """Host of the server that the login is for."""
    answer_to: str
    """Host that receives the authorization code, and the client's secret if there is one."""
    gives_secret: bool
    """Whether a configured secret is sent there."""
    issuer: str
    """Issuer identifier of the authorization server, usually on the same domain."""
    scopes: tuple[str, ...]
    """The requested scopes."""
    redirect_uri: str
    """Prefix of the redirected URL."""
    redirect: RedirectSource | None
    """Receives the redirect, unless the browser is on another machine. None: the user has to paste the redirected URL.
    """
    paste_error: Callable[[str], str]
    """Returns an error message if a pasted URL is not the response to this login, or an empty string."""


class LoginUser(Protocol):
    """The user who logs in."""

    async def login(self, request: LoginRequest) -> str:
        """Show the URL and its host, and let the user agree and log in.

        Returns:
            The full redirected URL, from `request.redirect` or pasted by the user.

        Raises:
            AuthError: The user refuses, or cannot be asked.
        """
        ...


class RedirectSource(Protocol):
    """A receiver for the redirect of one login."""

    @property
    def uri(self) -> str:
        """The redirect URI."""
        ...

    async def received(self) -> str:
        """Wait for the redirect of this login and return its full URL."""
        ...

    async def aclose(self) -> None:
        """Stop waiting."""
        ...


class OpenRedirect(Protocol):
    """Opens a receiver for the redirect of one login."""

    async def __call__(self, state: str, registered: Sequence[str]) -> RedirectSource:
        """Open the receiver.

        Args:
            state: The `state` of the login; redirects without it belong to other logins.
            registered: Registered redirect URIs, best first; using one saves a registration.
        """
        ...


# -- requests ----------------------------------------------------------------------------------------------------------


async def request(
    web: MetadataClient,
    server: AuthorizationServer,
    client: Registration,
    settings: OAuthSettings,
    fields: Mapping[str, str],
) -> dict[str, Any]:
    """Send a request to the token endpoint.

    Raises:
        OAuthError: The response is an OAuth error.
        AuthError: The endpoint cannot be reached, or its response is unreadable.
    """
    shown, headers = proof(client, settings, server)
    reply = await web.post_form(server.token_endpoint, {**fields, **shown}, headers, "the token endpoint")
    hidden = [*fields.values(), *shown.values(), client.client_secret or ""]
    return read_reply(reply, addresses.host(server.token_endpoint), "the token request", hidden)


def tokens(
    document: dict[str, Any], client: Registration, requested: tuple[str, ...], host: str, kept: str | None = None
) -> Tokens:
    """Read the tokens from a response of the token endpoint (RFC 6749 section 5.1).

    Args:
        document: The response.
        client: The client that requested them.
        requested: The requested scopes.
        host: Host of the endpoint, for error messages.
        kept: The refresh token that stays valid if the response has none.

    Raises:
        AuthError: The access token is missing, invalid or of an unknown type.
    """
    token, kind = document.get("access_token"), str(document.get("token_type", "bearer"))
    if not isinstance(token, str) or not token or not token.isascii() or not token.isprintable() or " " in token:
        raise AuthError(f"{host} returned no usable token", hint="a fault of the authorization server")
    if kind.lower() != "bearer":
        message = f"{host} returned a token of the unknown type {kind[:40]!r}"
        raise AuthError(message, hint="only Bearer tokens are supported")
    refresh, scope = document.get("refresh_token"), document.get("scope")
    return Tokens(
        access_token=token,
        client=client,
        refresh_token=refresh if isinstance(refresh, str) and refresh else kept,
        obtained_at=time.time(),
        lifetime=_seconds(document.get("expires_in")),
        requested=requested,
        granted=tuple(scope.split()) if isinstance(scope, str) else requested,
    )


def _seconds(value: object) -> float | None:
    try:
        seconds = float(value)  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError, OverflowError):
        return None
    return seconds if seconds > 0 else None


_ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"
_TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
_CLIENTS_OWN = frozenset({"prompt", "request", "request_uri", "response_mode", "scope"})
"""Parameters that only the client sets; the URL of a login page must not contain them."""
_JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"


def challenge_of(verifier: str) -> str:
    """Compute the S256 code challenge of a PKCE verifier (RFC 7636 section 4.2)."""
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """An authorization request, with the values to check its response against."""

    redirect_uri: str
    scopes: tuple[str, ...]
    state: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(48), repr=False)


class TokenClient:
    """Requests tokens for one resource from one authorization server.

    Args:
        web: Sends requests.
        server: The authorization server.
        settings: The configuration of the login.
        resource: Resource identifier of the server that the tokens are for.
    """

    def __init__(
        self, web: MetadataClient, server: AuthorizationServer, settings: OAuthSettings, resource: str
    ) -> None:
        self._web = web
        self._server = server
        self._settings = settings
        self._resource = resource
        self._host = addresses.host(server.issuer)

    def login_page(self) -> str:
        """Return the URL of the login page.

        Raises:
            AuthError: There is no login page, it lacks PKCE, or it is on another site without `iss` in its responses.
        """
        page = self._server.authorization_endpoint
        if page is None:
            hint = "it may require client credentials: set the type in its auth"
            raise AuthError(f"cannot log in: {self._host} has no login page", hint=hint)
        if not self._server.has_pkce:
            message = f"cannot log in: {self._host} does not declare support for PKCE with S256"
            raise AuthError(message, hint="MCP requires it for logins; tell the server's operator")
        issuer = self._settings.issuer
        is_configured = issuer is not None and issuer.rstrip("/") == self._server.issuer.rstrip("/")
        if addresses.host(page) != self._host and not self._server.sends_issuer and not is_configured:
            # Otherwise it could send users to an honest site, as that site's client, and receive the code.
            raise AuthError(
                f"cannot log in: {self._host} sends its users to {addresses.host(page)}, and responses from there "
                "do not name their issuer (no iss, RFC 9207)",
                hint=f"if you trust {self._host}, set issuer to {self._server.issuer!r} in its auth",
            )
        return page

    @property
    def site(self) -> str:
        """Host of the server that the tokens are for."""
        return addresses.host(self._resource)

    @property
    def answer_to(self) -> str:
        """Host that receives the authorization code and the client's secret."""
        return addresses.host(self._server.token_endpoint)

    def request_url(self, page: str, asked: TokenRequest, client: Registration) -> str:
        """Build the login page's URL for one login.

        Raises:
            AuthError: The page's own URL has a parameter that the client must set.
        """
        fields = {
            "response_type": "code",
            "client_id": client.client_id,
            "redirect_uri": asked.redirect_uri,
            "state": asked.state,
            "code_challenge": challenge_of(asked.verifier),
            "code_challenge_method": "S256",
            "resource": self._resource,
            **_scope(asked.scopes),
        }
        if "offline_access" in asked.scopes:
            fields["prompt"] = (
                "consent"  # without, OpenID providers ignore that scope (OpenID Connect Core, section 11)
            )
        own = parse_qs(urlsplit(page).query, keep_blank_values=True)
        if twice := next((name for name in own if name in fields or name in _CLIENTS_OWN), None):
            message = f"cannot log in: the login page of {self._host} sets {twice}, which only the client may set"
            raise AuthError(message, hint=addresses.SERVER_FAULT)
        return f"{page}{'&' if own else '?'}{urlencode(fields)}"

    def code(self, asked: TokenRequest, address: str) -> str:
        """Extract the authorization code from the redirected URL.

        Raises:
            AuthError: The URL is not a response to this login, or the login was refused.
        """
        answer = self._answer(asked, address)
        issuer = answer.get("iss")
        # The issuer (RFC 9207 section 2.4), before anything else in the response is used.
        hint = "this may be a mix-up attack; tell the server's operator"
        if issuer is None and self._server.sends_issuer:
            raise AuthError(f"the answer lacks the issuer (iss) that {self._host} always sends", hint=hint)
        if issuer is not None and issuer != self._server.issuer:
            raise AuthError(f"the answer to the login at {self._host} names another issuer", hint=hint)
        error = answer.get("error")
        if error == "access_denied":
            message = f"the login at {self._host} was refused (access_denied)"
            raise OAuthError(message, code=error, hint="%mcp start NAME asks again")
        if error:
            raise refusal(error, answer.get("error_description", ""), self._host, "the login", [])
        return answer["code"]

    def paste_error(self, asked: TokenRequest, address: str) -> str:
        """Check a pasted URL, of which only a part may have been copied.

        Returns:
            An error message, or an empty string if it is a response to this login.
        """
        try:
            self._answer(asked, address)
        except AuthError as error:
            return error.message
        return ""

    def _answer(self, asked: TokenRequest, address: str) -> dict[str, str]:
        """Parse a redirected URL and check that it belongs to this login."""
        hint = "%mcp start NAME asks again; paste the whole address that the browser ends at"
        parts, expected = urlsplit(address.strip()), urlsplit(asked.redirect_uri)
        if (parts.scheme, parts.netloc, parts.path or "/") != (expected.scheme, expected.netloc, expected.path or "/"):
            raise AuthError(f"this is not the address that a login at {self._host} ends at", hint=hint)
        try:
            answer = parse_qs(parts.query, keep_blank_values=True, max_num_fields=50)
        except ValueError:
            answer = {}
        if any(len(answer.get(name, ())) > 1 for name in ("state", "code", "iss", "error")):
            raise AuthError(f"the answer of {self._host} repeats a parameter", hint=hint)
        if not secrets.compare_digest(answer.get("state", [""])[0].encode(), asked.state.encode()):
            raise AuthError(f"the answer belongs to another login at {self._host}", hint=hint)
        if not any(answer.get(name, [""])[0] for name in ("code", "error")):
            raise AuthError(f"the answer of {self._host} contains no code", hint=hint)
        return {name: values[0] for name, values in answer.items()}

    async def exchange(self, asked: TokenRequest, client: Registration, code: str) -> Tokens:
        """Exchange an authorization code for tokens."""
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": asked.redirect_uri,
            "code_verifier": asked.verifier,
        }
        return await self._tokens(client, fields, asked.scopes)

    async def refresh(self, held: Tokens) -> Tokens:
        """Exchange a refresh token for new tokens with the same scopes (RFC 6749 section 6)."""
        refresh_token = held.refresh_token or ""
        fields = {"grant_type": "refresh_token", "refresh_token": refresh_token}
        return await self._tokens(held.client, fields, held.requested, kept=refresh_token)

    async def client_credentials(self, client: Registration, scopes: tuple[str, ...]) -> Tokens:
        """Request tokens for the client itself, without a user (MCP extension oauth-client-credentials)."""
        return await self._tokens(client, {"grant_type": "client_credentials", **_scope(scopes)}, scopes)

    async def enterprise(self, client: Registration, scopes: tuple[str, ...]) -> Tokens:
        """Request tokens by an identity provider's assertion (MCP extension enterprise-managed-authorization)."""
        assertion = await self._identity_assertion(scopes)
        fields = {"grant_type": _JWT_BEARER, "assertion": assertion, **_scope(scopes)}
        return await self._tokens(client, fields, scopes)

    async def _tokens(
        self, client: Registration, fields: dict[str, str], scopes: tuple[str, ...], kept: str | None = None
    ) -> Tokens:
        fields = {**fields, "resource": self._resource}
        document = await request(self._web, self._server, client, self._settings, fields)
        return tokens(document, client, scopes, self._host, kept)

    async def _identity_assertion(self, scopes: tuple[str, ...]) -> str:
        """Exchange the user's identity token for an assertion for this server (ID-JAG, RFC 8693)."""
        settings = self._settings
        if not settings.idp_token:
            raise AuthError("cannot log in: no identity token is configured", hint="set idp_token in its auth")
        url = settings.idp_token_endpoint or await self._idp_token_endpoint(settings.idp_issuer)
        fields = {
            "grant_type": _TOKEN_EXCHANGE,
            "requested_token_type": _ID_JAG,
            "audience": self._server.issuer,
            "resource": self._resource,
            "subject_token": settings.idp_token,
            "subject_token_type": settings.idp_token_type,
            **_scope(scopes),
        }
        if settings.idp_client_id:
            fields["client_id"] = settings.idp_client_id
        if settings.idp_client_secret:
            fields["client_secret"] = settings.idp_client_secret
        host = addresses.host(url)
        reply = await self._web.post_form(url, fields, {}, "the identity provider's token endpoint")
        try:
            document = read_reply(reply, host, "the request to vouch for the user", list(fields.values()))
        except OAuthError as error:
            if error.code == "invalid_grant":
                error.hint = "the identity token may have expired: set a new idp_token in its auth"
            raise
        assertion = document.get("access_token")
        if not isinstance(assertion, str) or document.get("issued_token_type") != _ID_JAG:
            raise AuthError(f"cannot log in: {host} returned no identity assertion (ID-JAG)", hint="tell its operator")
        return assertion

    async def _idp_token_endpoint(self, issuer: str | None) -> str:
        if not issuer:
            hint = "set idp_token_endpoint or idp_issuer in its auth"
            raise AuthError("cannot log in: no identity provider is configured", hint=hint)
        for url in reversed(server_urls(issuer)):
            document, _ = await self._web.document(url, "the identity provider's metadata")
            if document and document.get("issuer") == issuer and isinstance(document.get("token_endpoint"), str):
                return document["token_endpoint"]
        hint = "set idp_token_endpoint in its auth"
        raise AuthError(f"cannot log in: {addresses.host(issuer)} publishes no metadata", hint=hint)


def _scope(scopes: tuple[str, ...]) -> dict[str, str]:
    return {"scope": " ".join(scopes)} if scopes else {}
