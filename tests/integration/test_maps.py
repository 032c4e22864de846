"""`tool.map`: one call for every row, in order, never twice where it matters, and nothing is lost."""

import asyncio
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow.dataset import dataset

from ipymcp import ArgumentError, HttpError, Mcp, McpError, PolicyError, ServerStopped, ToolError
from ipymcp.interaction.questions import PageReply
from ipymcp.llm.code_mode import CodeRunner
from ipymcp.protocol.types import Progress
from tests.bad_servers import connected
from tests.kernels import Kernel
from tests.processes import wait_until
from tests.row_server import SERVER, calls, interrupt_after, server
from tests.unit.scripted_interface import ScriptedInterface


@pytest.fixture
def mcp(record: Path) -> Iterator[Mcp]:
    with connected(server(record)) as mcp:
        yield mcp


# -- tables -----------------------------------------------------------------------------------------------------------


def test_a_pandas_table_comes_back_with_its_index_and_the_results_columns(mcp: Mcp) -> None:
    table = pd.DataFrame({"key": ["ab", "c"], "other": [1, 2]}, index=["x", "y"])
    found = mcp.rows.read.map(table).df
    assert list(found.columns) == ["key", "other", "length", "name.upper", "times", "error"]
    assert list(found.index) == ["x", "y"]
    assert found["length"].tolist() == [2, 1]
    assert found["name.upper"].tolist() == ["AB", "C"]
    assert found["error"].isna().all()


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
    found = mcp.rows.read.map(make({"key": ["ab", "c"], "other": [1, 2]})).df
    assert isinstance(found, kind)
    rows = pl.from_arrow(found.to_arrow_table()) if kind is duckdb.DuckDBPyRelation else found
    rows = rows.collect() if kind is pl.LazyFrame else pl.from_arrow(rows) if kind is pa.Table else rows
    assert isinstance(rows, pl.DataFrame)
    assert rows.columns == ["key", "other", "length", "name.upper", "times", "error"]
    assert rows["name.upper"].to_list() == ["AB", "C"]


@pytest.mark.filterwarnings("ignore:The inplace keyword")
def test_results_stay_beside_their_rows_when_the_input_is_changed(mcp: Mcp) -> None:
    table = pd.DataFrame({"key": ["ccc", "a", "bb"], "other": [3, 1, 2]})
    found = mcp.rows.read.map(table)
    table.loc[0, "other"] = 99
    table["more"] = 0
    table.drop(index=1, inplace=True)
    table.sort_values("key", inplace=True)
    first = found.df
    assert list(first.columns) == ["key", "other", "length", "name.upper", "times", "error"]
    assert first[["key", "other", "length"]].values.tolist() == [["ccc", 3, 3], ["a", 1, 1], ["bb", 2, 2]]
    first.loc[0, "other"] = 77
    assert found.df["other"].tolist() == [3, 1, 2]
    rows = [{"key": "a"}, {"key": "bb"}]
    found = mcp.rows.read.map(rows)
    rows[0]["key"] = "x"
    rows.reverse()
    assert found.df[["key", "length"]].values.tolist() == [["a", 1], ["bb", 2]]


def test_rows_that_are_no_table_come_back_with_their_results(mcp: Mcp) -> None:
    added = ["length", "name.upper", "times", "error"]
    found = mcp.rows.read.map(each for each in ["ab", "c"]).df
    assert (list(found.columns), found["row"].tolist()) == (["row", *added], ["ab", "c"])
    found = mcp.rows.read.map([{"key": "ab", "times": 2}, {"key": "c"}]).df
    assert list(found.columns) == ["key", "times", "length", "name.upper", "times_result", "error"]
    assert found["length"].tolist() == [2, 1]


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
    found = mcp.rows.read.map(made[kind]()).df
    assert found.column_names == ["key", "other", "length", "name.upper", "times", "error"]
    assert found["other"].to_pylist() == [1, 2]
    streamed = list(mcp.rows.read.map.stream(made[kind](), columns={"key": "key"}))
    assert [row["other"] for row, _ in streamed] == [1, 2]


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
    found = mcp.rows.read.map(parts(table)).df
    assert list(found.columns) == ["key", "other", "length", "name.upper", "times", "error"]
    assert found["length"].tolist() == [2, 1, 3]
    streamed = mcp.rows.read.map.stream(parts(table), times=5)
    assert [(row["other"], result.data["times"]) for row, result in streamed] == [(1, 5), (2, 5), (3, 5)]


