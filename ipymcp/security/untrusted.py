"""Detection of untrusted content, and the model on whose behalf code runs.

A value from a server is marked (`is_untrusted`). A plain string may be a copy: its passages are compared with the
recent content of untrusted sources in this notebook.
"""

from __future__ import annotations

import _thread as _thread_module
import contextlib
import itertools
import json
import re
import threading
import weakref
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from functools import cache, partial, update_wrapper, wraps
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from ipymcp.errors import ArgumentError, CallCancelled, CallError, CallTimeout, PolicyError, ServerError, ServerStopped
from ipymcp.protocol.types import is_object

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from ipymcp.interaction.questions import Caller
    from ipymcp.security.rules import ToolRef


class Conversation:
    """A conversation with a model, and its taint by untrusted content.

    Results of calls are first *received*; the next request *gives* them to the model, which taints the conversation.
    """

    def __init__(self) -> None:
        self.taint = ""
        """Reason to distrust the model's requests, as a clause; empty while it has read nothing untrusted."""
        self._received = ""

    @property
    def sources(self) -> str:
        """Source of the untrusted content that was received or given; empty for none."""
        return self._received

    def received(self, source: str) -> None:
        """Record untrusted content that the next request will give to the model."""
        self._received = source

    def given(self) -> None:
        """Record a request to the model, which gives it all received content."""
        if self._received:
            self.taint = f"the model has read untrusted content from {self._received}"

    def read(self, source: str) -> None:
        """Record untrusted content that is given to the model now."""
        self.received(source)
        self.given()


class CallingModel(Struct, frozen=True):
    """The model that makes or causes a call, as far as it is known.

    Attributes:
        name: The model's name.
        provider: The model's provider.
        cell: The execution count of the cell with the prompt.
    """

    name: str = ""
    provider: str = ""
    cell: int | None = None


UNKNOWN: Final = CallingModel()
"""No model, or one that is not known."""


class Actor(Struct, frozen=True):
    """The model on whose behalf notebook code runs: its own code, or a function that it called.

    Attributes:
        caller: The caller of the code's tool calls: the model for its own code, the user for the user's function.
        conversation: The conversation that receives the results of these calls.
        turn: Identifier of the model answer.
        model: The model.
        permits: Returns whether the code may call a tool.
    """

    caller: Caller
    conversation: Conversation
    turn: str = ""
    model: CallingModel = UNKNOWN
    permits: Callable[[ToolRef], bool] = lambda _: True


_actor: ContextVar[Actor | None] = ContextVar("ipymcp_actor", default=None)


class _Thread(threading.local):
    actor: Actor | None = None
    """The actor whose synchronous code this thread runs; the code may choose an empty context."""


_thread: Final = _Thread()


def current_actor() -> Actor | None:
    """Return the actor of the running code; None for the user's own code."""
    return _actor.get() or _thread.actor


@contextlib.contextmanager
def acting(actor: Actor | None) -> Generator[None]:
    """Context manager for running code on behalf of an actor, in this context and those copied from it."""
    token = _actor.set(actor)
    try:
        yield
    finally:
        _actor.reset(token)


@contextlib.contextmanager
def acting_in_thread(actor: Actor | None) -> Generator[None]:
    """Context manager for running synchronous code on behalf of an actor, in any context that it chooses."""
    before, _thread.actor = _thread.actor, actor
    try:
        with acting(actor):
            yield
    finally:
        _thread.actor = before


def copy_actor_to_context() -> contextlib.AbstractContextManager[None]:
    """Context manager for starting work elsewhere, which gets a copy of this context."""
    return acting(current_actor())


class _Callback:
    """A callback that runs on behalf of the actor that registered it, and equals the original.

    Args:
        function: The callback.
        actor: The actor.
    """

    def __init__(self, function: Callable[..., Any], actor: Actor) -> None:
        update_wrapper(self, function)
        self._function = function
        self._actor = actor

    def __call__(self, *args: Any, **options: Any) -> Any:
        with acting_in_thread(self._actor):
            return self._function(*args, **options)

    def __eq__(self, other: object) -> bool:
        return self._function == (other._function if isinstance(other, _Callback) else other)

    def __hash__(self) -> int:
        return hash(self._function)

    def __repr__(self) -> str:
        return repr(self._function)


