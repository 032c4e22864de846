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
    """Gives these answers in turn, and remembers what it was asked."""

    def __init__(self, *answers: dict[str, Any] | McpError) -> None:
        self._answers = list(answers)
        self.asked: list[str] = []

    def ask(self, method: str, params: bytes) -> asyncio.Future[Raw]:
        self.asked.append(method)
        answer = asyncio.get_running_loop().create_future()
        given = self._answers.pop(0)
        if isinstance(given, McpError):
            answer.set_exception(given)
        else:
            answer.set_result(Raw(json.dumps(given).encode()))
        return answer


def settled(server: Server, choice: EraChoice = "auto") -> NegotiationResult:
    async def settle() -> NegotiationResult:
        return await negotiate(server.ask, Identity("tests", "1"), {}, choice)

    return asyncio.run(settle())


def test_a_version_that_was_refused_and_is_offered_all_the_same_is_asked_for_once_more() -> None:
    server = Server(REFUSED, DISCOVERED)
    assert settled(server).era.version == "2026-07-28"
    assert server.asked == ["server/discover", "server/discover"]


def test_a_version_that_is_refused_twice_is_given_up() -> None:
    server = Server(REFUSED, REFUSED)
    with pytest.raises(ProtocolError, match="the server supports only 2026-07-28"):
        settled(server)
    assert server.asked == ["server/discover", "server/discover"]


def test_a_refusal_that_offers_a_version_of_the_handshake_leads_to_it() -> None:
    offer = RpcError("Unsupported protocol version", code=-32022, data={"supported": ["2025-11-25"]})
    server = Server(offer, INITIALIZED)
    assert settled(server).era.version == "2025-11-25"
    assert server.asked == ["server/discover", "initialize"]


@pytest.mark.parametrize("answer", [{}, {"tools": []}, {"supportedVersions": 3}])
def test_a_server_that_answers_anything_with_some_result_gets_the_handshake(answer: dict[str, Any]) -> None:
    server = Server(answer, INITIALIZED)
    assert settled(server).era.version == "2025-11-25"
    assert server.asked == ["server/discover", "initialize"]


def test_such_a_server_does_not_speak_the_stateless_era() -> None:
    with pytest.raises(ProtocolError, match="the server does not support the stateless era"):
        settled(Server({}), "modern")
