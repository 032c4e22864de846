"""Checks of a server's requests, paused timeouts, and results that need another round of input."""

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
def test_a_declared_and_well_formed_request_passes_the_check(method: str, params: dict[str, Any]) -> None:
    assert RequestAnswers(Person(), RequestTimeouts()).check(method, raw(params)) == params


@pytest.mark.parametrize(
    ("declared", "method", "params", "code"),
    [
        ({}, "roots/list", {}, -32601),
        ({"roots": None}, "roots/list", {}, -32601),
        (EVERYTHING, "tasks/list", {}, -32601),
        ({"elicitation": {"url": {}}}, "elicitation/create", {"message": "x", "requestedSchema": FORM}, -32602),
        (EVERYTHING, "roots/list", [], -32602),
        *(
            (EVERYTHING, "elicitation/create", params, -32602)
            for params in (
                {"mode": "voice", "message": "x"},
                {"mode": "url", "message": "x"},
                {"message": 5, "requestedSchema": FORM},
                {"message": "x", "requestedSchema": {"properties": {"a": 5}}},
                {"message": "x", "requestedSchema": {**FORM, "type": "array"}},
            )
        ),
        *(
            (EVERYTHING, "sampling/createMessage", params, -32602)
            for params in (
                {"messages": [MESSAGE], "maxTokens": "5"},
                {"messages": [{**MESSAGE, "role": "tool"}], "maxTokens": 5},
                {"messages": [MESSAGE], "maxTokens": 5, "toolChoice": {}},
            )
        ),
    ],
)
def test_an_undeclared_or_malformed_request_is_refused(
    declared: dict[str, Any], method: str, params: Any, code: int
) -> None:
    with pytest.raises(RpcError) as caught:
        RequestAnswers(Person(declared=declared), RequestTimeouts()).check(method, raw(params))
    assert caught.value.code == code
    assert method in caught.value.message


def test_params_may_be_absent_only_where_none_are_required() -> None:
    answers = RequestAnswers(Person(), RequestTimeouts())
    assert answers.check("roots/list", Raw()) == {}
    with pytest.raises(RpcError):
        answers.check("elicitation/create", Raw())


def test_the_declared_capabilities_change_only_on_request() -> None:
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


def test_a_paused_timeout_does_not_stop_others() -> None:
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


# -- results that ask for input ---------------------------------------------------------------------------------------


def intercepted(result: str) -> list[str]:
    """The results, as JSON, that reach the interceptor."""
    interceptors, seen = ResponseInterceptors(), list[str]()
    interceptors.on_result("input_required", lambda pending, raw: seen.append(bytes(raw).decode()))
    line = f'{{"id":1,"result":{result}}}'.encode()
    assert interceptors.intercept(pending(), Raw(result.encode()), Raw(), line) == bool(seen)
    return seen


@pytest.mark.parametrize(
    ("result", "is_intercepted"),
    [
        ('{"resultType":"input_required","requestState":"x"}', True),
        ('{"requestState":"x","resultType" : "input_required"}', True),
        ('{"content":[{"text":"\\"input_required\\""}]}', False),
        ('{"content":["input_required"],"resultType":"complete"}', False),
        ('{"structuredContent":{"resultType":"input_required"}}', False),
        ('{"resultType":["input_required"]}', False),
        ('{"requestState":"%s","resultType":"input_required"}' % ("x" * 2_000_000), True),
    ],
    ids=["first", "last", "in a text", "in the content", "in the structured content", "in a list", "large"],
)
def test_only_a_result_of_the_type_itself_is_intercepted(result: str, is_intercepted: bool) -> None:
    assert intercepted(result) == ([result] if is_intercepted else [])


def test_a_large_complete_result_is_not_searched() -> None:
    for ends in ('{"resultType":"complete","content":["%s"]}', '{"content":["%s"],"resultType": "complete"}'):
        interceptors = ResponseInterceptors()
        interceptors.on_result("input_required", lambda pending, raw: None)
        line = (ends % ('input_required","' + "x" * 2_000_000)).encode()
        assert interceptors.has_none(line)
        assert not interceptors.has_none(line[:1_000_000])


def test_an_error_goes_to_the_handler_of_its_code() -> None:
    interceptors, seen = ResponseInterceptors(), list[RpcError]()
    interceptors.on_error(-32020, lambda pending, error: bool(seen.append(error)) or error.message == "mend me")
    for code, message, mended in ((-32020, "mend me", True), (-32020, "no", False), (-32602, "mend me", False)):
        error = raw({"code": code, "message": message})
        assert interceptors.intercept(pending(), Raw(), error, b"") == mended
    assert [error.message for error in seen] == ["mend me", "no"]
