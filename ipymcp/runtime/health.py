"""Whether a remote server that nobody calls is still there: a cheap request now and then."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from ipymcp.errors import AuthError, CallTimeout, ConnectionLost, HttpError, McpError
from ipymcp.runtime.states import State

if TYPE_CHECKING:
    from ipymcp.runtime.link import Link
    from ipymcp.runtime.server import ServerSession
    from ipymcp.runtime.services import Timing

__all__ = ["check", "watch_health"]


async def watch_health(session: ServerSession, link: Link, timing: Timing) -> None:
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


async def check(session: ServerSession, link: Link, seconds: float) -> None:
    """Ask once, and tell the session what came of it."""
    try:
        await link.client.check(seconds)
    except AuthError as error:
        session.lock_out(error)
    except CallTimeout as error:
        if session.client is link.client and await link.transport.answers_anew(seconds):
            link.lost("its stream is silent, and it answers on a new connection")
        else:
            session.lose_sight(error.message)
    except ConnectionLost as error:
        session.lose_sight(error.message)
    except HttpError as error:
        if error.status >= 500:
            session.lose_sight(error.message)
        else:
            session.recover()
    except McpError:  # it refuses the question, so it is there
        session.recover()
    else:
        session.recover()
