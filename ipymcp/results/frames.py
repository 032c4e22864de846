"""Results as DataFrames of pandas if it is installed, else of polars; both are imported only when needed."""

from __future__ import annotations

import ast
import csv
import datetime
import importlib
import io
import math
import re
import uuid
import zoneinfo
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ipymcp.errors import McpError
from ipymcp.files import read_file
from ipymcp.protocol import types
from ipymcp.protocol.types import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType


Record = dict[str, Any]
_DELIMITERS = ",\t;|"
_MAX_EXACT_INTEGER = 2**53
"""Larger integers lose digits as floats."""
_MAX_INTEGER = 2**63
"""Columns of integers have 64 bits."""
_MAX_LITERAL = 1_000_000
_MAX_LITERAL_DEPTH = 20
_STRING = re.compile(r"'(?:[^'\\\n]|\\.)*+'|\"(?:[^\"\\\n]|\\.)*+\"")
_BRACKET = re.compile(r"[\[\](){}]")
_OPERATORS = re.compile(r"[-+~*/%@|&^<>=!.]\s*[-+~*/%@|&^<>=!]|[\w)\]}]\s*[-+*/%@|&^<>=](?<!\de[-+])(?<!\dE[-+])")

_KEYWORD = re.compile(r"([(,]\s*)(?:days|seconds|microseconds|tzinfo|fold|key)=")
"""Keywords of the constructors below, whose `=` is no operator."""
_ZONE = re.compile(r"[\w+-]+(?:/[\w+-]+)*", re.ASCII)
_MAX_ZONE_BYTES = 100_000
_NAMED_VALUES: dict[str, Any] = {
    "nan": math.nan,
    "inf": math.inf,
    "datetime.timezone.utc": datetime.UTC,
}


@cache
def _time_zone(key: str) -> datetime.tzinfo:
    """A time zone of the system. The package `tzdata`, which `ZoneInfo` may import from any folder, is not used.

    Raises:
        ValueError: The system has no such zone.
    """
    if key in ("UTC", "Etc/UTC"):
        return datetime.UTC
    found = (Path(folder, key) for folder in zoneinfo.TZPATH if _ZONE.fullmatch(key))
    file = next((one for one in found if one.is_file()), None)
    if file is None:
        raise ValueError(f"no time zone {key!r}")
    return zoneinfo.ZoneInfo.from_file(io.BytesIO(read_file(file, _MAX_ZONE_BYTES)), key)


_CONSTRUCTORS: dict[str, Callable[..., Any]] = {
    "Decimal": Decimal,
    "UUID": uuid.UUID,
    "datetime.datetime": datetime.datetime,
    "datetime.date": datetime.date,
    "datetime.time": datetime.time,
    "datetime.timedelta": datetime.timedelta,
    "datetime.timezone": datetime.timezone,
    "zoneinfo.ZoneInfo": _time_zone,
}
"""The types of columns of SQL databases, by the names in their `repr`."""


def to_frame(data: Any, text: str, *, server: str | None = None, tool: str | None = None) -> Any:
    """Convert a result to a pandas (else polars) DataFrame.

    Accepts a list of records, a dict of equally long columns, a dict with one list of records among its members, a list
    of rows or of scalars (one column, `value`), one record, or text with NDJSON, CSV, TSV or such data as a Python
    literal. Nested records become columns `a.b`.

    Args:
        data: The result's data.
        text: The result's text, parsed if the data is a string.
        server: The server's name, for errors.
        tool: The tool's name, for errors.

    Raises:
        McpError: Neither library is installed, or the result is not a table.
    """
    try:
        library = _library()
        frame = _from_text(text, library) if isinstance(data, str) else _from_data(data, library)
    except McpError as error:
        error.server, error.tool = server, tool
        raise
    if frame is None:
        raise McpError(
            f"the answer is not a table: {_describe(data)}",
            server=server,
            tool=tool,
            hint="make the DataFrame yourself from .data or .text",
        )
    return frame


def find_records(data: Any) -> list[Record] | None:
    """The list of records: `data` itself, or the only such list among the members of a dict; None if there is none."""
    if _is_records(data):
        return data
    if is_object(data):
        found = [member for member in data.values() if _is_records(member)]
        return found[0] if len(found) == 1 else None
    return None


