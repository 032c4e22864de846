"""One server's life in this notebook: a state machine owned by one task on the background loop.

    disabled -> stopped -> starting -> ready -> (error | stopped), and restarting between a death and the next start
    needs_trust, where a start would run what nobody agreed to
    ready <-> unreachable, for a remote server; needs_auth, while one wants a login

Only the owner task starts and ends connections. Starts that failed are tried again, servers that died are started
again, up to three times in a row, after 1, 2 and 4 seconds; a remote server that was there once is looked for as long
as it is wanted. A call in flight is never sent again by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import itertools
import time
from typing import TYPE_CHECKING, Any, TypeVar

from ipymcp.errors import (
    AuthError,
    CallCancelled,
    CallTimeout,
    ConnectionLost,
    HttpError,
    McpError,
    RpcError,
    ServerError,
    ServerStopped,
    ToolError,
    TrustError,
)
from ipymcp.masking import mask
from ipymcp.runtime import catalog as catalogs
from ipymcp.runtime.call import Call, CallOptions
from ipymcp.runtime.connection import Connector, Start
from ipymcp.runtime.events import ServerChanged, ToolsChanged
from ipymcp.runtime.failures import cannot_get_better, explain, is_worth_retrying, start_failure
from ipymcp.runtime.interfaces import State
from ipymcp.runtime.logs import RollingLog
from ipymcp.runtime.resources import Subscriptions
from ipymcp.security.rules import rights_of
from ipymcp.text import quoted

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine

    from msgspec import Raw

    from ipymcp.config.definition import ServerDefinition
    from ipymcp.protocol.client import Client
    from ipymcp.protocol.subscriptions import ListenStream
    from ipymcp.protocol.types import ToolDefinition
    from ipymcp.runtime.call import CallServices
    from ipymcp.runtime.catalog import Catalog
    from ipymcp.runtime.connection import Connection
    from ipymcp.runtime.context import RuntimeContext, Timing
    from ipymcp.runtime.events import Event
    from ipymcp.runtime.resources import ResourceCache
    from ipymcp.storage.known_servers import Definitions


async def watch_health(session: ServerSession, link: Connection, timing: Timing) -> None:
    """Ask an idle server every `health_interval` seconds, one that cannot be reached more often, until it can again."""
    calls = session.calls
    while True:
        is_away = session.state is State.UNREACHABLE
        link.check_soon.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timing.unreachable if is_away else session.definition.health_interval):
                await link.check_soon.wait()
                continue
        was_idle, calls = session.calls == calls, session.calls
        if is_away or was_idle:
            await check(session, link, timing.check)


async def check(session: ServerSession, link: Connection, seconds: float) -> None:
    """Ask once, and tell the session what came of it."""
    try:
        await link.client.check(seconds)
    except AuthError as error:
        session.mark_needs_auth(error)
    except CallTimeout as error:
        if session.client is link.client and await link.transport.accepts_new_stream(seconds):
            link.lost("its stream is silent, and it answers on a new connection")
        else:
            session.mark_unreachable(error.message)
    except ConnectionLost as error:
        session.mark_unreachable(error.message)
    except HttpError as error:
        if error.status >= 500:
            session.mark_unreachable(error.message)
        else:
            session.mark_ready()
    except McpError:  # it refuses the question, so it is there
        session.mark_ready()
    else:
        session.mark_ready()


_SLOWEST_LISTENING = 60.0


async def keep_fresh(session: ServerSession, link: Connection, timing: Timing) -> None:
    """Ask for the tools again when they changed, once for a flood of notices."""
    pause, refreshed = timing.refresh, float("-inf")
    while True:
        await link.tools_dirty.wait()
        is_flood = time.monotonic() - refreshed < pause
        pause = min(pause * 2, timing.slowest_refresh) if is_flood else timing.refresh
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await link.tools_wanted.wait()
        link.tools_dirty.clear()
        link.tools_wanted.clear()
        waiters, link.tools_waiters = link.tools_waiters, []
        try:
            await session.set_tools(await link.client.list_tools(timeout=session.definition.timeout))
        except ConnectionLost:
            return
        except McpError as error:
            session.log.add("host", "warning", f"its changed tools could not be listed: {error.message}")
        finally:
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)
        refreshed = time.monotonic()


async def hold_subscription(
    session: ServerSession, link: Connection, subscription: ListenStream, timing: Timing
) -> None:
    """Stateless era: hold a subscription, and take it again when the server ends it."""
    delay = timing.listen_again
    while True:
        begun = time.monotonic()
        try:
            await subscription.ended
        except RpcError as error:
            session.log.add("host", "info", f"it announces no changes of its lists: {error.message}")
            return
        except ConnectionLost:
            pass
        if time.monotonic() - begun >= timing.healthy_after:
            delay = timing.listen_again
        await asyncio.sleep(delay)
        delay = min(delay * 2, _SLOWEST_LISTENING)
        subscription = link.client.listen(subscription.wanted)
        link.tools_dirty.set()
        link.offers.changed("resources")
        link.offers.changed("prompts")


T = TypeVar("T")


class TaskCall(Call[T]):
    """A task that is followed again, by its id.

    Args:
        task: The id. The rest is as for a call.
    """

    __slots__ = ("_task",)

    def __init__(
        self,
        task: str,
        number: int,
        session: ServerSession,
        tool: str,
        options: CallOptions,
        convert: Callable[[Raw], T],
        services: CallServices,
        receiver: Callable[[bytes | memoryview], None] | None = None,
    ) -> None:
        super().__init__(number, session, tool, b"", options, convert, services, receiver=receiver)
        self._task = task

    def _send(self, client: Client) -> None:
        client.resume_task(self._slot, self._task)


_MAX_SCANNED = 50
"""Lines of standard error in which a reason is looked for why a start is in vain."""


class ServerSession:
    """ipymcp's live link to one server, for this notebook.

    Args:
        definition: What to run.
        digest: Of it; what it takes files for is not for the loop to wait for.
        services: The host's.
    """

    def __init__(self, definition: ServerDefinition, digest: str, services: RuntimeContext) -> None:
        self.definition = definition
        self.expanded = definition
        """With the values that variables had at its last start."""
        self.name = definition.name
        self.state = State.DISABLED if definition.disabled else State.STOPPED
        self.catalog: Catalog = catalogs.EMPTY
        self.subscriptions = Subscriptions(self)
        self.log = RollingLog(definition.name, definition.log_lines)
        self.client: Client | None = None
        """Set while there is a connection, even to a server that cannot be reached just now."""
        self.is_lazy = False
        """Whether it waits, stopped, for its first call; what it has is known from before."""
        self._waking = asyncio.Lock()
        self.digest = digest
        self.error: McpError | None = None
        """Why it is in the state `error` or `needs_trust`, or `needs_auth` without a connection."""
        self.last_error = ""
        """The last failure of any kind, one line."""
        self.calls = 0
        self.away_since: float | None = None
        """Since when it cannot be reached, in seconds since the epoch."""
        self.connected_since: float | None = None
        """When its last connection began, in seconds since the epoch."""
        self.start_under_way: Start | None = None
        self.numbers = itertools.count(1)
        """The numbers of its connections."""
        self.call_options = CallOptions(definition.timeout, definition.max_timeout)
        self.rights = rights_of(definition, digest)
        """The definition's rights for its tools."""
        self._services = services
        self._link: Connection | None = None
        self._log_start = 0
        self._logins = 0
        self._look_again = asyncio.Event()
        self._is_reopening = False
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

    @property
    def is_moving(self) -> bool:
        """Whether it will be in another state soon, by itself or by the user who is being asked."""
        return self.state.is_moving or self._logins > 0

    @property
    def is_settled(self) -> bool:
        """Whether there is nothing to wait for: neither a start nor, for one that is away, an attempt to find it."""
        return not self.is_moving and not (self.state is State.UNREACHABLE and self.client is None)

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
        if self.state is State.NEEDS_TRUST:
            self.last_error = ""  # to be asked was no failure
        self.error, self.is_lazy = None, False
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
            self.error, self.is_lazy = None, False
            if state is State.DISABLED:  # it lists nothing
                self.catalog = catalogs.EMPTY
            self._move(state)

    async def _end_predecessor(self) -> None:
        if self._predecessor is not None:
            await self._predecessor.stop()
            self._predecessor = None

    async def settled(self) -> None:
        """Wait until it is ready, has failed or was stopped. One in trouble is tried once more."""
        if self.state is State.UNREACHABLE and self.client is None:
            self._move(State.RESTARTING, "looking for it")
            self._look_again.set()
        elif self.state.is_troubled and not self._logins and self._link is not None and self.client is not None:
            await check(self, self._link, self._services.timing.check)
        while self.is_moving:
            if self._changed is None:
                self._changed = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._changed)

    @property
    def has_changed_tools(self) -> bool:
        """Whether it has said that its tools changed, and they are not listed yet; from any thread."""
        return self.client is not None and self._link is not None and self._link.tools_dirty.is_set()

    async def refreshed(self) -> None:
        """Wait until its tools have been listed once more; not for long, and no longer than it lives."""
        await self.settled()
        link = self._link
        if link is not None and self.client is link.client:
            await asyncio.wait(
                {link.list_tools_again(), link.ended},
                timeout=self._services.timing.check,
                return_when=asyncio.FIRST_COMPLETED,
            )

    async def awake(self) -> None:
        """Wait until it can be used, or cannot: as `settled`, and one that is lazy is started, once it may be."""
        if self.is_lazy:
            async with self._waking:
                if self.is_lazy:
                    await self._services.guard.trust.consider([self.definition])
                    self.start()
        await self.settled()

    def be_lazy(self, definitions: Definitions) -> None:
        """Wait for the first call, with what it had when it last ran."""
        self.remember(definitions)
        self.is_lazy = True

    def remember(self, definitions: Definitions) -> None:
        """These it had when it last ran; what is known from this notebook counts first."""
        self.catalog = self.catalog.filled(catalogs.remembered(self.name, definitions))

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
            raise ServerStopped("is disabled", server=self.name, hint=f"%mcp enable {quoted(self.name)}")
        if self.state is State.UNREACHABLE:
            since = time.strftime("%H:%M", time.localtime(self.away_since))
            raise ConnectionLost(
                f"cannot be reached since {since}", server=self.name, hint="it is looked for; %mcp shows"
            )
        hint = "%mcp shows how it goes" if self.is_moving else f"%mcp start {quoted(self.name)}"
        if self.state is State.RESTARTING:
            raise ConnectionLost("is restarting", server=self.name, hint=hint)
        state = "stopping" if self.state is State.READY else self.state.word
        raise ServerStopped(f"is {state}", server=self.name, hint=hint)

    @property
    def offers(self) -> ResourceCache:
        """The resources, templates and prompts of the live connection.

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

    def look_at_tools(self) -> None:
        """Somebody looks at its tools: once the time that it gave for them has passed, they are listed again."""
        link = self._link
        if self.client is not None and link is not None and time.monotonic() >= link.tools_stale_at:
            link.tools_stale_at = float("inf")
            self._services.loop.call(link.tools_dirty.set)

    def emit(self, event: Event) -> None:
        """Tell the host's subscribers."""
        self._services.events.emit(event)

    def spawn(self, coroutine: Coroutine[Any, Any, None], what: str) -> asyncio.Task[None]:
        """Start a task on the loop."""
        return self._services.loop.spawn(coroutine, f"ipymcp-{what}-{self.name}")

    @property
    def exit_code(self) -> int | None:
        """The exit code of the last connection's process, if that has ended."""
        return self._link.transport.exit_code if self._link is not None else None

    @property
    def last_words(self) -> tuple[str, ...]:
        """The last lines of standard error since its last connection began."""
        return self.log.last_words(since=self._log_start)

    def is_hopeless(self) -> bool:
        """Whether its program has ended in a way that another start would not change."""
        return cannot_get_better(self.exit_code, self.log.last_words(_MAX_SCANNED, since=self._log_start))

    def explain(self, error: McpError) -> McpError:
        """The same error, with this server's name and, where the server is to blame, its last words."""
        explain(error, self.definition, self.last_words, self.exit_code)
        if not isinstance(error, (CallCancelled, ToolError)):  # the user knows, and it is no trouble of the server's
            self.last_error = error.message
        return error

    def answered(self, error: McpError | None) -> None:
        """From any thread: a call of it is over, with an answer or this error. Its trouble may be over, or begin."""
        if error is None:
            self.last_error = ""
            if self.state is not State.READY:
                self._services.loop.call(self.mark_ready)
        elif isinstance(error, AuthError):
            self._services.loop.call(self.mark_needs_auth, error)
        elif isinstance(error, CallTimeout) and self.definition.url is not None:
            self._services.loop.call(self._suspect)

    def _suspect(self) -> None:
        """A call got no answer in time: see whether anybody is there."""
        link = self._link
        if link is not None and self.client is link.client and not link.is_checked:
            link.is_checked = True
            self.spawn(self._check(link), "check")

    async def _check(self, link: Connection) -> None:
        try:
            await check(self, link, self._services.timing.check)
        finally:
            link.is_checked = False

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
        opener = Connector(self, self._services)
        self._look_again = asyncio.Event()
        failures, was_ready = 0, False
        while True:
            try:
                self.digest = await self._services.guard.trust.require(self.definition)
                self.rights = rights_of(self.definition, self.digest)
                link = await self._start(opener)
            except TrustError as error:
                self._give_up(State.NEEDS_TRUST, self.explain(error))
                return
            except AuthError as error:
                self._give_up(State.NEEDS_AUTH, self.explain(error))
                return
            except McpError as error:
                code = self.exit_code
                failure = self.explain(start_failure(error, self.definition, None if was_ready else code))
                retry = self.definition.restart and not self.is_hopeless()
                retry = retry and is_worth_retrying(error, code, is_first=not was_ready)
            else:
                was_ready, born = True, time.monotonic()
                reason = await self._live(link)
                if self._is_reopening:
                    self._is_reopening = False
                    continue
                if time.monotonic() - born >= timing.healthy_after:
                    failures = 0
                failure = self.explain(ConnectionLost(reason, exit_code=link.transport.exit_code))
                retry = self.definition.restart
            if retry and failures < len(timing.retries):
                delay = timing.retries[failures]
                failures += 1
                detail = f"{failure.message}; starting it again in {delay:g} s ({failures} of {len(timing.retries)})"
                self.log.add("host", "warning", detail)
                if not was_ready:
                    said = (
                        failure.stderr[-1] if isinstance(failure, ServerError) and failure.stderr else failure.message
                    )
                    detail = f"attempt {failures + 1} of {len(timing.retries) + 1} in {delay:g} s: {said}"
                self._move(State.RESTARTING, detail)
                await asyncio.sleep(delay)
            elif retry and was_ready and self.definition.url is not None:
                await self._stay_away(failure)
            else:
                self._give_up(State.ERROR, failure)
                return

    async def _start(self, opener: Connector) -> Connection:
        async with Start(self._services.starts) as self.start_under_way:
            try:
                return await opener.connect(self.start_under_way)
            finally:
                self.start_under_way = None

    def _give_up(self, state: State, failure: McpError) -> None:
        self.error = failure
        self._services.store.known.moved(self.digest, "error", failure.message)
        self.log.add("host", "error", failure.message)
        self._move(state, failure.message)

    async def _stay_away(self, failure: McpError) -> None:
        """Without a connection: wait until it is time to look for the server again, or somebody wants it."""
        self._look_again.clear()
        self.away_since = self.away_since or time.time()
        self._services.store.known.moved(self.digest, "unreachable", failure.message)
        self._move(State.UNREACHABLE, failure.message)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._services.timing.unreachable):
                await self._look_again.wait()

    async def _live(self, link: Connection) -> str:
        """From ready to the end of the connection; the reason of its end."""
        self.client, self.away_since, self.connected_since = link.client, None, time.time()
        self.last_error = ""
        self._services.store.known.connected(self.digest, self.protocol_version, link.client.instructions or "")
        self._move(State.READY)
        reason = "the server was stopped"
        timing = self._services.timing
        tasks = [self.spawn(keep_fresh(self, link, timing), "refresh")]
        tasks.append(self.spawn(self.subscriptions.keep(link.client), "subscriptions"))
        tasks.append(self.spawn(link.offers.prefetch(timing.prefetch_delay), "offers"))
        if link.subscription is not None:
            tasks.append(self.spawn(hold_subscription(self, link, link.subscription, timing), "listen"))
        if self.definition.url is not None:
            tasks.append(self.spawn(watch_health(self, link, timing), "health"))
        try:
            reason = await link.ended
            return reason
        finally:
            self.client = None
            for task in tasks:
                task.cancel()
            await link.client.aclose(reason)

    # -- for the connection -------------------------------------------------------------------------------------------

    def use(self, link: Connection) -> None:
        """From now on this is its connection, still to be opened."""
        self._link = link
        self._log_start = self.log.total

    async def set_tools(self, definitions: list[ToolDefinition]) -> None:
        """These are its tools now.

        Raises:
            PolicyError: It is starting, and is not what the lock file says.
        """
        await self._services.guard.examine(self, definitions)
        self._services.store.known.listed(self.digest, "tools", definitions)
        if self._link is not None:
            self._link.tools_listed()
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

    def disconnected(self, client: Client, reason: str) -> None:
        """Take note that the connection has ended; the owner task decides how to proceed."""
        if self.client is client:
            self.client = None
            self._move(State.RESTARTING, reason)

    def reopen(self, link: Connection, reason: str) -> None:
        """Open the session anew, by the handshake: in the stateless era the server cannot ask what it asks."""
        if self.client is not link.client or link.ended.done() or self._is_reopening:
            return
        if self.definition.era == "modern":
            self.log.add("host", "warning", f"{reason}; its definition says era modern, so it stays as it is")
            return
        text = f"{reason}: opening the session anew by the handshake"
        self.log.add("host", "warning", text)
        self._services.store.known.keep_era(self.digest, "legacy")
        self._is_reopening, self.client = True, None
        self._move(State.RESTARTING, text)
        link.ended.set_result(f"{reason}: the session was opened anew by the handshake; call it again")

    def mark_unreachable(self, reason: str) -> None:
        """Take note that the server cannot be reached now; calls are tried all the same."""
        if self.client is None or self.state is State.UNREACHABLE:
            return
        self.away_since = time.time()
        self.last_error = mask(reason)
        self.log.add("host", "warning", reason)
        self._move(State.UNREACHABLE, reason)
        if self._link is not None:
            self._link.check_soon.set()

    def mark_needs_auth(self, error: AuthError) -> None:
        """Take note that a login is missing; calls are tried all the same."""
        if self.client is not None and self.state is not State.NEEDS_AUTH:
            self.last_error = error.message
            self._move(State.NEEDS_AUTH, error.message)

    def mark_ready(self) -> None:
        """Take note that the server answers again."""
        if self.client is None or not self.state.is_troubled or self._logins:
            return
        if self.state is State.UNREACHABLE:
            self.log.add("host", "info", "it can be reached again")
            if self._link is not None:
                self._link.tools_dirty.set()  # it may be another since
        self.away_since = None
        self._move(State.READY)

    @contextlib.asynccontextmanager
    async def logging_in(self, domain: str) -> AsyncGenerator[None]:
        """While the user is asked to log in: nothing that waits for this server runs out of time."""
        before = self.state
        self._logins += 1
        self._move(State.NEEDS_AUTH, f"waiting for a login at {domain}")
        try:
            async with contextlib.AsyncExitStack() as clocks:
                for call in list(self._services.running.values()):
                    if call.session is self:
                        clocks.enter_context(call.pause_timeout())
                if self._link is not None:
                    clocks.enter_context(self._link.client.pause_timeouts())
                if self.start_under_way is not None:
                    await clocks.enter_async_context(self.start_under_way.paused())
                yield
        finally:
            self._logins -= 1
            if self.state is State.NEEDS_AUTH:
                self._move(before)

    # -- telling ------------------------------------------------------------------------------------------------------

    def _move(self, state: State, detail: str = "") -> None:
        self.state = state
        self.tell(detail)
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)
        self._changed = None

    def tell(self, detail: str) -> None:
        """News of the state it is in."""
        if not self._is_replaced:
            self._services.events.emit(ServerChanged(self.name, self.state.value, mask(detail)))
