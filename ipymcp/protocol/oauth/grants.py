"""The ways to get tokens: authorization code with PKCE, refresh, client credentials, and the enterprise's way.

Sources: RFC 6749, RFC 7636 (PKCE), RFC 8707 (resource), RFC 9207 (`iss`), RFC 8693 and RFC 7523 (enterprise).
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlencode, urlsplit

from ipymcp.errors import AuthError
from ipymcp.protocol.oauth import addresses, endpoint
from ipymcp.protocol.oauth.discovery import server_urls

if TYPE_CHECKING:
    from ipymcp.protocol.oauth.discovery import AuthorizationServer
    from ipymcp.protocol.oauth.fetching import Web
    from ipymcp.protocol.oauth.settings import OAuthSettings
    from ipymcp.protocol.oauth.store import Registration, Tokens

__all__ = ["Asked", "Granter", "challenge_of"]

_ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"
_TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
_CLIENTS_OWN = frozenset({"prompt", "request", "request_uri", "response_mode", "scope"})
"""Parameters that a client may set or leave out; an authorization server's page has none of them by itself."""
_JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"


def challenge_of(verifier: str) -> str:
    """The S256 code challenge of a PKCE verifier (RFC 7636 section 4.2)."""
    return base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()


@dataclass(frozen=True, slots=True)
class Asked:
    """One authorization request, with what its answer is checked against."""

    redirect_uri: str
    scopes: tuple[str, ...]
    state: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(48), repr=False)


