"""The configuration of a server's login, and the interfaces to the user who logs in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

AuthMethod = Literal["none", "client_secret_basic", "client_secret_post", "private_key_jwt"]


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

    async def __call__(self, state: str, known: Sequence[str]) -> RedirectSource:
        """Open the receiver.

        Args:
            state: The `state` of the login; redirects without it belong to other logins.
            known: Registered redirect URIs, best first; using one saves a registration.
        """
        ...
