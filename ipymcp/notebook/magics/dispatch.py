"""Dispatch of `%mcp` lines to subcommands, whose modules are imported when first used."""

from __future__ import annotations

import importlib
import inspect
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError
from msgspec import structs

import ipymcp
from ipymcp.api.parts import parts_of
from ipymcp.api.sync_and_async import host_of
from ipymcp.config.pasted import is_foreign_command
from ipymcp.config.programs import program
from ipymcp.errors import McpError, note_line
from ipymcp.masking import mask
from ipymcp.names import SEPARATORS, nearest
from ipymcp.notebook.line_syntax import Command, LineError, MagicRequest, Syntax, split_pasted, split_text, tokenize
from ipymcp.setup.load_request import DOCUMENTS
from ipymcp.text import cut, quoted, visible

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
    "map": "calls",
    "logs": "servers",
    "stop": "servers",
    "panel": "servers",
    "ask": "ask",
    "restore": "servers",
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
    "search": "registry",
    "add": "registry",
    "outdated": "registry",
    "config": "config",
    "secret": "security",
    "cancel": "calls",
    "history": "calls",
    "policy": "security",
    "pins": "security",
    "trust": "security",
    "stubs": "calls",
    "version": "dispatch",
    "help": "dispatch",
}
"""The module of each subcommand, in the order of the help."""
_SHOW_SERVERS = frozenset({"server", "servers", "status", "list", "ls", "ps"})
"""Words that are accepted for `%mcp` without a word."""
_HELP_OPTIONS = frozenset({"-h", "--help"})
_VERSION_OPTIONS = frozenset({"-V", "--version"})
_SHOW_ONE = frozenset({"describe", "inspect", "info"})
"""Words that are accepted for `%mcp tools SERVER` and `%mcp help SERVER.TOOL`."""
_TOOL_WORDS = frozenset({"call", "map"})
"""Subcommands with a tool's name, after which `?` is about the tool."""
_READ_CONFIG = frozenset({"config", "load"})
"""Subcommands that read the configuration again, so that no notice about its changes is needed."""


def command(word: str) -> Command:
    """Import the subcommand of a word of `MODULES`."""
    module = importlib.import_module(f"ipymcp.notebook.magics.{MODULES[word]}")
    commands: dict[str, Command] = module.COMMANDS
    return commands[word]


def run(
    ip: Any, settings: IPyMCP, display: PanelDisplay, text: str, cell: str | None, local_ns: Mapping[str, Any]
) -> Any:
    """Run one line.

    Raises:
        UsageError: The line is invalid.
        McpError: The subcommand failed.
    """
    shown = f"{'%%' if cell is not None else '%'}mcp {text}".rstrip()
    try:
        return _run(ip, settings, display, text, cell, local_ns)
    except LineError as error:
        raise UsageError(visible(_add_marker(text, shown, error))) from None
    except (McpError, KeyboardInterrupt) as error:
        note_line(error, cut(mask(shown), 200))
        raise


def _run(
    ip: Any, settings: IPyMCP, display: PanelDisplay, text: str, cell: str | None, local_ns: Mapping[str, Any]
) -> Any:
    from ipymcp.notebook.progress import CellPresenter, print_notice

    mcp = ipymcp.host()
    if host_of(mcp).calls.presenter is None:
        host_of(mcp).calls.presenter = CellPresenter(ip, settings)
    first, _, following = text.strip().partition(" ")
    question = ""
    if first in MODULES and command(first).takes_text and cell is None:
        options, question = split_text(command(first).syntax, following)
        text = f"{first} {options}"
    elif first in MODULES and command(first).takes_pasted and cell is None:
        line_start, question = split_pasted(command(first).syntax, following)
        text = f"{first} {line_start}" if question else text
    line = tokenize(text)
    words = line.words
    if not words or words[0].text not in _READ_CONFIG:
        for change in host_of(mcp).discovery.changes():
            print_notice(change)
    if len(words) == 1 and words[0].raw in _VERSION_OPTIONS:
        words = tokenize("version").words
    if not words and line.command is None:
        if cell is not None:
            raise LineError("%%mcp needs a word: load for a definition, call SERVER.TOOL for arguments, ask", 0)
        return mcp.servers
    word = words[0].text if words else "load"
    if word in _SHOW_SERVERS and len(words) == 1 and cell is None:
        return mcp.servers
    if word in _SHOW_ONE and len(words) == 2:
        is_server = words[1].text in (*mcp, *host_of(mcp).aliases().values())
        word = "tools" if is_server or not _names_a_tool(words[1].text) else "help"
        words = tokenize(f"{word} {words[1].raw}").words
    topic = _help_topic(words)
    if topic is not None:
        words, word = tokenize(f"help {topic}").words, "help"
    known = _find_command(words[0] if words else None, mcp, text)
    rest = words[1:]
    if known.takes_command and line.command is None:
        _check_command(word, rest, mcp, text)
    if cell is not None and not known.takes_cell:
        raise LineError(f"%mcp {word} takes no cell: write it with one %", 0)
    operator = next((each for each in line.command or () if not each.quoted and each.raw in _SHELL_OPERATORS), None)
    if operator is not None:
        problem = f"{operator.raw} is for a shell, and a server's command is started without one"
        raise LineError(f"{problem}; in quotes it is an argument", operator.start)
    parsed = known.syntax.parse(rest)
    if line.command is not None and not known.takes_command:
        raise LineError(f"%mcp {word} takes no command after --", line.command[0].start if line.command else len(text))
    namespaces = (local_ns, ip.user_ns)
    request = MagicRequest(word, rest, parsed, line, cell, mcp, display, ip, settings, namespaces, question)
    result = known.run(request)
    return None if cell is not None and line.silent else result  # IPython handles the `;` of a line


