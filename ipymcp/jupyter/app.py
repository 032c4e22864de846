"""The Jupyter server's extension application and its routes below `<base_url>ipymcp/`."""

from __future__ import annotations

from jupyter_server.extension.application import ExtensionApp

from ipymcp.jupyter.app_frame import AppFrame
from ipymcp.jupyter.callback import Callback, LoginRedirect
from ipymcp.jupyter.kernels import Kernels
from ipymcp.jupyter.relay import PanelRelay


class IpymcpServer(ExtensionApp):
    """The extension application. It starts no MCP server and runs no command of a server definition."""

    name = "ipymcp"
    description = "The Model Context Protocol in notebooks"
    load_other_extensions = True

    def initialize_handlers(self) -> None:
        """Add the routes."""
        assert self.serverapp is not None
        kernels = {"kernels": Kernels(self.serverapp.kernel_manager)}
        self.handlers.extend(
            [
                (r"ipymcp/kernels/([\w-]+)/panel", PanelRelay, kernels),
                (r"ipymcp/apps/frame", AppFrame, {}),
                (r"ipymcp/oauth/callback", Callback, {}),
                (r"ipymcp/oauth/redirected", LoginRedirect, kernels),
            ]
        )
