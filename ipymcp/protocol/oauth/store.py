"""Registrations and tokens of logins, and the interface to their storage."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from ipymcp.protocol.oauth.settings import AuthMethod  # noqa: TC001 - stores on disk decode by these types

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager


_MARGIN = 60.0


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
