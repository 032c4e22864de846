"""Discovery for a login: the server's challenge (RFC 9110), its metadata, and the authorization server's.

One header may contain several challenges, separated by the same commas as their parameters, and quoted values may
contain commas. Servers violate the grammar, so unreadable parts are skipped.

Sources: RFC 9728 and RFC 8414; OpenID Connect Discovery 1.0; MCP 2026-07-28, authorization server discovery; for
older servers MCP 2025-03-26, authorization, section 2.3.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ipymcp.errors import AuthError
from ipymcp.protocol.transports import addresses
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
    """An authentication challenge."""

    scheme: str
    """Scheme in lower case, such as `bearer`."""
    parameters: Mapping[str, str] = field(default_factory=dict[str, str])
    """Parameters by lower-case name; the first value of a repeated name."""


@dataclass(frozen=True, slots=True)
class ScopeRequest:
    """The combined request of all challenges in a response."""

    resource_metadata: str | None = None
    """URL of the server's metadata (RFC 9728 section 5.1)."""
    scopes: tuple[str, ...] = ()
    error: str | None = None
    """Error code, such as `invalid_token` or `insufficient_scope` (RFC 6750 section 3.1)."""


def parse(values: Sequence[str]) -> list[Challenge]:
    """Parse the challenges in `WWW-Authenticate` headers, in order."""
    return [challenge for value in values for challenge in _challenges(value[:_MAX_LENGTH])]


def scope_request(values: Sequence[str]) -> ScopeRequest:
    """Combine the challenges in `WWW-Authenticate` headers, Bearer challenges first."""
    ordered = sorted(parse(values), key=lambda challenge: challenge.scheme != "bearer")

    def first(name: str) -> str | None:
        return next((c.parameters[name] for c in ordered if c.parameters.get(name)), None)

    return ScopeRequest(first("resource_metadata"), scope_tokens((first("scope") or "").split(" ")), first("error"))


def scope_tokens(names: Iterable[str]) -> tuple[str, ...]:
    """Filter the valid scopes (RFC 6749 section 3.3), without duplicates; they are shown to the user."""
    return tuple(dict.fromkeys(name for name in names if _SCOPE.fullmatch(name)))


def _challenges(text: str) -> Iterator[Challenge]:
    position = 0
    scheme: str | None = None
    parameters: dict[str, str] = {}
    while position < len(text):
        if text[position] in ", \t\r\n":
            position += 1
        elif scheme is not None and (parameter := _PARAMETER.match(text, position)):
            name, quoted, plain = parameter.groups()
            parameters.setdefault(name.lower(), plain if quoted is None else _ESCAPED.sub(r"\1", quoted))
            position = parameter.end()
        elif word := _SCHEME.match(text, position):
            if scheme is not None:
                yield Challenge(scheme, parameters)
            scheme, parameters = word[1].lower(), {}
            position = word.end()
            if not _PARAMETER.match(text, position) and (token68 := _TOKEN68.match(text, position)):
                position = token68.end()
        else:
            position = max(_REST.match(text, position).end(), position + 1)  # pyright: ignore[reportOptionalMemberAccess]
    if scheme is not None:
        yield Challenge(scheme, parameters)


_MAX_ISSUERS = 4
_MAX_ITEMS = 200
_OPERATOR_HINT = "tell the server's operator"


@dataclass(frozen=True, slots=True)
class ProtectedResource:
    """A protected server as described by its metadata."""

    uri: str
    """Resource identifier of the tokens (RFC 8707)."""
    issuers: tuple[str, ...]
    """The trusted authorization servers, at least one."""
    scopes: tuple[str, ...]
    """The scopes for a first login; empty if unspecified."""


@dataclass(frozen=True, slots=True)
class AuthorizationServer:
    """An authorization server as described by its metadata."""

    issuer: str
    authorization_endpoint: str | None
    token_endpoint: str
    registration_endpoint: str | None = None
    scopes: tuple[str, ...] = ()
    auth_methods: tuple[str, ...] | None = None
    """Supported client authentication; None means `client_secret_basic` (RFC 8414 section 2)."""
    signing_algorithms: tuple[str, ...] = ()
    has_pkce: bool = True
    """Whether it supports PKCE with S256."""
    sends_issuer: bool = False
    """Whether its responses always contain `iss` (RFC 9207)."""
    takes_metadata_documents: bool = False
    """Whether a client id may be the URL of a metadata document."""
    is_assumed: bool = False
    """Whether it has no metadata and the default endpoints of 2025-03-26 are assumed."""


