"""A session that the server has forgotten: opened again once, and what it did not accept sent again.

Source: MCP 2025-11-25 transports (session management): an answer 404 to a request with a session id.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from typing import TYPE_CHECKING, Protocol

from ipymcp.errors import ConnectionLost, McpError

if TYPE_CHECKING:
    from ipymcp.protocol.background import Background
    from ipymcp.protocol.transports.base import Message, RequestId

__all__ = ["Reopening", "SessionOwner"]


class SessionOwner(Protocol):
    """Whose session it is: the client."""

    async def shake_hands(self) -> None:
        """Open the session anew."""
        ...

    def undelivered(self, identifier: RequestId, error: McpError) -> None:
        """End one request."""
        ...

    def send_once_more(self, message: Message) -> None:
        """Send a request again, if somebody still waits for it."""
        ...


class Reopening:
    """Opens a forgotten session again. Belongs to the loop, but for `hold` and `drop`.

    Args:
        owner: The client.
        background: Where it happens.
    """

    def __init__(self, owner: SessionOwner, background: Background) -> None:
        self._owner = owner
        self._background = background
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._held: dict[RequestId, Message] = {}
        self._resent: deque[RequestId] = deque(maxlen=256)
        self._is_opening = False
        self.is_open = True
        """Where it is not, what is sent now would belong to no session: `hold` it."""

    def expired(self, message: Message) -> None:
        """The server knows the session of this message no more and did not accept it.

        A notification or a response meant something to the old session only.
        """
        identifier = message.id
        if message.kind != "request" or identifier is None:
            return
        if identifier in self._resent:
            self._resent.remove(identifier)
            self._owner.undelivered(identifier, ConnectionLost("the server forgot its session twice in a row"))
            return
        self._resent.append(identifier)
        self._held[identifier] = message
        self.is_open = False
        self._open()

    def hold(self, message: Message) -> bool:
        """Keep a request until the session is open; from any thread. False if it is open already."""
        with self._lock:
            if self.is_open or message.id is None:
                return False
            self._held[message.id] = message
            if not self._is_opening:
                self._loop.call_soon_threadsafe(self._open)
            return True

    def drop(self, identifier: RequestId) -> bool:
        """Nobody waits for a held request any more; from any thread. False if it is not held."""
        return self._held.pop(identifier, None) is not None

    def _open(self) -> None:
        if not self.is_open and not self._is_opening:
            self._is_opening = True
            self._background.spawn(self._reopen(), "ipymcp-reopen")

    async def _reopen(self) -> None:
        try:
            await self._owner.shake_hands()
        except McpError as error:  # the next request tries again
            self._fail(error.message, error.hint)
        except Exception as error:  # a fault of ours: nobody may wait for ever
            self._fail(f"a fault of ipymcp: {error!r}", None)
            raise
        else:
            for message in self._end(is_open=True):
                self._owner.send_once_more(message)

    def _fail(self, reason: str, hint: str | None) -> None:
        what = f"the server forgot this session, and opening it anew failed: {reason}"
        for message in self._end(is_open=False):
            self._owner.undelivered(message.id or 0, ConnectionLost(what, hint=hint))

    def _end(self, *, is_open: bool) -> list[Message]:
        with self._lock:
            held, self._held = list(self._held.values()), {}
            self._is_opening, self.is_open = False, is_open
            return held
