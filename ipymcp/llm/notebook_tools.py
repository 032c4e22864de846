"""Tools for the notebook's own cells, which a page of JupyterLab or Notebook 7 reads and changes.

They are only selected by name (`--tools notebook.*`), and are subject to policy and consent like a server's tools.
"""

from __future__ import annotations

import difflib
import hashlib
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
from msgspec import Struct

from ipymcp.errors import ArgumentError, McpError
from ipymcp.interaction.cells import NO_PAGE, CellType
from ipymcp.llm.tool_definitions import MAX_CODE, NOTEBOOK, FunctionTool
from ipymcp.protocol import types
from ipymcp.protocol.types import ToolDefinition
from ipymcp.security.rules import ServerGrants
from ipymcp.security.untrusted import current_actor
from ipymcp.text import cut

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ipymcp.interaction.cells import Cell, NotebookCells
    from ipymcp.runtime.call_options import CallOptions
    from ipymcp.runtime.host import Host


_MAX_OUTPUTS: Final = 4_000
"""Characters of one cell's outputs."""
_VERSION_LENGTH: Final = 12
_SOURCE: Final = "the outputs of the notebook's cells"


class _Notebook(Struct, frozen=True):
    """Stands for the notebook where the policy expects a server."""

    rights: ServerGrants = ServerGrants(digest=NOTEBOOK, origin="the notebook")


class NotebookTool(FunctionTool):
    """A tool for the notebook's cells.

    Args:
        host: The host with the connection to the page.
        function: The function of the tool.
        hints: The tool's annotations, for rules.
        shown: Returns the arguments as a question shows them, or raises an error if the call is impossible.
        code_argument: The one of them that a question shows line by line; empty for none.
    """

    def __init__(
        self,
        host: Host,
        function: Callable[..., Any],
        hints: Mapping[str, bool],
        shown: Callable[..., Any],
        code_argument: str = "",
    ) -> None:
        super().__init__(function)
        self._host = host
        self._hints = dict(hints)
        self._shown = shown
        self.code_argument = code_argument

    @property
    def definition(self) -> ToolDefinition:
        """The definition with annotations, as a server would send it."""
        return ToolDefinition(name=self.name, annotations=msgspec.Raw(types.encode(self._hints)))

    async def consent(self, arguments: Mapping[str, Any], options: CallOptions) -> None:
        """Check the rules for a call, and ask the user if necessary. Runs on the background loop.

        Raises:
            McpError: The call is not allowed, or is impossible.
        """
        source = arguments.get("source", "")
        if len(source) > MAX_CODE:
            hint = "write several cells: only what the user is shown in full is written"
            raise ArgumentError(f"this cell has {len(source):,} characters, more than {MAX_CODE:,}", hint=hint)
        encoded = types.encode(await self._shown(**arguments))
        ask = self._host.guard.permit(cast("Any", _Notebook()), cast("Any", self), options, encoded)
        if ask is not None:
            await ask(lambda _: None)