def resource_urls(server_url: str, metadata_url: str | None) -> list[str]:
    """List the URLs that may have a server's metadata, in the order to try."""
    base, path = addresses.origin(server_url), urlsplit(server_url).path.rstrip("/")
    well_known = f"{base}/.well-known/oauth-protected-resource"
    return list(dict.fromkeys([*([metadata_url] if metadata_url else []), well_known + path, well_known]))


def server_urls(issuer: str) -> list[str]:
    """List the URLs that may have an authorization server's metadata, in the order to try."""
    base, path = addresses.origin(issuer), urlsplit(issuer).path.rstrip("/")
    oauth, openid = f"{base}/.well-known/oauth-authorization-server", f"{base}/.well-known/openid-configuration"
    if not path:
        return [oauth, openid]
    return [oauth + path, openid + path, f"{base}{path}/.well-known/openid-configuration"]


async def resource(web: MetadataClient, server_url: str, metadata_url: str | None) -> ProtectedResource:
    """Read a server's metadata.

    Args:
        web: Fetches documents.
        server_url: The server's URL.
        metadata_url: The metadata URL from the server's challenge, if any.

    Returns:
        The metadata; without any, the server is its own authorization server, as in 2025-03-26.

    Raises:
        AuthError: The metadata cannot be read, or is another server's.
    """
    problems: list[str] = []
    for url in resource_urls(server_url, metadata_url):
        document, problem = await web.document(url, "the server's metadata")
        if document is not None and isinstance(document.get("resource"), str):
            return _resource(document, server_url, url)
        if problem:
            problems.append(f"{url} {problem}")
    if problems:
        raise AuthError(f"cannot log in: {problems[0]}", hint=_OPERATOR_HINT)
    return ProtectedResource(addresses.canonical(server_url), (addresses.origin(server_url),), ())


def _resource(document: dict[str, Any], server_url: str, found_at: str) -> ProtectedResource:
    """Interpret a server's metadata.

    Metadata may name a parent path of the server, which is accepted only from the parent's own metadata URL (RFC 9728
    section 3.3). Otherwise a tenant of a shared host could get tokens that are valid for the others. Metadata from any
    other URL applies to the server alone.
    """
    uri = document["resource"]
    if not addresses.covers(uri, server_url):
        message = f"cannot log in: the server's metadata is that of another server ({uri[:200]!a})"
        raise AuthError(message, hint=_OPERATOR_HINT)
    if not addresses.same_resource(uri, server_url) and found_at != resource_urls(uri, None)[0]:
        uri = addresses.canonical(server_url)
    issuers = _strings(document.get("authorization_servers"))[:_MAX_ISSUERS]
    return ProtectedResource(
        uri, issuers or (addresses.origin(server_url),), scope_tokens(_strings(document.get("scopes_supported")))
    )


async def authorization_server(web: MetadataClient, issuer: str, server_url: str) -> AuthorizationServer:
    """Read an authorization server's metadata.

    Args:
        web: Fetches documents.
        issuer: Issuer identifier from the server's metadata.
        server_url: The server's URL. A server that is its own authorization server without metadata has the default
            endpoints of 2025-03-26.

    Raises:
        AuthError: There is no metadata, or it is another issuer's.
    """
    problems: list[str] = []
    for url in server_urls(addresses.secure(issuer, "the authorization server", loopback=web.loopback)):
        document, problem = await web.document(url, "the authorization server's metadata")
        if document is None or "token_endpoint" not in document:
            problems += [f"{url} {problem}"] if problem else []
            continue
        given = document.get("issuer")
        # Compared as strings (RFC 8414 section 3.3), ignoring a slash at the end, which URL types add.
        if isinstance(given, str) and given.rstrip("/") == issuer.rstrip("/"):
            return _server(web, document)
        problems.append(f"{url} gives the issuer as {str(given)[:200]!a}, not {issuer!r}")
    if problems:
        raise AuthError(f"cannot log in: {problems[0]}", hint=_OPERATOR_HINT)
    base = addresses.origin(issuer)
    if issuer.rstrip("/") != addresses.origin(server_url):
        message = f"cannot log in: the authorization server {addresses.host(issuer)} publishes no metadata"
        raise AuthError(message, hint=_OPERATOR_HINT)
    return AuthorizationServer(base, f"{base}/authorize", f"{base}/token", f"{base}/register", is_assumed=True)


def _server(web: MetadataClient, document: dict[str, Any]) -> AuthorizationServer:
    def endpoint(name: str) -> str | None:
        value = document.get(name)
        return addresses.secure(str(value), f"the {name}", loopback=web.loopback) if value else None

    token_endpoint = endpoint("token_endpoint")
    if token_endpoint is None:
        message = f"cannot log in: the metadata of {addresses.host(document['issuer'])} names no token endpoint"
        raise AuthError(message, hint=_OPERATOR_HINT)
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
