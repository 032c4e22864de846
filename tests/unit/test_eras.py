"""The params of requests in each era."""

import json

import pytest

from ipymcp.protocol.eras import HANDSHAKE_VERSIONS, STATELESS_VERSIONS, Identity, handshake, stateless

IDENTITY = Identity("ipymcp", "1.2")
META = "io.modelcontextprotocol/"
ENVELOPE = {
    META + "protocolVersion": "2026-07-28",
    META + "clientInfo": {"name": "ipymcp", "version": "1.2"},
    META + "clientCapabilities": {"roots": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}},
}


def test_the_versions_are_newest_first() -> None:
    assert HANDSHAKE_VERSIONS == ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
    assert STATELESS_VERSIONS == ("2026-07-28",)


@pytest.mark.parametrize("body", [b"{}", b'{"name":"echo"}'])
def test_a_request_of_the_handshake_era_has_no_metadata(body: bytes) -> None:
    assert handshake("2025-11-25").params(body) == body


def test_a_call_of_the_handshake_era_asks_for_progress() -> None:
    params = json.loads(handshake("2025-11-25").call_params(b'"echo"', b'{"a":1}', 7))
    assert params == {"name": "echo", "arguments": {"a": 1}, "_meta": {"progressToken": 7}}


@pytest.mark.parametrize("body", [b"{}", b'{"name":"echo"}'])
def test_a_request_of_the_stateless_era_carries_all_metadata(body: bytes) -> None:
    era = stateless("2026-07-28", IDENTITY, {"roots": {}})
    assert json.loads(era.params(body)) == {**json.loads(body), "_meta": ENVELOPE}


@pytest.mark.parametrize("extra", [b"", b'"requestState":"s"'])
def test_a_call_of_the_stateless_era_asks_for_progress_and_log_messages(extra: bytes) -> None:
    params = json.loads(stateless("2026-07-28", IDENTITY, {"roots": {}}).call_params(b'"echo"', b"{}", 7, extra))
    assert params.pop("_meta") == {**ENVELOPE, "progressToken": 7, META + "logLevel": "info"}
    assert params == {"name": "echo", "arguments": {}, **json.loads(b"{%s}" % extra)}
