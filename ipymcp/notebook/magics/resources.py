"""`%mcp resources`, `read`, `subscribe`, `prompts` and `prompt`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipymcp.api.parts import parts_of
from ipymcp.api.resources import Template
from ipymcp.errors import UnknownName
from ipymcp.notebook.line_syntax import Command, LineError, Syntax
from ipymcp.notebook.line_values import parse_arguments

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ipymcp.api.resources import AllPrompts, AllResources, PromptResult, Resource, Subscription
    from ipymcp.notebook.line_syntax import MagicRequest, Word
    from ipymcp.results.resource_result import ResourceResult


def check_patterns(request: MagicRequest, patterns: Iterable[str], kind: str) -> None:
    """Check the servers in patterns that match nothing.

    Raises:
        UnknownName: A pattern refers to an unknown server.
    """
    from ipymcp.llm.tool_definitions import NOTEBOOK

    known = [*request.mcp, *request.host.aliases().values(), NOTEBOOK]
    for pattern in patterns:
        server = pattern.removeprefix("!").partition(".")[0]
        if server not in known and (server.isidentifier() or server in request.host.discovery.peek().servers):
            message = f"no {kind} matches {pattern!r}: there is no server {server!r}"
            raise UnknownName(message, hint=request.host.missing_hint(server))


def load_lazy(request: MagicRequest) -> None:
    """Load the lazy servers that the patterns of a line name."""
    for pattern in request.names:
        definition = request.host.find_startable(pattern.partition(".")[0])
        if definition is not None and definition.lazy and request.host.guard.trusts(definition):
            request.mcp.load(definition.name)


def _resources(request: MagicRequest) -> AllResources:
    """List the resources of the servers that are ready, and their templates.

        %mcp resources                all resources
        %mcp resources fs             those of one server
        %mcp resources *.csv !tmp*    globs for URI, name, server and server.uri; the last match decides
        %mcp read SERVER URI          reads one

    For a server that is not running, this lists the resources it had when it last ran, in any notebook.
    """
    load_lazy(request)
    selection = request.mcp.resources(*request.names)
    check_patterns(request, () if selection.table.rows else request.names, "resource")
    return selection


def _read(request: MagicRequest) -> ResourceResult:
    """Read a resource; the value of the line is its content.

        %mcp read fs file:///data/birds.csv
        r = %mcp read fs birds.csv                        by the resource's name
        %mcp read db db://{table}/{id} table=birds id=$n  a template with its parameters

    Values of parameters are text; $name and {expr} are values of the notebook, as in %mcp call.
    """
    return _resource(request).read()


def _subscribe(request: MagicRequest) -> Subscription:
    """Keep a resource up to date; the value of the line has its content as .value.

        s = %mcp subscribe fs file:///data/birds.csv
        s.value, s.updated       the latest content, and the number of changes so far
        s.close()

    Arguments are those of %mcp read. To call a function on each change:
    mcp.SERVER.resources["URI"].subscribe(function).
    """
    return _resource(request).subscribe()


def _resource(request: MagicRequest) -> Resource:
    """Find the resource of a line: `SERVER URI`, or a template with its parameters."""
    server, name, *rest = request.parsed.names
    found = request.mcp[server.text].resources[name.text]
    if isinstance(found, Template):
        return found(**parse_arguments(rest, request.namespaces))
    if rest:
        raise LineError(f"{name.text} is not a template: it takes no parameters", rest[0].start)
    return found


def named_path(request: MagicRequest) -> tuple[str, list[Word]]:
    """The name `SERVER.TOOL` that a line begins with, also if it is in two words, and the words after it.

    A configured server with that name is loaded.
    """
    path, *rest = request.parsed.names
    parts_of(request.mcp).load_for_use(path.text)
    if rest and rest[0].key is None and path.text in (*request.host.sessions, *request.host.aliases().values()):
        return f"{path.text}.{rest[0].text}", rest[1:]
    return path.text, rest


def _prompts(request: MagicRequest) -> AllPrompts:
    """List the prompts of the servers that are ready.

        %mcp prompts           all prompts
        %mcp prompts demo      those of one server
        %mcp prompts demo.a*   globs for server.prompt; the last match decides, ! excludes

    For a server that is not running, this lists the prompts it had when it last ran, in any notebook.
    """
    load_lazy(request)
    selection = request.mcp.prompts(*request.names)
    check_patterns(request, () if selection.table.rows else request.names, "prompt")
    return selection


def _prompt(request: MagicRequest) -> PromptResult:
    """Get the messages of a prompt, which are the value of the line.

        %mcp prompt demo.describe species=Gentoo
        p = %mcp prompt demo.describe species=$name
        p.text, p.messages

    Values are text; $name and {expr} are values of the notebook, as in %mcp call.
    """
    path, rest = named_path(request)
    session, name = request.host.resolve(path, "prompt")
    return request.mcp[session.name].prompts[name](**parse_arguments(rest, request.namespaces))


def _resource_syntax(word: str) -> Syntax:
    return Syntax(f"{word} SERVER URI [key=value …]", at_least=2, takes=("server", "resource"), arguments=True)


COMMANDS = {
    "resources": Command(Syntax("resources [PATTERN…]", takes=("server",)), _resources),
    "read": Command(_resource_syntax("read"), _read),
    "subscribe": Command(_resource_syntax("subscribe"), _subscribe),
    "prompts": Command(Syntax("prompts [PATTERN…]", takes=("server",)), _prompts),
    "prompt": Command(Syntax("prompt SERVER.NAME key=value …", at_least=1, takes=("prompt",), arguments=True), _prompt),
}
