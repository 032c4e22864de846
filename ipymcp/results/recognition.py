"""Tables in the data and the text of a result, recognised by their structure and never guessed.

In data: a list of records, wherever only one such list is; names beside rows, whatever their keys are called; columns;
the orients in which pandas writes a table. In text: JSON and Python literals, alone, in a fence or among sentences;
Markdown tables, the tables of psql and other consoles, records below each other, and CSV.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any

from ipymcp.argument_checks import shown
from ipymcp.errors import McpError, UnknownName
from ipymcp.protocol.types import is_array, is_object
from ipymcp.results.tables import Table, TableView
from ipymcp.results.text_tables import CsvText, Record, read_values

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_MAX_DEPTH = 6
_MAX_TABLES = 100
ROW_KEYS = frozenset({"rows", "records", "items", "results", "result", "data", "values", "entries", "nodes", "edges"})
_NAME_KEYS = frozenset({"columns", "fields", "headers", "header", "names", "schema", "column_names"})
"""Keys by which an empty list is known to be rows, and a list of texts beside it to be their names."""
_LABELLED_HINT = 'pd.DataFrame(r.data) for columns, pd.DataFrame.from_dict(r.data, orient="index") for rows'
_EDGE_KEYS = frozenset({"node", "cursor", "__typename"})
_NAME_MEMBERS = ("name", "field", "column", "column_name", "id", "key")


class FoundTable(TableView):
    """A table within a result. Iterating gives each row as a dict, `len` the number of rows, `.df` a DataFrame.

    Args:
        path: Where it is: keys with dots between, such as `data.items`, or its number in a text; empty for the whole.
        rows: Its records.
        columns: Its columns, in place of records.
        csv: Its text, in place of both.
        names: The names of its columns, where they are known without the rows.
        sample: For a table without rows: a record with a value of the type of each column.
        rank: How sure it is that this table was meant: 3 for named rows, 2 for columns, 1 without names.
    """

    def __init__(
        self,
        path: str,
        rows: list[Record] | None = None,
        *,
        columns: Record | None = None,
        csv: CsvText | None = None,
        names: list[str] | None = None,
        sample: Record | None = None,
        rank: int = 3,
    ) -> None:
        self.path = path
        self.columns = columns
        self.csv = csv
        self.sample = sample
        self.rank = rank
        self._rows = rows
        self._names = names

    @property
    def records(self) -> list[Record]:
        """The rows as dicts by the names of the columns."""
        if self._rows is None and self.csv is not None:
            self._rows = self.csv.records or []
        elif self._rows is None:
            columns = self.columns or {}
            self._rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        return self._rows

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        names = self._names or self.columns or (self.sample if not self.records else None)
        return [*names] if names else [*dict.fromkeys(itertools.chain.from_iterable(self.records))]

    @property
    def df(self) -> Any:
        """The table as a DataFrame of pandas if it is installed, else of polars; nested records become columns `a.b`.

        Raises:
            McpError: Neither library is installed, or CSV cannot be read.
        """
        from ipymcp.results import frames

        if self.columns is not None:
            return frames.from_columns(self.columns)
        if self.csv is not None:
            return frames.from_csv(self.csv)
        return frames.from_records(self.records) if self.records else frames.without_rows(self.sample or {})

    @property
    def table(self) -> Table:
        """The rows for display."""
        names = self.names
        return Table(names, [[record.get(name) for name in names] for record in self.records], title=self.path)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else len(self.records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def __bool__(self) -> bool:
        return True

    def below(self, number: int) -> FoundTable:
        """The same table, as the one of a value with this number in a text."""
        self.path = f"{number}.{self.path}" if self.path else str(number)
        return self


class Tables(TableView):
    """The tables of a result: iterating gives each, indexing the one at a path.

    Args:
        found: All tables.
        main: The table that `.df` reads: the only one of its kind on the level nearest to the top; None without one.
        problem: Why no table is read although there are some.
        hint: How to take one then.
    """

    def __init__(self, found: list[FoundTable], main: FoundTable | None, problem: str = "", hint: str = "") -> None:
        self.found = found
        self.main = main
        self.problem = problem
        self.hint = hint
        self.is_whole = True
        """Whether the data is nothing else, and no text stands beside the table."""

    @property
    def table(self) -> Table:
        """The path of each table, its number of rows, and its columns."""
        rows = [(each.path, len(each), ", ".join(each.names)) for each in self.found]
        return Table(("path", "rows", "columns"), rows, note="r.table(PATH) takes one" if rows else "no table")

    def __len__(self) -> int:
        return len(self.found)

    def __iter__(self) -> Iterator[FoundTable]:
        return iter(self.found)

    def __getitem__(self, path: str | int) -> FoundTable:
        """The table at a path.

        Raises:
            UnknownName: There is no table at this path.
        """
        table = next((each for each in self.found if each.path == str(path)), None)
        if table is None:
            paths = ", ".join(repr(each.path) for each in self.found) or "none"
            raise UnknownName(f"there is no table {shown(path)}", hint=f"there are: {paths}")
        return table

    def _ipython_key_completions_(self) -> list[str]:
        return [each.path for each in self.found]


_HEADER = re.compile(r"\bheader row\b|\bfirst (?:row|line|list)\b[^.]{0,60}\b(?:header|names?)\b", re.I)
"""Words in the description of a list of rows whose first row has the names of the columns."""


def find_tables(data: Any, schema: Any = None) -> Tables:
    """Find the tables of a result.

    Args:
        data: The result's data; a text is read as one.
        schema: The tool's output schema, which names the columns of an empty table, and may say that the first row of
            a list of rows has the names.
    """
    if isinstance(data, str):
        values, is_whole = read_values(data)
        if len(values) == 1:
            tables = find_tables(values[0])
        else:
            walks = ((number, _walk(value, "", 0)) for number, value in enumerate(values, 1))
            tables = _main([table.below(number) for number, walk in walks for table in walk])
        tables.is_whole = is_whole
        return tables
    tables = [*itertools.islice(_walk(data, "", 0), _MAX_TABLES)]
    if not tables:
        tables = _empty(data, schema)
    if not tables and (whole := _unnamed(data)) is not None:
        whole = _named_by_first_row(whole, schema)
        return Tables([whole], whole)
    tables = [_named_by_first_row(table, schema) for table in tables]
    if not tables and is_object(data) and _is_labelled(data):
        return Tables([], None, "its rows or its columns have labels, and which of them cannot be told", _LABELLED_HINT)
    return _main(tables)


def main_table(data: Any, tables: Tables) -> FoundTable:
    """The table that is meant.

    Args:
        data: The data in which the tables were found, for the error.
        tables: The result of `find_tables`.

    Raises:
        McpError: There is none, or several.
    """
    if tables.main is not None:
        return tables.main
    hint = tables.hint or "make the DataFrame yourself from .data or .text"
    if tables.problem:
        raise McpError(f"the answer is not one table: {tables.problem}", hint=hint)
    if isinstance(data, str):
        kind = f"a text of {len(data):,} characters that holds none"
    elif is_object(data):
        keys = ", ".join(list(data)[:5])
        kind = f"a dict with {keys}{', …' if len(data) > 5 else ''}" if data else "an empty dict"
    elif is_array(data):
        kind = "a list of records mixed with other values"
    else:
        kind = f"{type(data).__name__} {data!r}"
    raise McpError(f"the answer is not a table: {kind}", hint=hint)


def find_rows(data: Any) -> list[Record] | None:
    """The rows of a table as records; None if `data` is not a table, or holds several, or is one record.

    Nested records stay nested, and the cells of CSV are strings.
    """
    table = find_tables(data).main
    return None if table is None or table.records == [data] else table.records or None


def _main(tables: list[FoundTable]) -> Tables:
    """Choose the only table of the highest rank on the level nearest to the top."""
    if not tables:
        return Tables([], None)
    named = [each for each in tables if each.rank > 1]
    level = min((each.path.count(".") for each in named), default=0)
    nearest = [each for each in named if each.path.count(".") == level]
    highest = max((each.rank for each in nearest), default=0)
    best = [each for each in nearest if each.rank == highest]
    if len(best) == 1:
        return Tables(tables, best[0])
    if len(tables) == 1:
        problem = f"it has one at {tables[0].path}, whose columns have no names"
        return Tables(tables, None, problem, f"r.table({tables[0].path!r}).df takes it")
    paths = ", ".join(each.path or "the whole" for each in tables[:5])
    more = f" and {len(tables) - 5} more" if len(tables) > 5 else ""
    return Tables(tables, None, f"it has tables at {paths}{more}", f"r.table({tables[0].path!r}).df takes one")


# -- data --------------------------------------------------------------------------------------------------------------


def _walk(value: Any, path: str, depth: int) -> Iterator[FoundTable]:
    """Find the tables in a value; what is within the rows of one is not searched."""
    table = _table(value, path)
    if table is not None:
        yield table
    elif depth < _MAX_DEPTH and is_array(value):
        for number, member in enumerate(value if are_records(value) else ()):
            yield from _walk(member, f"{path}.{number}" if path else str(number), depth + 1)
    elif is_object(value) and depth < _MAX_DEPTH:
        described = _described(value)
        for key, member in value.items():
            if key not in described and (is_object(member) or is_array(member)):
                yield from _walk(member, f"{path}.{key}" if path else key, depth + 1)


def _table(value: Any, path: str) -> FoundTable | None:
    """The table that a value is."""
    if is_array(value):
        if are_records(value):
            if _are_tables(value):
                return None
            nodes = [row.get("node") for row in value]  # which the edges of a GraphQL connection wrap
            is_wrapped = all(map(is_object, nodes)) and all(row.keys() <= _EDGE_KEYS for row in value)
            return FoundTable(path, nodes if is_wrapped else value)
        if path and _are_rows(value) and all(len(row) > 1 for row in value):
            return FoundTable(path, _numbered(value), rank=1)
        return None
    if isinstance(value, CsvText):
        return FoundTable(path, csv=value)
    if not is_object(value) or not value:
        return None
    if (named := _names_beside_rows(value)) is not None:
        names, rows = named
        return FoundTable(path, [dict(zip(names, row, strict=True)) for row in rows], names=names)
    if (columns := _columns(value)) is not None and (len(columns) > 1 or not path):
        return FoundTable(path, columns=columns, rank=2)
    # Pandas' records by the number of the row.
    if [*value] == [str(number) for number in range(len(value))] and are_records([*value.values()]):
        return FoundTable(path, [*value.values()])
    return None


def are_records(value: Any) -> bool:
    """Whether a value is a list of objects with at least one."""
    return is_array(value) and bool(value) and all(is_object(item) for item in value)


def _are_tables(rows: list[Record]) -> bool:
    """Whether each object is a table of its own, such as the answer to one of several statements."""
    return all(
        any(is_array(row.get(key)) for key in ("rows", "records"))
        or _names_beside_rows(row) is not None
        or any(are_records(member) and _are_tables(member) for member in row.values())
        for row in rows
    )


def _are_rows(value: Any) -> bool:
    """Whether a value is a list of equally long lists of plain values."""
    return (
        is_array(value)
        and bool(value)
        and all(is_array(row) and len(row) == len(value[0]) for row in value)
        and bool(value[0])
        and not any(is_array(cell) or is_object(cell) for cell in value[0])
    )


def _numbered(rows: Iterable[list[Any]]) -> list[Record]:
    return [{str(place): cell for place, cell in enumerate(row)} for row in rows]


def _names(value: Any) -> list[str] | None:
    """The names that a value lists: texts, or objects that each have a name, also within a schema."""
    if is_object(value):
        return next((names for key in ("fields", "columns") if (names := _names(value.get(key)))), None)
    if not is_array(value) or not value:
        return None
    names = value
    if are_records(value):
        key = next((key for key in _NAME_MEMBERS if all(isinstance(each.get(key), str) for each in value)), "")
        names = [each.get(key) for each in value]
    return names if all(isinstance(name, str) for name in names) and len({*names}) == len(names) else None


def _names_beside_rows(value: Record) -> tuple[list[str], list[Any]] | None:
    """The names and the rows of a table that gives them apart: `columns` and `rows`, a `schema` and `data`."""
    pairs: list[tuple[list[str], list[Any]]] = []
    described: list[tuple[list[str], list[Any]]] = []
    for key, rows in value.items():
        if not is_array(rows) or not rows or not all(is_array(row) for row in rows):
            continue
        for other, member in value.items():
            names = _names(member) if other not in (key, "index") else None
            if names is not None and all(len(row) == len(names) for row in rows):
                (described if other.lower() in _NAME_KEYS else pairs).append((names, rows))
    pairs = described or pairs
    if not pairs or any(pair != pairs[0] for pair in pairs):  # a schema may repeat the names
        return None
    names, rows = pairs[0]
    labels = value.get("index")
    if is_array(labels) and len(labels) == len(rows) and labels != [*range(len(rows))] and "index" not in names:
        return ["index", *names], [[label, *row] for label, row in zip(labels, rows, strict=True)]
    return names, rows


def _described(value: Record) -> set[str]:
    """The keys of members that only describe the columns of records beside them."""
    rows = [member for member in value.values() if are_records(member)]
    has_none = any(member == [] and key.lower() in ROW_KEYS for key, member in value.items())
    described: set[str] = set()
    for key, member in value.items():
        names = _names(member)
        if names is None:
            continue
        is_header = has_none and key.lower() in _NAME_KEYS
        if is_header or any(each is not member and {*each[0]} <= {*names} for each in rows):
            described.add(key)
    return described


def _columns(value: Record) -> Record | None:
    """The columns of a table by their names: lists of plain values, or pandas' objects by the number of the row."""
    members = [*value.values()]
    if all(is_array(member) and member for member in members):
        if len({len(member) for member in members}) > 1:
            return None
        return None if any(is_array(cell) or is_object(cell) for member in members for cell in member) else value
    if len(members) > 0 and all(is_object(member) and member for member in members):
        labels = [str(number) for number in range(len(members[0]))]
        if all([*member] == labels for member in members) and not any(key.isdecimal() for key in value):
            return {name: [*member.values()] for name, member in value.items()}
    return None


