"""Addresses that a login accepts, and the URLs of servers' metadata. Without a network."""

import asyncio
from typing import Any

import pytest

from ipymcp.errors import AuthError
from ipymcp.protocol.oauth import discovery
from ipymcp.protocol.oauth.discovery import AuthorizationServer
from ipymcp.protocol.oauth.http import MAX_BODY, MetadataClient
from ipymcp.protocol.transports import addresses
from tests.errors import refused
from tests.oauth_site import ISSUER, Site

# -- addresses --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://MCP.example.com/mcp#part", "https://mcp.example.com/mcp"),
        ("https://mcp.example.com:443/", "https://mcp.example.com"),
        ("https://mcp.example.com:8443", "https://mcp.example.com:8443"),
        ("http://[::1]:80/a/b/", "http://[::1]/a/b/"),
    ],
)
def test_the_canonical_address_of_a_server(url: str, expected: str) -> None:
    assert addresses.canonical(url) == expected


@pytest.mark.parametrize(
    ("is_covered", "resources"),
    [
        (True, "https://h.example/a/mcp https://h.example/a/mcp/ https://h.example/a https://H.example:443"),
        (False, "https://h.example/a/mc https://h.example/a/mcp/b https://other.example/a/mcp http://h.example/a/mcp"),
        (False, "https://h.example:8443/a/mcp https://h.example/a/mcp?tenant=1 nonsense"),
    ],
)
def test_metadata_is_believed_only_of_the_server_itself(is_covered: bool, resources: str) -> None:
    for resource in resources.split():
        assert addresses.covers(resource, "https://h.example/a/mcp") is is_covered, resource


@pytest.mark.parametrize(
    ("url", "loopback", "problem"),
    [
        ("http://auth.example/x", True, "it on auth.example is not https"),
        ("http://127.0.0.1:1/x", False, "it is on this machine (127.0.0.1:1), but the server is not"),
        ("https://user@auth.example/", True, "it on auth.example contains a user name or a fragment"),
        ("https://auth.example/#f", True, "it on auth.example contains a user name or a fragment"),
        *((url, True, f"it is not a web address: {url!a}")
          for url in ("javascript:alert(1)", "file:///etc/passwd", "https://h.example:99999/", "")),
        ("https://\u0430uth.example/", True, r"it is not a web address: 'https://\u0430uth.example/'"),
    ],
)  # fmt: skip
def test_an_address_that_secrets_must_not_go_to_is_refused(url: str, loopback: bool, problem: str) -> None:
    message, hint = refused(AuthError, addresses.secure, url, "it", loopback=loopback)
    assert message == f"cannot log in: {problem}"
    assert hint


@pytest.mark.parametrize("url", ["http://localhost:80/", "http://127.1.2.3/", "http://[::1]:5/", "https://a.example/"])
def test_addresses_that_secrets_may_go_to(url: str) -> None:
    assert addresses.secure(url, "it", loopback=True) == url


# -- discovery --------------------------------------------------------------------------------------------------------


def test_a_servers_metadata_is_looked_for_in_the_order_of_the_specification() -> None:
    base = "https://h.example/.well-known/oauth-protected-resource"
    assert discovery.resource_urls("https://h.example/a/mcp", None) == [f"{base}/a/mcp", base]
    assert discovery.resource_urls("https://h.example/", None) == [base]
    told = "https://h.example/elsewhere"
    assert discovery.resource_urls("https://h.example/mcp", told) == [told, f"{base}/mcp", base]


def test_an_authorization_servers_metadata_is_looked_for_in_the_order_of_the_specification() -> None:
    known = "https://auth.example/.well-known"
    assert discovery.server_urls("https://auth.example") == [
        f"{known}/oauth-authorization-server",
        f"{known}/openid-configuration",
    ]
    assert discovery.server_urls("https://auth.example/tenant1") == [
        f"{known}/oauth-authorization-server/tenant1",
        f"{known}/openid-configuration/tenant1",
        "https://auth.example/tenant1/.well-known/openid-configuration",
    ]


def metadata(issuer: str = ISSUER, **more: Any) -> dict[str, Any]:
    return {
        "issuer": issuer,
        "authorization_endpoint": f"{ISSUER}/authorize",
        "token_endpoint": f"{ISSUER}/token",
        "code_challenge_methods_supported": ["S256"],
    } | more


def find_server(site: Site, issuer: str = ISSUER, server_url: str = "https://h.example/mcp") -> AuthorizationServer:
    return asyncio.run(discovery.authorization_server(MetadataClient(site, loopback=False), issuer, server_url))


def find_resource(
    site: Site, server_url: str = "https://h.example/mcp", address: str | None = None
) -> discovery.ProtectedResource:
    return asyncio.run(discovery.resource(MetadataClient(site, loopback=False), server_url, address))


