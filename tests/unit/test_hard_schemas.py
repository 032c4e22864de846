"""Hard schemas by every provider's rules: none is refused, nothing valid is ruled out, and losses are listed.

What is tried on them is a pool of values of all of them, as they are and changed a little: the original says of each
whether it is valid, and the compiled schema has to take it then. Where it takes more, `.lost` is not empty.
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

EVERY = (PLAIN, *dict.fromkeys(one.profile for one in PROVIDERS.values()))
Json = dict[str, Any]
TREE: Json = {
    "type": "object",
    "properties": {"value": {"type": "integer"}, "left": {"$ref": "#/$defs/tree"}, "right": {"$ref": "#/$defs/tree"}},
    "required": ["value"],
}
POINT: Json = {
    "type": "object",
    "properties": {"x": {"type": "number"}, "y": {"type": "number"}, "label": {"type": "string", "maxLength": 20}},
    "required": ["x", "y"],
    "additionalProperties": False,
}


def tool(**properties: Any) -> Json:
    return {"type": "object", "properties": properties, "required": list(properties)[:1]}


def family(count: int) -> Json:
    """Definitions that each refer to all others, as generated clients of large APIs have them."""
    names = [f"kind{number}" for number in range(count)]
    about = "A part of the whole, with a description that is long enough to be worth a definition."
    kinds = {each: {"type": "object", "description": about, "properties": {other: {"$ref": f"#/$defs/{other}"}
             for other in names}} for each in names}  # fmt: skip
    return {**tool(root={"$ref": "#/$defs/kind0"}, other={"$ref": "#/$defs/kind3"}), "$defs": kinds}


HARD: dict[str, tuple[Json, list[Json]]] = {
    "a family": (family(8), [{"root": {"kind1": {"kind2": {"kind1": {}}}}, "other": {"kind3": {}}}]),
    "discriminated union": (
        {"$schema": "http://json-schema.org/draft-07/schema#", "oneOf": ACTIONS},
        [
            {"action": "create", "name": "n", "size": 1},
            {"action": "update", "id": 1, "name": None},
            {"action": "delete", "id": 2},
        ],
    ),
    "union in allOf": (
        {
            "type": "object",
            "properties": {"dry": {"type": "boolean"}},
            "allOf": [
                {
                    "anyOf": [
                        {"properties": {"path": {"type": "string"}}, "required": ["path"]},
                        {"properties": {"url": {"type": "string"}}, "required": ["url"]},
                    ]
                }
            ],
        },
        [{"path": "p"}, {"url": "u", "dry": True}],
    ),
    "either is required": (
        {
            "type": "object",
            "properties": {"id": {"type": "integer"}, "key": {"type": "string"}},
            "anyOf": [{"required": ["id"]}, {"required": ["key"]}],
            "additionalProperties": False,
        },
        [{"id": 1}, {"key": "k"}, {"id": 1, "key": "k"}],
    ),
    "nested unions": (
        tool(
            what={
                "oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}, POINT, {"type": "null"}]
            }
        ),
        [{"what": "s"}, {"what": ["s"]}, {"what": {"x": 1, "y": 2.5}}, {"what": None}],
    ),
    "overlapping oneOf": (
        tool(n={"oneOf": [{"type": "integer", "multipleOf": 2}, {"type": "integer", "multipleOf": 3}]}),
        [{"n": 2}, {"n": 3}],
    ),
    "a tree": (
        {**tool(root={"$ref": "#/$defs/tree"}), "$defs": {"tree": TREE}},
        [{"root": {"value": 1, "left": {"value": 2, "right": {"value": 3}}}}],
    ),
    "mutual recursion": (
        {
            **tool(a={"$ref": "#/$defs/a"}),
            "$defs": {
                "a": {"type": "object", "properties": {"b": {"$ref": "#/$defs/b"}}},
                "b": {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}, "n": {"type": "integer"}}},
            },
        },
        [{"a": {"b": {"a": {"b": {"n": 1}}}}}],
    ),
    "shared definitions": (
        {
            **tool(
                start={"$ref": "#/$defs/p"},
                end={"$ref": "#/$defs/p", "description": "Where to."},
                via={"type": "array", "items": {"$ref": "#/$defs/p"}},
            ),
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
                "y": {"$id": "b.json", "type": "string", "$defs": {"n": {"type": "boolean"}}},
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
            **tool(
                pet={
                    "allOf": [
                        {"$ref": "#/$defs/animal"},
                        {"properties": {"legs": {"type": "integer"}}, "required": ["legs"]},
                    ]
                }
            ),
            "$defs": {"animal": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}},
        },
        [{"pet": {"name": "n", "legs": 4}}],
    ),
    "patterns of names": (
        tool(
            headers={
                "type": "object",
                "patternProperties": {"^x-": {"type": "string"}, "^n-": {"type": "integer"}},
                "additionalProperties": False,
            },
            env={"type": "object", "additionalProperties": {"type": "string"}},
        ),
        [{"headers": {"x-a": "1", "n-b": 2}, "env": {"A": "b"}}],
    ),
    "tuples": (
        tool(pair={"type": "array", "prefixItems": [{"type": "number"}, {"type": "string"}], "items": False}),
        [{"pair": [1, "s"]}, {"pair": [1]}],
    ),
    "tuples of draft 7": (
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            **tool(old={"type": "array", "items": [{"type": "number"}], "additionalItems": {"type": "boolean"}}),
        },
        [{"old": [1, True, False]}],
    ),
    "conditions": (
        {
            "type": "object",
            "properties": {"kind": {"enum": ["a", "b"]}, "size": {"type": "integer"}},
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
            b={"type": ["object", "array"], "properties": {"c": {"type": "string"}}, "items": {"type": "integer"}},
        ),
        [{"a": "ab"}, {"a": 2}, {"a": None, "b": {"c": "s"}}, {"a": 2, "b": [1]}],
    ),
    "nullable": (
        tool(a={"anyOf": [{"type": "string"}, POINT, {"type": "null"}]}, b={"type": ["boolean", "null"]}),
        [{"a": None, "b": None}, {"a": "s", "b": True}],
    ),
    "names": (
        tool(**{"$filter": {"type": "string"}, "a b": tool(**{"ü": {"type": "integer"}}), "x" * 80: {"type": "null"}}),
        [{"$filter": "s", "a b": {"ü": 1}, "x" * 80: None}],
    ),
    "undeclared and required": (
        {"type": "object", "required": ["a", "b"], "properties": {"a": {"type": "string"}}},
        [{"a": "s", "b": 5}, {"a": "s", "b": {"c": []}}],
    ),
    "anyOf beside oneOf": (
        tool(
            a={"anyOf": [{"type": "string"}, {"type": "integer"}], "oneOf": [{"type": "integer"}, {"type": "boolean"}]}
        ),
        [{"a": 1}],
    ),
    "forbidden": (tool(a={"type": "object", "properties": {"b": False, "c": True}}), [{"a": {"c": 1}}]),
    "impossible": (tool(a={"allOf": [{"type": "string"}, {"type": "integer"}]}), []),
    "deep": (
        tool(
            a={
                "type": "array",
                "items": {
                    "type": "array",
                    "items": {
                        "type": "array",
                        "items": {
                            "type": "array",
                            "items": {
                                "type": "array",
                                "items": {"type": "array", "items": tool(b=tool(c=tool(d=tool(e={"type": "string"}))))},
                            },
                        },
                    },
                },
            }
        ),
        [{"a": [[[[[[{"b": {"c": {"d": {"e": "s"}}}}]]]]]]}],
    ),
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
    """The value, and others that differ from it in one place."""
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
    json.dumps(each, sort_keys=True) for _, values in HARD.values() for value in values for each in changed(value)
)]  # fmt: skip


def by_new_names(value: Any, names: Json) -> Any:
    if isinstance(value, dict):
        return {names.get(key, key): by_new_names(each, names) for key, each in value.items()}
    return [by_new_names(each, names) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("profile", EVERY, ids=operator.attrgetter("name"))
@pytest.mark.parametrize("name", HARD)
def test_nothing_is_refused_nothing_valid_ruled_out_and_losses_are_said(name: str, profile: Profile) -> None:
    schema, values = HARD[name]
    made = compile_schema(schema, profile)
    original, declared = jsonschema_rs.validator_for(schema), jsonschema_rs.validator_for(made.parameters)

    assert refusals(made.parameters, profile) == []
    assert all(original.is_valid(value) for value in values)
    new = {own: name for name, own in made.renamed.items()}
    for value in POOL:
        told = by_new_names(value, new)
        assert restore_names(told, made.renamed) == value
        if original.is_valid(value):
            assert declared.is_valid(told), f"valid, and ruled out: {value} by {made.parameters}"
        elif declared.is_valid(told):
            assert made.lost, f"not valid, and taken: {value} by {made.parameters}"


@pytest.mark.parametrize("name", HARD)
def test_the_same_schemas_take_in_python_what_is_valid(name: str) -> None:
    schema, values = HARD[name]
    python = ToolSchema(schema, server="s", tool="t")

    assert python.signature is not None
    for value in values:
        assert python.check(value) == value


@pytest.mark.parametrize("profile", [one for one in EVERY if one.references], ids=operator.attrgetter("name"))
@pytest.mark.parametrize(
    "name", ["shared definitions", "references into properties", "a tree", "a family", "discriminated union"]
)
def test_what_is_said_once_stays_about_as_long_as_it_was(name: str, profile: Profile) -> None:
    schema, _ = HARD[name]

    assert len(json.dumps(compile_schema(schema, profile).parameters)) < 1.2 * len(json.dumps(schema)) + 200
