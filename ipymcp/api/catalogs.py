"""Catalogs of resources and prompts, listed at first use and again once they are stale, and their collections."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar, Literal

from ipymcp.errors import McpError, UnknownName
from ipymcp.names import nearest
from ipymcp.results.tables import Table, TableView
from ipymcp.runtime.catalog import remembered
from ipymcp.runtime.server_status import State
from ipymcp.text import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ipymcp.runtime.catalog import Catalog
    from ipymcp.runtime.host import Host
    from ipymcp.runtime.resources import Kind
    from ipymcp.runtime.session import ServerSession
    from ipymcp.schema.tool_schema import Parameter


_LAST_RUN = "; this is what it had when it last ran"
_COMPLETION_TIMEOUT = 1.0
"""Seconds that Tab completion waits for a server."""


def load_catalog(host: Host, session: ServerSession, *kinds: Kind, again: bool = False) -> Catalog:
    """The catalog of one server with up-to-date lists; waits for a starting server.

    If the server is not running, this is the catalog of its last run. With `again`, a running server lists what it has
    again: a name that is unknown may be new.

    Raises:
        McpError: The server is not ready, or cannot list its resources or prompts.
    """
    if (
        session.client is None
        and not session.status.is_moving
        and any(getattr(host.browse(session), kind) for kind in kinds)
    ):
        return session.catalog
    return host.loop.run(_load(session, kinds, again=again))


def load_quickly(host: Host, session: ServerSession, *kinds: Kind) -> Catalog:
    """The catalog of one server for Tab completion: up to date if that takes at most a second, else the cached one."""
    if session.client is not None:
        host.loop.run(_load_with_timeout(host, session, kinds))
    return session.catalog


def load_all(host: Host, *kinds: Kind) -> tuple[list[tuple[ServerSession, Catalog]], list[str]]:
    """The catalogs of all ready and lazy servers, and an error line for each that failed to list."""
    sessions = [session for session in host.sessions.values() if session.client is not None]
    catalogs, failures = host.loop.run(_load_all(sessions, kinds)) if sessions else ([], [])
    lazy = [(session, session.catalog) for session in host.sessions.values() if session.is_lazy]
    return catalogs + lazy, failures


def cached_catalogs(
    host: Host, patterns: Sequence[str], *kinds: Kind | Literal["tools"]
) -> tuple[dict[str, Catalog], list[str]]:
    """The catalogs of the servers named in patterns that do not run, by server, and a note on each.

    Args:
        host: The host of the servers.
        patterns: Globs over `server.name`.
        kinds: The lists that are shown. A note says whether they are from the last run.
    """

    def has_any(catalog: Catalog) -> bool:
        return any(getattr(catalog, kind) for kind in kinds)

    catalogs, notes = dict[str, "Catalog"](), list[str]()
    for name in dict.fromkeys(pattern.partition(".")[0] for pattern in patterns if not pattern.startswith("!")):
        session = host.sessions.get(name)
        if session is not None:
            if session.client is None and session.state is not State.DISABLED:
                catalogs[name] = host.browse(session)
                notes.append(not_running(session, anything=has_any(catalogs[name])))
        elif (server := host.store.known.named(name)) is not None:
            catalogs[name] = remembered(name, host.store.known.catalog(server.digest))
            notes.append(f"{name} is not loaded" + (_LAST_RUN if has_any(catalogs[name]) else ""))
    return catalogs, notes


def argument_list(parameters: Iterable[Parameter]) -> str:
    """The names of arguments for a table, optional ones in brackets."""
    return ", ".join(each.alias if each.required else f"[{each.alias}]" for each in parameters)


def not_running(session: ServerSession, *, anything: bool) -> str:
    """A note for the catalog of a server that is not running.

    Args:
        session: The server.
        anything: Whether the cached catalog, which is shown, has any entries.
    """
    if session.is_lazy:
        return f"{session.name} starts at its first call{_LAST_RUN}"
    state = f" is {session.state.record.label}" if session.status.error is None else f": {session.status.error.message}"
    return f"{session.name}{state}" + (_LAST_RUN if anything else "")


async def _load(session: ServerSession, kinds: Sequence[Kind], *, again: bool) -> Catalog:
    await session.awake()
    return await session.resources.refresh(*kinds, again=again)


async def _load_with_timeout(host: Host, session: ServerSession, kinds: Sequence[Kind]) -> None:
    async def listed() -> None:
        try:
            await session.resources.refresh(*kinds)
        except McpError:
            return  # already in the log

    # The task continues after the timeout, for the next completion.
    await asyncio.wait({host.loop.spawn(listed(), f"ipymcp-list-{session.name}")}, timeout=_COMPLETION_TIMEOUT)


async def _load_all(
    sessions: Sequence[ServerSession], kinds: Sequence[Kind]
) -> tuple[list[tuple[ServerSession, Catalog]], list[str]]:
    outcomes = await asyncio.gather(
        *(session.resources.refresh(*kinds) for session in sessions), return_exceptions=True
    )
    catalogs: list[tuple[ServerSession, Catalog]] = []
    failures: list[str] = []
    for session, outcome in zip(sessions, outcomes, strict=True):
        if isinstance(outcome, McpError):
            failures.append(str(outcome))
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            catalogs.append((session, outcome))
    return catalogs, failures


class ServerOffers(TableView):
    """Base class of the resources and of the prompts of one server.

    Args:
        host: The host of the server.
        server: The server's name.
    """

    _noun: ClassVar[str]
    _kinds: ClassVar[tuple[Kind, ...]]
    _columns: ClassVar[tuple[str, ...]]

    def __init__(self, host: Host, server: str) -> None:
        self._host = host
        self._server = server

    @property
    def table(self) -> Table:
        """A table with the server's entries; if it is not running, with those of its last run."""
        session = self._session
        title = f"{self._server}: {self._noun}s"
        if session.client is None and not session.state.record.is_moving:
            kept = self._rows(self._host.browse(session))
            return Table(self._columns, kept, title=title, note=not_running(session, anything=bool(kept)))
        rows = self._rows(load_catalog(self._host, session, *self._kinds))
        return Table(self._columns, rows, title=title, note="" if rows else f"{self._server} has no {self._noun}s")

    @abstractmethod
    def _rows(self, catalog: Catalog) -> Sequence[tuple[str, ...]]:
        """The rows of the table."""

    def _unknown(self, name: str, known: Iterable[str]) -> UnknownName:
        hint = nearest(name, known) or f"%mcp {self._noun}s {quoted(self._server)}"
        return UnknownName(f"there is no {self._noun} {name!r}", server=self._server, hint=hint)

    @property
    def _session(self) -> ServerSession:
        return self._host.find(self._server)