def find_rows(data: Any) -> list[Record] | None:
    """The rows of a table as records, without any library; None if `data` is not a table.

    Accepts the same data as `to_frame` without conversion: nested records stay nested, and CSV cells are strings.
    """
    if isinstance(data, str):
        return _read_ndjson(data) or find_rows(read_literal(data)) or _read_csv(data)
    if records := find_records(data):
        return records
    if is_array(data) and data:
        if all(is_array(row) for row in data):
            return _named(data)
        return None if any(_is_nested(item) for item in data) else [{"value": item} for item in data]
    if is_object(data) and _are_columns(data):
        return [dict(zip(data, row, strict=True)) for row in zip(*data.values(), strict=True)]
    return None


def _is_records(value: Any) -> bool:
    return is_array(value) and bool(value) and all(is_object(item) for item in value)


def _library() -> ModuleType:
    for name in ("pandas", "polars"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise McpError("a DataFrame needs pandas or polars, and neither is installed", hint="%pip install pandas")


def _from_data(data: Any, library: ModuleType) -> Any:
    if records := find_records(data):
        return _from_records([_flatten(record) for record in records], library)
    if is_array(data):
        return _from_list(data, library)
    if is_object(data) and data:
        return _from_dict(data, library)
    return None


def _from_list(data: list[Any], library: ModuleType) -> Any:
    if not data:
        return library.DataFrame()
    if all(is_array(row) for row in data):
        return _from_records(_named(data), library)
    if any(_is_nested(item) for item in data):
        return None
    return _from_columns({"value": data}, library)


def _from_dict(data: Record, library: ModuleType) -> Any:
    if _are_columns(data):
        return _from_columns(data, library)
    record = _flatten(data)
    return None if any(is_array(value) for value in record.values()) else _from_records([record], library)


def _named(rows: list[Any]) -> list[Record]:
    return [{str(place): cell for place, cell in enumerate(row)} for row in rows]


def _is_nested(value: Any) -> bool:
    return is_array(value) or is_object(value)


def _are_columns(data: Record) -> bool:
    columns = [value for value in data.values() if is_array(value)]
    return len(columns) == len(data) and len({len(column) for column in columns}) == 1


def _from_columns(columns: Record, library: ModuleType) -> Any:
    if library.__name__ == "polars":
        return library.DataFrame(columns, strict=False)
    return library.DataFrame(columns)


def _from_records(records: Sequence[Record], library: ModuleType) -> Any:
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


def _from_text(text: str, library: ModuleType) -> Any:
    if records := _read_ndjson(text):
        return _from_records([_flatten(record) for record in records], library)
    frame = _from_data(read_literal(text), library)
    if frame is not None:
        return frame
    delimiter = _delimiter(text)
    if delimiter is None:
        return None
    try:
        if library.__name__ == "polars":
            return library.read_csv(text.strip().encode(), separator=delimiter, infer_schema_length=None)
        return library.read_csv(io.StringIO(text.strip()), sep=delimiter)
    except Exception as error:  # pandas and polars raise unrelated errors for malformed CSV
        raise McpError(
            f"the text looks like CSV but cannot be read as such: {error}", hint="read it from .text"
        ) from error


def read_literal(text: str) -> Any:
    """Parse a list, tuple or dict written by Python's `repr`, as SQL servers send; None if it is not one.

    Only literals are read, also those of dates, times, Decimal and UUID, and dicts on a line each; with limits that
    protect the parser: a million characters, twenty levels of nesting, no chains of operators.
    """
    text = text.strip()
    if not text.startswith(("[", "{", "(")) or len(text) > _MAX_LITERAL:
        return None
    lines = text.split("\n") if text.startswith("{") and "\n" in text else []
    if lines and all(line.startswith("{") and line.rstrip().endswith("}") for line in lines if line.strip()):
        text = f"[{','.join(line for line in lines if line.strip())}]"
    bare = _STRING.sub("''", text)
    depth = 0
    for bracket in _BRACKET.findall(bare):
        depth += 1 if bracket in "[{(" else -1
        if not 0 <= depth <= _MAX_LITERAL_DEPTH:
            return None
    if _OPERATORS.search(_KEYWORD.sub(r"\1", bare)):
        return None
    try:
        return _as_json(_literal(ast.parse(text, mode="eval").body))
    except (ValueError, SyntaxError, TypeError, ArithmeticError, LookupError, MemoryError, RecursionError, OSError):
        return None


def _literal(node: ast.expr) -> Any:
    """The value of a parsed literal.

    Raises:
        ValueError: The node is not a literal.
    """
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Dict):
        return {_literal(_key(key)): _literal(value) for key, value in zip(node.keys, node.values, strict=True)}
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return [_literal(member) for member in node.elts]
    name = _dotted(node)
    if name in _NAMED_VALUES:
        return _NAMED_VALUES[name]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        number = _literal(node.operand)
        if not isinstance(number, int | float):
            raise ValueError("a sign without a number")
        return -number if isinstance(node.op, ast.USub) else number
    if isinstance(node, ast.Call) and (made := _CONSTRUCTORS.get(_dotted(node.func))) is not None:
        if any(one.arg is None for one in node.keywords):
            raise ValueError("** is not a literal")
        return made(*map(_literal, node.args), **{str(one.arg): _literal(one.value) for one in node.keywords})
    raise ValueError("not a literal")


