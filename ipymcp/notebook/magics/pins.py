"""`%mcp pins`: whether tools are what they were."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipymcp.notebook.magics.options import Syntax
from ipymcp.notebook.magics.request import Command
from ipymcp.text import visible

if TYPE_CHECKING:
    from ipymcp.notebook.magics.request import Request
    from ipymcp.tools.pins import Changes, ToolPins
    from ipymcp.tools.tables import Table

__all__ = ["COMMANDS"]

_HELP = """Show whether tools are what they were when they were first seen here.

    %mcp pins                          every tool, and whether its definition has changed
    %mcp pins fs · fs.read_file        what has changed, line by line
    %mcp pins accept fs.read_file      take it as it is now; without a name, everything
    %mcp pins scan                     what is conspicuous in what servers say of their tools, and where
    %mcp pins export [FILE]            write mcp.lock beside the notebook: %mcp load --locked refuses what differs

Models are not shown a changed tool until it is accepted; %config IPyMCP.pins = "all" keeps it from you as well, "off"
from nobody."""


def _pins(request: Request) -> ToolPins | Changes | Table | None:
    pins = request.mcp.pins
    if not request.names:
        return pins
    word, *names = request.names
    match word:
        case "accept":
            taken = pins.accept(*names)
            _say(request, f"accepted: {', '.join(taken)}" if taken else "nothing had changed")
        case "scan":
            return pins.scan()
        case "export":
            _say(request, f"written: {pins.export(names[0] if names else None)}")
        case _:
            return pins.diff(word, *names)
    return None


def _say(request: Request, text: str) -> None:
    if not request.is_quiet:
        print(visible(text))  # noqa: T201 - the command's answer


_SYNTAX = Syntax(
    "pins [NAME… | accept [NAME…] | scan | export [FILE]]",
    takes=("tool",),
    actions={
        "accept": Syntax("pins accept [NAME…]", takes=("tool",)),
        "scan": Syntax("pins scan", at_most=0),
        "export": Syntax("pins export [FILE]", at_most=1, takes=("file",)),
    },
)
COMMANDS = {"pins": Command(_SYNTAX, _HELP, _pins)}
