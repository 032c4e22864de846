"""The OAuth authorizer: finds the authorization server, logs in, and refreshes tokens.

Nothing is repeated forever: a new token that is refused is not replaced by another of its kind, a scope is requested
once, and the number of logins per minute is limited.
"""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import time
from typing import TYPE_CHECKING

from ipymcp.errors import AuthError
from ipymcp.masking import mask
from ipymcp.protocol.oauth import discovery
from ipymcp.protocol.oauth.discovery import ScopeRequest, scope_request
from ipymcp.protocol.oauth.http import MetadataClient, OAuthError
from ipymcp.protocol.oauth.redirect import Login
from ipymcp.protocol.oauth.registration import configured
from ipymcp.protocol.oauth.tokens import TokenClient, TokenKey
from ipymcp.protocol.transports import addresses

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ipymcp.protocol.oauth.clients import OAuthSettings
    from ipymcp.protocol.oauth.discovery import AuthorizationServer, ProtectedResource
    from ipymcp.protocol.oauth.http import Fetch
    from ipymcp.protocol.oauth.tokens import LoginUser, OpenRedirect, Tokens, TokenStore


_MINUTE = 60.0
_MAX_ATTEMPTS = 6
"""Maximum successful logins and refreshes per minute."""
_MAX_ALIKE = 3
"""Maximum of them with the same issuer and scopes."""
_AFTER_FAILED_REFRESH = 30.0
"""Seconds after a failed refresh before the next attempt."""
_ENDING_ERRORS = frozenset({"invalid_grant", "invalid_client", "unauthorized_client"})
"""OAuth errors after which a refresh token is of no use (RFC 6749 section 5.2); after any other it is kept."""


class _Sent(dict[str, str]):
    """The headers of a request, and the number of logins that had failed when it was sent."""

    def __init__(self, headers: Mapping[str, str], failures: int) -> None:
        super().__init__(headers)
        self.failures = failures


