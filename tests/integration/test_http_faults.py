"""Faults of HTTP on real sockets: each fails its own call with a precise error, and nothing hangs."""

import asyncio
import contextlib
import gzip
import json
import time
import zlib
from collections.abc import Iterator
from email.utils import formatdate

import pytest

from ipymcp.errors import CallError, ConnectionLost, HttpError, McpError, ProtocolError, ResultTooLarge, RpcError
from ipymcp.protocol.transports.addresses import parse_address
from ipymcp.protocol.transports.http import StreamableHttpTransport
from ipymcp.protocol.transports.http_client import HttpClient
from tests.servers.raw_http import Handler, Held, Reply, Request, serving_raw
from tests.serving import reserved_port
from tests.transports.http import http, talking
from tests.transports.recorder import Recorder, opened, request

pytestmark = pytest.mark.anyio
MODERN = {"Mcp_Method": "tools/call", "MCP_Protocol_Version": "2026-07-28"}


async def failure(recorder: Recorder, transport: StreamableHttpTransport, tool: str) -> McpError:
    """The error of one call; another call, before and after it, is not touched."""
    transport.send(request(1))
    transport.send(request(2, tool))
    with pytest.raises(McpError) as caught:
        await recorder.answer(2)
    transport.send(request(3))
    assert (await recorder.answer(1), await recorder.answer(3)) == ("done", "done")
    assert recorder.losses == []
    return caught.value


async def fails_with(handler: Handler, limit: int = 1_000_000) -> McpError:
    async with talking({"tools/call bad": handler}, limit=limit) as (server, transport, recorder):
        error = await failure(recorder, transport, "bad")
        assert len(server.asked("tools/call bad")) == 1  # nothing is sent twice
        return error


def two_lines(error: McpError) -> tuple[str, str | None]:
    return error.message, error.hint


# -- HTTP errors ------------------------------------------------------------------------------------------------------


HTML = b"<html><head><style>p {}</style></head><body><h1>502</h1>nginx</body></html>"
RPC = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"too many sessions"}}'
FAULT = "a fault of the server, or of a proxy before it"


@pytest.mark.parametrize(
    ("status", "body", "headers", "text", "hint", "retry_after"),
    [
        ("429 Too Many Requests", b"slow\n  down", {"Retry_After": "30"}, "slow down", "try again in 30 s", 30.0),
        ("500 Internal Server Error", b"Traceback: 1 / 0", {}, "Traceback: 1 / 0", FAULT, None),
        ("502 Bad Gateway", HTML, {"Content_Type": "text/html"}, "502 nginx", FAULT, None),
        ("503 Service Unavailable", RPC, {}, "too many sessions", "try again later", None),
        ("409 Conflict", b"x" * 999, {}, "x" * 299 + "…", None, None),
    ],
)
async def test_an_http_error_has_its_status_and_first_lines(
    status: str, body: bytes, headers: dict[str, str], text: str, hint: str | None, retry_after: float | None
) -> None:
    error = await fails_with(lambda _, reply: reply.full(status, body, **headers))
    assert isinstance(error, HttpError)
    assert two_lines(error) == (f"the server answered HTTP {status}: {text}", hint)
    assert (error.status, error.retry_after, error.body) == (int(status[:3]), retry_after, body.decode())


async def test_retry_after_may_be_a_date() -> None:
    later = formatdate(time.time() + 90, usegmt=True)
    error = await fails_with(lambda _, reply: reply.full("503 Service Unavailable", Retry_After=later))
    assert isinstance(error, HttpError)
    assert error.retry_after is not None
    assert 60 < error.retry_after <= 90


async def test_a_json_rpc_error_in_the_body_is_that_error() -> None:
    fault = {"code": -32602, "message": "no such tool", "data": {"name": "bad"}}
    error = await fails_with(lambda _, reply: reply.json({"id": None, "error": fault}, "400 Bad Request"))
    assert isinstance(error, RpcError)
    assert (error.message, error.code, error.data) == ("no such tool", -32602, {"name": "bad"})


