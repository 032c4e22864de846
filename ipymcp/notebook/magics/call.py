"""`%mcp call` and `%%mcp call`: one tool, with arguments from the line or the cell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ipymcp.errors import ArgumentError, CallTimeout
from ipymcp.notebook.magics.line import LineError
from ipymcp.notebook.magics.options import Option, Syntax
from ipymcp.notebook.magics.request import Command
from ipymcp.notebook.magics.values import Object, parse_arguments, parse_body

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ipymcp.notebook.magics.line import Word
    from ipymcp.notebook.magics.options import Parsed
    from ipymcp.notebook.magics.request import Request
    from ipymcp.tools.tool import Tool

__all__ = ["COMMANDS"]

_LONGER = ".options("
"""How a hint names a call's options in Python; on a line they are others."""

_HELP = """Call a tool; the value of the line is its result.

    %mcp call time.get_current_time timezone=Europe/Paris
    r = %mcp call fs.read_file path="my file.txt" head=$n     $n is the notebook's n
    %mcp call fs.write_file path=data/{i}.csv content=$text   {i} is filled like an f-string; '…' switches that off
    %mcp call demo.query {"table": "penguins", "limit": 3}

    %%mcp call [--out VAR] demo.query
    {"table": "penguins", "limit": n}                         JSON, JSON5, or a Python dict with the notebook's names

A value is read as the tool's schema wants it: text where it takes text, else JSON.

    A $name with anything before or behind it is refused: write {name}, or '…' for text.

    --timeout S    seconds it may go without progress
    --out VAR      under %%mcp: bind the result to this name instead of showing it"""

_SYNTAX = Syntax(
    "call [--timeout S] SERVER.TOOL key=value … | {json}",
    (Option("--timeout", "S", number=True), Option("--out", "VAR")),
    takes=("tool",),
    arguments=True,
)


def _call(request: Request) -> Any:
    parsed, path, rest = _split(request)
    host = request.mcp._host
    request.mcp._load_if_lazy(path.text.partition(".")[0])
    session, name = host.resolve(path.text)
    if session.client is None and session.catalog.find(name) is None:
        host.wake(session)
    tool = request.mcp._factory.tool(host.find_tool(session, name))
    timeout = parsed.number("--timeout")
    if timeout is not None:
        if timeout == 0:
            raise LineError("--timeout needs a number greater than 0", path.start)
        tool = tool.options(timeout=timeout)
    try:
        result = tool.call(_arguments(request, tool, rest))
    except CallTimeout as error:
        if error.hint and _LONGER in error.hint:
            error.hint = f"give it longer: {_with_timeout(path, 2 * (timeout or tool._call_options(session).timeout))}"
        raise
    except ArgumentError as error:
        if error.argument == "timeout" and error.hint and _LONGER in error.hint:
            given = next((word.value for word in rest if word.key == "timeout"), "S")
            error.hint = f"it is an option of the call: {_with_timeout(path, given)}"
        raise
    variable = parsed.text("--out")
    if variable is None:
        return result
    request.ip.user_ns[variable] = result
    return None


def _split(request: Request) -> tuple[Parsed, Word, Sequence[Word]]:
    """Options, wherever they stand, the tool, and what follows it."""
    words = list(request.words)
    parsed = _SYNTAX.parse(words)
    if not parsed.names:
        raise LineError(f"which tool? usage: %mcp {_SYNTAX.usage}", words[-1].end if words else 0)
    variable = parsed.text("--out")
    if variable is not None and not variable.isidentifier():
        raise LineError(f"--out needs a Python name, not {variable!r}", words[0].start)
    path, *rest = parsed.names
    return parsed, path, rest


def _with_timeout(path: Word, seconds: object) -> str:
    shown = f"{seconds:g}" if isinstance(seconds, float) else seconds
    return f"%mcp call --timeout {shown} {path.raw} …"


def _arguments(request: Request, tool: Tool, words: Sequence[Word]) -> dict[str, Any]:
    body = request.cell
    if words and words[0].is_body and words[0].raw.endswith("}"):
        if body is not None and body.strip():
            raise LineError("the arguments stand in the line and in the cell: leave one out", words[0].start)
        body, words = words[0].raw, words[1:]
    arguments = _parse_body(request, tool, body) if body is not None else {}
    schema = request.mcp._factory.schema(tool._entry())
    names = [one.name for one in schema.parameters]
    for name, value in parse_arguments(words, request.namespaces, names):
        if name in arguments:
            raise ArgumentError(
                f"argument {name!r} stands in the line and in the cell",
                argument=name,
                server=tool.server,
                tool=tool.name,
            )
        if isinstance(value, Object):
            arguments[name] = value.value
        else:
            arguments[name] = value.text if value.quoted else schema.read_text(name, value.text)
    return arguments


def _parse_body(request: Request, tool: Tool, body: str) -> dict[str, Any]:
    try:
        return parse_body(body, request.namespaces)
    except ArgumentError as error:
        error.server, error.tool = tool.server, tool.name
        raise


COMMANDS = {"call": Command(_SYNTAX, _HELP, _call, takes_cell=True)}
