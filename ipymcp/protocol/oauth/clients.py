"""The OAuth client: its configuration, its registration, and its authentication at the token endpoint.

Sources: RFC 6749 section 2.3, RFC 7591, RFC 7523 (private_key_jwt).
"""

from __future__ import annotations

import base64
import contextlib
import secrets
import time
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote

from ipymcp.errors import AuthError

if TYPE_CHECKING:
    from typing import TypeAlias

    from joserfc.jwk import ECKey, OKPKey, RSAKey

    from ipymcp.protocol.oauth.discovery import AuthorizationServer

    Proof: TypeAlias = "tuple[dict[str, str], dict[str, str]]"


AuthMethod = Literal["none", "client_secret_basic", "client_secret_post", "private_key_jwt"]
_PREFERRED: tuple[AuthMethod, ...] = ("client_secret_basic", "client_secret_post")
"""Methods with a secret, best first."""
_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_ASSERTION_LIFE = 300


@dataclass(frozen=True, slots=True)
class OAuthSettings:
    """The login configuration of one server. The defaults suit most servers."""

    grant: Literal["authorization_code", "client_credentials", "enterprise"] = "authorization_code"
    client_id: str | None = None
    """A client registered by hand; without one ipymcp registers itself."""
    client_secret: str | None = field(default=None, repr=False)
    token_endpoint_auth_method: AuthMethod | None = None
    """Client authentication; None chooses from those that the authorization server offers."""
    private_key: str | None = field(default=None, repr=False)
    """Private key as PEM, for `private_key_jwt`."""
    signing_algorithm: str | None = None
    """Signature algorithm, such as ES256; None chooses by the key."""
    client_metadata_url: str | None = None
    """URL of a client id metadata document for this installation."""
    redirect_uri: str | None = None
    """Redirect URI; None means a free port on 127.0.0.1. An http URI on this machine is listened on, at any free port
    if it has none; for any other, the user pastes the redirected URL.
    """
    issuer: str | None = None
    """The authorization server that the client belongs to; any other is refused."""
    scopes: tuple[str, ...] = ()
    """Scopes to request; empty means those that the server names."""
    idp_issuer: str | None = None
    idp_token_endpoint: str | None = None
    """Enterprise: token endpoint of the identity provider; None means discovery by `idp_issuer`."""
    idp_client_id: str | None = None
    idp_client_secret: str | None = field(default=None, repr=False)
    idp_token: str | None = field(default=None, repr=False)
    """Enterprise: identity assertion that the identity provider issued to the user."""
    idp_token_type: str = "urn:ietf:params:oauth:token-type:id_token"


@dataclass(frozen=True, slots=True)
class Registration:
    """A client registered at an authorization server."""

    client_id: str
    method: AuthMethod
    """Client authentication at the token endpoint."""
    client_secret: str | None = field(default=None, repr=False)
    secret_expires_at: float = 0.0
    """Seconds since 1970; 0 means never."""
    scopes: tuple[str, ...] = ()
    """The scopes of the registration; empty means any."""
    is_dynamic: bool = False
    """Whether the authorization server created it on request, and may have forgotten it."""

    @property
    def has_expired(self) -> bool:
        """Whether the client secret has expired."""
        return 0 < self.secret_expires_at <= time.time()


def auth_method(settings: OAuthSettings, server: AuthorizationServer, *, has_secret: bool) -> AuthMethod:
    """Choose the authentication of a configured client: the configured one, or the best that both sides support."""
    if settings.token_endpoint_auth_method is not None:
        return settings.token_endpoint_auth_method
    if settings.private_key is not None:
        return "private_key_jwt"
    if not has_secret:
        return "none"
    offered = _offered(server)
    return _best(offered) or ("none" if "none" in offered else "client_secret_basic")


def method_to_register(settings: OAuthSettings, server: AuthorizationServer) -> AuthMethod:
    """Choose the authentication of a new client."""
    if settings.token_endpoint_auth_method is not None:
        return settings.token_endpoint_auth_method
    offered = _offered(server)
    return "none" if server.is_assumed or "none" in offered else _best(offered) or "none"


def registered_method(given: object, asked: AuthMethod, *, has_secret: bool) -> AuthMethod:
    """Return the authentication of a new client by the response to its registration.

    A secret without a method is for `client_secret_basic` (RFC 7591 section 2), unless another was requested.
    """
    if not has_secret:
        return "none"
    if given in (*_PREFERRED, "none"):
        return given
    return "client_secret_basic" if asked == "none" else asked


def _offered(server: AuthorizationServer) -> tuple[str, ...]:
    """Return the supported methods; one that names none supports `client_secret_basic` (RFC 8414 section 2)."""
    return ("client_secret_basic",) if server.auth_methods is None else server.auth_methods


def _best(offered: tuple[str, ...]) -> AuthMethod | None:
    return next((method for method in _PREFERRED if method in offered), None)


def proof(client: Registration, settings: OAuthSettings, server: AuthorizationServer) -> Proof:
    """Return the form fields and headers that authenticate a client.

    Raises:
        AuthError: The private key is missing or cannot sign.
    """
    if client.method == "private_key_jwt":
        assertion = _assertion(client.client_id, settings, server)
        return {"client_assertion_type": _ASSERTION, "client_assertion": assertion}, {}
    fields = {"client_id": client.client_id}
    if client.method == "none" or client.client_secret is None:
        return fields, {}
    if client.method == "client_secret_post":
        return {**fields, "client_secret": client.client_secret}, {}
    pair = f"{quote(client.client_id, safe='')}:{quote(client.client_secret, safe='')}"
    return fields, {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}


def _assertion(client_id: str, settings: OAuthSettings, server: AuthorizationServer) -> str:
    """Create a JWT that proves possession of the client's key (RFC 7523 section 2.2), valid for this issuer only."""
    from joserfc import jwt
    from joserfc.errors import JoseError

    hint = "private_key is a PEM text without a password; signing_algorithm must match it"
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
            warnings.simplefilter("ignore")  # it recommends a newer name of EdDSA, which few servers support
            return jwt.encode({"alg": algorithm}, claims, key, algorithms=[algorithm])
    except (JoseError, ValueError, TypeError) as error:
        # The error text is not repeated: it may contain the key.
        raise AuthError(f"cannot log in: the private key cannot sign ({type(error).__name__})", hint=hint) from None


def _signing_key(pem: str) -> tuple[RSAKey | ECKey | OKPKey, tuple[str, ...]]:
    """Load a private key, and list the algorithms it supports."""
    from joserfc.errors import JoseError
    from joserfc.jwk import ECKey, OKPKey, RSAKey

    with contextlib.suppress(JoseError, ValueError):
        return RSAKey.import_key(pem), ("RS256", "PS256", "RS384", "PS384", "RS512", "PS512")
    with contextlib.suppress(JoseError, ValueError):
        key = ECKey.import_key(pem)
        return key, ({"P-384": "ES384", "P-521": "ES512"}.get(str(key.as_dict(private=False).get("crv")), "ES256"),)
    return OKPKey.import_key(pem), ("EdDSA", "Ed25519")
