"""The history of calls: storage, queries and deletion."""

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from ipymcp.api.history import CallHistory, moment
from ipymcp.errors import CallCancelled, CallInterrupted, CallTimeout, McpError, PolicyError, TrustError
from ipymcp.storage import history as histories
from ipymcp.storage.database import Database
from ipymcp.storage.history import CallRecord, History, HistoryEntry


class ManualTimer:
    """A timer whose functions are called by hand."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []

    def __call__(self, delay: float, function: Callable[[], None]) -> bool:
        assert delay <= 1
        self.due.append(function)
        return True


@pytest.fixture
def history(database: Database) -> History:
    return History(lambda: database, ManualTimer(), "notebook.ipynb")


def text(characters: str) -> dict[str, Any]:
    """A result with this text."""
    return {"content": [{"type": "text", "text": characters}]}


def record(tool: str = "read", result: object = None, error: Exception | None = None, **values: Any) -> Any:
    raw = None if result is None else msgspec.Raw(msgspec.json.encode(result))
    began = values.pop("began", time.monotonic())
    return CallRecord(
        began=began, ended=began + 0.25, caller=values.get("caller", "user"), server=values.get("server", "fs"),
        tool=tool, arguments=b'{"a":1}', received=0 if raw is None else len(bytes(raw)), result=raw, error=error,
        cell=7, number=values.get("number", 1), questions=values.get("questions", ()),
    )  # fmt: skip


def entry_of(id: int, time: float, duration: Any, received: int, **values: Any) -> HistoryEntry:
    defaults = {"notebook": "notebook.ipynb", "arguments": None, "result": None, "questions": None}
    return HistoryEntry(
        id=id, time=time, duration=duration, caller="user", server="fs", tool="read", sent=7, received=received,
        error="", cell=7, outcome="done", **{**defaults, **values},
    )  # fmt: skip


def entries(history: History, **filters: Any) -> list[HistoryEntry]:
    return asyncio.run(history.entries(**filters))


def tools(history: History, **filters: Any) -> list[str]:
    return [entry.tool for entry in entries(history, **filters)]


def test_a_call_is_kept_with_its_sizes(history: History) -> None:
    before = time.time()
    history.add(record(result={"content": []}))
    (entry,) = entries(history)
    assert before - 1 < entry.time < time.time() + 1
    assert entry == entry_of(entry.id, entry.time, pytest.approx(0.25), 14)


def test_the_mode_says_whether_values_are_kept_or_nothing(history: History) -> None:
    history.mode = "values"
    history.add(record(result={"content": []}, questions=("May it? · yes",)))
    (entry,) = entries(history)
    assert (entry.arguments, entry.result, entry.questions) == (b'{"a":1}', b'{"content":[]}', "May it? · yes")
    history.mode = "off"
    history.add(record())
    assert len(entries(history)) == 1


def test_the_error_of_a_failed_call_is_one_line(history: History) -> None:
    history.add(record("good", result=text('"isError":true')))
    history.add(record("refused", result={**text("no\nsuch file"), "isError": True}))
    history.add(record("late", error=CallTimeout("no answer")))
    history.add(record("large", result={**text("x" * 2_000_000), "isError": True}))
    failed = {entry.tool: entry.error for entry in entries(history, outcomes=["failed"])}
    assert failed.pop("large").startswith("ToolError: xxx")
    assert failed == {"refused": "ToolError: no such file", "late": "CallTimeout: no answer"}


def test_a_cancelled_or_refused_call_has_not_failed(history: History) -> None:
    errors = {
        "cancelled": CallCancelled("call 1 was cancelled"),
        "interrupted": CallInterrupted("the user interrupted it"),
        "refused": PolicyError("you said no"),
        "untrusted": TrustError("needs trust"),
        "failed": CallTimeout("no answer"),
    }
    for name, error in errors.items():
        history.add(record(name, error=error))
    history.add(record("done", result={"content": []}))
    outcomes = {entry.tool: entry.outcome for entry in entries(history)}
    assert outcomes.pop("untrusted") == "refused"
    assert outcomes == {name: name for name in outcomes}
    assert tools(history, outcomes=["refused"]) == ["untrusted", "refused"]


def test_a_large_result_is_kept_whole_in_memory_and_truncated_in_the_database(history: History) -> None:
    history.mode = "values"
    large = text("x" * 3_000_000)
    history.add(record("large", result=large, number=1))
    (entry,) = entries(history)
    assert entry.result is not None and len(entry.result) == 100_000
    kept = history.kept[entry.id]
    assert kept.record.result is not None and json.loads(bytes(kept.record.result)) == large
    assert not kept.is_too_large


def test_a_result_that_is_too_large_to_be_kept_is_marked_as_such(history: History) -> None:
    large = text("x" * histories.MAX_KEPT_BYTES)
    for number, result in enumerate((large, {**large, "isError": True}, {"content": []})):
        history.add(record(f"tool_{number}", result=result, number=number))
    small, failed, done = (history.kept[entry.id] for entry in entries(history))
    assert [kept.is_too_large for kept in (small, failed, done)] == [False, True, True]
    assert (done.record.result, done.outcome, failed.outcome) == (None, "done", "failed")
    assert failed.error_type == "ToolError" and failed.error.startswith("xxx")


def test_results_that_wait_to_be_written_are_held_up_to_a_limit(history: History) -> None:
    large = text("x" * 4_000_000)
    for number in range(3):
        history.add(record(result=large, number=number))
    held = [history.kept[entry.id].record.result for entry in entries(history)]
    assert [result is None for result in held] == [True, False, False]
    history.add(record(result=large, number=3))
    newest = entries(history)[0].id
    assert history.kept[newest].record.result is not None


def test_rows_are_read_in_pages_and_by_words_and_notebook(history: History, database: Database) -> None:
    for number in range(5):
        history.add(record(f"tool_{number}"))
    newest, *_, oldest = entries(history)
    assert tools(history, after=newest.id - 1) == ["tool_4"]
    assert tools(history, before=oldest.id + 2, limit=1) == ["tool_1"]
    assert tools(history, words="FS.Tool_3") == ["tool_3"]
    assert tools(history, words="%") == []
    assert asyncio.run(history.entry(oldest.id)) == oldest and asyncio.run(history.entry(10**9)) is None

    other = History(lambda: database, ManualTimer(), "other.ipynb")
    other.add(record("elsewhere"))
    assert tools(other, is_own=True) == ["elsewhere"]
    assert len(entries(other)) == 6


def test_the_latest_calls_stay_in_memory_with_their_values_but_not_with_their_exceptions(history: History) -> None:
    def fail() -> None:
        large = bytearray(1000)  # a traceback would keep it
        raise CallTimeout(f"no answer in {len(large)} s", hint="give it longer")

    with pytest.raises(CallTimeout) as caught:
        fail()
    history.add(record("read", result={"content": []}, number=4, questions=("May it? · yes",)))
    history.add(record("late", error=caught.value, number=5))
    late, read = (history.kept[entry.id] for entry in entries(history))
    assert (read.record.number, read.record.arguments, read.record.questions) == (4, b'{"a":1}', ("May it? · yes",))
    assert read.record.result is not None and bytes(read.record.result) == b'{"content":[]}'
    assert (late.outcome, late.error, late.error_type, late.hint) == (
        "failed", "no answer in 1000 s", "CallTimeout", "give it longer"
    )  # fmt: skip
    assert late.record.error is None


def test_what_stays_in_memory_is_bounded_in_number_and_size(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histories, "MAX_KEPT", 20)
    monkeypatch.setattr(histories, "MAX_KEPT_BYTES", 100_000)
    for number in range(50):
        history.add(record(result={"content": []}, number=number))
    newest = entries(history)[0].id
    assert [*history.kept] == [*range(newest - 19, newest + 1)]
    assert [kept.record.number for kept in history.kept.values()] == [*range(30, 50)]

    for _ in range(3):
        history.add(record(result=text("x" * 60_000)))
        history.flush()
    newest = entries(history)[0].id
    assert [*history.kept] == [newest]
    history.mode = "off"
    history.add(record())
    assert [*history.kept] == [newest]


def test_calls_are_found_by_server_tool_and_time(history: History) -> None:
    now = time.monotonic()
    history.add(record("old", began=now - 7200))
    history.add(record("new", began=now))
    history.add(record("new", began=now + 1, server="git"))
    assert tools(history) == ["new", "new", "old"]
    assert [entry.server for entry in entries(history, server="g*")] == ["git"]
    assert tools(history, tool="n?w") == tools(history, since=moment("1h")) == ["new", "new"]
    assert len(entries(history, limit=1)) == 1


def test_calls_are_written_in_batches_by_one_timer_at_a_time(history: History) -> None:
    later: Any = history._call_later
    for _ in range(100):
        history.add(record())
    assert len(later.due) == 1
    later.due.pop()()
    history.add(record())
    assert len(later.due) == 1
    assert len(entries(history)) == 101


def test_the_oldest_calls_are_deleted(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histories, "MAX_ROWS", 50)
    monkeypatch.setattr(histories, "_PRUNE_EVERY", 10)
    history.add(record("ancient", began=time.monotonic() - histories.MAX_AGE - 60))
    for number in range(100):
        history.add(record(f"tool_{number}"))
        if number % 10 == 0:
            history.flush()
    history.flush()
    names = tools(history, limit=1000)
    assert len(names) <= 60
    assert "ancient" not in names and "tool_99" in names


def test_a_call_keeps_its_time_when_the_machine_slept_before_it_is_written(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken = time.time() + 3600
    monkeypatch.setattr(histories.time, "time", lambda: woken)
    history.add(record())
    assert abs(entries(history)[0].time - woken) < 60


def test_the_listing_has_a_table_and_a_frame() -> None:
    listing = CallHistory([entry_of(1, 0.0, 0.5, 14, notebook="a.ipynb", arguments=b"{}")])
    assert repr(listing).splitlines()[1].split() == [
        "time", "who", "tool", "seconds", "sent", "received", "cell", "map", "calls", "outcome", "error"
    ]  # fmt: skip
    assert "<table" in listing._repr_mimebundle_()["text/html"]
    frame = listing.df
    assert list(frame["arguments"]) == ["{}"]
    assert list(frame["notebook"]) == ["a.ipynb"]
    json.dumps(frame.drop(columns="time").to_dict("records"))


@pytest.mark.parametrize(("text", "ago"), [("90s", 90), ("10m", 600), ("2h", 7200), ("1.5d", 129600)])
def test_a_time_ago_is_a_moment(text: str, ago: float) -> None:
    before = time.time() - ago
    assert before <= moment(text) <= time.time() - ago


def test_a_text_that_is_not_a_time_is_refused() -> None:
    assert moment("2026-11-21 14:00") < moment("2026-11-21 14:01")
    with pytest.raises(McpError) as caught:
        moment("yesterday")
    assert caught.value._two_lines() == ["McpError: 'yesterday' is not a time", "  10m, 2h, 3d, or 2026-11-21 14:00"]
