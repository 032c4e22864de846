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
Json = dict[str, Any]


@pytest.fixture(params=[PLAIN, OPENAI, ANTHROPIC, GEMINI], ids=lambda profile: profile.name)
def profile(request: pytest.FixtureRequest) -> Profile:
    return request.param


def arguments(schema: object, **more: Any) -> Json:
    """An input schema with one argument, named `it`."""
    return {"type": "object", "properties": {"it": schema}, **more}


def argument(member: object, profile: Profile, **more: Any) -> Json:
    """The compiled form of an argument."""
    return compile_schema(arguments(member, **more), profile).parameters["properties"]["it"]


def test_a_plain_schema_is_left_as_it_is(profile: Profile) -> None:
    schema = arguments({"type": "string", "description": "What.", "enum": ["a", "b"]}, required=["it"])
    compiled = compile_schema(schema, profile)
    assert compiled == compile_schema({**schema, "$schema": "x", "$id": "y", "x-order": 1}, profile)
    assert (compiled.parameters, compiled.lost) == (schema, ())


@pytest.mark.parametrize(
    "schema",
    [None, True, [], {}, {"type": "object"}, {"type": "string"}, {"properties": 7}, {"nullable": True}, {"enum": [1]}],
)
def test_a_schema_of_anything_becomes_that_of_an_object(schema: object, profile: Profile) -> None:
    assert compile_schema(schema, profile).parameters == {"type": "object", "properties": {}}


PLACE = {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}
FORMS: dict[str, tuple[Json, Json]] = {
    "reference": (
        {"$ref": "#/$defs/P", "description": "Where."},
        {**PLACE, "description": "Where."},
    ),
    "array of anything": ({"type": "array"}, {"type": "array", "items": {}}),
    "values without a type": ({"enum": ["a", "b"]}, {"type": "string", "enum": ["a", "b"]}),
    "limits of all of": (
        {
            "allOf": [
                {"type": ["number", "string"], "minimum": 0, "maximum": 9, "enum": [1, 2, 3]},
                {"type": ["integer", "null"], "minimum": 2, "maximum": 20, "enum": [2, 3, 4]},
            ]
        },
        {"type": "integer", "minimum": 2, "maximum": 9, "enum": [2, 3]},
    ),
    "nullable alternatives": (
        {"anyOf": [{"type": "string"}, {"type": "integer"}], "nullable": True},
        {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]},
    ),
}


@pytest.mark.parametrize(("schema", "expected"), FORMS.values(), ids=FORMS)
def test_an_argument_has_the_form_that_every_provider_takes(schema: Json, expected: Json, profile: Profile) -> None:
    assert argument(schema, profile, **{"$defs": {"P": PLACE}}) == expected


def test_a_schema_that_refers_to_itself_is_kept_where_that_is_allowed_and_cut_elsewhere() -> None:
    tree = {"type": "object", "properties": {"left": {"$ref": "#/$defs/T"}}}
    schema = arguments({"$ref": "#/$defs/T"}, **{"$defs": {"T": tree}})
    for profile in (PLAIN, OPENAI, ANTHROPIC):
        kept = compile_schema(schema, profile)
        assert kept.parameters == {**arguments({"$ref": "#/$defs/T"}), "$defs": {"T": tree}}
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


@pytest.mark.parametrize(
    "where", ["#/$defs/P", "#/properties/from", "#point", "point.json", "https://e.org/point.json"]
)
def test_a_schema_that_is_used_twice_is_sent_once(profile: Profile, where: str) -> None:
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

    compiled = compile_schema(schema, profile)

    (name,) = compiled.parameters["$defs"]
    reference = {"$ref": f"#/$defs/{name}"}
    beside = {word: schema["properties"]["to"][word] for word in profile.beside}  # type: ignore[index]
    if profile is GEMINI:
        beside = {"description": 'Where to. (default: {"x": 0, "y": 0})'}
    assert compiled.parameters["$defs"][name] == POINT
    assert compiled.parameters["properties"]["from"] == reference
    assert compiled.parameters["properties"]["over"] == {"type": "array", "items": reference}
    assert compiled.parameters["properties"]["to"] == {**reference, **beside}
    assert compiled.lost == ()


