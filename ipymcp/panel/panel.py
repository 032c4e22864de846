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
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import Struct

from ipymcp.errors import McpError
from ipymcp.panel.commands import VERBS, Permissions
from ipymcp.panel.messages import VERSION, Malformed, Message, is_hello, ready
from ipymcp.panel.questions import PanelQuestions
from ipymcp.panel.rows import LogNumbers, call_row, disabled_tools, problem, server_row
from ipymcp.protocol.types import is_array, is_object
from ipymcp.runtime.events import OffersChanged
from ipymcp.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from ipymcp.api.namespace import Mcp
    from ipymcp.interaction.questions import QuestionKind
    from ipymcp.panel.cell_form import WaitingLine
    from ipymcp.panel.commands import Act, Mode
    from ipymcp.panel.rows import LogReader
    from ipymcp.panel.widget import PanelWidget
    from ipymcp.protocol.client import Client
    from ipymcp.runtime.call import Call
    from ipymcp.runtime.catalog import Catalog, ToolEntry
    from ipymcp.runtime.events import Event
    from ipymcp.runtime.host import Host
    from ipymcp.runtime.interrupts import WaitingCaller
    from ipymcp.runtime.resources import Kind
    from ipymcp.runtime.session import ServerSession
    from ipymcp.schema.tool_schema import ToolSchema


_PARTS: Final = ("servers", "calls", "questions")
_OWNERS: Final = {"servers": "name", "calls": "server", "questions": "server"}
"""The field of a row that names its server."""


class ViewSnapshot:
    """A view's picture of the state.

    Args:
        shown: What there is to show.
    """

    def __init__(self, shown: PanelState) -> None:
        self.parts: tuple[str, ...] = _PARTS
        """What of the state the view wants."""
        self._shown = shown
        self._server: str | None = None
        self._sent: dict[str, dict[str, Message]] = {}
        self._sent_version = -1
        self._wants_all = False
        self._permissions: Permissions | None = None
        self._number = 0

    @property
    def is_old(self) -> bool:
        """Whether something may have changed."""
        return self._wants_all or self._sent_version != self._shown.version

    def begin(self, wants: object, server: object) -> None:
        """The view has nothing yet, or lost it.

        Args:
            wants: The parts it wants; all, where that is no list.
            server: The one server it is about, if that is a name.
        """
        self.parts = tuple(part for part in _PARTS if part in wants) if is_array(wants) else _PARTS
        self._server = server if isinstance(server, str) else None
        self._wants_all = True

    def look_again(self) -> None:
        """Something else decides now what is its own to see."""
        self._sent_version = -1

    def update(self, permissions: Permissions) -> Message | None:
        """A snapshot where one is due, else a patch where something has changed.

        Args:
            permissions: What the view may see. Where they are others than before, it gets everything anew.
        """
        if permissions != self._permissions:
            self._permissions, self._wants_all = permissions, True
        if self._wants_all:
            self._shown.look()
        elif not self.is_old:
            return None
        now, before = self._scoped(permissions), self._sent
        self._sent, self._sent_version = now, self._shown.version
        if self._wants_all:
            self._wants_all = False
            self._number += 1
            state = {part: _shown(part, now.get(part, {}), permissions) for part in _PARTS}
            return {"kind": "snapshot", "seq": self._number, "state": state}
        changed = {part: change for part in now if (change := _difference(before.get(part, {}), now[part]))}
        if not changed:
            return None
        self._number += 1
        changed = {part: _shown(part, rows, permissions) for part, rows in changed.items()}
        return {"kind": "patch", "seq": self._number, "set": changed}

    def _scoped(self, permissions: Permissions) -> dict[str, dict[str, Message]]:
        """The rows that are its own to see."""
        server = self._server
        return {
            part: {
                name: row
                for name, row in self._shown.rows[part].items()
                if permissions.shows(part, row) and (server is None or row[_OWNERS[part]] == server)
            }
            for part in self.parts
        }


def _shown(part: str, rows: dict[str, Any], permissions: Permissions) -> dict[str, Any]:
    return {name: row and permissions.shown(part, row) for name, row in rows.items()}


def _difference(before: dict[str, Message], now: dict[str, Message]) -> dict[str, Any]:
    changed: dict[str, Any] = {name: row for name, row in now.items() if before.get(name) is not row}
    return changed | {name: None for name in before if name not in now}


_SHOW_AFTER = 0.1
"""Seconds that a call runs before it is worth showing."""
_MAX_CALLS = 200


