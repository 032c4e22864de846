"""A login in the browser: the login page, the redirect back (RFC 8252 section 7.3), and the code."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from ipymcp.errors import AuthError
from ipymcp.protocol.oauth.http import OAuthError
from ipymcp.protocol.oauth.registration import client_for
from ipymcp.protocol.oauth.tokens import LoginRequest, OpenRedirect, RedirectSource, TokenRequest
from ipymcp.protocol.transports import addresses

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ipymcp.protocol.oauth.clients import OAuthSettings, Registration
    from ipymcp.protocol.oauth.discovery import AuthorizationServer
    from ipymcp.protocol.oauth.http import MetadataClient
    from ipymcp.protocol.oauth.tokens import LoginUser, TokenClient, Tokens, TokenStore


_ANY_PORT = "http://127.0.0.1/callback"
_MAX_REQUEST = 16_384
_TIMEOUT = 5.0
_HEADERS = (
    "Content-Type: text/html; charset=utf-8\r\n"
    "Content-Security-Policy: default-src 'none'; frame-ancestors 'none'\r\n"
    "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nX-Content-Type-Options: nosniff\r\n"
    "Connection: close\r\n"
)
_ARRIVED = "The notebook has received the answer. You can close this page."
_UNKNOWN = "No login of this notebook is waiting for this address."


class LoopbackRedirect:
    """A local listener that receives one redirect and responds with a page without content."""

    def __init__(self, uri: str, state: str) -> None:
        self.uri = uri
        self._state = state
        self._path = urlsplit(uri).path or "/"
        self._address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.StreamWriter] = set()

    @classmethod
    async def open(cls, state: str, registered: Sequence[str] = (), uri: str | None = None) -> LoopbackRedirect:
        """Start to listen.

        Args:
            state: The expected `state`.
            registered: Registered redirect URIs; the first whose port is free is used.
            uri: The configured redirect URI; without a port, any free port is used (RFC 8252).

        Raises:
            AuthError: The configured port is not free.
        """
        if uri is not None and urlsplit(uri).port is not None:
            try:
                return await cls._listening(uri, state)
            except OSError as error:
                message = f"cannot log in: cannot listen on {uri} ({error.strerror or error})"
                raise AuthError(message, hint="free that port, or change redirect_uri") from error
        pattern = uri or _ANY_PORT
        for candidate in registered:
            if _is_variant(candidate, pattern):
                with contextlib.suppress(OSError):
                    return await cls._listening(candidate, state)
        return await cls._listening(pattern, state)

    @classmethod
    async def _listening(cls, uri: str, state: str) -> LoopbackRedirect:
        parts = urlsplit(uri)
        where = "127.0.0.1" if parts.hostname == "localhost" else parts.hostname
        redirect = cls(uri, state)
        server = await asyncio.start_server(redirect._answer, where, parts.port or 0, limit=_MAX_REQUEST)
        if parts.port is None:
            port = server.sockets[0].getsockname()[1]
            redirect.uri = parts._replace(netloc=f"{parts.netloc.rstrip(':')}:{port}").geturl()
        redirect._server = server
        return redirect

    async def received(self) -> str:
        """Wait for the redirect and return its full URL."""
        return await asyncio.shield(self._address)

    async def aclose(self) -> None:
        """Close the listener and its connections."""
        self._address.cancel()
        if self._server is not None:
            self._server.close()
        for writer in self._connections:
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            async with asyncio.timeout(_TIMEOUT):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._page(head))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # not the browser's redirect
        finally:
            self._connections.discard(writer)
            writer.close()

    def _page(self, head: bytes) -> bytes:
        method, _, rest = head.split(b"\r\n", 1)[0].decode("latin-1").partition(" ")
        target, _, version = rest.partition(" ")
        is_answer = method == "GET" and version.startswith("HTTP/1.") and self._is_expected(target)
        if is_answer and not self._address.done():
            self._address.set_result(addresses.origin(self.uri) + target)
        status, text = ("200 OK", _ARRIVED) if is_answer else ("404 Not Found", _UNKNOWN)
        body = f"<!doctype html><title>ipymcp</title><p>{text}</p>\n".encode()
        return f"HTTP/1.1 {status}\r\n{_HEADERS}Content-Length: {len(body)}\r\n\r\n".encode() + body

    def _is_expected(self, target: str) -> bool:
        path, _, query = target.partition("?")
        try:
            states = parse_qs(query, max_num_fields=50).get("state", [])
        except ValueError:
            return False
        return (
            path == self._path and len(states) == 1 and secrets.compare_digest(states[0].encode(), self._state.encode())
        )


def _is_variant(candidate: str, pattern: str) -> bool:
    """Return whether a registered redirect URI equals the pattern plus a port."""
    try:
        parts, wanted = urlsplit(candidate), urlsplit(pattern)
        return parts.port is not None and wanted == parts._replace(netloc=parts.netloc.rpartition(":")[0])
    except ValueError:
        return False


_CLIENT_ERRORS = frozenset({"invalid_client", "unauthorized_client"})
"""OAuth errors after which the registration of the client is no longer used."""


class Login:
    """Logs a user in.

    Args:
        web: Sends requests.
        settings: The configuration of the login.
        store: Stores registrations.
        user: The user who logs in.
        open_redirect: Receives redirects instead of a listener on this machine.
    """

    def __init__(
        self,
        web: MetadataClient,
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
        self,
        server: AuthorizationServer,
        token_client: TokenClient,
        client: Registration | None,
        scopes: tuple[str, ...],
    ) -> Tokens:
        """Log in.

        Args:
            server: The authorization server.
            token_client: Requests its tokens.
            client: The configured client, if any.
            scopes: The scopes to request.

        Raises:
            AuthError: The login was refused or failed.
        """
        page = token_client.login_page()
        state = secrets.token_urlsafe(32)
        registered = await self._store.redirect_uris(server.issuer)
        redirect = await self._redirect(state, registered)
        try:
            uri = redirect.uri if redirect else self._settings.redirect_uri or ""
            client = client or await client_for(self._web, server, self._settings, self._store, uri, scopes)
            asked = TokenRequest(uri, scopes, state)
            request = LoginRequest(
                url=token_client.request_url(page, asked, client),
                domain=addresses.host(page),
                site=token_client.site,
                answer_to=token_client.answer_to,
                gives_secret=self._settings.client_secret is not None,
                issuer=server.issuer,
                scopes=scopes,
                redirect_uri=uri,
                redirect=redirect,
                paste_error=partial(token_client.paste_error, asked),
            )
            try:
                code = token_client.code(asked, await self._user.login(request))
                return await token_client.exchange(asked, client, code)
            except (AuthError, asyncio.CancelledError) as error:
                if uri in registered and not (isinstance(error, OAuthError) and error.code not in _CLIENT_ERRORS):
                    # The server may have deleted the client: its page then shows an error, and no redirect follows.
                    await self._store.forget_registration(server.issuer, uri)
                raise
        finally:
            if redirect is not None:
                await redirect.aclose()

    async def _redirect(self, state: str, registered: Sequence[str]) -> RedirectSource | None:
        """Open the receiver for the redirect; None if only the user will see the redirected URL."""
        if self._open_redirect is not None:
            return await self._open_redirect(state, registered)
        uri = self._settings.redirect_uri
        if uri is None or (urlsplit(uri).scheme == "http" and addresses.is_loopback(uri)):
            return await LoopbackRedirect.open(state, registered, uri)
        addresses.secure(uri, "redirect_uri", loopback=True)
        return None
