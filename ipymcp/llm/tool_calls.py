"""Execution of a model's tool calls."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections import deque
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from ipymcp.errors import (
    ArgumentError,
    CallCancelled,
    CallTimeout,
    McpError,
    PolicyError,
    ServerError,
    ToolError,
    UnknownName,
)
from ipymcp.llm.answer import ToolCallOutcome, ToolCallRequest, read_arguments
from ipymcp.llm.prompt_values import ValueDescription
from ipymcp.llm.providers import PLAIN
from ipymcp.llm.result_text import MAX_LENGTH, as_text, preview
from ipymcp.llm.schemas import restore_names
from ipymcp.llm.tool_definitions import NOTEBOOK, FunctionTool
from ipymcp.protocol import types
from ipymcp.results.tool_result import ToolResult
from ipymcp.runtime.call_options import CallOptions
from ipymcp.security.rules import hints
from ipymcp.security.untrusted import UNKNOWN, Actor, CallingModel, Conversation, acting, quotes_server, source_of_value
from ipymcp.text import stripped

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Hashable, Iterable, Mapping

    from ipymcp.interaction.questions import Card
    from ipymcp.llm.providers import Profile
    from ipymcp.llm.tool_selection import ToolSelection
    from ipymcp.runtime.catalog import ToolEntry
    from ipymcp.runtime.session import ServerSession


class ReadWriteLimiter:
    """Runs reads concurrently and limits concurrent writes, in the order of arrival; for use on one loop.

    Args:
        limit: Maximum concurrent writes.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._writes = 0
        self._reads = 0
        self._waiting: deque[tuple[bool, asyncio.Future[None]]] = deque()

    @contextlib.asynccontextmanager
    async def entered(self, *, writes: bool) -> AsyncGenerator[None]:
        """Wait until the call may run, and count it as running.

        Args:
            writes: Whether the call may change something.
        """
        if self._waiting or not self._is_free(writes):
            admitted = asyncio.get_running_loop().create_future()
            self._waiting.append((writes, admitted))
            try:
                await admitted
            except asyncio.CancelledError:
                if (writes, admitted) in self._waiting:
                    self._waiting.remove((writes, admitted))
                else:  # admitted and cancelled at the same time
                    self._release(writes)
                self._admit()
                raise
        else:
            self._enter(writes)
        try:
            yield
        finally:
            self._release(writes)
            self._admit()

    def _is_free(self, writes: bool) -> bool:
        return self._writes < self._limit and not self._reads if writes else not self._writes

    def _enter(self, writes: bool) -> None:
        self._writes += writes
        self._reads += not writes

    def _release(self, writes: bool) -> None:
        self._writes -= writes
        self._reads -= not writes

    def _admit(self) -> None:
        while self._waiting and self._is_free(self._waiting[0][0]):
            writes, admitted = self._waiting.popleft()
            self._enter(writes)
            admitted.set_result(None)


_EMPTY: Final = "(empty result)"
_MAX_NAMES: Final = 10
"""Renamed properties in one error."""


class CallOrigin(Struct, frozen=True):
    """The origin of a call, as far as it is known.

    Attributes:
        turn: The answer's name, so that one consent can cover all of its calls.
        model: The model.
        response: An identifier of the model's response with the call; None if it is unknown.
    """

    turn: str = ""
    model: CallingModel = UNKNOWN
    response: Hashable = None


_UNKNOWN: Final = CallOrigin()


def calling_model(model: Any, base_url: str | None = None, cell: int | None = None) -> CallingModel:
    """The name and the provider of a model.

    Args:
        model: `provider:name`, or a model of pydantic-ai.
        base_url: URL of an OpenAI-compatible provider.
        cell: The execution count of the cell with the prompt.
    """
    if isinstance(model, str):
        provider, _, name = model.rpartition(":") if base_url is None else ("", "", model)
    else:
        provider, name = str(getattr(model, "system", "")), str(getattr(model, "model_name", type(model).__name__))
    if base_url is not None:
        provider = urlsplit(base_url).netloc.rpartition("@")[2]
    return CallingModel(name, provider, cell)


