"""A tool's answer as a value."""

import copy
import gc
import json
import math
import pickle
import subprocess
import sys
import tracemalloc
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import polars as pl
import pytest

from ipymcp.errors import CallError
from ipymcp.protocol import types
from ipymcp.results.tool_result import ToolResult

WRAPPED = b'{"type":"object","properties":{"result":{"type":"integer"}},"required":["result"]}'


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def answer(*content: Any, schema: Any = None, **fields: Any) -> ToolResult:
    raw = json.dumps({"content": list(content), **fields}).encode()
    return ToolResult(raw, server="fs", tool="read", output_schema=json.dumps(schema).encode() if schema else None)


def structured(value: Any, *, schema: Any = None) -> ToolResult:
    return answer(structuredContent=value, schema=schema)


def test_text_joins_all_parts_and_names_those_that_are_not_text() -> None:
    result = answer(
        text("first"),
        {"type": "image", "mimeType": "image/png", "data": "A" * 16460},
        {"type": "audio", "mimeType": "audio/wav", "data": "AAAA"},
        {"type": "resource_link", "uri": "file:///a.txt", "name": "a"},
        {"type": "resource", "resource": {"uri": "file:///b", "text": "inside"}},
        {"type": "resource", "resource": {"uri": "file:///c", "mimeType": "application/zip", "blob": "AAAA"}},
        {"type": "hologram", "depth": 3},
        text("last"),
    )
    assert str(result) == result.text
    assert result.text == (
        "first\n[image: image/png, 12,345 bytes]\n[audio: audio/wav, 3 bytes]\n[resource: file:///a.txt]\ninside\n"
        "[blob: application/zip, 3 bytes]\n[hologram]\nlast"
    )


def test_text_is_the_structured_content_where_there_is_no_other() -> None:
    assert structured({"a": 1}).text == '{"a": 1}'
    assert answer().text == ""


@pytest.mark.parametrize(
    ("parts", "data"),
    [
        (['{"a": 1}'], {"a": 1}),
        ([" [1, 2]\n"], [1, 2]),
        (['{"a": 1}', '{"a": 2}'], [{"a": 1}, {"a": 2}]),
        (['{"a": 1}', "and text"], '{"a": 1}\nand text'),
        ([], ""),
        *(([same], same) for same in ("42", "true", '"quoted"', "[INFO] done", "{broken", "plain")),
    ],
)
def test_data_is_the_text_parsed_only_where_it_is_an_object_or_an_array(parts: list[str], data: object) -> None:
    assert answer(*map(text, parts)).data == data


def test_data_reads_embedded_json_and_looks_past_images() -> None:
    assert answer({"type": "resource", "resource": {"uri": "x:y", "text": "[1]"}}).data == [1]
    assert answer(text('{"a": 1}'), {"type": "image", "mimeType": "image/png", "data": ""}).data == {"a": 1}


def test_structured_content_comes_before_text() -> None:
    assert answer(text("{}"), structuredContent={"a": 1}).data == {"a": 1}
    assert answer(text("x"), structuredContent=None).data == "x"
    assert structured([1, 2]).data == [1, 2]
    assert structured(5).data == 5


def test_a_lone_result_is_unwrapped_only_where_the_schema_wraps_it() -> None:
    wraps = json.loads(WRAPPED)
    assert structured({"result": 5}, schema=wraps).data == 5
    assert structured({"result": 5}, schema={"type": "object", "x-fastmcp-wrap-result": True}).data == 5
    assert structured({"result": 5}).data == {"result": 5}
    assert structured({"result": 5, "more": 1}, schema=wraps).data == {"result": 5, "more": 1}
    two = {"type": "object", "properties": {"result": {}, "other": {}}}
    assert structured({"result": 5}, schema=two).data == {"result": 5}


def test_nan_and_lone_surrogates_do_not_cost_the_answer() -> None:
    result = ToolResult(
        b'{"content":[{"type":"text","text":"\\ud800x"}],"structuredContent":{"a":NaN}}', server="fs", tool="read"
    )
    assert result.text == "\ufffdx"
    assert math.isnan(result.data["a"])
    assert not result.is_error


