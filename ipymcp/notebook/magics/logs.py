"""`%mcp logs`: what a server said."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ipymcp.notebook.magics.options import Option, Syntax
from ipymcp.notebook.magics.request import Command
from ipymcp.tools.tables import Table

if TYPE_CHECKING:
    from ipymcp.notebook.magics.request import Request

__all__ = ["COMMANDS"]

_HELP = """Show the last log lines of a server, or of all.

    %mcp logs             the last 50 lines of all servers
    %mcp logs fs -n 20    the last 20 lines of one

A line's source is stderr (what the server writes there), server (its log messages) or host (ipymcp's own)."""


def _logs(request: Request) -> Table:
    number = request.parsed.number("-n")
    count = 50 if number is None else int(number)
    if request.names:
        return request.mcp.servers[request.names[0]].logs(count)
    lines = [(line, name) for name, session in request.mcp._host.sessions.items() for line in session.log.tail(count)]
    lines.sort(key=lambda pair: pair[0].time)
    rows = [
        (time.strftime("%H:%M:%S", time.localtime(line.time)), name, line.source, line.level, line.text)
        for line, name in lines[-count:]
    ]
    note = "" if rows else "nothing is logged yet"
    return Table(("time", "server", "source", "level", "text"), rows, title="MCP logs", note=note)


_SYNTAX = Syntax("logs [NAME] [-n N]", (Option("-n", "N", number=True),), at_most=1, takes=("server",))
COMMANDS = {"logs": Command(_SYNTAX, _HELP, _logs)}
