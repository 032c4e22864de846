"""The tokens of logins, and the interfaces of a login to its storage and to the user."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from ipymcp.protocol.oauth.clients import Registration  # noqa: TC001 - stored tokens are decoded by these types

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager


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

    async def __call__(self, state: str, known: Sequence[str]) -> RedirectSource:
        """Open the receiver.

        Args:
            state: The `state` of the login; redirects without it belong to other logins.
            known: Registered redirect URIs, best first; using one saves a registration.
        """
        ...
