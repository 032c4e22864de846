"""Help texts and stub files."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ipymcp.api.stubs import stub
from ipymcp.schema.annotations import docstring, printable
from ipymcp.schema.tool_schema import ToolSchema

SCHEMA = {
    "properties": {
        "path": {"type": "string", "description": "Which file"},
        "from": {"type": "integer", "default": 0},
        "mode": {"type": "array", "items": {"type": "string"}, "description": "How."},
        "size": {"enum": [1.5, 2.5]},
        "edits": {"type": "array", "items": {"$ref": "#/$defs/Edit"}},
    },
    "required": ["path"],
    "$defs": {
        "Edit": {
            "title": "Edit",
            "type": "object",
            "properties": {"old-text": {"type": "string"}, "next": {"$ref": "#/$defs/Edit"}},
            "required": ["old-text"],
        }
    },
}


def test_the_help_text_describes_tool_arguments_and_result() -> None:
    schema = ToolSchema(SCHEMA, server="fs", tool="read-file")
    text = docstring(
        "Read file",
        "Reads a file.\n\nAll of it.",
        schema.parameters,
        {"properties": {"content": {"type": "string"}}},
        {"readOnlyHint": True, "destructiveHint": True, "openWorldHint": False},
        server="fs",
        tool="read-file",
        tree=schema.tree,
    )
    assert (
        text
        == """\
Read file

Reads a file.

All of it.

Args:
    path (str): Which file.
    from_ (int, optional): Default: 0. Its own name is 'from'.
    mode (list[str] | None, optional): How.
    size (float | None, optional): One of 1.5, 2.5.
    edits (list[dict[str, Any]] | None, optional):
        edits[]['old-text'] (str):
        edits[].next (dict[str, Any] | None, optional):

Returns:
    A ToolResult; its .data has
        content: str

The server says: read-only, no outside access.

Tool 'read-file' of the MCP server 'fs'."""
    )


def test_the_help_describes_two_levels_of_members_and_no_more_than_twenty() -> None:
    point = {"type": "object", "properties": {"x": {"type": "number", "description": "East"}}, "required": ["x"]}
    route = {
        "type": "object",
        "properties": {"stops": {"type": "array", "items": point}, "deep": {"$ref": "#/$defs/D"}},
    }
    deep = {"type": "object", "properties": {"a": {"type": "object", "properties": {"b": {"properties": {"c": {}}}}}}}
    members = {
        "routes": {"type": "object", "additionalProperties": route},
        "wide": {"type": "object", "properties": {f"m{number}": {"type": "string"} for number in range(30)}},
    }
    schema = ToolSchema({"properties": members, "$defs": {"D": deep}}, server="s", tool="t")
    text = docstring(None, None, schema.parameters, None, None, server="s", tool="t", tree=schema.tree)
    lines = [line.strip() for line in text.splitlines()]
    assert lines[2:6] == [
        "routes[key].stops (list[dict[str, Any]] | None, optional):",
        "routes[key].stops[].x (float): East.",
        "routes[key].deep (dict[str, Any] | None, optional):",
        "routes[key].deep.a (dict[str, Any] | None, optional):",
    ]
    assert lines[6:8] == ["wide (dict[str, Any] | None, optional):", "wide.m0 (str | None, optional):"]
    assert lines[27] == "… 10 more: .input_schema has them"


def test_a_tool_without_a_description_names_its_source() -> None:
    assert docstring(None, None, (), None, None, server="fs", tool="x") == "Tool 'x' of the MCP server 'fs'."


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("a\x1b[31mb\x00", "a[31mb"),
        ("a\u200bb\u202ec\ufeff", "abc"),
        ("a\U000e0041\U000e0100b\ufe01", "ab"),
        ("a\r\nb\u2028c\td", "a\nb\nc\td"),
        ("größe 日本 🙂", "größe 日本 🙂"),
        ("\ud800", ""),
    ],
)
def test_invisible_characters_are_stripped(text: str, seen: str) -> None:
    assert printable(text) == seen
    assert docstring(None, f"x{text}", (), None, None, server="s", tool="t").startswith(f"x{seen}")


def servers() -> dict[str, list[tuple[str, str, ToolSchema]]]:
    def tool(schema: Any) -> ToolSchema:
        return ToolSchema(schema, server="s", tool="t")

    own_self = {"properties": {"self": {"type": "string"}, "arguments": {}}, "additionalProperties": True}
    return {
        "fs": [
            ("read_file", 'Says """quotes""" and \\ and\nlines.\x00', tool(SCHEMA)),
            ("read_file_", "", tool({})),
            ("odd", "", tool(own_self)),
        ],
        "any": [("call", "x", tool({"properties": {}}))],
        "_1": [],
    }


def test_a_stub_declares_each_server_and_tool() -> None:
    text = stub(servers())
    compile(text, "stub.pyi", "exec")
    assert 'class FsReadFile:\n    """Says \\"\\"\\"quotes\\"\\"\\" and \\\\ and lines."""\n' in text
    assert (
        "    async def aio(self, /, path: str, *, from_: int | None = ..., mode: list[str] | None = ..., "
        "size: float | None = ..., edits: list[FsReadFileEdit] | None = ...) -> ToolResult: ...\n"
    ) in text
    assert (
        "    def __call__(_self, /, *, self: str | None = ..., arguments: Any = ..., **_arguments: Any) "
        "-> ToolResult: ...\n"
    ) in text
    assert (
        "class Fs:\n    resources: Resources\n    prompts: Prompts\n"
        "    read_file: FsReadFile\n    read_file_: FsReadFile2\n    odd: FsOdd\n"
    ) in text
    assert "class Servers:\n    fs: Fs\n    any: Any2\n    _1: Mcp1\n" in text
    assert text.endswith("mcp: Servers\n")


def test_a_type_checker_accepts_the_stub_and_checks_calls_with_it(tmp_path: Path) -> None:
    pyright = shutil.which("pyright") or shutil.which("pyright", path=str(Path(sys.executable).parent))
    if pyright is None:
        pytest.skip("pyright is not installed")
    package = tmp_path / "ipymcp"
    package.mkdir()
    names = ("Call", "Prompts", "Resources", "ToolResult")
    (package / "__init__.pyi").write_text("".join(f"class {name}: ...\n" for name in names))
    (tmp_path / "tools.pyi").write_text(stub(servers()))
    (tmp_path / "use.py").write_text(
        "from tools import mcp\n"
        "mcp.fs.read_file('a', from_=1, edits=[{'old-text': 'x', 'next': {'old-text': 'y'}}])\n"
        "mcp.fs.read_file.options(timeout=5)('a')\n"
        "mcp.fs.odd(self='x', other=1)\n"
        "mcp.fs.read_file(5)\n"
        "mcp.fs.read_file('a', edits=[{}])\n"
    )
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict", "pythonVersion": "3.11"}')
    done = subprocess.run([pyright, "--outputjson", "."], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    found = json.loads(done.stdout)["generalDiagnostics"]
    errors = [each for each in found if each["severity"] == "error"]
    assert [(Path(each["file"]).name, each["range"]["start"]["line"] + 1) for each in errors] == [
        ("use.py", 5),
        ("use.py", 6),
    ], found
