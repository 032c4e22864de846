"""What `${secret:NAME}` stands for: secrets by name, which the user gave once and nobody sees again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ipymcp.config.variables import SECRET_NAME
from ipymcp.errors import SecretError
from ipymcp.masking import masks
from ipymcp.text import quoted

if TYPE_CHECKING:
    from ipymcp.state.safe import Kept, Safe

__all__ = ["SecretSource", "Secrets"]


class SecretSource(Protocol):
    """Gives secrets by name."""

    def get(self, name: str) -> str | None:
        """The secret; None where there is none of that name. May block: not on the loop.

        Raises:
            SecretError: There is one, and it cannot be read.
        """
        ...


class Secrets:
    """The user's secrets. A `SecretSource`.

    Args:
        safe: Where they are kept.
    """

    def __init__(self, safe: Safe) -> None:
        self._safe = safe

    def get(self, name: str) -> str | None:
        """The secret, masked from now on in all that ipymcp writes; None where there is none of that name.

        Raises:
            SecretError: There is one, and it cannot be read.
        """
        try:
            value = self._safe.get("secret", name)
        except SecretError as error:
            raise SecretError(f"the secret {name!r} cannot be read: {error.message}", hint=error.hint) from error
        masks.add(value)
        return value

    def set(self, name: str, value: str) -> Kept:
        """Keep a secret, in place of an older one.

        Raises:
            SecretError: Its name is none, it is empty, or it cannot be kept.
        """
        if SECRET_NAME.fullmatch(name) is None:
            raise SecretError("that is no name for a secret", hint="use letters, digits, _, . and -")
        if not value:
            raise SecretError(
                f"the secret {name!r} would be empty; nothing was changed", hint=f"%mcp secret delete {quoted(name)}"
            )
        masks.add(value)
        return self._safe.set("secret", name, value)

    def delete(self, name: str) -> bool:
        """Forget a secret. Whether there was one."""
        return self._safe.delete("secret", name)

    def kept(self) -> list[Kept]:
        """What there is, by name, without the values."""
        return sorted(self._safe.kept("secret"), key=lambda kept: kept.name)

    def check(self, name: str) -> str:
        """Empty if a secret can be read, else why not."""
        return self._safe.check("secret", name)
