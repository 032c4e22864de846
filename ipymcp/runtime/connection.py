"""One live connection to a server: its events, its health, and the freshness of its lists."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from typing import TYPE_CHECKING, Protocol

from ipymcp.errors import AuthError, CallTimeout, ConnectionLost, HttpError, McpError, RpcError
from ipymcp.masking import mask
from ipymcp.protocol.client import Client
from ipymcp.protocol.subscriptions import announces, changing_lists
from ipymcp.runtime.events import ToolsChanged
from ipymcp.runtime.failures import cannot_improve
from ipymcp.runtime.resources import MAX_LISTEN_DELAY, ResourceCache, ResourceOwner
from ipymcp.runtime.server_requests import SessionResponder
from ipymcp.runtime.server_status import State
from ipymcp.text import counted

if TYPE_CHECKING:
    import itertools
    from collections.abc import Coroutine

    from ipymcp.config.definition import ServerDefinition
    from ipymcp.protocol.negotiation import EraChoice
    from ipymcp.protocol.recording import MessageRecorder
    from ipymcp.protocol.subscriptions import ListenStream
    from ipymcp.protocol.transports.base import Transport
    from ipymcp.runtime.context import RuntimeContext
    from ipymcp.runtime.resources import Subscriptions


_MAX_SCANNED = 50
"""Maximum number of lines of standard error that are searched for the reason of a failed start."""


_PROBE_COMPLAINT = re.compile(
    r"server/discover|failed to validate request|validation errors? for clientrequest"
    r"|before initialization|(?:method|request) not found|unknown (?:method|request)",
    re.IGNORECASE,
)
"""The first line that a server writes about a request that it does not know."""


class ConnectionOwner(ResourceOwner, Protocol):
    """The session of a connection."""

    subscriptions: Subscriptions
    connection: Connection | None
    """The latest connection, live or not."""
    connection_numbers: itertools.count[int]
    recorder: MessageRecorder | None


class Connection:
    """One connection of a session: the transport, the client on it, and the handler of their events.

    Belongs to the loop.

    Args:
        session: The session; its status follows what happens to the connection.
        expanded: The server's definition with the values of its variables.
        transport: A transport that is not open yet.
        context: The host's services.
    """

    def __init__(
        self, session: ConnectionOwner, expanded: ServerDefinition, transport: Transport, context: RuntimeContext
    ) -> None:
        self.transport = transport
        responder = SessionResponder(session, expanded, context)
        tag = f"{session.name}#{next(session.connection_numbers)}"
        self.client = Client(transport, self, context.identity, responder, tag=tag)
        self.client.recorder = session.recorder
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Done with the reason when the connection is over."""
        self.is_reopening = False
        """Whether the session is opened again with a handshake after this connection's end."""
        self.resources = ResourceCache(session, self.client, context.store.known, context.events)
        self._session = session
        self._context = context
        self._log = session.log
        self._log_start = session.log.total
        """The number of log lines when the connection began."""
        self._subscription: ListenStream | None = None
        """Stateless era: the stream that announces changes of lists."""
        self._tools_stale = asyncio.Event()
        """Set when the tools have to be listed again."""
        self._tools_awaited = asyncio.Event()
        """Set when the tools have to be listed without a pause."""
        self._tools_waiters: list[asyncio.Future[None]] = []
        """Done when the tools have been listed the next time, or could not be."""
        self._tools_expire_at = float("inf")
        self._interval_changed = asyncio.Event()
        """Set when the interval of the health checks becomes shorter."""
        self._is_checking = False
        self._is_probing = False
        """Whether the server may write about our `server/discover` now."""
        self._complaint: list[str] = []
        """The lines that the server has written about it."""

    @property
    def is_live(self) -> bool:
        """Whether calls use this connection."""
        return self._session.client is self.client

    @property
    def last_stderr(self) -> tuple[str, ...]:
        """The last lines of standard error since the connection began, with their indentation."""
        return self._log.last_stderr(_MAX_SCANNED, since=self._log_start)

    @property
    def last_logged_error(self) -> str:
        """The last line of standard error since the connection began that says it is an error; empty if none does."""
        return self._log.last_error(since=self._log_start)

    def is_hopeless(self, *, is_first: bool = False) -> bool:
        """Whether the program ended in a way that another start would not change.

        Args:
            is_first: Whether the server never ran before.
        """
        return cannot_improve(self.transport.exit_code, self.last_stderr, is_first=is_first)

    # -- from the start to the end ------------------------------------------------------------------------------------

    async def open(self, era: EraChoice, *, is_fixed: bool) -> None:
        """Connect, negotiate the protocol and list the tools. Errors are those of `Client.open` and `load_tools`.

        Args:
            era: The era to negotiate.
            is_fixed: Whether the definition names the era.
        """
        self._is_probing = era != "legacy"
        try:
            await self.client.open(era, is_fixed=is_fixed)
        finally:
            self._end_probe()
        changing = changing_lists(self.client.capabilities)
        if self.client.era.kind == "stateless" and changing:
            self._subscription = self.client.listen(changing)  # before the lists are read, so that no change is missed
        await self.load_tools(timeout=None)

    def _end_probe(self) -> None:
        """Log one line in place of a complaint, or all of it if there was no handshake after it."""
        self._is_probing, complaint, self._complaint = False, self._complaint, []
        if not complaint:
            return
        if self.client.era.kind == "handshake" and self.client.era.version:
            lines = counted(len(complaint), "line")
            text = f"it does not know server/discover, and wrote {lines} about it (left out); using the handshake"
            self._log.add("host", "info", text)
        else:
            self._log.add_stderr(complaint)

    async def live(self) -> str:
        """Keep lists and subscriptions up to date and check the server until the connection ends.

        Returns:
            The reason of the end.
        """
        reason = "the server was stopped"
        timing = self._context.timing
        tasks = [
            self._spawn(self._keep_tools_fresh(), "refresh"),
            self._spawn(self._session.subscriptions.keep(self.client), "subscriptions"),
            self._spawn(self.resources.prefetch(timing.prefetch_delay), "resources"),
        ]
        if self._subscription is not None:
            tasks.append(self._spawn(self._keep_subscription(self._subscription), "listen"))
        if self._session.definition.url is not None:
            tasks.append(self._spawn(self._watch_health(), "health"))
        try:
            reason = await self.ended
            return reason
        finally:
            self._session.client = None
            for task in tasks:
                task.cancel()
            await self.client.aclose(reason)

    def _spawn(self, coroutine: Coroutine[None, None, None], purpose: str) -> asyncio.Task[None]:
        return self._context.loop.spawn(coroutine, f"ipymcp-{purpose}-{self._session.name}")

    # -- health -------------------------------------------------------------------------------------------------------

    async def check(self) -> None:
        """Send a cheap request, and update the server's state by its outcome."""
        seconds = self._context.timing.check
        try:
            await self.client.check(seconds)
        except AuthError as error:
            self.mark_needs_auth(error)
        except CallTimeout as error:
            if self.is_live and await self.transport.accepts_new_stream(seconds):
                self.lost("its stream is silent, but it answers on a new connection")
            else:
                self.mark_unreachable(error.message)
        except ConnectionLost as error:
            self.mark_unreachable(error.message)
        except HttpError as error:
            if error.status >= 500:
                self.mark_unreachable(error.message)
            else:
                self.mark_ready()
        except McpError:  # a refusal shows that the server is there
            self.mark_ready()
        else:
            self.mark_ready()

    def check_soon(self) -> None:
        """Check the server in a task, because a call has timed out."""
        if self.is_live and not self._is_checking:
            self._is_checking = True
            self._spawn(self._check_once(), "check")

    async def _check_once(self) -> None:
        try:
            await self.check()
        finally:
            self._is_checking = False

    async def _watch_health(self) -> None:
        """Check an idle server every `health_interval` seconds, and an unreachable one more often."""
        calls = self._session.calls
        while True:
            is_away = self._session.status.state is State.UNREACHABLE
            self._interval_changed.clear()
            with contextlib.suppress(TimeoutError):
                interval = self._context.timing.unreachable if is_away else self._session.definition.health_interval
                async with asyncio.timeout(interval):
                    await self._interval_changed.wait()
                    continue
            was_idle, calls = self._session.calls == calls, self._session.calls
            if is_away or was_idle:
                await self.check()

    def mark_unreachable(self, reason: str) -> None:
        """Record that the server cannot be reached now; calls are still tried."""
        status = self._session.status
        if self.is_live and status.state is not State.UNREACHABLE:
            status.unreachable_since = time.time()
            status.last_error = mask(reason)
            self._log.add("host", "warning", reason)
            status.move(State.UNREACHABLE, reason)
            self._interval_changed.set()

    def mark_needs_auth(self, error: AuthError) -> None:
        """Record that a login is needed; calls are still tried."""
        status = self._session.status
        if self.is_live and status.state is not State.NEEDS_AUTH:
            status.last_error = error.message
            status.move(State.NEEDS_AUTH, error.message)

    def mark_ready(self) -> None:
        """Record that the server answers, if it was unreachable or needed a login."""
        status = self._session.status
        if not self.is_live or not status.state.record.is_troubled or status.is_logging_in:
            return
        if status.state is State.UNREACHABLE:
            self._log.add("host", "info", "it can be reached again")
            self._tools_stale.set()  # another version may have been deployed meanwhile
        status.unreachable_since = None
        status.move(State.READY)

    # -- tools --------------------------------------------------------------------------------------------------------

    @property
    def has_changed_tools(self) -> bool:
        """Whether the server has announced a change of its tools that is not listed yet; thread-safe."""
        return self._tools_stale.is_set()

    def expire_tools(self) -> None:
        """List the tools again if their time to live has passed; thread-safe."""
        if time.monotonic() >= self._tools_expire_at:
            self._tools_expire_at = float("inf")
            self._context.loop.call(self._tools_stale.set)

    async def refresh_tools(self) -> None:
        """List the tools again now, and wait for them for a limited time and only while the connection lives."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tools_waiters.append(waiter)
        self._tools_awaited.set()
        self._tools_stale.set()
        await asyncio.wait(
            {waiter, self.ended}, timeout=self._context.timing.check, return_when=asyncio.FIRST_COMPLETED
        )

    async def load_tools(self, timeout: float | None) -> None:
        """List the tools, check them and put them into the session's catalog.

        Args:
            timeout: Seconds for each page.

        Raises:
            McpError: The tools could not be listed.
            PolicyError: The server is starting, and differs from the lock file.
        """
        session, context = self._session, self._context
        definitions = await self.client.list_tools(timeout=timeout)
        setting = "sampling is on" if context.client_handlers.sampling is not None else ""
        await context.guard.examine(session, definitions, self.client.instructions or "", setting)
        context.store.known.listed(session.digest, "tools", definitions)
        ttl, is_announced = self.client.tools_ttl, announces(self.client.capabilities, "tools")
        self._tools_expire_at = time.monotonic() + ttl if ttl and not is_announced else float("inf")
        old = session.catalog
        new = old.with_tools(session.name, definitions, lambda text: self._log.add("host", "warning", text))
        if new == old:
            return
        session.catalog = new
        added = tuple(name for name in new.tools if name not in old.tools)
        removed = tuple(name for name in old.tools if name not in new.tools)
        if session.status.state is State.READY:
            change = f"tools changed: {len(added)} added, {len(removed)} removed, {len(new.tools)} in total"
            self._log.add("host", "info", change)
        context.events.emit(ToolsChanged(session.name, added, removed))

    async def _keep_tools_fresh(self) -> None:
        """List the tools again when they have changed, once for many announcements in a short time."""
        timing = self._context.timing
        pause, refreshed = timing.refresh, float("-inf")
        while True:
            await self._tools_stale.wait()
            is_flood = time.monotonic() - refreshed < pause
            pause = min(pause * 2, timing.slowest_refresh) if is_flood else timing.refresh
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._tools_awaited.wait()
            self._tools_stale.clear()
            self._tools_awaited.clear()
            waiters, self._tools_waiters = self._tools_waiters, []
            try:
                await self.load_tools(self._session.definition.timeout)
            except ConnectionLost:
                return
            except McpError as error:
                self._log.add("host", "warning", f"its changed tools could not be listed: {error.message}")
            finally:
                for waiter in waiters:
                    if not waiter.done():
                        waiter.set_result(None)
            refreshed = time.monotonic()

    async def _keep_subscription(self, stream: ListenStream) -> None:
        """Stateless era: open the subscription again whenever the server ends it."""
        timing = self._context.timing
        delay = timing.listen_again
        while True:
            opened = time.monotonic()
            try:
                await stream.ended
            except RpcError as error:
                self._log.add("host", "info", f"it does not announce changes of its lists: {error.message}")
                return
            except ConnectionLost:
                pass
            if time.monotonic() - opened >= timing.healthy_after:
                delay = timing.listen_again
            await asyncio.sleep(delay)
            delay = min(delay * 2, MAX_LISTEN_DELAY)
            stream = self.client.listen(stream.wanted)
            self.tools_changed()
            self.resources_changed()
            self.prompts_changed()

    # -- events of the client -----------------------------------------------------------------------------------------

    def tools_changed(self) -> None:
        """List the tools again."""
        self._tools_stale.set()

    def resources_changed(self) -> None:
        """Mark resources and templates as stale."""
        self.resources.changed("resources")

    def prompts_changed(self) -> None:
        """Mark the prompts as stale."""
        self.resources.changed("prompts")

    def resource_updated(self, uri: str) -> None:
        """Mark the cached content of a resource as stale."""
        self.resources.updated(uri)
        self._session.subscriptions.updated(uri)

    def subscriptions_lost(self) -> None:
        """Subscribe to the resources again."""
        self._session.subscriptions.lost()

    def log(self, level: str, text: str) -> None:
        """Log a message of the server."""
        self._log.add("server", level, text)

    def protocol_warning(self, text: str) -> None:
        """Log a protocol violation."""
        self._log.add("host", "warning", text)

    def stderr(self, lines: list[str]) -> None:
        """Log lines of standard error; hold back those about our probe, a hundred from servers on the SDK 1.x."""
        if self._is_probing:
            found = (index for index, line in enumerate(lines) if self._complaint or _PROBE_COMPLAINT.search(line))
            start = next(found, len(lines))
            self._complaint += lines[start:]
            lines = lines[:start]
        if lines:
            self._log.add_stderr(lines)

    def unreachable(self, reason: str) -> None:
        """Record a failed connection attempt."""
        if self.is_live:
            self.mark_unreachable(reason)
        else:
            self._log.add("host", "warning", reason)

    def wants_handshake(self, reason: str) -> None:
        """Open the session again with a handshake: in the stateless era the server cannot send its requests."""
        if not self.is_live or self.ended.done():
            return
        if self._session.definition.era == "modern":
            self._log.add("host", "warning", f"{reason}; the connection is kept because its definition says era modern")
            return
        text = f"{reason}: reopening the session with a handshake"
        self._log.add("host", "warning", text)
        self._context.store.known.keep_era(self._session.digest, "legacy")
        self.is_reopening, self._session.client = True, None
        self._session.status.move(State.RESTARTING, text)
        self.ended.set_result(f"{reason}: the session was reopened with a handshake; call the tool again")

    def lost(self, reason: str) -> None:
        """Record that the connection has ended; the session's owner task decides how to proceed."""
        if self.is_live:
            self._session.client = None
            self._session.status.move(State.RESTARTING, reason)
        if not self.ended.done():
            self.ended.set_result(reason)
