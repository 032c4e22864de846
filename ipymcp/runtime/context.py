"""Services and timing that all sessions of a host share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from ipymcp.protocol.transports.process import Grace

if TYPE_CHECKING:
    from ipymcp.protocol.eras import Identity
    from ipymcp.runtime.access import AccessControl
    from ipymcp.runtime.call_options import RunningCall
    from ipymcp.runtime.client_handlers import ClientHandlers
    from ipymcp.runtime.events import Events, UserNotices
    from ipymcp.runtime.loop import BackgroundLoop
    from ipymcp.runtime.oauth_redirects import Redirects
    from ipymcp.runtime.question_routing import QuestionRouter
    from ipymcp.runtime.reaper import Reaper
    from ipymcp.storage.store import Store


class Timing(msgspec.Struct, frozen=True):
    """Intervals and timeouts of a host, in seconds."""

    retries: tuple[float, ...] = (1.0, 2.0, 4.0)
    """Delays before a server that failed or ended is started again."""
    healthy_after: float = 30.0
    """A server that stayed up this long gets its full retry budget again."""
    download_hint: float = 10.0
    """Time after which a start that is still in progress is announced."""
    refresh: float = 0.25
    """Delay before a changed list of tools is requested; doubles up to `slowest_refresh` in a flood of changes."""
    slowest_refresh: float = 4.0
    listen_again: float = 1.0
    """Delay before a subscription that the server ended is opened again; doubles up to a minute if that repeats."""
    unreachable: float = 5.0
    """Interval between attempts to reach an unreachable server."""
    check: float = 10.0
    """Timeout of a health check."""
    prefetch_delay: float = 10.0
    """Delay after a server's start before lists that were never requested are requested."""
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
    questions: QuestionRouter
    client_handlers: ClientHandlers
    running: dict[int, RunningCall]
    """The calls in progress of all sessions."""
    guard: AccessControl
    """Decides which servers may run and which tools may be called."""
    store: Store
    """The storage that outlives the kernel."""
    redirects: Redirects
    """Redirect addresses for logins in the browser."""
    notices: UserNotices
    """Notices for the user, shown below the cell."""
    is_shell: bool = False
    """Whether the host belongs to an interactive shell, in which the user waits for a server that a cell defines."""
    _start_slots: tuple[asyncio.AbstractEventLoop, asyncio.Semaphore] | None = None

    @property
    def start_slots(self) -> asyncio.Semaphore:
        """Limits how many servers start at once; made again for the new loop after a `close`."""
        loop = asyncio.get_running_loop()
        if self._start_slots is None or self._start_slots[0] is not loop:
            self._start_slots = loop, asyncio.Semaphore(self.max_starting)
        return self._start_slots[1]
