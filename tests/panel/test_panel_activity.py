"""The panel's list of activity: what is shown of a call, what can be done with it, and a server's messages."""

import json
from typing import Any

import pytest

from ipymcp.errors import McpError
from ipymcp.masking import masks
from tests.panel.notebooks import OWN, Notebook, OpenNotebook
from tests.panels import DirectView, Message
from tests.processes import wait_until


def rows(view: DirectView, **fields: Any) -> list[Message]:
    return view.ask("history", **fields)


def details(view: DirectView, row: Message) -> Message:
    return view.ask("details", row=row["id"], call=row["call"])


# -- one call ---------------------------------------------------------------------------------------------------------


def test_a_call_of_a_cell_has_its_arguments_and_its_result_and_can_be_repeated(demo: Notebook) -> None:
    demo.mcp.demo.query("penguins", limit=2)
    view = demo.view()
    [row] = rows(view)
    assert (row["caller"], row["outcome"], row["cell"]) == ("user", "done", None)
    shown = details(view, row)
    assert json.loads(shown["arguments"]) == {"table": "penguins", "limit": 2}
    assert shown["result"]["json"]["count"] == 2 and shown["result"]["variable"] is None
    assert (shown["error"], shown["questions"], shown["repeatable"]) == (None, [], True)
    assert view.ask("repeat_code", row=row["id"])["text"] == "mcp.demo.query(table='penguins', limit=2)"

    number = view.ask("repeat", row=row["id"])["call"]
    again = view.result(number)
    assert again["preview"]["json"] == shown["result"]["json"]
    newest, _ = rows(view)
    assert (newest["call"], newest["caller"], newest["cell"]) == (number, "panel", None)


def test_the_result_of_a_call_of_a_cell_is_kept_on_demand(demo: Notebook) -> None:
    demo.mcp.demo.query("penguins", limit=2)
    view = demo.view()
    [row] = rows(view)
    assert row["call"] not in demo.mcp.results
    expression = view.ask("keep_result", row=row["id"])["text"]
    assert expression == f"mcp.results[{row['call']}]"
    assert demo.mcp.results[row["call"]].data["count"] == 2
    assert details(view, row)["result"]["variable"] == expression


def test_a_large_result_of_a_call_of_a_cell_opens_as_a_table_of_pages(own: Notebook) -> None:
    own.mcp.own.big(2, kind="rows")
    view = own.view()
    [row] = rows(view)
    shown = details(view, row)
    assert (shown["is_too_large"], shown["openable"]) == (False, True)
    table = shown["result"]["table"]
    assert table["page"]["columns"][0]["is_numeric"] and len(table["page"]["rows"]) == 50
    page = view.ask("rows", result=table["result"], first=50)
    assert (page["first"], page["total"]) == (50, table["page"]["total"])
    view.ask("keep_result", row=row["id"])
    assert len(own.mcp.results[row["call"]].data["rows"]) == page["total"]


def test_a_call_whose_result_is_too_large_to_be_kept_can_only_be_repeated(own: Notebook) -> None:
    own.mcp.own.big(11)
    view = own.view()
    [row] = rows(view)
    shown = details(view, row)
    assert (shown["result"], shown["is_too_large"], shown["openable"], shown["repeatable"]) == (None, True, False, True)
    error = view.reply("keep_result", row=row["id"])["error"]
    assert (error["message"], error["hint"]) == (
        "the result of this call was not kept", "it was too large; run it again"
    )  # fmt: skip


def test_a_failed_call_has_its_whole_error(own: Notebook) -> None:
    view = own.view()
    long = "x" * 1000
    with pytest.raises(McpError):
        own.mcp.own.refuse(code=-32000, message=long, data=None)
    [row] = rows(view)
    assert len(row["error"]) < 400
    shown = details(view, row)
    assert shown["error"]["message"] == long
    assert (shown["error"]["type"], shown["result"]) == ("RpcError", None)
    assert view.reply("keep_result", row=row["id"])["error"]["message"] == "the result of this call was not kept"


def test_a_running_call_has_its_arguments(own: Notebook) -> None:
    view = own.view()
    call = own.mcp.own.sleep.submit(60)
    shown = view.ask("details", call=call.number)
    assert json.loads(shown["arguments"]) == {"seconds": 60} and shown["result"] is None
    call.cancel()
    assert json.loads(view.ask("details", call=call.number)["arguments"]) == {"seconds": 60}
    assert view.reply("details", call=10**6)["error"]["message"] == "this call is no longer known"


