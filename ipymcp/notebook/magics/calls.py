"""`%mcp tools`, `call`, `map`, `cancel`, `history` and `stubs`."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from ipymcp.api.parts import parts_of
from ipymcp.api.toolset import cached_schemas, cached_tools
from ipymcp.errors import ArgumentError, CallTimeout, UnknownName
from ipymcp.maps.rows import column_names
from ipymcp.names import nearest
from ipymcp.notebook.line_syntax import Command, LineError, Option, Syntax
from ipymcp.notebook.line_values import AS_TEXT, evaluate, parse_arguments, parse_body, parse_expression
from ipymcp.notebook.magics.resources import check_patterns, load_lazy, named_path
from ipymcp.notebook.progress import print_notice
from ipymcp.text import counted, quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ipymcp.api.history import CallHistory
    from ipymcp.api.tool import Tool
    from ipymcp.api.toolset import ToolSchemas, Toolset
    from ipymcp.notebook.line_syntax import MagicRequest, Word
    from ipymcp.results.tables import Table


def _tools(request: MagicRequest) -> Toolset | Table | ToolSchemas:
    """List the tools of the servers that are ready.

        %mcp tools                       all tools
        %mcp tools fs.*                  those of one server
        %mcp tools fs.read* !*.write*    globs for server.tool; the last match decides, ! excludes
        %mcp tools *sum*                 by tool name, if no server has that name
        %mcp tools --schema fs.read_file what the server says of a tool: description, schemas and hints, as JSON

    For a server that is not running, this lists the tools it had when it last ran, in any notebook.
    """
    load_lazy(request)
    has_schemas = request.parsed.has("--schema")
    selection = request.mcp.tools(*request.names)
    found = not request.names or bool(selection.selection.selected())
    read_cache = cached_schemas if has_schemas else cached_tools
    if not found and (cached := read_cache(parts_of(request.mcp).factory, request.names)) is not None:
        return cached
    if not found:
        request.host.relist(f"{server}.{name}" for server in request.mcp for name in request.names)
        by_name = (re.sub("^(!?)", r"\1*.", pattern) if "." not in pattern else pattern for pattern in request.names)
        named = request.mcp.tools(*by_name)
        if len(named):
            return named.schemas if has_schemas else named
        everything = [f"{entry.server}.{entry.alias}" for entry in request.mcp.tools.entries]
        for pattern in request.names:
            near = nearest(pattern, [*request.mcp, *everything, *(name.partition(".")[2] for name in everything)])
            if near and "*" not in pattern and pattern not in request.mcp:
                raise UnknownName(f"no tool matches {pattern!r}", hint=near)
    check_patterns(request, () if found else request.names, "tool")
    return selection.schemas if has_schemas else selection


_PYTHON_OPTIONS = ".options("
"""The beginning of call options in hints for Python, which are different on a line."""


def _tool(request: MagicRequest) -> tuple[Tool, Sequence[Word]]:
    """The tool that a line names, as `demo.echo` or `demo echo`, and the words after it.

    Raises:
        UnknownName: There is no such tool.
    """
    host, (path, rest) = request.host, named_path(request)
    session, name = host.resolve(path)
    if session.client is None and session.catalog.find(name) is None:
        host.wake(session)
    return parts_of(request.mcp).factory.tool(host.find_tool(session, name)), rest


def _call(request: MagicRequest) -> Any:
    """Call a tool; the value of the line is its result.

        %mcp call time.get_current_time timezone=Europe/Paris
        r = %mcp call fs.read_file path="my file.txt" head=$n     $n is the notebook's n
        %mcp call fs.write_file path=data/{i}.csv content=$text   {i} is filled as in an f-string, except in '…'
        %mcp call demo.query {"table": "penguins", "limit": 3}

        %%mcp call [--out VAR] demo.query
        {"table": "penguins", "limit": n}                         JSON, JSON5, or a Python dict with your variables

    The tool's schema determines how a value is read: as text if it accepts text, else as JSON.

    $name together with other text is an error: write {name}, or '…' for plain text.
    """
    parsed, path = request.parsed, request.parsed.names[0]
    if path.text.endswith(")") and "(" in path.text:
        name = quoted(path.text.partition("(")[0])
        raise LineError(f"arguments follow the name, without brackets: %mcp call {name} key=value …", path.start)
    tool, rest = _tool(request)
    timeout = parsed.number("--timeout")
    if timeout is not None:
        tool = tool.options(timeout=timeout)
    try:
        result = tool.call(_arguments(request, tool, rest))
    except CallTimeout as error:
        if error.hint and _PYTHON_OPTIONS in error.hint:
            factory, session = parts_of(request.mcp).factory, request.host.find(tool.server)
            seconds = timeout or factory.options_of(tool, session).timeout
            error.hint = f"give it longer: {_line_with_timeout(path, 2 * seconds)}"
        raise
    except ArgumentError as error:
        if error.argument == "timeout" and error.hint and _PYTHON_OPTIONS in error.hint:
            given = next((word.value for word in rest if word.key == "timeout"), "S")
            error.hint = f"it is an option of the call: {_line_with_timeout(path, given)}"
        raise
    variable = parsed.text("--out")
    if variable is None:
        return result
    request.ip.user_ns[variable] = result
    return None


def _line_with_timeout(path: Word, seconds: object) -> str:
    shown = f"{seconds:g}" if isinstance(seconds, float) else seconds
    return f"%mcp call --timeout {shown} {path.raw} …"


def _arguments(request: MagicRequest, tool: Tool, words: Sequence[Word]) -> dict[str, Any]:
    body, schema = request.cell, parts_of(request.mcp).factory.schema_of(tool)
    written = next((word for word in words if word.key is None and re.fullmatch(r"(?s)\{.*\}", word.value)), None)
    if written is not None:
        if body is not None and body.strip():
            raise LineError("the arguments are on the line and in the cell: remove one", written.start)
        body, words = written.value, [word for word in words if word is not written]
    try:
        in_body = parse_body(body, request.namespaces) if body is not None else {}
    except ArgumentError as error:
        error.server, error.tool = tool.server, tool.name
        if body is not None and AS_TEXT in (error.hint or "") and not body.lstrip().startswith("{"):
            name = next((parameter.name for parameter in schema.parameters), "argument")
            error.hint = f'the body has the arguments: {{"{name}": …}}'
        raise
    arguments = parse_arguments(words, request.namespaces, schema)
    if both := next((name for name in arguments if name in in_body), None):
        message = f"argument {both!r} is on the line and in the cell"
        raise ArgumentError(message, argument=both, server=tool.server, tool=tool.name)
    return in_body | arguments


def _map(request: MagicRequest) -> Any:
    """Call a tool for every row of a table or list, and return the results.

        %mcp map geo.lookup df                                    columns are bound to arguments by name
        %mcp map geo.lookup df city=name country=FR               city from the column name; FR in every row
        %mcp map geo.lookup $df[:100] --concurrency 8 --rate 10/s --out places
        %mcp map geo.lookup df --to places.parquet                results are written to a file as they arrive
        %mcp map geo.lookup df --cache 7d                         results of the last 7 days are used again
        %mcp map geo.lookup df --plan                             shows the calls, and sends none

    An unquoted value that is the name of a column means that column, one that nearly is its name is refused, and
    any other word is in every row, which is said; a quoted one is text. mcp.maps[-1] is the latest map, which may be
    interrupted: .df, .errors, .retry(), .resume().
    """
    parsed = request.parsed
    tool, words = _tool(request)
    if not words:
        raise LineError("which rows? usage: %mcp map SERVER.TOOL ROWS", parsed.names[-1].end)
    source, *rest = words
    text = source.raw.removeprefix("$")
    try:
        rows = evaluate(parse_expression(text), text, request.namespaces)
    except SyntaxError:
        raise LineError("the rows are a variable or an expression", source.start) from None
    available = column_names(rows)
    columns = [word for word in rest if word.key and not word.quoted and word.value in available]
    named = {word.key: word.value for word in columns if word.key}
    others = [word for word in rest if word not in columns]
    twice = next(
        (word for word in (*columns, *others) if word.key and [each.key for each in rest].count(word.key) > 1), None
    )
    if twice is not None:
        raise LineError(f"{twice.key} is given twice", twice.start)
    schema = parts_of(request.mcp).factory.schema_of(tool)
    choices = {parameter.name: parameter.enum for parameter in schema.parameters}
    for word in others:
        if not word.key or word.quoted or not available:
            continue
        message, as_text = f"the table has no column {word.value!r}", f"{word.key}={word.value!r} for the text"
        near = get_close_matches(word.value, available, 1)
        if near:
            raise LineError(f"{message}: write {word.key}={near[0]} for the column, or {as_text}", word.start)
        if not word.value.isidentifier() or word.value in (*choices.get(word.key, ()), "true", "false", "null"):
            continue
        if word.key in available:
            raise LineError(f"{message}, but {word.key!r}: write {as_text} in every row", word.start)
        if not request.is_quiet:
            print_notice(f"{message}: {word.key} is this text in every row")
    constants = parse_arguments(others, request.namespaces, schema)
    options: dict[str, Any] = {"columns": named or None, "constants": constants, "rate": parsed.text("--rate")}
    for option in ("concurrency", "retries"):
        number = parsed.number(f"--{option}")
        if number is not None:
            options[option] = int(number)
    age = parsed.text("--cache")
    if age is not None:
        options["cache"] = True if age == "all" else age
    if parsed.has("--raise"):
        options["on_error"] = "raise"
    if parsed.has("--plan"):
        return tool.map.plan(rows, **options)
    found = tool.map(rows, to=parsed.text("--to"), **options)
    variable = parsed.text("--out")
    if variable is None:
        return found
    request.ip.user_ns[variable] = found
    return None


def _cancel(request: MagicRequest) -> None:
    """Cancel running calls.

        %mcp cancel       all running calls
        %mcp cancel 12    only this call; mcp.calls lists the numbers

    This is for calls by .submit() and in background tasks; to stop a waiting cell, interrupt the kernel.
    """
    number = None
    if request.names:
        if not request.names[0].isdigit():
            problem = f"a call is named by its number, not {request.names[0]!r}; without one, all are cancelled"
            raise LineError(problem, request.words[0].start)
        number = int(request.names[0])
    count = request.mcp.cancel(number)
    request.report(f"cancelled {counted(count, 'call')}" if count else "no call is running")


_COUNT = 50


def _history(request: MagicRequest) -> CallHistory:
    """Show past calls of all notebooks, newest first.

        %mcp history                         the last 50 calls
        %mcp history --server fs --failed    failed or refused calls of one server; both names are globs
        %mcp history --since 2h -n 1000      10m, 2h, 3d ago, or '2026-11-21 14:00'
        %mcp history --map 12                the calls of a map, which is otherwise shown as one line
        mcp.history(failed=True).df          calls as a DataFrame

    %config IPyMCP.history = "values" also stores arguments, results and your answers, "off" stores nothing. Calls
    are stored for 30 days, at most 100,000, and as many calls of maps.
    """
    parsed = request.parsed
    number, of_map = parsed.number("-n"), parsed.number("--map")
    return request.mcp.history(
        server=parsed.text("--server"),
        tool=parsed.text("--tool"),
        failed=parsed.has("--failed"),
        since=parsed.text("--since"),
        map=None if of_map is None else int(of_map),
        limit=_COUNT if number is None else int(number),
    )


def _stubs(request: MagicRequest) -> None:
    """Write a .pyi file of the tools for editors and type checkers.

    Only tools of ready servers that are not disabled are included.

        %mcp stubs                   mcp_tools.pyi in the notebook's folder
        %mcp stubs path/name.pyi
    """
    entries = request.mcp.tools.entries
    path = request.mcp.stubs(request.names[0] if request.names else None)
    servers = counted(len({entry.server for entry in entries}), "server")
    request.report(f"{counted(len(entries), 'tool')} of {servers} in {path.name}")


COMMANDS = {
    "tools": Command(Syntax("tools [--schema] [PATTERN…]", (Option("--schema"),), takes=("tool",)), _tools),
    "call": Command(
        Syntax(
            "call [--timeout S] SERVER.TOOL key=value … | {json}",
            (
                Option(
                    "--timeout", "S", "seconds without progress after which the call fails", number=True, positive=True
                ),
                Option("--out", "VAR", "bind the result to this name instead of showing it", takes="variable"),
            ),
            at_least=1,
            missing="which tool?",
            takes=("tool",),
            arguments=True,
        ),
        _call,
        takes_cell=True,
    ),
    "map": Command(
        Syntax(
            "map SERVER.TOOL ROWS [argument=column|value …] [--out VAR] [--to FILE]",
            (
                Option("--concurrency", "N", "maximum concurrent calls", number=True),
                Option("--rate", "CALLS/TIME", "maximum calls per time, such as 10/s or 600/min"),
                Option(
                    "--retries", "N", "how often to repeat a call after a transient error; by default 2", number=True
                ),
                Option(
                    "--cache",
                    "AGE",
                    "use results of earlier maps up to this age, such as 7d or all, and keep the new ones",
                ),
                Option("--raise", help="stop at the first error"),
                Option("--plan", help="show the calls, and send none"),
                Option("--to", "FILE", "write the results to this .jsonl or .parquet file", takes="file"),
                Option("--out", "VAR", "bind the result to this name instead of showing it", takes="variable"),
            ),
            at_least=2,
            missing="which tool, and which rows?",
            takes=("tool", "variable"),
            arguments=True,
        ),
        _map,
    ),
    "cancel": Command(Syntax("cancel [CALL]", at_most=1, takes=("call",)), _cancel),
    "history": Command(
        Syntax(
            "history [--server S] [--tool T] [--failed] [--since WHEN] [--map N] [-n N]",
            (
                Option("--server", "S", takes="server"),
                Option("--tool", "T", takes="tool-name"),
                Option("--failed"),
                Option("--since", "WHEN"),
                Option("--map", "N", "the calls of this map", number=True),
                Option("-n", "N", number=True, also=("--tail", "--lines", "--limit")),
            ),
            at_most=0,
        ),
        _history,
    ),
    "stubs": Command(Syntax("stubs [FILE]", at_most=1, takes=("file",)), _stubs),
}
