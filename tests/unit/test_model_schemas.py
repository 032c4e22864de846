"""Input schemas as providers take them: what is written otherwise, what is lost, what never gets through."""

import itertools
import json
import math
import re
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipymcp.llm.providers import INLINE, PLAIN, PROVIDERS, Profile
from ipymcp.llm.schemas import Loss, compile_schema, restore_names
from ipymcp.masking import masks
from ipymcp.protocol import types

OPENAI, ANTHROPIC, GEMINI = (PROVIDERS[each].profile for each in ("openai", "anthropic", "gemini"))
EVERY = [pytest.param(each, id=each.name) for each in (PLAIN, OPENAI, ANTHROPIC, GEMINI)]
Json = dict[str, Any]


def one(member: object, **more: Any) -> Json:
    return {"type": "object", "properties": {"it": member}, **more}


def it(member: object, profile: Profile, **more: Any) -> Json:
    """The compiled form of a property."""
    return compile_schema(one(member, **more), profile).parameters["properties"]["it"]


@pytest.mark.parametrize("profile", EVERY)
def test_a_plain_schema_is_left_as_it_is(profile: Profile) -> None:
    schema = one({"type": "string", "description": "What.", "enum": ["a", "b"]}, required=["it"])
    assert compile_schema(schema, profile) == compile_schema(
        {**schema, "$schema": "x", "$id": "y", "x-order": 1}, profile
    )
    assert compile_schema(schema, profile).parameters == schema
    assert compile_schema(schema, profile).lost == ()


@pytest.mark.parametrize("profile", EVERY)
@pytest.mark.parametrize(
    "schema",
    [None, True, [], {}, {"type": "object"}, {"type": "string"}, {"properties": 7}, {"nullable": True}, {"enum": [1]}],
)
def test_whatever_a_schema_is_it_becomes_an_objects(schema: object, profile: Profile) -> None:
    assert compile_schema(schema, profile).parameters == {"type": "object", "properties": {}}


@pytest.mark.parametrize("profile", EVERY)
def test_references_are_followed(profile: Profile) -> None:
    point = {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}
    found = it({"$ref": "#/$defs/P", "description": "Where."}, profile, **{"$defs": {"P": point}})
    assert found == {**point, "description": "Where."}


def test_what_refers_to_itself_stays_where_it_may_and_is_cut_elsewhere() -> None:
    tree = {"type": "object", "properties": {"left": {"$ref": "#/$defs/T"}}}
    schema = one({"$ref": "#/$defs/T"}, **{"$defs": {"T": tree}})
    for profile in (PLAIN, OPENAI, ANTHROPIC):
        kept = compile_schema(schema, profile)
        assert kept.parameters == {**one({"$ref": "#/$defs/T"}), "$defs": {"T": tree}}
        assert kept.lost == ()
    cut = compile_schema(schema, GEMINI)
    assert cut.lost == (Loss("it.left", "recursive: any JSON from there on"),)
    assert "$" not in json.dumps(cut.parameters)


POINT = {
    "type": "object",
    "description": "A place on the map.",
    "properties": {"x": {"type": "number"}, "y": {"type": "number"}},
    "required": ["x", "y"],
}


@pytest.mark.parametrize("profile", EVERY)
@pytest.mark.parametrize(
    "where", ["#/$defs/P", "#/properties/from", "#point", "point.json", "https://e.org/point.json"]
)
def test_what_is_used_twice_is_said_once(profile: Profile, where: str) -> None:
    schema = {
        "$id": "https://e.org/tool.json",
        "properties": {
            "from": POINT if where == "#/properties/from" else {"$ref": where},
            "to": {"$ref": where, "description": "Where to.", "title": "To", "default": {"x": 0, "y": 0}},
            "over": {"type": "array", "items": {"$ref": where}},
        },
        "$defs": {"P": {"$anchor": "point", "$id": "point.json", **POINT}},
    }
    if where == "#point":
        del schema["$defs"]["P"]["$id"]  # type: ignore[attr-defined]

    made = compile_schema(schema, profile)

    (name,) = made.parameters["$defs"]
    reference = {"$ref": f"#/$defs/{name}"}
    beside = {word: schema["properties"]["to"][word] for word in profile.beside}  # type: ignore[index]
    if profile is GEMINI:
        beside = {"description": 'Where to. (default: {"x": 0, "y": 0})'}
    assert made.parameters["$defs"][name] == POINT
    assert made.parameters["properties"]["from"] == reference
    assert made.parameters["properties"]["over"] == {"type": "array", "items": reference}
    assert made.parameters["properties"]["to"] == {**reference, **beside}
    assert made.lost == ()