def test_a_relation_comes_back_on_its_own_connection(mcp: Mcp) -> None:
    with duckdb.connect() as connection:
        connection.sql("create table cities as select 'ab' as key, 5 as other")
        found = mcp.rows.read.map(connection.sql("from cities")).df
        assert found.columns == ["key", "other", "length", "name.upper", "times", "error"]
        assert connection.sql("select length, c.other from found join cities c using (key)").fetchall() == [(2, 5)]
        assert connection.sql("show tables").fetchall() == [("cities",)]


def test_rows_that_were_not_called_have_an_error(mcp: Mcp) -> None:
    found = mcp.rows.broken.map([str(one) for one in range(9)], stop_after=3, concurrency=1)
    table = found.df
    assert table["error"].notna().all()
    assert table["error"][8] == "McpError: was not called: the map was stopped after 3 failures in a row"
    assert list(found.errors)[8] == {"row": 8, "state": "not called", "error": table["error"][8]}


def test_columns_and_constants_are_bound_by_name(mcp: Mcp) -> None:
    table = pd.DataFrame({"word": ["ab", "c"], "times": [1, 2]})
    found = mcp.rows.read.map(table, columns={"key": "word"}, times=5)
    assert [one.data["times"] for one in found.results if one] == [5, 5]
    assert [one.data["length"] for one in found.results if one] == [2, 1]


def test_a_series_a_list_mappings_and_tuples_are_rows(mcp: Mcp) -> None:
    for rows in (pd.Series(["ab"]), ["ab"], [{"key": "ab"}], [("ab",)], (each for each in ["ab"]), pl.Series(["ab"])):
        assert mcp.rows.read.map(rows)[0].data["length"] == 2
    assert mcp.rows.read.map(["ab", "c"]).df["length"].tolist() == [2, 1]


def test_a_slice_of_the_results_is_a_list(mcp: Mcp) -> None:
    found = mcp.rows.read.map(["a", "bb", "ccc", ""])
    assert [one.data["length"] for one in found[1:3]] == [2, 3]
    assert found[4:] == []
    stopped = mcp.rows.flaky.map([str(one) for one in range(8)], concurrency=1)
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
        found = mcp.rows.read.map(rows)
        assert [one.data["times"] for one in found.results if one] == [1, None]


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
    found = mcp.rows.read.map(table, columns={"key": "word"})
    assert [row["row"] for row in found.errors] == [1, 2]
    assert calls(record) == {"read a": 1}


def test_a_plan_shows_the_calls_and_sends_none(mcp: Mcp, record: Path) -> None:
    plan = mcp.rows.read.map.plan(["a", "b", "a", 5])
    assert (plan.rows, plan.calls) == (4, 2)
    assert "rows.read: 2 calls for 4 rows" in repr(plan)
    assert '{"key":"b"}' in repr(plan) and "does not fit" in repr(plan)
    assert not calls(record)


# -- how often --------------------------------------------------------------------------------------------------------


def test_rows_with_the_same_arguments_share_a_call_of_a_tool_that_reads(mcp: Mcp, record: Path) -> None:
    found = mcp.rows.read.map(["a", "b", "a", "a"])
    assert [one.data["name"]["upper"] for one in found.results if one] == ["A", "B", "A", "A"]
    assert calls(record) == {"read a": 1, "read b": 1}
    assert found.summary["duplicates"] == 2
    mcp.rows.write.map(["a", "a"])
    assert calls(record)["write a"] == 2


def test_what_writes_goes_one_by_one_and_what_reads_eight_at_a_time(mcp: Mcp) -> None:
    began = time.monotonic()
    mcp.rows.read.map([str(one) for one in range(16)], seconds=0.2)
    reading = time.monotonic() - began
    began = time.monotonic()
    mcp.rows.write.map([str(one) for one in range(4)], seconds=0.2)
    assert reading < 1.6  # 3.2 one by one
    assert time.monotonic() - began >= 0.8


