"""Small tables: HTML in a notebook, aligned text in a terminal, a DataFrame on demand."""

from __future__ import annotations

import math
import unicodedata
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from ipymcp.masking import masks
from ipymcp.text import escaped, visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


L = TypeVar("L", bound="NotPicklable")


class NotPicklable:
    """Base class of objects bound to this process: a copy is the object itself, and pickling is refused."""

    def __copy__(self: L) -> L:
        return self

    def __deepcopy__(self: L, memo: dict[int, Any]) -> L:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{type(self).__qualname__!r} lives in this process, with its MCP servers, and cannot be pickled:"
            " call it from threads, or load the servers in the other process with ipymcp.connect"
        )


class TableView(NotPicklable):
    """Base class of objects that are displayed as a table."""

    @property
    @abstractmethod
    def table(self) -> Table:
        """The table to display."""

    @property
    def df(self) -> Any:
        """The table as a DataFrame."""
        return self.table.df

    def __repr__(self) -> str:
        return repr(self.table)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        return mimebundle(self.table)


_WIDTH = 100
_MAX_ROWS = 200
_MAX_CELL = 500
_NARROWEST = 8
# JupyterLab typesets $…$ in any HTML; these classes keep it away from a table of dollars.
_NO_MATH = "tex2jax_ignore mathjax_ignore"
_LEFT = "text-align:left;vertical-align:top"
_RIGHT = "text-align:right;vertical-align:top"
_ONE_LINE = ";white-space:nowrap"
_MAX_UNWRAPPED = 24
"""Characters of a cell, such as a date or a name with hyphens, that a browser must not break."""
_DECIMALS = 6


class Table:
    """Rows under named columns, for display.

    Iterating gives each row as a dict, `len` the number of rows, `.df` a DataFrame.

    Args:
        columns: The names of the columns.
        rows: A sequence of cells for each row, in the order of the columns; any objects.
        title: A line above the table.
        note: A line below the table.
    """

    def __init__(
        self, columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str = "", note: str = ""
    ) -> None:
        self.columns = tuple(columns)
        self.rows = tuple(tuple(row) for row in rows)
        self.title = title
        self.note = note
        if any(len(row) != len(self.columns) for row in self.rows):
            raise ValueError(f"every row needs {len(self.columns)} cells")

    def __len__(self) -> int:
        return len(self.rows)

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[dict[str, object]]:
        return (dict(zip(self.columns, row, strict=True)) for row in self.rows)

    @property
    def df(self) -> Any:
        """The table as a DataFrame of pandas if it is installed, else of polars.

        Raises:
            McpError: Neither library is installed.
        """
        from ipymcp.results.frames import to_frame

        return to_frame({name: [row[place] for row in self.rows] for place, name in enumerate(self.columns)}, "")

    def __repr__(self) -> str:
        lines = [visible(self.title)] if self.title else []
        lines += text_table(self.columns, self.rows[:_MAX_ROWS])
        if len(self.rows) > _MAX_ROWS:
            lines.append(f"… {len(self.rows) - _MAX_ROWS:,} more rows")
        if self.note:
            lines.append(visible(self.note))
        return "\n".join(lines)

    @property
    def html(self) -> str:
        """The table as escaped HTML."""
        above = f"<div><b>{escaped(self.title)}</b></div>" if self.title else ""
        below = f"<div>{escaped(self.note)}</div>" if self.note else ""
        table = html_table(self.columns, self.rows[:_MAX_ROWS], more_rows=max(0, len(self.rows) - _MAX_ROWS))
        return f'<div class="{_NO_MATH}">{above}{table}{below}</div>'

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return mimebundle(self)


def mimebundle(table: Table) -> dict[str, str]:
    """The MIME bundle of a table."""
    return {"text/plain": repr(table), "text/html": table.html}


