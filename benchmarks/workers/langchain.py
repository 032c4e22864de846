"""langchain-mcp-adapters with a kept session (without one it starts a server for every call), in its own loop."""

from __future__ import annotations

import asyncio
from typing import Any

from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools

from benchmarks.workers.harness import main


class LangChain:
    def __init__(self) -> None:
        self._stop = asyncio.Event()
        self._owners: list[asyncio.Task[None]] = []
        self._tools: dict[str, Any] = {}

    async def open(self, servers: dict[str, list[str]]) -> None:
        config = {name: {"transport": "stdio", "command": line[0], "args": line[1:]} for name, line in servers.items()}
        client = MultiServerMCPClient(config)
        ready = [asyncio.get_running_loop().create_future() for _ in servers]
        for name, listed in zip(servers, ready, strict=True):
            self._owners.append(asyncio.create_task(self._own(client, name, listed)))
        first, *_ = await asyncio.gather(*ready)
        self._tools = self._tools or {tool.name: tool for tool in first}

    async def _own(self, client: MultiServerMCPClient, name: str, listed: asyncio.Future[list[Any]]) -> None:
        async with client.session(name) as session:
            listed.set_result(await load_mcp_tools(session))
            await self._stop.wait()

    async def echo(self, text: str) -> str:
        return (await self._tools["echo"].ainvoke({"text": text}))[0]["text"]

    async def map(self, rows: list[str], at_once: int) -> list[str]:
        answers = await self._tools["echo"].abatch([{"text": row} for row in rows], {"max_concurrency": at_once})
        return [answer[0]["text"] for answer in answers]

    async def text(self, megabytes: int) -> str:
        return (await self._tools["text"].ainvoke({"megabytes": megabytes}))[0]["text"]

    async def rows(self, megabytes: int) -> list[Any]:
        raise NotImplementedError("its tools give a model text, no structured content")

    async def close(self) -> None:
        self._stop.set()
        await asyncio.gather(*self._owners)


if __name__ == "__main__":
    main(LangChain())
