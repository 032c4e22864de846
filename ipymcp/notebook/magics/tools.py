"""`%mcp tools`: what can be called."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipymcp.errors import UnknownName
from ipymcp.notebook.magics.options import Syntax
from ipymcp.notebook.magics.request import Command
from ipymcp.runtime.names import nearest

if TYPE_CHECKING:
    from ipymcp.notebook.magics.request import Request
    from ipymcp.tools.toolset import Toolset

__all__ = ["COMMANDS"]

_HELP = """List the tools of the servers that are ready.

    %mcp tools                       all
    %mcp tools fs.*                  those of one server
    %mcp tools fs.read* !*.write*    globs over server.tool; the last that matches decides, ! denies"""


def _tools(request: Request) -> Toolset:
    patterns = request.names
    selection = request.mcp.tools(*patterns)
    for pattern in patterns if not len(selection) else ():
        server = pattern.removeprefix("!").partition(".")[0]
        if server.isidentifier() and server not in request.mcp and server not in request.mcp._host.aliases().values():
            hint = nearest(server, request.mcp) or "%mcp lists the servers"
            raise UnknownName(f"no tool matches {pattern!r}: there is no server {server!r}", hint=hint)
    return selection


COMMANDS = {"tools": Command(Syntax("tools [PATTERN…]"), _HELP, _tools)}
