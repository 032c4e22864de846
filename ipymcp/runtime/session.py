"""The life of one server in a host: a state machine owned by one task on the background loop.

    disabled -> stopped -> starting -> ready -> (error | stopped)
    restarting between the end of a connection and the next start; a first start that is repeated is still starting
    needs_trust if the user has not agreed that the server may run
    ready <-> unreachable for a remote server; needs_auth while a login is needed

Only the owner task starts and ends connections. Failed starts are repeated, and servers that ended are started again,
up to three times in a row, after 1, 2 and 4 seconds. A remote server that was reachable before is retried as long as it
is loaded. The session itself never repeats a call.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import itertools
import time
from typing import TYPE_CHECKING, Any, cast

from ipymcp.errors import (
    AuthError,
    CallCancelled,
    CallTimeout,
    ConnectionLost,
    McpError,
    ServerError,
    ToolError,
    TrustError,
    doing,
)
from ipymcp.runtime import catalog as catalogs
from ipymcp.runtime.call import Call
from ipymcp.runtime.call_options import CallOptions
from ipymcp.runtime.connector import Connector, Start
from ipymcp.runtime.events import RollingLog
from ipymcp.runtime.failures import cause, explain, is_worth_retrying, start_failure
from ipymcp.runtime.resources import Subscriptions
from ipymcp.runtime.server_status import ServerStatus, State
from ipymcp.security.rules import rights_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from ipymcp.config.definition import ServerDefinition
    from ipymcp.protocol.client import Client
    from ipymcp.protocol.recording import MessageRecorder
    from ipymcp.runtime.catalog import Catalog
    from ipymcp.runtime.connection import Connection
    from ipymcp.runtime.context import RuntimeContext
    from ipymcp.runtime.resources import ResourceCache
    from ipymcp.storage.known_servers import Definitions


class ServerSession:
    """One server in this notebook, from its loading to its unloading, over all its connections.

    Args:
        definition: The definition of the server.
        digest: The digest of the definition.
        context: The host's services.
    """

    def __init__(self, definition: ServerDefinition, digest: str, context: RuntimeContext) -> None:
        self.definition = definition
        self.name = definition.name
        state = State.DISABLED if definition.disabled else State.STOPPED
        self.status = ServerStatus(definition.name, state, context.events.emit)
        self.catalog: Catalog = catalogs.EMPTY
        self.subscriptions = Subscriptions(self, context.loop, context.timing)
        self.log = RollingLog(definition.name, definition.log_lines)
        self.connection: Connection | None = None
        """The latest connection, live or not."""
        self.connection_numbers = itertools.count(1)
        self.recorder: MessageRecorder | None = None
        """Records the messages of all connections, if a view shows them; set by `record`."""
        self.client: Client | None = None
        """Set while there is a connection, even to a server that is unreachable at the moment."""
        self.is_lazy = False
        """Whether the server is stopped until its first call; its catalog is known from an earlier run."""
        self.digest = digest
        self.calls = 0
        """The number of calls so far."""
        self.retries = context.timing.retries
        """Delays before a server that failed or ended is started again, in seconds."""
        self.call_options = CallOptions(definition.timeout, definition.max_timeout)
        self.rights = rights_of(definition, digest)
        """The definition's rights for its tools."""
        self._context = context
        self._start_in_progress: Start | None = None
        self._waking = asyncio.Lock()
        """Held while a lazy server is started, so that concurrent callers start it once."""
        self._retry_now = asyncio.Event()
        """Ends the wait of `_wait_to_retry`."""
        self._owner: asyncio.Task[None] | None = None
        """The task that starts and ends connections."""
        self._predecessor: ServerSession | None = None
        """The session of an older definition, until it is stopped."""

    @property
    def state(self) -> State:
        """The state of the server."""
        return self.status.state

    @property
    def protocol_version(self) -> str:
        """The negotiated protocol version, or the empty string."""
        return self.client.era.version if self.client else ""

    @property
    def pid(self) -> int | None:
        """The process id of a local server while it runs."""
        return self.connection.transport.pid if self.connection else None

    @property
    def last_error(self) -> str:
        """The last failure, or the last error that a living server has written to standard error; in one line."""
        if self.status.last_error or self.client is None or self.connection is None:
            return self.status.last_error
        return self.connection.last_logged_error

    @property
    def is_settled(self) -> bool:
        """Whether there is nothing to wait for: neither a start nor a retry of an unreachable server."""
        return not self.status.is_moving and not (self.state is State.UNREACHABLE and self.client is None)

    def record(self, recorder: MessageRecorder | None) -> None:
        """Record the messages of this server with a recorder from now on; None stops recording."""
        self.recorder = recorder
        if self.connection is not None:
            self.connection.client.recorder = recorder

    # -- commands, on the loop ----------------------------------------------------------------------------------------

    def start(self, *, replaces: ServerSession | None = None) -> None:
        """Begin to start the server if it is not running; `settled` waits for the outcome.

        Args:
            replaces: The session of an older definition, which is stopped first.
        """
        owner = self._owner if self._owner is not None and not self._owner.done() else None
        if owner is not None and not owner.cancelling():
            return
        if replaces is not None:
            self._predecessor, replaces.status.is_replaced = replaces, True
            self.subscriptions = replaces.subscriptions.move_to(self)
        if self.state is State.NEEDS_TRUST:
            self.status.last_error = ""  # an open question is not a failure
        self.status.error, self.is_lazy = None, False
        self.status.move(State.STARTING, "its definition changed" if replaces else "")
        self._owner = self._context.loop.spawn(self._own(owner), f"ipymcp-server-{self.name}")

    async def stop(self, state: State = State.STOPPED) -> None:
        """Stop the server and wait until it has ended; cancelling the wait does not prevent the end.

        If the server is started again meanwhile, it stays started.
        """
        await asyncio.shield(self._context.loop.spawn(self._stop(state), f"ipymcp-stop-{self.name}"))

    async def _stop(self, state: State) -> None:
        owner, connection = self._owner, self.connection
        if owner is not None and not owner.done():
            owner.cancel()
            await asyncio.wait({owner})
        if connection is not None:  # the owner may have been cancelled before it had closed the connection
            await connection.client.aclose()
            self.connection = None if self.connection is connection else self.connection
        await self._stop_predecessor()
        if self._owner is owner:
            self.status.error, self.is_lazy = None, False
            if state is State.DISABLED:  # a disabled server lists nothing
                self.catalog = catalogs.EMPTY
            self.status.move(state)

    async def _stop_predecessor(self) -> None:
        if self._predecessor is not None:
            await self._predecessor.stop()
            self._predecessor = None

    async def settled(self) -> None:
        """Wait until the server is ready, has failed or was stopped. A troubled server is tried once more."""
        if self.state is State.UNREACHABLE and self.client is None:
            self.status.move(State.RESTARTING, "trying to reach it")
            self._retry_now.set()
        elif self.state.record.is_troubled and not self.status.is_logging_in:
            connection = self.connection
            if connection is not None and self.client is not None:
                await connection.check()
        if not self.is_settled:
            with doing(f"waiting for {self.name} to start"):
                await self.status.settled()

    async def awake(self) -> None:
        """Like `settled`, but start a lazy server first if it may run."""
        if self.is_lazy:
            async with self._waking:
                if self.is_lazy:
                    await self._context.guard.trust.ask_if_needed([self.definition])
                    self.start()
        await self.settled()

    async def refreshed(self) -> None:
        """Wait until the tools have been listed again, for a limited time and only while the connection lives."""
        await self.settled()
        if self.connection is not None and self.connection.is_live:
            await self.connection.refresh_tools()

    def remember(self, definitions: Definitions) -> None:
        """Fill the lists that are still empty in the catalog from the definitions of the server's last run."""
        self.catalog = self.catalog.filled(catalogs.remembered(self.name, definitions))

    # -- for callers, from any thread ---------------------------------------------------------------------------------

    def require(self) -> Client:
        """The live connection.

        Raises:
            ServerError: The server is not ready; the message has the reason and the hint the next step.
        """
        client = self.client
        if client is not None:
            return client
        if self.status.error is not None:
            raise copy.copy(self.status.error)  # a copy for each caller, because raising changes the error
        raise self.status.refusal()

    @property
    def resources(self) -> ResourceCache:
        """The resources, templates and prompts of the live connection.

        Raises:
            ServerError: The server is not ready.
        """
        self.require()
        assert self.connection is not None  # there is a client
        return self.connection.resources

    @property
    def has_changed_tools(self) -> bool:
        """Whether the server has announced other tools that are not listed yet."""
        connection = self.connection
        return connection is not None and connection.is_live and connection.has_changed_tools

    def expire_tools(self) -> None:
        """List the tools again if the time to live of their list has passed."""
        connection = self.connection
        if connection is not None and connection.is_live:
            connection.expire_tools()

    def explain(self, error: McpError) -> McpError:
        """Add the server's name to an error and, where the server is to blame, its last lines of standard error."""
        connection = self.connection
        stderr = connection.last_stderr if connection is not None else ()
        explain(error, self.definition, stderr, connection.transport.exit_code if connection is not None else None)
        if not isinstance(error, (CallCancelled, ToolError)):  # not failures of the server
            self.status.last_error = error.message
        return error

    def answered(self, error: McpError | None) -> None:
        """Update the state of the server after a call that ended with a result or this error."""
        if error is None:
            self.status.last_error = ""
            if self.status.state is not State.READY:
                self._call_with_connection(lambda connection: connection.mark_ready())
        elif isinstance(error, AuthError):
            self._call_with_connection(lambda connection: connection.mark_needs_auth(error))
        elif isinstance(error, CallTimeout) and self.definition.url is not None:
            self._call_with_connection(lambda connection: connection.check_soon())

    def _call_with_connection(self, function: Callable[[Connection], None]) -> None:
        """Call a function with the latest connection, on the loop."""
        connection = self.connection
        if connection is not None:
            self._context.loop.call(function, connection)

    # -- the owner task -----------------------------------------------------------------------------------------------

    async def _own(self, previous_owner: asyncio.Task[None] | None) -> None:
        if previous_owner is not None:
            await asyncio.wait({previous_owner})
        await self._stop_predecessor()
        try:
            await self._run()
        except Exception as error:  # a bug in ipymcp; callers that wait for this server must not wait forever
            self.status.error = ServerError(f"failed because of a bug in ipymcp: {error!r}", server=self.name)
            self.log.add("host", "error", self.status.error.message)
            self.status.move(State.ERROR, self.status.error.message)
            raise

    async def _run(self) -> None:
        timing = self._context.timing
        connector = Connector(self, self._context)
        self._retry_now = asyncio.Event()
        failures, was_ready = 0, False
        while True:
            self.status.attempt = failures + 1, len(self.retries) + 1
            try:
                self.digest = await self._context.guard.trust.require(self.definition)
                self.rights = rights_of(self.definition, self.digest)
                connection = await self._connect(connector)
            except TrustError as error:
                self._give_up(State.NEEDS_TRUST, self.explain(error))
                return
            except AuthError as error:
                self._give_up(State.NEEDS_AUTH, self.explain(error))
                return
            except McpError as error:
                failed = self.connection
                code = failed.transport.exit_code if failed is not None else None
                unread = failed.client.unread_output if failed is not None else ""
                failure = self.explain(start_failure(error, self.definition, None if was_ready else code, unread))
                is_hopeless = failed is not None and failed.is_hopeless(is_first=not was_ready)
                retry = self.definition.restart and not is_hopeless
                scope = self.definition.source.scope
                is_typed = scope == "cell" or (scope == "script" and self._context.is_shell)
                retry = retry and is_worth_retrying(error, code, is_first=not was_ready, is_typed=is_typed)
            else:
                was_ready, connected = True, time.monotonic()
                reason = await self._live(connection)
                if connection.is_reopening:
                    continue
                if time.monotonic() - connected >= timing.healthy_after:
                    failures = 0
                failure = self.explain(ConnectionLost(reason, exit_code=connection.transport.exit_code))
                retry = self.definition.restart
            if retry and failures < len(self.retries):
                delay = self.retries[failures]
                failures += 1
                detail = f"{failure.message}; starting it again in {delay:g} s ({failures} of {len(self.retries)})"
                self.log.add("host", "warning", detail)
                if not was_ready:
                    stderr = cause(self.connection.last_stderr) if self.connection is not None else ()
                    reason = stderr[-1] if stderr else failure.message
                    detail = f"attempt {failures + 1} of {len(self.retries) + 1} in {delay:g} s: {reason}"
                self.status.move(State.RESTARTING if was_ready else State.STARTING, detail)
                await asyncio.sleep(delay)
                self.status.count_retry(failure.message)
            elif retry and was_ready and self.definition.url is not None:
                await self._wait_to_retry(failure)
            else:
                self._give_up(State.ERROR, failure)
                return

    async def _connect(self, connector: Connector) -> Connection:
        async with Start(self._context.start_slots) as self._start_in_progress:
            try:
                return await connector.connect(self._start_in_progress)
            finally:
                self._start_in_progress = None

    def _give_up(self, state: State, failure: McpError) -> None:
        self.status.error = failure
        self._context.store.known.moved(self.digest, "error", failure.message)
        self.log.add("host", "error", failure.message)
        self.status.move(state, failure.message)

    async def _wait_to_retry(self, failure: McpError) -> None:
        """Wait without a connection until the next attempt is due, or the server is needed."""
        self._retry_now.clear()
        self.status.unreachable_since = self.status.unreachable_since or time.time()
        self._context.store.known.moved(self.digest, "unreachable", failure.message)
        self.status.move(State.UNREACHABLE, failure.message)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._context.timing.unreachable):
                await self._retry_now.wait()
        self.status.count_retry(failure.message)

    async def _live(self, connection: Connection) -> str:
        """Move to the state `ready`, and wait until the connection ends; return the reason of its end."""
        status = self.status
        self.client, status.unreachable_since, status.connected_since = connection.client, None, time.time()
        status.last_error = ""
        self._context.store.known.connected(self.digest, self.protocol_version, connection.client.instructions or "")
        status.move(State.READY)
        return await connection.live()

    @contextlib.asynccontextmanager
    async def logging_in(self, domain: str) -> AsyncGenerator[None]:
        """Pause the timeouts of the server's calls, requests and start while the user is asked to log in."""
        with self.status.logging_in(domain):
            async with contextlib.AsyncExitStack() as pauses:
                for call in list(self._context.running.values()):
                    if isinstance(call, Call) and call.session is self:
                        pauses.enter_context(cast("Call[Any]", call).pause_timeout())
                if self.connection is not None:
                    pauses.enter_context(self.connection.client.pause_timeouts())
                if self._start_in_progress is not None:
                    await pauses.enter_async_context(self._start_in_progress.paused())
                yield
