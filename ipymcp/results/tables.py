"""Small tables: HTML in a notebook, aligned text in a terminal, a DataFrame on demand."""

from __future__ import annotations

import math
import unicodedata
from abc import abstractmethod
from operator import methodcaller
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar

from ipymcp.argument_checks import missing_attribute
from ipymcp.masking import masks
from ipymcp.text import cut, escaped, visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


L = TypeVar("L", bound="NotPicklable")


class NotPicklable:
    """Base class of objects bound to this process: a copy is the object itself, and pickling is refused."""

    def __copy__(self: L) -> L:
        return self

    def __deepcopy__(self: L, memo: dict[int, Any]) -> L:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{type(self).__qualname__!r} belongs to this process and its MCP servers and cannot be pickled:"
            " call it from threads, or load the servers in the other process with ipymcp.connect"
        )


class TableView(NotPicklable):
    """Base class of objects that are displayed as a table."""

    _other_names: ClassVar[Mapping[str, str]] = {}
    """Hints for attributes that it does not have, but people expect."""

    @property
    @abstractmethod
    def table(self) -> Table:
        """The table to display."""

    @property
    def df(self) -> Any:
        """The table as a DataFrame."""
        return self.table.df

    if not TYPE_CHECKING:  # for type checkers it has no other attributes

        def __getattr__(self, name: str) -> Any:
            return missing_attribute(self, name, type(self).__name__, self._other_names)

    def __repr__(self) -> str:
        return repr(self.table)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        return mimebundle(self.table)


_WIDTH = 100
_MAX_ROWS = 200
_MAX_CELL = 500
_MIN_WIDTH = 8
# JupyterLab typesets $…$ in any HTML; these classes prevent that, for example for amounts in dollars.
NO_MATH = "tex2jax_ignore mathjax_ignore"
_LEFT = "text-align:left;vertical-align:top"
_RIGHT = "text-align:right;vertical-align:top"
_TABLE = f'<table class="{NO_MATH}" style="margin-left:0">'  # JupyterLab moves tables to the middle
_ONE_LINE = "white-space:nowrap"
_MAX_UNWRAPPED = 24
"""Characters of a cell, such as a date or a name with hyphens, that a browser must not break."""
_MAX_UNFOLDED = 60
"""Characters of a folded cell that are always shown."""
_FOLDED_WIDTH = "max-width:40em;white-space:pre-wrap;overflow-wrap:anywhere"
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
        from ipymcp.results.frames import from_columns

        return from_columns({name: [row[place] for row in self.rows] for place, name in enumerate(self.columns)})

    def __repr__(self) -> str:
        lines = [visible(self.title)] if self.title else []
        lines += text_table(self.columns, self.rows[:_MAX_ROWS])
        lines += filter(None, [more_rows(len(self.rows[_MAX_ROWS:])), visible(self.note)])
        return "\n".join(lines)

    @property
    def html(self) -> str:
        """The table as escaped HTML."""
        above = f"<div><b>{escaped(self.title)}</b></div>" if self.title else ""
        notes = filter(None, [more_rows(len(self.rows[_MAX_ROWS:])), self.note])
        below = "".join(f"<div>{escaped(note)}</div>" for note in notes)
        return f'<div class="{NO_MATH}">{above}{html_table(self.columns, self.rows[:_MAX_ROWS])}{below}</div>'

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return mimebundle(self)


def display_bundle(value: object) -> Any:
    """The MIME bundle that IPython shows of a value; for a widget, with its metadata."""
    return methodcaller("_repr_mimebundle_")(value)


def mimebundle(table: Table) -> dict[str, str]:
    """The MIME bundle of a table."""
    return {"text/plain": repr(table), "text/html": table.html}


def text_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """The table as lines, beginning with the header; cells are cut to fit a terminal, and numbers aligned right."""
    names = [cell_text(name) for name in columns]
    texts = [[cell_text(cell) for cell in row] for row in rows]
    widths = [max(_width(cell) for cell in column) for column in zip(names, *texts, strict=True)]
    while sum(widths) + 2 * (len(widths) - 1) > _WIDTH:
        # The widest column is cut; the first one last, because it identifies the row and users copy it.
        narrowed = widths.index(max(widths[1:]), 1) if max(widths[1:], default=0) > _MIN_WIDTH else 0
        if widths[narrowed] <= _MIN_WIDTH:
            break
        widths[narrowed] -= 1
    rights = numeric_columns(rows) or [False] * len(widths)
    return ["  ".join(map(_fit, row, widths, rights)).rstrip() for row in [names, *texts]]


