"""Negotiation of the era with servers that answer the first request in odd ways."""

import asyncio
import json
from typing import Any

import pytest
from msgspec import Raw

from ipymcp.errors import McpError, ProtocolError, RpcError
from ipymcp.protocol.eras import Identity
from ipymcp.protocol.negotiation import EraChoice, NegotiationResult, negotiate

DISCOVERED = {"supportedVersions": ["2026-07-28"], "capabilities": {}}
INITIALIZED = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
REFUSED = RpcError("Unsupported protocol version", code=-32022, data={"supported": ["2026-07-28"]})


class Server:
    """Gives these answers in turn, and records the requests."""

    def __init__(self, *answers: dict[str, Any] | McpError) -> None:
        self._answers = list(answers)
        self.methods: list[str] = []

    def ask(self, method: str, params: bytes) -> asyncio.Future[Raw]:
        self.methods.append(method)
        future = asyncio.get_running_loop().create_future()
        answer = self._answers.pop(0)
        if isinstance(answer, McpError):
            future.set_exception(answer)
        else:
            future.set_result(Raw(json.dumps(answer).encode()))
        return future


def negotiated(server: Server, choice: EraChoice = "auto") -> NegotiationResult:
    async def run() -> NegotiationResult:
        return await negotiate(server.ask, Identity("tests", "1"), {}, choice)

    return asyncio.run(run())


OFFER = RpcError("Unsupported protocol version", code=-32022, data={"supported": ["2025-11-25"]})
RETRY, HANDSHAKE = ["server/discover", "server/discover"], ["server/discover", "initialize"]


@pytest.mark.parametrize(
    ("answers", "version", "methods"),
    [
        ([REFUSED, DISCOVERED], "2026-07-28", RETRY),
        ([OFFER, INITIALIZED], "2025-11-25", HANDSHAKE),
        *(([answer, INITIALIZED], "2025-11-25", HANDSHAKE)
          for answer in ({}, {"tools": []}, {"supportedVersions": 3})),
    ],
    ids=["refused and offered", "refused with an offer", "empty result", "other result", "malformed result"],
)  # fmt: skip
def test_the_era_is_negotiated_with_odd_servers(answers: list[Any], version: str, methods: list[str]) -> None:
    server = Server(*answers)
    assert negotiated(server).era.version == version
    assert server.methods == methods


def test_a_version_that_is_refused_twice_is_given_up() -> None:
    server = Server(REFUSED, REFUSED)
    with pytest.raises(ProtocolError, match="the server supports only 2026-07-28"):
        negotiated(server)
    assert server.methods == RETRY


def test_a_server_that_answers_discover_with_another_result_lacks_the_stateless_era() -> None:
    with pytest.raises(ProtocolError, match="the server does not support the stateless era"):
        negotiated(Server({}), "modern")
