"""The panel or a server's card in a cell: a widget if the page supports widgets, else a table.

The output also has a MIME type of ipymcp, which the JupyterLab extension renders. It identifies the kernel run, and is
live in any page that is connected to that kernel by the relay. If a program (nbclient, papermill) executes the
notebook, there is no widget, because it would not work in exported pages and would hide the table.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from ipymcp.import_guard import is_installed
from ipymcp.notebook.settings import is_voila
from ipymcp.results.tables import display_bundle
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
        run_id: The identifier of this kernel run; the saved output of another run is not live.
        panel: Returns the notebook's panel.
    """

    def __init__(self, ip: Any, run_id: str, panel: Callable[[], Panel]) -> None:
        self._ip = ip
        self._panel = panel
        self._own: dict[str, Any] = {"version": VERSION, "kernel": run_id}

    def show(self, server: Server | None) -> None:
        """Show the panel below the cell, or the card of one server."""
        from IPython.display import display  # pyright: ignore[reportUnknownVariableType]

        bundle, metadata = self.panel() if server is None else self.card(server)
        display(bundle, metadata=metadata, raw=True)

    def panel(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The MIME bundle and metadata of the panel with all servers."""
        return self._live(display_bundle(self._panel().mcp.servers))

    def card(self, server: Server) -> tuple[dict[str, Any], dict[str, Any]]:
        """The MIME bundle and metadata of the card of one server."""
        return self._live(display_bundle(server), server.name)

    def question(self, card: str, *, is_here: bool) -> dict[str, Any]:
        """The MIME bundle of the open question about a model's call, for the JupyterLab extension.

        Args:
            card: The key of the card with the question.
            is_here: Whether the output is that card; the cards of the question's other calls are hidden.
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
        live, metadata = display_bundle(widget)
        return {**live, **shown}, metadata


def has_page(kernel: Any) -> bool:
    """Whether a page may be connected: Voilà has pages; other programs that allow no input only execute notebooks."""
    return getattr(kernel, "_allow_stdin", True) or is_voila(os.environ)


def updates_displays(ip: Any) -> bool:
    """Whether the front end that runs the current cell is known to update displays; consoles ignore the updates.

    Known are notebooks, which send the cell's id with its code (JupyterLab, Notebook 7, VS Code), Colab, and programs
    that allow no input (nbclient, and with it Voilà).
    """
    kernel = getattr(ip, "kernel", None)
    if kernel is None:
        return False
    request: Any = kernel.get_parent("shell") if hasattr(kernel, "get_parent") else {}
    is_cell = bool(request.get("metadata", {}).get("cellId"))
    return is_cell or not getattr(kernel, "_allow_stdin", True) or "COLAB_RELEASE_TAG" in os.environ
