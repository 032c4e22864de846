"""`%mcp help`, `%mcp help WORD` and `%mcp WORD?`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipymcp.names import nearest
from ipymcp.notebook.line_syntax import Command, LineError, Syntax
from ipymcp.text import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ipymcp.notebook.line_syntax import MagicRequest


_FIRST_DAY = ("load", "tools", "call", "logs", "stop", "panel", "ask")
_OVERVIEW = "MCP servers in this notebook. Every tool of every loaded server is a function: mcp.SERVER.TOOL(...)"
_BARE = "Show the servers and their states; also %mcp status, list, servers, ls."
_END = "%mcp help WORD, %mcp WORD? or %mcp WORD --help shows more. A ; at the end of a line suppresses its output."
_WIDTH = 32


def _help(request: MagicRequest) -> None:
    from ipymcp.notebook.magics.dispatch import MODULES, command

    if not request.names:
        later = [word for word in MODULES if word not in _FIRST_DAY]
        first = [("", _BARE), *(_row(command(word)) for word in _FIRST_DAY)]
        text = f"{_OVERVIEW}\n\n{_rows(first)}\n\nand\n\n{_rows([_row(command(word)) for word in later])}\n\n{_END}"
    else:
        word = request.names[0].rstrip("?")
        if word not in MODULES:
            hint = nearest(word, MODULES, limit=1) or "%mcp help lists the words"
            raise LineError(f"there is no %mcp {word}; {hint}", request.words[0].start)
        known = command(word)
        text = f"%mcp {known.syntax.usage}\n\n{known.help}"
    print(visible(text))  # noqa: T201 - the command's answer


def _row(command: Command) -> tuple[str, str]:
    return command.syntax.usage, command.help.split("\n", 1)[0]


def _rows(rows: Sequence[tuple[str, str]]) -> str:
    """Format usage and summary, with the summary on the next line if the usage is long."""
    lines: list[str] = []
    for usage, summary in rows:
        line = f"    %mcp {usage}".rstrip()
        if len(line) <= _WIDTH:
            lines.append(f"{line:<{_WIDTH}}  {summary}")
        else:
            lines += [line, f"{'':<{_WIDTH}}  {summary}"]
    return "\n".join(lines)


COMMANDS = {"help": Command(Syntax("help [WORD]", at_most=1, takes=("word",)), "List the subcommands of %mcp.", _help)}
