"""The panel of one host: attached views, their snapshots of the state, and the calls they made.

Only replies are queued. A patch holds the difference between a view's snapshot and the current state, and is computed
when it can be sent; log lines are read from the server's own log then, and lines already dropped there are counted. A
view that does not read therefore costs no more than its replies, and is detached when these become too many.

The panel is created with the first view; while no view is attached, nothing runs. Most of it runs on the background
loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from ipymcp.api.sync_and_async import host_of
from ipymcp.errors import McpError
from ipymcp.panel.messages import VERSION, Malformed, Message, is_hello, ready
from ipymcp.panel.permissions import Permissions
from ipymcp.panel.questions import PanelQuestions
from ipymcp.panel.rows import LogNumbers, problem
from ipymcp.panel.state import PanelState, ViewSnapshot
from ipymcp.protocol.types import is_object
from ipymcp.version import __version__

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping
    from typing import TypeAlias

    from ipymcp.api.namespace import Mcp
    from ipymcp.interaction.questions import QuestionKind
    from ipymcp.panel.messages import Channel
    from ipymcp.panel.permissions import Mode
    from ipymcp.panel.rows import LogReader
    from ipymcp.runtime.call import Call
    from ipymcp.runtime.catalog import ToolEntry
    from ipymcp.runtime.host import Host
    from ipymcp.schema.tool_schema import ToolSchema

    Act: TypeAlias = Callable[["Panel", "View", Message], Awaitable[Any]]


_MAX_WAITING = 1_000
_MAX_BYTES = 32_000_000
"""Maximum bytes queued for one view."""
_MAX_INTENTS = 100
"""Maximum concurrent intents of one view."""


class View:
    """One view of the panel; runs on the background loop.

    Args:
        panel: The panel.
        carrier: The channel to the view.
    """

    def __init__(self, panel: Panel, carrier: Channel) -> None:
        self.carrier = carrier
        self.is_greeted = False
        self._panel = panel
        self.callback: object = None
        """The callback address of the page's Jupyter server for logins, as the view reports it."""
        self._snapshot = ViewSnapshot(panel.shown)
        self._version = VERSION
        self._waiting: deque[tuple[Message, bytes]] = deque()
        self._bytes = 0
        self._intents: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._calls_over = panel.host.history.added
        self.logs: dict[str, LogReader] = {}
        """Readers of the logs that the view follows, by server."""

    @property
    def permissions(self) -> Permissions:
        """Current permissions of the view."""
        permissions = self._panel.permissions()
        if self._version == VERSION:
            return permissions
        return Permissions("view", permissions.is_visitor, is_our_version=False)

    def can_answer(self, kind: QuestionKind) -> bool:
        """Whether the view shows questions of this kind and may answer them."""
        return self.is_greeted and "questions" in self._snapshot.parts and self.permissions.may_answer(kind)

    # -- receiving ----------------------------------------------------------------------------------------------------

    def handle(self, message: object) -> None:
        """Handle a message from the view."""
        if not is_object(message):
            return self._refuse(None, Malformed("a message is a JSON object"))
        kind = message.get("kind")
        if kind == "hello":
            self._greet(message)
        elif kind == "intent":
            self._begin(message)
        elif kind == "bye":
            self._panel.detach(self)
        return None  # later versions may have other kinds

    def refuse(self, why: str) -> None:
        """Reply that a message could not be read."""
        self._refuse(None, Malformed(why))

    def _greet(self, message: Message) -> None:
        version = message.get("version")
        self._version = version if isinstance(version, int) else 0
        self.callback = message.get("callback")
        self._snapshot.begin(message.get("wants"), message.get("server"))
        self.is_greeted = True
        self.tell()
        self._panel.greeted()

    def tell(self) -> None:
        """Send the kernel's identity and the view's current permissions."""
        if self.is_greeted:
            self._snapshot.look_again()
            context, permissions = self._panel.context, self.permissions
            hello = {"kind": "hello", "version": VERSION, "ipymcp": __version__, "mode": permissions.mode}
            hello |= {"visitor": permissions.is_visitor}
            hello |= {"namespace": context.namespace(), "kernel": context.kernel}
            self.say({**hello, "control": context.has_control})

    def _begin(self, message: Message) -> None:
        number = message.get("id")
        if not isinstance(number, int) or isinstance(number, bool):
            return self._refuse(None, Malformed("an intent needs an id, a number"))
        if not self.is_greeted:
            return self._refuse(number, Malformed("say hello first"))
        if len(self._intents) >= _MAX_INTENTS:
            return self._refuse(number, Malformed(f"{_MAX_INTENTS} intents are under way: wait for their replies"))
        task = self._panel.spawn(self._do(number, message))
        self._intents.add(task)
        task.add_done_callback(self._intents.discard)
        return None

    async def _do(self, number: int, message: Message) -> None:
        try:
            verb = message.get("do")
            act = self._panel.verbs.get(verb) if isinstance(verb, str) else None
            if act is None or not isinstance(verb, str):
                raise Malformed(f"there is no verb {str(verb)[:100]!r}")
            self.permissions.check(verb)
            value = await act(self._panel, self, message)
        except McpError as error:
            self._refuse(number, error)
        except Exception as error:  # a bug of ours must not end the panel
            self._refuse(number, McpError(f"a fault of ipymcp: {error!r}"))
        else:
            self.say({"kind": "reply", "id": number, "ok": True, "value": value})

    def _refuse(self, number: int | None, error: McpError) -> None:
        self.say({"kind": "reply", "id": number, "ok": False, "error": problem(self.permissions.shown_error(error))})

    # -- sending ------------------------------------------------------------------------------------------------------

    def say(self, message: Message) -> None:
        """Queue a message; messages are sent once and in order."""
        made = ready(message)
        self._waiting.append(made)
        self._bytes += len(made[1])
        if len(self._waiting) > _MAX_WAITING or self._bytes > _MAX_BYTES:
            self._panel.detach(self)
        self._wake.set()

    def look(self) -> None:
        """Wake the sender if there is something new; called at most ten times a second."""
        has_history = self._calls_over != self._panel.host.history.added
        if self.is_greeted and (self._snapshot.is_old or has_history or any(map(_has_news, self.logs.values()))):
            self._wake.set()

    async def run(self) -> None:
        """Send messages and updates until the view is detached."""
        self._wake = asyncio.Event()  # the loop may be another than before
        self._wake.set()
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                message, line = self._waiting.popleft()
                self._bytes -= len(line)
                await self.carrier.carry(message, line)
            if self.is_greeted:
                await self._send_update()

    async def _send_update(self) -> None:
        if update := self._snapshot.update(self.permissions):
            await self.carrier.carry(*ready(update))
        over = self._panel.host.history.added
        if over != self._calls_over:
            self._calls_over = over
            await self.carrier.carry(*ready({"kind": "history", "over": over}))
        for server, reader in [*self.logs.items()]:
            if lines := reader.read():
                await self.carrier.carry(*ready({"kind": "log", "server": server, **lines}))

    def closed(self) -> None:
        """Release everything that belongs to the view, which was detached."""
        for task in self._intents:
            task.cancel()
        self._waiting.clear()
        self._bytes = 0
        self.is_greeted = False
        self.logs.clear()


