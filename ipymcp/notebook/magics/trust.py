"""`%mcp trust`: which servers of projects may run."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ipymcp.notebook.magics.options import Option, Syntax
from ipymcp.notebook.magics.request import Command
from ipymcp.text import one_line

if TYPE_CHECKING:
    from ipymcp.notebook.magics.request import Request
    from ipymcp.tools.trust import TrustedServers

__all__ = ["COMMANDS"]

_HELP = """Show what you agreed to run, and take it back.

    %mcp trust                          what you agreed to, the files that it is bound to, and its secrets
    %mcp trust revoke NAME|FILE|HASH…   take it back; what runs by it here is stopped
    %mcp trust revoke --all

A server that a project's file defines runs only after you have seen all of its definition: %mcp load asks, once for
each definition. What you refused or took back is asked about when you name it: %mcp start NAME. %mcp load --trust says
yes in the cell. Where nobody can be asked, IPYMCP_TRUST=all, none, or whole hashes does."""


def _trust(request: Request) -> TrustedServers | None:
    word, *names = request.names or ["list"]
    if word == "list":
        return request.mcp.trust
    gone = request.mcp.trust.revoke(*names, everything=request.parsed.has("--all"))
    if not request.is_quiet:
        definitions = Counter(gone)
        names = (name if count == 1 else f"{name} ({count} definitions)" for name, count in definitions.items())
        print(one_line(f"revoked: {', '.join(names)}" if gone else "nothing was agreed to"))  # noqa: T201 - the command's answer
    return None


_SYNTAX = Syntax(
    "trust [list | revoke NAME|FILE|HASH… | revoke --all]",
    actions={
        "list": Syntax("trust list", at_most=0),
        "revoke": Syntax(
            "trust revoke NAME|FILE|HASH… | --all", (Option("--all"),), instead="--all", takes=("trusted",)
        ),
    },
)
COMMANDS = {"trust": Command(_SYNTAX, _HELP, _trust)}
