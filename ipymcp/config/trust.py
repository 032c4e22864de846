"""A definition as the user is shown it before it may run: all of it, with what looks like a secret masked."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from ipymcp.config.secrecy import masked, masked_args
from ipymcp.config.variables import references

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ipymcp.config.definition import ServerDefinition
    from ipymcp.config.variables import Reference

__all__ = ["described", "wanted_secrets"]


def described(definition: ServerDefinition) -> list[str]:
    """Everything that decides what runs and with which rights, one line each."""
    return [f"{name:<12}{text}" for name, text in _parts(definition)]


def wanted_secrets(definition: ServerDefinition) -> tuple[str, ...]:
    """The kept secrets that it names, each once."""
    return tuple(dict.fromkeys(one.name for one in references(definition) if one.kind == "secret"))


def _parts(definition: ServerDefinition) -> Iterator[tuple[str, str]]:
    if definition.command is not None:
        yield "runs", shlex.join([definition.command, *masked_args(definition.args)])
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
