"""`tool.map`: one call for every row, in order, never twice where it matters, and nothing is lost."""

import asyncio
import itertools
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow.dataset import dataset

import ipymcp
from ipymcp import ArgumentError, HttpError, Mcp, McpError, PolicyError, ServerStopped, ToolError
from ipymcp.interaction.questions import PageReply
from ipymcp.llm.code_mode import CodeRunner
from ipymcp.maps import run as map_run
from ipymcp.protocol.types import Progress
from tests.bad_servers import connected
from tests.environments import server_command
from tests.kernels import Kernel
from tests.row_server import (
    HELD,
    SERVER,
    after_calls,
    calls,
    held_from,
    hurry,
    interrupt,
    interrupt_after,
    keys,
    server,
    when,
)
from tests.unit.scripted_interface import ScriptedInterface

# -- tables -----------------------------------------------------------------------------------------------------------


def test_a_pandas_table_comes_back_with_its_index_and_the_results_columns(mcp: Mcp) -> None:
    table = pd.DataFrame({"key": ["ab", "c"], "other": [1, 2]}, index=["x", "y"])
    mapped = mcp.rows.read.map(table).df
    assert list(mapped.columns) == ["key", "other", "length", "name.upper", "times", "error"]
    assert list(mapped.index) == ["x", "y"]
    assert mapped["length"].tolist() == [2, 1]
    assert mapped["name.upper"].tolist() == ["AB", "C"]
    assert mapped["error"].isna().all()


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (pl.DataFrame, pl.DataFrame),
        (lambda columns: pl.DataFrame(columns).lazy(), pl.LazyFrame),
        (pa.table, pa.Table),
        (lambda columns: duckdb.from_arrow(pa.table(columns)), duckdb.DuckDBPyRelation),
    ],
    ids=["polars", "lazy polars", "pyarrow", "duckdb"],
)
def test_a_table_comes_back_as_what_it_was(mcp: Mcp, make: Any, kind: type) -> None:
    mapped = mcp.rows.read.map(make({"key": ["ab", "c"], "other": [1, 2]})).df
    assert isinstance(mapped, kind)
    rows = pl.from_arrow(mapped.to_arrow_table()) if kind is duckdb.DuckDBPyRelation else mapped
    rows = rows.collect() if kind is pl.LazyFrame else pl.from_arrow(rows) if kind is pa.Table else rows
    assert isinstance(rows, pl.DataFrame)
    assert rows.columns == ["key", "other", "length", "name.upper", "times", "error"]
    assert rows["name.upper"].to_list() == ["AB", "C"]


@pytest.mark.filterwarnings("ignore:The inplace keyword")
def test_results_stay_beside_their_rows_when_the_input_is_changed(mcp: Mcp) -> None:
    table = pd.DataFrame({"key": ["ccc", "a", "bb"], "other": [3, 1, 2]})
    mapped = mcp.rows.read.map(table)
    table.loc[0, "other"] = 99
    table["more"] = 0
    table.drop(index=1, inplace=True)
    table.sort_values("key", inplace=True)
    first = mapped.df
    assert list(first.columns) == ["key", "other", "length", "name.upper", "times", "error"]
    assert first[["key", "other", "length"]].values.tolist() == [["ccc", 3, 3], ["a", 1, 1], ["bb", 2, 2]]
    first.loc[0, "other"] = 77
    assert mapped.df["other"].tolist() == [3, 1, 2]
    rows = [{"key": "a"}, {"key": "bb"}]
    mapped = mcp.rows.read.map(rows)
    rows[0]["key"] = "x"
    rows.reverse()
    assert mapped.df[["key", "length"]].values.tolist() == [["a", 1], ["bb", 2]]


def test_rows_that_are_not_a_table_come_back_with_their_results(mcp: Mcp) -> None:
    added = ["length", "name.upper", "times", "error"]
    mapped = mcp.rows.read.map(iter(["ab", "c"])).df
    assert (list(mapped.columns), mapped["row"].tolist()) == (["row", *added], ["ab", "c"])
    mapped = mcp.rows.read.map([{"key": "ab", "times": 2}, {"key": "c"}]).df
    assert list(mapped.columns) == ["key", "times", "length", "name.upper", "times_result", "error"]
    assert mapped["length"].tolist() == [2, 1]


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, list])
def test_long_has_a_row_for_each_record_beside_its_input(make: Any) -> None:
    command, *arguments = server_command("demo")
    asked = [("penguins", "", 2), ("penguins", "1=0", 1), ("nope", "", 1), ("penguins", "", 1)]
    rows = [dict(zip(("table", "where", "limit"), each, strict=True)) for each in asked]
    with ipymcp.connect({"demo": {"command": command, "args": arguments}}) as mcp:
        found = mcp.demo.query.map(make(rows)).long
    assert list(found.columns)[:4] == ["table", "where", "limit", "species"]
    assert list(found["limit"]) == [2, 2, 1, 1]
    assert [str(error)[:13] for error in found["error"]][2] == "ArgumentError"
    assert list(found["species"])[:2] == ["Adelie"] * 2


