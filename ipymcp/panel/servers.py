"""Servers in the panel: their rows, starting and stopping them, and the ones that a notebook used before."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from msgspec import Meta
from msgspec.structs import replace

from ipymcp.config.definition import Transport
from ipymcp.config.redaction import masked, masked_args
from ipymcp.errors import ConfigError, McpError, PolicyError, UnknownName
from ipymcp.panel.logs import FollowFields, LogReader, MessageReader
from ipymcp.panel.messages import (
    MAX_ABOUT,
    FromView,
    NoFields,
    Problem,
    ServerFields,
    StateRow,
    Text,
    Texts,
    ToView,
    shown_text,
)
from ipymcp.panel.panel import Panel, View, command
from ipymcp.panel.permissions import UNAVAILABLE
from ipymcp.panel.problems import start_problem
from ipymcp.panel.state import StateSection
from ipymcp.panel.tools import disabled_tools
from ipymcp.protocol.recording import MessageRecorder
from ipymcp.runtime.events import ListChanged
from ipymcp.runtime.server_status import State
from ipymcp.setup import restore
from ipymcp.text import capitalized, quoted, visible

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from ipymcp.config.definition import ServerDefinition
    from ipymcp.panel.state import PanelState
    from ipymcp.protocol.client import Client
    from ipymcp.runtime.catalog import Catalog
    from ipymcp.runtime.events import Event
    from ipymcp.runtime.host import Host
    from ipymcp.runtime.resources import Kind
    from ipymcp.runtime.session import ServerSession


# -- rows -------------------------------------------------------------------------------------------------------------


_REPEATED: Final = frozenset({"see Logs", "choose Start", "choose Restart"})
"""Hints that repeat the buttons below the error of a server."""


class StartProgress(ToView):
    """A start in progress."""

    attempt: int
    attempts: int
    """Maximum attempts."""
    since: float
    line: str | None
    """The last line that the program wrote to stderr."""


class ServerRow(StateRow):
    """A server. Times are seconds since the epoch."""

    name: str
    alias: str
    state: State
    lazy: bool
    transport: Transport
    protocol: str | None
    """The negotiated version of the protocol."""
    version: str | None
    where: str
    """The command line or URL."""
    source: str
    own: bool
    """Whether one of ipymcp's own files defines the server, so that it can be edited and removed."""
    since: float | None
    pid: int | None
    calls: int
    tools: int
    resources: int | None
    prompts: int | None
    disabled_tools: int
    tools_version: int
    """A number that changes with the server's tools or their policy."""
    error: Problem | None
    missing: str | None
    """The name of a variable or secret of the definition without a value; `set_value` sets it."""
    starting: StartProgress | None
    instructions: str | None
    capabilities: list[str]
    has_icon: bool = False

    def is_of(self, server: str) -> bool:
        """Whether this is that server."""
        return self.name == server

    def for_visitors(self) -> Self:
        """Return the row without the command, its file, its process and the text of errors."""
        starting = self.starting and replace(self.starting, line=None)
        error = self.error and Problem(message=UNAVAILABLE)
        return replace(self, where="", source="", pid=None, error=error, missing=None, starting=starting)


def server_row(session: ServerSession, alias: str, disabled: int, tools_version: int) -> ServerRow:
    """Row of a server.

    Args:
        session: The server's session.
        alias: The server's name in Python.
        disabled: Number of disabled tools.
        tools_version: Version of the tool list; changes with the tools and with the policy.
    """
    client, definition, missing = session.client, session.definition, missing_value(session)
    return ServerRow(
        name=session.name,
        alias=alias,
        state=session.state,
        lazy=session.is_lazy,
        transport=definition.transport,
        protocol=visible(session.protocol_version) or None,
        version=_version(client),
        where=where(definition),
        source=visible(definition.source.file or "this notebook"),
        own=is_own(definition),
        since=session.status.connected_since if client else None,
        pid=session.pid if client else None,
        calls=session.calls,
        tools=len(session.catalog.tools),
        resources=_count(session, client, "resources"),
        prompts=_count(session, client, "prompts"),
        disabled_tools=disabled,
        tools_version=tools_version,
        error=_error(session),
        missing=missing[1] if missing is not None else None,
        starting=start_progress(session),
        instructions=shown_text(client.instructions if client else None),
        capabilities=sorted(visible(str(name)) for name in client.capabilities) if client else [],
        has_icon=client is not None and bool(client.server_info.get("icons")),
    )


