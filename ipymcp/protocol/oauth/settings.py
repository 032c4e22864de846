"""What a person has configured for one server's login, and who asks them for the rest."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    pass


AuthMethod = Literal["none", "client_secret_basic", "client_secret_post", "private_key_jwt"]


@dataclass(frozen=True, slots=True)
class OAuthSettings:
    """How to log in to one server. Everything has a default: most servers need nothing."""

    grant: Literal["authorization_code", "client_credentials", "enterprise"] = "authorization_code"
    client_id: str | None = None
    """A client that was registered by hand; without one ipymcp registers itself."""
    client_secret: str | None = field(default=None, repr=False)
    token_endpoint_auth_method: AuthMethod | None = None
    """How the client proves itself; None chooses what the authorization server offers."""
    private_key: str | None = field(default=None, repr=False)
    """PEM, for `private_key_jwt`."""
    signing_algorithm: str | None = None
    """Such as ES256; None chooses by the key."""
    client_metadata_url: str | None = None
    """Where somebody hosts a client id metadata document for this installation."""
    redirect_uri: str | None = None
    """Where the browser comes back to. None: a free port on 127.0.0.1. An http address on this machine is listened on,
    at any free port where it names none; of any other the user pastes what the browser shows."""
    issuer: str | None = None
    """The authorization server the client belongs to; any other is refused."""
    scopes: tuple[str, ...] = ()
    """Scopes to ask for; empty: those the server names."""
    idp_issuer: str | None = None
    idp_token_endpoint: str | None = None
    """Enterprise: the identity provider's token endpoint, or None to find it by `idp_issuer`."""
    idp_client_id: str | None = None
    idp_client_secret: str | None = field(default=None, repr=False)
    idp_token: str | None = field(default=None, repr=False)
    """Enterprise: the identity assertion the identity provider gave the user."""
    idp_token_type: str = "urn:ietf:params:oauth:token-type:id_token"


@dataclass(frozen=True, slots=True)
class LoginRequest:
    """What a person needs in order to log in, and to decide whether to."""

    url: str
    """The authorization server's page, to be opened in a browser."""
    domain: str
    """Whose page that is."""
    site: str
    """The host of the server that the login is for."""
    answer_to: str
    """The host that the answer goes to, and the client's secret where there is one."""
    gives_secret: bool
    """Whether a configured secret goes there."""
    issuer: str
    """The authorization server's own name for itself; usually on the same domain."""
    scopes: tuple[str, ...]
    """What the login would allow."""
    redirect_uri: str
    """The beginning of the address the browser ends at."""
    redirect: RedirectSource | None
    """Where the redirect arrives by itself, unless the browser is on another machine. None: it has to be pasted."""
    slip: Callable[[str], str]
    """Says of a pasted address what it lacks to be the answer; nothing where it is one."""


class LoginUser(Protocol):
    """Somebody who can log in."""

    async def login(self, request: LoginRequest) -> str:
        """Show the URL and its domain, and let the user agree and log in.

        Returns:
            The redirected address in full: what `request.redirect` received, or what the user pasted.

        Raises:
            AuthError: The user refuses, or there is nobody to ask.
        """
        ...


class RedirectSource(Protocol):
    """A place where the redirect of one login arrives."""

    @property
    def uri(self) -> str:
        """The redirect URI."""
        ...

    async def received(self) -> str:
        """Wait for the redirect that belongs to this login; the redirected address in full."""
        ...

    async def aclose(self) -> None:
        """Stop waiting for it."""
        ...


class OpenRedirect(Protocol):
    """Makes the place for one login."""

    async def __call__(self, state: str, known: Sequence[str]) -> RedirectSource:
        """Open it.

        Args:
            state: The `state` of the login; redirects without it are somebody else's.
            known: Redirect URIs that are registered already, best first; one of them saves a registration.
        """
        ...