class ToolCallRunner:
    """Runs the tool calls of one model's answer, on the background loop.

    Calls to different servers run concurrently. Calls to one server run in the order of the requests, except for
    read-only calls and within the definition's `concurrency`.

    Args:
        selection: The tools that may be called.
        turn: The answer's name, so that one consent can cover all of its calls.
        conversation: The conversation of the answer; a new one by default.
        profile: The provider to which the tools were declared, which determines the renamed properties.
        model: The model.
    """

    def __init__(
        self,
        selection: ToolSelection,
        turn: str = "",
        conversation: Conversation | None = None,
        profile: Profile = PLAIN,
        model: CallingModel = UNKNOWN,
    ) -> None:
        self.conversation = conversation or Conversation()
        self._selection = selection
        self._maker = selection.maker
        self._host = selection.maker.host
        self._origin = CallOrigin(turn, model)
        self._profile = profile
        self._limiters: dict[str, ReadWriteLimiter] = {}

    async def run_all(self, calls: Iterable[ToolCallRequest]) -> list[ToolCallOutcome]:
        """Run calls, and return their outcomes in the same order."""
        return list(await asyncio.gather(*(self.run(each) for each in calls)))

    def only_reads(self, name: str) -> bool:
        """Whether a tool declares that it only reads its server's own data (read-only and closed-world)."""
        found = self.find(name)
        if found is None or isinstance(found, FunctionTool):
            return False
        session, entry = found
        known = hints(entry, session.rights)
        return known.get("readOnlyHint") is True and known.get("openWorldHint") is False

    def find(self, name: str) -> tuple[ServerSession, ToolEntry] | FunctionTool | None:
        """The tool that a call names; None if there is none."""
        try:
            return self._selection.find(name)
        except McpError:
            return None

    def restored(self, entry: ToolEntry, arguments: Any) -> Any:
        """The arguments of a call by the tool's own names."""
        return restore_names(arguments, self._maker.declaration_cache.renamed(entry, self._profile))

    async def run(
        self, request: ToolCallRequest, card: Card | None = None, origin: CallOrigin | None = None
    ) -> ToolCallOutcome:
        """Run one call. Errors become outcomes for the model; only cancellation is raised.

        Args:
            request: The call.
            card: The card that shows the call.
            origin: The call's origin, if it differs from the runner's.
        """
        edited: list[bytes] = []
        outcome = await self._run(request, card, origin or self._origin, edited)
        if edited:
            sent = stripped(edited[-1].decode("utf-8", "replace"))[:MAX_LENGTH]
            note = f"The user changed the arguments of this call. It was made with {sent}."
            outcome = replace(outcome, text=f"{note}\n{outcome.text}")
        return outcome

    async def _run(
        self, request: ToolCallRequest, card: Card | None, origin: CallOrigin, edited: list[bytes]
    ) -> ToolCallOutcome:
        renamed: Mapping[str, str] = {}
        try:
            found = self._selection.find(request.name)
            arguments = read_arguments(request.arguments)
            if isinstance(found, FunctionTool):
                async with self._limiter(NOTEBOOK).entered(writes=True):
                    return await self._run_function(request, found, arguments, card, origin)
            session, entry = found
            renamed = self._maker.declaration_cache.renamed(entry, self._profile)
            only_reads = hints(entry, session.rights).get("readOnlyHint") is True
            async with self._limiter(session.name, session.definition.concurrency).entered(writes=not only_reads):
                return await self._run_tool(
                    request, session, entry, restore_names(arguments, renamed), card, origin, edited
                )
        except McpError as error:
            if quotes_server(error) and not isinstance(
                error, ToolError
            ):  # the call of a ToolError has recorded the source
                self.conversation.received(source_of_value(error))
            is_refused = isinstance(error, PolicyError)
            text = _error_text(error)
            if isinstance(error, ArgumentError):
                text += _declared_names(error.message, renamed)
            return ToolCallOutcome(request, text, is_error=True, is_refused=is_refused)
        except Exception as error:  # a defect in ipymcp must not lose the outcomes of the other calls
            return ToolCallOutcome(
                request, stripped(f"Error: {type(error).__name__}: {error}"[:MAX_LENGTH]), is_error=True
            )

    async def _run_tool(
        self,
        request: ToolCallRequest,
        session: ServerSession,
        entry: ToolEntry,
        arguments: Mapping[str, Any],
        card: Card | None,
        origin: CallOrigin,
        edited: list[bytes],
    ) -> ToolCallOutcome:
        options = session.call_options.changed(None, None, None, "model", origin.turn)
        options = replace(options, model=origin.model, conversation=self.conversation, card=card)
        if session.client is None:
            await session.awake()
        if card is not None:
            card.set_arguments(arguments)
        call = await asyncio.to_thread(self._maker.prepare, entry, options, arguments)
        try:
            await call.run_on_loop()
        except asyncio.CancelledError:
            call.cancel()
            raise
        finally:
            if call.is_edited:
                edited.append(call.arguments)
                if card is not None:
                    card.set_arguments(types.loads(call.arguments))
        return await asyncio.to_thread(lambda: self._read(request, call.result(), call.number))

    def _limiter(self, name: str, limit: int = 1) -> ReadWriteLimiter:
        return self._limiters.setdefault(name, ReadWriteLimiter(limit))

    async def _run_function(
        self,
        request: ToolCallRequest,
        tool: FunctionTool,
        arguments: Mapping[str, Any],
        card: Card | None,
        origin: CallOrigin,
    ) -> ToolCallOutcome:
        bound = tool.bind(arguments)
        options = CallOptions(
            caller="model", turn=origin.turn, model=origin.model, conversation=self.conversation, card=card
        )
        await tool.consent(bound, options)
        if card is not None and not card.begin(b""):
            raise CallCancelled("the answer was stopped")
        actor = Actor("user", self.conversation, origin.turn, origin.model)
        try:
            value = await self._host.client_handlers.run(_bound_function(tool.function, bound, actor), None)
        except McpError:
            raise
        except Exception as error:  # raised by the user's function; the model may work around it
            text = stripped(f"Error: {tool.name} raised {type(error).__name__}: {error}")
            outcome = ToolCallOutcome(request, text[:MAX_LENGTH], is_error=True, value=error)
        else:
            outcome = await asyncio.to_thread(self._read, request, value, self._host.calls.next_number())
        source = source_of_value(outcome.value) or await asyncio.to_thread(
            self._host.guard.untrusted.source_of, outcome.text, has_images=bool(outcome.images)
        )
        if source:
            self.conversation.received(source)
        return replace(outcome, value=None) if outcome.is_error else outcome

    def _read(self, request: ToolCallRequest, value: Any, number: int) -> ToolCallOutcome:
        """Convert a result to an outcome with its images and text, or a preview of long text."""
        is_result = isinstance(value, ToolResult)
        images = tuple(value.images) if is_result else ()
        if isinstance(value, ValueDescription):
            value, images = value.text, value.images
        text = as_text(value)
        if len(text) > MAX_LENGTH:
            self._selection.keep(number, value, value.size if is_result else len(text))
            text = preview(value, text, number)
        text = stripped(text)
        return ToolCallOutcome(request, text if text.strip() else "" if images else _EMPTY, images, value=value)


