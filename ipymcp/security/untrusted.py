"""Detection of untrusted content, and the model on whose behalf code runs.

A value from a server is marked (`is_untrusted`). A plain string may be a copy: its passages are compared with the
recent content of untrusted sources in this notebook.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
import json
import re
import threading
import weakref
from collections import deque
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from ipymcp.errors import ArgumentError, CallCancelled, CallError, CallTimeout, PolicyError, ServerError, ServerStopped
from ipymcp.protocol.types import is_object

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from types import CodeType, FrameType

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
        is_assumed: Whether the code has no known actor, and counts as the model's because it may be.
    """

    caller: Caller
    conversation: Conversation
    turn: str = ""
    model: CallingModel = UNKNOWN
    permits: Callable[[ToolRef], bool] = lambda _: True
    is_assumed: bool = False


ASSUMED: Final = (
    "it comes from a thread or callback, not from a cell; since a model's code has run here, it counts as the model's"
)
"""The reason why an assumed actor's call is a model's."""
_USER: Final = Actor("user", Conversation())
"""Marks the contexts and threads of the user's own code, such as those of cells, where None says that no one knows."""
_actor: ContextVar[Actor | None] = ContextVar("ipymcp_actor", default=None)


class _Thread(threading.local):
    actor: Actor | None = None
    """The actor of code in this thread that runs in a context without one, which the code may choose."""


_thread: Final = _Thread()


class ModelsCode:
    """The code of models that has run in this process, which may have left threads, callbacks and finalizers."""

    def __init__(self) -> None:
        self.actor: Actor | None = None
        """The actor of calls whose context has none, and of callbacks; None until a model's code runs."""
        self.has_cells = False
        """Whether the user's code runs in cells; else, in the main thread."""
        finalize: Any = weakref.finalize
        self.deferring: set[CodeType] = {finalize.__call__.__code__}
        """The functions that call callbacks, in whatever context they are called themselves."""

    def begin(self, actor: Actor) -> None:
        """Count calls whose context has no actor as those of a model whose code begins to run.

        The doubt of a model whose code has run before stays, because such a call may be that code's.
        """
        before = self.actor
        if before is None:
            begin_cell()  # the code runs in the context in which the user waits for it
        conversation = before.conversation if before is not None and before.conversation.taint else actor.conversation
        self.actor = replace(actor, conversation=conversation, is_assumed=True)

    def is_callback(self) -> bool:
        """Whether the running code was called by a finalizer, or by one of IPython's events."""
        return _is_called_by(lambda code: code in self.deferring or code.co_name == "__del__")


models_code: Final = ModelsCode()


def current_actor() -> Actor | None:
    """Return the actor of the running code; None for the user's own code."""
    actor = _actor.get()
    if actor is None or actor is _USER:  # a model's code can choose the context, but not the thread
        actor = _thread.actor or actor
    assumed = models_code.actor
    if assumed is not None:
        is_main = threading.current_thread() is threading.main_thread()
        if actor is None and (models_code.has_cells or not is_main):
            return assumed
        if (actor is None or actor is _USER) and models_code.is_callback():
            return assumed
    return None if actor is _USER else actor


@contextlib.contextmanager
def acting(actor: Actor | None) -> Generator[None]:
    """Context manager for running code on behalf of an actor, in this context and those copied from it.

    Args:
        actor: The actor; None for the user.
    """
    token = _actor.set(actor or _USER)
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


def begin_thread_of_user() -> None:
    """Count the code of this thread as the user's, unless its context has another actor."""
    _thread.actor = _USER


def mark_cells(shell: Any) -> None:
    """Let the code of cells count as the user's, also that of the cell that runs now.

    Args:
        shell: The IPython shell.
    """
    models_code.has_cells = True
    models_code.deferring.add(shell.events.trigger.__code__)
    shell.events.register("pre_execute", begin_cell)
    shell.events.register("post_execute", end_cell)
    if asyncio._get_running_loop() is not None:  # else the shell starts, and its context is that of everything later
        begin_cell()


def begin_cell() -> None:
    """Count the code of a cell as the user's, in its context and those copied from it."""
    thread = threading.current_thread()
    is_subshell = type(thread).__module__.partition(".")[0] == "ipykernel"
    if _actor.get() is None and (is_subshell or thread is threading.main_thread()):
        _actor.set(_USER)


def end_cell() -> None:
    """Undo `begin_cell`, because the context of a cell may be the kernel's, in which callbacks run as well."""
    if _actor.get() is _USER and not _is_called_by(lambda code: code.co_name == "run_cell_async"):  # of an outer cell
        _actor.set(None)


def _is_called_by(matches: Callable[[CodeType], bool]) -> bool:
    """Whether a function whose code matches is among the callers of the running one."""
    frame: FrameType | None = inspect.currentframe()
    while frame is not None:
        if matches(frame.f_code):
            return True
        frame = frame.f_back
    return False


def refuse_models(what: str) -> None:
    """Refuse a decision that is reserved to the user.

    Args:
        what: The refused action, for the message.

    Raises:
        PolicyError: The running code is a model's.
    """
    actor = current_actor()
    if actor is not None and actor.caller == "model":
        why = f" ({ASSUMED})" if actor.is_assumed else ""
        raise PolicyError(f"a model's code may not {what}", hint=f"the user can, in a cell{why}")


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
        # The JSON of an image, or an escaped letter, which may be one of its words.
        has_image = (_IMAGE_VALUE.search(content) and _IMAGE.search(content)) or _ESCAPED_LETTER.search(content)
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


def _texts(content: bytes) -> Iterator[list[str]]:
    """Yield the words of each string in a content."""
    text = content.decode("utf-8", "replace")
    if not text.lstrip().startswith(("{", "[")):
        yield _WORD.findall(text.casefold())
        return
    for string in _STRING.finditer(text):
        inner = string[1]
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
        item = left.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        kind: Any = item.__class__
        if isinstance(getattr(kind, "is_untrusted", None), bool):
            if item.is_untrusted:
                return str(item.source)
        elif isinstance(item, BaseException):
            if quotes_server(item):
                return f"an error of {getattr(item, 'where', '') or 'a server'}"
            left += [item.__cause__, item.__context__, *item.args]
        elif is_object(item):
            left += itertools.chain(*itertools.islice(item.items(), _MAX_VALUES))
        elif issubclass(kind, (list, tuple, set, frozenset)):
            left += itertools.islice(item, _MAX_VALUES)
    return ""


def quotes_server(error: BaseException) -> bool:
    """Whether an error's message may quote a server's response or output."""
    if isinstance(error, ServerStopped):
        return bool(error.stderr)
    ours = (ArgumentError, CallCancelled, CallTimeout, PolicyError)
    return isinstance(error, (CallError, ServerError)) and not isinstance(error, ours)
