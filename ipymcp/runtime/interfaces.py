"""The states of a server, and the parts of its session that collaborators use, so that none needs the whole session."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from ipymcp.config.definition import ServerDefinition
    from ipymcp.errors import McpError
    from ipymcp.protocol.client import Client
    from ipymcp.runtime.catalog import Catalog
    from ipymcp.runtime.logs import RollingLog
    from ipymcp.security.rules import ServerGrants


class ServerFacts(Protocol):
    """A configured server: its definition, rights and log, and the connection while there is one."""

    name: str
    definition: ServerDefinition
    digest: str
    """The digest of the definition."""
    rights: ServerGrants
    log: RollingLog
    client: Client | None
    catalog: Catalog

    def explain(self, error: McpError) -> McpError:
        """The error with the server's name and, where the server is to blame, its last lines of standard error."""
        ...


class CallTarget(ServerFacts, Protocol):
    """A server as its calls use it, from any thread."""

    calls: int
    """The number of calls so far."""

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
        """Take note that a call has ended, with a result or this error."""
        ...


class LoginOwner(ServerFacts, Protocol):
    """A server as the login of its user uses it."""

    def logging_in(self, domain: str) -> AbstractAsyncContextManager[None]:
        """Stop the clocks of everything that waits for the server while the user is asked to log in."""
        ...


class State(StrEnum):
    """The state of a server."""

    DISABLED = "disabled"
    STOPPED = "stopped"
    STARTING = "starting"
    READY = "ready"
    NEEDS_TRUST = "needs_trust"
    """The user has not agreed that it may run."""
    NEEDS_AUTH = "needs_auth"
    """A login is needed: one is under way, or was not completed."""
    UNREACHABLE = "unreachable"
    """A remote server that was there and cannot be reached now; it is looked for."""
    RESTARTING = "restarting"
    ERROR = "error"

    @property
    def word(self) -> str:
        """The state as users read it, the same in tables, messages and the panel."""
        return state_word(self.value)

    @property
    def is_moving(self) -> bool:
        """Whether it will be another soon, by itself."""
        return self in (State.STARTING, State.RESTARTING)

    @property
    def is_troubled(self) -> bool:
        """Whether a call may be refused, and may as well be answered."""
        return self in (State.NEEDS_AUTH, State.UNREACHABLE)


def state_word(value: str) -> str:
    """A state, or the last known status of a server, as users read it."""
    return _WORDS.get(value, value)


_WORDS = {"error": "failed", "needs_trust": "needs trust", "needs_auth": "needs login"}
