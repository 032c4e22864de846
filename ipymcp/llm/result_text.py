"""Results as text for a model, with a preview and a reader for long ones."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from ipymcp.errors import ArgumentError
from ipymcp.protocol import types
from ipymcp.results.recognition import find_rows
from ipymcp.results.tool_result import ToolResult
from ipymcp.schema.coercion import NotJson, to_json
from ipymcp.text import cut, shortened, stripped

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ipymcp.results.text_tables import Record
    from ipymcp.results.tool_result import StoredResults


_CHARACTERS_PER_TOKEN: Final = 4


def describe_tool(server: str, description: str, limit: int) -> tuple[str, bool]:
    """A tool's description with its server as prefix, and whether it was truncated."""
    text = f"[{stripped(server)}] {stripped(description).strip()}".rstrip()
    return cut(text, limit), len(text) > limit


def estimate_tokens(characters: int) -> int:
    """Estimate the tokens of a text from its characters."""
    return -(-characters // _CHARACTERS_PER_TOKEN)


def as_text(value: Any) -> str:
    """A tool result's structured content or text, never both; another value's JSON, else its repr."""
    if isinstance(value, ToolResult):
        return value.model_text
    data = _data(value)
    return data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)


def as_rows(value: Any) -> list[Record] | None:
    """The rows of a table; None if the value is not one."""
    return find_rows(value.data if isinstance(value, ToolResult) else _data(value))


def is_frame(value: Any) -> bool:
    """Whether the value is a DataFrame of pandas or polars."""
    return all(hasattr(value, name) for name in ("shape", "columns", "dtypes", "head")) and len(value.shape) == 2


def _data(value: Any) -> Any:
    """The value as JSON, or its repr if JSON cannot express it."""
    try:
        return json.loads(_frame_json(value)) if is_frame(value) else to_json(value, ())
    except (NotJson, ValueError):  # ValueError: two columns have the same name
        return repr(value)


def _frame_json(frame: Any) -> str:
    if hasattr(frame, "write_json"):
        return frame.write_json()
    has_index = frame.index.name is not None or type(frame.index).__name__ != "RangeIndex"
    return (frame.reset_index() if has_index else frame).to_json(orient="records", date_format="iso")


MAX_LENGTH: Final = 20_000
"""Characters of one result for a model."""
_PAGE: Final = MAX_LENGTH // 2 - 100
"""Characters of one page; JSON may nearly double them."""
_ROWS: Final = 5
_MAX_ROWS: Final = 200
_MAX_NAMES: Final = 1_000


class ResultReader:
    """Reads stored results for a model.

    Args:
        results: The notebook's stored results.
        handles: The numbers of the results that the model may read.
    """

    def __init__(self, results: StoredResults, handles: Collection[int]) -> None:
        self._results = results
        self._handles = handles

    def read_result(
        self,
        handle: int,
        offset: int = 0,
        limit: int = 50,
        columns: list[str] | None = None,
        where: dict[str, Any] | None = None,
    ) -> Any:
        """Read more of a result that was too long: rows of a table, or characters of a text.

        Args:
            handle: The number of the result, from its preview.
            offset: Rows or characters to skip.
            limit: Maximum number of rows. A text is returned up to the size of a page.
            columns: Only these columns of a table.
            where: Only rows of a table whose columns have these values.
        """
        offset, limit = max(offset, 0), min(max(limit, 1), _MAX_ROWS)
        value = self._value(handle)
        rows = _rows(value)
        if rows is None:
            if columns or where:
                raise ArgumentError("this result is text: it has no columns", argument="columns")
            text = stripped(as_text(value))
            return {"text": text[offset : offset + _PAGE], "next": _next(offset + _PAGE, len(text))}
        names = _names(rows)
        for name in (*(columns or ()), *(where or ())):
            if name not in names:
                raise ArgumentError(
                    f"there is no column {name!r}", argument="columns", hint=f"columns: {_listed(names)}"
                )
        chosen = rows
        for name, wanted in (where or {}).items():
            chosen = [row for row in chosen if _matches(row.get(name), wanted)]
        page = _fitting(_picked(chosen[offset : offset + limit], columns))
        return {"rows": page, "matching": len(chosen), "next": _next(offset + len(page), len(chosen))}

    def _value(self, handle: int) -> Any:
        if not self._handles:
            raise ArgumentError("no long result is kept yet", argument="handle", hint="all results are shown in full")
        if handle not in self._handles or handle not in self._results:
            known = ", ".join(map(str, self._handles)) or "none"
            raise ArgumentError(f"there is no result {handle}", argument="handle", hint=f"handles: {known}")
        return self._results[handle]


def preview(value: Any, text: str, number: int) -> str:
    """The text that a model receives in place of a result that is too long."""
    rows = _rows(value)
    if rows is None:
        about = f"{len(text):,} characters"
        shown = text[: _PAGE // 2]
    else:
        about = f"{len(rows):,} row{'' if len(rows) == 1 else 's'} of {_listed(_types(rows))}"
        shown = json.dumps(_fitting(rows[:_ROWS]), ensure_ascii=False)
    return (
        f"[Too long to show in full: {about}. Stored as result {number}: call read_result with handle={number} to"
        f" read more. The user has it as mcp.results[{number}].]\n{stripped(shown)}"
    )


def _rows(value: Any) -> list[Record] | None:
    """The rows of a table; None if a row does not fit on a page, so that the value is read as text."""
    rows = as_rows(value)
    return None if rows is None or any(_length(row) > _PAGE for row in rows) else rows


def _length(row: Record) -> int:
    """The approximate number of characters of a row."""
    return len(types.encode(row))


def _matches(value: Any, wanted: Any) -> bool:
    """Whether a cell has this value, which the model may have written as a string."""
    return value == wanted or (isinstance(wanted, str) != isinstance(value, str) and _word(value) == _word(wanted))


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _names(rows: Sequence[Record]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def _types(rows: Sequence[Record]) -> list[str]:
    first = {name: type(row[name]).__name__ for row in reversed(rows[:_MAX_ROWS]) for name in row}
    return [f"{name}: {first.get(name, 'any')}" for name in _names(rows)]


def _listed(names: Sequence[str]) -> str:
    return shortened(", ".join(names), _MAX_NAMES)


def _picked(rows: Sequence[Record], columns: Sequence[str] | None) -> list[Record]:
    return [{name: row[name] for name in columns if name in row} for row in rows] if columns else list(rows)


def _fitting(rows: Sequence[Record]) -> list[Record]:
    """The first rows that fit on a page, at least one."""
    fitting: list[Record] = []
    room = _PAGE
    for row in rows:
        room -= _length(row)
        if room < 0 and fitting:
            break
        fitting.append(row)
    return fitting


def _next(offset: int, count: int) -> int | None:
    """The next offset; None at the end."""
    return offset if offset < count else None