@pytest.mark.parametrize("kind", ["reader", "stream", "file", "batch", "dataset", "scanner", "capsule"])
def test_arrow_data_of_any_kind_is_a_table(mcp: Mcp, kind: str) -> None:
    table = pa.table({"key": ["ab", "c"], "other": [1, 2]})
    sink = pa.BufferOutputStream()
    with (pa.ipc.new_file if kind == "file" else pa.ipc.new_stream)(sink, table.schema) as writer:
        writer.write_table(table)
    made: dict[str, Callable[[], Any]] = {
        "reader": table.to_reader,
        "stream": lambda: pa.ipc.open_stream(sink.getvalue()),
        "file": lambda: pa.ipc.open_file(sink.getvalue()),
        "batch": lambda: table.to_batches()[0],
        "dataset": lambda: dataset(table),
        "scanner": lambda: dataset(table).scanner(),
        "capsule": lambda: SimpleNamespace(__arrow_c_stream__=table.__arrow_c_stream__),
    }
    mapped = mcp.rows.read.map(made[kind]()).df
    assert mapped.column_names == ["key", "other", "length", "name.upper", "times", "error"]
    assert mapped["other"].to_pylist() == [1, 2]
    streamed = mcp.rows.read.map.stream(made[kind](), columns={"key": "key"})
    assert [(row["other"], result.data["length"]) for row, result in streamed] == [(1, 2), (2, 1)]


@pytest.mark.parametrize(
    "parts",
    [
        lambda table: table.to_batches(max_chunksize=2),
        lambda table: iter(table.to_batches(max_chunksize=2)),
        lambda table: (part for part in (table[:2].to_pandas(), table[2:].to_pandas())),
        lambda table: pl.DataFrame(table).iter_slices(2),
    ],
    ids=["batches", "iterator", "pandas chunks", "polars slices"],
)
def test_parts_of_a_table_are_its_rows(mcp: Mcp, parts: Callable[[pa.Table], Any]) -> None:
    table = pa.table({"key": ["ab", "c", "def"], "other": [1, 2, 3]})
    mapped = mcp.rows.read.map(parts(table)).df
    assert list(mapped.columns) == ["key", "other", "length", "name.upper", "times", "error"]
    assert mapped["length"].tolist() == [2, 1, 3]
    streamed = mcp.rows.read.map.stream(parts(table), times=5)
    assert [(row["other"], result.data["times"]) for row, result in streamed] == [(1, 5), (2, 5), (3, 5)]


def test_a_relation_comes_back_on_its_own_connection(mcp: Mcp) -> None:
    with duckdb.connect() as connection:
        connection.sql("create table cities as select 'ab' as key, 5 as other")
        mapped = mcp.rows.read.map(connection.sql("from cities")).df
        assert mapped.columns == ["key", "other", "length", "name.upper", "times", "error"]
        assert connection.sql("select length, c.other from mapped join cities c using (key)").fetchall() == [(2, 5)]
        assert connection.sql("show tables").fetchall() == [("cities",)]


def test_rows_that_were_not_called_have_an_error(mcp: Mcp) -> None:
    mapped = mcp.rows.broken.map(keys(9), stop_after=3, concurrency=1)
    table = mapped.df
    assert table["error"].notna().all()
    assert table["error"][8] == "McpError: was not called: the map was stopped after 3 failures in a row"
    assert list(mapped.errors)[8] == {"row": 8, "state": "not called", "error": table["error"][8]}


def test_columns_and_constants_are_bound_by_name(mcp: Mcp) -> None:
    table = pd.DataFrame({"word": ["ab", "c"], "times": [1, 2]})
    mapped = mcp.rows.read.map(table, columns={"key": "word"}, times=5)
    assert [row.data["times"] for row in mapped.results if row] == [5, 5]
    assert [row.data["length"] for row in mapped.results if row] == [2, 1]
    mapped = mcp.rows.read.map([{"key": "ab", "times": 1}, {"key": "c"}], times=5)
    assert [row.data["times"] for row in mapped.results if row] == [5, 5]


@pytest.mark.parametrize("make", [pd.DataFrame, pa.table, lambda columns: pl.DataFrame(columns).lazy()])
@pytest.mark.parametrize("method", ["__call__", "plan", "stream"])
def test_a_constant_that_is_the_name_of_a_column_is_refused_with_both_ways_to_write_it(
    mcp: Mcp, record: Path, make: Any, method: str
) -> None:
    rows, call = make({"word": ["ab", "c"], "times": [1, 2]}), getattr(mcp.rows.read.map, method)
    with pytest.raises(ArgumentError) as caught:
        call(rows, key="word")
    message = "rows.read: map: key='word' would send the word 'word' in every row, and the table has that column"
    assert str(caught.value) == message
    assert caught.value.hint == "columns={'key': 'word'} sends the column, constants={'key': 'word'} the word"
    assert not calls(record)
    assert mcp.rows.read.map(rows, columns={"key": "word"})[0].data["length"] == 2
    assert mcp.rows.read.map(rows, constants={"key": "word"})[0].data["length"] == 4


