"""Apps: interactive pages of tools (MCP Apps), as Python objects, and their requests to the server.

While a tool with a page is called, the page is read. An app sends its requests through the panel. They are made as the
caller `app`, with the same policy, consent and history as the calls of a model.

Source: MCP extension `io.modelcontextprotocol/ui`, SEP-1865 (2026-01-26).
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
from collections import OrderedDict
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol
from weakref import WeakKeyDictionary, WeakMethod, ref

from msgspec import Struct
from msgspec.structs import replace

from ipymcp.argument_checks import COUNT, FUNCTION, checked, one_of
from ipymcp.errors import CallError, McpError, PolicyError, RpcError, ToolError
from ipymcp.names import expression
from ipymcp.protocol import types
from ipymcp.protocol.apps import has_own_meta, read_page
from ipymcp.protocol.types import is_array, is_object
from ipymcp.results.tables import NotPicklable
from ipymcp.runtime.events import ServerUnloaded
from ipymcp.security.app_pins import AppPins
from ipymcp.text import cut, one_line, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from msgspec import Raw

    from ipymcp.interaction.questions import ApprovalAnswer
    from ipymcp.llm.prompting import AppState
    from ipymcp.protocol.apps import AppPage
    from ipymcp.protocol.types import ResourceDefinition
    from ipymcp.results.tool_result import ToolResult
    from ipymcp.runtime.call_options import CallOptions
    from ipymcp.runtime.catalog import ToolEntry
    from ipymcp.runtime.events import Event
    from ipymcp.runtime.host import Host
    from ipymcp.runtime.session import ServerSession


DisplayMode = Literal["inline", "fullscreen", "pip"]
MAX_RESULT = 10_000_000
"""Maximum bytes of a result for an app."""
_MAX_APPS = 200
_MAX_CONTEXT = 1_000_000
_MAX_LOG = 2_000
_LEVELS = {"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}
_INVALID, _NO_METHOD = -32602, -32601


class AppDisplay(Protocol):
    """Displays apps in the current cell."""

    def __call__(self, app: OpenApp, height: int | None, display_mode: DisplayMode) -> None:
        """Display an app.

        Args:
            app: The app.
            height: Height in pixels; None for the height that the app requests.
            display_mode: Where the app is shown first.
        """
        ...


class App(NotPicklable):
    """The interactive page of a result, shown in the cell: `r.app.show()`, `r.app.context`, `r.app.on_update(f)`."""

    def __init__(self, opened: OpenApp) -> None:
        self._open = opened

    @property
    def server(self) -> str:
        """The server's name."""
        return self._open.server

    @property
    def tool(self) -> str:
        """The exact name of the tool."""
        return self._open.tool

    @property
    def uri(self) -> str:
        """The URI of the page."""
        return self._open.uri

    @property
    def is_closed(self) -> bool:
        """Whether the app was closed, by the user or by itself; showing it again reopens it."""
        return self._open.is_closed

    @property
    def context(self) -> Any:
        """The latest context that the app sent for the model (`ui/update-model-context`): data or text; else None."""
        return self._open.context

    @checked(height=COUNT.or_none, display_mode=one_of("inline", "fullscreen", "pip"))
    def show(self, *, height: int | None = None, display_mode: DisplayMode = "inline") -> None:
        """Show the app below this cell.

        Args:
            height: Height in pixels; by default the height that the app requests.
            display_mode: Where the app is shown first: in the cell, over the whole page, or in a corner of the page.
        """
        self._open.show(height, display_mode)

    @checked(function=FUNCTION)
    def on_update(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Call a function with each new `.context`, on a background thread; it may be a coroutine function."""
        self._open.listeners.append(function)
        return function

    async def closed(self) -> None:
        """Wait until the app is closed, by the user or by itself.

        Raises:
            McpError: The app was never displayed, for example because no page shows the notebook.
        """
        await self._open.closed()

    def __repr__(self) -> str:
        return one_line(f"<app of {self.server}.{self.tool}, {self.uri}>")


class CallData(Struct, frozen=True):
    """The call of an app, as far as it is known.

    Attributes:
        version: A number that is greater after each change.
        partial: The arguments as far as a model has written them; None once they are complete.
        input: The complete arguments.
        result: The result.
        cancelled: The reason why there will be no result.
    """

    version: int
    partial: Any
    input: Any
    result: Any
    cancelled: str | None


class OpenApp:
    """The state of an app, on the background loop.

    Args:
        apps: The apps of its host.
        number: The number that identifies the app in this kernel.
        session: The server.
        entry: The tool whose call the app shows.
        arguments: The JSON of the call's arguments; None for a call that a model begins to write.
        result: The JSON of the call's result.
    """

    def __init__(
        self,
        apps: Apps,
        number: int,
        session: ServerSession,
        entry: ToolEntry,
        arguments: bytes | None = None,
        result: bytes | None = None,
    ) -> None:
        self.number = number
        self.server = entry.server
        """The server's name."""
        self.tool = entry.name
        """The exact name of the tool."""
        self.uri = entry.app.uri
        """The URI of the page."""
        self.digest = session.digest
        """The digest of the server's definition."""
        self.entry = entry
        self.context: Any = None
        """The latest context for the model; None if there is none yet."""
        self.listeners: list[Callable[[Any], Any]] = []
        """Functions that are called with each new context."""
        self.is_closed = False
        self.is_displayed = False
        """Whether the app was displayed in a cell."""
        self.requests: dict[str, set[asyncio.Future[Any]]] = {}
        """The requests in progress, by page, because the app may be shown several times."""
        self._apps = apps
        self._partial: dict[str, Any] | None = None
        self._arguments = arguments
        self._result = result
        self._cancelled: str | None = None
        self.was_made = arguments is not None
        """Whether the call was made. Until then the page has arguments that the user may not want its server to get."""
        self._version = 0
        self._changed = asyncio.Event()
        """Set at the next change of the call, after which there is a new event."""
        self._pages: WeakKeyDictionary[object, set[str]] = WeakKeyDictionary()
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    def show(self, height: int | None = None, display_mode: DisplayMode = "inline") -> None:
        """Display the app in the current cell."""
        self._apps.display(self, height, display_mode)

    # -- the call -----------------------------------------------------------------------------------------------------

    async def needs_no_question(self) -> bool:
        """Implement `CallApp.needs_no_question`. A page with network access could pass the arguments on."""
        page = await self.page()
        page_hash = await asyncio.to_thread(lambda: page.hash)
        pin = await self._apps.pins.of(self.digest, self.uri)
        if pin is None:
            return self._apps.mode() == "show" and not page.needs
        return pin.hash == page_hash and not (pin.is_granted and page.needs.domains)

    def write(self, arguments: dict[str, Any]) -> None:
        """Note the arguments as far as a model has written them."""
        if arguments != self._partial:
            self._partial = arguments
            self._note_change()

    def begin(self, arguments: bytes) -> None:
        """Note that the call is made, and its arguments."""
        self._arguments, self._partial = arguments, None
        self.was_made = True
        self._note_change()

    def finish(self, result: bytes) -> None:
        """Note the result of the call; from any thread."""
        self._result = result
        self._apps.host.loop.call(self._note_change)

    def cancel(self, reason: str, arguments: dict[str, Any] | None) -> None:
        """Note that the call has no result, unless it has one."""
        if self._result is None:
            if self._arguments is None and arguments is not None:
                self._arguments, self._partial = types.encode(arguments), None
            self._cancelled = reason
            self._note_change()

    def _note_change(self) -> None:
        self._version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def call_after(self, version: int) -> CallData:
        """Wait until the call has changed since a version, or the app is closed."""
        while self._version <= version and not self.is_closed:
            await self._changed.wait()
        return await asyncio.to_thread(self.call_data)

    def call_data(self) -> CallData:
        """The call, for the page."""
        version, arguments, result = self._version, self._arguments, self._result
        if result is not None and len(result) > MAX_RESULT:
            text = f"The result has {len(result):,} bytes; an app receives at most {MAX_RESULT:,}."
            result = types.encode({"content": [{"type": "text", "text": text}], "isError": True})
        return CallData(
            version=version,
            partial=self._partial,
            input=None if arguments is None else types.loads(arguments),
            result=None if result is None else types.loads(result),
            cancelled=self._cancelled if result is None else None,
        )

    # -- the page -----------------------------------------------------------------------------------------------------

    async def closed(self) -> None:
        """Wait until the app is closed. May be awaited on any loop.

        Raises:
            McpError: The app was never displayed, so it cannot be closed.
        """
        if not self.is_displayed:
            raise McpError(f"the app of {expression(self.server, self.tool)} is not shown", hint="show it: .app.show()")
        if not self.is_closed:
            loop = asyncio.get_running_loop()
            future: asyncio.Future[None] = loop.create_future()
            self._waiting.append((loop, future))
            await future

    async def page(self) -> AppPage:
        """The page, read again if its server is running.

        Raises:
            McpError: The page cannot be read.
        """
        return await self._apps.page(self._session(), self.uri)

    @property
    def definition(self) -> dict[str, Any]:
        """The definition of the tool, as JSON."""
        return _definition(self.entry)

    async def answer(self, method: str, params: dict[str, Any]) -> Any:
        """Answer a request of the page.

        Raises:
            McpError: The request is refused, or failed.
        """
        if self.is_closed:
            raise CallError("the app is closed")
        if method != "notifications/message":  # a line in the log, which stays here
            await self._call_made()
        match method:
            case "tools/call":
                return await self._call(params)
            case "tools/list":
                tools = self._session().catalog.tools.values()
                return {"tools": [_definition(one) for one in tools if one.app.is_for_apps]}
            case "resources/read":
                uri = params.get("uri")
                if not isinstance(uri, str):
                    raise RpcError("resources/read needs a 'uri'", code=_INVALID)
                return _loads(await self._session().resources.read(uri))
            case "resources/list":
                catalog = await self._session().resources.refresh("resources")
                return {"resources": [_resource(one) for one in catalog.resources.values()]}
            case "ui/update-model-context":
                self._update(params)
                return {}
            case "notifications/message":
                self._log(params)
                return {}
            case _:
                raise RpcError(f"{cut(visible(method), 100)} is not supported by this host", code=_NO_METHOD)

    async def _call_made(self) -> None:
        """Wait until the call is made: before the user agrees to it, its arguments must not reach the server.

        Raises:
            PolicyError: The call was not made, or the app is closed.
        """
        while not self.was_made:
            if self._cancelled is not None or self.is_closed:
                raise PolicyError("the call of this app was not made, so the app has no access to the server")
            await self._changed.wait()

    def close(self) -> None:
        """Mark the app as closed, and wake everything that waits for that."""
        self.is_closed = True
        if self._apps.host.loop.is_running:
            self._apps.host.loop.call(self._note_change)
        self._pages.clear()
        waiting, self._waiting = self._waiting, []
        for loop, future in waiting:
            if not loop.is_closed():
                loop.call_soon_threadsafe(_finish, future)

    def add_page(self, view: object, page: str) -> None:
        """Note that a page of a view shows the app."""
        self.is_closed = False
        self._pages.setdefault(view, set()).add(page)

    def remove_page(self, view: object, page: str) -> None:
        """Note that a page of a view does not show the app any more. The last page closes it."""
        pages = self._pages.get(view, set())
        pages.discard(page)
        if not pages:
            self._pages.pop(view, None)
        if not self._pages:
            self.close()

    @property
    def state(self) -> AppState | None:
        """The context for a model; None if the app is closed, has none, or its server is gone."""
        from ipymcp.llm.prompting import AppState  # not at %load_ext

        session = self._apps.host.sessions.get(self.server)
        if self.is_closed or self.context is None or session is None or session.digest != self.digest:
            return None
        source = self.source if self._is_untrusted(session) else ""
        return AppState(f"{self.server}.{self.tool}", self.server, self.context, source)

    @property
    def source(self) -> str:
        """The name of the app as a source of untrusted content."""
        return f"the app of {self.server}.{self.tool}"

    def log(self, level: str, text: str) -> None:
        """Add a line to the server's log."""
        self._session().log.add("app", level, cut(one_line(visible(text)), _MAX_LOG))

    def _session(self) -> ServerSession:
        """The app's server.

        Raises:
            McpError: The server is not loaded any more, or its definition has changed.
        """
        session = self._apps.host.find(self.server)
        if session.digest != self.digest:
            raise PolicyError("its definition has changed since the app was shown", server=self.server)
        return session

    def _is_untrusted(self, session: ServerSession) -> bool:
        """Whether the app may pass on content of third parties, because results of its tool may contain some."""
        return self._apps.host.guard.policy.is_open_world(self.entry, session.rights)

    async def _call(self, params: Mapping[str, Any]) -> Any:
        name, arguments = params.get("name"), params.get("arguments", {})
        if not isinstance(name, str) or not is_object(arguments or {}):
            raise RpcError("tools/call needs a 'name', and 'arguments' that are an object", code=_INVALID)
        session = self._session()
        await session.awake()
        entry = session.catalog.tools.get(name)
        if entry is None:
            raise RpcError(f"the server has no tool {cut(name, 100)!r}", code=_INVALID)
        options = replace(session.call_options, caller="app", origin="app", card=_AppCard(self))
        return _loads(await self._apps.call(session, entry, types.encode(arguments or {}), options))

    def _update(self, params: Mapping[str, Any]) -> None:
        encoded = types.encode(params)
        if len(encoded) > _MAX_CONTEXT:
            raise RpcError(f"a context has at most {_MAX_CONTEXT:,} bytes", code=_INVALID)
        data, content = params.get("structuredContent"), params.get("content")
        if not (data is None or is_object(data)) or not (content is None or is_array(content)):
            raise RpcError("'structuredContent' must be an object, and 'content' an array", code=_INVALID)
        texts = [one.get("text") for one in content or () if is_object(one)]
        context = data if data is not None else "\n".join(one for one in texts if isinstance(one, str)) or content
        self.context = context
        self._apps.updated(self)
        if self._is_untrusted(self._session()):
            self._apps.host.guard.received(self.source, None, encoded)
        loop = self._apps.host.handler_loop
        for listener in [*self.listeners]:
            loop.call(self._spawn_notification, listener, context)

    def _spawn_notification(self, listener: Callable[[Any], Any], context: Any) -> None:
        self._apps.host.handler_loop.spawn(self._notify(listener, context), "ipymcp-app")

    async def _notify(self, listener: Callable[[Any], Any], context: Any) -> None:
        try:
            outcome = listener(context)
            if inspect.isawaitable(outcome):
                await outcome
        except Exception as error:
            self.log("error", f"the function of on_update failed: {error!r}")

    def _log(self, params: Mapping[str, Any]) -> None:
        level, data = str(params.get("level")), params.get("data")
        text = data if isinstance(data, str) else types.encode(data).decode("utf-8", "replace")
        self.log(level if level in _LEVELS else "info", text)


class _AppCard:
    """The card of an app's calls. Questions about them are shown in the app's output."""

    def __init__(self, app: OpenApp) -> None:
        self.key = f"app {app.number}"
        self.number = 0

    @property
    def app(self) -> None:
        """None: a call of an app is not shown by another one."""

    def show_question(self, key: str) -> None:
        """Do nothing, because the output shows the open question."""

    def show_answer(self, answer: ApprovalAnswer | None) -> None:
        """Do nothing, because the output removes the question."""

    def begin(self, arguments: bytes) -> bool:
        """Allow every call."""
        return True


class Apps:
    """The apps of one host.

    Args:
        host: The host.
    """

    def __init__(self, host: Host) -> None:
        self._host = ref(host)  # weak, because `_apps_by_host` must not keep the host alive
        self.display: AppDisplay = _cannot_display
        self.mode: Callable[[], str] = lambda: "show"
        """Returns the setting for apps: `show`, `ask` or `off`."""
        self.can_show: Callable[[], bool] = lambda: False
        """Returns whether apps can be displayed in the current cell."""
        self._numbers = itertools.count(1)
        self._apps: OrderedDict[int, OpenApp] = OrderedDict()
        self._pages: dict[tuple[str, str], asyncio.Task[AppPage]] = {}
        self._updated: OrderedDict[int, OpenApp] = OrderedDict()
        on_event = WeakMethod(self._on_event)
        host.events.subscribe(lambda event: (method := on_event()) and method(event))

    @property
    def host(self) -> Host:
        """The host.

        Raises:
            McpError: The host is closed.
        """
        host = self._host()
        if host is None:
            raise McpError("the servers of this app are closed")
        return host

    @cached_property
    def pins(self) -> AppPins:
        """The hashes of the pages that the user has seen."""
        return AppPins(lambda: self.host.store.database)

    def find(self, number: int) -> OpenApp:
        """An app by its number.

        Raises:
            McpError: The app does not exist any more.
        """
        app = self._apps.get(number)
        if app is None:
            raise McpError("this app is gone", hint="run the cell again")
        return app

    def begin(self, session: ServerSession, entry: ToolEntry) -> OpenApp | None:
        """Make the app of a call that a model begins to write, and read its page; None if no app can be shown."""
        if not self.host.client_handlers.shows_apps or not self.can_show():
            return None
        self._prefetch(session, entry.app.uri)
        return OpenApp(self, next(self._numbers), session, entry)

    def attach_app(
        self,
        session: ServerSession,
        entry: ToolEntry,
        arguments: bytes,
        convert: Callable[[Raw | bytes], ToolResult],
        app: object = None,
    ) -> Callable[[Raw | bytes], ToolResult]:
        """Wrap the converter of a call's result so that it adds the app.

        Args:
            session: The server.
            entry: The tool.
            arguments: The JSON of the call's arguments.
            convert: The converter.
            app: The app that shows the call already. Without one, the page is read while the tool runs.
        """
        if isinstance(app, OpenApp):

            def convert_and_finish(raw: Raw | bytes) -> ToolResult:
                try:
                    result = convert(raw)
                except ToolError:  # is a result, too
                    app.finish(bytes(raw))
                    raise
                app.finish(bytes(raw))
                result.app = App(app)
                return result

            return convert_and_finish
        if self.host.loop.is_running:
            self.host.loop.call(self._prefetch, session, entry.app.uri)

        def convert_and_attach(raw: Raw | bytes) -> ToolResult:
            result = convert(raw)
            result.app = App(OpenApp(self, next(self._numbers), session, entry, arguments, bytes(raw)))
            return result

        return convert_and_attach

    def keep(self, app: OpenApp) -> None:
        """Keep an app that is displayed, so that its output can find it by its number."""
        app.is_displayed = True
        self._apps[app.number] = app
        self._apps.move_to_end(app.number)
        while len(self._apps) > _MAX_APPS:
            self._apps.popitem(last=False)

    def close_all(self, server: str | None = None) -> None:
        """Close the apps, or those of one server."""
        for app in [*self._apps.values()]:
            if server in (None, app.server):
                app.close()

    def _on_event(self, event: Event) -> None:
        if isinstance(event, ServerUnloaded):
            self.close_all(event.server)

    def updated(self, app: OpenApp) -> None:
        """Note that an app has a new context."""
        self._updated[app.number] = app
        self._updated.move_to_end(app.number)
        while len(self._updated) > _MAX_APPS:
            self._updated.popitem(last=False)

    def states(self) -> list[AppState]:
        """The contexts of the open apps, for models, in the order of their latest update."""
        updated = [*self._updated.values()]
        return [state for app in updated if (state := app.state) is not None]

    def _prefetch(self, session: ServerSession, uri: str) -> None:
        """Read a page again, because it may have changed since the last call, unless it is being read already."""
        known = self._pages.get((session.digest, uri))
        if known is None or known.done():
            self._pages[session.digest, uri] = task = self.host.loop.spawn(self._read(session, uri), "ipymcp-app")
            task.add_done_callback(_observe)

    async def page(self, session: ServerSession, uri: str) -> AppPage:
        """The page that was read for the last call; if there is none, it is read now.

        Raises:
            McpError: The page cannot be read.
        """
        known = self._pages.get((session.digest, uri))
        if known is None or (known.done() and (known.cancelled() or known.exception() is not None)):
            self._prefetch(session, uri)
        return await asyncio.shield(self._pages[session.digest, uri])

    async def _read(self, session: ServerSession, uri: str) -> AppPage:
        await session.awake()
        raw = await session.resources.read(uri)
        listed = b""
        if not has_own_meta(raw):
            try:
                catalog = await session.resources.refresh("resources")
                definition = catalog.resources.get(uri)
                listed = bytes(definition.meta) if definition is not None else b""
            except McpError:
                pass  # servers need not list their pages
        try:
            return await asyncio.to_thread(read_page, raw, uri, listed)
        except ValueError as error:
            raise CallError(f"the app {uri} cannot be shown: {error}", server=session.name) from None

    async def call(self, session: ServerSession, entry: ToolEntry, arguments: bytes, options: CallOptions) -> bytes:
        """Call a tool for an app, and return the JSON of the result, also if the tool reports an error.

        Raises:
            McpError: The call is refused, or failed.
        """
        is_untrusted = self.host.guard.policy.is_open_world(entry, session.rights)
        call = self.host.calls.new(session, entry, arguments, options, bytes, is_untrusted=is_untrusted)
        try:
            await call.run_on_loop()
        except asyncio.CancelledError:
            call.cancel()
            raise
        return await asyncio.to_thread(call.result)


_apps_by_host: WeakKeyDictionary[Host, Apps] = WeakKeyDictionary()


def apps_of(host: Host) -> Apps:
    """The apps of a host."""
    found = _apps_by_host.get(host)
    if found is None:
        found = _apps_by_host.setdefault(host, Apps(host))
    return found


def _loads(raw: Raw | bytes) -> Any:
    """A result of the server, for an app.

    Raises:
        CallError: The result is too large.
    """
    size = memoryview(raw).nbytes
    if size > MAX_RESULT:
        raise CallError(f"the result has {size:,} bytes; an app receives at most {MAX_RESULT:,}")
    return types.loads(raw)


def _definition(entry: ToolEntry) -> dict[str, Any]:
    """The definition of a tool, as JSON."""
    definition = entry.definition
    schemas = ("inputSchema", "outputSchema", "annotations")
    found = {name: getattr(definition, name) for name in ("name", "title", "description")}
    found |= {name: types.loads(raw) for name in schemas if len(raw := getattr(definition, name))}
    return {name: value for name, value in found.items() if value is not None}


def _resource(definition: ResourceDefinition) -> dict[str, Any]:
    found = {name: getattr(definition, name) for name in ("uri", "name", "title", "description", "mimeType", "size")}
    return {name: value for name, value in found.items() if value is not None}


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _observe(task: asyncio.Task[AppPage]) -> None:
    """Retrieve the exception of a page that was prefetched, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()


def _cannot_display(app: OpenApp, height: int | None, display_mode: DisplayMode) -> None:
    written = expression(app.server, app.tool)
    raise McpError(
        f"the app of {written} cannot be shown here", hint="apps are shown in notebooks, after %load_ext ipymcp"
    )
