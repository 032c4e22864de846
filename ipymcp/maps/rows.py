"""The rows of a table or of any iterable as arguments of a tool.

A table may be of pandas, polars, pyarrow, DuckDB or another library that narwhals knows; narwhals is imported only for
these.
"""

from __future__ import annotations

import importlib
import itertools
import numbers
from collections.abc import AsyncIterable, Iterable, Iterator, Mapping, Sequence, Sized
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from msgspec import Struct
from msgspec.structs import replace

from ipymcp.argument_checks import shown
from ipymcp.errors import ArgumentError
from ipymcp.names import expression, nearest
from ipymcp.protocol import types
from ipymcp.schema.coercion import is_missing
from ipymcp.text import counted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Generator

    from ipymcp.schema.tool_schema import ToolSchema


OPTIONS: Final = frozenset(
    {"cache", "columns", "concurrency", "constants", "on_error", "on_progress", "rate", "retries", "stop_after", "to"}
)
"""Options of a map, which are suggested for a misspelt argument."""


class RowProblem(NamedTuple):
    """A row that does not fit the tool.

    Attributes:
        row: The row's number, from 0.
        column: The column or argument; None if the row as a whole is wrong.
    """

    row: int
    column: str | None
    error: ArgumentError


class Rows(Struct):
    """The rows of an input.

    Attributes:
        bind: Converts a row to the encoded JSON arguments of a call; raises ArgumentError.
        values: The rows, in a form that `bind` accepts.
        frame: The narwhals DataFrame, if the input is a table.
        native: Converts a narwhals DataFrame to the type of the input.
        columns: The column for each bound argument, if the input is a table.
        count: The number of rows; None if unknown before they are read.
        available: The names of the columns, if the input is a table.
    """

    bind: Callable[[Any], bytes]
    values: Iterable[Any] | AsyncIterable[Any]
    frame: Any = None
    native: Callable[[Any], Any] | None = None
    columns: Mapping[str, str] = {}
    count: int | None = None
    available: Sequence[str] = ()
    shown: Callable[[], Iterable[Any]] | None = None
    """Returns the rows as a user sees them, if `values` are only the bound cells."""
    read_all: Callable[[], Rows] | None = None
    """Returns the same rows as a table, if they are a stream of record batches."""

    def keep(self) -> Generator[None, None, Rows]:
        """The same rows, independent of later changes of the input and not used up by reading them.

        Yields after every row that it reads, so that other code can run meanwhile.
        """
        if self.read_all is not None:
            return self.read_all()
        if self.frame is not None:
            return replace(self, frame=self.frame.clone())
        if isinstance(self.values, AsyncIterable):
            return self
        kept: list[Any] = []
        for row in self.values:
            kept.append(_kept_row(row))
            yield
        return replace(self, values=kept)

    def input_columns(self) -> dict[str, list[Any]]:
        """The columns of rows that are kept and not a table: the members of mappings; `row` for other rows."""
        rows = list(cast("Iterable[Any]", self.values))
        columns: dict[str, list[Any]] = {}
        for number, row in enumerate(rows):
            members = cast("Mapping[Any, Any]", row) if isinstance(row, Mapping) else {"row": row}
            for name, value in members.items():
                columns.setdefault(str(name), [None] * len(rows))[number] = value
        return columns

    def column_of(self, argument: str | None) -> str | None:
        """The column of an argument, or the argument if it is bound to none."""
        return self.columns.get(argument, argument) if argument is not None else None

    def pairs(self) -> Iterable[tuple[Any, Any]] | AsyncIterable[tuple[Any, Any]]:
        """Each row as the user sees it, and in the form that `bind` accepts."""
        if isinstance(self.values, AsyncIterable):
            return _apairs(self.values)
        if self.shown is not None:
            return zip(self.shown(), self.values, strict=True)
        return ((row, row) for row in self.values)


async def _apairs(rows: AsyncIterable[Any]) -> AsyncIterator[tuple[Any, Any]]:
    async for row in rows:
        yield row, row


def _kept_row(row: Any) -> Any:
    if type(row) is dict:
        return dict(cast("dict[Any, Any]", row))
    return row


