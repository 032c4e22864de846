"""From a `%mcp` line to its subcommand. One module a subcommand, or a family of them; imported when it is used."""

from __future__ import annotations

import importlib
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError

import ipymcp
from ipymcp.errors import McpError, note_line
from ipymcp.masking import masks
from ipymcp.names import nearest
from ipymcp.notebook.line_syntax import Command, LineError, MagicRequest, Parsed, split_text, tokenize
from ipymcp.text import visible

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ipymcp.api.namespace import Mcp
    from ipymcp.notebook.display import PanelDisplay
    from ipymcp.notebook.line_syntax import Word
    from ipymcp.notebook.settings import IPyMCP


MODULES = {
    "load": "servers",
    "tools": "calls",
    "call": "calls",
    "logs": "servers",
    "stop": "servers",
    "panel": "servers",
    "ask": "ask",
    "start": "servers",
    "restart": "servers",
    "unload": "servers",
    "enable": "servers",
    "disable": "servers",
    "resources": "resources",
    "read": "resources",
    "subscribe": "resources",
    "prompts": "resources",
    "prompt": "resources",
    "config": "config",
    "secret": "security",
    "cancel": "calls",
    "history": "calls",
    "policy": "security",
    "pins": "security",
    "trust": "security",
    "stubs": "calls",
    "help": "help",
}
"""Which module has which word."""
_SHOW_SERVERS = frozenset({"servers", "status", "list", "ls", "ps"})
"""What people type for a bare `%mcp`."""
_HELP_OPTIONS = frozenset({"-h", "--help"})
RUNNERS = frozenset({"npx", "uvx", "bunx", "pipx", "uv", "python", "python3", "node", "deno", "docker", "podman"})
"""Programs that run servers."""
_READERS = frozenset({"config", "load"})
"""Those that read the configuration anew: no need to say that it has changed."""


def command(word: str) -> Command:
    """The subcommand of this word, which must be one of `MODULES`."""
    module = importlib.import_module(f"ipymcp.notebook.magics.{MODULES[word]}")
    commands: dict[str, Command] = module.COMMANDS
    return commands[word]


def run(
    ip: Any, settings: IPyMCP, display: PanelDisplay, text: str, cell: str | None, local_ns: Mapping[str, Any]
) -> Any:
    """Run one line.

    Raises:
        UsageError: The line is mistyped.
        McpError: What it asks for failed.
    """
    shown = f"{'%%' if cell is not None else '%'}mcp {text}".rstrip()
    try:
        return _run(ip, settings, display, text, cell, local_ns)
    except LineError as error:
        raise UsageError(visible(_pointed(text, shown, error))) from None
    except (McpError, KeyboardInterrupt) as error:
        note_line(error, masks.head(shown, 200) + ("…" if len(shown) > 200 else ""))
        raise


def _run(
    ip: Any, settings: IPyMCP, display: PanelDisplay, text: str, cell: str | None, local_ns: Mapping[str, Any]
) -> Any:
    from ipymcp.notebook.progress import CellPresenter, say

    mcp = ipymcp.host()
    if mcp._host.presenter is None:
        mcp._host.presenter = CellPresenter(ip, settings)
    first, _, following = text.strip().partition(" ")
    prose = ""
    if first in MODULES and command(first).takes_text and cell is None:
        options, prose = split_text(command(first).syntax, following)
        text = f"{first} {options}"
    line = tokenize(text)
    words = line.words
    if not words or words[0].text not in _READERS:
        for change in mcp._host.discovery.changes():
            say(change)
    if not words and line.command is None:
        if cell is not None:
            raise LineError("%%mcp needs a word; usage: %%mcp call SERVER.TOOL", 0)
        return mcp.servers
    word = words[0].text if words else "load"
    if word in _SHOW_SERVERS and len(words) == 1 and cell is None:
        return mcp.servers
    asked = _help_for(words)
    if word.endswith("?") or asked is not None:
        words = tokenize(f"help {text.strip().rstrip('?') if asked is None else asked}").words
        word = "help"
    known = _known(words[0] if words else None, mcp, text)
    rest = words[1:]
    if known.takes_command and line.command is None:
        _check_command(word, rest, mcp, text)
    parsed = known.syntax.parse(rest) if word != "call" else Parsed(())
    if cell is not None and not known.takes_cell:
        raise LineError(f"%mcp {word} takes no cell: write it with one %", 0)
    if line.command is not None and not known.takes_command:
        raise LineError(f"%mcp {word} takes no command after --", line.command[0].start if line.command else len(text))
    namespaces = (local_ns, ip.user_ns)
    request = MagicRequest(word, rest, parsed, line, cell, mcp, display, ip, settings, namespaces, prose)
    result = known.run(request)
    return None if cell is not None and line.silent else result  # after a line, IPython itself sees the `;`


def _help_for(words: Sequence[Word]) -> str | None:
    """What `--help` or `-h` on a line asks about; None where there is none."""
    if not words or not any(word.raw in _HELP_OPTIONS for word in words):
        return None
    return words[0].text if words[0].text in MODULES else ""


def _known(word: Word | None, mcp: Mcp, text: str) -> Command:
    """The subcommand that a line begins with; without any, `load -- COMMAND`.

    Raises:
        LineError: There is none of that name.
    """
    if word is None:
        return command("load")
    if word.text in MODULES:
        return command(word.text)
    server, dot, _ = word.text.partition(".")
    servers = [*mcp, *mcp._host.aliases().values()]
    if server in servers:
        meant = f"a tool is called by: %mcp call {text.strip()}" if dot else f"its tools: %mcp tools {word.raw}"
        raise LineError(f"there is no %mcp {word.text}; {meant}", word.start)
    if word.text in _SHOW_SERVERS:
        raise LineError(f"%mcp {word.text} takes nothing more; %mcp help lists the words", word.start)
    hint = nearest(word.text, MODULES, limit=1) or "%mcp help lists the words"
    raise LineError(f"there is no %mcp {word.text}; {hint}", word.start)


def _check_command(word: str, rest: Sequence[Word], mcp: Mcp, text: str) -> None:
    """Raise for a command that stands where names are expected: `%mcp load npx -y some-server`.

    Raises:
        LineError: It names the line with the `--`.
    """
    for one, behind in pairwise(rest):
        if one.raw in RUNNERS and behind.key is None and one.raw not in mcp and not mcp._host.configured(one.raw):
            line = f"%mcp {text[: one.start]}-- {text[one.start :]}".strip()
            raise LineError(f"the command of a server stands behind --: {line}", one.start)


def _pointed(text: str, shown: str, error: LineError) -> str:
    """The message, and the line with a mark under the place; not a line that may hold a secret."""
    if "\n" in text or text.split()[:2] == ["secret", "set"]:
        return str(error)
    offset = len(shown) - len(text.rstrip()) + error.position
    return f"{error}\n  {shown}\n  {' ' * offset}^"
