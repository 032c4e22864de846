"""One configured server's life in this notebook: a state machine owned by one task on the background loop.

    disabled -> stopped -> starting -> ready -> (error | stopped), and restarting between a death and the next start

Only the owner task moves it. Starts that failed are tried again, servers that died are started again, up to three times
in a row, after 1, 2 and 4 seconds; a call in flight is never sent again by itself.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import time
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from ipymcp.errors import (
    CallCancelled,
    CommandNotFound,
    ConnectionLost,
    McpError,
    ProtocolError,
    RpcError,
    ServerError,
    ServerStopped,
    StartError,
)
from ipymcp.protocol.client import Client
from ipymcp.protocol.inputs import NoAnswers
from ipymcp.protocol.subscriptions import Listening, changing_lists
from ipymcp.protocol.transports.process import Grace
from ipymcp.protocol.transports.stdio import StdioTransport
from ipymcp.runtime import catalog as catalogs
from ipymcp.runtime.calls import CallOptions
from ipymcp.runtime.environment import forgotten_variable, launch
from ipymcp.runtime.events import Events, ServerChanged, ToolsChanged
from ipymcp.runtime.logs import RollingLog
from ipymcp.runtime.offers import Offers
from ipymcp.runtime.subscriptions import Subscriptions

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from ipymcp.config.definition import ServerDefinition
    from ipymcp.protocol.eras import Identity
    from ipymcp.protocol.negotiation import EraChoice
    from ipymcp.protocol.wire import ToolDefinition
    from ipymcp.runtime.catalog import Catalog
    from ipymcp.runtime.events import Event
    from ipymcp.runtime.loop import BackgroundLoop
    from ipymcp.runtime.reaper import Reaper

__all__ = ["ServerSession", "Services", "State", "Timing"]

_DOWNLOADERS = frozenset({"npx", "uvx", "uv", "bunx", "pnpm", "docker", "podman", "pipx"})


class State(StrEnum):
    """Where a server is in its life."""

    DISABLED = "disabled"
    STOPPED = "stopped"
    STARTING = "starting"
    READY = "ready"
    RESTARTING = "restarting"
    ERROR = "error"

    @property
    def is_moving(self) -> bool:
        """Whether it will be another soon, by itself."""
        return self in (State.STARTING, State.RESTARTING)


@dataclass(frozen=True, slots=True)
class Timing:
    """How patient a host is with its servers, in seconds."""

    retries: tuple[float, ...] = (1.0, 2.0, 4.0)
    """The waits before a server that failed or died is started again."""
    healthy_after: float = 30.0
    """A server that dies later than this is not one that keeps dying: its retries begin anew."""
    download_hint: float = 10.0
    refresh: float = 0.25
    """Between a change of the tool list and asking for it; it doubles, up to `slowest_refresh`, in a flood of them."""
    slowest_refresh: float = 4.0
    listen_again: float = 1.0
    """Before a subscription that the server ended is taken again; it doubles, up to a minute, if that happens again."""
    grace: Grace = field(default_factory=Grace)


@dataclass
class Services:
    """What all sessions of a host share."""

    loop: BackgroundLoop
    reaper: Reaper
    events: Events
    identity: Identity
    folder: str
    """Where servers run unless their definition says otherwise."""
    max_starting: int
    timing: Timing
    eras: dict[str, EraChoice] = field(default_factory=dict[str, "EraChoice"])
    """The era each definition answered in, by its digest."""
    _starts: tuple[asyncio.AbstractEventLoop, asyncio.Semaphore] | None = None

    @property
    def starts(self) -> asyncio.Semaphore:
        """Holds back the servers that start at once; belongs to the loop, which is another after a `close`."""
        loop = asyncio.get_running_loop()
        if self._starts is None or self._starts[0] is not loop:
            self._starts = loop, asyncio.Semaphore(self.max_starting)
        return self._starts[1]


class ServerSession:
    """ipymcp's live link to one server, for this notebook.

    Args:
        definition: What to run.
        services: The host's.
    """

    def __init__(self, definition: ServerDefinition, services: Services) -> None:
        self.definition = definition
        self.name = definition.name
        self.state = State.DISABLED if definition.disabled else State.STOPPED
        self.catalog: Catalog = catalogs.EMPTY
        self.subscriptions = Subscriptions(self)
        self.log = RollingLog(definition.name, definition.log_lines)
        self.client: Client | None = None
        """Set while the server is ready."""
        self.error: McpError | None = None
        """Why it is in the state `error`."""
        self.last_error = ""
        """The last failure of any kind, one line."""
        self.calls = 0
        self.call_options = CallOptions(definition.timeout, definition.max_timeout)
        self._services = services
        self._link: _Link | None = None
        self._links = itertools.count(1)
        self._log_start = 0
        self._owner: asyncio.Task[None] | None = None
        self._changed: asyncio.Future[None] | None = None
        self._predecessor: ServerSession | None = None
        self._is_replaced = False

    @property
    def protocol_version(self) -> str:
        """The version settled with the server, or the empty string."""
        return self.client.era.version if self.client else ""

    @property
    def pid(self) -> int | None:
        """The process's number while it runs."""
        return self._link.transport.pid if self._link else None

    # -- commands, on the loop ----------------------------------------------------------------------------------------

    def start(self, *, instead_of: ServerSession | None = None) -> None:
        """Begin to start it, if it is not running. Whoever wants to wait awaits `settled`.

        Args:
            instead_of: Its predecessor under an older definition, which is ended first.
        """
        owner = self._owner if self._owner is not None and not self._owner.done() else None
        if owner is not None and not owner.cancelling():
            return
        if instead_of is not None:
            self._predecessor, instead_of._is_replaced = instead_of, True
            self.subscriptions = instead_of.subscriptions.move_to(self)
        self.error = None
        self._move(State.STARTING, "its definition changed" if instead_of else "")
        self._owner = self._services.loop.spawn(self._own(owner), f"ipymcp-server-{self.name}")

    async def stop(self, state: State = State.STOPPED) -> None:
        """End it and wait for that; it ends whoever stops waiting. Who starts it meanwhile has the last word."""
        await asyncio.shield(self._services.loop.spawn(self._stop(state), f"ipymcp-stop-{self.name}"))

    async def _stop(self, state: State) -> None:
        owner, link = self._owner, self._link
        if owner is not None and not owner.done():
            owner.cancel()
            await asyncio.wait({owner})
        if link is not None:  # the owner, cancelled while it waited for the end of the process, did not
            await link.client.aclose()
            self._link = None if self._link is link else self._link
        await self._end_predecessor()
        if self._owner is owner:
            self.error = None
            self._move(state)

    async def _end_predecessor(self) -> None:
        if self._predecessor is not None:
            await self._predecessor.stop()
            self._predecessor = None

    async def settled(self) -> None:
        """Wait until it is ready, has failed or was stopped."""
        while self.state.is_moving:
            if self._changed is None:
                self._changed = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._changed)

    # -- for callers, from any thread ---------------------------------------------------------------------------------

    def require(self) -> Client:
        """The live connection.

        Raises:
            ServerError: It is not ready; the message says why and the hint what to do.
        """
        client = self.client
        if client is not None:
            return client
        if self.error is not None:
            raise copy.copy(self.error)  # each caller's own: raising writes into it
        if self.state is State.DISABLED:
            raise ServerStopped("is disabled", server=self.name, hint=f"%mcp enable {self.name}")
        hint = "%mcp shows how it goes" if self.state.is_moving else f"%mcp start {self.name}"
        raise ServerStopped(f"is {self.state.value}", server=self.name, hint=hint)

    @property
    def offers(self) -> Offers:
        """What the live connection has beside tools.

        Raises:
            ServerError: It is not ready.
        """
        self.require()
        assert self._link is not None  # there is a client
        return self._link.offers

    @property
    def timing(self) -> Timing:
        """How patient the host is."""
        return self._services.timing

    def explain(self, error: McpError) -> McpError:
        """The same error, with this server's name and, where the server is to blame, its last words."""
        error.server = error.server or self.name
        if isinstance(error, ServerError) and not isinstance(error, CommandNotFound) and not error.stderr:
            error.stderr = self.log.last_words(since=self._log_start)
            transport = self._link.transport if self._link else None
            error.exit_code = error.exit_code if error.exit_code is not None else (transport and transport.exit_code)
            if error.stderr and not isinstance(error, ProtocolError):
                error.message = f"{error.message}; it last wrote: {' / '.join(error.stderr[-3:])}"
            if error.hint is None:
                variable = forgotten_variable(self.definition, error.stderr)
                error.hint = (
                    f"{variable} is set here but not passed on: add it by --env {variable}"
                    if variable
                    else f"%mcp logs {self.name} · %mcp restart {self.name}"
                )
        if not isinstance(error, CallCancelled):  # the user knows, and it is no fault of the server
            self.last_error = error.message
        return error

    def close_input(self) -> None:
        """At the interpreter's exit: close the server's input, now."""
        if self._link is not None:
            self._link.transport.close_input()

    def close_in_fork(self) -> None:
        """In a forked child: let go of the server's pipes."""
        if self._link is not None:
            self._link.transport.close_in_fork()

    # -- the owner task -----------------------------------------------------------------------------------------------

    async def _own(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait({before})
        await self._end_predecessor()
        try:
            await self._run()
        except Exception as error:  # a fault of ours; whoever waits for this server must hear of it
            self.error = ServerError(f"failed by a fault of ipymcp: {error!r}", server=self.name)
            self.log.add("host", "error", self.error.message)
            self._move(State.ERROR, self.error.message)
            raise

    async def _run(self) -> None:
        timing = self._services.timing
        failures = 0
        while True:
            try:
                async with self._services.starts:
                    link = await self._connect()
            except McpError as error:
                failure = self.explain(_start_failure(error))
                retry = isinstance(error, (ConnectionLost, RpcError))
            else:
                born = time.monotonic()
                try:
                    reason = await self._live(link)
                finally:
                    self.client = None
                    await link.client.aclose()
                if time.monotonic() - born >= timing.healthy_after:
                    failures = 0
                failure = self.explain(ConnectionLost(reason, exit_code=link.transport.exit_code))
                retry = self.definition.restart
            if not retry or failures >= len(timing.retries):
                self.error = failure
                self.log.add("host", "error", failure.message)
                self._move(State.ERROR, failure.message)
                return
            delay = timing.retries[failures]
            failures += 1
            detail = f"{failure.message}; starting it again in {delay:g} s ({failures} of {len(timing.retries)})"
            self.log.add("host", "warning", detail)
            self._move(State.RESTARTING, detail)
            await asyncio.sleep(delay)

    async def _live(self, link: _Link) -> str:
        """From ready to the end of the connection; the reason of its end."""
        self.client = link.client
        self._move(State.READY)
        tasks = [self.spawn(self._keep_fresh(link), "refresh")]
        tasks.append(self.spawn(self.subscriptions.keep(link.client), "subscriptions"))
        if link.subscription is not None:
            tasks.append(self.spawn(self._subscribe(link, link.subscription), "listen"))
        try:
            return await link.ended
        finally:
            for task in tasks:
                task.cancel()

    async def _connect(self) -> _Link:
        """One start: the process, the protocol, the tools."""
        if self.definition.command is None:
            raise StartError("is a remote server, which ipymcp does not reach yet", hint="load one that has a command")
        digest = self.definition.digest()
        if self.definition.era != "auto":
            return await self._open(self.definition.era)
        link = None
        remembered = self._services.eras.pop(digest, None)
        if remembered is not None:
            try:
                link = await self._open(remembered)
            except (ConnectionLost, ProtocolError, RpcError) as error:
                self.log.add("host", "info", f"it does not answer as it did before ({error.message}); asking anew")
        if link is None:
            link = await self._find_out()
        if link.client.era_was_answered:
            self._services.eras[digest] = "modern" if link.client.era.kind == "stateless" else "legacy"
        return link

    async def _find_out(self) -> _Link:
        """Ask which era it speaks; one that dies of the question is started once more without it."""
        try:
            return await self._open("auto")
        except ConnectionLost:
            self.log.add("host", "info", "it ended on the question which era it speaks; asking for the handshake only")
            return await self._open("legacy")

    async def _open(self, era: EraChoice) -> _Link:
        seconds = self.definition.start_timeout
        transport = StdioTransport(
            launch(self.definition, self._services.folder),
            self._services.reaper,
            limit=self.definition.max_result_bytes,
            grace=self._services.timing.grace,
        )
        link = _Link(self, transport, next(self._links), self._services.identity)
        self._link = link
        self._log_start = self.log.total
        hint = asyncio.get_running_loop().call_later(self._services.timing.download_hint, self._suspect_download)
        try:
            async with asyncio.timeout(seconds):
                await link.client.open(era)
                changing = changing_lists(link.client.capabilities)
                if link.client.era.kind == "stateless" and changing:
                    link.subscription = link.client.listen(changing)  # before they are read: no change falls between
                self._adopt(await link.client.list_tools(timeout=seconds))
        except TimeoutError as error:
            await link.client.aclose("the start failed")
            raise StartError(f"did not answer within {seconds:g} s") from error
        except BaseException:
            await link.client.aclose("the start failed")
            raise
        finally:
            hint.cancel()
        return link

    def _suspect_download(self) -> None:
        program = (self.definition.command or "").rpartition("/")[2]
        if self.state.is_moving and program in _DOWNLOADERS:
            self._tell("still starting; downloading?")

    # -- the catalog --------------------------------------------------------------------------------------------------

    def _adopt(self, definitions: list[ToolDefinition]) -> None:
        old = self.catalog
        new = old.with_tools(self.name, definitions, lambda text: self.log.add("host", "warning", text))
        if new == old:
            return
        self.catalog = new
        added = tuple(name for name in new.tools if name not in old.tools)
        removed = tuple(name for name in old.tools if name not in new.tools)
        if self.state is State.READY:
            self.log.add(
                "host", "info", f"tools changed: {len(added)} new, {len(removed)} gone, {len(new.tools)} in all"
            )
        self._services.events.emit(ToolsChanged(self.name, added, removed))

    async def _keep_fresh(self, link: _Link) -> None:
        """Ask for the tools again when they changed, once for a flood of notices."""
        timing = self._services.timing
        pause, refreshed = timing.refresh, float("-inf")
        while True:
            await link.tools_dirty.wait()
            is_flood = time.monotonic() - refreshed < pause
            pause = min(pause * 2, timing.slowest_refresh) if is_flood else timing.refresh
            await asyncio.sleep(pause)
            link.tools_dirty.clear()
            try:
                self._adopt(await link.client.list_tools(timeout=self.definition.timeout))
            except ConnectionLost:
                return
            except McpError as error:
                self.log.add("host", "warning", f"its changed tools could not be listed: {error.message}")
            refreshed = time.monotonic()

    async def _subscribe(self, link: _Link, subscription: Listening) -> None:
        """Stateless era: hold a subscription, and take it again when the server ends it."""
        timing = self._services.timing
        delay = timing.listen_again
        while True:
            begun = time.monotonic()
            try:
                await subscription.ended
            except RpcError as error:
                self.log.add("host", "info", f"it announces no changes of its lists: {error.message}")
                return
            except ConnectionLost:
                pass
            if time.monotonic() - begun >= timing.healthy_after:
                delay = timing.listen_again
            await asyncio.sleep(delay)
            delay = min(delay * 2, 60.0)
            subscription = link.client.listen(subscription.wanted)
            link.tools_dirty.set()
            link.offers.changed("resources")
            link.offers.changed("prompts")

    def disconnected(self, client: Client, reason: str) -> None:
        """Its server has just gone; what is to be done about it the owner task decides."""
        if self.client is client:
            self.client = None
            self._move(State.RESTARTING, reason)

    # -- telling ------------------------------------------------------------------------------------------------------

    def _move(self, state: State, detail: str = "") -> None:
        self.state = state
        self._tell(detail)
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)
        self._changed = None

    def emit(self, event: Event) -> None:
        """Tell the host's subscribers."""
        self._services.events.emit(event)

    def spawn(self, coroutine: Coroutine[Any, Any, None], what: str) -> asyncio.Task[None]:
        """Start a task on the loop."""
        return self._services.loop.spawn(coroutine, f"ipymcp-{what}-{self.name}")

    def _tell(self, detail: str) -> None:
        if not self._is_replaced:
            self._services.events.emit(ServerChanged(self.name, self.state.value, detail))


