"""Resources and prompts of servers: listing, reading, subscribing; templates and prompts called with arguments.

Source: MCP 2026-07-28, server/resources and server/prompts; RFC 6570, which `uritemplate` implements.
"""

from __future__ import annotations

import importlib
import inspect
import re
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ipymcp.api.catalogs import AllOffers, ServerOffers, argument_list, load_all, load_catalog, load_quickly
from ipymcp.api.sync_and_async import sync_and_async
from ipymcp.argument_checks import FUNCTION, MAPPING, TEXT, check_name, checked
from ipymcp.errors import McpError, RpcError
from ipymcp.names import RESERVED_PROMPTS, nearest, selects
from ipymcp.protocol import types
from ipymcp.protocol.types import is_array, is_object
from ipymcp.results.content import Part, ReceivedResult, read_part
from ipymcp.results.resource_result import ResourceResult
from ipymcp.results.tables import NotPicklable
from ipymcp.schema.tool_schema import Argument, callable_class, schema_of, to_strings
from ipymcp.text import counted, one_line, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import TracebackType

    from msgspec import Raw

    from ipymcp.protocol.types import TemplateDefinition
    from ipymcp.runtime.catalog import Catalog, PromptEntry
    from ipymcp.runtime.host import Host
    from ipymcp.runtime.session import ServerSession
    from ipymcp.schema.tool_schema import ToolSchema

# -- resources ---------------------------------------------------------------------------------------------------------


class Subscription(NotPicklable):
    """The current content of a resource, which is read again at each change notification until `.close()`.

    It continues after a restart of the server. A `with` block closes it at the end.
    """

    def __init__(self, host: Host, session: ServerSession, uri: str, callback: Callable[[ResourceResult], Any] | None):
        self._host = host
        self._session = session
        self._subscriptions = session.subscriptions
        self._callback = callback
        self._value: ResourceResult | None = None
        self.uri = uri
        self.updated = 0
        """The number of changes since the start of the subscription."""
        self.error: McpError | None = None
        """The error of the last read; None if it succeeded."""
        self.closed = False

    async def open(self) -> Subscription:
        """Read the resource and register for its changes; `subscribe` has done this."""
        await self._subscriptions.add(self.uri, self._update)
        return self

    @property
    def server(self) -> str:
        """The server's name."""
        return self._session.name

    @property
    def value(self) -> ResourceResult:
        """The result of the last read."""
        assert self._value is not None  # `open` reads the resource
        return self._value

    def close(self) -> None:
        """End the subscription: `changes.close()`."""
        self.closed = True
        if self._host.loop.is_running:
            self._host.loop.call(self._subscriptions.remove, self.uri, self._update)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"updated {counted(self.updated, 'time')}"
        return one_line(f"Subscription {self.server} {self.uri}, {state}")

    def _update(self, content: Raw | McpError, is_change: bool) -> None:
        if isinstance(content, McpError):
            self.error = content
            return
        value = ResourceResult(bytes(content), server=self.server, uri=self.uri)
        self._value, self.error = value, None
        if is_change:
            self.updated += 1
            if self._callback is not None and not self.closed:
                callback, spawn = self._callback, self._host.handler_loop.spawn
                self._host.handler_loop.call(lambda: spawn(self._call_back(callback, value), "ipymcp-callback"))

    async def _call_back(self, callback: Callable[[ResourceResult], Any], value: ResourceResult) -> None:
        """Call the callback, and await its return value if that is awaitable. Runs on the handlers' loop."""
        try:
            outcome = callback(value)
            if inspect.isawaitable(outcome):
                await outcome
        except Exception as error:
            text = f"the callback of the subscription to {self.uri} failed: {error!r}"
            self._session.log.add("host", "error", text)


_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_NOT_FOUND = frozenset({-32002, -32602})
"""Error codes for a missing resource, in older revisions and in 2026-07-28."""


