"""`%mcp stubs`: the tools, typed, for an editor."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ipymcp.errors import ConfigError
from ipymcp.files import SHARED, write_file, write_hint
from ipymcp.masking import mask
from ipymcp.notebook.magics.options import Syntax
from ipymcp.notebook.magics.request import Command
from ipymcp.text import one_line
from ipymcp.tools.stubs import stub

if TYPE_CHECKING:
    from ipymcp.notebook.magics.request import Request
    from ipymcp.tools.schema import ToolSchema

__all__ = ["COMMANDS"]

_HELP = """Describe the tools to editors and type checkers, in a .pyi file.

Those of the servers that are ready, and not disabled.

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
    try:
        write_file(path, mask(stub(servers)), SHARED)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}", hint=write_hint(error)) from None
    if not request.is_quiet:
        count = f"{_count(sum(map(len, servers.values())), 'tool')} of {_count(len(servers), 'server')}"
        print(one_line(f"{count} in {path.name}"))  # noqa: T201 - the command's answer


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


COMMANDS = {"stubs": Command(Syntax("stubs [FILE]", at_most=1, takes=("file",)), _HELP, _stubs)}
