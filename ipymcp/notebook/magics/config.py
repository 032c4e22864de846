"""`%mcp config`: what was found in which file, what each value's origin is, and changes to ipymcp's own files."""

from __future__ import annotations

import json
import textwrap
from typing import TYPE_CHECKING, Any

from ipymcp.config.convert import TARGETS
from ipymcp.config.hosts import HOSTS
from ipymcp.notebook.magics.line import LineError
from ipymcp.notebook.magics.options import Option, Syntax
from ipymcp.notebook.magics.request import Command
from ipymcp.notebook.notices import say
from ipymcp.runtime.names import nearest
from ipymcp.tools import configuration, edits
from ipymcp.tools.asked import notices

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable

    from ipymcp.notebook.magics.line import Word
    from ipymcp.notebook.magics.request import Request

__all__ = ["ACTIONS", "COMMANDS"]

_HELP = """Show the configuration, and change ipymcp's own part of it.

    %mcp config                                 every server that was found, and where
    %mcp config explain fs                      each of its values, and where that stands; what it shadows
    %mcp config add fs -- npx -y some-server .  into the user's own file: NAME -- COMMAND ARG…, NAME URL or NAME {json}
    %mcp config add docs https://host/mcp headers.Authorization='Bearer ${TOKEN}'
    %mcp config update fs timeout=60 env.LEVEL=debug cwd=     what is left empty is taken out
    %mcp config remove fs
    %mcp config import vscode                   from another host's own file, or a FILE; NAME… picks
    %mcp config export claude-code fs           as another host writes it; to be copied, nothing is written

    --project      the project's mcp.json instead of the user's own file
    --replace      let import replace servers of the same name

Other hosts' files are read and never written.
Hosts to import from: {sources}.
Hosts to export to: {targets}."""


def _config(request: Request) -> Any:
    names = request.names
    if not names:
        return _listing(request)
    action = ACTIONS.get(names[0])
    first = request.parsed.names[0]
    if action is None:
        hint = nearest(names[0], ACTIONS, limit=1) or f"there are {', '.join(ACTIONS)}"
        raise LineError(f"there is no %mcp config {names[0]}; {hint}", first.start)
    if len(names) < 2:
        raise LineError(f"something is missing; usage: {_USAGES[names[0]]}", first.end)
    if request.line.command is not None and names[0] not in ("add", "update"):
        raise LineError(f"%mcp config {names[0]} takes no command after --", first.start)
    return action(request)


def _listing(request: Request) -> Any:
    host = request.mcp._host
    found = host.discovery.read()
    for line in notices(found) if not request.line.silent else ():
        say(line)
    return configuration.listing(found, host)


def _explain(request: Request) -> Any:
    _only(request, 2)
    host = request.mcp._host
    return configuration.explanation(request.names[1], host.discovery.read(), host)


def _add(request: Request) -> None:
    name, values = request.names[1], _values(request)
    _written(request, edits.add(name, values, request.mcp._host, project=_is_project(request)), name)


def _update(request: Request) -> None:
    name, values = request.names[1], _values(request)
    if not values:
        raise LineError(f"nothing to change; usage: {_USAGES['update']}", request.parsed.names[-1].end)
    _written(request, edits.update(name, values, request.mcp._host, project=_is_project(request)), name)


def _remove(request: Request) -> None:
    for name in request.names[1:]:
        file = edits.remove(name, request.mcp._host, project=_is_project(request))
        if not request.is_quiet:
            print(f"removed {name} from {file}")  # noqa: T201 - the command's answer


def _import(request: Request) -> None:
    host, wanted = request.names[1], request.names[2:]
    imported = edits.import_from(
        host, wanted, request.mcp._host, project=_is_project(request), replace=request.parsed.has("--replace")
    )
    if request.is_quiet:
        return
    for line in imported.notes:
        say(line)
    print(f"imported into {imported.file}: {', '.join(imported.names) or 'nothing'}")  # noqa: T201 - the answer


def _export(request: Request) -> configuration.Document:
    host, wanted = request.names[1], request.names[2:]
    document = configuration.export_to(host, wanted, request.mcp._host)
    for line in document.notes if not request.line.silent else ():
        say(line)
    return document


def _values(request: Request) -> dict[str, Any]:
    """What the line says of a server: a command, an address, an object, and `key=value`."""
    values: dict[str, Any] = {}
    pairs: list[tuple[str, str]] = []
    for word in request.parsed.names[2:]:
        if word.key is not None:
            pairs.append((word.key, word.value))
        elif word.is_body:
            values |= _object(word)
        elif "://" in word.text:
            values |= {"url": word.text, "command": None, "args": None}
        else:
            raise LineError(f"{word.raw} is one too many; usage: {_USAGES[request.names[0]]}", word.start)
    if request.line.command is not None:
        if not request.line.command:
            raise LineError("there is no command after --", request.words[-1].end)
        command, *args = request.line.argv
        values |= {"command": command, "args": args or None, "url": None}
    return {**values, **edits.settings(pairs)}


def _object(word: Word) -> dict[str, Any]:
    try:
        value = json.loads(word.text)
    except ValueError as error:
        raise LineError(f"not JSON: {error}", word.start) from None
    return value


def _written(request: Request, file: str | os.PathLike[str], name: str) -> None:
    if not request.is_quiet:
        print(f"{name} stands in {file}: %mcp load {name} brings it up")  # noqa: T201 - the command's answer


def _is_project(request: Request) -> bool:
    return request.parsed.has("--project")


def _only(request: Request, count: int) -> None:
    if len(request.names) > count:
        surplus = request.parsed.names[count]
        raise LineError(f"{surplus.raw} is one too many; usage: {_USAGES[request.names[0]]}", surplus.start)


def _listed(names: Iterable[str]) -> str:
    return textwrap.fill(", ".join(names), 100, subsequent_indent="    ", break_on_hyphens=False)


ACTIONS: dict[str, Callable[[Request], Any]] = {
    "explain": _explain,
    "add": _add,
    "update": _update,
    "remove": _remove,
    "import": _import,
    "export": _export,
}
"""The words after `config`."""
_USAGES = {
    "explain": "%mcp config explain NAME",
    "add": "%mcp config add NAME URL | {json} | -- COMMAND ARG…",
    "update": "%mcp config update NAME KEY=VALUE… | URL | {json} | -- COMMAND ARG…",
    "remove": "%mcp config remove NAME…",
    "import": "%mcp config import HOST|FILE [NAME…]",
    "export": "%mcp config export HOST [NAME…]",
}

COMMANDS = {
    "config": Command(
        Syntax(f"config [{'|'.join(ACTIONS)} …]", (Option("--project"), Option("--replace"))),
        _HELP.replace("{sources}", _listed(HOSTS)).replace("{targets}", _listed(TARGETS)),
        _config,
        takes_command=True,
    )
}
