"""A server's log, as a view follows it: read where it is kept, so that a view that is slow costs nothing."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ipymcp.text import visible

if TYPE_CHECKING:
    from ipymcp.notebook.panel.messages import Message
    from ipymcp.runtime.host import Host
    from ipymcp.runtime.logs import RollingLog

__all__ = ["LogNumbers", "LogReader"]

_MOST_LINES = 500
_MOST_CHARACTERS = 100_000
"""Of one batch."""
_FLOODED = 0.3
"""Seconds between batches where one could not hold all: nobody reads thousands of lines a second."""


class LogNumbers:
    """Numbers the lines of servers, on and on: a server that is loaded anew has a new log."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[RollingLog, int]] = {}

    def first(self, server: str, log: RollingLog) -> int:
        """The number before the first line of a log."""
        known = self._known.get(server)
        if known is None or known[0] is not log:
            known = self._known[server] = log, 0 if known is None else known[1] + known[0].total
        return known[1]


class LogReader:
    """Follows one server's log.

    Args:
        server: Its name.
        host: Where the server is found, each time anew.
        numbers: The panel's.
        since: The number of the last line that the view has; None for all that are kept.
    """

    def __init__(self, server: str, host: Host, numbers: LogNumbers, since: int | None) -> None:
        self._server = server
        self._host = host
        self._numbers = numbers
        self._last = since
        """The number of the last line that was read, or left out."""
        self._not_before = 0.0

    @property
    def has_news(self) -> bool:
        """Whether there is something to read."""
        session = self._host.sessions.get(self._server)
        if session is None or time.monotonic() < self._not_before:
            return False
        return self._last is None or self._numbers.first(self._server, session.log) + session.log.total != self._last

    def read(self) -> Message | None:
        """The lines that came since, the latest where they are too many, and how many were left out."""
        session = self._host.sessions.get(self._server)
        if session is None or not self.has_news:
            return None
        log = session.log
        total = self._numbers.first(self._server, log) + log.total
        unread = log.total if self._last is None or self._last > total else total - self._last
        self._last = total
        lines = log.tail(min(unread, _MOST_LINES))
        shown: list[Message] = []
        size = 0
        for number, line in zip(range(total, 0, -1), reversed(lines), strict=False):
            size += len(line.text)
            if size > _MOST_CHARACTERS:
                break
            text = visible(line.text)
            shown.append(
                {"n": number, "time": line.time, "level": visible(line.level), "source": line.source, "text": text}
            )
        dropped = unread - len(shown)
        self._not_before = time.monotonic() + _FLOODED if dropped else 0.0
        return {"lines": shown[::-1], "dropped": dropped} if shown or dropped else None