def test_a_rate_holds_over_the_whole_map(mcp: Mcp) -> None:
    began = time.monotonic()
    mcp.rows.read.map([str(one) for one in range(11)], rate="20/s", concurrency=5)
    assert time.monotonic() - began >= 0.5


def test_failures_are_collected_and_can_be_tried_again(mcp: Mcp, record: Path) -> None:
    found = mcp.rows.flaky.map([str(one) for one in range(21)], concurrency=1)
    assert [row["row"] for row in found.errors] == [6, 13, 20]
    assert (found.summary["succeeded"], found.summary["failed"]) == (18, 3)
    with pytest.raises(ToolError, match="no luck with 6"):
        found[6]
    assert found.retry() is found
    assert found.summary["succeeded"] == 21
    assert calls(record)["flaky 0"] == 1


def test_the_first_error_is_raised_and_the_rest_is_there(mcp: Mcp) -> None:
    with pytest.raises(ToolError, match="no luck with 6"):
        mcp.rows.flaky.map([str(one) for one in range(20)], concurrency=1, on_error="raise")
    left = mcp.maps[-1]
    assert (left.summary["succeeded"], left.summary["not called"]) == (6, 13)


def test_a_denied_tool_is_not_called(mcp: Mcp, record: Path) -> None:
    mcp.policy.deny("rows.read")
    with pytest.raises(PolicyError):
        mcp.rows.read.map(["a"])
    assert not calls(record)


def test_failures_in_a_row_stop_the_map_and_resume_goes_on(record: Path) -> None:
    with connected(server(record)) as mcp:
        found = mcp.rows.read.options(timeout=0.05).map(
            [str(one) for one in range(40)], seconds=0.5, retries=0, stop_after=3, concurrency=1
        )
        assert found.summary["failed"] == 3
        assert found.summary["not called"] == 37
        assert found.summary["stopped"] == "after 3 failures in a row"
        assert "stopped after 3 failures in a row" in repr(found)
        assert found.resume().summary["failed"] == 6


# -- trouble ----------------------------------------------------------------------------------------------------------


def test_a_server_that_dies_loses_no_row_of_a_tool_that_reads(record: Path) -> None:
    with connected(server(record, "30")) as mcp:
        found = mcp.rows.read.map([str(one) for one in range(100)], concurrency=4)
        assert found.summary["succeeded"] == 100
        assert found.summary["retried"] >= 1


def test_a_server_that_dies_repeats_no_write(record: Path) -> None:
    with connected(server(record, "30")) as mcp:
        found = mcp.rows.write.map([str(one) for one in range(100)], concurrency=4)
        assert set(calls(record).values()) == {1}
        assert 1 <= found.summary["unknown"] <= 16  # it dies four times at most, each time in the midst of four calls
        assert found.summary["succeeded"] + found.summary["unknown"] == 100
        found.retry().resume()
        assert set(calls(record).values()) == {1}


def test_a_server_that_dies_after_a_thousand_calls_is_called_on(record: Path) -> None:
    with connected(server(record, "1000")) as mcp:
        rows = [str(one) for one in range(1_200)]
        assert mcp.rows.read.map(rows).summary["succeeded"] == 1_200
        found = mcp.rows.write.map(rows)
        assert found.summary["succeeded"] + found.summary["unknown"] == 1_200
        assert found.summary["unknown"] == 1
    assert sum(number for call, number in calls(record).items() if call.startswith("write ")) == 1_200


def test_a_slow_row_holds_up_no_other(mcp: Mcp) -> None:
    table = pd.DataFrame({"key": [str(one) for one in range(21)], "seconds": [3.0, *[0.1] * 20]})
    began = time.monotonic()
    assert mcp.rows.read.map(table, concurrency=2).summary["succeeded"] == 21
    assert time.monotonic() - began < 4.5  # 5 if the others waited for it