def test_a_refused_call_has_its_question_and_the_answer(own: Notebook) -> None:
    view = own.view()
    own.mcp.policy.ask("own.echo")

    for answer in ("once", "no"):
        number = view.ask("call", server="own", tool="echo", arguments={"text": "a"})["call"]
        question = view.question("approve")
        assert question["calls"][0]["arguments"] == {"text": "a"}
        assert view.reply("answer", question=question["id"], answer="perhaps")["error"]["type"] == "Malformed"
        view.answer(question, answer=answer)
        result = view.result(number)
        assert result["ok"] if answer == "once" else result["error"]["type"] == "PolicyError"
        view.until_no_question()
    refused, allowed = rows(view)
    assert (refused["outcome"], allowed["outcome"]) == ("refused", "done")
    assert details(view, allowed)["questions"] == ["May own.echo be called? · allowed once"]
    assert details(view, refused)["questions"] == ["May own.echo be called? · denied"]
    assert details(view, refused)["error"]["type"] == "PolicyError"


def test_secrets_are_masked_in_arguments_results_and_code(own: Notebook) -> None:
    masks.add("hunter2-hunter2")
    own.mcp.own.echo("hunter2-hunter2")
    view = own.view()
    [row] = rows(view)
    shown = details(view, row)
    assert json.loads(shown["arguments"]) == {"text": "[secret]"}
    assert shown["result"]["text"] == "[secret]"
    assert view.ask("repeat_code", row=row["id"])["text"] == "mcp.own.echo(text='[secret]')"
    number = view.ask("repeat", row=row["id"])["call"]
    view.result(number)
    assert own.mcp.results[number].text == "hunter2-hunter2", "the call is made with the real value"


def test_a_call_of_another_kernel_has_what_was_stored(own: Notebook) -> None:
    own.mcp.own.echo("short")
    view = own.view()
    assert len(rows(view)) == 1  # written
    own.host.history.mode = "values"
    own.mcp.own.echo("stored")
    stored, short = rows(view)
    own.forget_calls()
    assert [row["call"] for row in rows(view)] == [None, None]
    shown = details(view, stored | {"call": None})
    assert json.loads(shown["arguments"]) == {"text": "stored"} and shown["result"]["text"] == "stored"
    assert shown["repeatable"] and view.ask("repeat", row=stored["id"])["call"]
    shown = details(view, short | {"call": None})
    assert (shown["arguments"], shown["result"], shown["repeatable"]) == (None, None, False)
    error = view.reply("repeat", row=short["id"])["error"]
    assert error["message"] == "the arguments of this call were not kept"


def test_rows_come_in_pages_by_outcome_and_of_this_notebook_unless_all_are_wanted(own: Notebook) -> None:
    view = own.view()
    for text in "abc":
        own.mcp.own.echo(text)
    newest, middle, oldest = rows(view)
    assert rows(view, after=oldest["id"]) == [newest, middle]
    assert rows(view, before=newest["id"], limit=1) == [middle]
    assert rows(view, outcome="failed") == [] and len(rows(view, outcome="done", words="echo")) == 3
    own.host.history._notebook = "other.ipynb"
    assert rows(view) == [] and len(rows(view, everywhere=True)) == 3


# -- visitors ---------------------------------------------------------------------------------------------------------


def test_visitors_open_the_calls_of_panels_and_see_no_other_kernels(own: Notebook) -> None:
    own.mcp.own.echo("before")
    own.forget_calls()  # as if another kernel had made it
    own.mcp.own.echo("of a cell")
    view = own.visitor()
    view.call("own", "echo", text="mine")
    mine, cells = rows(view, everywhere=True)
    assert (mine["caller"], cells["caller"]) == ("panel", "user")
    assert details(view, mine)["result"]["text"] == "mine"
    assert view.ask("repeat", row=mine["id"])["call"]
    for verb in ("details", "repeat"):
        error = view.reply(verb, row=cells["id"])["error"]
        assert (error["type"], error["message"]) == ("PolicyError", "this panel may not open this call")


