"""Maps that do not keep all rows in memory: `tool.map.stream`, and maps with results written to a file."""

from __future__ import annotations

import asyncio
import importlib
import os
import threading
import time
from collections import Counter, deque
from collections.abc import AsyncIterable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ipymcp.argument_checks import PATH, shown
from ipymcp.errors import ArgumentError, McpError, PolicyError, render_briefly
from ipymcp.files import partial_path, replacing, write_hint
from ipymcp.maps.result import CACHED, REDRAW_INTERVAL, RunningMap, not_called_error, stop_error
from ipymcp.maps.run import NOT_CALLED, Job, RowOutcome, message_of
from ipymcp.protocol import types
from ipymcp.protocol.types import is_object
from ipymcp.results.frames import result_columns
from ipymcp.results.tables import Table, TableView
from ipymcp.runtime.interrupts import Interrupts, Waiter
from ipymcp.schema.coercion import is_missing
from ipymcp.security.untrusted import current_actor
from ipymcp.text import counted

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping, Sequence
    from os import PathLike
    from typing import IO

    from ipymcp.maps.request import MapRequest
    from ipymcp.maps.run import MapRun
    from ipymcp.results.tool_result import ToolResult
    from ipymcp.runtime.call import CallOptions
    from ipymcp.security.untrusted import Actor


_MIN_WINDOW: Final = 64
"""Minimum number of rows that are called ahead of the reader, if calls may be repeated; else the concurrency."""
_BATCH: Final = 1_000
"""Rows written to a file at once. The first batch determines the columns of a Parquet file."""
_FLUSH_INTERVAL: Final = 1.0
"""Maximum seconds between two writes to a file of lines, if there are new rows."""
_END_TIMEOUT: Final = 6.0
"""Seconds to wait for the calls of a stream that has ended early to end."""
_ASYNC_HINT: Final = "async for row, result in ….map.stream(rows)"


class MapStream:
    """Rows with their results, in the order of the rows, yielded while later rows are called; for `for` or `async for`.

    Args:
        request: The map.
        on_wait: Called by `for` in every second in which it waits for the next row.
    """

    def __init__(self, request: MapRequest, on_wait: Callable[[], None] | None = None) -> None:
        self._request = request
        self._on_wait = on_wait
        self._window: _Window | None = None
        self._drawn = 0.0

    @property
    def unread(self) -> list[tuple[Any, ToolResult | McpError]]:
        """The rows that were called ahead and have not been read, with their results, after a stream has ended early.

        They are the next rows of the input, up to the last that was called. The error of a row has its `row_state`:
        `unknown` for a call of a tool that may change something if the server had not answered yet.
        """
        return [] if self._window is None else self._window.unread()

    @property
    def _shown(self) -> RunningMap | None:
        return None if self._window is None else self._window.shown

    def show(self) -> None:
        """Show the progress, at most five times a second."""
        now = time.monotonic()
        if self._shown is not None and now - self._drawn >= REDRAW_INTERVAL:
            self._drawn = now
            self._shown.show()

    def show_end(self) -> None:
        """Replace the bar, if there is one, by a line."""
        if self._shown is not None:
            self._shown.show_end()

    def __iter__(self) -> Generator[tuple[Any, ToolResult | McpError]]:
        loop, waiter = self._request.host.loop, Waiter()
        pairs = self._request.source.pairs()
        if isinstance(pairs, AsyncIterable):
            raise ArgumentError("the rows are an async iterable", hint=_ASYNC_HINT)
        rows = iter(pairs)
        window = self._window = _Window(self._request, lambda: waiter.put(Waiter.DONE))
        try:
            while window.refill(rows):
                if window.has_unsent:
                    loop.run(window.start(), waiter)
                yield from window.ready()
                while window.is_waiting:
                    self._wait(waiter)
            window.check()
        except KeyboardInterrupt as error:
            self._render_interrupt(error)
            raise
        finally:
            window.close()

    def _wait(self, waiter: Waiter) -> None:
        until = time.monotonic() + _FLUSH_INTERVAL
        with self._request.host.loop.callers.blocked(waiter):
            is_woken = waiter.wait(None if self._on_wait is None else lambda: until)
        if self._on_wait is not None and not is_woken:
            self._on_wait()

    async def __aiter__(self) -> AsyncGenerator[tuple[Any, ToolResult | McpError]]:
        here, loop = asyncio.get_running_loop(), self._request.host.loop
        woken = asyncio.Event()
        source: Any = self._request.source.pairs()
        rows: Any = aiter(source) if hasattr(source, "__aiter__") else iter(source)
        window = self._window = _Window(self._request, lambda: loop.call_on(here, woken.set))
        try:
            while await window.arefill(rows):
                if window.has_unsent:
                    await loop.arun(window.start())
                for pair in window.ready():
                    yield pair
                while window.is_waiting:
                    with loop.awaiting.entered(window.close):
                        await woken.wait()
                    woken.clear()
            window.check()
        except asyncio.CancelledError as error:
            self._render_interrupt(error)
            raise
        finally:
            window.close()

    def _render_interrupt(self, error: BaseException) -> None:
        message = f"{self._request.name}.map.stream was interrupted"
        hint = "the stream's .unread has the rows that were called ahead; start a new stream with those after them"
        render_briefly(error, message, hint)

    def __repr__(self) -> str:
        return f"<stream of {self._request.name}: for row, result in …>"


