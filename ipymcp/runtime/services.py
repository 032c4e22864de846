"""What the sessions of a host share, and how patient they are."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from ipymcp.protocol.transports.process import Grace

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from ipymcp.config.definition import ServerDefinition
    from ipymcp.protocol.eras import Identity
    from ipymcp.protocol.negotiation import EraChoice
    from ipymcp.protocol.oauth.store import TokenStore
    from ipymcp.runtime.answers import Answers
    from ipymcp.runtime.calls import Call
    from ipymcp.runtime.events import Events
    from ipymcp.runtime.interaction import Desk
    from ipymcp.runtime.loop import BackgroundLoop
    from ipymcp.runtime.reaper import Reaper
    from ipymcp.runtime.values import SecretSource

__all__ = ["Services", "Timing"]


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
    grace: Grace = msgspec.field(default_factory=Grace)


class Services(msgspec.Struct, eq=False):
    """What all sessions of a host share."""

    loop: BackgroundLoop
    reaper: Reaper
    events: Events
    identity: Identity
    folder: str
    """Where servers run unless their definition says otherwise."""
    max_starting: int
    timing: Timing
    desk: Desk
    answers: Answers
    running: dict[int, Call[Any]]
    """The calls now in progress, of all sessions."""
    trusts: Callable[[ServerDefinition], bool]
    """Whether a definition may run; asked before every run, and before anything in it is expanded."""
    secrets: SecretSource
    """Where `${secret:NAME}` come from."""
    token_store: TokenStore | None = None
    """Where logins are kept; made at the first, in memory, where none is given."""
    inputs: dict[tuple[str, str], str] = msgspec.field(default_factory=dict[tuple[str, str], str])
    """What the user gave for `${input:ID}`, by document and id."""
    eras: dict[str, EraChoice] = msgspec.field(default_factory=dict[str, "EraChoice"])
    """The era each definition answered in, by its digest."""
    _starts: tuple[asyncio.AbstractEventLoop, asyncio.Semaphore] | None = None

    @property
    def tokens(self) -> TokenStore:
        """Where logins are kept."""
        if self.token_store is None:
            from ipymcp.protocol.oauth.store import MemoryTokenStore

            self.token_store = MemoryTokenStore()
        return self.token_store

    @property
    def starts(self) -> asyncio.Semaphore:
        """Holds back the servers that start at once; belongs to the loop, which is another after a `close`."""
        loop = asyncio.get_running_loop()
        if self._starts is None or self._starts[0] is not loop:
            self._starts = loop, asyncio.Semaphore(self.max_starting)
        return self._starts[1]
