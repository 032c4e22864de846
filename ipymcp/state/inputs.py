"""What the user was asked for, as `${input:ID}`: for this kernel, and passwords like secrets, for all kernels.

A kept password belongs to the definition that wanted it: one that has changed asks anew.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from msgspec import Struct

from ipymcp.masking import masks

if TYPE_CHECKING:
    from ipymcp.config.definition import ServerDefinition
    from ipymcp.state.safe import Kept, Safe

__all__ = ["Inputs", "KeptInput", "is_password"]


class KeptInput(Struct, frozen=True):
    """A password that is kept, without its value."""

    id: str
    server: str
    file: str
    kept: Kept


class Inputs:
    """What was given. Blocking where a password is looked for, kept or forgotten: not on the loop.

    Args:
        safe: Keeps passwords.
    """

    def __init__(self, safe: Safe) -> None:
        self._safe = safe
        self._given: dict[tuple[str, str], str] = {}
        """By document and id: the servers of one document share them in this kernel."""
        self._kept: set[str] = set()
        """What need not be kept again."""

    def given(self, definition: ServerDefinition, name: str) -> str | None:
        """What was given in this kernel."""
        return self._given.get((str(definition.source), name))

    def give(self, definition: ServerDefinition, name: str, value: str) -> None:
        """It was given just now."""
        self._given[str(definition.source), name] = value
        if is_password(definition, name):
            masks.add(value)

    def recall(self, definition: ServerDefinition, name: str, digest: str) -> bool:
        """Have a password that was kept for this definition given. Whether there is one.

        Raises:
            SecretError: There is one, and it cannot be read.
        """
        key = _key(definition, name, digest)
        value = self._safe.get("input", key)
        if value is None:
            return False
        self._kept.add(key)
        self.give(definition, name, value)
        return True

    def keep(self, definition: ServerDefinition, name: str, digest: str) -> None:
        """Keep a password that was given, in place of what older definitions of that server have.

        Raises:
            SecretError: It cannot be kept.
        """
        value, key = self.given(definition, name), _key(definition, name, digest)
        if not value or key in self._kept:
            return
        for one in self.kept():
            if (one.id, one.server, one.file) == (name, definition.name, str(definition.source)):
                self._safe.delete("input", one.kept.name)
        self._safe.set("input", key, value)
        self._kept.add(key)

    def kept(self) -> list[KeptInput]:
        """The passwords that are kept, by id."""
        found: list[KeptInput] = []
        for kept in self._safe.kept("input"):
            name, server, file, _ = json.loads(kept.name)
            found.append(KeptInput(name, server, file, kept))
        return sorted(found, key=lambda one: (one.id, one.file, one.server))

    def forget(self, name: str) -> bool:
        """Forget what was given as this id, for every server. Whether there was anything."""
        given = [key for key in self._given if key[1] == name]
        for key in given:
            del self._given[key]
        kept = [one for one in self.kept() if one.id == name]
        for one in kept:
            self._safe.delete("input", one.kept.name)
            self._kept.discard(one.kept.name)
        return bool(given or kept)

    def check(self, one: KeptInput) -> str:
        """Empty if a password can be read, else why not."""
        return self._safe.check("input", one.kept.name)


def is_password(definition: ServerDefinition, name: str) -> bool:
    """Whether an input is to be hidden."""
    return definition.inputs[name].get("password") is True


def _key(definition: ServerDefinition, name: str, digest: str) -> str:
    return json.dumps([name, definition.name, str(definition.source), digest])
