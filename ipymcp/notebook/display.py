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
    from ipymcp.api.servers import Server
    from ipymcp.notebook.extension import Extension


_TYPE: Final = "application/vnd.ipymcp.panel+json"


def panel(extension: Extension) -> tuple[dict[str, Any], dict[str, Any]]:
    """The panel of all servers, by MIME type, and metadata."""
    return _live(extension, extension.panel.mcp.servers._repr_mimebundle_())


def card(extension: Extension, server: Server) -> tuple[dict[str, Any], dict[str, Any]]:
    """The card of one, by MIME type, and metadata."""
    return _live(extension, server._repr_mimebundle_(), server.name)


def question(extension: Extension, of: str, *, is_here: bool) -> dict[str, Any]:
    """What has JupyterLab's extension draw the question that a card of a model's call has, as long as it is open.

    Args:
        extension: Of the notebook.
        of: Which card has it.
        is_here: Whether that is the one that is shown; one that has none hides meanwhile, for the question shows all.
    """
    own = {"version": VERSION, "kernel": extension.life, "card": of}
    return {_TYPE: own if is_here else {**own, "elsewhere": True}}


def _live(extension: Extension, tables: dict[str, Any], server: str = "") -> tuple[dict[str, Any], dict[str, Any]]:
    """What is live, beside what is shown without, where there is a kernel: a terminal has none."""
    if not hasattr(extension.ip, "kernel"):
        return tables, {}
    own: dict[str, Any] = {"version": VERSION, "kernel": extension.life}
    shown = {_TYPE: own | ({"server": server} if server else {}), **tables}
    if not _has_page(extension.ip.kernel) or not is_installed("anywidget"):
        return shown, {}
    from ipymcp.panel.widget import PanelWidget

    widget: Any = PanelWidget(extension.panel, server)
    live, metadata = widget._repr_mimebundle_()
    return {**live, **shown}, metadata


def _has_page(kernel: Any) -> bool:
    """Whether a page may be there: programs that execute notebooks allow no input. Nor does Voilà, which has one."""
    return getattr(kernel, "_allow_stdin", True) or is_voila(os.environ)
