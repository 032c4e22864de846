"""Discovery for a login: the server's challenge (RFC 9110), its metadata, and the authorization server's.

One header may hold several challenges, separated by the same commas as their parameters; a value may be quoted and
hold commas itself. Real servers bend the grammar, so whatever cannot be read is skipped, never an error.

Sources: RFC 9728 and RFC 8414; OpenID Connect Discovery 1.0; MCP 2026-07-28, authorization server discovery; for
servers older than those, MCP 2025-03-26, authorization, section 2.3.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ipymcp.errors import AuthError
from ipymcp.protocol.oauth import addresses
from ipymcp.protocol.types import is_array

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from ipymcp.protocol.oauth.http import MetadataClient


_MAX_LENGTH = 16_384
_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PARAMETER = re.compile(rf'\s*({_TOKEN})\s*=\s*(?:"((?:[^"\\]|\\.)*+)"?|([^\s,"=][^\s,"]*+))(?=[\s,]|$)', re.DOTALL)
_SCHEME = re.compile(rf"\s*({_TOKEN})(?=[\s,]|$)")
_TOKEN68 = re.compile(r"[ \t]+[A-Za-z0-9._~+/-]+=*\s*(?=,|$)")
_REST = re.compile(r"[^,]*")
_SCOPE = re.compile(r"[!#-\[\]-~]+")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Challenge:
    """One way in that the server offers."""

    scheme: str
    """In lower case, such as `bearer`."""
    parameters: Mapping[str, str] = field(default_factory=dict[str, str])
    """By names in lower case; of a name that comes twice, the first."""


@dataclass(frozen=True, slots=True)
class ScopeRequest:
    """What the challenges of one answer ask for, taken together."""

    resource_metadata: str | None = None
    """Where the server says its metadata is (RFC 9728 section 5.1)."""
    scopes: tuple[str, ...] = ()
    error: str | None = None
    """Such as `invalid_token` or `insufficient_scope` (RFC 6750 section 3.1)."""


def parse(values: Sequence[str]) -> list[Challenge]:
    """The challenges in `WWW-Authenticate` headers, in order."""
    return [challenge for value in values for challenge in _challenges(value[:_MAX_LENGTH])]


def demand(values: Sequence[str]) -> ScopeRequest:
    """What `WWW-Authenticate` headers ask of an OAuth client; Bearer challenges come first."""
    ordered = sorted(parse(values), key=lambda challenge: challenge.scheme != "bearer")

    def first(name: str) -> str | None:
        return next((c.parameters[name] for c in ordered if c.parameters.get(name)), None)

    return ScopeRequest(first("resource_metadata"), scope_tokens((first("scope") or "").split(" ")), first("error"))


def scope_tokens(names: Iterable[str]) -> tuple[str, ...]:
    """Those of the names that are scopes (RFC 6749 section 3.3), each once; a question shows them to the user."""
    return tuple(dict.fromkeys(name for name in names if _SCOPE.fullmatch(name)))


def _challenges(text: str) -> Iterator[Challenge]:
    position = 0
    scheme: str | None = None
    parameters: dict[str, str] = {}
    while position < len(text):
        if text[position] in ", \t\r\n":
            position += 1
        elif scheme is not None and (found := _PARAMETER.match(text, position)):
            name, quoted, plain = found.groups()
            parameters.setdefault(name.lower(), plain if quoted is None else _ESCAPED.sub(r"\1", quoted))
            position = found.end()
        elif found := _SCHEME.match(text, position):
            if scheme is not None:
                yield Challenge(scheme, parameters)
            scheme, parameters = found[1].lower(), {}
            position = found.end()
            if not _PARAMETER.match(text, position) and (token68 := _TOKEN68.match(text, position)):
                position = token68.end()
        else:
            position = max(_REST.match(text, position).end(), position + 1)  # pyright: ignore[reportOptionalMemberAccess]
    if scheme is not None:
        yield Challenge(scheme, parameters)


_MAX_ISSUERS = 4
_MAX_ITEMS = 200
_ASK_THE_OPERATOR = "tell whoever runs the server"


@dataclass(frozen=True, slots=True)
class ProtectedResource:
    """A protected server as its own metadata describes it."""

    uri: str
    """What tokens are asked for (RFC 8707)."""
    issuers: tuple[str, ...]
    """The authorization servers it trusts, at least one."""
    scopes: tuple[str, ...]
    """What it names as enough to begin with; empty: nothing named."""


@dataclass(frozen=True, slots=True)
class AuthorizationServer:
    """Who logs users in."""

    issuer: str
    authorization_endpoint: str | None
    token_endpoint: str
    registration_endpoint: str | None = None
    scopes: tuple[str, ...] = ()
    auth_methods: tuple[str, ...] | None = None
    """None: not told, so `client_secret_basic` (RFC 8414 section 2)."""
    signing_algorithms: tuple[str, ...] = ()
    has_pkce: bool = True
    """Whether it says that it supports PKCE with S256."""
    sends_issuer: bool = False
    """Whether its answers always carry `iss` (RFC 9207)."""
    takes_metadata_documents: bool = False
    """Whether a client id may be the URL of a metadata document."""
    is_assumed: bool = False
    """It has no metadata: these are the default addresses of 2025-03-26."""


def resource_urls(server_url: str, told: str | None) -> list[str]:
    """Where a server's metadata may be, in the order to try."""
    base, path = addresses.origin(server_url), urlsplit(server_url).path.rstrip("/")
    well_known = f"{base}/.well-known/oauth-protected-resource"
    return list(dict.fromkeys([*([told] if told else []), well_known + path, well_known]))


