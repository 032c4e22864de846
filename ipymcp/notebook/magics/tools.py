"""`%mcp tools`: what can be called."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipymcp.notebook.magics.offers import check_patterns
from ipymcp.notebook.magics.options import Syntax
from ipymcp.notebook.magics.request import Command

if TYPE_CHECKING:
    from ipymcp.notebook.magics.request import Request
    from ipymcp.tools.toolset import Toolset

__all__ = ["COMMANDS"]

_HELP = """List the tools of the servers that are ready.

    %mcp tools                       all
    %mcp tools fs.*                  those of one server
    %mcp tools fs.read* !*.write*    globs over server.tool; the last that matches decides, ! denies"""


def _tools(request: Request) -> Toolset:
    selection = request.mcp.tools(*request.names)
    check_patterns(request, bool(len(selection)), "tool")
    return selection


COMMANDS = {"tools": Command(Syntax("tools [PATTERN…]"), _HELP, _tools)}