def test_members_beside_a_reference_are_merged_with_it() -> None:
    member = {"$ref": "#/$defs/P", "properties": {"z": {"type": "number"}}, "required": ["z"]}
    merged = argument(member, OPENAI, **{"$defs": {"P": POINT}})
    assert sorted(merged["properties"]) == sorted(merged["required"]) == ["x", "y", "z"]


def test_a_property_may_be_named_like_a_keyword() -> None:
    tree = {"type": "object", "properties": {"default": {"$ref": "#/$defs/T"}, "examples": {"$ref": "#/$defs/T"}}}
    schema = {"properties": {"$id": {"$ref": "#/$defs/T"}, "definitions": {"$ref": "#/$defs/T"}}, "$defs": {"T": tree}}
    assert compile_schema(schema, OPENAI).parameters == {"type": "object", **schema}
    assert "$ref" not in json.dumps(compile_schema(schema, GEMINI).parameters)


INVALID = [
    ("minimum", "0"), ("exclusiveMaximum", True), ("multipleOf", 0), ("minLength", -1), ("maxItems", "2"),
    ("uniqueItems", "yes"), ("enum", []), ("enum", "a"), ("pattern", "("), ("pattern", 5), ("title", 5),
    ("description", None), ("format", 7),
]  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "expected", "loss"),
    [
        *(({"type": "string", word: value}, {"type": "string"}, f"{word}: {json.dumps(value)} is invalid")
          for word, value in INVALID),
        ({"$ref": "https://example.org/schema"}, {}, "unresolved reference: https://example.org/schema"),
        ({"type": "int"}, {"description": '(type: "int")'}, "type: described in words"),
        ({"type": "array", "prefixItems": [{"type": "number"}, {"type": "string"}]},
         {"type": "array", "items": {"anyOf": [{"type": "number"}, {"type": "string"}]}},
         "the positions of its items: any item anywhere"),
    ],
)  # fmt: skip
def test_a_keyword_that_is_left_out_or_reworded_is_reported(
    schema: Json, expected: Json, loss: str, profile: Profile
) -> None:
    compiled = compile_schema(arguments(schema), profile)
    assert compiled.parameters == arguments(expected)
    assert compiled.lost == (Loss("it", loss),)


def test_an_unknown_type_among_others_is_left_out(profile: Profile) -> None:
    assert argument({"type": ["string", "file"]}, profile)["type"] == "string"


def test_the_parts_of_all_of_are_merged(profile: Profile) -> None:
    parts = [
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
        {"properties": {"b": {"type": "integer"}}, "required": ["b"]},
    ]
    merged = argument({"allOf": parts}, profile)
    assert merged["properties"] == {"a": {"type": "string"}, "b": {"type": "integer"}}
    assert sorted(merged["required"]) == ["a", "b"]


def test_alternatives_at_the_top_become_the_arguments_of_all_of_them(profile: Profile) -> None:
    compiled = compile_schema(
        {
            "anyOf": [
                {"type": "object", "properties": {"id": {"type": "string"}, "a": {}}, "required": ["id", "a"]},
                {"type": "object", "properties": {"id": {"type": "string"}, "b": {}}, "required": ["id"]},
            ]
        },
        profile,
    )

    assert compiled.parameters == {
        "type": "object",
        "description": "One of: {id, a} | {id, b?}",
        "properties": {"id": {"type": "string"}, "a": {}, "b": {}},
        "required": ["id"],
    }
    assert compiled.lost == (Loss("", "alternatives at the top: the arguments of all of them"),)


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


@pytest.mark.parametrize("schema", WHOLES)
def test_all_variants_of_a_tool_can_be_called(schema: Json, profile: Profile) -> None:
    compiled = compile_schema(schema, profile)
    assert compiled.parameters["properties"]["action"] == {"type": "string", "enum": ["create", "update", "delete"]}
    assert compiled.parameters["properties"]["id"] == {"type": "integer", "description": "Which."}
    names = compiled.parameters["properties"]["name"]["anyOf"]
    assert names[0] == {"type": "string"} and len(names) == 2
    assert compiled.parameters["required"] == ["action"]
    assert compiled.parameters["additionalProperties"] is False
    assert compiled.lost[-1] == Loss("", "alternatives at the top: the arguments of all of them")


