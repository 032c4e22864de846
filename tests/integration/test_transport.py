"""One body of tests over stdio and Streamable HTTP, in both eras: what the transport interface promises."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import pytest

from ipymcp.errors import ConnectionLost, RpcError
from ipymcp.protocol import wire
from ipymcp.protocol.client import Client
from ipymcp.protocol.eras import Identity
from ipymcp.protocol.inputs import NoAnswers
from ipymcp.protocol.negotiation import EraChoice
from ipymcp.protocol.rpc import Slot
from ipymcp.protocol.transports.base import Transport
from ipymcp.protocol.transports.http import StreamableHttpTransport
from ipymcp.protocol.transports.process import Grace, Launch, ServerProcess
from ipymcp.protocol.transports.stdio import StdioTransport
from tests.environments import server_command
from tests.transports.proxy import Proxy, proxied

pytestmark = pytest.mark.anyio
PATIENCE = 30


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


# -- servers ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def serving(command: list[str], marker: str, **env: str) -> Iterator[str]:
    """Run an HTTP server; gives the first line of its standard error that holds `marker`, which says that it is up."""
    with subprocess.Popen(
        command, env={**os.environ, **env}, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        line = next(line.strip() for line in process.stderr if marker in line)
        drain = threading.Thread(target=process.stderr.read, daemon=True)
        drain.start()
        try:
            yield line
        finally:
            process.kill()
            drain.join()


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The SDK's own HTTP server, which speaks both eras."""
    with serving(server_command("sdk2", "--http", "0"), "http://") as url:
        yield url


@pytest.fixture(scope="module")
def json_url() -> Iterator[str]:
    """The same, answering by JSON."""
    with serving(server_command("sdk2", "--http", "0", "--json"), "http://") as url:
        yield url


