"""Logins that fail, against a real authorization server on loopback. Messages are asserted whole."""

import asyncio
from dataclasses import dataclass

import httpx
import pytest

from ipymcp.errors import AuthError
from ipymcp.protocol.oauth.redirect import LoopbackRedirect
from tests.oauth_user import ScriptedUser, oauth, refused, send, send_many
from tests.servers.oauth_server import WELL_KNOWN, Behaviour, running
from tests.serving import reserved_port

# -- faults -----------------------------------------------------------------------------------------------------------


@dataclass
class Fault:
    """A fault of a server, and its error; `{host}` and `{origin}` stand for the server's."""

    behaviour: Behaviour
    message: str
    hint: str | None = None
    unasked: tuple[str, ...] = ()
    """Paths that must not be requested."""


FAULTS = {
    "a 401 and nothing else": Fault(
        Behaviour(challenge="", resource_metadata_path=None, metadata_path=None, registers=False),
        "the server on {host} requires a login, but does not say how to log in",
        "if it wants a token or a key, load it with --header 'Authorization: Bearer ${TOKEN}', "
        "or headers in its definition",
    ),
    "metadata of another server": Fault(
        Behaviour(resource="https://evil.example/mcp"),
        "cannot log in: the server's metadata is that of another server ('https://evil.example/mcp')",
        unasked=("/authorize", "/register"),
    ),
    "an issuer that does not match": Fault(
        Behaviour(metadata={"issuer": "https://evil.example"}),
        f"cannot log in: {{origin}}{WELL_KNOWN}/oauth-authorization-server gives the issuer as "
        "'https://evil.example', not '{origin}'",
        unasked=("/authorize", "/register"),
    ),
    "consent that is refused": Fault(
        Behaviour(consent="denied"),
        "the login at {host} was refused (access_denied)",
        "%mcp start NAME asks again",
    ),
    "a code that is not protected": Fault(
        Behaviour(metadata={"code_challenge_methods_supported": None}),
        "cannot log in: {host} does not declare support for PKCE with S256",
        unasked=("/register",),
    ),
    "a token endpoint that refuses": Fault(
        Behaviour(token_error={"error": "invalid_request", "error_description": "no"}),
        "{host} refused the token request (invalid_request: no)",
    ),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_fault_of_the_server_is_an_error_of_the_login(fault: Fault) -> None:
    with running(fault.behaviour) as server:
        error = refused(server)
    places = {"host": server.origin[7:], "origin": server.origin}
    assert error.message == fault.message.format(**places)
    assert fault.hint is None or error.hint == fault.hint
    assert [path for path in fault.unasked if server.seen(path)] == []


def test_an_authorization_server_that_does_not_run() -> None:
    with reserved_port() as port:
        host = f"127.0.0.1:{port}"
        with running(Behaviour(authorization_servers=[f"http://{host}"])) as server:
            error = refused(server)
    path = f"{WELL_KNOWN}/oauth-authorization-server"
    assert error.message == (
        f"cannot log in: {host} cannot be reached (cannot connect to http://{host}{path}: connection refused)"
    )
    assert error.hint == "check the network and the proxy settings, then %mcp start NAME"


@pytest.mark.parametrize("iss", ["https://evil.example", None])
def test_an_answer_of_another_issuer_gets_no_token_request(iss: str | None) -> None:
    with running(Behaviour(sends_iss=iss)) as server:
        refused(server)
    assert len(server.seen("/authorize")) == 1
    assert server.seen("/token") == []


def test_a_login_page_elsewhere_needs_responses_that_name_their_issuer() -> None:
    """The evil authorization server sends users to the page of an honest one, to redeem its code."""
    client = {"registers": False, "clients": {"public": None}}
    with running(Behaviour(sends_iss=None, **client)) as honest, running() as evil:
        elsewhere = {
            "authorization_endpoint": f"{honest.origin}/authorize",
            "authorization_response_iss_parameter_supported": None,
        }
        evil.behaviour.metadata = elsewhere
        error = refused(evil, client_id="public")
        assert error.message == (
            f"cannot log in: {evil.origin[7:]} sends its users to {honest.origin[7:]}, "
            "and responses from there do not name their issuer (no iss, RFC 9207)"
        )
        assert error.hint == f"if you trust {evil.origin[7:]}, set issuer to '{evil.origin}' in its auth"
        assert honest.seen("/authorize") == []
        evil.behaviour.metadata = elsewhere | {"authorization_response_iss_parameter_supported": True}
        refused(evil, client_id="public")
        honest.behaviour.sends_iss = "own"
        refused(evil, client_id="public")
        assert len(honest.seen("/authorize")) == 2
        assert evil.seen("/token") == []


def test_a_login_page_elsewhere_is_used_where_the_user_has_configured_the_issuer() -> None:
    user = ScriptedUser()
    with running() as server:
        page = server.origin.replace("127.0.0.1", "localhost")
        server.behaviour.metadata = {
            "authorization_endpoint": f"{page}/authorize",
            "authorization_response_iss_parameter_supported": None,
        }
        asyncio.run(send(oauth(server.url, user=user, issuer=server.origin), server.url))
        [request] = user.requests
        assert (request.domain, request.site) == (page[7:], server.origin[7:])
        assert (request.answer_to, request.gives_secret) == (server.origin[7:], False)


@pytest.mark.parametrize("own", ["redirect_uri=https://evil.example", "state=1", "request_uri=urn:x", "scope=all"])
def test_a_login_page_that_sets_a_parameter_of_the_client(own: str) -> None:
    with running() as server:
        server.behaviour.metadata = {"authorization_endpoint": f"{server.origin}/authorize?{own}"}
        error = refused(server)
    name = own.partition("=")[0]
    assert error.message == (
        f"cannot log in: the login page of {server.origin[7:]} sets {name}, which only the client may set"
    )


def test_a_client_secret_is_sent_only_where_the_user_has_agreed_to_send_it() -> None:
    secret = {"client_id": "mine", "client_secret": "my-secret", "grant": "client_credentials"}
    with running() as server, running(Behaviour(clients={"mine": "my-secret"})) as other:
        elsewhere = other.origin.replace("127.0.0.1", "localhost")
        other.behaviour.metadata = {"token_endpoint": f"{elsewhere}/token"}
        server.behaviour.authorization_servers = [other.origin]
        error = refused(server, **secret)
        assert other.seen("/token") == []
        assert error.message == (
            f"cannot log in: the server wants the configured client secret sent to {elsewhere[7:]}"
        )
        assert error.hint == f"if the client was registered there, set issuer to '{other.origin}' in its auth"
        other.tokens = server.tokens
        answer = asyncio.run(send(oauth(server.url, issuer=other.origin, **secret), server.url))
        assert answer.status_code == 200
        user = ScriptedUser()
        server.tokens.clear()
        asyncio.run(send(oauth(server.url, user=user, client_id="mine", client_secret="my-secret"), server.url))
        assert user.requests[0].gives_secret  # and the question named the recipient


def test_an_answer_with_another_state_never_arrives() -> None:
    with running(Behaviour(wrong_state=True)) as server:
        assert refused(server).message == "the redirect did not arrive"
        error = refused(server, user=ScriptedUser(pastes=True))
    assert error.message == f"the answer belongs to another login at {server.origin[7:]}"
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
    assert error.message == f"cannot log in: {host} does not know ipymcp and does not register clients automatically"
    assert error.hint == by_hand


def test_tokens_that_the_server_refuses_at_once_are_not_asked_for_again() -> None:
    user = ScriptedUser()
    with running(Behaviour(refuses_tokens=True, issues_refresh_tokens=True)) as server:
        error = refused(server, user=user)
    assert error.message == f"the server refuses the token that {server.origin[7:]} has just given"
    assert len(user.requests) == 1


def test_many_requests_at_once_with_tokens_that_are_refused_come_to_an_end() -> None:
    user = ScriptedUser()
    with running(Behaviour(refuses_tokens=True, issues_refresh_tokens=True)) as server:
        outcomes = asyncio.run(send_many(oauth(server.url, user=user), server.url))
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
    async def check(port: int) -> None:
        redirect = await LoopbackRedirect.open("the-state", uri=f"http://127.0.0.1:{port}/callback")
        waiting = asyncio.create_task(redirect.received())
        origin = redirect.uri.removesuffix("/callback")
        async with httpx.AsyncClient(verify=False) as browser:
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
            await asyncio.open_connection("127.0.0.1", port)

    with reserved_port() as port:
        asyncio.run(check(port))


def test_the_listener_ignores_requests_that_are_not_a_browsers() -> None:
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
        async with httpx.AsyncClient(verify=False) as browser:
            assert (await browser.get(f"{redirect.uri}?state=s&code=c")).status_code == 200
        assert (await redirect.received()).endswith("?state=s&code=c")
        await redirect.aclose()
        keeper.close()

    asyncio.run(check())


def test_a_configured_port_that_is_taken_is_an_error() -> None:
    async def check() -> None:
        taken = await LoopbackRedirect.open("s", uri="http://localhost/back")
        assert taken.uri.startswith("http://localhost:") and taken.uri.endswith("/back")
        try:
            with pytest.raises(AuthError) as caught:
                await LoopbackRedirect.open("s", uri=taken.uri)
            assert caught.value.message.startswith(f"cannot log in: cannot listen on {taken.uri} (")
            assert caught.value.hint == "free that port, or change redirect_uri"
            other = await LoopbackRedirect.open("s", [taken.uri], "http://localhost/back")
            assert other.uri != taken.uri
            await other.aclose()
        finally:
            await taken.aclose()

    asyncio.run(check())