class _Window:
    """The rows of a stream that are being called or have not been read yet, in order.

    Args:
        request: The map.
        wake: Called on the loop when the row that the reader waits for may have ended.
    """

    def __init__(self, request: MapRequest, wake: Callable[[], None]) -> None:
        self._request = request
        self._loop = request.host.loop
        self._wake = wake
        concurrency = request.settings.concurrency
        self._size = max(_MIN_WINDOW, 4 * concurrency) if request.is_repeatable else concurrency
        self._rows: deque[tuple[int, Any]] = deque()
        self._outcomes: dict[int, RowOutcome] = {}
        self._counts: Counter[str] = Counter()
        self._unsent: list[Job] = []
        self.shown: RunningMap | None = None
        """The map in progress."""
        self._options: CallOptions | None = None
        self._run: MapRun | None = None
        self._task: asyncio.Task[None] | None = None
        self._actor: Actor | None = None
        self._number = 0
        self._awaited = -1
        """The number of the row that the reader waits for; -1 for none."""
        self._failure: BaseException | None = None
        """An exception of the source, or of the run by a bug; raised after the rows before it."""
        self._is_exhausted = self._is_closed = False
        self._is_over = threading.Event()
        """Set when the last call has ended."""

    @property
    def has_unsent(self) -> bool:
        """Whether rows were read from the source that `start` has not sent yet."""
        return bool(self._unsent)

    @property
    def is_waiting(self) -> bool:
        """Whether the next row has not ended yet; `wake` is then called when it has."""
        self._awaited = self._rows[0][0] if self._rows else -1
        if self._awaited in self._outcomes or self._awaited < 0 or self._is_closed:
            self._awaited = -1
            return False
        return True

    def refill(self, rows: Iterator[tuple[Any, Any]]) -> bool:
        """Read rows until the window is full; False at the end of the stream."""
        try:
            while self._has_room:
                pair = next(rows, None)
                if pair is None:
                    self._is_exhausted = True
                else:
                    self._add(*pair)
        except BaseException as error:
            self._fail(error)
        return bool(self._rows)

    async def arefill(self, rows: Any) -> bool:
        """Like `refill`, for async and other iterators."""
        try:
            while self._has_room:
                pair = await anext(rows, None) if hasattr(rows, "__anext__") else next(rows, None)
                if pair is None:
                    self._is_exhausted = True
                else:
                    self._add(*pair)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._fail(error)
        return bool(self._rows)

    async def start(self) -> None:
        """Call the rows that were read. Runs on the loop. Before the first call, the user is asked if necessary.

        Raises:
            PolicyError: The calls are not allowed, or a model's code continues a stream that it did not start.
        """
        unsent, self._unsent = self._unsent, []
        actor = current_actor()
        starter = self._actor
        if self._run is None:
            self._actor = actor
        elif (
            actor is not None
            and actor.caller == "model"
            and (starter is None or (starter.conversation, starter.turn) != (actor.conversation, actor.turn))
        ):
            entry = self._request.target.entry
            message = "a model's code may not continue a stream that it did not start"
            raise PolicyError(message, server=entry.server, tool=entry.name, hint="start a new stream")
        if self._run is None:
            request, count = self._request, self._request.source.count
            await request.target.session.awake()
            first, questions = unsent[0].arguments, list[str]()
            self._options = options = await request.request_consent(unsent, count, questions.append)
            if self._is_closed:
                return
            self._is_over.clear()
            self._run = run = request.run(options, self._ended)
            self.shown = RunningMap(request, options, run, count, self._counts, first, questions)
            self._task = asyncio.ensure_future(run.run())
            self._task.add_done_callback(self._finished)
        cached = await self._request.cached_results(unsent)
        assert self._options is not None
        for job, outcome in self._request.cached_outcomes(self._options, unsent, cached):
            self._ended(job, outcome)
        self._run.feed([job for job in unsent if job.arguments not in cached])

    def ready(self) -> Iterator[tuple[Any, ToolResult | McpError]]:
        """Yield the rows that have ended, up to the first that has not.

        Raises:
            McpError: The first failure, if `on_error` is `"raise"`.
        """
        while self._rows and self._rows[0][0] in self._outcomes:
            number, row = self._rows[0]
            outcome = self._outcomes[number]
            if outcome.result is None and self._request.settings.stops_at_error:
                raise self._error(outcome)
            del self._rows[0], self._outcomes[number]
            yield row, outcome.result or self._error(outcome)

    def check(self) -> None:
        """Raise the exception of the source or the run, if there was one.

        Raises:
            McpError: The run was stopped before all rows were called.
        """
        if self._failure is not None:
            raise self._failure
        reason, left_out = "" if self._run is None else self._run.stopped, self._counts["not called"]
        if reason and (left_out or not self._is_exhausted):
            entry = self._request.target.entry
            message = f"stopped {reason}: {counted(self._number, 'row')} read, {left_out:,} of them not called"
            hint = "start a new stream with the remaining rows"
            raise stop_error(reason)(message, server=entry.server, tool=entry.name, hint=hint)

    def unread(self) -> list[tuple[Any, ToolResult | McpError]]:
        """The rows that were called and not read, when the calls have ended; those between them are `not called`."""
        if self._run is None:
            return []
        self._is_over.wait(_END_TIMEOUT)
        outcomes = [(row, self._outcomes.get(number, NOT_CALLED)) for number, row in self._rows]
        while outcomes and outcomes[-1][1].state == "not called":
            outcomes.pop()
        return [(row, outcome.result or self._error(outcome)) for row, outcome in outcomes]

    def close(self) -> None:
        """End the calls in progress. Thread-safe."""
        self._is_closed = True
        if self._loop.is_running:
            self._loop.call(self._close)

    def _close(self) -> None:
        if self._run is not None and self._task is not None:
            if self._is_exhausted and not self._rows and self._failure is None:
                self._run.feed((), is_last=True)  # all rows were read
            else:
                self._run.stop("by its reader")
                self._task.cancel()
        self._wake()

    @property
    def _has_room(self) -> bool:
        is_stopped = self._run is not None and bool(self._run.stopped)
        return not self._is_exhausted and not is_stopped and len(self._rows) < self._size

    def _fail(self, error: BaseException) -> None:
        self._failure, self._is_exhausted = error, True

    def _add(self, row: Any, cells: Any) -> None:
        number = self._number
        self._number += 1
        self._rows.append((number, row))
        try:
            self._unsent.append(Job((number,), self._request.source.bind(cells)))
        except ArgumentError as error:
            self._outcomes[number] = RowOutcome("failed", error=error)

    def _ended(self, job: Job, outcome: RowOutcome) -> None:
        self._counts[outcome.state] += 1
        self._counts[CACHED] += outcome.is_cached
        self._outcomes[job.rows[0]] = outcome
        if self._awaited == job.rows[0]:
            self._awaited = -1
            self._wake()

    def _finished(self, task: asyncio.Task[None]) -> None:
        """Finish the map when its run has ended. After a bug, wake the reader, which would wait forever."""
        assert self.shown is not None
        self.shown.finish()
        self._is_over.set()
        if not task.cancelled() and task.exception() is not None:
            self._fail(task.exception() or RuntimeError())
            self._is_closed = True
            self._wake()

    def _error(self, outcome: RowOutcome) -> McpError:
        stopped = "" if self._run is None else self._run.stopped
        error = outcome.error or not_called_error(self._request, stopped)
        error.row_state = outcome.state
        return error


