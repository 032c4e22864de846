"""The floor: what a competent engineer writes in an afternoon, asyncio and the standard library's json.

One reader task a server, futures by id, the handshake era only. No timeouts, no cancelling, no validation, no restarts,
no stderr, no answer to anything the server asks: less than this is no MCP client.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

from benchmarks.workers.harness import main

LONGEST_LINE = 1 << 30


class Connection:
    def __init__(self) -> None:
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}

    async def open(self, command: list[str]) -> None:
        pipe = asyncio.subprocess.PIPE
        # A session of its own keeps Ctrl-C from the server; and Linux, which shares the processor out by session, then
        # starts 50 of them in half the time. The others do it too, and a floor must not be easy to reach.
        self._process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, limit=LONGEST_LINE, start_new_session=True
        )
        assert self._process.stdin
        self._stdin = self._process.stdin
        self._reader = asyncio.create_task(self._read())
        client = {"name": "floor", "version": "1"}
        await self.request("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client})
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        self.tools = await self._list_tools()

    async def _list_tools(self) -> list[dict[str, Any]]:
        tools: list[dict[str, Any]] = []
        cursor: str | None = None
        while True:
            page = await self.request("tools/list", {"cursor": cursor} if cursor else {})
            tools += page["tools"]
            cursor = page.get("nextCursor")
            if not cursor:
                return tools

    async def _read(self) -> None:
        assert self._process.stdout
        while line := await self._process.stdout.readline():
            message = json.loads(line)
            waiting = self._waiting.pop(message.get("id"), None)
            if waiting is None or waiting.done():
                continue
            if "error" in message:
                waiting.set_exception(RuntimeError(message["error"]["message"]))
            else:
                waiting.set_result(message["result"])

    def _send(self, message: dict[str, Any]) -> None:
        self._stdin.write(json.dumps(message).encode() + b"\n")

    async def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        request_id = next(self._ids)
        answer = self._waiting[request_id] = asyncio.get_running_loop().create_future()
        self._send({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})
        return await answer

    async def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        return await self.request("tools/call", {"name": name, "arguments": arguments})

    async def close(self) -> None:
        self._stdin.close()
        await self._process.wait()
        await self._reader


class Floor:
    def __init__(self) -> None:
        self._connections: list[Connection] = []

    async def open(self, servers: dict[str, list[str]]) -> None:
        opened = [Connection() for _ in servers]
        await asyncio.gather(*[link.open(command) for link, command in zip(opened, servers.values(), strict=True)])
        self._connections += opened

    async def echo(self, text: str) -> str:
        return (await self._connections[0].call("echo", text=text))["content"][0]["text"]

    async def text(self, megabytes: int) -> str:
        return (await self._connections[0].call("text", megabytes=megabytes))["content"][0]["text"]

    async def rows(self, megabytes: int) -> list[Any]:
        return (await self._connections[0].call("rows", megabytes=megabytes))["structuredContent"]["rows"]

    async def close(self) -> None:
        await asyncio.gather(*[link.close() for link in self._connections])


if __name__ == "__main__":
    main(Floor())
