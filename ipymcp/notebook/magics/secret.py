"""`%mcp secret`: what `${secret:NAME}` stands for, asked for at a prompt and never shown."""

from __future__ import annotations

import getpass
import time
from typing import TYPE_CHECKING

from ipymcp.errors import SecretError, UnknownName
from ipymcp.notebook.magics.line import LineError
from ipymcp.notebook.magics.options import Syntax
from ipymcp.notebook.magics.request import Command
from ipymcp.runtime.names import nearest
from ipymcp.text import one_line
from ipymcp.tools.tables import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ipymcp.notebook.magics.line import Word
    from ipymcp.notebook.magics.request import Request
    from ipymcp.state.inputs import Inputs
    from ipymcp.state.safe import Kept
    from ipymcp.state.secrets import Secrets
    from ipymcp.state.store import Store

__all__ = ["COMMANDS"]

_HELP = """Keep secrets that definitions name as ${secret:NAME}.

    %mcp secret set github-token       asks for the value at a prompt; it never stands on a line
    %mcp secret list                   what there is, and where; no values
    %mcp secret delete github-token
    %mcp secret delete input:token     what you were asked for as ${input:token}, a password; you are asked again

They are kept in the system's keyring where there is one, else encrypted in a file that only you can read. From the
moment ipymcp knows one, it is masked in logs, errors, tables and displays; what a tool gives you in Python is not."""

_INPUT = "input:"
_PLACES = {"keyring": "keyring", "vault": "encrypted file", "memory": "memory, until this kernel ends"}


def _secret(request: Request) -> Table | None:
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


def _set(request: Request, secrets: Secrets, rest: Sequence[Word], verb: Word) -> None:
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


def _delete(request: Request, state: Store, rest: Sequence[Word]) -> None:
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


def _where(kept: Kept) -> tuple[str, str]:
    return _PLACES[kept.place], time.strftime("%Y-%m-%d", time.localtime(kept.changed))


_SYNTAX = Syntax(
    "secret set NAME | list | delete NAME…",
    at_least=1,
    actions={
        "set": Syntax("secret set NAME", at_least=1, takes=("secret",)),
        "list": Syntax("secret list", at_most=0),
        "delete": Syntax("secret delete NAME…", at_least=1, takes=("secret",)),
    },
)
COMMANDS = {"secret": Command(_SYNTAX, _HELP, _secret)}