@pytest.fixture(scope="module")
def old_url() -> Iterator[str]:
    """A server from npm that knows the handshake only."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [*server_command("everything")[:-1], "streamableHttp"]
    with serving(command, "listening on port", PORT=str(port)):
        yield f"http://127.0.0.1:{port}/mcp"


# -- a connection -----------------------------------------------------------------------------------------------------


class NoWatch:
    def starting(self) -> None: ...

    def started(self, process: ServerProcess) -> None: ...
    def ended(self, process: ServerProcess) -> None: ...


@dataclass
class Heard:
    """What the server said of its own accord."""

    changes: asyncio.Queue[None] = field(default_factory=asyncio.Queue)
    logged: list[tuple[str, str]] = field(default_factory=list)
    noises: list[str] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)

    def tools_changed(self) -> None:
        self.changes.put_nowait(None)

    def resources_changed(self) -> None: ...

    def prompts_changed(self) -> None: ...

    def resource_updated(self, uri: str) -> None: ...

    def log(self, level: str, text: str) -> None:
        self.logged.append((level, text))

    def noise(self, text: str) -> None:
        self.noises.append(text)

    def stderr(self, lines: list[str]) -> None: ...

    def unreachable(self, reason: str) -> None: ...

    def wants_handshake(self, reason: str) -> None: ...

    def lost(self, reason: str) -> None:
        self.losses.append(reason)


@dataclass
class Call:
    """A call in flight."""

    slot: Slot
    outcome: asyncio.Future[bytes]
    progress: asyncio.Queue[wire.Progress]


@dataclass
class Connection:
    client: Client
    heard: Heard

    def call(self, tool: str, **arguments: object) -> Call:
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[bytes] = loop.create_future()
        progress: asyncio.Queue[wire.Progress] = asyncio.Queue()

        def deliver(news: wire.Progress | None) -> None:
            if news is not None:
                progress.put_nowait(news)
            elif slot.error is not None:
                outcome.set_exception(slot.error)
            else:
                outcome.set_result(bytes(slot.result or b""))

        slot = Slot(deliver)
        self.client.call_tool(slot, tool, wire.encode(arguments))
        return Call(slot, outcome, progress)

    async def ask(self, tool: str, **arguments: object) -> str:
        """Call a tool and give the first text of its answer."""
        answer = await asyncio.wait_for(self.call(tool, **arguments).outcome, PATIENCE)
        return wire.loads(answer)["content"][0]["text"]


@contextlib.asynccontextmanager
async def connected(transport: Transport, era: EraChoice) -> AsyncIterator[Connection]:
    heard = Heard()
    client = Client(transport, heard, Identity("ipymcp", "0"), NoAnswers(), tag="sdk2#1")
    try:
        async with asyncio.timeout(PATIENCE):
            await client.open(era)
        yield Connection(client, heard)
    finally:
        await client.aclose()


def stdio() -> StdioTransport:
    return StdioTransport(
        Launch(server_command("sdk2"), dict(os.environ), None), NoWatch(), limit=1_000_000, grace=Grace()
    )


def http(url: str) -> StreamableHttpTransport:
    return StreamableHttpTransport(url, headers={}, authorizer=None, limit=1_000_000)


Connect = Callable[[], contextlib.AbstractAsyncContextManager[Connection]]


@pytest.fixture(params=["stdio legacy", "stdio modern", "http legacy", "http modern"])
def connect(request: pytest.FixtureRequest, url: str) -> Connect:
    transport, era = request.param.split()
    return lambda: connected(stdio() if transport == "stdio" else http(url), era)


# -- the one body -----------------------------------------------------------------------------------------------------


async def test_open_list_call_and_close(connect: Connect) -> None:
    async with connect() as connection:
        client = connection.client
        names = [tool.name for tool in await client.list_tools(timeout=PATIENCE)]
        assert {"echo", "slow", "grow"} <= set(names)
        assert client.instructions == "Tools with rich schemas, on the official SDK 2.x."
        text = "größer ✓ \u2028 " + "x" * 300_000
        assert await connection.ask("echo", text=text) == text
        assert (client.in_flight, client.queued) == (0, 0)

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
        heard = [call.progress.get_nowait() for _ in range(call.progress.qsize())]

        assert [(one.progress, one.total, one.message) for one in heard] == [
            (number, 3, f"step {number} of 3") for number in (1, 2, 3)
        ]
        assert connection.heard.logged == [("info", "3 steps done")]


async def test_a_call_that_is_given_up_ends_and_the_next_one_works(connect: Connect) -> None:
    async with connect() as connection:
        call = connection.call("slow", seconds=60, steps=600)
        await asyncio.wait_for(call.progress.get(), PATIENCE)

        assert connection.client.give_up(call.slot, "enough")
        assert not connection.client.give_up(call.slot, "twice")
        assert connection.client.in_flight == 0
        assert await connection.ask("echo", text="next") == "next"
        assert connection.heard.noises == []


async def test_a_changed_list_is_announced(connect: Connect) -> None:
    async with connect() as connection:
        client = connection.client
        listening = client.listen({"toolsListChanged": True}) if client.era.kind == "stateless" else None
        fresh = f"fresh_{os.urandom(4).hex()}"  # the HTTP server has seen other tests
        async with asyncio.timeout(PATIENCE):
            while True:  # nobody says when a GET stream is open: until then a change goes unheard
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


async def test_refusals_and_failures_are_told_apart(connect: Connect) -> None:
    async with connect() as connection:
        with pytest.raises(RpcError) as caught:
            what = b'{"ref":{"type":"ref/prompt","name":"none"},"argument":{"name":"a","value":"b"}}'
            await connection.client.request("completion/complete", what, timeout=PATIENCE)
        assert caught.value.code == -32601
        failed = wire.loads(await connection.call("fail", message="no luck").outcome)
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

        with pytest.raises(ConnectionLost, match=r"^the connection was dropped before the answer"):
            await asyncio.wait_for(dropped.outcome, PATIENCE)
        assert b"5 steps" in await asyncio.wait_for(kept.outcome, PATIENCE)
        assert await connection.ask("echo", text="next") == "next"
        assert connection.heard.losses == []


async def test_a_call_is_cancelled_as_its_era_says(url: str, era: EraChoice) -> None:
    async with through_proxy(url, era) as (connection, proxy):
        call = connection.call("slow", seconds=60, steps=602)
        await asyncio.wait_for(call.progress.get(), PATIENCE)
        connection.client.give_up(call.slot, "enough")
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


async def test_answers_come_as_json_too(json_url: str, era: EraChoice) -> None:
    async with connected(http(json_url), era) as connection:
        assert await connection.ask("echo", text="plain") == "plain"


async def test_the_newest_era_a_server_has_is_found(url: str, old_url: str) -> None:
    async with connected(http(url), "auto") as connection:
        assert connection.client.era.version == "2026-07-28"
    async with connected(http(old_url), "auto") as connection:
        assert connection.client.era.version == "2025-11-25"
        assert await connection.ask("echo", message="old") == "Echo: old"
