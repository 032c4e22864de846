"""`%mcp policy`: what may be called by whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

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


def _policy(request: Request) -> ToolPolicy | Table | None:
    policy = request.mcp.policy
    if not request.names:
        return policy
    word, *names = request.names
    always = request.parsed.has("--always")
    match word:
        case "explain":
            return policy.explain(names[0])
        case "reset":
            policy.reset(always)
        case _:
            {"allow": policy.allow, "ask": policy.ask, "deny": policy.deny}[word](*names, always=always)
    return None if request.is_quiet else policy.changed(*names)


_ALWAYS = (Option("--always"),)
_SYNTAX = Syntax(
    "policy [allow|ask|deny PATTERN… | explain SERVER.TOOL | reset]",
    actions={
        **{
            word: Syntax(f"policy {word} PATTERN… [--always]", _ALWAYS, at_least=1, takes=("tool",))
            for word in ("allow", "ask", "deny")
        },
        "explain": Syntax("policy explain SERVER.TOOL", at_least=1, at_most=1, takes=("tool",)),
        "reset": Syntax("policy reset [--always]", _ALWAYS, at_most=0),
    },
)
COMMANDS = {"policy": Command(_SYNTAX, _HELP, _policy)}
