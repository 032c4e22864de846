"""Maps of Dask DataFrames, which stay lazy: the calls are made, or repeated, when Dask computes a partition."""

from __future__ import annotations

import importlib
import re
import threading
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ipymcp.api.pickled_tool import dask_worker, pickled
from ipymcp.errors import ArgumentError, PolicyError
from ipymcp.maps.cluster import POLL_INTERVAL, WorkerTask
from ipymcp.maps.request import map_request
from ipymcp.maps.result import MapResult
from ipymcp.protocol import types
from ipymcp.protocol.types import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from ipymcp.maps.request import MapRequest, MapTarget
    from ipymcp.results.tool_result import ToolResult


_DTYPES: Final = {"integer": "Int64", "number": "float64", "boolean": "boolean", "string": "string"}
"""The pandas dtype of each JSON type; others are objects."""
_PYTHON: Final[dict[str, tuple[type, ...]]] = {
    "Int64": (int,),
    "float64": (int, float),
    "boolean": (bool,),
    "string": (str,),
}
_NULLABLE: Final = re.compile(r"(u?)int(\d*)|bool")
"""Names of pandas dtypes without a value for rows that failed."""
_REFUSED: Final = {"rate": "a rate", "to": "a file", "on_progress": "a function for its progress"}
"""Options of `.map` that need the process of the map."""
_MAX_DEPTH: Final = 8


class _Column(NamedTuple):
    """A column of results.

    Attributes:
        path: The names of the nested members that lead to the value in a result's data; empty for the data itself.
        name: The column's name in the output.
        dtype: The column's pandas dtype.
    """

    path: tuple[str, ...]
    name: str
    dtype: str


def is_lazy(rows: object) -> bool:
    """Whether an input is a Dask collection."""
    return type(rows).__module__.startswith("dask.") and hasattr(rows, "map_partitions")


def lazy_map(tool: Any, target: MapTarget, rows: Any, options: Mapping[str, Any]) -> Any:
    """The results of a Dask DataFrame or Series as a DataFrame.

    Args:
        tool: The tool.
        target: The tool as the target of a map.
        rows: The collection.
        options: The options of `.map`, and `meta`: the dtype of each result column, if the tool has no output schema.

    Raises:
        ArgumentError: The tool may change something, an option is invalid, the columns are not known, or the collection
            is no table.
        PolicyError: The calls are not allowed, or need consent.
    """
    options = dict(options)
    meta = options.pop("meta", None)
    origin = {"server": target.entry.server, "tool": target.entry.name}
    for name, words in _REFUSED.items():
        if options.get(name) is not None:
            raise ArgumentError(f"a lazy collection cannot have {words}", hint="map(…, executor=client)", **origin)
    if not hasattr(rows, "_meta"):
        message = f"a Dask {type(rows).__name__} is not mapped lazily, as a Dask DataFrame is"
        hint = f"{target.name}.map(rows.to_dataframe()), or {target.name}.map(rows.compute(), executor=client)"
        raise ArgumentError(message, hint=hint, **origin)
    if not hasattr(rows._meta, "columns"):
        rows = rows.to_frame(name=rows.name or "value")
    request = map_request(target, rows._meta, **options)
    if not request.is_repeatable:
        message = "may change something, and Dask may compute a partition more than once"
        raise ArgumentError(message, hint=f"{target.name}.map(rows.compute(), executor=client)", **origin)
    if pickled(target.host, target.session, target.entry, target.options).decision == "ask":
        hint = f"{target.name}.map(rows.compute(), executor=client) asks once for all its calls"
        raise PolicyError("needs your consent, which cannot be asked when Dask computes", hint=hint, **origin)
    columns = _columns(request, list(rows.columns), meta)
    call = partial(_call_frame, tool=tool, options=options, columns=columns)
    empty = rows._meta.iloc[:0]  # that of `Bag.to_dataframe` has a row
    return rows.map_partitions(call, meta=_with_results(empty, columns, [], []))


# -- the columns ------------------------------------------------------------------------------------------------------


def _columns(request: MapRequest, taken: list[Any], meta: Mapping[str, str] | None) -> list[_Column]:
    if meta is not None:
        found = [
            (tuple(name.split(".")) if name != "result" else (), name, _with_nulls(str(dtype)))
            for name, dtype in meta.items()
        ]
    else:
        raw = request.target.entry.definition.outputSchema
        schema = types.loads(raw) if len(raw) else None
        found = [*_schema_columns(schema, schema)] if is_object(schema) else []
    if not found:
        entry = request.target.entry
        hint = f'{request.name}.map(rows, meta={{"COLUMN": "float64"}}), or map(rows.compute(), executor=client)'
        message = "declares no output schema, which a lazy table needs"
        raise ArgumentError(message, server=entry.server, tool=entry.name, hint=hint)
    columns: list[_Column] = []
    for path, name, dtype in found:
        while name in taken or name == "error":
            name += "_result"
        taken.append(name)
        columns.append(_Column(path, name, dtype))
    return columns


