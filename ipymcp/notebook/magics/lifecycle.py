"""`%mcp start|stop|restart|unload|enable|disable`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipymcp.notebook.magics.options import Option, Syntax
from ipymcp.notebook.magics.request import Command
from ipymcp.text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipymcp.notebook.magics.request import Request
    from ipymcp.tools.face import Mcp
    from ipymcp.tools.servers import Servers

__all__ = ["COMMANDS"]


def _on_servers(act: Callable[[Mcp, list[str]], object]) -> Callable[[Request], Servers | None]:
    def run(request: Request) -> Servers | None:
        names = list(request.mcp) if request.parsed.has("--all") else request.names
        act(request.mcp, names)
        return None if request.is_quiet else request.mcp.servers

    return run


def _on_patterns(act: Callable[[Mcp, list[str]], object]) -> Callable[[Request], Servers | None]:
    def run(request: Request) -> Servers | None:
        act(request.mcp, request.names)
        if request.is_quiet:
            return None
        tools = [name for name in request.names if not request.mcp._servers_of(name)]
        if tools:
            print(one_line(f"{request.word}d: {', '.join(tools)}"))  # noqa: T201 - the command's answer
        return request.mcp.servers if len(tools) < len(request.names) else None

    return run


def _servers(word: str, summary: str, act: Callable[[Mcp, list[str]], object]) -> Command:
    syntax = Syntax(f"{word} NAME… | --all", (Option("--all"),), instead="--all", takes=("server",))
    return Command(syntax, f"{summary}\n\n    %mcp {word} fs git\n    %mcp {word} --all", _on_servers(act))


def _patterns(word: str, summary: str, act: Callable[[Mcp, list[str]], object]) -> Command:
    syntax = Syntax(f"{word} NAME|PATTERN…", at_least=1, takes=("tool",))
    text = f"{summary}\n\n    %mcp {word} fs            the whole server\n    %mcp {word} fs.write_*    tools, by glob"
    return Command(syntax, text, _on_patterns(act))


COMMANDS = {
    "start": _servers("start", "Start servers that were stopped or have failed.", lambda mcp, names: mcp.start(*names)),
    "stop": _servers("stop", "Stop servers; %mcp start NAME brings them back.", lambda mcp, names: mcp.stop(*names)),
    "restart": _servers("restart", "Stop servers and start them again.", lambda mcp, names: mcp.restart(*names)),
    "unload": _servers("unload", "Stop servers and forget them.", lambda mcp, names: mcp.unload(*names)),
    "disable": _patterns(
        "disable", "Switch off servers (they are stopped) or single tools.", lambda mcp, names: mcp.disable(*names)
    ),
    "enable": _patterns("enable", "Switch on what was switched off.", lambda mcp, names: mcp.enable(*names)),
}