class Granter:
    """Gets tokens for one resource from one authorization server.

    Args:
        web: The network.
        server: The authorization server.
        settings: What is configured.
        resource: The server the tokens are for.
    """

    def __init__(self, web: Web, server: AuthorizationServer, settings: OAuthSettings, resource: str) -> None:
        self._web = web
        self._server = server
        self._settings = settings
        self._resource = resource
        self._who = addresses.host(server.issuer)

    def login_page(self) -> str:
        """Where users log in, if they may.

        Raises:
            AuthError: The authorization server has no such page, does not protect it by PKCE, or leaves it to another
                site without binding the answer to itself.
        """
        page = self._server.authorization_endpoint
        if page is None:
            hint = "client credentials may be what it wants: set the type in its auth"
            raise AuthError(f"cannot log in: {self._who} has no page where users log in", hint=hint)
        if not self._server.has_pkce:
            message = f"cannot log in: {self._who} does not say that it supports PKCE with S256"
            raise AuthError(message, hint="MCP forbids to log in without; tell whoever runs the server")
        if addresses.host(page) != self._who and not self._server.sends_issuer and not self._is_configured():
            # Else it could have users log in at an honest site, as that site's client, and be given the code.
            raise AuthError(
                f"cannot log in: {self._who} sends its users to {addresses.host(page)}, and answers from there do not "
                "say for whom they are (no iss, RFC 9207)",
                hint=f"if you trust {self._who}, set issuer to {self._server.issuer!r} in its auth",
            )
        return page

    @property
    def site(self) -> str:
        """The host of the server that the tokens are for."""
        return addresses.host(self._resource)

    @property
    def answer_to(self) -> str:
        """The host that the answer to a login, and the client's secret, go to."""
        return addresses.host(self._server.token_endpoint)

    def _is_configured(self) -> bool:
        """Whether the user has named this authorization server."""
        issuer = self._settings.issuer
        return issuer is not None and issuer.rstrip("/") == self._server.issuer.rstrip("/")

    def request_url(self, page: str, asked: Asked, client: Registration) -> str:
        """The URL of that page for one login.

        Raises:
            AuthError: The page's address has a parameter of its own in the place of one of ours.
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
            message = f"cannot log in: the page of {self._who} sets {twice}, which is the client's to set"
            raise AuthError(message, hint=addresses.THEIR_FAULT)
        return f"{page}{'&' if own else '?'}{urlencode(fields)}"

    def code(self, asked: Asked, address: str) -> str:
        """The authorization code in the address the browser was redirected to.

        Raises:
            AuthError: It is not the answer to this login, or the login was refused.
        """
        answer = self._answer(asked, address)
        self._check_issuer(answer.get("iss"))
        if error := answer.get("error"):
            raise self._refusal(error, answer.get("error_description", ""))
        return answer["code"]

    def slip(self, asked: Asked, address: str) -> str:
        """What a pasted address lacks that the answer to this login has, as when only half of it was copied.

        Returns:
            A line for the user, or the empty string.
        """
        try:
            self._answer(asked, address)
        except AuthError as error:
            return error.message
        return ""

    def _answer(self, asked: Asked, address: str) -> dict[str, str]:
        """The parameters of an address, which are an answer to this login."""
        hint = "%mcp start NAME asks again; paste the whole address that the browser ends at"
        parts, expected = urlsplit(address.strip()), urlsplit(asked.redirect_uri)
        if (parts.scheme, parts.netloc, parts.path or "/") != (expected.scheme, expected.netloc, expected.path or "/"):
            raise AuthError(f"the address is not the one that a login at {self._who} ends at", hint=hint)
        try:
            answer = parse_qs(parts.query, keep_blank_values=True, max_num_fields=50)
        except ValueError:
            answer = {}
        if any(len(answer.get(name, ())) > 1 for name in ("state", "code", "iss", "error")):
            raise AuthError(f"the answer of {self._who} gives a parameter twice", hint=hint)
        if not secrets.compare_digest(answer.get("state", [""])[0].encode(), asked.state.encode()):
            raise AuthError(f"the answer belongs to another login than this one at {self._who}", hint=hint)
        if not any(answer.get(name, [""])[0] for name in ("code", "error")):
            raise AuthError(f"the answer of {self._who} holds no code", hint=hint)
        return {name: values[0] for name, values in answer.items()}

    def _check_issuer(self, given: str | None) -> None:
        """RFC 9207 section 2.4: simple comparison; nothing else of a wrong answer is looked at, or shown."""
        hint = "somebody may be trying to mix up two logins; tell whoever runs the server"
        if given is None:
            if self._server.sends_issuer:
                raise AuthError(f"the answer does not say that it comes from {self._who}, which always does", hint=hint)
        elif given != self._server.issuer:
            raise AuthError(f"the answer to the login at {self._who} names another issuer", hint=hint)

    def _refusal(self, error: str, description: str) -> AuthError:
        if error == "access_denied":
            message = f"the login at {self._who} was refused (access_denied)"
            return endpoint.Refused(message, code=error, hint="%mcp start NAME asks again")
        return endpoint.refusal(error, description, self._who, "the login", [])

    async def exchange(self, asked: Asked, client: Registration, code: str) -> Tokens:
        """The tokens for an authorization code."""
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": asked.redirect_uri,
            "code_verifier": asked.verifier,
        }
        return await self._tokens(client, fields, asked.scopes)

    async def refresh(self, held: Tokens) -> Tokens:
        """New tokens for a refresh token; the scopes stay what they are (RFC 6749 section 6)."""
        refresh_token = held.refresh_token or ""
        fields = {"grant_type": "refresh_token", "refresh_token": refresh_token}
        return await self._tokens(held.client, fields, held.requested, kept=refresh_token)

    async def client_credentials(self, client: Registration, scopes: tuple[str, ...]) -> Tokens:
        """Tokens for the client itself, with no user (MCP extension oauth-client-credentials)."""
        return await self._tokens(client, {"grant_type": "client_credentials", **_scope(scopes)}, scopes)

    async def enterprise(self, client: Registration, scopes: tuple[str, ...]) -> Tokens:
        """Tokens by the word of the enterprise's identity provider (MCP extension enterprise-managed-authorization)."""
        assertion = await self._identity_assertion(scopes)
        fields = {"grant_type": _JWT_BEARER, "assertion": assertion, **_scope(scopes)}
        return await self._tokens(client, fields, scopes)

    async def _tokens(
        self, client: Registration, fields: dict[str, str], scopes: tuple[str, ...], kept: str | None = None
    ) -> Tokens:
        fields = {**fields, "resource": self._resource}
        document = await endpoint.request(self._web, self._server, client, self._settings, fields)
        return endpoint.tokens(document, client, scopes, self._who, kept)

    async def _identity_assertion(self, scopes: tuple[str, ...]) -> str:
        """The identity provider's assertion for this server (ID-JAG), for the one it gave the user (RFC 8693)."""
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
        who = addresses.host(url)
        reply = await self._web.post_form(url, fields, {}, "the identity provider's token endpoint")
        try:
            document = endpoint.as_told(reply, who, "the request to vouch for the user", list(fields.values()))
        except endpoint.Refused as error:
            if error.code == "invalid_grant":
                error.hint = "the identity token may have expired: set a new idp_token in its auth"
            raise
        assertion = document.get("access_token")
        if not isinstance(assertion, str) or document.get("issued_token_type") != _ID_JAG:
            raise AuthError(f"cannot log in: {who} gave no identity assertion (ID-JAG)", hint="tell whoever runs it")
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
        raise AuthError(f"cannot log in: {addresses.host(issuer)} publishes no metadata of its own", hint=hint)


def _scope(scopes: tuple[str, ...]) -> dict[str, str]:
    return {"scope": " ".join(scopes)} if scopes else {}
