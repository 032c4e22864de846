"""Maps that are awaited, streamed, and written to files."""

import asyncio
import errno
import os
import re
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import polars as pl
import psutil
import pytest

from ipymcp import ArgumentError, CallCancelled, CallError, Mcp, McpError, PolicyError
from ipymcp.files import partial_path
from ipymcp.maps import file as map_file
from tests.bad_servers import connected
from tests.environments import ROOT
from tests.processes import wait_until
from tests.row_server import HELD, calls, held_from, hurry, interrupt, interrupt_after, keys, server, when

# -- awaited and streamed ---------------------------------------------------------------------------------------------


def test_a_map_is_awaited(mcp: Mcp) -> None:
    async def main() -> list[int]:
        mapped = await mcp.rows.read.map.aio(["a", "bb"])
        return [row.data["length"] for row in mapped.results if row]

    assert asyncio.run(main()) == [1, 2]


def test_a_cancelled_map_keeps_what_is_done(mcp: Mcp, record: Path) -> None:
    async def main() -> None:
        running = asyncio.ensure_future(mcp.rows.read.map.aio(held_from(6, 40), concurrency=2))
        while calls(record).total() < 8:
            await asyncio.sleep(0.01)
        running.cancel()
        await running

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
    left = mcp.maps[-1]
    assert left.summary["succeeded"] == 6
    hurry(record)
    left.resume()
    assert left.summary["succeeded"] == 40


def test_a_stream_gives_rows_in_order_and_reads_only_a_window_ahead(mcp: Mcp) -> None:
    read: list[int] = []

    def rows() -> Iterator[str]:
        for number in range(1_000):
            read.append(number)
            yield str(number)

    stream = iter(mcp.rows.read.map.stream(rows(), concurrency=4))
    first = [next(stream) for _ in range(100)]
    assert [row for row, _ in first] == keys(100)
    assert all(not isinstance(result, McpError) for _, result in first)
    assert len(read) <= 100 + 64
    stream.close()
    assert mcp.rows.read("still").data["length"] == 5


def test_a_long_stream_needs_no_more_memory_than_a_short_one() -> None:
    light = {"light": {"command": sys.executable, "args": [str(ROOT / "benchmarks" / "servers.py")]}}
    base = read = 0.0
    with connected(light) as mcp:
        for _ in mcp.light.echo.map.stream(map(str, range(9_000)), concurrency=16):
            read += 1
            if read == 3_000:
                base = psutil.Process().memory_info().rss
        grown = psutil.Process().memory_info().rss - base
    assert read == 9_000
    assert grown < 6_000_000


def test_a_stream_gives_errors_in_their_place(mcp: Mcp) -> None:
    mapped = mcp.rows.flaky.map.stream(["a", None, "b", *"cdefgh"], concurrency=1)
    assert [row for row, result in mapped if isinstance(result, McpError)] == [None, "g"]


def test_an_async_stream_takes_async_rows(mcp: Mcp) -> None:
    async def rows() -> AsyncIterator[str]:
        for word in ("a", "bb", "ccc"):
            await asyncio.sleep(0)
            yield word

    async def main() -> list[Any]:
        return [(row, result.data["length"]) async for row, result in mcp.rows.read.map.stream(rows())]

    assert asyncio.run(main()) == [("a", 1), ("bb", 2), ("ccc", 3)]
    with pytest.raises(ArgumentError, match="the rows are an async iterable"):
        mcp.rows.read.map(rows())


def test_a_table_is_streamed_with_its_columns(mcp: Mcp) -> None:
    mapped = list(mcp.rows.read.map.stream(pd.DataFrame({"key": ["a"], "other": [1]})))
    assert mapped[0][0] == {"key": "a", "other": 1}


# -- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_results_are_written_to_a_file_as_they_come(mcp: Mcp, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"out{suffix}"
    written = mcp.rows.flaky.map(({"key": key} for key in keys(1_200)), to=path, stop_after=0)
    assert (written.rows, written.failed) == (1_200, 171)
    mapped = pl.read_parquet(path) if suffix == ".parquet" else pl.read_ndjson(path)
    assert mapped["key"].to_list() == keys(1_200)
    assert mapped["error"].null_count() == 1_200 - 171
    assert mapped["length"].drop_nulls().to_list()[:2] == [1, 1]


