"""The history of tool calls, written to the database in batches.

A call costs one record and one append. A timer on the background loop flushes new records to the database's thread
every `FLUSH_EVERY` seconds: a kernel that is killed loses no more than that.
"""

from __future__ import annotations

import time
from collections import deque
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from msgspec import Struct

from ipymcp.errors import CallCancelled
from ipymcp.masking import mask
from ipymcp.protocol import types

if TYPE_CHECKING:
    from collections.abc import Callable
    from sqlite3 import Connection
    from typing import TypeAlias

    from msgspec import Raw

    from ipymcp.storage.database import Database

    Outcome: TypeAlias = Literal["succeeded", "failed", "cancelled"]
    HistoryMode: TypeAlias = Literal["sizes", "values", "off"]
    Row: TypeAlias = tuple[Any, ...]


FLUSH_EVERY = 0.5
"""Seconds."""
MAX_ROWS = 100_000
MAX_LENGTH = 30 * 86_400.0
"""Seconds after which a row is deleted."""
_MAX_PENDING = 200_000
_MAX_VALUE = 100_000
"""Bytes of arguments or of a result that are stored in `values` mode."""
_LATER = 1_000_000
"""Bytes of a result that may be held until the next flush; the errors of larger ones are read at once."""
_MAX_ERROR = 300
_CANCELLED: Final = f"{CallCancelled.__name__}: "
"""Prefix of the error of a call that the user has cancelled."""
_FAILED = b'"isError"'
"""Marker in the JSON of every result that reports a failure."""
_PRUNE_EVERY = 2_000
_AGED_EVERY = 3_600.0
_SIZES = "time, duration, caller, server, tool, sent, received, error, cell"
_VALUES = f"{_SIZES}, arguments, result"
_COLUMNS = "id, time, duration, caller, server, tool, sent, received, error, notebook, cell, arguments, result"
_MAX_PARAMETERS = 990
"""Parameters per statement; every SQLite build takes 999. One statement per row would pass the interpreter's lock back
and forth with the calling threads thousands of times."""


class CallRecord(Struct, frozen=True):
    """A finished call.

    Attributes:
        began: Start on the clock of `time.monotonic`.
        ended: End on the same clock.
        arguments: JSON.
        received: The result's size in bytes.
        result: JSON; None where there is none.
        error: The exception raised instead of a result.
        cell: The execution count of the calling cell.
    """

    began: float
    ended: float
    caller: str
    server: str
    tool: str
    arguments: bytes
    received: int
    result: Raw | bytes | None
    error: Exception | None
    cell: int | None


class HistoryEntry(Struct, frozen=True):
    """A stored call.

    Attributes:
        id: Increasing row number.
        time: Start, in seconds since the epoch.
        duration: Seconds.
        caller: `user`, `model` or `app`.
        sent: Size of the arguments, in bytes of JSON.
        received: Size of the result, in bytes of JSON.
        error: One line; empty if the call succeeded.
        notebook: Path of the notebook, or its folder if the path is unknown.
        cell: Execution count of the calling cell.
        arguments: JSON; None unless values are stored.
        result: JSON; None unless values are stored.
    """

    id: int
    time: float
    duration: float
    caller: str
    server: str
    tool: str
    sent: int
    received: int
    error: str
    notebook: str
    cell: int | None
    arguments: bytes | None
    result: bytes | None

    @property
    def outcome(self) -> Outcome:
        """Outcome of the call. A call that the user cancelled or interrupted has not failed."""
        if not self.error:
            return "succeeded"
        return "cancelled" if self.error.startswith(_CANCELLED) else "failed"


