"""`%mcp load`, `restore`, `start`, `stop`, `restart`, `unload`, `enable`, `disable`, `logs` and `panel`."""

from __future__ import annotations

import os
import re
from functools import partial
from typing import TYPE_CHECKING, Any

from ipymcp.api.parts import parts_of
from ipymcp.config.definition import ServerDefinition
from ipymcp.config.pasted import PastedServers, default_name, read_pasted, split_words
from ipymcp.errors import McpError
from ipymcp.notebook.line_syntax import Command, LineError, Option, Syntax
from ipymcp.notebook.magics.resources import load_lazy
from ipymcp.notebook.progress import LoadDisplay, print_notice
from ipymcp.protocol.transports.addresses import checked_headers
from ipymcp.runtime.events import LEVELS
from ipymcp.runtime.waiting import Waiter
from ipymcp.security.pins import read_lock
from ipymcp.setup import restore
from ipymcp.setup.load_request import LoadRequest, agree_to_links, from_pasted, gather, settings, url_definition

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ipymcp.api.servers import Servers
    from ipymcp.notebook.line_syntax import MagicRequest
    from ipymcp.results.tables import Table


_VARIABLE = re.compile(r"[^=\s\0]+")
_SINGLE_SERVER_OPTIONS = ("--env", "--header", "--cwd", "--transport")
"""Options that apply to named servers only."""


def _load(request: MagicRequest) -> None:
    """Load servers: start them and list their tools.

        %mcp load                                   every server of the discovered configuration; see %mcp config
        %mcp load fs git                            only these two servers
        %mcp load demo                              the server that comes with ipymcp
        %mcp load time -- uvx mcp-server-time       a server of your own: NAME -- COMMAND ARG…
        %mcp load docs https://host/mcp             a remote server: [NAME] URL
        %mcp load ./servers.json                    every server of a config file that is not disabled
        %mcp load ./servers.json fs git             only these two servers of the file
        %mcp load claude mcp add time -- uvx …      what people paste: a command of another host, or an install link
        %%mcp load [NAME]                           the same, or JSON, JSON5 or TOML of any host, in the cell

    Loading an unchanged server again does nothing; a changed one is restarted. A server of a project's
    file runs only after you have seen its definition and agreed; you are asked once for each definition, and also
    about a server from a link, which does not show what it runs.
    """
    asked = _load_request(request)
    definitions = [_changed(request, one) for one in asked.definitions]
    originals = {one.name: one for one, changed in zip(asked.definitions, definitions, strict=True) if changed != one}
    named = asked.named
    if not request.line.silent:
        for line in asked.notices:
            print_notice(line)
    host = request.host
    waiter = Waiter()
    wait = not request.parsed.has("--no-wait")
    display = LoadDisplay(request.ip, host, [definition.name for definition in definitions], quiet=request.is_quiet)
    unsubscribe = host.events.subscribe(lambda event: waiter.put(partial(display.update, event)))
    failed = None
    try:
        is_trusted = request.parsed.has("--trust")
        if not is_trusted:
            host.loop.run(agree_to_links(asked, host), waiter)
        loading = host.load(
            definitions,
            wait=wait,
            trusted=is_trusted,
            again=asked.again,
            lock=read_lock(host.folder) if request.parsed.has("--locked") else None,
            originals=originals,
        )
        host.loop.run(loading, waiter)
        failed = next((name for name in named if wait and host.sessions[name].status.error is not None), None)
    finally:
        unsubscribe()
        display.finish(failed)
    _report_quiet_failures(request, [one.name for one in definitions if one.name != failed])
    if failed is not None:
        host.sessions[failed].require()


def _report_quiet_failures(request: MagicRequest, names: Sequence[str]) -> None:
    """Print a line for each server that has failed, where no progress was shown: a `;` does not hide a failure."""
    for name in names if request.is_quiet else ():
        error = request.host.sessions[name].status.error
        if error is not None:
            print_notice(f"{name}: {error.message}")


