"""The cells of the notebook, which a view of JupyterLab or Notebook 7 reads and changes."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Annotated, Final, Protocol

import msgspec
from msgspec import Meta

from ipymcp.errors import McpError
from ipymcp.interaction.cells import NO_PAGE, Cell, CellAction, CellType
from ipymcp.panel.messages import FromView, Malformed, ToView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ipymcp.panel.messages import Channel


_REPLY_TIMEOUT: Final = 10.0
"""Seconds for the page's reply."""


class CellRequest(ToView, tag_field="kind", tag="cells"):
    """A request to read the notebook's cells, to insert one, or to edit one."""

    id: int
    do: CellAction
    cell: str
    """The cell to edit, or to insert below; empty to insert below the running cell."""
    source: str
    was: str
    """The source of the cell to edit as it was read; a cell that has changed since is not edited."""
    type: CellType


class CellFields(FromView):
    """The reply to a `CellRequest`."""

    request: int
    cells: Annotated[list[Cell], Meta(max_length=100_000)] = msgspec.field(default_factory=list[Cell])
    """All cells, or only the inserted or edited one."""
    problem: Annotated[str, Meta(max_length=1_000)] = ""
    """The reason that the request failed; empty if it succeeded."""


class CellsView(Protocol):
    """A view that reads and changes the notebook's cells."""

    channel: Channel

    def send(self, message: ToView) -> None:
        """Queue a message."""
        ...


class PanelCells:
    """The cells of the notebook that the panel belongs to; on the background loop.

    Args:
        views: Returns the views that read and change the cells.
    """

    def __init__(self, views: Callable[[], Iterable[CellsView]]) -> None:
        self._views = views
        self._numbers = itertools.count(1)
        self._open: dict[int, asyncio.Future[list[Cell]]] = {}

    async def ask(
        self, do: CellAction, cell: str = "", source: str = "", was: str = "", type: CellType = "code"
    ) -> list[Cell]:
        """Read or change cells, as described at `NotebookCells.ask`."""
        views = [view for view in self._views() if view.channel.delivers_answers(blocked=True, running=True)]
        if not views:
            raise McpError(NO_PAGE)
        number = next(self._numbers)
        reply = self._open[number] = asyncio.get_running_loop().create_future()
        try:
            views[-1].send(CellRequest(id=number, do=do, cell=cell, source=source, was=was, type=type))
            async with asyncio.timeout(_REPLY_TIMEOUT):
                return await reply
        except TimeoutError:
            raise McpError(f"the page did not answer within {_REPLY_TIMEOUT:.0f} s") from None
        finally:
            del self._open[number]

    def answer(self, reply: CellFields) -> None:
        """Handle the page's reply.

        Raises:
            Malformed: No request waits for this reply.
        """
        waiting = self._open.get(reply.request)
        if waiting is None or waiting.done():
            raise Malformed("no request waits for this reply")
        if reply.problem:
            waiting.set_exception(McpError(reply.problem))
        else:
            waiting.set_result(reply.cells)
