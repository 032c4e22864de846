"""`%mcp resources|read|subscribe`: what servers give to be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipymcp.notebook.magics.line import LineError
from ipymcp.notebook.magics.offers import check_patterns, texts
from ipymcp.notebook.magics.options import Syntax
from ipymcp.notebook.magics.request import Command
from ipymcp.tools.kept import kept_resources
from ipymcp.tools.templates import Template

if TYPE_CHECKING:
    from ipymcp.notebook.magics.request import Request
    from ipymcp.tools.readings import ResourceResult
    from ipymcp.tools.resources import AllResources, Resource
    from ipymcp.tools.subscription import Subscription
    from ipymcp.tools.tables import Table

__all__ = ["COMMANDS"]

_RESOURCES = """List the resources of the servers that are ready, and their templates.

    %mcp resources                all
    %mcp resources fs             those of one server
    %mcp resources *.csv !tmp*    globs over the URI, the name, the server and server.uri; the last that matches decides
    %mcp read SERVER URI          reads one

Of a server that does not run, named so, they are what it had when somebody last looked, in any notebook."""

_READ = """Read a resource; the value of the line is what was read.

    %mcp read fs file:///data/birds.csv
    r = %mcp read fs birds.csv                        by its name
    %mcp read db db://{table}/{id} table=birds id=$n  a template with its parameters

A parameter's value is text; $name and {expr} are the notebook's, as in %mcp call."""

_SUBSCRIBE = """Keep a resource fresh; the value of the line has it as .value.

    s = %mcp subscribe fs file:///data/birds.csv
    s.value, s.updated       what was read last, and how often it has changed since
    s.close()

It takes what %mcp read takes. A function to call at each change: mcp.SERVER.resources["URI"].subscribe(function)."""

_TARGET = "SERVER URI [key=value …]"


def _resources(request: Request) -> AllResources | Table:
    selection = request.mcp.resources(*request.names)
    found = not request.names or bool(selection.table.rows)
    if not found and (kept := kept_resources(request.mcp, request.names)) is not None:
        return kept
    check_patterns(request, found, "resource")
    return selection


def _read(request: Request) -> ResourceResult:
    return _resource(request).read()


def _subscribe(request: Request) -> Subscription:
    return _resource(request).subscribe()


def _resource(request: Request) -> Resource:
    """The resource that a line names: `SERVER URI`, or a template and its parameters."""
    server, name, *rest = request.parsed.names
    found = request.mcp[server.text].resources[name.text]
    if isinstance(found, Template):
        return found(**texts(rest, request.namespaces))
    if rest:
        raise LineError(f"{name.text} is no template: it takes no parameters", rest[0].start)
    return found


def _target(word: str) -> Syntax:
    return Syntax(f"{word} {_TARGET}", at_least=2, takes=("server", "resource"), arguments=True)


COMMANDS: dict[str, Command] = {
    "resources": Command(Syntax("resources [PATTERN…]", takes=("server",)), _RESOURCES, _resources),
    "read": Command(_target("read"), _READ, _read),
    "subscribe": Command(_target("subscribe"), _SUBSCRIBE, _subscribe),
}