def is_own(definition: ServerDefinition) -> bool:
    """Whether a server is defined in a file that ipymcp writes: the user's own file, or a project's `mcp.json`."""
    source = definition.source
    place = os.path.join(source.folder or "", "mcp.json")
    return source.scope == "user" or (source.scope == "project" and source.file == place)


def where(definition: ServerDefinition) -> str:
    """The command line or URL of a server, without secrets."""
    if definition.url is not None:
        return visible(masked(definition.url))
    return visible(shlex.join([definition.command or "", *masked_args(definition.args)]))


def missing_value(session: ServerSession) -> tuple[Literal["variable", "secret"], str] | None:
    """The kind and the name of the value that was missing when a server was last started."""
    error = session.status.error
    return error.missing if isinstance(error, ConfigError) else None


def _version(client: Client | None) -> str | None:
    version = client.server_info.get("version") if client else None
    return visible(version[:100]) if isinstance(version, str) else None


def _count(session: ServerSession, client: Client | None, kind: str) -> int | None:
    """Known number of resources (with templates) or prompts; None if the server does not offer them."""
    catalog = session.catalog
    count = len(catalog.prompts) if kind == "prompts" else len(catalog.resources) + len(catalog.templates)
    return count if count or (client is not None and kind in client.capabilities) else None


def _error(session: ServerSession) -> Problem | None:
    """The error that explains the server's state; not the error of a call."""
    if session.status.error is not None:
        shown = start_problem(session.status.error, without=_REPEATED)
        has_field = missing_value(session) is not None  # the field replaces the hint
        return replace(shown, hint=None) if has_field else shown
    if session.status.last_error and (session.state.record.is_troubled or session.state is State.RESTARTING):
        return Problem(message=capitalized(visible(session.status.last_error)))
    return None


def start_progress(session: ServerSession) -> StartProgress | None:
    """The progress of a server's start; None if it is not starting."""
    status = session.status
    if status.moving_since is None:
        return None
    attempt, attempts = status.attempt
    lines = session.connection.last_stderr if session.connection is not None else ()
    line = shown_text(lines[-1].strip(), MAX_ABOUT) if lines else None
    return StartProgress(attempt=attempt, attempts=attempts, since=status.moving_since, line=line)


class ServerRows(StateSection):
    """The rows of servers. The resources and prompts of each connection are listed once."""

    def __init__(self, host: Host, state: PanelState) -> None:
        super().__init__(host, state)
        self._disabled: dict[str, tuple[Catalog, object, int]] = {}
        self._tools: dict[str, tuple[tuple[Any, ...], int]] = {}
        """Inputs of each server's tool list, and the version number of the list."""
        self._tools_versions = 0
        self._listed: dict[str, Client] = {}
        """Connections whose resources and prompts were listed, by server."""

    def update(self) -> None:
        """Update the rows."""
        host, state = self._host, self._state
        sessions = host.sessions
        shown: dict[str, Any] = state.rows["servers"]
        aliases = host.aliases() if sessions.keys() != shown.keys() else None
        rules = host.guard.policy.filters.rules
        for name, session in sessions.items():
            alias = aliases[name] if aliases else shown[name].alias
            tools_version = self._tools_version(session)
            key = (
                session, alias, session.state, session.is_lazy, session.client, session.calls, session.catalog,
                session.status.error, session.status.last_error, rules, tools_version,
                session.status.moving_since and (session.status.attempt, session.log.total),
            )  # fmt: skip
            if state.has_changed("servers", name, key):
                disabled = self._count_disabled(session, rules)
                state.put("servers", name, server_row(session, alias, disabled, tools_version))
            if session.client is not None and self._listed.get(name) is not session.client:
                self._listed[name] = session.client
                host.loop.spawn(_list_offers(session, session.client), f"ipymcp-panel-{session.name}")
        for name in state.keep("servers", sessions):
            self._listed.pop(name, None)
            self._disabled.pop(name, None)
            self._tools.pop(name, None)

    def handle(self, event: Event) -> None:
        """List resources and prompts again after a server has changed them."""
        if isinstance(event, ListChanged):
            self._listed.pop(event.server, None)

    def _tools_version(self, session: ServerSession) -> int:
        """The version of the server's tool list; views with an older list request it again."""
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
        known = self._disabled.get(session.name)
        if known is None or known[0] is not session.catalog or known[1] is not rules:
            known = session.catalog, rules, disabled_tools(self._host, session)
            self._disabled[session.name] = known
        return known[2]


