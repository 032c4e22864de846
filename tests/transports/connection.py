"""A client on any transport, as the tests use one: calls with their outcomes, and what the server said besides."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

from ipymcp.protocol import wire
from ipymcp.protocol.client import Client
from ipymcp.protocol.eras import Identity
from ipymcp.protocol.inputs import NoAnswers
from ipymcp.protocol.negotiation import EraChoice
from ipymcp.protocol.rpc import Slot
from ipymcp.protocol.transports.base import Transport
from ipymcp.protocol.transports.http import StreamableHttpTransport
from ipymcp.protocol.transports.sse import LegacySseTransport

PATIENCE = 30


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


@dataclass
class Heard:
    """What the server said of its own accord."""

    changes: asyncio.Queue[None] = field(default_factory=asyncio.Queue)
    logged: list[tuple[str, str]] = field(default_factory=list)
    noises: list[str] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)
    unreachables: list[str] = field(default_factory=list)

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

    def unreachable(self, reason: str) -> None:
        self.unreachables.append(reason)

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


def http(url: str, *, limit: int = 1_000_000, **headers: str) -> StreamableHttpTransport:
    return StreamableHttpTransport(url, headers=headers, authorizer=None, limit=limit)


def sse(url: str) -> LegacySseTransport:
    return LegacySseTransport(url, headers={}, authorizer=None, limit=1_000_000)