def server_urls(issuer: str) -> list[str]:
    """Where an authorization server's metadata may be, in the order to try."""
    base, path = addresses.origin(issuer), urlsplit(issuer).path.rstrip("/")
    oauth, openid = f"{base}/.well-known/oauth-authorization-server", f"{base}/.well-known/openid-configuration"
    if not path:
        return [oauth, openid]
    return [oauth + path, openid + path, f"{base}{path}/.well-known/openid-configuration"]


async def resource(web: MetadataClient, server_url: str, told: str | None) -> ProtectedResource:
    """Read a server's metadata.

    Args:
        web: The network.
        server_url: The server's address.
        told: The metadata's address as the server's challenge has it, if it does.

    Returns:
        What the metadata says, or, where there is none, the server itself as its own authorization server, as in
        2025-03-26.

    Raises:
        AuthError: The metadata cannot be read, or is another server's.
    """
    troubles: list[str] = []
    for url in resource_urls(server_url, told):
        document, trouble = await web.document(url, "the server's metadata")
        if document is not None and isinstance(document.get("resource"), str):
            return _resource(document, server_url, url)
        if trouble:
            troubles.append(f"{url} {trouble}")
    if troubles:
        raise AuthError(f"cannot log in: {troubles[0]}", hint=_ASK_THE_OPERATOR)
    return ProtectedResource(addresses.canonical(server_url), (addresses.origin(server_url),), ())


def _resource(document: dict[str, Any], server_url: str, found_at: str) -> ProtectedResource:
    """What metadata says of the server.

    Metadata may name a folder that the server lies in, and then only the folder's own metadata is believed (RFC 9728
    section 3.3): on a host that several tenants share, one of them would else get tokens that are good for all. From
    anywhere else it stands for the server alone.
    """
    uri = document["resource"]
    if not addresses.covers(uri, server_url):
        message = f"cannot log in: the server's metadata is that of another server ({uri[:200]!a})"
        raise AuthError(message, hint=_ASK_THE_OPERATOR)
    if not addresses.same_resource(uri, server_url) and found_at != resource_urls(uri, None)[0]:
        uri = addresses.canonical(server_url)
    issuers = _strings(document.get("authorization_servers"))[:_MAX_ISSUERS]
    return ProtectedResource(
        uri, issuers or (addresses.origin(server_url),), scope_tokens(_strings(document.get("scopes_supported")))
    )


async def authorization_server(web: MetadataClient, issuer: str, server_url: str) -> AuthorizationServer:
    """Read an authorization server's metadata.

    Args:
        web: The network.
        issuer: Its identifier, from the server's metadata.
        server_url: The server's address. Where the server is its own authorization server and has no metadata, it has
            the addresses of 2025-03-26.

    Raises:
        AuthError: There is no metadata, or it is not that issuer's.
    """
    troubles: list[str] = []
    for url in server_urls(addresses.secure(issuer, "the authorization server", loopback=web.loopback)):
        document, trouble = await web.document(url, "the authorization server's metadata")
        if document is None or "token_endpoint" not in document:
            troubles += [f"{url} {trouble}"] if trouble else []
        elif not _is_same(document.get("issuer"), issuer):
            troubles.append(f"{url} gives the issuer as {str(document.get('issuer'))[:200]!a}, not {issuer!r}")
        else:
            return _server(web, document)
    if troubles:
        raise AuthError(f"cannot log in: {troubles[0]}", hint=_ASK_THE_OPERATOR)
    base = addresses.origin(issuer)
    if issuer.rstrip("/") != addresses.origin(server_url):
        message = f"cannot log in: the authorization server {addresses.host(issuer)} publishes no metadata"
        raise AuthError(message, hint=_ASK_THE_OPERATOR)
    return AuthorizationServer(base, f"{base}/authorize", f"{base}/token", f"{base}/register", is_assumed=True)


def _is_same(given: object, expected: str) -> bool:
    """Simple string comparison (RFC 8414 section 3.3), but for the bare slash that URL types add to a root."""
    if given == expected:
        return True
    return isinstance(given, str) and given.rstrip("/") == expected.rstrip("/") == addresses.origin(expected)


def _server(web: MetadataClient, document: dict[str, Any]) -> AuthorizationServer:
    def endpoint(name: str) -> str | None:
        value = document.get(name)
        return addresses.secure(str(value), f"the {name}", loopback=web.loopback) if value else None

    token_endpoint = endpoint("token_endpoint")
    if token_endpoint is None:
        message = f"cannot log in: the metadata of {addresses.host(document['issuer'])} names no token endpoint"
        raise AuthError(message, hint=_ASK_THE_OPERATOR)
    methods = document.get("token_endpoint_auth_methods_supported")
    return AuthorizationServer(
        issuer=document["issuer"],
        authorization_endpoint=endpoint("authorization_endpoint"),
        token_endpoint=token_endpoint,
        registration_endpoint=endpoint("registration_endpoint"),
        scopes=scope_tokens(_strings(document.get("scopes_supported"))),
        auth_methods=_strings(methods) if is_array(methods) else None,
        signing_algorithms=_strings(document.get("token_endpoint_auth_signing_alg_values_supported")),
        has_pkce="S256" in _strings(document.get("code_challenge_methods_supported")),
        sends_issuer=document.get("authorization_response_iss_parameter_supported") is True,
        takes_metadata_documents=document.get("client_id_metadata_document_supported") is True,
    )


def _strings(value: object) -> tuple[str, ...]:
    items = value[:_MAX_ITEMS] if is_array(value) else []
    return tuple(item for item in items if isinstance(item, str) and item)