def _load_request(request: MagicRequest) -> LoadRequest:
    command = request.line.command
    names = request.names
    if command is not None:
        if not command:
            raise LineError("there is no command after --", request.words[-1].end if request.words else 0)
        if len(names) > 1:
            raise LineError(f"one name before --, not {len(names)}", request.words[1].start)
        argv = request.line.argv
        name = names[0] if names else default_name({"command": argv[0], "args": argv[1:]})
        typed = ServerDefinition(name=name, command=argv[0], args=tuple(argv[1:]))
        return LoadRequest([typed], [name])
    pasted = pasted_in(request)
    if pasted is not None:
        return from_pasted(pasted, request.host, [word.text for word in request.parsed.names if not word.is_body])
    defined = keyword_definition(request)
    if defined is not None:
        return from_pasted(defined, request.host)
    if any("://" in name for name in names):
        remote = _remote(request)
        return LoadRequest([remote], [remote.name])
    alone = next((option for option in _SINGLE_SERVER_OPTIONS if request.parsed.has(option)), None)
    if alone is not None and not names:
        word = next(word for word in request.words if (word.key or word.text) == alone)
        raise LineError(f"{alone} needs a server; usage: %mcp load {alone} … NAME, or … [NAME] -- COMMAND", word.start)
    if names in (["all"], ["*"]) and not {"all", "*"} & {*request.mcp, *request.host.discovery.peek().servers}:
        names = []
    return gather(names, request.host)


def pasted_in(request: MagicRequest) -> PastedServers | None:
    """The servers that are pasted on a line or in its cell; None if there are none.

    Raises:
        LineError: There are some in both.
        ConfigError: The text defines no server.
    """
    body = next((word for word in request.parsed.names if word.is_body), None)
    texts = [text for text in (request.text, body and body.text, request.cell) if text is not None and text.strip()]
    if len(texts) > 1:
        raise LineError("there are definitions on the line and in the cell: remove one", body.start if body else 0)
    if not texts and request.cell is not None:
        raise LineError("the cell is empty: paste a definition into it", 0)
    return read_pasted(texts[0]) if texts else None


def keyword_definition(request: MagicRequest) -> PastedServers | None:
    """The server of `[NAME] command=… args=… env.NAME=…`, or of `[NAME] url=…`; None without one of these keys.

    Raises:
        LineError: There is more than one name.
    """
    pairs = [(word.key, word.value) for word in request.parsed.names if word.key is not None]
    if not {"command", "url"} & {key for key, _ in pairs}:
        return None
    names = [word for word in request.parsed.names if word.key is None]
    if len(names) > 1:
        raise LineError(f"one name for one server, not {len(names)}", names[1].start)
    values = settings(pairs)
    if isinstance(values.get("args"), str):
        values["args"] = split_words(values["args"])
    return PastedServers(values, names[0].text if names else None)


def _remote(request: MagicRequest) -> ServerDefinition:
    """The definition of `[NAME] URL`."""
    names = request.names
    position = next(index for index, name in enumerate(names) if "://" in name)
    if position > 1 or len(names) > position + 1:
        surplus = request.parsed.names[0 if position > 1 else position + 1]
        raise LineError(f"{surplus.raw} is one too many; usage: %mcp load [NAME] URL", surplus.start)
    return url_definition(names[position], names[0] if position else None)


def _changed(request: MagicRequest, definition: ServerDefinition) -> ServerDefinition:
    """Apply the line's options to a definition."""
    parsed = request.parsed
    changes: dict[str, Any] = {
        name: True for name in ("read_only", "lazy") if parsed.has(f"--{name.replace('_', '-')}")
    }
    changes |= {name: parsed.text(f"--{name}") for name in ("era", "transport") if parsed.has(f"--{name}")}
    if parsed.has("--env"):
        given = variables(parsed.texts("--env"))
        if definition.source.scope != "cell":  # `${` of a typed definition stays
            given = {name: value.replace("${", "$${") for name, value in given.items()}
        changes["env"] = {**definition.env, **given}
    if parsed.has("--cwd"):
        changes["cwd"] = os.path.join(request.host.folder, os.path.expanduser(parsed.text("--cwd") or ""))
    if parsed.has("--header"):
        changes["headers"] = {**definition.headers, **headers(parsed.texts("--header"))}
    for option in ("--header", "--transport"):
        if parsed.has(option) and definition.url is None:
            raise McpError(f"{option}: {definition.name} is not a remote server", hint="%mcp load [NAME] URL")
    if (start_timeout := parsed.number("--start-timeout")) is not None:
        changes["start_timeout"] = start_timeout
    if (timeout := parsed.number("--timeout")) is not None:
        changes |= {"timeout": timeout, "max_timeout": max(timeout, definition.max_timeout)}
    return definition.replace(**changes) if changes else definition