class Resource(NotPicklable):
    """A resource of a server, with `.read()` and `.subscribe()`. Nothing is read before that."""

    def __init__(self, host: Host, server: str, uri: str) -> None:
        self._host = host
        self._server = server
        self.uri = uri
        """The resource's URI."""

    @sync_and_async
    @checked()
    async def read(self) -> ResourceResult:
        """Read the resource; results that the server marks as cacheable are cached.

            mcp.demo.resources["demo://penguins.csv"].read().df

        Raises:
            RpcError: The server has no such resource, or cannot read it.
        """
        session = self._session
        await session.awake()
        try:
            raw = await session.resources.read(self.uri)
        except RpcError as error:
            _add_hint(error, self.uri, session)
            raise
        result = ResourceResult(bytes(raw), server=self._server, uri=self.uri)
        self._host.guard.received_outside_call(result.source, bytes(raw))
        return result

    @sync_and_async
    @checked(callback=FUNCTION.or_none)
    async def subscribe(self, callback: Callable[[ResourceResult], Any] | None = None) -> Subscription:
        """Read the resource now, and again whenever the server notifies of a change.

            changes = mcp.fs.resources["file:///data/sales.csv"].subscribe(print)
            changes.close()

        Args:
            callback: Called with each new `ResourceResult`, on a background thread; may be a coroutine function.

        Raises:
            CallError: The server does not support subscriptions, or refused.
        """
        session = self._session
        await session.awake()
        try:
            return await Subscription(self._host, session, self.uri, callback).open()
        except RpcError as error:
            _add_hint(error, self.uri, session)
            raise

    @property
    def server(self) -> str:
        """The server's name."""
        return self._server

    @property
    def name(self) -> str:
        """The resource's name; the URI if the server does not list it."""
        return self._listed("name") or self.uri

    @property
    def title(self) -> str:
        """The resource's title; empty if it has none."""
        return self._listed("title") or ""

    @property
    def description(self) -> str:
        """The server's description of the resource; empty if it has none."""
        return self._listed("description") or ""

    @property
    def mime_type(self) -> str:
        """The MIME type in the server's list; empty if unknown."""
        return self._listed("mimeType") or ""

    @property
    def size(self) -> int | None:
        """The size in bytes in the server's list; None if unknown."""
        size = self._listed("size")
        return None if size is None else int(size)

    def _listed(self, field: str) -> Any:
        """A field of the server's definition; None if the server does not list the resource."""
        return getattr(self._session.catalog.resources.get(self.uri), field, None)

    @property
    def _session(self) -> ServerSession:
        return self._host.find(self._server)

    def __repr__(self) -> str:
        name = self.title or self.name
        about = " · ".join(word for word in ("" if name == self.uri else name, self.mime_type) if word)
        return one_line(f"Resource {self._server} {self.uri}" + (f" ({about})" if about else ""))


