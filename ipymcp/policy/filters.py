"""Which tools are switched on: globs over `server.tool`, the last match wins, `!` denies."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ipymcp.protocol.wire import ToolDefinition

__all__ = ["Filters", "Subject", "is_named", "selects"]


class Subject(Protocol):
    """A tool, as rules are about it."""

    @property
    def server(self) -> str:
        """Its server's name."""
        ...

    @property
    def name(self) -> str:
        """The server's own name for it."""
        ...

    @property
    def alias(self) -> str:
        """What a user types for it."""
        ...

    @property
    def definition(self) -> ToolDefinition:
        """What the server says of it."""
        ...


def is_named(tool: Subject, pattern: str) -> bool:
    """Whether a glob over `server.tool` means this tool, by its own name or by what a user types for it."""
    return fnmatchcase(f"{tool.server}.{tool.name}", pattern) or fnmatchcase(f"{tool.server}.{tool.alias}", pattern)


def selects(patterns: Sequence[str], tool: Subject) -> bool:
    """Whether patterns select a tool. The last that matches decides; with only `!` patterns the rest is in.

    A pattern without a dot means a server: `fs` is `fs.*`.
    """
    selected = all(pattern.startswith("!") for pattern in patterns)
    for pattern in patterns:
        positive = pattern.removeprefix("!")
        if is_named(tool, positive if "." in positive else f"{positive}.*"):
            selected = positive == pattern
    return selected


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

    def forbidding(self, tool: Subject) -> str | None:
        """The pattern that switches this tool off, if one does."""
        if not self._rules:
            return None
        found = None
        for pattern, allowed in self._rules:
            if is_named(tool, pattern):
                found = None if allowed else pattern
        return found
