"""The panel of one host: the views that are attached, what they are shown, the calls they made.

Made when the first view comes; while none is attached nothing runs. Most of it belongs to the
background loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ipymcp.notebook.panel.intents import VERBS
from ipymcp.notebook.panel.logs import LogNumbers
from ipymcp.notebook.panel.messages import is_hello
from ipymcp.notebook.panel.permissions import Permissions
from ipymcp.notebook.panel.questions import PanelQuestions
from ipymcp.notebook.panel.shown import Shown
from ipymcp.notebook.panel.view import View

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from ipymcp.notebook.panel.form import WaitingLine
    from ipymcp.notebook.panel.intents import Act
    from ipymcp.notebook.panel.permissions import Mode
    from ipymcp.notebook.panel.view import Carrier
    from ipymcp.notebook.panel.widget import PanelWidget
    from ipymcp.runtime.calls import Call
    from ipymcp.runtime.places import Place
    from ipymcp.tools.face import Mcp

__all__ = ["Panel", "Surroundings"]

_PACE = 0.1
"""Seconds between two looks at what has changed."""
_MOST_VIEWS = 100
"""A cell that is run again leaves its old view behind: with more than these the oldest is let go."""


class Surroundings(Struct, frozen=True):
    """What a panel has to know of the notebook.

    Attributes:
        mode: Gives what views may do now.
        namespace: Gives the name that `mcp` is bound to; empty where it is not.
        kernel: Names the kernel's life: another one is another kernel.
        has_control: Whether views may speak by the control channel too.
        has_visitors: Whether the people at the page are strangers to the notebook, as under Voilà.
        wait_for_panel: Says in a cell that it waits for an answer in the panel.
    """

    mode: Callable[[], Mode]
    namespace: Callable[[], str]
    kernel: str
    has_control: bool = False
    has_visitors: bool = False
    wait_for_panel: Callable[[Place], WaitingLine] | None = None


class Panel:
    """Shows a host to views.

    Args:
        mcp: The notebook's.
        surroundings: What it has to know of the notebook.
    """

    verbs: dict[str, Act] = VERBS
    """What views may ask for."""

    def __init__(self, mcp: Mcp, surroundings: Surroundings) -> None:
        self.mcp = mcp
        self.host = mcp._host
        self.surroundings = surroundings
        self.calls: dict[int, Call[Any]] = {}
        """Those that views made and that are not over."""
        self.views: dict[View, asyncio.Task[None]] = {}
        self.shown = Shown(self.host, lambda call: call.number in self.calls)
        self.numbers = LogNumbers()
        self.questions = PanelQuestions(self)
        self.host.redirects.addresses = self._callbacks
        self.widgets: weakref.WeakSet[PanelWidget] = weakref.WeakSet()
        """Those in cells."""
        self.is_closed = False
        """Whether the extension was unloaded: what views still say is nobody's to hear."""
        self._watching: asyncio.Task[None] | None = None

    # -- from any thread ----------------------------------------------------------------------------------------------

    def attach(self, carrier: Carrier) -> View:
        """Have a view from now on. What it says is handed to `receive`."""
        view = View(self, carrier)
        self.host.loop.call(self._attach, view)
        return view

    def receive(self, view: View, message: object) -> None:
        """A view says something."""
        self.host.loop.call(self._heard, view, message)

    def tell_mode(self) -> None:
        """Views may do more, or less, than before."""
        if self.host.loop.is_running:
            self.host.loop.call(self._tell_mode)

    def close(self) -> None:
        """The extension is unloaded, on the kernel's thread: its widgets say that nobody is there any more."""
        self.is_closed = True
        for widget in [*self.widgets]:
            widget.end()

    # -- on the background loop ---------------------------------------------------------------------------------------

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task."""
        return self.host.loop.spawn(coroutine, "ipymcp-panel")

    def detach(self, view: View) -> None:
        """Let go of a view: it went, or does not take what it asked for."""
        task = self.views.pop(view, None)
        if task is not None:
            task.cancel()
            view.closed()
            view.carrier.left()
            self.questions.drop_unanswerable()

    def greeted(self) -> None:
        """A view wants to be shown something."""
        if self._watching is None or self._watching.done():
            self._watching = self.spawn(self._watch())

    def _callbacks(self) -> list[object]:
        """Where the user's browser may come back to after a login, the newest view's first."""
        return [view.callback for view in reversed([*self.views]) if view.permissions.mode == "full"]

    def permissions(self) -> Permissions:
        """What views of our version may do now."""
        mode = self.surroundings.mode()
        return Permissions(mode, self.surroundings.has_visitors and mode != "full")

    def _tell_mode(self) -> None:
        for view in [*self.views]:
            view.tell()
        self.questions.drop_unanswerable()

    def _attach(self, view: View) -> None:
        self.host.desk.elsewhere = self.questions
        self.views[view] = self.spawn(self._run(view))
        if len(self.views) > _MOST_VIEWS:
            self.detach(next(iter(self.views)))

    def _heard(self, view: View, message: object) -> None:
        task = self.views.get(view)
        if task is None and not is_hello(message):
            return  # it was let go
        if task is None or task.done():  # it is back, or the loop was stopped and is another now
            self.views[view] = self.spawn(self._run(view))
            self.greeted()
        view.heard(message)

    async def _run(self, view: View) -> None:
        try:
            await view.run()
        except OSError:  # its connection is gone
            self.detach(view)

    async def _watch(self) -> None:
        unsubscribe = self.host.events.subscribe(self.shown.heard)
        with contextlib.ExitStack() as stack:
            stack.callback(unsubscribe)
            while any(view.is_greeted for view in self.views):
                self.shown.look()
                for view in [*self.views]:
                    view.look()
                await asyncio.sleep(_PACE)
