"""Events for the host's subscribers, notices for the user's next cell, and the servers' rolling logs."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import msgspec

from ipymcp.masking import mask

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class ServerChanged(msgspec.Struct, frozen=True):
    """A server has entered another state, or the details of its current state have changed."""

    server: str
    state: str
    detail: str = ""


class ToolsChanged(msgspec.Struct, frozen=True):
    """A server's tools have changed; names as the server has them."""

    server: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


class ServerUnloaded(msgspec.Struct, frozen=True):
    """A server was removed from the notebook."""

    server: str


class ListChanged(msgspec.Struct, frozen=True):
    """A server announced that its resources or prompts have changed; views that show them request them again."""

    server: str
    kind: Literal["resources", "prompts"]


Event: TypeAlias = ServerChanged | ServerUnloaded | ToolsChanged | ListChanged


class Events:
    """Delivers events to the host's subscribers."""

    def __init__(self) -> None:
        self._subscribers: tuple[Callable[[Event], None], ...] = ()

    def subscribe(self, subscriber: Callable[[Event], None]) -> Callable[[], None]:
        """Call a function with every event from now on.

        Returns:
            A function that ends the subscription.
        """
        self._subscribers = (*self._subscribers, subscriber)

        def unsubscribe() -> None:
            self._subscribers = tuple(known for known in self._subscribers if known is not subscriber)

        return unsubscribe

    def emit(self, event: Event) -> None:
        """Call every subscriber with an event."""
        for subscriber in self._subscribers:
            subscriber(event)


_SERVER_LOGGERS = "ipymcp.server"
if not isinstance(logging.Logger.manager.loggerDict.get(_SERVER_LOGGERS), logging.Logger):
    # What servers write is not the program's own log. A program that has set up this logger before keeps its settings.
    logging.getLogger(_SERVER_LOGGERS).propagate = False
for _name in ("ipymcp", _SERVER_LOGGERS):
    logging.getLogger(_name).addHandler(logging.NullHandler())  # without one, logging prints warnings to stderr
_MAX_NOTICES = 20


class UserNotices:
    """Notices that are shown below the user's next cell, or warned of at a script's line. May be used from any thread.

    They are not logged as well: a warning is shown once.
    """

    def __init__(self) -> None:
        self._pending: deque[str] = deque(maxlen=_MAX_NOTICES)

    def add(self, text: str) -> None:
        """Show a notice later, once if the same one is already pending."""
        if text not in self._pending:
            self._pending.append(text)

    def take(self) -> list[str]:
        """Remove and return the pending notices, oldest first."""
        taken: list[str] = []
        while self._pending:
            taken.append(self._pending.popleft())
        return taken


MAX_LINE = 1000
"""Maximum length of a log line in characters."""
LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "notice": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
    "alert": logging.CRITICAL,
    "emergency": logging.CRITICAL,
}
"""The MCP log levels, in the order of severity, and those of `logging`."""
_SEVERITIES = list(LEVELS)


class LogLine(NamedTuple):
    """One line of a log."""

    time: float
    """Seconds since the epoch."""
    source: str
    """`stderr`, `server` (by protocol) or `host`."""
    level: str
    """An MCP log level. A line of stderr has the level that it begins with, or `info`."""
    text: str


_STDERR_LEVEL = re.compile(
    r"[\s\[]*+(?:[\d/:.,TZ+|-][\d/:.,TZ+|\s-]{5,40}+\]?[\s-]*+)?+(?:[\w.-]++\s-\s)?\[?+"
    r"(DEBUG|INFO|NOTICE|WARN(?:ING)?+|ERROR|CRITICAL|FATAL|ALERT|EMERGENCY)\b"
)
"""A level at the beginning of a line or after its time, as `logging`, rich and loguru write it."""
_LEVEL_ALIASES = {"warn": "warning", "fatal": "critical"}


def stderr_level(line: str) -> str:
    """The MCP log level that a line of standard error begins with; `info` if it has none."""
    match = _STDERR_LEVEL.match(line)
    word = match[1].lower() if match else "info"
    return _LEVEL_ALIASES.get(word, word)


