"""The history of calls: stored, found, and deleted."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ipymcp.api.history import CallHistory, moment
from ipymcp.errors import CallTimeout, McpError
from ipymcp.storage import history as histories
from ipymcp.storage.database import Database
from ipymcp.storage.history import CallRecord, History, HistoryEntry


class Later:
    """A timer that is run by hand."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []

    def __call__(self, delay: float, function: Callable[[], None]) -> bool:
        assert delay <= 1
        self.due.append(function)
        return True


@pytest.fixture
def history(tmp_path: Path) -> Any:
    database = Database(tmp_path / "state.db")
    yield History(lambda: database, Later(), "notebook.ipynb")
    database.close(5)


def record(tool: str = "read", result: object = None, error: Exception | None = None, **values: Any) -> Any:
    raw = None if result is None else msgspec.Raw(msgspec.json.encode(result))
    began = values.pop("began", time.monotonic())
    return CallRecord(
        began, began + 0.25, values.get("caller", "user"), values.get("server", "fs"), tool, b'{"a":1}',
        0 if raw is None else len(bytes(raw)), raw, error, 7,
    )  # fmt: skip


def entries(history: History, **wanted: Any) -> list[HistoryEntry]:
    return asyncio.run(history.entries(**wanted))


def test_a_call_is_kept_with_its_sizes(history: History) -> None:
    before = time.time()
    history.add(record(result={"content": []}))
    (entry,) = entries(history)
    assert before - 1 < entry.time < time.time() + 1
    assert entry == HistoryEntry(
        entry.id, entry.time, pytest.approx(0.25), "user", "fs", "read", 7, 14, "", "notebook.ipynb", 7, None, None
    )


def test_values_are_kept_where_they_are_wanted_and_nothing_where_nothing_is(history: History) -> None:
    history.mode = "values"
    history.add(record(result={"content": []}))
    (entry,) = entries(history)
    assert (entry.arguments, entry.result) == (b'{"a":1}', b'{"content":[]}')
    history.mode = "off"
    history.add(record())
    assert len(entries(history)) == 1


def test_failures_are_told_apart_in_one_line(history: History) -> None:
    history.add(record("good", result={"content": [{"type": "text", "text": '"isError":true'}]}))
    history.add(record("told", result={"content": [{"type": "text", "text": "no\nsuch file"}], "isError": True}))
    history.add(record("late", error=CallTimeout("no answer")))
    large = {"content": [{"type": "text", "text": "x" * 2_000_000}], "isError": True}
    history.add(record("large", result=large))
    failed = {entry.tool: entry.error for entry in entries(history, failed=True)}
    assert failed.pop("large").startswith("ToolError: xxx")
    assert failed == {"told": "ToolError: no such file", "late": "CallTimeout: no answer"}


def test_calls_are_found_by_server_tool_and_time(history: History) -> None:
    now = time.monotonic()
    history.add(record("old", began=now - 7200))
    history.add(record("new", began=now))
    history.add(record("new", began=now + 1, server="git"))
    assert [entry.tool for entry in entries(history)] == ["new", "new", "old"]
    assert [entry.server for entry in entries(history, server="g*")] == ["git"]
    assert len(entries(history, tool="n?w")) == 2
    assert len(entries(history, since=moment("1h"))) == 2
    assert len(entries(history, limit=1)) == 1


def test_calls_go_to_the_database_in_batches_and_one_timer_runs_at_a_time(history: History) -> None:
    later: Any = history._later
    for _ in range(100):
        history.add(record())
    assert len(later.due) == 1
    later.due.pop()()
    history.add(record())
    assert len(later.due) == 1
    assert len(entries(history)) == 101


def test_the_oldest_calls_go(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histories, "MAX_ROWS", 50)
    monkeypatch.setattr(histories, "_PRUNE_EVERY", 10)
    history.add(record("ancient", began=time.monotonic() - histories.MAX_LENGTH - 60))
    for number in range(100):
        history.add(record(f"tool_{number}"))
        if number % 10 == 0:
            history.flush()
    history.flush()
    names = [entry.tool for entry in entries(history, limit=1000)]
    assert len(names) <= 60
    assert "ancient" not in names and "tool_99" in names


def test_a_machine_that_slept_since_does_not_move_calls_into_the_past(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken = time.time() + 3600
    monkeypatch.setattr(histories.time, "time", lambda: woken)
    history.add(record())
    assert abs(entries(history)[0].time - woken) < 60


def test_the_listing_has_a_table_and_a_frame() -> None:
    listing = CallHistory([HistoryEntry(1, 0.0, 0.5, "user", "fs", "read", 7, 14, "", "a.ipynb", 3, b"{}", None)])
    assert repr(listing).splitlines()[1].split() == [
        "time", "who", "tool", "seconds", "sent", "received", "cell", "error"
    ]  # fmt: skip
    assert "<table" in listing._repr_mimebundle_()["text/html"]
    frame = listing.df
    assert list(frame["arguments"]) == ["{}"]
    assert list(frame["notebook"]) == ["a.ipynb"]
    json.dumps(frame.drop(columns="time").to_dict("records"))


@pytest.mark.parametrize(("text", "ago"), [("90s", 90), ("10m", 600), ("2h", 7200), ("1.5d", 129600)])
def test_a_time_ago_is_a_moment(text: str, ago: float) -> None:
    assert moment(text) == pytest.approx(time.time() - ago, abs=5)


def test_what_is_no_time_is_refused() -> None:
    assert moment("2026-11-21 14:00") < moment("2026-11-21 14:01")
    with pytest.raises(McpError) as caught:
        moment("yesterday")
    assert caught.value._two_lines() == ["McpError: 'yesterday' is not a time", "  10m, 2h, 3d, or 2026-11-21 14:00"]