class OAuth:
    """An `Authorizer` for one server.

    Args:
        server_url: The server's URL.
        settings: The configuration of the login.
        store: Stores registrations and tokens.
        user: The user who logs in.
        http: Sends requests to metadata and token endpoints.
        definition: Digest of the server's definition; tokens of another definition are not used.
        open_redirect: Receives redirects instead of a listener on this machine.
    """

    def __init__(
        self,
        server_url: str,
        settings: OAuthSettings,
        store: TokenStore,
        user: LoginUser,
        http: Fetch,
        *,
        definition: str | None = None,
        open_redirect: OpenRedirect | None = None,
    ) -> None:
        self._url = server_url
        self._settings = settings
        self._store = store
        named = (settings.issuer, settings.idp_issuer, settings.idp_token_endpoint)
        trusted = frozenset(addresses.host(url) for url in named if url)
        self._web = MetadataClient(http, loopback=addresses.is_loopback(server_url), trusted=trusted)
        self._login = Login(self._web, settings, store, user, open_redirect)
        self._definition = definition or addresses.canonical(server_url)
        self._lock = asyncio.Lock()
        self._refresh_lock = asyncio.Lock()
        self._is_loaded = False
        self._key: TokenKey | None = None
        self._held: Tokens | None = None
        """The current tokens."""
        self._uses = 0
        """Number of uses of the current token; one refused at its first use was never valid."""
        self._is_refreshed = False
        """Whether the current token came from a refresh."""
        self._refresh_after = 0.0
        """Earliest time of the next refresh, on the clock of `time.monotonic`."""
        self._server: AuthorizationServer | None = None
        self._attempts: list[tuple[float, str, frozenset[str]]] = []
        """The successes of the last minute: time, issuer or `refresh`, and scopes."""
        self._failures = 0
        """Number of failed logins."""
        self._failure: AuthError | None = None
        """The error of the last failed login."""

    async def headers(self) -> Mapping[str, str]:
        """Return the headers for every request, refreshing a token that is about to expire."""
        if not self._is_loaded:
            async with self._lock:
                await self._load()
        if self._held is not None and self._held.is_ending and time.monotonic() >= self._refresh_after:
            # Not under the other lock: a request with a token need not wait for a user's login.
            async with self._refresh_lock:
                await self._refresh_ahead()
        self._uses += 1
        return _Sent(self._authorization(), self._failures)

    async def challenged(
        self, status: int, challenges: Sequence[str], sent: Mapping[str, str], peer: str | None = None
    ) -> bool:
        """Obtain access after a rejected request.

        Returns:
            Whether to send the request again with new `headers`. False if a login would not help.

        Raises:
            AuthError: The login is impossible or failed.
        """
        asked = scope_request(challenges)
        if status == 403 and asked.error != "insufficient_scope":
            return False
        failures = sent.failures if isinstance(sent, _Sent) else self._failures
        async with self._lock:
            await self._load()
            self._web.answered_from(peer)
            if self._has_newer_token(asked, sent):
                return True
            if await self._find() and self._has_newer_token(asked, sent):  # another kernel has stored it meanwhile
                return True
            if self._failure is not None and self._failures != failures:
                raise copy.copy(self._failure)  # the login for this request has already failed
            try:
                await self._obtain_tokens(asked)
            except AuthError as error:
                self._failures += 1
                self._failure = copy.copy(error)
                raise
            return True

    def _authorization(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._held.access_token}"} if self._held else {}

    def _has_newer_token(self, asked: ScopeRequest, sent: Mapping[str, str]) -> bool:
        """Return whether a newer token than the request's has the scopes that it lacked."""
        if self._held is None or sent.get("Authorization") == self._authorization()["Authorization"]:
            return False
        return asked.error != "insufficient_scope" or set(asked.scopes) <= set(self._held.requested)

    # -- stored tokens ------------------------------------------------------------------------------------------------

    async def _load(self) -> None:
        if not self._is_loaded:
            self._is_loaded = True
            await self._find()

    async def _find(self) -> bool:
        """Load the newest tokens from the store. Returns whether they differ from the current ones."""
        stored = await self._store.find(self._definition)
        if stored is None or stored[1] == self._held or not addresses.covers(stored[0].resource, self._url):
            return False
        self._hold(*stored, is_new=False)
        return True

    def _hold(self, key: TokenKey, tokens: Tokens, *, is_new: bool, is_refreshed: bool = False) -> None:
        mask.add_tokens(tokens.access_token, tokens.refresh_token, tokens.client.client_secret)
        self._key, self._held = key, tokens
        self._uses = 0 if is_new else 2
        self._is_refreshed = is_refreshed

    async def _keep(self, key: TokenKey, tokens: Tokens, *, is_refreshed: bool) -> None:
        self._hold(key, tokens, is_new=True, is_refreshed=is_refreshed)
        await self._store.keep_tokens(key, tokens)

    # -- new tokens ---------------------------------------------------------------------------------------------------

    async def _obtain_tokens(self, asked: ScopeRequest) -> None:
        addresses.secure(self._url, "the server", loopback=True)
        resource = await discovery.resource(self._web, self._url, asked.resource_metadata)
        server = await self._choose(resource)
        key = TokenKey(server.issuer, resource.uri, self._definition)
        held = self._held if self._key == key else None
        scopes = self._scopes(asked, resource, server, held)
        if held is not None and await self._renew(asked, server, key, held, scopes):
            return
        if not self._is_within_limit(server.issuer, scopes):
            message = f"the server asks for one login at {addresses.host(server.issuer)} after the other"
            raise AuthError(message, hint="tell the server's operator; %mcp start NAME tries again")
        await self._keep(key, await self._grant(server, resource.uri, scopes), is_refreshed=False)
        self._record_success(server.issuer, scopes)

    async def _renew(
        self, asked: ScopeRequest, server: AuthorizationServer, key: TokenKey, held: Tokens, scopes: tuple[str, ...]
    ) -> bool:
        """Handle refused tokens without a login, if possible. False if a login is needed.

        Raises:
            AuthError: A login would not help either.
        """
        host = addresses.host(server.issuer)
        if asked.error == "insufficient_scope":
            if not set(scopes) <= set(held.requested):
                return False
            named = " ".join(asked.scopes)[:200] or "none named"
            message = f"the server asks for scopes that were already requested from {host} ({named})"
            raise AuthError(message, hint="your account there may not be allowed to do this")
        is_new = self._uses <= 1
        if is_new and not self._is_refreshed:
            raise AuthError(f"the server refuses the token that {host} has just given", hint="tell its operator")
        if is_new or held.refresh_token is None or not self._is_within_limit("refresh", scopes):
            return False
        if not await self._refresh(server, key, held):
            return False
        self._record_success("refresh", scopes)
        return True

    async def _choose(self, resource: ProtectedResource) -> AuthorizationServer:
        """Choose the authorization server: the configured one, the last one used, or the first that works."""
        preferred = (self._settings.issuer, self._key.issuer if self._key else None)
        failure: AuthError | None = None
        for issuer in sorted(resource.issuers, key=lambda issuer: issuer not in preferred):
            try:
                self._server = await discovery.authorization_server(self._web, issuer, self._url)
            except AuthError as error:
                failure = failure or error
            else:
                return self._server
        assert failure is not None
        raise failure

    def _scopes(
        self, asked: ScopeRequest, resource: ProtectedResource, server: AuthorizationServer, held: Tokens | None
    ) -> tuple[str, ...]:
        """Determine the scopes: those already allowed, and those named by the server, configuration or metadata."""
        named = [*self._settings.scopes, *asked.scopes] or resource.scopes
        before = (held.requested or held.granted) if held else ()
        scopes = list(dict.fromkeys([*before, *named]))
        by_user = self._settings.grant == "authorization_code"
        if scopes and by_user and "offline_access" in server.scopes and "offline_access" not in scopes:
            scopes.append("offline_access")
        return tuple(scopes)

    async def _grant(self, server: AuthorizationServer, resource: str, scopes: tuple[str, ...]) -> Tokens:
        token_client = TokenClient(self._web, server, self._settings, resource)
        client = configured(self._settings, server, self._key.issuer if self._key else None, self._url)
        if self._settings.grant == "authorization_code":
            return await self._login.run(server, token_client, client, scopes)
        if client is None:
            raise AuthError("cannot log in: no client is configured", hint="set client_id in its auth")
        if self._settings.grant == "enterprise":
            return await token_client.enterprise(client, scopes)
        return await token_client.client_credentials(client, scopes)

    # -- refresh ------------------------------------------------------------------------------------------------------

    async def _refresh_ahead(self) -> None:
        """Refresh a token that is about to expire. On failure the request is sent with the old token."""
        key, held = self._key, self._held
        if key is None or held is None or not held.is_ending:
            return
        by_user = self._settings.grant == "authorization_code"
        if by_user and held.refresh_token is None:
            return
        try:
            server = self._server
            if server is None or server.issuer != key.issuer:
                server = self._server = await discovery.authorization_server(self._web, key.issuer, self._url)
            if by_user:
                await self._refresh(server, key, held)
            else:
                tokens = await self._grant(server, key.resource, held.requested)
                await self._keep(key, tokens, is_refreshed=True)
        except AuthError:
            self._refresh_after = time.monotonic() + _AFTER_FAILED_REFRESH

    async def _refresh(self, server: AuthorizationServer, key: TokenKey, held: Tokens) -> bool:
        """Use the refresh token, unless another kernel has just done so. False if it is no longer valid.

        Raises:
            AuthError: It cannot be used now, and is kept.
        """
        async with self._store.refreshing(key):
            kept = await self._store.tokens(key)
            if kept is not None and kept.access_token != held.access_token:
                self._hold(key, kept, is_new=False)
                return True
            try:
                tokens = await TokenClient(self._web, server, self._settings, key.resource).refresh(held)
            except OAuthError as error:
                if error.code not in _ENDING_ERRORS:
                    error.hint = "the login is kept: the next call tries to renew it again"
                    raise
                if self._held == held:
                    self._held = dataclasses.replace(held, refresh_token=None)
                    await self._store.forget_tokens(key)
                return False
            if self._held == held:  # otherwise a login has replaced it meanwhile
                await self._keep(key, tokens, is_refreshed=True)
            return True

    # -- limits -------------------------------------------------------------------------------------------------------

    def _is_within_limit(self, kind: str, scopes: tuple[str, ...]) -> bool:
        """Return whether another success is allowed within this minute; a server may refuse each new token."""
        now = time.monotonic()
        self._attempts = [attempt for attempt in self._attempts if attempt[0] > now - _MINUTE]
        alike = sum(attempt[1:] == (kind, frozenset(scopes)) for attempt in self._attempts)
        return alike < _MAX_ALIKE and len(self._attempts) < _MAX_ATTEMPTS

    def _record_success(self, kind: str, scopes: tuple[str, ...]) -> None:
        self._attempts.append((time.monotonic(), kind, frozenset(scopes)))
