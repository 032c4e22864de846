"""`%mcp tools`: what can be called."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipymcp.errors import UnknownName
from ipymcp.notebook.magics.offers import check_patterns
from ipymcp.notebook.magics.options import Syntax
from ipymcp.notebook.magics.request import Command
from ipymcp.runtime.names import nearest
from ipymcp.tools.kept import kept_tools

if TYPE_CHECKING:
    from ipymcp.notebook.magics.request import Request
    from ipymcp.tools.tables import Table
    from ipymcp.tools.toolset import Toolset

__all__ = ["COMMANDS"]

_HELP = """List the tools of the servers that are ready.

    %mcp tools                       all
    %mcp tools fs.*                  those of one server
    %mcp tools fs.read* !*.write*    globs over server.tool; the last that matches decides, ! denies
    %mcp tools *sum*                 by the tools' own names, where no server is called so

Of a server that does not run, named so, they are what it had when it last ran, in any notebook."""


def _tools(request: Request) -> Toolset | Table:
    selection = request.mcp.tools(*request.names)
    found = not request.names or selection.has_matches
    if not found and (kept := kept_tools(request.mcp, request.names)) is not None:
        return kept
    if not found:
        by_name = [pattern if "." in pattern else _of_any_server(pattern) for pattern in request.names]
        named = request.mcp.tools(*by_name)
        if len(named):
            return named
        everything = [f"{entry.server}.{entry.alias}" for entry in request.mcp.tools.entries]
        for pattern in request.names:
            near = nearest(pattern, [*everything, *(name.partition(".")[2] for name in everything)])
            if near and "*" not in pattern and pattern not in request.mcp:
                raise UnknownName(f"no tool matches {pattern!r}", hint=near)
    check_patterns(request, found, "tool")
    return selection


def _of_any_server(pattern: str) -> str:
    negation = "!" if pattern.startswith("!") else ""
    return f"{negation}*.{pattern.removeprefix('!')}"


COMMANDS = {"tools": Command(Syntax("tools [PATTERN…]", takes=("tool",)), _HELP, _tools)}