class _Link:
    """One connection of a session, and what it hears."""

    def __init__(self, session: ServerSession, transport: StdioTransport, number: int, identity: Identity) -> None:
        self.transport = transport
        self.client = Client(transport, self, identity, NoAnswers(), tag=f"{session.name}#{number}")
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.tools_dirty = asyncio.Event()
        self.subscription: Listening | None = None
        self.offers = Offers(session, self.client)
        self._session = session
        self._log = session.log

    def tools_changed(self) -> None:
        self.tools_dirty.set()

    def resources_changed(self) -> None:
        self.offers.changed("resources")

    def prompts_changed(self) -> None:
        self.offers.changed("prompts")

    def resource_updated(self, uri: str) -> None:
        self.offers.updated(uri)
        self._session.subscriptions.updated(uri)

    def log(self, level: str, text: str) -> None:
        self._log.add("server", level, text)

    def noise(self, text: str) -> None:
        self._log.add("host", "warning", text)

    def stderr(self, lines: list[str]) -> None:
        self._log.add_stderr(lines)

    def unreachable(self, reason: str) -> None:
        self._log.add("host", "warning", reason)

    def wants_handshake(self, reason: str) -> None:
        self._log.add("host", "warning", reason)

    def lost(self, reason: str) -> None:
        self._session.disconnected(self.client, reason)
        if not self.ended.done():
            self.ended.set_result(reason)


def _start_failure(error: McpError) -> McpError:
    if isinstance(error, (StartError, ProtocolError)):
        return error
    return StartError(f"did not start: {error.message}", hint=error.hint)
