"""A definition as the user is shown it before it may run: all of it, with what looks like a secret masked."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from ipymcp.config.variables import references

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ipymcp.config.definition import ServerDefinition
    from ipymcp.config.variables import Reference

__all__ = ["described", "looks_secret", "masked", "wanted_secrets"]

_SECRET_NAME = re.compile(
    r"pass(word|wd|phrase)?|secret|token|api[-_]?key|access[-_]?key|private[-_]?key|credential|auth(orization)?|bearer|cookie"
    r"|(^|[-_])(key|pat|pwd|dsn)($|[-_])|connection[-_]?string",
    re.I,
)
_SECRET_VALUE = re.compile(
    r"(gh[pousr]_|github_pat_|glpat-|sk-|sk_live_|rk_live_|pk_live_|xox[abprs]-|AKIA|ASIA|AIza|ya29\.|npm_|hf_|pypi-|dop_v1_"
    r"|eyJ[A-Za-z0-9_-]{8,}\.)[A-Za-z0-9_.~+/=-]{8,}|-----BEGIN [A-Z ]+-----[A-Za-z0-9+/=\s]+"
)
_USERINFO = re.compile(r"(?<=://)[^/@\s:]*:([^/@\s]+)(?=@)")
_PARAMETER = re.compile(r"(?<=[?&])([^=&\s]+)=([^&\s#]+)")
_RANDOM = re.compile(r"(?<![\w/.@-])(?=[\w+-]*\d)(?=[\w+-]*[A-Za-z])[A-Za-z0-9_+-]{32,}={0,2}(?![\w/.@-])")
_VARIABLE = re.compile(r"(\$?\{[^{}]*\})")
_SCHEME = re.compile(r"((?:bearer|basic|token|digest)\s+)?(.*)", re.I | re.DOTALL)
_NO_SECRETS = re.compile(r"true|false|null|none|yes|no|on|off|\d{1,6}|.*[\s|;&`<>$()].*", re.I | re.DOTALL)
"""What is shown whatever it is called: plain words, and what a shell would run. Behind a mask nothing may hide."""


def looks_secret(name: str) -> bool:
    """Whether what goes by this name is likely to be a secret."""
    return _SECRET_NAME.search(name) is not None


def masked(text: str, name: str = "") -> str:
    """A text with what looks like a secret replaced by its length; variables stay.

    Args:
        text: As written.
        name: What it is the value of, where that is known.
    """
    if name and looks_secret(name):
        return "".join(part if _VARIABLE.fullmatch(part) else _hidden(part) for part in _VARIABLE.split(text))
    text = _USERINFO.sub(lambda match: match[0].replace(match[1], masked(match[1], "password")), text)
    text = _PARAMETER.sub(
        lambda match: f"{match[1]}={masked(match[2], match[1])}" if looks_secret(match[1]) else match[0], text
    )
    text = _SECRET_VALUE.sub(lambda match: _dots(match[0]), text)
    return _RANDOM.sub(lambda match: _dots(match[0]), text)


def described(definition: ServerDefinition) -> list[str]:
    """Everything that decides what runs and with which rights, one line each."""
    return [f"{name:<12}{text}" for name, text in _parts(definition)]


def wanted_secrets(definition: ServerDefinition) -> tuple[str, ...]:
    """The kept secrets that it names, each once."""
    return tuple(dict.fromkeys(one.name for one in references(definition) if one.kind == "secret"))


def _parts(definition: ServerDefinition) -> Iterator[tuple[str, str]]:
    if definition.command is not None:
        yield "runs", shlex.join([masked(definition.command), *_arguments(definition.args)])
        yield "in", definition.cwd or definition.source.folder or "a folder of its own"
    if definition.url is not None:
        yield "connects to", f"{masked(definition.url)} ({definition.transport})"
    yield from (("header", f"{name}: {masked(value, name)}") for name, value in definition.headers.items())
    yield from (("variable", f"{name}={masked(value, name)}") for name, value in definition.env.items())
    if definition.env_file is not None:
        yield "variables of", definition.env_file
    if definition.inherit_env:
        names = definition.inherit_env
        yield "inherits", "every variable of this kernel" if names is True else ", ".join(names)
    if definition.auth:
        yield "logs in", _json(definition.auth)
    if definition.auto_approve:
        yield "unasked", f"{', '.join(definition.auto_approve)} (autoApprove: models may call these)"
    for key in ("tools", "hints", "read_only", "inputs", "extra"):
        value = getattr(definition, key)
        if value:
            yield key, _json(value)
    yield from (("gives", _given(one)) for one in references(definition) if one.kind != "place")


def _given(reference: Reference) -> str:
    what = {
        "variable": "this kernel's variable",
        "secret": "your secret",
        "input": "what you are asked for as",
        "unknown": "(not understood)",
    }[reference.kind]
    return f"{what} {reference.name or reference.text} to {reference.where}"


def _arguments(arguments: tuple[str, ...]) -> Iterator[str]:
    """Arguments masked: one behind an option of a telling name, too."""
    before = ""
    for argument in arguments:
        option, equals, value = argument.partition("=")
        if argument.startswith("-") and equals:
            yield f"{option}={masked(value, option)}"
        elif before.startswith("-") and not argument.startswith("-"):
            yield masked(argument, before)
        else:
            yield masked(argument)
        before = "" if equals else argument


def _json(value: object) -> str:
    return json.dumps(_masked_within(value, ""), ensure_ascii=False, default=str)


def _masked_within(value: Any, name: str) -> Any:
    if isinstance(value, str):
        return masked(value, name)
    if isinstance(value, Mapping):
        table = cast("Mapping[str, Any]", value)
        return {key: _masked_within(table[key], key) for key in table}
    if isinstance(value, list | tuple):
        return [_masked_within(item, name) for item in cast("Sequence[Any]", value)]
    return value


def _hidden(text: str) -> str:
    """A literal behind a telling name; `Bearer` before it stays."""
    match = _SCHEME.fullmatch(text)
    assert match is not None  # it matches anything
    secret = match[2]
    return text if not secret.strip() or _NO_SECRETS.fullmatch(secret) else (match[1] or "") + _dots(secret)


def _dots(secret: str) -> str:
    return f"•••• ({len(secret)} characters)"
