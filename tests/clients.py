"""A protocol client on a server, and a person who answers what the server asks."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ipymcp.protocol import types
from ipymcp.protocol.client import Client
from ipymcp.protocol.eras import Identity
from ipymcp.protocol.jsonrpc import PendingRequest
from ipymcp.protocol.negotiation import EraChoice
from ipymcp.protocol.server_requests import Responder
from ipymcp.protocol.transports.base import Transport
from ipymcp.protocol.transports.process import Grace, Launch, ServerProcess
from ipymcp.protocol.transports.stdio import StdioTransport
from tests.environments import ROOT, environment

PATIENCE = 30.0
EVERYTHING = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {"listChanged": True}}
ANSWERS = {
    "elicitation/create": {"action": "accept", "content": {"name": "Ada", "age": 36}},
    "sampling/createMessage": {
        "role": "assistant",
        "content": {"type": "text", "text": "Paris"},
        "model": "tiny",
        "stopReason": "endTurn",
    },
    "roots/list": {"roots": [{"uri": "file:///notebooks", "name": "notebooks"}]},
}


class NoWatch:
    def starting(self) -> None: ...
    def started(self, process: ServerProcess) -> None: ...
    def ended(self, process: ServerProcess) -> None: ...


@dataclass
class Heard:
    """Events that the client's listener received."""

    changes: asyncio.Queue[None] = field(default_factory=asyncio.Queue)
    wishes: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    logged: list[tuple[str, str]] = field(default_factory=list)
    noises: list[str] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)
    unreachables: list[str] = field(default_factory=list)

    def tools_changed(self) -> None:
        self.changes.put_nowait(None)

    def resources_changed(self) -> None: ...

    def prompts_changed(self) -> None: ...

    def resource_updated(self, uri: str) -> None: ...

    def subscriptions_lost(self) -> None: ...

    def log(self, level: str, text: str) -> None:
        self.logged.append((level, text))

    def protocol_warning(self, text: str) -> None:
        self.noises.append(text)

    def stderr(self, lines: list[str]) -> None: ...

    def lost(self, reason: str) -> None:
        self.losses.append(reason)

    def unreachable(self, reason: str) -> None:
        self.unreachables.append(reason)

    def wants_handshake(self, reason: str) -> None:
        self.wishes.put_nowait(reason)


@dataclass
class Person:
    """Answers at once, or once `thinking` is set; records each question and the call it belongs to."""

    declared: dict[str, Any] = field(default_factory=lambda: dict(EVERYTHING))
    answers: dict[str, Any] = field(default_factory=lambda: dict(ANSWERS))
    asked: list[tuple[str, dict[str, Any], PendingRequest | None]] = field(default_factory=list)
    news: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    """One entry for each question asked, answered or withdrawn."""
    thinking: asyncio.Event | None = None
    """An event to wait for before each answer."""

    def capabilities(self) -> dict[str, Any]:
        return self.declared

    async def answer(self, method: str, params: dict[str, Any], pending: PendingRequest | None) -> dict[str, Any]:
        self.asked.append((method, params, pending))
        self.news.put_nowait("asked")
        try:
            if self.thinking is not None:
                await self.thinking.wait()
        except asyncio.CancelledError:
            self.news.put_nowait("withdrawn")
            raise
        answer = self.answers[method]
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def decide(self) -> None:
        """Give the answers that wait for `thinking`."""
        assert self.thinking is not None
        self.thinking.set()

    async def until(self, *news: str) -> None:
        """Wait until these things have happened, in this order."""
        async with asyncio.timeout(PATIENCE):
            assert [await self.news.get() for _ in news] == list(news)


@dataclass
class Call:
    """A call in flight."""

    pending: PendingRequest
    outcome: asyncio.Future[bytes]
    progress: asyncio.Queue[types.Progress]

    async def text(self) -> str:
        """The first text of its answer."""
        answer = await asyncio.wait_for(self.outcome, PATIENCE)
        return types.loads(answer)["content"][0]["text"]

    async def value(self) -> Any:
        """The text, decoded as JSON."""
        return types.loads((await self.text()).encode())


@dataclass
class Connection:
    client: Client
    heard: Heard

    def call(self, tool: str, **arguments: object) -> Call:
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[bytes] = loop.create_future()
        progress: asyncio.Queue[types.Progress] = asyncio.Queue()

        def deliver(news: types.Progress | None) -> None:
            if news is not None:
                progress.put_nowait(news)
            elif pending.error is not None:
                outcome.set_exception(pending.error)
            else:
                outcome.set_result(bytes(pending.result or b""))

        pending = PendingRequest(deliver)
        self.client.call_tool(pending, tool, types.encode(arguments))
        return Call(pending, outcome, progress)

    async def ask(self, tool: str, **arguments: object) -> str:
        """Call a tool and give the first text of its answer."""
        return await self.call(tool, **arguments).text()


def asking_server(env: str) -> list[str]:
    """The command of the server that asks, on the SDK of an environment."""
    return [str(environment(env).python), str(ROOT / "tests" / "servers" / "sdk_asks.py")]


def stdio(command: Sequence[str]) -> StdioTransport:
    """A transport to a server behind pipes."""
    return StdioTransport(Launch(list(command), dict(os.environ), None), NoWatch(), limit=1_000_000, grace=Grace(1, 1))


class NoAnswers:
    """A responder that declares nothing, so that nothing is asked."""

    def capabilities(self) -> dict[str, Any]:
        return {}

    async def answer(self, method: str, params: dict[str, Any], pending: PendingRequest | None) -> dict[str, Any]:
        raise AssertionError(f"{method} was not declared")


@contextlib.asynccontextmanager
async def connected(
    transport: Transport, era: EraChoice, responder: Responder | None = None, *, tag: str = "asks#1"
) -> AsyncIterator[Connection]:
    """An open client; without a responder one that declares nothing."""
    heard = Heard()
    client = Client(transport, heard, Identity("ipymcp", "0"), responder or NoAnswers(), tag=tag)
    try:
        async with asyncio.timeout(PATIENCE):
            await client.open(era)
        yield Connection(client, heard)
    finally:
        await client.aclose()
