"""`%mcp load`: servers from a file, by name, or by the command that runs them."""

from __future__ import annotations

import os
import re
from functools import partial
from typing import TYPE_CHECKING, Any

from ipymcp.config.definition import ServerDefinition
from ipymcp.errors import McpError
from ipymcp.notebook.magics.dispatch import RUNNERS
from ipymcp.notebook.magics.line import LineError
from ipymcp.notebook.magics.options import Option, Syntax
from ipymcp.notebook.magics.request import Command
from ipymcp.notebook.notices import say
from ipymcp.notebook.progress import LoadDisplay
from ipymcp.policy.pinning import read_lock
from ipymcp.protocol.transports.addresses import checked_headers
from ipymcp.runtime.names import identifier
from ipymcp.runtime.waiting import Waiter
from ipymcp.tools.asked import Asked, gather, url_definition

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ipymcp.notebook.magics.request import Request

__all__ = ["COMMANDS", "headers", "variables"]

_HELP = """Load servers: start them and list their tools.

    %mcp load                                   every server of the discovered configuration; see %mcp config
    %mcp load fs git                            those two of it
    %mcp load demo                              the server that ships with ipymcp
    %mcp load time -- uvx mcp-server-time       a server of your own: NAME -- COMMAND ARG…
    %mcp load docs https://host/mcp             a remote server: [NAME] URL
    %mcp load ./servers.json                    every server of a config file that is not disabled
    %mcp load ./servers.json fs git             those two of it

Loading again what has not changed does nothing; what has changed is restarted. A server that a project's file defines
runs only after you have seen its definition and agreed: you are asked, once for each definition.

    --header H     a header of every request to a remote server: 'Authorization: Bearer ${TOKEN}'; ${TOKEN} is this
                   kernel's variable at each start
    --transport T  http (the default, which finds sse by itself) or sse
    --env K=V      a variable for the server; --env K passes on this kernel's own
    --cwd D        the folder it runs in
    --era E        auto, legacy (the handshake) or modern (stateless); auto asks the server
    --timeout S    seconds a call may go without progress; 30 unless set
    --start-timeout S   seconds a start may take; 120 unless set
    --trust        run what the project defines without asking; its servers still ask for your secrets
    --read-only    refuse tools that do not declare that they only read
    --locked       refuse servers whose tools are not what mcp.lock says; %mcp pins export writes that
    --lazy         start it at its first call, where its tools are known from before
    --no-wait      return at once; %mcp shows how it goes"""

_VARIABLE = re.compile(r"[^=\s\0]+")
_OF_ONE = ("--env", "--header", "--cwd", "--transport")
"""Options that say something of one server, which has to be named."""
_DECORATION = re.compile(r"^(mcp[-_]server[-_]|server[-_]|mcp[-_])|([-_]mcp[-_]server|[-_]mcp|[-_]server)$")


def _load(request: Request) -> None:
    asked = _asked(request)
    definitions = [_changed(request, one) for one in asked.definitions]
    originals = {one.name: one for one, changed in zip(asked.definitions, definitions, strict=True) if changed != one}
    named = asked.named
    if not request.line.silent:
        for line in asked.notices:
            say(line)
    host = request.mcp._host
    waiter = Waiter()
    wait = not request.parsed.has("--no-wait")
    display = LoadDisplay(request.ip, host, [definition.name for definition in definitions], quiet=request.is_quiet)
    unsubscribe = host.events.subscribe(lambda event: waiter.put(partial(display.update, event)))
    failed = None
    try:
        is_trusted = request.parsed.has("--trust")
        loading = host.load(
            definitions,
            wait=wait,
            trusted=is_trusted,
            again=asked.again,
            lock=read_lock(host.folder) if request.parsed.has("--locked") else None,
            originals=originals,
        )
        host.loop.run(loading, waiter)
        failed = next((name for name in named if wait and host.sessions[name].error is not None), None)
    finally:
        unsubscribe()
        display.finish(failed)
    if failed is not None:
        host.sessions[failed].require()


def _asked(request: Request) -> Asked:
    command = request.line.command
    names = request.names
    if command is not None:
        if not command:
            raise LineError("there is no command after --", request.words[-1].end if request.words else 0)
        if len(names) > 1:
            raise LineError(f"one name before --, not {len(names)}", request.words[1].start)
        argv = request.line.argv
        name = names[0] if names else _name_of(argv)
        typed = ServerDefinition(name=name, command=argv[0], args=tuple(argv[1:]))
        return Asked([typed], [name])
    body = next((word for word in request.parsed.names if word.is_body), None)
    if body is not None:
        raise LineError("mcp.load({…}) takes definitions, and %mcp config add NAME {…} keeps one", body.start)
    if any("://" in name for name in names):
        remote = _remote(request)
        return Asked([remote], [remote.name])
    alone = next((option for option in _OF_ONE if request.parsed.has(option)), None)
    if alone is not None and not names:
        word = next(word for word in request.words if (word.key or word.text) == alone)
        raise LineError(f"{alone} of which server? usage: %mcp load {alone} … NAME, or … [NAME] -- COMMAND", word.start)
    return gather(names, request.mcp._host)