async def test_a_wrong_path_is_an_error_of_the_start() -> None:
    async with serving_raw({"POST": lambda _, reply: reply.full("404 Not Found", b"Not Found")}) as server:
        with pytest.raises(HttpError) as caught:
            async with opened(http(server.url)):
                pass
    message = "the server answered HTTP 404 Not Found: Not Found"
    assert two_lines(caught.value) == (
        message,
        "check the URL's path; servers often answer at /mcp, older ones at /sse",
    )


# -- answers that are not MCP ------------------------------------------------------------------------------------------


async def test_a_page_instead_of_json_is_named_in_the_error() -> None:
    page = b"<!doctype html><title>Sign in</title><p>Please sign in."
    error = await fails_with(lambda _, reply: reply.full("200 OK", page, Content_Type="text/html; charset=utf-8"))
    assert isinstance(error, ProtocolError)
    assert two_lines(error) == (
        "the server answered with text/html instead of MCP: Sign in Please sign in.",
        "check the URL; a web page, a login or a proxy may have answered",
    )


def compressed(times: int, kind: str, encoding: str = "gzip") -> Handler:
    """An answer that is compressed this often."""

    async def answer(asked: Request, reply: Reply) -> None:
        result = {"content": [{"type": "text", "text": "plain"}]}
        body = json.dumps({"jsonrpc": "2.0", "id": asked.message["id"], "result": result}).encode()
        for _ in range(times):
            body = gzip.compress(body)
        await reply.full("200 OK", body, Content_Type=kind, Content_Encoding=encoding)

    return answer


async def test_json_of_another_type_is_read_all_the_same() -> None:
    async with talking({"tools/call": compressed(1, "text/plain")}) as (_, transport, recorder):
        transport.send(request(1))
        assert await recorder.answer(1) == "plain"


@pytest.mark.parametrize("encoding", ["gzip, gzip", "gzip\r\nContent-Encoding: gzip"])
async def test_an_answer_that_is_compressed_more_than_once_is_not_inflated(encoding: str) -> None:
    error = await fails_with(compressed(2, "application/json", encoding))
    assert error.message == "the response is compressed more than once, which ipymcp does not read"


def bomb(beginning: bytes, between: bytes = b"") -> bytes:
    """A compressed body of 300 MB."""
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    blank = b" " * 1_000_000 + between
    return b"".join([packer.compress(beginning), *(packer.compress(blank) for _ in range(300)), packer.flush()])


def packed(kind: str, body: bytes) -> Handler:
    async def answer(_: Request, reply: Reply) -> None:
        with contextlib.suppress(ConnectionError):
            await reply.full("200 OK", body, Content_Type=kind, Content_Encoding="gzip")

    return answer


@pytest.mark.parametrize(
    ("kind", "beginning", "between"),
    [
        ("application/json", b'{"jsonrpc":"2.0","id":2,"result":{"x":"', b""),
        ("text/event-stream", b'data: {"jsonrpc":"2.0","id":99,"result":{"x":"', b""),
        ("text/event-stream", b'{"jsonrpc":"2.0","id":2,"result":{"x":"', b""),
        ("text/event-stream", b": a comment", b"\n"),
        ("text/event-stream", b"", b"\n\ndata: {}\n\n"),
    ],
    ids=["json", "event", "field", "comments", "events"],
)
async def test_a_body_that_is_compressed_too_strongly_is_not_inflated_to_its_end(
    kind: str, beginning: bytes, between: bytes
) -> None:
    error = await fails_with(packed(kind, bomb(beginning, between)))
    assert isinstance(error, ResultTooLarge)
    assert error.message == "the response is larger than 1,000,000 bytes and was discarded"


