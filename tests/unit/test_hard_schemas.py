"""Hard schemas by the rules of every provider: none is refused, all valid values stay valid, and losses are listed.

Each schema is checked with a pool of the values of all schemas, unchanged and with small changes. A value that is valid
by the original must be valid by the compiled schema; where the compiled schema accepts more, `.lost` is not empty.
"""

import json
import operator
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest

from ipymcp.llm.providers import PLAIN, PROVIDERS, Profile
from ipymcp.llm.schemas import compile_schema, restore_names
from ipymcp.schema.tool_schema import ToolSchema
from tests.unit.test_model_schemas import ACTIONS, refusals

EVERY = (PLAIN, *dict.fromkeys(provider.profile for provider in PROVIDERS.values()))
Json = dict[str, Any]
STRING, INTEGER, NUMBER, BOOLEAN, NULL = ({"type": name} for name in ("string", "integer", "number", "boolean", "null"))
DRAFT_7 = "http://json-schema.org/draft-07/schema#"


def tool(**properties: Any) -> Json:
    """An object whose first property is required."""
    return {"type": "object", "properties": properties, "required": list(properties)[:1]}


def ref(name: str, **more: Any) -> Json:
    return {"$ref": f"#/$defs/{name}", **more}


def array(items: Json, **more: Any) -> Json:
    return {"type": "array", "items": items, **more}


TREE = tool(value=INTEGER, left=ref("tree"), right=ref("tree"))
POINT: Json = {
    "type": "object",
    "properties": {"x": NUMBER, "y": NUMBER, "label": {"type": "string", "maxLength": 20}},
    "required": ["x", "y"],
    "additionalProperties": False,
}


def family(count: int) -> Json:
    """Definitions that each refer to all others, as generated clients of large APIs have them."""
    names = [f"kind{number}" for number in range(count)]
    about = "A part of the whole, with a description that is long enough to be worth a definition."
    properties = {name: ref(name) for name in names}
    kinds = {name: {"type": "object", "description": about, "properties": properties} for name in names}
    return {**tool(root=ref("kind0"), other=ref("kind3")), "$defs": kinds}


def nested(depth: int) -> Json:
    """Arrays in arrays, with nested objects in the innermost."""
    return array(nested(depth - 1) if depth > 1 else tool(b=tool(c=tool(d=tool(e=STRING)))))


