"""Untrusted content: what servers said that may hold anybody's words, recognised wherever a model is given it again.

A value that came from a server says so itself (`is_untrusted`). A plain text may be a copy: it is compared with what
untrusted sources said lately in this notebook, passage by passage.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from ipymcp.errors import (
    ArgumentError,
    CallCancelled,
    CallError,
    CallTimeout,
    PolicyError,
    ServerError,
    ServerStopped,
)
from ipymcp.protocol.jsontypes import is_object

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["UntrustedContent", "quotes_server", "source_of_value"]

_MAX_SOURCES: Final = 64
_MAX_BYTES: Final = 1_000_000
"""What is compared of one source's content: its beginning."""
_PASSAGE: Final = 5
"""Words in a row that make a passage."""
_MIN_WORDS: Final = 2
_WORD: Final = re.compile(r"\w+")
_STRING: Final = re.compile(r'"((?:[^"\\]|\\.)*)"')
_MAX_VALUES: Final = 10_000


class UntrustedContent:
    """What untrusted sources said lately. Contents are added from any thread."""

    def __init__(self) -> None:
        self._contents: deque[tuple[str, bytes]] = deque(maxlen=_MAX_SOURCES)

    def add(self, source: str, content: bytes | memoryview) -> None:
        """Remember what a source said.

        Args:
            source: `server.tool`, or what else names it.
            content: JSON, or text in UTF-8.
        """
        self._contents.append((source, bytes(content[:_MAX_BYTES])))

    def source_of(self, text: str) -> str:
        """The source that a passage of a text is from; empty where none is known."""
        contents = [*self._contents]
        if not contents or not text:
            return ""
        words = _WORD.findall(text.casefold())
        passages = {tuple(words[start : start + _PASSAGE]) for start in range(len(words))}
        joined = f" {' '.join(words)} "
        for source, content in reversed(contents):
            if any(_is_in(said, passages, joined) for said in _texts(content)):
                return source
        return ""


def _texts(content: bytes) -> Iterator[list[str]]:
    """The words of each string in a content."""
    text = content.decode("utf-8", "replace")
    if not text.lstrip().startswith(("{", "[")):
        yield _WORD.findall(text.casefold())
        return
    for found in _STRING.finditer(text):
        inner = found[1]
        if "\\" in inner:
            try:
                inner = json.loads(f'"{inner}"', strict=False)
            except ValueError:
                inner = inner.replace("\\", " ")
        if inner.lstrip().startswith(("{", "[")):  # JSON within a text
            yield from _texts(inner.encode("utf-8", "replace"))
        yield _WORD.findall(inner.casefold())


def _is_in(said: list[str], passages: set[tuple[str, ...]], joined: str) -> bool:
    if len(said) < _PASSAGE:
        return len(said) >= _MIN_WORDS and f" {' '.join(said)} " in joined
    return any(tuple(said[start : start + _PASSAGE]) in passages for start in range(len(said) - _PASSAGE + 1))


def source_of_value(value: object) -> str:
    """The untrusted source that a value, or something in it, says it is from; empty for none."""
    left: list[Any] = [value]
    seen: set[int] = set()
    for _ in range(10 * _MAX_VALUES):
        if not left or len(seen) >= _MAX_VALUES:
            break
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        kind: Any = one.__class__
        if isinstance(getattr(kind, "is_untrusted", None), bool):
            if one.is_untrusted:
                return str(one.source)
        elif isinstance(one, BaseException):
            if quotes_server(one):
                return f"an error of {getattr(one, 'where', '') or 'a server'}"
            left += [one.__cause__, *one.args]
        elif is_object(one):
            left += itertools.chain(*itertools.islice(one.items(), _MAX_VALUES))
        elif issubclass(kind, (list, tuple, set, frozenset)):
            left += itertools.islice(one, _MAX_VALUES)
    return ""


def quotes_server(error: BaseException) -> bool:
    """Whether an error may quote its server: what that answered, or what it last wrote. The rest are our own words."""
    if isinstance(error, ServerStopped):
        return bool(error.stderr)
    ours = (ArgumentError, CallCancelled, CallTimeout, PolicyError)
    return isinstance(error, (CallError, ServerError)) and not isinstance(error, ours)
