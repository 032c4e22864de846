"""The history of tool calls, written to the database in batches.

A call costs one record and one append. A timer on the background loop flushes new records to the database's thread
every `FLUSH_INTERVAL` seconds: a kernel that is killed loses only the calls since the last flush. The latest calls of
this kernel are also kept in memory with their arguments and results, regardless of what is stored. A map is one row;
its calls have a table of their own, so that ten thousand of them do not displace other calls.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

import msgspec
from msgspec import Struct

from ipymcp.errors import CallCancelled, CallInterrupted, PolicyError
from ipymcp.masking import mask
from ipymcp.protocol import types
from ipymcp.text import shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from sqlite3 import Connection

    from msgspec import Raw

    from ipymcp.storage.database import Database, Value

    HistoryMode: TypeAlias = Literal["sizes", "values", "off"]


Outcome: TypeAlias = Literal["done", "failed", "cancelled", "interrupted", "refused"]
"""The outcome of a call: `refused` by the policy or the user before it was sent, `cancelled` or `interrupted` by the
user while it ran."""
FLUSH_INTERVAL = 0.5
"""Seconds."""
MAX_ROWS = 100_000
"""Maximum number of stored calls and maps, and of stored calls of maps."""
MAX_AGE = 30 * 86_400.0
"""Seconds after which a row is deleted."""
_MAX_PENDING = 200_000
_MAX_VALUE = 100_000
"""Maximum number of bytes of arguments or of a result that are stored in `values` mode."""
_MAX_ERROR = 300
_MAX_QUESTIONS = 2_000
MAX_KEPT = 500
"""Maximum number of calls of this kernel that are kept in memory."""
MAX_KEPT_BYTES = 10_000_000
"""Maximum size of the arguments and results of these calls. As much is held until the next flush; results beyond that
are truncated at once."""
FAILURES: Final[tuple[Outcome, ...]] = ("failed", "refused")
"""Outcomes of calls without a result that the user did not give up."""
_FAILED = b'"isError"'
"""Marker in the JSON of every result that reports a failure."""
_PRUNE_EVERY = 2_000
"""Number of new rows after which the number of rows is limited."""
_AGE_CHECK_INTERVAL = 3_600.0
"""Seconds between deletions of old rows."""
_MAX_PARAMETERS = 990
"""Parameters per statement; every SQLite build accepts 999. With one statement per row, the interpreter's lock would
change between this thread and the calling threads thousands of times."""


class RecordableCall(Protocol):
    """The part of a `Call` that the history records.

    Attributes:
        number: The call's number in this kernel.
        questions: The questions that the user was asked about the call, with the answers.
        options: The `CallOptions`.
        started: The time of the start, on the clock of `time.monotonic`.
        cell: The execution count of the calling cell.
        arguments: The arguments as a JSON object.
    """

    number: int
    questions: tuple[str, ...]
    session: Any
    tool: str
    options: Any
    arguments: bytes
    started: float
    cell: int | None


class CallRecord(Struct, frozen=True, kw_only=True):
    """A finished call, until it is written.

    Attributes:
        began: Start on the clock of `time.monotonic`.
        ended: End on the same clock.
        arguments: JSON.
        received: The result's size in bytes.
        result: JSON; None if there is no result.
        error: The exception raised instead of a result.
        cell: The execution count of the calling cell; for a model's call, that of the cell with the prompt.
        model: Name of the model that made or caused the call; empty for none, or if it is unknown.
        provider: The model's provider.
        answer: Identifier of the model's answer.
        number: The call's number in this kernel; None if it was refused before it had one.
        questions: The questions that the user was asked about the call, with the answers.
        map: The number of the map that this record is for, or that the call belongs to; None for other calls.
        calls: The number of calls of a map; None for a single call.
        sent: The size of the arguments of all calls of a map, in bytes; None for a single call.
    """

    began: float
    ended: float
    caller: str
    server: str
    tool: str
    arguments: bytes
    received: int = 0
    result: Raw | bytes | None = None
    error: Exception | None = None
    cell: int | None
    model: str = ""
    provider: str = ""
    answer: str = ""
    number: int | None = None
    questions: tuple[str, ...] = ()
    map: int | None = None
    calls: int | None = None
    sent: int | None = None

    @property
    def is_of_map(self) -> bool:
        """Whether it is one of the calls of a map."""
        return self.map is not None and self.calls is None

    @property
    def result_bytes(self) -> int:
        """The size of the result that is held."""
        return 0 if self.result is None else memoryview(self.result).nbytes

    @property
    def is_truncated(self) -> bool:
        """Whether only the beginning of the result is held."""
        return self.result is not None and self.result_bytes < self.received

    @classmethod
    def of(cls, call: RecordableCall, result: Raw | None, error: Exception | None) -> CallRecord:
        """Record a call that ends now."""
        options = call.options
        return cls(
            began=call.started,
            ended=time.monotonic(),
            caller=options.origin or options.caller,
            model=options.model.name,
            provider=options.model.provider,
            answer=options.turn,
            server=call.session.name,
            tool=call.tool,
            arguments=call.arguments,
            received=0 if result is None else memoryview(result).nbytes,
            result=result,
            error=error,
            cell=call.cell,
            number=call.number,
            questions=call.questions,
            map=options.batch and options.batch.number,
        )


class KeptCall(Struct, frozen=True):
    """A finished call of this kernel in memory.

    Attributes:
        record: The call, without its exception, whose traceback would keep the caller's variables, and without a result
            that is too large to be kept.
        outcome: Its outcome.
        error: The whole message of the error; empty if it succeeded.
        error_type: The name of the error's class.
        hint: The error's hint.
    """

    record: CallRecord
    outcome: Outcome
    error: str = ""
    error_type: str = ""
    hint: str = ""

    @property
    def is_too_large(self) -> bool:
        """Whether there was a result, which was too large to be kept."""
        return self.record.result is None and self.record.received > 0 and self.record.calls is None

    @property
    def size(self) -> int:
        """Bytes of the arguments and the result."""
        return len(self.record.arguments) + self.record.result_bytes


class CallSummary(Struct, frozen=True, kw_only=True):
    """The columns of a call that every list of calls has.

    Attributes:
        id: Increasing row number.
        time: Start, in seconds since the epoch.
        duration: Seconds.
        caller: The caller: `user`, `panel`, `model` or `app`.
        sent: Size of the arguments, in bytes of JSON.
        received: Size of the result, in bytes of JSON.
        error: One line; empty if the call succeeded.
        notebook: Path of the notebook, or its folder if the path is unknown.
        cell: Execution count of the calling cell.
        map: Number of the map, if it is a map or one of its calls.
        calls: Number of calls of a map; None for a single call.
    """

    id: int
    time: float
    duration: float
    outcome: Outcome
    caller: str
    server: str
    tool: str
    sent: int
    received: int
    error: str
    notebook: str
    cell: int | None
    map: int | None = None
    calls: int | None = None


class HistoryEntry(CallSummary, frozen=True, kw_only=True):
    """A stored call: a row of the table `history`.

    Attributes:
        arguments: JSON; None unless values are stored.
        result: JSON; None unless values are stored.
        questions: The questions that the user was asked about the call, one per line; None unless values are stored.
        model: Name of the model that made or caused the call; empty for none, or if it is unknown.
        provider: The model's provider.
        answer: Identifier of the model's answer.
    """

    arguments: bytes | None
    result: bytes | None
    questions: str | None
    model: str = ""
    provider: str = ""
    answer: str = ""


class History:
    """The calls of all of the user's notebooks.

    Args:
        database: Returns the database; not called before there is something to store.
        call_later: Schedules a function after a delay in seconds; thread-safe. Returns False if it cannot.
        notebook: Path of the notebook, or its folder if the path is unknown.
    """

    def __init__(
        self,
        database: Callable[[], Database],
        call_later: Callable[[float, Callable[[], None]], bool],
        notebook: str,
    ) -> None:
        self.mode: HistoryMode = "sizes"
        """Stored detail: sizes, also arguments and results (`values`), or nothing (`off`)."""
        self.cell: Callable[[], int | None] = lambda: None
        """Returns the execution count of the running cell."""
        self.divert: Callable[[CallRecord], bool] | None = None
        """Processes records that are not for this history, such as those of a map in another process.

        Returns False for a record that this history has to store.
        """
        self.added = 0
        """Count of calls and maps added by this kernel; a view refreshes when it changes."""
        self.lost = 0
        """Count of calls dropped because too many were pending."""
        self._database = database
        self._call_later = call_later
        self._notebook = notebook
        self._pending: deque[CallRecord] = deque()
        self._pending_bytes = 0
        """About the size of the pending results: threads may add at the same time."""
        self._kept: OrderedDict[int, KeptCall] = OrderedDict()
        """The latest calls of this kernel by row number; replaced by the database's thread, read by any."""
        self._kept_bytes = 0
        self._is_due = False
        self._since_pruned = {"history": 0, "map_calls": 0}
        self._pruned = dict.fromkeys(self._since_pruned, float("-inf"))
        self._clock = 0.0
        """Offset of `time.time` from `time.monotonic`; it grows whenever the machine sleeps."""

    def calling_cell(self, options: Any) -> int | None:
        """The execution count of the cell that makes a call; None for a call from elsewhere.

        Args:
            options: As in `RecordableCall`.
        """
        if options.origin:
            return None
        return options.model.cell if options.model.cell is not None else self.cell()

    def add(self, record: CallRecord) -> None:
        """Add a finished call, from any thread, without blocking."""
        if self.divert is not None and self.divert(record):
            return
        if self.mode == "off":
            return
        if len(self._pending) >= _MAX_PENDING:
            self.lost += 1
            return
        self.added += not record.is_of_map
        size = record.result_bytes
        if self._pending_bytes + size > MAX_KEPT_BYTES:
            record = _truncated(record)
            size = record.result_bytes
        self._pending_bytes += size
        self._pending.append(record)
        if not self._is_due:
            self._is_due = self._call_later(FLUSH_INTERVAL, self.flush)

    def add_refused(self, server: str, tool: str, arguments: bytes, options: Any, error: Exception) -> None:
        """Add a call that was refused before it was made.

        Args:
            server: The server's name.
            tool: The tool's name.
            arguments: The arguments as a JSON object.
            options: As in `RecordableCall`.
            error: The refusal.
        """
        now = time.monotonic()
        self.add(
            CallRecord(
                began=now,
                ended=now,
                caller=options.origin or options.caller,
                model=options.model.name,
                provider=options.model.provider,
                answer=options.turn,
                server=server,
                tool=tool,
                arguments=arguments,
                error=error,
                cell=self.calling_cell(options),
                map=options.batch and options.batch.number,
            )
        )

    def flush(self) -> None:
        """Pass pending records to the database's thread, without waiting for the write."""
        self._is_due = False
        records: list[CallRecord] = []
        self._pending_bytes = 0
        while self._pending:
            records.append(self._pending.popleft())
        if records:
            # The largest of several: a busy machine may stop this thread between the two readings.
            self._clock = max(time.time() - time.monotonic() for _ in range(3))
            self._database().post(lambda connection: self._write(connection, records))

    async def entries(
        self,
        *,
        server: str | None = None,
        tool: str | None = None,
        words: str | None = None,
        outcomes: Sequence[Outcome] = (),
        since: float | None = None,
        after: int | None = None,
        before: int | None = None,
        is_own: bool = False,
        map: int | None = None,
        limit: int = 200,
    ) -> list[HistoryEntry]:
        """Return the latest calls and maps, newest first, or the calls of one map.

        Args:
            server: Glob over server names.
            tool: Glob over tool names.
            words: A substring of `server.tool`; case is ignored.
            outcomes: Return only calls with these outcomes; all if empty.
            since: Earliest start, in seconds since the epoch.
            after: Return only rows with a higher number.
            before: Return only rows with a lower number.
            is_own: Return only calls of this notebook.
            map: Return the calls of this map.
            limit: Maximum number of calls.
        """
        conditions: dict[str, Value] = {
            "server GLOB ?": server,
            "tool GLOB ?": tool,
            "instr(lower(server || '.' || tool), ?)": words and words.lower(),
            "time >= ?": since,
            "id > ?": after,
            "id < ?": before,
            "notebook = ?": self._notebook if is_own else None,
            "map = ?": map,
        }
        given = {condition: value for condition, value in conditions.items() if value is not None}
        chosen = [*given, f"outcome IN ({', '.join('?' * len(outcomes))})"] if outcomes else [*given]
        where = f"WHERE {' AND '.join(chosen)}" if chosen else ""
        table = "history" if map is None else "map_calls"
        return await self._select(table, f"{where} ORDER BY id DESC LIMIT ?", *given.values(), *outcomes, limit)

    async def entry(self, row: int) -> HistoryEntry | None:
        """Return one call by its row number; None if it was deleted."""
        return next(iter(await self._select("history", "WHERE id = ?", row)), None)

    async def _select(self, table: str, clauses: str, *values: Value) -> list[HistoryEntry]:
        self.flush()
        columns = HistoryEntry.__struct_fields__
        rows = await self._database().aquery(f"SELECT {', '.join(columns)} FROM {table} {clauses}", values)
        return [HistoryEntry(**dict(zip(columns, row, strict=True))) for row in rows]

    @property
    def kept(self) -> Mapping[int, KeptCall]:
        """The latest finished calls of this kernel, by row number."""
        return self._kept

    # -- in the database's thread -------------------------------------------------------------------------------------

    def _write(self, connection: Connection, records: list[CallRecord]) -> None:
        single = [record for record in records if not record.is_of_map]
        if single:
            rows, last = self._insert(connection, "history", single)
            self._keep([*zip(single, rows, strict=True)][-MAX_KEPT:], last)
        if len(single) < len(records):
            self._insert(connection, "map_calls", [record for record in records if record.is_of_map])

    def _insert(
        self, connection: Connection, table: str, records: list[CallRecord]
    ) -> tuple[list[dict[str, Any]], int]:
        """Insert many rows per statement, and delete old ones; return their columns and the number of the last."""
        has_values = self.mode == "values"  # read once, so that every row has the same columns
        rows = [self._row(record, has_values=has_values) for record in records]
        columns = [*rows[0]]
        last = 0
        placeholders = f"({', '.join('?' * len(columns))})"
        for start in range(0, len(rows), batch_size := _MAX_PARAMETERS // len(columns)):
            batch = rows[start : start + batch_size]
            sql = f"INSERT INTO {table} ({', '.join(columns)}) VALUES {', '.join([placeholders] * len(batch))}"
            cursor = connection.execute(sql, [*chain.from_iterable(row.values() for row in batch)])
            last = cursor.lastrowid or 0
            cursor.close()
        self._since_pruned[table] += len(records)
        if self._since_pruned[table] >= _PRUNE_EVERY:
            self._since_pruned[table] = 0
            connection.execute(f"DELETE FROM {table} WHERE id <= (SELECT max(id) FROM {table}) - ?", (MAX_ROWS,))
        if time.monotonic() - self._pruned[table] > _AGE_CHECK_INTERVAL:  # rarely, because it scans the whole table
            self._pruned[table] = time.monotonic()
            connection.execute(f"DELETE FROM {table} WHERE time < ?", (time.time() - MAX_AGE,))
        return rows, last

    def _row(self, record: CallRecord, *, has_values: bool) -> dict[str, Any]:
        """The stored columns of a call."""
        outcome, error = _outcome(record)
        row: dict[str, Any] = {
            "time": record.began + self._clock,
            "duration": record.ended - record.began,
            "caller": record.caller,
            "server": record.server,
            "tool": record.tool,
            "sent": len(record.arguments) if record.sent is None else record.sent,
            "received": record.received,
            "outcome": outcome,
            "error": error,
            "notebook": self._notebook,
            "cell": record.cell,
            "model": record.model,
            "provider": record.provider,
            "answer": record.answer,
            "map": record.map,
            "calls": record.calls,
        }
        if has_values:
            row["arguments"] = _stored_value(record.arguments)
            row["result"] = None if record.result is None else _stored_value(record.result)
            row["questions"] = mask("\n".join(record.questions))[:_MAX_QUESTIONS]
        return row

    def _keep(self, written: list[tuple[CallRecord, dict[str, Any]]], last: int) -> None:
        """Keep the last written calls in memory.

        Args:
            written: The calls with their columns.
            last: The row number of the last one; an exclusive transaction numbers rows without gaps.
        """
        kept = self._kept.copy()
        for number, (record, row) in enumerate(written, last - len(written) + 1):
            kept[number] = call = _kept(record, row["outcome"])
            self._kept_bytes += call.size
        while len(kept) > MAX_KEPT or self._kept_bytes > MAX_KEPT_BYTES:
            self._kept_bytes -= kept.popitem(last=False)[1].size
        self._kept = kept


def _stored_value(value: bytes | Raw) -> bytes:
    text = bytes(memoryview(value)[:_MAX_VALUE]).decode("utf-8", "replace")
    return mask(text).encode("utf-8", "replace")


def _truncated(record: CallRecord) -> CallRecord:
    """Return a record with only the beginning of its result."""
    if record.result_bytes <= _MAX_VALUE or record.result is None:
        return record
    message = _tool_error(record.result)
    error = ToolFailure(message) if message else record.error
    return msgspec.structs.replace(record, result=bytes(memoryview(record.result)[:_MAX_VALUE]), error=error)


class ToolFailure(Exception):
    """A failure that the tool's result reports."""


def _outcome(record: CallRecord) -> tuple[Outcome, str]:
    """Return the outcome of a call, and the reason for a failure in one line."""
    error = record.error
    if error is None and record.result is not None and not record.is_truncated:
        message = _tool_error(record.result)
        error = ToolFailure(message) if message else None
    if error is None:
        return "done", ""
    if isinstance(error, CallInterrupted):
        outcome = "interrupted"
    elif isinstance(error, CallCancelled):
        outcome = "cancelled"
    else:
        outcome = "refused" if isinstance(error, PolicyError) else "failed"
    return outcome, mask(f"{_name(error)}: {_line(_message(error))}")


def _name(error: Exception) -> str:
    return "ToolError" if isinstance(error, ToolFailure) else type(error).__name__


def _message(error: Exception) -> str:
    return getattr(error, "message", None) or str(error)


def _kept(record: CallRecord, outcome: Outcome) -> KeptCall:
    error = record.error
    if record.is_truncated or record.result_bytes + len(record.arguments) > MAX_KEPT_BYTES:
        record = msgspec.structs.replace(record, result=None)
    if error is None or (isinstance(error, ToolFailure) and record.result is not None):  # it has the whole message
        return KeptCall(record, outcome)
    record = msgspec.structs.replace(record, error=None)
    hint = getattr(error, "hint", None) or ""
    return KeptCall(record, outcome, _message(error)[:_MAX_VALUE], _name(error), hint)


def _tool_error(result: Raw | bytes) -> str:
    """Return the error text of a result that reports a failure; empty for any other result."""
    data = bytes(result)
    if _FAILED not in data:  # avoids decoding
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
    return shortened(text[: 4 * _MAX_ERROR], _MAX_ERROR)
