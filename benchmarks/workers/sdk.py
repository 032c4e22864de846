"""The official SDK's client (`mcp` 2.x), in its own loop, as documented: era `auto`, tools listed once."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

from mcp import Client, StdioServerParameters

from benchmarks.workers.harness import main


class Sdk:
    def __init__(self) -> None:
        self._stop = asyncio.Event()
        self._clients: list[Client] = []
        self._owners: list[asyncio.Task[None]] = []

    async def open(self, servers: dict[str, list[str]]) -> None:
        # A client must be entered and left by one task, so each has an owner.
        opened = [asyncio.get_running_loop().create_future() for _ in servers]
        self._owners += [
            asyncio.create_task(self._own(command, ready))
            for command, ready in zip(servers.values(), opened, strict=True)
        ]
        self._clients += await asyncio.gather(*opened)

    async def _own(self, command: list[str], ready: asyncio.Future[Client]) -> None:
        try:
            async with AsyncExitStack() as stack:
                remote = command[0].startswith("http")
                where = command[0] if remote else StdioServerParameters(command=command[0], args=command[1:])
                client = await stack.enter_async_context(Client(where))
                page = await client.list_tools()
                while page.next_cursor:
                    page = await client.list_tools(cursor=page.next_cursor)
                ready.set_result(client)
                await self._stop.wait()
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)

    async def echo(self, text: str) -> str:
        return (await self._clients[0].call_tool("echo", {"text": text})).content[0].text

    async def map(self, rows: list[str], at_once: int) -> list[str]:
        """What `Series.apply` does: a function waits for each row while the client's loop runs in another thread."""
        loop = asyncio.get_running_loop()
        call = lambda row: asyncio.run_coroutine_threadsafe(self.echo(row), loop).result()  # noqa: E731
        return await asyncio.to_thread(lambda: [call(row) for row in rows])

    async def text(self, megabytes: int) -> str:
        return (await self._clients[0].call_tool("text", {"megabytes": megabytes})).content[0].text

    async def rows(self, megabytes: int) -> list[Any]:
        return (await self._clients[0].call_tool("rows", {"megabytes": megabytes})).structured_content["rows"]

    async def close(self) -> None:
        self._stop.set()
        await asyncio.gather(*self._owners)


if __name__ == "__main__":
    main(Sdk())
