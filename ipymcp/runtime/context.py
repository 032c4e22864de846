"""Services and timing that all sessions of a host share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from ipymcp.protocol.transports.process import Grace

if TYPE_CHECKING:
    from typing import Any

    from ipymcp.protocol.eras import Identity
    from ipymcp.runtime.access import AccessControl
    from ipymcp.runtime.call import Call
    from ipymcp.runtime.events import Events, UserNotices
    from ipymcp.runtime.loop import BackgroundLoop
    from ipymcp.runtime.oauth_redirects import Redirects
    from ipymcp.runtime.question_routing import QuestionRouter
    from ipymcp.runtime.reaper import Reaper
    from ipymcp.runtime.server_requests import ClientHandlers
    from ipymcp.storage.store import Store


class Timing(msgspec.Struct, frozen=True):
    """How patient a host is with its servers, in seconds."""

    retries: tuple[float, ...] = (1.0, 2.0, 4.0)
    """The waits before a server that failed or died is started again."""
    healthy_after: float = 30.0
    """A server that dies later than this is not one that keeps dying: its retries begin anew."""
    download_hint: float = 10.0
    refresh: float = 0.25
    """Between a change of the tool list and asking for it; it doubles, up to `slowest_refresh`, in a flood of them."""
    slowest_refresh: float = 4.0
    listen_again: float = 1.0
    """Before a subscription that the server ended is taken again; it doubles, up to a minute, if that happens again."""
    unreachable: float = 5.0
    """Between two looks at a remote server that cannot be reached."""
    check: float = 10.0
    """For the answer to such a look."""
    prefetch_delay: float = 10.0
    """From a server's start until resources and prompts that nobody ever looked at are listed."""
    grace: Grace = msgspec.field(default_factory=Grace)


class RuntimeContext(msgspec.Struct, eq=False):
    """Services that all sessions of a host share."""

    loop: BackgroundLoop
    reaper: Reaper
    events: Events
    identity: Identity
    folder: str
    """The default folder of servers."""
    max_starting: int
    timing: Timing
    desk: QuestionRouter
    answers: ClientHandlers
    running: dict[int, Call[Any]]
    """The calls now in progress, of all sessions."""
    guard: AccessControl
    """Decides which servers may run and which tools may be called."""
    store: Store
    """The storage that outlives the kernel."""
    redirects: Redirects
    """Redirect addresses for logins in the browser."""
    notices: UserNotices
    """Notices for the user, shown below the cell."""
    _starts: tuple[asyncio.AbstractEventLoop, asyncio.Semaphore] | None = None

    @property
    def starts(self) -> asyncio.Semaphore:
        """Holds back the servers that start at once; belongs to the loop, which is another after a `close`."""
        loop = asyncio.get_running_loop()
        if self._starts is None or self._starts[0] is not loop:
            self._starts = loop, asyncio.Semaphore(self.max_starting)
        return self._starts[1]