def test_the_answer_can_be_a_view_of_the_line_it_came_in() -> None:
    envelope = types.read_envelope(
        b'{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"hi"}],"_meta":{"k":1}}}'
    )
    assert isinstance(envelope, types.Envelope)
    result = ToolResult(envelope.result, server="fs", tool="read")
    assert (result.text, result.meta, result.raw["_meta"]) == ("hi", {"k": 1}, {"k": 1})
    assert pickle.loads(pickle.dumps(result)) == result


def test_a_result_acts_as_the_list_or_dict_it_holds() -> None:
    rows = structured([{"a": 1}, {"a": 2}])
    assert (rows[0], len(rows), list(rows), {"a": 2} in rows) == ({"a": 1}, 2, [{"a": 1}, {"a": 2}], True)
    record = structured({"a": 1})
    assert (record["a"], len(record), list(record), "a" in record, "b" in record) == (1, 1, ["a"], True, False)


def test_a_result_that_is_not_a_list_of_rows_says_how_to_use_it() -> None:
    for use in (len, list, lambda result: result[0], lambda result: 1 in result):
        with pytest.raises(TypeError) as caught:
            use(answer(text("hi")))
        assert str(caught.value) == "fs.read answered with text, not a list or dict: use .text or .data"
    with pytest.raises(TypeError) as caught:
        pd.DataFrame(structured({"a": [1, 2]}))
    assert str(caught.value) == "fs.read answered with a dict, not rows: use .df, or pd.DataFrame(r.data)"
    assert structured({"a": [1, 2]}).df["a"].tolist() == [1, 2]


def test_a_result_is_always_true() -> None:
    assert all([answer(), structured([]), answer(text("")), answer(isError=True)])


def test_equality_compares_what_was_answered_and_nothing_else() -> None:
    assert answer(text("a"), _meta={"time": 1}) == answer(text("a"), _meta={"time": 2})
    assert answer(text("a")) == ToolResult(b'{"content" : [{"text":"a","type":"text"}]}', server="fs", tool="read")
    assert answer(text("a")) != answer(text("b"))
    assert answer(text("a")) != answer(text("a"), isError=True)
    assert answer(text("a")) != answer(text("a"), structuredContent={})
    assert answer(text("a")) != ToolResult(answer(text("a"))._raw, server="other", tool="read")
    assert answer(text("a")) != "a"
    nan = ToolResult(b'{"structuredContent":[NaN]}', server="fs", tool="read")
    assert nan == copy.copy(nan)


@pytest.mark.parametrize("member", ["content", "structuredContent"])
def test_the_hash_follows_what_was_answered_however_the_data_is_changed(member: str) -> None:
    compact, spaced = b'[{"text":"[1]","type":"text"}]', b'[ {"type": "text", "text": "[1]"} ]'
    results = [ToolResult(b'{"%s":%s}' % (member.encode(), raw), server="s", tool="t") for raw in (compact, spaced)]
    results[0].data.append(5)
    assert len({*results, answer(text("b"))}) == 2


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda result: pickle.loads(pickle.dumps(result))])
def test_copies_and_pickles_are_equal_and_independent(duplicate: Any) -> None:
    result = structured({"result": [1]}, schema={"type": "object", "properties": {"result": {"type": "array"}}})
    again = duplicate(result)
    again.data.append(2)
    assert (again == result, again.server, again.tool, result.data, again.data) == (True, "fs", "read", [1], [1, 2])


def test_pandas_and_polars_take_records() -> None:
    rows = structured([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}])
    assert pd.DataFrame(rows).to_dict("list") == {"a": [1, 2], "b": ["x", "y"]}
    assert pl.DataFrame(rows.data).to_dict(as_series=False) == {"a": [1, 2], "b": ["x", "y"]}
    assert np.asarray(structured([1, 2])).tolist() == [1, 2]


