"""Binding the arguments of a call."""

import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from ipymcp.errors import ArgumentError
from ipymcp.schema.tool_schema import ToolSchema

SEARCH = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "limit": {"type": "integer", "minimum": 1, "description": "How many at most."},
        "mode": {"enum": ["fast", "full"]},
        "filters": {"type": "array", "items": {"$ref": "#/$defs/Filter"}},
        "tags": {"type": "array", "items": {"type": "string"}},
        "since": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        "max-results": {"type": "integer"},
        "from": {"type": "string"},
        "strict": {"type": "boolean"},
        "options": {"type": "object"},
    },
    "required": ["path"],
    "$defs": {
        "Filter": {
            "type": "object",
            "properties": {"op": {"enum": ["eq", "ne"]}, "value": {"type": "number"}},
            "required": ["op"],
            "additionalProperties": False,
        }
    },
}


def make(schema: Any = SEARCH) -> ToolSchema:
    return ToolSchema(schema, server="files", tool="search")


def argument(schema: Any, value: Any) -> Any:
    """The value sent for one argument of this schema."""
    return make({"properties": {"x": schema}}).bind((), {"x": value})["x"]


def refusal(*args: Any, schema: Any = SEARCH, **kwargs: Any) -> ArgumentError:
    with pytest.raises(ArgumentError) as caught:
        make(schema).bind(args, kwargs)
    return caught.value


def test_required_arguments_bind_by_position_and_optional_ones_by_name() -> None:
    assert make().bind(("a.txt",), {"limit": 3}) == {"path": "a.txt", "limit": 3}


def test_an_argument_is_taken_by_its_alias_and_by_its_exact_name() -> None:
    assert make().bind(("a",), {"max_results": 1, "from_": "b"}) == {"path": "a", "max-results": 1, "from": "b"}
    assert make().bind(("a",), {"max-results": 1, "from": "b"}) == {"path": "a", "max-results": 1, "from": "b"}


def test_check_takes_a_ready_mapping() -> None:
    assert make().check({"path": "a", "max_results": "7"}) == {"path": "a", "max-results": 7}


def test_a_missing_argument_is_named_and_the_signature_shown() -> None:
    error = refusal(schema={"properties": {"a": {"type": "string"}, "b": {}, "c": {}}, "required": ["a", "b"]}, b=1)
    assert str(error) == "files.search: missing argument 'a'"
    assert error.hint == "search(a: str, b: Any, *, c)"
    assert (error.server, error.tool, error.argument) == ("files", "search", "a")


def test_a_surplus_argument_is_refused_with_the_nearest_name() -> None:
    error = refusal("a", limt=3)
    assert str(error) == "files.search: no argument 'limt'; did you mean 'limit'?"
    assert error.argument == "limt"


def test_too_many_positional_arguments_are_refused() -> None:
    assert refusal("a", 3).message == "2 arguments given by position; it takes 1 by position ('path'), others by name"


def test_an_argument_given_twice_is_refused() -> None:
    assert refusal("a", path="b").message == "path: is given twice"
    assert refusal("a", **{"max_results": 1, "max-results": 2}).message == "max-results: is given twice"


def test_a_mistyped_argument_is_named_with_what_was_expected() -> None:
    error = refusal("a", limit="abc")
    assert str(error) == "files.search: limit: expected integer, got 'abc'"
    assert error.hint == "limit: int | None · How many at most."


def test_a_number_where_text_is_wanted_is_refused_rather_than_guessed() -> None:
    error = refusal(2139)
    assert (error.message, error.hint) == ("path: expected string, got 2139", "quote it: '2139'")


def test_a_value_outside_an_enum_is_refused_with_the_nearest() -> None:
    error = refusal("a", mode="fst")
    assert (error.message, error.hint) == ("mode: 'fst' is not one of 'fast', 'full'", "did you mean 'fast'?")


def test_a_long_enum_is_listed_in_part() -> None:
    schema = {"properties": {"x": {"enum": [f"v{number}" for number in range(20)]}}}
    assert refusal(schema=schema, x="zzz").message == (
        "x: 'zzz' is not one of 'v0', 'v1', 'v2', 'v3', 'v4', 'v5', 'v6', 'v7' … (20 in all)"
    )


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ([{"op": "eq"}, {"op": "eq", "value": "abc"}], "filters[1].value: expected number, got 'abc'"),
        ([{"value": 1}], "filters[0]: 'op' is missing"),
        ([{"op": "eq", "of": 1}], "filters[0]: no member 'of' is allowed here"),
        ([{"op": "eq", "value": float("inf")}], "filters[0].value: is inf, which JSON cannot represent"),
        ("eq", "filters: expected array, got 'eq'"),
    ],
)
def test_what_is_wrong_inside_an_argument_is_named_by_its_path(filters: Any, message: str) -> None:
    error = refusal("a", filters=filters)
    assert error.message == message
    assert error.argument == "filters"


