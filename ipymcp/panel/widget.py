"""The panel in a cell: an anywidget whose comm transports the messages.

Each widget contains only a stub of a few hundred bytes. The page requests the panel's code once, as the buffer of a
message, so that saved notebooks do not contain it.
"""

from __future__ import annotations

import functools
import hashlib
from importlib import resources
from typing import TYPE_CHECKING, Any

import anywidget
from traitlets import Any as AnyTrait
from traitlets import Bool, Dict, Unicode

from ipymcp.panel.channels import CommChannel
from ipymcp.protocol.types import is_object

if TYPE_CHECKING:
    from ipymcp.panel.panel import Panel


_STATIC = resources.files("ipymcp.panel") / "static"


class PanelWidget(anywidget.AnyWidget):
    """A panel, the card of one server, or an app.

    Args:
        panel: The notebook's panel.
        server: The only server to show; empty for all.
        asks: Whether to show only questions.
        app: The app to show, as the trait of this name; None for a panel.
    """

    _esm = _STATIC.joinpath("stub.js").read_text("utf-8")
    library = Unicode(help="Digest of the panel's code.").tag(sync=True)
    server = Unicode(help="The server that a card shows; empty for a panel of all servers.").tag(sync=True)
    asks = Bool(help="Whether to show only questions.").tag(sync=True)
    app = Dict(None, allow_none=True, help="The app to show: its number, height and display mode.").tag(sync=True)
    layout = AnyTrait(None, help="None: ipywidgets' layout would be a second model of the same size.").tag(sync=True)

    def __init__(
        self, panel: Panel, server: str = "", *, asks: bool = False, app: dict[str, Any] | None = None
    ) -> None:
        super().__init__(library=_library()[0], server=server, asks=asks, app=app)
        widget: Any = self  # ipywidgets has no types
        self._send_to_page = widget.send
        self.channel = CommChannel(panel, lambda: widget.comm, widget.send)
        widget.on_msg(self._handle)
        widget.comm.on_close(self._on_close)
        panel.widgets.add(self)

    def _handle(self, _: object, content: object, buffers: object) -> None:
        kind = content.get("kind") if is_object(content) else None
        if kind == "library":
            self._send_to_page({"kind": "library"}, [_library()[1]])
        else:
            self.channel.receive(content)

    def end(self) -> None:
        """Close the widget and its channel."""
        self.close()

    def close(self) -> None:
        """Close the widget and its channel, also for `Widget.close_all`, which is not reported to `on_close`."""
        if hasattr(self, "channel"):  # not if the widget could not be made
            self.channel.close()
        super().close()

    def _on_close(self, _: object) -> None:
        self.channel.close()


@functools.cache
def _library() -> tuple[str, bytes]:
    """The digest of the panel's code, and the code."""
    code = _STATIC.joinpath("panel.js").read_bytes()
    return hashlib.sha256(code).hexdigest()[:16], code
