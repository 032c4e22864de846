"""A panel, or a server's card, in a cell: live where there are widgets, a table in everything else."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ipymcp.notebook.extension import Extension
    from ipymcp.tools.servers import Server

__all__ = ["card", "panel"]


def panel(extension: Extension) -> dict[str, Any]:
    """The panel of all servers, by MIME type."""
    return {**extension.panel.mcp.servers._repr_mimebundle_(), **_live(extension)}


def card(extension: Extension, server: Server) -> dict[str, Any]:
    """The card of one, by MIME type."""
    return {**server._repr_mimebundle_(), **_live(extension, server.name)}


def _live(extension: Extension, server: str = "") -> dict[str, Any]:
    """The widget, where there is a kernel: a terminal has none."""
    if not hasattr(extension.ip, "kernel") or importlib.util.find_spec("anywidget") is None:
        return {}
    from ipymcp.notebook.panel.widget import PanelWidget

    return PanelWidget(extension.panel, server).bundle