# -- files ------------------------------------------------------------------------------------------------------------


class MapFile(TableView):
    """A map whose results were written to a file.

    Attributes:
        path: The file.
        rows: Number of rows written.
        failed: Number of rows that failed; their `error` has the reason.
        unknown: Number of rows of which it is not known whether the server has executed the call.
    """

    def __init__(self, name: str, path: Path) -> None:
        self._name = name
        self.path = path
        self.rows = self.failed = self.unknown = self._not_called = 0

    def add(self, record: Mapping[str, Any]) -> None:
        """Count a row that was written."""
        state = record["state"]
        self.rows += 1
        self.failed += state == "failed"
        self.unknown += state == "unknown"
        self._not_called += state == "not called"

    @property
    def table(self) -> Table:
        """The counts."""
        title = f"{self._name}: {counted(self.rows, 'row')} in {self.path}"
        succeeded = self.rows - self.failed - self.unknown - self._not_called
        row = (self.rows, succeeded, self.failed, self.unknown)
        return Table(("rows", "succeeded", "failed", "unknown"), [row], title=title)

    @property
    def contents(self) -> str:
        """The rows in the file, as part of a hint."""
        counts = {"unknown": self.unknown, "not called": self._not_called}
        details = ", ".join(f"{number:,} {state}" for state, number in counts.items() if number)
        return f"{self.path} has the first {counted(self.rows, 'row')}{f' ({details})' if details else ''}"