def test_metadata_of_another_issuer_is_not_used_and_the_next_place_is_tried() -> None:
    known = f"{ISSUER}/.well-known"
    evil = metadata("https://evil.example")
    site = Site(answers={f"{known}/oauth-authorization-server": evil, f"{known}/openid-configuration": metadata()})
    assert find_server(site).issuer == ISSUER
    message, _ = refused(AuthError, find_server, Site(answers={f"{known}/oauth-authorization-server": evil}))
    assert message == (
        "cannot log in: https://auth.example/.well-known/oauth-authorization-server gives the issuer as "
        "'https://evil.example', not 'https://auth.example'"
    )


def test_a_slash_after_an_issuer_is_ignored() -> None:
    site = Site(answers={f"{ISSUER}/.well-known/oauth-authorization-server": metadata()})
    assert find_server(site, f"{ISSUER}/").issuer == ISSUER
    site = Site(answers={f"{ISSUER}/.well-known/oauth-authorization-server/t": metadata(f"{ISSUER}/t/")})
    assert find_server(site, f"{ISSUER}/t").issuer == f"{ISSUER}/t/"


def test_default_addresses_are_only_for_a_server_that_is_its_own_authorization_server() -> None:
    server = find_server(Site(), "https://h.example", "https://h.example/v1/mcp")
    assert server.is_assumed
    assert server.authorization_endpoint == "https://h.example/authorize"
    assert server.token_endpoint == "https://h.example/token"
    message, _ = refused(AuthError, find_server, Site())
    assert message == "cannot log in: the authorization server auth.example publishes no metadata"


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ("https://evil.example/", "redirects to another site (evil.example)"),
        ("/.well-known/oauth-protected-resource/mcp", "redirects too often (3 redirects were followed)"),
        (503, "was answered with HTTP 503"),
        (b" " * (MAX_BODY + 1), f"is larger than {MAX_BODY:,} bytes"),
    ],
)
def test_metadata_that_cannot_be_fetched_is_named_with_the_reason(answer: Any, problem: str) -> None:
    url = "https://h.example/.well-known/oauth-protected-resource/mcp"
    assert refused(AuthError, find_resource, Site(answers={url: answer}))[0] == f"cannot log in: {url} {problem}"


def test_a_web_page_in_the_place_of_metadata_is_passed_over() -> None:
    url = "https://h.example/.well-known/oauth-protected-resource/mcp"
    site = Site(answers={url: b"<html>", f"{url.removesuffix('/mcp')}": {"resource": "https://h.example"}})
    expected = discovery.ProtectedResource("https://h.example", ("https://h.example",), ())
    assert find_resource(site) == expected


def test_a_remote_servers_metadata_may_not_point_at_this_machine() -> None:
    site = Site()
    with pytest.raises(AuthError, match="is on this machine"):
        find_resource(site, address="http://127.0.0.1:8888/api")
    assert site.asked == []


SHARED = "https://shared.example"
KNOWN = f"{SHARED}/.well-known/oauth-protected-resource"


@pytest.mark.parametrize(
    ("place", "address", "resource", "expected"),
    [
        (f"{KNOWN}/tenant/mcp", None, f"{SHARED}/tenant/mcp", f"{SHARED}/tenant/mcp"),
        (f"{KNOWN}/tenant/mcp", None, f"{SHARED}/", f"{SHARED}/tenant/mcp"),
        (f"{KNOWN}/tenant/mcp", None, f"{SHARED}/tenant", f"{SHARED}/tenant/mcp"),
        (f"{SHARED}/tenant/prm", f"{SHARED}/tenant/prm", SHARED, f"{SHARED}/tenant/mcp"),
        ("https://evil.example/prm", "https://evil.example/prm", SHARED, f"{SHARED}/tenant/mcp"),
        (KNOWN, None, SHARED, SHARED),
        (f"{KNOWN}/tenant", f"{KNOWN}/tenant", f"{SHARED}/tenant", f"{SHARED}/tenant"),
    ],
)
def test_a_tenant_of_a_shared_host_gets_no_tokens_that_are_good_for_the_others(
    place: str, address: str | None, resource: str, expected: str
) -> None:
    site = Site(answers={place: {"resource": resource, "authorization_servers": [ISSUER]}})
    assert find_resource(site, f"{SHARED}/tenant/mcp", address).uri == expected


def test_invalid_scopes_are_left_out() -> None:
    scopes = ["read", "a\nb wants you to log in", "w:x/*", "ü", '"']
    site = Site(answers={f"{KNOWN}/mcp": {"resource": f"{SHARED}/mcp", "scopes_supported": scopes}})
    assert find_resource(site, f"{SHARED}/mcp").scopes == ("read", "w:x/*")
