"""A user who logs in without a browser, and a request that goes through a login as a transport's would."""

import asyncio
import contextlib
import json
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable
from typing import Any

import httpx
import pytest

from ipymcp.errors import AuthError
from ipymcp.protocol.oauth.clients import OAuthSettings, Registration
from ipymcp.protocol.oauth.http import fetch
from ipymcp.protocol.oauth.provider import OAuth
from ipymcp.protocol.oauth.tokens import LoginRequest, TokenKey, Tokens, TokenStore
from tests.servers.oauth_server import OAuthServer


class MemoryTokenStore:
    """A `TokenStore` that ends with the test."""

    def __init__(self) -> None:
        self._registrations: dict[tuple[str, str], Registration] = {}
        self._tokens: dict[TokenKey, Tokens] = {}
        self._locks: defaultdict[TokenKey, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def registration(self, issuer: str, redirect_uri: str) -> Registration | None:
        return self._registrations.get((issuer, redirect_uri))

    async def redirect_uris(self, issuer: str) -> tuple[str, ...]:
        return tuple(uri for held, uri in reversed(self._registrations) if held == issuer)

    async def keep_registration(self, issuer: str, redirect_uri: str, registration: Registration) -> None:
        self._registrations.pop((issuer, redirect_uri), None)
        self._registrations[issuer, redirect_uri] = registration

    async def forget_registration(self, issuer: str, redirect_uri: str) -> None:
        self._registrations.pop((issuer, redirect_uri), None)

    async def find(self, definition: str) -> tuple[TokenKey, Tokens] | None:
        return next((item for item in reversed(self._tokens.items()) if item[0].definition == definition), None)

    async def tokens(self, key: TokenKey) -> Tokens | None:
        return self._tokens.get(key)

    async def keep_tokens(self, key: TokenKey, tokens: Tokens) -> None:
        self._tokens.pop(key, None)
        self._tokens[key] = tokens

    async def forget_tokens(self, key: TokenKey) -> None:
        self._tokens.pop(key, None)

    @contextlib.asynccontextmanager
    async def refreshing(self, key: TokenKey) -> AsyncGenerator[None]:
        async with self._locks[key]:
            yield


class ScriptedUser:
    """Opens the page, consents there, and is redirected.

    Args:
        pastes: Whether to paste the redirected address rather than go there.
        alter: Changes that address before it is pasted.
    """

    def __init__(self, *, pastes: bool = False, alter: Callable[[str], str] = str) -> None:
        self.requests: list[LoginRequest] = []
        self._pastes = pastes
        self._alter = alter

    async def login(self, request: LoginRequest) -> str:
        self.requests.append(request)
        async with httpx.AsyncClient(verify=False) as browser:  # all is plain HTTP, and certificates take long to load
            page = await browser.get(request.url)
            if page.status_code != 302:
                raise AuthError("you gave up the login", hint="%mcp start asks again")
            address = page.headers["location"]
            if self._pastes or request.redirect is None:
                return self._alter(address)
            arrived = await browser.get(address)
        if arrived.status_code != 200:
            raise AuthError("the redirect did not arrive", hint="%mcp start asks again")
        return await asyncio.wait_for(request.redirect.received(), 10)


def oauth(
    url: str,
    *,
    user: ScriptedUser | None = None,
    store: TokenStore | None = None,
    definition: str | None = None,
    **settings: Any,
) -> OAuth:
    """Make an `OAuth` with defaults for what is not given."""
    store, user = store or MemoryTokenStore(), user or ScriptedUser()
    return OAuth(url, OAuthSettings(**settings), store, user, fetch, definition=definition)


async def send(authorizer: OAuth, url: str, method: str = "tools/list") -> httpx.Response:
    """Send one MCP request, and again for as long as the authorizer says so."""
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": method,
        "params": {"protocolVersion": "2025-11-25", "name": "whoami"},
    }
    async with httpx.AsyncClient(verify=False) as client:
        for _ in range(20):
            headers = await authorizer.headers()
            answer = await client.post(url, content=json.dumps(message), headers=dict(headers))
            if answer.status_code not in (401, 403):
                return answer
            challenges = answer.headers.get_list("www-authenticate")
            if not await authorizer.challenged(answer.status_code, challenges, headers):
                return answer
    raise AssertionError("the authorizer asks to send it again without end")


async def send_many(authorizer: OAuth, url: str) -> list[httpx.Response | BaseException]:
    """Ten MCP requests at once; their responses or errors."""
    return await asyncio.gather(*(send(authorizer, url) for _ in range(10)), return_exceptions=True)


def refused(server: OAuthServer, **settings: Any) -> AuthError:
    """Send one request that must be refused, by an error of one line with a hint."""
    with pytest.raises(AuthError) as caught:
        asyncio.run(send(oauth(server.url, **settings), server.url))
    assert "\n" not in caught.value.message
    assert caught.value.hint
    return caught.value
