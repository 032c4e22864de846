"""`%mcp tools`, `call`, `cancel`, `history` and `stubs`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ipymcp.api.namespace import factory_of, load_if_lazy
from ipymcp.api.servers import kept_tools
from ipymcp.api.stubs import stub
from ipymcp.errors import ArgumentError, CallTimeout, ConfigError, UnknownName
from ipymcp.files import SHARED, write_file, write_hint
from ipymcp.masking import mask
from ipymcp.names import nearest
from ipymcp.notebook.line_syntax import Command, LineError, Option, Syntax
from ipymcp.notebook.line_values import Object, parse_arguments, parse_body
from ipymcp.notebook.magics.resources import check_patterns
from ipymcp.text import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ipymcp.api.history import CallHistory
    from ipymcp.api.tool import Tool
    from ipymcp.api.toolset import Toolset
    from ipymcp.notebook.line_syntax import MagicRequest, Parsed, Word
    from ipymcp.results.tables import Table
    from ipymcp.schema.tool_schema import ToolSchema


_TOOLS_HELP = """List the tools of the servers that are ready.

    %mcp tools                       all
    %mcp tools fs.*                  those of one server
    %mcp tools fs.read* !*.write*    globs over server.tool; the last that matches decides, ! denies
    %mcp tools *sum*                 by tool name, if no server has that name

For a server that is not running, this lists the tools it had when it last ran, in any notebook."""


def _tools(request: MagicRequest) -> Toolset | Table:
    selection = request.mcp.tools(*request.names)
    found = not request.names or selection.has_matches
    if not found and (kept := kept_tools(factory_of(request.mcp), request.names)) is not None:
        return kept
    if not found:
        by_name = [pattern if "." in pattern else _of_any_server(pattern) for pattern in request.names]
        named = request.mcp.tools(*by_name)
        if len(named):
            return named
        everything = [f"{entry.server}.{entry.alias}" for entry in request.mcp.tools.entries]
        for pattern in request.names:
            near = nearest(pattern, [*everything, *(name.partition(".")[2] for name in everything)])
            if near and "*" not in pattern and pattern not in request.mcp:
                raise UnknownName(f"no tool matches {pattern!r}", hint=near)
    check_patterns(request, found, "tool")
    return selection


def _of_any_server(pattern: str) -> str:
    negation = "!" if pattern.startswith("!") else ""
    return f"{negation}*.{pattern.removeprefix('!')}"


_TOOLS_COMMANDS = {"tools": Command(Syntax("tools [PATTERN…]", takes=("tool",)), _TOOLS_HELP, _tools)}


_PYTHON_OPTIONS = ".options("
"""Start of the options of a call in hints for Python, which a line spells differently."""

_CALL_HELP = """Call a tool; the value of the line is its result.

    %mcp call time.get_current_time timezone=Europe/Paris
    r = %mcp call fs.read_file path="my file.txt" head=$n     $n is the notebook's n
    %mcp call fs.write_file path=data/{i}.csv content=$text   {i} is filled as in an f-string; '…' disables that
    %mcp call demo.query {"table": "penguins", "limit": 3}

    %%mcp call [--out VAR] demo.query
    {"table": "penguins", "limit": n}                         JSON, JSON5, or a Python dict with the notebook's names

