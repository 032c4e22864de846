"""How a definition's server is reached: by which transports, tried in which order, and with which login.

What HTTP needs is imported when a remote server is opened, not before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from ipymcp.config.redaction import sensitive
from ipymcp.masking import masks
from ipymcp.protocol.transports.stdio import StdioTransport
from ipymcp.runtime.process_env import launch
from ipymcp.runtime.reaper_child import MARK

if TYPE_CHECKING:
    from ipymcp.config.definition import ServerDefinition
    from ipymcp.protocol.oauth.provider import OAuth
    from ipymcp.protocol.oauth.settings import LoginUser
    from ipymcp.protocol.transports.base import Transport
    from ipymcp.runtime.context import RuntimeContext


TransportKind = Literal["stdio", "http", "sse"]

_LOGIN_EXTENSIONS = {
    "client_credentials": "io.modelcontextprotocol/oauth-client-credentials",
    "enterprise": "io.modelcontextprotocol/enterprise-managed-authorization",
}


def transport_kinds(definition: ServerDefinition) -> tuple[TransportKind, ...]:
    """The transports to try, in this order.

    An older server may know legacy SSE alone: then the POST is answered 400, 404 or 405, and a GET is tried (2025-11-25
    transports, backwards compatibility).
    """
    if definition.transport == "http" and definition.era != "modern":
        return "http", "sse"
    return (definition.transport,)


def transport(
    definition: ServerDefinition, way: TransportKind, services: RuntimeContext, login: OAuth | None
) -> Transport:
    """The transport to try, not yet opened.

    Raises:
        McpError: The definition, which is expanded, cannot be used: no such program or folder, no address, no header.
    """
    masks.add(*sensitive(definition))
    if way == "stdio":
        launched = launch(definition, services.folder)
        return StdioTransport(
            msgspec.structs.replace(launched, env={**launched.env, MARK: services.reaper.mark}),
            services.reaper,
            limit=definition.max_result_bytes,
            grace=services.timing.grace,
        )
    assert definition.url is not None
    if way == "sse":
        from ipymcp.protocol.transports.sse import LegacySseTransport as Remote
    else:
        from ipymcp.protocol.transports.http import StreamableHttpTransport as Remote
    return Remote(definition.url, headers=_headers(definition), authorizer=login, limit=definition.max_result_bytes)


def authorizer(definition: ServerDefinition, digest: str, user: LoginUser, services: RuntimeContext) -> OAuth | None:
    """The authorizer for the server's login; None if the definition has its credentials, or there is no login.

    Args:
        definition: Of the server, expanded.
        digest: Of the definition as it was written: what is kept, is kept under it.
        user: Who logs in.
        services: The host's.
    """
    url = definition.url or ""
    has_own = any(name.lower() == "authorization" for name in definition.headers)
    if not url.startswith(("http://", "https://")) or has_own or definition.auth.get("type") == "bearer":
        return None
    from ipymcp.protocol.oauth.provider import OAuth
    from ipymcp.protocol.oauth.settings import OAuthSettings
    from ipymcp.runtime.oauth_redirects import fetch

    given = dict(definition.auth)
    kind, scopes = given.pop("type", "oauth"), tuple(given.pop("scopes", ()))
    settings = OAuthSettings(grant="authorization_code" if kind == "oauth" else kind, scopes=scopes, **given)
    is_fixed = settings.redirect_uri or settings.client_id or settings.client_metadata_url
    opening = None if is_fixed else services.redirects.open  # a client that is registered has its addresses
    return OAuth(url, settings, services.store.tokens, user, fetch, open_redirect=opening, definition=digest)


def login_extension(definition: ServerDefinition) -> str | None:
    """The extension of MCP that this server's way to log in is part of (2026-07-28, extensions/auth)."""
    return _LOGIN_EXTENSIONS.get(definition.auth.get("type", ""))


def _headers(definition: ServerDefinition) -> dict[str, str]:
    if definition.auth.get("type") != "bearer":
        return dict(definition.headers)
    return {**definition.headers, "Authorization": f"Bearer {definition.auth['token']}"}