@cache
def inherit_actor() -> None:
    """Let threads, the work of thread pools, and finalizers run on behalf of the actor that starts or registers them.

    Otherwise a new thread has an empty context, and a thread of a pool has the context of its first work. This is never
    undone, because tasks of a model's code may start threads after the code has ended.
    """
    start, submit = threading.Thread.start, ThreadPoolExecutor.submit

    def start_in_context(thread: threading.Thread) -> None:
        actor = current_actor()
        if actor is not None:
            thread.run = _in_context(thread.run, actor)  # type: ignore[method-assign]
        start(thread)

    def submit_in_context(pool: ThreadPoolExecutor, work: Callable[..., Any], /, *args: Any, **options: Any) -> Any:
        actor = current_actor()
        if actor is None:
            return submit(pool, work, *args, **options)
        with acting_in_thread(None):  # new threads of the pool will also run work of other callers
            return submit(pool, _in_context(work, actor), *args, **options)

    threading.Thread.start = start_in_context  # type: ignore[method-assign]
    ThreadPoolExecutor.submit = submit_in_context  # type: ignore[method-assign]
    for name in ("start_new_thread", "start_new", "start_joinable_thread"):
        if hasattr(_thread_module, name):
            _inherit_in_callback(_thread_module, name, 0, "function")
    _inherit_in_callback(weakref.finalize, "__init__", 2, "func")


@cache
def inherit_actor_in_events(manager: type[Any]) -> None:
    """Let callbacks of IPython's events run on behalf of the actor that registers them, from now on.

    Args:
        manager: The class of `get_ipython().events`.
    """
    _inherit_in_callback(manager, "register", 2, "function")


def _in_context(work: Callable[..., Any], actor: Actor) -> Callable[..., Any]:
    context = copy_context()
    context.run(_actor.set, actor)
    return partial(context.run, work)


def _inherit_in_callback(owner: Any, name: str, position: int, keyword: str) -> None:
    """Replace a function that registers a callback, so that the callback keeps the actor that registers it.

    Args:
        owner: The module or class of the function.
        name: The function's name.
        position: The position of the callback among the arguments.
        keyword: The name of the callback's parameter.
    """
    register: Callable[..., Any] = getattr(owner, name)

    @wraps(register)
    def register_for_actor(*args: Any, **options: Any) -> Any:
        actor = current_actor()
        if actor is not None:
            if len(args) > position and callable(args[position]):
                args = (*args[:position], _Callback(args[position], actor), *args[position + 1 :])
            elif callable(options.get(keyword)):
                options[keyword] = _Callback(options[keyword], actor)
        return register(*args, **options)

    setattr(owner, name, register_for_actor)


def refuse_models(what: str) -> None:
    """Refuse a decision that is reserved to the user.

    Args:
        what: The refused action, for the message.

    Raises:
        PolicyError: The running code is a model's.
    """
    actor = current_actor()
    if actor is not None and actor.caller == "model":
        raise PolicyError(f"a model's code may not {what}", hint="the user can, in a cell")


_MIN_KEPT: Final = 64
"""Number of contents that are kept regardless of their size."""
_MAX_KEPT_BYTES: Final = 4_000_000
"""Maximum size of the kept contents if there are more; a map adds one per row."""
_ENTRY_BYTES: Final = 200
"""Size of an entry in addition to its content."""
_MAX_BYTES: Final = 1_000_000
"""Number of bytes at the beginning of each content that are compared."""
_PASSAGE: Final = 5
"""Number of words per passage."""
_MIN_WORD_BYTES: Final = 16
"""Minimum length of a single word that is compared."""
_IMAGE: Final = re.compile(rb'"(?:type|mimeType)"\s*:\s*"image')
_IMAGE_VALUE: Final = re.compile(rb'"image')
"""Searched before `_IMAGE`: ten times as fast, because it begins with a literal and has no alternatives."""
_ESCAPED_LETTER: Final = re.compile(rb"\\u00[4-7]")
_WORD: Final = re.compile(r"\w+")
_STRING: Final = re.compile(r'"((?:[^"\\]|\\.)*+)(?:"|\\?\Z)', re.DOTALL)
_MAX_VALUES: Final = 10_000


