"""What the user sees, wherever standard output goes meanwhile."""

from __future__ import annotations

import contextlib
import io
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import TextIO

__all__ = ["Printed", "on_screen"]


class Printed(io.StringIO):
    """Takes what code prints, in the place of standard output.

    Args:
        screen: What stands there else.
    """

    def __init__(self, screen: TextIO) -> None:
        super().__init__()
        self.screen = screen


@contextlib.contextmanager
def on_screen() -> Generator[None]:
    """Have the user see what is printed: what a model's code prints the model reads, but not what the user is asked."""
    output = sys.stdout
    with contextlib.redirect_stdout(output.screen) if isinstance(output, Printed) else contextlib.nullcontext():
        yield
