"""A selection of tools: ordered, live, and a table when shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipymcp.errors import UnknownName
from ipymcp.policy.filters import selects
from ipymcp.runtime.names import model_name, nearest
from ipymcp.tools.live import Listing
from ipymcp.tools.looking import not_running
from ipymcp.tools.tables import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ipymcp.policy.rules import Caller
    from ipymcp.runtime.catalog import ToolEntry
    from ipymcp.runtime.host import Host
    from ipymcp.runtime.server import ServerSession
    from ipymcp.tools.schema import Parameter
    from ipymcp.tools.tool import Tool, ToolFactory

__all__ = ["Toolset", "hidden_note", "tool_table"]


class Toolset(Listing):
    """The tools that patterns over `server.tool` select, as they are whenever they are looked at.

    Called with patterns it selects from itself; the last pattern that matches decides, `!` denies. Disabled and denied
    tools are in no selection, and only servers that are ready, or lazy, have tools.
    """

    def __init__(self, host: Host, factory: ToolFactory, selections: tuple[tuple[str, ...], ...]) -> None:
        self._host = host
        self._factory = factory
        self._selections = selections

    def __call__(self, *patterns: str) -> Toolset:
        """A narrower selection."""
        return Toolset(self._host, self._factory, (*self._selections, patterns)) if patterns else self

    @property
    def entries(self) -> list[ToolEntry]:
        """What the catalogs now have of it."""
        return self._entries("user")

    def _entries(self, caller: Caller) -> list[ToolEntry]:
        return [entry for session, entry in self._selected() if not self._host.is_denied(session, entry, caller)]

    def _selected(self) -> list[tuple[ServerSession, ToolEntry]]:
        return [
            (session, entry)
            for session in self._host.sessions.values()
            if session.client is not None or session.is_lazy
            for entry in session.catalog.tools.values()
            if all(selects(one, entry) for one in self._selections)
        ]

    @property
    def names(self) -> list[str]:
        """`server.tool` of each."""
        return [f"{entry.server}.{entry.name}" for entry in self.entries]

    @property
    def model_names(self) -> dict[str, str]:
        """What a model calls each that it may see: `{server__tool: server.tool}`. Changed tools are not among them."""
        seen = self._entries("model")
        return {model_name(entry.server, entry.name): f"{entry.server}.{entry.name}" for entry in seen}

    def __iter__(self) -> Iterator[Tool]:
        return (self._factory.tool(entry) for entry in self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __getitem__(self, name: str) -> Tool:
        """A tool of it by `server.tool`.

        Raises:
            UnknownName: It is not in the selection; it is a KeyError too.
        """
        for entry in self.entries:
            if name in (f"{entry.server}.{entry.name}", f"{entry.server}.{entry.alias}"):
                return self._factory.tool(entry)
        raise UnknownName(f"no tool {name!r} is in this selection", hint=nearest(name, self.names) or None)

    @property
    def table(self) -> Table:
        """One row a tool."""
        sessions = self._host.sessions.values()
        for session in sessions:
            session.look_at_tools()
        named = {pattern.partition(".")[0] for selection in self._selections for pattern in selection}
        away = [
            not_running(session, anything=False)
            for session in sessions
            if session.state.is_moving or (session.name in named and session.client is None and not session.is_lazy)
        ]
        entries = self.entries
        hidden = hidden_note(len(self._selected()) - len(entries))
        empty = [] if entries or hidden else ["no tools here" + ("" if self._host.sessions else ": %mcp load demo")]
        note = " · ".join(filter(None, [*empty, hidden, *away]))
        return tool_table(entries, self._factory, title="MCP tools", note=note)


def hidden_note(count: int) -> str:
    """A note on tools that are not shown because they may not be called."""
    return f"{count} not shown: %mcp policy says why" if count else ""


def tool_table(entries: Iterable[ToolEntry], factory: ToolFactory, *, title: str, note: str) -> Table:
    """Tools for people to look at. Where a user types another name than the tool's own, a column has its own."""
    listed = list(entries)
    columns = ["tool", "arguments", "description"]
    rows = [
        [f"{entry.server}.{entry.alias}", _arguments(factory.schema(entry).parameters), entry.first_line]
        for entry in listed
    ]
    if any(entry.alias != entry.name for entry in listed):
        columns.insert(1, "own name")
        for row, entry in zip(rows, listed, strict=True):
            row.insert(1, "" if entry.alias == entry.name else entry.name)
    return Table(columns, rows, title=title, note=note)


def _arguments(parameters: Iterable[Parameter]) -> str:
    return ", ".join(parameter.alias if parameter.required else f"[{parameter.alias}]" for parameter in parameters)
