"""The secrets in a definition whose variables are expanded, to be masked from then on: by their name or their look."""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

from ipymcp.config.secrecy import HEADER, SECRET_VALUE
from ipymcp.masking import looks_secret

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ipymcp.config.definition import ServerDefinition

__all__ = ["secret_variables", "sensitive"]

_NO_SECRETS = frozenset(
    {"type", "client_id", "client_metadata_url", "redirect_uri", "scopes", "issuer", "token_endpoint_auth_method"}
    | {"signing_algorithm", "idp_issuer", "idp_token_endpoint", "idp_client_id", "idp_token_type"}
)


def sensitive(definition: ServerDefinition) -> Iterator[str]:
    """The secrets of a definition whose variables are expanded."""
    yield from _of_headers(definition.headers)
    yield from secret_variables(definition.env)
    yield from _of_arguments(definition.args)
    yield from _of_url(definition.url or "")
    for key, value in definition.auth.items():
        if key not in _NO_SECRETS and isinstance(value, str):
            yield value


def secret_variables(env: Mapping[str, str]) -> Iterator[str]:
    """The values of variables whose names look secret, and passwords in URLs. Paths are none: they hold, not are."""
    for name, value in env.items():
        if looks_secret(name) and not (os.path.isabs(value) and os.path.exists(value)):
            yield from _of_value(value)
        else:
            yield from _of_text(value)


def _of_headers(headers: Mapping[str, str]) -> Iterator[str]:
    for name, value in headers.items():
        if not looks_secret(name) and not name.lower().endswith("authorization"):
            continue
        yield from _of_value(value)


def _of_value(value: str) -> Iterator[str]:
    """A secret, and without the word before it: `Bearer …`, `Basic …`."""
    yield value
    scheme, has_scheme, credentials = value.partition(" ")
    if has_scheme:
        yield credentials.strip()
    if scheme.lower() == "basic":
        yield from _of_basic(credentials)


def _of_text(text: str) -> Iterator[str]:
    """Secrets within what is none by its name: tokens that are known by how they begin, and passwords in URLs."""
    yield from (found[0] for found in SECRET_VALUE.finditer(text))
    if "://" in text:
        yield from _of_url(text)


def _of_basic(credentials: str) -> Iterator[str]:
    try:
        yield base64.b64decode(credentials, validate=True).decode().partition(":")[2]
    except ValueError:
        return


def _of_arguments(args: Sequence[str]) -> Iterator[str]:
    """`--api-key VALUE`, `--api-key=VALUE`, and `--header "Authorization: Bearer VALUE"`."""
    for index, argument in enumerate(args):
        name, has_value, value = argument.partition("=")
        yield from _of_text(value if "://" in value else argument)
        header = HEADER.fullmatch(argument)
        if header is None and "://" not in name:
            header = HEADER.fullmatch(value)
        if header is not None:
            yield from _of_headers({header[1]: header[3]})
        if not looks_secret(name.lstrip("-")):
            continue
        if has_value:
            yield from _of_value(value)
        elif name.startswith("-") and index + 1 < len(args):
            yield from _of_value(args[index + 1])


def _of_url(url: str) -> Iterator[str]:
    try:
        parts = urlsplit(url)
        query = parse_qsl(parts.query)
    except ValueError:
        return
    if parts.password:
        yield parts.password
        yield unquote(parts.password)
    for name, value in query:
        if looks_secret(name):
            yield value
