"""Views over a comm: a widget's in a cell, or one that a page opens where no relay reaches this kernel.

Messages arrive on a thread of the kernel's, and are handed to the background loop; messages to the view leave from
there.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from ipykernel._version import version_info

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipymcp.notebook.panel.messages import Message
    from ipymcp.notebook.panel.panel import Panel
    from ipymcp.notebook.panel.view import View

__all__ = ["CommCarrier", "opened"]

_SERVES_WHILE_AWAITING = (7, 4)
"""The ipykernel from which on comm messages are served while a cell awaits."""


class CommCarrier:
    """Carries one view's messages.

    Args:
        panel: The notebook's.
        comm: Gives the comm; None once it is closed.
        tell: Sends a message over it.
    """

    def __init__(self, panel: Panel, comm: Callable[[], Any], tell: Callable[[Message], None]) -> None:
        self._panel = panel
        self._comm = comm
        self._tell = tell
        self._view: View | None = None
        self._is_on_subshell = False
        if hasattr(comm(), "_reply_subshell_for"):
            # Else a click would wait for the main shell, where we last published, and so for the cell that runs there.
            comm()._reply_subshell_for = _own_shell

    # -- as a carrier -------------------------------------------------------------------------------------------------

    async def carry(self, message: Message, line: bytes) -> None:
        """Send a message. The kernel takes it at once."""
        if self._comm() is None:
            raise ConnectionError("the comm is closed")
        self._tell(message)

    def serves(self, *, blocked: bool, running: bool) -> bool:
        """Whether answers come while a cell runs: where comms have a subshell, and in newer kernels while it awaits."""
        return self._is_on_subshell or not running or (not blocked and version_info[:2] >= _SERVES_WHILE_AWAITING)

    def left(self) -> None:
        """The panel has let go of it."""
        self._view = None

    # -- in the kernel's threads --------------------------------------------------------------------------------------

    def heard(self, content: object) -> None:
        """The view says something."""
        self._is_on_subshell = threading.current_thread() is not threading.main_thread()
        if self._view is None:
            self._view = self._panel.attach(self)
        self._panel.receive(self._view, content)

    def gone(self) -> None:
        """The view is gone."""
        if self._view is not None:
            self._panel.leave(self._view)


def opened(panel: Panel, comm: Any) -> None:
    """A page has opened a comm for a view of the whole panel."""
    is_open = True
    carrier = CommCarrier(panel, lambda: comm if is_open else None, comm.send)

    def closed(_: object) -> None:
        nonlocal is_open
        is_open = False
        carrier.gone()

    def heard(message: dict[str, Any]) -> None:
        carrier.heard(message["content"]["data"])

    comm.on_msg(heard)
    comm.on_close(closed)


def _own_shell(_: object, default: object) -> object:
    return default