def _remote(request: Request) -> ServerDefinition:
    """`[NAME] URL`."""
    names = request.names
    position = next(index for index, name in enumerate(names) if "://" in name)
    if position > 1 or len(names) > position + 1:
        surplus = request.parsed.names[0 if position > 1 else position + 1]
        raise LineError(f"{surplus.raw} is one too many; usage: %mcp load [NAME] URL", surplus.start)
    return url_definition(names[position], names[0] if position else None)


def _changed(request: Request, definition: ServerDefinition) -> ServerDefinition:
    """With what the line's options say instead."""
    parsed = request.parsed
    changes: dict[str, Any] = {}
    if parsed.has("--env"):
        given = variables(parsed.texts("--env"))
        if definition.source.scope != "cell":  # what is typed is meant as it stands
            given = {name: value.replace("${", "$${") for name, value in given.items()}
        changes["env"] = {**definition.env, **given}
    if parsed.has("--cwd"):
        changes["cwd"] = os.path.join(request.mcp._host.folder, os.path.expanduser(parsed.text("--cwd") or ""))
    if parsed.has("--read-only"):
        changes["read_only"] = True
    if parsed.has("--era"):
        changes["era"] = parsed.text("--era")
    if parsed.has("--lazy"):
        changes["lazy"] = True
    if parsed.has("--header"):
        changes["headers"] = {**definition.headers, **headers(parsed.texts("--header"))}
    if parsed.has("--transport"):
        changes["transport"] = parsed.text("--transport")
    for option in ("--header", "--transport"):
        if parsed.has(option) and definition.url is None:
            raise McpError(f"{option}: {definition.name} is no remote server", hint="%mcp load [NAME] URL")
    start_timeout = parsed.number("--start-timeout")
    if start_timeout is not None:
        changes["start_timeout"] = start_timeout
    timeout = parsed.number("--timeout")
    if timeout is not None:
        changes["timeout"] = timeout
        changes["max_timeout"] = max(timeout, definition.max_timeout)
    return definition.replace(**changes) if changes else definition


def variables(texts: Sequence[str], own: Callable[[str], str] = os.environ.__getitem__) -> dict[str, str]:
    """What `--env K=V` and `--env K` say.

    Args:
        texts: The options' values.
        own: What stands for this kernel's own variable.

    Raises:
        McpError: One has no name, or this kernel has no such variable.
    """
    given: dict[str, str] = {}
    for text in texts:
        name, has_value, value = text.partition("=")
        if not _VARIABLE.fullmatch(name):
            raise McpError(f"--env {text}: {name!r} is no name of a variable", hint="write --env NAME=VALUE")
        if not has_value:
            if name not in os.environ:
                raise McpError(f"--env {name}: this kernel has no variable {name}", hint=f"give it: --env {name}=VALUE")
            value = own(name)
        given[name] = value
    return given


def headers(texts: Sequence[str]) -> dict[str, str]:
    """What `--header 'Name: value'` says.

    Raises:
        McpError: One has no name or value.
        ConfigError: One is no header that can be sent.
    """
    given: dict[str, str] = {}
    for text in texts:
        name, colon, value = text.partition(":")
        if not colon:
            raise McpError(f"--header {name}: no value", hint="write --header 'Name: value'")
        given[name.strip()] = value.strip()
    checked_headers(given)
    return given


def _name_of(argv: Sequence[str]) -> str:
    """A name for a server that was given none: `npx -y @scope/server-time` is `time`."""
    words = [word for word in argv if not word.startswith("-") and word not in ("run", "dlx", "tool")]
    program = re.split(r"[/\\]", words[0])[-1] if words else "server"
    if program in RUNNERS and len(words) > 1:
        program = re.split(r"[/\\]", words[1])[-1]
    program = re.split(r"(?<=.)[@=<>~!\[]", program)[0]
    program = re.sub(r"\.(py|js|mjs|cjs|exe|cmd)$", "", program)
    return identifier(_DECORATION.sub("", program) or program)


COMMANDS = {
    "load": Command(
        Syntax(
            "load [NAME…] | FILE [NAME…] | [NAME] URL | [NAME] -- COMMAND ARG…",
            (
                Option("--header", "'Name: value'", repeats=True),
                Option("--transport", "http|sse", choices=("http", "sse")),
                Option("--env", "K=V", repeats=True),
                Option("--cwd", "D", takes="folder"),
                Option("--era", "auto|legacy|modern", choices=("auto", "legacy", "modern")),
                Option("--timeout", "S", number=True),
                Option("--start-timeout", "S", number=True),
                Option("--lazy"),
                Option("--trust"),
                Option("--read-only"),
                Option("--locked"),
                Option("--no-wait"),
            ),
            takes=("loadable",),
        ),
        _HELP,
        _load,
        takes_command=True,
    )
}
