"""A panel, or a server's card, in a cell: live where there are widgets, a table in everything else."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ipymcp.notebook.extension import Extension
    from ipymcp.tools.servers import Server

__all__ = ["card", "panel"]


def panel(extension: Extension) -> tuple[dict[str, Any], dict[str, Any]]:
    """The panel of all servers, by MIME type, and metadata."""
    return _with_widget(extension, extension.panel.mcp.servers._repr_mimebundle_())


def card(extension: Extension, server: Server) -> tuple[dict[str, Any], dict[str, Any]]:
    """The card of one, by MIME type, and metadata."""
    return _with_widget(extension, server._repr_mimebundle_(), server.name)


def _with_widget(
    extension: Extension, tables: dict[str, Any], server: str = ""
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The widget beside what is shown without, where there is a kernel: a terminal has none."""
    if not hasattr(extension.ip, "kernel") or importlib.util.find_spec("anywidget") is None:
        return tables, {}
    from ipymcp.notebook.panel.widget import PanelWidget

    widget: Any = PanelWidget(extension.panel, server)
    live, metadata = widget._repr_mimebundle_()
    return {**live, **tables}, metadata
