"""Values in the text of a result: JSON and Python literals, Markdown and console tables, records in lines, and CSV.

Nothing is guessed: each form is recognised by marks that other text lacks. All readers take linear time.
"""

from __future__ import annotations

import ast
import contextlib
import csv
import datetime
import io
import itertools
import json
import math
import re
import uuid
import zoneinfo
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from ipymcp.files import read_file
from ipymcp.protocol import types
from ipymcp.protocol.types import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Record = dict[str, Any]


class CsvText(Struct):
    """A text of rows with a header and a delimiter between the cells."""

    text: str
    delimiter: str
    skips_blanks: bool
    """Whether blanks follow the delimiters."""

    @property
    def records(self) -> list[Record] | None:
        """The rows; None if the header repeats a name or rows have other lengths, so that cells would be lost."""
        try:
            header, *rows = self.rows()
        except csv.Error:
            return None
        if len(set(header)) < len(header) or any(len(row) != len(header) for row in rows):
            return None
        return [dict(zip(header, row, strict=True)) for row in rows]

    def rows(self) -> Iterator[list[str]]:
        """The cells of each row, beginning with the header."""
        file = io.StringIO(self.text)
        reader = csv.reader(file, delimiter=self.delimiter, skipinitialspace=self.skips_blanks, strict=True)
        return filter(None, reader)

    @property
    def text_columns(self) -> list[str]:
        """The columns of numbers that are ids, with zeros or a plus before them: postal codes, telephones."""
        if not _MAY_BE_ID.search(self.text):
            return []
        header, *rows = self.rows()
        places = {place for row in rows for place, cell in enumerate(row) if _ID.match(cell)}
        return [name for place, name in enumerate(header) if place in places]

    @property
    def gaps(self) -> dict[str, tuple[str, ...]]:
        """The texts of missing cells in each column: nothing, and in columns of numbers also words such as `NA`."""
        header, *rows = self.rows() if _GAP_CELL.search(self.text) else [next(iter(self.rows()))]
        cells = ([cell for cell in column if cell and cell not in _GAPS] for column in zip(*rows, strict=False))
        numeric = {name for name, column in zip(header, cells, strict=False) if all(map(_FRACTION.fullmatch, column))}
        return {name: ("", *_GAPS) if name in numeric else ("",) for name in header}


_GAPS = ("NA", "N/A", "NaN", "nan", "null", "NULL", "None")
_MAY_BE_ID = re.compile(r"[,;\t|\n\" ](?:[+-]?0\d|\+\d|\d++[eE]\d)", re.ASCII)
_ID = re.compile(r"(?:[+-]?0\d++|\+\d++|\d++[eE]\d++)(?!\S)", re.ASCII)
_GAP_CELL = re.compile(rf"[,;\t|\n\"](?:{'|'.join(_GAPS)})(?![^,;\t|\n\"])")


def read_values(text: str) -> tuple[list[Any], bool]:
    """Read the values that a text holds: JSON values, lists of records, or a `CsvText`.

    Returns:
        The values, and whether the text holds nothing else.
    """
    text = text.strip()
    if whole := [*_read_whole(text)]:
        return whole, True
    for read, marks in _READERS:
        if any(mark in text for mark in marks) and (values := [*read(text)]):
            return values, False
    return [*_read_csv(text)], True


# -- JSON and Python literals ------------------------------------------------------------------------------------------


_FENCE = re.compile(r" {0,3}(`{3,}+|~{3,}+)")
_MAX_FENCES = 100
_VALUE_START = re.compile(r"(?:^|[\s:])(?=[\[{])")
_MAX_STARTS = 30


def _read_whole(text: str) -> Iterator[Any]:
    """A JSON value, records in lines, or a Python literal."""
    if not text.startswith(("[", "{", "(")):
        return
    value = _loads(text)
    if not value:  # JSON in lines, objects (NDJSON) or arrays, or a literal
        is_kind = is_object if text.startswith("{") else is_array
        lines = [_loads(line) for line in text.splitlines() if line.strip()]
        value = lines if len(lines) > 1 and all(map(is_kind, lines)) else read_literal(text)
    if value is not None:
        yield value