HARD: dict[str, tuple[Json, list[Json]]] = {
    "a family": (family(8), [{"root": {"kind1": {"kind2": {"kind1": {}}}}, "other": {"kind3": {}}}]),
    "discriminated union": (
        {"$schema": DRAFT_7, "oneOf": ACTIONS},
        [
            {"action": "create", "name": "n", "size": 1},
            {"action": "update", "id": 1, "name": None},
            {"action": "delete", "id": 2},
        ],
    ),
    "union in allOf": (
        {
            "type": "object",
            "properties": {"dry": BOOLEAN},
            "allOf": [
                {"anyOf": [{"properties": {name: STRING}, "required": [name]} for name in ("path", "url")]},
            ],
        },
        [{"path": "p"}, {"url": "u", "dry": True}],
    ),
    "either is required": (
        {
            "type": "object",
            "properties": {"id": INTEGER, "key": STRING},
            "anyOf": [{"required": ["id"]}, {"required": ["key"]}],
            "additionalProperties": False,
        },
        [{"id": 1}, {"key": "k"}, {"id": 1, "key": "k"}],
    ),
    "nested unions": (
        tool(what={"oneOf": [STRING, array(STRING), POINT, NULL]}),
        [{"what": "s"}, {"what": ["s"]}, {"what": {"x": 1, "y": 2.5}}, {"what": None}],
    ),
    "overlapping oneOf": (
        tool(n={"oneOf": [{"type": "integer", "multipleOf": 2}, {"type": "integer", "multipleOf": 3}]}),
        [{"n": 2}, {"n": 3}],
    ),
    "a tree": (
        {**tool(root=ref("tree")), "$defs": {"tree": TREE}},
        [{"root": {"value": 1, "left": {"value": 2, "right": {"value": 3}}}}],
    ),
    "mutual recursion": (
        {
            **tool(a=ref("a")),
            "$defs": {
                "a": {"type": "object", "properties": {"b": ref("b")}},
                "b": {"type": "object", "properties": {"a": ref("a"), "n": INTEGER}},
            },
        },
        [{"a": {"b": {"a": {"b": {"n": 1}}}}}],
    ),
    "shared definitions": (
        {
            **tool(start=ref("p"), end=ref("p", description="Where to."), via=array(ref("p"))),
            "$defs": {"p": POINT},
        },
        [{"start": {"x": 1, "y": 2}, "end": {"x": 1, "y": 2, "label": "l"}, "via": [{"x": 0, "y": 0}]}],
    ),
    "references into properties": (
        tool(
            **{"from": POINT, "to": {"$ref": "#/properties/from"}, "over": {"$ref": "#/properties/from/properties/x"}}
        ),
        [{"from": {"x": 1, "y": 2}, "to": {"x": 1, "y": 2}, "over": 5}],
    ),
    "anchors and ids": (
        {
            "$id": "https://e.org/a.json",
            **tool(a={"$ref": "#here"}, b={"$ref": "b.json#/$defs/n"}, c={"$ref": "b.json"}),
            "$defs": {
                "x": {"$anchor": "here", "type": "integer"},
                "y": {"$id": "b.json", "type": "string", "$defs": {"n": BOOLEAN}},
            },
        },
        [{"a": 1, "b": True, "c": "s"}],
    ),
    "limits in allOf": (
        tool(
            n={"type": "integer", "minimum": 0, "maximum": 100, "allOf": [{"minimum": 3}, {"maximum": 7}]},
            s={"allOf": [{"type": "string", "minLength": 1}, {"maxLength": 3}, {"pattern": "^a"}, {"pattern": "b$"}]},
        ),
        [{"n": 5}, {"n": 3, "s": "ab"}],
    ),
    "inheritance": (
        {
            **tool(pet={"allOf": [ref("animal"), {"properties": {"legs": INTEGER}, "required": ["legs"]}]}),
            "$defs": {"animal": tool(name=STRING)},
        },
        [{"pet": {"name": "n", "legs": 4}}],
    ),
    "patterns of names": (
        tool(
            headers={
                "type": "object",
                "patternProperties": {"^x-": STRING, "^n-": INTEGER},
                "additionalProperties": False,
            },
            env={"type": "object", "additionalProperties": STRING},
        ),
        [{"headers": {"x-a": "1", "n-b": 2}, "env": {"A": "b"}}],
    ),
    "tuples": (
        tool(pair={"type": "array", "prefixItems": [NUMBER, STRING], "items": False}),
        [{"pair": [1, "s"]}, {"pair": [1]}],
    ),
    "tuples of draft 7": (
        {"$schema": DRAFT_7, **tool(old={"type": "array", "items": [NUMBER], "additionalItems": BOOLEAN})},
        [{"old": [1, True, False]}],
    ),
    "conditions": (
        {
            "type": "object",
            "properties": {"kind": {"enum": ["a", "b"]}, "size": INTEGER},
            "if": {"properties": {"kind": {"const": "a"}}},
            "then": {"required": ["size"]},
            "else": {"not": {"required": ["size"]}},
            "dependentRequired": {"size": ["kind"]},
            "minProperties": 1,
        },
        [{"kind": "a", "size": 1}, {"kind": "b"}],
    ),
    "not": ({**tool(a={"type": "string", "not": {"enum": ["no"]}}), "not": {"required": ["b"]}}, [{"a": "yes"}]),
    "mixed choices": (
        tool(a={"enum": ["a", 1, None, True, {"b": 1}]}, b={"const": 5}, c={"enum": ["x", None]}),
        [{"a": "a"}, {"a": 1}, {"a": None, "b": 5}, {"a": {"b": 1}, "c": None}],
    ),
    "lists of types": (
        tool(
            a={"type": ["string", "integer", "null"], "minimum": 1, "maxLength": 3, "enum": ["ab", 2, None]},
            b={"type": ["object", "array"], "properties": {"c": STRING}, "items": INTEGER},
        ),
        [{"a": "ab"}, {"a": 2}, {"a": None, "b": {"c": "s"}}, {"a": 2, "b": [1]}],
    ),
    "nullable": (
        tool(a={"anyOf": [STRING, POINT, NULL]}, b={"type": ["boolean", "null"]}),
        [{"a": None, "b": None}, {"a": "s", "b": True}],
    ),
    "names": (
        tool(**{"$filter": STRING, "a b": tool(**{"ü": INTEGER}), "x" * 80: NULL}),
        [{"$filter": "s", "a b": {"ü": 1}, "x" * 80: None}],
    ),
    "undeclared and required": (
        {"type": "object", "required": ["a", "b"], "properties": {"a": STRING}},
        [{"a": "s", "b": 5}, {"a": "s", "b": {"c": []}}],
    ),
    "anyOf beside oneOf": (tool(a={"anyOf": [STRING, INTEGER], "oneOf": [INTEGER, BOOLEAN]}), [{"a": 1}]),
    "forbidden": (tool(a={"type": "object", "properties": {"b": False, "c": True}}), [{"a": {"c": 1}}]),
    "impossible": (tool(a={"allOf": [STRING, INTEGER]}), []),
    "deep": (tool(a=nested(6)), [{"a": [[[[[[{"b": {"c": {"d": {"e": "s"}}}}]]]]]]}]),
    "formats": (
        tool(
            a={"type": "string", "format": "date"},
            b={"type": "integer", "format": "int64"},
            c={"type": "string", "format": "uri", "contentEncoding": "base64"},
        ),
        [{"a": "2020-01-01", "b": 5, "c": "http://a"}],
    ),
}