async def _list_offers(session: ServerSession, client: Client) -> None:
    kinds: list[Kind] = ["resources", "templates"] if "resources" in client.capabilities else []
    if "prompts" in client.capabilities:
        kinds.append("prompts")
    if kinds:
        with contextlib.suppress(McpError):  # logged already
            await session.resources.refresh(*kinds)


# -- starting and stopping --------------------------------------------------------------------------------------------


class LoadFields(FromView):
    """Servers to load."""

    what: Annotated[Texts, Meta(min_length=1)]


class ValueFields(ServerFields):
    """The value of a variable or secret that a server's definition needs."""

    name: Text
    value: Text


class MemoryUse(ToView):
    """The resident memory of a server's processes, in bytes."""

    bytes: int
    processes: int


async def ready_session(panel: Panel, view: View, message: ServerFields) -> ServerSession:
    """Find a server and wait until it is ready; a lazy server is started.

    Raises:
        PolicyError: The server needs trust, which the view may not grant.
    """
    session = panel.host.find(message.server)
    is_limited = not view.permissions.may_answer("trust")
    if session.is_lazy and is_limited and not await panel.host.guard.trust.allows(session.definition):
        raise PolicyError("needs trust, which this panel may not grant", server=session.name)
    await session.awake()
    return session


_REPLY_TIMEOUT = 1.0
"""Seconds that a reply waits for a server to start or stop; after that the server's row shows the outcome."""


async def _run_briefly(coroutine: Coroutine[Any, Any, object], panel: Panel) -> None:
    """Run a coroutine and raise an early failure; longer work continues in the background."""

    async def act() -> None:
        await coroutine

    task = panel.spawn(act())
    done, _ = await asyncio.wait({task}, timeout=_REPLY_TIMEOUT)
    if done:
        return task.result()
    task.add_done_callback(_ignore_failure)
    return None


def _ignore_failure(task: asyncio.Task[None]) -> None:
    """Retrieve a late exception, so that asyncio does not report it; the server's state and log show it."""
    if not task.cancelled():
        task.exception()


@command("start", "enable", "trust", "login")  # a start asks for trust and a login if it needs them
async def _start(panel: Panel, view: View, message: ServerFields) -> None:
    await _run_briefly(panel.mcp.start.aio(panel.host.find(message.server).name), panel)


@command("set_value")
async def _set_value(panel: Panel, view: View, message: ValueFields) -> None:
    """Set the value that was missing when a server was started, and start the server again."""
    session = panel.host.find(message.server)
    missing, store = missing_value(session), panel.host.store
    if missing is None or missing[1] != message.name:
        raise UnknownName(f"{message.name!r} is not the missing value", server=session.name)
    kind, name = missing
    if kind == "secret":
        await asyncio.to_thread(store.secrets.set, name, message.value)
    else:
        arguments = session.definition, name, session.digest, message.value
        await asyncio.to_thread(store.inputs.set_variable, *arguments)
    await _run_briefly(panel.mcp.start.aio(session.name), panel)