def _read_fences(text: str) -> Iterator[Any]:
    """The values in fences: blocks between two lines of backticks or tildes."""
    mark, inner, count = "", list[str](), 0
    for line in text.splitlines():
        fence = _FENCE.match(line)
        if not mark:
            mark = fence[1] if fence is not None else ""
        elif fence is not None and fence[1].startswith(mark) and not line[fence.end() :].strip():
            block = "\n".join(inner).strip()
            yield from [*_read_whole(block)] or [*_read_csv(block)]
            mark, inner, count = "", [], count + 1
            if count == _MAX_FENCES:
                return
        else:
            inner.append(line)


def _read_embedded(text: str) -> Iterator[Any]:
    """JSON values between sentences: those that hold other values, not a lone object in a line of prose."""
    decoder = json.JSONDecoder()
    position = 0
    for _ in range(_MAX_STARTS):
        start = _VALUE_START.search(text, position)
        if start is None:
            return
        try:
            value, position = decoder.raw_decode(text, start.end())
        except (ValueError, RecursionError):
            position = start.end() + 1
            continue
        if any(is_object(each) or is_array(each) for each in (value.values() if is_object(value) else value)):
            yield value


def _loads(text: str) -> Any:
    with contextlib.suppress(ValueError):
        return types.loads(text.encode())
    return None


_MAX_LITERAL = 1_000_000
_MAX_LITERAL_DEPTH = 20
_STRING = re.compile(r"'(?:[^'\\\n]|\\.)*+(?:'|\\?(?=\n|\Z))|\"(?:[^\"\\\n]|\\.)*+(?:\"|\\?(?=\n|\Z))")
_BRACKET = re.compile(r"[\[\](){}]")
_OPERATORS = re.compile(r"[-+~*/%@|&^<>=!.]\s*[-+~*/%@|&^<>=!]|[\w)\]}]\s*[-+*/%@|&^<>=](?<!\de[-+])(?<!\dE[-+])")

_KEYWORD = re.compile(r"([(,]\s*)(?:days|seconds|microseconds|tzinfo|fold|key)=")
"""Keywords of the constructors below, whose `=` is no operator."""
_ZONE = re.compile(r"[\w+-]++(?:/[\w+-]++)*+", re.ASCII)
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
    files = (Path(folder, key) for folder in zoneinfo.TZPATH if _ZONE.fullmatch(key))
    file = next((each for each in files if each.is_file()), None)
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
        keys = [_literal(key) for key in node.keys if key is not None]
        if len(keys) < len(node.values):
            raise ValueError("a dict within a dict is not a literal")
        return dict(zip(keys, map(_literal, node.values), strict=True))
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
    if isinstance(node, ast.Call) and (construct := _CONSTRUCTORS.get(_dotted(node.func))) is not None:
        if any(keyword.arg is None for keyword in node.keywords):
            raise ValueError("** is not a literal")
        keywords = {str(keyword.arg): _literal(keyword.value) for keyword in node.keywords}
        return construct(*map(_literal, node.args), **keywords)
    raise ValueError("not a literal")


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


# -- tables that are drawn ---------------------------------------------------------------------------------------------


_MARKDOWN_RULE = re.compile(r"\s*+\|?\s*+:?-++:?\s*+(?:\|\s*+:?-++:?\s*+)*+\|?\s*+")
_UNESCAPED_BAR = re.compile(r"(?<!\\)\|")
_CORNERS = "┼╋╪╫╬┌┬┐└┴┘├┤┏┳┓┗┻┛┣┫╔╦╗╚╩╝╠╣╭╮╰╯╞╡╟╢╤╧╒╕╘╛┡╇┩"
_DRAWN = str.maketrans({**dict.fromkeys("│┃║", "|"), **dict.fromkeys("─━═", "-"), **dict.fromkeys(_CORNERS, "+")})
_RULE = re.compile(r"[+|]?-{2,}+(?:\+-++)*+[+|]?")
_FOOTER = re.compile(r"\(\d++ rows?\)")
_TYPES = re.compile(
    r"(?:u?(?:tiny|small|big|huge)?int(?:eger)?\d*|varchar|text|double|float|decimal\([\d,]*\)|date|time|boolean"
    r"|timestamp[\w ]*|blob|uuid|json)(?:\[\])*",
    re.IGNORECASE,
)
"""The second line of a header of DuckDB."""


