"""The states of a server, its current status, and the parts of its session that collaborators use."""

from __future__ import annotations

import asyncio
import contextlib
import time
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec import Struct

from ipymcp.errors import ConnectionLost, ServerError, ServerStopped
from ipymcp.masking import mask
from ipymcp.runtime.events import ServerChanged
from ipymcp.text import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from contextlib import AbstractAsyncContextManager

    from ipymcp.config.definition import ServerDefinition
    from ipymcp.errors import McpError
    from ipymcp.protocol.client import Client
    from ipymcp.runtime.catalog import Catalog
    from ipymcp.runtime.events import Event, RollingLog
    from ipymcp.security.rules import ServerGrants


class _StateRecord(NamedTuple):
    label: str
    """The name of the state in tables, messages and the panel."""
    refusal: str
    """The message, after the server's name, of the error of a call without a connection."""
    next_step: str
    """The hint of that error; `NAME` stands for the server's name."""
    is_moving: bool = False
    """Whether the server will soon be in another state without a command."""
    is_troubled: bool = False
    """Whether a connection may exist on which the next call fails or succeeds."""
    error: type[ServerError] = ServerStopped
    """The type of that error."""


class State(StrEnum):
    """The state of a server, with a record of what tables, messages and code need to know about it."""

    _value_: str
    record: _StateRecord

    def __new__(cls, value: str, record: _StateRecord) -> State:
        """Attach the record to the string."""
        state = str.__new__(cls, value)
        state._value_ = value
        state.record = record
        return state

    DISABLED = "disabled", _StateRecord("disabled", "is disabled", "%mcp enable NAME")
    STOPPED = "stopped", _StateRecord("stopped", "is stopped", "%mcp start NAME")
    STARTING = "starting", _StateRecord("starting", "is starting", "%mcp shows its progress", is_moving=True)
    READY = "ready", _StateRecord("ready", "is stopping", "%mcp start NAME")
    NEEDS_TRUST = "needs_trust", _StateRecord("needs trust", "needs your agreement before it runs", "%mcp start NAME")
    """The user has not agreed that the server may run."""
    NEEDS_AUTH = "needs_auth", _StateRecord("needs login", "needs a login", "%mcp start NAME", is_troubled=True)
    """A login is in progress, or was not completed."""
    UNREACHABLE = (
        "unreachable",
        _StateRecord(
            "unreachable",
            "cannot be reached",
            "ipymcp keeps trying to reach it; %mcp shows",
            is_troubled=True,
            error=ConnectionLost,
        ),
    )
    """A remote server that was reachable before; ipymcp keeps trying to reach it."""
    RESTARTING = (
        "restarting",
        _StateRecord("restarting", "is restarting", "%mcp shows its progress", is_moving=True, error=ConnectionLost),
    )
    ERROR = "error", _StateRecord("failed", "has failed", "%mcp start NAME")


def state_label(value: str) -> str:
    """The label of a state; any other status is returned as it is."""
    return next((state.record.label for state in State if state.value == value), value)


class Retries(Struct, frozen=True):
    """How often ipymcp has started a server again because it had failed or ended, since it was loaded."""

    count: int = 0
    last: float | None = None
    """The last time, in seconds since the epoch; None if there was none."""
    reason: str = ""
    """The failure before the last time, in one line."""


