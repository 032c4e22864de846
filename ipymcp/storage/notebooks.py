"""The servers and rules of each notebook, so that its next kernel can have them again.

A notebook is known by its path; where a front end does not tell it, by the folder that its kernel runs in. What was
typed in a cell is stored as it was, encrypted if it holds a secret.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct

from ipymcp.config.definition import ServerDefinition
from ipymcp.errors import SecretError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ipymcp.storage.database import Database
    from ipymcp.storage.secrets import Vault


class UsedServer(Struct, frozen=True):
    """A server that a notebook has loaded and not unloaded."""

    name: str
    digest: str
    file: str
    """The file of its definition; empty if it was typed in a cell."""
    typed: ServerDefinition | None = None
    """The definition, if it was not read from a file."""
    changes: dict[str, Any] = {}
    """The values that were changed in the cell, if it was read from a file."""
    original: str = ""
    """The digest of the definition in that file."""
    problem: str = ""
    """Why the stored definition cannot be read; empty if it can."""


class NotebookRule(Struct, frozen=True):
    """A decision of the user for one notebook.

    Attributes:
        kind: `rule` of `%mcp policy`; `tool` or `server` of `%mcp enable` and `disable`.
        pattern: A glob over `server.tool`, or a server's name.
        decision: `allow`, `ask` or `deny`; `on` or `off` for the other kinds.
        digest: For a rule: the digest of its server's definition; empty for any.
        doubted: For a rule that allows: whether it covers calls of a model that has read untrusted content.
    """

    kind: Literal["rule", "tool", "server"]
    pattern: str
    decision: Literal["allow", "ask", "deny", "on", "off"]
    digest: str = ""
    doubted: bool = False


class _Stored(Struct, omit_defaults=True):
    """The part of a `UsedServer` that is stored as JSON."""

    typed: ServerDefinition | None = None
    changes: dict[str, Any] = {}
    original: str = ""


class NotebookMemory:
    """Access to the stored servers and rules of notebooks. Thread-safe.

    Args:
        database: The database.
        vault: Returns the vault that encrypts definitions with secrets.
    """

    def __init__(self, database: Database, vault: Callable[[], Vault]) -> None:
        self._database = database
        self._vault = vault

    # -- servers ------------------------------------------------------------------------------------------------------

    def loaded(self, notebook: str, server: UsedServer) -> None:
        """Store that a notebook has loaded a server."""
        text = msgspec.json.encode(_Stored(server.typed, server.changes, server.original))
        is_secret = any(_secrets(server))
        row = (notebook, server.name, server.digest, server.file, time.time())

        def write(connection: Any) -> None:
            try:
                stored = self._vault().seal(_label(notebook, server.name), text.decode()) if is_secret else text
            except SecretError:
                stored = b""  # it has to be typed again
            sql = "INSERT OR REPLACE INTO notebook_servers VALUES (?, ?, ?, ?, ?, ?, ?)"
            connection.execute(sql, (*row, stored, is_secret))

        self._database.post(write)

    def unloaded(self, notebook: str, names: Iterable[str]) -> None:
        """Store that a notebook has unloaded servers."""
        rows = [(notebook, name) for name in names]

        def write(connection: Any) -> None:
            connection.executemany("DELETE FROM notebook_servers WHERE notebook = ? AND name = ?", rows)
            connection.executemany(
                "DELETE FROM notebook_rules WHERE notebook = ? AND kind = 'server' AND pattern = ?", rows
            )

        self._database.post(write)

    def names(self, notebook: str) -> list[str]:
        """Return the names of the servers that a notebook has loaded and not unloaded, in the order of loading."""
        sql = "SELECT name FROM notebook_servers WHERE notebook = ? ORDER BY loaded"
        return [name for [name] in self._database.query(sql, (notebook,))]

    def servers(self, notebook: str) -> list[UsedServer]:
        """Return the servers that a notebook has loaded and not unloaded, in any kernel, in the order of loading."""
        sql = "SELECT name, digest, file, stored, is_sealed FROM notebook_servers WHERE notebook = ? ORDER BY loaded"
        return [self._server(notebook, *row) for row in self._database.query(sql, (notebook,))]

    def _server(self, notebook: str, name: str, digest: str, file: str, stored: bytes, is_sealed: int) -> UsedServer:
        if not stored:  # of an older version, or without a vault
            return UsedServer(name, digest, file)
        try:
            text = self._vault().open(_label(notebook, name), stored).encode() if is_sealed else stored
            definition = msgspec.json.decode(text, type=_Stored)
        except SecretError as error:
            return UsedServer(name, digest, file, problem=error.message)
        except ValueError:  # of another version
            return UsedServer(name, digest, file)
        return UsedServer(name, digest, file, definition.typed, definition.changes, definition.original)

    # -- rules --------------------------------------------------------------------------------------------------------

    def decided(self, notebook: str, *rules: NotebookRule) -> None:
        """Store decisions, each in place of one about the same."""
        rows = [(notebook, *msgspec.structs.astuple(rule), time.time()) for rule in rules]
        sql = "INSERT OR REPLACE INTO notebook_rules VALUES (?, ?, ?, ?, ?, ?, ?)"
        self._database.post(lambda connection: connection.executemany(sql, rows))

    def reset_rules(self, notebook: str) -> None:
        """Delete the rules of `%mcp policy`."""
        sql = "DELETE FROM notebook_rules WHERE notebook = ? AND kind = 'rule'"
        self._database.post(lambda connection: connection.execute(sql, (notebook,)))

    def rules(self, notebook: str) -> list[NotebookRule]:
        """Return the decisions for a notebook, oldest first."""
        sql = (
            "SELECT kind, pattern, decision, digest, doubted FROM notebook_rules WHERE notebook = ?"
            " ORDER BY decided, rowid"
        )
        return [
            NotebookRule(kind, pattern, decision, digest, bool(doubted))
            for kind, pattern, decision, digest, doubted in self._database.query(sql, (notebook,))
        ]


def _label(notebook: str, name: str) -> str:
    return f"definition:{json.dumps([notebook, name])}"


def _secrets(server: UsedServer) -> Iterable[str]:
    from ipymcp.config.redaction import sensitive  # not at %load_ext

    changed = {key: value for key, value in server.changes.items() if key in ("env", "headers")}
    return sensitive(server.typed or ServerDefinition(name=server.name, **changed))