def _has_news(reader: LogReader) -> bool:
    return reader.has_news


_INTERVAL = 0.1
"""Seconds between two checks for changes."""
_MAX_VIEWS = 100
"""A cell that is run again leaves its old view behind; beyond this number the oldest view is detached."""


class CallCode(Protocol):
    """Writer of calls as the user would type them, such as `ipymcp.notebook.call_code`."""

    def python(
        self, host: Host, entry: ToolEntry, schema: ToolSchema, arguments: Mapping[str, Any], namespace: str
    ) -> str:
        """The call in Python."""
        ...

    def magic(self, host: Host, entry: ToolEntry, schema: ToolSchema, arguments: Mapping[str, Any]) -> str:
        """The call as a `%mcp` line.

        Raises:
            McpError: No line can express it.
        """
        ...


class PanelContext(Struct, frozen=True):
    """The notebook as its panel knows it.

    Attributes:
        mode: Returns the current mode of the panel.
        namespace: Returns the name that `mcp` is bound to; empty if it is not bound.
        kernel: Identifier of this kernel run; a restart changes it.
        code: Writes calls as code.
        has_control: Whether views may also use the control channel.
        has_visitors: Whether the page is open to people other than the notebook's author, as under Voilà.
        publisher: The shell's publisher of displays, for cells that wait for an answer; None to show nothing there.
    """

    mode: Callable[[], Mode]
    namespace: Callable[[], str]
    kernel: str
    code: CallCode
    has_control: bool = False
    has_visitors: bool = False
    publisher: Any = None


