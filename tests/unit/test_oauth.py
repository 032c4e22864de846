"""The parts of a login, without a network."""

import asyncio
import base64
import json
import subprocess
import sys
import time
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import given
from hypothesis import strategies as st

from ipymcp.errors import AuthError
from ipymcp.protocol.oauth import discovery, tokens
from ipymcp.protocol.oauth.clients import OAuthSettings, Registration, auth_method
from ipymcp.protocol.oauth.discovery import AuthorizationServer
from ipymcp.protocol.oauth.http import MetadataClient, OAuthError
from ipymcp.protocol.oauth.tokens import TokenClient, TokenRequest, Tokens, challenge_of
from tests.errors import refused
from tests.oauth_site import ISSUER, Site

SERVER = AuthorizationServer(ISSUER, f"{ISSUER}/authorize", f"{ISSUER}/token", sends_issuer=True)
CLIENT = Registration("client-1", "none")


# -- challenges -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("Bearer", [("bearer", {})]),
        ('Bearer realm="a, b", scope="x y"', [("bearer", {"realm": "a, b", "scope": "x y"})]),
        ('bearer Scope=x ,ERROR = "e\\"f"', [("bearer", {"scope": "x", "error": 'e"f'})]),
        (
            'Basic realm="r", Bearer error=invalid_token',
            [("basic", {"realm": "r"}), ("bearer", {"error": "invalid_token"})],
        ),
        ("Negotiate YWJj==, Bearer", [("negotiate", {}), ("bearer", {})]),
        ('Bearer a="1" b="2"', [("bearer", {"a": "1", "b": "2"})]),
        ('Bearer a="never closed', [("bearer", {"a": "never closed"})]),
        ('Bearer scope="one", scope="two"', [("bearer", {"scope": "one"})]),
        (", ,@@@,Bearer", [("bearer", {})]),
        ("", []),
    ],
)
def test_challenges_are_read_also_where_they_break_the_grammar(value: str, expected: list[Any]) -> None:
    assert [(c.scheme, dict(c.parameters)) for c in discovery.parse([value])] == expected


@given(st.text(max_size=200))
def test_no_header_breaks_the_parser(value: str) -> None:
    discovery.scope_request([value, "Bearer scope=x"])


def test_a_long_hostile_header_is_read_in_linear_time() -> None:
    started = time.process_time()
    for hostile in ("Bearer " + 'a="' * 10_000, "Bearer " + "\\" * 20_000, "a " * 20_000, "Bearer a=" + '"\\' * 20_000):
        discovery.parse([hostile])
    assert time.process_time() - started < 2


def test_bearer_comes_first_in_what_the_challenges_demand() -> None:
    values = [
        'DPoP scope="a", resource_metadata="https://x.example/prm"',
        'Bearer scope="b c b", error="insufficient_scope"',
    ]
    assert discovery.scope_request(values) == discovery.ScopeRequest(
        "https://x.example/prm", ("b", "c"), "insufficient_scope"
    )


# -- PKCE and the authorization response ------------------------------------------------------------------------------


def test_the_code_challenge_is_that_of_rfc_7636_appendix_b() -> None:
    verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
    assert challenge_of(verifier) == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"


def test_every_login_has_its_own_state_and_verifier_of_full_strength() -> None:
    first, second = TokenRequest(CALLBACK, ()), TokenRequest(CALLBACK, ())
    assert first.state != second.state and first.verifier != second.verifier
    assert 43 <= len(first.verifier) <= 128
    assert first.state not in repr(first) and first.verifier not in repr(first)


def token_client(server: AuthorizationServer = SERVER) -> TokenClient:
    return TokenClient(MetadataClient(Site(), loopback=False), server, OAuthSettings(), "https://h.example/mcp")


def test_the_request_carries_all_that_the_specification_asks_for() -> None:
    login = TokenRequest(CALLBACK, ("read", "offline_access"), "the-state", "the-verifier")
    parts = urlsplit(token_client().request_url("https://auth.example/authorize?tenant=1", login, CLIENT))
    assert (parts.netloc, parts.path) == ("auth.example", "/authorize")
    assert parse_qs(parts.query) == {
        "tenant": ["1"],
        "response_type": ["code"],
        "client_id": ["client-1"],
        "redirect_uri": [CALLBACK],
        "state": ["the-state"],
        "code_challenge": [challenge_of("the-verifier")],
        "code_challenge_method": ["S256"],
        "resource": ["https://h.example/mcp"],
        "scope": ["read offline_access"],
        "prompt": ["consent"],
    }