def html_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, more_columns: int = 0, folds: bool = False
) -> str:
    """An escaped HTML table.

    Args:
        columns: The names of the columns.
        rows: The cells of each row.
        more_columns: The number of omitted columns, which an additional column shows.
        folds: Whether long cells are folded: the user sees the beginning and can open the cell.
    """
    names = [*columns, f"… {more_columns:,} more columns"] if more_columns else columns
    numeric = numeric_columns(rows) or [False] * len(columns)
    styles = [*(_RIGHT if is_numeric else _LEFT for is_numeric in numeric), _LEFT]
    head = "".join(f'<th style="{style}">{escaped(name)}</th>' for style, name in zip(styles, names, strict=False))
    last = f'<td style="{_LEFT}"></td>' if more_columns else ""
    write = _folded_cell if folds else _html_cell
    body = "".join(f"<tr>{''.join(map(write, styles, row))}{last}</tr>" for row in rows)
    return f"{_TABLE}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def html_members(members: Sequence[tuple[str, str]]) -> str:
    """Names, and values as HTML, as a table with two columns; line breaks of the values stay."""
    rows = "".join(
        f'<tr><th style="{_LEFT}">{escaped(cell_text(name))}</th>'
        f'<td style="{_LEFT};white-space:pre-wrap;overflow-wrap:anywhere">{html}</td></tr>'
        for name, html in members
    )
    return f"{_TABLE}<tbody>{rows}</tbody></table>"


def more_rows(count: int, where: str = "") -> str:
    """A line with the number of omitted rows and where to find them; empty if there are none."""
    return " · ".join(filter(None, [f"… {count:,} more rows", where])) if count else ""


def readable_numbers(rows: Sequence[Sequence[object]]) -> list[list[object]]:
    """Format fractions like pandas: at most six decimals, the same number within a column."""
    columns = [_readable_column(column) for column in zip(*rows, strict=True)]
    return [list(row) for row in zip(*columns, strict=True)]


def readable_number(value: float) -> str:
    """Format a number that stands alone like pandas."""
    return cell_text(_readable_column([value])[0])


class _Number(str):
    """A number that is already formatted."""

    __slots__ = ()


def _readable_column(column: Sequence[object]) -> Sequence[object]:
    fractions = [value for value in column if isinstance(value, float) and math.isfinite(value)]
    if not fractions:
        return column
    if not _is_numeric(column):
        return [_readable_column([value])[0] if isinstance(value, float) else value for value in column]
    if any(value and not 1e-4 <= abs(value) < 1e12 for value in fractions):
        return [value if value is None else _Number(f"{value:.{_DECIMALS}g}") for value in column]
    digits = max(len(f"{value:.{_DECIMALS}f}".rstrip("0").partition(".")[2]) for value in fractions)
    return [value if value is None else _Number(f"{value:.{max(1, digits)}f}") for value in column]


def numeric_columns(rows: Sequence[Sequence[object]]) -> list[bool]:
    """Whether each column is numeric; empty without rows."""
    return [_is_numeric(column) for column in zip(*rows, strict=True)]


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
    return cut(visible(" ".join(masks.head(shown, 2 * _MAX_CELL).split())), _MAX_CELL)


def _html_cell(style: str, value: object) -> str:
    text = cell_text(value)
    wrapping = f";{_ONE_LINE}" if 0 < len(text) <= _MAX_UNWRAPPED and not text.isalnum() else ""
    return f'<td style="{style}{wrapping}">{escaped(text)}</td>'


def _folded_cell(style: str, value: object) -> str:
    """A cell that shows only the beginning of a long text until the user opens it."""
    whole = value if isinstance(value, str) else ""
    head = cell_text(value)
    if len(head) <= _MAX_UNFOLDED and "\n" not in whole.strip():
        return _html_cell(style, value)
    summary = f'<summary style="{_ONE_LINE}">{escaped(cut(head, _MAX_UNFOLDED))}</summary>'
    text = f'<div style="{_FOLDED_WIDTH}">{escaped(whole or head)}</div>'
    return f'<td style="{style}"><details>{summary}{text}</details></td>'


def _width(cell: str) -> int:
    if cell.isascii():
        return len(cell)
    return sum(
        0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
        for character in cell
    )


def _fit(cell: str, width: int, is_right: bool) -> str:
    """Cut or pad a cell to an exact width."""
    if _width(cell) > width:
        while _width(cell) > width - 1:
            cell = cell[:-1]
        cell += "…"
    blanks = " " * (width - _width(cell))
    return blanks + cell if is_right else cell + blanks
