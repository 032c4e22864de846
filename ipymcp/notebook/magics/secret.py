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
from ipymcp.tools.tables import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ipymcp.notebook.magics.line import Word
    from ipymcp.notebook.magics.request import Request
    from ipymcp.state.secrets import Secrets

__all__ = ["COMMANDS"]

_HELP = """Keep secrets that definitions name as ${secret:NAME}.

    %mcp secret set github-token       asks for the value at a prompt; it never stands on a line
    %mcp secret list                   what there is, and where; no values
    %mcp secret delete github-token

They are kept in the system's keyring where there is one, else encrypted in a file that only you can read. From the
moment ipymcp knows one, it is masked in logs, errors, tables and displays; what a tool gives you in Python is not."""

_USAGE = "secret set NAME | list | delete NAME…"
_PLACES = {"keyring": "keyring", "vault": "encrypted file", "memory": "memory, until this kernel ends"}


def _secret(request: Request) -> Table | None:
    verb, *rest = request.parsed.names
    secrets = request.mcp._host.state.secrets
    match verb.text:
        case "set":
            _set(request, secrets, rest, verb)
        case "list":
            if rest:
                raise LineError(f"{rest[0].raw} is one too many; usage: %mcp secret list", rest[0].start)
            return _table(secrets)
        case "delete":
            _delete(request, secrets, rest, verb)
        case other:
            raise LineError(f"set, list or delete, not {other!r}; usage: %mcp {_USAGE}", verb.start)
    return None


def _set(request: Request, secrets: Secrets, rest: Sequence[Word], verb: Word) -> None:
    if not rest:
        raise LineError("what is it called? usage: %mcp secret set NAME", verb.end)
    if len(rest) > 1 or rest[0].key is not None:
        raise LineError("a name alone, its value is asked for; if that was it, this cell shows it to others", verb.end)
    name = rest[0].text
    try:
        value = getpass.getpass(f"{name}: ")
    except (EOFError, NotImplementedError, OSError, RuntimeError):
        raise SecretError(f"there is nobody to ask for {name!r}", hint="run this line in a notebook") from None
    kept = secrets.set(name, value)
    if not request.is_quiet:
        print(f"kept: {kept.name} ({_PLACES[kept.place]})")  # noqa: T201 - the command's answer


def _delete(request: Request, secrets: Secrets, rest: Sequence[Word], verb: Word) -> None:
    if not rest:
        raise LineError("which? usage: %mcp secret delete NAME…", verb.end)
    for word in rest:
        if not secrets.delete(word.text):
            hint = nearest(word.text, [kept.name for kept in secrets.kept()]) or "%mcp secret list"
            raise UnknownName(f"there is no secret {word.text!r}", hint=hint)
    if not request.is_quiet:
        print(f"deleted: {', '.join(word.text for word in rest)}")  # noqa: T201 - the command's answer


def _table(secrets: Secrets) -> Table:
    rows = [
        (
            kept.name,
            _PLACES[kept.place],
            time.strftime("%Y-%m-%d", time.localtime(kept.changed)),
            secrets.check(kept.name),
        )
        for kept in secrets.kept()
    ]
    if not any(problem for *_, problem in rows):
        rows = [row[:-1] for row in rows]
    columns = ("secret", "kept in", "changed", "problem")[: len(rows[0]) if rows else 3]
    return Table(columns, rows, title="secrets", note="" if rows else "none yet: %mcp secret set NAME")


_SYNTAX = Syntax(
    _USAGE,
    at_least=1,
    actions={
        "set": Syntax("secret set NAME", takes=("secret",)),
        "list": Syntax("secret list"),
        "delete": Syntax("secret delete NAME…", takes=("secret",)),
    },
)
COMMANDS = {"secret": Command(_SYNTAX, _HELP, _secret)}