def test_the_variants_of_a_tool_are_described_in_words() -> None:
    compiled = compile_schema({"description": "Does it.", "anyOf": ACTIONS}, OPENAI)
    assert compiled.parameters["description"] == (
        'Does it. One of: {action: "create", name, size?} (Makes one.) | {action: "update", id, name?}'
        ' | {action: "delete", id}'
    )


def test_a_hundred_variants_keep_all_their_arguments() -> None:
    variants = [
        {"properties": {"do": {"const": n}, f"only_{n}": {"type": "string"}}, "required": ["do"]} for n in range(100)
    ]
    compiled = compile_schema({"type": "object", "oneOf": variants}, OPENAI)
    assert compiled.parameters["properties"]["do"]["enum"] == list(range(100))
    assert len(compiled.parameters["properties"]) == 101
    assert len(compiled.parameters["description"]) <= 1_500


def test_limits_that_contradict_each_other_are_reported(profile: Profile) -> None:
    compiled = compile_schema(
        arguments({"type": "string", "format": "date", "allOf": [{"format": "uri"}, False]}), profile
    )
    assert compiled.parameters["properties"]["it"]["format"] == "date"
    assert compiled.lost[:2] == (
        Loss("it", 'format: "uri", which conflicts with another value'),
        Loss("it", "no value is valid"),
    )


def test_alternatives_within_all_of_and_beside_others_are_kept(profile: Profile) -> None:
    either = [{"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}, {"type": "string"}]
    other = [{"type": "object", "properties": {"b": {"type": "string"}}, "required": ["b"]}, {"type": "string"}]
    assert argument({"allOf": [{"anyOf": either}]}, profile) == {"anyOf": either}
    alternatives = argument({"anyOf": either, "oneOf": other}, profile)["anyOf"]
    assert alternatives[0]["properties"].keys() == {"a", "b"}
    assert alternatives[3] == {"type": "string"}


def test_constraints_that_are_dropped_are_reported(profile: Profile) -> None:
    compiled = compile_schema({"type": "object", "not": {"required": ["a", "b"]}, "enum": [{}]}, profile)
    assert compiled.lost == (Loss("", 'not: {"required": ["a", "b"]}'), Loss("", "enum: [{}]"))
    overlapping = [{"type": "string", "maxLength": 3}, {"type": "string", "minLength": 2}]
    assert (
        Loss("it", "exactly one alternative must match")
        in compile_schema(arguments({"oneOf": overlapping}), profile).lost
    )
    assert compile_schema(arguments({"properties": {"a": False}}), profile).lost == (
        Loss("it.a", "the property is forbidden"),
    )


def test_a_property_that_is_required_and_not_declared_is_declared(profile: Profile) -> None:
    schema = {"type": "object", "properties": {"it": {"required": ["a"]}}, "required": ["b"]}
    assert compile_schema(schema, profile).parameters == {
        "type": "object",
        "properties": {"it": {"type": "object", "properties": {"a": {}}, "required": ["a"]}, "b": {}},
        "required": ["b"],
    }


def test_properties_that_a_pattern_allows_are_not_forbidden(profile: Profile) -> None:
    patterns = {"patternProperties": {"^x-": {"type": "string"}}, "additionalProperties": False}
    assert argument({"type": "object", **patterns}, profile)["additionalProperties"] == {"type": "string"}


def test_a_list_of_types_becomes_alternatives_where_lists_are_refused() -> None:
    listed = {"type": ["array", "null"], "items": {"type": "string"}, "maxItems": 3, "description": "Which."}
    assert argument(listed, ANTHROPIC) == listed
    assert argument(listed, GEMINI) == {
        "description": "Which.",
        "anyOf": [{"type": "array", "maxItems": 3, "items": {"type": "string"}}, {"type": "null"}],
    }


def test_nullable_is_a_type(profile: Profile) -> None:
    compiled = argument({"type": "string", "enum": ["a"], "nullable": True}, profile)
    if profile is GEMINI:
        assert compiled == {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}]}
    else:
        assert compiled == {"type": ["string", "null"], "enum": ["a", None]}


