"""Parameters, signatures and aliases."""

import inspect
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipymcp.schema.tool_schema import ToolSchema


def make(schema: Any) -> ToolSchema:
    return ToolSchema(schema, server="s", tool="t")


def annotation(schema: Any, **more: Any) -> str:
    return str(make({"properties": {"x": schema}, "required": ["x"], **more}).parameters[0].annotation)


def test_the_signature_reads_like_a_python_function() -> None:
    schema = {
        "properties": {
            "limit": {"type": "integer", "default": 10},
            "path": {"type": "string"},
            "mode": {"enum": ["r", "w"], "default": "r"},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["path"],
    }
    assert str(make(schema).signature) == (
        "(path: str, *, limit: int = 10, mode: Literal['r', 'w'] = 'r', tags: list[str] | None = None) -> ToolResult"
    )


def test_the_list_of_required_names_decides_the_order_of_positions() -> None:
    schema = {"properties": {"a": {}, "b": {}, "c": {}}, "required": ["c", "a", "c"]}
    assert [each.name for each in make(schema).parameters] == ["c", "a", "b"]


def test_undeclared_arguments_show_in_the_signature_where_they_are_invited() -> None:
    assert str(make({}).signature) == "(**arguments: Any) -> ToolResult"
    both = {"properties": {"arguments": {}}, "additionalProperties": True}
    assert str(make(both).signature) == "(*, arguments: Any = None, **arguments_2: Any) -> ToolResult"
    assert str(make({"type": "object", "properties": {}}).signature) == "() -> ToolResult"


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "string"}, "str"),
        ({"type": "integer"}, "int"),
        ({"type": "number"}, "float"),
        ({"type": ["integer", "null"]}, "int | None"),
        ({"type": ["string", "boolean"]}, "str | bool"),
        ({"anyOf": [{"type": "null"}, {"type": "array", "items": {"type": "number"}}]}, "list[float] | None"),
        ({"enum": ["a", 1, None]}, "Literal['a', 1] | None"),
        ({"const": "a"}, "Literal['a']"),
        ({"oneOf": [{"const": "a"}, {"const": "b"}]}, "Literal['a', 'b']"),
        ({"enum": [f"v{number}" for number in range(99)]}, "str"),
        ({"enum": [1.5, 2.5]}, "float"),
        ({"type": "object"}, "dict[str, Any]"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "dict[str, int]"),
        ({"$ref": "#/$defs/Ids"}, "list[int]"),
        ({"allOf": [{"$ref": "#/$defs/Ids"}], "description": "ids"}, "list[int]"),
        ({"properties": {"a": {}}}, "dict[str, Any]"),
        ({"type": "array"}, "list[Any]"),
        ({}, "Any"),
        (True, "Any"),
        ({"$ref": "http://elsewhere/x"}, "Any"),
    ],
)
def test_annotations_follow_the_schema(schema: Any, words: str) -> None:
    definitions = {"Ids": {"type": "array", "items": {"type": "integer"}}}
    found = annotation(schema, **{"$defs": definitions})
    assert found == words
    eval(found, {"Any": Any, "Literal": Literal})


def test_enum_values_are_found_through_references_and_alternatives() -> None:
    schema = {
        "properties": {
            "a": {"$ref": "#/$defs/Mode"},
            "b": {"anyOf": [{"$ref": "#/$defs/Mode"}, {"type": "null"}]},
            "c": {"oneOf": [{"const": 1}, {"const": 2}]},
            "d": {"anyOf": [{"const": 1}, {"type": "string"}]},
        },
        "$defs": {"Mode": {"enum": ["r", "w"]}},
    }
    assert [each.enum for each in make(schema).parameters] == [("r", "w"), ("r", "w"), (1, 2), ()]


def test_a_description_is_one_paragraph_and_found_through_a_reference() -> None:
    properties = {"a": {"description": "one\n  two"}, "b": {"$ref": "#/$defs/B"}}
    schema = {"properties": properties, "$defs": {"B": {"description": "three"}}}
    assert [each.description for each in make(schema).parameters] == ["one two", "three"]


def test_required_arguments_have_no_default_and_optional_ones_the_schema_s_or_none() -> None:
    schema = {"properties": {"a": {"default": 1}, "b": {"default": 2}, "c": {}}, "required": ["a"]}
    assert [each.default for each in make(schema).parameters] == [inspect.Parameter.empty, 2, None]


def test_names_that_are_not_identifiers_get_an_alias() -> None:
    aliases = {
        "from": "from_", "max-results": "max_results_2", "max_results": "max_results", "max.results": "max_results_3",
        "1st": "_1st", "": "_", "self": "self", "größe": "größe", "ﬁle": "file", "a b": "a_b",
        "__debug__": "__debug___",
    }  # fmt: skip
    parameters = make({"properties": {key: {} for key in aliases}}).parameters
    assert {each.name: each.alias for each in parameters} == aliases


@given(st.lists(st.text(max_size=8), unique=True, max_size=8), st.integers(0, 8))
def test_any_names_make_a_valid_signature_and_bind_both_ways(names: list[str], required: int) -> None:
    schema = make({"properties": {key: {} for key in names}, "required": names[:required]})
    aliases = [each.alias for each in schema.parameters]
    assert len(set(aliases)) == len(names)
    scope: dict[str, Any] = {"bind": lambda **given: schema.bind((), given)}
    source = ", ".join(f"{alias}={at}" for at, alias in enumerate(aliases))
    bound = eval(f"bind({source})", scope)
    assert bound == {each.name: at for at, each in enumerate(schema.parameters)}
    assert list(schema.signature.parameters)[: len(names)] == aliases
