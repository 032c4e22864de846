"""`%mcp policy`, `pins`, `trust` and `secret`."""

from __future__ import annotations

import getpass
import time
from collections import Counter
from typing import TYPE_CHECKING

from ipymcp.errors import SecretError, UnknownName
from ipymcp.names import nearest
from ipymcp.notebook.line_syntax import Command, LineError, Option, Syntax
from ipymcp.results.tables import Table
from ipymcp.text import one_line, visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ipymcp.api.security import Changes, ToolPins, ToolPolicy, TrustedServers
    from ipymcp.notebook.line_syntax import MagicRequest, Word
    from ipymcp.storage.secrets import Inputs, Secrets, StoredSecret
    from ipymcp.storage.store import Store


_POLICY_HELP = """Show or change what may be called by whom.

    %mcp policy                              every tool, and what holds for you, for models and for apps
    %mcp policy deny *.delete_*              refuse these, whoever calls: globs over server.tool
    %mcp policy ask db.*                     ask me first, whoever calls
    %mcp policy allow fs.read_* --always     never ask about these; --always: in all notebooks, from now on
    %mcp policy explain fs.write_file        every rule about it, and which decides
    %mcp policy reset [--always]             forget what was decided in this notebook; --always: everywhere

Of the rules that match the last decides: your own call is allowed and a model's or an app's asked about, unless the
tool's hints, autoApprove, the definition's "tools", what was answered always or never, or this notebook say
otherwise."""