class ServerStatus:
    """The state of one server, the errors that led to it, and the announcement of changes.

    Belongs to the background loop; its attributes may be read from any thread.

    Args:
        server: The server's name.
        state: The initial state.
        announce: Sends an event to the host's subscribers.
    """

    def __init__(self, server: str, state: State, announce: Callable[[Event], None]) -> None:
        self.state = state
        self.error: McpError | None = None
        """The reason for the state `error` or `needs_trust`, or `needs_auth` without a connection."""
        self.last_error = ""
        """The last failure of any kind, in one line."""
        self.unreachable_since: float | None = None
        """When the server became unreachable, in seconds since the epoch."""
        self.connected_since: float | None = None
        """When the last connection began, in seconds since the epoch."""
        self.moving_since: float | None = None
        """When the start in progress began, in seconds since the epoch; None while there is none."""
        self.attempt: tuple[int, int] = (1, 1)
        """The number of the attempt of that start, and the maximum number of attempts."""
        self.retries = Retries()
        """The starts that followed a failure, without a command."""
        self.is_replaced = False
        """Whether a session with a newer definition announces the server's states instead."""
        self._server = server
        self._announce = announce
        self._logins = 0
        self._changed: asyncio.Future[None] | None = None

    @property
    def is_logging_in(self) -> bool:
        """Whether the user is being asked to log in."""
        return self._logins > 0

    @property
    def is_moving(self) -> bool:
        """Whether the state will soon change without a command: a start or a login is in progress."""
        return self.state.record.is_moving or self.is_logging_in

    def move(self, state: State, detail: str = "") -> None:
        """Enter a state and announce it."""
        self.state = state
        if not state.record.is_moving:
            self.moving_since = None
        elif self.moving_since is None:
            self.moving_since = time.time()
        self.announce(detail)
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)
        self._changed = None

    def announce(self, detail: str) -> None:
        """Announce news about the current state."""
        if not self.is_replaced:
            self._announce(ServerChanged(self._server, self.state.value, mask(detail)))

    def count_retry(self, reason: str) -> None:
        """Record that the server is started or tried again after a failure."""
        self.retries = Retries(self.retries.count + 1, time.time(), mask(reason))

    async def settled(self) -> None:
        """Wait until the state will not change without a command."""
        while self.is_moving:
            if self._changed is None:
                self._changed = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._changed)

    @contextlib.contextmanager
    def logging_in(self, domain: str) -> Generator[None]:
        """Show that a login is needed while the user is asked for it; then return to the state before."""
        before = self.state
        self._logins += 1
        self.move(State.NEEDS_AUTH, f"waiting for a login at {domain}")
        try:
            yield
        finally:
            self._logins -= 1
            if self.state is State.NEEDS_AUTH:
                self.move(before)

    def refusal(self) -> ServerError:
        """The error of a call that finds no connection."""
        record, since = self.state.record, ""
        if self.state is State.UNREACHABLE:
            since = f" since {time.strftime('%H:%M', time.localtime(self.unreachable_since))}"
        hint = "%mcp shows its progress" if self.is_moving else record.next_step.replace("NAME", quoted(self._server))
        return record.error(record.refusal + since, server=self._server, hint=hint)


class ServerFacts(Protocol):
    """A configured server: its definition, rights, log and status, and the connection while there is one."""

    name: str
    definition: ServerDefinition
    digest: str
    """The digest of the definition."""
    rights: ServerGrants
    log: RollingLog
    status: ServerStatus
    client: Client | None
    """Set while there is a connection, even to a server that is unreachable at the moment."""
    catalog: Catalog
    calls: int
    """The number of calls so far."""

    def explain(self, error: McpError) -> McpError:
        """Add the server's name to an error and, where the server is to blame, its last lines of standard error."""
        ...


class CallTarget(ServerFacts, Protocol):
    """The part of a session that calls use; thread-safe."""

    def require(self) -> Client:
        """The live connection.

        Raises:
            ServerError: The server is not ready.
        """
        ...

    async def settled(self) -> None:
        """Wait until the server is ready, has failed, or was stopped."""
        ...

    def answered(self, error: McpError | None) -> None:
        """Update the state of the server after a call that ended with a result or this error."""
        ...


class LoginOwner(Protocol):
    """The part of a session that a login uses."""

    name: str

    def logging_in(self, domain: str) -> AbstractAsyncContextManager[None]:
        """Pause the timeouts of the server's calls, requests and start while the user is asked to log in."""
        ...