class Closable(Protocol):
    """A display of the panel in a cell."""

    def end(self) -> None:
        """Close the display."""
        ...


class Panel:
    """The panel of a notebook, which any number of views show.

    Args:
        mcp: The notebook's servers.
        context: The notebook as the panel knows it.
        verbs: The commands that views may send.
    """

    def __init__(self, mcp: Mcp, context: PanelContext, verbs: Mapping[str, Act]) -> None:
        self.mcp = mcp
        self.verbs = verbs
        self.host = host_of(mcp)
        self.context = context
        self.calls: dict[int, Call[Any]] = {}
        """Running calls made by views, by number."""
        self.views: dict[View, asyncio.Task[None]] = {}
        self.shown = PanelState(self.host, self._is_own)
        self.numbers = LogNumbers()
        self.questions = PanelQuestions(
            self.host.loop, self.shown, self._answering, self._is_own, publisher=context.publisher
        )
        self.host.redirects.addresses = self._callbacks
        self.widgets: weakref.WeakSet[Closable] = weakref.WeakSet()
        """Panels displayed in cells."""
        self.is_closed = False
        """Whether the extension was unloaded; messages of views are then ignored."""
        self._watching: asyncio.Task[None] | None = None

    # -- from any thread ----------------------------------------------------------------------------------------------

    def attach(self, carrier: Channel) -> View:
        """Attach a view; its messages are passed to `receive`."""
        view = View(self, carrier)
        self.host.loop.call(self._attach, view)
        return view

    def receive(self, view: View, message: object) -> None:
        """Handle a message from a view."""
        self.host.loop.call(self._handle, view, message)

    def tell_mode(self) -> None:
        """Send the changed permissions to all views."""
        if self.host.loop.is_running:
            self.host.loop.call(self._tell_mode)

    def close(self) -> None:
        """Close all widgets, so that they show that the extension was unloaded; called on the kernel's thread."""
        self.is_closed = True
        for widget in [*self.widgets]:
            widget.end()

    # -- on the background loop ---------------------------------------------------------------------------------------

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task on the background loop."""
        return self.host.loop.spawn(coroutine, "ipymcp-panel")

    def detach(self, view: View) -> None:
        """Detach a view that is gone or does not read its messages."""
        task = self.views.pop(view, None)
        if task is not None:
            task.cancel()
            view.closed()
            view.carrier.left()
            self.questions.drop_unanswerable()

    def greeted(self) -> None:
        """Start watching for changes, because a view has said hello."""
        if self._watching is None or self._watching.done():
            self._watching = self.spawn(self._watch())

    def _callbacks(self) -> list[object]:
        """Callback addresses for logins, the newest view's first."""
        return [view.callback for view in reversed([*self.views]) if view.permissions.mode == "full"]

    def _is_own(self, call: object) -> bool:
        return any(call is one for one in [*self.calls.values()])

    def _answering(self, kind: QuestionKind) -> list[Channel]:
        """The channels of the views that may answer such a question."""
        return [view.carrier for view in [*self.views] if view.can_answer(kind)]

    def permissions(self) -> Permissions:
        """Current permissions of views with this version of the protocol."""
        mode = self.context.mode()
        return Permissions(mode, self.context.has_visitors and mode != "full")

    def _tell_mode(self) -> None:
        for view in [*self.views]:
            view.tell()
        self.questions.drop_unanswerable()

    def _attach(self, view: View) -> None:
        self.host.desk.elsewhere = self.questions
        self.views[view] = self.spawn(self._run(view))
        if len(self.views) > _MAX_VIEWS:
            self.detach(next(iter(self.views)))

    def _handle(self, view: View, message: object) -> None:
        task = self.views.get(view)
        if task is None and not is_hello(message):
            return  # the view was detached
        if task is None or task.done():  # the view is back, or the loop was restarted
            self.views[view] = self.spawn(self._run(view))
            self.greeted()
        view.handle(message)

    async def _run(self, view: View) -> None:
        try:
            await view.run()
        except OSError:  # the connection is closed
            self.detach(view)

    async def _watch(self) -> None:
        unsubscribe = self.host.events.subscribe(self.shown.handle)
        with contextlib.ExitStack() as stack:
            stack.callback(unsubscribe)
            while any(view.is_greeted for view in self.views):
                self.shown.look()
                for view in [*self.views]:
                    view.look()
                await asyncio.sleep(_INTERVAL)
