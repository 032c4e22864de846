"""Which tools are switched on: globs over `server.tool`, the last match wins, `!` denies."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from ipymcp.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ipymcp.runtime.catalog import ToolEntry

__all__ = ["Filters", "is_named", "selects"]


def is_named(entry: ToolEntry, pattern: str) -> bool:
    """Whether a glob over `server.tool` means this tool, by its own name or by what a user types for it."""
    return fnmatchcase(f"{entry.server}.{entry.name}", pattern) or fnmatchcase(f"{entry.server}.{entry.alias}", pattern)


def selects(patterns: Sequence[str], entry: ToolEntry) -> bool:
    """Whether patterns select a tool. The last that matches decides; with only `!` patterns the rest is in.

    A pattern without a dot means a server: `fs` is `fs.*`.
    """
    selected = all(pattern.startswith("!") for pattern in patterns)
    for pattern in patterns:
        positive = pattern.removeprefix("!")
        if is_named(entry, positive if "." in positive else f"{positive}.*"):
            selected = positive == pattern
    return selected


class Filters:
    """What the user switched off and on again in this notebook, in that order, after what definitions deny.

    Args:
        defined: Gives the rules by tool that a server's definition has: `allow`, `ask` or `deny`.
    """

    def __init__(self, defined: Callable[[str], Mapping[str, str]] = lambda _: {}) -> None:
        self._defined = defined
        self._rules: tuple[tuple[str, bool], ...] = ()

    @property
    def rules(self) -> tuple[tuple[str, bool], ...]:
        """Patterns and whether they allow, oldest first."""
        return self._rules

    def set(self, pattern: str, *, allowed: bool) -> None:
        """Switch what matches `server.tool` off or on."""
        kept = tuple(rule for rule in self._rules if rule[0] != pattern)
        self._rules = (*kept, (pattern, allowed))

    def forbidding(self, entry: ToolEntry) -> str | None:
        """The pattern that switches this tool off, if one does."""
        defined = self._defined(entry.server)
        if not self._rules and not defined:
            return None
        found = None
        for pattern, rule in defined.items():
            if fnmatchcase(entry.name, pattern):
                found = f"{entry.server}.{pattern}" if rule == "deny" else None
        for pattern, allowed in self._rules:
            if is_named(entry, pattern):
                found = None if allowed else pattern
        return found

    def check(self, entry: ToolEntry) -> None:
        """Let an enabled tool pass.

        Raises:
            PolicyError: It is switched off; the message names the pattern.
        """
        pattern = self.forbidding(entry)
        if pattern is not None:
            by = "" if pattern == f"{entry.server}.{entry.name}" else f" by {pattern!r}"
            raise PolicyError(
                f"is disabled{by}",
                server=entry.server,
                tool=entry.name,
                hint=f"%mcp enable {entry.server}.{entry.name}",
            )
