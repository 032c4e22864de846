"""`%mcp prompts|prompt`: the messages that servers write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipymcp.notebook.magics.offers import check_patterns, texts
from ipymcp.notebook.magics.options import Syntax
from ipymcp.notebook.magics.request import Command
from ipymcp.tools.kept import kept_prompts

if TYPE_CHECKING:
    from ipymcp.notebook.magics.request import Request
    from ipymcp.tools.prompts import AllPrompts, PromptResult
    from ipymcp.tools.tables import Table

__all__ = ["COMMANDS"]

_PROMPTS = """List the prompts of the servers that are ready.

    %mcp prompts           all
    %mcp prompts demo      those of one server
    %mcp prompts demo.a*   globs over server.prompt; the last that matches decides, ! denies

Of a server that does not run, named so, they are what it had when somebody last looked, in any notebook."""

_PROMPT = """Get the messages of a prompt; they are the value of the line.

    %mcp prompt demo.describe species=Gentoo
    p = %mcp prompt demo.describe species=$name
    p.text, p.messages

A value is text; $name and {expr} are the notebook's, as in %mcp call."""


def _prompts(request: Request) -> AllPrompts | Table:
    selection = request.mcp.prompts(*request.names)
    found = not request.names or len(selection) > 0
    if not found and (kept := kept_prompts(request.mcp, request.names)) is not None:
        return kept
    check_patterns(request, found, "prompt")
    return selection


def _prompt(request: Request) -> PromptResult:
    path, *rest = request.parsed.names
    session, name = request.mcp._host.resolve(path.text, "prompt")
    return request.mcp[session.name].prompts[name](**texts(rest, request.namespaces))


COMMANDS = {
    "prompts": Command(Syntax("prompts [PATTERN…]", takes=("server",)), _PROMPTS, _prompts),
    "prompt": Command(
        Syntax("prompt SERVER.NAME key=value …", at_least=1, takes=("prompt",), arguments=True), _PROMPT, _prompt
    ),
}
