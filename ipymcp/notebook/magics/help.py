"""`%mcp help`, `%mcp help WORD` and `%mcp WORD?`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipymcp.notebook.magics.line import LineError
from ipymcp.notebook.magics.options import Syntax
from ipymcp.notebook.magics.request import Command
from ipymcp.runtime.names import nearest

if TYPE_CHECKING:
    from ipymcp.notebook.magics.request import Request

__all__ = ["COMMANDS"]

_FIRST_DAY = ("load", "tools", "call", "logs", "stop")
_OVERVIEW = """MCP servers in this notebook. Every tool of every loaded server is a function: mcp.SERVER.TOOL(...)

    %mcp                          the servers and how they are
"""


def _help(request: Request) -> None:
    from ipymcp.notebook.magics.dispatch import MODULES, command

    if not request.names:
        later = [word for word in MODULES if word not in _FIRST_DAY]
        rows = [_row(command(word)) for word in _FIRST_DAY]
        more = [_row(command(word)) for word in later]
        text = _OVERVIEW + "\n".join(rows) + "\n\nand\n\n" + "\n".join(more)
    else:
        word = request.names[0].rstrip("?")
        if word not in MODULES:
            hint = nearest(word, MODULES, limit=1) or "%mcp help lists the words"
            raise LineError(f"there is no %mcp {word}; {hint}", request.words[0].start)
        known = command(word)
        text = f"%mcp {known.syntax.usage}\n\n{known.help}"
    print(text)  # noqa: T201 - the command's answer


def _row(command: Command) -> str:
    usage = command.syntax.usage.split(" [")[0].split(" |")[0]
    summary = command.help.split("\n", 1)[0]
    return f"    %mcp {usage:<24} {summary}"


COMMANDS = {"help": Command(Syntax("help [WORD]", at_most=1), "What the words of %mcp are.", _help)}