async def test_a_body_is_inflated_to_one_message_and_a_hundred_times_its_size() -> None:
    body = bomb(b"data: ")
    async with serving_raw({"POST": packed("text/event-stream", body)}) as server:
        client = HttpClient(parse_address(server.url), {})
        answer = await client.send("POST", {}, b"{}")
        size = 0
        with pytest.raises(ResultTooLarge):
            async for chunk in answer.chunks(1_000_000):
                size += len(chunk)
        await answer.aclose()
        await client.aclose()
    assert size <= 1_000_000 + 100 * len(body) + 80_000_000  # with the last part received


async def test_a_long_stream_that_is_compressed_as_usual_is_read_to_its_end() -> None:
    notes = [{"jsonrpc": "2.0", "method": "notifications/message", "params": {"n": n}} for n in range(60_000)]
    last = {"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": "done"}]}}
    body = b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in [*notes, last])
    assert len(body) > 4_000_000
    async with talking({"tools/call": packed("text/event-stream", gzip.compress(body))}) as (_, transport, recorder):
        transport.send(request(1))
        assert await recorder.answer(1) == "done"


async def test_an_answer_to_another_request_fails_the_call_that_got_it() -> None:
    error = await fails_with(lambda _, reply: reply.json({"id": 77, "result": {}}))
    assert isinstance(error, CallError)
    assert error.message == "the response does not answer this request"


@pytest.mark.parametrize("status", ["202 Accepted", "200 OK"])
async def test_an_empty_response_is_an_error(status: str) -> None:
    error = await fails_with(lambda _, reply: reply.full(status))
    assert error.message == f"the server sent an empty HTTP response ({status})"


# -- connections that drop --------------------------------------------------------------------------------------------


async def drop_at_once(_: Request, reply: Reply) -> None:
    reply.drop()


