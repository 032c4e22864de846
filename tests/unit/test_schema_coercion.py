"""Python values on their way to JSON and to the schema."""

import base64
import datetime
import enum
import math
import uuid
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipymcp.errors import ArgumentError
from ipymcp.results.tool_result import ToolResult
from ipymcp.schema.tool_schema import ToolSchema

INTEGER = {"type": "integer"}
NUMBER = {"type": "number"}
STRING = {"type": "string"}
BOOLEAN = {"type": "boolean"}
ANY: dict[str, Any] = {}
INTEGERS = {"type": "array", "items": INTEGER}
STRINGS = {"type": "array", "items": STRING}


class Mode(enum.Enum):
    FAST = "fast"


class Level(enum.IntEnum):
    LOW = 1


@dataclass
class Point:
    x: float
    label: str | None = None


class Model:
    """An object with the public methods of a pydantic model."""

    def model_dump(self, *, by_alias: bool) -> dict[str, Any]:
        return {"from" if by_alias else "from_": Path("a")}


def tool(schema: Any, *required: str) -> ToolSchema:
    return ToolSchema({"properties": {"x": schema}, "required": required}, server="s", tool="t")


def sent(schema: Any, value: Any) -> Any:
    """The value that is sent for an argument of this schema."""
    return tool(schema).bind((), {"x": value})["x"]


def same(value: Any, expected: Any) -> bool:
    """Whether the values are equal and of one type."""
    return type(value) is type(expected) and value == expected


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        (INTEGER, "5", 5),
        (INTEGER, 5.0, 5),
        (INTEGER, "5.0", 5),
        ({"anyOf": [INTEGER, {"type": "null"}]}, "5", 5),
        ({"anyOf": [INTEGER, {"type": "null"}]}, "null", None),
        (NUMBER, "1.5", 1.5),
        (NUMBER, 5, 5),
        (NUMBER, 5.0, 5.0),
        (BOOLEAN, "true", True),
        (BOOLEAN, "False", False),
        ({"anyOf": [INTEGER, STRING]}, "5", "5"),
        ({"type": ["integer", "string"]}, "5", "5"),
        ({"enum": [1, 2]}, "2", 2),
        ({"enum": [1, 2]}, 2.0, 2),
        ({"enum": ["1", "2"]}, "2", "2"),
        (INTEGERS, ["1", 2.0], [1, 2]),
        (INTEGERS, "[1, 2]", [1, 2]),
        ({"type": "array", "prefixItems": [INTEGER], "items": STRING}, ["1", "2"], [1, "2"]),
        ({"anyOf": [INTEGERS, STRINGS]}, ["1"], ["1"]),
        ({"anyOf": [INTEGERS, {"type": "object"}]}, ["1"], [1]),
        ({"type": "object"}, '{"a": "1"}', {"a": "1"}),
        ({"type": "object", "properties": {"a": INTEGER}}, '{"a": "1"}', {"a": 1}),
        ({"type": "object", "additionalProperties": INTEGER}, {"a": "1"}, {"a": 1}),
        ({"properties": {"a": INTEGER, "b": {"type": ["string", "null"]}}}, {"a": None, "b": None}, {"b": None}),
    ],
)
def test_values_are_converted_to_the_schemas_types(schema: Any, value: Any, expected: Any) -> None:
    assert same(sent(schema, value), expected)


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        (INTEGER, np.int64(5), 5),
        (INTEGER, np.float64(5), 5),
        (BOOLEAN, np.bool_(True), True),
        (STRING, np.str_("a"), "a"),
        (ANY, np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (ANY, np.array(5), 5),
        (ANY, np.datetime64("2026-01-02T03:04:05.000000006"), "2026-01-02T03:04:05.000000006"),
        (ANY, np.array(["2026-01-02"], dtype="datetime64[D]"), ["2026-01-02"]),
        (ANY, pd.Series([1, 2]), [1, 2]),
        (ANY, pd.Index(["a"]), ["a"]),
        (STRING, pd.Timestamp("2026-01-02"), "2026-01-02T00:00:00"),
        (ANY, pd.Series(pd.to_datetime(["2026-01-02"])), ["2026-01-02T00:00:00"]),
        (ANY, pl.Series([1, 2]), [1, 2]),
        (STRING, datetime.date(2026, 1, 2), "2026-01-02"),
        (STRING, datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC), "2026-01-02T00:00:00+00:00"),
        (STRING, Path("a/b"), str(Path("a/b"))),
        (STRING, uuid.UUID(int=0), "00000000-0000-0000-0000-000000000000"),
        (STRING, Mode.FAST, "fast"),
        (INTEGER, Level.LOW, 1),
        (NUMBER, Decimal("1.5"), 1.5),
        (INTEGER, Decimal("2"), 2),
        (ANY, (1, (2,)), [1, [2]]),
        (ANY, range(2), [0, 1]),
        (ANY, {"a": 1}.keys(), ["a"]),
        (ANY, namedtuple("Pair", "a b")(1, 2), [1, 2]),
        (ANY, OrderedDict(a=1), {"a": 1}),
        (ANY, {Mode.FAST: 1}, {"fast": 1}),
        ({"properties": {"x": NUMBER, "label": STRING}}, Point(1.5), {"x": 1.5}),
        (ANY, Point(1.5), {"x": 1.5, "label": None}),
        (ANY, Model(), {"from": "a"}),
        (ANY, 2**70, 2**70),
    ],
)
def test_values_of_a_notebook_become_json(schema: Any, value: Any, expected: Any) -> None:
    converted = sent(schema, value)
    assert same(converted, expected)
    assert msgspec.json.decode(msgspec.json.encode(converted)) == converted


