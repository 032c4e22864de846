"""Untrusted content: recognised wherever it appears, and who acts after a model has read it.

A value that came from a server says so itself (`is_untrusted`). A plain text may be a copy: it is compared with what
untrusted sources said lately in this notebook, passage by passage.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from collections import deque
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ipymcp.errors import ArgumentError, CallCancelled, CallError, CallTimeout, PolicyError, ServerError, ServerStopped
from ipymcp.protocol.types import is_object

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from ipymcp.interaction.questions import Caller
    from ipymcp.security.rules import ToolRef


class Conversation:
    """One conversation with a model. It lasts as long as what was said in it is sent to the model again.

    A model is doubted once it has been *given* untrusted content. What came back from calls is only received; it is
    given with the next request to the model.
    """

    def __init__(self) -> None:
        self.taint = ""
        """The reason to doubt what the model wants, as half a sentence; empty while it has read nothing untrusted."""
        self._received = ""

    @property
    def sources(self) -> str:
        """Where the untrusted content is from that has been received or given; empty for nowhere."""
        return self._received

    def received(self, source: str) -> None:
        """Untrusted content came back, which the next request will give the model."""
        self._received = source

    def given(self) -> None:
        """The model is sent a request with all that was received."""
        if self._received:
            self.taint = f"the model has read untrusted content from {self._received}"

    def read(self, source: str) -> None:
        """The model is given untrusted content now."""
        self.received(source)
        self.given()


@dataclass(frozen=True)
class Actor:
    """On whose behalf code of the notebook runs: a model's own code, or a function that a model called.

    Attributes:
        caller: Who makes the calls of this code: the model for its own code, the user for a function of theirs.
        conversation: What the code's calls receive comes back to this conversation.
        turn: Names the model's answer.
        permits: Whether the code may call a tool at all.
    """

    caller: Caller
    conversation: Conversation
    turn: str = ""
    permits: Callable[[ToolRef], bool] = field(default=lambda _: True)


_actor: ContextVar[Actor | None] = ContextVar("ipymcp_actor", default=None)


def current_actor() -> Actor | None:
    """On whose behalf the code that calls this runs; None for the user's own."""
    return _actor.get()


@contextlib.contextmanager
def acting(actor: Actor) -> Generator[None]:
    """Run code on somebody's behalf: in this thread or task, and whatever inherits its context."""
    token = _actor.set(actor)
    try:
        yield
    finally:
        _actor.reset(token)


def refuse_models(what: str) -> None:
    """Refuse what only the user may decide.

    Raises:
        PolicyError: A model's code does it.
    """
    actor = _actor.get()
    if actor is not None and actor.caller == "model":
        raise PolicyError(f"a model's code may not {what}", hint="the user can, in a cell")


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
