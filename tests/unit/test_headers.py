"""Parameters mirrored into HTTP headers, and tools that are refused for invalid designations."""

import json
from typing import Any

import pytest
from msgspec import Raw

from ipymcp.errors import CallError
from ipymcp.protocol.eras import Era, Identity, handshake, stateless
from ipymcp.protocol.headers import Headers, header_parameters, header_value
from ipymcp.protocol.types import ToolDefinition

MODERN = stateless("2026-07-28", Identity("ipymcp", "1"), {})
LEGACY = handshake("2025-11-25")


def schema(**properties: Any) -> Raw:
    return Raw(json.dumps({"type": "object", "properties": properties}).encode())


def text(header: str = "Region", **more: Any) -> dict[str, Any]:
    return {"type": "string", "x-mcp-header": header, **more}


@pytest.mark.parametrize(
    ("era", "method", "body", "expected"),
    [
        (MODERN, "tools/list", b"{}", {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/list"}),
        (LEGACY, "tools/list", b"{}", {"MCP-Protocol-Version": "2025-11-25"}),
        (LEGACY, "", b"{}", {"MCP-Protocol-Version": "2025-11-25"}),
        (handshake(""), "initialize", b"{}", {}),
        (
            handshake(""),
            "server/discover",
            b"{}",
            {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "server/discover"},
        ),
        (
            MODERN,
            "resources/read",
            b'{"uri":"file:///a b"}',
            {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "resources/read", "Mcp-Name": "file:///a b"},
        ),
        (
            MODERN,
            "prompts/get",
            '{"name":"größe"}'.encode(),
            {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "prompts/get", "Mcp-Name": "=?base64?Z3LDtsOfZQ==?="},
        ),
    ],
)
def test_the_headers_are_those_of_the_era(era: Era, method: str, body: bytes, expected: dict[str, str]) -> None:
    assert Headers().build(era, method, body, None) == expected


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        ("us-west1", "us-west1"),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ("=?base64?open", "=?base64?open"),
        ("in side", "in side"),
        ("a\tb", "=?base64?YQli?="),
        ("\x7f", "=?base64?fw==?="),
        ("", ""),
    ],
)
def test_a_value_is_plain_where_a_header_can_carry_it(value: str, encoded: str) -> None:
    assert header_value(value) == encoded


def test_designated_parameters_are_mirrored_and_others_are_not() -> None:
    headers = Headers()
    tool = ToolDefinition(
        "query",
        inputSchema=schema(
            region=text("Region"),
            priority={"type": "integer", "x-mcp-header": "Priority"},
            dry={"type": "boolean", "x-mcp-header": "Dry-Run"},
            place={"type": "object", "properties": {"city": text("City")}},
            sql={"type": "string"},
        ),
    )
    assert headers.read_annotations([tool], pytest.fail) == [tool]

    def mirrored(**arguments: Any) -> dict[str, str]:
        given = headers.build(MODERN, "tools/call", json.dumps(arguments).encode(), "query")
        assert given.pop("Mcp-Name") == "query"
        return {name: value for name, value in given.items() if name.startswith("Mcp-Param-")}

    assert mirrored(region="eu", priority=-7, dry=False, place={"city": "Köln"}, sql="select 1") == {
        "Mcp-Param-Region": "eu",
        "Mcp-Param-Priority": "-7",
        "Mcp-Param-Dry-Run": "false",
        "Mcp-Param-City": "=?base64?S8O2bG4=?=",
    }
    assert mirrored(region=None, place={}, dry=True) == {"Mcp-Param-Dry-Run": "true"}
    assert mirrored(region="", priority=42.0, place=5) == {"Mcp-Param-Region": "", "Mcp-Param-Priority": "42"}
    assert mirrored(priority=2**53 - 1) == {"Mcp-Param-Priority": "9007199254740991"}
    with pytest.raises(CallError) as caught:
        mirrored(priority=2**53)
    assert caught.value.message == "9007199254740992 does not fit the header Mcp-Param-Priority"
    assert caught.value.hint == "the header carries only integers up to 9,007,199,254,740,991"
    assert headers.read_annotations([], pytest.fail) == []
    assert mirrored(region="eu") == {}
    assert Headers().build(LEGACY, "tools/call", b"{}", "query") == {"MCP-Protocol-Version": "2025-11-25"}


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (schema(a=text("")), "x-mcp-header '' of a is not a valid header name"),
        (schema(a=text("My Region")), "x-mcp-header 'My Region' of a is not a valid header name"),
        (schema(a=text("Region\t1")), "x-mcp-header 'Region\\t1' of a is not a valid header name"),
        (schema(a={"type": "string", "x-mcp-header": 5}), "x-mcp-header 5 of a is not a valid header name"),
        (schema(a=text(type="number")), "x-mcp-header 'Region' of a, which is not a string, integer or boolean"),
        (schema(a=text(type=["string"])), "x-mcp-header 'Region' of a, which is not a string, integer or boolean"),
        (schema(a=text("MyField"), b=text("myfield")), None),
        (schema(a={"type": "array", "items": text()}), None),
        (schema(a={"anyOf": [text()]}), None),
        (schema(a={"$defs": {"b": text()}}), None),
        (schema(a={"if": {"properties": {"b": text()}}}), None),
        (Raw(b'{"type":"object","x-mcp-header":"Root"}'), None),
        (Raw(b'{"$defs":{"a":{"type":"string","x-mcp-header":"A"}}}'), None),
    ],
)
def test_a_tool_whose_annotation_is_invalid_is_left_out(given: Raw, complaint: str | None) -> None:
    tools = [ToolDefinition("bad", inputSchema=given), ToolDefinition("good", inputSchema=schema(a=text()))]
    headers = Headers()
    warnings: list[str] = []
    assert headers.read_annotations(tools, warnings.append) == tools[1:]
    (warning,) = warnings
    assert warning.startswith("the tool bad left out: ")
    assert complaint is None or warning == f"the tool bad left out: {complaint}"
    assert headers.build(MODERN, "tools/call", b'{"a":"x"}', "good")["Mcp-Param-Region"] == "x"


@pytest.mark.parametrize(
    "given",
    [
        schema(a={"type": "string", "default": {"x-mcp-header": 5}}),
        schema(**{"x-mcp-header": {"type": "string"}}),
        schema(a={"type": "string", "enum": [{"x-mcp-header": ""}]}),
        Raw(b"true"),
    ],
)
def test_what_only_looks_like_an_annotation_is_none(given: Raw) -> None:
    assert header_parameters(given) == ()