NUMBER_OR_NONE = "leave it out, or give a number or None"
AS_TEXT = "give it as text, such as hex(…)"
JSON_TYPES = "give text, numbers, booleans, None, lists or dicts of them"


@pytest.mark.parametrize(
    ("value", "message", "hint"),
    [
        (math.nan, "x: is nan, which JSON cannot represent", NUMBER_OR_NONE),
        ([1, -math.inf], "x[1]: is -inf, which JSON cannot represent", NUMBER_OR_NONE),
        (Decimal("NaN"), "x: is nan, which JSON cannot represent", NUMBER_OR_NONE),
        pytest.param(10**4300, "x: has more than 4,300 digits", AS_TEXT, id="long"),
        ([1, -(10**4300)], "x[1]: has more than 4,300 digits", AS_TEXT),
        (Decimal("1e999999"), "x: has more than 4,300 digits", AS_TEXT),
        (b"a", "x: is of type bytes, which JSON lacks", "give text: .decode(), or base64.b64encode(…).decode()"),
        ({1, 2}, "x: is of type set, which JSON lacks", "give a list, such as sorted(…)"),
        ({"a": [1j]}, "x.a[0]: is of type complex, which JSON lacks", JSON_TYPES),
        ({"a": {2: 1}}, "x.a: has the key 2; JSON's keys are text", "make it text: str(key)"),
        ("a\ud800", "x: holds half a character (a lone surrogate, '\\ud800'), which cannot be sent",
         "fix it: text.encode('utf-8', 'replace').decode()"),
        (pd.NaT, "x: is NaT, a missing value", "give None, or leave it out"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "x: has several columns of the same name", "rename them"),
        (pl.LazyFrame({"a": [1]}), "x: is of type LazyFrame, which JSON lacks",
         "give its rows: .collect().to_dicts()"),
        (datetime.timedelta(1), "x: is of type timedelta, which JSON lacks", "give seconds: .total_seconds()"),
        (np.timedelta64(1, "ns"), "x: is of type timedelta64, which JSON lacks", JSON_TYPES),
    ],
)  # fmt: skip
def test_a_value_that_json_cannot_represent_is_refused_with_its_place(value: Any, message: str, hint: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        sent(ANY, value)
    assert (caught.value.message, caught.value.hint, caught.value.argument) == (message, hint, "x")


def result(text: str = "", structured: object = None, **part: Any) -> ToolResult:
    """The result of a tool, with a text, or another part and structured content."""
    content = [part or {"type": "text", "text": text}]
    return ToolResult(msgspec.json.encode({"content": content, "structuredContent": structured}), server="s", tool="t")


RECORD = {"type": "object", "properties": {"a": INTEGER, "b": STRING}, "required": ["a"]}
RECORDS = {"type": "array", "items": RECORD}
PNG = base64.b64encode(b"\x89PNG").decode()
ENCODED = [{**STRING, "contentEncoding": "base64"}, {**STRING, "format": "byte"}]


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        (STRING, result("hi"), "hi"),
        (STRING, result('{"a": 1}'), '{"a": 1}'),
        (STRING, result("two", {"result": 2}), "two"),
        ({"type": "object"}, result('{"a": 1}'), {"a": 1}),
        (ANY, result('{"a": 1}'), {"a": 1}),
        ({"anyOf": [STRING, INTEGERS]}, result("[1]"), [1]),
        (INTEGERS, result("[1, 2]"), [1, 2]),
        (INTEGER, result("5"), 5),
        (RECORDS, result('[{"a": 1}]'), [{"a": 1}]),
        (RECORDS, result('{"n": 1, "rows": [{"a": 1}]}').table(), [{"a": 1}]),
        (STRINGS, [result("a"), result('{"b": 1}')], ["a", '{"b": 1}']),
        ({"type": "object", "additionalProperties": STRING}, {"k": result("[1]")}, {"k": "[1]"}),
        (RECORDS, {"a": 1}, [{"a": 1}]),
        ({"anyOf": [RECORDS, {"type": "null"}]}, {"a": "1"}, [{"a": 1}]),
        (RECORDS, pd.DataFrame({"a": [1, 2], "b": ["x", None]}), [{"a": 1, "b": "x"}, {"a": 2}]),
        (RECORDS, pl.DataFrame({"a": [1]}), [{"a": 1}]),
        (RECORDS, pa.table({"a": [1]}), [{"a": 1}]),
        ({"type": "object", "properties": {"rows": RECORDS}}, {"rows": pd.DataFrame({"a": [1]})}, {"rows": [{"a": 1}]}),
        (ANY, pd.DataFrame({"a": [1, np.nan]}), [{"a": 1.0}, {"a": None}]),
        *((schema, b"\x89PNG", PNG) for schema in ENCODED),
        ({**STRING, "format": "base64url"}, b"\xff\xfe", "__4="),
        ({"type": "array", "items": ENCODED[0]}, [bytearray(b"\x89PNG")], [PNG]),
        (ENCODED[0], result(type="image", data=PNG, mimeType="image/png"), PNG),
        (ENCODED[0], result(type="image", data=PNG, mimeType="image/png").images[0], PNG),
    ],
)  # fmt: skip
def test_results_tables_and_bytes_become_what_the_schema_wants(schema: Any, value: Any, expected: Any) -> None:
    assert same(sent(schema, value), expected)