def _is_labelled(value: Record) -> bool:
    """Whether all members are objects with the same keys: rows by their labels, or columns."""
    members = [*value.values()]
    if len(members) < 2 or not all(is_object(member) and len(member) > 1 for member in members):
        return False
    return all(member.keys() == members[0].keys() for member in members)


def _unnamed(data: Any) -> FoundTable | None:
    """Data that is as a whole a table without names: a list of rows or of plain values, or one record."""
    if is_array(data) and data:
        if _are_rows(data):
            return FoundTable("", _numbered(data), rank=1)
        if not any(is_array(item) or is_object(item) for item in data):
            return FoundTable("", columns={"value": data}, rank=1)
    if is_object(data) and data and not _is_labelled(data) and not any(map(is_array, _leaves(data))):
        return FoundTable("", [data], rank=1)
    return None


def _leaves(record: Record) -> Iterator[Any]:
    for member in record.values():
        if is_object(member):
            yield from _leaves(member)
        else:
            yield member


# -- empty tables ------------------------------------------------------------------------------------------------------


def _empty(data: Any, schema: Any) -> list[FoundTable]:
    """The tables without rows that data is or has, nearest to the top."""
    if data == []:
        return [FoundTable("", [], sample=_sample_at(schema, ()))]
    lists = [*_empty_lists(data, (), schema)]
    level = min((len(path) for path, _ in lists), default=0)
    return [
        FoundTable(".".join(path), [], sample=_sample_at(schema, path) or dict.fromkeys(names))
        for path, names in lists
        if len(path) == level
    ]