def _schema_columns(schema: Any, root: Any, path: tuple[str, ...] = ()) -> Generator[tuple[tuple[str, ...], str, str]]:
    """Yield path, name and dtype of the columns of results with a schema."""
    schema = _resolved(schema, root)
    properties = schema.get("properties")
    if is_object(properties) and properties and len(path) < _MAX_DEPTH:
        if not path and (schema.get("x-fastmcp-wrap-result") is True or set(properties) == {"result"}):
            inner = _resolved(properties.get("result"), root)
            if is_object(inner.get("properties")):
                yield from _schema_columns(inner, root)
            else:
                yield (), "result", _dtype(inner)
            return
        for name, member in properties.items():
            yield from _schema_columns(member, root, (*path, name))
    elif path:
        yield path, ".".join(path), _dtype(schema)


def _resolved(schema: Any, root: Any) -> dict[str, Any]:
    """A schema with its references within the document resolved, and without the alternative `null`."""
    for _ in range(_MAX_DEPTH):
        if not is_object(schema):
            return {}
        reference, choices = schema.get("$ref"), schema.get("anyOf") or schema.get("oneOf")
        if isinstance(reference, str) and reference.startswith("#/"):
            found: Any = root
            for step in reference[2:].split("/"):
                found = found.get(step) if is_object(found) else None
            schema = found
        elif is_array(choices):
            real = [one for one in choices if not (is_object(one) and one.get("type") == "null")]
            schema = real[0] if len(real) == 1 else {}
        else:
            return schema
    return {}


def _with_nulls(dtype: str) -> str:
    """The pandas dtype of the same values that also has missing ones."""
    found = _NULLABLE.fullmatch(dtype)
    if found is None:
        return dtype
    return "boolean" if dtype == "bool" else f"{'U' if found[1] else ''}Int{found[2] or '64'}"


def _dtype(schema: dict[str, Any]) -> str:
    kind = schema.get("type")
    if is_array(kind):
        real = [one for one in kind if one != "null"]
        kind = real[0] if len(real) == 1 else None
    return _DTYPES.get(kind, "object") if isinstance(kind, str) else "object"


# -- when Dask computes -----------------------------------------------------------------------------------------------


def _call_frame(frame: Any, tool: Any, options: Mapping[str, Any], columns: Sequence[_Column]) -> Any:
    """Make the calls for the rows of a partition."""
    request = map_request(tool.map.target(), frame, **options)
    request.bind()
    mapped = MapResult(request)
    with _cancelled_with_task(mapped):
        mapped.wait()
    errors: dict[Any, str] = {row["row"]: str(row["error"]) for row in mapped.errors}
    return _with_results(frame, columns, mapped.results, [errors.get(row) for row in range(len(mapped))])


@contextmanager
def _cancelled_with_task(result: MapResult) -> Generator[None]:
    """Cancel the map when Dask's task is cancelled."""
    worker = dask_worker()
    if worker is None:
        yield
        return
    task, over = WorkerTask(worker), threading.Event()

    def watch() -> None:
        while not over.wait(POLL_INTERVAL):
            if task.is_cancelled:
                result.cancel()

    threading.Thread(target=watch, name="ipymcp-dask-task", daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _with_results(
    frame: Any, columns: Sequence[_Column], results: Sequence[ToolResult | None], errors: list[str | None]
) -> Any:
    """A partition with result columns and `error`; a value of another type than its column's becomes an error."""
    pandas = importlib.import_module("pandas")
    errors = [*errors]
    frame = frame.copy(deep=False)
    for column in columns:
        values: list[Any] = []
        allowed = _PYTHON.get(column.dtype)
        for row, result in enumerate(results):
            value = None if result is None else result.data
            for step in column.path:
                value = value.get(step) if is_object(value) else None
            reason = ""
            if value is not None and allowed:
                is_bool = isinstance(value, bool) and column.dtype != "boolean"
                if is_bool or not isinstance(value, allowed):
                    reason = "does not match its schema"
            elif value is not None and column.dtype != "object":
                try:
                    pandas.Series([value], dtype=column.dtype)
                except (TypeError, ValueError, OverflowError):
                    reason = f"is not of type {column.dtype}"
            if reason:
                errors[row] = errors[row] or f"{'.'.join(column.path) or 'the result'} {reason}"
            values.append(None if reason else value)
        frame[column.name] = pandas.Series(values, index=frame.index, dtype=column.dtype)
    name = "error" if "error" not in frame.columns else "error_result"
    frame[name] = pandas.Series(errors, index=frame.index, dtype="string")
    return frame