def test_of_several_alternatives_the_nearest_is_complained_about() -> None:
    schema = {"properties": {"x": {"anyOf": [{"type": "integer"}, SEARCH["$defs"]["Filter"]]}}}
    assert refusal(schema=schema, x={"op": "eq", "value": "z"}).message == "x.value: expected number, got 'z'"
    assert refusal(schema=schema, x="z").message == "x: expected integer or object, got 'z'"


def test_a_limit_is_named() -> None:
    assert refusal("a", limit=0).message == "limit: 0 is less than 1"


def test_a_long_value_is_shortened_in_the_message() -> None:
    assert len(refusal("a", limit="x" * 100_000).message) < 120


def test_none_for_an_optional_argument_is_left_out_unless_null_is_a_value() -> None:
    assert make().bind(("a",), {"limit": None, "since": None}) == {"path": "a", "since": None}


def test_none_for_a_required_argument_is_refused() -> None:
    assert refusal(None).message == "path: expected string, got None"


def test_undeclared_arguments_pass_only_where_the_schema_invites_them() -> None:
    invited = {"properties": {"a": {}}, "additionalProperties": {"type": "integer"}}
    assert make(invited).bind((), {"b": "5"}) == {"b": 5}
    assert make({"type": "object"}).bind((), {"b": 5}) == {"b": 5}
    assert make({"properties": {"a": {}}, "patternProperties": {"^x-": {}}}).bind((), {"x-b": 5}) == {"x-b": 5}
    assert refusal(schema={"properties": {"a": {}}}, b=5).message == "no argument 'b'"
    assert refusal(schema={"properties": {"a": {}}, "additionalProperties": False}, b=5).message == "no argument 'b'"


def test_an_argument_named_self_binds() -> None:
    assert make({"properties": {"self": {}}, "required": ["self"]}).bind((), {"self": 1}) == {"self": 1}


def test_the_schema_is_read_from_json_bytes() -> None:
    assert make(b'{"properties": {"a": {"type": "integer"}}}').bind((), {"a": "5"}) == {"a": 5}


def test_draft_7_is_honoured_where_the_schema_names_it() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "properties": {"x": {"type": "array", "items": [{"type": "integer"}], "additionalItems": False}},
    }
    assert make(schema).bind((), {"x": [1]}) == {"x": [1]}
    assert refusal(schema=schema, x=[1, 2]).argument == "x"


def test_a_format_is_left_to_the_server() -> None:
    assert argument({"type": "string", "format": "uri"}, "not a uri") == "not a uri"


def test_making_a_schema_reads_nothing() -> None:
    schema = make(b"not json")
    assert schema._tree is None
    assert schema.parameters == ()


def test_importing_does_not_load_the_validator() -> None:
    code = (
        "import sys; from ipymcp.schema.tool_schema import ToolSchema; ToolSchema({}, server='s', tool='t').signature; "
        "print('jsonschema_rs' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "False\n"


def test_a_reference_over_the_network_or_to_a_file_is_never_opened(tmp_path: Any) -> None:
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"type": "integer"}')

        def log_message(self, format: str, *args: Any) -> None:
            pass

    secret = tmp_path / "schema.json"
    secret.write_text('{"type": "integer"}')
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            address = f"http://127.0.0.1:{server.server_port}/x.json"
            schema = {
                "$id": address,
                "properties": {
                    "a": {"$ref": address},
                    "b": {"$ref": secret.as_uri()},
                    "c": {"$ref": "x.json#/$defs/y"},
                    "d": {"default": {"$ref": address}, "$ref": "#/properties/d/default"},
                    "e": {"type": "integer"},
                },
            }
            given = {"a": "text", "b": "text", "c": "text", "d": "text", "e": 1}
            assert make(schema).bind((), given) == given
            assert refusal(schema=schema, e="text").argument == "e"
        finally:
            server.shutdown()
            thread.join()
    assert asked == []


def test_a_plain_record_of_scalars_is_judged_without_the_validator() -> None:
    code = """
import sys
from ipymcp.schema.tool_schema import ToolSchema

schema = {"type": "object", "properties": {"x": {"type": "string", "title": "X"}, "n": {"type": ["integer", "null"]}}}
tool = ToolSchema(schema, server="s", tool="t")
assert tool.bind((), {"x": "a", "n": 3}) == {"x": "a", "n": 3}
assert "jsonschema_rs" not in sys.modules
tool.bind((), {"x": "\u00e9"})
assert "jsonschema_rs" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
