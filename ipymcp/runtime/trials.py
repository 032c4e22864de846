"""Servers that run on trial before they are loaded."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from ipymcp.config.definition import ServerDefinition
    from ipymcp.runtime.context import RuntimeContext
    from ipymcp.runtime.session import ServerSession
    from ipymcp.security.trust import Grant


class Trials:
    """The servers of a host that run on trial. Used on the background loop.

    Args:
        context: The host's services.
        load: Loads a running server in place of one of the same name.
    """

    def __init__(self, context: RuntimeContext, load: Callable[[ServerSession], Coroutine[Any, Any, None]]) -> None:
        self._context = context
        self._load = load
        self._grants: dict[ServerSession, Grant] = {}
        """The servers on trial, and their permission to run."""

    @property
    def sessions(self) -> tuple[ServerSession, ...]:
        """The servers on trial."""
        return (*self._grants,)

    async def run(self, definition: ServerDefinition, grant: Grant) -> ServerSession:
        """Start a server once and wait until it is ready or has failed; `adopt` or `end` follows.

        If the wait is cancelled, the trial ends.

        Raises:
            TrustError: The grant is for another definition, or files of this one have changed since.
        """
        from ipymcp.runtime.session import ServerSession  # imports the whole protocol: not at %load_ext

        trust = self._context.guard.trust
        permission = await trust.try_out(grant, definition)
        session = ServerSession(definition, permission.digest, self._context)
        session.retries = ()  # someone waits for the outcome
        self._grants[session] = permission
        try:
            session.start()
            await session.settled()
        except BaseException:
            await self.end(session)
            raise
        return session

    async def end(self, session: ServerSession) -> None:
        """Stop a server that is not loaded, and withdraw its permission; continues if the wait is cancelled."""
        await asyncio.shield(self._context.loop.spawn(self._end(session), f"ipymcp-trial-{session.name}"))

    async def end_all(self) -> None:
        """Stop all servers on trial."""
        await asyncio.gather(*map(self.end, self.sessions))

    async def adopt(self, session: ServerSession) -> None:
        """Load a server on trial, in place of one of the same name."""
        session.retries = self._context.timing.retries
        await self._load(session)
        self._forget(session)

    async def _end(self, session: ServerSession) -> None:
        try:
            await session.stop()
        finally:
            self._forget(session)

    def _forget(self, session: ServerSession) -> None:
        grant = self._grants.pop(session, None)
        if grant is not None:
            self._context.guard.trust.end_trial(grant)
