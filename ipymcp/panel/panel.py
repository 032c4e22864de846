"""The panel of one host: attached views, their snapshots of the state, and the calls they made.

A view of JupyterLab or Notebook 7 also reads and changes the notebook's cells.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Any, Protocol, get_type_hints

from msgspec import Struct

from ipymcp.api.sync_and_async import host_of
from ipymcp.errors import McpError
from ipymcp.panel.cells import CellFields, PanelCells
from ipymcp.panel.icons import IconCache
from ipymcp.panel.logs import LogNumbers
from ipymcp.panel.messages import (
    VERSION,
    Acknowledgement,
    Bye,
    FailureReply,
    HistoryUpdate,
    Intent,
    KernelHello,
    Malformed,
    Mode,
    SuccessReply,
    ViewHello,
    decode,
    encode,
    is_hello,
    read,
)
from ipymcp.panel.permissions import Permissions
from ipymcp.panel.problems import problem
from ipymcp.panel.questions import AnswerFields, FieldErrors, PanelQuestions
from ipymcp.panel.state import PanelState, ViewSnapshot
from ipymcp.version import __version__

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping

    from ipymcp.api.namespace import Mcp
    from ipymcp.interaction.questions import QuestionKind
    from ipymcp.panel.logs import Reader
    from ipymcp.panel.messages import Channel, Problem, ToView
    from ipymcp.panel.state import StateSection
    from ipymcp.protocol.recording import MessageRecorder
    from ipymcp.results.records import FileFormat, RecordTable
    from ipymcp.runtime.call import Call
    from ipymcp.runtime.catalog import ToolEntry
    from ipymcp.runtime.host import Host
    from ipymcp.schema.tool_schema import ToolSchema
    from ipymcp.setup.addition import AnyAddition


class ResultFile(Struct, frozen=True):
    """The table of a result as a file."""

    result: int
    format: FileFormat
    data: bytes


class ViewCommand(Struct, frozen=True):
    """A command that views may send.

    Attributes:
        verbs: Its names: the `do` of an intent.
        act: Runs the command and returns the value of the reply.
        fields: The type of the intent's other fields.
    """

    verbs: tuple[str, ...]
    act: Callable[[Panel, View, Any], Awaitable[Any]]
    fields: type[Struct]


def command(*verbs: str) -> Callable[[Callable[[Panel, View, Any], Awaitable[Any]]], ViewCommand]:
    """Return a decorator that makes a function a command; the type of its `message` is that of the fields."""
    return lambda act: ViewCommand(verbs, act, get_type_hints(act)["message"])


class RunningTrial:
    """A trial of a server.

    Args:
        run: Defines the server and starts it.
    """

    def __init__(self, run: Callable[[RunningTrial], Coroutine[Any, Any, AnyAddition]]) -> None:
        self.addition: AnyAddition | None = None
        """The server that is tried, once it is defined."""
        self.task = asyncio.ensure_future(run(self))


_MAX_WAITING = 1_000
_MAX_BYTES = 32_000_000
"""Maximum bytes queued for one view."""
_MAX_INTENTS = 100
"""Maximum concurrent intents of one view."""


class View:
    """One view of the panel; runs on the background loop.

    Args:
        panel: The panel.
        channel: The channel to the view.
    """

    def __init__(self, panel: Panel, channel: Channel) -> None:
        self.channel = channel
        self.is_greeted = False
        self.has_cells = False
        """Whether the view reads and changes the notebook's cells."""
        self._panel = panel
        self.callback: str | None = None
        """The callback address of the page's Jupyter server for logins, as the view reports it."""
        self._snapshot = ViewSnapshot(panel.shown)
        self._version = VERSION
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._intents: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._finished_calls = panel.host.history.added
        self.readers: dict[tuple[str, str], Reader] = {}
        """Readers of the logs, messages and resources that the view follows, by command and what is followed."""
        self.file: ResultFile | None = None
        """The file that the view is downloading."""
        self.trials: dict[int, RunningTrial] = {}
        """Trials of servers by the view's number for each; the server of a finished task is running."""

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
        try:
            decoded = decode(message)
        except Malformed as error:
            return self.refuse(error)
        match decoded:
            case ViewHello():
                self._greet(decoded)
            case Intent():
                self._begin(decoded, message)
            case Acknowledgement():
                self.channel.acknowledge(decoded.sent)
            case Bye():
                self._panel.detach(self)
            case None:
                pass
        return None

    def _greet(self, hello: ViewHello) -> None:
        self._version = hello.version
        self.has_cells = hello.cells
        self.callback = hello.callback
        self.channel.restart(hello)
        self._snapshot.begin(hello)
        self.is_greeted = True
        self.send_hello()
        if "questions" in self._snapshot.parts:
            self._panel.questions.supersede_forms(self.channel)
        self._panel.start_watching()

    def send_hello(self) -> None:
        """Send the kernel's identity and the view's current permissions."""
        if self.is_greeted:
            self._snapshot.invalidate()
            context, permissions = self._panel.context, self.permissions
            self.send(
                KernelHello(
                    version=VERSION,
                    ipymcp=__version__,
                    mode=permissions.mode,
                    namespace=context.namespace(),
                    kernel=context.kernel,
                    visitor=permissions.is_visitor,
                    control=context.has_control,
                )
            )

    def _begin(self, intent: Intent, message: Any) -> None:
        if not self.is_greeted:
            return self.refuse(Malformed("say hello first"), intent.id)
        if len(self._intents) >= _MAX_INTENTS:
            text = f"{_MAX_INTENTS} intents are running: wait for their replies"
            return self.refuse(Malformed(text), intent.id)
        task = self._panel.spawn(self._do(intent, message))
        self._intents.add(task)
        task.add_done_callback(self._intents.discard)
        return None

    async def _do(self, intent: Intent, message: Any) -> None:
        try:
            verb = intent.do
            command = self._panel.commands.get(verb) if isinstance(verb, str) else None
            if command is None:
                raise Malformed(f"there is no verb {str(verb)[:100]!r}")
            self.permissions.check(verb)
            value = await command.act(self._panel, self, read(message, command.fields, verb))
        except Exception as error:
            self.refuse(error, intent.id)
        else:
            self.send(SuccessReply(id=intent.id, ok=True, value=value))

    def refuse(self, error: Exception, number: int | None = None) -> None:
        """Reply that an intent has failed, or that a message is malformed."""
        self.send(FailureReply(id=number, ok=False, error=self.problem(error)))

    def problem(self, error: Exception) -> Problem:
        """Describe an error to the view. An error that is not an `McpError` is a bug in ipymcp."""
        known = error if isinstance(error, McpError) else McpError(f"a bug in ipymcp: {error!r}")
        return problem(self.permissions.shown_error(known))

    async def end_trial(self, number: int) -> None:
        """End a trial and discard its server, whether the trial waits for an answer, is starting or is running."""
        trying = self.trials.pop(number, None)
        if trying is not None:
            trying.task.cancel()
            await asyncio.wait({trying.task})
            if not trying.task.cancelled() and trying.task.exception() is None:
                await trying.task.result().drop()

    # -- sending ------------------------------------------------------------------------------------------------------

    def send(self, message: ToView) -> None:
        """Queue a message; messages are sent once and in order."""
        line = encode(message)
        self._waiting.append(line)
        self._bytes += len(line)
        if len(self._waiting) > _MAX_WAITING or self._bytes > _MAX_BYTES:
            self._panel.detach(self)
        self._wake.set()

    def wake_if_changed(self) -> None:
        """Wake the sender if there is an update to send; called about ten times a second."""
        has_history = self._finished_calls != self._panel.host.history.added
        has_lines = any(reader.has_news for reader in self.readers.values())
        if self.is_greeted and (self._snapshot.is_old or has_history or has_lines):
            self._wake.set()

    async def run(self) -> None:
        """Send messages and updates until the view is detached."""
        self._wake = asyncio.Event()  # the loop may have been replaced
        self._wake.set()
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                line = self._waiting.popleft()
                self._bytes -= len(line)
                await self.channel.send_line(line)
            if self.is_greeted:
                await self._send_update()

    async def _send_update(self) -> None:
        if update := self._snapshot.update(self.permissions):
            await self.channel.send_line(encode(update))
        finished = self._panel.host.history.added
        if finished != self._finished_calls:
            self._finished_calls = finished
            await self.channel.send_line(encode(HistoryUpdate(over=finished)))
        for reader in [*self.readers.values()]:
            if batch := reader.read():
                await self.channel.send_line(encode(batch))

    def drop_forbidden(self) -> None:
        """Drop the readers of what the view may no longer follow."""
        permissions = self.permissions
        self.close_readers(lambda key: not permissions.may(key[0]))

    def close_readers(self, is_closed: Callable[[tuple[str, str]], bool]) -> None:
        """Close the readers whose keys meet a condition."""
        for key in [*filter(is_closed, self.readers)]:
            self.readers.pop(key).close()

    def release(self) -> None:
        """Release everything that belongs to the detached view."""
        for task in self._intents:
            task.cancel()
        for number in [*self.trials]:
            self._panel.spawn(self.end_trial(number))
        self._waiting.clear()
        self._bytes = 0
        self.is_greeted = False
        self.close_readers(lambda _: True)
        self.file = None


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
            McpError: No line can express the call.
        """
        ...


class PanelContext(Struct, frozen=True):
    """The functions and properties of the notebook that its panel needs.

    Attributes:
        mode: Returns the current mode of the panel.
        namespace: Returns the name that `mcp` is bound to; empty if there is none.
        kernel: Identifier of this kernel run; a restart changes it.
        code: Writes calls as code.
        has_control: Whether views may also use the control channel.
        has_visitors: Whether the page is open to people other than the notebook's author, as under Voilà.
        publisher: The shell's display publisher, for cells that wait for an answer; None to show nothing there.
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
        context: The functions and properties of the notebook.
        commands: The commands that views may send, by verb.
        sections: The classes that keep the rows of the state up to date.
    """

    def __init__(
        self,
        mcp: Mcp,
        context: PanelContext,
        commands: Mapping[str, ViewCommand],
        sections: Iterable[type[StateSection]],
    ) -> None:
        self.mcp = mcp
        self.commands = commands
        self.host = host_of(mcp)
        self.context = context
        self.calls: dict[int, Call[Any]] = {}
        """Running calls made by views, by number."""
        self.previewed: set[int] = set()
        """Numbers of the results that were shown in views; only of these a view can get more rows."""
        self.tables: OrderedDict[int, RecordTable] = OrderedDict()
        """The tables that views used last, by the numbers of their results."""
        self.icons = IconCache()
        self.views: dict[View, asyncio.Task[None]] = {}
        self.shown = PanelState(self.host, sections)
        self.numbers = LogNumbers()
        self.recorders: dict[str, MessageRecorder] = {}
        """Recorders of the servers whose messages a view follows."""
        self.questions = PanelQuestions(
            self.host.loop, self.shown, self._channels_for, self._is_own, publisher=context.publisher
        )
        self.cells = PanelCells(
            lambda: [view for view in self.views if view.has_cells and view.permissions.may("cells")]
        )
        self.host.redirects.addresses = self._callbacks
        self.widgets: weakref.WeakSet[Closable] = weakref.WeakSet()
        """Panels displayed in cells."""
        self.is_closed = False
        """Whether the extension was unloaded; messages of views are then ignored."""
        self._watching: asyncio.Task[None] | None = None

    # -- from any thread ----------------------------------------------------------------------------------------------

    def attach(self, channel: Channel) -> View:
        """Attach a view; its messages are passed to `receive`."""
        view = View(self, channel)
        self.host.loop.call(self._attach, view)
        return view

    def receive(self, view: View, message: object) -> None:
        """Handle a message from a view."""
        self.host.loop.call(self._handle, view, message)

    def send_mode(self) -> None:
        """Send the changed permissions to all views."""
        if self.host.loop.is_running:
            self.host.loop.call(self._send_mode)

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
        """Detach a view that was closed or does not read its messages."""
        task = self.views.pop(view, None)
        if task is not None:
            task.cancel()
            view.release()
            view.channel.detach()
            self.stop_recording()
            self.questions.drop_unanswerable()

    def stop_recording(self) -> None:
        """Stop and discard the recordings of messages that no view follows."""
        followed = {server for view in self.views for verb, server in view.readers if verb == "protocol"}
        for server in self.recorders.keys() - followed:
            recorder, session = self.recorders.pop(server), self.host.sessions.get(server)
            if session is not None and session.recorder is recorder:
                session.record(None)

    def start_watching(self) -> None:
        """Start watching for changes, unless this has started; called after the hello of a view."""
        if self._watching is None or self._watching.done():
            self._watching = self.spawn(self._watch())

    def _callbacks(self) -> list[object]:
        """Callback addresses for logins, the newest view's first."""
        return [view.callback for view in reversed([*self.views]) if view.permissions.mode == "full"]

    def _is_own(self, call: object) -> bool:
        return any(call is one for one in [*self.calls.values()])

    def _channels_for(self, kind: QuestionKind) -> list[Channel]:
        """The channels of the views that may answer questions of a kind."""
        return [view.channel for view in [*self.views] if view.can_answer(kind)]

    def permissions(self) -> Permissions:
        """Current permissions of views with this version of the protocol."""
        mode = self.context.mode()
        return Permissions(mode, self.context.has_visitors and mode != "full")

    def _send_mode(self) -> None:
        for view in [*self.views]:
            view.send_hello()
            view.drop_forbidden()
        self.stop_recording()
        self.questions.drop_unanswerable()

    def _attach(self, view: View) -> None:
        self.host.questions.panel = self.questions
        self.host.cells = self.cells
        self.views[view] = self.spawn(self._run(view))
        if len(self.views) > _MAX_VIEWS:
            self.detach(next(iter(self.views)))

    def _handle(self, view: View, message: object) -> None:
        task = self.views.get(view)
        if task is None and not is_hello(message):
            return  # the view was detached
        if task is None or task.done():  # the view has reconnected, or the loop was restarted
            self.views[view] = self.spawn(self._run(view))
            self.start_watching()
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
                self.shown.update()
                for view in [*self.views]:
                    view.wake_if_changed()
                await asyncio.sleep(_INTERVAL)


@command("answer")
async def _answer(panel: Panel, view: View, message: AnswerFields) -> FieldErrors | None:
    return panel.questions.answer(message, view.permissions)


@command("cells")
async def _cells(panel: Panel, view: View, message: CellFields) -> None:
    panel.cells.answer(message)
