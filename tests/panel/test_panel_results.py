"""Large results in the panel: pages, rows and files of a table."""

import base64
import json
from typing import Any

from ipymcp.panel.results import preview
from ipymcp.results.tool_result import ToolResult
from tests.panel.notebooks import Notebook
from tests.panels import DirectView, Message


def shown_table(view: DirectView, **arguments: Any) -> Message:
    return view.call("demo", "query", table="penguins", **arguments)["preview"]["table"]


def keep(notebook: Notebook, data: Any, number: int = 1_000) -> Message:
    """Show a result of any data."""
    raw = json.dumps({"content": [], "structuredContent": data}).encode()
    result = ToolResult(raw, server="demo", tool="query")
    notebook.mcp.results.keep(number, result, len(raw))
    notebook.panel.previewed.add(number)
    table = preview(result, None, number).table
    assert table is not None
    return {"result": number, "page": table.page}


def test_records_are_shown_page_by_page(demo: Notebook) -> None:
    view = demo.view()
    table = shown_table(view, limit=1000)
    page = table["page"]
    assert (page["first"], page["total"], len(page["rows"]), page["more_columns"]) == (0, 42, 42, 0)
    assert [one["name"] for one in page["columns"]][:3] == ["species", "island", "bill_length_mm"]
    assert [one["is_numeric"] for one in page["columns"]] == [False, False, True, True, True, True, False, True]
    assert page["rows"][0] == ["Adelie", "Torgersen", "38.6", "19.0", "185", "4350", "male", "2007"]
    assert table["notes"] == []  # count is 42 as well
    assert view.ask("rows", result=table["result"], first=40)["rows"] == page["rows"][40:]


def test_the_kernel_sorts_the_whole_table(demo: Notebook) -> None:
    view = demo.view()
    number = shown_table(view, limit=1000)["result"]
    heaviest = view.ask("rows", result=number, sort=5, descending=True)["rows"]
    assert [row[5] for row in heaviest[:3]] == ["6000", "5700", "5475"]
    assert heaviest[-1][5] == ""
    first = view.ask("row", result=number, first=0, sort=5, descending=True)
    assert first["members"][5] == ["body_mass_g", "6000"]
    assert first["more"] == 0


def test_a_page_and_a_row_are_bounded_and_everything_is_visible(demo: Notebook) -> None:
    long = "<b>\u202e" + "x" * 25_000
    rows = [{f"column {place} {'n' * 1_000}": long for place in range(600)}, {"a": 1}]
    page = keep(demo, {"rows": rows})["page"]
    assert (len(page.columns), page.more_columns, page.total) == (50, 551, 2)
    assert {len(cell) for cell in page.rows[0]} == {100}
    assert {len(column.name) for column in page.columns} == {100}
    assert page.rows[0][0].startswith("<b>⟨U+202E⟩xxx")
    view = demo.view()
    record = view.ask("row", result=1_000, first=0)
    assert len(record["members"]) + record["more"] == 600
    assert len(record["members"]) >= 3
    assert all(len(text) <= 20_020 for _, text in record["members"])
    view.ask("rows", result=1_000, first=0)
    assert max(view.sizes) < 200_000


def test_nested_values_of_a_row_are_json(demo: Notebook) -> None:
    keep(demo, [{"a": {"b": [1, None]}, "c": "one\n  two", "d": None, "e": True}])
    members = dict(demo.view().ask("row", result=1_000, first=0)["members"])
    assert json.loads(members["a"]) == {"b": [1, None]}
    assert (members["c"], members["d"], members["e"]) == ("one\n  two", "null", "true")


def test_a_file_comes_in_bounded_parts(demo: Notebook) -> None:
    rows = [{"number": number, "text": "word " * 20} for number in range(20_000)]
    keep(demo, {"rows": rows})
    view = demo.view()
    data, offset = b"", 0
    while offset is not None:
        part = view.ask("file", result=1_000, format="json", offset=offset)
        data += base64.b64decode(part["data"])
        offset = part["next"]
    assert json.loads(data) == rows
    assert part["size"] == len(data) > 2_000_000
    assert max(view.sizes) < 1_000_000
    [attached] = demo.panel.views
    assert attached.file is None


def test_only_results_that_the_panel_has_shown_are_given(demo: Notebook) -> None:
    other = demo.mcp.demo.query("penguins")
    demo.mcp.results.keep(77, other, other.size)
    view = demo.view()
    for verb, fields in (("rows", {}), ("row", {}), ("file", {"format": "csv"})):
        assert view.reply(verb, result=77, **fields)["error"]["message"] == "result 77 is no longer kept"
    text = view.call("demo", "echo", text="a")
    assert view.reply("rows", result=text["call"])["error"]["message"].endswith("is not a table")


def test_a_result_that_was_dropped_is_named_and_its_table_forgotten(demo: Notebook) -> None:
    view = demo.view()
    number = shown_table(view)["result"]
    view.ask("rows", result=number)
    assert number in demo.panel.tables
    for each in range(1_000, 1_050):
        demo.mcp.results.keep(each, None, 1)
    demo.forget_calls()
    assert view.reply("rows", result=number)["error"] == {
        "message": f"result {number} is no longer kept",
        "hint": "run the tool again",
        "type": "UnknownName",
    }
    assert number not in demo.panel.tables


def test_visitors_get_the_tables_of_their_own_calls_only(demo: Notebook) -> None:
    secret = demo.mcp.demo.query("penguins")
    demo.mcp.results.keep(77, secret, secret.size)
    visitor = demo.visitor()
    number = shown_table(visitor)["result"]
    assert visitor.ask("rows", result=number)["total"] == 10
    assert visitor.ask("row", result=number)
    assert visitor.ask("file", result=number, format="csv")["next"] is None
    assert not visitor.reply("rows", result=77)["ok"]


def test_a_malformed_request_is_refused(demo: Notebook) -> None:
    view = demo.view()
    number = shown_table(view)["result"]
    for wrong in ({"first": -1}, {"sort": 99}, {"sort": "a"}, {"result": "x"}):
        assert not view.reply("rows", **{"result": number, **wrong})["ok"], wrong
    assert not view.reply("file", result=number, format="exe")["ok"]


def test_values_beside_the_table_and_warnings_stand_below_it() -> None:
    raw = json.dumps({"content": [], "structuredContent": {"rows": [{"a": 1}], "page": 2}}).encode()
    result = ToolResult(raw, server="s", tool="t", output_schema=b'{"required":["next"]}')
    table = preview(result, None, 1).table
    assert table is not None
    assert table.notes[0] == "page: 2"
    assert table.notes[1].startswith("⚠ the structured content does not match the output schema: ")