def variables(texts: Sequence[str], own: Callable[[str], str] = os.environ.__getitem__) -> dict[str, str]:
    """Parse values of `--env`: `K=V`, or `K` for a variable of this kernel.

    Args:
        texts: The options' values.
        own: Returns the value for a variable of this kernel.

    Raises:
        McpError: A variable's name is invalid, or this kernel does not have the variable.
    """
    given: dict[str, str] = {}
    for text in texts:
        name, has_value, value = text.partition("=")
        if not _VARIABLE.fullmatch(name):
            raise McpError(f"--env {text}: {name!r} is not a name of a variable", hint="write --env NAME=VALUE")
        if not has_value:
            if name not in os.environ:
                raise McpError(f"--env {name}: this kernel has no variable {name}", hint=f"give it: --env {name}=VALUE")
            value = own(name)
        given[name] = value
    return given


def headers(texts: Sequence[str]) -> dict[str, str]:
    """Parse values of `--header`: `Name: value`.

    Raises:
        McpError: A header has no value.
        ConfigError: A header is invalid.
    """
    given: dict[str, str] = {}
    for text in texts:
        name, colon, value = text.partition(":")
        if not colon:
            raise McpError(f"--header {name}: no value", hint="write --header 'Name: value'")
        given[name.strip()] = value.strip()
    checked_headers(given)
    return given


def _start_or_stop(request: MagicRequest) -> Servers | None:
    is_all = request.parsed.has("--all") or (request.names == ["all"] and "all" not in request.mcp)
    names = list(request.mcp) if is_all else request.names
    if request.word == "start":
        load_lazy(request)
    getattr(request.mcp, request.word)(*names)
    return None if request.is_quiet else request.mcp.servers


def _enable_or_disable(request: MagicRequest) -> Servers | None:
    getattr(request.mcp, request.word)(*request.names)
    if request.is_quiet:
        return None
    tools = [name for name in request.names if not parts_of(request.mcp).servers_of(name)]
    if tools:
        how_long = f" ({request.host.lifetime})" if request.word == "disable" else ""
        request.report(f"{request.word}d: {', '.join(tools)}{how_long}")
    return request.mcp.servers if len(tools) < len(request.names) else None


def _server_command(word: str, summary: str) -> Command:
    """Define a command that runs the method of `mcp` with the same name for servers."""
    syntax = Syntax(f"{word} NAME… | --all", (Option("--all"),), instead="--all", takes=("server",))
    return Command(syntax, _start_or_stop, f"{summary}\n\n    %mcp {word} fs git\n    %mcp {word} --all")


def _pattern_command(word: str, summary: str) -> Command:
    """Define a command that runs the method of `mcp` with the same name for servers and tools."""
    syntax = Syntax(f"{word} NAME|PATTERN…", at_least=1, takes=("tool",))
    text = f"{summary}\n\n    %mcp {word} fs            the whole server\n    %mcp {word} fs.write_*    tools, by glob"
    return Command(syntax, _enable_or_disable, text)


def _logs(request: MagicRequest) -> Table:
    """Show the last log lines of a server, or of all.

        %mcp logs                           the last 50 lines of all servers
        %mcp logs fs -n 20                  the last 20 lines of one server
        %mcp logs fs --level warning        its warnings and errors only

    The source of a line is stderr (the server's output there), server (its log messages) or host (ipymcp itself). A
    line of stderr has the level that it begins with, such as ERROR, and else info.
    """
    number = request.parsed.number("-n")
    name = request.names[0] if request.names else None
    return request.mcp.logs(
        name, 50 if number is None else int(number), level=request.parsed.text("--level") or "debug"
    )