def test_members_beside_a_reference_are_merged_with_it() -> None:
    member = {"$ref": "#/$defs/P", "properties": {"z": {"type": "number"}}, "required": ["z"]}
    found = it(member, OPENAI, **{"$defs": {"P": POINT}})
    assert found["properties"].keys() == {"x", "y", "z"}
    assert sorted(found["required"]) == ["x", "y", "z"]


def test_a_property_may_be_called_as_a_keyword_is() -> None:
    tree = {"type": "object", "properties": {"default": {"$ref": "#/$defs/T"}, "examples": {"$ref": "#/$defs/T"}}}
    schema = {"properties": {"$id": {"$ref": "#/$defs/T"}, "definitions": {"$ref": "#/$defs/T"}}, "$defs": {"T": tree}}
    assert compile_schema(schema, OPENAI).parameters == {"type": "object", **schema}
    assert "$ref" not in json.dumps(compile_schema(schema, GEMINI).parameters)


@pytest.mark.parametrize("profile", EVERY)
def test_a_reference_to_nothing_is_anything(profile: Profile) -> None:
    made = compile_schema(one({"$ref": "https://example.org/schema"}), profile)
    assert made.parameters == one({})
    assert made.lost == (Loss("it", "unresolved reference: https://example.org/schema"),)


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
    made = compile_schema(
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
        "description": "One of: {id, a} | {id, b?}",
        "properties": {"id": {"type": "string"}, "a": {}, "b": {}},
        "required": ["id"],
    }
    assert made.lost == (Loss("", "alternatives at the top: the arguments of all of them"),)


CREATE = {
    "type": "object",
    "description": "Makes one.",
    "properties": {"action": {"type": "string", "const": "create"}, "name": {"type": "string"}, "size": {}},
    "required": ["action", "name"],
    "additionalProperties": False,
}
UPDATE = {
    "type": "object",
    "properties": {
        "action": {"type": "string", "const": "update"},
        "id": {"type": "integer"},
        "name": {"type": ["string", "null"]},
    },
    "required": ["action", "id"],
    "additionalProperties": False,
}
DELETE = {
    "type": "object",
    "properties": {"action": {"type": "string", "const": "delete"}, "id": {"type": "integer", "description": "Which."}},
    "required": ["action", "id"],
    "additionalProperties": False,
}
ACTIONS = [CREATE, UPDATE, DELETE]
WHOLES = [
    pytest.param({"anyOf": ACTIONS}, id="anyOf"),
    pytest.param({"type": "object", "oneOf": ACTIONS, "discriminator": {"propertyName": "action"}}, id="oneOf"),
    pytest.param({"allOf": [{"anyOf": ACTIONS}]}, id="allOf"),
    pytest.param({"$ref": "#/$defs/A", "$defs": {"A": {"oneOf": ACTIONS}}}, id="reference"),
    pytest.param({"anyOf": [{"$ref": f"#/definitions/{n}"} for n in (0, 1, 2)],
                  "definitions": {str(n): each for n, each in enumerate(ACTIONS)}}, id="references"),
    pytest.param({"anyOf": [{"anyOf": [CREATE, UPDATE]}, {"type": "null"}, DELETE]}, id="nested, or null"),
]  # fmt: skip


