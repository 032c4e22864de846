"""Bare httpx: the same POSTs as any MCP client's, the answers decoded by msgspec, and nothing else at all."""

from __future__ import annotations

import itertools
from typing import Any

import httpx
import msgspec

from benchmarks.workers.harness import main

HEADERS = {
    "Accept": "application/json, text/event-stream",
    "Content-Type": "application/json",
    "MCP-Protocol-Version": "2025-11-25",
}


class BareHttpx:
    def __init__(self) -> None:
        self._ids = itertools.count(1)
        limits = httpx.Limits(max_connections=20, max_keepalive_connections=20)
        self._http = httpx.AsyncClient(limits=limits, headers=HEADERS, timeout=None)

    async def open(self, servers: dict[str, list[str]]) -> None:
        [[self._url]] = servers.values()
        await self._request("tools/list", {})

    async def _request(self, method: str, params: dict[str, Any]) -> Any:
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        response = await self._http.post(self._url, content=msgspec.json.encode(message))
        return msgspec.json.decode(response.content)["result"]

    async def _call(self, name: str, **arguments: Any) -> Any:
        return await self._request("tools/call", {"name": name, "arguments": arguments})

    async def echo(self, text: str) -> str:
        return (await self._call("echo", text=text))["content"][0]["text"]

    async def text(self, megabytes: int) -> str:
        return (await self._call("text", megabytes=megabytes))["content"][0]["text"]

    async def rows(self, megabytes: int) -> list[Any]:
        return (await self._call("rows", megabytes=megabytes))["structuredContent"]["rows"]

    async def close(self) -> None:
        await self._http.aclose()


if __name__ == "__main__":
    main(BareHttpx())
