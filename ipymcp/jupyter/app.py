"""The extension as Jupyter's server loads it, and its routes below `<base_url>ipymcp/`."""

from __future__ import annotations

from typing import Any

from jupyter_server.extension.application import ExtensionApp

from ipymcp.jupyter import handlers
from ipymcp.jupyter.callback import Callback, LoginRedirect
from ipymcp.jupyter.handlers import Sessions
from ipymcp.jupyter.kernels import Kernels
from ipymcp.jupyter.relay import PanelRelay
from ipymcp.storage.store import Store

_KERNEL = r"([\w-]+)"
_NAME = r"([^/]+)"
_DIGEST = r"([0-9a-f]{64})"


def routes(kernels: Kernels, store: Store) -> list[tuple[str, type, dict[str, Any]]]:
    """Every address, who answers there, and what that works on."""
    over, kept = {"kernels": kernels}, {"store": store}
    return [
        (rf"ipymcp/kernels/{_KERNEL}/panel", PanelRelay, over),
        (r"ipymcp/sessions", Sessions, over),
        (r"ipymcp/config", handlers.Config, kept),
        (r"ipymcp/config/check", handlers.Check, kept),
        (rf"ipymcp/config/servers/{_NAME}", handlers.ServerConfig, kept),
        (r"ipymcp/secrets", handlers.SecretNames, kept),
        (rf"ipymcp/secrets/{_NAME}", handlers.Secret, kept),
        (r"ipymcp/trust", handlers.TrustAgreements, kept),
        (rf"ipymcp/trust/{_DIGEST}", handlers.TrustAgreement, kept),
        (r"ipymcp/oauth/callback", Callback, {}),
        (r"ipymcp/oauth/redirected", LoginRedirect, over),
    ]


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