async def drop_within_json(_: Request, reply: Reply) -> None:
    await reply.raw(b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"jsonrpc"')
    reply.is_over = True


async def cut_within_event(_: Request, reply: Reply) -> None:
    await reply.raw(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    await reply.raw(b'15\r\ndata: {"jsonrpc":"2.0\r\n')
    reply.is_over = True


async def end_before_answer(asked: Request, reply: Reply) -> None:
    await reply.stream()
    await reply.event({"method": "notifications/message", "params": {"level": "info", "data": "soon"}})
    await reply.raw(b'data: {"jsonrpc":"2.0","id":%d,"result":{}}\n' % asked.message["id"])  # no empty line: no event


@pytest.mark.parametrize(
    ("handler", "message"),
    [
        (drop_at_once, "the connection was dropped before the response ("),
        (drop_within_json, "the connection was dropped before the response was complete ("),
        (cut_within_event, "the connection was dropped before the response was complete ("),
        (end_before_answer, "the server's stream ended before the response"),
    ],
)
async def test_a_connection_that_drops_fails_its_call_alone(handler: Handler, message: str) -> None:
    error = await fails_with(handler)
    assert isinstance(error, ConnectionLost)
    assert error.message.startswith(message)


async def test_a_connection_the_server_closed_while_idle_is_not_used_again() -> None:
    async def answer_and_close(_: Request, reply: Reply) -> None:
        await reply.result()
        reply.is_over = True

    async with talking({"tools/call": answer_and_close}) as (_, transport, recorder):
        for number in range(1, 20):
            transport.send(request(number))
            assert await recorder.answer(number) == "done"


@pytest.fixture
def port() -> Iterator[int]:
    with reserved_port() as port:
        yield port


async def test_a_connection_that_could_not_be_made_is_tried_once_more(port: int) -> None:
    transport = http(f"http://127.0.0.1:{port}/mcp")
    async with opened(transport, handshake=False) as recorder:
        transport.send(request(1))
        await asyncio.sleep(0)
        async with serving_raw(port=port):
            assert await recorder.answer(1) == "done"
        assert recorder.unreachables == []


async def test_a_server_that_does_not_run_is_reported_and_the_next_call_tries_again(port: int) -> None:
    transport = http(f"http://127.0.0.1:{port}/mcp")
    async with opened(transport, handshake=False) as recorder:
        transport.send(request(1))
        with pytest.raises(ConnectionLost) as caught:
            await recorder.answer(1)
        reason = f"cannot connect to http://127.0.0.1:{port}/mcp: connection refused"
        assert two_lines(caught.value) == (reason, "is the server running?")
        assert recorder.unreachables == [reason]
        async with serving_raw(port=port):
            transport.send(request(2))
            assert await recorder.answer(2) == "done"


# -- answers that are too large ---------------------------------------------------------------------------------------


async def large_json(asked: Request, reply: Reply) -> None:
    await reply.result("x" * 20_000_000)


async def large_json_of_unknown_size(asked: Request, reply: Reply) -> None:
    await reply.raw(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
    reply.is_over = True
    await reply.raw(b'{"jsonrpc":"2.0","id":%d,"result":"' % asked.message["id"])
    while True:
        await reply.raw(b"x" * 65_536)


async def large_event(asked: Request, reply: Reply) -> None:
    await reply.stream()
    await reply.answer_event("x" * 20_000_000)


async def large_event_without_end(asked: Request, reply: Reply) -> None:
    await reply.stream()
    await reply.raw(b'data: {"jsonrpc":"2.0","id":%d,"result":"' % asked.message["id"])
    while True:
        await reply.raw(b"x" * 65_536)


async def large_event_with_its_id_last(asked: Request, reply: Reply) -> None:
    await reply.stream()
    await reply.raw(b'data: {"result":{"text":"' + b"x" * 20_000_000 + b'"},"id":%d}\n\n' % asked.message["id"])
    await reply.closed()


@pytest.mark.parametrize(
    "handler",
    [large_json, large_json_of_unknown_size, large_event, large_event_without_end, large_event_with_its_id_last],
)
async def test_an_answer_over_the_limit_fails_its_call_and_is_not_kept(handler: Handler) -> None:
    error = await fails_with(handler, limit=100_000)
    assert isinstance(error, ResultTooLarge)
    assert two_lines(error) == (
        "the response is larger than 100,000 bytes and was discarded",
        "ask for less, or load the server with a larger max_result_bytes",
    )
    assert error.limit == 100_000


async def test_a_large_event_that_is_not_an_answer_is_discarded_alone() -> None:
    async def answer(_: Request, reply: Reply) -> None:
        await reply.stream()
        await reply.event({"method": "notifications/message", "params": {"data": "x" * 200_000}})
        await reply.answer_event("fine")

    async with talking({"tools/call": answer}, limit=100_000) as (_, transport, recorder):
        transport.send(request(1))
        assert await recorder.answer(1) == "fine"
        (noise,) = recorder.noises
        assert noise.startswith("an event of 200,")
        assert noise.endswith(" bytes was discarded; the limit is 100,000")


# -- streams without end ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("headers", [{}, MODERN], ids=["legacy", "modern"])
async def test_an_answer_settles_its_call_though_the_server_never_ends_the_stream(headers: dict[str, str]) -> None:
    endless = Held(streams=True, answer="here")

    async with talking({"tools/call": endless}) as (_, transport, recorder):
        transport.send(request(1, **headers))
        assert await recorder.answer(1) == "here"
        await asyncio.wait_for(endless.closed.wait(), 5)  # and its connection is let go
        assert recorder.errors == {}


async def test_thirty_such_answers_do_not_use_up_the_connections() -> None:
    async with talking({"tools/call": Held(streams=True, answer="here")}) as (_, transport, recorder):
        for number in range(1, 31):
            transport.send(request(number))
        assert [await recorder.answer(number) for number in range(1, 31)] == ["here"] * 30


async def test_a_server_that_was_started_again_is_found_by_the_next_call(port: int) -> None:
    transport = http(f"http://127.0.0.1:{port}/mcp")
    async with opened(transport, handshake=False) as recorder:
        for number in (1, 2, 3):
            async with serving_raw(port=port):
                transport.send(request(number))
                assert await recorder.answer(number) == "done"
