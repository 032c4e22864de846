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

    %mcp logs fs -n 20    the last 20 lines: its standard error, its log messages, and what ipymcp has to say of it"""


def _logs(request: Request) -> Table:
    count = int(request.parsed.number("-n") or 50)
    if request.names:
        return request.mcp.servers[request.names[0]].logs(count)
    lines = [(line, name) for name, session in request.mcp._host.sessions.items() for line in session.log.tail(count)]
    lines.sort(key=lambda pair: pair[0].time)
    rows = [
        (time.strftime("%H:%M:%S", time.localtime(line.time)), name, line.source, line.level, line.text)
        for line, name in lines[-count:]
    ]
    return Table(("time", "server", "source", "level", "text"), rows, title="MCP logs")


COMMANDS = {"logs": Command(Syntax("logs [NAME] [-n N]", (Option("-n", "N", number=True),), at_most=1), _HELP, _logs)}
