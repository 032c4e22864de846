"""Keeps texts that nobody else may read, by kind and name: in the keyring, or encrypted in the database.

The database always knows what there is and where: a keyring cannot list. Blocking; to be called off the loop.
"""

from __future__ import annotations

import contextlib
import time
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from ipymcp.errors import SecretError

if TYPE_CHECKING:
    from ipymcp.state.db import Database
    from ipymcp.state.keyring import Keyring
    from ipymcp.state.vault import Vault

__all__ = ["Kept", "Kind", "Safe"]

Kind = Literal["secret", "input", "tokens", "registration"]


class Kept(Struct, frozen=True):
    """One thing that is kept, without its value."""

    name: str
    place: str
    """`keyring`, `vault`, or `memory`: until the kernel ends."""
    changed: float
    """Seconds since 1970."""


class Safe:
    """What is kept. May be used from any thread but the loop's.

    Args:
        database: Knows what there is, and holds what no keyring does.
        vault: Encrypts that.
    """

    def __init__(self, database: Database, vault: Vault) -> None:
        self._database = database
        self._vault = vault

    @cached_property
    def _keyring(self) -> Keyring | None:
        from ipymcp.state.keyring import Keyring

        return Keyring.find()

    def get(self, kind: Kind, name: str) -> str | None:
        """What is kept under a name.

        Raises:
            SecretError: It cannot be read: the vault's key is lost, the keyring does not answer.
        """
        rows = self._database.query("SELECT place, sealed FROM secrets WHERE kind = ? AND name = ?", (kind, name))
        if not rows:
            return None
        place, sealed = rows[0]
        if place == "memory":
            return sealed.decode()
        if place == "vault":
            return self._vault.open(_label(kind, name), sealed)
        if self._keyring is None:
            raise SecretError("it is in a keyring that cannot be found now", hint="set it anew")
        return self._keyring.get(_label(kind, name))

    def set(self, kind: Kind, name: str, value: str) -> Kept:
        """Keep a value, in place of an older one.

        Raises:
            SecretError: It cannot be kept.
        """
        self._database.query("SELECT 1")  # it may turn out that nothing can be kept for long
        place, sealed = self._put(_label(kind, name), value)
        now = time.time()
        self._database.execute(
            "INSERT OR REPLACE INTO secrets VALUES (?, ?, ?, ?, ?)", (kind, name, place, sealed, now)
        )
        return Kept(name, place if self._database.is_lasting else "memory", now)

    def delete(self, kind: Kind, name: str) -> bool:
        """Forget a value. Whether there was one; whether it could be read does not matter."""
        rows = self._database.query("SELECT place FROM secrets WHERE kind = ? AND name = ?", (kind, name))
        if not rows:
            return False
        if rows[0][0] == "keyring" and self._keyring is not None:
            self._keyring.delete(_label(kind, name))
        return self._database.execute("DELETE FROM secrets WHERE kind = ? AND name = ?", (kind, name)) > 0

    def check(self, kind: Kind, name: str) -> str:
        """Empty if what is kept under a name can be read, else why not."""
        try:
            self.get(kind, name)
        except SecretError as error:
            return error.message
        return ""

    def kept(self, kind: Kind) -> list[Kept]:
        """What there is of a kind, what changed last first."""
        rows = self._database.query(
            "SELECT name, place, changed FROM secrets WHERE kind = ? ORDER BY changed DESC, rowid DESC", (kind,)
        )
        return [Kept(*row) for row in rows]

    def _put(self, label: str, value: str) -> tuple[str, bytes | None]:
        if not self._database.is_lasting:
            return "memory", value.encode()
        if self._keyring is not None:
            with contextlib.suppress(SecretError):  # too long for some, or locked: the vault takes anything
                self._keyring.set(label, value)
                return "keyring", None
        return "vault", self._vault.seal(label, value)


def _label(kind: Kind, name: str) -> str:
    return f"{kind}:{name}"
