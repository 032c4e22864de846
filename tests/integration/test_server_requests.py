"""Requests of servers in both eras: their own messages, and input rounds."""

import asyncio
import contextlib
import json
import re
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from ipymcp.errors import CallError, CallTimeout, ConnectionLost, RpcError
from ipymcp.protocol import types
from ipymcp.protocol.eras import OTHER_ERA
from ipymcp.protocol.negotiation import EraChoice
from ipymcp.protocol.server_requests import Responder
from ipymcp.protocol.transports.base import Transport
from tests.clients import ANSWERS, EVERYTHING, PATIENCE, Connection, Person, asking_server, connected, stdio
from tests.serving import serving
from tests.transports.http import http

pytestmark = pytest.mark.anyio
SERVERS = Path(__file__).parents[1] / "servers"
FORM = {"message": "Who are you?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}
ASK_FORM = {"method": "elicitation/create", "params": FORM}
ASK_ROOTS = {"method": "roots/list"}
SDKS = ("sdk1", "sdk2")
NEEDS = {"resultType": "input_required"}
STATE = "sealed-by-the-server"


def raw(era: EraChoice, person: Responder) -> AbstractAsyncContextManager[Connection]:
    return connected(stdio([sys.executable, str(SERVERS / "raw_asks.py")]), era, person)


Ask = Callable[[Responder], AbstractAsyncContextManager[Connection]]


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The servers on the official SDKs that ask, over HTTP."""
    folder = tmp_path_factory.mktemp("asks")
    with contextlib.ExitStack() as running, ThreadPoolExecutor() as pool:

        def start(sdk: str) -> str:
            command = asking_server(sdk)
            return running.enter_context(serving(lambda port: [*command, "--http", str(port)], folder)).origin + "/mcp"

        yield dict(zip(SDKS, pool.map(start, SDKS), strict=True))


@pytest.fixture
def sdk1(urls: dict[str, str]) -> Ask:
    return lambda person: connected(http(urls["sdk1"]), "legacy", person)


@pytest.fixture
def sdk2(urls: dict[str, str]) -> Ask:
    return lambda person: connected(http(urls["sdk2"]), "modern", person)


# -- the official SDK's servers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize(("sdk", "era"), [("sdk1", "legacy"), ("sdk2", "legacy"), ("sdk2", "modern")])
async def test_everything_a_server_may_ask_for_is_answered(
    sdk: str, era: EraChoice, transport: str, urls: dict[str, str]
) -> None:
    person = Person()
    opened = http(urls[sdk]) if transport == "http" else stdio(asking_server(sdk))
    async with connected(opened, era, person) as connection:
        await connection.client.list_tools(timeout=PATIENCE)
        assert await connection.call("ask_form").text() == "Ada is 36"
        assert await connection.call("ask_model").text() == "tiny: Paris"
        assert await connection.call("ask_roots").text() == "file:///notebooks"
        assert await connection.call("ask_url").text() == "accept"
        form, model, roots, url = person.asked
        assert (form[0], form[1]["message"]) == ("elicitation/create", "Who are you?")
        assert form[1]["requestedSchema"]["properties"]["age"]["default"] == 30
        assert (model[0], model[1]["maxTokens"]) == ("sampling/createMessage", 100)
        assert roots[0] == "roots/list"
        assert (url[0], url[1]["mode"], url[1]["url"]) == (
            "elicitation/create",
            "url",
            "https://example.com/login?state=1",
        )


async def test_the_server_learns_that_the_user_declined_and_that_the_model_refused(sdk1: Ask) -> None:
    refusal = RpcError("the user does not want that", code=-1)
    answers = {**ANSWERS, "elicitation/create": {"action": "decline"}, "sampling/createMessage": refusal}
    person = Person(answers=answers)
    async with sdk1(person) as connection:
        assert await connection.call("ask_form").text() == "decline"
        assert await connection.call("ask_model").text() == (
            "Error executing tool ask_model: the user does not want that"
        )


async def test_a_question_that_its_server_withdraws_is_withdrawn_from_the_user() -> None:
    person = Person(thinking=asyncio.Event())
    async with raw("legacy", person) as connection:
        answer = connection.call("ask", requests=[{**ASK_FORM, "id": "one"}, ASK_ROOTS])
        await person.until("asked", "asked")
        await connection.call("withdraw", id="one").text()
        await person.until("withdrawn")
        person.decide()
        assert await answer.value() == [{"result": ANSWERS["roots/list"]}]
        assert "the server withdrew its request 'one'" in connection.heard.noises


# -- requests of a server (handshake era) -----------------------------------------------------------------------------


async def test_the_thirty_third_request_at_a_time_is_refused_and_a_ping_is_not() -> None:
    person = Person(thinking=asyncio.Event())
    async with raw("legacy", person) as connection:
        answer = connection.call("ask", requests=[ASK_ROOTS] * 33 + [{"method": "ping"}])
        await person.until(*["asked"] * 32)
        await connection.call("received").text()  # by now all have arrived
        assert len(person.asked) == 32
        person.decide()
        answers = await answer.value()
        assert answers[:32] == [{"result": ANSWERS["roots/list"]}] * 32
        refused = {"code": -32000, "message": "this host handles 32 requests at a time; try later"}
        assert answers[32:] == [{"error": refused}, {"result": {}}]
        assert connection.heard.noises == [
            "the server sent roots/list, refused: this host handles 32 requests at a time; try later"
        ]
        person.thinking = None
        again = await connection.call("ask", requests=[ASK_ROOTS] * 32).value()
        assert again == [{"result": ANSWERS["roots/list"]}] * 32


async def test_undeclared_and_malformed_requests_are_refused() -> None:
    person = Person(declared={"elicitation": {}, "roots": {}, "sampling": {}})
    message = {"role": "user", "content": {"type": "text", "text": "x"}}
    requests: list[dict[str, Any]] = [
        {"method": "no/such"},
        {"method": "elicitation/create"},
        {"method": "elicitation/create", "params": {"message": "x"}},
        {"method": "elicitation/create", "params": {"mode": "url", "message": "x", "url": "https://example.com"}},
        {"method": "sampling/createMessage", "params": {"messages": [message]}},
        {"method": "sampling/createMessage", "params": {"messages": "x", "maxTokens": 5}},
        {"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": 5, "tools": []}},
        {"method": "roots/list", "params": 5},
    ]
    async with raw("legacy", person) as connection:
        answers = await connection.call("ask", requests=requests).value()
    assert person.asked == []
    assert [answer["error"]["code"] for answer in answers] == [-32601, *[-32602] * 7]
    assert answers[0]["error"]["message"] == "no/such is not supported by this host"
    assert answers[3]["error"]["message"] == (
        "the params of elicitation/create are malformed: the mode 'url' was not declared"
    )


async def test_a_responder_that_fails_is_an_error_for_the_server_and_its_cause_stays_here() -> None:
    answers = {**ANSWERS, "roots/list": ZeroDivisionError("secret"), "elicitation/create": {1, 2}}
    person = Person(answers=answers, thinking=asyncio.Event())
    async with raw("legacy", person) as connection:
        asking = connection.call("ask", requests=[ASK_ROOTS, ASK_FORM, {**ASK_ROOTS, "id": "q0"}])
        await connection.call("received").text()  # by now all have arrived
        person.decide()
        answers = await asking.value()
        assert answers[0] == {"error": {"code": -32603, "message": "roots/list failed in the host"}}
        assert answers[1] == {"error": {"code": -32603, "message": "elicitation/create failed in the host"}}
        assert "the server sent roots/list with an id in use ('q0'): not answered" in connection.heard.noises
        assert "roots/list failed in the host: ZeroDivisionError('secret')" in connection.heard.noises


async def test_a_connection_that_ends_withdraws_its_questions() -> None:
    person = Person(thinking=asyncio.Event())
    async with raw("legacy", person) as connection:
        answer = connection.call("ask", requests=[ASK_ROOTS, ASK_FORM])
        await person.until("asked", "asked")
        await connection.client.aclose()
        await person.until("withdrawn", "withdrawn")
        with pytest.raises(ConnectionLost):
            await answer.outcome


async def test_the_timeout_of_a_request_stands_still_while_the_host_owes_an_answer() -> None:
    person = Person(thinking=asyncio.Event())
    async with raw("legacy", person) as connection:
        asking = connection.call("ask", requests=[ASK_ROOTS])
        stalling = asyncio.ensure_future(connection.client.request("resources/templates/list", timeout=0.2))
        await person.until("asked")
        await asyncio.wait({stalling}, timeout=0.5)
        assert not stalling.done()
        person.decide()
        with pytest.raises(CallTimeout):
            await asyncio.wait_for(stalling, PATIENCE)
        await asking.text()


# -- input rounds (stateless era) -------------------------------------------------------------------------------------


async def test_inputs_of_one_round_are_asked_for_at_once_and_belong_to_the_call(sdk2: Ask) -> None:
    person = Person(thinking=asyncio.Event())
    async with sdk2(person) as connection:
        call = connection.call("ask_all")
        await person.until("asked", "asked", "asked")
        assert {pending for _, _, pending in person.asked} == {call.pending}
        person.decide()
        assert await call.text() == "Ada, Paris, 1 roots"


async def test_each_round_has_an_id_of_its_own_and_echoes_the_state_to_the_letter() -> None:
    state = "\\u0041é\\/ \\n"
    async with raw("modern", Person()) as connection:
        needed = {**NEEDS, "inputRequests": {"a": ASK_FORM, "b": ASK_ROOTS}, "requestState": state}
        answer = await connection.call("need", result=needed).value()
        assert answer == {
            "inputResponses": {"a": ANSWERS["elicitation/create"], "b": ANSWERS["roots/list"]},
            "requestState": state,
        }
        assert await connection.call("need", result={**NEEDS, "inputRequests": {"a": ASK_ROOTS}}).value() == {
            "inputResponses": {"a": ANSWERS["roots/list"]}
        }
        assert await connection.call("need", result={**NEEDS, "requestState": state}).value() == {"requestState": state}
        frames = await connection.call("received").value()
        calls = [frame for frame in frames if frame["method"] == "tools/call"]
        assert len({frame["id"] for frame in calls}) == 7
        tokens = [frame["params"]["_meta"]["progressToken"] for frame in calls]
        assert tokens == [frame["id"] for frame in calls]


async def test_progress_of_every_round_reaches_the_call(sdk2: Ask) -> None:
    async with sdk2(Person()) as connection:
        call = connection.call("count_rounds", rounds=3)
        assert await call.text() == "3 rounds"
        assert [call.progress.get_nowait().progress for _ in range(call.progress.qsize())] == [0, 1, 2, 3]


async def test_rounds_without_end_end_after_ten(sdk2: Ask) -> None:
    person = Person()
    async with sdk2(person) as connection:
        with pytest.raises(CallError) as caught:
            await connection.call("ask_forever").text()
        assert caught.value.message == "the server asked for input 10 times and still wants more"
        assert caught.value.hint == "a fault of the server; ipymcp gives up after 10 rounds"
        assert len(person.asked) == 10
        assert await connection.call("ask_form").text() == "Ada is 36"


async def test_prompts_and_resources_may_need_input_too(sdk2: Ask) -> None:
    async with sdk2(Person()) as connection:
        prompt = await connection.client.request("prompts/get", b'{"name":"greeting"}', timeout=PATIENCE)
        assert types.loads(prompt)["messages"][0]["content"]["text"] == "Hello from file:///notebooks"
        resource = await connection.client.request("resources/read", b'{"uri":"greeting://Ada"}', timeout=PATIENCE)
        assert types.loads(resource)["contents"][0]["text"] == "Ada from file:///notebooks, True"


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ({}, "the server asks for input without saying which"),
        ({"requestState": None}, "the server asks for input without saying which"),
        ({"inputRequests": {"a": {"method": "no/such"}}}, None),
        ({"inputRequests": {"a": {"method": "elicitation/create", "params": {}}}}, None),
        ({"inputRequests": {"a": 5}}, None),
        ({"inputRequests": [ASK_ROOTS]}, None),
        (
            {"inputRequests": {f"{n}": ASK_ROOTS for n in range(33)}},
            "the server asks for 33 inputs at once: this host handles 32 requests at a time; try later",
        ),
    ],
)
async def test_an_invalid_request_for_input_fails_that_call_alone(result: dict[str, Any], message: str | None) -> None:
    person = Person()
    async with raw("modern", person) as connection:
        both = {**NEEDS, **result}
        with pytest.raises(CallError) as caught:
            await connection.call("need", result=both).text()
        assert message is None or caught.value.message == message
        assert "input" in caught.value.message
        assert person.asked == []
        assert await connection.call("need", result={**NEEDS, "inputRequests": {"a": ASK_ROOTS}}).value()


async def test_a_refused_input_fails_the_call_and_withdraws_the_others() -> None:
    thinking = asyncio.Event()

    class Refusing(Person):
        async def answer(self, method: str, params: dict[str, Any], pending: Any) -> dict[str, Any]:
            if method == "roots/list":
                await self.until("asked")
                raise RpcError("no roots for you", code=-1)
            return await super().answer(method, params, pending)

    person = Refusing(thinking=thinking)
    async with raw("modern", person) as connection:
        call = connection.call("need", result={**NEEDS, "inputRequests": {"a": ASK_FORM, "b": ASK_ROOTS}})
        with pytest.raises(CallError) as caught:
            await call.text()
        assert caught.value.message == "the server asked for input and was refused: no roots for you"
        await person.until("withdrawn")


async def test_a_call_given_up_while_its_input_is_gathered_ends_there() -> None:
    person = Person(thinking=asyncio.Event())
    async with raw("modern", person) as connection:
        call = connection.call("need", result={**NEEDS, "inputRequests": {"a": ASK_FORM}, "requestState": STATE})
        await person.until("asked")
        assert len(connection.client._peer) == 1
        assert connection.client.give_up(call.pending, "not wanted")
        assert not connection.client.give_up(call.pending, "not wanted")
        await person.until("withdrawn")
        frames = await connection.call("received").value()
        assert [frame["method"] for frame in frames].count("notifications/cancelled") == 0
        assert len(connection.client._peer) == 0


async def test_a_call_given_up_in_a_later_round_is_cancelled_under_that_rounds_id() -> None:
    async with raw("modern", Person()) as connection:
        call = connection.call("need", result={**NEEDS, "requestState": "stall"})
        first = call.pending.id
        while "stall" not in (await connection.call("received").text()).partition("stall")[2]:
            pass  # until the retry has arrived
        assert connection.client.give_up(call.pending, "not wanted")
        cancelled: list[int] = []
        while not cancelled:
            frames = await connection.call("received").value()
            cancelled = [frame["params"]["requestId"] for frame in frames if frame["method"].endswith("/cancelled")]
        assert cancelled == [call.pending.id] != [first]


async def test_a_connection_that_ends_fails_a_call_whose_input_is_gathered() -> None:
    person = Person(thinking=asyncio.Event())
    async with raw("modern", person) as connection:
        call = connection.call("need", result={**NEEDS, "inputRequests": {"a": ASK_FORM}})
        await person.until("asked")
        await connection.client.aclose()
        await person.until("withdrawn")
        with pytest.raises(ConnectionLost):
            await call.outcome


async def test_the_state_of_a_server_is_in_no_log_and_no_error(caplog: pytest.LogCaptureFixture) -> None:
    async with raw("modern", Person()) as connection:
        broken = [{**NEEDS, "requestState": STATE, "inputRequests": value} for value in (5, {"a": 5})]
        for result in broken:
            with pytest.raises(CallError) as caught:
                await connection.call("need", result=result).text()
            assert STATE not in str(caught.value)
        connection.client._message(json.dumps({"requestState": STATE, "id": 99}).encode(), None)
        connection.client._message(b'{"id": 98, "result": {"requestState": "' + STATE.encode(), None)
        assert not re.search(STATE, " ".join(connection.heard.noises) + caplog.text)
        assert len(connection.heard.noises) == 2


async def test_declared_capabilities_may_change_in_the_stateless_era_and_not_in_the_other() -> None:
    person = Person(declared={})
    async with raw("modern", person) as connection:
        assert connection.client.declare("elicitation")
        person.declared = EVERYTHING
        assert connection.client.declare("elicitation")
        frames = await connection.call("received").value()
        declared = [frame["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] for frame in frames]
        for capabilities in declared:
            capabilities.pop("extensions")
        assert declared == [{}, EVERYTHING]
        assert await connection.call("need", result={**NEEDS, "inputRequests": {"a": ASK_ROOTS}}).value()
    person = Person(declared={})
    async with raw("legacy", person) as connection:
        assert connection.client.declare("elicitation")
        person.declared = EVERYTHING
        assert not connection.client.declare("elicitation")
        assert "error" in (await connection.call("ask", requests=[ASK_ROOTS]).value())[0]


async def test_new_roots_are_announced_where_that_was_declared() -> None:
    for era in ("legacy", "modern"):
        async with raw(era, Person()) as connection:
            connection.client.roots_changed()
            methods = [frame.get("method") for frame in await connection.call("received").value()]
            assert methods.count("notifications/roots/list_changed") == (era == "legacy")


# -- servers that push on a stateless connection ----------------------------------------------------------------------


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_a_server_of_the_sdk_that_pushes_wants_a_handshake(transport: str, urls: dict[str, str]) -> None:
    def open_transport() -> Transport:
        return stdio(asking_server("sdk2")) if transport == "stdio" else http(urls["sdk2"])

    async with connected(open_transport(), "auto", Person()) as connection:
        with pytest.raises(CallError) as caught:
            await connection.call("push").text()
        assert "back-channel" in caught.value.message
        assert caught.value.hint == "the session is reopened with a handshake: call the tool again"
        assert connection.heard.wishes.get_nowait() == "it asks for something without a handshake"
    async with connected(open_transport(), "legacy", Person()) as connection:
        assert await connection.call("push").text() == "Ada is 36"


async def test_a_request_on_a_stateless_connection_fails_its_call_and_wants_a_handshake() -> None:
    async with raw("auto", Person()) as connection:
        with pytest.raises(CallError) as caught:
            await connection.call("ask", requests=[ASK_FORM]).text()
        assert caught.value.message == "the server asked for elicitation/create without a handshake"
        assert caught.value.hint == "the session is reopened with a handshake: call the tool again"
        assert connection.heard.wishes.get_nowait() == "it asks for elicitation/create without a handshake"
    async with raw("modern", Person()) as connection:
        with pytest.raises(CallError) as caught:
            await connection.call("ask", requests=[ASK_FORM]).text()
        assert caught.value.hint == OTHER_ERA
        assert connection.heard.wishes.empty()


# -- health -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("era", "method"), [("legacy", "ping"), ("modern", "server/discover")])
async def test_a_health_check_is_a_ping_or_a_discovery(era: EraChoice, method: str) -> None:
    async with raw(era, Person()) as connection:
        if era == "modern":
            await connection.client.check(PATIENCE)
        else:
            with pytest.raises(CallTimeout):  # this server does not even answer a ping
                await connection.client.check(0.2)
        frames = await connection.call("received").value()
        assert [frame["method"] for frame in frames][-2 if era == "modern" else -3] == method
