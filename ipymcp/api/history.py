"""`mcp.history`: past calls of all notebooks."""

from __future__ import annotations

import re
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ipymcp.errors import McpError
from ipymcp.results.tables import Table
from ipymcp.storage.history import HistoryEntry

if TYPE_CHECKING:
    from collections.abc import Sequence


_SPAN = re.compile(r"(\d++(?:\.\d++)?)\s*+([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


_COLUMNS = (
    "time",
    "who",
    "model",
    "answer",
    "tool",
    "seconds",
    "sent",
    "received",
    "cell",
    "map",
    "calls",
    "outcome",
    "error",
)
_OPTIONAL = ("model", "answer")
"""Columns that the table omits if they are empty for all calls."""


class CallHistory(Table):
    """Calls, newest first. `.df` has all recorded columns.

    Args:
        entries: The calls.
        note: A line below the table.
    """

    def __init__(self, entries: Sequence[HistoryEntry], note: str = "") -> None:
        self.entries = tuple(entries)
        rows = [
            (
                time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.time)),
                entry.caller,
                entry.model,
                entry.answer,
                f"{entry.server}.{entry.tool}",
                f"{entry.duration:.3f}",
                entry.sent,
                entry.received,
                "" if entry.cell is None else entry.cell,
                "" if entry.map is None else entry.map,
                "" if entry.calls is None else entry.calls,
                entry.outcome,
                entry.error,
            )
            for entry in entries
        ]
        used = [
            index for index, name in enumerate(_COLUMNS) if name not in _OPTIONAL or any(row[index] for row in rows)
        ]
        columns = [_COLUMNS[index] for index in used]
        super().__init__(columns, [[row[index] for index in used] for row in rows], title="MCP calls", note=note)

    @property
    def df(self) -> Any:
        """All recorded columns as a DataFrame."""
        from ipymcp.results.frames import from_columns

        columns: dict[str, list[object]] = {"time": [datetime.fromtimestamp(entry.time) for entry in self.entries]}
        for name in HistoryEntry.__struct_fields__:
            if name not in ("id", "time"):
                values = [getattr(entry, name) for entry in self.entries]
                columns[name] = [one.decode("utf-8", "replace") if isinstance(one, bytes) else one for one in values]
        return from_columns(columns)


def moment(text: str | float) -> float:
    """Parse a time to seconds since the epoch: `10m`, `2h`, `3d` ago, or `2026-11-21 14:00`.

    Raises:
        McpError: The text is not a time.
    """
    if not isinstance(text, str):
        return float(text)
    span = _SPAN.fullmatch(text.strip())
    if span is not None:
        return time.time() - float(span[1]) * _SECONDS[span[2]]
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except ValueError:
        raise McpError(f"{text!r} is not a time", hint="10m, 2h, 3d, or 2026-11-21 14:00") from None
