"""One tool as a Python function: called, awaited, submitted, inspected.

IPython, jedi and `inspect` read signatures and docstrings from the class, so each tool gets its own class, made at the
first attribute access. A catalog of ten thousand tools therefore costs nothing before.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn, cast, overload
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from ipymcp.api.tool_calls import new_call
from ipymcp.argument_checks import FLAG, FUNCTION, MAPPING, SECONDS, TEXT, checked, missing_attribute, one_of, shown
from ipymcp.errors import ArgumentError, PolicyError, UnknownName
from ipymcp.names import expression
from ipymcp.protocol import types
from ipymcp.results.tables import NotPicklable
from ipymcp.results.tool_result import StoredResults
from ipymcp.security.rules import CALLERS
from ipymcp.security.untrusted import Conversation, refuse_models

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from inspect import Signature

    from ipymcp.api.pickled_tool import PickledTool, WorkerServer
    from ipymcp.interaction.questions import Caller
    from ipymcp.llm.tool_definitions import DeclarationCache
    from ipymcp.maps.request import MapTarget
    from ipymcp.maps.result import MapResult
    from ipymcp.maps.tool_map import ToolMap
    from ipymcp.protocol.types import Progress
    from ipymcp.results.tool_result import ToolResult
    from ipymcp.runtime.call import Call
    from ipymcp.runtime.call_options import CallOptions
    from ipymcp.runtime.catalog import ToolEntry
    from ipymcp.runtime.host import Host
    from ipymcp.runtime.session import ServerSession
    from ipymcp.schema.tool_schema import ToolSchema


MAX_MAPS = 20
"""The number of maps that `mcp.maps` keeps."""
_MAX_ABOUT = 100
_OPTIONS = frozenset({"timeout", "on_progress", "as_task", "caller", "turn"})
"""The arguments of `.options`."""
_OTHER_NAMES = {
    **dict.fromkeys(("args", "arguments", "inputSchema", "parameters", "schema"), "use .input_schema"),
    **dict.fromkeys(("outputSchema", "returns"), "use .output_schema"),
    **dict.fromkeys(("doc", "docs", "help"), "use .description, or help(…)"),
    **dict.fromkeys(("ainvoke", "arun", "async_", "asynchronous"), "use .aio(…)"),
    **dict.fromkeys(("execute", "invoke", "run"), "call it: …(…), or .call({…})"),
    **dict.fromkeys(("timeout", "with_options"), "use .options(timeout=…)(…)"),
    "apply": "use .map(rows)",
    **dict.fromkeys(("data", "df", "text"), "its result has that: …(…).text, .data or .df"),
}
"""Hints for attributes that a tool does not have, but people expect."""
_COLUMN_LIBRARIES = frozenset({"pandas", "polars"})
"""Libraries that call a function for each value of a column, where a column of `ToolResult`s would be of no use."""


class ToolFactory:
    """Makes the tools of one host and caches their schemas and classes.

    Args:
        host: The host that runs the calls.
    """

    def __init__(self, host: Host) -> None:
        self.host = host
        self.results = StoredResults()
        """The complete results that were only shown in part."""
        self.for_models: set[int] = set()
        """The numbers of the results of which a model outside `mcp.ask` has received a part."""
        self.maps: deque[MapResult] = deque(maxlen=MAX_MAPS)
        """The latest maps."""
        self._declaration_cache: DeclarationCache | None = None
        self._conversations: dict[Hashable, Conversation] = {}
        self._schemas: dict[tuple[str, str], tuple[ToolEntry, ToolSchema]] = {}
        self._made: dict[tuple[str, str], tuple[ToolEntry, Tool, AsyncTool]] = {}

    def conversation(self, key: Hashable) -> Conversation:
        """The conversation with a model outside `mcp.ask`, identified by its name or by the selection of tools."""
        return self._conversations.setdefault(key, Conversation())

    @property
    def declaration_cache(self) -> DeclarationCache:
        """The cache of tool declarations for model providers."""
        if self._declaration_cache is None:
            from ipymcp.llm.tool_definitions import DeclarationCache

            self._declaration_cache = DeclarationCache()
        return self._declaration_cache

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
        tool = self._made_tools(entry)[1]
        return tool if options is None else type(tool)(self, entry.server, entry.name, options)

    def async_tool(self, entry: ToolEntry, options: CallOptions | None = None) -> AsyncTool:
        """The awaitable variant of a tool."""
        tool = self._made_tools(entry)[2]
        return tool if options is None else type(tool)(self, entry.server, entry.name, options)

    def signature(self, entry: ToolEntry) -> Signature:
        """The Python signature of a tool."""
        return self.schema(entry).signature

    def schema_of(self, tool: Tool) -> ToolSchema:
        """The input schema of a tool object."""
        return self.schema(tool._entry())  # pyright: ignore[reportPrivateUsage]

    def options_of(self, tool: Tool, session: ServerSession) -> CallOptions:
        """The options that a call of this tool has."""
        return tool._call_options(session)  # pyright: ignore[reportPrivateUsage]

    def panel_call(self, session: ServerSession, entry: ToolEntry, arguments: Mapping[str, Any]) -> Call[ToolResult]:
        """A call of the panel, with arguments that have been checked."""
        options = replace(session.call_options, origin="panel")
        return new_call(self.host, session, entry, options, types.encode(arguments))

    def prepare(self, entry: ToolEntry, options: CallOptions, arguments: Mapping[str, Any]) -> Call[ToolResult]:
        """Like `checked_call`; the server is started if necessary."""
        session = self.host.sessions.get(entry.server) or self.host.find(entry.server)
        if session.client is None:
            self.host.wake(session)
        current = session.catalog.tools.get(entry.name) or self.host.find_tool(session, entry.name)
        return self.checked_call(session, current, options, arguments)

    def checked_call(
        self, session: ServerSession, entry: ToolEntry, options: CallOptions, arguments: Mapping[str, Any]
    ) -> Call[ToolResult]:
        """A call of a tool with a mapping of exact argument names, not sent yet.

        Raises:
            ArgumentError: The arguments are invalid.
        """
        schema = self.schema(entry)
        try:
            checked_arguments = schema.check(arguments)
        except ArgumentError as error:
            _add_usage_hint(error, schema, (), arguments)
            raise
        return new_call(self.host, session, entry, options, types.encode(checked_arguments))

    def _made_tools(self, entry: ToolEntry) -> tuple[ToolEntry, Tool, AsyncTool]:
        key = (entry.server, entry.name)
        known = self._made.get(key)
        if known is None or known[0] is not entry:
            schema = self.schema(entry)
            text = _describe(entry, schema)
            module = f"mcp.{entry.server}"
            from ipymcp.schema.annotations import callable_subclass

            tool = callable_subclass(Tool, entry.alias, module, schema.signature, text)(self, *key)
            async_tool = callable_subclass(AsyncTool, entry.alias, module, schema.signature, text)(self, *key)
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
        """Call the tool and wait for its result; `Series.map(tool)` and `.apply(tool)` get the result's data."""
        result = self._prepare(args, kwargs).run()
        frame = inspect.currentframe()
        assert frame is not None and frame.f_back is not None
        caller = str(frame.f_back.f_globals.get("__name__"))
        return result.data if caller.partition(".")[0] in _COLUMN_LIBRARIES else result

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

            mcp.demo.slow.options(timeout=60, on_progress=print)(seconds=0.1)

        Args:
            timeout: Seconds without progress after which the call fails.
            on_progress: Called with each `Progress` (`.progress`, `.total`, `.message`); may be a coroutine function.
            as_task: Run the call as a task if the tool supports it; `.submit(…).leave()` detaches it.
            caller: The caller for the policy: `user`, or `model` or `app`, whose calls need approval by default.
            turn: The name of the model answer that the calls belong to, so that one approval can cover all of them.
        """
        options = self._call_options(self._session()).changed(timeout, on_progress, as_task, caller, turn)
        return self._factory.tool(self._entry(), options)

    @property
    def map(self) -> ToolMap:
        """Call the tool for every row of a table or list: `.map(rows)`, `.map.aio`, `.map.stream`, `.map.plan`."""
        from ipymcp.maps.tool_map import ToolMap

        return ToolMap(expression(self._server, self._name), self, self._map_target, self._amap_target)

    @checked(arguments=MAPPING)
    def call(self, arguments: Mapping[str, Any]) -> ToolResult:
        """Call the tool with a mapping of its exact argument names: `mcp.demo.echo.call({"text": "hi"})`."""
        return self._prepare_mapping(arguments).run()

    def _prepare_mapping(self, arguments: Mapping[str, Any]) -> Call[ToolResult]:
        session = self._ready_session()
        return self._factory.checked_call(session, self._entry(session), self._call_options(session), arguments)

    if not TYPE_CHECKING:  # for type checkers a tool has no other attributes

        def __getattr__(self, name: str) -> Any:
            return missing_attribute(self, name, f"the tool {self._server}.{self._name}", _OTHER_NAMES)

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

    def __reduce__(self) -> Any:
        from ipymcp.api.pickled_tool import pickled

        session = self._ready_session()
        sent = pickled(self._factory.host, session, self._entry(session), self._call_options(session))
        return UnpickledTool, (sent,)

    def __repr__(self) -> str:
        try:
            entry = self._entry()
        except UnknownName:
            return f"<tool {self._server}.{self._name}, gone>"
        from ipymcp.text import shortened, visible

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

    def _ready_session(self) -> ServerSession:
        session = self._factory.host.sessions.get(self._server) or self._session()
        if session.client is None:
            self._factory.host.wake(session)
        return session

    def _map_target(self) -> MapTarget:
        """The target of a map of this tool; starts the server if necessary."""
        from ipymcp.maps.request import MapTarget

        session, factory = self._ready_session(), self._factory
        entry = self._entry(session)
        options, schema = self._call_options(session), factory.schema(entry)
        return MapTarget(factory.host, session, entry, schema, options, factory.maps)

    async def _amap_target(self) -> MapTarget:
        session = self._session()
        if session.client is None:
            await self._factory.host.awake(session)
        return self._map_target()

    def _call_options(self, session: ServerSession) -> CallOptions:
        return self._options or session.call_options

    def _prepare(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call[ToolResult]:
        session = self._ready_session()
        entry = self._entry(session)
        schema = self._factory.schema(entry)
        try:
            arguments = schema.bind(args, kwargs)
        except ArgumentError as error:
            _add_usage_hint(error, schema, args, kwargs)
            raise
        return new_call(self._factory.host, session, entry, self._call_options(session), types.encode(arguments))


def _add_usage_hint(error: ArgumentError, schema: ToolSchema, args: tuple[Any, ...], given: Mapping[str, Any]) -> None:
    """Add a hint if a call option, a dict of all arguments, or rows were passed as an argument."""
    from ipymcp.schema.validation import AS_JSON  # imported already: it has found the problem

    written, name = expression(schema.server, schema.tool), error.argument
    if name in _OPTIONS and name in given and all(name not in (each.name, each.alias) for each in schema.parameters):
        value = shown(given[name]) if isinstance(given[name], str | int | float | None) else "…"
        error.hint = f"it is an option of the call: {written}.options({name}={value})(…)"
    elif len(args) == 1 and not given and _is_of_arguments(args[0], schema):
        error.hint = f"pass a dict of all arguments as {written}.call({{…}}), or {written}(**{{…}})"
    elif hasattr(value := given.get(name or "", args[0] if len(args) == 1 else None), "shape"):
        error.hint = f"one call for each row: {written}.map(…)"
    elif error.hint == AS_JSON and isinstance(value, list | tuple):
        error.hint = f"one call for each item: {written}.map(…); all of them as one text: json.dumps(…)"


def _is_of_arguments(value: Any, schema: ToolSchema) -> bool:
    """Whether a value is a dict of several arguments, and not the value of one."""
    names = {name for each in schema.parameters for name in (each.name, each.alias)}
    keys = {*cast("Mapping[Any, Any]", value)} if isinstance(value, Mapping) else set[Any]()
    return bool(keys) and keys <= names


class AsyncTool(Tool):
    """A tool whose call is awaited."""

    async def __call__(self, /, *args: Any, **kwargs: Any) -> ToolResult:  # type: ignore[override]
        """Call the tool and await its result."""
        session = self._session()
        if session.client is None:
            await self._factory.host.awake(session)
        return await self._prepare(args, kwargs).arun()

    @checked(arguments=MAPPING)
    async def call(self, arguments: Mapping[str, Any]) -> ToolResult:  # type: ignore[override]
        """Call the tool with a mapping of its exact argument names, and await its result."""
        session = self._session()
        if session.client is None:
            await self._factory.host.awake(session)
        return await self._prepare_mapping(arguments).arun()

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"pickle {expression(self._server, self._name)} instead of its .aio")


class UnloadedTool(Tool):
    """A tool of a configured server that is not loaded. Any use of it starts the server, which may lack the tool."""

    def __init__(self, factory: ToolFactory, server: str, name: str) -> None:
        super().__init__(factory, server, name)
        self.__name__ = name
        self.__qualname__ = f"{server}.{name}"

    aio = _AsyncVariant(lambda tool: UnloadedAsyncTool(tool._factory, tool._server, tool._name))

    @property
    def __signature__(self) -> inspect.Signature:
        if self._server not in self._factory.host.sessions:
            raise AttributeError("__signature__")
        return super().__signature__

    def __repr__(self) -> str:
        if self._server in self._factory.host.sessions:
            return super().__repr__()
        return f"<tool {self}, whose server starts at its first use>"

    def _session(self) -> ServerSession:
        return self._factory.host.used(self._server)

    async def _amap_target(self) -> MapTarget:
        host = self._factory.host
        await host.loop.arun(host.load_for_use(self._server))
        return await super()._amap_target()


class UnloadedAsyncTool(UnloadedTool, AsyncTool):
    """The awaitable variant of `UnloadedTool`."""

    async def __call__(self, /, *args: Any, **kwargs: Any) -> ToolResult:  # type: ignore[override]
        """Start the server, call the tool and await its result."""
        host = self._factory.host
        if self._server not in host.sessions:
            refuse_models("start a server")
        await host.loop.arun(host.load_for_use(self._server))
        return await super().__call__(*args, **kwargs)


class UnpickledTool(Tool):
    """A tool that was pickled in another process. Its server is started in this process at the first call.

    Args:
        sent: The content of the pickle.
    """

    def __init__(self, sent: PickledTool) -> None:
        self._sent = sent
        super().__init__(_factory_of(self._worker_server), sent.definition.name, sent.tool, sent.options)

    def __reduce__(self) -> Any:
        return UnpickledTool, (self._sent,)

    def __repr__(self) -> str:
        return f"<tool {self}, from another process>"

    @property
    def _worker_server(self) -> WorkerServer:
        from ipymcp.api.pickled_tool import worker_server

        return worker_server(self._sent)

    def _session(self) -> ServerSession:
        server = self._worker_server
        self._factory = _factory_of(server)
        server.entry(self._sent)
        return server.session()

    def _ready_session(self) -> ServerSession:
        return self._session()

    async def _amap_target(self) -> MapTarget:
        return await asyncio.to_thread(self._map_target)

    def _call_options(self, session: ServerSession) -> CallOptions:
        if self._sent.decision == "ask":
            from ipymcp.api.pickled_tool import worker_name

            message = f"needs your consent, and no one can be asked on the worker {worker_name()}"
            hint = f"{self._sent.name}.map(rows, executor=…) asks once for all its calls"
            raise PolicyError(message, server=self._server, tool=self._name, hint=hint)
        return super()._call_options(session)


def _factory_of(server: WorkerServer) -> ToolFactory:
    factory = _worker_factories.get(server)
    if factory is None:
        factory = _worker_factories[server] = ToolFactory(server.host)
        factory.maps = deque(maxlen=0)
    return factory


_worker_factories: WeakKeyDictionary[WorkerServer, ToolFactory] = WeakKeyDictionary()
"""The factories of tools from other processes, one for each server."""


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
        tree=schema.tree,
    )
