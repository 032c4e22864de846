"""A receiver that records what a transport delivers: for tests of a transport without a client."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from ipymcp.errors import McpError
from ipymcp.protocol.transports.base import OutboundMessage, RequestId, Transport


@dataclass
class Recorder:
    """A receiver that records what a transport delivers."""

    messages: list[tuple[dict[str, Any], RequestId | None]] = field(default_factory=list)
    errors: dict[RequestId, McpError] = field(default_factory=dict)
    forgotten: list[OutboundMessage] = field(default_factory=list)
    unreachables: list[str] = field(default_factory=list)
    noises: list[str] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)
    _news: asyncio.Condition = field(default_factory=asyncio.Condition)

    def message(self, line: bytes | bytearray, origin_request_id: RequestId | None = None) -> None:
        self.messages.append((json.loads(line), origin_request_id))
        self._tell()

    def undelivered(self, identifier: RequestId, error: McpError) -> None:
        if not self.answers(identifier):
            self.errors[identifier] = error
        self._tell()

    def expired(self, message: OutboundMessage) -> None:
        self.forgotten.append(message)
        self._tell()

    def unreachable(self, reason: str) -> None:
        self.unreachables.append(reason)

    def protocol_warning(self, text: str) -> None:
        self.noises.append(text)
        self._tell()

    def stderr(self, lines: list[str]) -> None: ...

    def lost(self, reason: str) -> None:
        self.losses.append(reason)
        self._tell()

    def answers(self, identifier: RequestId) -> list[dict[str, Any]]:
        return [message for message, _ in self.messages if message.get("id") == identifier and "method" not in message]

    async def until(self, condition: Any) -> None:
        """Wait for something that a message, an error or the like brings about."""
        async with asyncio.timeout(30), self._news:
            await self._news.wait_for(condition)

    async def answer(self, identifier: RequestId) -> str:
        """The text of a tool's answer.

        Raises:
            McpError: What it failed with.
        """
        await self.until(lambda: self.answers(identifier) or identifier in self.errors)
        if identifier in self.errors:
            raise self.errors[identifier]
        return self.answers(identifier)[0]["result"]["content"][0]["text"]

    def _tell(self) -> None:
        async def tell() -> None:
            async with self._news:
                self._news.notify_all()

        self._task = asyncio.ensure_future(tell())


def request(identifier: int, tool: str = "any", method: str = "tools/call", **headers: str) -> OutboundMessage:
    """A message that is a request; for a header `Mcp-Method` say `Mcp_Method`."""
    frame = {"jsonrpc": "2.0", "id": identifier, "method": method, "params": {"name": tool, "arguments": {}}}
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    return OutboundMessage(json.dumps(frame).encode(), "request", identifier, method, fields)


def notification(method: str, **headers: str) -> OutboundMessage:
    """A message that is a notification."""
    frame = json.dumps({"jsonrpc": "2.0", "method": method}).encode()
    return OutboundMessage(
        frame, "notification", None, method, {name.replace("_", "-"): value for name, value in headers.items()}
    )


async def opening(transport: Transport, recorder: Recorder) -> None:
    """The handshake."""
    transport.send(request(0, method="initialize"))
    await recorder.until(lambda: recorder.answers(0) or recorder.errors)
    if recorder.errors:
        raise recorder.errors[0]
    transport.send(notification("notifications/initialized", MCP_Protocol_Version="2025-11-25"))


@contextlib.asynccontextmanager
async def opened(transport: Transport, *, handshake: bool = True) -> AsyncIterator[Recorder]:
    """Open a transport, with a handshake by default."""
    recorder = Recorder()
    try:
        await transport.open(recorder)
        if handshake:
            await opening(transport, recorder)
        yield recorder
    finally:
        await transport.aclose()
