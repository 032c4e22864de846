"""Views over a comm: a widget's in a cell, or one that a page opens where no relay reaches this kernel.

Messages arrive on a thread of the kernel's, and are handed to the background loop; messages to the view leave from
there. A comm takes whatever it is given, and keeps it wherever the page does not read. So the view is asked, now and
then, how far it has read; while it owes too much it is sent nothing.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

from ipykernel._version import version_info

from ipymcp.notebook.panel.messages import is_hello
from ipymcp.protocol.jsontypes import is_object

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipymcp.notebook.panel.messages import Message
    from ipymcp.notebook.panel.panel import Panel
    from ipymcp.notebook.panel.view import View

__all__ = ["CommCarrier", "opened"]

_MARK_EVERY = 250_000
"""Bytes after which a view is asked how far it has read."""
_MOST_UNREAD = 2_000_000
"""Bytes that may be on their way to one view."""
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
        self._is_on_subshell = self._has_control = False
        self._sent = self._marked = self._read = 0
        self._has_room = asyncio.Event()
        if hasattr(comm(), "_reply_subshell_for"):
            # Else a click would wait for the main shell, where we last published, and so for the cell that runs there.
            comm()._reply_subshell_for = _own_shell

    # -- as a carrier -------------------------------------------------------------------------------------------------

    async def carry(self, message: Message, line: bytes) -> None:
        """Send a message, which the kernel takes at once; wait until the view has read most of what was sent."""
        if self._comm() is None:
            raise ConnectionError("the comm is closed")
        self._tell(message)
        self._sent += len(line)
        if self._sent - self._marked > _MARK_EVERY:
            self._marked = self._sent
            self._tell({"kind": "mark", "sent": self._sent})
        while self._sent - self._read > _MOST_UNREAD:
            self._has_room = asyncio.Event()  # the loop may be another than before
            await self._has_room.wait()

    def serves(self, *, blocked: bool, running: bool) -> bool:
        """Whether answers come while a cell runs: by the control channel, on a subshell, from 7.4 on in an await."""
        return (
            self._has_control
            or self._is_on_subshell
            or not running
            or (not blocked and version_info[:2] >= _SERVES_WHILE_AWAITING)
        )

    def left(self) -> None:
        """The panel has let go of it. It may say hello again."""

    def _take(self, content: object) -> None:
        """The view says something, on the background loop: its messages come on several threads."""
        if is_object(content) and content.get("kind") == "read":
            return self._was_read(content)
        if is_object(content) and is_hello(content):
            self._has_control = content.get("control") is True and self._panel.surroundings.has_control
            self._begins()
        if self._view is None:
            self._view = self._panel.attach(self)
        return self._panel.receive(self._view, content)

    def _was_read(self, message: Message) -> None:
        """It has read so many bytes of what was sent."""
        count = message.get("sent")
        if isinstance(count, int):
            self._read = max(self._read, min(count, self._sent))
            self._has_room.set()

    def _begins(self) -> None:
        """It begins anew: what was sent before is read, or lost."""
        self._read = self._sent
        self._has_room.set()

    def _go(self) -> None:
        if self._view is not None:
            self._panel.detach(self._view)

    # -- in the kernel's threads --------------------------------------------------------------------------------------

    def heard(self, content: object) -> None:
        """The view says something."""
        if self._panel.is_closed:
            return
        self._is_on_subshell = threading.current_thread() is not threading.main_thread()
        self._panel.host.loop.call(self._take, content)

    def gone(self) -> None:
        """The view is gone."""
        if self._panel.host.loop.is_running:
            self._panel.host.loop.call(self._go)


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
