"""Streamable HTTP from beginning to end: sessions, the GET stream, resumption, order, cancelling, logins."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from ipymcp.errors import AuthError, ConnectionLost, HttpError, RpcError
from ipymcp.protocol.transports.http import StreamableHttpTransport
from tests.servers.raw_http import Handler, Held, Reply, Request, serving_raw
from tests.transports.http import http, talking
from tests.transports.recorder import notification, opened, opening, request

pytestmark = pytest.mark.anyio
MODERN = {"Mcp_Method": "tools/call", "MCP_Protocol_Version": "2026-07-28"}


# -- a session's life -------------------------------------------------------------------------------------------------


async def test_a_session_is_kept_and_ended_with_the_headers_it_needs() -> None:
    async with talking(**{"X-Api-Key": "k"}) as (server, transport, recorder):
        transport.send(request(1, MCP_Protocol_Version="2025-11-25"))
        await recorder.answer(1)
        await server.wait_for("GET")

    carried = [
        (
            asked.names[-2] if asked.body else asked.method,
            asked.headers.get("mcp-session-id"),
            asked.headers["x-api-key"],
        )
        for asked in server.requests
    ]
    assert sorted(carried, key=str) == sorted(
        [
            ("initialize", None, "k"),
            ("notifications/initialized", "session-1", "k"),
            ("tools/call", "session-1", "k"),
            ("GET", "session-1", "k"),
            ("DELETE", "session-1", "k"),
        ],
        key=str,
    )
    (call,) = server.asked("tools/call any")
    assert call.headers["accept"] == "application/json, text/event-stream"
    assert call.headers["content-type"] == "application/json"
    assert call.headers["user-agent"].startswith("ipymcp/")
    (get,) = server.asked("GET")
    assert (get.headers["accept"], get.headers["mcp-protocol-version"]) == ("text/event-stream", "2025-11-25")
    (end,) = server.asked("DELETE")
    assert end.headers["mcp-protocol-version"] == "2025-11-25"


async def test_a_server_without_sessions_is_sent_no_session_id() -> None:
    async with serving_raw() as server:
        server.session = None
        async with opened(http(server.url)):
            await server.wait_for("GET")
    assert server.asked("DELETE") == []
    assert all("mcp-session-id" not in asked.headers for asked in server.requests)


async def test_a_request_of_the_stateless_era_belongs_to_no_session() -> None:
    async with talking() as (server, transport, recorder):
        transport.send(request(1, **MODERN))
        await recorder.answer(1)
    assert "mcp-session-id" not in server.asked("tools/call")[0].headers


async def forget_by_404(_: Request, reply: Reply) -> None:
    await reply.full("404 Not Found", b"session not found")


async def forget_as_typescript_does(_: Request, reply: Reply) -> None:
    error = {"code": -32000, "message": "Bad Request: No valid session ID provided"}
    await reply.json({"id": None, "error": error}, "400 Bad Request")


@pytest.mark.parametrize("forget", [forget_by_404, forget_as_typescript_does])
async def test_a_forgotten_session_expires_each_message_and_nothing_more_is_sent(forget: Handler) -> None:
    async with talking() as (server, transport, recorder):
        server.handlers["tools/call"] = forget
        transport.send(request(1))
        await recorder.until(lambda: recorder.forgotten)
        transport.send(request(2))
        transport.send(notification("notifications/roots/list_changed"))
        await recorder.until(lambda: len(recorder.forgotten) == 3)
        assert [message.id for message in recorder.forgotten] == [1, 2, None]
        assert len(server.asked("tools/call")) == 1

        del server.handlers["tools/call"]
        server.session = "session-2"
        recorder.messages.clear()
        await opening(transport, recorder)
        for message in recorder.forgotten[:2]:
            transport.send(message)
        assert (await recorder.answer(1), await recorder.answer(2)) == ("done", "done")
        assert {asked.headers["mcp-session-id"] for asked in server.asked("tools/call")[1:]} == {"session-2"}
        assert recorder.errors == {}


async def test_a_message_refused_for_a_session_renewed_meanwhile_is_sent_again_in_the_new_one() -> None:
    late = asyncio.Event()

    async def forget(asked: Request, reply: Reply) -> None:
        if asked.headers["mcp-session-id"] == "session-2":
            await reply.result()
            return
        if asked.message["id"] == 2:
            await late.wait()
        await reply.full("404 Not Found")

    async with talking({"tools/call": forget}) as (server, transport, recorder):
        transport.send(request(1))
        transport.send(request(2))
        await server.wait_for("tools/call", 2)
        await recorder.until(lambda: recorder.forgotten)
        server.session = "session-2"
        recorder.messages.clear()
        await opening(transport, recorder)
        late.set()
        assert await recorder.answer(2) == "done"
        assert [message.id for message in recorder.forgotten] == [1]


async def test_a_400_about_something_else_is_only_an_error() -> None:
    async def refuse(_: Request, reply: Reply) -> None:
        await reply.json({"id": None, "error": {"code": -32600, "message": "bad header"}}, "400 Bad Request")

    async with talking({"tools/call": refuse}) as (_, transport, recorder):
        transport.send(request(1))
        with pytest.raises(RpcError, match=r"^bad header$"):
            await recorder.answer(1)
        assert recorder.forgotten == []


async def test_a_404_without_a_session_is_only_an_error() -> None:
    async with serving_raw({"tools/call": forget_by_404}) as server:
        server.session = None
        transport = http(server.url)
        async with opened(transport) as recorder:
            transport.send(request(1))
            with pytest.raises(HttpError):
                await recorder.answer(1)


# -- the GET stream and resumption ------------------------------------------------------------------------------------


async def test_the_get_stream_is_read_and_resumed_where_it_was_cut() -> None:
    async def get(asked: Request, reply: Reply) -> None:
        number = asked.headers.get("last-event-id", "0")
        if number == "2":
            await reply.full("405 Method Not Allowed")
            return
        await reply.stream()
        await reply.event({"method": f"notifications/after-{number}"}, id=str(int(number) + 1), retry="50")

    async with serving_raw({"GET": get}) as server, opened(http(server.url)) as recorder:
        await server.wait_for("GET", 3)
        methods = [
            message["method"] for message, carrier in recorder.messages if "method" in message and carrier is None
        ]
        assert methods == ["notifications/after-0", "notifications/after-1"]
    assert [asked.headers.get("last-event-id") for asked in server.asked("GET")] == [None, "1", "2"]


@pytest.mark.parametrize("is_dropped", [False, True])
async def test_an_answer_whose_stream_was_cut_is_fetched_after_the_time_the_server_gave(
    is_dropped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_at = resumed_at = 0.0
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def noted_sleep(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(seconds)

    monkeypatch.setattr(asyncio, "sleep", noted_sleep)

    async def call(_: Request, reply: Reply) -> None:
        nonlocal cut_at
        await reply.stream()
        await reply.event(id="call-1", retry="500")
        await reply.event(
            {"method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}}, id="call-2"
        )
        cut_at = time.monotonic()
        if is_dropped:
            reply.drop()

    async def get(asked: Request, reply: Reply) -> None:
        nonlocal resumed_at
        if "last-event-id" not in asked.headers:
            await reply.full("405 Method Not Allowed")
            return
        resumed_at = time.monotonic()
        await reply.stream()
        result = {"content": [{"type": "text", "text": "resumed"}]}
        await reply.event({"id": 1, "result": result}, id="call-3")
        await reply.closed()

    async with talking({"tools/call": call, "GET": get}) as (server, transport, recorder):
        transport.send(request(1))
        assert await recorder.answer(1) == "resumed"
        assert [carrier for message, carrier in recorder.messages if message.get("id") == 1] == [1]
    (resumption,) = [asked for asked in server.asked("GET") if "last-event-id" in asked.headers]
    assert resumption.headers["last-event-id"] == "call-2"
    assert resumption.headers["mcp-session-id"] == "session-1"
    assert [pause for pause in pauses if pause] == [0.5]
    assert resumed_at - cut_at >= 0.49
    assert len(server.asked("tools/call")) == 1


async def test_a_stream_that_cannot_be_resumed_fails_its_call() -> None:
    async def call(_: Request, reply: Reply) -> None:
        await reply.stream()
        await reply.event(id="1", retry="10")

    async with talking({"tools/call": call}) as (_, transport, recorder):
        transport.send(request(1))
        with pytest.raises(ConnectionLost) as caught:
            await recorder.answer(1)
        assert caught.value.message == "the server's stream ended before the response"


async def test_a_stream_of_the_stateless_era_is_never_resumed() -> None:
    async def call(_: Request, reply: Reply) -> None:
        await reply.stream()
        await reply.event(id="1", retry="10")

    async with talking({"tools/call": call}, handshake=False) as (server, transport, recorder):
        transport.send(request(1, **MODERN))
        with pytest.raises(ConnectionLost):
            await recorder.answer(1)
    assert server.asked("GET") == []


async def test_an_answer_that_comes_on_the_get_stream_ends_the_wait_for_another() -> None:
    called = asyncio.Event()

    async def call(_: Request, reply: Reply) -> None:
        await reply.stream()
        called.set()
        await reply.closed()

    async def get(_: Request, reply: Reply) -> None:
        await reply.stream()
        await called.wait()
        await reply.event({"id": 1, "result": {"content": [{"type": "text", "text": "elsewhere"}]}})
        await reply.closed()

    async with talking({"tools/call": call, "GET": get}) as (_, transport, recorder):
        transport.send(request(1))
        assert await recorder.answer(1) == "elsewhere"
        assert recorder.errors == {}


# -- order and turns --------------------------------------------------------------------------------------------------


async def test_nothing_overtakes_the_end_of_the_handshake() -> None:
    release = asyncio.Event()

    async def slow(_: Request, reply: Reply) -> None:
        await release.wait()
        await reply.full("202 Accepted")

    async with talking({"notifications/initialized": slow}) as (server, transport, recorder):
        transport.send(request(1))
        transport.send(notification("notifications/roots/list_changed"))
        await server.wait_for("notifications/initialized")
        assert server.asked("tools/call") == []
        release.set()
        await recorder.answer(1)
        await server.wait_for("notifications/roots/list_changed")


async def test_notifications_arrive_in_order() -> None:
    async def slow(_: Request, reply: Reply) -> None:
        await asyncio.sleep(0.01)
        await reply.full("202 Accepted")

    names = [f"notifications/number-{number}" for number in range(10)]
    async with talking({names[0]: slow, names[3]: slow}) as (server, transport, _):
        for name in names:
            transport.send(notification(name))
        await server.wait_for(names[-1])
    methods = [asked.message.get("method", "") for asked in server.requests]
    assert [method for method in methods if method.startswith("notifications/number")] == names


async def test_calls_use_twenty_connections_and_leave_room_for_pings_and_cancellations() -> None:
    release = asyncio.Event()

    async def slow(_: Request, reply: Reply) -> None:
        await release.wait()
        await reply.result()

    async with talking({"tools/call": slow}) as (server, transport, recorder):
        await server.wait_for("GET")
        for number in range(1, 41):
            transport.send(request(number))
        await server.wait_for("tools/call", 20)
        transport.send(request(100, method="ping"))
        transport.send(notification("notifications/cancelled"))
        await recorder.until(lambda: recorder.answers(100))
        await server.wait_for("notifications/cancelled")
        assert len(server.asked("tools/call")) == 20
        assert transport.queued > 0

        assert transport.abort(40)  # it was not sent yet
        assert not transport.abort(1)
        release.set()
        for number in range(2, 40):
            assert await recorder.answer(number) == "done"
        assert len(server.asked("tools/call")) == 39
        assert transport.queued == 0
    assert server.most_connections <= 22


# -- cancelling -------------------------------------------------------------------------------------------------------


async def test_in_the_stateless_era_giving_up_closes_the_stream() -> None:
    slow = Held(streams=True)

    async with talking({"tools/call": slow}, handshake=False) as (server, transport, recorder):
        transport.send(request(1, **MODERN))
        await server.wait_for("tools/call")
        assert transport.abort(1)
        await asyncio.wait_for(slow.closed.wait(), 5)
        transport.send(request(2, method="ping"))
        await recorder.until(lambda: recorder.answers(2))
        assert recorder.errors == {}


async def test_a_call_given_up_in_the_handshake_era_does_not_keep_its_connection_forever() -> None:
    deaf = Held()

    async with talking({"tools/call": deaf}) as (server, transport, _):
        transport.send(request(1))
        await server.wait_for("tools/call")
        assert not transport.abort(1)
        await asyncio.wait_for(deaf.closed.wait(), 10)


# -- logins -----------------------------------------------------------------------------------------------------------


@dataclass
class Keys:
    """An authorizer with keys to try, one after the other."""

    keys: list[str]
    asked: list[tuple[int, list[str], dict[str, str]]] = field(default_factory=list)

    async def headers(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self.keys[0]}"} if self.keys[0] else {}

    async def challenged(
        self, status: int, challenges: Sequence[str], sent: Mapping[str, str], peer: str | None = None
    ) -> bool:
        self.asked.append((status, list(challenges), dict(sent)))
        if len(self.keys) > 1:
            del self.keys[0]
            return True
        return False


async def guarded(asked: Request, reply: Reply) -> None:
    key = asked.headers.get("authorization")
    if key == "Bearer right":
        await reply.result("in")
    elif key == "Bearer narrow":
        challenge = 'Bearer error="insufficient_scope", scope="more"'
        await reply.full("403 Forbidden", WWW_Authenticate=challenge)
    else:
        await reply.full("401 Unauthorized", b"who are you?", WWW_Authenticate='Bearer realm="x"')


def with_keys(url: str, *keys: str) -> tuple[StreamableHttpTransport, Keys]:
    authorizer = Keys(list(keys))
    return StreamableHttpTransport(url, headers={}, authorizer=authorizer, limit=1_000_000), authorizer


async def test_a_login_lets_the_same_message_through() -> None:
    async with serving_raw({"tools/call": guarded}) as server:
        transport, keys = with_keys(server.url, "", "narrow", "right")
        async with opened(transport) as recorder:
            transport.send(request(1))
            assert await recorder.answer(1) == "in"
    assert keys.asked == [
        (401, ['Bearer realm="x"'], {}),
        (403, ['Bearer error="insufficient_scope", scope="more"'], {"Authorization": "Bearer narrow"}),
    ]


async def test_a_server_that_refuses_every_login_is_not_asked_forever() -> None:
    async with serving_raw({"tools/call": guarded}) as server:
        transport, _ = with_keys(server.url, *(f"wrong-{number}" for number in range(100)))
        async with opened(transport) as recorder:
            transport.send(request(1))
            with pytest.raises(AuthError):
                await recorder.answer(1)
        assert len(server.asked("tools/call")) < 10


async def test_without_a_login_the_error_names_the_challenge_and_the_remedy() -> None:
    async with serving_raw({"POST": guarded}) as server:
        with pytest.raises(AuthError) as caught:
            async with opened(http(server.url)):
                pass
        assert caught.value.message == 'the server requires a login: HTTP 401 Unauthorized (Bearer realm="x")'
        assert caught.value.hint == "give its definition headers, or auth to log in"

        with pytest.raises(AuthError) as caught:
            async with opened(http(server.url, Authorization="Bearer old")):
                pass
        assert caught.value.message == 'the server refuses these credentials: HTTP 401 Unauthorized (Bearer realm="x")'
        assert caught.value.hint == "check the Authorization header in its definition"


async def test_a_403_without_a_challenge_is_an_http_error() -> None:
    refused = {"tools/call": lambda _, reply: reply.full("403 Forbidden", b"not you")}
    async with talking(refused) as (_, transport, recorder):
        transport.send(request(1))
        with pytest.raises(HttpError, match=r"^the server answered HTTP 403 Forbidden: not you$"):
            await recorder.answer(1)