def test_rows_are_written_while_the_next_one_takes_long(mcp: Mcp, record: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    partial = partial_path(path)
    when(lambda: partial.exists() and len(partial.read_text().splitlines()) == 2, lambda: hurry(record))
    written = mcp.rows.read.map(held_from(2, 6), to=path, concurrency=1)
    assert (written.rows, written.failed) == (6, 0)


def test_what_was_written_stays_when_the_map_is_interrupted(mcp: Mcp, record: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    interrupt_after(10, record)
    with pytest.raises(KeyboardInterrupt):
        mcp.rows.read.map(held_from(2, 400), to=path)
    rows = path.read_text().splitlines()
    assert 2 <= len(rows) < 400
    assert list(tmp_path.glob("*.partial")) == []


@pytest.mark.parametrize("concurrency", [1, 4])
def test_the_file_of_an_interrupted_map_has_all_rows_that_were_sent(
    mcp: Mcp, record: Path, tmp_path: Path, concurrency: int
) -> None:
    path = tmp_path / "out.jsonl"
    interrupt_after(9 + concurrency, record)
    with pytest.raises(KeyboardInterrupt) as caught:
        mcp.rows.write.map(held_from(9, 400), to=path, concurrency=concurrency)
    rows = pl.read_ndjson(path)
    sent = calls(record).total()
    unknown = rows["state"].to_list().count("unknown")
    assert len(rows) == sent
    assert unknown == concurrency
    assert rows["state"].to_list().count("succeeded") == sent - unknown
    shown = caught.value._render_traceback_()  # type: ignore[attr-defined]
    assert f"{path} has the first {sent} rows ({unknown} unknown)" in shown[1]


def test_an_interrupted_stream_has_the_rows_that_were_sent_and_not_read(mcp: Mcp, record: Path) -> None:
    def waits() -> bool:
        """Whether four rows were read, the fifth is being called, and the loop waits for it in the stream."""
        frame = sys._current_frames()[threading.main_thread().ident or 0]
        return len(read) == 4 and calls(record).total() == 5 and frame.f_code.co_filename != __file__

    stream = mcp.rows.write.map.stream(held_from(4, 40))
    read: list[Any] = []
    when(waits, interrupt)
    with pytest.raises(KeyboardInterrupt):
        for row, _ in stream:
            read.append(row)
    [(row, error)] = stream.unread
    assert row["key"] == str(len(read))
    assert isinstance(error, McpError) and error.row_state == "unknown"
    assert calls(record).total() == len(read) + 1


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_a_map_to_a_file_that_stops_early_says_so(mcp: Mcp, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"out{suffix}"
    with pytest.raises(CallError) as caught:
        mcp.rows.broken.map(iter(keys(1_000)), to=path, stop_after=3, concurrency=1, on_error="collect")
    mapped = pl.read_parquet(path) if suffix == ".parquet" else pl.read_ndjson(path)
    rows, left = len(mapped), len(mapped) - 3
    assert mapped["state"].to_list() == ["failed"] * 3 + ["not called"] * left
    assert 64 <= rows < 70
    assert caught.value.message == f"stopped after 3 failures in a row: {rows} rows read, {left} of them not called"
    hint = f"start a new stream with the remaining rows; {path} has the first {rows} rows ({left} not called)"
    assert caught.value.hint == hint


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_stream_that_is_cancelled_says_so(mcp: Mcp, kind: str) -> None:
    stream = mcp.rows.read.map.stream(keys(200), seconds=HELD)

    async def read() -> None:
        async for _ in stream:
            pass

    canceller = when(lambda: mcp.cancel() > 0, lambda: None)
    with pytest.raises(CallCancelled, match=r"stopped by the user: \d+ rows read, \d+ of them not called"):
        if kind == "sync":
            list(stream)
        else:
            asyncio.run(read())
    canceller.join()


def test_a_killed_map_leaves_the_file_that_it_was_writing(mcp: Mcp, record: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    partial = tmp_path / "out.jsonl.partial"
    script = f"""
import ipymcp
with ipymcp.connect({server(record)!r}) as mcp:
    mcp.rows.write.map([str(number) for number in range(1_000)], seconds=0.1, to={str(path)!r})
"""
    with subprocess.Popen([sys.executable, "-c", script]) as process:
        wait_until(lambda: calls(record).total() >= 20)
        process.kill()
    sent = calls(record).total()
    assert sent - 15 <= len(pl.read_ndjson(partial)) <= sent
    with pytest.raises(McpError) as caught:
        mcp.rows.write.map(["a"], to=path)
    message = f"{path} cannot be written: out.jsonl.partial, of a map that is running or was killed, exists"
    assert (caught.value.message, caught.value.hint) == (message, "rename or delete it; it has the rows so far")


def test_columns_named_like_those_that_are_added_are_kept(mcp: Mcp, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    mcp.rows.read.map(pd.DataFrame({"key": ["a"], "state": ["NY"], "error": ["e"], "times": [2]}), to=path)
    assert pl.read_ndjson(path).to_dicts() == [
        {
            "key": "a",
            "state_row": "NY",
            "error_row": "e",
            "times": 2,
            "length": 1,
            "name.upper": "A",
            "times_result": 2,
            "state": "succeeded",
            "error": None,
        }
    ]


def test_a_file_is_replaced_only_by_rows(mcp: Mcp, tmp_path: Path) -> None:
    path = tmp_path / "out.parquet"
    mcp.rows.read.map(["a"], to=path)
    assert pl.read_parquet(path)["state"].to_list() == ["succeeded"]
    before = path.read_bytes()
    mcp.policy.deny("rows.read")
    with pytest.raises(PolicyError):
        mcp.rows.read.map(["b"], to=path)
    assert path.read_bytes() == before
    assert list(tmp_path.glob("*.partial")) == []


@pytest.mark.parametrize(("fitting", "count"), [(1_000, 1_001), (2_300, 2_400)])
def test_a_parquet_file_keeps_the_rows_before_one_that_does_not_fit(
    mcp: Mcp, tmp_path: Path, fitting: int, count: int
) -> None:
    path = tmp_path / "out.parquet"
    rows = [{"key": key, "seconds": 0 if int(key) < fitting else 0.0005} for key in keys(count)]
    misfit = "does not fit the columns of the first 1,000: column 'seconds' is int64"
    with pytest.raises(McpError, match=misfit) as caught:
        mcp.rows.read.map(rows, to=path)
    assert caught.value.hint == f"write a .jsonl file; {path} has the first {fitting:,} rows"
    assert pl.read_parquet(path)["key"].to_list() == keys(fitting)


def test_a_full_disk_keeps_what_was_written(mcp: Mcp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = 150_000

    def write(file: int, data: Any) -> int:
        nonlocal left
        if not left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = os.write(file, data[: min(left, 40_000)])
        left -= written
        return written

    disk = {"write": write, "ftruncate": os.ftruncate, "lseek": os.lseek, "SEEK_SET": 0, "SEEK_CUR": 1}
    monkeypatch.setattr(map_file, "os", SimpleNamespace(**disk))
    with pytest.raises(McpError, match=r"out\.jsonl cannot be written: No space left on device") as caught:
        mcp.rows.read.map(keys(4_000), to=tmp_path / "out.jsonl")
    rows = len(pl.read_ndjson(tmp_path / "out.jsonl"))
    assert str(caught.value.hint).endswith(f"has the first {rows:,} rows")
    assert rows >= 700  # 1,700 fit, and a batch has at most 1,000


@pytest.mark.parametrize("suffix", [".jsonl", ".PARQUET"])
def test_cells_of_any_kind_are_written(mcp: Mcp, tmp_path: Path, suffix: str) -> None:
    class Odd:
        def __str__(self) -> str:
            raise ValueError

    path = tmp_path / f"out{suffix}"
    written = mcp.rows.read.map(pd.DataFrame({"key": ["a", "b"], "o": [Odd(), 2**80]}, dtype=object), to=path)
    assert (written.rows, written.failed) == (2, 0)
    mapped = pl.read_ndjson(path) if suffix == ".jsonl" else pl.read_parquet(path)
    assert str(mapped["o"].to_list()[0]) == "a Odd"


@pytest.mark.parametrize("to", [5, True, "", "a\0.jsonl", "x.csv", None.__class__])
def test_a_place_that_cannot_be_a_file_of_results_is_refused(mcp: Mcp, to: Any) -> None:
    with pytest.raises(ArgumentError, match=r"map: to: expected a \.jsonl or \.parquet file, got "):
        mcp.rows.read.map(["a"], to=to)


def test_a_plan_does_not_use_up_rows_and_a_stream_can_be_read_twice(mcp: Mcp) -> None:
    with pytest.raises(ArgumentError, match="a plan would consume these rows"):
        mcp.rows.read.map.plan(iter(["a"]))
    stream = mcp.rows.read.map.stream(pd.DataFrame({"key": ["a"]}))
    assert len(list(stream)) == len(list(stream)) == 1


def test_an_error_of_the_rows_comes_after_the_rows_before_it(mcp: Mcp) -> None:
    def rows() -> Iterator[str]:
        yield "a"
        raise RuntimeError("no more")

    got: list[str] = []
    with pytest.raises(RuntimeError, match="no more"):
        for row, _ in mcp.rows.read.map.stream(rows()):
            got.append(row)
    assert got == ["a"]


def test_a_host_that_is_closed_ends_the_streams_that_are_open() -> None:
    script = """
import gc, ipymcp
mcp = ipymcp.host()
mcp.load("demo")
rows = iter(mcp.demo.echo.map.stream(str(number) for number in range(100)))
print(next(rows)[0])
mcp.close()
try:
    for row, result in rows:
        last = result
except ipymcp.CallError as error:
    print(last)
    print(error.message)
del rows
gc.collect()
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stderr == ""
    first, error, end = ended.stdout.splitlines()
    assert (first, error) == ("0", "demo.echo: was not called: the map was stopped because its server was stopped")
    assert re.fullmatch(r"stopped because its server was stopped: \d+ rows read, \d+ of them not called", end)
