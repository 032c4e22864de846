"""Tables are recognised by their structure, in data and in text; the schema has the columns where there is no row."""

import json
import sys
import time
from typing import Any

import pandas as pd
import pytest

from ipymcp.errors import McpError, UnknownName
from ipymcp.results.recognition import find_tables
from ipymcp.results.rendering import is_shown_as_text, shown_table
from ipymcp.results.tool_result import ToolResult

FRAME = pd.DataFrame({"a": [1, 2], "b": ["x", "y"]})
TWO = [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]
LIST_SCHEMA = {
    "type": "object",
    "properties": {"rows": {"type": "array", "items": {"$ref": "#/$defs/Row"}}, "count": {"type": "integer"}},
    "$defs": {"Row": {"type": "object", "properties": {"a": {"type": ["integer", "null"]}, "b": {"type": "string"}}}},
}


def answer(text: str = "", structured: Any = None, schema: Any = None) -> ToolResult:
    raw: dict[str, Any] = {"content": [{"type": "text", "text": text or json.dumps(structured)}]}
    if structured is not None:
        raw["structuredContent"] = structured
    output_schema = json.dumps(schema).encode() if schema else None
    return ToolResult(json.dumps(raw).encode(), server="s", tool="t", output_schema=output_schema)


@pytest.mark.parametrize(
    "data",
    [
        {"columns": ["a", "b"], "rows": [[1, "x"], [2, "y"]]},
        {"fields": [{"name": "a"}, {"name": "b"}], "values": [[1, "x"], [2, "y"]], "took": 3},
        {"headers": ["a", "b"], "body": [[1, "x"], [2, "y"]], "warnings": ["slow"]},
        {"schema": [{"name": "a"}, {"name": "b"}], "data": [[1, "x"], [2, "y"]]},
        {"success": True, "data": {"rows": TWO, "count": 2}},
        {"data": {"items": TWO, "links": {"next": "n"}}},
        {"response": {"records": TWO}},
        {"columns": [{"name": "a"}, {"name": "b"}], "rows": TWO},
        {"data": {"users": {"nodes": TWO, "pageInfo": {"hasNextPage": False}}}},
        {"data": {"users": {"edges": [{"node": row, "cursor": "c"} for row in TWO]}}},
        {"hourly_units": {"a": "m"}, "hourly": {"a": [1, 2], "b": ["x", "y"]}},
        {"items": TWO, "meta": {"links": [{"rel": "self"}]}},
        *(json.loads(FRAME.to_json(orient=orient)) for orient in ("split", "records", "index", "columns")),
        json.loads(FRAME.to_json(orient="table", index=False)),
    ],
)
def test_data_of_many_shapes_is_one_table(data: Any) -> None:
    frame = answer(structured=data).df if isinstance(data, dict) else answer(json.dumps(data)).df
    assert frame.to_dict("records") == TWO
    assert find_tables(json.loads(json.dumps(data).replace("2", "2"))).main is not None


def test_values_without_names_have_numbered_columns_and_an_index_with_labels_is_a_column() -> None:
    assert answer(FRAME.to_json(orient="values")).df.to_dict("list") == {"0": [1, 2], "1": ["x", "y"]}
    labelled = FRAME.set_index(pd.Index(["p", "q"])).to_json(orient="split")
    assert answer(labelled).df.columns.tolist() == ["index", "a", "b"]


@pytest.mark.parametrize(
    "rows",
    [
        {"prefixItems": [{"type": "array", "items": {"type": "string"}}], "items": {"type": "array"}},
        {"items": {"type": "array"}, "description": "Rows; the first row has the names of the columns."},
        {"items": {"type": "array"}, "description": "All cells, with a header row."},
    ],
)
def test_a_list_of_rows_has_names_if_its_schema_says_that_the_first_row_has_them(rows: Any) -> None:
    values = [["a", "b"], [1, "x"], [2, "y"]]
    schema = {"type": "object", "properties": {"rows": {"type": "array", **rows}}}
    assert answer(structured={"rows": values, "count": 2}, schema=schema).df.to_dict("records") == TWO
    wrapped = {"type": "object", "properties": {"result": {"type": "array", **rows}}}
    assert answer(structured={"result": values}, schema=wrapped).df.to_dict("records") == TWO
    plain = {"type": "object", "properties": {"result": {"type": "array", "items": {"type": "array"}}}}
    assert answer(structured={"result": values}, schema=plain).df.columns.tolist() == ["0", "1"]
    twice = [["a", "a"], [1, "x"]]
    assert answer(structured={"result": twice}, schema=wrapped).df.columns.tolist() == ["0", "1"]


