"""One login by a person: the page, the redirect, the code, the tokens."""

from __future__ import annotations

import asyncio
import secrets
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ipymcp.errors import AuthError
from ipymcp.protocol.oauth import addresses
from ipymcp.protocol.oauth.endpoint import Refused
from ipymcp.protocol.oauth.grants import Asked
from ipymcp.protocol.oauth.redirect import LoopbackRedirect
from ipymcp.protocol.oauth.registration import client_for
from ipymcp.protocol.oauth.settings import LoginRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ipymcp.protocol.oauth.discovery import AuthorizationServer
    from ipymcp.protocol.oauth.fetching import Web
    from ipymcp.protocol.oauth.grants import Granter
    from ipymcp.protocol.oauth.redirect import OpenRedirect, RedirectSource
    from ipymcp.protocol.oauth.settings import LoginUser, OAuthSettings
    from ipymcp.protocol.oauth.store import Registration, Tokens, TokenStore

__all__ = ["Login"]

_FORGOTTEN = frozenset({"invalid_client", "unauthorized_client"})


class Login:
    """Logs a person in.

    Args:
        web: The network.
        settings: What is configured.
        store: Where registrations are kept.
        user: Who logs in.
        open_redirect: Where redirects arrive, in place of a listener on this machine.
    """

    def __init__(
        self,
        web: Web,
        settings: OAuthSettings,
        store: TokenStore,
        user: LoginUser,
        open_redirect: OpenRedirect | None,
    ) -> None:
        self._web = web
        self._settings = settings
        self._store = store
        self._user = user
        self._open_redirect = open_redirect

    async def run(
        self, server: AuthorizationServer, granter: Granter, client: Registration | None, scopes: tuple[str, ...]
    ) -> Tokens:
        """Log in.

        Args:
            server: The authorization server.
            granter: Gets its tokens.
            client: The configured client, if there is one.
            scopes: What to ask for.

        Raises:
            AuthError: The login was refused or failed.
        """
        page = granter.login_page()
        state = secrets.token_urlsafe(32)
        known = await self._store.redirect_uris(server.issuer)
        redirect = await self._redirect(state, known)
        try:
            uri = redirect.uri if redirect else self._settings.redirect_uri or ""
            client = client or await client_for(self._web, server, self._settings, self._store, uri, scopes)
            asked = Asked(uri, scopes, state)
            request = LoginRequest(
                url=granter.request_url(page, asked, client),
                domain=addresses.host(page),
                site=granter.site,
                answer_to=granter.answer_to,
                gives_secret=self._settings.client_secret is not None,
                issuer=server.issuer,
                scopes=scopes,
                redirect_uri=uri,
                redirect=redirect,
                slip=partial(granter.slip, asked),
            )
            try:
                code = granter.code(asked, await self._user.login(request))
                return await granter.exchange(asked, client, code)
            except (AuthError, asyncio.CancelledError) as error:
                if uri in known and not (isinstance(error, Refused) and error.code not in _FORGOTTEN):
                    # It may have forgotten the client, and then only its own page says so, to the user.
                    await self._store.forget_registration(server.issuer, uri)
                raise
        finally:
            if redirect is not None:
                await redirect.aclose()

    async def _redirect(self, state: str, known: Sequence[str]) -> RedirectSource | None:
        """Where the redirect will arrive; None where only the user will see it."""
        if self._open_redirect is not None:
            return await self._open_redirect(state, known)
        uri = self._settings.redirect_uri
        if uri is None or (urlsplit(uri).scheme == "http" and addresses.is_loopback(uri)):
            return await LoopbackRedirect.open(state, known, uri)
        addresses.secure(uri, "redirect_uri", loopback=True)
        return None
