"""The logs of servers and their JSON-RPC messages, as views follow them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from ipymcp.panel.messages import ServerFields, ToView
from ipymcp.protocol.recording import MessageKind
from ipymcp.text import visible

if TYPE_CHECKING:
    from ipymcp.protocol.recording import MessageRecorder, RecordedMessage
    from ipymcp.runtime.events import RollingLog
    from ipymcp.runtime.host import Host


_MAX_LINES = 500
_MAX_CHARACTERS = 100_000
"""Maximum characters of one batch."""
_MAX_METHOD = 200
_FLOOD_INTERVAL = 0.3
"""Seconds between batches while lines are dropped: no one reads thousands of lines a second."""


class FollowFields(ServerFields):
    """A command to start or stop following a server's log or messages."""

    on: bool
    """Whether to start."""
    since: int | None = None
    """The number of the last line or message that the view has."""


class LogRow(ToView):
    """A line of a log."""

    n: int
    time: float
    level: str
    source: str
    text: str


class LogBatch(ToView, tag_field="kind", tag="log"):
    """New lines of a log that the view follows."""

    server: str
    lines: list[LogRow]
    dropped: int
    """The number of lines before these that are not sent."""


class MessageRow(ToView):
    """A JSON-RPC message between the kernel and a server."""

    n: int
    time: float
    sent: bool
    type: MessageKind
    method: str
    id: str | None
    size: int
    duration: float | None
    """Seconds from the request to this response."""
    text: str
    """The beginning of the message, at most `size` bytes."""


class MessageBatch(ToView, tag_field="kind", tag="protocol"):
    """New messages of a server that the view follows."""

    server: str
    lines: list[MessageRow]
    dropped: int
    """The number of messages before these that are not sent."""


class LogNumbers:
    """Line numbers of server logs, which continue when a reloaded server gets a new log."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[RollingLog, int]] = {}

    def first(self, server: str, log: RollingLog) -> int:
        """The number before the first line of a log."""
        known = self._known.get(server)
        if known is None or known[0] is not log:
            known = self._known[server] = log, 0 if known is None else known[1] + known[0].total
        return known[1]


class Reader(Protocol):
    """Reads for a view the new lines of a log, the new messages of a server, or the changes of a resource."""

    @property
    def has_news(self) -> bool:
        """Whether there is anything new to read."""
        ...

    def read(self) -> ToView | None:
        """Return what is new; None if there is nothing."""
        ...

    def close(self) -> None:
        """Release what the reader holds; called when the view no longer follows."""


class LogReader(Reader):
    """Reader that follows one server's log.

    Args:
        server: The server's name.
        host: The host, which may reload the server.
        numbers: The panel's line numbers.
        since: The number of the last line that the view has; None for all kept lines.
    """

    def __init__(self, server: str, host: Host, numbers: LogNumbers, since: int | None) -> None:
        self._server = server
        self._host = host
        self._numbers = numbers
        self._last = since
        """The number of the last line that was read or dropped."""
        self._not_before = 0.0

    @property
    def has_news(self) -> bool:
        """Whether there are new lines."""
        session = self._host.sessions.get(self._server)
        if session is None or time.monotonic() < self._not_before:
            return False
        return self._last is None or self._numbers.first(self._server, session.log) + session.log.total != self._last

    def read(self) -> LogBatch | None:
        """Return the last of the new lines, and the number of dropped ones; None if there are none."""
        session = self._host.sessions.get(self._server)
        if session is None or not self.has_news:
            return None
        log = session.log
        total = self._numbers.first(self._server, log) + log.total
        unread = log.total if self._last is None or self._last > total else total - self._last
        self._last = total
        lines = log.tail(min(unread, _MAX_LINES))
        shown: list[LogRow] = []
        size = 0
        for number, line in zip(range(total, 0, -1), reversed(lines), strict=False):
            size += len(line.text)
            if size > _MAX_CHARACTERS:
                break
            level, text = visible(line.level), visible(line.text)
            shown.append(LogRow(n=number, time=line.time, level=level, source=line.source, text=text))
        dropped = unread - len(shown)
        self._not_before = time.monotonic() + _FLOOD_INTERVAL if dropped else 0.0
        return LogBatch(server=self._server, lines=shown[::-1], dropped=dropped)


class MessageReader(Reader):
    """Reader that follows the JSON-RPC messages of one server, also after the server is reloaded.

    Args:
        server: The server's name.
        host: The host, which may reload the server.
        recorder: Records the messages.
        since: The number of the last message that the view has; None for all kept messages.
    """

    def __init__(self, server: str, host: Host, recorder: MessageRecorder, since: int | None) -> None:
        self._server = server
        self._host = host
        self._recorder = recorder
        self._last = since or 0
        self._not_before = 0.0

    @property
    def has_news(self) -> bool:
        """Whether there are new messages."""
        session = self._host.sessions.get(self._server)
        if session is not None and session.recorder is not self._recorder:
            session.record(self._recorder)
        return self._recorder.total != self._last and time.monotonic() >= self._not_before

    def read(self) -> MessageBatch | None:
        """Return the last of the new messages, and the number of dropped ones; None if there are none."""
        if not self.has_news:
            return None
        messages = self._recorder.tail(_MAX_LINES)
        first, total = self._last, self._recorder.total
        shown: list[MessageRow] = []
        size = 0
        for message in reversed(messages):
            size += len(message.head)
            if message.number <= first or (shown and size > _MAX_CHARACTERS):
                break
            shown.append(_message_row(message))
        self._last = max(total if not messages else messages[-1].number, first)
        dropped = self._last - first - len(shown)
        self._not_before = time.monotonic() + _FLOOD_INTERVAL if dropped else 0.0
        return MessageBatch(server=self._server, lines=shown[::-1], dropped=dropped)


def _message_row(message: RecordedMessage) -> MessageRow:
    return MessageRow(
        n=message.number,
        time=message.time,
        sent=message.is_sent,
        type=message.kind,
        method=visible(message.method[:_MAX_METHOD]),
        id=None if message.id is None else visible(str(message.id)[:_MAX_METHOD]),
        size=message.size,
        duration=message.duration,
        text=message.text,
    )