@pytest.mark.parametrize("profile", EVERY)
@pytest.mark.parametrize("schema", WHOLES)
def test_all_variants_of_a_tool_can_be_called(schema: Json, profile: Profile) -> None:
    made = compile_schema(schema, profile)
    assert made.parameters["properties"]["action"] == {"type": "string", "enum": ["create", "update", "delete"]}
    assert made.parameters["properties"]["id"] == {"type": "integer", "description": "Which."}
    names = made.parameters["properties"]["name"]["anyOf"]
    assert names[0] == {"type": "string"} and len(names) == 2
    assert made.parameters["required"] == ["action"]
    assert made.parameters["additionalProperties"] is False
    assert made.lost[-1] == Loss("", "alternatives at the top: the arguments of all of them")


def test_the_variants_of_a_tool_are_told_in_words() -> None:
    made = compile_schema({"description": "Does it.", "anyOf": ACTIONS}, OPENAI)
    assert made.parameters["description"] == (
        'Does it. One of: {action: "create", name, size?} (Makes one.) | {action: "update", id, name?}'
        ' | {action: "delete", id}'
    )


def test_a_hundred_variants_keep_all_their_arguments() -> None:
    variants = [
        {"properties": {"do": {"const": n}, f"only_{n}": {"type": "string"}}, "required": ["do"]} for n in range(100)
    ]
    made = compile_schema({"type": "object", "oneOf": variants}, OPENAI)
    assert made.parameters["properties"]["do"]["enum"] == list(range(100))
    assert len(made.parameters["properties"]) == 101
    assert len(made.parameters["description"]) <= 1_500


@pytest.mark.parametrize("profile", EVERY)
def test_of_two_limits_the_tighter_holds_and_what_cannot_be_said_is_listed(profile: Profile) -> None:
    parts = [
        {"type": ["number", "string"], "minimum": 0, "maximum": 9, "enum": [1, 2, 3]},
        {"type": ["integer", "null"], "minimum": 2, "maximum": 20, "enum": [2, 3, 4]},
    ]
    assert it({"allOf": parts}, profile) == {"type": "integer", "minimum": 2, "maximum": 9, "enum": [2, 3]}
    made = compile_schema(one({"type": "string", "format": "date", "allOf": [{"format": "uri"}, False]}), profile)
    assert made.parameters["properties"]["it"]["format"] == "date"
    assert made.lost[:2] == (
        Loss("it", 'format: "uri", which conflicts with another value'),
        Loss("it", "no value is valid"),
    )