@pytest.mark.parametrize(
    ("rows", "texts"),
    [
        (pd.Series([10, 200]), ["10", "200"]),
        ([{"key": 1}, {"key": 2.5}], ["1", "2.5"]),
        (pl.DataFrame({"key": [7]}), ["7"]),
        (pa.table({"key": [7]}), ["7"]),
        ([(3,), ("03",)], ["3", "03"]),
    ],
    ids=["Series", "mappings", "polars", "Arrow", "tuples"],
)
def test_numbers_for_a_string_are_sent_as_text_and_said_once(mcp: Mcp, rows: Any, texts: list[str]) -> None:
    host = mcp._host
    host.notices.take()
    mapped = mcp.rows.read.map(rows)
    assert [each.data["name"]["upper"] for each in mapped.results if each] == texts
    message = f"mcp.rows.read.map: key is a string: numbers are sent as text, such as {texts[0]!r}"
    assert host.notices.take() == [message]
    assert mcp.rows.read.map([True]).errors.rows[0][2].endswith("key: expected string, got True")


def test_a_tool_in_a_librarys_map_gives_the_data_of_its_results(mcp: Mcp) -> None:
    words = pd.Series(["ab", "c"])
    assert words.map(mcp.rows.read).str["length"].tolist() == [2, 1]
    assert words.apply(mcp.rows.read, times=3).str["times"].tolist() == [3, 3]
    assert pl.Series(["ab"]).map_elements(mcp.rows.read, return_dtype=pl.Object)[0]["length"] == 2


def test_a_series_a_list_mappings_and_tuples_are_rows(mcp: Mcp) -> None:
    for rows in (pd.Series(["ab"]), ["ab"], [{"key": "ab"}], [("ab",)], iter(["ab"]), pl.Series(["ab"])):
        assert mcp.rows.read.map(rows)[0].data["length"] == 2
    assert mcp.rows.read.map(["ab", "c"]).df["length"].tolist() == [2, 1]


def test_a_slice_of_the_results_is_a_list(mcp: Mcp) -> None:
    mapped = mcp.rows.read.map(["a", "bb", "ccc", ""])
    assert [row.data["length"] for row in mapped[1:3]] == [2, 3]
    assert mapped[4:] == []
    stopped = mcp.rows.flaky.map(keys(8), concurrency=1)
    row = next(iter(stopped.errors))["row"]
    with pytest.raises(ToolError):
        stopped[row : row + 1]


@pytest.mark.parametrize("rows", [itertools.count(), itertools.repeat({"key": "a"})], ids=["values", "mappings"])
def test_an_awaited_map_of_endless_rows_can_be_cancelled(mcp: Mcp, rows: Any) -> None:
    async def cancel() -> None:
        async with asyncio.timeout(0.3):
            await mcp.rows.read.map.aio(str(row) if isinstance(row, int) else row for row in rows)

    with pytest.raises(TimeoutError):
        asyncio.run(cancel())


def test_a_missing_cell_of_an_optional_argument_is_left_out(mcp: Mcp) -> None:
    table = pd.DataFrame({"key": ["a", "b"], "times": [1, None]})
    for rows in (table, table.to_dict("records")):
        mapped = mcp.rows.read.map(rows)
        assert [row.data["times"] for row in mapped.results if row] == [1, None]


@pytest.mark.parametrize("word", ["map", "map.aio", "map.stream", "map.plan"])
def test_rows_that_are_not_given_are_said(mcp: Mcp, word: str) -> None:
    function = mcp.rows.read.map if word == "map" else getattr(mcp.rows.read.map, word.removeprefix("map."))
    with pytest.raises(ArgumentError, match=f"{word}\\(\\): missing a required argument: 'rows'"):
        function()
    with pytest.raises(ArgumentError, match=f"{word}\\(\\): too many positional arguments"):
        function(["a"], "b")


