"""fastmcp's client, in its own loop."""

from __future__ import annotations

import asyncio
from typing import Any

from fastmcp import Client

from benchmarks.workers.harness import main


class FastMcp:
    def __init__(self) -> None:
        self._clients: list[Client[Any]] = []

    async def open(self, servers: dict[str, list[str]]) -> None:
        opened = [
            Client({"mcpServers": {name: {"command": line[0], "args": line[1:]}}}) for name, line in servers.items()
        ]
        await asyncio.gather(*[self._start(client) for client in opened])
        self._clients += opened

    async def _start(self, client: Client[Any]) -> None:
        await client.__aenter__()
        await client.list_tools()

    async def echo(self, text: str) -> str:
        return (await self._clients[0].call_tool("echo", {"text": text})).content[0].text

    async def text(self, megabytes: int) -> str:
        return (await self._clients[0].call_tool("text", {"megabytes": megabytes})).content[0].text

    async def rows(self, megabytes: int) -> list[Any]:
        return (await self._clients[0].call_tool("rows", {"megabytes": megabytes})).structured_content["rows"]

    async def close(self) -> None:
        await asyncio.gather(*[client.close() for client in self._clients])


if __name__ == "__main__":
    main(FastMcp())
