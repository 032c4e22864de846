"""The notebook's cells, read and changed by the page of JupyterLab or Notebook 7 that shows the notebook."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Final, Protocol

from ipymcp.errors import McpError
from ipymcp.panel.messages import CellRequest, Malformed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ipymcp.interaction.cells import Cell, CellAction, CellType
    from ipymcp.panel.messages import CellFields, Channel, ToView


_TIMEOUT: Final = 10.0
"""Seconds for the page's reply."""


class CellsView(Protocol):
    """A view that reads and changes the notebook's cells."""

    carrier: Channel

    def say(self, message: ToView) -> None:
        """Queue a message."""
        ...


class PanelCells:
    """The cells of the notebook that the panel belongs to; on the background loop.

    Args:
        views: Returns the views that have the cells.
    """

    def __init__(self, views: Callable[[], Iterable[CellsView]]) -> None:
        self._views = views
        self._numbers = itertools.count(1)
        self._open: dict[int, asyncio.Future[list[Cell]]] = {}

    async def ask(
        self, do: CellAction, cell: str = "", source: str = "", was: str = "", type: CellType = "code"
    ) -> list[Cell]:
        """Read or change cells, as `NotebookCells.ask` says."""
        views = [view for view in self._views() if view.carrier.serves(blocked=True, running=True)]
        if not views:
            raise McpError("no page of JupyterLab or Notebook 7 is connected, so the notebook's cells are out of reach")
        number = next(self._numbers)
        reply = self._open[number] = asyncio.get_running_loop().create_future()
        try:
            views[-1].say(CellRequest(id=number, do=do, cell=cell, source=source, was=was, type=type))
            async with asyncio.timeout(_TIMEOUT):
                return await reply
        except TimeoutError:
            raise McpError(f"the page did not answer within {_TIMEOUT:.0f} s") from None
        finally:
            del self._open[number]

    def answer(self, reply: CellFields) -> None:
        """Handle the page's reply.

        Raises:
            Malformed: Nothing was asked.
        """
        waiting = self._open.get(reply.request)
        if waiting is None or waiting.done():
            raise Malformed("this is no longer asked")
        if reply.problem:
            waiting.set_exception(McpError(reply.problem))
        else:
            waiting.set_result(reply.cells)
