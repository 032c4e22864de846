"""HTTP+SSE of 2024-11-05, on real sockets: the endpoint, the answers on the stream, and the stream's end."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import pytest

from ipymcp.errors import AuthError, ConnectionLost, HttpError, McpError, ProtocolError, ResultTooLarge, StartError
from ipymcp.protocol.transports.http import LegacySseTransport
from tests.servers.raw_http import Handler, Held, RawServer, Reply, Request, serving_raw
from tests.serving import reserved_port
from tests.transports.http import sse
from tests.transports.recorder import Recorder, notification, opened, request

pytestmark = pytest.mark.anyio


class SseServer:
    """A server of the old transport, in handlers of a raw one."""

    def __init__(self, server: RawServer, endpoint: str = "/messages?session=1") -> None:
        self.endpoint = endpoint
        self.streams: list[Reply] = []
        server.handlers |= {"GET": self.get, "POST": self.post}

    async def get(self, _: Request, reply: Reply) -> None:
        await reply.stream()
        self.streams.append(reply)
        await reply.raw(f"event: endpoint\ndata: {self.endpoint}\n\n".encode())
        await reply.closed()

    async def post(self, asked: Request, reply: Reply) -> None:
        message = asked.message
        await reply.full("202 Accepted", b"Accepted")
        if "id" in message:
            await self.answer(message["id"], message["params"]["name"])

    async def answer(self, identifier: int, text: str) -> None:
        result = {"content": [{"type": "text", "text": text}]}
        body = json.dumps({"jsonrpc": "2.0", "id": identifier, "result": result})
        await self.streams[-1].raw(f"event: message\ndata: {body}\n\n".encode())


@contextlib.asynccontextmanager
async def talking(limit: int = 1_000_000) -> AsyncIterator[tuple[RawServer, SseServer, LegacySseTransport, Recorder]]:
    """A server of the old transport, a transport that is open to it, and what that receives."""
    async with serving_raw() as server:
        old = SseServer(server)
        transport = LegacySseTransport(server.url, headers={}, authorizer=None, limit=limit)
        async with opened(transport, handshake=False) as recorder:
            yield server, old, transport, recorder


async def start_error(url: str) -> McpError:
    with pytest.raises(McpError) as caught:
        async with opened(sse(url), handshake=False):
            pass
    return caught.value


async def test_messages_go_to_the_endpoint_and_answers_come_on_the_stream() -> None:
    async with talking() as (server, _, transport, recorder):
        for number in range(1, 101):
            transport.send(request(number, f"tool-{number}"))
        transport.send(notification("notifications/done"))
        assert [await recorder.answer(number) for number in range(1, 101)] == [f"tool-{n}" for n in range(1, 101)]
        await server.wait_for("notifications/done")
        assert transport.queued == 0
    targets = {(asked.method, asked.target) for asked in server.requests}
    assert targets == {("GET", "/mcp"), ("POST", "/messages?session=1")}
    assert recorder.losses == []


async def test_an_endpoint_of_another_origin_is_refused() -> None:
    async with serving_raw() as other, serving_raw() as server:
        SseServer(server, f"{other.origin}/messages")
        error = await start_error(server.url)
        assert isinstance(error, StartError)
        assert error.message == (
            f"the server at {server.origin} wants messages sent to another origin, {other.origin}: not followed"
        )
        assert other.requests == []


async def test_the_end_of_the_stream_is_the_end_of_the_connection() -> None:
    async with talking() as (_, old, _, recorder):
        old.streams[0].drop()
        await recorder.until(lambda: recorder.losses)
        assert len(recorder.losses) == 1
        assert recorder.losses[0].startswith(("the connection was dropped", "the server ended its stream"))


async def test_a_connection_that_the_server_has_forgotten_is_lost() -> None:
    async with talking() as (server, _, transport, recorder):
        server.handlers["POST"] = lambda _, reply: reply.full("404 Not Found", b"Could not find session")
        transport.send(request(1))
        with pytest.raises(HttpError, match=r"(?m)^the server answered HTTP 404 Not Found: Could not find session$"):
            await recorder.answer(1)
        assert recorder.losses == ["the server does not know this connection any more"]


async def test_a_refused_post_fails_its_call_alone() -> None:
    async with talking() as (server, old, transport, recorder):

        async def refuse_two(asked: Request, reply: Reply) -> None:
            if asked.message["id"] == 2:
                await reply.full("500 Internal Server Error", b"oops")
            else:
                await old.post(asked, reply)

        server.handlers["POST"] = refuse_two
        for number in (1, 2, 3):
            transport.send(request(number, "echo"))
        with pytest.raises(HttpError, match=r"(?m)oops$"):
            await recorder.answer(2)
        assert (await recorder.answer(1), await recorder.answer(3)) == ("echo", "echo")


async def test_an_answer_over_the_limit_fails_its_call_alone() -> None:
    async with talking(limit=10_000) as (_, _, transport, recorder):
        transport.send(request(1, "x" * 100_000))
        with pytest.raises(ResultTooLarge):
            await recorder.answer(1)
        transport.send(request(2, "small"))
        assert await recorder.answer(2) == "small"


OTHER_SERVERS: dict[str, tuple[Handler | None, type[McpError], str]] = {
    "no stream": (None, HttpError, "the server answered HTTP 405 Method Not Allowed"),
    "a page": (
        lambda _, reply: reply.full("200 OK", b"<h1>Hello</h1>", Content_Type="text/html"),
        ProtocolError,
        "the server answered with text/html instead of MCP: Hello",
    ),
    "a login": (
        lambda _, reply: reply.full("401 Unauthorized"),
        AuthError,
        "the server requires a login: HTTP 401 Unauthorized",
    ),
    "an empty stream": (lambda _, reply: reply.stream(), ConnectionLost, "the server ended its stream"),
}


@pytest.mark.parametrize(("get", "kind", "message"), OTHER_SERVERS.values(), ids=OTHER_SERVERS)
async def test_another_kind_of_server_is_an_error_of_the_start(
    get: Handler | None, kind: type[McpError], message: str
) -> None:
    async with serving_raw({"GET": get} if get else {}) as server:
        error = await start_error(server.url)
    assert isinstance(error, kind)
    assert error.message == message


async def test_a_server_that_does_not_run_is_an_error_of_the_start() -> None:
    with reserved_port() as port:
        error = await start_error(f"http://127.0.0.1:{port}/sse")
    assert isinstance(error, ConnectionLost)
    assert error.message.endswith("/sse: connection refused")


async def test_an_opening_that_is_given_up_leaves_nothing() -> None:
    silent = Held(streams=True)

    async with serving_raw({"GET": silent}) as server:
        transport = sse(server.url)
        opening = asyncio.ensure_future(transport.open(Recorder()))
        await server.wait_for("GET")
        opening.cancel()
        await transport.aclose()
        await asyncio.wait_for(silent.closed.wait(), 5)
        assert opening.cancelled() or opening.done()
