"""Server objects: their tools, state and logs, and the table of all servers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NoReturn

from msgspec import Struct

from ipymcp.api.catalogs import not_running
from ipymcp.api.sync_and_async import sync_and_async
from ipymcp.api.tool import UnloadedTool
from ipymcp.api.toolset import hidden_note, tool_table
from ipymcp.argument_checks import (
    COUNT,
    SECONDS,
    TEXT,
    check_name,
    checked,
    missing_attribute,
    one_of,
    refuse_assignment,
    without_signature,
)
from ipymcp.errors import ArgumentError, McpError, RpcError, UnknownName
from ipymcp.names import RESERVED_SERVER
from ipymcp.results.tables import NotPicklable, Table, TableView, mimebundle
from ipymcp.runtime.catalog import remembered
from ipymcp.runtime.events import LEVELS
from ipymcp.runtime.server_status import Retries, State, state_label
from ipymcp.security.trust import digest_of
from ipymcp.text import capitalized, counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ipymcp.api.resources import Prompts, Resources
    from ipymcp.api.tool import Tool, ToolFactory
    from ipymcp.config.definition import ServerDefinition
    from ipymcp.results.tool_result import ToolResult
    from ipymcp.runtime.call import Call
    from ipymcp.runtime.catalog import Catalog
    from ipymcp.runtime.session import ServerSession
    from ipymcp.storage.known_servers import KnownServer


OTHER_NAMES = {
    **dict.fromkeys(
        ("call", "call_tool", "callTool", "invoke", "run"),
        "a tool is a function: mcp.SERVER.TOOL(…), or mcp.call('SERVER', 'TOOL', {…})",
    ),
    **dict.fromkeys(
        ("list_tools", "listTools", "tools"), "mcp.tools lists all, mcp.tools('SERVER.*') those of one server"
    ),
    **dict.fromkeys(("status", "list", "list_servers"), "mcp.servers lists the servers and their states"),
    **dict.fromkeys(("read_resource", "get_resource"), "mcp.read('SERVER', 'URI')"),
    "get_prompt": "mcp.prompt('SERVER', 'NAME', {…})",
    **dict.fromkeys(("connect", "open", "start_server"), "mcp.load(…) loads and starts a server"),
    **dict.fromkeys(("add_server", "register"), "mcp.load(…) loads a server, mcp.add(…) also keeps it"),
    **dict.fromkeys(("reload", "reconnect"), "mcp.restart('SERVER') starts a server again"),
    **dict.fromkeys(("remove", "remove_server"), "mcp.unload('SERVER') removes a server"),
    "chat": "mcp.ask('…') asks a model",
}
"""Hints for attributes that neither `mcp` nor a server has, but people expect."""


class ServerTools(NotPicklable):
    """The tools of one server, as functions: `mcp.SERVER.TOOL(...)`, or `mcp.SERVER["TOOL"]` by the tool's own name.

    The server's state, its logs and the methods to start and stop it are in `mcp.servers["SERVER"]`.
    """

    _factory: ToolFactory
    _name: str

    def __init__(self, factory: ToolFactory, name: str) -> None:
        vars(self).update(_factory=factory, _name=name)  # past `__setattr__`, as each `mcp.SERVER` makes one

    @property
    def resources(self) -> Resources:
        """The server's resources, read by URI: `mcp.SERVER.resources["URI"].read()`."""
        from ipymcp.api.resources import Resources

        return Resources(self._factory.host, self._name)

    @property
    def prompts(self) -> Prompts:
        """The server's prompts as functions that return messages: `mcp.SERVER.prompts.NAME(…)`."""
        from ipymcp.api.resources import Prompts

        return Prompts(self._factory.host, self._name)

    def __getattr__(self, name: str) -> Tool:
        if name.startswith("_") and name not in self._session().catalog.aliases:
            raise AttributeError(name)
        try:
            return self[name]
        except UnknownName as error:
            if name in OTHER_NAMES:
                error.hint = OTHER_NAMES[name].replace("SERVER", self._name)
            elif hasattr(Server, name):
                error.hint = f"it is mcp.servers[{self._name!r}].{name}"
            raise

    def __setattr__(self, name: str, value: object) -> None:
        if not name.startswith("_") and not hasattr(type(self), name):
            refuse_assignment(f"mcp.{self._name}.{name}", name)
        super().__setattr__(name, value)

    def __setitem__(self, name: str, value: object) -> NoReturn:
        refuse_assignment(f"mcp.{self._name}[{name!r}]", name)

    @without_signature
    def __call__(self, *names: object, **arguments: object) -> NoReturn:  # noqa: D102 - `?` would show it
        name = names[0] if names and isinstance(names[0], str) and names[0].isidentifier() else "TOOL"
        message = f"mcp.{self._name} is a server, not a function"
        raise ArgumentError(message, hint=f"its tools are functions: mcp.{self._name}.{name}(…)")

    def __getitem__(self, name: str) -> Tool:
        """A tool by its exact name or identifier. Waits for a server that is starting."""
        check_name(name, "tool")
        session = self._session()
        entry = session.catalog.find(name)
        if entry is None:
            entry = self._factory.host.find_tool(session, name)
        return self._factory.tool(entry)

    def __iter__(self) -> Iterator[Tool]:
        self._factory.host.refresh_changed()
        return (self._factory.tool(entry) for entry in self._session().catalog.tools.values())

    def __len__(self) -> int:
        self._factory.host.refresh_changed()
        return len(self._session().catalog.tools)

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        session = self._session()
        self._factory.host.relist([f"{session.name}.{name}"])
        return session.catalog.find(name) is not None

    def __dir__(self) -> list[str]:
        session = self._session()
        offered = RESERVED_SERVER if session.client is None else RESERVED_SERVER & session.client.capabilities.keys()
        return sorted([*(entry.alias for entry in session.catalog.for_people()), *offered])

    def _ipython_key_completions_(self) -> list[str]:
        return [entry.name for entry in self._session().catalog.for_people()]

    def __repr__(self) -> str:
        return repr(self._table())

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        return mimebundle(self._table())

    def _table(self) -> Table:
        session, factory, host = self._session(), self._factory, self._factory.host
        session.expire_tools()
        host.refresh_changed()
        entries = host.browse(session).tools.values()
        note = not_running(session, anything=bool(entries)) if session.client is None else ""
        shown = [entry for entry in entries if not host.guard.is_denied(session, entry)]
        hidden = hidden_note(len(entries) - len(shown))
        return tool_table(shown, factory, title=f"{self._name}: tools", note=hidden or note)

    def _session(self) -> ServerSession:
        host = self._factory.host
        return host.sessions.get(self._name) or host.find(self._name)