class _CellFunctions:
    """The functions of the tools.

    Args:
        host: The host with the connection to the page.
    """

    def __init__(self, host: Host) -> None:
        self._host = host

    @property
    def _cells(self) -> NotebookCells:
        cells = self._host.cells
        if cells is None:
            raise McpError(NO_PAGE)
        return cells

    async def _find(self, cell: str, version: str) -> Cell:
        """Find the cell to edit.

        Raises:
            McpError: The cell cannot be edited now.
        """
        found = next((each for each in await self._cells.ask("read") if each.id == cell), None)
        if found is None:
            raise McpError(f"the notebook has no cell {cell!r}; read_cells gives the ids")
        if found.is_running:
            raise McpError(f"cell {cell!r} is running or waits to run, and cannot be edited now")
        if _version(found.source) != version:
            raise McpError(f"cell {cell!r} has changed since version {version!r}; read it again")
        return found

    # -- the arguments as a question shows them

    async def shown_read(self, cells: list[str] | None = None, outputs: bool = False) -> dict[str, Any]:
        return {"cells": cells or "all", "outputs": outputs}

    async def shown_insert(self, source: str, after: str = "", type: str = "code") -> dict[str, Any]:
        return {"source": source} | ({"after": after} if after else {}) | ({} if type == "code" else {"type": type})

    async def shown_edit(self, cell: str, version: str, source: str) -> dict[str, Any]:
        found = await self._find(cell, version)
        return {"cell": cell, "change": difference(found.source, source)}

    # -- the tools

    async def read_cells(self, cells: list[str] | None = None, outputs: bool = False) -> list[dict[str, str]]:
        """Read the cells of the user's notebook: id, type, source, and the version that edit_cell needs.

        Args:
            cells: Ids of the cells to read; all by default.
            outputs: Whether to read their outputs as text, too.
        """
        return await self._host.loop.arun(self._read(cells, outputs=outputs))

    async def _read(self, cells: list[str] | None, *, outputs: bool) -> list[dict[str, str]]:
        found = [each for each in await self._cells.ask("read") if not cells or each.id in cells]
        actor = current_actor()
        if outputs and actor is not None and any(each.outputs for each in found):
            actor.conversation.received(_SOURCE)  # outputs may contain untrusted content
        return [_row(each, outputs=outputs) for each in found]

    async def insert_cell(self, source: str, after: str = "", type: CellType = "code") -> dict[str, str]:
        """Insert a cell into the user's notebook. It is not run.

        Args:
            source: Its source.
            after: The id of the cell above it; by default the cell that asked.
            type: code, markdown or raw.
        """
        return await self._host.loop.arun(self._change("insert", after, source, "", type))

    async def edit_cell(self, cell: str, version: str, source: str) -> dict[str, str]:
        """Replace the source of a cell of the user's notebook. It is not run.

        Args:
            cell: The id of the cell.
            version: The version that read_cells gave; a cell that has changed since is not edited.
            source: The whole new source.
        """
        return await self._host.loop.arun(self._edit(cell, version, source))

    async def _edit(self, cell: str, version: str, source: str) -> dict[str, str]:
        found = await self._find(cell, version)
        return await self._change("edit", cell, source, found.source, found.type)

    async def _change(self, do: Any, cell: str, source: str, was: str, type: CellType) -> dict[str, str]:
        (changed,) = await self._cells.ask(do, cell, source, was, type)
        return {"cell": changed.id, "version": _version(changed.source)}


def notebook_tools(host: Host) -> tuple[NotebookTool, ...]:
    """The tools for the notebook's cells."""
    tools = _CellFunctions(host)
    reads = {"readOnlyHint": True, "openWorldHint": False}
    adds = {"readOnlyHint": False, "destructiveHint": False, "openWorldHint": False}
    changes = {"readOnlyHint": False, "destructiveHint": True, "openWorldHint": False}
    return (
        NotebookTool(host, tools.read_cells, reads, tools.shown_read),
        NotebookTool(host, tools.insert_cell, adds, tools.shown_insert, "source"),
        NotebookTool(host, tools.edit_cell, changes, tools.shown_edit, "change"),
    )


def difference(before: str, after: str) -> str:
    """The unified diff of two sources."""
    # Not `splitlines`, which also splits at characters that end no line of Python.
    lines = difflib.unified_diff(before.split("\n"), after.split("\n"), "before", "after", n=3, lineterm="")
    return "\n".join(lines) if before != after else "no change"


def _row(cell: Cell, *, outputs: bool) -> dict[str, str]:
    row = {"cell": cell.id, "type": cell.type, "version": _version(cell.source), "source": cell.source}
    if cell.is_running:
        row["state"] = "running or waiting to run"
    return row | ({"outputs": cut(cell.outputs, _MAX_OUTPUTS)} if outputs and cell.outputs else {})


def _version(source: str) -> str:
    return hashlib.sha256(source.encode("utf-8", "replace")).hexdigest()[:_VERSION_LENGTH]
