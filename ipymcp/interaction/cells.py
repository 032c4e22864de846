"""The notebook's cells, which are read and changed by the page that shows the notebook."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Protocol, TypeAlias

from msgspec import Meta, Struct

CellAction: TypeAlias = Literal["read", "insert", "edit"]
CellType: TypeAlias = Literal["code", "markdown", "raw"]
_MAX_LENGTH = 1_000_000
NO_PAGE: Final = "no page of JupyterLab or Notebook 7 is connected, so the notebook's cells cannot be accessed"
"""The message of an error."""


class Cell(Struct, frozen=True):
    """A cell of the notebook."""

    id: Annotated[str, Meta(max_length=200)]
    type: CellType
    source: Annotated[str, Meta(max_length=_MAX_LENGTH)]
    outputs: Annotated[str, Meta(max_length=_MAX_LENGTH)] = ""
    """The text of its outputs."""
    is_running: bool = False
    """Whether it is running or queued."""


class NotebookCells(Protocol):
    """Reads and changes the notebook's cells, on the background loop."""

    async def ask(
        self, do: CellAction, cell: str = "", source: str = "", was: str = "", type: CellType = "code"
    ) -> list[Cell]:
        """Read all cells, insert one, or edit one.

        Args:
            do: The action.
            cell: The id of the cell to edit, or below which to insert; empty to insert below the running cell.
            source: The new source.
            was: The source of the cell to edit as it was read; a cell that has changed since is not edited.
            type: The type of a new cell.

        Returns:
            All cells, or the new or edited one.

        Raises:
            McpError: No page can do it, or this cell cannot be changed.
        """
        ...
