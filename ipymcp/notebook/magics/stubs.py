"""`%mcp stubs`: the tools, typed, for an editor."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ipymcp.notebook.magics.options import Syntax
from ipymcp.notebook.magics.request import Command
from ipymcp.tools.stubs import stub

if TYPE_CHECKING:
    from ipymcp.notebook.magics.request import Request
    from ipymcp.tools.schema import ToolSchema

__all__ = ["COMMANDS"]

_HELP = """Write a .pyi file that describes the tools of the ready servers to editors and type checkers.

    %mcp stubs                   mcp_tools.pyi in the notebook's folder
    %mcp stubs path/name.pyi"""


def _stubs(request: Request) -> None:
    host = request.mcp._host
    path = Path(host.folder, request.names[0] if request.names else "mcp_tools.pyi").expanduser()
    aliases = host.aliases()
    servers: dict[str, list[tuple[str, str, ToolSchema]]] = {}
    for entry in request.mcp.tools.entries:
        row = (entry.alias, entry.definition.description or "", request.mcp._factory.schema(entry))
        servers.setdefault(aliases[entry.server], []).append(row)
    path.write_text(stub(servers), encoding="utf-8")
    if not request.is_quiet:
        count = sum(map(len, servers.values()))
        print(f"{count} tools of {len(servers)} servers described in {path.name}")  # noqa: T201 - the command's answer


COMMANDS = {"stubs": Command(Syntax("stubs [FILE]", at_most=1), _HELP, _stubs)}
