"""A selection of tools: ordered, live, and a table when shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ipymcp.policy.filters import matches
from ipymcp.runtime.names import model_name, nearest
from ipymcp.tools.tables import Table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipymcp.policy.filters import Filters
    from ipymcp.runtime.catalog import ToolEntry
    from ipymcp.runtime.host import Host
    from ipymcp.tools.tool import Tool, ToolFactory

__all__ = ["Toolset"]


class Toolset:
    """The tools that patterns over `server.tool` select, as they are whenever they are looked at.

    Called with patterns it selects from itself; the last pattern that matches decides, `!` denies. Disabled tools are
    in no selection, and only servers that are ready have tools.
    """

    def __init__(self, host: Host, factory: ToolFactory, filters: Filters, selections: tuple[tuple[str, ...], ...]) -> None:
        self._host = host
        self._factory = factory
        self._filters = filters
        self._selections = selections

    def __call__(self, *patterns: str) -> Toolset:
        """A narrower selection."""
        return Toolset(self._host, self._factory, self._filters, (*self._selections, patterns)) if patterns else self

    @property
    def entries(self) -> list[ToolEntry]:
        """What the catalogs now have of it."""
        return [
            entry
            for session in self._host.sessions.values()
            if session.client is not None
            for entry in session.catalog.tools.values()
            if self._selects(entry)
        ]

    @property
    def names(self) -> list[str]:
        """`server.tool` of each."""
        return [f"{entry.server}.{entry.name}" for entry in self.entries]

    @property
    def model_names(self) -> dict[str, str]:
        """What a model calls each: `{server__tool: server.tool}`."""
        return {model_name(entry.server, entry.name): f"{entry.server}.{entry.name}" for entry in self.entries}

    def __iter__(self) -> Iterator[Tool]:
        return (self._factory.tool(entry) for entry in self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __getitem__(self, name: str) -> Tool:
        """A tool of it by `server.tool`.

        Raises:
            KeyError: It is not in the selection.
        """
        for entry in self.entries:
            if name in (f"{entry.server}.{entry.name}", f"{entry.server}.{entry.alias}"):
                return self._factory.tool(entry)
        hint = nearest(name, self.names)
        raise KeyError(f"{name!r} is not in this selection{'; ' + hint if hint else ''}")

    def _selects(self, entry: ToolEntry) -> bool:
        name = f"{entry.server}.{entry.name}"
        if self._filters.forbidding(entry.server, entry.name) is not None:
            return False
        typed = f"{entry.server}.{entry.alias}"
        return all(matches(patterns, name) or matches(patterns, typed) for patterns in self._selections)

    @property
    def table(self) -> Table:
        """One row a tool."""
        rows = [
            (f"{entry.server}.{entry.alias}", self._arguments(entry), entry.first_line) for entry in self.entries
        ]
        note = "" if rows else "no tools here" + (": %mcp load demo" if not self._host.sessions else "")
        return Table(("tool", "arguments", "description"), rows, title="MCP tools", note=note)

    @property
    def df(self) -> Any:
        """The table as a DataFrame."""
        return self.table.df

    def __repr__(self) -> str:
        return repr(self.table)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        return self.table._repr_mimebundle_(include, exclude)

    def _arguments(self, entry: ToolEntry) -> str:
        parameters = self._factory.schema(entry).parameters
        return ", ".join(parameter.alias if parameter.required else f"[{parameter.alias}]" for parameter in parameters)
