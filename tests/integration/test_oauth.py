"""Logging in, against a real authorization server on loopback. What each fault says is asserted whole."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import socket
from typing import Any

import httpx
import pytest

from ipymcp.errors import AuthError
from ipymcp.protocol.oauth.redirect import LoopbackRedirect
from ipymcp.protocol.oauth.store import MemoryTokenStore
from tests.oauth_user import ScriptedUser, oauth, send
from tests.servers.oauth_server import WELL_KNOWN, Behaviour, OAuthServer, running


def logs_in(server: OAuthServer, **settings: Any) -> ScriptedUser:
    """Send one request, and see that it gets through."""
    user = settings.pop("user", None) or ScriptedUser()
    answer = asyncio.run(send(oauth(server.url, user=user, **settings), server.url))
    assert answer.json()["result"]["tools"][0]["name"] == "whoami"
    return user


def refused(server: OAuthServer, **settings: Any) -> AuthError:
    """Send one request, and see that it is refused: one line, a hint, no secret."""
    with pytest.raises(AuthError) as caught:
        asyncio.run(send(oauth(server.url, **settings), server.url))
    assert "\n" not in caught.value.message
    assert caught.value.hint
    return caught.value


# -- a login ----------------------------------------------------------------------------------------------------------


def test_a_first_request_logs_the_user_in_and_is_sent_again() -> None:
    with running() as server:
        user = logs_in(server)
    [request] = user.requests
    assert request.domain == server.origin.removeprefix("http://")
    assert request.issuer == server.origin
    [authorize] = server.seen("/authorize")
    assert authorize.fields["code_challenge_method"] == "S256"
    assert authorize.fields["resource"] == server.url
    assert "scope" not in authorize.fields
    [token] = server.seen("/token")
    assert token.fields["resource"] == server.url
    assert token.fields["redirect_uri"] == authorize.fields["redirect_uri"] == request.redirect_uri
    [registration] = server.seen("/register")
    assert json.loads(registration.fields["application_type"]) == "native"
    assert json.loads(registration.fields["grant_types"]) == ["authorization_code", "refresh_token"]
    assert json.loads(registration.fields["redirect_uris"]) == [request.redirect_uri]


def test_many_requests_at_once_log_in_once() -> None:
    user = ScriptedUser()

    async def check(url: str) -> None:
        authorizer = oauth(url, user=user)
        answers = await asyncio.gather(*(send(authorizer, url) for _ in range(10)))
        assert {answer.status_code for answer in answers} == {200}

    with running() as server:
        asyncio.run(check(server.url))
    assert len(user.requests) == 1


def test_many_requests_at_once_are_refused_by_one_login() -> None:
    user = ScriptedUser()

    async def check(url: str) -> list[BaseException | httpx.Response]:
        authorizer = oauth(url, user=user)
        return await asyncio.gather(*(send(authorizer, url) for _ in range(10)), return_exceptions=True)

    with running(Behaviour(consent="denied")) as server:
        outcomes = asyncio.run(check(server.url))
    assert {str(outcome) for outcome in outcomes} == {f"the login at {server.origin[7:]} was refused (access_denied)"}
    assert len(user.requests) == 1


def test_the_redirected_address_may_be_pasted() -> None:
    with running() as server:
        logs_in(server, user=ScriptedUser(pastes=True))


def test_of_an_https_redirect_the_address_is_pasted_and_the_client_is_a_web_application() -> None:
    with running() as server:
        user = logs_in(server, redirect_uri="https://hub.example/callback")
    assert user.requests[0].redirect is None
    assert json.loads(server.seen("/register")[0].fields["application_type"]) == "web"


@pytest.mark.parametrize(
    "places",
    [
        {"resource_metadata_path": f"{WELL_KNOWN}/oauth-protected-resource", "challenge_names_metadata": False},
        {"resource_metadata_path": "/custom/metadata.json"},
        {"metadata_path": f"{WELL_KNOWN}/openid-configuration"},
        {"issuer_path": "/t1", "metadata_path": f"{WELL_KNOWN}/oauth-authorization-server/t1"},
        {"issuer_path": "/t1", "metadata_path": f"{WELL_KNOWN}/openid-configuration/t1"},
        {"issuer_path": "/t1", "metadata_path": f"/t1{WELL_KNOWN}/openid-configuration"},
        {"resource_metadata_path": None},
        {"resource_metadata_path": None, "metadata_path": None, "sends_iss": None},
        {"challenge": ""},
    ],
    ids=[
        "root",
        "custom",
        "openid",
        "inserted",
        "openid inserted",
        "openid appended",
        "2025-03-26",
        "no metadata",
        "bare 401",
    ],
)
def test_metadata_is_found_wherever_the_specifications_put_it(places: dict[str, Any]) -> None:
    with running(Behaviour(**places)) as server:
        logs_in(server)


# -- who the client is ------------------------------------------------------------------------------------------------


def test_a_configured_client_is_not_registered() -> None:
    with running(Behaviour(clients={"mine": "my-secret"}, registers=False)) as server:
        logs_in(server, client_id="mine", client_secret="my-secret")
    assert server.seen("/token")[0].headers["authorization"].startswith("Basic ")


def test_a_client_metadata_document_is_used_where_the_server_takes_one() -> None:
    document = "https://example.com/ipymcp.json"
    with running(Behaviour(metadata={"client_id_metadata_document_supported": True})) as server:
        logs_in(server, client_metadata_url=document)
        assert server.seen("/authorize")[0].fields["client_id"] == document
        assert server.seen("/register") == []
        server.behaviour.metadata = {}
        logs_in(server, client_metadata_url=document)
        assert len(server.seen("/register")) == 1


def test_a_registration_is_used_again_at_the_same_port() -> None:
    store = MemoryTokenStore()
    with running(Behaviour(gives_secrets=True)) as server:
        first = logs_in(server, store=store, definition="one")
        second = logs_in(server, store=store, definition="other")
    assert len(server.seen("/register")) == 1
    assert first.requests[0].redirect_uri == second.requests[0].redirect_uri


def test_a_client_the_server_has_forgotten_is_registered_anew_the_next_time() -> None:
    store = MemoryTokenStore()
    with running() as server:
        logs_in(server, store=store, definition="one")
        server.behaviour.clients.clear()
        error = refused(server, store=store, definition="other")
        assert error.message == "you gave up the login"
        logs_in(server, store=store, definition="other")


# -- scopes -----------------------------------------------------------------------------------------------------------


def test_scopes_come_from_the_challenge_then_from_the_metadata() -> None:
    with running(Behaviour(needs_scope="one", scopes_supported=["two", "three"])) as server:
        assert logs_in(server).requests[0].scopes == ("one",)
        server.behaviour.needs_scope = None
        assert logs_in(server).requests[0].scopes == ("two", "three")
        assert logs_in(server, scopes=("four",)).requests[0].scopes == ("four",)


def test_offline_access_is_asked_for_where_the_server_knows_it() -> None:
    offline = {"scopes_supported": ["read", "offline_access"]}
    with running(Behaviour(needs_scope="read", metadata=offline)) as server:
        assert logs_in(server).requests[0].scopes == ("read", "offline_access")
    assert server.seen("/authorize")[0].fields["prompt"] == "consent"


def test_a_call_that_needs_more_steps_up_and_keeps_what_was_granted() -> None:
    user = ScriptedUser()

    async def check(url: str) -> None:
        authorizer = oauth(url, user=user)
        assert (await send(authorizer, url)).status_code == 200
        assert (await send(authorizer, url, "tools/call")).status_code == 200
        assert (await send(authorizer, url, "tools/call")).status_code == 200

    with running(Behaviour(needs_scope="read", needs_scope_to_call="write")) as server:
        asyncio.run(check(server.url))
    assert [request.scopes for request in user.requests] == [("read",), ("read", "write")]


def test_a_scope_that_is_not_granted_is_asked_for_once() -> None:
    user = ScriptedUser()
    with running(Behaviour(needs_scope="admin", grants_only=["read"])) as server:
        error = refused(server, user=user)
        host = server.origin.removeprefix("http://")
    assert error.message == f"the server asks for scopes that were asked of {host} already (admin)"
    assert error.hint == "your account there may not be allowed to do this"
    assert len(user.requests) == 1


def test_a_server_that_wants_ever_more_scopes_comes_to_an_end() -> None:
    user = ScriptedUser()

    async def check(url: str) -> None:
        authorizer = oauth(url, user=user)
        await send(authorizer, url)
        for number in range(20):
            server.behaviour.needs_scope_to_call = f"scope-{number}"
            await send(authorizer, url, "tools/call")

    with running() as server, pytest.raises(AuthError) as caught:
        asyncio.run(check(server.url))
    assert caught.value.message == f"the server asks for one login at {server.origin[7:]} after the other"
    assert len(user.requests) == 6


def test_a_403_that_speaks_of_no_scope_is_not_for_us() -> None:
    async def check(url: str) -> bool:
        return await oauth(url).challenged(403, ['Bearer error="invalid_request"'], {})

    assert asyncio.run(check("http://127.0.0.1:1/mcp")) is False


# -- tokens that end --------------------------------------------------------------------------------------------------


def test_a_token_is_refreshed_before_it_expires_and_only_once_for_all() -> None:
    user, store = ScriptedUser(), MemoryTokenStore()

    async def check(url: str) -> None:
        first = oauth(url, user=user, store=store, definition="d")
        await send(first, url)
        [(key, held)] = store._tokens.items()
        await store.keep_tokens(key, dataclasses.replace(held, obtained_at=held.obtained_at - 3590))
        others = [oauth(url, user=user, store=store, definition="d") for _ in range(5)]  # as many kernels
        answers = await asyncio.gather(*(send(other, url) for other in [*others, *others]))
        assert {answer.status_code for answer in answers} == {200}

    with running(Behaviour(issues_refresh_tokens=True)) as server:
        asyncio.run(check(server.url))
        grants = [request.fields["grant_type"] for request in server.seen("/token")]
        refresh = server.seen("/token")[1]
        refusals = [request for request in server.seen("/mcp") if "authorization" not in request.headers]
    assert grants == ["authorization_code", "refresh_token"]
    assert refresh.fields["resource"] == server.url
    assert len(refusals) == 1
    assert len(user.requests) == 1


def test_a_token_that_was_revoked_is_refreshed() -> None:
    user = ScriptedUser()

    async def check(server: OAuthServer) -> None:
        authorizer = oauth(server.url, user=user)
        await send(authorizer, server.url)
        server.tokens.clear()
        assert (await send(authorizer, server.url)).status_code == 200

    with running(Behaviour(issues_refresh_tokens=True)) as server:
        asyncio.run(check(server))
    assert len(user.requests) == 1


@pytest.mark.parametrize("lifetime", [3600, 0.001])
def test_where_the_refresh_token_has_expired_too_the_user_logs_in_again(lifetime: float) -> None:
    user = ScriptedUser()

    async def check(server: OAuthServer) -> None:
        authorizer = oauth(server.url, user=user)
        await send(authorizer, server.url)
        server.tokens.clear()
        server.behaviour.refuses_refresh = True
        assert (await send(authorizer, server.url)).status_code == 200

    with running(Behaviour(issues_refresh_tokens=True, token_lifetime=lifetime)) as server:
        asyncio.run(check(server))
    assert len(user.requests) == 2


def test_a_new_kernel_finds_the_tokens_and_asks_nobody() -> None:
    store = MemoryTokenStore()
    with running() as server:
        logs_in(server, store=store, definition="digest")
        assert logs_in(server, store=store, definition="digest").requests == []
        assert len(logs_in(server, store=store, definition="another digest").requests) == 1


def test_tokens_another_kernel_has_got_meanwhile_are_taken_up() -> None:
    store, user = MemoryTokenStore(), ScriptedUser()

    async def check(url: str) -> None:
        one, other = (oauth(url, store=store, definition="d", user=user) for _ in range(2))
        before = await other.headers()
        await send(one, url)
        assert await other.challenged(401, ["Bearer"], before)
        assert await other.headers() == await one.headers()

    with running() as server:
        asyncio.run(check(server.url))
    assert len(user.requests) == 1


def test_a_server_that_moves_to_another_authorization_server_gets_none_of_the_olds_secrets() -> None:
    user = ScriptedUser()

    async def check(server: OAuthServer, other: OAuthServer) -> None:
        authorizer = oauth(server.url, user=user)
        await send(authorizer, server.url)
        server.behaviour.authorization_servers = [other.origin]
        server.tokens.clear()
        other.tokens = server.tokens  # what the new one issues, the server takes
        assert (await send(authorizer, server.url)).status_code == 200

    with running(Behaviour(issues_refresh_tokens=True)) as server, running() as other:
        asyncio.run(check(server, other))
    assert len(other.seen("/register")) == 1
    sent = json.dumps([dataclasses.asdict(request) for request in other.requests])
    assert "refresh-token" not in sent


def test_a_configured_client_is_not_shown_to_another_authorization_server() -> None:
    async def check(server: OAuthServer, other: OAuthServer) -> None:
        authorizer = oauth(server.url, client_id="mine", client_secret="my-secret")
        await send(authorizer, server.url)
        server.behaviour.authorization_servers = [other.origin]
        server.tokens.clear()
        await send(authorizer, server.url)

    with running(Behaviour(clients={"mine": "my-secret"})) as server, running() as other:
        with pytest.raises(AuthError) as caught:
            asyncio.run(check(server, other))
        error = refused(server, client_id="mine", client_secret="my-secret", issuer=server.origin)
    assert caught.value.message == error.message
    assert error.message == (
        f"cannot log in: the server now sends its users to {other.origin[7:]}, "
        f"and the configured client belongs to {server.origin[7:]}"
    )
    assert error.hint == "register a client there, and set issuer, client_id and client_secret in its auth"
    assert other.seen("/token") == other.seen("/authorize") == []


# -- no user ----------------------------------------------------------------------------------------------------------


def test_client_credentials_need_no_user_and_are_asked_for_again_when_they_end() -> None:
    async def check(server: OAuthServer) -> None:
        authorizer = oauth(server.url, grant="client_credentials", client_id="robot", client_secret="robots-secret")
        await send(authorizer, server.url)
        await send(authorizer, server.url)
        server.tokens.clear()
        assert (await send(authorizer, server.url)).status_code == 200

    with running(Behaviour(clients={"robot": "robots-secret"}, needs_scope="work", token_lifetime=None)) as server:
        asyncio.run(check(server))
        assert [request.fields["grant_type"] for request in server.seen("/token")] == ["client_credentials"] * 2
        error = refused(server, grant="client_credentials", client_id="robot", client_secret="another-secret")
        assert error.message == f"{server.origin[7:]} refused the token request (invalid_client)"
        error = refused(server, grant="client_credentials")
        assert (error.message, error.hint) == ("cannot log in: no client is configured", "set client_id in its auth")
    assert server.seen("/authorize") == []


def test_the_enterprises_way_asks_the_identity_provider_first() -> None:
    settings: dict[str, Any] = {
        "grant": "enterprise",
        "client_id": "robot",
        "client_secret": "robots-secret",
        "idp_client_id": "us",
        "idp_token": "the-users-identity-token",
    }
    with running(Behaviour(clients={"robot": "robots-secret"})) as server, running() as provider:
        provider.behaviour.answer_to_exchange = {
            "access_token": "the-assertion",
            "issued_token_type": "urn:ietf:params:oauth:token-type:id-jag",
            "token_type": "N_A",
        }
        logs_in(server, **settings, idp_token_endpoint=f"{provider.origin}/token")
        logs_in(server, **settings, idp_issuer=provider.origin)
        provider.behaviour.answer_to_exchange = {"error": "invalid_grant", "error_description": "too old"}
        error = refused(server, **settings, idp_issuer=provider.origin)
        assert (
            error.message == f"{provider.origin[7:]} refused the request to vouch for the user (invalid_grant: too old)"
        )
        assert error.hint == "the identity token may have expired: set a new idp_token in its auth"
    [exchange, *_] = provider.seen("/token")
    assert exchange.fields["audience"] == server.origin
    assert exchange.fields["resource"] == server.url
    assert exchange.fields["subject_token"] == "the-users-identity-token"
    [grant, *_] = server.seen("/token")
    assert grant.fields["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
    assert grant.fields["assertion"] == "the-assertion"


# -- faults -----------------------------------------------------------------------------------------------------------


def test_a_server_with_a_401_and_nothing_else() -> None:
    bare = Behaviour(challenge="", resource_metadata_path=None, metadata_path=None, registers=False)
    with running(bare) as server:
        error = refused(server)
    assert error.message == f"the server on {server.origin[7:]} wants a login, and says nowhere how to log in"
    assert error.hint == (
        "if it wants a token or a key, load it with --header 'Authorization: Bearer ${TOKEN}', "
        "or headers in its definition"
    )


def test_metadata_that_goes_round_in_a_loop() -> None:
    path = f"{WELL_KNOWN}/oauth-protected-resource"
    with running(Behaviour(redirects={f"{path}/mcp": path, path: f"{path}/mcp"})) as server:
        error = refused(server)
    assert error.message == (f"cannot log in: {server.origin}{path}/mcp redirects without end (3 were followed)")


def test_metadata_without_end_is_not_read_to_its_end() -> None:
    path = f"{WELL_KNOWN}/oauth-protected-resource/mcp"
    with running(Behaviour(pages={path: " " * 5_000_000})) as server:
        error = refused(server)
    assert error.message == f"cannot log in: {server.origin}{path} is larger than 1,048,576 bytes"


def test_an_authorization_server_that_nobody_runs() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens
        nobody = f"127.0.0.1:{taken.getsockname()[1]}"
        with running(Behaviour(authorization_servers=[f"http://{nobody}"])) as server:
            error = refused(server)
    path = f"{WELL_KNOWN}/oauth-authorization-server"
    assert error.message == (
        f"cannot log in: {nobody} cannot be reached (cannot connect to http://{nobody}{path}: connection refused)"
    )
    assert error.hint == "check the network and the proxy settings, then %mcp start"


def test_metadata_of_another_server() -> None:
    with running(Behaviour(resource="https://evil.example/mcp")) as server:
        error = refused(server)
    assert error.message == (
        "cannot log in: the server's metadata is that of another server ('https://evil.example/mcp')"
    )
    assert server.seen("/authorize") == server.seen("/register") == []


def test_an_issuer_that_does_not_match() -> None:
    with running(Behaviour(metadata={"issuer": "https://evil.example"})) as server:
        error = refused(server)
    assert error.message == (
        f"cannot log in: {server.origin}{WELL_KNOWN}/oauth-authorization-server gives the issuer as "
        f"'https://evil.example', not '{server.origin}'"
    )
    assert server.seen("/authorize") == server.seen("/register") == []


def test_consent_that_is_refused() -> None:
    with running(Behaviour(consent="denied")) as server:
        error = refused(server)
    assert error.message == f"the login at {server.origin[7:]} was refused (access_denied)"
    assert error.hint == "%mcp start asks again"


def test_a_server_that_does_not_protect_the_code() -> None:
    with running(Behaviour(metadata={"code_challenge_methods_supported": None})) as server:
        error = refused(server)
    assert error.message == f"cannot log in: {server.origin[7:]} does not say that it supports PKCE with S256"
    assert server.seen("/register") == []


@pytest.mark.parametrize("iss", ["https://evil.example", None])
def test_an_answer_of_another_issuer_gets_no_token_request(iss: str | None) -> None:
    with running(Behaviour(sends_iss=iss)) as server:
        refused(server)
    assert len(server.seen("/authorize")) == 1
    assert server.seen("/token") == []


def test_an_answer_with_another_state_never_arrives() -> None:
    with running(Behaviour(wrong_state=True)) as server:
        assert refused(server).message == "the redirect did not arrive"
        error = refused(server, user=ScriptedUser(pastes=True))
    assert error.message == f"the answer belongs to another login than this one at {server.origin[7:]}"
    assert server.seen("/token") == []


def test_a_client_that_is_not_registered() -> None:
    with running(Behaviour(registration_error="invalid_redirect_uri")) as server:
        error = refused(server, redirect_uri="https://hub.example/callback")
        host = server.origin[7:]
        assert error.message == f"{host} refused the registration of ipymcp (invalid_redirect_uri: not here)"
        by_hand = (
            "register a client there by hand, with the redirect URI https://hub.example/callback, "
            "and set client_id in its auth"
        )
        assert error.hint == by_hand
        server.behaviour.registers = False
        error = refused(server, redirect_uri="https://hub.example/callback")
    assert error.message == f"cannot log in: {host} knows no client of ours and registers none by itself"
    assert error.hint == by_hand


def test_a_token_endpoint_that_refuses() -> None:
    with running(Behaviour(token_error={"error": "invalid_request", "error_description": "no"})) as server:
        error = refused(server)
    assert error.message == f"{server.origin[7:]} refused the token request (invalid_request: no)"


def test_tokens_that_the_server_refuses_at_once_are_not_asked_for_again() -> None:
    user = ScriptedUser()
    with running(Behaviour(refuses_tokens=True, issues_refresh_tokens=True)) as server:
        error = refused(server, user=user)
    assert error.message == f"the server refuses the token that {server.origin[7:]} has just given"
    assert len(user.requests) == 1


def test_many_requests_at_once_with_tokens_that_are_refused_come_to_an_end() -> None:
    user = ScriptedUser()

    async def check(url: str) -> list[BaseException | httpx.Response]:
        authorizer = oauth(url, user=user)
        return await asyncio.gather(*(send(authorizer, url) for _ in range(10)), return_exceptions=True)

    with running(Behaviour(refuses_tokens=True, issues_refresh_tokens=True)) as server:
        outcomes = asyncio.run(check(server.url))
    assert {type(outcome) for outcome in outcomes} == {AuthError}
    assert len(user.requests) <= 4


def test_a_plain_http_server_elsewhere_gets_no_token() -> None:
    async def check() -> None:
        await oauth("http://mcp.example/mcp").challenged(401, ["Bearer"], {})

    with pytest.raises(AuthError) as caught:
        asyncio.run(check())
    assert caught.value.message == "cannot log in: the server on mcp.example is not https"


# -- the listener -----------------------------------------------------------------------------------------------------


def test_the_listener_takes_only_its_own_redirect_and_shows_nothing_of_it() -> None:
    async def check() -> None:
        redirect = await LoopbackRedirect.open("the-state")
        waiting = asyncio.create_task(redirect.received())
        origin = redirect.uri.removesuffix("/callback")
        async with httpx.AsyncClient() as browser:
            for path in (
                "/",
                "/favicon.ico",
                "/callback",
                "/callback?state=other&code=x",
                "/callback?state=the-state&state=x",
            ):
                assert (await browser.get(origin + path)).status_code == 404
            assert (await browser.post(f"{redirect.uri}?state=the-state&code=x")).status_code == 404
            assert not waiting.done()
            page = await browser.get(f"{redirect.uri}?code=the-code&state=the-state&iss=https%3A%2F%2Fa.example")
        assert page.status_code == 200
        assert "the-code" not in page.text and "the-state" not in page.text
        assert page.headers["content-security-policy"].startswith("default-src 'none'")
        assert await waiting == f"{redirect.uri}?code=the-code&state=the-state&iss=https%3A%2F%2Fa.example"
        await redirect.aclose()
        with pytest.raises(OSError):
            await asyncio.open_connection("127.0.0.1", int(origin.rpartition(":")[2]))

    asyncio.run(check())


def test_the_listener_bears_what_is_no_browser() -> None:
    async def check() -> None:
        redirect = await LoopbackRedirect.open("s")
        port = int(redirect.uri.split(":")[2].partition("/")[0])
        for rubbish in (b"\x16\x03\x01", b"GET " + b"/" * 20_000, b"\r\n\r\n", b"GET /callback?state=s HTTP/9\r\n\r\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(rubbish)
            writer.write_eof()
            await asyncio.wait_for(reader.read(), 10)
            writer.close()
        _silent, keeper = await asyncio.open_connection("127.0.0.1", port)
        async with httpx.AsyncClient() as browser:
            assert (await browser.get(f"{redirect.uri}?state=s&code=c")).status_code == 200
        assert (await redirect.received()).endswith("?state=s&code=c")
        await redirect.aclose()
        keeper.close()

    asyncio.run(check())


def test_a_configured_port_that_is_taken_is_said() -> None:
    async def check() -> None:
        taken = await LoopbackRedirect.open("s", uri="http://localhost/back")
        assert taken.uri.startswith("http://localhost:") and taken.uri.endswith("/back")
        try:
            with pytest.raises(AuthError) as caught:
                await LoopbackRedirect.open("s", uri=taken.uri)
            assert caught.value.message.startswith(f"cannot log in: nothing can listen on {taken.uri} (")
            assert caught.value.hint == "end what uses that port, or change redirect_uri"
            other = await LoopbackRedirect.open("s", [taken.uri], "http://localhost/back")
            assert other.uri != taken.uri
            await other.aclose()
        finally:
            await taken.aclose()

    asyncio.run(check())