class Resources(ServerOffers):
    """The resources of one server: `mcp.SERVER.resources["URI"].read()`, and its templates by their URI template.

    Displayed as a table; `.df` is a DataFrame. Iteration yields the resources, not the templates.
    """

    _noun = "resource"
    _kinds = ("resources", "templates")
    _columns = ("resource", "name", "type", "description")

    def __getitem__(self, name: str) -> Resource | Template:
        """A resource by its URI or name, or a template by its URI template.

        A URI need not be listed: servers can read resources that they do not list.

        Raises:
            UnknownName: There is no such resource; the hint has similar names.
        """
        check_name(name, "resource")
        session = self._session
        if "{" not in name and _URI.match(name):
            return Resource(self._host, self._server, name)
        found = self._find(session.catalog, name) or self._find_again(name)
        if found is None:
            catalog = session.catalog
            names = (each.name for each in catalog.resources.values())
            raise self._unknown(name, [*catalog.resources, *names, *catalog.templates])
        return found

    def __iter__(self) -> Iterator[Resource]:
        catalog = load_catalog(self._host, self._session, "resources")
        return (Resource(self._host, self._server, uri) for uri in catalog.resources)

    def __len__(self) -> int:
        return len(load_catalog(self._host, self._session, "resources").resources)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._find_again(name) is not None

    def _find_again(self, name: str) -> Resource | Template | None:
        catalogs = (load_catalog(self._host, self._session, *self._kinds, again=again) for again in (False, True))
        return next((found for catalog in catalogs if (found := self._find(catalog, name)) is not None), None)

    @property
    def templates(self) -> list[Template]:
        """The resource templates of the server."""
        catalog = load_catalog(self._host, self._session, "templates")
        return [template(self._host, self._server, definition) for definition in catalog.templates.values()]

    def _ipython_key_completions_(self) -> list[str]:
        catalog = load_quickly(self._host, self._session, *self._kinds)
        return [*catalog.resources, *catalog.templates]

    def _find(self, catalog: Catalog, name: str) -> Resource | Template | None:
        """A listed resource by URI or unique name, or a template by URI template or unique name."""
        named = [uri for uri, each in catalog.resources.items() if name in (uri, each.name)]
        if name not in catalog.templates and len(named) == 1:
            return Resource(self._host, self._server, named[0])
        alike = [each for each in catalog.templates.values() if each.name == name]
        only = alike[0] if len(alike) == 1 and not named else None
        found = catalog.templates.get(name, only)
        return found and template(self._host, self._server, found)

    def _rows(self, catalog: Catalog) -> list[tuple[str, ...]]:
        return _rows(catalog)


class AllResources(AllOffers):
    """The resources of all ready servers, displayed as a table: `mcp.resources`, `mcp.resources("fs", "*.csv")`.

    Patterns are globs for the server, `server.uri`, the URI and the name; the last match decides, `!` excludes.
    """

    _noun = "resource"
    _kinds = ("resources", "templates")
    # The URI comes first, because users copy it and the first column is cut last.
    _columns = ("resource", "server", "name", "type", "description")

    @checked("resources", patterns=TEXT)
    def __call__(self, *patterns: str) -> AllResources:
        """Select resources by patterns."""
        return AllResources(self._host, patterns)

    def __iter__(self) -> Iterator[Resource]:
        catalogs, _ = load_all(self._host, "resources")
        for session, catalog in catalogs:
            for uri, definition in catalog.resources.items():
                if self._is_selected(session.name, uri, definition.name):
                    yield Resource(self._host, session.name, uri)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _rows(self, server: str, catalog: Catalog) -> list[tuple[str, ...]]:
        return [
            (uri, server, name, *more) for uri, name, *more in _rows(catalog) if self._is_selected(server, uri, name)
        ]

    def _is_selected(self, server: str, uri: str, name: str) -> bool:
        return selects(self._patterns, (server, f"{server}.{uri}", uri, name))


def _rows(catalog: Catalog) -> list[tuple[str, ...]]:
    """Rows of resources, then of templates."""
    listed = (*catalog.resources.items(), *catalog.templates.items())
    return [
        (uri, each.title or each.name, each.mimeType or "", (each.description or "").strip().partition("\n")[0])
        for uri, each in listed
    ]


def _add_hint(error: RpcError, uri: str, session: ServerSession) -> None:
    """Add the URI to an error's message, and similar URIs as a hint."""
    if uri not in error.message:
        error.message = f"{uri}: {error.message}"
    if error.hint is None and error.code in _NOT_FOUND:
        meant = "" if uri in session.catalog.resources else nearest(uri, session.catalog.resources, limit=1)
        error.hint = meant or f"%mcp resources {quoted(session.name)}"


_OPTIONAL = ("?", "&", "#", ";")
"""Operators of expressions that expand to nothing without parameters."""


