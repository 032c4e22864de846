"""`%mcp search`, `add` and `outdated`: servers of the MCP registry."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ipymcp.api.additions import RegistryChoice, add_from_registry
from ipymcp.notebook.line_syntax import Command, LineError, Option, Syntax
from ipymcp.notebook.progress import print_notice
from ipymcp.runtime.interrupts import Waiter
from ipymcp.text import counted, visible

if TYPE_CHECKING:
    from ipymcp.api.additions import Addition, Keep
    from ipymcp.notebook.line_syntax import MagicRequest
    from ipymcp.results.tables import Table


def _search(request: MagicRequest) -> Table:
    """Find servers in the MCP registry.

        %mcp search weather                 servers with the word in their name, in their latest versions
        %mcp search weather alerts          the longest word in their name, the others also in title or description
        %mcp search io.github.user/name     the details of one: publisher, version, status, packages, its inputs

    The registry verifies who publishes under a name, but not what a server does. Answers are cached for ten minutes,
    or as long as the registry allows. If it cannot be reached, older answers are shown with a note.
    %config IPyMCP.registry = "https://…" sets another registry.
    """
    number = request.parsed.number("-n")
    return request.mcp.search(*request.names, limit=30 if number is None else int(number))


def _add(request: MagicRequest) -> None:
    """Add a server of the MCP registry: start it, and if it starts, keep it.

        %mcp add io.github.user/weather               into your own file, in its latest version
        %mcp add io.github.user/weather UNITS=metric  with a value; you are asked for the required ones
        %mcp add weather --for notebook --cell        only in this notebook, and insert the cell that loads it

    The version is fixed in the server's command, which you see before it runs. You are asked for secret values, which
    are never typed on the line, and which go to the secret store (KEY=${secret:NAME} refers to a stored one). If the
    server does not start, nothing is kept. %mcp search NAME shows the inputs of a server.
    """
    parsed = request.parsed
    name, *rest = parsed.names
    surplus = next((word for word in rest if word.key is None), None)
    if name.key is not None or surplus is not None:
        word = surplus or name
        raise LineError(f"{word.raw} is not NAME=VALUE; usage: %mcp {_ADD.usage}", word.start)
    choice = RegistryChoice(
        name.text,
        parsed.text("--version"),
        parsed.text("--way"),
        parsed.text("--name"),
        {word.key or "": word.value for word in rest},
        parsed.has("--ask"),
        takes_secrets=False,
    )
    keep = cast("Keep", parsed.text("--for") or "me")
    waiter = Waiter()

    def begun(addition: Addition) -> None:
        lines = [*addition.notes, f"starting {addition.definition.name}"]
        if not request.is_quiet:
            waiter.put(lambda: [print_notice(line) for line in lines])  # in the thread of the cell

    wait = add_from_registry(request.host, choice, keep, begun, replaces=parsed.has("--replace"))
    addition = request.host.loop.run(wait, waiter)
    _report(request, addition)


def _report(request: MagicRequest, addition: Addition) -> None:
    name = addition.definition.name
    cell = addition.cell(request.settings.namespace)
    tools = counted(len(request.host.sessions[name].catalog.tools), "tool")
    where = "loaded" if addition.keep == "notebook" else f"loaded, and in {addition.place}"
    request.report(f"{name} is {where}: {tools}")
    if request.parsed.has("--cell"):
        request.ip.set_next_input(cell)
    elif addition.keep == "notebook" and not request.is_quiet:
        request.report("the cell that loads it again (--cell inserts it):")
        print(visible(cell))  # noqa: T201 - the command's answer


def _outdated(request: MagicRequest) -> Table:
    """Show newer versions of the servers that were added from the registry.

    %mcp outdated
    """
    return request.mcp.outdated()


_ADD = Syntax(
    "add NAME [KEY=VALUE…]",
    (
        Option(
            "--for",
            "notebook|me|project",
            "where it is kept: in this notebook only, in your own file (the default), in the project's mcp.json",
            choices=("notebook", "me", "project"),
        ),
        Option("--name", "NAME", "the server's name in the notebook"),
        Option("--version", "V", "another version than the latest"),
        Option("--way", "npm|pypi|oci|nuget|remote", "how to run it, if there are several ways: a kind, or its number"),
        Option("--ask", help="also ask for optional values"),
        Option("--replace", help="replace the server of that name"),
        Option("--cell", help="insert the cell that loads it"),
    ),
    at_least=1,
    takes=("", "setting"),
)
COMMANDS = {
    "search": Command(
        Syntax("search WORD… | NAME [-n N]", (Option("-n", "N", number=True),), at_least=1, takes=("",)), _search
    ),
    "add": Command(_ADD, _add),
    "outdated": Command(Syntax("outdated", at_most=0), _outdated),
}