class ToolCaller:
    """Runs tool calls for another library.

    Args:
        selection: The tools that may be called.
        conversation: The conversation of the calls.
        turn: The name of the answer that all calls belong to, unless the library names the answer.
    """

    def __init__(self, selection: ToolSelection, conversation: Conversation, turn: str) -> None:
        self.conversation = conversation
        self.turn = turn
        self._response: Hashable = None
        self._loop = selection.maker.host.loop
        self._runner = ToolCallRunner(selection, turn, conversation)

    def __call__(self, name: str, arguments: Any, origin: CallOrigin = _UNKNOWN) -> ToolCallOutcome:
        """Run a call, and wait in this thread.

        Raises:
            CallCancelled: The cell of this thread was interrupted.
        """
        return self._loop.awaiting.threads.run(self._run(name, arguments, origin), name)

    def interruptible(self) -> ToolCaller:
        """Let interrupts of the main thread cancel calls in the library's threads, and return this object."""
        self._loop.awaiting.watch_threads(self)
        return self

    async def aio(self, name: str, arguments: Any, origin: CallOrigin = _UNKNOWN) -> ToolCallOutcome:
        """Run a call, and await it."""
        return await self._loop.arun(self._run(name, arguments, origin))

    async def _run(self, name: str, arguments: Any, origin: CallOrigin) -> ToolCallOutcome:
        if (
            origin.response is None or origin.response != self._response
        ):  # the request for this response had all earlier results
            self._response = origin.response
            self.conversation.given()
        origin = replace(origin, turn=origin.turn or self.turn)
        return await self._runner.run(ToolCallRequest("", name, arguments), origin=origin)


def _error_text(error: McpError) -> str:
    """The text of an error for the model, with the hint if the model can use it."""
    if isinstance(error, PolicyError):
        return stripped(f"Not done: {error.message}. Do not try it again; go on without it, or ask the user.")
    if isinstance(error, ToolError):
        return stripped(error.result.text[:MAX_LENGTH]) or "The tool failed without a message."
    hint = f" ({error.hint})" if isinstance(error, (ArgumentError, UnknownName)) and error.hint else ""
    kind = "Timed out: " if isinstance(error, CallTimeout) else "Error: "
    if isinstance(error, ServerError):
        kind += f"{error.server}: "
    return stripped(f"{kind}{error.message}{hint}")


def _declared_names(message: str, renamed: Mapping[str, str]) -> str:
    """A sentence with the names by which the model knows the renamed properties in a message; empty for none."""
    names = [f"{own!r} as {new!r}" for new, own in renamed.items() if own and own in message]
    return stripped(f" You know {', '.join(names[:_MAX_NAMES])}.") if names else ""


def _bound_function(function: Callable[..., Any], bound: Mapping[str, Any], actor: Actor) -> Callable[[Any], Any]:
    if inspect.iscoroutinefunction(function):

        async def awaited(_: object) -> Any:
            with acting(actor):
                return await function(**bound)

        return awaited

    def called(_: object) -> Any:
        with acting(actor):
            return function(**bound)

    return called
