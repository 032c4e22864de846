"""The protocol client over HTTP: eras by errors, forgotten sessions, streams that carry questions, headers."""

import asyncio
import itertools
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from ipymcp.errors import AuthError, CallError, ConnectionLost, HttpError, McpError, RpcError
from ipymcp.protocol.negotiation import EraChoice
from ipymcp.protocol.server_requests import Responder
from ipymcp.protocol.transports.http import StreamableHttpTransport
from tests.clients import ANSWERS, PATIENCE, Connection, Person, connected
from tests.servers.site import COMPLETE, Heard, Reply, refused, result, serving

pytestmark = pytest.mark.anyio
INFO = {"name": "misbehaving-site", "version": "1"}
TOOL = {"name": "work", "inputSchema": {"type": "object"}}
FORM = {"message": "Who?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}
CALL = "tools/call"
DONE = {"content": [{"type": "text", "text": "done"}]}


def client(url: str, era: EraChoice, person: Responder | None = None) -> AbstractAsyncContextManager[Connection]:
    transport = StreamableHttpTransport(url, headers={}, authorizer=None, limit=1_000_000)
    return connected(transport, era, person or Person())


def opening(heard: Heard, **headers: str) -> Reply | None:
    """The answers to a handshake, to a notification and to a response, which are always the same."""
    if heard.method == "initialize":
        capabilities = {"tools": {}}
        opened = result(heard, protocolVersion="2025-11-25", capabilities=capabilities, serverInfo=INFO)
        return Reply(opened, headers=headers)
    if "id" not in heard.message or not heard.method:
        return Reply(status=202)
    if heard.method == "tools/list":
        return Reply(result(heard, tools=[TOOL]))
    return None


def modern(heard: Heard, tools: list[Any]) -> Reply | None:
    """The same for the stateless era."""
    if heard.method == "server/discover":
        meta = {"io.modelcontextprotocol/serverInfo": INFO}
        about = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "_meta": meta, **COMPLETE}
        return Reply(result(heard, **about))
    if heard.method == "tools/list":
        return Reply(result(heard, tools=tools, **COMPLETE))
    return None


