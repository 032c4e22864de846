"""The panel of one host: attached views, their snapshots of the state, and the calls they made.

Nothing waits here but replies. A patch is what changed between what the view has and what is shown now, made when it
can be sent; log lines are read from the server's own log then, and those that rolled off are counted. So a view that
does not read costs no more than its replies, and is let go when these become too many.

Made when the first view comes; while none is attached nothing runs. Most of it belongs to the
background loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

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
"""What may wait to be sent."""
_MAX_INTENTS = 100
"""Of one view at a time."""


class View:
    """One view. All but `receive` belongs to the background loop.

    Args:
        panel: The notebook's.
        carrier: Takes messages to it.
    """

    def __init__(self, panel: Panel, carrier: Channel) -> None:
        self.carrier = carrier
        self.is_greeted = False
        self._panel = panel
        self.callback: object = None
        """Where its page's server takes the answers to logins, as it says."""
        self._picture = ViewSnapshot(panel.shown)
        self._version = VERSION
        self._waiting: deque[tuple[Message, bytes]] = deque()
        self._bytes = 0
        self._intents: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._calls_over = panel.host.history.added
        self.logs: dict[str, LogReader] = {}
        """The logs it follows, by server."""

    @property
    def permissions(self) -> Permissions:
        """What it may do now."""
        permissions = self._panel.permissions()
        if self._version == VERSION:
            return permissions
        return Permissions("view", permissions.is_visitor, is_our_version=False)

    def can_answer(self, kind: QuestionKind) -> bool:
        """Whether it shows questions of this kind, and may answer them."""
        return self.is_greeted and "questions" in self._picture.parts and self.permissions.may_answer(kind)

    # -- hearing ------------------------------------------------------------------------------------------------------

    def heard(self, message: object) -> None:
        """It says something."""
        if not is_object(message):
            return self._refuse(None, Malformed("a message is a JSON object"))
        kind = message.get("kind")
        if kind == "hello":
            self._greet(message)
        elif kind == "intent":
            self._begin(message)
        elif kind == "bye":
            self._panel.detach(self)
        return None  # other kinds are of versions to come

    def refuse(self, why: str) -> None:
        """It said what cannot even be read."""
        self._refuse(None, Malformed(why))

    def _greet(self, message: Message) -> None:
        version = message.get("version")
        self._version = version if isinstance(version, int) else 0
        self.callback = message.get("callback")
        self._picture.begin(message.get("wants"), message.get("server"))
        self.is_greeted = True
        self.tell()
        self._panel.greeted()

    def tell(self) -> None:
        """Tell it whom it talks to, and what it may do now."""
        if self.is_greeted:
            self._picture.look_again()
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
        except Exception as error:  # a fault of ours must not be the panel's end
            self._refuse(number, McpError(f"a fault of ipymcp: {error!r}"))
        else:
            self.say({"kind": "reply", "id": number, "ok": True, "value": value})

    def _refuse(self, number: int | None, error: McpError) -> None:
        self.say({"kind": "reply", "id": number, "ok": False, "error": problem(self.permissions.shown_error(error))})

    # -- saying -------------------------------------------------------------------------------------------------------

    def say(self, message: Message) -> None:
        """Tell it something, once, in order."""
        made = ready(message)
        self._waiting.append(made)
        self._bytes += len(made[1])
        if len(self._waiting) > _MAX_WAITING or self._bytes > _MAX_BYTES:
            self._panel.detach(self)
        self._wake.set()

    def look(self) -> None:
        """There may be something new; at most ten times a second."""
        has_history = self._calls_over != self._panel.host.history.added
        if self.is_greeted and (self._picture.is_old or has_history or any(map(_has_news, self.logs.values()))):
            self._wake.set()

    async def run(self) -> None:
        """Send what there is to send, for as long as it is attached."""
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
        if update := self._picture.update(self.permissions):
            await self.carrier.carry(*ready(update))
        over = self._panel.host.history.added
        if over != self._calls_over:
            self._calls_over = over
            await self.carrier.carry(*ready({"kind": "history", "over": over}))
        for server, reader in [*self.logs.items()]:
            if lines := reader.read():
                await self.carrier.carry(*ready({"kind": "log", "server": server, **lines}))

    def closed(self) -> None:
        """It is attached no more."""
        for task in self._intents:
            task.cancel()
        self._waiting.clear()
        self._bytes = 0
        self.is_greeted = False
        self.logs.clear()


def _has_news(reader: LogReader) -> bool:
    return reader.has_news


_INTERVAL = 0.1
"""Seconds between two looks at what has changed."""
_MAX_VIEWS = 100
"""A cell that is run again leaves its old view behind: with more than these the oldest is let go."""


class CallCode(Protocol):
    """Writes a call as the user would type it; `ipymcp.notebook.call_code` is one."""

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
        mode: Gives what views may do now.
        namespace: Gives the name that `mcp` is bound to; empty where it is not.
        kernel: Identifies this life of the kernel: after a restart it is another.
        code: Writes calls as code.
        has_control: Whether views may also use the control channel.
        has_visitors: Whether the people at the page are strangers to the notebook, as under Voilà.
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
        self.host = mcp._host
        self.context = context
        self.calls: dict[int, Call[Any]] = {}
        """Those that views made and that are not over."""
        self.views: dict[View, asyncio.Task[None]] = {}
        self.shown = PanelState(self.host, self._is_own)
        self.numbers = LogNumbers()
        self.questions = PanelQuestions(
            self.host.loop, self.shown, self._answering, self._is_own, publisher=context.publisher
        )
        self.host.redirects.addresses = self._callbacks
        self.widgets: weakref.WeakSet[Closable] = weakref.WeakSet()
        """Those in cells."""
        self.is_closed = False
        """Whether the extension was unloaded: what views still say is nobody's to hear."""
        self._watching: asyncio.Task[None] | None = None

    # -- from any thread ----------------------------------------------------------------------------------------------

    def attach(self, carrier: Channel) -> View:
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

    def _is_own(self, call: object) -> bool:
        return any(call is one for one in [*self.calls.values()])

    def _answering(self, kind: QuestionKind) -> list[Channel]:
        """The channels of the views that may answer such a question."""
        return [view.carrier for view in [*self.views] if view.can_answer(kind)]

    def permissions(self) -> Permissions:
        """What views of our version may do now."""
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
                await asyncio.sleep(_INTERVAL)