class _ArgumentEncoder:
    """Encodes the arguments of a row as JSON, and numbers as text where the tool takes only strings.

    Args:
        schema: The tool's input schema.
        note: Called once for each argument whose numbers are written as text.
    """

    def __init__(self, schema: ToolSchema, note: Callable[[str], None]) -> None:
        self.schema = schema
        self._note = note
        only_text = [each for each in schema.parameters if _is_text_only(schema.tree.kinds(each.schema))]
        self._only_text = {name for each in only_text for name in (each.name, each.alias)}
        self._noted: set[str] = set()

    def __call__(self, arguments: dict[str, Any]) -> bytes:
        for name in self._only_text & arguments.keys():
            value = arguments[name]
            if not isinstance(value, bool) and isinstance(value, numbers.Real):
                arguments[name] = str(value)
                if name not in self._noted:
                    self._noted.add(name)
                    self._note(f"{name} is a string: numbers are sent as text, such as {arguments[name]!r}")
        return types.encode(self.schema.check(arguments))


def _is_text_only(kinds: frozenset[str] | None) -> bool:
    return kinds is not None and "string" in kinds and kinds.isdisjoint(("integer", "number"))


def read_rows(
    source: object,
    schema: ToolSchema,
    columns: Mapping[str, str] | None,
    constants: Mapping[str, Any],
    note: Callable[[str], None],
) -> Rows:
    """Read the rows of an input, and determine how they become arguments.

    In a table, columns named like arguments are bound by name. Other rows are mappings of arguments, tuples of
    positional arguments, or values of the first required argument (of the first argument if none is required).

    Args:
        source: A table, a Series, or an iterable.
        schema: The tool's input schema.
        columns: The column for each argument that has another name than its column.
        constants: The arguments that are the same in every row.
        note: Called with what the user should know about the sent values.

    Raises:
        ArgumentError: An argument or a column is unknown, or the input has no rows.
    """
    columns = columns or {}
    if not schema.is_open:
        _check_names(schema, (*columns, *constants))
    if twice := next((name for name in columns if name in constants), None):
        raise _error(schema, f"argument {twice!r} has a column and a constant value: remove one")
    encode = _ArgumentEncoder(schema, note)
    table = _table(source)
    if table is not None:
        return _table_rows(*table, encode, columns, constants)
    if _is_arrow(source):
        return _batch_rows(_reader(source), encode, columns, constants)
    if columns:
        raise _error(schema, f"columns= is for tables, and this is {shown(source)}")
    if isinstance(source, str | bytes | Mapping) or not isinstance(source, Iterable | AsyncIterable):
        hint = ".map([…]) takes a list of rows"
        if isinstance(source, Mapping):
            hint = "a dict of columns: pandas.DataFrame({…}); one row: [{…}]"
        raise _error(schema, f"expected a table or a list of rows, got {shown(cast('object', source))}", hint)
    rows, count = cast("Iterable[Any]", source), len(source) if isinstance(source, Sized) else None
    if isinstance(source, Iterator):
        rows = iter(_Unfolded(rows))
    elif isinstance(source, Sequence) and source and _is_part(cast("Sequence[object]", source)[0]):
        rows, count = _Unfolded(rows), None
    return Rows(_row_binder(encode, constants), rows, count=count)


def _check_names(schema: ToolSchema, names: Iterable[str]) -> None:
    known = {name for each in schema.parameters for name in (each.name, each.alias)}
    for name in names:
        if name not in known:
            near = nearest(name, known | OPTIONS) if isinstance(cast("object", name), str) else None
            hint = near or (f"it has {', '.join(sorted(known))}" if known else "it takes none")
            raise _error(schema, f"no argument {shown(name)}", hint)


def _error(schema: ToolSchema, message: str, hint: str | None = None) -> ArgumentError:
    return ArgumentError(message, server=schema.server, tool=schema.tool, hint=hint)


# -- tables -----------------------------------------------------------------------------------------------------------


def column_names(source: object) -> list[str]:
    """The names of a table's columns; empty for any other input."""
    found = _table(source)
    if found is None:
        return list(cast("Any", source).schema.names) if _is_arrow(source) and hasattr(source, "schema") else []
    return _names(found[0])


def _names(frame: Any) -> list[str]:
    return [name for name in frame.columns if isinstance(name, str)]


