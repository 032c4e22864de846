"""The sampling budget of servers: reserved before a request, also for concurrent ones."""

import asyncio
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import ipymcp
from ipymcp import Mcp, RpcError
from ipymcp.interaction.questions import ApprovalQuestion
from ipymcp.llm.answer import Usage
from ipymcp.llm.sampling import Sampler
from ipymcp.runtime.client_handlers import SamplingRequest
from tests.environments import ROOT

MAIL = {"command": sys.executable, "args": [str(ROOT / "tests" / "servers" / "mail.py")]}


class Model:
    """Answers with as many tokens as it may, once all requests that can be made have been made."""

    name = "a model"

    def __init__(self) -> None:
        self.allowed: list[int] = []

    def price(self, tokens: int, most: int) -> float:
        return (tokens + most) / 1_000

    async def sample(self, request: SamplingRequest) -> tuple[dict[str, Any], Usage]:
        assert request.max_tokens == request.params["maxTokens"] is not None
        self.allowed.append(request.max_tokens)
        await asyncio.sleep(0)
        return {"content": {"type": "text", "text": "so"}}, Usage(1, 10, request.max_tokens)


@pytest.fixture(scope="module")
def mcp() -> Iterator[Mcp]:
    with ipymcp.connect({"mail": MAIL}) as mcp:
        yield mcp


def request(tokens: object, text: str = "hey") -> SamplingRequest:
    message = {"role": "user", "content": {"type": "text", "text": text}}
    limit = tokens if isinstance(tokens, int) else None
    return SamplingRequest("mail", None, [message], None, limit, {"maxTokens": tokens})


def answered(mcp: Mcp, model: Model, budget: int, *requests: SamplingRequest) -> list[Any]:
    sampler = Sampler(mcp._host, model, lambda: budget)  # type: ignore[arg-type]
    mcp._host.guard.policy.agree(sampler, mcp._host.find("mail").rights, None)

    async def ask() -> list[Any]:
        return await asyncio.gather(*map(sampler._answer, requests), return_exceptions=True)

    return mcp._host.loop.run(ask())


def test_concurrent_requests_get_no_more_than_the_budget(mcp: Mcp) -> None:
    model = Model()
    answers = answered(mcp, model, 10_000, *[request(4_000) for _ in range(30)])
    assert sum(model.allowed) <= 10_000
    assert model.allowed[:2] == [4_000, 4_000]
    assert sum(isinstance(answer, dict) for answer in answers) == len(model.allowed) == 3
    assert all(isinstance(answer, (dict, RpcError)) for answer in answers)


@pytest.mark.parametrize("tokens", [None, 10**9, -5, "many", True])
def test_a_request_is_capped_by_the_budget(mcp: Mcp, tokens: object) -> None:
    model = Model()
    answered(mcp, model, 5_000, request(tokens))
    assert 0 < model.allowed[0] <= 5_000


def test_a_request_that_exceeds_the_budget_is_not_sent(mcp: Mcp) -> None:
    model = Model()
    [refused] = answered(mcp, model, 1_000, request(10, "x" * 100_000))
    assert isinstance(refused, RpcError) and model.allowed == []
    assert "this request needs about 25," in str(mcp.servers["mail"].logs(5))


def test_the_question_shows_the_tools_and_the_tokens(mcp: Mcp, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[ApprovalQuestion] = []

    async def refuse(question: ApprovalQuestion) -> str:
        shown.append(question)
        return "no"

    monkeypatch.setattr(mcp._host.questions, "ask", refuse)
    wanted = request(700)
    wanted.params["tools"] = [{"name": "rm", "inputSchema": {"type": "object"}}]
    sampler = Sampler(mcp._host, Model(), lambda: 10_000)  # type: ignore[arg-type]
    assert mcp._host.loop.run(sampler._answer(wanted)) is None
    [[call]] = [question.calls for question in shown]
    arguments = call.arguments
    assert call.why == "it uses your tokens of a model: about 28 in, at most 700 out, at most about $0.73"
    assert arguments["maxTokens"] == 700
    assert arguments["tool 1, rm"] == {"name": "rm", "inputSchema": {"type": "object"}}