The tool's schema decides how a value is read: as text if it accepts text, else as JSON.

    A $name with anything before or after it is refused: write {name}, or '…' for text.

    --timeout S    seconds the call may go without progress
    --out VAR      under %%mcp: bind the result to this name instead of showing it"""

_CALL_SYNTAX = Syntax(
    "call [--timeout S] SERVER.TOOL key=value … | {json}",
    (Option("--timeout", "S", number=True), Option("--out", "VAR")),
    takes=("tool",),
    arguments=True,
)


def _call(request: MagicRequest) -> Any:
    parsed, path, rest = _split(request)
    host = request.host
    load_if_lazy(request.mcp, path.text.partition(".")[0])
    session, name = host.resolve(path.text)
    if session.client is None and session.catalog.find(name) is None:
        host.wake(session)
    tool = factory_of(request.mcp).tool(host.find_tool(session, name))
    timeout = parsed.number("--timeout")
    if timeout is not None:
        if timeout == 0:
            raise LineError("--timeout needs a number greater than 0", path.start)
        tool = tool.options(timeout=timeout)
    try:
        result = tool.call(_arguments(request, tool, rest))
    except CallTimeout as error:
        if error.hint and _PYTHON_OPTIONS in error.hint:
            seconds = timeout or factory_of(request.mcp).options_of(tool, session).timeout
            error.hint = f"give it longer: {_with_timeout(path, 2 * seconds)}"
        raise
    except ArgumentError as error:
        if error.argument == "timeout" and error.hint and _PYTHON_OPTIONS in error.hint:
            given = next((word.value for word in rest if word.key == "timeout"), "S")
            error.hint = f"it is an option of the call: {_with_timeout(path, given)}"
        raise
    variable = parsed.text("--out")
    if variable is None:
        return result
    request.ip.user_ns[variable] = result
    return None


def _split(request: MagicRequest) -> tuple[Parsed, Word, Sequence[Word]]:
    """Split a line into options, the tool and its arguments."""
    words = list(request.words)
    parsed = _CALL_SYNTAX.parse(words)
    if not parsed.names:
        raise LineError(f"which tool? usage: %mcp {_CALL_SYNTAX.usage}", words[-1].end if words else 0)
    variable = parsed.text("--out")
    if variable is not None and not variable.isidentifier():
        raise LineError(f"--out needs a Python name, not {variable!r}", words[0].start)
    path, *rest = parsed.names
    return parsed, path, rest


def _with_timeout(path: Word, seconds: object) -> str:
    shown = f"{seconds:g}" if isinstance(seconds, float) else seconds
    return f"%mcp call --timeout {shown} {path.raw} …"


def _arguments(request: MagicRequest, tool: Tool, words: Sequence[Word]) -> dict[str, Any]:
    body = request.cell
    if words and words[0].is_body and words[0].raw.endswith("}"):
        if body is not None and body.strip():
            raise LineError("the arguments are on the line and in the cell: remove one", words[0].start)
        body, words = words[0].raw, words[1:]
    arguments = _parse_body(request, tool, body) if body is not None else {}
    schema = factory_of(request.mcp).schema_of(tool)
    names = [one.name for one in schema.parameters]
    for name, value in parse_arguments(words, request.namespaces, names):
        if name in arguments:
            raise ArgumentError(
                f"argument {name!r} is on the line and in the cell",
                argument=name,
                server=tool.server,
                tool=tool.name,
            )
        if isinstance(value, Object):
            arguments[name] = value.value
        else:
            arguments[name] = value.text if value.quoted else schema.read_text(name, value.text)
    return arguments


def _parse_body(request: MagicRequest, tool: Tool, body: str) -> dict[str, Any]:
    try:
        return parse_body(body, request.namespaces)
    except ArgumentError as error:
        error.server, error.tool = tool.server, tool.name
        raise


_CALL_COMMANDS = {"call": Command(_CALL_SYNTAX, _CALL_HELP, _call, takes_cell=True)}


_CANCEL_HELP = """Cancel running calls.

    %mcp cancel       all of them
    %mcp cancel 12    only this call; mcp.calls lists the numbers

This is for calls of .submit() and of background tasks; interrupt the kernel to stop a waiting cell."""


def _cancel(request: MagicRequest) -> None:
    number = None
    if request.names:
        if not request.names[0].isdigit():
            raise LineError(f"a call is named by its number, not {request.names[0]!r}", request.words[0].start)
        number = int(request.names[0])
    count = request.mcp.cancel(number)
    if not request.is_quiet:
        text = f"cancelled {count} call{'' if count == 1 else 's'}" if count else "no call is running"
        print(one_line(text))  # noqa: T201 - the command's answer


_CANCEL_COMMANDS = {"cancel": Command(Syntax("cancel [CALL]", at_most=1, takes=("call",)), _CANCEL_HELP, _cancel)}


_HISTORY_HELP = """Show past calls of all notebooks, newest first.

    %mcp history                         the last 50
    %mcp history --server fs --failed    failed calls of one server; --server and --tool take globs
    %mcp history --since 2h -n 1000      10m, 2h, 3d ago, or '2026-11-21 14:00'
    mcp.history(failed=True).df          all kept calls as a DataFrame

%config IPyMCP.history = "values" also keeps arguments and results, "off" keeps nothing. Calls are kept for 30
days, 100,000 at most."""
_COUNT = 50


def _history(request: MagicRequest) -> CallHistory:
    parsed = request.parsed
    number = parsed.number("-n")
    return request.mcp.history(
        server=parsed.text("--server"),
        tool=parsed.text("--tool"),
        failed=parsed.has("--failed"),
        since=parsed.text("--since"),
        limit=_COUNT if number is None else int(number),
    )


_HISTORY_COMMANDS = {
    "history": Command(
        Syntax(
            "history [--server S] [--tool T] [--failed] [--since WHEN] [-n N]",
            (
                Option("--server", "S", takes="server"),
                Option("--tool", "T", takes="tool-name"),
                Option("--failed"),
                Option("--since", "WHEN"),
                Option("-n", "N", number=True),
            ),
            at_most=0,
        ),
        _HISTORY_HELP,
        _history,
    )
}


_STUBS_HELP = """Describe the tools to editors and type checkers, in a .pyi file.

Only tools of ready servers that are not disabled are included.

    %mcp stubs                   mcp_tools.pyi in the notebook's folder
    %mcp stubs path/name.pyi"""


def _stubs(request: MagicRequest) -> None:
    host = request.host
    path = Path(host.folder, request.names[0] if request.names else "mcp_tools.pyi").expanduser()
    aliases = host.aliases()
    servers: dict[str, list[tuple[str, str, ToolSchema]]] = {}
    for entry in request.mcp.tools.entries:
        row = (entry.alias, entry.definition.description or "", factory_of(request.mcp).schema(entry))
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


_STUBS_COMMANDS = {"stubs": Command(Syntax("stubs [FILE]", at_most=1, takes=("file",)), _STUBS_HELP, _stubs)}


COMMANDS = {**_TOOLS_COMMANDS, **_CALL_COMMANDS, **_CANCEL_COMMANDS, **_HISTORY_COMMANDS, **_STUBS_COMMANDS}