def test_a_stopped_server_gets_no_write_and_resume_starts_it_again(mcp: Mcp, record: Path) -> None:
    def stop() -> None:
        time.sleep(0.5)
        mcp.stop("rows")

    stopper = threading.Thread(target=stop)
    stopper.start()
    found = mcp.rows.write.map([str(one) for one in range(20)], seconds=0.1)
    stopper.join()
    assert found.summary["unknown"] <= 1 and found.summary["failed"] == 0
    assert found.summary["stopped"] == "because its server was stopped"
    mcp.start("rows")
    found.resume()
    assert found.summary["succeeded"] + found.summary["unknown"] == 20
    assert set(calls(record).values()) == {1}


@pytest.mark.parametrize("tool", ["read", "write"])
def test_a_map_on_a_stopped_server_ends_at_once_and_says_so(mcp: Mcp, record: Path, tool: str) -> None:
    mcp.stop("rows")
    began = time.monotonic()
    found = mcp.rows[tool].map(["a", "b"])
    assert time.monotonic() - began < 0.4  # the first pause before a retry is longer on average
    assert (found.summary["not called"], found.summary["calls"]) == (2, 0)
    assert "stopped because its server was stopped" in repr(found)
    with pytest.raises(ServerStopped, match="is stopped"):
        mcp.rows[tool].map(["a"], on_error="raise")
    mcp.start("rows")
    assert found.resume().summary["succeeded"] == 2


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


def test_429_and_retry_after_are_honoured(record: Path) -> None:
    with over_http(record) as mcp:
        began = time.monotonic()
        found = mcp.rows.limited.map([str(one) for one in range(6)], retries=3)
        assert found.summary["succeeded"] == 6
        assert found.summary["retried"] >= 2
        assert time.monotonic() - began >= 0.2
        assert set(calls(record).values()) == {1}


@pytest.mark.parametrize("tool", ["bucket", "bare_bucket"])
def test_a_server_that_limits_its_calls_loses_no_row(record: Path, tool: str) -> None:
    with over_http(record) as mcp:
        found = mcp.rows[tool].map([str(one) for one in range(16)])
        assert found.summary["succeeded"] == 16
        assert set(calls(record).values()) == {1}


def test_a_call_that_was_refused_is_not_repeated_without_retries(record: Path) -> None:
    with over_http(record) as mcp:
        assert mcp.rows.late.map(["a", "b"], retries=0, concurrency=1).summary["failed"] == 1


def test_a_rate_holds_after_a_pause_that_the_server_asked_for(record: Path) -> None:
    with over_http(record) as mcp:
        found = mcp.rows.late.map([str(one) for one in range(8)], rate="10/s")
        assert (found.summary["succeeded"], found.summary["retried"]) == (8, 1)
        began = sorted(entry.time for entry in mcp.history(map=mcp.history().entries[0].map).entries)
        assert began[1] - began[0] >= 0.99
        assert min(after - before for before, after in pairwise(began)) >= 0.05


@pytest.mark.parametrize("options", [{}, {"rate": "100/s"}, {"to": "out.jsonl"}])
def test_a_server_that_is_down_stops_a_map_and_says_so(record: Path, tmp_path: Path, options: Any) -> None:
    rows = [str(one) for one in range(100)]
    if "to" in options:
        options = {"to": tmp_path / options["to"]}
    with over_http(record) as mcp:
        if "to" in options:
            with pytest.raises(McpError, match="stopped after 20 failures in a row"):
                mcp.rows.down.map(rows, **options)
            return
        found = mcp.rows.down.map(rows, **options)
        assert found.summary["stopped"] == "after 20 failures in a row"
        assert 20 <= found.summary["failed"] <= 28
        assert found.summary["failed"] + found.summary["not called"] == 100
        with pytest.raises(HttpError):
            mcp.rows.down.map(rows, on_error="raise")


