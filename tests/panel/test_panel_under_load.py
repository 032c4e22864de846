"""The panel's side in the kernel under load: views that do not keep up, much to show, nothing to tell."""

import sys
import time

import pytest

from tests.environments import server_command
from tests.panel.notebooks import NAMED, Notebook, Open, command, named, quiet

HOSTILE = "<img src=x onerror=alert(1)>\u202e"


# -- a view that does not keep up -------------------------------------------------------------------------------------


def test_of_a_flood_of_log_lines_the_last_come_and_the_rest_is_counted(opened: Open) -> None:
    notebook = opened(own=command(*server_command("misbehaving", "stderr=20000")))
    view = notebook.view()
    view.ask("logs", server="own", on=True)
    began = time.monotonic()
    log = notebook.mcp._host.sessions["own"].log
    view.listen(lambda: log.total > 20_000, 60)
    view.ask("logs", server="own", on=False)
    batches = view.of_kind("log")

    assert len(batches) <= 10 * (time.monotonic() - began) + 1
    assert all(len(batch["lines"]) <= 500 for batch in batches)
    numbers = [line["n"] for batch in batches for line in batch["lines"]]
    assert numbers == sorted(set(numbers))
    gone = numbers[0] - 1 - batches[0]["dropped"]  # before the view came, and not kept any more
    assert gone >= 0
    assert gone + sum(batch["dropped"] for batch in batches) + len(numbers) == numbers[-1]
    assert all(line["source"] == "stderr" for line in batches[-1]["lines"])


def test_logs_come_to_who_asked_for_them_from_where_they_left_off(own: Notebook) -> None:
    view, other = own.view(), own.view()
    log = own.mcp._host.sessions["own"].log
    view.ask("logs", server="own", on=True)
    log.add("host", "info", f"first {HOSTILE}")
    line = view.wait(lambda one: one["kind"] == "log" and one["lines"])["lines"][-1]
    assert line["text"] == "first <img src=x onerror=alert(1)>⟨U+202E⟩"
    view.ask("logs", server="own", on=False)
    log.add("host", "info", "second")
    quiet(view)
    before = len(view.heard)
    view.ask("logs", server="own", on=True, since=line["n"])
    lines = view.wait(lambda one: one["kind"] == "log", after=before)["lines"]
    assert [one["text"] for one in lines] == ["second"]
    quiet(other)
    assert not other.of_kind("log")


def test_a_view_that_takes_nothing_is_sent_the_newest_when_it_does(own: Notebook) -> None:
    view = own.view()
    quiet(view)
    view.room.clear()
    for _ in range(300):
        own.mcp.own.echo("x")
    own.mcp.stop("own")
    before = len(view.of_kind("patch"))
    view.room.set()
    view.until(lambda state: state["servers"]["own"]["state"] == "stopped")
    assert len(view.of_kind("patch")) - before <= 3


def test_a_view_that_asks_and_never_reads_is_let_go(demo: Notebook) -> None:
    view = demo.view()
    view.room.clear()
    for number in range(1500):
        view.send({"kind": "intent", "id": number, "do": "fly"})
    demo.mcp._host.loop.run(_nothing())
    for _ in range(1000):
        if view.is_left:
            break
        time.sleep(0.01)
    assert view.is_left
    assert not demo.panel.views


async def _nothing() -> None: ...


# -- sizes ------------------------------------------------------------------------------------------------------------


@pytest.mark.timed
def test_five_thousand_tools_are_listed_within_bounds(opened: Open) -> None:
    view = opened(many=command(sys.executable, NAMED, "--many", "5000")).view()
    before = time.monotonic()
    assert len(view.ask("tools")) == 5000
    assert time.monotonic() - before < 5
    assert max(view.sizes) < 2_500_000


def test_two_hundred_servers_are_one_small_snapshot_and_a_change_is_smaller(opened: Open) -> None:
    notebook = opened()
    notebook.mcp.load({f"server_{n}": {**named({"name": "a"}), "disabled": n > 0} for n in range(200)})
    view = notebook.view()
    quiet(view)
    assert len(view.state["servers"]) == 200
    assert max(view.sizes) < 200_000
    before = len(view.sizes)
    notebook.mcp.stop("server_0")
    view.until(lambda state: state["servers"]["server_0"]["state"] == "stopped")
    assert sum(view.sizes[before:]) < 3_000


def test_a_tool_of_a_thousand_fields_is_shown_judged_and_called(opened: Open) -> None:
    names = [f"field_{n}" for n in range(1_000)]
    fields = {name: {"type": "integer", "description": "A number, whole."} for name in names}
    schema = {"type": "object", "properties": fields, "required": names}
    view = opened(wide=named({"name": "fill", "inputSchema": schema})).view()
    tool = view.ask("tool", server="wide", tool="fill")
    assert len(tool["schema"]["properties"]) == 1_000
    assert max(view.sizes) < 150_000
    values = dict.fromkeys(names, 1)
    assert view.ask("validate", server="wide", tool="fill", arguments=values) == {"errors": []}
    wrong = view.ask("validate", server="wide", tool="fill", arguments={**values, "field_999": "x"})
    assert wrong == {"errors": [{"path": ["field_999"], "message": "expected integer, got 'x'"}]}
    assert len(view.ask("validate", server="wide", tool="fill", arguments={})["errors"]) < 100  # the first few
    assert view.call("wide", "fill", **values)["preview"]["json"] == {"tool": "fill", "arguments": values}
