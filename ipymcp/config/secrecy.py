"""What of a definition must not be shown: literals under names that sound of a secret. Variables stay as they are."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from ipymcp.config.variables import respelled

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ipymcp.config.definition import ServerDefinition

__all__ = ["MASK", "looks_secret", "masked", "masked_args", "masked_definition", "masked_table", "masked_url"]

MASK = "••••"
_NAME = re.compile(
    r"token|secret|passw|passphrase|pwd|api[_.-]?key|access[_.-]?key|private[_.-]?key|signing[_.-]?key|credential|auth"
    r"|cookie|session|bearer|(?:^|[_.-])(?:key|pat|pw|dsn)$",
    re.IGNORECASE,
)
_SHORT = 8
"""A text with variables and fewer other characters than this, such as `Bearer ${TOKEN}`, holds no secret itself."""


def looks_secret(name: str) -> bool:
    """Whether what stands under a name may be a secret."""
    return _NAME.search(name) is not None


def masked(name: str, text: str) -> str:
    """A text as it may be shown, by the name it stands under."""
    if not text or not looks_secret(name):
        return text
    literal = respelled(text, lambda _: "")
    return text if literal != text and len(literal.strip()) < _SHORT else MASK


def masked_table(table: Mapping[str, str]) -> dict[str, str]:
    """Variables or headers as they may be shown."""
    return {name: masked(name, text) for name, text in table.items()}


def masked_args(args: Sequence[str]) -> list[str]:
    """Arguments as they may be shown: `--token=…`, and what follows `--token`, are masked; so are addresses."""
    return list(_masked_args(args))


def masked_url(text: str) -> str:
    """An address as it may be shown: without password, and without the values of parameters that sound of a secret."""
    try:
        url = urlsplit(text)
        query = parse_qsl(url.query, keep_blank_values=True)
    except ValueError:
        return text
    user, at, place = url.netloc.rpartition("@")
    if at and ":" in user:
        user = f"{user.partition(':')[0]}:{masked('password', user.partition(':')[2])}"
    if query and any(masked(name, value) != value for name, value in query):
        shown = "&".join(f"{name}={masked(name, value)}" for name, value in query)
        url = url._replace(query=shown)
    return urlunsplit(url._replace(netloc=f"{user}{at}{place}")) if at or query else text


def masked_definition(definition: ServerDefinition) -> ServerDefinition:
    """A definition as it may be shown."""
    auth = {key: masked(key, value) if isinstance(value, str) else value for key, value in definition.auth.items()}
    return definition.replace(
        args=tuple(masked_args(definition.args)),
        env=masked_table(definition.env),
        url=None if definition.url is None else masked_url(definition.url),
        headers=masked_table(definition.headers),
        auth={**auth, "type": definition.auth["type"]} if auth else auth,
    )


def _masked_args(args: Sequence[str]) -> Iterator[str]:
    flag = ""
    for arg in args:
        name, equals, value = arg.partition("=")
        if looks_secret(flag) and not arg.startswith("-"):
            yield masked(flag, arg)
        elif equals and value:
            yield f"{name}={masked(name, value)}" if "://" not in name else masked_url(arg)
        else:
            yield masked_url(arg) if "://" in arg else arg
        flag = arg if arg.startswith("-") and not equals else ""
