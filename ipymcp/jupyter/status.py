"""The status of all kernels' servers, for programs: `GET <base_url>ipymcp/status`."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from jupyter_server.base.handlers import APIHandler

from ipymcp.jupyter.handlers import allow_unauthenticated, authorize
from ipymcp.jupyter.kernels import KernelUnavailable, request

if TYPE_CHECKING:
    from ipymcp.jupyter.kernels import Kernels


class Status(APIHandler):
    """`GET status`: each kernel's servers with state, tools, calls and last error, as JSON.

    It needs Jupyter's login, and the authorizer's `read` on `kernels`; else it answers 403. It has no definitions.
    """

    auth_resource = "kernels"

    def initialize(self, kernels: Kernels) -> None:
        """Store the arguments of the route."""
        self._kernels = kernels

    @allow_unauthenticated  # a program gets 403, and not a page to log in
    async def get(self) -> None:
        """Ask every kernel."""
        await authorize(self, "read", "kernels")
        self.set_header("Cache-Control", "no-store")
        kernels = await asyncio.gather(*map(self._kernel, self._kernels.ids()))
        self.finish(json.dumps({"kernels": kernels}, ensure_ascii=False))

    async def _kernel(self, kernel_id: str) -> dict[str, Any]:
        try:
            kernel = await asyncio.to_thread(self._kernels.find, kernel_id)
            reply = await request(kernel, {"kind": "status"}, "status")
        except KernelUnavailable as unavailable:
            return {"id": kernel_id, "problem": unavailable.message, "servers": []}
        return {"id": kernel_id, "problem": "", "ipymcp": kernel.ipymcp, "servers": reply.get("servers", [])}
