"""The SDKs' servers and server-everything over their HTTP transports: open, list, call, progress, cancel, close."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from ipymcp.errors import HttpError
from tests.clients import PATIENCE, Connection, connected
from tests.environments import server_command
from tests.serving import free_port
from tests.transports.http import http, serving, sse

pytestmark = pytest.mark.anyio
WAYS = {
    "sdk1 http": ("--http", "legacy"),
    "sdk1 json": ("--http --json", "legacy"),
    "sdk1 sse": ("--sse", "legacy"),
    "sdk2 http": ("--http", "modern"),
    "sdk2 json": ("--http --json", "modern"),
    "sdk2 sse": ("--sse", "legacy"),
}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module", params=WAYS)
def way(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """The URL of a server, and the era it speaks there."""
    name = request.param
    (first, *rest), era = WAYS[name][0].split(), WAYS[name][1]
    with serving(server_command(name.split()[0], first, "0", *rest), "http://") as url:
        yield url, era


async def use(connection: Connection) -> None:
    """Everything a call can do."""
    assert {"echo", "slow"} <= {tool.name for tool in await connection.client.list_tools(timeout=PATIENCE)}
    text = "größer ✓ " + "x" * 200_000
    assert await connection.ask("echo", text=text) == text
    answers = await asyncio.gather(*(connection.ask("echo", text=str(number)) for number in range(50)))
    assert answers == [str(number) for number in range(50)]
    call = connection.call("slow", seconds=60, steps=600)
    await asyncio.sleep(0.1)
    assert connection.client.give_up(call.slot, "enough")
    assert await connection.ask("slow", seconds=0.1, steps=2) == "2 steps"
    assert connection.client.in_flight == 0


async def test_a_server_on_an_sdk_is_used_over_http(way: tuple[str, str]) -> None:
    url, era = way
    transport = sse(url) if url.endswith("/sse") else http(url)
    async with connected(transport, "auto" if era == "modern" else "legacy") as connection:
        assert connection.client.era.kind == ("stateless" if era == "modern" else "handshake")
        await use(connection)
    assert connection.heard.losses == []
    assert connection.heard.unreachables == []


@pytest.mark.parametrize("sdk", ["sdk1", "sdk2"])
async def test_a_server_of_the_old_transport_refuses_the_new_one_in_a_way_that_can_be_told(sdk: str) -> None:
    with serving(server_command(sdk, "--sse", "0"), "http://") as url, pytest.raises(HttpError) as caught:
        async with connected(http(url), "auto"):
            pass
    assert caught.value.status in (400, 404, 405)


@pytest.mark.parametrize("mode", ["streamableHttp", "sse"])
async def test_server_everything_is_used_over_http(mode: str) -> None:
    port = free_port()
    command = [*server_command("everything")[:-1], mode]
    marker = "on port"
    with serving(command, marker, PORT=str(port)):
        origin = f"http://127.0.0.1:{port}"
        transport = sse(f"{origin}/sse") if mode == "sse" else http(f"{origin}/mcp")
        async with connected(transport, "legacy" if mode == "sse" else "auto") as connection:
            assert connection.client.era.version == "2025-11-25"
            assert await connection.ask("echo", message="hello") == "Echo: hello"
            call = connection.call("trigger-long-running-operation", duration=1, steps=3)
            await asyncio.wait_for(call.outcome, PATIENCE)
            assert call.progress.qsize() == 3
        assert connection.heard.losses == []