def test_gemini_gets_choices_of_strings_and_numbers_by_type_and_others_in_words() -> None:
    assert argument({"enum": ["a", 1, None], "minimum": 0}, GEMINI) == {
        "anyOf": [{"type": "integer", "minimum": 0, "enum": [1]}, {"type": "null"}, {"type": "string", "enum": ["a"]}]
    }
    assert argument({"const": True}, GEMINI) == {"type": "boolean", "description": "(enum: [true])"}
    assert argument({"enum": [None]}, GEMINI) == {"type": "null"}


def test_definitions_get_different_names_that_a_reference_can_contain() -> None:
    schema = arguments({"$ref": "#/$defs/N<T>"}, **{
        "$defs": {"N<T>": {"properties": {"x": {"$ref": "#/$defs/N<T>"}, "y": {"$ref": "#/definitions/N_T"}}}},
        "definitions": {"N_T": {"properties": {"z": {"$ref": "#/definitions/N_T"}}}},
    })  # fmt: skip
    schema["properties"]["whole"] = {"$ref": "#"}
    compiled = compile_schema(schema, OPENAI).parameters
    assert compiled["$defs"].keys() == {"N_T", "N_T_2", "root"}
    assert compiled["$defs"]["N_T"]["properties"]["x"] == {"$ref": "#/$defs/N_T"}
    assert compiled["$defs"]["N_T_2"]["properties"]["z"] == {"$ref": "#/$defs/N_T_2"}
    assert (
        compiled["properties"]["whole"] == compiled["$defs"]["root"]["properties"]["whole"] == {"$ref": "#/$defs/root"}
    )


def test_one_of_is_any_of_and_const_stays_a_single_value(profile: Profile) -> None:
    first, second = argument({"oneOf": [{"const": "a"}, {"type": "integer"}]}, profile)["anyOf"]
    assert first.pop("type", "string") == "string"
    assert first in ({"const": "a"}, {"enum": ["a"]})
    assert second == {"type": "integer"}


def test_keywords_that_gemini_lacks_are_described_in_words_if_those_are_short() -> None:
    compiled = compile_schema(arguments({"type": "string", "pattern": "^a", "format": "uuid", "default": "ab"}), GEMINI)
    words = '(pattern: "^a"; format: "uuid"; default: "ab")'
    assert compiled.parameters == arguments({"type": "string", "description": words})
    assert compiled.lost == (Loss("it", "pattern: described in words"), Loss("it", "format: described in words"))
    long = compile_schema(arguments({"type": "string", "pattern": "a" * 500}), GEMINI)
    assert (long.parameters, long.lost) == (arguments({"type": "string"}), (Loss("it", "pattern"),))


def test_names_that_a_provider_refuses_are_replaced_and_restored() -> None:
    schema = {
        "type": "object",
        "properties": {"$top": {"type": "object", "properties": {"a/b": {}}}},
        "required": ["$top"],
    }

    compiled = compile_schema(schema, ANTHROPIC)

    (outer,) = compiled.parameters["properties"]
    (inner,) = compiled.parameters["properties"][outer]["properties"]
    assert re.fullmatch("_top_[0-9a-f]{8}", outer)
    assert compiled.parameters["required"] == [outer]
    assert compiled.lost == (Loss("$top", f"its name: {outer}"), Loss("$top.a/b", f"its name: {inner}"))
    assert restore_names({outer: {inner: 1, "c": [{inner: 2}]}}, compiled.renamed) == {
        "$top": {"a/b": 1, "c": [{"a/b": 2}]}
    }
    assert compile_schema(schema, OPENAI).parameters == schema


