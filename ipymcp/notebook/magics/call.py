"""`%mcp call` and `%%mcp call`: one tool, with arguments from the line or the cell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ipymcp.errors import ArgumentError
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

_HELP = """Call a tool; the value of the line is its result.

    %mcp call time.get_current_time timezone=Europe/Paris
    r = %mcp call fs.read_file path="my file.txt" head=$n     $n is the notebook's n
    %mcp call fs.write_file path=data/{i}.csv content=$text   {i} is filled like an f-string; '…' switches that off
    %mcp call demo.query {"table": "penguins", "limit": 3}

    %%mcp call [--out VAR] demo.query
    {"table": "penguins", "limit": n}                         JSON, JSON5, or a Python dict with the notebook's names

A value is read as the tool's schema wants it: text where it takes text, else JSON.

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
    session, name = host.resolve(path.text)
    if session.client is None and session.catalog.find(name) is None:
        host.wake(session)
    tool = request.mcp._factory.tool(host.find_tool(session, name))
    timeout = parsed.number("--timeout")
    if timeout is not None:
        tool = tool.options(timeout=timeout)
    result = tool.call(_arguments(request, tool, rest))
    variable = parsed.text("--out")
    if variable is None:
        return result
    request.ip.user_ns[variable] = result
    return None


def _split(request: Request) -> tuple[Parsed, Word, Sequence[Word]]:
    """Options, the tool, and what follows it. Only what stands before the tool is an option."""
    words = list(request.words)
    for index, word in enumerate(words):
        is_value = index and words[index - 1].text in ("--timeout", "--out")
        if not word.raw.startswith("--") and not is_value:
            break
    else:
        raise LineError(f"which tool? usage: %mcp {_SYNTAX.usage}", words[-1].end if words else 0)
    parsed = _SYNTAX.parse(words[:index])
    variable = parsed.text("--out")
    if variable is not None and not variable.isidentifier():
        raise LineError(f"--out needs a Python name, not {variable!r}", words[0].start)
    return parsed, word, words[index + 1 :]


def _arguments(request: Request, tool: Tool, words: Sequence[Word]) -> dict[str, Any]:
    body = request.cell
    if words and words[0].is_body:
        if body is not None and body.strip():
            raise LineError("the arguments stand in the line and in the cell: leave one out", words[0].start)
        body, words = words[0].raw, words[1:]
    arguments = _parse_body(request, tool, body) if body is not None else {}
    schema = request.mcp._factory.schema(tool._entry())
    for name, value in parse_arguments(words, request.namespaces):
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