def _key(node: ast.expr | None) -> ast.expr:
    if node is None:
        raise ValueError("a dict within a dict is not a literal")
    return node


def _dotted(node: ast.expr) -> str:
    """The dotted name that a node is, such as `datetime.date`; empty if it is another expression."""
    if isinstance(node, ast.Name):
        return node.id
    owner = _dotted(node.value) if isinstance(node, ast.Attribute) else ""
    return f"{owner}.{node.attr}" if isinstance(node, ast.Attribute) and owner else ""


def _as_json(value: Any) -> Any:
    """A value of lists and dicts with strings as keys, as in JSON."""
    if isinstance(value, dict):
        return {str(key): _as_json(member) for key, member in cast("dict[object, object]", value).items()}
    if isinstance(value, list | tuple | set):
        return [_as_json(member) for member in cast("list[object]", value)]
    return value


def _read_ndjson(text: str) -> list[Record] | None:
    records: list[Record] = []
    for line in text.splitlines():
        if not line.strip():
            continue
        if not line.lstrip().startswith("{"):
            return None
        try:
            record = types.loads(line.encode())
        except ValueError:
            return None
        if not is_object(record):
            return None
        records.append(record)
    return records or None


def _read_csv(text: str) -> list[Record] | None:
    delimiter = _delimiter(text)
    if delimiter is None:
        return None
    try:
        header, *rows = (row for row in csv.reader(io.StringIO(text.strip()), delimiter=delimiter, strict=True) if row)
    except csv.Error:
        return None
    if len(set(header)) < len(header) or any(len(row) != len(header) for row in rows):
        return None  # records would lose cells
    return [dict(zip(header, row, strict=True)) for row in rows]


def _delimiter(text: str) -> str | None:
    """The delimiter with which the first hundred rows all have the same number of cells, at least two."""
    for delimiter in _DELIMITERS:
        try:
            reader = csv.reader(io.StringIO(text.strip()), delimiter=delimiter, strict=True)
            widths = [len(row) for row, _ in zip(reader, range(100), strict=False) if row]
        except csv.Error:
            continue
        if len(widths) > 1 and widths[0] > 1 and len(set(widths)) == 1:
            return delimiter
    return None


def _describe(data: Any) -> str:
    if isinstance(data, str):
        return f"text of {len(data):,} characters that is neither NDJSON, CSV nor a Python list of rows"
    if is_object(data):
        keys = ", ".join(list(data)[:5])
        return f"a dict with {keys}{', …' if len(data) > 5 else ''}" if data else "an empty dict"
    if is_array(data):
        return "a list of records mixed with other values"
    return f"{type(data).__name__} {data!r}"


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
    found = dict(given)
    for name, values in columns.items():
        while name in found:
            name += "_result"
        found[name] = values
    return found


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
        return narwhals.new_series(name, [None if one is None else float(one) for one in numbers], backend=backend)
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