def test_a_schema_that_multiplies_itself_is_cut_where_it_is_deepest(profile: Profile) -> None:
    definitions: Json = {"d0": {"type": "string"}}
    for number in range(1, 30):
        part = {"$ref": f"#/$defs/d{number - 1}"}
        definitions[f"d{number}"] = {"anyOf": [part, part]}
    schema = arguments({"$ref": "#/$defs/d29"}, **{"$defs": definitions})
    schema["properties"] |= {"b": {"type": "string"}, "c": {"type": "integer"}}
    compiled = compile_schema(schema, profile)
    assert compiled.parameters["properties"].keys() == {"it", "b", "c"}
    assert compiled.parameters["properties"]["c"] == {"type": "integer"}
    assert "anyOf" in compiled.parameters["properties"]["it"]
    assert Loss("it", "too large: any JSON") in compiled.lost
    assert len(json.dumps(compiled.parameters)) < 200_000


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

    shared = compile_schema(schema, profile)
    assert not any("too large" in loss.what for loss in shared.lost)
    assert len(json.dumps(shared.parameters)) < 1.2 * len(json.dumps(schema))
    cut = compile_schema(written_out, profile)
    assert len(cut.parameters["properties"]) == 60
    last = cut.parameters["properties"]["p59"]["properties"]["branch9"]["properties"]
    assert last["leaf7"] == {"type": "object", "description": "any JSON"}
    assert len(cut.lost) == 60 * 10 * 8
    most = compile_schema({"properties": {f"p{n}": leaf for n in range(4_000)}}, profile)
    assert len(most.parameters["properties"]) == 4_000


def test_secrets_do_not_go_to_a_provider(profile: Profile) -> None:
    masks.add("hunter2-in-a-schema")
    secret = {
        "type": "string",
        "enum": ["a", "hunter2-in-a-schema"],
        "title": "x",
        "description": "hunter2-in-a-schema",
    }
    schema = arguments(secret, **{"$defs": {"S": {"const": "hunter2-in-a-schema"}}})
    schema["properties"] |= {"other": {"$ref": "#/$defs/S"}, "hunter2-in-a-schema": {"default": "hunter2-in-a-schema"}}
    compiled = compile_schema(schema, profile)
    assert "hunter2" not in json.dumps(compiled.parameters)
    assert compiled.parameters["properties"]["it"]["enum"] == ["a", "[secret]"]
    assert Loss("", "secrets in the schema: masked") in compiled.lost


def test_invisible_characters_are_not_in_texts_for_models() -> None:
    hidden = "Fine.\u200b\u202e\U000e0041"
    assert argument({"type": "string", "description": hidden, "default": hidden}, OPENAI) == {
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
        inner = [schema.get("items"), schema.get("additionalProperties"), *schema.get("anyOf", [])]
        for key in ("properties", "$defs"):
            inner += (schema.get(key) or {}).values()
        for part in inner:
            yield from subschemas(part)


STRUCTURE = {"type", "properties", "required", "items", "additionalProperties", "anyOf", "$ref", "$defs", "description"}


def refusals(parameters: Json, profile: Profile) -> list[str]:
    """Violations of a provider's published rules."""
    if parameters.get("type") != "object" or {"anyOf", "oneOf", "allOf", "$ref", "not", "enum"} & parameters.keys():
        return ["the whole is not simply an object"]
    definitions = parameters.get("$defs", {})
    references = {f"#/$defs/{name}" for name in definitions}
    faults: list[str] = []
    for schema in subschemas(parameters):
        if not schema.keys() <= profile.words | STRUCTURE:
            faults.append(f"unknown keywords: {schema}")
        if "$ref" in schema and (schema["$ref"] not in references or not schema.keys() <= {"$ref", *profile.beside}):
            faults.append(f"a reference: {schema}")
        if isinstance(schema.get("type"), list) and not profile.type_lists:
            faults.append(f"a list of types: {schema}")
        if schema.get("type") == "array" and not isinstance(schema.get("items"), dict):
            faults.append(f"no items: {schema}")
        if not set(schema.get("required", ())) <= schema.get("properties", {}).keys():
            faults.append(f"required and not declared: {schema}")
        if profile.key is not None:
            faults += [f"a name: {key}" for key in schema.get("properties", {}) if not profile.key.fullmatch(key)]
        if not profile.any_choices and any(
            not isinstance(value, str | int | float) for value in schema.get("enum", ())
        ):
            faults.append(f"choices: {schema}")
    if not profile.recursion:
        uses = {name: re.findall(r'"#/\$defs/([^"]+)"', json.dumps(schema)) for name, schema in definitions.items()}
        faults += [f"a circle: {name}" for name in uses if name in reachable(uses, name)]
    return faults


def reachable(uses: dict[str, list[str]], start: str) -> set[str]:
    """The definitions that a definition refers to, directly or through others."""
    seen, ahead = set[str](), list(uses[start])
    while ahead:
        name = ahead.pop()
        ahead += uses[name] if name not in seen else []
        seen.add(name)
    return seen


@given(_TREES, st.sampled_from([PLAIN, OPENAI, ANTHROPIC, GEMINI]))
def test_no_schema_is_compiled_to_one_that_a_provider_refuses(schema: object, profile: Profile) -> None:
    compiled = compile_schema(schema, profile)
    assert not refusals(compiled.parameters, profile)
    json.dumps(compiled.parameters, allow_nan=False)
    jsonschema_rs.meta.validate(compiled.parameters)


def test_a_schema_of_very_many_variants_keeps_its_arguments(profile: Profile) -> None:
    names = [f"p{n}" for n in range(10)]
    variants = [
        {"type": "object", "properties": {name: {"type": "string", "maxLength": n} for name in names}}
        for n in range(1, 500)
    ]
    compiled = compile_schema({"type": "object", "anyOf": variants}, profile)
    assert compiled.parameters["properties"].keys() == set(names)
    nested = compile_schema(arguments({"oneOf": variants}), profile)
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
    compiled = compile_schema(schema, INLINE)
    assert len(json.dumps(compiled.parameters)) <= 1.2 * len(json.dumps(schema))
    assert compiled.parameters["properties"].keys() == {"name", "owner", *kinds}
    assert compiled.parameters["properties"]["kind1"]["type"] == "object"
    assert any(loss.what == "too large: any JSON" for loss in compiled.lost)


def test_a_property_that_a_part_of_all_of_forbids_is_kept_and_reported() -> None:
    closed = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}
    opened = {"type": "object", "properties": {"b": {"type": "string"}}}
    loss = "another part of the schema forbids it"
    for parts in ([closed, opened], [opened, closed]):
        assert Loss("b", loss) in compile_schema({"type": "object", "allOf": parts}, PLAIN).lost
        assert Loss("it.b", loss) in compile_schema(arguments({"allOf": parts}), PLAIN).lost
    compiled = compile_schema({"type": "object", "allOf": [closed, {**closed, "properties": {}}]}, PLAIN)
    assert Loss("a", loss) in compiled.lost and "a" in compiled.parameters["properties"]
    assert compile_schema({"type": "object", "allOf": [closed, closed]}, PLAIN).lost == ()