def _table(source: object) -> tuple[Any, Callable[[Any], Any]] | None:
    """The input as a narwhals DataFrame, and the function that converts back; None if it is not a table."""
    if type(source).__module__.partition(".")[0] in ("builtins", "collections", "itertools"):
        return None  # without importing narwhals
    import narwhals

    read: Any = narwhals.from_native
    try:
        found = read(source, pass_through=True, allow_series=True)
    except narwhals.exceptions.DuplicateError:
        raise ArgumentError("the table has several columns of the same name", hint="rename them") from None
    except narwhals.exceptions.NarwhalsError as error:
        raise ArgumentError(f"the table cannot be read: {error}") from error
    if found is source:
        return None
    kind = type(found).__name__
    if kind == "Series":
        named = found if isinstance(found.name, str) and found.name else found.alias("value")
        return named.to_frame(), narwhals.to_native
    if kind == "DataFrame":
        return found, narwhals.to_native
    if found.implementation.is_duckdb():
        return found.collect(backend="pyarrow"), partial(_to_duckdb, source)
    return found.collect(), lambda frame: frame.lazy().to_native()


def _to_duckdb(relation: Any, frame: Any) -> Any:
    """A relation of the same connection as another one."""
    rows = frame.to_native()  # DuckDB finds the variable by its name
    found = relation.query("ipymcp_input", "select * from rows")
    del rows
    return found


def _is_arrow(source: object) -> bool:
    """Whether an input that is not a table has Arrow data: record batches, a stream or file of them, or a dataset."""
    return hasattr(source, "__arrow_c_stream__") or type(source).__module__.partition(".")[0] == "pyarrow"


def _reader(source: Any) -> Any:
    """A `RecordBatchReader` of Arrow data."""
    if hasattr(source, "__arrow_c_stream__"):
        try:
            return importlib.import_module("pyarrow").RecordBatchReader.from_stream(source)
        except ImportError:
            raise ArgumentError("an Arrow stream needs pyarrow", hint="%pip install pyarrow") from None
    if hasattr(source, "scanner"):  # a dataset
        return source.scanner().to_reader()
    return source.to_reader() if hasattr(source, "to_reader") else source.read_all().to_reader()


class _Cells:
    """The rows of some columns of a table; can be iterated again."""

    def __init__(self, frame: Any, columns: list[str]) -> None:
        self._frame = frame.select(columns) if columns else None
        self._count = len(frame)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return self._frame.iter_rows() if self._frame is not None else itertools.repeat((), self._count)


def _table_rows(
    frame: Any,
    native: Callable[[Any], Any],
    encode: _ArgumentEncoder,
    columns: Mapping[str, str],
    constants: Mapping[str, Any],
) -> Rows:
    available = _names(frame)
    bound = _bound_columns(available, encode.schema, columns, constants, len(frame.columns) - len(available))
    distinct = list(dict.fromkeys(bound.values()))
    place = {column: at for at, column in enumerate(distinct)}
    given = [(name, place[column]) for name, column in bound.items()]
    arguments = _argument_maker(given, encode, constants)
    cells = _Cells(frame, distinct)
    return Rows(
        arguments, cells, frame, native, bound, len(frame), available, shown=lambda: frame.iter_rows(named=True)
    )


def _batch_rows(
    reader: Any, encode: _ArgumentEncoder, columns: Mapping[str, str], constants: Mapping[str, Any]
) -> Rows:
    """The rows of a stream of Arrow record batches, as dicts."""
    available = list(reader.schema.names)
    bound = _bound_columns(available, encode.schema, columns, constants)
    arguments = _argument_maker(list(bound.items()), encode, constants)
    rows = (row for batch in reader for row in batch.to_pylist())

    def read_all() -> Rows:
        table = _table(reader.read_all())
        assert table is not None
        return _table_rows(*table, encode, columns, constants)

    return Rows(arguments, rows, columns=bound, available=available, read_all=read_all)


def _argument_maker(
    given: Sequence[tuple[str, Any]], encode: _ArgumentEncoder, constants: Mapping[str, Any]
) -> Callable[[Any], bytes]:
    required = {each.name for each in encode.schema.parameters if each.required}
    places = [(name, place, name in required) for name, place in given]

    def bind(row: Any) -> bytes:
        arguments = dict(constants)
        for name, place, is_required in places:
            value = row[place]
            if not is_missing(value):
                arguments[name] = value
            elif is_required:
                arguments[name] = None
        return encode(arguments)

    return bind


