"""What of a definition must not be shown: literals that are secrets by their name or their look. Variables stay.

Behind a mask nothing may hide: what a shell would run is shown, whatever it is called.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ipymcp.masking import looks_secret

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ipymcp.config.definition import ServerDefinition

__all__ = ["HEADER", "SECRET_VALUE", "masked", "masked_args", "masked_definition"]

SECRET_VALUE: Final = re.compile(
    r"(?<![\w@.-])(?<!://)"  # a server's name may not hide
    r"(gh[pousr]_|github_pat_|glpat-|sk-|sk_live_|rk_live_|pk_live_|xox[abprs]-|AKIA|ASIA|AIza|ya29\.|npm_|hf_|pypi-|dop_v1_"
    r"|eyJ[A-Za-z0-9_-]{8,}\.)[A-Za-z0-9_.~+/=-]{8,}|-----BEGIN [A-Z ]+-----[A-Za-z0-9+/=\s]+"
)
"""Tokens that are known by how they begin, and private keys."""
HEADER: Final = re.compile(r"([A-Za-z0-9-]+):(\s*)(?!//)(.+)")
"""A header as an argument."""
# Compiled by `re` when they are first used: most kernels never show a definition.
_USERINFO = r"(?<=://)[^/@\s:]*:([^/@\s]+)(?=@)"
_PARAMETER = r"(?<=[?&])([^=&\s]+)=([^&\s#]+)"
_RANDOM = r"(?<![\w/.@-])(?=[\w+-]*\d)(?=[\w+-]*[A-Za-z])[A-Za-z0-9_+-]{32,}={0,2}(?![\w/.@-])"
_VARIABLE = r"(\$?\{[^{}]*\})"
_SCHEME = r"(?is)((?:bearer|basic|token|digest)\s+)?(.*)"
_NO_SECRETS = r"(?is)true|false|null|none|yes|no|on|off|\d{1,6}|.*[\s|;&`<>$()].*"
"""What is shown whatever it is called: plain words, and what a shell would run."""


def masked(text: str, name: str = "") -> str:
    """A text with what looks like a secret replaced by its length; variables stay.

    Args:
        text: As written.
        name: What it is the value of, where that is known.
    """
    if name and looks_secret(name):
        return "".join(part if re.fullmatch(_VARIABLE, part) else _hidden(part) for part in re.split(_VARIABLE, text))
    if (header := HEADER.fullmatch(text)) is not None and looks_secret(header[1]):
        return f"{header[1]}:{header[2]}{masked(header[3], header[1])}"
    text = re.sub(_USERINFO, lambda match: match[0].replace(match[1], masked(match[1], "password")), text)
    text = re.sub(
        _PARAMETER,
        lambda match: f"{match[1]}={masked(match[2], match[1])}" if looks_secret(match[1]) else match[0],
        text,
    )
    text = SECRET_VALUE.sub(lambda match: _dots(match[0]), text)
    return re.sub(_RANDOM, lambda match: _dots(match[0]), text)


def masked_args(args: Sequence[str]) -> list[str]:
    """Arguments as they may be shown: what stands behind an option of a telling name is masked, too."""
    return list(_masked_args(args))


def masked_definition(definition: ServerDefinition) -> ServerDefinition:
    """A definition as it may be shown."""
    auth = {key: masked(value, key) if isinstance(value, str) else value for key, value in definition.auth.items()}
    return definition.replace(
        args=tuple(masked_args(definition.args)),
        env=_masked_table(definition.env),
        url=None if definition.url is None else masked(definition.url),
        headers=_masked_table(definition.headers),
        auth=auth,
    )


def _masked_table(table: Mapping[str, str]) -> dict[str, str]:
    return {name: masked(text, name) for name, text in table.items()}


def _masked_args(args: Sequence[str]) -> Iterator[str]:
    before = ""
    for argument in args:
        option, equals, value = argument.partition("=")
        if equals and "://" not in option:
            yield f"{option}={masked(value, option)}"
        elif before.startswith("-") and not argument.startswith("-"):
            yield masked(argument, before)
        else:
            yield masked(argument)
        before = "" if equals else argument


def _hidden(text: str) -> str:
    """A literal behind a telling name; `Bearer` before it stays."""
    match = re.fullmatch(_SCHEME, text)
    assert match is not None  # it matches anything
    secret = match[2]
    return text if not secret.strip() or re.fullmatch(_NO_SECRETS, secret) else (match[1] or "") + _dots(secret)


def _dots(secret: str) -> str:
    return f"•••• ({len(secret)} characters)"
