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


def refusal(*args: Any, schema: Any = SEARCH, **kwargs: Any) -> ArgumentError:
    with pytest.raises(ArgumentError) as caught:
        make(schema).bind(args, kwargs)
    return caught.value


NAMES = {"properties": {"a": {"type": "string"}, "b": {}, "c": {}}, "required": ["a", "b"]}
LONG_ENUM = {"properties": {"x": {"enum": [f"v{number}" for number in range(20)]}}}
ALTERNATIVES = {"properties": {"x": {"anyOf": [{"type": "integer"}, SEARCH["$defs"]["Filter"]]}}}
ONE = {"properties": {"a": {}}}
CLOSED = {**ONE, "additionalProperties": False}
PATCH = {"properties": {"start": {"type": "integer"}, "end": {"type": "integer"}}, "required": ["start", "end"]}
FILE = {
    "properties": {"path": {"type": "string"}, "patches": {"type": "array", "items": PATCH}, "mode": {"enum": ["r"]}}
}
FILES = {
    "properties": {
        "files": {"type": "array", "items": {**FILE, "required": ["path", "patches"]}, "description": "Files."},
        "spec": {"type": "string"},
        "one": {"anyOf": [{"$ref": "#/$defs/Patch"}, {"type": "null"}]},
    },
    "required": ["files"],
    "$defs": {"Patch": PATCH},
}
MEMBERS = "list[{'path': str, 'patches': list[{'start': int, 'end': int}], 'mode'?: Literal['r']}]"


@pytest.mark.parametrize(
    ("schema", "args", "kwargs", "message", "hint"),
    [
        (NAMES, (), {"b": 1}, "missing argument 'a'", "search(a: str, b: Any, *, c)"),
        (SEARCH, ("a",), {"limt": 3}, "no argument 'limt'; did you mean 'limit'?", ...),
        (SEARCH, ("a", 3), {}, "2 arguments given by position; it takes 1 by position ('path'), others by name", ...),
        (SEARCH, ("a", "fast"), {}, "2 arguments given by position; it takes 1 by position ('path'), others by name",
         "search('a', mode='fast')"),
        (SEARCH, ("a",), {"path": "b"}, "path: is given twice", ...),
        (SEARCH, ("a",), {"max_results": 1, "max-results": 2}, "max-results: is given twice", ...),
        (SEARCH, ("a",), {"limit": "abc"}, "limit: expected integer, got 'abc'",
         "limit: int | None · How many at most."),
        (SEARCH, ("a",), {"limit": 0}, "limit: must be at least 1, got 0", ...),
        (SEARCH, (2139,), {}, "path: expected string, got 2139", "quote it: '2139'"),
        (SEARCH, (None,), {}, "path: expected string, got None", ...),
        (SEARCH, ("a",), {"mode": "fst"}, "mode: 'fst' is not one of 'fast', 'full'", "did you mean 'fast'?"),
        (LONG_ENUM, (), {"x": "zzz"},
         "x: 'zzz' is not one of 'v0', 'v1', 'v2', 'v3', 'v4', 'v5', 'v6', 'v7' … (20 in all)", ...),
        (ALTERNATIVES, (), {"x": {"op": "eq", "value": "z"}}, "x.value: expected number, got 'z'", ...),
        (ALTERNATIVES, (), {"x": "z"}, "x: expected integer or object, got 'z'", ...),
        (FILES, (), {}, "missing argument 'files'", f"search(files: {MEMBERS}, *, spec, one)"),
        (FILES, ([{}],), {}, "files[0]: 'path', 'patches' are missing", f"files: {MEMBERS} · Files."),
        (FILES, ({"path": "a"},), {}, "files[0]: 'patches' is missing", f"files: {MEMBERS} · Files."),
        (FILES, ([{"path": "a", "patches": [{}]}],), {}, "files[0].patches[0]: 'start', 'end' are missing", ...),
        (FILES, ([],), {"one": {}}, "one: 'start', 'end' are missing", "one: {'start': int, 'end': int} | None"),
        (FILES, ([],), {"spec": {"a": 1}}, "spec: expected string, got {'a': 1}", "give it as text: json.dumps(…)"),
        (FILES, ([],), {"spec": ["a"]}, "spec: expected string, got ['a']", "give it as text: json.dumps(…)"),
        (ONE, (), {"b": 5}, "no argument 'b'", ...),
        (CLOSED, (), {"b": 5}, "no argument 'b'", ...),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused_by_name(
    schema: Any, args: tuple[Any, ...], kwargs: dict[str, Any], message: str, hint: Any
) -> None:
    error = refusal(*args, schema=schema, **kwargs)
    assert error.message == message
    assert hint in (..., error.hint)


def test_the_error_of_an_argument_names_server_tool_and_argument() -> None:
    error = refusal(schema=NAMES, b=1)
    assert str(error) == "files.search: missing argument 'a'"
    assert (error.server, error.tool, error.argument) == ("files", "search", "a")
    assert refusal("a", limt=3).argument == "limt"


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
def test_an_error_within_an_argument_is_named_by_its_path(filters: Any, message: str) -> None:
    error = refusal("a", filters=filters)
    assert error.message == message
    assert error.argument == "filters"


def test_a_long_value_is_shortened_in_the_message() -> None:
    assert len(refusal("a", limit="x" * 100_000).message) < 120


@pytest.mark.parametrize(
    ("schema", "args", "kwargs", "bound"),
    [
        (SEARCH, ("a.txt",), {"limit": 3}, {"path": "a.txt", "limit": 3}),
        (SEARCH, ("a",), {"max_results": 1, "from_": "b"}, {"path": "a", "max-results": 1, "from": "b"}),
        (SEARCH, ("a",), {"max-results": 1, "from": "b"}, {"path": "a", "max-results": 1, "from": "b"}),
        (SEARCH, ("a",), {"limit": None, "since": None}, {"path": "a", "since": None}),
        ({"properties": {"self": {}}, "required": ["self"]}, (), {"self": 1}, {"self": 1}),
        (b'{"properties": {"a": {"type": "integer"}}}', (), {"a": "5"}, {"a": 5}),
        ({**ONE, "additionalProperties": {"type": "integer"}}, (), {"b": "5"}, {"b": 5}),
        ({**ONE, "patternProperties": {"^x-": {}}}, (), {"x-b": 5}, {"x-b": 5}),
        ({"type": "object"}, (), {"b": 5}, {"b": 5}),
    ],
    ids=["by position and name", "by alias", "by exact name", "None only where null is a value", "named self",
         "schema in bytes", "undeclared", "undeclared by pattern", "undeclared where none is declared"],
)  # fmt: skip
def test_arguments_are_bound(schema: Any, args: tuple[Any, ...], kwargs: dict[str, Any], bound: Any) -> None:
    assert make(schema).bind(args, kwargs) == bound


def test_check_takes_a_ready_mapping() -> None:
    assert make().check({"path": "a", "max_results": "7"}) == {"path": "a", "max-results": 7}


def test_draft_7_is_honoured_where_the_schema_names_it() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "properties": {"x": {"type": "array", "items": [{"type": "integer"}], "additionalItems": False}},
    }
    assert make(schema).bind((), {"x": [1]}) == {"x": [1]}
    assert refusal(schema=schema, x=[1, 2]).argument == "x"


def test_a_format_is_left_to_the_server() -> None:
    schema = {"properties": {"x": {"type": "string", "format": "uri"}}}
    assert make(schema).bind((), {"x": "not a uri"}) == {"x": "not a uri"}


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