@pytest.mark.parametrize("profile", EVERY)
def test_alternatives_within_all_of_and_beside_others_are_kept(profile: Profile) -> None:
    either = [{"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}, {"type": "string"}]
    other = [{"type": "object", "properties": {"b": {"type": "string"}}, "required": ["b"]}, {"type": "string"}]
    assert it({"allOf": [{"anyOf": either}]}, profile) == {"anyOf": either}
    found = it({"anyOf": either, "oneOf": other}, profile)
    assert found["anyOf"][0]["properties"].keys() == {"a", "b"}
    assert found["anyOf"][3] == {"type": "string"}


@pytest.mark.parametrize("profile", EVERY)
def test_what_is_silently_dropped_elsewhere_is_listed(profile: Profile) -> None:
    made = compile_schema({"type": "object", "not": {"required": ["a", "b"]}, "enum": [{}]}, profile)
    assert made.lost == (Loss("", 'not: {"required": ["a", "b"]}'), Loss("", "enum: [{}]"))
    overlapping = [{"type": "string", "maxLength": 3}, {"type": "string", "minLength": 2}]
    assert Loss("it", "exactly one alternative must match") in compile_schema(one({"oneOf": overlapping}), profile).lost
    assert compile_schema(one({"properties": {"a": False}}), profile).lost == (
        Loss("it.a", "the property is forbidden"),
    )


@pytest.mark.parametrize("profile", EVERY)
def test_what_is_required_and_not_declared_is_declared(profile: Profile) -> None:
    schema = {"type": "object", "properties": {"it": {"required": ["a"]}}, "required": ["b"]}
    assert compile_schema(schema, profile).parameters == {
        "type": "object",
        "properties": {"it": {"type": "object", "properties": {"a": {}}, "required": ["a"]}, "b": {}},
        "required": ["b"],
    }


@pytest.mark.parametrize("profile", EVERY)
def test_what_a_pattern_allows_is_not_refused(profile: Profile) -> None:
    patterns = {"patternProperties": {"^x-": {"type": "string"}}, "additionalProperties": False}
    found = it({"type": "object", **patterns}, profile)
    assert found["additionalProperties"] == {"type": "string"}


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
    made = compile_schema(one({"type": "string", word: value}), profile)
    assert made.parameters == one({"type": "string"})
    assert made.lost == (Loss("it", f"{word}: {json.dumps(value)} is invalid"),)


@pytest.mark.parametrize("profile", EVERY)
def test_an_unknown_type_is_described_in_words(profile: Profile) -> None:
    made = compile_schema(one({"type": "int"}), profile)
    assert made.parameters == one({"description": '(type: "int")'})
    assert made.lost == (Loss("it", "type: described in words"),)
    assert it({"type": ["string", "file"]}, profile)["type"] == "string"


def test_definitions_have_names_of_their_own_that_a_reference_can_say() -> None:
    schema = one({"$ref": "#/$defs/N<T>"}, **{
        "$defs": {"N<T>": {"properties": {"x": {"$ref": "#/$defs/N<T>"}, "y": {"$ref": "#/definitions/N_T"}}}},
        "definitions": {"N_T": {"properties": {"z": {"$ref": "#/definitions/N_T"}}}},
    })  # fmt: skip
    schema["properties"]["whole"] = {"$ref": "#"}
    made = compile_schema(schema, OPENAI).parameters
    assert made["$defs"].keys() == {"N_T", "N_T_2", "root"}
    assert made["$defs"]["N_T"]["properties"]["x"] == {"$ref": "#/$defs/N_T"}
    assert made["$defs"]["N_T_2"]["properties"]["z"] == {"$ref": "#/$defs/N_T_2"}
    assert made["properties"]["whole"] == made["$defs"]["root"]["properties"]["whole"] == {"$ref": "#/$defs/root"}


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


def test_keywords_that_gemini_lacks_are_described_in_words() -> None:
    made = compile_schema(one({"type": "string", "pattern": "^a", "format": "uuid", "default": "ab"}), GEMINI)
    assert made.parameters == one({"type": "string", "description": '(pattern: "^a"; format: "uuid"; default: "ab")'})
    assert made.lost == (Loss("it", "pattern: described in words"), Loss("it", "format: described in words"))


def test_what_cannot_even_be_told_is_lost() -> None:
    made = compile_schema(one({"type": "string", "pattern": "a" * 500}), GEMINI)
    assert made.parameters == one({"type": "string"})
    assert made.lost == (Loss("it", "pattern"),)


def test_names_that_a_provider_refuses_are_others_and_found_again() -> None:
    schema = {
        "type": "object",
        "properties": {"$top": {"type": "object", "properties": {"a/b": {}}}},
        "required": ["$top"],
    }

    made = compile_schema(schema, ANTHROPIC)

    (outer,) = made.parameters["properties"]
    (inner,) = made.parameters["properties"][outer]["properties"]
    assert re.fullmatch("_top_[0-9a-f]{8}", outer)
    assert made.parameters["required"] == [outer]
    assert made.lost == (Loss("$top", f"its name: {outer}"), Loss("$top.a/b", f"its name: {inner}"))
    assert restore_names({outer: {inner: 1, "c": [{inner: 2}]}}, made.renamed) == {
        "$top": {"a/b": 1, "c": [{"a/b": 2}]}
    }
    assert compile_schema(schema, OPENAI).parameters == schema


@pytest.mark.parametrize("profile", EVERY)
def test_places_of_items_are_alternatives(profile: Profile) -> None:
    made = compile_schema(one({"type": "array", "prefixItems": [{"type": "number"}, {"type": "string"}]}), profile)
    assert made.parameters["properties"]["it"]["items"] == {"anyOf": [{"type": "number"}, {"type": "string"}]}
    assert made.lost == (Loss("it", "the positions of its items: any item anywhere"),)


@pytest.mark.parametrize("profile", EVERY)
def test_an_array_always_says_what_is_in_it(profile: Profile) -> None:
    assert it({"type": "array"}, profile) == {"type": "array", "items": {}}


def test_what_is_too_deep_is_anything() -> None:
    schema: Json = {"type": "string"}
    for _ in range(40):
        schema = one(schema)
    made = compile_schema(schema, GEMINI)
    assert made.lost == (Loss(".".join(["it"] * 11), "nested too deeply: any JSON"),)


@pytest.mark.parametrize("profile", EVERY)
def test_a_schema_that_multiplies_itself_is_cut_where_it_is_deepest(profile: Profile) -> None:
    definitions: Json = {"d0": {"type": "string"}}
    for number in range(1, 30):
        part = {"$ref": f"#/$defs/d{number - 1}"}
        definitions[f"d{number}"] = {"anyOf": [part, part]}
    schema = one({"$ref": "#/$defs/d29"}, **{"$defs": definitions})
    schema["properties"] |= {"b": {"type": "string"}, "c": {"type": "integer"}}
    made = compile_schema(schema, profile)
    assert made.parameters["properties"].keys() == {"it", "b", "c"}
    assert made.parameters["properties"]["c"] == {"type": "integer"}
    assert "anyOf" in made.parameters["properties"]["it"]
    assert Loss("it", "too large: any JSON") in made.lost
    assert len(json.dumps(made.parameters)) < 200_000


@pytest.mark.parametrize("profile", EVERY)
def test_a_wide_schema_keeps_all_its_properties(profile: Profile) -> None:
    end = {"type": "object", "properties": {"x": {"type": "string", "maxLength": 100, "description": "What it is."}}}
    leaf = {"type": "object", "properties": {f"leaf{n}": {"$ref": "#/$defs/end"} for n in range(8)}}
    branch = {"type": "object", "properties": {f"branch{n}": {"$ref": "#/$defs/leaf"} for n in range(10)}}
    schema: Json = {"type": "object", "properties": {f"p{n}": {"$ref": "#/$defs/branch"} for n in range(60)}}
    schema["$defs"] = {"end": end, "leaf": leaf, "branch": branch}
    text = json.dumps(branch)
    for name, part in (("leaf", leaf), ("end", end)):
        text = text.replace(f'{{"$ref": "#/$defs/{name}"}}', json.dumps(part))
    written_out = {"type": "object", "properties": {f"p{n}": json.loads(text) for n in range(60)}}

    said_once = compile_schema(schema, profile)
    assert not any("too much" in one.what for one in said_once.lost)
    assert len(json.dumps(said_once.parameters)) < 1.2 * len(json.dumps(schema))
    cut = compile_schema(written_out, profile)
    assert len(cut.parameters["properties"]) == 60
    last = cut.parameters["properties"]["p59"]["properties"]["branch9"]["properties"]
    assert last["leaf7"] == {"type": "object", "description": "any JSON"}
    assert len(cut.lost) == 60 * 10 * 8
    most = compile_schema({"properties": {f"p{n}": leaf for n in range(4_000)}}, profile)
    assert len(most.parameters["properties"]) == 4_000


@pytest.mark.parametrize("profile", EVERY)
def test_secrets_do_not_go_to_a_provider(profile: Profile) -> None:
    masks.add("hunter2-in-a-schema")
    secret = {
        "type": "string",
        "enum": ["a", "hunter2-in-a-schema"],
        "title": "x",
        "description": "hunter2-in-a-schema",
    }
    schema = one(secret, **{"$defs": {"S": {"const": "hunter2-in-a-schema"}}})
    schema["properties"] |= {"other": {"$ref": "#/$defs/S"}, "hunter2-in-a-schema": {"default": "hunter2-in-a-schema"}}
    made = compile_schema(schema, profile)
    assert "hunter2" not in json.dumps(made.parameters)
    assert made.parameters["properties"]["it"]["enum"] == ["a", "[secret]"]
    assert Loss("", "secrets in the schema: masked") in made.lost


def test_invisible_characters_are_not_in_texts_for_models() -> None:
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


def refusals(parameters: Json, profile: Profile) -> list[str]:
    """Violations of a provider's published rules."""
    if parameters.get("type") != "object" or {"anyOf", "oneOf", "allOf", "$ref", "not", "enum"} & parameters.keys():
        return ["the whole is not simply an object"]
    found: list[str] = []
    known = {f"#/$defs/{name}" for name in parameters.get("$defs", {})}
    for each in subschemas(parameters):
        words = each.keys() - {
            "type",
            "properties",
            "required",
            "items",
            "additionalProperties",
            "anyOf",
            "$ref",
            "$defs",
        }
        if not words <= profile.words | {"description"}:
            found.append(f"it knows no {words}")
        if "$ref" in each and not (each["$ref"] in known and each.keys() - {"$ref"} <= set(profile.beside)):
            found.append(f"a reference: {each}")
        if isinstance(each.get("type"), list) and not profile.type_lists:
            found.append(f"a list of types: {each}")
        if each.get("type") == "array" and not isinstance(each.get("items"), dict):
            found.append(f"no items: {each}")
        if not set(each.get("required", ())) <= each.get("properties", {}).keys():
            found.append(f"required and not declared: {each}")
        if profile.key is not None:
            found += [f"a name: {key}" for key in each.get("properties", {}) if not profile.key.fullmatch(key)]
        if not profile.any_choices and any(not isinstance(one, str | int | float) for one in each.get("enum", ())):
            found.append(f"choices: {each}")
    if not profile.recursion:
        leads = {name: re.findall(r'"#/\$defs/([^"]+)"', json.dumps(each)) for name, each in
                 parameters.get("$defs", {}).items()}  # fmt: skip
        for name in leads:
            seen, ahead = set[str](), list(leads[name])
            while ahead:
                part = ahead.pop()
                ahead += leads[part] if part not in seen else []
                seen.add(part)
            if name in seen:
                found.append(f"a circle: {name}")
    return found


@given(_TREES, st.sampled_from([PLAIN, OPENAI, ANTHROPIC, GEMINI]))
def test_nothing_is_declared_that_a_provider_refuses(schema: object, profile: Profile) -> None:
    made = compile_schema(schema, profile)
    assert not refusals(made.parameters, profile)
    json.dumps(made.parameters, allow_nan=False)
    jsonschema_rs.meta.validate(made.parameters)


@pytest.mark.parametrize("profile", EVERY)
def test_a_schema_of_very_many_variants_keeps_its_arguments(profile: Profile) -> None:
    names = [f"p{n}" for n in range(10)]
    variants = [
        {"type": "object", "properties": {name: {"type": "string", "maxLength": n} for name in names}}
        for n in range(1, 500)
    ]
    made = compile_schema({"type": "object", "anyOf": variants}, profile)
    assert made.parameters["properties"].keys() == set(names)
    nested = compile_schema(one({"oneOf": variants}), profile)
    assert nested.parameters["properties"].keys() == {"it"}


def test_where_references_are_not_accepted_each_use_has_the_whole_definition() -> None:
    point = {"type": "object", "properties": {name: {"type": "number", "description": name * 40} for name in "xyz"}}
    schema = {"$defs": {"point": point}, "properties": {name: {"$ref": "#/$defs/point"} for name in ("from", "to")}}
    shared, inline = (compile_schema(schema, profile).parameters for profile in (PLAIN, INLINE))
    assert "$defs" in shared
    assert "$defs" not in inline and "$ref" not in str(inline)
    assert [*inline["properties"]["to"]["properties"]] == ["x", "y", "z"]


def test_where_references_are_not_accepted_a_schema_hardly_grows() -> None:
    kinds = [f"kind{number}" for number in range(6)]

    def folder(child: str) -> Json:
        about = {name: {"type": "string", "description": "What it is about. " * 9} for name in ("name", "owner")}
        return {"type": "object", "properties": about | {kind: {"$ref": f"#/$defs/{child}"} for kind in kinds}}

    definitions = {kind: folder(after) for kind, after in itertools.pairwise(kinds)}
    definitions[kinds[-1]] = {"type": "object", "properties": {"size": {"type": "integer"}}}
    schema = {"type": "object", **folder(kinds[0]), "$defs": definitions}
    made = compile_schema(schema, INLINE)
    assert len(json.dumps(made.parameters)) <= 1.2 * len(json.dumps(schema))
    assert made.parameters["properties"].keys() == {"name", "owner", *kinds}
    assert made.parameters["properties"]["kind1"]["type"] == "object"
    assert any(one.what == "too large: any JSON" for one in made.lost)


def test_a_property_that_a_part_of_all_of_forbids_is_kept_and_reported() -> None:
    closed = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}
    opened = {"type": "object", "properties": {"b": {"type": "string"}}}
    loss = "another part of the schema forbids it"
    for parts in ([closed, opened], [opened, closed]):
        assert Loss("b", loss) in compile_schema({"type": "object", "allOf": parts}, PLAIN).lost
        assert Loss("it.b", loss) in compile_schema(one({"allOf": parts}), PLAIN).lost
    made = compile_schema({"type": "object", "allOf": [closed, {**closed, "properties": {}}]}, PLAIN)
    assert Loss("a", loss) in made.lost and "a" in made.parameters["properties"]
    assert compile_schema({"type": "object", "allOf": [closed, closed]}, PLAIN).lost == ()


def test_a_pattern_that_only_javascript_has_is_described() -> None:
    made = compile_schema(one({"type": "string", "pattern": r"^\p{L}+$"}), PLAIN)
    assert made.parameters["properties"]["it"] == {"type": "string", "description": r'(pattern: "^\\p{L}+$")'}
    assert made.lost == (Loss("it", "pattern: described in words"),)


def test_alternatives_of_one_shape_add_no_description() -> None:
    variant = {"type": "object", "properties": {"a": {"type": "string"}}}
    made = compile_schema({"type": "object", "anyOf": [variant, variant]}, PLAIN)
    assert "description" not in made.parameters


def test_a_value_at_the_greatest_depth_keeps_its_keywords() -> None:
    schema: Json = {"type": "string", "enum": ["a", "b"], "description": "One."}
    for _ in range(11):
        schema = {"type": "object", "properties": {"it": schema}}
    made = compile_schema(schema, PLAIN)
    deepest: Any = made.parameters
    for _ in range(11):
        deepest = deepest["properties"]["it"]
    assert deepest == {"type": "string", "enum": ["a", "b"], "description": "One."}
    assert made.lost == ()


@pytest.mark.parametrize("name", PROVIDERS)
def test_numbers_too_long_for_python_are_left_out(name: str) -> None:
    """They are read as infinities, which would be sent as null, and a provider refuses `"maximum": null`."""
    limit = {"type": "integer", "minimum": -math.inf, "maximum": math.inf, "default": math.inf, "enum": [1, math.inf]}
    compiled = compile_schema({"type": "object", "properties": {"n": limit}}, PROVIDERS[name].profile)
    assert compiled.parameters["properties"]["n"]["type"] == "integer"
    assert "null" not in types.encode(compiled.parameters).decode()
    assert "maximum: Infinity is invalid" in [loss.what for loss in compiled.lost]