def text_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Aligned lines, the header first; cells are cut to fit a terminal."""
    return _aligned([cell_text(name) for name in columns], [[cell_text(cell) for cell in row] for row in rows])


def html_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, more_rows: int = 0, more_columns: int = 0
) -> str:
    """An escaped HTML table, with the number of omitted rows and columns."""
    names = [*columns, f"… {more_columns:,} more columns"] if more_columns else columns
    styles = [_RIGHT if _is_numeric(column) else _LEFT for column in zip(*rows, strict=True)] or [_LEFT] * len(names)
    head = "".join(f'<th style="{style}">{escaped(name)}</th>' for style, name in zip(styles, names, strict=True))
    body = "".join(f"<tr>{''.join(map(_html_cell, styles, row))}</tr>" for row in rows)
    table = f'<table class="{_NO_MATH}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    return table + (f"<div>… {more_rows:,} more rows</div>" if more_rows else "")


def readable_numbers(rows: Sequence[Sequence[object]]) -> list[list[object]]:
    """Format fractions like pandas: at most six decimals, the same number within a column."""
    columns = [_readable_column(column) for column in zip(*rows, strict=True)]
    return [list(row) for row in zip(*columns, strict=True)]


class _Number(str):
    """A number that is already formatted."""

    __slots__ = ()


def _readable_column(column: Sequence[object]) -> Sequence[object]:
    fractions = [value for value in column if isinstance(value, float) and math.isfinite(value)]
    if not fractions or not _is_numeric(column):
        return [_Number(_fraction(value)) if isinstance(value, float) else value for value in column]
    if any(value and not 1e-4 <= abs(value) < 1e12 for value in fractions):
        return [value if value is None else _Number(f"{value:.{_DECIMALS}g}") for value in column]
    digits = max(len(f"{value:.{_DECIMALS}f}".rstrip("0").partition(".")[2]) for value in fractions)
    return [value if value is None else _Number(f"{value:.{max(1, digits)}f}") for value in column]


def _fraction(value: float) -> str:
    written = repr(value)
    return written if len(written) <= _DECIMALS + 2 else f"{value:.{_DECIMALS + 1}g}"


def _is_numeric(column: Sequence[object]) -> bool:
    """Whether a column has only numbers, and at least one."""
    values = [value for value in column if value is not None]
    return bool(values) and all(
        isinstance(value, int | float | _Number) and not isinstance(value, bool) for value in values
    )


def cell_text(value: object) -> str:
    """A cell as one line of bounded text; empty for None."""
    if value is None:
        return ""
    shown = value if isinstance(value, str) else str(value)
    shown = visible(" ".join(masks.head(shown, 2 * _MAX_CELL).split()))
    return shown if len(shown) <= _MAX_CELL else shown[: _MAX_CELL - 1] + "…"


def _html_cell(style: str, value: object) -> str:
    text = cell_text(value)
    wrapping = _ONE_LINE if 0 < len(text) <= _MAX_UNWRAPPED and not text.isalnum() else ""
    return f'<td style="{style}{wrapping}">{escaped(text)}</td>'


def _aligned(names: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Header and rows with aligned columns; the widest are cut until the lines fit, if possible."""
    widths = [max(_width(cell) for cell in column) for column in zip(names, *rows, strict=True)]
    while sum(widths) + 2 * (len(widths) - 1) > _WIDTH:
        # The first column identifies the row, and users copy it: it is cut last.
        narrowed = widths.index(max(widths[1:]), 1) if max(widths[1:], default=0) > _NARROWEST else 0
        if widths[narrowed] <= _NARROWEST:
            break
        widths[narrowed] -= 1
    return [
        "  ".join(_fit(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in [names, *rows]
    ]


def _width(cell: str) -> int:
    if cell.isascii():
        return len(cell)
    return sum(
        0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
        for character in cell
    )


def _fit(cell: str, width: int) -> str:
    """Cut or pad a cell to an exact width."""
    if _width(cell) > width:
        while _width(cell) > width - 1:
            cell = cell[:-1]
        cell += "…"
    return cell + " " * (width - _width(cell))