@pytest.mark.parametrize("end", ["cancelled", "interrupted"])
def test_a_write_that_the_server_has_refused_is_not_called(record: Path, end: str) -> None:
    def end_it() -> None:
        wait_until(lambda: bool(mcp.maps) and (run := mcp.maps[-1]._run) and run.held_for and not run._running)
        if end == "cancelled":
            mcp.cancel()
        else:
            os.kill(os.getpid(), signal.SIGINT)

    with over_http(record) as mcp:
        ender = threading.Thread(target=end_it)
        ender.start()
        with pytest.raises(KeyboardInterrupt) if end == "interrupted" else nullcontext():
            mcp.rows.refusing.map([str(one) for one in range(10)], concurrency=4)
        ender.join()
        assert mcp.maps[-1]._is_idle.wait(5)
        assert mcp.maps[-1].summary["not called"] == 10


def test_only_writes_that_were_sent_are_unknown_after_an_interrupt(mcp: Mcp, record: Path) -> None:
    interrupt_after(3, record)
    with pytest.raises(KeyboardInterrupt):
        mcp.rows.write.map([str(one) for one in range(20)], rate="4/s", concurrency=4, seconds=0.05)
    left = mcp.maps[-1]
    assert left._is_idle.wait(5)
    sent = sum(calls(record).values())
    assert left.summary["not called"] == 20 - sent
    left.resume()
    assert set(calls(record).values()) == {1} and len(calls(record)) == 20


def test_an_interrupt_keeps_what_is_done_and_resume_goes_on(mcp: Mcp, record: Path) -> None:
    interrupt_after(10, record)
    with pytest.raises(KeyboardInterrupt):
        mcp.rows.read.map([str(one) for one in range(40)], seconds=0.1, concurrency=2)
    left = mcp.maps[-1]
    time.sleep(0.3)
    done = left.summary["succeeded"]
    assert 4 <= done < 30
    assert left.summary["not called"] == 40 - done
    left.resume()
    assert left.summary["succeeded"] == 40
    assert [one.data["name"]["upper"] for one in left.results if one] == [str(one) for one in range(40)]


def test_an_interrupted_write_is_unknown_and_not_called_again(mcp: Mcp, record: Path) -> None:
    interrupt_after(3, record)
    with pytest.raises(KeyboardInterrupt) as caught:
        mcp.rows.write.map([str(one) for one in range(10)], seconds=0.2)
    left = mcp.maps[-1]
    message = "mcp.rows.write.map was interrupted: 2 of 10 rows are done, and 1 may have been executed (unknown)"
    assert caught.value._render_traceback_()[0] == f"KeyboardInterrupt: {message}"  # type: ignore[attr-defined]
    left.resume()
    assert left.summary["unknown"] == 1
    assert left.summary["succeeded"] == 9
    assert set(calls(record).values()) == {1}


def test_the_message_of_an_interrupt_names_the_map_that_was_interrupted(mcp: Mcp, record: Path) -> None:
    async def main() -> None:
        first = asyncio.ensure_future(mcp.rows.read.map.aio(["a"] * 9, seconds=0.5))
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
        wait_until(lambda: sum(calls(record).values()) >= 10)
        running = mcp._host.calls.running
        shown = next(
            each for each in running.values() if each.options.batch and each.options.batch.number == each.number
        )
        seen.append(repr(shown))
        assert shown.cancel()

    canceller = threading.Thread(target=cancel)
    canceller.start()
    found = mcp.rows.read.map([str(one) for one in range(40)], seconds=0.1, concurrency=2)
    canceller.join()
    assert seen == [f"<map {found._request.number} of rows.read, running>"]
    assert found.summary["stopped"] == "by the user"
    assert 4 <= found.summary["succeeded"] < 40
    assert found.resume().summary["succeeded"] == 40


@pytest.mark.parametrize("answer", ["once", "no"])
def test_one_question_covers_all_calls(mcp: Mcp, record: Path, answer: Any) -> None:
    user = ScriptedInterface(PageReply(answer=answer))
    mcp.policy.ask("rows.read")
    mcp._host.questions.terminal = lambda: user
    try:
        found = mcp.rows.read.map(["a", "b", "c"])
    except PolicyError:
        assert answer == "no"
        assert not calls(record)
    else:
        assert answer == "once"
        assert found.summary["succeeded"] == 3
    assert [question.calls[0].sentence for question in user.asked] == ["You want to run rows.read 3 times"]