def write_map(request: MapRequest, to: str | PathLike[str]) -> MapFile:
    """Make the calls and write the results as they arrive. If the map ends early, the file has the rows until then.

    Args:
        request: The map.
        to: The file, `.jsonl` or `.parquet`; an existing one is replaced once there are rows to write.

    Raises:
        McpError: The file has another suffix, or cannot be written, or the map was stopped early.
    """
    writers = {".jsonl": _JsonLines, ".parquet": _Parquet}
    path = Path(to).expanduser() if PATH.accepts(to) else None
    if path is None or path.suffix.lower() not in writers:
        raise ArgumentError(f"map: to: expected a .jsonl or .parquet file, got {shown(to)}", argument="to")
    written = MapFile(request.name, path)
    stream: MapStream | None = None
    early: BaseException | None = None
    is_intact = True
    """Whether all rows that were given to the writer are in the file."""
    try:
        with replacing(path) as file, closing(writers[path.suffix.lower()](file)) as writer:
            batch: list[dict[str, Any]] = []

            def write_if_due() -> None:
                nonlocal batch, is_intact
                if batch and writer.is_due(len(batch)):
                    with Interrupts():
                        is_intact = False
                        _write(writer, batch, written)
                        is_intact, batch = True, []

            stream = MapStream(request, write_if_due)
            try:
                with closing(iter(stream)) as rows:
                    for row, result in rows:
                        batch.append(_file_record(row, result))
                        stream.show()
                        write_if_due()
            except BaseException as error:
                early = error
            try:
                if is_intact:
                    batch += [_file_record(row, result) for row, result in stream.unread]
                    _write(writer, batch, written)
            except BaseException as error:
                early = early or error
            if early is not None and (writer.is_broken or not written.rows):
                raise early
    except OSError as error:
        if error is early:  # raised by the source of the rows
            raise
        if isinstance(error, FileExistsError):
            message = (
                f"{path} cannot be written: {partial_path(path).name}, of a map that is running or was killed, exists"
            )
            raise McpError(message, hint="rename or delete it; it has the rows so far") from error
        raise _not_written(path, error) from error
    finally:
        if stream is not None:
            stream.show_end()
    if early is not None:
        if isinstance(early, KeyboardInterrupt):
            render_briefly(early, f"{request.name}.map was interrupted", written.contents)
        elif isinstance(early, McpError):
            early.hint = f"{early.hint}; {written.contents}" if early.hint else written.contents
        raise early
    return written


def _not_written(path: Path, error: OSError) -> McpError:
    return McpError(f"{path} cannot be written: {error.strerror}", hint=write_hint(error))


def _write(writer: _JsonLines | _Parquet, batch: Sequence[dict[str, Any]], written: MapFile) -> None:
    """Write a batch of rows. If one of them does not fit the file, the rows before it are written."""
    try:
        writer.write(batch)
    except OSError as error:
        raise _not_written(written.path, error) from error
    except McpError:
        for record in batch:
            writer.write([record])
            written.add(record)
        raise
    for record in batch:
        written.add(record)


def record_of(row: Any, result: ToolResult | str, **state: Any) -> dict[str, Any]:
    """A row as a dict, with the columns of its result, `state` if it is given, and `error`.

    Args:
        row: The row as the user has given it.
        result: Its result, or its error.
        **state: More columns.
    """
    ends = {**state, "error": result if isinstance(result, str) else None}
    given = {str(name): value for name, value in row.items()} if is_object(row) else {"row": row}
    given = {f"{name}_row" if name in ends else name: value for name, value in given.items()}
    found = {} if isinstance(result, str) else result_columns([result.data])
    added = {f"{name}_result" if name in given or name in ends else name: each[0] for name, each in found.items()}
    return {**given, **added, **ends}