class UnloadedServerTools(ServerTools):
    """The tools of a configured server that is not loaded. Using one starts the server; looking at them does not.

    Until then, the tools are those that the server had when it last ran.
    """

    def __init__(self, factory: ToolFactory, definition: ServerDefinition) -> None:
        super().__init__(factory, definition.name)
        self._definition = definition

    @property
    def resources(self) -> Resources:
        """The server's resources; starts the server."""
        self._session()
        return super().resources

    @property
    def prompts(self) -> Prompts:
        """The server's prompts; starts the server."""
        self._session()
        return super().prompts

    def __getattr__(self, name: str) -> Tool:
        if name.startswith("_") and not self._is_loaded:
            raise AttributeError(name)
        return super().__getattr__(name)

    def __getitem__(self, name: str) -> Tool:
        """A tool by its exact name or identifier, whether or not the server has it."""
        if self._is_loaded:
            return super().__getitem__(name)
        check_name(name, "tool")
        return UnloadedTool(self._factory, self._name, name)

    def __iter__(self) -> Iterator[Tool]:
        return super().__iter__() if self._is_loaded else (self[name] for name in self._catalog().tools)

    def __len__(self) -> int:
        return super().__len__() if self._is_loaded else len(self._catalog().tools)

    def __contains__(self, name: object) -> bool:
        if self._is_loaded:
            return super().__contains__(name)
        return isinstance(name, str) and self._catalog().find(name) is not None

    def __dir__(self) -> list[str]:
        if self._is_loaded:
            return super().__dir__()
        return sorted([*(entry.alias for entry in self._catalog().for_people()), *RESERVED_SERVER])

    def _ipython_key_completions_(self) -> list[str]:
        catalog = self._session().catalog if self._is_loaded else self._catalog()
        return [entry.name for entry in catalog.for_people()]

    def _table(self) -> Table:
        if self._is_loaded:
            return super()._table()
        entries = self._catalog().for_people()
        note = f"{self._name} is not loaded, and starts at its first use"
        note += "; this is what it had when it last ran" if entries else ""
        return tool_table(entries, self._factory, title=f"{self._name}: tools", note=note)

    @property
    def _is_loaded(self) -> bool:
        return self._name in self._factory.host.sessions

    def _catalog(self) -> Catalog:
        """The catalog of the last run of the same definition."""
        return remembered(self._name, self._factory.host.store.known.catalog(digest_of(self._definition)))

    def _session(self) -> ServerSession:
        return self._factory.host.used(self._name)


