"""Addresses that a login accepts, and the URLs of servers' metadata. Without a network."""

import asyncio
from typing import Any

import pytest

from ipymcp.errors import AuthError
from ipymcp.protocol.oauth import discovery
from ipymcp.protocol.oauth.discovery import AuthorizationServer
from ipymcp.protocol.oauth.http import MAX_BODY, MetadataClient
from ipymcp.protocol.transports import addresses
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
    ("resource", "is_covered"),
    [
        ("https://h.example/a/mcp", True),
        ("https://h.example/a/mcp/", True),
        ("https://h.example/a", True),
        ("https://H.example:443", True),
        ("https://h.example/a/mc", False),
        ("https://h.example/a/mcp/b", False),
        ("https://other.example/a/mcp", False),
        ("http://h.example/a/mcp", False),
        ("https://h.example:8443/a/mcp", False),
        ("https://h.example/a/mcp?tenant=1", False),
        ("nonsense", False),
    ],
)
def test_metadata_is_believed_only_of_the_server_itself(resource: str, is_covered: bool) -> None:
    assert addresses.covers(resource, "https://h.example/a/mcp") is is_covered


@pytest.mark.parametrize(
    ("url", "loopback", "message"),
    [
        ("http://auth.example/x", True, "cannot log in: it on auth.example is not https"),
        ("http://127.0.0.1:1/x", False, "cannot log in: it is on this machine (127.0.0.1:1), but the server is not"),
        ("https://user@auth.example/", True, "cannot log in: it on auth.example contains a user name or a fragment"),
        ("https://auth.example/#f", True, "cannot log in: it on auth.example contains a user name or a fragment"),
        ("javascript:alert(1)", True, "cannot log in: it is not a web address: 'javascript:alert(1)'"),
        ("file:///etc/passwd", True, "cannot log in: it is not a web address: 'file:///etc/passwd'"),
        ("https://\u0430uth.example/", True, r"cannot log in: it is not a web address: 'https://\u0430uth.example/'"),
        ("https://h.example:99999/", True, "cannot log in: it is not a web address: 'https://h.example:99999/'"),
        ("", True, "cannot log in: it is not a web address: ''"),
    ],
)
def test_addresses_that_secrets_must_not_go_to(url: str, loopback: bool, message: str) -> None:
    with pytest.raises(AuthError) as caught:
        addresses.secure(url, "it", loopback=loopback)
    assert caught.value.message == message
    assert caught.value.hint


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


def test_metadata_of_another_issuer_is_not_used_and_the_next_place_is_tried() -> None:
    known = f"{ISSUER}/.well-known"
    evil = metadata("https://evil.example")
    site = Site(answers={f"{known}/oauth-authorization-server": evil, f"{known}/openid-configuration": metadata()})
    assert find_server(site).issuer == ISSUER
    site = Site(answers={f"{known}/oauth-authorization-server": evil})
    with pytest.raises(AuthError) as caught:
        find_server(site)
    assert caught.value.message == (
        "cannot log in: https://auth.example/.well-known/oauth-authorization-server gives the issuer as "
        "'https://evil.example', not 'https://auth.example'"
    )


def test_a_bare_slash_after_a_root_issuer_is_no_other_issuer() -> None:
    site = Site(answers={f"{ISSUER}/.well-known/oauth-authorization-server": metadata()})
    assert find_server(site, f"{ISSUER}/").issuer == ISSUER
    site = Site(answers={f"{ISSUER}/.well-known/oauth-authorization-server/t": metadata(f"{ISSUER}/t/")})
    with pytest.raises(AuthError, match="gives the issuer as"):
        find_server(site, f"{ISSUER}/t")


def test_default_addresses_are_only_for_a_server_that_is_its_own_authorization_server() -> None:
    found = find_server(Site(), "https://h.example", "https://h.example/v1/mcp")
    assert found.is_assumed
    assert (found.authorization_endpoint, found.token_endpoint) == (
        "https://h.example/authorize",
        "https://h.example/token",
    )
    with pytest.raises(AuthError) as caught:
        find_server(Site())
    assert caught.value.message == "cannot log in: the authorization server auth.example publishes no metadata"


@pytest.mark.parametrize(
    ("answer", "trouble"),
    [
        ("https://evil.example/", "redirects to another site (evil.example)"),
        ("/.well-known/oauth-protected-resource/mcp", "redirects too often (3 redirects were followed)"),
        (503, "was answered with HTTP 503"),
        (b" " * (MAX_BODY + 1), f"is larger than {MAX_BODY:,} bytes"),
    ],
)
def test_metadata_that_cannot_be_had_is_named_with_the_reason(answer: Any, trouble: str) -> None:
    url = "https://h.example/.well-known/oauth-protected-resource/mcp"
    with pytest.raises(AuthError) as caught:
        asyncio.run(
            discovery.resource(
                MetadataClient(Site(answers={url: answer}), loopback=False), "https://h.example/mcp", None
            )
        )
    assert caught.value.message == f"cannot log in: {url} {trouble}"


def test_a_page_for_people_where_metadata_would_be_is_no_metadata() -> None:
    url = "https://h.example/.well-known/oauth-protected-resource/mcp"
    site = Site(answers={url: b"<html>", f"{url.removesuffix('/mcp')}": {"resource": "https://h.example"}})
    found = asyncio.run(discovery.resource(MetadataClient(site, loopback=False), "https://h.example/mcp", None))
    assert found == discovery.ProtectedResource("https://h.example", ("https://h.example",), ())


def test_a_remote_servers_metadata_may_not_point_at_this_machine() -> None:
    site = Site()
    with pytest.raises(AuthError, match="is on this machine"):
        asyncio.run(
            discovery.resource(
                MetadataClient(site, loopback=False), "https://h.example/mcp", "http://127.0.0.1:8888/api"
            )
        )
    assert site.asked == []


SHARED = "https://shared.example"
KNOWN = f"{SHARED}/.well-known/oauth-protected-resource"


@pytest.mark.parametrize(
    ("where", "told", "resource", "expected"),
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
def test_a_folder_is_believed_only_by_its_own_metadata(
    where: str, told: str | None, resource: str, expected: str
) -> None:
    """A tenant of a shared host gets no tokens that are good for the others."""
    site = Site(answers={where: {"resource": resource, "authorization_servers": [ISSUER]}})
    found = asyncio.run(discovery.resource(MetadataClient(site, loopback=False), f"{SHARED}/tenant/mcp", told))
    assert found.uri == expected


def test_scopes_that_are_none_are_left_out() -> None:
    document = {
        "resource": f"{SHARED}/mcp",
        "scopes_supported": ["read", "a\nb wants you to log in", "w:x/*", "ü", '"'],
    }
    site = Site(answers={f"{KNOWN}/mcp": document})
    found = asyncio.run(discovery.resource(MetadataClient(site, loopback=False), f"{SHARED}/mcp", None))
    assert found.scopes == ("read", "w:x/*")
