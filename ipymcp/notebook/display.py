"""A panel or a server's card in a cell: live where there are widgets, else a table.

The output also has a MIME type of its own, which JupyterLab's extension draws: it identifies the kernel run and is live
in any page connected to it over the relay. A notebook executed by a program (nbclient, papermill) gets no widget, which
would be dead in every page made from it and hide the table.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from ipymcp.import_guard import is_installed
from ipymcp.notebook.settings import is_voila
from ipymcp.storage.kernel_socket import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipymcp.api.servers import Server
    from ipymcp.panel.panel import Panel


_TYPE: Final = "application/vnd.ipymcp.panel+json"


class PanelDisplay:
    """Displays of the notebook's panel.

    Args:
        ip: The IPython shell.
        life: Identifier of this kernel run; the saved output of another run is not live.
        panel: Returns the notebook's panel.
    """

    def __init__(self, ip: Any, life: str, panel: Callable[[], Panel]) -> None:
        self._ip = ip
        self._panel = panel
        self._own: dict[str, Any] = {"version": VERSION, "kernel": life}

    def panel(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """MIME bundle and metadata of the panel of all servers."""
        return self._live(self._panel().mcp.servers._repr_mimebundle_())  # pyright: ignore[reportPrivateUsage]

    def card(self, server: Server) -> tuple[dict[str, Any], dict[str, Any]]:
        """MIME bundle and metadata of the card of one server."""
        return self._live(server._repr_mimebundle_(), server.name)  # pyright: ignore[reportPrivateUsage]

    def question(self, card: str, *, is_here: bool) -> dict[str, Any]:
        """MIME bundle of the open question of a model's call, for JupyterLab's extension.

        Args:
            card: The card of the call.
            is_here: Whether the output is that card; others hide while the question is open.
        """
        own = {**self._own, "card": card}
        return {_TYPE: own if is_here else {**own, "elsewhere": True}}

    def _live(self, tables: dict[str, Any], server: str = "") -> tuple[dict[str, Any], dict[str, Any]]:
        """Add the live panel to the tables, unless the shell is a terminal."""
        kernel = getattr(self._ip, "kernel", None)
        if kernel is None:
            return tables, {}
        shown = {_TYPE: self._own | ({"server": server} if server else {}), **tables}
        if not has_page(kernel) or not is_installed("anywidget"):
            return shown, {}
        from ipymcp.panel.widget import PanelWidget

        widget: Any = PanelWidget(self._panel(), server)
        live, metadata = widget._repr_mimebundle_()  # pyright: ignore[reportPrivateUsage]
        return {**live, **shown}, metadata


def has_page(kernel: Any) -> bool:
    """Whether there may be a page: programs that execute notebooks allow no input, nor does Voilà, which has one."""
    return getattr(kernel, "_allow_stdin", True) or is_voila(os.environ)