def _empty_lists(value: Any, path: tuple[str, ...], schema: Any) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Find lists without members that would be rows, with the names beside them; the schema may also allow null."""
    if are_records(value) and _are_tables(value):
        for number, member in enumerate(value):
            yield from _empty_lists(member, (*path, str(number)), schema)
    for key, member in value.items() if is_object(value) else ():
        here = (*path, key)
        if member == [] or member is None:
            is_rows = bool(_item_members(schema, here)) or (member == [] and key.lower() in ROW_KEYS)
            if is_rows:
                beside = (_names(names) for other, names in value.items() if other.lower() in _NAME_KEYS)
                yield here, next(filter(None, beside), list[str]())
        elif len(here) < _MAX_DEPTH:
            yield from _empty_lists(member, here, schema)


def _sample_at(schema: Any, path: tuple[str, ...]) -> Record:
    """A record of the kind that a schema has in the list at a path, with a value of each type."""
    return {name: _sample(schema, each, 0) for name, each in _item_members(schema, path).items()}


_SAMPLES: dict[str, Any] = {"integer": 0, "number": 0.0, "boolean": False, "string": ""}


def _sample(schema: Any, member: Any, depth: int) -> Any:
    member = _resolved(schema, member)
    members = member.get("properties")
    if is_object(members) and members and depth < _MAX_DEPTH:
        return {name: _sample(schema, each, depth + 1) for name, each in members.items()}
    kind = member.get("type")
    if is_array(kind):
        kind = next((each for each in kind if each != "null"), None)
    return _SAMPLES.get(kind) if isinstance(kind, str) else None


def _named_by_first_row(table: FoundTable, schema: Any) -> FoundTable:
    """A table without names whose schema says that its first row has them, with these names; any other as it is."""
    if table.rank > 1 or table.columns is not None or schema is None:
        return table
    names = [*table.records[0].values()]
    if not all(isinstance(name, str) and name for name in names) or len(set(names)) < len(names):
        return table
    described = _schema_at(schema, tuple(filter(None, table.path.split("."))))
    first = described.get("prefixItems")
    row = _resolved(schema, first[0]) if is_array(first) and len(first) == 1 and "items" in described else {}
    is_header = row.get("type") == "array" and _resolved(schema, row.get("items")).get("type") == "string"
    if not is_header and not _HEADER.search(str(described.get("description", ""))):
        return table
    return FoundTable(table.path, [dict(zip(names, row.values(), strict=True)) for row in table.records[1:]])


def _schema_at(schema: Any, path: tuple[str, ...]) -> Record:
    """The schema of the value at a path."""
    here = _resolved(schema, schema)
    if not path and is_object(here.get("properties")) and [*here["properties"]] == ["result"]:
        path = ("result",)  # as the official SDK wraps a list
    for key in path:
        members = here.get("properties")
        here = _resolved(schema, members.get(key) if is_object(members) else None)
    return here


def _item_members(schema: Any, path: tuple[str, ...]) -> Record:
    """The properties of the items of the list at a path in a schema."""
    items = _resolved(schema, _schema_at(schema, path).get("items"))
    members = items.get("properties")
    return members if is_object(members) else {}


def _resolved(root: Any, schema: Any) -> Record:
    """A schema without references to its own definitions and without the alternative null; empty if there is none."""
    for _ in range(_MAX_DEPTH):
        if not is_object(schema):
            return {}
        reference = schema.get("$ref")
        options = schema.get("anyOf") or schema.get("oneOf")
        if isinstance(reference, str) and reference.startswith("#/"):
            target: Any = root
            for step in reference[2:].split("/"):
                target = target.get(step.replace("~1", "/").replace("~0", "~")) if is_object(target) else None
            schema = target
        elif is_array(options):
            others = [each for each in options if not (is_object(each) and each.get("type") == "null")]
            schema = others[0] if len(others) == 1 else None
        else:
            return schema
    return {}