def test_a_misspelt_option_is_recognised(mcp: Mcp) -> None:
    with pytest.raises(ArgumentError, match="no argument 'concurency'") as caught:
        mcp.rows.read.map(["a"], concurency=3)
    assert caught.value.hint == "did you mean 'concurrency'?"


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (pd.DataFrame({"a": [1], "b": [2]}), {}, "no column for key; the table has 2 columns: a, b"),
        (pd.DataFrame({"a": [1]}), {"columns": {"key": "aa"}}, "no column 'aa' for argument 'key'"),
        (pd.DataFrame({"a": [1]}), {"columns": {"kee": "a"}}, "no argument 'kee'"),
        (["a"], {"nothing": 1}, "no argument 'nothing'"),
        (["a"], {"columns": {"key": "a"}}, "columns= is for tables, and this is ['a']"),
        ("abc", {}, "expected a table or a list of rows, got 'abc'"),
        (5, {}, "expected a table or a list of rows, got 5"),
        ({"key": "a"}, {}, "expected a table or a list of rows, got {'key': 'a'}"),
        (["a"], {"rate": "fast"}, "map: rate: expected calls per time, got 'fast'"),
        (["a"], {"concurrency": -1}, "concurrency: expected a whole number, 0 or more or None, got -1"),
        (["a"], {"concurrency": 0}, "map: concurrency: expected a whole number from 1 to 1,000, got 0"),
        (["a"], {"concurrency": 10**6}, "map: concurrency: expected a whole number from 1 to 1,000, got 1,000,000"),
        (["a"], {"columns": {5: "a"}}, "no argument 5"),
        (pd.DataFrame({"a": [1]}), {"columns": {"key": 5}}, "no column 5 for argument 'key'"),
        (pd.DataFrame([["a", 1]]), {}, "no column for key; the table has 0 columns and 2 whose names are not text"),
        (pd.DataFrame([["a", 1]], columns=["key", "key"]), {}, "the table has several columns of the same name"),
        (["a"], {"on_error": "ignore"}, "on_error: expected"),
        (["a"], {"to": "x.csv"}, "map: to: expected a .jsonl or .parquet file, got 'x.csv'"),
    ],
)
def test_what_cannot_be_mapped_is_said_and_nothing_is_sent(
    mcp: Mcp, record: Path, rows: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ArgumentError) as caught:
        mcp.rows.read.map(rows, **options)
    assert message in caught.value.message
    assert not calls(record)


# -- rows that do not fit, plans --------------------------------------------------------------------------------------


def test_rows_that_do_not_fit_are_listed_by_row_and_column_before_anything_is_sent(mcp: Mcp, record: Path) -> None:
    table = pd.DataFrame({"word": ["a", None, "c"], "times": [1, 2, "many"]})
    with pytest.raises(ArgumentError) as caught:
        mcp.rows.read.map(table, columns={"key": "word"}, on_error="raise")
    assert "2 of 3 rows do not fit, and nothing was sent: row 1, word: " in caught.value.message
    assert "row 2, times: " in caught.value.message
    assert not calls(record)
    mapped = mcp.rows.read.map(table, columns={"key": "word"})
    assert [row["row"] for row in mapped.errors] == [1, 2]
    assert calls(record) == {"read a": 1}


def test_a_plan_shows_the_calls_and_sends_none(mcp: Mcp, record: Path) -> None:
    plan = mcp.rows.read.map.plan(["a", "b", "a", True])
    assert (plan.rows, plan.calls) == (4, 2)
    assert "rows.read: 2 calls for 4 rows" in repr(plan)
    assert '{"key":"b"}' in repr(plan) and "does not fit" in repr(plan)
    assert not calls(record)


# -- how often --------------------------------------------------------------------------------------------------------


def test_rows_with_the_same_arguments_share_a_call_of_a_tool_that_reads(mcp: Mcp, record: Path) -> None:
    mapped = mcp.rows.read.map(["a", "b", "a", "a"])
    assert [row.data["name"]["upper"] for row in mapped.results if row] == ["A", "B", "A", "A"]
    assert calls(record) == {"read a": 1, "read b": 1}
    assert mapped.summary["duplicates"] == 2
    note = re.sub(r"in [0-9.]+ s", "in … s", mapped.table.note)
    assert note == "2 calls in … s, which 2 more rows with the same arguments share; .df has all"
    mcp.rows.write.map(["a", "a"])
    assert calls(record)["write a"] == 2


@pytest.mark.parametrize(("tool", "at_once"), [("read", 8), ("write", 1)])
def test_what_writes_goes_one_by_one_and_what_reads_eight_at_a_time(
    mcp: Mcp, record: Path, tool: str, at_once: int
) -> None:
    begun: list[int] = []

    def look() -> None:
        begun.append(calls(record).total())
        hurry(record)

    looking = when(lambda: len(mcp._host.calls.running) > at_once and calls(record).total() >= at_once, look)
    assert mcp.rows[tool].map(keys(16), seconds=HELD).summary["succeeded"] == 16
    looking.join()
    assert begun == [at_once]


def test_a_rate_holds_over_the_whole_map(mcp: Mcp) -> None:
    began = time.monotonic()
    mcp.rows.read.map(keys(11), rate="20/s", concurrency=5)
    assert time.monotonic() - began >= 0.5


def test_failures_are_collected_and_can_be_tried_again(mcp: Mcp, record: Path) -> None:
    mapped = mcp.rows.flaky.map(keys(21), concurrency=1)
    assert [row["row"] for row in mapped.errors] == [6, 13, 20]
    assert (mapped.summary["succeeded"], mapped.summary["failed"]) == (18, 3)
    with pytest.raises(ToolError, match="no luck with 6"):
        mapped[6]
    assert mapped.retry() is mapped
    assert mapped.summary["succeeded"] == 21
    assert calls(record)["flaky 0"] == 1


