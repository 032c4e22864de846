"""Requests refused before anyone is asked, paused timeouts, and answers that need another round."""

import asyncio
import json
from typing import Any

import pytest
from msgspec import Raw

from ipymcp.errors import RpcError
from ipymcp.protocol.jsonrpc import PendingRequest, RequestTimeouts
from ipymcp.protocol.server_requests import RequestAnswers, ResponseInterceptors
from tests.clients import EVERYTHING, Person

FORM = {"type": "object", "properties": {"name": {"type": "string", "title": "Name"}}, "required": ["name"]}
MESSAGE = {"role": "user", "content": {"type": "text", "text": "x"}}


def raw(value: Any) -> Raw:
    return Raw(json.dumps(value).encode())


def pending() -> PendingRequest:
    return PendingRequest(lambda progress: None)


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("elicitation/create", {"message": "x", "requestedSchema": FORM}),
        ("elicitation/create", {"mode": "form", "message": "x", "requestedSchema": {"properties": {}}}),
        ("elicitation/create", {"mode": "url", "message": "x", "url": "https://example.com", "elicitationId": "1"}),
        ("sampling/createMessage", {"messages": [], "maxTokens": 1}),
        ("sampling/createMessage", {"messages": [MESSAGE, {**MESSAGE, "content": [{"type": "text"}]}], "maxTokens": 9}),
        ("roots/list", {"_meta": {}}),
    ],
)
def test_what_was_declared_and_is_well_formed_is_let_through(method: str, params: dict[str, Any]) -> None:
    assert RequestAnswers(Person(), RequestTimeouts()).check(method, raw(params)) == params


@pytest.mark.parametrize(
    ("declared", "method", "params", "code"),
    [
        ({}, "roots/list", {}, -32601),
        ({"roots": None}, "roots/list", {}, -32601),
        (EVERYTHING, "tasks/list", {}, -32601),
        (EVERYTHING, "elicitation/create", {"mode": "voice", "message": "x"}, -32602),
        (EVERYTHING, "elicitation/create", {"mode": "url", "message": "x"}, -32602),
        (EVERYTHING, "elicitation/create", {"message": 5, "requestedSchema": FORM}, -32602),
        (EVERYTHING, "elicitation/create", {"message": "x", "requestedSchema": {"properties": {"a": 5}}}, -32602),
        (EVERYTHING, "elicitation/create", {"message": "x", "requestedSchema": {**FORM, "type": "array"}}, -32602),
        ({"elicitation": {"url": {}}}, "elicitation/create", {"message": "x", "requestedSchema": FORM}, -32602),
        (EVERYTHING, "sampling/createMessage", {"messages": [MESSAGE], "maxTokens": "5"}, -32602),
        (EVERYTHING, "sampling/createMessage", {"messages": [{**MESSAGE, "role": "tool"}], "maxTokens": 5}, -32602),
        (EVERYTHING, "sampling/createMessage", {"messages": [MESSAGE], "maxTokens": 5, "toolChoice": {}}, -32602),
        (EVERYTHING, "roots/list", [], -32602),
    ],
)
def test_anything_else_is_refused(declared: dict[str, Any], method: str, params: Any, code: int) -> None:
    with pytest.raises(RpcError) as caught:
        RequestAnswers(Person(declared=declared), RequestTimeouts()).check(method, raw(params))
    assert caught.value.code == code
    assert method in caught.value.message


def test_params_may_be_absent_only_where_nothing_is_needed() -> None:
    answers = RequestAnswers(Person(), RequestTimeouts())
    assert answers.check("roots/list", Raw()) == {}
    with pytest.raises(RpcError):
        answers.check("elicitation/create", Raw())


def test_what_to_declare_is_asked_again_only_when_told() -> None:
    person = Person(declared={})
    answers = RequestAnswers(person, RequestTimeouts())
    person.declared = EVERYTHING
    assert answers.declared == {}
    assert answers.is_outdated("sampling")
    assert not answers.is_outdated("unknown")
    assert answers.declare()
    assert not answers.declare()
    assert answers.declared == EVERYTHING


# -- timeouts ----------------------------------------------------------------------------------------------------------


def test_a_held_clock_stands_still_and_others_go_on() -> None:
    async def main() -> None:
        timeouts, held, free = RequestTimeouts(), pending(), pending()
        over = asyncio.Event()

        async def wait(waiting: PendingRequest) -> str:
            try:
                async with timeouts.limit(waiting, 0.05):
                    await over.wait()
            except TimeoutError:
                return "late"
            return "over"

        waits = [asyncio.ensure_future(wait(held)), asyncio.ensure_future(wait(free))]
        await asyncio.sleep(0)
        with timeouts.paused(held), timeouts.paused(held):
            assert await asyncio.wait_for(waits[1], 20) == "late"
            assert not waits[0].done()
        assert await asyncio.wait_for(waits[0], 20) == "late"

    asyncio.run(main())


# -- answers that are no outcome yet ----------------------------------------------------------------------------------


def intercepted(result: str, *, also: str = "") -> list[str]:
    """The results that the interceptor takes, given as JSON."""
    interceptors, seen = ResponseInterceptors(), list[str]()
    interceptors.on_result("input_required", lambda pending, raw: seen.append(bytes(raw).decode()))
    line = f'{{"id":1,"result":{result}{also}}}'.encode()
    assert interceptors.intercept(pending(), Raw(result.encode()), Raw(), line) == bool(seen)
    return seen


def test_only_the_result_type_itself_counts() -> None:
    needed = '{"resultType":"input_required","requestState":"x"}'
    assert intercepted(needed) == [needed]
    assert intercepted('{"requestState":"x","resultType" : "input_required"}')
    assert intercepted('{"content":[{"text":"\\"input_required\\""}]}') == []
    assert intercepted('{"content":["input_required"],"resultType":"complete"}') == []
    assert intercepted('{"structuredContent":{"resultType":"input_required"}}') == []
    assert intercepted('{"resultType":["input_required"]}') == []
    large = '{"requestState":"%s","resultType":"input_required"}' % ("x" * 2_000_000)
    assert intercepted(large) == [large]


def test_a_large_result_that_says_it_is_complete_is_not_searched() -> None:
    for ends in ('{"resultType":"complete","content":["%s"]}', '{"content":["%s"],"resultType": "complete"}'):
        interceptors = ResponseInterceptors()
        interceptors.on_result("input_required", lambda pending, raw: None)
        line = (ends % ('input_required","' + "x" * 2_000_000)).encode()
        assert interceptors.has_none(line)
        assert not interceptors.has_none(line[:1_000_000])


def test_refusals_go_to_the_handler_with_a_remedy() -> None:
    interceptors, seen = ResponseInterceptors(), list[RpcError]()
    interceptors.on_error(-32020, lambda pending, error: bool(seen.append(error)) or error.message == "mend me")
    for code, message, mended in ((-32020, "mend me", True), (-32020, "no", False), (-32602, "mend me", False)):
        error = raw({"code": code, "message": message})
        assert interceptors.intercept(pending(), Raw(), error, b"") == mended
    assert [error.message for error in seen] == ["mend me", "no"]
