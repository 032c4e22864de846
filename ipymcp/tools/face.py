"""What `mcp` is: the servers of this notebook, their tools, and the words that load, start and stop them."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ipymcp.config.definition import ServerDefinition
from ipymcp.config.files import from_mapping, read
from ipymcp.errors import ConfigError, UnknownName
from ipymcp.policy.filters import Filters
from ipymcp.runtime.names import nearest
from ipymcp.runtime.server import State
from ipymcp.tools.tables import Table
from ipymcp.tools.tool import Tool, ToolFactory
from ipymcp.tools.toolset import Toolset
from ipymcp.tools.waits import waits

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ipymcp.runtime.calls import Call
    from ipymcp.runtime.catalog import ToolEntry
    from ipymcp.runtime.host import Host
    from ipymcp.runtime.loop import BackgroundLoop
    from ipymcp.runtime.server import ServerSession

__all__ = ["Mcp", "Server", "ServerTools", "Servers", "demo_definition"]


class Mcp:
    """The MCP servers of this notebook; each tool of each server is a function: `mcp.SERVER.TOOL(...)`.

    First `mcp.load("demo")`, or `%mcp load …` in a cell; `%mcp help` lists the commands. `mcp.servers` shows states and
    logs, `mcp.tools` all tools. A server whose name is no identifier is `mcp["my server"]`.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._filters = Filters()
        self._factory = ToolFactory(host, self._filters.check)

    @property
    def _loop(self) -> BackgroundLoop:
        return self._host.loop

    # -- looking up ---------------------------------------------------------------------------------------------------

    @property
    def servers(self) -> Servers:
        """The servers by name: state, logs, start, stop, restart."""
        return Servers(self)

    @property
    def tools(self) -> Toolset:
        """All tools now available; called with patterns, a selection: `mcp.tools("fs.*", "!*.write_*")`."""
        return Toolset(self._host, self._factory, self._filters, ())

    @property
    def calls(self) -> list[Call[Any]]:
        """The calls now running, oldest first."""
        return list(self._host.running.values())

    def __getattr__(self, name: str) -> ServerTools:
        if name.startswith("_"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, name: str) -> ServerTools:
        """The tools of one server, by its name or what a user types for it."""
        return ServerTools(self, self._host.find(name))

    def __iter__(self) -> Iterator[str]:
        """The names of the servers."""
        return iter(self._host.sessions)

    def __contains__(self, name: object) -> bool:
        return name in self._host.sessions

    def __dir__(self) -> list[str]:
        return sorted({*(word for word in dir(type(self)) if not word.startswith("_")), *self._host.aliases().values()})

    def _ipython_key_completions_(self) -> list[str]:
        return list(self._host.sessions)

    def __repr__(self) -> str:
        return repr(self.servers)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        return self.servers._repr_mimebundle_(include, exclude)

    # -- words that wait ----------------------------------------------------------------------------------------------

    @waits
    async def load(self, *what: str | os.PathLike[str] | Mapping[str, Any], wait: bool = True) -> Servers:
        """Load servers: `"demo"`, a config file and names in it, or `{"name": {"command": …, "args": […]}}`.

        Loading twice what has not changed does nothing; what has changed is restarted.

        Args:
            what: Names, paths, definitions. A plain name after a path picks from that file; one that is loaded already
                is started.
            wait: Until each is ready or has failed.

        Raises:
            ServerError: A server asked for by name did not start.
            ConfigError: A file or definition is wrong.
        """
        definitions, named = gather(what, self._host)
        await self._load(definitions, wait=wait)
        for name in named if wait else ():
            self._host.sessions[name].require()
        return self.servers

    async def _load(self, definitions: Iterable[ServerDefinition], *, wait: bool) -> None:
        await self._host.load(definitions, wait=wait)

    @waits
    async def start(self, *names: str) -> None:
        """Start servers that were stopped or have failed.

        Raises:
            ServerError: One did not start.
        """
        for session in await self._host.start(names):
            session.require()

    @waits
    async def stop(self, *names: str) -> None:
        """Stop servers; their tools are refused until they are started again."""
        await self._host.stop(names)

    @waits
    async def restart(self, *names: str) -> None:
        """Stop servers and start them again.

        Raises:
            ServerError: One did not start.
        """
        for session in await self._host.restart(names):
            session.require()

    @waits
    async def unload(self, *names: str) -> None:
        """Stop servers and forget them."""
        await self._host.unload(names)

    @waits
    async def disable(self, *patterns: str) -> None:
        """Switch off servers by name (they are stopped) or tools by pattern (`fs.write_*`)."""
        for pattern in patterns:
            if "." in pattern and pattern not in self._host.sessions:
                self._filters.set(pattern, allowed=False)
            else:
                await self._host.stop([pattern], State.DISABLED)

    @waits
    async def enable(self, *patterns: str) -> None:
        """Switch on again what `disable` switched off; servers are started."""
        for pattern in patterns:
            if "." in pattern and pattern not in self._host.sessions:
                self._filters.set(pattern, allowed=True)
            else:
                await self._host.start([pattern])

    def cancel(self, number: int | None = None) -> int:
        """Cancel a running call by its number, or all of them.

        Returns:
            How many were still running.
        """
        running = self._host.running
        if number is not None and number not in running:
            raise UnknownName(f"no call {number} is running", hint=f"running: {', '.join(map(str, running)) or 'none'}")
        calls = [running[number]] if number is not None else self.calls
        return sum(call.cancel() for call in calls)

    def close(self) -> None:
        """Stop all servers."""
        self._host.close()


