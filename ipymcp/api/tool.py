"""One tool as a Python function: called, awaited, submitted, inspected.

IPython, jedi and `inspect` read signatures and docstrings from the class, so each tool gets its own class, made at the
first attribute access; ten thousand tools in a catalog cost nothing until then.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, overload

from msgspec.structs import replace

from ipymcp.argument_checks import FLAG, FUNCTION, MAPPING, SECONDS, TEXT, checked, one_of, shown
from ipymcp.errors import ArgumentError, CallError, ToolError, UnknownName
from ipymcp.masking import mask
from ipymcp.names import expression
from ipymcp.protocol import types
from ipymcp.protocol.types import is_object
from ipymcp.results.stored_results import KeptResults
from ipymcp.results.tables import NotPicklable
from ipymcp.results.tool_result import ToolResult
from ipymcp.schema.dynamic_class import callable_subclass
from ipymcp.security.rules import CALLERS
from ipymcp.security.untrusted import Conversation

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from inspect import Signature

    from msgspec import Raw

    from ipymcp.interaction.questions import Caller
    from ipymcp.llm.tool_definitions import DeclarationCache
    from ipymcp.protocol.types import Progress
    from ipymcp.runtime.call import Call, CallOptions
    from ipymcp.runtime.catalog import ToolEntry
    from ipymcp.runtime.host import Host
    from ipymcp.runtime.session import ServerSession
    from ipymcp.schema.tool_schema import ToolSchema


_MAX_ABOUT = 100
_MAX_MESSAGE = 300
_OPTIONS = frozenset({"timeout", "on_progress", "as_task", "caller", "turn"})
"""The arguments of `.options`."""


class ToolFactory:
    """Makes the tools of one host and caches their schemas and classes.

    Args:
        host: The host that runs the calls.
    """

    def __init__(self, host: Host) -> None:
        self.host = host
        self.results = KeptResults()
        """The results that were shown in part."""
        self.for_models: set[int] = set()
        """The numbers of the results of which a model outside `mcp.ask` was given a part."""
        self._declarer: DeclarationCache | None = None
        self._conversations: dict[Hashable, Conversation] = {}
        self._schemas: dict[tuple[str, str], tuple[ToolEntry, ToolSchema]] = {}
        self._made: dict[tuple[str, str], tuple[ToolEntry, Tool, AsyncTool]] = {}

    def conversation(self, key: Hashable) -> Conversation:
        """The conversation with a model outside `mcp.ask`, by its name or by the selection of tools."""
        return self._conversations.setdefault(key, Conversation())

    @property
    def declarer(self) -> DeclarationCache:
        """The cache of tool declarations for model providers."""
        if self._declarer is None:
            from ipymcp.llm.tool_definitions import DeclarationCache

            self._declarer = DeclarationCache()
        return self._declarer

    def schema(self, entry: ToolEntry) -> ToolSchema:
        """The input schema of a tool."""
        key = (entry.server, entry.name)
        known = self._schemas.get(key)
        if known is None or known[0] is not entry:
            from ipymcp.schema.tool_schema import ToolSchema

            known = (entry, ToolSchema(bytes(entry.definition.inputSchema), server=entry.server, tool=entry.name))
            self._schemas[key] = known
        return known[1]

    def tool(self, entry: ToolEntry, options: CallOptions | None = None) -> Tool:
        """The tool object of a catalog entry, with its own signature and docstring."""
        usual = self._both(entry)[1]
        return usual if options is None else type(usual)(self, entry.server, entry.name, options)

    def async_tool(self, entry: ToolEntry, options: CallOptions | None = None) -> AsyncTool:
        """The awaitable variant of a tool."""
        usual = self._both(entry)[2]
        return usual if options is None else type(usual)(self, entry.server, entry.name, options)

    def signature(self, entry: ToolEntry) -> Signature:
        """The Python signature of a tool."""
        return self.tool(entry).__signature__

    def schema_of(self, tool: Tool) -> ToolSchema:
        """The input schema of a tool that the user has."""
        return self.schema(tool._entry())  # pyright: ignore[reportPrivateUsage]

    def options_of(self, tool: Tool, session: ServerSession) -> CallOptions:
        """The options that a call of this tool has."""
        return tool._call_options(session)  # pyright: ignore[reportPrivateUsage]

    def checked_call(self, session: ServerSession, entry: ToolEntry, arguments: Mapping[str, Any]) -> Call[ToolResult]:
        """A call with arguments that have been checked."""
        return self.tool(entry)._new_call(session, entry, arguments)  # pyright: ignore[reportPrivateUsage]

    def prepare(self, entry: ToolEntry, options: CallOptions, arguments: Mapping[str, Any]) -> Call[ToolResult]:
        """Prepare a call of a tool.

        Raises:
            ArgumentError: The arguments are invalid.
        """
        return self.tool(entry, options)._prepare_mapping(arguments)  # pyright: ignore[reportPrivateUsage]

    def _both(self, entry: ToolEntry) -> tuple[ToolEntry, Tool, AsyncTool]:
        key = (entry.server, entry.name)
        known = self._made.get(key)
        if known is None or known[0] is not entry:
            schema = self.schema(entry)
            text = _describe(entry, schema)
            where = f"mcp.{entry.server}"
            tool = callable_subclass(Tool, entry.alias, where, schema.signature, text)(self, *key)
            async_tool = callable_subclass(AsyncTool, entry.alias, where, schema.signature, text)(self, *key)
            known = self._made[key] = (entry, tool, async_tool)
        return known


class _AsyncVariant:
    """The awaitable variant of a tool."""  # not a property: IPython would show the property instead of the tool

    def __init__(self, make: Callable[[Tool], AsyncTool]) -> None:
        self._make = make

    @overload
    def __get__(self, tool: None, kind: type[Tool]) -> _AsyncVariant: ...
    @overload
    def __get__(self, tool: Tool, kind: type[Tool]) -> AsyncTool: ...
    def __get__(self, tool: Tool | None, kind: type[Tool]) -> _AsyncVariant | AsyncTool:
        return self if tool is None else self._make(tool)


class Tool(NotPicklable):
    """A tool of an MCP server, called like a function.

    Required arguments are positional in the schema's order, optional ones are keyword-only. `.aio(…)` is awaitable,
    `.submit` starts a call and returns a `Call`, `.options` changes call options, `.call` takes a mapping of arguments.
    """

    def __init__(self, factory: ToolFactory, server: str, name: str, options: CallOptions | None = None) -> None:
        self._factory = factory
        self._server = server
        self._name = name
        self._options = options
        self.__qualname__ = f"{server}.{type(self).__name__}"

    def __call__(self, /, *args: Any, **kwargs: Any) -> ToolResult:
        """Call the tool and wait for its result."""
        return self._prepare(args, kwargs).run()

    aio = _AsyncVariant(lambda tool: tool._factory.async_tool(tool._entry(), tool._options))

    def submit(self, /, *args: Any, **kwargs: Any) -> Call[ToolResult]:
        """Start a call and return it at once; it has `.result()`, `await`, `.progress` and `.cancel()`."""
        return self._prepare(args, kwargs).submit()

    @checked(
        timeout=SECONDS.or_none,
        on_progress=FUNCTION.or_none,
        as_task=FLAG.or_none,
        caller=one_of(*CALLERS).or_none,
        turn=TEXT.or_none,
    )
    def options(
        self,
        *,
        timeout: float | None = None,
        on_progress: Callable[[Progress], Any] | None = None,
        as_task: bool | None = None,
        caller: Caller | None = None,
        turn: str | None = None,
    ) -> Tool:
        """The same tool with other call options.

        Args:
            timeout: Seconds without progress after which the call fails.
            on_progress: Called with each `Progress` (`.progress`, `.total`, `.message`); may be a coroutine function.
            as_task: Run the call as a task if the tool supports it; `.submit(…).leave()` detaches it.
            caller: The caller for the policy: `user`, or `model` or `app`, whose calls need approval by default.
            turn: The name of the model answer that the calls belong to, so that one approval can cover all of them.
        """
        options = self._call_options(self._session()).changed(timeout, on_progress, as_task, caller, turn)
        return self._factory.tool(self._entry(), options)

    @checked(arguments=MAPPING)
    def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Call the tool with a mapping of its exact argument names."""
        return self._prepare_mapping(arguments).run()

    def _prepare_mapping(self, arguments: Mapping[str, Any]) -> Call[ToolResult]:
        """Prepare a call with a mapping of exact argument names.

        Raises:
            ArgumentError: The arguments are invalid.
        """
        session = self._settled_session()
        entry = self._entry(session)
        schema = self._factory.schema(entry)
        try:
            checked_arguments = schema.check(arguments)
        except ArgumentError as error:
            _add_usage_hint(error, schema, (), arguments)
            raise
        return self._new_call(session, entry, checked_arguments)

    @property
    def server(self) -> str:
        """The server's name."""
        return self._server

    @property
    def name(self) -> str:
        """The tool's exact name."""
        return self._name

    @property
    def description(self) -> str:
        """The server's description of the tool."""
        return self._entry().definition.description or ""

    @property
    def input_schema(self) -> dict[str, Any]:
        """The input schema, verbatim."""
        return types.loads(self._entry().definition.inputSchema)

    @property
    def output_schema(self) -> dict[str, Any] | None:
        """The output schema, verbatim; None if there is none."""
        raw = self._entry().definition.outputSchema
        return types.loads(raw) if len(raw) else None

    @property
    def annotations(self) -> dict[str, Any]:
        """The server's hints, such as `readOnlyHint`; missing ones are unknown."""
        raw = self._entry().definition.annotations
        return types.loads(raw) if len(raw) else {}

    @property
    def __signature__(self) -> inspect.Signature:
        return self._factory.schema(self._entry()).signature

    def __repr__(self) -> str:
        try:
            entry = self._entry()
        except UnknownName:
            return f"<tool {self._server}.{self._name}, gone>"
        from ipymcp.schema.validation import shortened
        from ipymcp.text import visible

        signature = self.__signature__.replace(return_annotation=inspect.Signature.empty)
        about = shortened(visible(entry.first_line), _MAX_ABOUT)
        return f"{self._server}.{entry.alias}{signature}" + (f"\n    {about}" if about else "")

    def __str__(self) -> str:
        return f"{self._server}.{self._name}"

    def _entry(self, session: ServerSession | None = None) -> ToolEntry:
        """The current catalog entry.

        Raises:
            UnknownName: The server no longer has the tool.
        """
        session = session or self._session()
        return session.catalog.tools.get(self._name) or self._factory.host.find_tool(session, self._name)

    def _session(self) -> ServerSession:
        host = self._factory.host
        return host.sessions.get(self._server) or host.find(self._server)

    def _settled_session(self) -> ServerSession:
        session = self._session()
        if session.client is None:
            self._factory.host.wake(session)
        return session

    def _call_options(self, session: ServerSession) -> CallOptions:
        return self._options or session.call_options

    def _prepare(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call[ToolResult]:
        session = self._settled_session()
        entry = self._entry(session)
        schema = self._factory.schema(entry)
        try:
            arguments = schema.bind(args, kwargs)
        except ArgumentError as error:
            _add_usage_hint(error, schema, args, kwargs)
            raise
        return self._new_call(session, entry, arguments)

    def _new_call(self, session: ServerSession, entry: ToolEntry, arguments: Mapping[str, Any]) -> Call[ToolResult]:
        output_schema = entry.definition.outputSchema
        is_untrusted = self._factory.host.guard.policy.is_open_world(entry, session.rights)

        def convert(raw: Raw) -> ToolResult:
            schema = bytes(output_schema) if len(output_schema) else None
            return tool_result(raw, entry.server, entry.name, schema, is_untrusted=is_untrusted)

        options = self._call_options(session)
        if options.as_task or len(entry.definition.execution):
            options = replace(options, as_task=_is_to_be_task(session, entry, wished=options.as_task))
        return self._factory.host.new_call(session, entry, types.encode(arguments), options, convert)


def _add_usage_hint(error: ArgumentError, schema: ToolSchema, args: tuple[Any, ...], given: Mapping[str, Any]) -> None:
    """Add a hint if a call option, or a dict of all arguments, was passed as an argument."""
    written, name = expression(schema.server, schema.tool), error.argument
    if name in _OPTIONS and name in given and all(name not in (each.name, each.alias) for each in schema.parameters):
        error.hint = f"it is an option of the call: {written}.options({name}={shown(given[name])})(…)"
    elif len(args) == 1 and isinstance(args[0], Mapping) and not given:
        error.hint = f"pass a dict of all arguments as {written}.call({{…}}), or {written}(**{{…}})"


class AsyncTool(Tool):
    """A tool whose call is awaited."""

    async def __call__(self, /, *args: Any, **kwargs: Any) -> ToolResult:  # type: ignore[override]
        """Call the tool and await its result."""
        session = self._session()
        if session.client is None:
            await self._factory.host.awake(session)
        return await self._prepare(args, kwargs).arun()


def _is_to_be_task(session: ServerSession, entry: ToolEntry, *, wished: bool) -> bool:
    """Whether a call must be a task, or may be one and is wished to be (2025-11-25, tasks, tool-level negotiation)."""
    client = session.client
    if client is None or client.era.kind == "stateless" or not client.takes_tasks:
        return False
    execution = types.loads(entry.definition.execution) if len(entry.definition.execution) else None
    support = execution.get("taskSupport") if is_object(execution) else None
    return support == "required" or (wished and support == "optional")


def tool_result(
    raw: Raw, server: str, tool: str, output_schema: bytes | None, *, is_untrusted: bool = True
) -> ToolResult:
    """Convert the JSON of a `tools/call` result.

    Raises:
        ToolError: The tool reported an error.
        CallError: The result is of another type than `complete`, or is invalid.
    """
    result = ToolResult(raw, server=server, tool=tool, output_schema=output_schema, is_untrusted=is_untrusted)
    kind = result.kind
    if kind != "complete":
        raise CallError(f"answered with a result of unknown type {kind!r}", hint="a fault of the server")
    if result.is_error:
        from ipymcp.text import visible

        message = _in_one_line(result.text)
        shown = message if len(message) <= _MAX_MESSAGE else f"{message[:_MAX_MESSAGE]}…"
        hint = "the tool's own message" if shown == message else "the tool's own message; .result has all of it"
        raise ToolError(visible(shown), result=result, hint=hint)
    return result


def _in_one_line(text: str) -> str:
    line = mask(" / ".join(part.strip() for part in text.strip().splitlines() if part.strip()))
    return line or "failed without a message"


def _describe(entry: ToolEntry, schema: ToolSchema) -> str:
    from ipymcp.schema.annotations import docstring

    definition = entry.definition
    return docstring(
        definition.title,
        definition.description,
        schema.parameters,
        types.loads(definition.outputSchema) if len(definition.outputSchema) else None,
        types.loads(definition.annotations) if len(definition.annotations) else None,
        server=entry.server,
        tool=entry.name,
    )
