"""Keeping a ready server's catalog what the server has, in both eras."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

from ipymcp.errors import ConnectionLost, McpError, RpcError

if TYPE_CHECKING:
    from ipymcp.protocol.subscriptions import Listening
    from ipymcp.runtime.link import Link
    from ipymcp.runtime.server import ServerSession
    from ipymcp.runtime.services import Timing

__all__ = ["hold_subscription", "keep_fresh"]

_SLOWEST_LISTENING = 60.0


async def keep_fresh(session: ServerSession, link: Link, timing: Timing) -> None:
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
            await session.adopt(await link.client.list_tools(timeout=session.definition.timeout))
        except ConnectionLost:
            return
        except McpError as error:
            session.log.add("host", "warning", f"its changed tools could not be listed: {error.message}")
        finally:
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)
        refreshed = time.monotonic()


async def hold_subscription(session: ServerSession, link: Link, subscription: Listening, timing: Timing) -> None:
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