def changed(value: Any) -> Iterator[Any]:
    """Yield the value, and values that differ from it in one place."""
    yield value
    if isinstance(value, dict):
        for name in value:
            yield {key: each for key, each in value.items() if key != name}
            for other in changed(value[name]):
                yield {**value, name: other}
        yield {**value, "surplus of some name": 1}
    elif isinstance(value, list):
        yield []
        for other in changed(value[0]) if value else ():
            yield [other, *value[1:]]
    else:
        yield from ("s", "abc", 4, 6, 2.5, None, True, {"q": 1}, ["q"])


POOL = [json.loads(text) for text in dict.fromkeys(
    json.dumps(variant, sort_keys=True) for _, values in HARD.values() for value in values for variant in changed(value)
)]  # fmt: skip


def by_new_names(value: Any, names: Json) -> Any:
    if isinstance(value, dict):
        return {names.get(key, key): by_new_names(each, names) for key, each in value.items()}
    return [by_new_names(each, names) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("profile", EVERY, ids=operator.attrgetter("name"))
@pytest.mark.parametrize("name", HARD)
def test_a_compiled_schema_is_accepted_takes_all_valid_values_and_lists_losses(name: str, profile: Profile) -> None:
    schema, values = HARD[name]
    compiled = compile_schema(schema, profile)
    original, declared = jsonschema_rs.validator_for(schema), jsonschema_rs.validator_for(compiled.parameters)

    assert refusals(compiled.parameters, profile) == []
    assert all(original.is_valid(value) for value in values)
    new_names = {original_name: name for name, original_name in compiled.renamed.items()}
    for value in POOL:
        renamed = by_new_names(value, new_names)
        assert restore_names(renamed, compiled.renamed) == value
        if original.is_valid(value):
            assert declared.is_valid(renamed), f"valid, and ruled out: {value} by {compiled.parameters}"
        elif declared.is_valid(renamed):
            assert compiled.lost, f"not valid, and taken: {value} by {compiled.parameters}"


@pytest.mark.parametrize("name", HARD)
def test_the_function_of_the_same_schema_takes_all_valid_values(name: str) -> None:
    schema, values = HARD[name]
    python = ToolSchema(schema, server="s", tool="t")

    assert python.signature is not None
    assert [python.check(value) for value in values] == values


@pytest.mark.parametrize(
    "profile", [profile for profile in EVERY if profile.references], ids=operator.attrgetter("name")
)
@pytest.mark.parametrize(
    "name", ["shared definitions", "references into properties", "a tree", "a family", "discriminated union"]
)
def test_a_schema_with_references_does_not_grow_when_it_is_compiled(name: str, profile: Profile) -> None:
    schema, _ = HARD[name]

    assert len(json.dumps(compile_schema(schema, profile).parameters)) < 1.2 * len(json.dumps(schema)) + 200
