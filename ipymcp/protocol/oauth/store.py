"""What logins leave behind: registrations and tokens, and where they are kept."""

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
    """A client as one authorization server knows it."""

    client_id: str
    method: AuthMethod
    """How it proves itself at the token endpoint."""
    client_secret: str | None = field(default=None, repr=False)
    secret_expires_at: float = 0.0
    """Seconds since 1970; 0: never."""
    scopes: tuple[str, ...] = ()
    """What it was registered for; empty: anything."""
    is_dynamic: bool = False
    """Whether the authorization server made it at our request, and may have forgotten it."""

    @property
    def has_expired(self) -> bool:
        """Whether its secret is no longer valid."""
        return 0 < self.secret_expires_at <= time.time()


@dataclass(frozen=True, slots=True)
class Tokens:
    """What one login brought."""

    access_token: str = field(repr=False)
    client: Registration
    """The client they were issued to; a refresh token is of use to no other."""
    refresh_token: str | None = field(default=None, repr=False)
    obtained_at: float = 0.0
    """Seconds since 1970."""
    lifetime: float | None = None
    """Seconds; None: not told."""
    requested: tuple[str, ...] = ()
    """The scopes that were asked for; empty: none were named."""
    granted: tuple[str, ...] = ()
    """The scopes that were given."""

    @property
    def is_ending(self) -> bool:
        """Whether the access token has expired or will before a request that starts now is through."""
        if self.lifetime is None:
            return False
        return time.time() >= self.obtained_at + self.lifetime - min(_MARGIN, self.lifetime / 5)


@dataclass(frozen=True, slots=True)
class TokenKey:
    """Whose tokens they are. Never a server's name: another definition of that name inherits nothing."""

    issuer: str
    resource: str
    definition: str
    """The digest of the server's definition."""


class TokenStore(Protocol):
    """Keeps secrets. Several kernels may share one."""

    async def registration(self, issuer: str, redirect_uri: str) -> Registration | None:
        """The client registered there for this redirect URI."""
        ...

    async def redirect_uris(self, issuer: str) -> tuple[str, ...]:
        """The redirect URIs that clients are registered for there, newest first."""
        ...

    async def keep_registration(self, issuer: str, redirect_uri: str, registration: Registration) -> None:
        """Keep a client, in place of an older one."""
        ...

    async def forget_registration(self, issuer: str, redirect_uri: str) -> None:
        """Forget a client, if there is one."""
        ...

    async def find(self, definition: str) -> tuple[TokenKey, Tokens] | None:
        """The newest tokens of a server definition."""
        ...

    async def tokens(self, key: TokenKey) -> Tokens | None:
        """The tokens kept under a key."""
        ...

    async def keep_tokens(self, key: TokenKey, tokens: Tokens) -> None:
        """Keep tokens, in place of older ones."""
        ...

    async def forget_tokens(self, key: TokenKey) -> None:
        """Forget tokens, if there are any."""
        ...

    def refreshing(self, key: TokenKey) -> AbstractAsyncContextManager[None]:
        """Held while tokens are refreshed, by one at a time among all that share the store."""
        ...