@pytest.mark.parametrize(
    "text",
    [
        "| a | b |\n|---|---|\n| 1 | x |\n| 2 | y |\n",
        "Here are the rows:\n\na | b\n:-- | --:\n1 | x\n2 | y\n\nThat is all.",
        " a | b \n---+---\n 1 | x \n 2 | y \n(2 rows)\n",
        "+---+---+\n| a | b |\n+---+---+\n| 1 | x |\n| 2 | y |\n+---+---+\n2 rows in set (0.00 sec)\n",
        "┌───────┬─────────┐\n│   a   │    b    │\n│ int32 │ varchar │\n├───────┼─────────┤\n│     1 │ x       │\n"
        "│     2 │ y       │\n└───────┴─────────┘",
        "╭───┬───╮\n│ a ┆ b │\n".replace("┆", "│") + "╞═══╪═══╡\n│ 1 │ x │\n│ 2 │ y │\n╰───┴───╯",
        "1. row\na: 1\nb: x\n\n2. row\na: 2\nb: y\n\nResult: 2 rows returned",
        "*************************** 1. row ***************************\n  a: 1\n  b: x\n"
        "*************************** 2. row ***************************\n  a: 2\n  b: y\n",
        "-[ RECORD 1 ]\na | 1\nb | x\n-[ RECORD 2 ]\na | 2\nb | y\n",
        '```json\n[{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]\n```',
        "```csv\na,b\n1,x\n2,y\n```\n",
        'Found 2 results:\n[{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]',
        '[{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]\n2 rows',
        'Result: {"rows": [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]} (2 rows)',
        "[{'a': 1, 'b': 'x'}, {'a': 2, 'b': 'y'}]",
        '{"a": 1, "b": "x"}\n{"a": 2, "b": "y"}\n',
        "a,b\n1,x\n2,y\n",
        "a, b\n1, x\n2, y\n",
        "a\tb\n1\tx\n2\ty\n",
        "a;b\n1;x\n2;y\n",
    ],
)
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_text_of_many_forms_is_one_table(text: str, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if library == "polars":
        monkeypatch.setitem(sys.modules, "pandas", None)
    frame = answer(text).df
    assert (frame.to_dict("records") if library == "pandas" else frame.to_dicts()) == TWO


@pytest.mark.parametrize(
    "text",
    [
        "2024-01-01 10:00:00,123 INFO start\n2024-01-01 10:00:01,456 INFO stop",
        "10:00:00, started\n10:00:01, stopped",
        "Dear Ada, I hope you are well\nI am here, and so is Bob",
        "First, do this.\nThen, do that.",
        "one, line",
        "a, b\nand then some, more, text",
        '{"a": 1}\nplain',
        "a | b",
        "x\n---\ny",
        "| a | a |\n|---|---|\n| 1 | 2 |",
        "key: value\nother: value",
    ],
)
def test_prose_and_logs_are_no_table(text: str) -> None:
    with pytest.raises(McpError, match="the answer is not a table"):
        _ = answer(text).df


@pytest.mark.parametrize(
    ("data", "named"),
    [
        ({"a": [{"x": 1}], "b": [{"y": 1}]}, "it has tables at a, b"),
        ({"data": {"open": [{"x": 1}], "closed": [{"y": 1}]}}, "it has tables at data.open, data.closed"),
        ({"p": {"a": 1, "b": 2}, "q": {"a": 3, "b": 4}}, "its rows or its columns have labels"),
        ("| a |b|\n|---|-|\n| 1 |2|\n\n| c |d|\n|---|-|\n| 1 |2|\n", "it has tables at 1, 2"),
    ],
)
def test_what_is_ambiguous_names_the_paths_and_how_to_take_one(data: Any, named: str) -> None:
    result = answer(data) if isinstance(data, str) else answer(structured=data)
    with pytest.raises(McpError) as caught:
        _ = result.df
    assert caught.value.message.startswith(f"the answer is not one table: {named}")
    for each in result.tables:
        assert len(result.table(each.path).df) == 1


def test_text_around_a_table_is_shown_and_a_text_that_is_a_table_is_shown_as_one() -> None:
    around = answer("# Title\n\n| a |b|\n|---|-|\n| 1 |2|\n")
    assert (shown_table(around), is_shown_as_text(around), len(around.df)) == (None, True, 1)
    whole = answer("a,b\n1,x\n2,y\n")
    assert shown_table(whole) is whole.table()
    assert not is_shown_as_text(whole)


def test_tables_lists_each_with_its_path_and_an_unknown_one_is_an_error() -> None:
    result = answer(structured={"data": {"open": [{"x": 1}, {"x": 2}], "closed": [{"y": 1, "z": 2}]}})
    assert result.tables.df.values.tolist() == [["data.open", 2, "x"], ["data.closed", 1, "y, z"]]
    assert result.table("data.open").records == [{"x": 1}, {"x": 2}]
    assert "x" in repr(result.table("data.open"))
    with pytest.raises(UnknownName, match=r"there is no table 'data'") as caught:
        result.table("data")
    assert caught.value.hint == "there are: 'data.open', 'data.closed'"


@pytest.mark.parametrize(
    ("data", "schema", "columns"),
    [
        ({"rows": [], "count": 0}, LIST_SCHEMA, ["a", "b"]),
        ({"rows": [], "count": 0}, None, []),
        ({"columns": ["a", "b"], "rows": []}, None, ["a", "b"]),
        ({"result": []}, {"properties": {"result": {"items": {"properties": {"a": {}}}}}}, ["a"]),
        ({"success": True, "data": {"rows": [], "count": 0}}, None, []),
    ],
)
def test_an_answer_without_rows_has_a_frame_with_the_columns_of_the_schema(
    data: Any, schema: Any, columns: list[str]
) -> None:
    frame = answer(structured=data, schema=schema).df
    assert (frame.columns.tolist(), len(frame)) == (columns, 0)


def test_empty_and_other_answers_can_be_put_together() -> None:
    empty = answer(structured={"rows": [], "count": 0}, schema=LIST_SCHEMA).df
    full = answer(structured={"rows": TWO, "count": 2}, schema=LIST_SCHEMA).df
    both = pd.concat([empty, full, empty])
    assert both.to_dict("records") == TWO
    assert both["a"].dtype == full["a"].dtype


def test_a_list_of_warnings_is_not_an_empty_table() -> None:
    with pytest.raises(McpError, match="not a table"):
        _ = answer(structured={"ok": True, "warnings": []}).df


@pytest.mark.parametrize("key", ["content", "result", "text"])
def test_structured_content_that_only_repeats_the_text_is_left_out(key: str) -> None:
    csv = "a,b\n1,x\n2,y\n"
    assert answer(csv, {key: csv}).data == csv
    assert answer(csv, {key: csv}).df.to_dict("records") == TWO
    listed = json.dumps(TWO)
    assert answer(listed, {key: listed}).data == TWO
    assert answer("one", {key: "another"}).data == {key: "another"}


def test_a_result_beside_the_text_that_it_is_is_left_out() -> None:
    assert answer(json.dumps(TWO), {"result": TWO}).data == TWO
    assert answer(json.dumps(TWO), {"items": TWO}).data == {"items": TWO}


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_ids_keep_their_zeros(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if library == "polars":
        monkeypatch.setitem(sys.modules, "pandas", None)
    for text in ("zip,n\n02139,1\n10001,2\n", "| zip | n |\n|---|---|\n| 02139 | 1 |\n| 10001 | 2 |\n"):
        frame = answer(text).df
        assert list(frame["zip"]) == ["02139", "10001"]
        assert list(frame["n"]) == [1, 2]


def test_a_table_is_recognised_in_linear_time() -> None:
    hostile = [
        "|" * 200_000,
        "-" * 200_000,
        ("|-" * 100 + "\n") * 500,
        "[" * 200_000,
        "[\n" * 100_000,
        "```\n" * 50_000,
    ]
    hostile += ["1. row\n" * 30_000, "a: " * 70_000, " " * 200_000 + "x", ("a," * 50 + "\n") * 2_000, "+-" * 100_000]
    for text in hostile:
        began = time.process_time()
        find_tables(text)
        assert time.process_time() - began < 2, text[:20]