class ServerCommands(Struct, frozen=True):
    """The methods of `mcp` that start and stop servers by name."""

    start: Callable[..., None]
    stop: Callable[..., None]
    restart: Callable[..., None]
    enable: Callable[..., None]
    disable: Callable[..., None]
    unload: Callable[..., None]


class Server(NotPicklable):
    """One server: state, logs, start and stop. Its tools are in `mcp.SERVER`."""

    if not TYPE_CHECKING:  # for type checkers it has no other attributes

        def __getattr__(self, name: str) -> Any:
            is_tool = not name.startswith("_") and self._session.catalog.find(name) is not None
            return missing_attribute(self, name, "a server", hint=f"use .tools.{name}" if is_tool else "")

    def __init__(self, factory: ToolFactory, session: ServerSession, commands: ServerCommands) -> None:
        self._factory = factory
        self._host = factory.host
        self._session = session
        self._commands = commands

    @property
    def name(self) -> str:
        """The server's name in this notebook."""
        return self._session.name

    @property
    def state(self) -> str:
        """The server's state, such as `stopped`, `starting`, `ready` or `error`; the reference lists them all."""
        return self._session.state.value

    @property
    def away_since(self) -> float | None:
        """When the server became unreachable, in seconds since the epoch; None if it is reachable."""
        return self._session.status.unreachable_since

    @property
    def protocol_version(self) -> str:
        """The negotiated protocol version; empty while the server is not ready."""
        return self._session.protocol_version

    @property
    def protocol(self) -> str:
        """The same as `protocol_version`."""
        return self.protocol_version

    @property
    def uptime(self) -> float | None:
        """Seconds since the server became ready; None while there is no connection."""
        since = self._session.status.connected_since
        return None if since is None or self._session.client is None else max(time.time() - since, 0.0)

    @property
    def retries(self) -> Retries:
        """How often it was started again after a failure: `.count`, `.last` (seconds since the epoch), `.reason`."""
        return self._session.status.retries

    @property
    def capabilities(self) -> dict[str, Any]:
        """The capabilities that the server declares; empty while there is no connection."""
        client = self._session.client
        return dict(client.capabilities) if client else {}

    @property
    def server_info(self) -> dict[str, Any]:
        """The server's own name and version; empty while there is no connection, or if it does not say."""
        client = self._session.client
        return dict(client.server_info) if client else {}

    @property
    def instructions(self) -> str:
        """The server's instructions for models."""
        client = self._session.client
        return (client.instructions if client else None) or ""

    @property
    def error(self) -> str:
        """The last error in one line: a failure, or else the last line of standard error that begins with `ERROR`."""
        return self._session.last_error

    @property
    def pid(self) -> int | None:
        """The process id of a local server."""
        return self._session.pid

    @sync_and_async
    @checked(timeout=SECONDS)
    async def ping(self, timeout: float = 5) -> float:
        """Send the server a cheap request (`ping`, or `server/discover` in the stateless era), and wait for its answer.

            mcp.servers["demo"].ping()

        Args:
            timeout: Seconds to wait.

        Returns:
            The time that the answer took, in seconds.

        Raises:
            CallTimeout: The server did not answer in time.
            ServerError: The server is not running.
        """
        client = self._session.require()
        began = time.monotonic()
        try:
            await client.check(float(timeout))
        except RpcError:
            pass  # a refusal is an answer
        except McpError as error:
            raise self._session.explain(error) from None
        return time.monotonic() - began

    @checked(count=COUNT.or_none, level=one_of(*LEVELS))
    def logs(self, count: int | None = 50, *, level: str = "debug") -> Table:
        """The last log lines, oldest first.

            mcp.servers["demo"].logs(20, level="warning")

        Args:
            count: The maximum number of lines; None for all stored ones (1,000).
            level: The lowest level: `debug`, `info`, `notice`, `warning`, `error`, `critical`, `alert` or `emergency`.
        """
        table = log_table([self._session], count, level, title=f"{self.name}: log")
        columns = [name for name in table.columns if name != "server"]
        return Table(columns, [(row[0], *row[2:]) for row in table.rows], title=table.title, note=table.note)

    @checked(identifier=TEXT, tool=TEXT)
    def task(self, identifier: str, tool: str = "task") -> Call[ToolResult]:
        """Continue a task by its id as a `Call`, with `.result()`, `await`, `.task`, `.cancel()` and `.leave()`.

            mcp.servers["demo"].task("786512e2").result()

        Args:
            identifier: The task id that `.leave()` returned, or that an error contained, in any kernel.
            tool: The name of the tool whose call became the task, for messages.

        Raises:
            CallError: The server does not support tasks.
        """
        from ipymcp.api.tool_calls import tool_result

        host = self._factory.host
        host.wake(self._session)
        entry = self._session.catalog.find(tool)
        schema = bytes(entry.definition.outputSchema) if entry is not None else b""
        return host.calls.resume_task(
            self._session,
            self._session.call_options,
            identifier,
            tool,
            lambda raw: tool_result(raw, self.name, tool, schema or None),
        )

    @checked()
    def start(self) -> None:
        """Start the server and wait until it is ready: `mcp.servers["demo"].start()`."""
        self._commands.start(self.name)

    @checked()
    def stop(self) -> None:
        """Stop the server: `mcp.servers["demo"].stop()`."""
        self._commands.stop(self.name)

    @checked()
    def restart(self) -> None:
        """Stop the server and start it again: `mcp.servers["demo"].restart()`."""
        self._commands.restart(self.name)

    @checked()
    def enable(self) -> None:
        """Enable the server and start it: `mcp.servers["demo"].enable()`."""
        self._commands.enable(self.name)

    @checked()
    def disable(self) -> None:
        """Disable the server: stop it, and prevent calls from starting it.

        For example `mcp.servers["demo"].disable()`.
        """
        self._commands.disable(self.name)

    @checked()
    def unload(self) -> None:
        """Stop the server and remove it from the notebook: `mcp.servers["demo"].unload()`."""
        self._commands.unload(self.name)

    @property
    def tools(self) -> ServerTools:
        """The server's tools as functions, the same object as `mcp.SERVER`."""
        return ServerTools(self._factory, self.name)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        rows = [(self.state, self.protocol_version, len(self._session.catalog.tools), capitalized(self.error))]
        table = Table(("state", "protocol", "tools", "last error"), rows, title=self.name)
        return {"text/plain": repr(self), "text/html": table.html}

    def __repr__(self) -> str:
        label = self._session.state.record.label
        tools = counted(len(self._session.catalog.tools), "tool")
        return " · ".join(part for part in (self.name, label, self.protocol_version, tools, self.error) if part)