def _restore(request: MagicRequest) -> Table | None:
    """Load again what this notebook used before its kernel was restarted.

        %mcp restore

    The servers come back, those typed in a cell as well, with the disabled tools and the rules of %mcp policy. What
    cannot be restored is listed with the reason. A project's server runs only after you have agreed to it.
    %config IPyMCP.restore = "auto", in your own IPython configuration, does this whenever ipymcp is loaded.
    """
    host, waiter = request.host, Waiter()
    found = host.loop.run(restore.plan(host))
    display = LoadDisplay(request.ip, host, found.started, quiet=request.is_quiet)
    unsubscribe = host.events.subscribe(lambda event: waiter.put(partial(display.update, event)))
    try:
        host.loop.run(restore.load(host, found), waiter)
    finally:
        unsubscribe()
        display.finish(None)
    _report_quiet_failures(request, found.started)
    return None if request.is_quiet else restore.outcome(host, found)


def _panel(request: MagicRequest) -> None:
    """Show the panel: servers, tools with forms, calls and logs.

        %mcp panel          all servers
        %mcp panel fs       the card of one server; mcp.servers["fs"] shows the same

    %config IPyMCP.panel = "run" lets it call, read and answer, but not start, stop, load or trust; "view" lets it
    only show. The default under Voilà is "run". A saved notebook keeps a table of the servers.
    """
    request.mcp.panel(*request.names)


_LOAD_OPTIONS = (
    Option(
        "--header",
        "'Name: value'",
        "a header of every request to a remote server: 'Authorization: Bearer ${TOKEN}'; ${TOKEN} is this kernel's"
        " variable at each start",
        repeats=True,
        also=("-H",),
    ),
    Option("--transport", "http|sse", "http (the default) also detects sse", choices=("http", "sse")),
    Option(
        "--env",
        "K=V",
        "an environment variable for the server; --env K passes on that of this kernel",
        repeats=True,
        also=("-e",),
    ),
    Option("--cwd", "D", "the working folder of the server", takes="folder"),
    Option(
        "--era",
        "auto|legacy|modern",
        "legacy (the handshake) or modern (stateless); auto asks the server",
        choices=("auto", "legacy", "modern"),
    ),
    Option(
        "--timeout", "S", "seconds without progress after which a call fails; by default 30", number=True, positive=True
    ),
    Option("--start-timeout", "S", "seconds after which a start fails; by default 120", number=True, positive=True),
    Option("--trust", help="run servers of a project's file without asking; you are still asked about your secrets"),
    Option("--read-only", help="refuse tools that are not declared as read-only"),
    Option("--locked", help="refuse servers whose tools differ from mcp.lock, which %mcp pins export writes"),
    Option("--lazy", help="start it at its first call, if its tools are known from an earlier run"),
    Option("--no-wait", help="return at once; %mcp shows the progress"),
)

COMMANDS = {
    "load": Command(
        Syntax("load [NAME…] | FILE [NAME…] | [NAME] URL | [NAME] -- COMMAND ARG…", _LOAD_OPTIONS, takes=("loadable",)),
        _load,
        takes_cell=True,
        takes_command=True,
        takes_pasted=True,
    ),
    "start": _server_command("start", "Start servers that were stopped or have failed."),
    "stop": _server_command("stop", "Stop servers; %mcp start NAME starts them again."),
    "restart": _server_command("restart", "Stop servers and start them again."),
    "unload": _server_command("unload", "Stop servers and remove them from the notebook."),
    "disable": _pattern_command("disable", "Disable servers, which stops them, or single tools."),
    "enable": _pattern_command("enable", "Enable disabled servers or tools."),
    "logs": Command(
        Syntax(
            "logs [NAME] [--level LEVEL] [-n N]",
            (
                Option("--level", "LEVEL", "the lowest level: " + ", ".join(LEVELS), choices=tuple(LEVELS)),
                Option("-n", "N", number=True, also=("--tail", "--lines")),
            ),
            at_most=1,
            takes=("server",),
        ),
        _logs,
    ),
    "restore": Command(Syntax("restore", at_most=0), _restore),
    "panel": Command(Syntax("panel [SERVER]", at_most=1, takes=("server",)), _panel),
}