def test_visitors_cannot_open_a_call_of_another_kernels_panel(own: Notebook) -> None:
    own.host.history.mode = "values"
    view = own.view()
    view.call("own", "echo", text="another visitor's words")
    [theirs] = rows(view)
    own.forget_calls()  # as if another kernel had made it
    assert "another visitor's words" in json.dumps(details(own.view(), theirs | {"call": None}))
    visitor = own.visitor()
    assert rows(visitor, everywhere=True) == []
    for verb in ("details", "repeat"):
        error = visitor.reply(verb, row=theirs["id"])["error"]
        assert (error["type"], error["message"]) == ("UnknownName", "this call is no longer known")


# -- the messages of a server -----------------------------------------------------------------------------------------


def messages(view: DirectView) -> list[Message]:
    return [line for batch in view.of_kind("protocol") for line in batch["lines"]]


def follow(view: DirectView, *, on: bool = True, **fields: Any) -> None:
    view.ask("protocol", server="own", on=on, **fields)


def test_the_messages_of_a_server_are_shown_from_the_request_on(own: Notebook) -> None:
    masks.add("hunter2-hunter2")
    session = own.host.find("own")
    view = own.view()
    own.mcp.own.echo("unseen")
    assert session.recorder is None and session.require().recorder is None
    follow(view)
    own.mcp.own.echo("hunter2-hunter2")  # read by this thread
    own.mcp.own.sleep(0.1)  # read by the loop
    view.listen(lambda: len(messages(view)) >= 4, 10)
    sent, answer, *others = messages(view)
    assert (sent["n"], sent["sent"], sent["type"], sent["method"]) == (1, True, "request", "tools/call")
    assert (answer["sent"], answer["type"], answer["method"]) == (False, "response", "tools/call")
    assert (
        answer["id"] == sent["id"]
        and 0 <= answer["duration"] < 5
        and answer["size"] == len(answer["text"].replace("[secret]", "hunter2-hunter2"))
    )
    assert json.loads(sent["text"])["params"]["arguments"] == {"text": "[secret]"}
    assert [one["type"] for one in others] == ["request", "response"] and others[1]["duration"] >= 0.1
    assert "unseen" not in json.dumps(view.received) and "hunter2" not in json.dumps(view.received)


def test_messages_are_recorded_over_a_restart_until_no_view_follows_them(open_notebook: OpenNotebook) -> None:
    own = open_notebook(own=OWN)
    view, other = own.view(), own.view()
    follow(view)
    follow(other)
    own.mcp.restart("own")
    view.listen(lambda: any(line["method"] in ("initialize", "server/discover") for line in messages(view)), 10)
    follow(view, on=False)
    session = own.host.find("own")
    assert session.recorder is not None
    own.mcp.own.echo("a")
    other.listen(lambda: any(line["method"] == "tools/call" for line in messages(other)), 10)
    other.leave()
    wait_until(lambda: session.recorder is None, within=10)
    assert session.require().recorder is None and not own.panel.recorders


def test_only_a_view_with_full_permissions_follows_messages(own: Notebook) -> None:
    view = own.view()
    follow(view)
    own.mode = "run"
    own.panel.send_mode()
    error = view.reply("protocol", server="own", on=True)["error"]
    assert error["message"] == "this panel may not protocol: its mode is run"
    assert own.host.find("own").recorder is None
    before = len(view.of_kind("protocol"))
    own.mcp.own.echo("unseen")
    view.settle()
    assert len(view.of_kind("protocol")) == before


def test_a_flood_of_messages_is_counted_and_a_returning_view_has_the_rest(own: Notebook) -> None:
    view = own.view()
    follow(view)
    view.room.clear()
    calls = [own.mcp.own.echo.submit("x") for _ in range(1500)]
    for call in calls:
        call.result()
    view.room.set()
    total = own.panel.recorders["own"].total
    view.listen(lambda: bool(messages(view)) and messages(view)[-1]["n"] >= total, 20)
    batches = view.of_kind("protocol")
    assert total >= 3000
    assert sum(len(one["lines"]) + one["dropped"] for one in batches) == total
    assert all(len(one["lines"]) <= 500 for one in batches)

    late = own.view()
    follow(late, since=total - 3)
    late.listen(lambda: len(messages(late)) == 3, 10)


def test_an_idle_panel_that_follows_messages_sends_nothing(own: Notebook) -> None:
    view = own.view()
    follow(view)
    view.settle()
    before = len(view.received)
    for _ in range(5):
        view.settle()
    assert len(view.received) == before