class Template(NotPicklable):
    """A resource template, called with its parameters to get a `Resource`."""

    def __init__(self, host: Host, server: str, definition: TemplateDefinition, schema: ToolSchema) -> None:
        self._host = host
        self._server = server
        self._definition = definition
        self._schema = schema

    def __call__(self, /, *args: Any, **kwargs: Any) -> Resource:
        """The resource for these parameters. Nothing is read yet.

        Raises:
            ArgumentError: A parameter is missing or unknown.
        """
        return self.resource(to_strings(self._schema, args, kwargs))

    @checked(parameters=MAPPING)
    def resource(self, parameters: Mapping[str, Any]) -> Resource:
        """The resource for a mapping of parameters by exact name.

        For example `mcp.demo.resources.templates[0].resource({"species": "Gentoo"}).read()`.
        """
        return Resource(self._host, self._server, expand(self._definition, parameters))

    @property
    def server(self) -> str:
        """The server's name."""
        return self._server

    @property
    def uri_template(self) -> str:
        """The template as the server wrote it."""
        return self._definition.uriTemplate

    @property
    def name(self) -> str:
        """The template's name."""
        return self._definition.name

    @property
    def description(self) -> str:
        """The server's description of the template; empty if it has none."""
        return self._definition.description or ""

    @property
    def mime_type(self) -> str:
        """The common MIME type of the template's resources; empty if they have none."""
        return self._definition.mimeType or ""

    def __repr__(self) -> str:
        words = (self._definition.title or self.name, self.mime_type)
        about = " · ".join(word for word in words if word)
        return one_line(f"Template {self._server} {self.uri_template}" + (f" ({about})" if about else ""))


def template(host: Host, server: str, definition: TemplateDefinition) -> Template:
    """Make a template object with its own signature and docstring."""
    schema = template_schema(server, definition)
    kind = callable_class(
        Template,
        schema,
        alias="Template",
        kind="Resource template",
        returns="Resource",
        title=definition.title or definition.name,
        description=definition.description,
    )
    return kind(host, server, definition, schema)


def expand(definition: TemplateDefinition, parameters: Mapping[str, Any]) -> str:
    """Expand a template to a URI with parameters by exact name (RFC 6570)."""
    return _parsed(definition.uriTemplate).expand(dict(parameters))


def template_schema(server: str, definition: TemplateDefinition) -> ToolSchema:
    """The schema of a template's parameters."""
    arguments: dict[str, Argument] = {}
    for expression in _parsed(definition.uriTemplate).variables:
        required = not expression.original.startswith(_OPTIONAL)
        for name, options in expression.variables:
            arguments.setdefault(name, Argument(name, required, is_explodable=bool(options.get("explode"))))
    return schema_of(arguments.values(), server=server, owner=definition.uriTemplate)


def _parsed(text: str) -> Any:
    return importlib.import_module("uritemplate").URITemplate(text)


# -- prompts -----------------------------------------------------------------------------------------------------------


_COLUMNS = ("prompt", "arguments", "description")


class Message(Struct, frozen=True):
    """One message of a prompt."""

    role: str
    """`user` or `assistant`."""
    content: Part
    """`Text`, `Image`, `Audio`, `Link` or `Embedded`."""

    @property
    def text(self) -> str:
        """The content as text; a placeholder in brackets if it is not text."""
        return str(self.content)


