"""`%mcp config`: the discovered servers, the origin of each value, and changes to ipymcp's own files."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from ipymcp.config.config_files import decode, with_unit
from ipymcp.config.hosts import EXPORTED, IMPORTED, SETTINGS
from ipymcp.config.translation import OTHER_NAMES
from ipymcp.names import nearest
from ipymcp.notebook.line_syntax import Command, LineError, Option, Syntax
from ipymcp.notebook.magics.servers import headers, pasted_in, variables
from ipymcp.notebook.progress import print_notice
from ipymcp.setup import config_edits
from ipymcp.setup.load_request import config_path, notices, settings
from ipymcp.text import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from ipymcp.notebook.line_syntax import MagicRequest, Word


def _config(request: MagicRequest) -> Any:
    """Show the configuration, and change ipymcp's own files.

        %mcp config                                 all discovered servers and their files; also %mcp config list
        %mcp config init                            creates your own file, with comments and a disabled example
        %mcp config explain fs                      a server's values with their origins, and what it shadows
        %mcp config add fs -- npx -y some-server .  into the user's own file: NAME -- COMMAND ARG… or NAME URL
        %mcp config add docs https://host/mcp headers.Authorization='Bearer ${TOKEN}'
        %%mcp config add [NAME]                     JSON, JSON5 or TOML of any host in the cell; also a command line
        %mcp config add claude mcp add time -- uvx …   a command of another host, or the link of an install button
        %mcp config update fs timeout=60 env.LEVEL=debug cwd=     empty values are removed
        %mcp config edit fs                         inserts a cell with the definition, to be changed and run
        %mcp config copy fs fs2                     a copy with another name, in the same file
        %mcp config remove fs
        %mcp config import vscode                   from another host's file, or a FILE (you are asked); NAME… selects
        %mcp config export claude-code fs           shows it in another host's format; writes no file

    Other hosts' files are read and never written.
    """
    names = request.names
    if not names and request.cell is None:
        return _listing(request)
    if not names:
        raise LineError("%%mcp config needs a word; usage: %%mcp config add [NAME]", 0)
    first = request.parsed.names[0]
    if request.line.command is not None and names[0] not in ("add", "update"):
        raise LineError(f"%mcp config {names[0]} takes no command after --", first.start)
    if request.cell is not None and names[0] not in ("add", "edit"):
        raise LineError(f"%mcp config {names[0]} takes no cell: write it with one %", first.start)
    return ACTIONS[names[0]](request)


def _listing(request: MagicRequest) -> Any:
    host = request.host
    found = host.discovery.read()
    for line in notices(found, host) if not request.line.silent else ():
        print_notice(line)
    return config_edits.listing(found, host)


def _explain(request: MagicRequest) -> Any:
    host = request.host
    return config_edits.explanation(request.names[1], host.discovery.read(), host)


def _init(request: MagicRequest) -> None:
    file = config_edits.create_starter_file(request.host, project=_is_project(request))
    request.report(f"{file} is there now, with a disabled example: edit it, then %mcp load")


def _add(request: MagicRequest) -> None:
    _, *words = request.parsed.names
    is_name = bool(words) and not words[0].is_body and words[0].key is None and "://" not in words[0].text
    pasted = pasted_in(request)
    values = {**(pasted.values if pasted is not None else {}), **_values(request, 1 + is_name)}
    if not values:
        raise LineError(f"something is missing; usage: %mcp {_SYNTAXES['add'].usage}", request.parsed.names[-1].end)
    if any(word.key == "timeout" for word in words):
        values = with_unit(values)
    name = words[0].text if is_name else pasted.name if pasted is not None else None
    origin = pasted.origin if pasted is not None else ""
    added = config_edits.add(name, values, request.host, project=_is_project(request), origin=origin)
    for line in pasted.notes if pasted is not None and not request.is_quiet else ():
        print_notice(line)
    for line in added.notes if not request.is_quiet else ():
        print_notice(line)
    _report(request, added.file, added.names)


def _update(request: MagicRequest) -> None:
    name, values = request.names[1], _values(request, 2)
    for word in request.parsed.names[2:]:
        values = {**(_parse_object(word.text) if word.is_body else {}), **values}
    if not values:
        raise LineError(f"nothing to change; usage: %mcp {_SYNTAXES['update'].usage}", request.parsed.names[-1].end)
    _report(request, config_edits.update(name, values, request.host, project=_is_project(request)), [name])


def _edit(request: MagicRequest) -> None:
    name, host = request.names[1], request.host
    if request.cell is None:
        text = config_edits.editable_text(name, host)
        request.ip.set_next_input(f"%%mcp config edit {quoted(name)}\n{text}")
        return
    file = config_edits.rewrite(name, _parse_object(request.cell), host)
    _report(request, file, [name])


def _copy(request: MagicRequest) -> None:
    _, name, new = request.names
    _report(request, config_edits.copy(name, new, request.host), [new])


def _remove(request: MagicRequest) -> None:
    for name in request.names[1:]:
        removed = config_edits.remove(name, request.host, project=_is_project(request))
        secrets = f"; deleted its secrets: {', '.join(removed.secrets)}" if removed.secrets else ""
        request.report(f"removed {name} from {removed.file}{secrets}")


def _import(request: MagicRequest) -> None:
    host, wanted = request.names[1], request.names[2:]
    imported = config_edits.import_from(
        host, wanted, request.host, project=_is_project(request), replace=request.parsed.has("--replace")
    )
    for line in imported.notes if not request.is_quiet else ():
        print_notice(line)
    request.report(f"imported into {imported.file}: {', '.join(imported.names) or 'nothing'}")


def _export(request: MagicRequest) -> config_edits.ConfigListing:
    host, wanted = request.names[1], request.names[2:]
    document = config_edits.export_to(host, wanted, request.host)
    for line in document.notes if not request.line.silent else ():
        print_notice(line)
    return document


def _values(request: MagicRequest, first: int) -> dict[str, Any]:
    """The values of a definition on a line: command, URL and `key=value`.

    Args:
        request: The line.
        first: The index of the first word with a value.
    """
    values: dict[str, Any] = {}
    pairs: list[tuple[str, str]] = []
    for word in request.parsed.names[first:]:
        if word.is_body:
            continue
        if word.key is not None:
            _check_key(word, request)
            pairs.append((word.key, _path(word.value, request) if word.key in _PATHS else word.value))
        elif "://" in word.text:
            values |= {"url": word.text, "command": None, "args": None}
        else:
            usage = _SYNTAXES[request.names[0]].usage
            raise LineError(f"{word.raw} is one too many; usage: %mcp {usage}", word.start)
    if request.line.command is not None:
        if not request.line.command:
            raise LineError("there is no command after --", request.words[-1].end)
        command, *args = (_config_path(text, request) for text in request.line.argv)
        values |= {"command": command, "args": args or None, "url": None}
    given = variables(request.parsed.texts("--env"), lambda name: f"${{{name}}}")
    pairs += [(f"env.{name}", value) for name, value in given.items()]
    pairs += [(f"headers.{name}", value) for name, value in headers(request.parsed.texts("--header")).items()]
    if (transport := request.parsed.text("--transport")) is not None:
        pairs.append(("transport", transport))
    return {**values, **settings(pairs)}


def _check_key(word: Word, request: MagicRequest) -> None:
    """Check that a key is known, unless the definition already has it or the value is empty, which removes it."""
    key, dot, rest = (word.key or "").partition(".")
    if dot and not rest:
        raise LineError(f"{word.key} needs a name after the dot: {word.key}NAME=VALUE", word.start)
    definition = request.host.discovery.peek().definitions.get(request.names[1]) if len(request.names) > 1 else None
    if word.value and key not in KEYS and (definition is None or key not in definition.extra):
        hint = nearest(key, KEYS, limit=1) or f"there are {', '.join(SETTINGS)}"
        raise LineError(f"a server has no setting {key}; {hint}", word.start)


def _config_path(text: str, request: MagicRequest) -> str:
    return config_path(text, request.host, project=_is_project(request))


def _path(text: str, request: MagicRequest) -> str:
    """Resolve a value that is always a path, even without a leading `./`."""
    is_plain = text and not text.startswith((".", "~", "$", "{", "/", "\\"))
    return _config_path(f"./{text}" if is_plain else text, request)


def _parse_object(text: str) -> Mapping[str, Any]:
    """Parse a JSON object, which may have comments and trailing commas."""
    value, _ = decode(text, "pasted")
    if not isinstance(value, Mapping):
        raise LineError("a definition is an object: {…}", 0)
    return cast("Mapping[str, Any]", value)


def _report(request: MagicRequest, file: Path, names: Sequence[str]) -> None:
    words, verb = " ".join(map(quoted, names)), "is" if len(names) == 1 else "are"
    saved = f"{', '.join(names)} {verb} in {file}; to start: %mcp load {words}"
    request.report(saved if names else "there is nothing to add")
    secrets = config_edits.literal_secrets(names, file, request.host)
    if secrets:
        problem = f"{file} has what looks like a secret in {', '.join(secrets)}"
        print_notice(f"{problem}: %mcp secret set NAME stores it, and ${{secret:NAME}} refers to it")


def _is_project(request: MagicRequest) -> bool:
    return request.parsed.has("--project")


KEYS = frozenset({*SETTINGS, *OTHER_NAMES, "type"})
"""The keys that are allowed in `key=value`, up to a dot."""
ACTIONS: dict[str, Callable[[MagicRequest], Any]] = {
    "list": _listing,
    "explain": _explain,
    "add": _add,
    "update": _update,
    "edit": _edit,
    "copy": _copy,
    "remove": _remove,
    "import": _import,
    "export": _export,
    "init": _init,
}
"""The implementations of the actions of `config`."""
_PATHS = ("cwd", "env_file")
_PROJECT = Option("--project", help="use the project's mcp.json instead of your own file")
_DEFINING = (
    Option(
        "--env",
        "K=V",
        "the same as env.K=V; --env K reads this kernel's variable at each start",
        repeats=True,
        also=("-e",),
    ),
    Option("--header", "'Name: value'", "the same as headers.NAME=VALUE", repeats=True, also=("-H",)),
    Option("--transport", "http|sse", "the same as transport=http|sse", choices=("http", "sse", "stdio")),
    _PROJECT,
)
_SYNTAXES = {
    "list": Syntax("config list", at_most=0),
    "init": Syntax("config init", (_PROJECT,), at_most=0),
    "explain": Syntax("config explain NAME", at_least=1, at_most=1, takes=("configured",)),
    "add": Syntax("config add NAME URL | [NAME] {json} | NAME -- COMMAND ARG…", _DEFINING, takes=("", "setting")),
    "update": Syntax(
        "config update NAME KEY=VALUE… | URL | {json} | -- COMMAND ARG…",
        _DEFINING,
        at_least=1,
        takes=("configured", "setting"),
    ),
    "edit": Syntax("config edit NAME", at_least=1, at_most=1, takes=("configured",)),
    "copy": Syntax("config copy NAME NEW-NAME", at_least=2, at_most=2, takes=("configured", "")),
    "remove": Syntax("config remove NAME…", (_PROJECT,), at_least=1, takes=("configured",)),
    "import": Syntax(
        "config import HOST|FILE [NAME…]",
        (_PROJECT, Option("--replace", help="replace servers of the same name in import")),
        at_least=1,
        takes=("source-host", ""),
    ),
    "export": Syntax("config export HOST [NAME…]", at_least=1, takes=("target-host", "configured")),
}


def _hosts(purpose: str, names: Iterable[str]) -> str:
    return textwrap.fill(f"{purpose}: {', '.join(names)}.", 100, subsequent_indent="    ", break_on_hyphens=False)


COMMANDS = {
    "config": Command(
        Syntax(
            f"config [{'|'.join(ACTIONS)} …]",
            actions=_SYNTAXES,
            synonyms={"ls": "list", "show": "explain", "get": "explain", "set": "update", "rm": "remove"},
        ),
        _config,
        "\n".join(
            [
                inspect.cleandoc(_config.__doc__ or ""),
                _hosts("Hosts to import from", IMPORTED),
                _hosts("Hosts to export to", EXPORTED),
            ]
        ),
        takes_cell=True,
        takes_command=True,
        takes_pasted=True,
    )
}
