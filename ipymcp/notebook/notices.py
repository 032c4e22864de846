"""Lines of our own beside a cell's output."""

from __future__ import annotations

import sys

from ipymcp.text import one_line

__all__ = ["say"]


def say(text: str) -> None:
    """Tell the user something that is no answer of the line, on the cell's stderr."""
    print(one_line(f"ipymcp: {text}"), file=sys.stderr)  # noqa: T201 - meant for the cell