def test_the_first_error_is_raised_and_the_rest_is_there(mcp: Mcp) -> None:
    with pytest.raises(ToolError, match="no luck with 6"):
        mcp.rows.flaky.map(keys(20), concurrency=1, on_error="raise")
    left = mcp.maps[-1]
    assert (left.summary["succeeded"], left.summary["not called"]) == (6, 13)


def test_a_denied_tool_is_not_called(mcp: Mcp, record: Path) -> None:
    mcp.policy.deny("rows.read")
    with pytest.raises(PolicyError):
        mcp.rows.read.map(["a"])
    assert not calls(record)


def test_failures_in_a_row_stop_the_map_and_resume_goes_on(mcp: Mcp) -> None:
    options = {"seconds": HELD, "retries": 0, "stop_after": 3, "concurrency": 1}
    mapped = mcp.rows.read.options(timeout=0.05).map(keys(40), **options)
    assert mapped.summary["failed"] == 3
    assert mapped.summary["not called"] == 37
    assert mapped.summary["stopped"] == "after 3 failures in a row"
    assert "stopped after 3 failures in a row" in repr(mapped)
    assert mapped.resume().summary["failed"] == 6


# -- trouble ----------------------------------------------------------------------------------------------------------


def test_a_server_that_dies_loses_no_row_of_a_tool_that_reads(own_record: Path) -> None:
    with connected(server(own_record, "30")) as mcp:
        mapped = mcp.rows.read.map(keys(100), concurrency=4)
        assert mapped.summary["succeeded"] == 100
        assert mapped.summary["retried"] >= 1


def test_a_server_that_dies_repeats_no_write(own_record: Path) -> None:
    with connected(server(own_record, "30")) as mcp:
        mapped = mcp.rows.write.map(keys(100), concurrency=4)
        assert set(calls(own_record).values()) == {1}
        assert 1 <= mapped.summary["unknown"] <= 16  # it dies four times at most, each time in the midst of four calls
        assert mapped.summary["succeeded"] + mapped.summary["unknown"] == 100
        mapped.retry().resume()
        assert set(calls(own_record).values()) == {1}


def test_a_server_that_dies_after_a_thousand_calls_is_called_on(own_record: Path) -> None:
    with connected(server(own_record, "1000")) as mcp:
        rows = keys(1_050)
        assert mcp.rows.read.map(rows).summary["succeeded"] == 1_050
        mapped = mcp.rows.write.map(rows)
        assert mapped.summary["succeeded"] + mapped.summary["unknown"] == 1_050
        assert mapped.summary["unknown"] == 1
    assert sum(number for call, number in calls(own_record).items() if call.startswith("write ")) == 1_050


def test_a_slow_row_holds_up_no_other(mcp: Mcp, record: Path) -> None:
    table = pd.DataFrame({"key": keys(21), "seconds": [HELD, *[0] * 20]})
    after_calls(21, record, lambda: hurry(record))
    assert mcp.rows.read.map(table, concurrency=2).summary["succeeded"] == 21


def test_a_stopped_server_gets_no_write_and_resume_starts_it_again(own_mcp: Mcp, own_record: Path) -> None:
    stopper = after_calls(3, own_record, lambda: own_mcp.stop("rows"))
    mapped = own_mcp.rows.write.map(keys(100), seconds=0.1)
    stopper.join()
    assert mapped.summary["unknown"] <= 1 and mapped.summary["failed"] == 0
    assert mapped.summary["stopped"] == "because its server was stopped"
    hurry(own_record)
    own_mcp.start("rows")
    mapped.resume()
    assert mapped.summary["succeeded"] + mapped.summary["unknown"] == 100
    assert set(calls(own_record).values()) == {1}


