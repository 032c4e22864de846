"""Records as a table: pages in any order, cells, and files."""

import csv
import io
import json
import sys
from typing import Any

import pytest

from ipymcp.errors import ArgumentError, McpError
from ipymcp.masking import masks
from ipymcp.results.records import RecordTable
from tests.errors import refused

MIXED: list[dict[str, Any]] = [
    {"a": 2, "b": "x"},
    {"a": None, "b": "Y", "c": [1]},
    {"a": 0.5, "b": "x"},
    {"a": "text", "b": "x"},
    {"a": 10},
    {"a": {"k": 1}, "b": "w"},
]


def column(table: RecordTable, name: int, **order: Any) -> list[object]:
    return [row[name] for row in table.page(0, 100, 100, **order)]


def test_a_column_for_each_name_that_occurs_anywhere() -> None:
    table = RecordTable(MIXED)
    assert (table.names, len(table)) == (["a", "b", "c"], 6)
    assert table.page(1, 2, 3) == [[None, "Y", "[1]"], ["0.5", "x", None]]
    assert table.page(0, 1, 2) == [[2, "x"]]
    assert table.page(6, 10, 3) == []


def test_numbers_come_before_text_and_empty_cells_last_in_both_directions() -> None:
    table = RecordTable(MIXED)
    ascending = ["0.5", 2, 10, "text", '{"k": 1}', None]
    assert column(table, 0, sort=0) == ascending
    assert column(table, 0, sort=0, descending=True) == [*ascending[-2::-1], None]
    assert column(table, 1, sort=1) == ["Y", "w", "x", "x", "x", None]
    assert column(table, 0) == [2, None, "0.5", "text", 10, '{"k": 1}']


def test_equal_values_keep_the_order_of_the_result() -> None:
    table = RecordTable([{"k": place % 2, "place": place} for place in range(6)])
    assert column(table, 1, sort=0) == [0, 2, 4, 1, 3, 5]
    assert column(table, 1, sort=0, descending=True) == [1, 3, 5, 0, 2, 4]


def test_all_rows_are_sorted_not_only_those_of_the_page() -> None:
    table = RecordTable([{"n": (number * 7919) % 100_003} for number in range(100_003)])
    assert table.page(0, 3, 1, sort=0, descending=True) == [[100_002], [100_001], [100_000]]
    assert table.page(50_000, 1, 1, sort=0, descending=True) == [[50_002]]
    assert table.record(100_002, sort=0, descending=True) == {"n": 0}


def test_values_that_are_not_numbers_are_empty_when_sorted() -> None:
    rows = json.loads('[{"n": NaN}, {"n": 2}, {"n": Infinity}, {"n": 1}]')
    assert column(RecordTable(rows), 0, sort=0) == [1, 2, float("inf"), pytest.approx(float("nan"), nan_ok=True)]


@pytest.mark.parametrize("wrong", [-1, 3])
def test_a_column_or_row_that_does_not_exist_is_an_error(wrong: int) -> None:
    with pytest.raises(ArgumentError, match=f"there is no column {wrong}"):
        RecordTable(MIXED).page(0, 1, 1, sort=wrong)
    with pytest.raises(ArgumentError, match="there is no row 6"):
        RecordTable(MIXED).record(6)


def test_a_file_has_all_rows_and_columns() -> None:
    table = RecordTable(MIXED)
    assert json.loads(table.file("json")) == MIXED
    rows = list(csv.reader(io.StringIO(table.file("csv").decode())))
    assert rows[0] == ["a", "b", "c"]
    assert rows[2] == ["", "Y", "[1]"]
    assert [row[0] for row in rows[1:]] == ["2", "", "0.5", "text", "10", '{"k": 1}']


@pytest.mark.parametrize(
    "text",
    [
        "=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "\uff1d1", "-", "=", "-1e", "+1,2;",
        "=\r-1",
    ],
)  # fmt: skip
def test_no_text_of_a_csv_file_is_a_formula(text: str) -> None:
    table = RecordTable([{"a": text, text: 1}])
    rows = list(csv.reader(io.StringIO(table.file("csv").decode(), newline=""), strict=True))
    assert rows == [["a", f"'{text}"], [f"'{text}", "1"]]
    assert json.loads(table.file("json")) == [{"a": text, text: 1}]


@pytest.mark.parametrize("text", ["-5", "+49", "-1.5e-3", "-1,234.5", "-.5", "+5%", "a=b", "'=1", "", -5, -0.5])
def test_numbers_and_other_text_stay_as_they_are_in_a_csv_file(text: object) -> None:
    assert list(csv.reader(io.StringIO(RecordTable([{"a": text, "b": 1}]).file("csv").decode())))[1][0] == str(text)


def test_secrets_are_masked_in_files() -> None:
    masks.add("a-secret-of-records")
    table = RecordTable([{"a": "token a-secret-of-records", "b": 1}])
    assert table.file("csv") == b"a,b\r\ntoken [secret],1\r\n"
    assert json.loads(table.file("json")) == [{"a": "token [secret]", "b": 1}]
    parquet = pytest.importorskip("pyarrow.parquet")
    assert parquet.read_table(io.BytesIO(table.file("parquet"))).to_pylist() == [{"a": "token [secret]", "b": 1}]


def test_parquet_is_written_by_pyarrow() -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [{"a": 1, "b": [1, 2]}, {"a": None, "b": []}]
    assert parquet.read_table(io.BytesIO(RecordTable(rows).file("parquet"))).to_pylist() == rows
    message, hint = refused(McpError, RecordTable(MIXED).file, "parquet")
    assert "Parquet cannot express this table" in message
    assert hint == "choose CSV or JSON"


def test_without_pyarrow_parquet_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    message, hint = refused(McpError, RecordTable(MIXED).file, "parquet")
    assert "Parquet needs pyarrow, which is not installed" in message
    assert hint == "%pip install pyarrow"