def test_a_login_needs_pkce_and_a_page() -> None:
    for server, problem in {
        AuthorizationServer(ISSUER, f"{ISSUER}/a", f"{ISSUER}/t", has_pkce=False): (
            "auth.example does not declare support for PKCE with S256"
        ),
        AuthorizationServer(ISSUER, None, f"{ISSUER}/t"): "auth.example has no login page",
    }.items():
        assert refused(AuthError, token_client(server).login_page)[0] == f"cannot log in: {problem}"


CALLBACK = "http://127.0.0.1:1/callback"


ISS = "iss=https://auth.example"


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("code=c&state=s&iss=https://evil.example&error=shown",
         "the answer to the login at auth.example names another issuer"),
        (f"code=c&state=s&{ISS}/", "the answer to the login at auth.example names another issuer"),
        ("code=c&state=s", "the answer lacks the issuer (iss) that auth.example always sends"),
        (f"code=c&state=t&{ISS}", "the answer belongs to another login at auth.example"),
        (f"code=c&{ISS}", "the answer belongs to another login at auth.example"),
        (f"state=s&{ISS}", "the answer of auth.example contains no code"),
        (f"code=c&code=d&state=s&{ISS}", "the answer of auth.example repeats a parameter"),
        (f"error=access_denied&state=s&{ISS}", "the login at auth.example was refused (access_denied)"),
        (f"error=server_error&error_description=try%0Alater&state=s&{ISS}",
         "auth.example refused the login (server_error: try later)"),
    ],
)  # fmt: skip
def test_an_answer_of_another_login_or_issuer_is_refused(query: str, message: str) -> None:
    problem, hint = refused(AuthError, token_client().code, TokenRequest(CALLBACK, (), "s"), f"{CALLBACK}?{query}")
    assert problem == message
    assert hint


@pytest.mark.parametrize(
    "place", ["https://127.0.0.1:1/callback", "http://127.0.0.1:2/callback", "http://127.0.0.1:1/other"]
)
def test_an_answer_at_another_address_is_refused(place: str) -> None:
    login = TokenRequest(CALLBACK, (), "s")
    problem, _ = refused(AuthError, token_client().code, login, f"{place}?code=c&state=s&{ISS}")
    assert problem == "this is not the address that a login at auth.example ends at"


def test_a_pasted_address_may_have_blanks_around_it() -> None:
    pasted = f"  {CALLBACK}?code=c%2B1&state=s&{ISS}\n"
    assert token_client().code(TokenRequest(CALLBACK, (), "s"), pasted) == "c+1"


# -- the token endpoint -----------------------------------------------------------------------------------------------


def ask(site: Site, client: Registration, settings: OAuthSettings | None = None) -> Any:
    fields = {"grant_type": "authorization_code", "code": "the-secret-code"}
    http = MetadataClient(site, loopback=False)
    return asyncio.run(tokens.request(http, SERVER, client, settings or OAuthSettings(), fields))


def answering(answer: Any) -> Site:
    """A site whose token endpoint answers so."""
    return Site(answers={SERVER.token_endpoint: answer})


def test_how_a_client_proves_itself() -> None:
    site = answering({"access_token": "t"})
    ask(site, Registration("i d", "client_secret_basic", "p:w"))
    assert base64.b64decode(site.headers[-1]["Authorization"].removeprefix("Basic ")) == b"i%20d:p%3Aw"
    assert "client_secret" not in site.bodies[-1]
    ask(site, Registration("id", "client_secret_post", "pw"))
    assert site.bodies[-1]["client_secret"] == ["pw"]
    ask(site, Registration("id", "none", "pw"))
    assert site.bodies[-1]["client_id"] == ["id"]
    assert "client_secret" not in site.bodies[-1] and "Authorization" not in site.headers[-1]


KEYS: dict[str, Any] = {
    "RS256": lambda: rsa.generate_private_key(65537, 2048),
    "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "ES384": lambda: ec.generate_private_key(ec.SECP384R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate,
}


@pytest.mark.parametrize("algorithm", KEYS)
def test_a_client_can_prove_itself_by_a_key_of_any_kind(algorithm: str) -> None:
    pem = KEYS[algorithm]().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    site = answering({"access_token": "t"})
    ask(site, Registration("id", "private_key_jwt"), OAuthSettings(private_key=pem))
    body = site.bodies[-1]
    assert body["client_assertion_type"] == ["urn:ietf:params:oauth:client-assertion-type:jwt-bearer"]
    header, payload, _ = (base64.urlsafe_b64decode(part + "==") for part in body["client_assertion"][0].split("."))
    assert json.loads(header)["alg"] == algorithm
    claims = json.loads(payload)
    assert (claims["iss"], claims["sub"], claims["aud"]) == ("id", "id", ISSUER)
    assert claims["exp"] - claims["iat"] == 300 and claims["jti"]