class PromptResult(ReceivedResult):
    """The messages of a prompt, in order. `.raw["messages"]` suits chat models.

    Args:
        raw: The JSON of the `result` object of `prompts/get`.
        server: The server's name in this notebook.
        prompt: The prompt's exact name.
    """

    def __init__(self, raw: bytes | Raw, *, server: str, prompt: str) -> None:
        self._raw = raw
        self.server = server
        self.prompt = prompt

    @property
    def source(self) -> str:
        """The origin of the result: the server and the prompt."""
        return f"{self.server} {self.prompt}"

    @cached_property
    def messages(self) -> list[Message]:
        """The messages, each with `.role` and `.content`."""
        result = types.decode(self._raw, types.GetPromptResult)
        return [message for raw in result.messages for message in _messages(types.loads(raw))]

    @property
    def text(self) -> str:
        """All messages as text, with their roles if these differ."""
        if len({message.role for message in self.messages}) <= 1:
            return "\n\n".join(message.text for message in self.messages)
        return "\n\n".join(f"{message.role}: {message.text}" for message in self.messages)

    @property
    def description(self) -> str:
        """The server's description of the prompt."""
        return types.decode(self._raw, types.GetPromptResult).description or ""

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages)

    def __len__(self) -> int:
        return len(self.messages)

    def __getitem__(self, at: int) -> Message:
        return self.messages[at]

    def __bool__(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PromptResult):
            return NotImplemented
        return (self.server, self.prompt, self.messages) == (other.server, other.prompt, other.messages)

    @property
    def _arguments(self) -> dict[str, Any]:
        return {"server": self.server, "prompt": self.prompt}

    def __repr__(self) -> str:
        from ipymcp.results.rendering import shown_text

        messages = "\n".join(f"{message.role}: {message.text}" for message in self.messages)
        return shown_text(f"PromptResult {self.server}.{self.prompt}:\n{messages or 'no messages'}")

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        from ipymcp.results.rendering import conversation

        html = conversation((message.role, message.content) for message in self.messages)
        return {"text/plain": repr(self), "text/html": html}


class Prompt(NotPicklable):
    """A prompt of a server, called like a function: `mcp.SERVER.prompts.NAME(argument="…")` returns its messages."""

    def __init__(self, host: Host, entry: PromptEntry, schema: ToolSchema) -> None:
        self._host = host
        self._entry = entry
        self._schema = schema

    def __call__(self, /, *args: Any, **kwargs: Any) -> PromptResult:
        """Get the messages for these arguments.

        Raises:
            ArgumentError: An argument is missing or unknown.
            RpcError: The server refused the request.
        """
        return self._host.loop.run(self._get(to_strings(self._schema, args, kwargs)))

    async def aio(self, /, *args: Any, **kwargs: Any) -> PromptResult:
        """Get the messages without blocking: `await mcp.demo.prompts.describe.aio(species="Gentoo")`."""
        return await self._host.loop.arun(self._get(to_strings(self._schema, args, kwargs)))

    @property
    def server(self) -> str:
        """The server's name."""
        return self._entry.server

    @property
    def name(self) -> str:
        """The prompt's exact name."""
        return self._entry.name

    @property
    def description(self) -> str:
        """The server's description of the prompt."""
        return self._entry.definition.description or ""

    async def _get(self, arguments: Mapping[str, str]) -> PromptResult:
        session = self._host.find(self.server)
        await session.awake()
        try:
            raw = await session.resources.prompt(self.name, arguments)
        except RpcError as error:
            error.tool = error.tool or self.name
            error.hint = error.hint or f"%mcp prompts {quoted(self.server)}"
            raise
        result = PromptResult(bytes(raw), server=self.server, prompt=self.name)
        self._host.guard.received_outside_call(result.source, bytes(raw))
        return result

    def __repr__(self) -> str:
        from ipymcp.text import shortened, visible

        about = shortened(visible(_first_line(self._entry)), 100)
        signature = self._schema.signature.replace(return_annotation=self._schema.signature.empty)
        return f"{self.server}.prompts.{self._entry.alias}{signature}" + (f"\n    {about}" if about else "")