class AllOffers(TableView):
    """Base class of the resources and of the prompts of all ready servers, selected by patterns.

    Patterns are globs of which the last match decides; `!` excludes.

    Args:
        host: The host of the servers.
        patterns: The patterns; none selects all.
    """

    _noun: ClassVar[str]
    _kinds: ClassVar[tuple[Kind, ...]]
    _columns: ClassVar[tuple[str, ...]]

    def __init__(self, host: Host, patterns: tuple[str, ...] = ()) -> None:
        self._host = host
        self._patterns = patterns

    @property
    def table(self) -> Table:
        """A table with the selected entries; if there are none, with those of the last runs of the named servers."""
        catalogs, notes = load_all(self._host, *self._kinds)
        rows = [row for session, catalog in catalogs for row in self._rows(session.name, catalog)]
        if not rows:
            cached, cached_notes = cached_catalogs(self._host, self._patterns, *self._kinds)
            rows = [row for server, catalog in cached.items() for row in self._rows(server, catalog)]
            notes = cached_notes if rows else [f"no {self._noun}s here", *cached_notes, *notes]
        return Table(self._columns, rows, title=f"MCP {self._noun}s", note=" · ".join(notes))

    @abstractmethod
    def _rows(self, server: str, catalog: Catalog) -> Sequence[tuple[str, ...]]:
        """The selected rows of a server's catalog."""
