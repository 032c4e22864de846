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
from ipymcp.protocol.oauth.http import MetadataClient, Refused
from ipymcp.protocol.oauth.tokens import TokenClient, TokenRequest, Tokens, challenge_of
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
def test_challenges_are_read_as_the_grammar_or_common_sense_has_it(value: str, expected: list[Any]) -> None:
    assert [(c.scheme, dict(c.parameters)) for c in discovery.parse([value])] == expected


@given(st.text(max_size=200))
def test_no_header_breaks_the_parser(value: str) -> None:
    discovery.scope_request([value, "Bearer scope=x"])


def test_a_long_hostile_header_is_read_in_no_time() -> None:
    started = time.perf_counter()
    for hostile in ("Bearer " + 'a="' * 10_000, "Bearer " + "\\" * 20_000, "a " * 20_000, "Bearer a=" + '"\\' * 20_000):
        discovery.parse([hostile])
    assert time.perf_counter() - started < 2


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
    one, other = TokenRequest("http://127.0.0.1:1/callback", ()), TokenRequest("http://127.0.0.1:1/callback", ())
    assert one.state != other.state and one.verifier != other.verifier
    assert 43 <= len(one.verifier) <= 128
    assert one.state not in repr(one) and one.verifier not in repr(one)


def token_client(server: AuthorizationServer = SERVER) -> TokenClient:
    return TokenClient(MetadataClient(Site(), loopback=False), server, OAuthSettings(), "https://h.example/mcp")


def test_the_request_carries_all_that_the_specification_asks_for() -> None:
    asked = TokenRequest("http://127.0.0.1:1/callback", ("read", "offline_access"), "the-state", "the-verifier")
    url = token_client().request_url("https://auth.example/authorize?tenant=1", asked, CLIENT)
    parts = urlsplit(url)
    assert (parts.netloc, parts.path) == ("auth.example", "/authorize")
    assert parse_qs(parts.query) == {
        "tenant": ["1"],
        "response_type": ["code"],
        "client_id": ["client-1"],
        "redirect_uri": ["http://127.0.0.1:1/callback"],
        "state": ["the-state"],
        "code_challenge": [challenge_of("the-verifier")],
        "code_challenge_method": ["S256"],
        "resource": ["https://h.example/mcp"],
        "scope": ["read offline_access"],
        "prompt": ["consent"],
    }


def test_no_login_without_pkce_or_without_a_page() -> None:
    with pytest.raises(AuthError) as caught:
        token_client(AuthorizationServer(ISSUER, f"{ISSUER}/a", f"{ISSUER}/t", has_pkce=False)).login_page()
    assert caught.value.message == "cannot log in: auth.example does not declare support for PKCE with S256"
    with pytest.raises(AuthError) as caught:
        token_client(AuthorizationServer(ISSUER, None, f"{ISSUER}/t")).login_page()
    assert caught.value.message == "cannot log in: auth.example has no login page"


CALLBACK = "http://127.0.0.1:1/callback"


@pytest.mark.parametrize(
    ("address", "message"),
    [
        (
            "?code=c&state=s&iss=https://evil.example&error=shown",
            "the answer to the login at auth.example names another issuer",
        ),
        ("?code=c&state=s&iss=https://auth.example/", "the answer to the login at auth.example names another issuer"),
        ("?code=c&state=s", "the answer lacks the issuer (iss) that auth.example always sends"),
        ("?code=c&state=t&iss=https://auth.example", "the answer belongs to another login at auth.example"),
        ("?code=c&iss=https://auth.example", "the answer belongs to another login at auth.example"),
        ("?state=s&iss=https://auth.example", "the answer of auth.example contains no code"),
        ("?code=c&code=d&state=s&iss=https://auth.example", "the answer of auth.example repeats a parameter"),
        (
            "?error=access_denied&state=s&iss=https://auth.example",
            "the login at auth.example was refused (access_denied)",
        ),
        (
            "?error=server_error&error_description=try%0Alater&state=s&iss=https://auth.example",
            "auth.example refused the login (server_error: try later)",
        ),
    ],
)
def test_an_answer_that_is_not_to_be_believed_is_refused(address: str, message: str) -> None:
    with pytest.raises(AuthError) as caught:
        token_client().code(TokenRequest(CALLBACK, (), "s"), CALLBACK + address)
    assert caught.value.message == message
    assert caught.value.hint


@pytest.mark.parametrize(
    "place", ["https://127.0.0.1:1/callback", "http://127.0.0.1:2/callback", "http://127.0.0.1:1/other"]
)
def test_an_address_from_elsewhere_is_no_answer(place: str) -> None:
    with pytest.raises(AuthError) as caught:
        token_client().code(TokenRequest(CALLBACK, (), "s"), f"{place}?code=c&state=s&iss=https://auth.example")
    assert caught.value.message == "this is not the address that a login at auth.example ends at"