def test_a_cancelled_map_makes_no_further_call_where_calls_wait_for_their_turn(mcp: Mcp, record: Path) -> None:
    async def main() -> None:
        running = asyncio.ensure_future(mcp.rows.write.map.aio(["a", "b", "c"], rate="1/h", concurrency=2))
        while not calls(record):
            await asyncio.sleep(0.05)
        with pytest.raises(McpError, match="still running"):
            await asyncio.to_thread(mcp.maps[-1].resume)
        mcp.cancel()
        found = await asyncio.wait_for(running, 10)
        assert found.summary["not called"] == 2

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
    assert [user.asked[0].calls[0].arguments, *user.asked[0].calls[0].samples] == [{"key": each} for each in "abc"]
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
    mcp.rows.read.map([str(one) for one in range(12)], seconds=0.2, concurrency=2, on_progress=seen.append)
    assert len(seen) >= 3
    assert seen[-1].total == 12 and 0 < seen[-1].progress <= 12
    assert "calls/s" in (seen[-1].message or "") and " s left" in (seen[2].message or "")
    seen.clear()
    asyncio.run(mcp.rows.read.options(on_progress=seen.append).map.aio(["a", "b"], seconds=0.5, concurrency=1))
    assert seen[-1].total == 2


def test_an_error_of_the_progress_function_ends_the_map(mcp: Mcp) -> None:
    def fail(progress: Progress) -> None:
        raise ValueError("no progress")

    rows = [str(one) for one in range(40)]
    with pytest.raises(ValueError, match="no progress"):
        mcp.rows.read.map(rows, seconds=0.2, on_progress=fail)
    with pytest.raises(ValueError, match="no progress"):
        asyncio.run(mcp.rows.read.map.aio(rows, seconds=0.2, on_progress=fail))
    assert mcp.maps[-1].summary["not called"] > 0
    with pytest.raises(ArgumentError, match="a stream shows its progress"):
        mcp.rows.read.map.stream(rows, on_progress=fail)


# -- in a cell --------------------------------------------------------------------------------------------------------


@pytest.mark.kernels("kernel-7")
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
    assert "the notebook has no name 'nothing'" in str(kernel.run("%mcp map demo.echo nothing").error)
    assert kernel.complete("%mcp map demo.echo df te").matches == ["text="]
    assert "concurrency=" in kernel.complete("mcp.demo.echo.map(df, con").matches
    shown = kernel.run("out = mcp.demo.slow.map([0.4, 0.5, 0.6], concurrency=1)").displays
    assert "demo.slow" in shown[-1]["text/plain"] and "3/3" in shown[-1]["text/plain"]


@pytest.mark.kernels("kernel-7", "kernel-6")
@pytest.mark.parametrize(
    "line", ["mcp.demo.slow.map(df, concurrency=2)", "await mcp.demo.slow.map.aio(df, concurrency=2)"]
)
def test_an_interrupted_cell_keeps_what_is_done_and_goes_on(kernel: Kernel, line: str) -> None:
    """The older kernel has pandas 2."""
    setup = "df = pd.DataFrame({'seconds': [0.1 + n / 1000 for n in range(60)]}, index=range(100, 160))"
    kernel.run(f"%load_ext ipymcp\n%mcp load demo\nimport pandas as pd\n{setup}")
    cell = kernel.start(line)
    cell.wait_for(lambda outcome: bool(outcome.displays))
    time.sleep(0.5)
    kernel.interrupt()

    error = cell.wait(20).error

    assert error is not None and "mcp.maps[-1].resume() continues" in error.traceback
    assert 1 <= kernel.value("mcp.maps[-1].summary['succeeded']") < 60
    kernel.run("out = mcp.maps[-1].resume()")
    assert kernel.value("out.summary['succeeded']") == 60
    assert kernel.value("list(out.df.index) == list(df.index) and list(out.df.columns)") == [
        "seconds",
        "result",
        "error",
    ]
    assert kernel.value("pd.__version__[0]") == ("2" if kernel.name == "kernel-6" else "3")