def test_a_pattern_that_only_javascript_has_is_described() -> None:
    compiled = compile_schema(arguments({"type": "string", "pattern": r"^\p{L}+$"}), PLAIN)
    assert compiled.parameters == arguments({"type": "string", "description": r'(pattern: "^\\p{L}+$")'})
    assert compiled.lost == (Loss("it", "pattern: described in words"),)


def test_alternatives_of_one_shape_add_no_description() -> None:
    variant = {"type": "object", "properties": {"a": {"type": "string"}}}
    compiled = compile_schema({"type": "object", "anyOf": [variant, variant]}, PLAIN)
    assert "description" not in compiled.parameters


def test_a_value_at_the_greatest_depth_keeps_its_keywords_and_deeper_ones_are_any_json() -> None:
    schema = value = {"type": "string", "enum": ["a", "b"], "description": "One."}
    for _ in range(11):
        schema = arguments(schema)
    compiled = compile_schema(schema, PLAIN)
    deepest: Any = compiled.parameters
    for _ in range(11):
        deepest = deepest["properties"]["it"]
    assert (deepest, compiled.lost) == (value, ())
    for _ in range(30):
        schema = arguments(schema)
    assert compile_schema(schema, GEMINI).lost == (Loss(".".join(["it"] * 11), "nested too deeply: any JSON"),)


@pytest.mark.parametrize("name", PROVIDERS)
def test_numbers_too_long_for_python_are_left_out(name: str) -> None:
    """They are read as infinities, which would be sent as null, and a provider refuses `"maximum": null`."""
    limit = {"type": "integer", "minimum": -math.inf, "maximum": math.inf, "default": math.inf, "enum": [1, math.inf]}
    compiled = compile_schema({"type": "object", "properties": {"n": limit}}, PROVIDERS[name].profile)
    assert compiled.parameters["properties"]["n"]["type"] == "integer"
    assert "null" not in types.encode(compiled.parameters).decode()
    assert "maximum: Infinity is invalid" in [loss.what for loss in compiled.lost]