@pytest.mark.parametrize("tool", ["read", "write"])
def test_a_map_on_a_stopped_server_ends_at_once_and_says_so(
    own_mcp: Mcp, tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(map_run, "_FIRST_PAUSE", 1_000)  # before a retry: there is none
    own_mcp.stop("rows")
    mapped = own_mcp.rows[tool].map(["a", "b"])
    assert (mapped.summary["not called"], mapped.summary["calls"]) == (2, 0)
    assert "stopped because its server was stopped" in repr(mapped)
    with pytest.raises(ServerStopped, match="is stopped"):
        own_mcp.rows[tool].map(["a"], on_error="raise")
    own_mcp.start("rows")
    assert mapped.resume().summary["succeeded"] == 2


@contextmanager
def over_http(record: Path) -> Iterator[Mcp]:
    command = [sys.executable, SERVER, str(record), "--http", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            with connected({"rows": {"url": f"http://127.0.0.1:{port}/mcp", "era": "legacy"}}) as mcp:
                yield mcp
        finally:
            process.kill()


def test_429_and_retry_after_are_honoured(own_record: Path) -> None:
    with over_http(own_record) as mcp:
        began = time.monotonic()
        mapped = mcp.rows.limited.map(keys(6), retries=3)
        assert mapped.summary["succeeded"] == 6
        assert mapped.summary["retried"] >= 2
        assert time.monotonic() - began >= 0.2
        assert set(calls(own_record).values()) == {1}


@pytest.mark.parametrize("tool", ["bucket", "bare_bucket"])
def test_a_server_that_limits_its_calls_loses_no_row(
    own_record: Path, tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(map_run, "_FIRST_PAUSE", 0.1)
    with over_http(own_record) as mcp:
        mapped = mcp.rows[tool].map(keys(16))
        assert mapped.summary["succeeded"] == 16
        assert mapped.summary["retried"] >= 1
        assert set(calls(own_record).values()) == {1}


def test_a_call_that_was_refused_is_not_repeated_without_retries(own_record: Path) -> None:
    with over_http(own_record) as mcp:
        assert mcp.rows.late.map(["a", "b"], retries=0, concurrency=1).summary["failed"] == 1


def test_a_rate_holds_after_a_pause_that_the_server_asked_for(own_record: Path) -> None:
    with over_http(own_record) as mcp:
        mapped = mcp.rows.late.map(keys(8), rate="10/s", concurrency=1)
        assert (mapped.summary["succeeded"], mapped.summary["retried"]) == (8, 1)
        began = sorted(entry.time for entry in mcp.history(map=mcp.history().entries[0].map).entries)
        assert began[1] - began[0] >= 0.39
        assert began[-1] - began[0] >= 0.99  # the pause of 0.4 s, and 6 times 0.1 s


@pytest.mark.parametrize("options", [{}, {"rate": "100/s"}, {"to": "out.jsonl"}])
def test_a_server_that_is_down_stops_a_map_and_says_so(
    own_record: Path, tmp_path: Path, options: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(map_run, "_FIRST_PAUSE", 0.01)
    rows = keys(100)
    if "to" in options:
        options = {"to": tmp_path / options["to"]}
    with over_http(own_record) as mcp:
        if "to" in options:
            with pytest.raises(McpError, match="stopped after 20 failures in a row"):
                mcp.rows.down.map(rows, **options)
            return
        mapped = mcp.rows.down.map(rows, **options)
        assert mapped.summary["stopped"] == "after 20 failures in a row"
        assert 20 <= mapped.summary["failed"] <= 28
        assert mapped.summary["failed"] + mapped.summary["not called"] == 100
        with pytest.raises(HttpError):
            mcp.rows.down.map(rows, on_error="raise")


@pytest.mark.parametrize("end", ["cancelled", "interrupted"])
def test_a_write_that_the_server_has_refused_is_not_called(own_record: Path, end: str) -> None:
    def is_held() -> bool:
        return bool(mcp.maps) and bool((run := mcp.maps[-1]._run) and run.held_for and not run._running)

    with over_http(own_record) as mcp:
        ender = when(is_held, mcp.cancel if end == "cancelled" else interrupt)
        with pytest.raises(KeyboardInterrupt) if end == "interrupted" else nullcontext():
            mcp.rows.refusing.map(keys(10), concurrency=4)
        ender.join()
        assert mcp.maps[-1]._is_idle.wait(30)
        assert mcp.maps[-1].summary["not called"] == 10


def test_only_writes_that_were_sent_are_unknown_after_an_interrupt(mcp: Mcp, record: Path) -> None:
    interrupt_after(3, record)
    with pytest.raises(KeyboardInterrupt):
        mcp.rows.write.map(keys(20), rate="20/s", concurrency=4, seconds=HELD)
    left = mcp.maps[-1]
    assert left._is_idle.wait(30)
    sent = calls(record).total()
    assert left.summary["not called"] == 20 - sent
    hurry(record)
    left.resume()
    assert set(calls(record).values()) == {1} and len(calls(record)) == 20


def test_an_interrupt_keeps_what_is_done_and_resume_goes_on(mcp: Mcp, record: Path) -> None:
    interrupt_after(10, record)
    with pytest.raises(KeyboardInterrupt):
        mcp.rows.read.map(pd.DataFrame(held_from(8, 40)), concurrency=2)
    left = mcp.maps[-1]
    assert left._is_idle.wait(30)
    assert (left.summary["succeeded"], left.summary["not called"]) == (8, 32)
    hurry(record)
    left.resume()
    assert left.summary["succeeded"] == 40
    assert [row.data["name"]["upper"] for row in left.results if row] == keys(40)


def test_an_interrupted_write_is_unknown_and_not_called_again(mcp: Mcp, record: Path) -> None:
    interrupt_after(3, record)
    with pytest.raises(KeyboardInterrupt) as caught:
        mcp.rows.write.map(held_from(2, 10))
    left = mcp.maps[-1]
    message = "mcp.rows.write.map was interrupted: 2 of 10 rows are done, and 1 may have been executed (unknown)"
    assert caught.value._render_traceback_()[0] == f"KeyboardInterrupt: {message}"  # type: ignore[attr-defined]
    hurry(record)
    left.resume()
    assert left.summary["unknown"] == 1
    assert left.summary["succeeded"] == 9
    assert set(calls(record).values()) == {1}


def test_the_message_of_an_interrupt_names_the_map_that_was_interrupted(mcp: Mcp, record: Path) -> None:
    async def main() -> None:
        first = asyncio.ensure_future(mcp.rows.read.map.aio(["a"] * 9, seconds=HELD))
        while not calls(record):
            await asyncio.sleep(0.01)
        await mcp.rows.read.map.aio(["b"])
        first.cancel()
        await first

    with pytest.raises(asyncio.CancelledError) as caught:
        asyncio.run(main())
    hint = "mcp.maps[-2] has their results; mcp.maps[-2].resume() continues"
    assert hint in caught.value._render_traceback_()[1]  # type: ignore[attr-defined]


def test_a_map_is_one_running_call_that_can_be_cancelled(mcp: Mcp, record: Path) -> None:
    seen: list[str] = []

    def cancel() -> None:
        running = mcp._host.calls.running.values()
        shown = next(call for call in running if call.options.batch and call.options.batch.number == call.number)
        seen.append(repr(shown))
        assert shown.cancel()

    canceller = after_calls(10, record, cancel)
    mapped = mcp.rows.read.map(held_from(8, 40), concurrency=2)
    canceller.join()
    assert seen == [f"<map {mapped._request.number} of rows.read, running>"]
    assert mapped.summary["stopped"] == "by the user"
    assert mapped.summary["succeeded"] == 8
    hurry(record)
    assert mapped.resume().summary["succeeded"] == 40


@pytest.mark.parametrize("answer", ["once", "no"])
def test_one_question_covers_all_calls(mcp: Mcp, record: Path, answer: Any) -> None:
    user = ScriptedInterface(PageReply(answer=answer))
    mcp.policy.ask("rows.read")
    mcp._host.questions.terminal = lambda: user
    try:
        mapped = mcp.rows.read.map(["a", "b", "c"])
    except PolicyError:
        assert answer == "no"
        assert not calls(record)
    else:
        assert answer == "once"
        assert mapped.summary["succeeded"] == 3
    assert [question.calls[0].sentence for question in user.asked] == ["Run rows.read 3 times?"]


def test_a_cancelled_map_makes_no_further_call_where_calls_wait_for_their_turn(mcp: Mcp, record: Path) -> None:
    async def main() -> None:
        running = asyncio.ensure_future(mcp.rows.write.map.aio(["a", "b", "c"], rate="1/h", concurrency=2))
        while not calls(record):
            await asyncio.sleep(0.05)
        with pytest.raises(McpError, match="still running"):
            await asyncio.to_thread(mcp.maps[-1].resume)
        mcp.cancel()
        mapped = await asyncio.wait_for(running, 10)
        assert mapped.summary["not called"] == 2

    asyncio.run(main())
    assert calls(record) == {"write a": 1}


def test_one_question_covers_the_map_of_a_models_code(mcp: Mcp, record: Path) -> None:
    user = ScriptedInterface(PageReply(answer="once"))
    mcp._host.questions.terminal = lambda: user
    mcp.policy.ask("rows.read")
    coder = CodeRunner(mcp._host, mcp.tools.selection, {"mcp": mcp}, allowed=True)
    code = "mcp.rows.read.map(['a', 'b', 'c'], cache=True).summary['succeeded']"
    assert asyncio.run(coder.run_python(code)).text == "3"
    assert [(question.calls[0].count, question.calls[0].caller) for question in user.asked] == [(3, "model")]
    assert [user.asked[0].calls[0].arguments, *user.asked[0].calls[0].samples] == [{"key": key} for key in "abc"]
    assert mcp.history().entries[0].caller == "model"
    assert asyncio.run(coder.run_python(code)).text == "3"  # all from the cache, and asked about nevertheless
    assert len(user.asked) == 2
    assert len(calls(record)) == 3


def test_a_consent_covers_one_run_of_one_map(mcp: Mcp) -> None:
    user = ScriptedInterface(PageReply(answer="once"))
    mcp.policy.ask("rows.read")
    mcp._host.questions.terminal = lambda: user
    mcp.rows.read.map(["a"])
    mcp.rows.read("a")
    mcp.rows.read.options(turn="t").map(["a", "b"])
    mcp.rows.read.options(turn="t")("a")
    assert [question.calls[0].count for question in user.asked] == [1, 1, 2, 1]


# -- progress ---------------------------------------------------------------------------------------------------------


def test_progress_is_given_to_a_function(mcp: Mcp) -> None:
    seen: list[Progress] = []
    mcp.rows.read.map(keys(8), seconds=0.2, concurrency=2, on_progress=seen.append)
    assert len(seen) >= 3
    assert seen[-1].total == 8 and 0 < seen[-1].progress <= 8
    assert "calls/s" in (seen[-1].message or "") and " s left" in (seen[2].message or "")
    seen.clear()
    asyncio.run(mcp.rows.read.options(on_progress=seen.append).map.aio(["a", "b"], seconds=0.25, concurrency=1))
    assert seen[-1].total == 2


def test_an_error_of_the_progress_function_ends_the_map(mcp: Mcp) -> None:
    def fail(progress: Progress) -> None:
        raise ValueError("no progress")

    rows = keys(40)
    with pytest.raises(ValueError, match="no progress"):
        mcp.rows.read.map(rows, seconds=0.2, on_progress=fail)
    with pytest.raises(ValueError, match="no progress"):
        asyncio.run(mcp.rows.read.map.aio(rows, seconds=0.2, on_progress=fail))
    assert mcp.maps[-1].summary["not called"] > 0
    with pytest.raises(ArgumentError, match="a stream shows its progress"):
        mcp.rows.read.map.stream(rows, on_progress=fail)


# -- in a cell --------------------------------------------------------------------------------------------------------


@pytest.mark.cold
def test_a_line_maps_a_table_and_tab_knows_its_arguments(kernel: Kernel) -> None:
    kernel.run("%load_ext ipymcp\nimport pandas as pd\ndf = pd.DataFrame({'word': ['a', 'b'], 'text': ['x', 'y']})")
    kernel.run("%mcp load demo")
    assert "demo.echo: 2 rows: 2 succeeded" in (kernel.run("%mcp map demo.echo df").text or "")
    kernel.run("%mcp map demo.echo df text=word --out out")
    assert kernel.value("list(out.df['result'])") == ["a", "b"]
    error = kernel.run("%mcp map demo.echo df text=wrd").error
    message = "the table has no column 'wrd': write text=word for the column, or text='wrd' for the text"
    assert message in str(error)
    assert '{"text":"wrd"}' in (kernel.run("%mcp map demo.echo df[:1] text='wrd' --plan").text or "")
    assert '{"text":"word"}' in (kernel.run("%mcp map demo.echo df[:1] text='word' --plan").text or "")
    kernel.run("import pyarrow as pa\ntable = pa.table({'word': ['a'], 'n': [1]})")
    kernel.run("%mcp map demo.echo table text=word --out out")
    assert kernel.value("out.df['result'].to_pylist()") == ["a"]
    numbers = kernel.run("out = mcp.demo.echo.map(table['n'])")
    note = "mcp.demo.echo.map: text is a string: numbers are sent as text, such as '1'"
    assert note in numbers.stderr and kernel.value("out[0].text") == "1"
    assert kernel.value("df.word.map(mcp.demo.echo).str.upper().tolist()") == ["A", "B"]
    refused = kernel.run("mcp.demo.echo.map(df, text='word')").error
    assert "columns={'text': 'word'} sends the column, constants={'text': 'word'} the word" in str(refused)
    assert "the notebook has no name 'nothing'" in str(kernel.run("%mcp map demo.echo nothing").error)
    assert kernel.complete("%mcp map demo.echo df te").matches == ["text="]
    assert "concurrency=" in kernel.complete("mcp.demo.echo.map(df, con").matches
    shown = kernel.run("out = mcp.demo.slow.map([0.4, 0.5, 0.6], concurrency=1)").displays
    assert "demo.slow" in shown[-1]["text/plain"] and "3/3" in shown[-1]["text/plain"]


@pytest.mark.kernels("kernel-7", "kernel-6")
@pytest.mark.parametrize(
    "line", ["mcp.rows.read.map(df, concurrency=2)", "await mcp.rows.read.map.aio(df, concurrency=2)"]
)
def test_an_interrupted_cell_keeps_what_is_done_and_goes_on(kernel: Kernel, own_record: Path, line: str) -> None:
    """The older kernel has pandas 2."""
    setup = f"import pandas as pd\ndf = pd.DataFrame({held_from(20, 60)!r}, index=range(100, 160))"
    command = shlex.join([sys.executable, SERVER, str(own_record)])
    kernel.run(f"%load_ext ipymcp\n%mcp load rows --era legacy -- {command}\n{setup}")
    cell = kernel.start(line)
    cell.wait_for(lambda outcome: any(re.search(r"\b20/60\b", shown["text/plain"]) for shown in outcome.displays))
    kernel.interrupt()

    error = cell.wait(20).error

    assert error is not None and "mcp.maps[-1].resume() continues" in error.traceback
    assert kernel.value("mcp.maps[-1].summary['succeeded']") == 20
    hurry(own_record)
    kernel.run("out = mcp.maps[-1].resume()")
    assert kernel.value("out.summary['succeeded']") == 60
    columns = ["key", "seconds", "length", "name.upper", "times", "error"]
    assert kernel.value("list(out.df.index) == list(df.index) and list(out.df.columns)") == columns
    assert kernel.value("pd.__version__[0]") == ("2" if kernel.name == "kernel-6" else "3")