def _file_record(row: Any, result: ToolResult | McpError) -> dict[str, Any]:
    if isinstance(result, McpError):
        return record_of(row, message_of(result), state=result.row_state)
    return record_of(row, result, state="succeeded")


class _JsonLines:
    is_broken: bool = False

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._end = 0
        self._encoder = msgspec.json.Encoder(enc_hook=_to_builtin)
        self._written = time.monotonic()

    def is_due(self, count: int) -> bool:
        """Whether it is time to write so many rows."""
        return count >= _BATCH or time.monotonic() - self._written >= _FLUSH_INTERVAL

    def write(self, records: Sequence[dict[str, Any]]) -> None:
        """Write a batch of rows, or none of them if the disk is full."""
        rows = [{name: None if is_missing(value) else value for name, value in each.items()} for each in records]
        data, file, end = memoryview(self._encoder.encode_lines(rows)), self._stream.fileno(), self._end
        try:
            while data:
                data = data[os.write(file, data) :]
        except OSError:
            os.ftruncate(file, end)
            os.lseek(file, end, os.SEEK_SET)
            raise
        self._end = os.lseek(file, 0, os.SEEK_CUR)
        self._written = time.monotonic()

    def close(self) -> None:
        """Finish the file."""


def _to_builtin(value: Any) -> Any:
    """A numpy array or scalar as a Python list or scalar; any other object as text."""
    return value.tolist() if hasattr(value, "tolist") else _as_text(value)


def _as_text(value: Any) -> str:
    try:
        return str(value)
    except Exception:  # raised by the object
        return f"a {type(value).__name__}"


class _Parquet:
    is_broken: bool = False
    """Whether writing has failed, which makes the whole file unreadable, because the footer is missing."""

    def __init__(self, stream: IO[bytes]) -> None:
        try:
            self._arrow: Any = importlib.import_module("pyarrow")
            self._parquet: Any = importlib.import_module("pyarrow.parquet")
        except ImportError:
            raise McpError("a Parquet file needs pyarrow", hint="%pip install pyarrow, or write a .jsonl") from None
        self._errors = (self._arrow.ArrowException, OverflowError, UnicodeError)
        self._stream = stream
        self._writer: Any = None
        self._schema: Any = None

    def is_due(self, count: int) -> bool:
        """Whether it is time to write so many rows."""
        return count >= _BATCH

    def write(self, records: Sequence[dict[str, Any]]) -> None:
        """Write a batch of rows; the first batch determines the columns."""
        if self.is_broken or (not records and self._writer is not None):
            return
        names = list(dict.fromkeys(name for record in records for name in record))
        if self._writer is None:
            columns = {name: self._column([record.get(name) for record in records]) for name in names}
            self._schema = self._arrow.table(columns).schema
            self._writer = self._parquet.ParquetWriter(self._stream, self._schema)
        surplus = next((name for name in names if name not in self._schema.names), None)
        if surplus is not None:
            raise self._column_error(f"column {surplus!r} is in none of them")
        arrays = [self._cast([record.get(field.name) for record in records], field) for field in self._schema]
        try:
            self._writer.write_table(self._arrow.Table.from_arrays(arrays, schema=self._schema))
        except OSError:
            self.is_broken, self._writer = True, None
            raise

    def close(self) -> None:
        """Finish the file."""
        if self._writer is not None:
            self._writer.close()

    def _column(self, values: list[Any]) -> Any:
        """An Arrow array of values; of their texts if they have no common type."""
        try:
            array = self._array(values)
        except self._errors:
            return self._arrow.array([_text(value) for value in values], self._arrow.string())
        return array.cast(self._arrow.string()) if self._arrow.types.is_null(array.type) else array

    def _cast(self, values: list[Any], field: Any) -> Any:
        try:
            return self._array(values).cast(field.type, safe=True)
        except self._errors as error:
            if self._arrow.types.is_string(field.type):
                return self._arrow.array([_text(value) for value in values], field.type)
            raise self._column_error(f"column {field.name!r} is {field.type} in them ({error})") from error

    def _array(self, values: list[Any]) -> Any:
        return self._arrow.array([None if is_missing(value) else value for value in values])

    def _column_error(self, reason: str) -> McpError:
        message = f"a row does not fit the columns of the first {_BATCH:,}: {reason}"
        return McpError(message, hint="write a .jsonl file")


def _text(value: Any) -> str | None:
    if value is None:
        return None
    try:
        text = value if isinstance(value, str) else types.encode(value).decode()
    except (TypeError, ValueError):
        text = _as_text(value)
    return text.encode("utf-8", "replace").decode()
