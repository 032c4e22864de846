"""`%mcp history`: the calls that were made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipymcp.notebook.magics.options import Option, Syntax
from ipymcp.notebook.magics.request import Command

if TYPE_CHECKING:
    from ipymcp.notebook.magics.request import Request
    from ipymcp.tools.history import CallHistory

__all__ = ["COMMANDS"]

_HELP = """Show the calls that were made, newest first, in all notebooks.

    %mcp history                         the last 50
    %mcp history --server fs --failed    those of one server that failed; --server and --tool take globs
    %mcp history --since 2h -n 1000      10m, 2h, 3d ago, or '2026-11-21 14:00'
    mcp.history(failed=True).df          everything that was kept, as a DataFrame

%config IPyMCP.history = "values" keeps arguments and results as well, "off" nothing. Calls are kept for 30 days,
100,000 at most."""
_COUNT = 50


def _history(request: Request) -> CallHistory:
    parsed = request.parsed
    number = parsed.number("-n")
    return request.mcp.history(
        server=parsed.text("--server"),
        tool=parsed.text("--tool"),
        failed=parsed.has("--failed"),
        since=parsed.text("--since"),
        limit=_COUNT if number is None else int(number),
    )


COMMANDS = {
    "history": Command(
        Syntax(
            "history [--server S] [--tool T] [--failed] [--since WHEN] [-n N]",
            (
                Option("--server", "S", takes="server"),
                Option("--tool", "T", takes="tool-name"),
                Option("--failed"),
                Option("--since", "WHEN"),
                Option("-n", "N", number=True),
            ),
            at_most=0,
        ),
        _HELP,
        _history,
    )
}