def test_an_image_is_never_sent_as_the_words_that_stand_for_it() -> None:
    with pytest.raises(ArgumentError) as caught:
        sent(STRING, result(type="image", data=PNG, mimeType="image/png"))
    assert caught.value.message == "x: is a result with an image, not only text"
    assert caught.value.hint == "give its .text, or .images[0].base64"


def test_bytes_are_refused_where_the_schema_does_not_say_how_they_are_written() -> None:
    with pytest.raises(ArgumentError) as caught:
        sent({**STRING, "format": "binary"}, b"hi")
    assert caught.value.hint == "give text: .decode(), or base64.b64encode(…).decode()"


def test_a_value_that_contains_itself_is_refused() -> None:
    ring: list[Any] = []
    ring.append(ring)
    with pytest.raises(ArgumentError, match="is nested more than 100 levels deep"):
        sent(ANY, ring)


@pytest.mark.parametrize(
    ("schema", "value"),
    [(INTEGER, True), (INTEGER, 5.5), (BOOLEAN, 1), (STRING, 5), (INTEGER, "abc"), (NUMBER, "NaN"), (STRING, None)],
)
def test_a_value_that_is_not_near_the_type_is_refused(schema: Any, value: Any) -> None:
    with pytest.raises(ArgumentError):
        tool(schema, "x").bind((value,), {})


