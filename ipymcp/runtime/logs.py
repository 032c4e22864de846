"""Rolling logs: what a server writes to standard error, what it logs by protocol, what the host has to say of it."""

from __future__ import annotations

import logging
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from ipymcp.masking import mask

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["LogLine", "RollingLog"]

MAX_LINE = 1000

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "notice": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
    "alert": logging.CRITICAL,
    "emergency": logging.CRITICAL,
}


class LogLine(NamedTuple):
    """One line."""

    time: float
    """Seconds since the epoch."""
    source: str
    """`stderr`, `server` (by protocol) or `host`."""
    level: str
    """An MCP log level; `info` for stderr."""
    text: str


class RollingLog:
    """The last lines of one server, mirrored to `logging.getLogger("ipymcp.server.NAME")`.

    Args:
        server: The server's name.
        lines: How many to keep.
    """

    def __init__(self, server: str, lines: int) -> None:
        self._lines: deque[LogLine] = deque(maxlen=lines)
        self._logger = logging.getLogger(f"ipymcp.server.{server}")
        self.total = 0
        """Lines ever logged, those rolled off included."""

    def __len__(self) -> int:
        return len(self._lines)

    def add(self, source: str, level: str, text: str) -> None:
        """Add one line; the rest of an overlong one is cut."""
        self._append(time.time(), source, level, text)

    def add_stderr(self, lines: Iterable[str]) -> None:
        """Add lines the server wrote to its standard error."""
        now = time.time()
        for line in lines:
            self._append(now, "stderr", "info", line)

    def tail(self, count: int | None = None, source: str | None = None) -> list[LogLine]:
        """The last lines, oldest first.

        Args:
            count: At most so many; None for all kept.
            source: Only from there.
        """
        lines = [line for line in self._lines.copy() if source is None or line.source == source]
        return lines if count is None else lines[-count:] if count > 0 else []

    def last_words(self, count: int = 5, *, since: int = 0) -> tuple[str, ...]:
        """The last lines of standard error that say anything, for an error's message.

        Args:
            count: At most so many.
            since: Only those after so many in `total`.
        """
        recent = self.tail(max(self.total - since, 0))
        said = [line.text.strip() for line in recent if line.source == "stderr"]
        return tuple([text for text in said if text][-count:])

    def _append(self, now: float, source: str, level: str, text: str) -> None:
        text = mask(text)
        if len(text) > MAX_LINE:
            text = f"{text[:MAX_LINE]}… ({len(text):,} characters)"
        self.total += 1
        self._lines.append(LogLine(now, source, level, text))
        number = _LEVELS.get(level, logging.INFO)
        if self._logger.isEnabledFor(number):
            self._logger.log(number, "%s: %s", source, text)
