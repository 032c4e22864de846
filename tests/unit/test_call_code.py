"""A panel's calls as code: the inserted code makes exactly that call when it is run."""

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import ipymcp
from ipymcp import Mcp
from ipymcp.notebook.call_code import magic, python
from tests.environments import ROOT

SCHEMA = {
    "type": "object",
    "additionalProperties": True,
    "properties": {
        "path": {"type": "string"},
        "max-results": {"type": "integer"},
        "from": {"type": "string"},
        "exact": {"type": "boolean"},
        "tags": {"type": "array"},
        "near": {"type": ["string", "integer"]},
        "filter": {"type": "object"},
    },
}
NAMES = (
    *("plain", "read-file", "a b", "a.b", "it's", "x=y", "what?", "from", "{name}", "--timeout"),
    *("\u202e", "line\nbreak"),
)
VALUES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "words": {"path": "my file.txt", "max-results": 5, "exact": True, "from": "2020"},
    "quotes": {"path": 'it\'s "so" {x} $y'},
    "looks like something else": {"path": "true", "from": "1.10", "near": "7"},
    "a number where text may be": {"near": 7},
    "lines": {"path": "one\ntwo\\three\u2028four\x0cfive\u202esix"},
    "nested": {"filter": {"a": [1, {"b": None}], "c d": "it's"}, "tags": ["a", 1.5, None, []]},
    "undeclared": {"other": 1, "an other": {"x": "y"}},
    "no scheme for a line": {"path": "ends?", "from": "ends;"},
    "long": {"path": "x" * 200, "from": "y"},
}


@pytest.fixture(scope="module")
def mcp() -> Iterator[Mcp]:
    tools = [json.dumps({"name": name, "inputSchema": SCHEMA}) for name in NAMES]
    server = {"command": sys.executable, "args": [str(ROOT / "tests" / "servers" / "named.py"), *tools]}
    with ipymcp.connect({"own": server, "my server": server, "own.a": server, "load": server}) as mcp:
        yield mcp


def entry(mcp: Mcp, server: str, tool: str) -> Any:
    return mcp._host.sessions[server].catalog.tools[tool]


def in_python(mcp: Mcp, server: str, tool: str, arguments: dict[str, Any], namespace: str = "mcp") -> str:
    definition = entry(mcp, server, tool)
    return python(mcp._host, definition, mcp._parts.factory.schema(definition), arguments, namespace)


def as_magic(mcp: Mcp, server: str, tool: str, arguments: dict[str, Any]) -> str:
    definition = entry(mcp, server, tool)
    return magic(mcp._host, definition, mcp._parts.factory.schema(definition), arguments)


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_python_code_makes_the_same_call(mcp: Mcp, values: dict[str, Any]) -> None:
    result = eval(in_python(mcp, "own", "plain", values), {"mcp": mcp})
    assert result.data == {"tool": "plain", "arguments": values}


@pytest.mark.parametrize("server", ["own", "my server", "load"])
@pytest.mark.parametrize("tool", NAMES)
def test_python_code_names_every_tool(mcp: Mcp, server: str, tool: str) -> None:
    result = eval(in_python(mcp, server, tool, {"path": "x"}), {"mcp": mcp})
    assert (result.server, result.data["tool"]) == (server, tool)


@pytest.mark.parametrize(
    ("arguments", "namespace", "code"),
    [
        ({"path": "x", "max-results": 5}, "mcp", "mcp.own.read_file(path='x', max_results=5)"),
        ({}, "", "from ipymcp import mcp\n\nmcp.own.read_file()"),
        (
            {"path": "x" * 90, "exact": True},
            "mcp",
            f"mcp.own.read_file(\n    path={'x' * 90!r},\n    exact=True,\n)",
        ),
    ],
)
def test_python_code_is_formatted(mcp: Mcp, arguments: dict[str, Any], namespace: str, code: str) -> None:
    assert in_python(mcp, "own", "read-file", arguments, namespace) == code


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (VALUES["words"], "%mcp call own.read-file path='my file.txt' max-results=5 exact=true from='2020'"),
        ({"near": 7}, '%mcp call own.read-file {"near": 7}'),
        ({}, "%mcp call own.read-file"),
    ],
)
def test_a_magic_line_is_formatted(mcp: Mcp, arguments: dict[str, Any], line: str) -> None:
    assert as_magic(mcp, "own", "read-file", arguments) == line
