"""Results as DataFrames of pandas if it is installed, else of polars; both are imported only when needed."""

from __future__ import annotations

import csv
import importlib
import io
from typing import TYPE_CHECKING, Any, cast

from ipymcp.errors import McpError
from ipymcp.protocol import types
from ipymcp.protocol.types import is_object

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from ipymcp.results.text_tables import CsvText, Record


_MAX_EXACT_INTEGER = 2**53
"""Larger integers lose digits as floats."""
_MAX_INTEGER = 2**63
"""Columns of integers have 64 bits."""


def _library() -> ModuleType:
    for name in ("pandas", "polars"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise McpError("a DataFrame needs pandas or polars, and neither is installed", hint="%pip install pandas")


def from_columns(columns: Record) -> Any:
    """Columns as a DataFrame of pandas, else of polars; the values stay as they are.

    Raises:
        McpError: Neither library is installed.
    """
    library = _library()
    if library.__name__ == "polars":
        return library.DataFrame(columns, strict=False)
    return library.DataFrame(columns)


def from_records(records: Sequence[Record]) -> Any:
    """Records as a DataFrame of pandas, else of polars; nested records become columns `a.b`.

    Raises:
        McpError: Neither library is installed.
    """
    library, records = _library(), [_flatten(record) for record in records]
    if library.__name__ == "polars":
        return library.DataFrame(records, infer_schema_length=None, strict=False)
    return library.DataFrame(records)


def _flatten(record: Record, prefix: str = "") -> Record:
    """The record with keys `a.b` for nested members; an empty nested record stays."""
    flat: Record = {}
    for key, value in record.items():
        if is_object(value) and value:
            flat.update(_flatten(value, f"{prefix}{key}."))
        else:
            flat[prefix + key] = value
    return flat


def without_rows(sample: Record) -> Any:
    """A DataFrame without rows.

    Args:
        sample: A record with a value of the type of each column.

    Raises:
        McpError: Neither pandas nor polars is installed.
    """
    return from_records([sample]).head(0) if sample else _library().DataFrame()


def from_csv(table: CsvText) -> Any:
    """CSV as a DataFrame of pandas, else of polars; numbers that begin with zeros stay texts.

    Raises:
        McpError: Neither library is installed, or the text cannot be read.
    """
    library = _library()
    texts = table.text_columns
    try:
        if library.__name__ == "polars":
            text = table.text
            if table.skips_blanks:  # polars would keep them
                file = io.StringIO()
                csv.writer(file, delimiter=table.delimiter).writerows(table.rows())
                text = file.getvalue()
            schema = dict.fromkeys(texts, library.String)
            options = {"separator": table.delimiter, "infer_schema_length": None, "schema_overrides": schema}
            return library.read_csv(text.encode(), **options)
        return library.read_csv(
            io.StringIO(table.text),
            sep=table.delimiter,
            skipinitialspace=table.skips_blanks,
            dtype=dict.fromkeys(texts, str),
            keep_default_na=False,
            na_values={name: list(gaps) for name, gaps in table.gaps.items()},
        )
    except Exception as error:  # pandas and polars raise unrelated errors for malformed CSV
        raise McpError(
            f"the text looks like CSV but cannot be read as such: {error}", hint="read it from .text"
        ) from error


# -- columns that are added to a table --------------------------------------------------------------------------------


def columns_frame(columns: Record) -> Any:
    """A DataFrame of pandas, else of polars, with these columns.

    Raises:
        McpError: Neither library is installed.
    """
    import narwhals

    library = _library()
    backend = narwhals.Implementation.from_native_namespace(library)
    return library.DataFrame({name: _series(name, each, backend).to_native() for name, each in columns.items()})


def merged(given: Record, columns: Record) -> Record:
    """Add columns to others; a name that is already taken gets the suffix `_result`."""
    together = dict(given)
    for name, values in columns.items():
        while name in together:
            name += "_result"
        together[name] = values
    return together


def with_columns(frame: Any, columns: Record) -> Any:
    """Add columns to a narwhals DataFrame; a name that the frame already has gets the suffix `_result`.

    Args:
        frame: The narwhals DataFrame.
        columns: The values of each new column, one for each row; None where there is none.
    """
    if frame.implementation.is_pandas_like():
        frame = frame.clone()  # with pandas 2, the new frame would share the cells of this one
    taken = dict.fromkeys(frame.columns)
    for name, values in merged(taken, columns).items():
        if name not in taken:
            frame = frame.with_columns(_series(name, values, frame.implementation))
    return frame


def result_columns(data: Sequence[Any]) -> Record:
    """The columns of many results: flattened members, or `result` for results without members.

    Args:
        data: The data of each result; None where there is none.
    """
    columns: Record = {}
    for row, value in enumerate(data):
        members = _flatten(value) if is_object(value) else {} if value is None else {"result": value}
        for name, member in members.items():
            key = f"{name}_result" if name == "error" else name  # `error` is the name of the column of errors
            if key not in columns:
                columns[key] = [None] * len(data)
            columns[key][row] = member
    return columns


def _series(name: str, values: list[object], backend: Any) -> Any:
    """A Series of any values; values that the library cannot put in one column become JSON strings."""
    import narwhals

    kinds = {type(value) for value in values if value is not None}
    is_pandas = backend.is_pandas_like()
    if not kinds - {str}:
        return narwhals.new_series(name, values, narwhals.String(), backend=backend)
    largest = max((abs(value) for value in values if type(value) is int), default=0)
    if kinds == {int, float} and largest <= _MAX_EXACT_INTEGER:
        numbers = cast("list[float | None]", values)
        return narwhals.new_series(
            name, [None if number is None else float(number) for number in numbers], backend=backend
        )
    if is_pandas and kinds == {int} and None in values and largest < _MAX_INTEGER:
        series = backend.to_native_namespace().Series(values, name=name, dtype="Int64")
        return narwhals.from_native(series, series_only=True)
    if is_pandas and int in kinds and (None in values or float in kinds):
        return narwhals.new_series(name, values, narwhals.Object(), backend=backend)  # a float would lose digits
    if is_pandas or (len(kinds) == 1 and not kinds & {list, dict} and largest < _MAX_INTEGER):
        return narwhals.new_series(name, values, backend=backend)
    return narwhals.new_series(name, [_as_text(value) for value in values], narwhals.String(), backend=backend)


def _as_text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    try:
        return types.encode(value).decode()
    except TypeError:  # a cell of the input
        return str(value)
