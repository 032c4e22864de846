"""Tool calls of a model: looked up, checked, run in order."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from ipymcp.errors import ArgumentError, CallTimeout, McpError, PolicyError, ServerError, ToolError, UnknownName
from ipymcp.llm.answer import ToolCallOutcome, ToolCallRequest, read_arguments
from ipymcp.llm.functions import HERE, FunctionTool
from ipymcp.llm.providers import PLAIN
from ipymcp.llm.result_text import MAX_LENGTH, as_text, preview
from ipymcp.llm.schemas import restored
from ipymcp.results.tool_result import ToolResult
from ipymcp.security.rules import hints
from ipymcp.security.untrusted import Actor, Conversation, acting, quotes_server, source_of_value
from ipymcp.text import stripped

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable, Mapping

    from ipymcp.interaction.questions import Card
    from ipymcp.llm.providers import Profile
    from ipymcp.llm.tool_selection import ToolSelection
    from ipymcp.runtime.catalog import ToolEntry
    from ipymcp.runtime.session import ServerSession


class ReadWriteLimiter:
    """Lets calls go in the order in which they came. Belongs to one loop.

    Args:
        limit: How many of those that go alone may go at a time.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._alone = 0
        self._together = 0
        self._waiting: deque[tuple[bool, asyncio.Future[None]]] = deque()

    @contextlib.asynccontextmanager
    async def entered(self, *, alone: bool) -> AsyncGenerator[None]:
        """Wait for one's turn, and hold it.

        Args:
            alone: Whether it may change something.
        """
        if self._waiting or not self._is_free(alone):
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append((alone, turn))
            try:
                await turn
            except asyncio.CancelledError:
                if (alone, turn) in self._waiting:
                    self._waiting.remove((alone, turn))
                else:  # its turn had come
                    self._leave(alone)
                self._let_in()
                raise
        else:
            self._enter(alone)
        try:
            yield
        finally:
            self._leave(alone)
            self._let_in()

    def _is_free(self, alone: bool) -> bool:
        return self._alone < self._limit and not self._together if alone else not self._alone

    def _enter(self, alone: bool) -> None:
        self._alone += alone
        self._together += not alone

    def _leave(self, alone: bool) -> None:
        self._alone -= alone
        self._together -= not alone

    def _let_in(self) -> None:
        while self._waiting and self._is_free(self._waiting[0][0]):
            alone, turn = self._waiting.popleft()
            self._enter(alone)
            turn.set_result(None)


_NOTHING: Final = "(it answered nothing)"


class Runner:
    """Makes the calls of one model's answer, on the background loop.

    Calls to different servers run at the same time; those to one server one after the other in the order in which they
    were asked for, unless they only read, or its definition's `concurrency` says more.

    Args:
        selection: What may be called.
        turn: Names the answer, so that one consent may cover all of it.
        conversation: What the answer is a part of; a fresh one by default.
        profile: What the tools were declared to: it may know properties by other names than the tool.
    """

    def __init__(
        self,
        selection: ToolSelection,
        turn: str = "",
        conversation: Conversation | None = None,
        profile: Profile = PLAIN,
    ) -> None:
        self.conversation = conversation or Conversation()
        self._selection = selection
        self._maker = selection.maker
        self._host = selection.maker.host
        self._turn = turn
        self._profile = profile
        self._lanes: dict[str, ReadWriteLimiter] = {}

    async def run_all(self, calls: Iterable[ToolCallRequest]) -> list[ToolCallOutcome]:
        """Make them, and give how each ended, in their order."""
        return list(await asyncio.gather(*(self.run(each) for each in calls)))

    async def run(self, asked: ToolCallRequest, card: Card | None = None) -> ToolCallOutcome:
        """Make one. Whatever goes wrong is for the model to read; only cancelling is raised.

        Args:
            asked: Which.
            card: Shows it.
        """
        try:
            found = self._selection.find(asked.name)
            arguments = read_arguments(asked.arguments)
            if isinstance(found, FunctionTool):
                async with self._lane(HERE).entered(alone=True):
                    return await self._run_function(asked, found, arguments)
            session, entry = found
            renamed = self._maker.declarer.renamed(entry, self._profile)
            only_reads = hints(entry, session.rights).get("readOnlyHint") is True
            async with self._lane(session.name, session.definition.concurrency).entered(alone=not only_reads):
                return await self._run_tool(asked, session, entry, restored(arguments, renamed), card)
        except McpError as error:
            if quotes_server(error) and not isinstance(error, ToolError):  # that is noted by its call
                self.conversation.received(source_of_value(error))
            return ToolCallOutcome(asked, _told(error), is_error=True)
        except Exception as error:  # a fault of ours must not take the answers of the other calls with it
            return ToolCallOutcome(
                asked, stripped(f"Error: {type(error).__name__}: {error}"[:MAX_LENGTH]), is_error=True
            )

    async def _run_tool(
        self,
        asked: ToolCallRequest,
        session: ServerSession,
        entry: ToolEntry,
        arguments: Mapping[str, Any],
        card: Card | None,
    ) -> ToolCallOutcome:
        options = session.call_options.changed(None, None, None, "model", self._turn)
        options = replace(options, conversation=self.conversation, card=card)
        if session.client is None:
            await session.awake()
        call = await asyncio.to_thread(self._maker.prepare, entry, options, arguments)
        try:
            await call.run_on_loop()
        except asyncio.CancelledError:
            call.cancel()
            raise
        return await asyncio.to_thread(lambda: self._read(asked, call.result(), call.number))

    def _lane(self, name: str, limit: int = 1) -> ReadWriteLimiter:
        return self._lanes.setdefault(name, ReadWriteLimiter(limit))

    async def _run_function(
        self, asked: ToolCallRequest, tool: FunctionTool, arguments: Mapping[str, Any]
    ) -> ToolCallOutcome:
        bound = tool.bind(arguments)
        actor = Actor("user", self.conversation, self._turn)
        try:
            value = await self._host.answers.run(_without_argument(tool.function, bound, actor), None)
        except McpError:
            raise
        except Exception as error:  # the user's own function: the model may do something about it
            told = stripped(f"Error: {tool.name} raised {type(error).__name__}: {error}")
            outcome = ToolCallOutcome(asked, told[:MAX_LENGTH], is_error=True, value=error)
        else:
            outcome = await asyncio.to_thread(self._read, asked, value, self._host.number())
        source = source_of_value(outcome.value) or await asyncio.to_thread(self._source_of, outcome.text)
        if source:
            self.conversation.received(source)
        return replace(outcome, value=None) if outcome.is_error else outcome

    def _source_of(self, text: str) -> str:
        return self._host.guard.untrusted.source_of(text)

    def _read(self, asked: ToolCallRequest, value: Any, number: int) -> ToolCallOutcome:
        """What came back, as the model is given it: at most so much text, and the images."""
        text = as_text(value)
        is_result = isinstance(value, ToolResult)
        images = tuple(value.images) if is_result else ()
        if len(text) > MAX_LENGTH:
            self._selection.keep(number, value, value.size if is_result else len(text))
            text = preview(value, text, number)
        text = stripped(text)
        return ToolCallOutcome(asked, text if text.strip() else "" if images else _NOTHING, images, value=value)


