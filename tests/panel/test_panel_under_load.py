"""The panel's side in the kernel under load: views that do not keep up, and much to show."""

import sys
import time
from pathlib import Path

import pytest

from tests.environments import server_command
from tests.panel.notebooks import HOSTILE, NAMED, OWN, Notebook, OpenNotebook, command, named
from tests.processes import wait_until

# -- a view that does not keep up -------------------------------------------------------------------------------------


def test_the_last_lines_of_a_flood_are_shown_and_the_rest_is_counted(open_notebook: OpenNotebook) -> None:
    notebook = open_notebook(own=command(*server_command("misbehaving", "stderr=20000")))
    view = notebook.view()
    view.ask("logs", server="own", on=True)
    began = time.monotonic()
    log = notebook.host.sessions["own"].log
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


def test_logs_come_to_the_views_that_follow_them_from_where_they_left_off(own: Notebook) -> None:
    view, other = own.view(), own.view()
    log = own.host.sessions["own"].log
    view.ask("logs", server="own", on=True)
    log.add("host", "info", f"first {HOSTILE}")
    line = view.wait(lambda one: one["kind"] == "log" and one["lines"])["lines"][-1]
    assert line["text"] == "first <img src=x onerror=alert(1)>⟨U+202E⟩"
    view.ask("logs", server="own", on=False)
    log.add("host", "info", "second")
    view.settle()
    before = len(view.received)
    view.ask("logs", server="own", on=True, since=line["n"])
    lines = view.wait(lambda one: one["kind"] == "log", after=before)["lines"]
    assert [one["text"] for one in lines] == ["second"]
    other.settle()
    assert not other.of_kind("log")


def test_a_view_that_takes_nothing_is_sent_the_newest_when_it_does(open_notebook: OpenNotebook) -> None:
    own = open_notebook(own=OWN)
    view = own.view()
    view.settle()
    view.room.clear()
    for _ in range(300):
        own.mcp.own.echo("x")
    own.mcp.stop("own")
    before = len(view.of_kind("patch"))
    view.room.set()
    view.until_server("own", "stopped")
    assert len(view.of_kind("patch")) - before <= 3


def test_a_view_that_asks_and_never_reads_is_detached(demo: Notebook) -> None:
    view = demo.view()
    view.room.clear()
    for number in range(1500):
        view.send({"kind": "intent", "id": number, "do": "fly"})
    wait_until(lambda: view.is_left)
    assert not demo.panel.views


def test_the_log_lines_that_are_not_shown_are_counted(open_notebook: OpenNotebook) -> None:
    flood = "import runpy, sys; sys.stderr.write(''.join(f'line {n}\\n' for n in range(1, 10001))); sys.stderr.flush()"
    arguments = f"sys.argv[:] = ['', '{{\"name\": \"a\"}}']; sys.path.insert(0, {str(Path(NAMED).parent)!r})"
    program = f"{flood}; {arguments}; runpy.run_path({NAMED!r}, run_name='__main__')"
    notebook = open_notebook(loud={"command": sys.executable, "args": ["-c", program], "log_lines": 1000})
    view, log = notebook.view(), notebook.host.sessions["loud"].log
    wait_until(lambda: any(line.text == "line 10000" for line in log.tail()))
    total = log.total
    assert (len(log), total) == (1000, 10_000 + sum(line.source == "host" for line in log.tail()))

    view.ask("logs", server="loud", on=True)
    batch = view.wait(lambda message: message["kind"] == "log")
    lines = batch["lines"]
    assert (len(lines), batch["dropped"], lines[-1]["n"]) == (500, total - 500, total)
    assert [line["n"] for line in lines] == list(range(total - 499, total + 1))
    assert [line["text"] for line in lines] == [row["text"] for row in notebook.mcp.servers["loud"].logs(500)]
    assert "line 10000" in {line["text"] for line in lines}

    view.ask("logs", server="loud", on=False)
    before = len(view.received)
    view.ask("logs", server="loud", on=True, since=total - 20)
    again = view.wait(lambda message: message["kind"] == "log", after=before)
    assert (len(again["lines"]), again["dropped"], again["lines"][0]["n"]) == (20, 0, total - 19)


# -- sizes ------------------------------------------------------------------------------------------------------------


@pytest.mark.timed
def test_five_thousand_tools_are_listed_within_bounds(open_notebook: OpenNotebook) -> None:
    view = open_notebook(many=command(sys.executable, NAMED, "--many", "5000")).view()
    before = time.monotonic()
    assert len(view.ask("tools")) == 5000
    assert time.monotonic() - before < 5
    assert max(view.sizes) < 2_500_000


def test_two_hundred_servers_are_one_small_snapshot_and_a_change_is_smaller(open_notebook: OpenNotebook) -> None:
    notebook = open_notebook()
    notebook.mcp.load({f"server_{n}": {**named({"name": "a"}), "disabled": n > 0} for n in range(200)})
    view = notebook.view()
    view.settle()
    assert len(view.state["servers"]) == 200
    assert max(view.sizes) < 200_000
    before = len(view.sizes)
    notebook.mcp.stop("server_0")
    view.until_server("server_0", "stopped")
    assert sum(view.sizes[before:]) < 3_000


def test_a_tool_of_a_thousand_fields_is_shown_validated_and_called(open_notebook: OpenNotebook) -> None:
    names = [f"field_{n}" for n in range(1_000)]
    fields = {name: {"type": "integer", "description": "A number, whole."} for name in names}
    schema = {"type": "object", "properties": fields, "required": names}
    view = open_notebook(wide=named({"name": "fill", "inputSchema": schema})).view()
    tool = view.ask("tool", server="wide", tool="fill")
    assert len(tool["schema"]["properties"]) == 1_000
    assert max(view.sizes) < 150_000
    values = dict.fromkeys(names, 1)
    assert view.ask("validate", server="wide", tool="fill", arguments=values) == {"errors": []}
    wrong = view.ask("validate", server="wide", tool="fill", arguments={**values, "field_999": "x"})
    assert wrong == {"errors": [{"path": ["field_999"], "message": "Expected integer, got 'x'"}]}
    assert len(view.ask("validate", server="wide", tool="fill", arguments={})["errors"]) < 100  # the first few
    assert view.call("wide", "fill", **values)["preview"]["json"] == {"tool": "fill", "arguments": values}
