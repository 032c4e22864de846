"""Methods of `mcp` that take names: `mcp.call("demo", "echo", {"text": "hi"})`, `mcp.read("demo", "demo://notes.md")`.

They are the counterparts of `%mcp call`, `map`, `read`, `subscribe` and `prompt`, for names that are only known when
the code runs. A name that is written in the code is shorter as an attribute: `mcp.demo.echo("hi")`.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from ipymcp.api.sync_and_async import BlockingFunction
from ipymcp.argument_checks import FUNCTION, MAPPING, SECONDS, TEXT, checked, refuse_assignment, without_signature
from ipymcp.errors import ArgumentError
from ipymcp.results.tables import NotPicklable

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipymcp.api.parts import McpParts
    from ipymcp.api.resources import Prompt, PromptResult, Resource, Subscription
    from ipymcp.api.servers import ServerTools
    from ipymcp.api.tool import Tool
    from ipymcp.results.resource_result import ResourceResult
    from ipymcp.results.tool_result import ToolResult


_NO_ARGUMENTS: Mapping[str, Any] = {}


class NamedAccess(NotPicklable):
    """Access to tools, resources and prompts by the names of their servers and their own."""

    _parts: McpParts

    @abstractmethod
    def __getitem__(self, name: str) -> ServerTools:
        """The tools of one server."""

    @property
    def call(self) -> BlockingFunction[..., ToolResult]:
        """Call a tool: `mcp.call("demo", "echo", {"text": "hi"})`, or `mcp.call("demo.echo", {"text": "hi"})`."""
        return BlockingFunction(self._call, self._call_aio)

    @property
    def map(self) -> BlockingFunction[..., Any]:
        """Call a tool for every row: `mcp.map("demo.echo", rows)`, with the options of `mcp.SERVER.TOOL.map`."""
        return BlockingFunction(self._map, self._map_aio)

    @property
    def read(self) -> BlockingFunction[..., ResourceResult]:
        """Read a resource by its URI or name: `mcp.read("demo", "demo://notes.md")`."""
        return BlockingFunction(self._read, self._read_aio)

    @property
    def subscribe(self) -> BlockingFunction[..., Subscription]:
        """Keep a resource up to date: `mcp.subscribe("demo", "demo://clock", function)`."""
        return BlockingFunction(self._subscribe, self._subscribe_aio)

    @property
    def prompt(self) -> BlockingFunction[..., PromptResult]:
        """Get the messages of a prompt: `mcp.prompt("demo", "describe", {"species": "Gentoo"})`."""
        return BlockingFunction(self._prompt, self._prompt_aio)

    def __setattr__(self, name: str, value: object) -> None:
        if not name.startswith("_") and not hasattr(type(self), name):
            refuse_assignment(f"mcp.{name}", name)
        super().__setattr__(name, value)

    def __setitem__(self, name: str, value: object) -> NoReturn:
        refuse_assignment(f"mcp[{name!r}]", name)

    @without_signature
    def __call__(self, *names: object, **arguments: object) -> NoReturn:  # noqa: D102 - `?` would show it
        name = f"mcp.{names[0]}" if names and isinstance(names[0], str) and names[0].isidentifier() else "mcp.SERVER"
        hint = f"mcp.load(…) loads a server, and its tools are functions: {name}.TOOL(…)"
        raise ArgumentError("mcp is not a function", hint=hint)

    # -- tools --------------------------------------------------------------------------------------------------------

    @checked("call", server=TEXT, tool=(TEXT | MAPPING).or_none, arguments=MAPPING.or_none, timeout=SECONDS.or_none)
    def _call(
        self,
        server: str,
        tool: str | Mapping[str, Any] | None = None,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
    ) -> ToolResult:
        """Call a tool: `mcp.call("demo", "echo", {"text": "hi"})`, or `mcp.call("demo.echo", {"text": "hi"})`.

        Args:
            server: The server's name; or `server.tool`, without the next argument.
            tool: The tool's name.
            arguments: The arguments by their exact names.
            timeout: Seconds without progress after which the call fails.

        Raises:
            UnknownName: There is no such server or tool; the hint has similar names.
            ArgumentError: The arguments are invalid.
            ToolError: The tool answered with an error.
        """
        found, given = self._tool_and_arguments(server, tool, arguments, timeout)
        return found.call(given)

    @checked("call.aio", server=TEXT, tool=(TEXT | MAPPING).or_none, arguments=MAPPING.or_none, timeout=SECONDS.or_none)
    async def _call_aio(
        self,
        server: str,
        tool: str | Mapping[str, Any] | None = None,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
    ) -> ToolResult:
        found, given = await asyncio.to_thread(self._tool_and_arguments, server, tool, arguments, timeout)
        return await found.aio.call(given)

    def _tool_and_arguments(
        self,
        server: str,
        tool: str | Mapping[str, Any] | None,
        arguments: Mapping[str, Any] | None,
        timeout: float | None,
    ) -> tuple[Tool, Mapping[str, Any]]:
        name = tool if isinstance(tool, str) else None
        given = tool if isinstance(tool, Mapping) else arguments
        found = self._tool(server, name)
        return found if timeout is None else found.options(timeout=timeout), given or _NO_ARGUMENTS

    @checked("map", tool=TEXT)
    def _map(self, tool: str, rows: object, /, **options: Any) -> Any:
        """Call a tool for every row: `mcp.map("demo.echo", rows)`, with the options of `mcp.SERVER.TOOL.map`.

        Args:
            tool: The tool as `server.tool`.
            rows: The rows.
            **options: The options of `mcp.SERVER.TOOL.map`, and constant arguments.
        """
        return self._tool(tool, None).map(rows, **options)

    @checked("map.aio", tool=TEXT)
    async def _map_aio(self, tool: str, rows: object, /, **options: Any) -> Any:
        found = await asyncio.to_thread(self._tool, tool, None)
        return await found.map.aio(rows, **options)

    def _tool(self, server: str, tool: str | None) -> Tool:
        host = self._parts.host
        self._parts.load_for_use(server)
        if tool is None:
            session, tool = host.resolve(server)
        else:
            session = host.find(server)
        if session.client is None and session.catalog.find(tool) is None:
            host.wake(session)
        return self._parts.factory.tool(host.find_tool(session, tool))

    # -- resources and prompts ----------------------------------------------------------------------------------------

    @checked("read", server=TEXT, uri=TEXT)
    def _read(self, server: str, uri: str, /, **parameters: Any) -> ResourceResult:
        """Read a resource by its URI or name: `mcp.read("demo", "demo://notes.md")`.

        Args:
            server: The server's name.
            uri: The resource's URI or name; or a template's, with its parameters.
            **parameters: The parameters of the template.

        Raises:
            UnknownName: There is no such server or resource.
            RpcError: The server cannot read it.
        """
        return self._resource(server, uri, parameters).read()

    @checked("read.aio", server=TEXT, uri=TEXT)
    async def _read_aio(self, server: str, uri: str, /, **parameters: Any) -> ResourceResult:
        resource = await asyncio.to_thread(self._resource, server, uri, parameters)
        return await resource.read.aio()

    @checked("subscribe", server=TEXT, uri=TEXT, callback=FUNCTION.or_none)
    def _subscribe(
        self, server: str, uri: str, callback: Callable[[ResourceResult], Any] | None = None, /, **parameters: Any
    ) -> Subscription:
        """Keep a resource up to date: `mcp.subscribe("demo", "demo://clock", function)`.

        Args:
            server: The server's name.
            uri: The resource's URI or name; or a template's, with its parameters.
            callback: Called with each new content, on a background thread; may be a coroutine function.
            **parameters: The parameters of the template.

        Raises:
            UnknownName: There is no such server or resource.
            CallError: The server does not support subscriptions, or refused.
        """
        return self._resource(server, uri, parameters).subscribe(callback)

    @checked("subscribe.aio", server=TEXT, uri=TEXT, callback=FUNCTION.or_none)
    async def _subscribe_aio(
        self, server: str, uri: str, callback: Callable[[ResourceResult], Any] | None = None, /, **parameters: Any
    ) -> Subscription:
        resource = await asyncio.to_thread(self._resource, server, uri, parameters)
        return await resource.subscribe.aio(callback)

    def _resource(self, server: str, uri: str, parameters: Mapping[str, Any]) -> Resource:
        from ipymcp.api.resources import Template

        found = self[server].resources[uri]
        if isinstance(found, Template):
            return found(**parameters)
        if parameters:
            raise ArgumentError(f"{uri} is not a template: it takes no parameters", server=server)
        return found

    @checked("prompt", server=TEXT, name=TEXT.or_none, arguments=MAPPING.or_none)
    def _prompt(self, server: str, name: str | None = None, arguments: Mapping[str, Any] | None = None) -> PromptResult:
        """Get the messages of a prompt: `mcp.prompt("demo", "describe", {"species": "Gentoo"})`.

        Args:
            server: The server's name; or `server.prompt`, without the next argument.
            name: The prompt's name.
            arguments: The arguments by name.

        Raises:
            UnknownName: There is no such server or prompt.
            ArgumentError: An argument is missing or unknown.
        """
        return self._named_prompt(server, name)(**(arguments or _NO_ARGUMENTS))

    @checked("prompt.aio", server=TEXT, name=TEXT.or_none, arguments=MAPPING.or_none)
    async def _prompt_aio(
        self, server: str, name: str | None = None, arguments: Mapping[str, Any] | None = None
    ) -> PromptResult:
        found = await asyncio.to_thread(self._named_prompt, server, name)
        return await found.aio(**(arguments or _NO_ARGUMENTS))

    def _named_prompt(self, server: str, name: str | None) -> Prompt:
        if name is None:
            session, name = self._parts.host.resolve(server, "prompt")
            server = session.name
        return self[server].prompts[name]