@pytest.mark.parametrize(
    ("schema", "text", "expected"),
    [
        (STRING, "1.10", "1.10"),
        (STRING, "02139", "02139"),
        (STRING, "true", "true"),
        (STRING, "[1]", "[1]"),
        ({"type": ["string", "integer"]}, "5", "5"),
        ({"type": ["string", "null"]}, "null", "null"),
        ({"anyOf": [{"type": "null"}, STRING]}, "null", "null"),
        ({"anyOf": [{"const": "auto"}, INTEGER]}, "5", 5),
        ({"anyOf": [{"const": "auto"}, INTEGER]}, "auto", "auto"),
        ({"anyOf": [STRING, STRINGS]}, '["a"]', ["a"]),
        ({"anyOf": [STRING, INTEGERS]}, '["a"]', '["a"]'),
        ({"anyOf": [STRING, {"type": "object"}]}, '{"a": 1}', {"a": 1}),
        (INTEGER, "5", 5),
        (INTEGER, '"5"', 5),
        (INTEGER, "five", "five"),
        (NUMBER, "1e3", 1000.0),
        (BOOLEAN, "True", True),
        ({"enum": [1, 2]}, "2", 2),
        ({"enum": ["1", "2"]}, "2", "2"),
        (STRINGS, '["a", "b"]', ["a", "b"]),
        (STRINGS, "a", ["a"]),
        (STRINGS, "5", ["5"]),
        (STRINGS, "a,b", "a,b"),
        (INTEGERS, "5", [5]),
        (INTEGERS, "x", "x"),
        ({"type": "array", "items": {"type": "object"}}, '{"a": 1}', [{"a": 1}]),
        ({"type": ["array", "null"], "items": STRING}, "a", ["a"]),
        ({"type": "object"}, '{"a": 1}', {"a": 1}),
        (ANY, "1.10", 1.1),
        (ANY, "plain words", "plain words"),
        (ANY, "NaN", "NaN"),
    ],
)
def test_text_on_a_line_is_read_by_the_schema(schema: Any, text: str, expected: Any) -> None:
    assert same(ToolSchema({"properties": {"x-y": schema}}, server="s", tool="t").read_text("x_y", text), expected)


def test_text_for_an_undeclared_argument_is_json_or_text() -> None:
    assert [ToolSchema({}, server="s", tool="t").read_text("x", text) for text in ("5", "a b")] == [5, "a b"]


@given(st.text())
def test_text_for_a_string_is_always_verbatim(text: str) -> None:
    assert tool(STRING).read_text("x", text) == text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
SCHEMAS = st.recursive(
    st.sampled_from([{"type": kind} for kind in ("string", "integer", "number", "boolean", "null", "array", "object")])
    | st.lists(JSON, min_size=1, max_size=3).map(lambda values: {"enum": values}),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3).map(lambda forms: {"anyOf": forms})
        | inner.map(lambda items: {"type": "array", "items": items})
        | st.dictionaries(st.text(max_size=3), inner, max_size=3).map(lambda parts: {"properties": parts})
    ),
    max_leaves=6,
)


@given(JSON)
def test_json_values_pass_unchanged_where_anything_goes(value: Any) -> None:
    assert sent(ANY, value) == value


@given(SCHEMAS, JSON)
def test_bound_arguments_fit_the_schema_and_binding_them_again_changes_nothing(schema: Any, value: Any) -> None:
    try:
        first = tool(schema, "x").bind((value,), {})
    except ArgumentError:
        return
    assert tool(schema, "x").bind((), first) == first
    assert msgspec.json.decode(msgspec.json.encode(first)) == first


RECORDS = st.fixed_dictionaries(
    {"type": st.sampled_from(["object", ["object"]]), "properties": st.dictionaries(st.sampled_from("xyz"), SCHEMAS)},
    optional={
        "required": st.lists(st.sampled_from("xyz"), unique=True, max_size=2),
        "additionalProperties": st.booleans() | SCHEMAS,
        "minProperties": st.integers(0, 2),
        "title": st.just("A title"),
    },
)


@given(RECORDS, st.dictionaries(st.sampled_from("xyz"), JSON))
def test_the_validator_accepts_what_is_sent_without_asking_it(schema: Any, given: Any) -> None:
    try:
        arguments = ToolSchema(schema, server="s", tool="t").bind((), given)
    except ArgumentError:
        return
    assert jsonschema_rs.validator_for(schema).is_valid(arguments)
