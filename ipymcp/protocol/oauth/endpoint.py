"""Talking to a token endpoint: who the client is, what it asks for, what the answer means (RFC 6749, 7521, 7523)."""

from __future__ import annotations

import base64
import contextlib
import secrets
import time
import warnings
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from ipymcp.errors import AuthError
from ipymcp.protocol.oauth import addresses
from ipymcp.protocol.oauth.store import Registration, Tokens

if TYPE_CHECKING:
    from collections.abc import Mapping

    from joserfc.jwk import ECKey, OKPKey, RSAKey

    from ipymcp.protocol.oauth.discovery import AuthorizationServer
    from ipymcp.protocol.oauth.fetching import Reply, Web
    from ipymcp.protocol.oauth.settings import AuthMethod, OAuthSettings

__all__ = ["Refused", "as_told", "auth_method", "refusal", "request", "tokens"]

_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_ASSERTION_LIFE = 300
_LONGEST_TELLING = 200


class Refused(AuthError):
    """The authorization server answered with an OAuth error. For users it is an `AuthError`, and shown as such."""

    def __init__(self, message: str, *, code: str, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.code = code
        """Such as `invalid_grant` (RFC 6749 section 5.2)."""


def auth_method(settings: OAuthSettings, server: AuthorizationServer, *, has_secret: bool) -> AuthMethod:
    """How the client proves itself: as configured, else the best that both sides can do."""
    if settings.token_endpoint_auth_method is not None:
        return settings.token_endpoint_auth_method
    if settings.private_key is not None:
        return "private_key_jwt"
    offered = server.auth_methods
    if not has_secret:
        return "none"
    if offered is None or "client_secret_basic" in offered:
        return "client_secret_basic"
    if "client_secret_post" in offered:
        return "client_secret_post"
    return "none" if "none" in offered else "client_secret_basic"


async def request(
    web: Web,
    server: AuthorizationServer,
    client: Registration,
    settings: OAuthSettings,
    fields: Mapping[str, str],
) -> dict[str, Any]:
    """Ask the token endpoint for something.

    Raises:
        Refused: It answered with an OAuth error.
        AuthError: It cannot be reached, or its answer is none.
    """
    proof, headers = _proof(client, settings, server)
    reply = await web.post_form(server.token_endpoint, {**fields, **proof}, headers, "the token endpoint")
    hidden = [*fields.values(), *proof.values(), client.client_secret or ""]
    return as_told(reply, addresses.host(server.token_endpoint), "the token request", hidden)


def as_told(reply: Reply, who: str, what: str, hidden: list[str]) -> dict[str, Any]:
    """The document an endpoint answered with.

    Args:
        reply: The answer.
        who: The endpoint's domain.
        what: What was asked of it, as a noun.
        hidden: What must not come back in a message.

    Raises:
        Refused: It is an OAuth error.
        AuthError: It is no answer.
    """
    document = reply.document
    if document is not None and isinstance(document.get("error"), str):
        raise refusal(document["error"], str(document.get("error_description") or ""), who, what, hidden)
    if document is None or not 200 <= reply.status < 300:
        raise AuthError(
            f"{who} answered {what} with HTTP {reply.status} and no reason that can be read",
            hint="try again with %mcp start NAME, or tell whoever runs the server",
        )
    return document


def refusal(error: str, description: str, who: str, what: str, hidden: list[str]) -> Refused:
    """An OAuth error as a person reads it: one line of bounded length, with nothing in it that is hidden."""
    said = _one_line(f"{error}: {description}" if description else error, hidden)
    return Refused(f"{who} refused {what} ({said})", code=error, hint=_hint(error))


def tokens(
    document: dict[str, Any], client: Registration, requested: tuple[str, ...], who: str, kept: str | None = None
) -> Tokens:
    """The tokens in a token endpoint's answer (RFC 6749 section 5.1).

    Args:
        document: The answer.
        client: The client that asked.
        requested: The scopes it asked for.
        who: The endpoint's domain, for the message.
        kept: The refresh token that stays valid where the answer brings no new one.

    Raises:
        AuthError: There is no token in it, or one of a kind that is not known here.
    """
    token, kind = document.get("access_token"), str(document.get("token_type", "bearer"))
    if not isinstance(token, str) or not token or not token.isascii() or not token.isprintable() or " " in token:
        raise AuthError(f"{who} gave no token that can be used", hint="a fault of the authorization server")
    if kind.lower() != "bearer":
        message = f"{who} gave a token of the type {kind[:40]!r}, which ipymcp does not know"
        raise AuthError(message, hint="only Bearer tokens work")
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


def _proof(
    client: Registration, settings: OAuthSettings, server: AuthorizationServer
) -> tuple[dict[str, str], dict[str, str]]:
    if client.method == "private_key_jwt":
        assertion = _assertion(client.client_id, settings, server)
        return {"client_assertion_type": _ASSERTION, "client_assertion": assertion}, {}
    fields = {"client_id": client.client_id}
    if client.client_secret is None or client.method == "none":
        return fields, {}
    if client.method == "client_secret_post":
        return {**fields, "client_secret": client.client_secret}, {}
    pair = f"{quote(client.client_id, safe='')}:{quote(client.client_secret, safe='')}"
    return fields, {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}


def _assertion(client_id: str, settings: OAuthSettings, server: AuthorizationServer) -> str:
    """A JWT that proves the client is the holder of its key (RFC 7523 section 2.2), for this issuer only."""
    from joserfc import jwt
    from joserfc.errors import JoseError

    hint = "private_key is a PEM text without a password; signing_algorithm has to suit it"
    if not settings.private_key:
        raise AuthError("cannot log in: private_key_jwt needs a private_key", hint=hint)
    now = int(time.time())
    claims = {
        "iss": client_id,
        "sub": client_id,
        "aud": server.issuer,
        "iat": now,
        "exp": now + _ASSERTION_LIFE,
        "jti": secrets.token_urlsafe(16),
    }
    try:
        key, suited = _signing_key(settings.private_key)
        chosen = [name for name in suited if name in server.signing_algorithms] or suited
        algorithm = settings.signing_algorithm or chosen[0]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns of EdDSA's newer name, which few servers know yet
            return jwt.encode({"alg": algorithm}, claims, key, algorithms=[algorithm])
    except (JoseError, ValueError, TypeError) as error:
        # What went wrong is not repeated: it may hold the key.
        raise AuthError(f"cannot log in: the private key cannot sign ({type(error).__name__})", hint=hint) from None


def _signing_key(pem: str) -> tuple[RSAKey | ECKey | OKPKey, tuple[str, ...]]:
    """A private key, and the algorithms it suits."""
    from joserfc.errors import JoseError
    from joserfc.jwk import ECKey, OKPKey, RSAKey

    with contextlib.suppress(JoseError, ValueError):
        return RSAKey.import_key(pem), ("RS256", "PS256", "RS384", "PS384", "RS512", "PS512")
    with contextlib.suppress(JoseError, ValueError):
        key = ECKey.import_key(pem)
        return key, ({"P-384": "ES384", "P-521": "ES512"}.get(str(key.as_dict(private=False).get("crv")), "ES256"),)
    return OKPKey.import_key(pem), ("EdDSA", "Ed25519")


def _one_line(text: str, hidden: list[str]) -> str:
    for secret in hidden:
        if len(secret) >= 8:
            text = text.replace(secret, "***")
    return " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * _LONGEST_TELLING]).split())[
        :_LONGEST_TELLING
    ]


def _hint(code: str) -> str:
    if code == "invalid_client":
        return "check client_id and client_secret in its auth"
    if code == "invalid_scope":
        return "set scopes in its auth to what the server knows"
    if code in ("unauthorized_client", "unsupported_grant_type"):
        return "the authorization server does not let this client log in this way"
    return "%mcp start NAME tries again"
