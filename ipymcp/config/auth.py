"""How to log in to a remote server: the `auth` object of its definition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from ipymcp.config.values import Entry

__all__ = ["auth"]

_CLIENT = ("client_id", "client_secret", "token_endpoint_auth_method", "private_key", "signing_algorithm", "issuer")
_KEYS = {
    "bearer": ("token",),
    "oauth": (*_CLIENT, "client_metadata_url", "redirect_uri", "scopes"),
    "client_credentials": (*_CLIENT, "scopes"),
    "enterprise": (
        *(*_CLIENT, "scopes", "idp_issuer", "idp_token_endpoint", "idp_client_id", "idp_client_secret"),
        *("idp_token", "idp_token_type"),
    ),
}
_METHODS = ("none", "client_secret_basic", "client_secret_post", "private_key_jwt")
_SHAPE = 'write {"type": "bearer", "token": "…"}, or "type": "oauth", "client_credentials" or "enterprise"'


def auth(entry: Entry) -> Mapping[str, Any]:
    """What a definition says of its login, checked; empty where it says nothing.

    Raises:
        ConfigError: It is of no known type, or a value is of the wrong kind. No value is shown.
    """
    given = entry.get("auth")
    if given is None:
        return {}
    if "command" in entry:
        raise entry.error("a server with a command has no login", key="auth", hint="give it what it needs by env")
    if not isinstance(given, Mapping):
        raise entry.error("expected an object", key="auth", hint=_SHAPE)
    values = cast("Mapping[str, Any]", given)
    inner = entry.within("auth", values)
    kind = inner.choice("type", _KEYS) or "oauth"
    known = _KEYS[kind]
    for key in values:
        if key != "type" and key not in known:
            raise inner.error(f"is nothing that {kind!r} takes", key=key, hint=f"it takes {', '.join(known)}")
    read: dict[str, Any] = {"type": kind}
    for key in known:
        if key == "scopes":
            scopes = inner.get(key)
            text = scopes.split() if isinstance(scopes, str) else inner.texts(key, hint='such as ["files:read"]')
            read[key] = list(text)
        elif key == "token_endpoint_auth_method":
            read[key] = inner.choice(key, _METHODS)
        else:
            read[key] = inner.secret(key)
    if kind == "bearer" and not read["token"]:
        raise inner.error("is missing", key="token", hint=_SHAPE)
    return {key: value for key, value in read.items() if value}