class UntrustedContent:
    """Recent content of untrusted sources. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._contents: deque[tuple[str, bytes]] = deque()
        self._bytes = 0
        self._image_source = ""
        """Source of the last content with an image. An image is compared with nothing: a copy may have other bytes."""

    def add(self, source: str, content: bytes | memoryview) -> None:
        """Add content of a source, such as `server.tool`; the content is JSON or UTF-8 text."""
        kept = bytes(content[:_MAX_BYTES])
        has_image = _has_image(content)
        with self._lock:
            if has_image:
                self._image_source = source
            self._contents.append((source, kept))
            self._bytes += len(kept) + _ENTRY_BYTES
            while len(self._contents) > _MIN_KEPT and self._bytes > _MAX_KEPT_BYTES:
                self._bytes -= len(self._contents.popleft()[1]) + _ENTRY_BYTES

    def source_of(self, text: str, *, has_images: bool = False) -> str:
        """Return the source of untrusted content from which a string has a passage, or the empty string.

        Args:
            text: The string.
            has_images: Whether images belong to it, each of which may be that of an untrusted source.
        """
        if has_images and self._image_source:
            return self._image_source
        contents = [*self._contents]
        if not contents or not text:
            return ""
        words = _WORD.findall(text.casefold())
        passages = {tuple(words[start : start + _PASSAGE]) for start in range(len(words))}
        joined = f" {' '.join(words)} "
        for source, content in reversed(contents):
            if any(_is_in(string, passages, joined) for string in _texts(content)):
                return source
        return ""


def _has_image(content: bytes | memoryview) -> bool:
    """Whether a content may have an image: the JSON of one, or an escaped letter, which may be one of its words."""
    return bool((_IMAGE_VALUE.search(content) and _IMAGE.search(content)) or _ESCAPED_LETTER.search(content))


def _texts(content: bytes) -> Iterator[list[str]]:
    """Yield the words of each string in a content."""
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
        if inner.lstrip().startswith(("{", "[")):  # JSON within a string
            yield from _texts(inner.encode("utf-8", "replace"))
        yield _WORD.findall(inner.casefold())


def _is_in(words: list[str], passages: set[tuple[str, ...]], joined: str) -> bool:
    if len(words) == 1:  # a sentence of a script without spaces, or words joined by underscores
        return len(words[0].encode()) >= _MIN_WORD_BYTES and words[0] in joined
    if len(words) < _PASSAGE:
        return bool(words) and f" {' '.join(words)} " in joined
    return any(tuple(words[start : start + _PASSAGE]) in passages for start in range(len(words) - _PASSAGE + 1))


def source_of_value(value: object) -> str:
    """Return the untrusted source that a value, or a value inside it, is marked with, or the empty string."""
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
            left += [one.__cause__, one.__context__, *one.args]
        elif is_object(one):
            left += itertools.chain(*itertools.islice(one.items(), _MAX_VALUES))
        elif issubclass(kind, (list, tuple, set, frozenset)):
            left += itertools.islice(one, _MAX_VALUES)
    return ""


def quotes_server(error: BaseException) -> bool:
    """Whether an error's message may quote a server's response or output."""
    if isinstance(error, ServerStopped):
        return bool(error.stderr)
    ours = (ArgumentError, CallCancelled, CallTimeout, PolicyError)
    return isinstance(error, (CallError, ServerError)) and not isinstance(error, ours)