class ToolCaller:
    """Makes the calls of another library's loop, one at a time or several.

    Args:
        selection: What may be called.
        conversation: What the calls are a part of.
        turn: Names the answer, where the user does.
        sees_requests: Whether somebody says when the model is asked again (`conversation.given`); else what comes back
            counts as given at once.
    """

    def __init__(
        self,
        selection: ToolSelection,
        conversation: Conversation,
        turn: str = "",
        *,
        sees_requests: bool = False,
    ) -> None:
        self.conversation = conversation
        self._sees_requests = sees_requests
        self._loop = selection.maker.host.loop
        self._runner = Runner(selection, turn, conversation)

    def __call__(self, name: str, arguments: dict[str, Any]) -> ToolCallOutcome:
        """Make one, and wait for it here.

        Raises:
            CallCancelled: This is a thread of the cell's that was interrupted.
        """
        return self._loop.awaiting.threads.run(self._run(name, arguments), name)

    def watched(self) -> ToolCaller:
        """Itself, with interrupts of the main thread ending calls that wait in the threads of a library."""
        self._loop.awaiting.watch_threads(self)
        return self

    async def aio(self, name: str, arguments: dict[str, Any]) -> ToolCallOutcome:
        """Make one, and await it."""
        return await self._loop.arun(self._run(name, arguments))

    async def _run(self, name: str, arguments: dict[str, Any]) -> ToolCallOutcome:
        outcome = await self._runner.run(ToolCallRequest("", name, arguments))
        if not self._sees_requests:
            self.conversation.given()
        return outcome


def _told(error: McpError) -> str:
    """An error for a model: what happened, and what may help it."""
    if isinstance(error, PolicyError):
        return stripped(f"Not done: {error.message}. Do not try it again; go on without it, or ask the user.")
    if isinstance(error, ToolError):
        return stripped(error.result.text[:MAX_LENGTH]) or "The tool failed without a word."
    hint = f" ({error.hint})" if isinstance(error, (ArgumentError, UnknownName)) and error.hint else ""
    kind = "Timed out: " if isinstance(error, CallTimeout) else "Error: "
    if isinstance(error, ServerError):
        kind += f"{error.server}: "
    return stripped(f"{kind}{error.message}{hint}")


def _without_argument(function: Callable[..., Any], bound: Mapping[str, Any], actor: Actor) -> Callable[[Any], Any]:
    if inspect.iscoroutinefunction(function):

        async def awaited(_: object) -> Any:
            with acting(actor):
                return await function(**bound)

        return awaited

    def called(_: object) -> Any:
        with acting(actor):
            return function(**bound)

    return called
