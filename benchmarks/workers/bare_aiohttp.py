"""Bare aiohttp, as `bare_httpx`: what another HTTP library would save."""

from __future__ import annotations

import itertools
from typing import Any

import aiohttp
import msgspec

from benchmarks.workers.harness import main

HEADERS = {
    "Accept": "application/json, text/event-stream",
    "Content-Type": "application/json",
    "MCP-Protocol-Version": "2025-11-25",
}


class BareAiohttp:
    def __init__(self) -> None:
        self._ids = itertools.count(1)
        self._http: aiohttp.ClientSession | None = None

    async def open(self, servers: dict[str, list[str]]) -> None:
        [[self._url]] = servers.values()
        self._http = aiohttp.ClientSession(headers=HEADERS, connector=aiohttp.TCPConnector(limit=20))
        await self._request("tools/list", {})

    async def _request(self, method: str, params: dict[str, Any]) -> Any:
        assert self._http
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        async with self._http.post(self._url, data=msgspec.json.encode(message)) as response:
            return msgspec.json.decode(await response.read())["result"]

    async def _call(self, name: str, **arguments: Any) -> Any:
        return await self._request("tools/call", {"name": name, "arguments": arguments})

    async def echo(self, text: str) -> str:
        return (await self._call("echo", text=text))["content"][0]["text"]

    async def text(self, megabytes: int) -> str:
        return (await self._call("text", megabytes=megabytes))["content"][0]["text"]

    async def rows(self, megabytes: int) -> list[Any]:
        return (await self._call("rows", megabytes=megabytes))["structuredContent"]["rows"]

    async def close(self) -> None:
        if self._http:
            await self._http.close()


if __name__ == "__main__":
    main(BareAiohttp())