def is_at_least(level: str, minimum: str) -> bool:
    """Whether a log level is as severe as another; an unknown one counts as `info`."""
    return _SEVERITIES.index(level if level in LEVELS else "info") >= _SEVERITIES.index(minimum)


class RollingLog:
    """The last lines of one server, mirrored to `logging.getLogger("ipymcp.server.NAME")`, which does not propagate.

    Standard error is kept as it arrives and converted to lines when the log is read: most lines of a flood are dropped
    before that. Written on the background loop, read from any thread.

    Args:
        server: The server's name.
        lines: Maximum number of lines.
    """

    def __init__(self, server: str, lines: int) -> None:
        self._lines: deque[LogLine] = deque(maxlen=lines)
        self._raw: deque[tuple[float, Sequence[str]]] = deque()
        """Unconverted lines, which follow `_lines`, with the time of each group."""
        self._raw_count = 0
        self._lock = threading.Lock()
        self._logger = logging.getLogger(f"ipymcp.server.{server}")
        self.total = 0
        """Number of lines ever logged, including dropped ones."""

    def __len__(self) -> int:
        return len(self._converted())

    def add(self, source: str, level: str, text: str) -> None:
        """Add one line; a long one is truncated."""
        with self._lock:
            self._convert()
            self._append(time.time(), source, level, text)
            self.total += 1

    def add_stderr(self, lines: Sequence[str]) -> None:
        """Add lines that the server wrote to its standard error."""
        with self._lock:
            self._raw.append((time.time(), lines))
            self._raw_count += len(lines)
            self.total += len(lines)
            if self._logger.isEnabledFor(logging.INFO) or max(map(len, lines), default=0) > MAX_LINE:
                self._convert()
            while self._raw and self._raw_count - len(self._raw[0][1]) >= (self._lines.maxlen or 0):
                self._raw_count -= len(self._raw.popleft()[1])

    def tail(self, count: int | None = None, source: str | None = None, *, level: str = "debug") -> list[LogLine]:
        """The last lines, oldest first.

        Args:
            count: Maximum number of lines; None for all.
            source: Only lines of this source.
            level: Only lines of at least this level.
        """
        lines = [
            line
            for line in self._converted()
            if (source is None or line.source == source) and (level == "debug" or is_at_least(line.level, level))
        ]
        return lines if count is None else lines[-count:] if count > 0 else []

    def last_stderr(self, count: int, *, since: int = 0) -> tuple[str, ...]:
        """The last lines of standard error that are not blank, with their indentation.

        Args:
            count: Maximum number of lines.
            since: A former value of `total`; only later lines are considered.
        """
        recent = self.tail(max(self.total - since, 0))
        texts = [line.text.rstrip() for line in recent if line.source == "stderr"]
        return tuple([text for text in texts if text][-count:])

    def last_error(self, *, since: int = 0) -> str:
        """The last line of standard error at the level `error` or above; empty if there is none.

        Args:
            since: A former value of `total`; only later lines are considered.
        """
        count = max(self.total - since, 0)
        recent = reversed(self.tail(count))
        return next(
            (line.text.strip() for line in recent if line.source == "stderr" and is_at_least(line.level, "error")), ""
        )

    def _converted(self) -> deque[LogLine]:
        with self._lock:
            self._convert()
            return self._lines.copy()

    def _convert(self) -> None:
        for now, lines in self._raw:
            for line in lines:
                self._append(now, "stderr", stderr_level(line), line)
        self._raw.clear()
        self._raw_count = 0

    def _append(self, now: float, source: str, level: str, text: str) -> None:
        text = mask(text)
        if len(text) > MAX_LINE:
            text = f"{text[:MAX_LINE]}… ({len(text):,} characters)"
        self._lines.append(LogLine(now, source, level, text))
        number = LEVELS.get(level, logging.INFO)
        if self._logger.isEnabledFor(number):
            self._logger.log(number, "%s: %s", source, text)