def _read_markdown(text: str) -> Iterator[Any]:
    lines = text.splitlines()
    place = 1
    while place < len(lines):
        header, rule = _bars(lines[place - 1]), lines[place]
        place += 1
        if "|" not in rule or not _MARKDOWN_RULE.fullmatch(rule) or len(header) != len(_bars(rule)):
            continue
        rows: list[list[str]] = []
        while place < len(lines) and "|" in lines[place]:
            rows.append(_bars(lines[place]))
            place += 1
        if records := _records(header, rows):
            yield records


def _bars(line: str) -> list[str]:
    """The cells of a line of Markdown."""
    inner = line.strip().removeprefix("|")
    if inner.endswith("|") and not inner.endswith("\\|"):
        inner = inner[:-1]
    return [cell.strip().replace("\\|", "|") for cell in _UNESCAPED_BAR.split(inner)]


def _read_console(text: str) -> Iterator[Any]:
    """The tables of psql, mysql, sqlite3, DuckDB and the like: a header, a rule, and rows to the next rule or blank."""
    lines = [line.strip() for line in text.translate(_DRAWN).splitlines()]
    is_rule = [bool(_RULE.fullmatch(line)) for line in lines]
    place = 1
    while place < len(lines):
        rule = lines[place]
        if not is_rule[place] or not lines[place - 1] or is_rule[place - 1]:
            place += 1
            continue
        has_two = place > 1 and "|" in lines[place - 2] and not is_rule[place - 2] and rule.startswith("+")
        header = lines[place - 2 if has_two else place - 1 : place]
        first = place = place + 1
        while place < len(lines) and lines[place] and not is_rule[place] and not _FOOTER.fullmatch(lines[place]):
            place += 1
        is_closed = place < len(lines) and bool(_FOOTER.fullmatch(lines[place]))
        if ("+" in rule or is_closed) and (records := _console_records(header, rule, lines[first:place])):
            yield records


def _console_records(header: list[str], rule: str, rows: list[str]) -> Any:
    width = len([part for part in rule.strip("+|").split("+") if part])
    cells: list[list[str]] = []
    for line in (*header, *rows):
        parts = line.removeprefix("|").removesuffix("|").split("|") if width > 1 or line.startswith("|") else [line]
        if len(parts) != width:
            return None
        cells.append([part.strip() for part in parts])
    names, *more = cells[: len(header)]
    if more and not all(_TYPES.fullmatch(cell) for cell in more[0]):
        return None
    body = cells[len(header) :]
    if any(cell.endswith("+") or cell in ("·", "…") for row in body for cell in row):
        return None  # a cell of several lines, or rows that are left out
    return _records(names, body)


_RECORD_HEAD = re.compile(r"(?:\*{3,}\s*+)?(\d++)\. row(?:\s*+\*{3,})?|-\[ RECORD (\d++) \][-+]*+")
_MEMBER = re.compile(r"\s*+([^:|]{1,100}?)\s*+(?:: ?|\| ?)(.*)")


def _read_vertical(text: str) -> Iterator[list[Record]]:
    """Records below each other, as mysql and psql write them on demand."""
    records: list[list[tuple[str, str]]] = []
    is_open = False
    for line in text.splitlines():
        if _RECORD_HEAD.fullmatch(line.strip()):
            records.append([])
            is_open = True
        elif is_open and (member := _MEMBER.fullmatch(line)):
            records[-1].append((member[1], member[2].strip()))
        elif not line.strip():
            is_open = False
        elif is_open:
            return  # a value of several lines
    if records and all(records):
        names = [*dict.fromkeys(name for record in records for name, _ in record)]
        if rows := _records(names, [[dict(record).get(name, "") for name in names] for record in records]):
            yield rows


