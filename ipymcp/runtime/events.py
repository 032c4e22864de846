"""Changes that the host announces to its subscribers, and notices for the user's next cell."""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable


class ServerChanged(msgspec.Struct, frozen=True):
    """A server is in another state, or there is news of the one it is in."""

    server: str
    state: str
    detail: str = ""


class ToolsChanged(msgspec.Struct, frozen=True):
    """A server has other tools than before; names as the server has them."""

    server: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


class OffersChanged(msgspec.Struct, frozen=True):
    """A server says that it has other resources or prompts than before; who shows them looks again."""

    server: str
    kind: Literal["resources", "prompts"]


Event: TypeAlias = ServerChanged | ToolsChanged | OffersChanged


class Events:
    """The host's subscribers."""

    def __init__(self) -> None:
        self._subscribers: tuple[Callable[[Event], None], ...] = ()

    def subscribe(self, subscriber: Callable[[Event], None]) -> Callable[[], None]:
        """Have it called with every event from now on.

        Returns:
            What ends that.
        """
        self._subscribers = (*self._subscribers, subscriber)

        def unsubscribe() -> None:
            self._subscribers = tuple(known for known in self._subscribers if known is not subscriber)

        return unsubscribe

    def emit(self, event: Event) -> None:
        """Tell everybody."""
        for subscriber in self._subscribers:
            subscriber(event)


_LOGGER = logging.getLogger("ipymcp")
_LOGGER.addHandler(logging.NullHandler())  # else logging would print it, too, where the user has not set it up
_MAX_COUNT = 20


class UserNotices:
    """Pending notices. May be used from any thread."""

    def __init__(self) -> None:
        self._waiting: deque[str] = deque(maxlen=_MAX_COUNT)

    def add(self, text: str) -> None:
        """Have it told, once if it is the same again; it is logged now."""
        _LOGGER.warning("%s", text)
        if text not in self._waiting:
            self._waiting.append(text)

    def take(self) -> list[str]:
        """Take the pending notices, oldest first."""
        taken: list[str] = []
        while self._waiting:
            taken.append(self._waiting.popleft())
        return taken
