"""The sessions of all kernels of this server, asked of the kernels themselves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tornado.web import authenticated

from ipymcp.jupyter.kernels import Obstacle, other_version
from ipymcp.jupyter.link import asked
from ipymcp.jupyter.rest import Rest, permit

if TYPE_CHECKING:
    from ipymcp.jupyter.kernels import Kernels

__all__ = ["Sessions"]

_HELLO = {"kind": "hello", "client": "server", "wants": ["servers"]}


class Sessions(Rest):
    """`GET sessions`: every kernel, and its servers where it tells."""

    def initialize(self, kernels: Kernels) -> None:
        """Take what the routes give."""
        self._kernels = kernels

    @authenticated
    async def get(self) -> None:
        """All of them, at once."""
        await permit(self, "read", "kernels")
        manager: Any = self.session_manager
        listed: Any = await manager.list_sessions()
        paths = {one["kernel"]["id"]: one["path"] for one in listed if one.get("kernel")}
        rows = await asyncio.gather(*(self._row(one, paths.get(one)) for one in self._kernels.ids()))
        self.say({"kernels": rows})

    async def _row(self, kernel_id: str, path: str | None) -> dict[str, Any]:
        row = {"id": kernel_id, "name": self._kernels.name(kernel_id), "path": path}
        try:
            found = await asyncio.to_thread(self._kernels.find, kernel_id)
            snapshot = await asked(found, _HELLO, "snapshot")
        except Obstacle as obstacle:
            return {**row, **obstacle.document}
        other = other_version(found) or {}
        return {**row, "state": "open", **other, "ipymcp": found.ipymcp, "servers": snapshot["state"]["servers"]}
