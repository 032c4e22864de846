"""The Jupyter server's extension application and its routes below `<base_url>ipymcp/`, and the frame of apps.

The frame is the document around an app's page, served with a content security policy that sandboxes it.
"""

from __future__ import annotations

from typing import Final

from jupyter_server.extension.application import ExtensionApp
from tornado.web import RequestHandler

from ipymcp.jupyter.callback import Callback, LoginRedirect
from ipymcp.jupyter.handlers import allow_unauthenticated
from ipymcp.jupyter.kernels import Kernels
from ipymcp.jupyter.relay import PanelRelay
from ipymcp.jupyter.status import Status
from ipymcp.protocol.apps import PageNeeds, content_policy, frame_document, origin

_KINDS: Final = ("connect", "resource", "frame", "base")
_MAX_LENGTH: Final = 20_000
"""Characters of a query."""


class AppFrame(RequestHandler):
    """`GET apps/frame`: the document, the same for everyone. It is not a `JupyterHandler`, which reads cookies.

    The query names origins that the page may use. The header makes the document's origin opaque wherever it is opened,
    and only pages of this server may frame it; the document has no content of its own.
    """

    @allow_unauthenticated
    def get(self) -> None:
        """Serve the document."""
        needs = PageNeeds(*map(self._origins, _KINDS))
        allows_eval = self.get_query_argument("eval", "") == "1"
        for name, value in {
            "Content-Type": "text/html; charset=utf-8",
            "Content-Security-Policy": content_policy(needs, allows_eval=allows_eval, is_header=True),
            "Cache-Control": "no-store",  # a fix of the document reaches every page at once
            "Referrer-Policy": "no-referrer",
            "X-DNS-Prefetch-Control": "off",
            "X-Content-Type-Options": "nosniff",
            "Cross-Origin-Resource-Policy": "same-origin",
        }.items():
            self.set_header(name, value)
        self.write(frame_document())  # pyright: ignore[reportUnknownMemberType]

    def _origins(self, kind: str) -> tuple[str, ...]:
        text: str = self.get_query_argument(kind, "") or ""
        return tuple(found for part in text[:_MAX_LENGTH].split(",") if (found := origin(part)))


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
                (r"ipymcp/status", Status, kernels),
                (r"ipymcp/apps/frame", AppFrame, {}),
                (r"ipymcp/oauth/callback", Callback, {}),
                (r"ipymcp/oauth/redirected", LoginRedirect, kernels),
            ]
        )
