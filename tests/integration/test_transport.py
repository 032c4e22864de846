"""One body of tests over stdio, Streamable HTTP and HTTP+SSE, in both eras: what the transport interface promises."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest

from ipymcp.errors import ConnectionLost, HttpError, RpcError
from ipymcp.protocol import types
from ipymcp.protocol.negotiation import EraChoice
from ipymcp.protocol.transports.base import Transport
from tests.clients import PATIENCE, Connection, connected, stdio
from tests.environments import server_command
from tests.serving import serving
from tests.transports.http import http, sse
from tests.transports.proxy import Proxy, proxied

pytestmark = pytest.mark.anyio


# -- servers ----------------------------------------------------------------------------------------------------------


COMMANDS: dict[str, Callable[[int], list[str]]] = {
    "http": lambda port: server_command("sdk2", "--http", str(port)),
    "json": lambda port: server_command("sdk2", "--http", str(port), "--json"),
    "sse": lambda port: server_command("sdk2", "--sse", str(port)),
    "sse of sdk1": lambda port: server_command("sdk1", "--sse", str(port)),
    "handshake only": lambda _: [*server_command("everything")[:-1], "streamableHttp"],
}


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Servers over HTTP, of which the tests share one of each kind."""
    folder = tmp_path_factory.mktemp("served")
    with contextlib.ExitStack() as running, ThreadPoolExecutor() as pool:
        servers = pool.map(lambda command: running.enter_context(serving(command, folder)), COMMANDS.values())
        yield {
            kind: server.origin + ("/sse" if kind.startswith("sse") else "/mcp")
            for kind, server in zip(COMMANDS, servers, strict=True)
        }


@pytest.fixture(scope="module")
def url(urls: dict[str, str]) -> str:
    """The SDK's own HTTP server, which speaks both eras."""
    return urls["http"]


Connect = Callable[[], contextlib.AbstractAsyncContextManager[Connection]]


@pytest.fixture(params=["stdio legacy", "stdio modern", "http legacy", "http modern", "sse legacy"])
def connect(request: pytest.FixtureRequest, urls: dict[str, str]) -> Connect:
    transport, era = request.param.split()
    make: dict[str, Callable[[], Transport]] = {
        "stdio": lambda: stdio(server_command("sdk2")),
        "http": lambda: http(urls["http"]),
        "sse": lambda: sse(urls["sse"]),
    }
    return lambda: connected(make[transport](), era)


# -- the one body -----------------------------------------------------------------------------------------------------


async def test_open_list_call_and_close(connect: Connect) -> None:
    async with connect() as connection:
        client = connection.client
        names = [tool.name for tool in await client.list_tools(timeout=PATIENCE)]
        assert {"echo", "slow", "grow"} <= set(names)
        assert client.instructions == "Tools with rich schemas, on the official SDK 2.x."
        text = "größer ✓ \u2028 " + "x" * 300_000
        assert await connection.ask("echo", text=text) == text
        assert (len(client._peer), client.queued) == (0, 0)

    assert connection.heard.losses == []
    with pytest.raises(ConnectionLost):
        connection.call("echo", text="too late")


async def test_a_hundred_calls_at_once_each_get_their_own_answer(connect: Connect) -> None:
    async with connect() as connection:
        answers = await asyncio.gather(*(connection.ask("echo", text=str(number)) for number in range(100)))

    assert answers == [str(number) for number in range(100)]


async def test_progress_and_log_messages_arrive_before_the_answer(connect: Connect) -> None:
    async with connect() as connection:
        call = connection.call("slow", seconds=0.05, steps=3)
        await asyncio.wait_for(call.outcome, PATIENCE)
        reports = [call.progress.get_nowait() for _ in range(call.progress.qsize())]

        assert [(report.progress, report.total, report.message) for report in reports] == [
            (number, 3, f"step {number} of 3") for number in (1, 2, 3)
        ]
        assert connection.heard.logged == [("info", "3 steps done")]


async def test_a_call_that_is_given_up_ends_and_the_next_one_works(connect: Connect) -> None:
    async with connect() as connection:
        call = connection.call("slow", seconds=60, steps=600)
        await asyncio.wait_for(call.progress.get(), PATIENCE)

        assert connection.client.give_up(call.pending, "enough")
        assert not connection.client.give_up(call.pending, "twice")
        assert len(connection.client._peer) == 0
        assert await connection.ask("echo", text="next") == "next"
        assert connection.heard.noises == []