def _records(names: list[str], rows: list[list[str]]) -> Any:
    """Rows of texts as records, with numbers in the columns of numbers; None if cells or names would be lost.

    Without rows it is what JSON has for that: the names beside an empty list.
    """
    if len({*names}) < len(names) or not all(names) or any(len(row) > len(names) for row in rows):
        return None
    if not rows:
        return {"columns": names, "rows": []}
    full = [row + [""] * (len(names) - len(row)) for row in rows]
    columns = [typed(column) for column in zip(*full, strict=True)]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


_INTEGER = re.compile(r"-?(?:0|[1-9]\d{0,17})", re.ASCII)
_FRACTION = re.compile(r"-?(?:0|[1-9]\d*+)(?:\.\d++(?:[eE][+-]?\d++)?|[eE][+-]\d++)?", re.ASCII)


def typed(column: Iterable[str]) -> list[Any]:
    """A column of texts as numbers if all are written as such, without leading zeros; `NULL` and nothing are None."""
    values = [None if text in ("", "NULL") else text for text in column]
    texts = [text for text in values if text is not None]
    if texts and all(map(_INTEGER.fullmatch, texts)):
        return [text if text is None else int(text) for text in values]
    if texts and all(len(text) < 18 and _FRACTION.fullmatch(text) for text in texts):
        return [text if text is None else float(text) for text in values]
    return values


_READERS: tuple[tuple[Callable[[str], Iterator[Any]], tuple[str, ...]], ...] = (
    (_read_fences, ("```", "~~~")),
    (_read_markdown, ("|-", "-|", "| -", "- |", "|:", ":|", "| :", ": |")),
    (_read_console, ("--", "──", "━━", "══")),
    (_read_vertical, (". row", "-[ RECORD ")),
    (_read_embedded, ("[", "{")),
)
"""The readers of values beside other text, each with the marks of which the text must have one."""


# -- CSV ---------------------------------------------------------------------------------------------------------------


_DELIMITERS = ",\t;|"
_CHECKED_ROWS = 100
_BLANK_LINE = re.compile(r"\n[ \t\r]*+\n")
_NO_NAME = re.compile(r"[\[{]|\W{0,2}(?:\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}\b|\d{1,2}:\d\d:\d\d\b)|-?\d+(?:\.\d+)?\s*$")
"""JSON, dates, times and numbers: none of them is the name of the first column."""
_MAX_NAME_WORDS = 5
_SENTENCE_END = re.compile(r"[.!?:]$")


def _read_csv(text: str) -> Iterator[CsvText]:
    """Rows of the same number of cells, at least two of both, below a header of names; not prose and not a log."""
    for delimiter in _DELIMITERS if not _BLANK_LINE.search(text) else ():
        try:
            reader = csv.reader(io.StringIO(text), delimiter=delimiter, strict=True)
            rows = [*itertools.islice(reader, _CHECKED_ROWS)]
        except csv.Error:
            continue
        if (
            len(rows) > 1
            and len(rows[0]) > 1
            and len({len(row) for row in rows}) == 1
            and _is_header(rows[0], rows[1:])
        ):
            yield CsvText(text, delimiter, _has_blanks(rows))
            return


def _is_header(header: list[str], rows: list[list[str]]) -> bool:
    names = [name.strip() for name in header]
    if len({*names}) < len(names) or not all(names[1:]) or _NO_NAME.match(header[0]):
        return False
    if any(len(name.split()) > _MAX_NAME_WORDS or _SENTENCE_END.search(name) for name in names):
        return False
    if not _has_blanks([header, *rows]):
        return True
    # A comma and a blank also separate clauses: then only a column of numbers tells a table from prose.
    columns = ([cell.strip() for cell in column] for column in zip(*rows, strict=True))
    return any(isinstance(value, int | float) for column in columns for value in typed(column))


def _has_blanks(rows: list[list[str]]) -> bool:
    return any(cell.startswith(" ") for row in rows for cell in row[1:])
