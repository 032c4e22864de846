"""How requests are dressed in each era."""

from __future__ import annotations

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
def test_a_handshaken_request_has_nothing_but_its_progress_token(body: bytes) -> None:
    era = handshake("2025-11-25")
    assert era.params(body) == body
    assert era.params(body, log_level="info") == body
    assert json.loads(era.params(body, progress_token=7)) == {**json.loads(body), "_meta": {"progressToken": 7}}


@pytest.mark.parametrize("body", [b"{}", b'{"name":"echo"}'])
def test_a_stateless_request_says_everything(body: bytes) -> None:
    era = stateless("2026-07-28", IDENTITY, {"roots": {}})
    assert json.loads(era.params(body)) == {**json.loads(body), "_meta": ENVELOPE}
    dressed = json.loads(era.params(body, progress_token=7, log_level="info"))
    assert dressed["_meta"] == {**ENVELOPE, "progressToken": 7, META + "logLevel": "info"}
