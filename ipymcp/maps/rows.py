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
    from collections.abc import Callable, Generator

    from ipymcp.schema.tool_schema import ToolSchema


OPTIONS: Final = frozenset(
    {"cache", "columns", "concurrency", "constants", "on_error", "on_progress", "rate", "retries", "stop_after", "to"}
)
"""Options of a map, which are suggested for a misspelt argument."""


_OTHER_OPTIONS: Final = {
    **dict.fromkeys(("batch_size", "max_workers", "n_jobs", "processes", "threads", "workers"), "write concurrency=…"),
    "timeout": "it is an option of the calls: ….options(timeout=…).map(…)",
}
"""Options of other libraries' maps, and what is written here instead."""


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
            kept.append(dict(cast("dict[Any, Any]", row)) if type(row) is dict else row)
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
            return ((row, row) async for row in self.values)
        if self.shown is not None:
            return zip(self.shown(), self.values, strict=True)
        return ((row, row) for row in self.values)


class _Binder:
    """Converts rows to arguments, encoded as JSON.

    Args:
        schema: The tool's input schema.
        columns: The column for each argument that has another name than its column.
        constants: The arguments that are the same in every row.
        note: Called once for each argument whose numbers are written as text, because the tool takes only strings.

    Raises:
        ArgumentError: An argument is unknown, or has a column and a constant value.
    """

    def __init__(
        self, schema: ToolSchema, columns: Mapping[str, str], constants: Mapping[str, Any], note: Callable[[str], None]
    ) -> None:
        parameters = schema.parameters
        self.columns = columns
        self._schema = schema
        self._constants = constants
        self._note = note
        self._noted: set[str] = set()
        self._names = {name for each in parameters for name in (each.name, each.alias)}
        self._required = {name for each in parameters if each.required for name in (each.name, each.alias)}
        self._only_text: set[str] = set()
        for parameter in parameters:
            kinds = schema.tree.kinds(parameter.schema)
            if kinds is not None and "string" in kinds and kinds.isdisjoint(("integer", "number")):
                self._only_text |= {parameter.name, parameter.alias}
        free = [each for each in parameters if not {each.name, each.alias} & constants.keys()]
        self._positional = [each.name for each in free if each.required] or [each.name for each in free[:1]]
        for name in () if schema.is_open else (*columns, *constants):
            if name not in self._names:
                near = nearest(name, self._names | OPTIONS) if isinstance(cast("object", name), str) else None
                near = _OTHER_OPTIONS.get(name) or near
                hint = near or (f"it has {', '.join(sorted(self._names))}" if self._names else "it takes none")
                raise self.error(f"no argument {shown(name)}", hint)
        if twice := next((name for name in columns if name in constants), None):
            raise self.error(f"argument {twice!r} has a column and a constant value: remove one")

    def error(self, message: str, hint: str | None = None) -> ArgumentError:
        """An error of the tool."""
        return ArgumentError(message, server=self._schema.server, tool=self._schema.tool, hint=hint)

    def bind_row(self, row: Any) -> bytes:
        """Bind a mapping of arguments, a tuple of positional ones, or the value of the first one."""
        constants = self._constants
        if isinstance(row, Mapping):
            cells = cast("Mapping[str, Any]", row).items()
            given = {name: value for name, value in cells if name in self._required or not is_missing(value)}
            if isinstance(row, _PartRow):
                given = {name: value for name, value in given.items() if name in self._names and name not in constants}
            return self._encode({**given, **constants})
        values = cast("tuple[Any, ...]", row) if isinstance(row, tuple) else (row,)
        if len(values) > len(self._positional):
            return types.encode(self._schema.bind(values, constants))  # raises the error about too many arguments
        return self._encode({**constants, **dict(zip(self._positional, values, strict=False))})

    def cells_binder(self, keys: Mapping[str, Any]) -> Callable[[Any], bytes]:
        """A function that binds the cells of a row, which are found by the key of each argument."""
        places = [(name, key, name in self._required) for name, key in keys.items()]

        def bind(row: Any) -> bytes:
            arguments = dict(self._constants)
            for name, key, is_required in places:
                value = row[key]
                if not is_missing(value):
                    arguments[name] = value
                elif is_required:
                    arguments[name] = None
            return self._encode(arguments)

        return bind

    def _encode(self, arguments: dict[str, Any]) -> bytes:
        for name in self._only_text & arguments.keys():
            value = arguments[name]
            if not isinstance(value, bool) and isinstance(value, numbers.Real):
                arguments[name] = str(value)
                if name not in self._noted:
                    self._noted.add(name)
                    self._note(f"{name} is a string: numbers are sent as text, such as {arguments[name]!r}")
        return types.encode(self._schema.check(arguments))

    def bound_columns(self, available: Sequence[str], unnamed: int = 0) -> dict[str, str]:
        """The column of each argument.

        Args:
            available: The names of the table's columns.
            unnamed: Number of columns whose names are not text.

        Raises:
            ArgumentError: A column does not exist, a required argument has no column, or column names are not unique.
        """
        if len(set(available)) < len(available):
            raise self.error("the table has several columns of the same name", "rename them")
        listed = counted(len(available), "column") + (f": {', '.join(available[:20])}" if available else "")
        listed += f" and {unnamed:,} whose names are not text" if unnamed else ""
        for argument, column in self.columns.items():
            if column not in available:
                near = nearest(column, available) if isinstance(cast("object", column), str) else None
                raise self.error(f"no column {shown(column)} for argument {argument!r}", near or f"it has {listed}")
        parameters = self._schema.parameters
        exact = {name: each.name for each in parameters for name in (each.alias, each.name)}
        taken = {exact.get(name, name) for name in (*self.columns, *self._constants)}
        bound: dict[str, str] = {}
        for parameter in parameters:
            names = [name for name in (parameter.name, parameter.alias) if name in available]
            if names and names[0] and parameter.name not in taken:
                bound[parameter.name] = names[0]
        bound |= {exact.get(name, name): column for name, column in self.columns.items()}
        lacking = [each.name for each in parameters if each.required and each.name not in {*bound, *taken}]
        if len(lacking) == 1 and len(available) == 1 and not bound:
            return {lacking[0]: available[0]}  # a Series, or a table of one column
        if not lacking and (bound or self._constants):
            return bound
        wanted = lacking or [each.name for each in parameters]
        if not wanted:
            hint = "call it once, or map a list of empty dicts: [{}, {}]"
            raise self.error("takes no arguments, so no column can be bound", hint)
        if unnamed and not available:
            hint = "name the columns like the arguments: df.columns = […]"
        else:
            name = expression(self._schema.server, self._schema.tool)
            hint = f"{name}.map(…, columns={{{wanted[0]!r}: …}})"
        raise self.error(f"no column for {', '.join(wanted)}; the table has {listed}", hint)


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
    binder = _Binder(schema, columns or {}, constants, note)
    table = _table(source)
    if table is not None:
        return _table_rows(*table, binder)
    if _is_arrow(source):
        return _batch_rows(source, binder)
    if columns:
        raise binder.error(f"columns= is for tables, and this is {shown(source)}")
    if isinstance(source, str | bytes | Mapping) or not isinstance(source, Iterable | AsyncIterable):
        hint = ".map([…]) takes a list of rows"
        if isinstance(source, Mapping):
            hint = "a dict of columns: pandas.DataFrame({…}); one row: [{…}]"
        raise binder.error(f"expected a table or a list of rows, got {shown(cast('object', source))}", hint)
    rows, count = cast("Iterable[Any]", source), len(source) if isinstance(source, Sized) else None
    if isinstance(source, Iterator):
        rows = iter(_Unfolded(rows))
    elif isinstance(source, Sequence) and source and _is_part(cast("Sequence[object]", source)[0]):
        rows, count = _Unfolded(rows), None
    return Rows(binder.bind_row, rows, count=count)


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