class History:
    """The calls of all of the user's notebooks.

    Args:
        database: Returns the database; not called before there is something to store.
        later: Schedules a function after a delay in seconds, from any thread; returns False if it cannot.
        notebook: Path of the notebook, or its folder if the path is unknown.
    """

    def __init__(
        self,
        database: Callable[[], Database],
        later: Callable[[float, Callable[[], None]], bool],
        notebook: str,
    ) -> None:
        self.mode: HistoryMode = "sizes"
        """Stored detail: sizes, also arguments and results (`values`), or nothing (`off`)."""
        self.cell: Callable[[], int | None] = lambda: None
        """Returns the execution count of the running cell."""
        self.added = 0
        """Count of calls added by this kernel; a view refreshes when it changes."""
        self.lost = 0
        """Count of calls dropped because too many were pending."""
        self._database = database
        self._later = later
        self._notebook = notebook
        self._pending: deque[CallRecord] = deque()
        self._is_due = False
        self._since_pruned = 0
        self._pruned = float("-inf")
        self._clock = 0.0
        """Offset of `time.time` from `time.monotonic`; it grows whenever the machine sleeps."""

    def add(self, record: CallRecord) -> None:
        """Add a finished call, from any thread, without blocking."""
        if self.mode == "off":
            return
        if len(self._pending) >= _MAX_PENDING:
            self.lost += 1
            return
        self.added += 1
        self._pending.append(record if record.received <= _LATER else _truncated(record))
        if not self._is_due:
            self._is_due = self._later(FLUSH_EVERY, self.flush)

    def refused(self, server: str, tool: str, arguments: bytes, caller: str, error: Exception) -> None:
        """Add a call that was refused."""
        now = time.monotonic()
        self.add(CallRecord(now, now, caller, server, tool, arguments, 0, None, error, self.cell()))

    def flush(self) -> None:
        """Hand pending records to the database's thread, without waiting for the write."""
        self._is_due = False
        records: list[CallRecord] = []
        while self._pending:
            records.append(self._pending.popleft())
        if records:
            self._clock = time.time() - time.monotonic()
            self._database().post(lambda connection: self._write(connection, records))

    async def entries(
        self,
        *,
        server: str | None = None,
        tool: str | None = None,
        failed: bool = False,
        since: float | None = None,
        limit: int = 200,
    ) -> list[HistoryEntry]:
        """Return the latest calls, newest first.

        Args:
            server: Glob over server names.
            tool: Glob over tool names.
            failed: Return only failed calls.
            since: Earliest start, in seconds since the epoch.
            limit: Maximum number of calls.
        """
        self.flush()
        conditions = {
            "server GLOB ?": server,
            "tool GLOB ?": tool,
            "time >= ?": since,
            "error != ?": "" if failed else None,
            "error NOT LIKE ?": f"{_CANCELLED}%" if failed else None,
        }
        given = {condition: value for condition, value in conditions.items() if value is not None}
        where = f"WHERE {' AND '.join(given)}" if given else ""
        sql = f"SELECT {_COLUMNS} FROM history {where} ORDER BY id DESC LIMIT ?"
        return [HistoryEntry(*row) for row in await self._database().aquery(sql, (*given.values(), limit))]

    # -- in the database's thread -------------------------------------------------------------------------------------

    def _write(self, connection: Connection, records: list[CallRecord]) -> None:
        if self.mode == "values":
            self._insert(connection, _VALUES, [(*_row(record), *_values(record)) for record in records])
        else:
            self._insert(connection, _SIZES, list(map(_row, records)))
        self._prune(connection, len(records))

    def _insert(self, connection: Connection, columns: str, rows: list[Row]) -> None:
        """Insert many rows per statement; each statement adds the notebook and the clock offset."""
        width = columns.count(",") + 1
        others = ", ".join(f"column{number}" for number in range(2, width + 1))
        batch_size = (_MAX_PARAMETERS - 2) // width
        for start in range(0, len(rows), batch_size):
            batch = rows[start : start + batch_size]
            places = ", ".join([f"({', '.join('?' * width)})"] * len(batch))
            sql = f"INSERT INTO history (notebook, {columns}) SELECT ?, ? + column1, {others} FROM (VALUES {places})"
            connection.execute(sql, [self._notebook, self._clock, *chain.from_iterable(batch)]).close()

    def _prune(self, connection: Connection, added: int) -> None:
        self._since_pruned += added
        if self._since_pruned >= _PRUNE_EVERY:
            self._since_pruned = 0
            connection.execute("DELETE FROM history WHERE id <= (SELECT max(id) FROM history) - ?", (MAX_ROWS,))
        if time.monotonic() - self._pruned > _AGED_EVERY:  # a full table scan
            self._pruned = time.monotonic()
            connection.execute("DELETE FROM history WHERE time < ?", (time.time() - MAX_LENGTH,))


def _row(record: CallRecord) -> Row:
    return (
        record.began, record.ended - record.began, record.caller, record.server, record.tool, len(record.arguments),
        record.received, _failure(record), record.cell,
    )  # fmt: skip


def _values(record: CallRecord) -> tuple[bytes, bytes | None]:
    return _stored_value(record.arguments), None if record.result is None else _stored_value(record.result)


def _stored_value(value: bytes | Raw) -> bytes:
    text = bytes(memoryview(value)[:_MAX_VALUE]).decode("utf-8", "replace")
    return mask(text).encode("utf-8", "replace")


def _truncated(record: CallRecord) -> CallRecord:
    """Return the record without the bulk of a large result."""
    if record.result is None:
        return record
    message = _tool_error(record.result)
    error = ToolFailure(message) if message else record.error
    return msgspec.structs.replace(record, result=bytes(memoryview(record.result)[:_MAX_VALUE]), error=error)


class ToolFailure(Exception):
    """A failure that the tool's result reports."""


def _failure(record: CallRecord) -> str:
    """Return the reason for a failure in one line, or the empty string."""
    error = record.error
    if error is None and record.result is not None and record.received <= _LATER:
        error = ToolFailure(_tool_error(record.result))
    if error is None or isinstance(error, ToolFailure):
        message = str(error or "")
        return mask(f"ToolError: {message}") if message else ""
    message = getattr(error, "message", None) or str(error)
    return mask(f"{type(error).__name__}: {_line(message)}")


def _tool_error(result: Raw | bytes) -> str:
    """Return the error text of a result that reports a failure; empty for any other result."""
    data = bytes(result)
    if _FAILED not in data:  # spares decoding
        return ""
    try:
        answer = types.decode(data, types.CallToolResult)
        if not answer.isError:
            return ""
        content: Any = types.loads(answer.content)
        return _line(str(content[0]["text"])) or "failed"
    except (ValueError, LookupError, TypeError):
        return "failed"


def _line(text: str) -> str:
    line = " ".join(text[: 4 * _MAX_ERROR].split())
    return line if len(line) <= _MAX_ERROR else line[:_MAX_ERROR] + "…"
