"""A definition as the user is shown it before it may run: all of it, and what an agreement to it is bound to.

The literals of a stranger's file are shown as they are: they are no secrets of the user's, and behind a mask could be
what runs. Of the user's own file what looks like a secret is masked.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from ipymcp.config.project_files import binding
from ipymcp.config.secrecy import masked, masked_args
from ipymcp.config.variables import references

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ipymcp.config.definition import ServerDefinition
    from ipymcp.config.variables import Reference

__all__ = ["NOTHING", "bound_to", "described", "wanted_secrets"]

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