def _policy(request: MagicRequest) -> ToolPolicy | Table | None:
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
_POLICY_SYNTAX = Syntax(
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
_POLICY_COMMANDS = {"policy": Command(_POLICY_SYNTAX, _POLICY_HELP, _policy)}


_PINS_HELP = """Show whether tools are what they were when they were first seen here.

    %mcp pins                          every tool, and whether its definition has changed
    %mcp pins fs · fs.read_file        what has changed, line by line
    %mcp pins accept fs.read_file      take it as it is now; without a name, everything
    %mcp pins scan                     what is conspicuous in what servers say of their tools, and where
    %mcp pins export [FILE]            write mcp.lock beside the notebook: %mcp load --locked refuses what differs

Models are not shown a changed tool until it is accepted; %config IPyMCP.pins = "all" keeps it from you as well, "off"
from nobody."""


def _pins(request: MagicRequest) -> ToolPins | Changes | Table | None:
    pins = request.mcp.pins
    if not request.names:
        return pins
    word, *names = request.names
    match word:
        case "accept":
            taken = pins.accept(*names)
            _say(request, f"accepted: {', '.join(taken)}" if taken else "nothing had changed")
        case "scan":
            return pins.scan()
        case "export":
            _say(request, f"written: {pins.export(names[0] if names else None)}")
        case _:
            return pins.diff(word, *names)
    return None


def _say(request: MagicRequest, text: str) -> None:
    if not request.is_quiet:
        print(visible(text))  # noqa: T201 - the command's answer


_PINS_SYNTAX = Syntax(
    "pins [NAME… | accept [NAME…] | scan | export [FILE]]",
    takes=("tool",),
    actions={
        "accept": Syntax("pins accept [NAME…]", takes=("tool",)),
        "scan": Syntax("pins scan", at_most=0),
        "export": Syntax("pins export [FILE]", at_most=1, takes=("file",)),
    },
)
_PINS_COMMANDS = {"pins": Command(_PINS_SYNTAX, _PINS_HELP, _pins)}


_TRUST_HELP = """Show what you agreed to run, and take it back.

    %mcp trust                          what you agreed to, the files that it is bound to, and its secrets
    %mcp trust revoke NAME|FILE|HASH…   take it back; what runs by it here is stopped
    %mcp trust revoke --all

A server that a project's file defines runs only after you have seen all of its definition: %mcp load asks, once for
each definition. What you refused or took back is asked about when you name it: %mcp start NAME. %mcp load --trust says
yes in the cell. Where nobody can be asked, IPYMCP_TRUST=all, none, or whole hashes does."""


def _trust(request: MagicRequest) -> TrustedServers | None:
    word, *names = request.names or ["list"]
    if word == "list":
        return request.mcp.trust
    gone = request.mcp.trust.revoke(*names, everything=request.parsed.has("--all"))
    if not request.is_quiet:
        definitions = Counter(gone)
        names = (name if count == 1 else f"{name} ({count} definitions)" for name, count in definitions.items())
        print(one_line(f"revoked: {', '.join(names)}" if gone else "nothing was agreed to"))  # noqa: T201 - the command's answer
    return None


_TRUST_SYNTAX = Syntax(
    "trust [list | revoke NAME|FILE|HASH… | revoke --all]",
    actions={
        "list": Syntax("trust list", at_most=0),
        "revoke": Syntax(
            "trust revoke NAME|FILE|HASH… | --all", (Option("--all"),), instead="--all", takes=("trusted",)
        ),
    },
)
_TRUST_COMMANDS = {"trust": Command(_TRUST_SYNTAX, _TRUST_HELP, _trust)}


_SECRET_HELP = """Keep secrets that definitions name as ${secret:NAME}.

    %mcp secret set github-token       asks for the value at a prompt; it never stands on a line
    %mcp secret list                   what there is, and where; no values
    %mcp secret delete github-token
    %mcp secret delete input:token     what you were asked for as ${input:token}, a password; you are asked again

They are kept in the system's keyring where there is one, else encrypted in a file that only you can read. From the
moment ipymcp knows one, it is masked in logs, errors, tables and displays; what a tool gives you in Python is not."""

_INPUT = "input:"
_PLACES = {"keyring": "keyring", "vault": "encrypted file", "memory": "memory, until this kernel ends"}


def _secret(request: MagicRequest) -> Table | None:
    verb, *rest = request.parsed.names
    state = request.mcp._host.state
    secrets = state.secrets
    match verb.text:
        case "set":
            _set(request, secrets, rest, verb)
        case "delete":
            _delete(request, state, rest)
        case _:
            return _table(secrets, state.inputs)
    return None


def _set(request: MagicRequest, secrets: Secrets, rest: Sequence[Word], verb: Word) -> None:
    if len(rest) > 1 or rest[0].key is not None:
        raise LineError("a name alone, its value is asked for; if that was it, this cell shows it to others", verb.end)
    name = rest[0].text
    try:
        value = getpass.getpass(one_line(f"{name}: "))
    except (EOFError, NotImplementedError, OSError, RuntimeError):
        raise SecretError(f"there is nobody to ask for {name!r}", hint="run this line in a notebook") from None
    kept = secrets.set(name, value)
    if not request.is_quiet:
        print(one_line(f"kept: {kept.name} ({_PLACES[kept.place]})"))  # noqa: T201 - the command's answer


def _delete(request: MagicRequest, state: Store, rest: Sequence[Word]) -> None:
    for word in rest:
        is_input = word.text.startswith(_INPUT)
        if not (state.inputs.forget(word.text.removeprefix(_INPUT)) if is_input else state.secrets.delete(word.text)):
            names = [kept.name for kept in state.secrets.kept()] + [_INPUT + one.id for one in state.inputs.kept()]
            hint = nearest(word.text, names) or "%mcp secret list"
            raise UnknownName(f"there is no secret {word.text!r}", hint=hint)
    if not request.is_quiet:
        print(one_line(f"deleted: {', '.join(word.text for word in rest)}"))  # noqa: T201 - the command's answer


def _table(secrets: Secrets, inputs: Inputs) -> Table:
    rows = [(kept.name, *_where(kept), "", secrets.check(kept.name)) for kept in secrets.kept()]
    rows += [
        (_INPUT + one.id, *_where(one.kept), f"{one.server} in {one.file}", inputs.check(one)) for one in inputs.kept()
    ]
    columns = ("secret", "kept in", "changed", "only for", "problem")
    used = [index for index, _ in enumerate(columns) if index < 3 or any(row[index] for row in rows)]
    return Table(
        [columns[index] for index in used],
        [[row[index] for index in used] for row in rows],
        title="secrets",
        note="" if rows else "none yet: %mcp secret set NAME",
    )


def _where(kept: StoredSecret) -> tuple[str, str]:
    return _PLACES[kept.place], time.strftime("%Y-%m-%d", time.localtime(kept.changed))


_SECRET_SYNTAX = Syntax(
    "secret set NAME | list | delete NAME…",
    at_least=1,
    actions={
        "set": Syntax("secret set NAME", at_least=1, takes=("secret",)),
        "list": Syntax("secret list", at_most=0),
        "delete": Syntax("secret delete NAME…", at_least=1, takes=("secret",)),
    },
)
_SECRET_COMMANDS = {"secret": Command(_SECRET_SYNTAX, _SECRET_HELP, _secret)}


COMMANDS = {**_POLICY_COMMANDS, **_PINS_COMMANDS, **_TRUST_COMMANDS, **_SECRET_COMMANDS}
