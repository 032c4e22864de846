"""Results as DataFrames."""

import math
import struct
import sys
import zoneinfo
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import narwhals
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from ipymcp.errors import McpError
from ipymcp.results.frames import with_columns
from ipymcp.results.recognition import find_rows, find_tables, main_table
from ipymcp.results.text_tables import read_literal
from tests.errors import refused


def frame_of(data: Any, schema: Any = None) -> Any:
    return main_table(data, find_tables(data, schema)).df


@pytest.fixture(params=["pandas", "polars"])
def columns(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a frame with one library and gives back its columns as lists."""
    if request.param == "polars":
        monkeypatch.setitem(sys.modules, "pandas", None)

    def read(data: Any) -> dict[str, list[Any]]:
        frame = frame_of(data)
        assert type(frame).__module__.startswith(request.param)
        return frame.to_dict(as_series=False) if request.param == "polars" else frame.to_dict("list")

    return read


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}], {"a": [1, 2], "b": ["x", "y"]}),
        ({"rows": [{"a": 1}], "total": 1}, {"a": [1]}),
        ({"a": [1, 2], "b": ["x", "y"]}, {"a": [1, 2], "b": ["x", "y"]}),
        ([{"a": {"b": {"c": 1}, "d": 2}}], {"a.b.c": [1], "a.d": [2]}),
        ([1, 2], {"value": [1, 2]}),
        ([[1, "x"], [2, "y"]], {"0": [1, 2], "1": ["x", "y"]}),
        ({"a": 1, "b": {"c": "x"}}, {"a": [1], "b.c": ["x"]}),
        ([], {}),
    ],
)
def test_data_of_every_shape_becomes_columns(columns: Any, data: Any, expected: object) -> None:
    assert columns(data) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": 1}\n{"a": 2}\n', {"a": [1, 2]}),
        ('{"a": {"b": 1}}\n\n{"a": {"b": 2}}', {"a.b": [1, 2]}),
        ("a,b\n1,x\n2,y\n", {"a": [1, 2], "b": ["x", "y"]}),
        ("a\tb\n1\tx, z\n", {"a": [1], "b": ["x, z"]}),
        ("a;b\n1;x\n", {"a": [1], "b": ["x"]}),
        ('a,b\n1,"x, y"\n', {"a": [1], "b": ["x, y"]}),
        ("[{'a': 1, 'b': 'x'}, {'a': -2, 'b': \"it's\"}]", {"a": [1, -2], "b": ["x", "it's"]}),
        ("[{'a': 1e-05, 'b': '][', 'c': None}]", {"a": [1e-05], "b": ["]["], "c": [None]}),
        ("[(1, 'x'), (2, 'y')]", {"0": [1, 2], "1": ["x", "y"]}),
        ("{'rows': [{'a': 1}], 'total': 1}", {"a": [1]}),
    ],
)
def test_text_of_lines_becomes_columns(columns: Any, text: str, expected: object) -> None:
    assert columns(text) == expected


def test_members_missing_in_some_records_are_null() -> None:
    frame = frame_of([{"a": 1}, {"b": 2.5}])
    assert frame["a"].isna().tolist() == [False, True]


def test_types_that_change_between_records_are_accepted(columns: Any) -> None:
    assert len(columns([{"a": 1}, {"a": "x"}])["a"]) == 2


NO_TABLE = "a text of {} characters that holds none"


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (5, "int 5"),
        (None, "NoneType None"),
        *((text, NO_TABLE.format(len(text))) for text in ("no table", "one, line", "a, b\nand then some, more, text")),
        *((text, NO_TABLE.format(len(text))) for text in ('{"a": 1}\n{broken', '{"a": 1}\nplain')),
        ({}, "an empty dict"),
        ({"a": [1, 2], "b": [1]}, "a dict with a, b"),
        ({"a": [1, {}], "b": 1, "c": 1, "d": 1, "e": 1, "f": 1}, "a dict with a, b, c, d, e, …"),
        ([{"a": 1}, 2], "a list of records mixed with other values"),
    ],
)
def test_data_that_is_not_a_table_is_an_error_that_says_what_it_is(data: Any, what: str) -> None:
    assert refused(McpError, frame_of, data) == (
        f"the answer is not a table: {what}",
        "make the DataFrame yourself from .data or .text",
    )


def test_without_any_library_the_error_has_the_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setitem(sys.modules, "polars", None)
    assert refused(McpError, frame_of, [1]) == (
        "a DataFrame needs pandas or polars, and neither is installed",
        "%pip install pandas",
    )


@pytest.mark.parametrize(
    "text",
    [
        "[__import__('os').getpid()]", "[open('x')]", "[" * 100 + "]" * 100, "[" * 50_000, "[" + "-" * 50_000 + "1]",
        "[" + "1+" * 50_000 + "1]", "[1 if 1 else 2]", "[x for x in (1, 2)]", "[{'a': " + "'x'" * 400_000 + "}]",
        "[{'a': 1}", "[f'{1}']",
    ],
)  # fmt: skip
def test_text_is_never_executed_and_not_parsed_where_that_would_exhaust_the_parser(text: str) -> None:
    assert read_literal(text) is None
    assert find_rows(text) is None


LARGE = 2**53 + 1


@pytest.mark.parametrize(
    ("values", "pandas", "others"),
    [
        ([2**63, 1], [2**63, 1], [str(2**63), "1"]),
        ([1, 2**70], [1, 2**70], ["1", str(2**70)]),
        ([-(2**70), None], [-(2**70), None], [str(-(2**70)), None]),
        ([LARGE, 1.5], [LARGE, 1.5], [str(LARGE), "1.5"]),
        ([LARGE, None], [LARGE, pd.NA], [LARGE, None]),
        ([1, 1.5], [1.0, 1.5], [1.0, 1.5]),
    ],
)
@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_added_columns_lose_no_digit(library: str, values: Any, pandas: Any, others: Any) -> None:
    table = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}[library]({"a": [1, 2]})
    column = with_columns(narwhals.from_native(table), {"b": values})["b"].to_list()
    assert [*map(str, column)] == [*map(str, pandas if library == "pandas" else others)]


def test_integers_with_gaps_stay_numbers_in_pandas() -> None:
    frame = with_columns(narwhals.from_native(pd.DataFrame({"a": [1, 2, 3]})), {"b": [1, None, 3]}).to_native()
    assert (str(frame["b"].dtype), frame["b"].mean()) == ("Int64", 2.0)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("[{'a': Decimal('1.50'), 'b': None}]", [{"a": Decimal("1.50"), "b": None}]),
        ("[{'at': datetime.datetime(2024, 1, 2, 3, 4)}]", [{"at": datetime(2024, 1, 2, 3, 4)}]),
        *(
            (f"[{{'at': datetime.datetime(2024, 1, 2, tzinfo={zone})}}]", [{"at": datetime(2024, 1, 2, tzinfo=UTC)}])
            for zone in ("datetime.timezone.utc", "zoneinfo.ZoneInfo(key='Etc/UTC')")
        ),
        ("[{'d': datetime.date(2024, 1, 2), 't': datetime.time(1, 2)}]", [{"d": date(2024, 1, 2), "t": time(1, 2)}]),
        ("[{'took': datetime.timedelta(days=-1, seconds=3)}]", [{"took": timedelta(days=-1, seconds=3)}]),
        (
            "[{'id': UUID('12345678-1234-5678-1234-567812345678')}]",
            [{"id": UUID(int=0x12345678123456781234567812345678)}],
        ),
        ("[{'a': inf}, {'a': -inf}]", [{"a": math.inf}, {"a": -math.inf}]),
        ("({'a': 1}, {'a': -2})", [{"a": 1}, {"a": -2}]),
        ("{'a': 1}\n{'a': 2}\n", [{"a": 1}, {"a": 2}]),
    ],
)
def test_rows_of_a_database_are_read_as_python_writes_them(text: str, rows: Any) -> None:
    assert read_literal(text) == find_rows(text) == rows
    assert len(frame_of(text)) == len(rows)


@pytest.mark.parametrize(
    "text",
    [
        "[Decimal()]()", "[Decimal('x')]", "[datetime.datetime(99999, 1, 1)]", "[datetime.datetime.now()]",
        "[zoneinfo.ZoneInfo('../../etc/passwd')]", "[zoneinfo.ZoneInfo('None/Such')]", "[Decimal(**{'value': 1})]",
        "[-'x']", "[{**{'a': 1}}]", "[datetime]", "[Decimal.from_float(1.0)]",
    ],
)  # fmt: skip
def test_only_plain_constructors_of_database_types_are_read(text: str) -> None:
    assert read_literal(text) is None


def test_a_time_zone_is_read_from_the_system_and_never_from_a_package(tmp_path: Path, request: Any) -> None:
    (tmp_path / "Here").mkdir()
    one_type = struct.pack(">4s16x6lLBB4s", b"TZif", 0, 0, 0, 0, 1, 4, 3600, 0, 0, b"CET\0")
    (tmp_path / "Here" / "Town").write_bytes(one_type)
    request.addfinalizer(zoneinfo.reset_tzpath)
    zoneinfo.reset_tzpath([str(tmp_path)])
    [row] = read_literal("[{'at': datetime.datetime(2024, 1, 2, tzinfo=zoneinfo.ZoneInfo(key='Here/Town'))}]")
    assert row["at"].isoformat() == "2024-01-02T00:00:00+01:00"
    assert read_literal("[zoneinfo.ZoneInfo('Europe/Paris')]") is None
