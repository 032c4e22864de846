"""`%mcp search`, `add` and `outdated`: servers of the MCP registry."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, cast

from msgspec import structs

from ipymcp.config.parsing import is_server
from ipymcp.config.pasted import PastedServers
from ipymcp.notebook.line_syntax import Command, LineError, Option, Syntax
from ipymcp.notebook.magics.servers import headers, keyword_definition, pasted_in, variables
from ipymcp.notebook.progress import print_notice
from ipymcp.runtime.waiting import Waiter
from ipymcp.setup.adding import RegistryChoice, add_from_registry, from_pasted
from ipymcp.setup.addition import add
from ipymcp.setup.load_request import config_path
from ipymcp.text import counted, visible

if TYPE_CHECKING:
    from ipymcp.notebook.line_syntax import MagicRequest
    from ipymcp.results.tables import Table
    from ipymcp.setup.addition import AnyAddition, Keep


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
    """Start a server of the MCP registry or of your own, and keep it if it starts.

        %mcp add io.github.user/weather               into your own file, in its latest version
        %mcp add io.github.user/weather UNITS=metric  with a value; you are asked for the required ones
        %mcp add weather --for notebook --cell        only in this notebook, and insert the cell that loads it
        %mcp add time -- uvx mcp-server-time          a server of your own: NAME -- COMMAND, or [NAME] URL
        %mcp add claude mcp add time -- uvx …         what people paste: a command of another host, or an install link
        %%mcp add                                     the same, or JSON, JSON5 or TOML of any host, in the cell

    The version is fixed in the server's command, which you see before it runs. You are asked for secret values, which
    are never typed on the line, and which go to the secret store (KEY=${secret:NAME} refers to a stored one). If the
    server does not start, nothing is kept. %mcp search NAME shows the inputs of a server.
    """
    pasted = _own_definition(request)
    if pasted is not None:
        _add_own(request, pasted)
        return
    parsed = request.parsed
    if not parsed.names:
        raise LineError(f"something is missing; usage: %mcp {_ADD.usage}", 0)
    name, *rest = parsed.names
    if name.text == "demo" and not rest:
        raise LineError("demo comes with ipymcp: %mcp load demo", name.start)
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
    own = next((option for option in _DEFINING if parsed.has(option)), None)
    if own is not None:
        raise LineError(f"{own} is for a server of your own: %mcp add [{own} …] NAME -- COMMAND, or NAME URL", 0)
    waiter = Waiter()
    begun = partial(_announce, request, waiter)
    wait = add_from_registry(request.host, choice, _keep(request), begun, replaces=parsed.has("--replace"))
    _report(request, request.host.loop.run(wait, waiter))


def _keep(request: MagicRequest) -> Keep:
    return cast("Keep", request.parsed.text("--for") or "me")


def _announce(request: MagicRequest, waiter: Waiter, addition: AnyAddition) -> None:
    lines = [*addition.notes, f"starting {addition.name}"]
    if not request.is_quiet:
        waiter.put(lambda: [print_notice(line) for line in lines])  # in the thread of the cell


def _own_definition(request: MagicRequest) -> PastedServers | None:
    """The servers that the line or its cell defines; None if it names one of the registry."""
    pasted, names = pasted_in(request), [word for word in request.parsed.names if not word.is_body]
    url = next((word for word in names if "://" in word.text), None)
    if request.line.command is not None:
        if not request.line.command:
            raise LineError("there is no command after --", request.words[-1].end if request.words else 0)
        project = _keep(request) == "project"
        command, *args = (config_path(text, request.host, project=project) for text in request.line.argv)
        pasted = PastedServers({"command": command, "args": args})
    elif pasted is None and url is not None:
        pasted = PastedServers({"url": url.text})
        names.remove(url)
    if pasted is None:
        return keyword_definition(request)
    if len(names) > 1 or any(word.key is not None for word in names):
        surplus = names[-1]
        raise LineError(f"{surplus.raw} is one too many; usage: %mcp {_ADD.usage}", surplus.start)
    return pasted.named(names[0].text if names else None)


def _add_own(request: MagicRequest, pasted: PastedServers) -> None:
    parsed = request.parsed
    other = next((option for option in ("--version", "--way", "--ask") if parsed.has(option)), None)
    if other is not None:
        raise LineError(f"{other} is for servers of the registry", 0)
    given = {"env": variables(parsed.texts("--env"), lambda name: f"${{{name}}}")}
    given["headers"] = headers(parsed.texts("--header"))
    changes: dict[str, Any] = {key: {**pasted.values.get(key, {}), **table} for key, table in given.items() if table}
    if parsed.has("--transport"):
        changes["transport"] = parsed.text("--transport")
    if changes and not is_server(pasted.values):
        raise LineError("--env, --header and --transport are for one server", 0)
    pasted = structs.replace(pasted, values={**pasted.values, **changes})
    waiter = Waiter()
    name = parsed.text("--name") or pasted.name

    async def add_own() -> AnyAddition:
        replaces = parsed.has("--replace")
        addition = await from_pasted(request.host, name, pasted, _keep(request), replaces=replaces)
        _announce(request, waiter, addition)
        await add(addition)
        return addition

    _report(request, request.host.loop.run(add_own(), waiter))


def _report(request: MagicRequest, addition: AnyAddition) -> None:
    cell = addition.cell(request.settings.namespace)
    names = addition.name.split(", ")
    tools = counted(sum(len(request.host.sessions[name].catalog.tools) for name in names), "tool")
    where = "loaded" if addition.keep == "notebook" else f"loaded, and in {addition.place}"
    request.report(f"{addition.name} {'is' if len(names) == 1 else 'are'} {where}: {tools}")
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


_DEFINING = ("--env", "--header", "--transport")
"""Options that apply to a server of the user's own only."""
_ADD = Syntax(
    "add NAME [KEY=VALUE…] | [NAME] URL | [NAME] -- COMMAND ARG…",
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
        Option(
            "--env",
            "K=V",
            "a variable of a server of your own; --env K is the kernel's at each start",
            repeats=True,
            also=("-e",),
        ),
        Option(
            "--header",
            "'Name: value'",
            "a header of every request to a server of your own",
            repeats=True,
            also=("-H",),
        ),
        Option("--transport", "http|sse", "of a server of your own", choices=("http", "sse", "stdio")),
        Option("--replace", help="replace the server of that name"),
        Option("--cell", help="insert the cell that loads it"),
    ),
    takes=("", "setting"),
)
COMMANDS = {
    "search": Command(
        Syntax("search WORD… | NAME [-n N]", (Option("-n", "N", number=True),), at_least=1, takes=("",)), _search
    ),
    "add": Command(_ADD, _add, takes_cell=True, takes_command=True, takes_pasted=True),
    "outdated": Command(Syntax("outdated", at_most=0), _outdated),
}
