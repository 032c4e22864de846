"""A resource that is kept fresh."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

from ipymcp.errors import McpError
from ipymcp.text import one_line
from ipymcp.tools.live import Live
from ipymcp.tools.readings import ResourceResult

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from msgspec import Raw

    from ipymcp.runtime.host import Host
    from ipymcp.runtime.server import ServerSession

__all__ = ["Subscription"]


class Subscription(Live):
    """A resource as it is now: read again whenever the server says that it changed, until `.close()`.

    It goes on when the server is started again. In a `with` block it is closed at the end.
    """

    def __init__(self, host: Host, session: ServerSession, uri: str, callback: Callable[[ResourceResult], Any] | None):
        self._host = host
        self._session = session
        self._subscriptions = session.subscriptions
        self._callback = callback
        self._value: ResourceResult | None = None
        self.uri = uri
        self.updated = 0
        """How often it has changed since it was subscribed to."""
        self.error: McpError | None = None
        """Why it could not be read when it last changed; None where it could."""
        self.closed = False

    async def _open(self) -> Subscription:
        await self._subscriptions.add(self.uri, self._hear)
        return self

    @property
    def server(self) -> str:
        """The server's name."""
        return self._session.name

    @property
    def value(self) -> ResourceResult:
        """What was read last."""
        assert self._value is not None  # it is read before the user gets this
        return self._value

    def close(self) -> None:
        """End it."""
        self.closed = True
        if self._host.loop.is_running:
            self._host.loop.call(self._subscriptions.remove, self.uri, self._hear)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        times = f"{self.updated:,} time{'' if self.updated == 1 else 's'}"
        state = "closed" if self.closed else f"updated {times}"
        return one_line(f"Subscription {self.server} {self.uri}, {state}")

    def _hear(self, news: Raw | McpError, is_news: bool) -> None:
        if isinstance(news, McpError):
            self.error = news
            return
        value = ResourceResult(bytes(news), server=self.server, uri=self.uri)
        self._value, self.error = value, None
        if is_news:
            self.updated += 1
            if self._callback is not None and not self.closed:
                self._host.handlers.call(self._call_back, self._callback, value)

    def _call_back(self, callback: Callable[[ResourceResult], Any], value: ResourceResult) -> None:
        """On the handlers' loop."""
        if inspect.iscoroutinefunction(callback):
            self._host.handlers.spawn(self._await(callback, value), "ipymcp-callback")
            return
        try:
            callback(value)
        except Exception as error:
            self._blame(error)

    async def _await(self, callback: Callable[[ResourceResult], Any], value: ResourceResult) -> None:
        try:
            await callback(value)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._blame(error)

    def _blame(self, error: Exception) -> None:
        self._session.log.add("host", "error", f"the callback of the subscription to {self.uri} failed: {error!r}")
