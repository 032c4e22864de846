"""A panel, or a server's card, in a cell: live where there are widgets, a table in everything else.

Beside both it has a type of its own, which JupyterLab's extension draws: it names this life of the kernel, and is live
in any page that talks to that, over the relay. A notebook that is executed by a program (nbclient, papermill) gets no
widget: it would be dead in every page made of it, and hide the table.
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
        life: Identifies this life of the kernel: what is saved of another is shown as it was.
        panel: Gives the notebook's panel.
    """

    def __init__(self, ip: Any, life: str, panel: Callable[[], Panel]) -> None:
        self._ip = ip
        self._panel = panel
        self._own: dict[str, Any] = {"version": VERSION, "kernel": life}

    def panel(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The panel of all servers, by MIME type, and metadata."""
        return self._live(self._panel().mcp.servers._repr_mimebundle_())

    def card(self, server: Server) -> tuple[dict[str, Any], dict[str, Any]]:
        """The card of one server, by MIME type, and metadata."""
        return self._live(server._repr_mimebundle_(), server.name)

    def question(self, card: str, *, is_here: bool) -> dict[str, Any]:
        """The open question of a model's call, which JupyterLab's extension draws.

        Args:
            card: The card of the call.
            is_here: Whether that card is the one displayed; another one is hidden while the question is open.
        """
        own = {**self._own, "card": card}
        return {_TYPE: own if is_here else {**own, "elsewhere": True}}

    def _live(self, tables: dict[str, Any], server: str = "") -> tuple[dict[str, Any], dict[str, Any]]:
        """Add the live panel to the tables where there is a kernel: a terminal has none."""
        kernel = getattr(self._ip, "kernel", None)
        if kernel is None:
            return tables, {}
        shown = {_TYPE: self._own | ({"server": server} if server else {}), **tables}
        if not _has_page(kernel) or not is_installed("anywidget"):
            return shown, {}
        from ipymcp.panel.widget import PanelWidget

        widget: Any = PanelWidget(self._panel(), server)
        live, metadata = widget._repr_mimebundle_()
        return {**live, **shown}, metadata


def _has_page(kernel: Any) -> bool:
    """Whether a page may be there: programs that execute notebooks allow no input. Nor does Voilà, which has one."""
    return getattr(kernel, "_allow_stdin", True) or is_voila(os.environ)
