"""Maps whose results are written to a file, `.jsonl` or `.parquet`, as they arrive."""

from __future__ import annotations

import importlib
import os
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ipymcp.argument_checks import PATH, shown
from ipymcp.errors import ArgumentError, McpError, render_briefly
from ipymcp.files import partial_path, replacing, write_hint
from ipymcp.maps.run import message_of
from ipymcp.maps.stream import MapStream
from ipymcp.protocol import types
from ipymcp.protocol.types import is_object
from ipymcp.results.frames import result_columns
from ipymcp.results.tables import Table, TableView
from ipymcp.runtime.waiting import Interrupts
from ipymcp.schema.coercion import is_missing
from ipymcp.text import counted

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike
    from typing import IO

    from ipymcp.maps.request import MapRequest
    from ipymcp.results.tool_result import ToolResult


_BATCH: Final = 1_000
"""Rows written to a file at once. The first batch determines the columns of a Parquet file."""
_FLUSH_INTERVAL: Final = 1.0
"""Maximum seconds between two writes to a file of lines, if there are new rows."""


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
    early: BaseException | None = None
    batches: _Batches | None = None
    try:
        with replacing(path) as file, closing(writers[path.suffix.lower()](file)) as writer:
            batches = _Batches(request, writer, written)
            early = batches.write_all()
            if early is not None and (writer.is_broken or not written.rows):
                raise early
    except OSError as error:
        if error is early:  # raised by the source of the rows
            raise
        if isinstance(error, FileExistsError):
            partial = partial_path(path).name
            message = f"{path} cannot be written: {partial}, of a map that is running or was killed, exists"
            raise McpError(message, hint="rename or delete it; it has the rows so far") from error
        raise _not_written(path, error) from error
    finally:
        if batches is not None:
            batches.stream.show_end()
    if early is not None:
        if isinstance(early, KeyboardInterrupt):
            render_briefly(early, f"{request.name}.map was interrupted", written.contents)
        elif isinstance(early, McpError):
            early.hint = f"{early.hint}; {written.contents}" if early.hint else written.contents
        raise early
    return written


class _Batches:
    """The rows of a map on their way to a file, which are written several at a time.

    Args:
        request: The map.
        writer: Writes to the file.
        written: Counts the rows in the file.
    """

    def __init__(self, request: MapRequest, writer: _JsonLines | _Parquet, written: MapFile) -> None:
        self.stream = MapStream(request, self._write_if_due)
        self._writer = writer
        self._written = written
        self._rows: list[dict[str, Any]] = []
        self._is_intact = True
        """Whether all rows that were given to the writer are in the file."""

    def write_all(self) -> BaseException | None:
        """Write the rows, also those that were called ahead of an early end; return the exception of that end."""
        early: BaseException | None = None
        try:
            with closing(iter(self.stream)) as rows:
                for row, result in rows:
                    self._rows.append(_file_record(row, result))
                    self.stream.show()
                    self._write_if_due()
        except BaseException as error:
            early = error
        try:
            if self._is_intact:
                self._rows += [_file_record(row, result) for row, result in self.stream.unread]
                self._write()
        except BaseException as error:
            early = early or error
        return early

    def _write_if_due(self) -> None:
        if self._rows and self._writer.is_due(len(self._rows)):
            with Interrupts():
                self._is_intact = False
                self._write()
                self._is_intact, self._rows = True, []

    def _write(self) -> None:
        """Write the rows. If one of them does not fit the file, those before it are written."""
        try:
            self._writer.write(self._rows)
        except OSError as error:
            raise _not_written(self._written.path, error) from error
        except McpError:
            for row in self._rows:
                self._writer.write([row])
                self._written.add(row)
            raise
        for row in self._rows:
            self._written.add(row)


def _not_written(path: Path, error: OSError) -> McpError:
    return McpError(f"{path} cannot be written: {error.strerror}", hint=write_hint(error))


def _file_record(row: Any, result: ToolResult | McpError) -> dict[str, Any]:
    """A row as a dict: the columns of the input and of the result, `state` and `error`."""
    is_error = isinstance(result, McpError)
    ends = {
        "state": result.row_state if is_error else "succeeded",
        "error": message_of(result) if is_error else None,
    }
    given = {str(name): value for name, value in row.items()} if is_object(row) else {"row": row}
    given = {f"{name}_row" if name in ends else name: value for name, value in given.items()}
    columns = {} if is_error else result_columns([result.data])
    added = {f"{name}_result" if name in given or name in ends else name: cells[0] for name, cells in columns.items()}
    return {**given, **added, **ends}


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
