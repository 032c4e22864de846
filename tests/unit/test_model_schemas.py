"""Input schemas as providers take them: what is written otherwise, what is lost, what never gets through."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipymcp.tools.models.compiling import Loss, compiled, restored
from ipymcp.tools.models.profiles import PLAIN, PROFILES, Profile

OPENAI, ANTHROPIC, GEMINI = PROFILES["openai"], PROFILES["anthropic"], PROFILES["gemini"]
EVERY = [pytest.param(each, id=each.name) for each in (PLAIN, OPENAI, ANTHROPIC, GEMINI)]
Json = dict[str, Any]


def one(member: object, **more: Any) -> Json:
    return {"type": "object", "properties": {"it": member}, **more}


def it(member: object, profile: Profile, **more: Any) -> Json:
    """What becomes of a property."""
    return compiled(one(member, **more), profile).parameters["properties"]["it"]


@pytest.mark.parametrize("profile", EVERY)
def test_a_plain_schema_is_left_as_it_is(profile: Profile) -> None:
    schema = one({"type": "string", "description": "What.", "enum": ["a", "b"]}, required=["it"])

    assert compiled(schema, profile) == compiled({**schema, "$schema": "x", "$id": "y", "x-order": 1}, profile)
    assert compiled(schema, profile).parameters == schema
    assert compiled(schema, profile).lost == ()


@pytest.mark.parametrize("profile", EVERY)
@pytest.mark.parametrize(
    "schema",
    [None, True, [], {}, {"type": "object"}, {"type": "string"}, {"properties": 7}, {"nullable": True}, {"enum": [1]}],
)
def test_whatever_a_schema_is_it_becomes_an_objects(schema: object, profile: Profile) -> None:
    assert compiled(schema, profile).parameters == {"type": "object", "properties": {}}


@pytest.mark.parametrize("profile", EVERY)
def test_references_are_followed(profile: Profile) -> None:
    point = {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}
    found = it({"$ref": "#/$defs/P", "description": "Where."}, profile, **{"$defs": {"P": point}})

    assert found == {**point, "description": "Where."}


def test_what_refers_to_itself_stays_where_it_may_and_is_cut_elsewhere() -> None:
    tree = {"type": "object", "properties": {"left": {"$ref": "#/$defs/T"}}}
    schema = one({"$ref": "#/$defs/T"}, **{"$defs": {"T": tree}})

    kept = compiled(schema, OPENAI)
    assert kept.parameters["properties"]["it"]["properties"] == {"left": {"$ref": "#/$defs/T"}}
    assert kept.parameters["$defs"] == {"T": tree}
    assert kept.lost == ()
    cut = compiled(schema, ANTHROPIC)
    assert cut.lost == (Loss("it.left", "refers to itself: any JSON from there on"),)
    assert "$" not in json.dumps(cut.parameters)


@pytest.mark.parametrize("profile", EVERY)
def test_a_reference_to_nothing_is_anything(profile: Profile) -> None:
    made = compiled(one({"$ref": "https://example.org/schema"}), profile)

    assert made.parameters == one({})
    assert made.lost == (Loss("it", "refers to nothing: https://example.org/schema"),)


@pytest.mark.parametrize("profile", EVERY)
def test_all_of_is_one(profile: Profile) -> None:
    parts = [
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
        {"properties": {"b": {"type": "integer"}}, "required": ["b"]},
    ]

    found = it({"allOf": parts}, profile)

    assert found["properties"] == {"a": {"type": "string"}, "b": {"type": "integer"}}
    assert sorted(found["required"]) == ["a", "b"]


@pytest.mark.parametrize("profile", EVERY)
def test_alternatives_at_the_top_are_the_arguments_of_all_of_them(profile: Profile) -> None:
    made = compiled(
        {
            "anyOf": [
                {"type": "object", "properties": {"id": {"type": "string"}, "a": {}}, "required": ["id", "a"]},
                {"type": "object", "properties": {"id": {"type": "string"}, "b": {}}, "required": ["id"]},
            ]
        },
        profile,
    )

    assert made.parameters == {
        "type": "object",
        "properties": {"id": {"type": "string"}, "a": {}, "b": {}},
        "required": ["id"],
    }
    assert made.lost == (Loss("", "alternatives at the top: the arguments of all of them"),)


def test_a_list_of_types_is_alternatives_where_it_may_not_be() -> None:
    listed = {"type": ["array", "null"], "items": {"type": "string"}, "maxItems": 3, "description": "Which."}

    assert it(listed, ANTHROPIC) == listed
    assert it(listed, GEMINI) == {
        "description": "Which.",
        "anyOf": [{"type": "array", "maxItems": 3, "items": {"type": "string"}}, {"type": "null"}],
    }


@pytest.mark.parametrize("profile", EVERY)
def test_nullable_is_a_type(profile: Profile) -> None:
    found = it({"type": "string", "enum": ["a"], "nullable": True}, profile)

    if profile is GEMINI:
        assert found == {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}]}
    else:
        assert found == {"type": ["string", "null"], "enum": ["a", None]}
    either = it({"anyOf": [{"type": "string"}, {"type": "integer"}], "nullable": True}, profile)
    assert either == {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]}


@pytest.mark.parametrize("profile", EVERY)
def test_values_have_a_type_too(profile: Profile) -> None:
    assert it({"enum": ["a", "b"]}, profile) == {"type": "string", "enum": ["a", "b"]}


def test_gemini_chooses_among_texts_and_numbers_by_type_and_is_told_of_others_in_words() -> None:
    assert it({"enum": ["a", 1, None], "minimum": 0}, GEMINI) == {
        "anyOf": [{"type": "integer", "minimum": 0, "enum": [1]}, {"type": "null"}, {"type": "string", "enum": ["a"]}]
    }
    assert it({"const": True}, GEMINI) == {"type": "boolean", "description": "(enum: [true])"}
    assert it({"enum": [None]}, GEMINI) == {"type": "null"}


@pytest.mark.parametrize("profile", EVERY)
@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("minimum", "0"), ("exclusiveMaximum", True), ("multipleOf", 0), ("minLength", -1), ("maxItems", "2"),
        ("uniqueItems", "yes"), ("enum", []), ("enum", "a"), ("pattern", "("), ("pattern", 5), ("title", 5),
        ("description", None), ("format", 7),
    ],
)  # fmt: skip
def test_a_word_that_means_nothing_is_left_out_and_said(word: str, value: object, profile: Profile) -> None:
    made = compiled(one({"type": "string", word: value}), profile)

    assert made.parameters == one({"type": "string"})
    assert made.lost == (Loss("it", f"{word}: {json.dumps(value)} is nothing it may be"),)


@pytest.mark.parametrize("profile", EVERY)
def test_a_type_that_there_is_not_is_told_in_words(profile: Profile) -> None:
    made = compiled(one({"type": "int"}), profile)

    assert made.parameters == one({"description": '(type: "int")'})
    assert made.lost == (Loss("it", "type: it is told in words"),)
    assert it({"type": ["string", "file"]}, profile)["type"] == "string"


def test_definitions_have_names_of_their_own_that_a_reference_can_say() -> None:
    schema = one({"$ref": "#/$defs/N<T>"}, **{
        "$defs": {"N<T>": {"properties": {"x": {"$ref": "#/$defs/N<T>"}, "y": {"$ref": "#/definitions/N_T"}}}},
        "definitions": {"N_T": {"properties": {"z": {"$ref": "#/definitions/N_T"}}}},
    })  # fmt: skip
    schema["properties"]["whole"] = {"$ref": "#"}

    made = compiled(schema, OPENAI).parameters

    assert made["$defs"].keys() == {"N_T", "N_T_1", "root"}
    assert made["$defs"]["N_T"]["properties"]["x"] == {"$ref": "#/$defs/N_T"}
    assert made["$defs"]["N_T_1"]["properties"]["z"] == {"$ref": "#/$defs/N_T_1"}
    assert made["properties"]["whole"]["properties"]["whole"] == {"$ref": "#/$defs/root"}


@pytest.mark.parametrize("profile", EVERY)
def test_one_of_is_any_of_and_const_stays_a_single_value(profile: Profile) -> None:
    found = it({"oneOf": [{"const": "a"}, {"type": "integer"}]}, profile)

    first, second = found["anyOf"]
    assert first in (
        {"const": "a"},
        {"enum": ["a"]},
        {"const": "a", "type": "string"},
        {"enum": ["a"], "type": "string"},
    )
    assert second == {"type": "integer"}


def test_what_gemini_has_no_word_for_is_told_in_words() -> None:
    made = compiled(one({"type": "string", "pattern": "^a", "format": "uuid", "default": "ab"}), GEMINI)

    assert made.parameters == one({"type": "string", "description": '(pattern: "^a"; format: "uuid"; default: "ab")'})
    assert made.lost == (Loss("it", "pattern: it is told in words"), Loss("it", "format: it is told in words"))


def test_what_cannot_even_be_told_is_lost() -> None:
    made = compiled(one({"type": "string", "pattern": "a" * 500}), GEMINI)

    assert made.parameters == one({"type": "string"})
    assert made.lost == (Loss("it", "pattern"),)


def test_names_that_a_provider_refuses_are_others_and_found_again() -> None:
    schema = {
        "type": "object",
        "properties": {"$top": {"type": "object", "properties": {"a/b": {}}}},
        "required": ["$top"],
    }

    made = compiled(schema, ANTHROPIC)

    (outer,) = made.parameters["properties"]
    (inner,) = made.parameters["properties"][outer]["properties"]
    assert re.fullmatch("_top_[0-9a-f]{8}", outer)
    assert made.parameters["required"] == [outer]
    assert made.lost == (Loss("$top", f"its name: {outer}"), Loss("$top.a/b", f"its name: {inner}"))
    assert restored({outer: {inner: 1, "c": [{inner: 2}]}}, made.renamed) == {"$top": {"a/b": 1, "c": [{"a/b": 2}]}}
    assert compiled(schema, OPENAI).parameters == schema


@pytest.mark.parametrize("profile", EVERY)
def test_places_of_items_are_alternatives(profile: Profile) -> None:
    made = compiled(one({"type": "array", "prefixItems": [{"type": "number"}, {"type": "string"}]}), profile)

    assert made.parameters["properties"]["it"]["items"] == {"anyOf": [{"type": "number"}, {"type": "string"}]}
    assert made.lost == (Loss("it", "the places of its items: any of them anywhere"),)


@pytest.mark.parametrize("profile", EVERY)
def test_an_array_always_says_what_is_in_it(profile: Profile) -> None:
    assert it({"type": "array"}, profile) == {"type": "array", "items": {}}


def test_what_is_too_deep_is_anything() -> None:
    schema: Json = {"type": "string"}
    for _ in range(40):
        schema = one(schema)

    made = compiled(schema, GEMINI)

    assert made.lost == (Loss(".".join(["it"] * 11), "deeper than it may be: any JSON"),)


def test_a_schema_that_multiplies_itself_is_any_arguments() -> None:
    definitions: Json = {"d0": {"type": "string"}}
    for number in range(1, 30):
        part = {"$ref": f"#/$defs/d{number - 1}"}
        definitions[f"d{number}"] = {"anyOf": [part, part]}

    made = compiled(one({"$ref": "#/$defs/d29"}, **{"$defs": definitions}), ANTHROPIC)

    assert made.parameters == {"type": "object", "properties": {}}
    assert made.lost[-1] == Loss("", "too large: any arguments")


def test_what_nobody_would_see_is_not_in_what_a_model_reads() -> None:
    hidden = "Fine.\u200b\u202e\U000e0041"

    assert it({"type": "string", "description": hidden, "default": hidden}, OPENAI) == {
        "type": "string",
        "description": "Fine.",
        "default": "Fine.",
    }


# -- whatever comes in, nothing comes out that a provider refuses -----------------------------------------------------

_SCALARS = st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["", "string", "#/$defs/a", "#", "object"])
_WORDS = st.sampled_from(
    ["type", "properties", "items", "anyOf", "oneOf", "allOf", "$ref", "$defs", "a", "b c", "enum", "const", "required",
     "nullable", "additionalProperties", "prefixItems", "description", "format", "default", "not", "minimum", "pattern",
     "maxItems", "title", "exclusiveMinimum", "multipleOf"]
)  # fmt: skip
_TREES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_WORDS, inner, max_size=5), max_leaves=25
)


def subschemas(schema: Any) -> Iterator[Json]:
    if isinstance(schema, dict):
        yield schema
        for key in ("items", "additionalProperties"):
            yield from subschemas(schema.get(key))
        for key in ("properties", "$defs"):
            for value in (schema.get(key) or {}).values():
                yield from subschemas(value)
        for value in schema.get("anyOf", []):
            yield from subschemas(value)


@given(_TREES, st.sampled_from([PLAIN, OPENAI, ANTHROPIC, GEMINI]))
def test_nothing_is_declared_that_a_provider_refuses(schema: object, profile: Profile) -> None:
    made = compiled(schema, profile)

    assert made.parameters["type"] == "object"
    assert not {"anyOf", "oneOf", "allOf", "$ref", "not"} & made.parameters.keys()
    for each in subschemas(made.parameters):
        assert not {"oneOf", "allOf", "nullable", "prefixItems"} & each.keys()
        assert profile.recursion or not {"$ref", "$defs"} & each.keys()
        assert profile.type_lists or not isinstance(each.get("type"), list)
        assert each.get("type") != "array" or isinstance(each["items"], dict)
        assert profile.key is None or all(profile.key.fullmatch(key) for key in each.get("properties", {}))
        assert set(each.get("required", ())) <= each.get("properties", {}).keys()
    json.dumps(made.parameters, allow_nan=False)
    jsonschema_rs.meta.validate(made.parameters)