async def test_a_changed_list_is_announced(connect: Connect) -> None:
    async with connect() as connection:
        client = connection.client
        listening = client.listen({"toolsListChanged": True}) if client.era.kind == "stateless" else None
        fresh = f"fresh_{os.urandom(4).hex()}"  # the HTTP server has seen other tests
        async with asyncio.timeout(PATIENCE):
            while True:  # a change before the GET stream is open is not announced, and no message says that it is open
                await connection.ask("grow", name=fresh)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(connection.heard.changes.get(), 0.5)
                    break
                await connection.ask("shrink", name=fresh)

        assert fresh in [tool.name for tool in await client.list_tools(timeout=PATIENCE)]
        if listening is not None:
            listening.ended.cancel()
            await asyncio.wait({listening.ended})
        await connection.ask("shrink", name=fresh)


async def test_a_refused_request_and_a_failed_tool_differ(connect: Connect) -> None:
    async with connect() as connection:
        with pytest.raises(RpcError) as caught:
            what = b'{"uri":"none://x"}'
            await connection.client.request("resources/read", what, timeout=PATIENCE)
        assert caught.value.code == -32602
        failed = types.loads(await connection.call("fail", message="no luck").outcome)
        assert failed["isError"] is True
        assert await connection.ask("echo", text="next") == "next"


# -- what only HTTP has -----------------------------------------------------------------------------------------------


@pytest.fixture(params=["legacy", "modern"])
def era(request: pytest.FixtureRequest) -> EraChoice:
    return request.param


@contextlib.asynccontextmanager
async def through_proxy(url: str, era: EraChoice) -> AsyncIterator[tuple[Connection, Proxy]]:
    address = urlsplit(url)
    async with (
        proxied(address.hostname or "", address.port or 0) as (proxy, port),
        connected(http(f"http://127.0.0.1:{port}{address.path}"), era) as connection,
    ):
        yield connection, proxy


async def test_one_dropped_post_fails_its_call_alone(url: str, era: EraChoice) -> None:
    async with through_proxy(url, era) as (connection, proxy):
        dropped = connection.call("slow", seconds=60, steps=601)
        kept = connection.call("slow", seconds=1, steps=5)
        await asyncio.wait_for(asyncio.gather(dropped.progress.get(), kept.progress.get()), PATIENCE)
        assert proxy.drop(b'"steps":601') == 1

        with pytest.raises(ConnectionLost, match=r"^the connection was dropped before the response"):
            await asyncio.wait_for(dropped.outcome, PATIENCE)
        assert b"5 steps" in await asyncio.wait_for(kept.outcome, PATIENCE)
        assert await connection.ask("echo", text="next") == "next"
        assert connection.heard.losses == []


async def test_a_call_is_cancelled_as_its_era_says(url: str, era: EraChoice) -> None:
    async with through_proxy(url, era) as (connection, proxy):
        call = connection.call("slow", seconds=60, steps=602)
        await asyncio.wait_for(call.progress.get(), PATIENCE)
        connection.client.give_up(call.pending, "enough")
        if era == "legacy":
            await asyncio.wait_for(proxy.wait_for(b'"notifications/cancelled"'), PATIENCE)
        else:
            await asyncio.wait_for(proxy.wait_for_end(b'"steps":602'), PATIENCE)
        assert await connection.ask("echo", text="next") == "next"

    assert (b"notifications/cancelled" in proxy.sent) == (era == "legacy")


async def test_headers_are_those_of_the_era(url: str, era: EraChoice) -> None:
    async with through_proxy(url, era) as (connection, proxy):
        await connection.ask("echo", text="marked")

    head = next(part for part in proxy.sent.split(b"POST ") if b'"marked"' in part).partition(b"\r\n\r\n")[0]
    lines = [line.partition(":") for line in head.decode().splitlines()]
    headers = {name.lower(): value.strip() for name, _, value in lines}
    expected = {
        "legacy": {"mcp-protocol-version": "2025-11-25", "mcp-method": None, "mcp-name": None},
        "modern": {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "echo"},
    }[era]
    assert {name: headers.get(name) for name in expected} == expected
    assert ("mcp-session-id" in headers) == (era == "legacy")
    assert (b"DELETE " in proxy.sent) == (era == "legacy")


async def test_answers_come_as_json_too(urls: dict[str, str], era: EraChoice) -> None:
    async with connected(http(urls["json"]), era) as connection:
        assert await connection.ask("echo", text="plain") == "plain"


async def test_the_newest_era_a_server_has_is_found(urls: dict[str, str]) -> None:
    async with connected(http(urls["http"]), "auto") as connection:
        assert connection.client.era.version == "2026-07-28"
    async with connected(http(urls["handshake only"]), "auto") as connection:
        assert connection.client.era.version == "2025-11-25"
        assert await connection.ask("echo", message="old") == "Echo: old"


@pytest.mark.parametrize("kind", ["sse of sdk1", "sse"])
async def test_a_server_of_the_old_transport_refuses_the_new_one_with_a_status_that_shows_it(
    kind: str, urls: dict[str, str]
) -> None:
    with pytest.raises(HttpError) as caught:
        async with connected(http(urls[kind]), "auto"):
            pass
    assert caught.value.status in (400, 404, 405)
