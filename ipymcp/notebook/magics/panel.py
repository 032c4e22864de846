"""`%mcp panel`: the servers, their tools, calls and logs, to look at and to click."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipymcp.notebook.magics.options import Syntax
from ipymcp.notebook.magics.request import Command

if TYPE_CHECKING:
    from ipymcp.notebook.magics.request import Request

__all__ = ["COMMANDS"]

_HELP = """Show the panel: servers, tools with forms, calls and logs.

    %mcp panel          all servers
    %mcp panel fs       the card of one; mcp.servers["fs"] shows the same

%config IPyMCP.panel = "run" lets it call, read and answer, but not start, stop, load or trust; "view" only look. Under
Voilà it is "run" unless you say otherwise. A saved notebook keeps a table of the servers."""


def _panel(request: Request) -> None:
    from IPython.display import display  # pyright: ignore[reportUnknownVariableType]

    from ipymcp.notebook.panel.display import card, panel

    names = request.names
    extension = request.extension
    shown, metadata = card(extension, request.mcp.servers[names[0]]) if names else panel(extension)
    display(shown, metadata=metadata, raw=True)


COMMANDS = {"panel": Command(Syntax("panel [SERVER]", at_most=1, takes=("server",)), _HELP, _panel)}
