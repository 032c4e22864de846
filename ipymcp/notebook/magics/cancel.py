"""`%mcp cancel`: running calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipymcp.notebook.magics.line import LineError
from ipymcp.notebook.magics.options import Syntax
from ipymcp.notebook.magics.request import Command
from ipymcp.text import one_line

if TYPE_CHECKING:
    from ipymcp.notebook.magics.request import Request

__all__ = ["COMMANDS"]

_HELP = """Cancel running calls.

    %mcp cancel       all of them
    %mcp cancel 12    that one; mcp.calls lists their numbers

These are calls of .submit() and of tasks that await: a cell that waits is interrupted instead."""


def _cancel(request: Request) -> None:
    number = None
    if request.names:
        if not request.names[0].isdigit():
            raise LineError(f"a call is named by its number, not {request.names[0]!r}", request.words[0].start)
        number = int(request.names[0])
    count = request.mcp.cancel(number)
    if not request.is_quiet:
        said = f"cancelled {count} call{'' if count == 1 else 's'}" if count else "no call is running"
        print(one_line(said))  # noqa: T201 - the command's answer


COMMANDS = {"cancel": Command(Syntax("cancel [CALL]", at_most=1, takes=("call",)), _HELP, _cancel)}