def _bound_columns(
    available: Sequence[str],
    schema: ToolSchema,
    columns: Mapping[str, str],
    constants: Mapping[str, Any],
    unnamed: int = 0,
) -> dict[str, str]:
    """The column of each argument.

    Args:
        available: The names of the table's columns.
        schema: The tool's input schema.
        columns: The column for each argument that has another name than its column.
        constants: The arguments that are the same in every row.
        unnamed: Number of columns whose names are not text.

    Raises:
        ArgumentError: A column does not exist, a required argument has no column, or column names are not unique.
    """
    if len(set(available)) < len(available):
        raise _error(schema, "the table has several columns of the same name", "rename them")
    for argument, column in columns.items():
        if column not in available:
            near = nearest(column, available) if isinstance(cast("object", column), str) else None
            raise _error(
                schema,
                f"no column {shown(column)} for argument {argument!r}",
                near or f"it has {_listed(available, unnamed)}",
            )
    exact = {name: each.name for each in schema.parameters for name in (each.alias, each.name)}
    taken = {exact.get(name, name) for name in (*columns, *constants)}
    named = {
        each.name: next((one for one in (each.name, each.alias) if one in available), "") for each in schema.parameters
    }
    bound = {name: column for name, column in named.items() if column and name not in taken}
    bound |= {exact.get(name, name): column for name, column in columns.items()}
    required = [each.name for each in schema.parameters if each.required]
    lacking = [name for name in required if name not in bound and name not in taken]
    if len(lacking) == 1 and len(available) == 1 and not bound:
        return {lacking[0]: available[0]}  # a Series, or a table of one column
    if lacking or not (bound or constants):
        wanted = lacking or [each.name for each in schema.parameters]
        if not wanted:
            hint = "call it once, or map a list of empty dicts: [{}, {}]"
            raise _error(schema, "takes no arguments, so no column can be bound", hint)
        shown_columns = _listed(available, unnamed)
        if unnamed and not available:
            hint = "name the columns like the arguments: df.columns = […]"
            raise _error(schema, f"no column for {', '.join(wanted)}; the table has {shown_columns}", hint)
        hint = f"{expression(schema.server, schema.tool)}.map(…, columns={{{wanted[0]!r}: …}})"
        raise _error(schema, f"no column for {', '.join(wanted)}; the table has {shown_columns}", hint)
    return bound


def _listed(columns: Sequence[str], unnamed: int) -> str:
    names = f": {', '.join(columns[:20])}" if columns else ""
    more = f" and {unnamed:,} whose names are not text" if unnamed else ""
    return f"{counted(len(columns), 'column')}{names}{more}"


# -- parts of tables ------------------------------------------------------------------------------------------------


class _PartRow(dict[str, Any]):
    """A row of a part of a table; columns that are no arguments are not sent."""


class _Unfolded:
    """The rows of an iterable, with the rows of each table in the place of the table, such as a batch or a chunk."""

    def __init__(self, rows: Iterable[Any]) -> None:
        self._rows = rows

    def __iter__(self) -> Iterator[Any]:
        for row in self._rows:
            if not _is_part(row):
                yield row
            elif (table := _table(row)) is not None:
                yield from map(_PartRow, table[0].iter_rows(named=True))
            else:
                yield from map(_PartRow, row.to_pylist())  # a record batch


def _is_part(row: object) -> bool:
    return hasattr(row, "__arrow_c_stream__") and hasattr(row, "columns")


# -- other rows -------------------------------------------------------------------------------------------------------


def _row_binder(encode: _ArgumentEncoder, constants: Mapping[str, Any]) -> Callable[[Any], bytes]:
    schema = encode.schema
    required = {name for each in schema.parameters if each.required for name in (each.name, each.alias)}
    known = {name for each in schema.parameters for name in (each.name, each.alias)}
    free = [each for each in schema.parameters if not {each.name, each.alias} & constants.keys()]
    places = [each.name for each in free if each.required] or [each.name for each in free[:1]]

    def bind(row: Any) -> bytes:
        if isinstance(row, Mapping):
            cells = cast("Mapping[str, Any]", row).items()
            given = {name: value for name, value in cells if name in required or not is_missing(value)}
            if isinstance(row, _PartRow):
                given = {name: value for name, value in given.items() if name in known and name not in constants}
            return encode({**constants, **given})
        values = cast("tuple[Any, ...]", row) if isinstance(row, tuple) else (row,)
        if len(values) > len(places):
            return types.encode(schema.bind(values, constants))  # raises the error about too many arguments
        return encode({**constants, **dict(zip(places, values, strict=False))})

    return bind