class Prompts(ServerOffers):
    """The prompts of one server, as functions: `mcp.SERVER.prompts.NAME(…)`, or `["NAME"]` by the prompt's own name."""

    _noun = "prompt"
    _kinds = ("prompts",)
    _columns = _COLUMNS

    def __getattr__(self, name: str) -> Prompt:
        if name.startswith("_"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, name: str) -> Prompt:
        """A prompt by its exact name or identifier.

        Raises:
            UnknownName: There is no such prompt; the hint has similar names.
        """
        check_name(name, "prompt")
        session = self._session
        entry = session.catalog.find_prompt(name) or self._find_again(name)
        if entry is None:
            raise self._unknown(name, [*session.catalog.prompt_aliases, *session.catalog.prompts])
        return prompt(self._host, entry)

    def __iter__(self) -> Iterator[Prompt]:
        return (prompt(self._host, entry) for entry in self._catalog().prompts.values())

    def __len__(self) -> int:
        return len(self._catalog().prompts)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._find_again(name) is not None

    def __dir__(self) -> list[str]:
        return sorted([*load_quickly(self._host, self._session, "prompts").prompt_aliases, *RESERVED_PROMPTS])

    def _ipython_key_completions_(self) -> list[str]:
        return list(load_quickly(self._host, self._session, "prompts").prompts)

    def _find_again(self, name: str) -> PromptEntry | None:
        found = self._catalog().find_prompt(name)
        return found or load_catalog(self._host, self._session, "prompts", again=True).find_prompt(name)

    def _catalog(self) -> Catalog:
        return load_catalog(self._host, self._session, "prompts")

    def _rows(self, catalog: Catalog) -> list[tuple[str, ...]]:
        return [_row(entry, entry.alias) for entry in catalog.prompts.values()]


class AllPrompts(AllOffers):
    """The prompts of all ready servers, displayed as a table: `mcp.prompts`, `mcp.prompts("fs.*")`.

    Patterns are globs for the server, `server.prompt` and the prompt; the last match decides, `!` excludes.
    """

    _noun = "prompt"
    _kinds = ("prompts",)
    _columns = _COLUMNS

    @checked("prompts", patterns=TEXT)
    def __call__(self, *patterns: str) -> AllPrompts:
        """Select prompts by patterns."""
        return AllPrompts(self._host, patterns)

    def __iter__(self) -> Iterator[Prompt]:
        catalogs, _ = load_all(self._host, "prompts")
        return (prompt(self._host, entry) for _, catalog in catalogs for entry in self._selected(catalog))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _rows(self, server: str, catalog: Catalog) -> list[tuple[str, ...]]:
        return [_row(entry, f"{entry.server}.{entry.alias}") for entry in self._selected(catalog)]

    def _selected(self, catalog: Catalog) -> list[PromptEntry]:
        return [
            entry
            for entry in catalog.prompts.values()
            if selects(
                self._patterns,
                (entry.server, f"{entry.server}.{entry.name}", f"{entry.server}.{entry.alias}", entry.name),
            )
        ]


def prompt(host: Host, entry: PromptEntry) -> Prompt:
    """Make a prompt object with its own signature and docstring."""
    schema = prompt_schema(entry)
    kind = callable_class(
        Prompt,
        schema,
        alias=entry.alias,
        kind="Prompt",
        returns="PromptResult",
        title=entry.definition.title,
        description=entry.definition.description,
    )
    return kind(host, entry, schema)


def prompt_schema(entry: PromptEntry) -> ToolSchema:
    """The schema of a prompt's arguments."""
    declared = entry.definition.arguments or ()
    arguments = [Argument(each.name, bool(each.required), each.description or each.title or "") for each in declared]
    return schema_of(arguments, server=entry.server, owner=entry.name)


def _row(entry: PromptEntry, name: str) -> tuple[str, str, str]:
    return name, argument_list(prompt_schema(entry).parameters), _first_line(entry)


def _first_line(entry: PromptEntry) -> str:
    return (entry.definition.description or entry.definition.title or "").strip().split("\n", 1)[0]


def _messages(value: Any) -> list[Message]:
    """Read a message leniently: an invalid one is shown, not refused, and one with a list of parts is several."""
    role, content = (value.get("role"), value.get("content")) if is_object(value) else (None, value)
    parts = content if is_array(content) else [content]
    return [Message(role if isinstance(role, str) else "user", read_part(part)) for part in parts]
