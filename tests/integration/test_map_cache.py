"""What is kept of maps: results for later maps, and their calls in the history."""

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ipymcp import ArgumentError, Mcp, PolicyError
from ipymcp.interaction.questions import PageReply
from ipymcp.masking import masks
from tests.processes import wait_until
from tests.row_server import HELD, calls, held_from, hurry, interrupt_after, keys, server
from tests.unit.scripted_interface import ScriptedInterface

# -- results of earlier maps ------------------------------------------------------------------------------------------


def test_cached_results_are_not_asked_for_again(mcp: Mcp, record: Path) -> None:
    mcp.rows.read.map(["a", "b"], cache=True)
    plan = mcp.rows.read.map.plan(["a", "c", "b", "a"], cache="7d")
    assert (plan.calls, plan.cached, plan.duplicates) == (1, 3, 1)
    assert "rows.read: 1 call for 4 rows" in repr(plan) and "1 duplicate; 3 cached" in repr(plan)
    mapped = mcp.rows.read.map(["a", "c", "b", "a"], cache="7d")
    assert (mapped.summary["cached"], mapped.summary["calls"], mapped.summary["succeeded"]) == (3, 1, 4)
    assert "4 succeeded, 3 cached" in repr(mapped)
    assert [row.data["name"]["upper"] for row in mapped.results if row] == ["A", "C", "B", "A"]
    streamed = list(mcp.rows.read.map.stream(["a", "d"], cache=True))
    assert [result.data["length"] for _, result in streamed] == [1, 1]  # type: ignore[union-attr]
    assert calls(record) == {"read a": 1, "read b": 1, "read c": 1, "read d": 1}
    mcp.rows.read.map(["a"])
    mcp.rows.read.map(["a"], cache=True, times=3)
    mcp.rows.read.map(["a"], cache="0s")
    assert calls(record)["read a"] == 4


def test_failures_are_not_cached(mcp: Mcp) -> None:
    assert mcp.rows.flaky.map(keys(7), concurrency=1, cache=True).summary["failed"] == 1
    assert mcp.rows.flaky.map(keys(7), cache=True).summary["cached"] == 6


@pytest.mark.parametrize(
    ("tool", "cache", "message"),
    [
        ("write", True, "map: cache: mcp.rows.write does not declare that it only reads"),
        ("read", "always", "map: cache: expected True or an age, got 'always'"),
        ("read", 7, "map(): cache: expected True or False or a string, got 7"),
    ],
)
def test_a_map_that_cannot_be_cached_is_refused(mcp: Mcp, record: Path, tool: str, cache: Any, message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        mcp.rows[tool].map(["a"], cache=cache)
    assert message in caught.value.message
    assert not calls(record)


def test_a_result_with_a_secret_is_not_cached(own_mcp: Mcp) -> None:
    masks.add("a-planted-secret", "A-PLANTED-SECRET")
    own_mcp.rows.read.map(["A-PLANTED-SECRET", "a-planted-secret", "plain"], cache=True)
    mapped = own_mcp.rows.read.map(["a-planted-secret", "plain"], cache=True)
    assert mapped.summary["cached"] == 1
    assert not any(b"planted-secret" in file.read_bytes() for file in Path(os.environ["IPYMCP_STATE_DIR"]).iterdir())


def test_cached_rows_obey_the_policy_and_need_no_question(mcp: Mcp) -> None:
    mcp.rows.read.map(["x"], cache=True)
    user = ScriptedInterface(PageReply(answer="once"))
    mcp._host.questions.terminal = lambda: user
    mcp.policy.ask("rows.read")
    assert mcp.rows.read.map(["x"], cache=True).summary["cached"] == 1
    assert user.asked == []
    mcp.rows.read.map(["x", "y", "z"], cache=True)
    assert [question.calls[0].count for question in user.asked] == [2]
    mcp.policy.deny("rows.read")
    with pytest.raises(PolicyError):
        mcp.rows.read.map(["x"], cache=True)


def test_a_killed_kernel_loses_no_cached_result(own_mcp: Mcp, own_record: Path) -> None:
    rows = held_from(60, 100)
    code = (
        "import json, sys, ipymcp\n"
        "with ipymcp.connect(json.loads(sys.argv[1])) as mcp:\n"
        "    mcp.rows.read.map(json.loads(sys.argv[2]), concurrency=2, cache=True)\n"
    )
    arguments = [sys.executable, "-c", code, json.dumps(server(own_record)), json.dumps(rows)]
    with subprocess.Popen(arguments) as process:
        wait_until(lambda: own_mcp.rows.read.map.plan(rows, cache=True).cached == 60)  # though the map goes on
        assert process.poll() is None
        process.kill()
    hurry(own_record)
    mapped = own_mcp.rows.read.map(rows, cache=True)
    assert (mapped.summary["succeeded"], mapped.summary["cached"]) == (100, 60)


# -- the history ------------------------------------------------------------------------------------------------------


def test_a_map_is_one_row_of_the_history_and_its_calls_have_its_number(own_mcp: Mcp) -> None:
    mcp = own_mcp
    added = mcp._host.history.added
    mapped = mcp.rows.flaky.map(keys(8), concurrency=1)
    entry = mcp.history().entries[0]
    assert (entry.tool, entry.calls, entry.outcome) == ("flaky", 8, "failed")
    assert entry.error == "CallError: 7 succeeded, 1 failed"
    assert entry.sent == 8 * len('{"key":"0"}') and entry.received > 0
    assert mcp._host.history.added == added + 1
    assert entry.map == mapped._request.number
    inside = mcp.history(map=entry.map)
    assert [each.map for each in inside.entries] == [entry.map] * 8
    assert [each.outcome for each in inside.entries].count("failed") == 1
    assert list(inside.df["map"]) == [entry.map] * 8
    assert len(mcp.history().entries) == 1
    mapped.retry()
    assert [(each.calls, each.outcome) for each in mcp.history().entries] == [(1, "done"), (8, "failed")]


@pytest.mark.parametrize(("answer", "outcome"), [("once", "done"), ("no", "refused")])
def test_the_question_for_a_map_and_its_answer_are_in_the_history(own_mcp: Mcp, answer: Any, outcome: str) -> None:
    mcp = own_mcp
    user = ScriptedInterface(PageReply(answer=answer))
    mcp.policy.ask("rows.read")
    mcp._host.questions.terminal = lambda: user
    mcp._host.history.mode = "values"
    with suppress(PolicyError):
        mcp.rows.read.map(["a", "b"])
    (entry,) = mcp.history().entries
    assert entry.outcome == outcome
    assert entry.questions is not None and "May rows.read be called 2 times?" in entry.questions


def test_an_interrupted_map_is_interrupted_in_the_history(mcp: Mcp, record: Path) -> None:
    interrupt_after(1, record)
    with pytest.raises(KeyboardInterrupt):
        mcp.rows.write.map(["a", "b", "c"], seconds=HELD)
    assert mcp.maps[-1]._is_idle.wait(30)
    entry = mcp.history().entries[0]
    assert entry.outcome == "interrupted"
    assert entry.error.endswith(": 1 unknown, 2 not called; stopped when it was interrupted")
