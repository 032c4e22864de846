"""`%mcp policy`: what may be called by whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipymcp.notebook.magics.line import LineError
from ipymcp.notebook.magics.options import Option, Syntax
from ipymcp.notebook.magics.request import Command

if TYPE_CHECKING:
    from ipymcp.notebook.magics.request import Request
    from ipymcp.tools.policy import ToolPolicy
    from ipymcp.tools.tables import Table

__all__ = ["COMMANDS"]

_HELP = """Show or change what may be called by whom.

    %mcp policy                              every tool, and what holds for you, for models and for apps
    %mcp policy deny *.delete_*              refuse these, whoever calls: globs over server.tool
    %mcp policy ask db.*                     ask me first, whoever calls
    %mcp policy allow fs.read_* --always     never ask about these; --always: in all notebooks, from now on
    %mcp policy explain fs.write_file        every rule about it, and which decides
    %mcp policy reset [--always]             forget what was decided in this notebook; --always: everywhere

Of the rules that match the last decides: your own call is allowed and a model's or an app's asked about, unless the
tool's hints, autoApprove, the definition's "tools", what was answered always or never, or this notebook say
otherwise."""
_WORDS = ("allow", "ask", "deny", "explain", "reset")


def _policy(request: Request) -> ToolPolicy | Table | None:
    policy = request.mcp.policy
    if not request.names:
        return policy
    word, *names = request.names
    if word not in _WORDS:
        raise LineError(f"%mcp policy {word}: one of {', '.join(_WORDS)}", request.words[0].start)
    always = request.parsed.has("--always")
    if word == "explain":
        if len(names) != 1:
            raise LineError("one tool; usage: %mcp policy explain SERVER.TOOL", request.words[0].start)
        return policy.explain(names[0])
    if word == "reset":
        if names:
            raise LineError(f"{names[0]} is one too many; usage: %mcp policy reset [--always]", request.words[1].start)
        policy.reset(always)
    elif not names:
        raise LineError(f"which? usage: %mcp policy {word} PATTERN…", request.words[0].end)
    else:
        {"allow": policy.allow, "ask": policy.ask, "deny": policy.deny}[word](*names, always=always)
    return None if request.is_quiet else policy


_ALWAYS = (Option("--always"),)
_SYNTAX = Syntax(
    "policy [allow|ask|deny PATTERN… | explain SERVER.TOOL | reset]",
    actions={
        **{word: Syntax(f"policy {word} PATTERN…", _ALWAYS, takes=("tool",)) for word in ("allow", "ask", "deny")},
        "explain": Syntax("policy explain SERVER.TOOL", takes=("tool",)),
        "reset": Syntax("policy reset [--always]", _ALWAYS),
    },
)
COMMANDS = {"policy": Command(_SYNTAX, _HELP, _policy)}
