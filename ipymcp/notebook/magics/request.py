"""What a subcommand is given, and what it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ipymcp.notebook.extension import Extension
    from ipymcp.notebook.magics.line import Line, Word
    from ipymcp.notebook.magics.options import Parsed, Syntax
    from ipymcp.notebook.settings import IPyMCP
    from ipymcp.tools.face import Mcp

__all__ = ["Command", "Request"]


class Request(Struct, frozen=True):
    """One `%mcp` line, cut up."""

    word: str
    words: Sequence[Word]
    """The words after the subcommand."""
    parsed: Parsed
    """The same, read as the command's syntax says; empty where it reads them itself."""
    line: Line
    cell: str | None
    """The cell's body under `%%mcp`."""
    mcp: Mcp
    extension: Extension
    """What `%load_ext` put into the shell."""
    ip: Any
    """The shell."""
    settings: IPyMCP
    namespaces: tuple[Mapping[str, Any], ...]
    """Where the notebook's names are looked up, nearest first."""
    text: str = ""
    """What follows the options, where the command takes text."""

    @property
    def names(self) -> list[str]:
        """The words that are no options, as text."""
        return [word.text for word in self.parsed.names]

    @property
    def is_quiet(self) -> bool:
        """Whether to show nothing by ourselves."""
        return self.line.silent or self.settings.quiet


class Command(Struct, frozen=True):
    """A subcommand: how it is written, what its help says, what it does."""

    syntax: Syntax
    help: str
    """The first line is its summary; the rest is shown by `%mcp help WORD`."""
    run: Callable[[Request], Any]
    takes_cell: bool = False
    takes_command: bool = False
    """Whether `-- COMMAND ARG…` may follow."""
    takes_text: bool = False
    """Whether what follows the options is text, as it stands."""
