"""Every call: who, what, how long, how it ended. Written in batches, off the calls' way.

A call costs one tuple and one append. A timer on the background loop hands what came
since to the database's thread, twice a second: a kernel that is killed loses no more than that.
"""

from __future__ import annotations

import time
from collections import deque
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Literal

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
    Record: TypeAlias = tuple[float, float, str, str, str, bytes, int, Raw | bytes | None, Exception | None, int | None]
    """One call that is over: when it began and ended (on `time.monotonic`'s clock), caller, server, tool, arguments,
    the answer's size in bytes, the answer (both JSON), the error in its stead, the execution count of its cell."""
    Row: TypeAlias = tuple[Any, ...]


FLUSH_EVERY = 0.5
"""Seconds."""
MAX_ROWS = 100_000
MAX_LENGTH = 30 * 86_400.0
"""Seconds a row is kept."""
_MAX_PENDING = 200_000
_MAX_VALUE = 100_000
"""Bytes of arguments or of a result that are kept, where values are."""
_LATER = 1_000_000
"""Bytes of a result that may be kept until the next batch, to look into it then."""
_MAX_ERROR = 300
_RECEIVED: Final = 6
"""The place in a `Record` of the answer's size."""
_CANCELLED: Final = f"{CallCancelled.__name__}: "
"""How the error begins of a call that the user has ended."""
_FAILED = b'"isError"'
"""What stands in every answer that says so."""
_PRUNE_EVERY = 2_000
_AGED_EVERY = 3_600.0
_SIZES = "time, duration, caller, server, tool, sent, received, error, cell"
_VALUES = f"{_SIZES}, arguments, result"
_COLUMNS = "id, time, duration, caller, server, tool, sent, received, error, notebook, cell, arguments, result"
_MAX_PARAMETERS = 990
"""Of one statement; SQLite takes 999 everywhere. A statement for each row would hand the interpreter's lock to and fro
with the threads that make calls, thousands of times."""


