"""The panel in a cell: an anywidget that carries messages over its comm.

Each panel or card carries only a stub of some hundred bytes. The panel's code is sent once, as the buffer of a message
when the page asks for it, and so is in no saved notebook.
"""

from __future__ import annotations

import functools
import hashlib
from importlib import resources
from typing import TYPE_CHECKING, Any

import anywidget
from traitlets import Any as AnyTrait
from traitlets import Bool, Unicode

from ipymcp.panel.channels import CommChannel
from ipymcp.protocol.types import is_object

if TYPE_CHECKING:
    from ipymcp.panel.panel import Panel


_STATIC = resources.files("ipymcp.panel") / "static"


class PanelWidget(anywidget.AnyWidget):
    """A panel, or the card of one server.

    Args:
        panel: The notebook's.
        server: The server; empty for all.
        asks: Whether it shows questions, and nothing else.
    """

    _esm = _STATIC.joinpath("stub.js").read_text("utf-8")
    library = Unicode(help="Names the panel's code.").tag(sync=True)
    server = Unicode(help="The server whose card it is; empty for a panel of all.").tag(sync=True)
    asks = Bool(help="Whether it shows questions, and nothing else.").tag(sync=True)
    layout = AnyTrait(None, help="None: ipywidgets' own would be a second model, as large as this one.").tag(sync=True)

    def __init__(self, panel: Panel, server: str = "", *, asks: bool = False) -> None:
        super().__init__(library=_library()[0], server=server, asks=asks)
        widget: Any = self  # ipywidgets has no types
        self._tell = widget.send
        self._carrier = CommChannel(panel, lambda: widget.comm, widget.send)
        widget.on_msg(self._heard)
        widget.comm.on_close(self._gone)
        panel.widgets.add(self)

    def _heard(self, _: object, content: object, buffers: object) -> None:
        kind = content.get("kind") if is_object(content) else None
        if kind == "library":
            self._tell({"kind": "library"}, [_library()[1]])
        else:
            self._carrier.heard(content)

    def end(self) -> None:
        """It is of no more use: nothing is kept of it."""
        self._carrier.gone()
        super().close()

    def _gone(self, _: object) -> None:
        self._carrier.gone()


@functools.cache
def _library() -> tuple[str, bytes]:
    """The panel's code, and its digest."""
    code = _STATIC.joinpath("panel.js").read_bytes()
    return hashlib.sha256(code).hexdigest()[:16], code
