"""Client registration at an authorization server (MCP 2026-07-28, client registration; RFC 7591).

In this order: the configured client, the URL of a metadata document, an earlier registration, a new registration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ipymcp.errors import AuthError
from ipymcp.protocol.oauth.clients import Registration, auth_method, method_to_register, registered_method
from ipymcp.protocol.oauth.http import read_reply
from ipymcp.protocol.transports import addresses

if TYPE_CHECKING:
    from ipymcp.protocol.oauth.clients import OAuthSettings
    from ipymcp.protocol.oauth.discovery import AuthorizationServer
    from ipymcp.protocol.oauth.http import MetadataClient
    from ipymcp.protocol.oauth.tokens import TokenStore


_NAME = "ipymcp"
_NO_LOGIN_HINT = (
    "if it wants a token or a key, load it with --header 'Authorization: Bearer ${TOKEN}', or headers in its definition"
)


def configured(
    settings: OAuthSettings, server: AuthorizationServer, used: str | None, server_url: str
) -> Registration | None:
    """Return the configured client, if any.

    Args:
        settings: The configuration of the login.
        server: The authorization server.
        used: Issuer of the last tokens, to which the client belongs if no issuer is configured.
        server_url: The server's URL. In a login without a user, who would see and confirm the recipient, the secret is
            sent only to the server's own host.

    Raises:
        AuthError: The client belongs to another authorization server, or its secret would go to an unconfirmed host.
    """
    if settings.client_id is None:
        return None
    issuer = settings.issuer or used
    if issuer is not None and issuer.rstrip("/") != server.issuer.rstrip("/"):
        raise AuthError(
            f"cannot log in: the server now sends its users to {addresses.host(server.issuer)}, "
            f"and the configured client belongs to {addresses.host(issuer)}",
            hint="register a client there, and set issuer, client_id and client_secret in its auth",
        )
    is_unasked = issuer is None and settings.client_secret is not None and settings.grant != "authorization_code"
    if is_unasked and urlsplit(server.token_endpoint).hostname != urlsplit(server_url).hostname:
        host = addresses.host(server.token_endpoint)
        raise AuthError(
            f"cannot log in: the server wants the configured client secret sent to {host}",
            hint=f"if the client was registered there, set issuer to {server.issuer!r} in its auth",
        )
    method = auth_method(settings, server, has_secret=settings.client_secret is not None)
    return Registration(settings.client_id, method, settings.client_secret)


async def client_for(
    web: MetadataClient,
    server: AuthorizationServer,
    settings: OAuthSettings,
    store: TokenStore,
    redirect_uri: str,
    scopes: tuple[str, ...],
) -> Registration:
    """Return the client for a login without a configured client.

    Raises:
        AuthError: There is no client, and registration failed.
    """
    if settings.client_metadata_url and server.takes_metadata_documents:
        url = settings.client_metadata_url
        if not url.startswith("https://") or urlsplit(url).path in ("", "/"):
            hint = "it is an https URL with a path, such as https://example.com/client.json"
            raise AuthError(f"cannot log in: client_metadata_url is {url[:200]!a}", hint=hint)
        return Registration(url, "private_key_jwt" if settings.private_key else "none")
    held = await store.registration(server.issuer, redirect_uri)
    if held and not held.has_expired and (not held.scopes or set(scopes) <= set(held.scopes)):
        return held
    client = await _register(web, server, settings, redirect_uri, scopes)
    await store.keep_registration(server.issuer, redirect_uri, client)
    return client


async def _register(
    web: MetadataClient,
    server: AuthorizationServer,
    settings: OAuthSettings,
    redirect_uri: str,
    scopes: tuple[str, ...],
) -> Registration:
    host = addresses.host(server.issuer)
    by_hand = f"register a client there by hand, with the redirect URI {redirect_uri}, and set client_id in its auth"
    if server.registration_endpoint is None:
        raise AuthError(
            f"cannot log in: {host} does not know ipymcp and does not register clients automatically", hint=by_hand
        )
    asked = method_to_register(settings, server)
    metadata = {
        "client_name": _NAME,
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": asked,
        "application_type": "native" if addresses.is_loopback(redirect_uri) else "web",
        **({"scope": " ".join(scopes)} if scopes else {}),
    }
    reply = await web.post_json(server.registration_endpoint, metadata, "the registration endpoint")
    try:
        document = read_reply(reply, host, "the registration of ipymcp", [])
    except AuthError as error:
        if server.is_assumed:
            message = f"the server on {host} requires a login, but does not say how to log in"
            raise AuthError(message, hint=_NO_LOGIN_HINT) from None
        error.hint = by_hand
        raise
    client_id, secret = document.get("client_id"), document.get("client_secret")
    if not isinstance(client_id, str) or not client_id:
        raise AuthError(f"cannot log in: {host} registered ipymcp without a client id", hint=by_hand)
    secret = secret if isinstance(secret, str) and secret else None
    given = document.get("token_endpoint_auth_method")
    expires = document.get("client_secret_expires_at")
    return Registration(
        client_id=client_id,
        method=registered_method(given, asked, has_secret=secret is not None),
        client_secret=secret,
        secret_expires_at=float(expires) if isinstance(expires, int | float) and secret else 0.0,
        scopes=scopes,
        is_dynamic=True,
    )
