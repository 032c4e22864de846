"""A conversation with a model, as policy sees it: whose words are in it, and what the user agreed to all the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ipymcp.policy.filters import Subject
    from ipymcp.policy.rules import Rights

__all__ = ["Agreed", "Conversation"]


class Agreed:
    """Tools that the user agreed to for a while."""

    def __init__(self) -> None:
        self._tools: set[tuple[str, str | None]] = set()

    def add(self, rights: Rights, entry: Subject | None) -> None:
        """A tool, or all of its server's."""
        self._tools.add((rights.digest, None if entry is None else entry.name))

    def covers(self, rights: Rights, entry: Subject) -> bool:
        """Whether this tool is among them."""
        return not self._tools.isdisjoint({(rights.digest, entry.name), (rights.digest, None)})


class Conversation:
    """One conversation; it lasts as long as what was said in it is told to the model again."""

    def __init__(self) -> None:
        self.doubt = ""
        """Whose words the model has read, as a reason to doubt what it wants since; empty for nobody's."""
        self.agreed = Agreed()
        """What the user was asked about for that reason, and agreed to."""

    def read(self, name: str) -> None:
        """The model has read what a tool answered that reaches outside, or may."""
        self.doubt = f"what {name} answered may be anybody's words, and the model has read it"
