"""What servers that do not run had when they last ran, for whoever names them. Nothing is started."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipymcp.policy.filters import selects
from ipymcp.runtime.catalog import remembered
from ipymcp.runtime.states import State
from ipymcp.tools.looking import not_running

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ipymcp.runtime.catalog import Catalog
    from ipymcp.tools.face import Mcp
    from ipymcp.tools.tables import Table

__all__ = ["kept_prompts", "kept_resources", "kept_tools"]


def kept_tools(mcp: Mcp, patterns: Sequence[str]) -> Table | None:
    """The tools that patterns over `server.tool` select; None where there are none."""
    from ipymcp.tools.toolset import tool_table

    catalogs, notes = _kept(mcp, patterns)
    entries = [entry for catalog in catalogs.values() for entry in catalog.tools.values() if selects(patterns, entry)]
    return tool_table(entries, mcp._factory, title="MCP tools", note=" · ".join(notes)) if entries else None


def kept_resources(mcp: Mcp, patterns: Sequence[str]) -> Table | None:
    """The same for resources and templates."""
    from ipymcp.tools.resources import resource_table

    catalogs, notes = _kept(mcp, patterns)
    table = resource_table(catalogs, patterns, notes)
    return table if table.rows else None


def kept_prompts(mcp: Mcp, patterns: Sequence[str]) -> Table | None:
    """The same for prompts."""
    from ipymcp.tools.prompts import prompt_table, selected_prompts

    catalogs, notes = _kept(mcp, patterns)
    entries = selected_prompts(catalogs.values(), patterns)
    return prompt_table(entries, notes) if entries else None


def _kept(mcp: Mcp, patterns: Sequence[str]) -> tuple[dict[str, Catalog], list[str]]:
    """The catalogs of the servers that patterns name and that do not run, and a note on each."""
    host, catalogs, notes = mcp._host, dict[str, "Catalog"](), list[str]()
    for name in dict.fromkeys(pattern.partition(".")[0] for pattern in patterns if not pattern.startswith("!")):
        session = host.sessions.get(name)
        if session is not None:
            if session.client is None and session.state is not State.DISABLED:
                catalogs[name] = host.browse(session)
                notes.append(not_running(session, anything=True))
        elif (server := host.state.known.named(name)) is not None:
            catalogs[name] = remembered(name, host.state.known.catalog(server.digest))
            notes.append(f"{name} is not loaded; this is what it had when it last ran")
    return catalogs, notes