def log_table(sessions: Sequence[ServerSession], count: int | None, level: str, *, title: str) -> Table:
    """A table of the last log lines of servers, oldest first.

    Args:
        sessions: The servers.
        count: The maximum number of lines; None for all.
        level: The lowest level.
        title: The title of the table.
    """
    lines = [(line, session.name) for session in sessions for line in session.log.tail(count, level=level)]
    lines.sort(key=lambda pair: pair[0].time)
    shown = lines if count is None else lines[max(len(lines) - count, 0) :]
    rows = [
        (time.strftime("%H:%M:%S", time.localtime(line.time)), name, line.source, line.level, line.text)
        for line, name in shown
    ]
    columns = ("time", "server", "source", "level", "text")
    at_least = "" if level == "debug" else f" at the level {level} or above"
    return Table(columns, rows, title=title, note="" if rows else f"nothing is logged yet{at_least}")


class Servers(TableView):
    """The servers of this notebook, by name: `mcp.servers["SERVER"]` has state, logs, start, stop, restart."""

    COLUMNS = ("server", "state", "protocol", "tools", "calls", "last error")

    def __init__(self, factory: ToolFactory, commands: ServerCommands) -> None:
        self._factory = factory
        self._host = factory.host
        self._commands = commands

    @checked("servers")
    def __call__(self) -> Servers:
        """The servers themselves: `mcp.servers()` is `mcp.servers`."""
        return self

    def __getitem__(self, name: str) -> Server:
        return Server(self._factory, self._host.find(name), self._commands)

    if not TYPE_CHECKING:  # for type checkers it has no other attributes

        def __getattr__(self, name: str) -> Any:
            known = not name.startswith("_") and name in self
            hint = f"use mcp.servers[{name!r}]; mcp.{name} has its tools" if known else ""
            return missing_attribute(self, name, "mcp.servers", hint=hint)

    def __iter__(self) -> Iterator[str]:
        return iter(self._host.sessions)

    def __len__(self) -> int:
        return len(self._host.sessions)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._host.sessions

    @checked()
    def keys(self) -> list[str]:
        """The names of the servers."""
        return list(self)

    @checked()
    def values(self) -> list[Server]:
        """The servers in the order of loading."""
        return [self[name] for name in self]

    @checked()
    def items(self) -> list[tuple[str, Server]]:
        """The servers with their names."""
        return list(zip(self.keys(), self.values(), strict=True))

    def _ipython_key_completions_(self) -> list[str]:
        return list(self)

    @property
    def table(self) -> Table:
        """A table with a row per server."""
        rows = [
            (
                session.name,
                _state(session),
                session.protocol_version,
                len(session.catalog.tools),
                session.calls,
                capitalized(session.last_error),
            )
            for session in self._host.sessions.values()
        ]
        return Table(self.COLUMNS, rows, title="MCP servers", note=self._note(is_empty=not rows))

    def _note(self, *, is_empty: bool) -> str:
        used = self._host.used_before() if is_empty or self._host.notebook is not None else []
        if used:
            return f"{self._host.rememberer} used {'' if is_empty else 'also '}{', '.join(used)}: %mcp restore"
        return "no servers yet: %mcp load demo" if is_empty else ""

    @property
    def known(self) -> Table:
        """A table of all servers that were ever loaded on this machine, in any notebook.

        `was connected` means connected in another kernel, which may have ended since.
        """
        rows = [
            (
                server.name,
                server.transport,
                server.auth,
                self._status(server),
                server.version,
                tools,
                time.strftime("%Y-%m-%d %H:%M", time.localtime(server.last_seen)) if server.last_seen else "",
                capitalized(server.error),
            )
            for server, tools in self._host.store.known.all()
        ]
        columns = ("server", "transport", "auth", "status", "protocol", "tools", "last seen", "last error")
        return Table(columns, rows, title="known MCP servers", note="" if rows else "none was loaded yet")

    def _status(self, server: KnownServer) -> str:
        if not server.enabled:
            return "disabled"
        sessions = self._host.sessions.values()
        is_here = any(session.client is not None and session.digest == server.digest for session in sessions)
        return "was connected" if server.status == "connected" and not is_here else state_label(server.status)


def _state(session: ServerSession) -> str:
    if session.is_lazy:
        return "stopped (lazy)"
    if session.state is not State.UNREACHABLE or session.status.unreachable_since is None:
        return session.state.record.label
    return f"unreachable since {time.strftime('%H:%M', time.localtime(session.status.unreachable_since))}"
