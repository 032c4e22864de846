"""mcp-use's sessions, in its own loop."""

from __future__ import annotations

import asyncio
from typing import Any

from mcp_use import MCPClient

from benchmarks.workers.harness import main


class McpUse:
    def __init__(self) -> None:
        self._clients: list[MCPClient] = []
        self._session: Any = None

    async def open(self, servers: dict[str, list[str]]) -> None:
        config = {name: {"command": line[0], "args": line[1:]} for name, line in servers.items()}
        client = MCPClient({"mcpServers": config})
        sessions = await client.create_all_sessions()
        await asyncio.gather(*[session.list_tools() for session in sessions.values()])
        self._clients.append(client)
        self._session = self._session or next(iter(sessions.values()))

    async def echo(self, text: str) -> str:
        return (await self._session.call_tool("echo", {"text": text})).content[0].text

    async def text(self, megabytes: int) -> str:
        return (await self._session.call_tool("text", {"megabytes": megabytes})).content[0].text

    async def rows(self, megabytes: int) -> list[Any]:
        return (await self._session.call_tool("rows", {"megabytes": megabytes})).structuredContent["rows"]

    async def close(self) -> None:
        for client in self._clients:
            await client.close_all_sessions()


if __name__ == "__main__":
    main(McpUse())
