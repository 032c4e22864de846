"""The tools of servers that do not run, as they were when those last ran."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipymcp.policy.filters import selects
from ipymcp.runtime.catalog import EMPTY
from ipymcp.tools.looking import not_running
from ipymcp.tools.toolset import tool_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ipymcp.runtime.catalog import Catalog
    from ipymcp.tools.face import Mcp
    from ipymcp.tools.tables import Table

__all__ = ["kept_tools"]


def kept_tools(mcp: Mcp, patterns: Sequence[str]) -> Table | None:
    """What servers that patterns name had when they last ran; None where nobody knows. Nothing is started."""
    named = dict.fromkeys(pattern.partition(".")[0] for pattern in patterns if not pattern.startswith("!"))
    found = [kept for name in named if (kept := _kept(mcp, name)) is not None]
    entries = [entry for catalog, _ in found for entry in catalog.tools.values() if selects(patterns, entry)]
    if not entries:
        return None
    return tool_table(entries, mcp._factory, title="MCP tools", note=" · ".join(note for _, note in found))


def _kept(mcp: Mcp, name: str) -> tuple[Catalog, str] | None:
    host = mcp._host
    if name in host.sessions:
        session = host.sessions[name]
        return (host.browse(session), not_running(session, anything=True)) if session.client is None else None
    server = host.state.known.named(name)
    if server is None:
        return None
    definitions = host.state.known.catalog(server.digest)
    catalog = EMPTY.with_tools(name, definitions.get("tools", ()), lambda _: None)
    return catalog, f"{name} is not loaded; this is what it had when it last ran"