# -- which era --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "to_the_probe",
    [
        lambda heard: Reply(status=400),
        lambda heard: Reply(status=404),
        lambda heard: Reply(status=405),
        lambda heard: Reply(status=403),
        lambda heard: Reply(status=407),
        lambda heard: Reply(status=500),
        lambda heard: Reply(status=503),
        lambda heard: Reply(status=200),
        lambda heard: Reply(body=b"<p>a page</p>", headers={"Content-Type": "text/html"}),
        lambda heard: Reply(events=[]),
        lambda heard: Reply({"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "No session"}}, 400),
        lambda heard: Reply(refused(heard, -32601, "Method not found"), 404),
        lambda heard: Reply(refused(heard, -32022, "No", data={"supported": ["2025-11-25"], "requested": "x"}), 400),
    ],
)
async def test_an_error_that_no_modern_server_gives_means_a_handshake(to_the_probe: Callable[[Heard], Reply]) -> None:
    def answer(heard: Heard) -> Reply:
        return to_the_probe(heard) if heard.method == "server/discover" else opening(heard) or Reply(status=400)

    with serving(answer) as site:
        async with client(site.url, "auto") as connection:
            assert connection.client.era.version == "2025-11-25"
            assert connection.client.era_was_answered
            await connection.client.list_tools(timeout=PATIENCE)
        assert site.methods() == ["server/discover", "initialize", "notifications/initialized", "tools/list"]


@pytest.mark.parametrize(
    ("to_the_probe", "kind"),
    [
        (lambda heard: Reply(status=401), AuthError),
        (lambda heard: Reply(status=403, headers={"WWW-Authenticate": "Bearer"}), AuthError),
        (lambda heard: Reply(status=429), HttpError),
        (lambda heard: Reply(refused(heard, -32021, "I need sampling"), 400), RpcError),
        (lambda heard: Reply(refused(heard, -32020, "Header mismatch"), 400), RpcError),
    ],
)
async def test_an_error_of_either_era_is_the_outcome(
    to_the_probe: Callable[[Heard], Reply], kind: type[McpError]
) -> None:
    with serving(to_the_probe) as site:
        with pytest.raises(kind):
            async with client(site.url, "auto"):
                pass
        assert site.methods() == ["server/discover"]


async def test_a_probe_that_is_never_answered_is_abandoned() -> None:
    over = threading.Event()

    def answer(heard: Heard) -> Reply:
        if heard.method == "server/discover":
            over.wait(PATIENCE)
        return opening(heard) or Reply(status=400)

    with serving(answer) as site:
        try:
            async with client(site.url, "auto") as connection:
                assert connection.client.era.version == "2025-11-25"
                assert not connection.client.era_was_answered
                await connection.client.list_tools(timeout=PATIENCE)
                assert len(connection.client._peer) == 0
        finally:
            over.set()


# -- forgotten sessions -----------------------------------------------------------------------------------------------


class Forgetful:
    """A server of the handshake era with one session at a time."""

    def __init__(self) -> None:
        self.numbers = itertools.count(1)
        self.session = ""
        self.initialize: Reply | None = None
        self.forgets_all_calls = False

    def forget(self) -> None:
        self.session = "forgotten"

    def __call__(self, heard: Heard) -> Reply:
        if heard.method == "initialize":
            if self.initialize is not None:
                return self.initialize
            self.session = f"s{next(self.numbers)}"
        elif heard.headers.get("mcp-session-id") != self.session or (self.forgets_all_calls and heard.method == CALL):
            return Reply(status=404)
        reply = opening(heard, **{"Mcp-Session-Id": self.session})
        return reply or Reply(result(heard, **DONE))


async def test_a_forgotten_session_is_opened_once_and_what_was_not_accepted_is_sent_again() -> None:
    server = Forgetful()
    with serving(server) as site:
        async with client(site.url, "legacy") as connection:
            assert await connection.call("work").text() == "done"
            server.forget()
            calls = [connection.call("work") for _ in range(30)]
            assert await asyncio.gather(*[call.text() for call in calls]) == ["done"] * 30
            assert site.methods().count("initialize") == 2
            accepted = [each.message["id"] for each in site.of(CALL) if each.headers["mcp-session-id"] == "s2"]
            assert sorted(accepted) == sorted(call.pending.id for call in calls)
            await asyncio.wait_for(connection.heard.changes.get(), PATIENCE)
            server.forget()
            assert await connection.call("work").text() == "done"
            assert connection.heard.losses == []


async def test_a_call_that_is_given_up_meanwhile_is_not_sent_again() -> None:
    server = Forgetful()
    opening_up, go_on = threading.Event(), threading.Event()

    def answer(heard: Heard) -> Reply:
        if heard.method == "initialize" and server.session:
            opening_up.set()
            go_on.wait(PATIENCE)
        return server(heard)

    with serving(answer) as site:
        async with client(site.url, "legacy") as connection:
            await connection.client.list_tools(timeout=PATIENCE)
            server.forget()
            call, held = connection.call("work"), None
            assert await asyncio.to_thread(opening_up.wait, PATIENCE)
            held = connection.call("work")
            connection.client.give_up(call.pending, "not wanted")
            connection.client.give_up(held.pending, "not wanted")
            kept = connection.call("work")
            go_on.set()
            assert await kept.text() == "done"
            assert [each.message["id"] for each in site.of(CALL)] == [call.pending.id, kept.pending.id]
            assert site.of("notifications/cancelled") == []


async def test_a_message_whose_session_is_forgotten_twice_fails() -> None:
    server = Forgetful()
    server.forgets_all_calls = True
    with serving(server) as site:
        async with client(site.url, "legacy") as connection:
            with pytest.raises(ConnectionLost) as caught:
                await connection.call("work").text()
            assert caught.value.message == "the server forgot its session twice in a row"
            assert site.methods().count("tools/call") == 2
            server.forgets_all_calls = False
            assert await connection.call("work").text() == "done"


async def test_a_session_that_cannot_be_reopened_fails_its_calls_and_the_next_one_tries_again() -> None:
    server = Forgetful()
    with serving(server) as site:
        async with client(site.url, "legacy") as connection:
            server.forget()
            server.initialize = Reply(status=503, headers={"Retry-After": "7"})
            with pytest.raises(ConnectionLost) as caught:
                await connection.call("work").text()
            assert caught.value.message == (
                "the server forgot this session, and reopening it failed: "
                "the server answered HTTP 503 Service Unavailable"
            )
            assert caught.value.hint == "try again in 7 s"
            server.initialize = None
            assert await connection.call("work").text() == "done"


# -- streams that carry questions -------------------------------------------------------------------------------------


def asking(heard: Heard, answered: Callable[[], object] | None = None) -> Reply:
    """A stream with a question, then the answer."""
    question = {"jsonrpc": "2.0", "id": f"q{heard.message['id']}", "method": "elicitation/create", "params": FORM}
    events = [question, *([answered] if answered else []), result(heard, **DONE)]
    return Reply(events=events)


async def test_a_question_belongs_to_the_call_whose_stream_carried_it() -> None:
    answered = threading.Semaphore(0)

    def answer(heard: Heard) -> Reply:
        if not heard.method:
            answered.release()
        reply = opening(heard)
        return reply or asking(heard, lambda: answered.acquire(timeout=PATIENCE))

    person = Person()
    with serving(answer) as site:
        async with client(site.url, "legacy", person) as connection:
            calls = [connection.call("work") for _ in range(3)]
            assert [await call.text() for call in calls] == ["done"] * 3
            assert {pending for _, _, pending in person.asked} == {call.pending for call in calls}
        responses = [each.message for each in site.heard if each.verb == "POST" and not each.method]
        assert {message["id"] for message in responses} == {f"q{call.pending.id}" for call in calls}
        assert all(message["result"] == ANSWERS["elicitation/create"] for message in responses)


async def test_a_question_on_a_stateless_stream_fails_that_call_alone() -> None:
    hold, asked = threading.Event(), threading.Event()

    def answer(heard: Heard) -> Reply:
        reply = modern(heard, [TOOL])
        if reply is None and heard.message["params"]["arguments"]:
            return asking(heard, lambda: hold.wait(PATIENCE))
        if reply is None:
            asked.set()
            return Reply(events=[lambda: hold.wait(PATIENCE), result(heard, **DONE, **COMPLETE)])
        return reply

    with serving(answer) as site:
        async with client(site.url, "auto") as connection:
            quiet = connection.call("work")
            assert await asyncio.to_thread(asked.wait, PATIENCE)
            with pytest.raises(CallError) as caught:
                await connection.call("work", ask=True).text()
            assert caught.value.message == "the server asked for elicitation/create without a handshake"
            assert await asyncio.wait_for(connection.heard.wishes.get(), PATIENCE)
            hold.set()
            assert await quiet.text() == "done"


# -- headers ----------------------------------------------------------------------------------------------------------


class Designating:
    """A server of the stateless era that checks its tool's header; the parameter's header may change its name."""

    def __init__(self) -> None:
        self.header = "Region"
        self.lists = 0

    def tools(self) -> list[Any]:
        self.lists += 1
        place = {"type": "string", "x-mcp-header": self.header}
        bad = {"type": "number", "x-mcp-header": "Bad"}
        return [
            {"name": "work", "inputSchema": {"type": "object", "properties": {"place": place}}},
            {"name": "bad", "inputSchema": {"type": "object", "properties": {"x": bad}}},
        ]

    def __call__(self, heard: Heard) -> Reply:
        reply = modern(heard, self.tools() if heard.method == "tools/list" else [])
        if reply is not None:
            return reply
        if heard.headers.get(f"mcp-param-{self.header.lower()}") != heard.message["params"]["arguments"].get("place"):
            return Reply(refused(heard, -32020, f"Header mismatch: Mcp-Param-{self.header}"), 400)
        return Reply(result(heard, **DONE, **COMPLETE))


async def test_tools_with_an_invalid_annotation_are_left_out_with_a_warning() -> None:
    with serving(Designating()) as site:
        async with client(site.url, "modern") as connection:
            tools = await connection.client.list_tools(timeout=PATIENCE)
            assert [tool.name for tool in tools] == ["work"]
            assert connection.heard.noises == [
                "the tool bad left out: x-mcp-header 'Bad' of x, which is not a string, integer or boolean"
            ]
            assert await connection.call("work", place="eu").text() == "done"
            assert await connection.call("work").text() == "done"
            assert site.of("tools/call")[0].headers["mcp-param-region"] == "eu"


async def test_a_call_refused_for_its_headers_is_sent_again_with_those_of_the_new_list_and_once_only() -> None:
    server = Designating()
    with serving(server) as site:
        async with client(site.url, "modern") as connection:
            await connection.client.list_tools(timeout=PATIENCE)
            server.header = "Zone"
            assert await connection.call("work", place="eu").text() == "done"
            first, second = site.of("tools/call")
            assert first.message["id"] != second.message["id"]
            assert second.headers["mcp-param-zone"] == "eu"
            assert server.lists == 2
            await asyncio.wait_for(connection.heard.changes.get(), PATIENCE)
            server.header = "Zone\t"  # which no list can mend
            with pytest.raises(RpcError) as caught:
                await connection.call("work", place="eu").text()
            assert caught.value.code == -32020
            assert len(site.of("tools/call")) == 4
