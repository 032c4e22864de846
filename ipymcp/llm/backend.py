"""What stands between a question and a library that talks to models: a driver makes one answer, call by call."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from msgspec import Struct

from ipymcp.argument_checks import COUNT, SECONDS
from ipymcp.errors import McpError
from ipymcp.results.tables import Table

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from ipymcp.llm.answer import ToolCallOutcome, Usage
    from ipymcp.llm.prompting import Attached
    from ipymcp.llm.providers import Declaration
    from ipymcp.runtime.loop import BackgroundLoop
    from ipymcp.runtime.server_requests import SamplingRequest


T = TypeVar("T")


def _ignored(_: object) -> None: ...


class Limits(Struct, frozen=True):
    """How far one answer may go."""

    rounds: int = 25
    """Requests to the model."""
    calls: int = 100
    tokens: int = 1_000_000
    """In and out, all requests together."""
    seconds: float = 900.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            (SECONDS if name == "seconds" else COUNT).check("Limits()", name, getattr(self, name))

    def twice(self, name: str) -> str:
        """How a question is given twice as much of one of these, in Python; `%mcp ask` has options of these names."""
        value = 2 * getattr(self, name)
        shown = f"{value:g}" if name == "seconds" else value
        return f"limits=ipymcp.Limits({name}={shown})"


class Question(Struct, frozen=True):
    """All that a driver needs.

    Attributes:
        model: `provider:name`, or what the driver's library takes as a model.
        base_url: An address that speaks Chat Completions, where that is the provider.
        prompt: The user's, filled.
        system: What the model is told before it.
        history: The conversation so far, as this driver left it.
        returns: A type or a JSON Schema that the answer has to fit; None for text.
        limits: How far it may go.
        declared: Gives the tools, read anew at each round.
        call: Makes a call; whatever goes wrong is in the outcome.
        said: Is given the text as it comes.
        stopped: Is given what there is of an answer that ends early, before the error is raised; not called where
            nothing was said or done.
    """

    model: Any
    base_url: str | None
    prompt: str
    system: str
    history: Sequence[Any]
    returns: Any
    limits: Limits
    declared: Callable[[], Sequence[Declaration]]
    call: Callable[[str, dict[str, Any]], Awaitable[ToolCallOutcome]]
    said: Callable[[str], None]
    stopped: Callable[[ModelResponse], None] = _ignored


class ModelResponse(Struct, frozen=True):
    """How it ended."""

    text: str
    data: Any
    history: list[Any]
    """The conversation with this answer, for the next question."""
    messages: list[Any]
    """The same as JSON."""
    usage: Usage
    reason: str = ""
    """Why the model stopped, as far as the provider says: `stop`, `length`, `content_filter`, …"""


class ModelBackend(Protocol):
    """Makes answers."""

    async def answer(self, question: Question) -> ModelResponse:
        """Have a model answer. Cancelling stops it.

        Raises:
            McpError: It cannot: no such model, no key, a limit, the provider is down.
        """
        ...

    async def sample(self, model: Any, request: SamplingRequest) -> tuple[dict[str, Any], int]:
        """Have a model answer a server: one request, without tools of ours.

        Returns:
            The result of `sampling/createMessage`, and the tokens it cost.

        Raises:
            McpError: As `answer`.
        """
        ...


class Clock:
    """Runs a driver for so many seconds at most, without those that it is paused for.

    On the loop of the user's own coroutines: a provider's library may be slow there. Paused from the background loop.

    Args:
        loop: That loop.
        seconds: How long.
        hint: What to do where that is not enough.
    """

    def __init__(self, loop: BackgroundLoop, seconds: float, hint: str | None = None) -> None:
        self._loop = loop
        self._hint = hint
        self._seconds = self._left = seconds
        self._timeout: asyncio.Timeout | None = None
        self._pauses = 0

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run it, awaited on any loop.

        Raises:
            McpError: It took longer.
        """
        try:
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._run(coroutine), self._loop.loop))
        except TimeoutError as error:
            raise McpError(f"no answer within {self._seconds:g} s", hint=self._hint) from error

    async def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        try:
            async with asyncio.timeout(self._left) as self._timeout:
                return await coroutine
        finally:
            self._timeout = None

    def pause(self) -> None:
        """Let it stand still, once more."""
        self._loop.call(self._pause)

    def go_on(self) -> None:
        """Undo one pause."""
        self._loop.call(self._go_on)

    def _pause(self) -> None:
        self._pauses += 1
        due = self._timeout.when() if self._timeout is not None else None
        if self._timeout is not None and due is not None and not self._timeout.expired():
            self._left = due - asyncio.get_running_loop().time()
            self._timeout.reschedule(None)

    def _go_on(self) -> None:
        self._pauses -= 1
        if self._timeout is not None and not self._pauses and not self._timeout.expired():
            self._timeout.reschedule(asyncio.get_running_loop().time() + self._left)


_MAX_SERVERS: Final = 6
"""Those that are named in one line."""


class RequestPreview(Struct, frozen=True):
    """What is sent, before it is."""

    model: str
    prompt: str
    system: str
    attached: tuple[Attached, ...]
    names: dict[str, str]
    """The tools, as the model calls them: `{server__tool: server.tool}`."""
    tokens: int
    """About how many the tools cost in each request."""
    chat: str
    searches: bool = False
    """Whether it is given a search over the tools instead of them."""
    source: str = ""
    """The untrusted source that some of this is from; empty where none is known."""

    def __str__(self) -> str:
        count = len(self.names)
        to_find = " to search" if self.searches else ""
        words = f"{count:,} tool{'' if count == 1 else 's'} of {self._servers}{to_find}"
        tools = f"{words}, about {self.tokens:,} tokens" if count else "no tools"
        attached = "".join(f" · ${one.name}: {one.what}" for one in self.attached)
        chat = f" · chat {self.chat!r}" if self.chat else ""
        source = f" · untrusted content from {self.source}" if self.source else ""
        return f"{self.model} · {tools}{chat}{attached}{source}"

    @property
    def _servers(self) -> str:
        names = list(dict.fromkeys(tool.partition(".")[0] for tool in self.names.values()))
        rest = f" and {len(names) - _MAX_SERVERS} more" if len(names) > _MAX_SERVERS else ""
        return ", ".join(names[:_MAX_SERVERS]) + rest

    @property
    def table(self) -> Table:
        """A row for each part of it."""
        rows = [("system", self.system), ("prompt", self.prompt)]
        rows += [("tool", f"{name} ({tool})") for name, tool in self.names.items()]
        return Table(("part", "what"), rows, title=str(self), note="nothing was sent")
