"""A panel, or a server's card, in a cell: live where there are widgets, a table in everything else.

Beside both it has a type of its own, which JupyterLab's extension draws: it names this life of the kernel, and is live
in any page that talks to that, over the relay.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any, Final

from ipymcp.state.meeting import VERSION

if TYPE_CHECKING:
    from ipymcp.notebook.extension import Extension
    from ipymcp.tools.servers import Server

__all__ = ["card", "panel"]

_TYPE: Final = "application/vnd.ipymcp.panel+json"


def panel(extension: Extension) -> tuple[dict[str, Any], dict[str, Any]]:
    """The panel of all servers, by MIME type, and metadata."""
    return _live(extension, extension.panel.mcp.servers._repr_mimebundle_())


def card(extension: Extension, server: Server) -> tuple[dict[str, Any], dict[str, Any]]:
    """The card of one, by MIME type, and metadata."""
    return _live(extension, server._repr_mimebundle_(), server.name)


def _live(extension: Extension, tables: dict[str, Any], server: str = "") -> tuple[dict[str, Any], dict[str, Any]]:
    """What is live, beside what is shown without, where there is a kernel: a terminal has none."""
    if not hasattr(extension.ip, "kernel"):
        return tables, {}
    own: dict[str, Any] = {"version": VERSION, "kernel": extension.panel.surroundings.kernel}
    shown = {_TYPE: own | ({"server": server} if server else {}), **tables}
    if importlib.util.find_spec("anywidget") is None:
        return shown, {}
    from ipymcp.notebook.panel.widget import PanelWidget

    widget: Any = PanelWidget(extension.panel, server)
    live, metadata = widget._repr_mimebundle_()
    return {**live, **shown}, metadata