class _Cells:
    """The rows of some columns of a table; can be iterated again."""

    def __init__(self, frame: Any, columns: list[str]) -> None:
        self._frame = frame.select(columns) if columns else None
        self._count = len(frame)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return self._frame.iter_rows() if self._frame is not None else itertools.repeat((), self._count)


def _table_rows(frame: Any, native: Callable[[Any], Any], binder: _Binder) -> Rows:
    available = _names(frame)
    bound = binder.bound_columns(available, len(frame.columns) - len(available))
    distinct = list(dict.fromkeys(bound.values()))
    bind = binder.cells_binder({name: distinct.index(column) for name, column in bound.items()})
    cells = _Cells(frame, distinct)
    return Rows(bind, cells, frame, native, bound, len(frame), available, shown=lambda: frame.iter_rows(named=True))


def _batch_rows(source: Any, binder: _Binder) -> Rows:
    """The rows of a stream of Arrow record batches, as dicts."""
    if hasattr(source, "__arrow_c_stream__"):
        try:
            reader = importlib.import_module("pyarrow").RecordBatchReader.from_stream(source)
        except ImportError:
            raise ArgumentError("an Arrow stream needs pyarrow", hint="%pip install pyarrow") from None
    elif hasattr(source, "scanner"):  # a dataset
        reader = source.scanner().to_reader()
    else:
        reader = source.to_reader() if hasattr(source, "to_reader") else source.read_all().to_reader()
    available = list(reader.schema.names)
    bound = binder.bound_columns(available)
    rows = (row for batch in reader for row in batch.to_pylist())

    def read_all() -> Rows:
        table = _table(reader.read_all())
        assert table is not None
        return _table_rows(*table, binder)

    return Rows(binder.cells_binder(bound), rows, columns=bound, available=available, read_all=read_all)


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