def test_a_key_that_cannot_sign_is_refused_without_showing_it() -> None:
    settings = OAuthSettings(private_key="not-really-a-key")
    message, hint = refused(AuthError, ask, Site(), Registration("id", "private_key_jwt"), settings)
    assert message.startswith("cannot log in: the private key cannot sign (")
    assert "not-really" not in message
    assert hint == "private_key is a PEM text without a password; signing_algorithm must match it"


def test_an_errors_text_is_one_line_and_gives_no_secret_away() -> None:
    description = "bad\n\x1b[31msecret hunter2hunter2 for the-secret-code" + "x" * 500
    site = answering({"error": "invalid_client", "error_description": description})
    message, hint = refused(OAuthError, ask, site, Registration("id", "client_secret_post", "hunter2hunter2"))
    assert message.startswith("auth.example refused the token request (invalid_client: bad [31msecret *** for ***xxx")
    assert len(message) < 260
    assert hint == "check client_id and client_secret in its auth"


@pytest.mark.parametrize("answer", [b"<html>", [], 500, 302])
def test_an_unreadable_answer_of_a_token_endpoint_is_an_error(answer: Any) -> None:
    pattern = r"auth.example answered the token request with HTTP \d+ without a readable reason"
    with pytest.raises(AuthError, match=pattern):
        ask(answering(answer), CLIENT)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ({}, "no usable token"),
        ({"access_token": "two\nlines"}, "no usable token"),
        ({"access_token": ""}, "no usable token"),
        ({"access_token": "t", "token_type": "DPoP"}, "a token of the unknown type 'DPoP'"),
    ],
)
def test_a_token_that_cannot_be_used_is_refused(answer: dict[str, Any], problem: str) -> None:
    message, _ = refused(AuthError, tokens.tokens, answer, CLIENT, (), "auth.example")
    assert message == f"auth.example returned {problem}"


def test_a_token_answer_keeps_the_values_that_it_leaves_out() -> None:
    held = tokens.tokens({"access_token": "t", "expires_in": "60"}, CLIENT, ("a",), "auth.example", "old-refresh")
    assert (held.refresh_token, held.granted, held.lifetime) == ("old-refresh", ("a",), 60.0)
    held = tokens.tokens({"access_token": "t", "expires_in": 0, "scope": "b c"}, CLIENT, ("a",), "auth.example")
    assert (held.refresh_token, held.granted, held.requested, held.lifetime) == (None, ("b", "c"), ("a",), None)


def test_the_authentication_method_is_one_that_the_server_offers() -> None:
    def chosen(offered: tuple[str, ...] | None, *, has_secret: bool = True, **settings: Any) -> str:
        server = AuthorizationServer(ISSUER, None, ISSUER, auth_methods=offered)
        return auth_method(OAuthSettings(**settings), server, has_secret=has_secret)

    assert chosen(None) == "client_secret_basic"
    assert chosen(("client_secret_post", "client_secret_basic")) == "client_secret_basic"
    assert chosen(("client_secret_post",)) == "client_secret_post"
    assert chosen(("none",)) == "none"
    assert chosen(("client_secret_basic",), has_secret=False) == "none"
    assert chosen(None, private_key="pem") == "private_key_jwt"
    assert chosen(("none",), token_endpoint_auth_method="client_secret_post") == "client_secret_post"


def test_a_login_imports_no_cryptography_before_a_key_has_to_sign() -> None:
    code = "import sys, ipymcp.protocol.oauth.provider; print({'joserfc', 'cryptography', 'httpx'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


# -- what is kept -----------------------------------------------------------------------------------------------------


def test_a_token_ends_a_little_before_it_expires() -> None:
    def is_ending(lifetime: float | None, age: float) -> bool:
        return Tokens("t", CLIENT, obtained_at=time.time() - age, lifetime=lifetime).is_ending

    assert not is_ending(None, 1e9)
    assert not is_ending(3600, 3500) and is_ending(3600, 3545)
    assert not is_ending(10, 7) and is_ending(10, 8.5)


def test_no_repr_contains_a_secret() -> None:
    secret = "the-secret-itself"
    held = Tokens(secret, Registration("id", "none", secret), secret)
    settings = OAuthSettings(client_secret=secret, private_key=secret, idp_token=secret, idp_client_secret=secret)
    assert secret not in repr(held) + repr(settings)
