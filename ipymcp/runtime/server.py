"""One configured server's life in this notebook: a state machine owned by one task on the background loop.

    disabled -> stopped -> starting -> ready -> (error | stopped), and restarting between a death and the next start

Only the owner task moves it. Starts that failed are tried again, servers that died are started again, up to three times
in a row, after 1, 2 and 4 seconds; a call in flight is never sent again by itself.
"""

from __future__ import annotations

import asyncio
import copy
import time
from typing import TYPE_CHECKING

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
from ipymcp.runtime import catalog as catalogs
from ipymcp.runtime.calls import CallOptions
from ipymcp.runtime.environment import forgotten_variable
from ipymcp.runtime.events import ServerChanged, ToolsChanged
from ipymcp.runtime.logs import RollingLog
from ipymcp.runtime.opening import Opener
from ipymcp.runtime.refresh import hold_subscription, keep_fresh
from ipymcp.runtime.states import State

if TYPE_CHECKING:
    from ipymcp.config.definition import ServerDefinition
    from ipymcp.protocol.client import Client
    from ipymcp.protocol.wire import ToolDefinition
    from ipymcp.runtime.catalog import Catalog
    from ipymcp.runtime.link import Link
    from ipymcp.runtime.services import Services

__all__ = ["ServerSession"]


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
        self._link: Link | None = None
        self._log_start = 0
        self._opener = Opener(self, services)
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

    def explain(self, error: McpError) -> McpError:
        """The same error, with this server's name and, where the server is to blame, its last words."""
        error.server = error.server or self.name
        if isinstance(error, ServerError) and not isinstance(error, CommandNotFound) and not error.stderr:
            error.stderr = self.log.last_words(since=self._log_start)
            if error.exit_code is None and self._link is not None:
                error.exit_code = self._link.transport.exit_code
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
                    link = await self._opener.connect()
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

    async def _live(self, link: Link) -> str:
        """From ready to the end of the connection; the reason of its end."""
        self.client = link.client
        self._move(State.READY)
        timing = self._services.timing
        tasks = [self._services.loop.spawn(keep_fresh(self, link, timing), f"ipymcp-refresh-{self.name}")]
        if link.subscription is not None:
            listening = hold_subscription(self, link, link.subscription, timing)
            tasks.append(self._services.loop.spawn(listening, f"ipymcp-listen-{self.name}"))
        try:
            return await link.ended
        finally:
            for task in tasks:
                task.cancel()

    # -- for the connection -------------------------------------------------------------------------------------------

    def use(self, link: Link) -> None:
        """From now on this is its connection, still to be opened."""
        self._link = link
        self._log_start = self.log.total

    def adopt(self, definitions: list[ToolDefinition]) -> None:
        """These are its tools now."""
        old = self.catalog
        new = catalogs.build(self.name, definitions, lambda text: self.log.add("host", "warning", text))
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
        """Its server has just gone; what is to be done about it the owner task decides."""
        if self.client is client:
            self.client = None
            self._move(State.RESTARTING, reason)

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
            self._services.events.emit(ServerChanged(self.name, self.state.value, detail))


def _start_failure(error: McpError) -> McpError:
    if isinstance(error, (StartError, ProtocolError)):
        return error
    return StartError(f"did not start: {error.message}", hint=error.hint)
