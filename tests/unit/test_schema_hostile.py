"""Schemas that are broken, enormous or made to hurt: the tool stays callable and nothing takes long."""

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipymcp.api.stubs import stub
from ipymcp.errors import ArgumentError
from ipymcp.schema.annotations import docstring
from ipymcp.schema.tool_schema import ToolSchema


def nested(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = {"a": value}
    return value


def chained(keyword: str, times: int, length: int) -> dict[str, Any]:
    links = {f"d{at}": {keyword: [{"$ref": f"#/$defs/d{at + 1}"}] * times} for at in range(length)}
    return {"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": {**links, f"d{length}": {"type": "integer"}}}


def deep_schema(levels: int) -> Any:
    schema: Any = {"type": "integer"}
    for _ in range(levels):
        schema = {"properties": {"a": schema}}
    return schema


def tool(schema: Any) -> ToolSchema:
    return ToolSchema(schema, server="s", tool="t")


BROKEN: dict[str, Any] = {
    "true": True,
    "false": False,
    "a list": [1],
    "no JSON": b"\xff{",
    "nothing": b"",
    "bottomless JSON": b'{"a":' * 100_000,
    "properties is a list": {"properties": [1]},
    "members are no schemas": {"properties": {"a": 5, "b": None}},
    "required is text": {"required": "a", "properties": {"a": {}}},
    "an unknown type": {"properties": {"a": {"type": "text"}}},
    "an unknown dialect": {"$schema": "http://example.org/own", "properties": {"a": {"type": "integer"}}},
    "a reference to nothing": {"properties": {"a": {"$ref": "#/$defs/none"}}},
    "a reference to no schema": {"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": 5}},
    "itself": {"properties": {"a": {"$ref": "#/properties/a"}}},
    "all of itself": {"allOf": [{"$ref": "#"}]},
    "a circle": {
        "properties": {"a": {"$ref": "#/$defs/a"}},
        "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}},
    },
    "a pattern that is none": {"properties": {"a": {"pattern": "("}}},
    "a thousand laughs": chained("anyOf", 2, 40),
    "ten to the forty laughs": chained("allOf", 10, 40),
    "a chain of references": chained("allOf", 1, 3_000),
    "a deep schema": deep_schema(900),
    "data that look like references": {"properties": {"a": {"const": {"$ref": "#/none"}}, "b": {}}, "anyOf": 5},
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_schema_leaves_its_tool_callable_documented_and_quick(name: str) -> None:
    started = time.process_time()
    schema = tool(BROKEN[name])
    value = {"$ref": "#/none"} if "data" in name else "x"
    assert schema.check({"a": value}) == {"a": value}
    assert schema.read_text("a", "x") == "x"
    assert "-> ToolResult" in str(schema.signature)
    docstring(None, None, schema.parameters, None, None, server="s", tool="t")
    compile(stub({"s": [("t", "", schema)]}), "stub", "exec")
    assert time.process_time() - started < 5


def test_a_broken_schema_of_one_argument_leaves_the_others_checked() -> None:
    schema = tool({
        "properties": {"a": {"pattern": "("}, "b": {"type": "integer"}, "c": {"$ref": "#/$defs/C"}},
        "required": ["b"],
        "$defs": {"C": {"type": "integer"}, "D": {"type": "nonsense"}},
    })  # fmt: skip
    assert schema.bind((1,), {"a": "(", "c": 1}) == {"a": "(", "b": 1, "c": 1}
    for wrong in ({"b": "x"}, {"b": 1, "c": "x"}):
        with pytest.raises(ArgumentError, match="expected integer, got 'x'"):
            schema.check(wrong)


def test_draft_4s_exclusive_minimum_is_checked() -> None:
    schema = {"properties": {"a": {"type": "integer", "minimum": 3, "exclusiveMinimum": True}}}
    with pytest.raises(ArgumentError, match="a: must be more than 3, got 3"):
        tool(schema).bind((), {"a": 3})


def test_alternatives_that_contain_themselves_do_not_multiply_with_the_value() -> None:
    loop = {"type": "object", "properties": {"a": {"$ref": "#/properties/a"}}}
    schema = tool({"properties": {"a": {"anyOf": [loop] * 30}}})
    started = time.process_time()
    assert schema.bind((), {"a": nested(20)}) == {"a": nested(20)}
    assert time.process_time() - started < 5


def test_a_tree_is_checked_at_ordinary_depths() -> None:
    children = {"type": "array", "items": {"$ref": "#/$defs/Tree"}}
    tree = {"properties": {"name": {"type": "string"}, "children": children}}
    schema = tool({"properties": {"a": {"$ref": "#/$defs/Tree"}}, "$defs": {"Tree": tree}})
    good = {"a": {"name": "x", "children": [{"children": [{"name": "y"}]}]}}
    assert schema.bind((), good) == good
    with pytest.raises(ArgumentError, match=r"a\.children\[0\]\.name: expected string, got 5"):
        schema.bind((), {"a": {"children": [{"name": 5}]}})


def test_a_pattern_that_backtracks_forever_is_left_to_the_server() -> None:
    schema = {"properties": {"a": {"pattern": "((a+)+)+(?!a)b"}, "b": {"type": "integer"}}}
    assert tool(schema).bind((), {"a": "a" * 60}) == {"a": "a" * 60}


KEYWORDS = st.sampled_from(
    ["type", "properties", "required", "items", "anyOf", "allOf", "oneOf", "enum", "const", "$ref", "$defs", "default",
     "additionalProperties", "description", "prefixItems", "not", "$schema", "$id", "pattern", "a", "b"]
)  # fmt: skip
WORDS = st.sampled_from(
    ["string", "object", "array", "#", "#/$defs/a", "#/properties/a", "a", "http://127.0.0.1:9/x", ""]
)
NOISE = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYWORDS, inner, max_size=4),
    max_leaves=20,
)


@given(NOISE, NOISE)
def test_no_schema_raises_anything_but_argument_errors(source: Any, value: Any) -> None:
    schema = tool(source)
    compile(stub({"s": [("t", "", schema)]}), "stub", "exec")
    docstring("t", "", schema.parameters, source if isinstance(source, dict) else None, None, server="s", tool="t")
    schema.read_text("a", str(value))
    try:
        schema.check({"a": value})
    except ArgumentError as error:
        assert "\n" not in error.message
        assert len(error.message) < 400


@pytest.mark.parametrize("place", ["default", "examples", "x-list"])
def test_branches_in_parts_that_are_not_keywords_are_counted(place: str) -> None:
    length, at = 20, f"#/{place}/0/0"
    chain: dict[str, Any] = {f"d{n}": {"anyOf": [{"$ref": f"{at}/d{n + 1}"}] * 2} for n in range(length)}
    chain[f"d{length}"] = {"type": "integer"}
    chain["top"] = {"type": "object", "properties": {"y": {"$ref": f"{at}/d0"}}}
    schema = tool({"type": "object", "properties": {"x": {"$ref": f"{at}/top"}}, place: [[chain]]})
    started = time.process_time()
    schema.check({"x": {"y": "no"}})
    assert time.process_time() - started < 2