class ServerTools:
    """The tools of one server, as functions. Its state and logs are `mcp.servers[name]`."""

    def __init__(self, mcp: Mcp, session: ServerSession) -> None:
        self._mcp = mcp
        self._name = session.name

    def __getattr__(self, name: str) -> Tool:
        session = self._session()
        if name.startswith("_") and name not in session.catalog.aliases:
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, name: str) -> Tool:
        """A tool by its exact name, or what a user types for it. A server that is starting is waited for."""
        session = self._session()
        host = self._mcp._host
        if session.catalog.find(name) is None:
            host.settle(session)
        return self._mcp._factory.tool(host.entry(session, name))

    def __iter__(self) -> Iterator[Tool]:
        return (self._mcp._factory.tool(entry) for entry in self._session().catalog.tools.values())

    def __len__(self) -> int:
        return len(self._session().catalog.tools)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._session().catalog.find(name) is not None

    def __dir__(self) -> list[str]:
        return sorted(self._session().catalog.aliases)

    def _ipython_key_completions_(self) -> list[str]:
        return list(self._session().catalog.tools)

    def __repr__(self) -> str:
        return repr(self._table())

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        return self._table()._repr_mimebundle_(include, exclude)

    def _table(self) -> Table:
        return self._mcp.tools(self._pattern()).table

    def _pattern(self) -> str:
        return f"{self._name}.*"

    def _session(self) -> ServerSession:
        return self._mcp._host.find(self._name)


class Server:
    """One server's state, logs and switches."""

    def __init__(self, mcp: Mcp, session: ServerSession) -> None:
        self._mcp = mcp
        self._session = session

    @property
    def name(self) -> str:
        """Its name in this notebook."""
        return self._session.name

    @property
    def state(self) -> str:
        """`disabled`, `stopped`, `starting`, `ready`, `restarting` or `error`."""
        return self._session.state.value

    @property
    def protocol_version(self) -> str:
        """The protocol version settled with it; empty while it is not ready."""
        return self._session.protocol_version

    @property
    def instructions(self) -> str:
        """What the server wants a model to know of it."""
        client = self._session.client
        return (client.instructions if client else None) or ""

    @property
    def error(self) -> str:
        """Its last failure, one line."""
        return self._session.last_error

    @property
    def pid(self) -> int | None:
        """Its process's number."""
        return self._session.pid

    def logs(self, count: int | None = 50) -> Table:
        """Its last log lines, oldest first.

        Args:
            count: At most so many; None for all that are kept (1,000).
        """
        rows = [
            (time.strftime("%H:%M:%S", time.localtime(line.time)), line.source, line.level, line.text)
            for line in self._session.log.tail(count)
        ]
        return Table(("time", "source", "level", "text"), rows, title=f"{self.name}: log")

    def start(self) -> None:
        """Start it and wait until it is ready."""
        self._mcp.start(self.name)

    def stop(self) -> None:
        """Stop it."""
        self._mcp.stop(self.name)

    def restart(self) -> None:
        """Stop it and start it again."""
        self._mcp.restart(self.name)

    def __repr__(self) -> str:
        parts = [self.name, self.state, self.protocol_version, f"{len(self._session.catalog.tools)} tools", self.error]
        return " · ".join(part for part in parts if part)


