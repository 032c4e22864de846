"""Which tools are switched on: globs over `server.tool`, the last match wins, `!` denies."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, TypeVar

from ipymcp.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

__all__ = ["Filters", "matches", "select"]

T = TypeVar("T")


def matches(patterns: Sequence[str], name: str) -> bool:
    """Whether patterns select `server.tool`. The last that matches decides; with only `!` patterns the rest is in.

    A pattern without a dot means a server: `fs` is `fs.*`.
    """
    selected = bool(patterns) and all(pattern.startswith("!") for pattern in patterns)
    for pattern in patterns:
        positive = pattern.removeprefix("!")
        if fnmatchcase(name, positive if "." in positive else f"{positive}.*"):
            selected = positive == pattern
    return selected


def select(patterns: Sequence[str], items: Iterable[T], name: Callable[[T], str]) -> list[T]:
    """The items whose `server.tool` name the patterns select; all of them for no patterns."""
    return [item for item in items if not patterns or matches(patterns, name(item))]


class Filters:
    """What the user switched off and on again in this notebook, in that order."""

    def __init__(self) -> None:
        self._rules: tuple[tuple[str, bool], ...] = ()

    @property
    def rules(self) -> tuple[tuple[str, bool], ...]:
        """Patterns and whether they allow, oldest first."""
        return self._rules

    def set(self, pattern: str, *, allowed: bool) -> None:
        """Switch what matches `server.tool` off or on."""
        kept = tuple(rule for rule in self._rules if rule[0] != pattern)
        self._rules = (*kept, (pattern, allowed))

    def forbidding(self, server: str, tool: str) -> str | None:
        """The pattern that switches this tool off, if one does."""
        if not self._rules:
            return None
        name = f"{server}.{tool}"
        found = None
        for pattern, allowed in self._rules:
            if fnmatchcase(name, pattern):
                found = None if allowed else pattern
        return found

    def check(self, server: str, tool: str) -> None:
        """Let an enabled tool pass.

        Raises:
            PolicyError: It is switched off; the message names the pattern.
        """
        pattern = self.forbidding(server, tool)
        if pattern is not None:
            raise PolicyError(
                f"is disabled by {pattern!r}", server=server, tool=tool, hint=f"%mcp enable {server}.{tool}"
            )