class HistoryEntry(Struct, frozen=True):
    """One call as it was kept.

    Attributes:
        id: Its number among all that were kept; later calls have higher ones.
        time: When it began, in seconds since the epoch.
        duration: Seconds.
        caller: `user`, `model` or `app`.
        sent: The size of the arguments, in bytes of JSON.
        received: The size of the answer.
        error: One line; empty where it succeeded.
        notebook: Its path, or the folder where it is not known.
        cell: The execution count of the cell that made it.
        arguments: JSON, where values are kept.
        result: The same.
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
        """How it ended. A call that the user cancelled or interrupted has not failed."""
        if not self.error:
            return "succeeded"
        return "cancelled" if self.error.startswith(_CANCELLED) else "failed"


class History:
    """The calls of all of the user's notebooks.

    Args:
        database: Gives where they are kept; not called before there is something to keep.
        later: Has a function called after some seconds, from any thread; whether it will be.
        notebook: The notebook's path, or the folder where it is not known.
    """

    def __init__(
        self,
        database: Callable[[], Database],
        later: Callable[[float, Callable[[], None]], bool],
        notebook: str,
    ) -> None:
        self.mode: HistoryMode = "sizes"
        """Whether arguments and results are kept, or their sizes alone, or nothing at all."""
        self.cell: Callable[[], int | None] = _nowhere
        """Gives the execution count of the cell that runs."""
        self.added = 0
        """Counts the calls that were over here, so that a view knows when to look."""
        self.lost = 0
        """Calls that were not kept because too many came at once."""
        self._database = database
        self._later = later
        self._notebook = notebook
        self._pending: deque[Record] = deque()
        self._is_due = False
        self._since_pruned = 0
        self._pruned = float("-inf")
        self._clock = 0.0
        """What `time.time` is ahead of `time.monotonic`: more, whenever the machine has slept."""

    def add(self, record: Record) -> None:
        """A call is over; from any thread, at once."""
        if self.mode == "off":
            return
        if len(self._pending) >= _MAX_PENDING:
            self.lost += 1
            return
        self.added += 1
        self._pending.append(record if record[_RECEIVED] <= _LATER else _light(record))
        if not self._is_due:
            self._is_due = self._later(FLUSH_EVERY, self.flush)

    def refused(self, server: str, tool: str, arguments: bytes, caller: str, error: Exception) -> None:
        """A call was not allowed."""
        now = time.monotonic()
        self.add((now, now, caller, server, tool, arguments, 0, None, error, self.cell()))

    def flush(self) -> None:
        """Hand over what came; it is written soon."""
        self._is_due = False
        records: list[Record] = []
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
        """The last calls, newest first.

        Args:
            server: A glob over the servers' names.
            tool: A glob over the tools' names.
            failed: Those alone that failed.
            since: Seconds since the epoch.
            limit: At most so many.
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

    def _write(self, connection: Connection, records: list[Record]) -> None:
        if self.mode == "values":
            self._insert(connection, _VALUES, [(*_row(one), *_values(one)) for one in records])
        else:
            self._insert(connection, _SIZES, list(map(_row, records)))
        self._prune(connection, len(records))

    def _insert(self, connection: Connection, columns: str, rows: list[Row]) -> None:
        """Many rows a statement; what all of them share is added by it."""
        width = columns.count(",") + 1
        given = ", ".join(f"column{number}" for number in range(2, width + 1))
        most = (_MAX_PARAMETERS - 2) // width
        for start in range(0, len(rows), most):
            some = rows[start : start + most]
            places = ", ".join([f"({', '.join('?' * width)})"] * len(some))
            sql = f"INSERT INTO history (notebook, {columns}) SELECT ?, ? + column1, {given} FROM (VALUES {places})"
            connection.execute(sql, [self._notebook, self._clock, *chain.from_iterable(some)]).close()

    def _prune(self, connection: Connection, added: int) -> None:
        self._since_pruned += added
        if self._since_pruned >= _PRUNE_EVERY:
            self._since_pruned = 0
            connection.execute("DELETE FROM history WHERE id <= (SELECT max(id) FROM history) - ?", (MAX_ROWS,))
        if time.monotonic() - self._pruned > _AGED_EVERY:  # it looks at every row
            self._pruned = time.monotonic()
            connection.execute("DELETE FROM history WHERE time < ?", (time.time() - MAX_LENGTH,))


def _row(record: Record) -> Row:
    began, ended, caller, server, tool, arguments, received, result, error, cell = record
    is_well = error is None and (result is None or bytes(result).find(_FAILED) < 0)
    failure = "" if is_well else _failure(error, result, received)
    return began, ended - began, caller, server, tool, len(arguments), received, failure, cell


def _values(record: Record) -> tuple[bytes, bytes | None]:
    *_, arguments, _, result, _, _ = record
    return _kept(arguments), None if result is None else _kept(result)


def _kept(value: bytes | Raw) -> bytes:
    text = bytes(memoryview(value)[:_MAX_VALUE]).decode("utf-8", "replace")
    return mask(text).encode("utf-8", "replace")


def _light(record: Record) -> Record:
    """The same without the bulk of a large answer."""
    began, ended, caller, server, tool, arguments, received, result, error, cell = record
    if result is not None:
        failure = _told(result)
        error = ToolFailure(failure) if failure else error
        result = bytes(memoryview(result)[:_MAX_VALUE])
    return began, ended, caller, server, tool, arguments, received, result, error, cell


def _nowhere() -> int | None:
    return None


class ToolFailure(Exception):
    """A tool's answer said that it failed."""


def _failure(error: Exception | None, result: Raw | bytes | None, received: int) -> str:
    """Why it failed, one line; empty where it did not."""
    if error is None:
        told = "" if result is None or received > _LATER else _told(result)
        return mask(f"ToolError: {told}") if told else ""
    if isinstance(error, ToolFailure):
        return mask(f"ToolError: {error}")
    message = getattr(error, "message", None) or str(error)
    return mask(f"{type(error).__name__}: {_line(message)}")


def _told(result: Raw | bytes) -> str:
    """What the tool says of its failure, if its answer is one. Looks for the key before it reads the JSON."""
    data = bytes(result)
    if _FAILED not in data:
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