def test_a_pasted_address_may_have_blanks_around_it() -> None:
    assert (
        token_client().code(
            TokenRequest(CALLBACK, (), "s"), f"  {CALLBACK}?code=c%2B1&state=s&iss=https://auth.example\n"
        )
        == "c+1"
    )


# -- the token endpoint -----------------------------------------------------------------------------------------------


def ask(
    site: Site, client: Registration, settings: OAuthSettings | None = None, server: AuthorizationServer = SERVER
) -> Any:
    fields = {"grant_type": "authorization_code", "code": "the-secret-code"}
    return asyncio.run(
        tokens.request(MetadataClient(site, loopback=False), server, client, settings or OAuthSettings(), fields)
    )


def test_how_a_client_proves_itself() -> None:
    site = Site(answers={SERVER.token_endpoint: {"access_token": "t"}})
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
    key = KEYS[algorithm]()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    site = Site(answers={SERVER.token_endpoint: {"access_token": "t"}})
    ask(site, Registration("id", "private_key_jwt"), OAuthSettings(private_key=pem))
    body = site.bodies[-1]
    assert body["client_assertion_type"] == ["urn:ietf:params:oauth:client-assertion-type:jwt-bearer"]
    header, claims, _ = (base64.urlsafe_b64decode(part + "==") for part in body["client_assertion"][0].split("."))
    assert json.loads(header)["alg"] == algorithm
    told = json.loads(claims)
    assert (told["iss"], told["sub"], told["aud"]) == ("id", "id", ISSUER)
    assert told["exp"] - told["iat"] == 300 and told["jti"]


def test_a_key_that_is_none_is_said_without_showing_it() -> None:
    with pytest.raises(AuthError) as caught:
        ask(Site(), Registration("id", "private_key_jwt"), OAuthSettings(private_key="not-really-a-key"))
    assert caught.value.message.startswith("cannot log in: the private key cannot sign (")
    assert "not-really" not in str(caught.value)
    assert caught.value.hint == "private_key is a PEM text without a password; signing_algorithm must match it"


def test_an_errors_text_is_one_line_and_gives_no_secret_away() -> None:
    told = {
        "error": "invalid_client",
        "error_description": "bad\n\x1b[31msecret hunter2hunter2 for the-secret-code" + "x" * 500,
    }
    site = Site(answers={SERVER.token_endpoint: told})
    with pytest.raises(Refused) as caught:
        ask(site, Registration("id", "client_secret_post", "hunter2hunter2"))
    message = caught.value.message
    assert message.startswith("auth.example refused the token request (invalid_client: bad [31msecret *** for ***xxx")
    assert len(message) < 260
    assert caught.value.hint == "check client_id and client_secret in its auth"


@pytest.mark.parametrize("answer", [b"<html>", [], 500, 302])
def test_what_is_no_answer_of_a_token_endpoint_is_said(answer: Any) -> None:
    with pytest.raises(
        AuthError, match=r"auth.example answered the token request with HTTP \d+ without a readable reason"
    ):
        ask(Site(answers={SERVER.token_endpoint: answer}), CLIENT)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({}, "auth.example returned no usable token"),
        ({"access_token": "two\nlines"}, "auth.example returned no usable token"),
        ({"access_token": ""}, "auth.example returned no usable token"),
        ({"access_token": "t", "token_type": "DPoP"}, "auth.example returned a token of the unknown type 'DPoP'"),
    ],
)
def test_tokens_that_are_of_no_use_are_refused(answer: dict[str, Any], message: str) -> None:
    with pytest.raises(AuthError) as caught:
        tokens.tokens(answer, CLIENT, (), "auth.example")
    assert caught.value.message == message


def test_what_a_token_answer_leaves_out_stays_as_it_was() -> None:
    held = tokens.tokens({"access_token": "t", "expires_in": "60"}, CLIENT, ("a",), "auth.example", "old-refresh")
    assert (held.refresh_token, held.granted, held.lifetime) == ("old-refresh", ("a",), 60.0)
    held = tokens.tokens({"access_token": "t", "expires_in": 0, "scope": "b c"}, CLIENT, ("a",), "auth.example")
    assert (held.refresh_token, held.granted, held.requested, held.lifetime) == (None, ("b", "c"), ("a",), None)


def test_which_way_of_proof_is_chosen() -> None:
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


def test_secrets_are_in_no_repr() -> None:
    secret = "the-secret-itself"
    held = Tokens(secret, Registration("id", "none", secret), secret)
    settings = OAuthSettings(client_secret=secret, private_key=secret, idp_token=secret, idp_client_secret=secret)
    assert secret not in repr(held) + repr(settings)