@command("stop")
async def _stop(panel: Panel, view: View, message: ServerFields) -> None:
    await _run_briefly(panel.mcp.stop.aio(panel.host.find(message.server).name), panel)


@command("restart")
async def _restart(panel: Panel, view: View, message: ServerFields) -> None:
    await _run_briefly(panel.mcp.restart.aio(panel.host.find(message.server).name), panel)


@command("unload")
async def _unload(panel: Panel, view: View, message: ServerFields) -> None:
    await _run_briefly(panel.mcp.unload.aio(panel.host.find(message.server).name), panel)


@command("start_all")
async def _start_all(panel: Panel, view: View, message: NoFields) -> None:
    await _run_briefly(panel.host.start(_enabled(panel)), panel)


@command("stop_all")
async def _stop_all(panel: Panel, view: View, message: NoFields) -> None:
    await _run_briefly(panel.host.stop(_enabled(panel)), panel)


@command("restart_all")
async def _restart_all(panel: Panel, view: View, message: NoFields) -> None:
    await _run_briefly(panel.host.restart(_enabled(panel)), panel)


@command("refresh")
async def _refresh(panel: Panel, view: View, message: NoFields) -> None:
    """List the tools of all ready servers again."""
    ready = [one for one in panel.host.sessions.values() if one.state is State.READY]
    await asyncio.gather(*(session.refreshed() for session in ready))


def _enabled(panel: Panel) -> list[str]:
    return [one.name for one in panel.host.sessions.values() if one.state is not State.DISABLED]


@command("disable")
async def _disable(panel: Panel, view: View, message: ServerFields) -> None:
    await _run_briefly(panel.host.stop([panel.host.find(message.server).name], State.DISABLED), panel)


@command("load")
async def _load(panel: Panel, view: View, message: LoadFields) -> None:
    await _run_briefly(panel.mcp.load.aio(*message.what), panel)


@command("memory")
async def _memory(panel: Panel, view: View, message: ServerFields) -> MemoryUse:
    session = panel.host.find(message.server)
    if session.pid is None:
        raise McpError("has no process", server=session.name)
    return await asyncio.to_thread(_measure, session.pid)


def _measure(pid: int) -> MemoryUse:
    import psutil

    sizes: list[int] = []
    try:
        root = psutil.Process(pid)
        for process in [root, *root.children(recursive=True)]:
            try:
                sizes.append(process.memory_info().rss)
            except psutil.Error:  # it has just exited
                continue
    except psutil.Error as error:
        raise McpError(f"its process {pid} has exited") from error
    return MemoryUse(bytes=sum(sizes), processes=len(sizes))


# -- servers that are not loaded --------------------------------------------------------------------------------------


class UnloadedServer(ToView):
    """A configured server that is not loaded."""

    name: str
    source: str
    where: str
    is_project: bool
    """Whether a file of the notebook's project defines it."""


class UsedServers(ToView):
    """The servers that this notebook loaded earlier and that are not loaded now."""

    names: list[str]
    what: list[str]
    """The arguments for `load` of the servers that can be loaded again, which are not defined in a cell."""
    line: str
    """The same as a `%mcp load` line; empty if no server can be loaded again."""
    typed: list[str]
    """The names of the servers that are defined in a cell."""


class MissingServer(ToView):
    """A server that this notebook used and that cannot be restored."""

    name: str
    reason: str


class RestoredServers(ToView):
    """The reply to `restore`: what this notebook used before is back."""

    servers: list[str]
    """The names of the servers that are loaded again; one that fails to start is one of them."""
    rules: int
    """The number of tools that were switched on or off, and of rules, that apply again."""
    missing: list[MissingServer]


