"""A recording of the JSON-RPC messages of one server, for a view that shows them.

A client without a recorder records nothing. A recorder is bounded in messages and bytes, and keeps only the beginning
of a long message. Messages are recorded in any thread, and masked when they are read: a secret may be learned later.
"""

from __future__ import annotations

import re
import threading
import time
from collections import deque
from typing import Final, Literal, NamedTuple, TypeAlias

from ipymcp.masking import LABEL, looks_secret, mask
from ipymcp.protocol import types
from ipymcp.protocol.jsonrpc import find_id
from ipymcp.text import visible

MessageKind: TypeAlias = Literal["request", "response", "error", "notification", "batch", "malformed"]
MAX_MESSAGES: Final = 1_000
MAX_BYTES: Final = 4_000_000
MAX_MESSAGE_BYTES: Final = 20_000
"""Bytes that are kept of one message."""
_DECODED: Final = 1_000_000
"""Bytes of an incoming message up to which its envelope is decoded; of larger ones the ends are searched."""
_MAX_OPEN: Final = 1_000
"""Requests that may wait for the time of their response."""
_COLON = r"(\s{0,20}+:\s{0,20}+)"
_NUMBER = r"-?\d{4,}+[\d.eE+-]*+"
_MEMBER = re.compile(rf'"((?:[^"\\]|\\.){{0,100}}+)"{_COLON}(?:"(?:[^"\\]|\\.)*+(?:"|\\?\Z)|{_NUMBER})')
"""A member whose value is text, or a number of four digits and more. Its bounds keep the search linear."""
_INNER_MEMBER = re.compile(
    rf'\\"([^"\\]{{0,100}}+)\\"{_COLON}'
    rf'(?:\\"(?:[^"\\]|\\\\(?:\\["\\]|[^"\\])|\\[^"\\])*+(?:\\"|(?=")|\\*\Z)|{_NUMBER})'
)
"""The same in JSON within a string of JSON."""
_PUBLIC: Final = frozenset({"progressToken"})
_CONFIDENTIAL: Final = frozenset({"requestState"})


class RecordedMessage(NamedTuple):
    """One recorded message."""

    number: int
    time: float
    """Seconds since the epoch."""
    is_sent: bool
    kind: MessageKind
    method: str
    """The method of a request or notification; of a response, that of its request if it was recorded."""
    id: int | str | float | None
    size: int
    """Bytes of the whole message."""
    duration: float | None
    """Seconds from the request to this response."""
    head: bytes
    """The beginning of the message."""

    @property
    def text(self) -> str:
        """The beginning of the message as visible text, without secrets."""
        text = self.head.decode("utf-8", "replace")
        if self.size > len(self.head):
            text += "…"  # lets the masks find a secret that was cut
        return visible(without_secrets(text))


class MessageRecorder:
    """Records the messages of one server, over all its connections. Thread-safe.

    Args:
        first: The number before that of the first message.
    """

    def __init__(self, first: int = 0) -> None:
        self.total = first
        """Number of messages ever recorded, including dropped ones."""
        self._lock = threading.Lock()
        self._messages: deque[RecordedMessage] = deque()
        self._bytes = 0
        self._open: dict[tuple[bool, str], tuple[float, str]] = {}
        """Time and method of the requests without a response, by direction and id."""

    def sent(self, frame: bytes, kind: MessageKind, identifier: int | str | float | None, method: str) -> None:
        """Record an outgoing message."""
        if kind == "response" and b'"error":' in frame[:200] and b'"result":' not in frame[:200]:
            kind = "error"
        self._add(frame, is_sent=True, kind=kind, identifier=identifier, method=method)

    def received(self, line: bytes | bytearray) -> None:
        """Record an incoming message."""
        kind, identifier, method = _described(line)
        self._add(line, is_sent=False, kind=kind, identifier=identifier, method=method)

    def tail(self, count: int) -> list[RecordedMessage]:
        """The last messages, oldest first."""
        with self._lock:
            return list(self._messages)[-count:] if count > 0 else []

    def _add(
        self,
        data: bytes | bytearray,
        *,
        is_sent: bool,
        kind: MessageKind,
        identifier: int | str | float | None,
        method: str,
    ) -> None:
        now, head, duration = time.time(), bytes(data[:MAX_MESSAGE_BYTES]), None
        with self._lock:
            if kind == "request":
                self._open[is_sent, str(identifier)] = now, method
                if len(self._open) > _MAX_OPEN:
                    del self._open[next(iter(self._open))]
            elif kind in ("response", "error"):
                request = self._open.pop((not is_sent, str(identifier)), None)  # some servers answer with strings
                if request is not None:
                    duration, method = now - request[0], request[1]
            self.total += 1
            message = RecordedMessage(self.total, now, is_sent, kind, method, identifier, len(data), duration, head)
            self._messages.append(message)
            self._bytes += len(head)
            while len(self._messages) > MAX_MESSAGES or self._bytes > MAX_BYTES:
                self._bytes -= len(self._messages.popleft().head)


def _described(line: bytes | bytearray) -> tuple[MessageKind, int | str | float | None, str]:
    """Return the kind, id and method of an incoming message."""
    if len(line) > _DECODED:
        return "response", find_id(line[:4096], line[-4096:]), ""
    try:
        message = types.read_envelope(line)
    except ValueError:
        return "malformed", None, ""
    if isinstance(message, list):
        return "batch", None, ""
    if message.method is not None:
        return "notification" if message.id is None else "request", message.id, message.method
    return "error" if len(message.error) else "response", message.id, ""


def without_secrets(text: str) -> str:
    """Mask the known secrets in JSON, and the values of members whose names indicate a secret."""
    return _INNER_MEMBER.sub(_masked, _MEMBER.sub(_masked, mask(text)))


def _masked(member: re.Match[str]) -> str:
    """Replace the value of a member whose name indicates a secret."""
    name = member[1]
    if name in _CONFIDENTIAL or (looks_secret(name) and name not in _PUBLIC):
        quote = '\\"' if member.re is _INNER_MEMBER else '"'
        return f"{quote}{name}{quote}{member[2]}{quote}{LABEL}{quote}"
    return member[0]