class PanelState:
    """The rows of servers and calls. A row that has changed is another object. Belongs to the background loop.

    Args:
        host: Whose.
        is_own: Whether a call was made in a panel.
    """

    def __init__(self, host: Host, is_own: Callable[[Call[Any]], bool]) -> None:
        self.rows: dict[str, dict[str, Message]] = {"servers": {}, "calls": {}, "questions": {}}
        self.version = 0
        """Counts the changes."""
        self._host = host
        self._is_own = is_own
        self._keys: dict[tuple[str, str], tuple[Any, ...]] = {}
        self._disabled: dict[str, tuple[Catalog, object, int]] = {}
        self._tools: dict[str, tuple[tuple[Any, ...], int]] = {}
        """What the list of a server's tools was made from, and the number of that version."""
        self._tools_versions = 0
        self._looked: dict[str, Client] = {}
        """The connections whose resources and prompts were listed, by server."""

    def look(self) -> None:
        """Bring the rows up to date."""
        self._look_at_servers()
        self._look_at_calls()

    def ask(self, question: Message) -> None:
        """Show a question."""
        self._put("questions", question["id"], question)

    def withdraw(self, question: str) -> None:
        """Show it no more."""
        self._keep("questions", self.rows["questions"].keys() - {question})

    def heard(self, event: Event) -> None:
        """A server says that it has other resources or prompts."""
        if isinstance(event, OffersChanged):
            self._looked.pop(event.server, None)

    def _look_at_servers(self) -> None:
        host = self._host
        sessions = host.sessions
        aliases = host.aliases() if sessions.keys() != self.rows["servers"].keys() else None
        rules = host.guard.policy.filters.rules
        for name, session in sessions.items():
            alias = aliases[name] if aliases else self.rows["servers"][name]["alias"]
            tools_version = self._tools_version(session)
            key = (
                session, alias, session.state, session.is_lazy, session.client, session.calls, session.catalog,
                session.error, session.last_error, rules, tools_version,
            )  # fmt: skip
            if self._is_news("servers", name, key):
                disabled = self._count_disabled(session, rules)
                self._put("servers", name, server_row(session, alias, disabled, tools_version))
            if session.client is not None and self._looked.get(name) is not session.client:
                self._looked[name] = session.client
                session.spawn(_list_offers(session, session.client), "panel")
        self._keep("servers", sessions.keys())

    def _tools_version(self, session: ServerSession) -> int:
        """Number what a list of its tools shows; views that have a list of an older version ask for it again."""
        guard = self._host.guard
        key = (
            session, session.catalog.tools, session.rights, guard.policy.filters.rules, guard.policy.state,
            guard.findings.get(session.name),
        )  # fmt: skip
        known = self._tools.get(session.name)
        if known is None or known[0] != key:
            self._tools_versions += 1
            known = self._tools[session.name] = key, self._tools_versions
        return known[1]

    def _count_disabled(self, session: ServerSession, rules: object) -> int:
        """How many of its tools are switched off, counted once for these tools and rules."""
        known = self._disabled.get(session.name)
        if known is None or known[0] is not session.catalog or known[1] is not rules:
            known = session.catalog, rules, disabled_tools(self._host, session)
            self._disabled[session.name] = known
        return known[2]

    def _look_at_calls(self) -> None:
        latest = time.monotonic() - _SHOW_AFTER
        running = {str(call.number): call for call in list(self._host.running.values())[:_MAX_CALLS]}
        running = {number: call for number, call in running.items() if call.started <= latest}
        for number, call in running.items():
            if self._is_news("calls", number, (call, call.progress)):
                self._put("calls", number, call_row(call, "panel" if self._is_own(call) else "notebook"))
        self._keep("calls", running.keys())

    def _is_news(self, part: str, name: str, key: tuple[Any, ...]) -> bool:
        if self._keys.get((part, name)) == key:
            return False
        self._keys[part, name] = key
        return True

    def _put(self, part: str, name: str, row: Message) -> None:
        if self.rows[part].get(name) != row:
            self.rows[part][name] = row
            self.version += 1

    def _keep(self, part: str, names: Any) -> None:
        gone = self.rows[part].keys() - names
        for name in gone:
            del self.rows[part][name]
            self._keys.pop((part, name), None)
            if part == "servers":
                self._looked.pop(name, None)
                self._disabled.pop(name, None)
                self._tools.pop(name, None)
        self.version += bool(gone)


async def _list_offers(session: ServerSession, client: Client) -> None:
    """Somebody looks: what it has beside tools is listed, so that it can be counted."""
    kinds: list[Kind] = ["resources", "templates"] if "resources" in client.capabilities else []
    if "prompts" in client.capabilities:
        kinds.append("prompts")
    if kinds:
        with contextlib.suppress(McpError):  # it is in the log
            await session.offers.look(*kinds)


_MAX_WAITING = 1_000
_MAX_BYTES = 32_000_000
"""What may wait to be sent."""
_MAX_INTENTS = 100
"""Of one view at a time."""


class Channel(Protocol):
    """Takes messages to a view."""

    async def carry(self, message: Message, line: bytes) -> None:
        """Send a message, here also as a line of JSON; wait until there is room for the next."""
        ...

    def serves(self, *, blocked: bool, running: bool) -> bool:
        """Whether answers would come through while a cell runs, and while it blocks the kernel's main thread."""
        ...

    def left(self) -> None:
        """The view is let go."""
        ...


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
        wait_for_panel: Shows in a cell that it waits for an answer in the panel.
    """

    mode: Callable[[], Mode]
    namespace: Callable[[], str]
    kernel: str
    code: CallCode
    has_control: bool = False
    has_visitors: bool = False
    wait_for_panel: Callable[[WaitingCaller], WaitingLine] | None = None


class Panel:
    """Shows a host to views.

    Args:
        mcp: The notebook's.
        context: The notebook as the panel knows it.
    """

    verbs: dict[str, Act] = VERBS
    """What views may ask for."""

    def __init__(self, mcp: Mcp, context: PanelContext) -> None:
        self.mcp = mcp
        self.host = mcp._host
        self.context = context
        self.calls: dict[int, Call[Any]] = {}
        """Those that views made and that are not over."""
        self.views: dict[View, asyncio.Task[None]] = {}
        self.shown = PanelState(self.host, lambda call: call.number in self.calls)
        self.numbers = LogNumbers()
        self.questions = PanelQuestions(self)
        self.host.redirects.addresses = self._callbacks
        self.widgets: weakref.WeakSet[PanelWidget] = weakref.WeakSet()
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