@command("known")
async def _known(panel: Panel, view: View, message: NoFields) -> list[UnloadedServer]:
    found = await asyncio.to_thread(panel.host.discovery.peek)
    return [
        UnloadedServer(
            name=name,
            source=visible(str(definition.source)),
            where=where(definition),
            is_project=definition.source.scope == "project",
        )
        for name, definition in found.definitions.items()
        if name not in panel.host.sessions
    ]


@command("used")
async def _used(panel: Panel, view: View, message: NoFields) -> UsedServers:
    host = panel.host
    known = await asyncio.to_thread(host.used_servers) if host.notebook is not None else []
    if not known:
        return UsedServers(names=[], what=[], line="", typed=[])
    found = (await asyncio.to_thread(host.discovery.peek)).definitions
    by_name: list[str] = []
    by_file: dict[str, list[str]] = {}
    lost: list[str] = []
    for one in known:
        definition = found.get(one.name)
        if (
            one.typed is not None
            or (one.name == "demo" and not one.file)
            or (definition is not None and definition.source.file == one.file)
        ):
            by_name.append(one.name)
        elif one.file:
            by_file.setdefault(one.file, []).append(one.name)
        else:
            lost.append(one.name)
    what = by_name + [word for file, names in by_file.items() for word in (file, *names)]
    line = " ".join(["%mcp load", *map(quoted, what)]) if what else ""
    return UsedServers(names=[one.name for one in known], what=what, line=line, typed=lost)


@command("restore")
async def _restore(panel: Panel, view: View, message: NoFields) -> RestoredServers:
    host = panel.host
    found = await restore.plan(host)
    await restore.load(host, found)
    return RestoredServers(
        servers=[one.name for one in found.definitions],
        rules=len(found.rules),
        missing=[MissingServer(name=name, reason=visible(why)) for name, why in found.missing.items()],
    )


@command("forget")
async def _forget(panel: Panel, view: View, message: LoadFields) -> None:
    """Offer servers that the notebook used no longer."""
    host = panel.host
    if host.remembered_as is not None:
        host.store.notebooks.unloaded(host.remembered_as, set(message.what) - host.sessions.keys())


# -- icons and logs ---------------------------------------------------------------------------------------------------


class IconFields(ServerFields, kw_only=True):
    """A request for the icon of a server, or of a tool, a prompt or a resource by its name or its URI."""

    of: Literal["server", "tools", "resources", "prompts"]
    name: Text = ""


@command("icon")
async def _icon(panel: Panel, view: View, message: IconFields) -> str | None:
    """Return the icon of a running server, or of one of its tools, resources or prompts, as a data URL."""
    session = panel.host.find(message.server)
    icons = None if session.client is None else _icons(session, session.client, message)
    return await panel.icons.first(session.definition.url, icons)


def _icons(session: ServerSession, client: Client, message: IconFields) -> Any:
    catalog, name = session.catalog, message.name
    if message.of == "server":
        return client.server_info.get("icons")
    if message.of == "tools":
        return next((one.definition.icons for one in catalog.tools.values() if one.name == name), None)
    if message.of == "prompts":
        prompt = catalog.find_prompt(name)
        return prompt and prompt.definition.icons
    offered = catalog.resources.get(name) or catalog.templates.get(name)
    return offered and offered.icons


@command("logs")
async def _logs(panel: Panel, view: View, message: FollowFields) -> None:
    if not message.on:
        view.readers.pop(("logs", message.server), None)
        return
    name = panel.host.find(message.server).name
    view.readers["logs", name] = LogReader(name, panel.host, panel.numbers, message.since)
    view.wake_if_changed()


@command("protocol")
async def _protocol(panel: Panel, view: View, message: FollowFields) -> None:
    if not message.on:
        view.readers.pop(("protocol", message.server), None)
        panel.stop_recording()
        return
    name = panel.host.find(message.server).name
    recorder = panel.recorders.setdefault(name, MessageRecorder(message.since or 0))
    view.readers["protocol", name] = MessageReader(name, panel.host, recorder, message.since)
    view.wake_if_changed()
