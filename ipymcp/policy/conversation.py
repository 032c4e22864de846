"""A conversation with a model, as policy sees it: whose words are in it."""

from __future__ import annotations

__all__ = ["Conversation"]


class Conversation:
    """One conversation; it lasts as long as what was said in it is told to the model again."""

    def __init__(self) -> None:
        self.doubt = ""
        """Whose words the model has read, as a reason to doubt what it wants since; empty for nobody's."""

    def read(self, name: str) -> None:
        """The model has read what a tool answered that reaches outside, or may."""
        self.doubt = f"what {name} answered may be anybody's words, and the model has read it"
