"""Reading what servers write, strict first, then as leniently as is safe."""

import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipymcp.errors import McpError
from ipymcp.protocol import types

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(JSON)
def test_values_survive_encoding_and_decoding(value: object) -> None:
    assert types.loads(types.encode(value)) == value
    assert types.loads(json.dumps(value).encode()) == value


def test_nan_and_infinities_are_floats() -> None:
    value = types.loads(b'{"a": NaN, "b": [Infinity, -Infinity]}')
    assert math.isnan(value["a"])
    assert value["b"] == [math.inf, -math.inf]


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b'"\\ud800"', "\ufffd"),
        (b'"\\ud83d\\ude00"', "\U0001f600"),
        (b'{"\\udfff": ["\\ud800x"]}', {"\ufffd": ["\ufffdx"]}),
        (b'"\xff\xfe"', "\ufffd\ufffd"),
        (b"\xef\xbb\xbf[1]", [1]),
    ],
)
def test_broken_text_is_repaired(data: bytes, value: object) -> None:
    assert types.loads(data) == value


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "Expecting value at character 1"),
        (b'{"a": }', "Expecting value at character 7"),
        (b"[1] 2", "Extra data at character 5"),
        (b"[" * 100_000 + b"]" * 100_000, "nested too deeply"),
    ],
)
def test_invalid_json_names_the_position(data: bytes, message: str) -> None:
    with pytest.raises(types.InvalidJson) as caught:
        types.loads(data)
    assert str(caught.value) == message
    with pytest.raises(ValueError):
        types.decode(data, types.CallToolResult)


def test_raw_members_survive_lenient_decoding() -> None:
    result = types.decode(
        b'{"content": [{"type": "x", "n": NaN}], "structuredContent": {"a": NaN}}', types.CallToolResult
    )
    assert math.isnan(types.loads(result.structuredContent)["a"])
    assert math.isnan(types.loads(result.content)[0]["n"])
    page = types.decode(
        b'{"tools": [{"name": "a", "inputSchema": {"default": NaN}}, {"name": "b"}]}', types.ListToolsResult
    )
    assert [types.decode(raw, types.ToolDefinition).name for raw in page.items] == ["a", "b"]


def test_unknown_members_are_ignored_cheaply() -> None:
    result = types.decode(b'{"content": [{"type": "hologram"}], "new": {"member": 1}}', types.CallToolResult)
    assert types.loads(result.content) == [{"type": "hologram"}]


def test_a_wrong_shape_is_an_error_in_strict_and_lenient_decoding() -> None:
    for data in (b'{"tools": 5}', b'{"tools": 5, "x": NaN}'):
        with pytest.raises(msgspec.ValidationError):
            types.decode(data, types.ListToolsResult)


def test_an_envelope_leaves_the_result_undecoded() -> None:
    envelope = types.read_envelope(b'{"jsonrpc":"2.0","id":1,"result":{"a":[1,2]}}')
    assert isinstance(envelope, types.Envelope)
    assert (envelope.id, bytes(envelope.result), envelope.method) == (1, b'{"a":[1,2]}', None)


@pytest.mark.parametrize("before", [b"", b" ", b"\xef\xbb\xbf"])
def test_a_batch_is_its_messages(before: bytes) -> None:
    batch = types.read_envelope(before + b'[{"id":1,"result":{}},{"method":"x"}]')
    assert isinstance(batch, list)
    assert [types.loads(item) for item in batch] == [{"id": 1, "result": {}}, {"method": "x"}]


def test_integers_of_more_digits_than_python_reads_are_infinite() -> None:
    digits = "1" * 5_000
    assert types.loads(f'{{"a": {digits}, "b": [-{digits}]}}'.encode()) == {"a": math.inf, "b": [-math.inf]}


def test_a_value_that_cannot_be_encoded_is_an_error_of_one_line() -> None:
    deep: Any = []
    for _ in range(2_000):
        deep = [deep]
    with pytest.raises(McpError) as raised:
        types.encode({"a": deep})
    assert raised.value.message == "a value is nested too deeply for JSON"