class Servers:
    """The servers of this notebook, by name."""

    COLUMNS = ("server", "state", "era", "tools", "calls", "last error")

    def __init__(self, mcp: Mcp) -> None:
        self._mcp = mcp

    def __getitem__(self, name: str) -> Server:
        return Server(self._mcp, self._mcp._host.find(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self._mcp._host.sessions)

    def __len__(self) -> int:
        return len(self._mcp._host.sessions)

    def __contains__(self, name: object) -> bool:
        return name in self._mcp._host.sessions

    def _ipython_key_completions_(self) -> list[str]:
        return list(self)

    @property
    def table(self) -> Table:
        """One row a server."""
        rows = [
            (
                session.name,
                session.state.value,
                session.protocol_version,
                len(session.catalog.tools),
                session.calls,
                session.last_error,
            )
            for session in self._mcp._host.sessions.values()
        ]
        note = "" if rows else "no servers yet: %mcp load demo"
        return Table(self.COLUMNS, rows, title="MCP servers", note=note)

    @property
    def df(self) -> Any:
        """The table as a DataFrame."""
        return self.table.df

    def __repr__(self) -> str:
        return repr(self.table)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        return self.table._repr_mimebundle_(include, exclude)


def demo_definition() -> ServerDefinition:
    """The server that ships with ipymcp; see `ipymcp.demo`."""
    script = Path(__file__).parent.parent / "demo" / "__main__.py"
    return ServerDefinition(name="demo", command=sys.executable, args=("-I", "-S", str(script)))


def gather(
    what: Iterable[str | os.PathLike[str] | Mapping[str, Any]], host: Host
) -> tuple[list[ServerDefinition], list[str]]:
    """The definitions that `load` was asked for, and the names among them that must not fail.

    Raises:
        ConfigError: A file or definition is wrong.
        UnknownName: A name that is nowhere defined.
    """
    definitions: dict[str, ServerDefinition] = {}
    named: list[str] = []
    path: Path | None = None
    available: dict[str, ServerDefinition] = {}
    pending: dict[str, ServerDefinition] = {}
    for item in what:
        if not isinstance(item, (str, os.PathLike)):
            found = from_mapping(item)
            definitions.update(found)
            named.extend(found)
        elif isinstance(item, os.PathLike) or _looks_like_path(item):
            definitions.update(pending)
            path = Path(host.folder, os.path.expanduser(item))
            available = pending = read(path)
        else:
            pending = {}
            definitions[item] = _named(item, available, path, host)
            named.append(item)
    definitions.update(pending)
    return list(definitions.values()), named


def _named(name: str, available: Mapping[str, ServerDefinition], path: Path | None, host: Host) -> ServerDefinition:
    if name in available:
        return available[name]
    if path is None and name in host.sessions:
        return host.sessions[name].definition
    if path is None and name == "demo":
        return demo_definition()
    if path is not None:
        hint = nearest(name, available) or f"it defines: {', '.join(available) or 'none'}"
        raise UnknownName(f"{path} defines no server {name!r}", hint=hint)
    hint = nearest(name, [*host.sessions, "demo"]) or f"say what it runs: %mcp load {name} -- COMMAND ARG…"
    raise UnknownName(f"no server {name!r} is known here", hint=hint)


def _looks_like_path(text: str) -> bool:
    return text.endswith((".json", ".json5", ".jsonc")) or "/" in text or os.sep in text