def _names_a_tool(text: str) -> bool:
    return any(separator in text for separator in SEPARATORS)


def _help_topic(words: Sequence[Word]) -> str | None:
    """The word or tool that a line asks about, by `--help`, `-h` or `?`; empty for all words, None without these."""
    named = words[1:] if words and words[0].text in _TOOL_WORDS else words[:1]
    if named and named[-1].raw.endswith("?") and (len(named) == 1 or [word.raw for word in named[1:]] == ["?"]):
        return named[0].text.rstrip("?")
    if not words or not any(word.raw in _HELP_OPTIONS for word in words):
        return None
    return words[0].text if words[0].text in MODULES else ""


def _find_command(word: Word | None, mcp: Mcp, text: str) -> Command:
    """The subcommand of a line; `load` if the line has none.

    Raises:
        LineError: The subcommand is unknown.
    """
    if word is None:
        return command("load")
    if word.text in MODULES:
        return command(word.text)
    server, dot, _ = word.text.partition(".")
    servers = [*mcp, *host_of(mcp).aliases().values()]
    if server in servers:
        hint = f"a tool is called by: %mcp call {text.strip()}" if dot else f"its tools: %mcp tools {word.raw}"
        raise LineError(f"there is no %mcp {word.text}; {hint}", word.start)
    if server in host_of(mcp).discovery.peek().servers:
        raise LineError(f"there is no %mcp {word.text}; {host_of(mcp).missing_hint(server)}", word.start)
    if word.text in _SHOW_SERVERS and (what := text.partition(word.raw)[2].strip().partition(" ")[0]) in MODULES:
        raise LineError(f"%mcp {what} lists them", word.start)
    if word.text in _SHOW_SERVERS:
        raise LineError(f"%mcp {word.text} takes no arguments; %mcp help lists the words", word.start)
    if program(word.raw).is_launcher:
        raise LineError(f"the command of a server follows --: %mcp load -- {text.strip()}", word.start)
    if "/" in word.text or word.text.endswith(DOCUMENTS):
        raise LineError(f"there is no %mcp {word.text}; did you mean %mcp load {text.strip()}?", word.start)
    if is_foreign_command(text):
        raise LineError(f"this is a command of another program: %mcp load {text.strip()}", word.start)
    owner = next((name for name, session in host_of(mcp).sessions.items() if session.catalog.find(word.text)), None)
    if owner is not None and word.text.casefold() not in _SYNONYMS:
        path = quoted(f"{owner}.{word.text}")
        raise LineError(f"there is no %mcp {word.text}; a tool is called by: %mcp call {path} …", word.start)
    raise _unknown(word.text, word.start)


def _unknown(word: str, position: int) -> LineError:
    meant = _SYNONYMS.get(word.casefold())
    hint = f"did you mean {meant!r}?" if meant else nearest(word, MODULES, limit=1) or "%mcp help lists the words"
    return LineError(f"there is no %mcp {word}; {hint}", position)


def _check_command(word: str, rest: Sequence[Word], mcp: Mcp, text: str) -> None:
    """Check that no command is given in place of names, as in `%mcp load npx -y some-server`.

    Raises:
        LineError: A command is given. The message has the line with the missing `--`.
    """
    if len(rest) > 1 and rest[1].raw == "mcp" and rest[1].raw not in mcp:
        line = f"%mcp {word} {rest[0].raw} mcp add …"
        raise LineError(f"of the commands of other programs, those that add a server are read: {line}", rest[0].start)
    dash = next((each for each in rest if each.raw in _DASHES), None)
    if dash is not None:
        line = f"%mcp {text[: dash.start]}--{text[dash.end :]}".strip()
        raise LineError(f"the command of a server follows two hyphens: {line}", dash.start)
    for before, one, following in zip((None, *rest), rest, rest[1:], strict=False):
        if before is not None and before.raw == "--command":
            continue
        if not program(one.raw).is_launcher or following.key is not None:
            continue
        if one.raw not in mcp and not host_of(mcp).discovery.peek().find(one.raw):
            line = f"%mcp {text[: one.start]}-- {text[one.start :]}".strip()
            raise LineError(f"the command of a server follows --: {line}", one.start)


