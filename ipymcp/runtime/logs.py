"""Rolling logs: what a server writes to standard error, what it logs by protocol, what the host has to say of it."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from ipymcp.masking import mask

if TYPE_CHECKING:
    from collections.abc import Sequence


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

    What a server writes to standard error is put in as it comes and made into lines when somebody looks: most of a
    flood is gone before that. Added to on the background loop, looked at from any thread.

    Args:
        server: The server's name.
        lines: How many to keep.
    """

    def __init__(self, server: str, lines: int) -> None:
        self._lines: deque[LogLine] = deque(maxlen=lines)
        self._raw: deque[tuple[float, Sequence[str]]] = deque()
        """The lines after those, with the time of each."""
        self._raw_count = 0
        self._lock = threading.Lock()
        self._logger = logging.getLogger(f"ipymcp.server.{server}")
        self.total = 0
        """Lines ever logged, those rolled off included."""

    def __len__(self) -> int:
        return len(self._looked_at())

    def add(self, source: str, level: str, text: str) -> None:
        """Add one line; the rest of an overlong one is cut."""
        with self._lock:
            self._take_in()
            self._append(time.time(), source, level, text)
            self.total += 1

    def add_stderr(self, lines: Sequence[str]) -> None:
        """Add lines the server wrote to its standard error."""
        with self._lock:
            self._raw.append((time.time(), lines))
            self._raw_count += len(lines)
            self.total += len(lines)
            if self._logger.isEnabledFor(logging.INFO) or max(map(len, lines), default=0) > MAX_LINE:
                self._take_in()
            while self._raw and self._raw_count - len(self._raw[0][1]) >= (self._lines.maxlen or 0):
                self._raw_count -= len(self._raw.popleft()[1])

    def tail(self, count: int | None = None, source: str | None = None) -> list[LogLine]:
        """The last lines, oldest first.

        Args:
            count: At most so many; None for all kept.
            source: Only from there.
        """
        lines = [line for line in self._looked_at() if source is None or line.source == source]
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

    def _looked_at(self) -> deque[LogLine]:
        with self._lock:
            self._take_in()
            return self._lines.copy()

    def _take_in(self) -> None:
        """Make lines of what is raw."""
        for now, lines in self._raw:
            for line in lines:
                self._append(now, "stderr", "info", line)
        self._raw.clear()
        self._raw_count = 0

    def _append(self, now: float, source: str, level: str, text: str) -> None:
        text = mask(text)
        if len(text) > MAX_LINE:
            text = f"{text[:MAX_LINE]}… ({len(text):,} characters)"
        self._lines.append(LogLine(now, source, level, text))
        number = _LEVELS.get(level, logging.INFO)
        if self._logger.isEnabledFor(number):
            self._logger.log(number, "%s: %s", source, text)
