"""Catalogs of resources and prompts, listed at first use and again once they are stale."""

from __future__ import annotations

import asyncio
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from ipymcp.errors import McpError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ipymcp.runtime.catalog import Catalog
    from ipymcp.runtime.host import Host
    from ipymcp.runtime.resources import Kind
    from ipymcp.runtime.session import ServerSession


_TAB_TIMEOUT = 1.0
"""Seconds that Tab waits for a server."""


def look(host: Host, session: ServerSession, *kinds: Kind) -> Catalog:
    """The catalog of one server with fresh lists; waits for a starting server.

    For a server that does not run, the catalog of its last run.

    Raises:
        McpError: The server is not ready, or cannot list them.
    """
    if session.client is None and not session.is_moving and any(getattr(host.browse(session), kind) for kind in kinds):
        return session.catalog
    return host.loop.run(_look(session, kinds))


def look_quickly(host: Host, session: ServerSession, *kinds: Kind) -> Catalog:
    """The catalog of one server for Tab: the cached one after a second or on an error."""
    if session.client is not None:
        host.loop.run(_look_for_a_while(session, kinds))
    return session.catalog


def look_at_all(host: Host, *kinds: Kind) -> tuple[list[tuple[ServerSession, Catalog]], list[str]]:
    """The catalogs of all ready and lazy servers, and an error line for each that failed to list."""
    sessions = [session for session in host.sessions.values() if session.client is not None]
    catalogs, failures = host.loop.run(_look_at_all(sessions, kinds)) if sessions else ([], [])
    lazy = [(session, session.catalog) for session in host.sessions.values() if session.is_lazy]
    return catalogs + lazy, failures


def selects_any(patterns: Sequence[str], names: Iterable[str]) -> bool:
    """Whether globs select an object with these names: the last match decides; `!` patterns alone select the rest."""
    names = tuple(names)
    selected = all(pattern.startswith("!") for pattern in patterns)
    for pattern in patterns:
        positive = pattern.removeprefix("!")
        if any(fnmatchcase(name, positive) for name in names):
            selected = positive == pattern
    return selected


def not_running(session: ServerSession, *, anything: bool) -> str:
    """A note below the cached catalog of a server that does not run, or below an empty one."""
    if session.is_lazy:
        return f"{session.name} starts at its first call; this is what it had when it last ran"
    state = f" is {session.state.word}" if session.error is None else f": {session.error.message}"
    return f"{session.name}{state}" + ("; this is what it had when it last ran" if anything else "")


async def _look(session: ServerSession, kinds: Sequence[Kind]) -> Catalog:
    await session.awake()
    return await session.offers.look(*kinds)


async def _look_for_a_while(session: ServerSession, kinds: Sequence[Kind]) -> None:
    async def listed() -> None:
        try:
            await session.offers.look(*kinds)
        except McpError:
            return  # already in the log

    # It continues after the timeout: the next Tab uses the result.
    await asyncio.wait({session.spawn(listed(), "look")}, timeout=_TAB_TIMEOUT)


async def _look_at_all(
    sessions: Sequence[ServerSession], kinds: Sequence[Kind]
) -> tuple[list[tuple[ServerSession, Catalog]], list[str]]:
    outcomes = await asyncio.gather(*(session.offers.look(*kinds) for session in sessions), return_exceptions=True)
    catalogs: list[tuple[ServerSession, Catalog]] = []
    failures: list[str] = []
    for session, outcome in zip(sessions, outcomes, strict=True):
        if isinstance(outcome, McpError):
            failures.append(str(outcome))
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            catalogs.append((session, outcome))
    return catalogs, failures
