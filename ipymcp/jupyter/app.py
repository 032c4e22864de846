"""The extension as Jupyter's server loads it; installing ipymcp enables it."""

from __future__ import annotations

from jupyter_server.extension.application import ExtensionApp

from ipymcp.jupyter.kernels import Kernels
from ipymcp.jupyter.routes import routes
from ipymcp.state.store import Store

__all__ = ["IpymcpServer"]


class IpymcpServer(ExtensionApp):
    """Relays views to kernels. It starts no MCP server, and runs nothing that a definition names."""

    name = "ipymcp"
    description = "The Model Context Protocol in notebooks"
    load_other_extensions = True

    def initialize_handlers(self) -> None:
        """Say what lies where, with what it works on."""
        assert self.serverapp is not None
        self._store = Store(self.log.warning)
        self.handlers.extend(routes(Kernels(self.serverapp.kernel_manager), self._store))

    async def stop_extension(self) -> None:
        """Write what was not written yet."""
        self._store.close()
