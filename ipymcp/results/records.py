"""Records of a result as a table: cells, pages in any order, single records, and files."""

from __future__ import annotations

import csv
import importlib
import io
import itertools
import json
import math
import re
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from ipymcp.errors import ArgumentError, McpError
from ipymcp.masking import mask, masks
from ipymcp.protocol import types
from ipymcp.protocol.types import is_array, is_object
from ipymcp.results.tables import readable_numbers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ipymcp.results.text_tables import Record


FileFormat: TypeAlias = Literal["csv", "json", "parquet"]
_MAX_CELL: Final = 1_000
"""Characters of a cell."""
_FORMULA_STARTS: Final = (*"=+-@\t\r\n", *"\uff1d\uff0b\uff0d\uff20")
"""First characters of formulas (OWASP, CSV Injection); the last four are full-width."""
_NUMBER: Final = re.compile(r"[+-]?(\d+([.,]\d+)*|[.,]\d+)([eE][+-]?\d+)?%?")


def json_head(data: Any, limit: int, *, indent: int | None = None, is_strict: bool = False) -> tuple[str, bool]:
    """The beginning of the data's JSON, cut soon after `limit` characters, and whether this is all of the JSON.

    Raises:
        ValueError: The data must be strict JSON, and is not.
    """
    head = ""
    for piece in json.JSONEncoder(ensure_ascii=is_strict, allow_nan=not is_strict, indent=indent).iterencode(data):
        head += piece
        if len(head) > limit:
            return head, False
    return head, True


def cell(value: object) -> object:
    """A value for a table cell: numbers and None unchanged, anything else as text of bounded length."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if is_array(value) or is_object(value):
        value, _ = json_head(value, _MAX_CELL + masks.longest)
    if isinstance(value, str) and len(value) > _MAX_CELL:
        return masks.head(value, _MAX_CELL) + "…"
    return value


class RecordTable:
    """A table with a row per record and a column per name that occurs in any of them.

    Args:
        records: The records; they are not copied.
    """

    def __init__(self, records: Sequence[Record]) -> None:
        self.names = [*dict.fromkeys(itertools.chain.from_iterable(records))]
        self._records = records
        self._order: tuple[int | None, bool, Sequence[int]] = (None, False, range(len(records)))
        """The latest order: the number of its column, whether it descends, and the positions of the records."""

    def __len__(self) -> int:
        return len(self._records)

    def page(
        self, first: int, count: int, columns: int, *, sort: int | None = None, descending: bool = False
    ) -> list[list[object]]:
        """The cells of some rows in the first columns.

        Args:
            first: The first row.
            count: Maximum number of rows.
            columns: Maximum number of columns.
            sort: The number of the column by which all rows are sorted; None for the order of the result.
            descending: Whether the largest values come first. Empty cells are always last.

        Raises:
            ArgumentError: There is no such column.
        """
        positions = self._sorted(sort, descending=descending)[first : first + count]
        names = self.names[:columns]
        return readable_numbers([[cell(self._records[each].get(name)) for name in names] for each in positions])

    def record(self, row: int, *, sort: int | None = None, descending: bool = False) -> Record:
        """The record of a row; arguments as for `page`.

        Raises:
            ArgumentError: There is no such row or column.
        """
        positions = self._sorted(sort, descending=descending)
        if not 0 <= row < len(positions):
            raise ArgumentError(f"there is no row {row}", argument="first")
        return self._records[positions[row]]

    def _sorted(self, sort: int | None, *, descending: bool) -> Sequence[int]:
        latest = self._order
        if latest[:2] == (sort, descending):
            return latest[2]
        everything = range(len(self._records))
        order: Sequence[int] = everything
        if sort is not None:
            if not 0 <= sort < len(self.names):
                raise ArgumentError(f"there is no column {sort}", argument="sort")
            name = self.names[sort]
            keys = [_sort_key(record.get(name)) for record in self._records]
            present = [each for each in everything if keys[each] is not None]
            present.sort(key=lambda each: keys[each] or (), reverse=descending)
            order = present + [each for each in everything if keys[each] is None]
        self._order = sort, descending, order
        return order

    def file(self, kind: FileFormat) -> bytes:
        """The whole table as a file, secrets masked.

        In CSV, text that a spreadsheet would run as a formula gets an apostrophe before it.

        Raises:
            McpError: The library for the format is not installed, or the format cannot express the table.
        """
        if kind == "parquet":
            return _parquet(masks.json(self._records))
        if kind == "json":
            return mask(types.encode(self._records).decode("utf-8", "replace")).encode()
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\r\n")  # RFC 4180; text that contains \r or \n is quoted
        writer.writerow(map(_in_csv, self.names))
        writer.writerows([_in_csv(record.get(name)) for name in self.names] for record in self._records)
        return mask(file.getvalue()).encode("utf-8", "replace")


def _sort_key(value: object) -> tuple[int, Any] | None:
    """The key to sort by: numbers, then text, then anything else by its JSON; None for an empty cell."""
    if isinstance(value, int | float):
        return None if math.isnan(value) else (0, value)
    if isinstance(value, str):
        return 1, value
    return None if value is None else (2, json.dumps(value))


def _in_csv(value: object) -> object:
    if isinstance(value, bool) or is_array(value) or is_object(value):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, str) and value.startswith(_FORMULA_STARTS) and not _NUMBER.fullmatch(value):
        return f"'{value}"
    return value


def _parquet(records: Sequence[Record]) -> bytes:
    try:
        arrow: Any = importlib.import_module("pyarrow")
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise McpError("Parquet needs pyarrow, which is not installed", hint="%pip install pyarrow") from error
    file = io.BytesIO()
    try:
        parquet.write_table(arrow.Table.from_pylist([*records]), file)
    except (arrow.ArrowException, OverflowError) as error:
        raise McpError(f"Parquet cannot express this table: {error}", hint="choose CSV or JSON") from error
    return file.getvalue()
