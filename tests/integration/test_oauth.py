"""Logging in, against a real authorization server on loopback."""

import asyncio
import dataclasses
import json
from typing import Any

import pytest

from ipymcp.errors import AuthError
from tests.oauth_user import MemoryTokenStore, ScriptedUser, oauth, refused, send, send_many
from tests.servers.oauth_server import WELL_KNOWN, Behaviour, OAuthServer, running
from tests.serving import reserved_port


def logs_in(server: OAuthServer, **settings: Any) -> ScriptedUser:
    """Send one request, and see that it gets through."""
    user = settings.pop("user", None) or ScriptedUser()
    answer = asyncio.run(send(oauth(server.url, user=user, **settings), server.url))
    assert answer.json()["result"]["tools"][0]["name"] == "whoami"
    return user


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
    with running() as server:
        answers = asyncio.run(send_many(oauth(server.url, user=user), server.url))
    assert [getattr(answer, "status_code", answer) for answer in answers] == [200] * 10
    assert len(user.requests) == 1


def test_many_requests_at_once_are_refused_by_one_login() -> None:
    user = ScriptedUser()
    with running(Behaviour(consent="denied")) as server:
        outcomes = asyncio.run(send_many(oauth(server.url, user=user), server.url))
    assert {str(outcome) for outcome in outcomes} == {f"the login at {server.origin[7:]} was refused (access_denied)"}
    assert len(user.requests) == 1


def test_the_redirected_address_may_be_pasted() -> None:
    with running() as server:
        logs_in(server, user=ScriptedUser(pastes=True))


def test_with_an_https_redirect_the_address_is_pasted_and_the_client_is_a_web_application() -> None:
    with running() as server:
        user = logs_in(server, redirect_uri="https://hub.example/callback")
    assert user.requests[0].redirect is None
    assert json.loads(server.seen("/register")[0].fields["application_type"]) == "web"


PLACES: dict[str, dict[str, Any]] = {
    "root": {"resource_metadata_path": f"{WELL_KNOWN}/oauth-protected-resource", "challenge_names_metadata": False},
    "custom": {"resource_metadata_path": "/custom/metadata.json"},
    "openid": {"metadata_path": f"{WELL_KNOWN}/openid-configuration"},
    "inserted": {"issuer_path": "/t1", "metadata_path": f"{WELL_KNOWN}/oauth-authorization-server/t1"},
    "openid inserted": {"issuer_path": "/t1", "metadata_path": f"{WELL_KNOWN}/openid-configuration/t1"},
    "openid appended": {"issuer_path": "/t1", "metadata_path": f"/t1{WELL_KNOWN}/openid-configuration"},
    "2025-03-26": {"resource_metadata_path": None},
    "no metadata": {"resource_metadata_path": None, "metadata_path": None, "sends_iss": None},
    "bare 401": {"challenge": ""},
}


@pytest.mark.parametrize("places", PLACES.values(), ids=PLACES)
def test_metadata_is_found_wherever_the_specifications_put_it(places: dict[str, Any]) -> None:
    with running(Behaviour(**places)) as server:
        logs_in(server)


# -- the client -------------------------------------------------------------------------------------------------------


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
    with running(Behaviour(gives_secrets=True)) as server, reserved_port() as port:
        address = f"http://127.0.0.1:{port}/callback"
        logs_in(server, store=store, definition="one", redirect_uri=address)
        second = logs_in(server, store=store, definition="other")
    assert len(server.seen("/register")) == 1
    assert second.requests[0].redirect_uri == address


def test_a_client_the_server_has_forgotten_is_registered_again_the_next_time() -> None:
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


def test_offline_access_is_asked_for_where_the_server_supports_it() -> None:
    offline = {"scopes_supported": ["read", "offline_access"]}
    with running(Behaviour(needs_scope="read", metadata=offline)) as server:
        assert logs_in(server).requests[0].scopes == ("read", "offline_access")
    assert server.seen("/authorize")[0].fields["prompt"] == "consent"


def test_a_call_that_needs_more_scopes_steps_up_and_keeps_the_granted_ones() -> None:
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
    assert error.message == f"the server asks for scopes that were already requested from {host} (admin)"
    assert error.hint == "your account there may not be allowed to do this"
    assert len(user.requests) == 1


def test_a_server_that_asks_for_one_more_scope_each_time_is_given_up() -> None:
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


def test_a_403_that_names_no_scope_is_not_a_request_to_log_in() -> None:
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


def test_a_new_kernel_uses_the_stored_tokens_and_asks_no_one() -> None:
    store = MemoryTokenStore()
    with running() as server:
        logs_in(server, store=store, definition="digest")
        assert logs_in(server, store=store, definition="digest").requests == []
        assert len(logs_in(server, store=store, definition="another digest").requests) == 1


def test_tokens_that_another_kernel_got_meanwhile_are_used() -> None:
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


def test_a_new_authorization_server_gets_no_secrets_of_the_old_one() -> None:
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


def test_the_enterprise_grant_asks_the_identity_provider_first() -> None:
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
