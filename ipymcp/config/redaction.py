"""What of a definition is secret, and the definition as a user may be shown it.

Behind a mask nothing may hide: what a shell would run is shown, whatever it is called.

The literals of a stranger's file are shown as they are: they are no secrets of the user's, and behind a mask could be
what runs. Of the user's own file what looks like a secret is masked.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import parse_qsl, unquote, urlsplit

from ipymcp.config.digest import binding
from ipymcp.config.variables import references
from ipymcp.masking import looks_secret

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ipymcp.config.definition import ServerDefinition
    from ipymcp.config.variables import Reference


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
_PLAIN_VALUE = r"(?is)true|false|null|none|yes|no|on|off|\d{1,6}|.*[\s|;&`<>$()].*"
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
    return text if not secret.strip() or re.fullmatch(_PLAIN_VALUE, secret) else (match[1] or "") + _dots(secret)


def _dots(secret: str) -> str:
    return f"•••• ({len(secret)} characters)"


_PUBLIC_AUTH_KEYS = frozenset(
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
        if key not in _PUBLIC_AUTH_KEYS and isinstance(value, str):
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


NOTHING: Final = "any file: what it runs can change"
"""What no file's contents bind: after `not bound to`."""
_NAMED = 12


def described(definition: ServerDefinition, *, masks: bool | None = None) -> list[str]:
    """Everything that decides what runs and with which rights, one line each.

    Args:
        definition: What is to run.
        masks: Whether to mask what looks like a secret; None for those of the user's own files alone.
    """
    is_masked = definition.source.scope == "user" if masks is None else masks
    return [f"{name:<12}{text}" for name, text in _Shown(definition, is_masked).parts()]


def bound_to(definition: ServerDefinition) -> str:
    """What an agreement is bound to beside the definition, as a phrase; empty where it runs nothing here."""
    if definition.command is None:
        return ""
    if definition.source.scope != "project":
        return NOTHING
    bound = binding(definition)
    root = os.path.realpath(definition.source.folder or "")
    names = [os.path.relpath(path, root) for path in bound.files]
    if not names:
        return NOTHING
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    rest = "" if bound.is_whole else "; what else it runs can change"
    return f"{', '.join(names[:_NAMED])}{more}{rest}"


def wanted_secrets(definition: ServerDefinition) -> tuple[str, ...]:
    """The kept secrets that it names, each once."""
    return tuple(dict.fromkeys(one.name for one in references(definition) if one.kind == "secret"))


class _Shown:
    """One definition in words.

    Args:
        definition: Which.
        is_masked: Whether what looks like a secret is masked.
    """

    def __init__(self, definition: ServerDefinition, is_masked: bool) -> None:
        self._definition = definition
        self._is_masked = is_masked

    def parts(self) -> Iterator[tuple[str, str]]:
        """What each line is about, and what it says."""
        definition = self._definition
        if definition.command is not None:
            args = masked_args(definition.args) if self._is_masked else definition.args
            yield "runs", shlex.join([definition.command, *args])
            yield "in", definition.cwd or definition.source.folder or "a folder of its own"
        if definition.url is not None:
            yield "connects to", f"{self._text(definition.url)} ({definition.transport})"
        yield from (("header", f"{name}: {self._text(value, name)}") for name, value in definition.headers.items())
        yield from (("variable", f"{name}={self._text(value, name)}") for name, value in definition.env.items())
        if definition.env_file is not None:
            yield "variables of", definition.env_file
        if definition.inherit_env:
            names = definition.inherit_env
            yield "inherits", "every variable of this kernel" if names is True else ", ".join(names)
        if definition.auth:
            yield "logs in", self._json(definition.auth)
        if definition.auto_approve:
            yield "unasked", f"{', '.join(definition.auto_approve)} (autoApprove: models may call these)"
        for key in ("tools", "hints", "read_only", "inputs", "extra"):
            value = getattr(definition, key)
            if value:
                yield key, self._json(value)
        yield from (("gives", _given(one)) for one in references(definition) if one.kind != "place")
        bound = bound_to(definition)
        if bound:
            yield ("not bound", f"to {NOTHING}") if bound == NOTHING else ("bound to:", bound)

    def _text(self, text: str, name: str = "") -> str:
        return masked(text, name) if self._is_masked else text

    def _json(self, value: object) -> str:
        return json.dumps(self._within(value, ""), ensure_ascii=False, default=str)

    def _within(self, value: Any, name: str) -> Any:
        if isinstance(value, str):
            return self._text(value, name)
        if isinstance(value, Mapping):
            table = cast("Mapping[str, Any]", value)
            return {key: self._within(table[key], key) for key in table}
        if isinstance(value, list | tuple):
            return [self._within(item, name) for item in cast("Sequence[Any]", value)]
        return value


def _given(reference: Reference) -> str:
    what = {
        "variable": "this kernel's variable",
        "secret": "your secret",
        "input": "what you are asked for as",
        "unknown": "(not understood)",
    }[reference.kind]
    return f"{what} {reference.name or reference.text} to {reference.where}"