def _add_marker(text: str, shown: str, error: LineError) -> str:
    """The message with the line and a marker below the position, unless the line may contain a secret."""
    if "\n" in text or text.split()[:1] == ["secret"]:
        return str(error)
    offset = len(shown) - len(text.rstrip()) + error.position
    return f"{error}\n  {shown}\n  {' ' * offset}^"


_SHELL_OPERATORS = frozenset({"&&", "||", "|", "&", ";", ">", ">>", "<", "2>", "2>&1", "&>"})
_DASHES = frozenset({"-", "\u2013", "\u2014"})
"""Dashes that web pages put in place of `--`."""
_SYNONYMS = {
    "install": "add",
    **dict.fromkeys(("run", "invoke", "exec"), "call"),
    **dict.fromkeys(("chat", "model"), "ask"),
    **dict.fromkeys(("connect", "open", "attach"), "load"),
    **dict.fromkeys(("kill", "disconnect", "end", "close"), "stop"),
    **dict.fromkeys(("reload", "refresh", "reconnect"), "restart"),
    **dict.fromkeys(("remove", "rm", "delete", "uninstall"), "unload"),
    **dict.fromkeys(("permissions", "rules"), "policy"),
    **dict.fromkeys(("show", "functions", "methods", "describe", "inspect", "info"), "tools"),
    **dict.fromkeys(("secrets", "token"), "secret"),
    **dict.fromkeys(("settings", "configure"), "config"),
    **dict.fromkeys(("allow", "permit"), "policy allow"),
    **dict.fromkeys(("deny", "forbid"), "policy deny"),
    **dict.fromkeys(("import", "add-from-claude-desktop"), "config import"),
    **dict.fromkeys(("get", "env"), "config explain"),
    **dict.fromkeys(("schema", "view", "man", "docs"), "help"),
    **dict.fromkeys(("debug", "log", "tail"), "logs"),
    **dict.fromkeys(("down", "quit", "exit", "shutdown"), "stop"),
    **dict.fromkeys(("up", "login", "auth"), "start"),
    **dict.fromkeys(("upgrade", "update"), "outdated"),
    **dict.fromkeys(("ui", "sidebar", "dashboard"), "panel"),
    **dict.fromkeys(("dev", "serve", "add-json"), "load"),
    "init": "config init",
    "edit": "config edit",
    "export": "config export",
    "test": "call",
    "ping": "status",
}
"""Words of other programs, and the subcommand that does the same."""
_BASIC_WORDS = ("load", "tools", "call", "logs", "stop", "panel", "ask")
_OVERVIEW = "MCP servers in this notebook. Every tool of every loaded server is a function: mcp.SERVER.TOOL(...)"
_BARE = "Show the servers and their states; also %mcp status, list, servers, ls."
_END = "%mcp help WORD, %mcp WORD? or %mcp WORD --help shows more. A ; at the end of a line suppresses its output."
_WIDTH = 32


def _help(request: MagicRequest) -> None:
    """List the subcommands of %mcp.

    %mcp help logs         a subcommand
    %mcp help demo.echo    a tool, as mcp.demo.echo? does
    """
    if not request.names:
        others = [word for word in MODULES if word not in _BASIC_WORDS]
        first = _rows([("", _BARE), *_summaries(_BASIC_WORDS)])
        text = f"{_OVERVIEW}\n\n{first}\n\nand\n\n{_rows(_summaries(others))}\n\n{_END}"
    else:
        name = request.names[0].rstrip("?")
        if name not in MODULES and _names_a_tool(name):
            session, tool = request.host.resolve(name)
            entry = request.host.find_tool(session, tool)
            shown = parts_of(request.mcp).factory.tool(entry)
            signature = repr(shown).partition("\n")[0]
            text = f"{signature}\n\n{inspect.getdoc(shown) or ''}"
        else:
            text = _find_command(structs.replace(request.words[0], value=name), request.mcp, name).help
    print(visible(text))  # noqa: T201 - the command's answer


def _summaries(words: Sequence[str]) -> list[tuple[str, str]]:
    return [(command(word).syntax.usage, command(word).summary) for word in words]


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


def _version(request: MagicRequest) -> None:
    """Show the versions of ipymcp, the protocol, Python, IPython and ipykernel.

    %mcp version
    """
    print(visible(request.mcp.version))  # noqa: T201 - the answer


COMMANDS = {
    "version": Command(Syntax("version", at_most=0), _version),
    "help": Command(Syntax("help [WORD | SERVER.TOOL]", at_most=1, takes=("word",)), _help),
}