def test_images_and_links_are_found_among_the_parts() -> None:
    result = answer(
        {"type": "image", "mimeType": "image/png", "data": "AAAA"},
        {"type": "resource", "resource": {"uri": "x:1", "mimeType": "image/gif", "blob": "BBBB"}},
        {"type": "resource_link", "uri": "x:2", "name": "two"},
    )
    assert [image.mime_type for image in result.images] == ["image/png", "image/gif"]
    assert [(link.uri, link.name) for link in result.links] == [("x:2", "two")]


NO_MATCH = "the structured content does not match the output schema: at"


@pytest.mark.parametrize(
    ("result", "warnings"),
    [
        (structured({"result": 5}, schema=json.loads(WRAPPED)), ()),
        (answer(text("x")), ()),
        (answer(text("x"), isError=True, schema={"type": "object"}), ()),
        (structured({"result": "5"}, schema=json.loads(WRAPPED)),
         (f'{NO_MATCH} result: "5" is not of type "integer"',)),
        (structured([1, 2, 3], schema={"items": {"type": "string"}}),
         (f'{NO_MATCH} 0: 1 is not of type "string" (and 2 more)',)),
        (answer(text("x"), schema={"type": "object"}),
         ("the tool declares an output schema but sent no structured content",)),
    ],
)  # fmt: skip
def test_content_that_does_not_fit_the_output_schema_is_a_warning(
    result: ToolResult, warnings: tuple[str, ...]
) -> None:
    assert result.warnings == warnings
    assert result.data is not None


def test_no_reference_in_a_schema_is_ever_fetched() -> None:
    (warning,) = structured({}, schema={"$ref": "http://127.0.0.1:9/schema.json"}).warnings
    assert warning.startswith("its output schema cannot be used: ")
    assert "ipymcp fetches no schemas, and this one refers to http://127.0.0.1:9/schema.json" in warning


def test_a_broken_schema_costs_nothing_but_a_warning() -> None:
    result = ToolResult(b'{"structuredContent":{"a":1}}', server="fs", tool="read", output_schema=b'{"type":"nope"}')
    assert result.data == {"a": 1}
    assert result.warnings[0].startswith("its output schema cannot be used: ")
    huge = structured({"a": "x" * 10_000}, schema={"properties": {"a": {"type": "integer"}}})
    assert len(huge.warnings[0]) <= 300


@pytest.mark.parametrize("raw", [b"null", b"[]", b'{"isError":"maybe"}', b"{"])
def test_an_answer_that_is_not_a_result_is_an_error_of_the_server(raw: bytes) -> None:
    with pytest.raises(CallError, match=r"^fs\.read: its answer is not a tool result: "):
        _ = ToolResult(raw, server="fs", tool="read").is_error


def test_content_that_is_not_a_list_of_parts_is_still_readable() -> None:
    assert ToolResult(b'{"content":{"type":"text","text":"a"}}', server="s", tool="t").text == "a"
    assert ToolResult(b'{"content":null}', server="s", tool="t").content == []
    assert ToolResult(b'{"content":["a",{}],"_meta":3}', server="s", tool="t").text == "a\n[unknown]"
    assert ToolResult(b'{"_meta":3}', server="s", tool="t").meta == {}


def test_nothing_is_decoded_before_it_is_read_and_text_costs_one_copy() -> None:
    content = b'{"content":[{"type":"text","text":"' + b"x" * 20_000_000 + b'"}],'
    raw = content + b'"structuredContent":[' + b"1," * 500_000 + b"1]}"
    gc.collect()
    tracemalloc.start()
    try:
        result = ToolResult(msgspec.Raw(raw), server="fs", tool="read")
        assert not result.is_error
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
        assert len(result.text) == 20_000_000
        assert tracemalloc.get_traced_memory()[1] < 42_000_000
        assert tracemalloc.get_traced_memory()[0] < 21_000_000
    finally:
        tracemalloc.stop()


def test_reading_an_answer_imports_nothing_heavy() -> None:
    code = (
        "import sys; from ipymcp.results.tool_result import ToolResult\n"
        "r = ToolResult(b'{\"content\":[]}', server='s', tool='t');"
        "r.data, r.text, repr(r);"
        "print([n for n in ('pandas','numpy','polars','jsonschema_rs','IPython','asyncio') if n in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
