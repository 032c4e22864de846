"""The panel in a cell: an anywidget that carries messages over its comm.

Each panel or card carries only a stub of some hundred bytes. The panel's code is sent once, as the buffer of a message
when the page asks for it, and so is in no saved notebook. Messages arrive on a thread of the kernel's, and are handed
to the background loop; messages to the view leave from there.
"""

from __future__ import annotations

import functools
import hashlib
import threading
from importlib import resources
from typing import TYPE_CHECKING, Any

import anywidget
from ipykernel._version import version_info
from traitlets import Unicode

from ipymcp.protocol.jsontypes import is_object

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipymcp.notebook.panel.messages import Message
    from ipymcp.notebook.panel.panel import Panel
    from ipymcp.notebook.panel.view import View

__all__ = ["PanelWidget"]

_STATIC = resources.files("ipymcp.notebook.panel") / "static"
_SERVES_WHILE_AWAITING = (7, 4)
"""The ipykernel from which on comm messages are served while a cell awaits."""


class PanelWidget(anywidget.AnyWidget):
    """A panel, or the card of one server.

    Args:
        panel: The notebook's.
        server: The server; empty for all.
    """

    _esm = _STATIC.joinpath("stub.js").read_text("utf-8")
    library = Unicode(help="Names the panel's code.").tag(sync=True)
    server = Unicode(help="The server whose card it is; empty for a panel of all.").tag(sync=True)

    def __init__(self, panel: Panel, server: str = "") -> None:
        super().__init__(library=_library()[0], server=server)
        self._panel = panel
        self._view: View | None = None
        self._is_on_subshell = False
        widget: Any = self  # ipywidgets has no types
        widget.on_msg(self._heard)
        self._tell: Callable[..., None] = widget.send
        comm: Any = self.comm
        comm.on_close(self._gone)
        if hasattr(comm, "_reply_subshell_for"):
            # Else a click would wait for the main shell, where we last published, and so for the cell that runs there.
            comm._reply_subshell_for = _own_shell

    # -- as a carrier -------------------------------------------------------------------------------------------------

    async def carry(self, message: Message, line: bytes) -> None:
        """Send a message. The kernel takes it at once."""
        if self.comm is None:
            raise ConnectionError("the widget is closed")
        self._tell(message)

    def serves(self, *, blocked: bool, running: bool) -> bool:
        """Whether answers come while a cell runs: where comms have a subshell, and in newer kernels while it awaits."""
        return self._is_on_subshell or not running or (not blocked and version_info[:2] >= _SERVES_WHILE_AWAITING)

    def left(self) -> None:
        """The panel has let go of it."""
        self._view = None

    # -- in the kernel's threads --------------------------------------------------------------------------------------

    def _heard(self, _: object, content: object, buffers: object) -> None:
        self._is_on_subshell = threading.current_thread() is not threading.main_thread()
        kind = content.get("kind") if is_object(content) else None
        if kind == "library":
            self._tell({"kind": "library"}, [_library()[1]])
            return
        if self._view is None:
            self._view = self._panel.attach(self)
        self._panel.receive(self._view, content)

    def _gone(self, _: object) -> None:
        if self._view is not None:
            self._panel.leave(self._view)


@functools.cache
def _library() -> tuple[str, bytes]:
    """The panel's code, and its digest."""
    code = _STATIC.joinpath("panel.js").read_bytes()
    return hashlib.sha256(code).hexdigest()[:16], code


def _own_shell(_: object, default: object) -> object:
    return default
