"""What the user is to be told at the next occasion: things go wrong in threads that must not print."""

from __future__ import annotations

import logging
from collections import deque

__all__ = ["Notices"]

_LOGGER = logging.getLogger("ipymcp")
_LOGGER.addHandler(logging.NullHandler())  # else logging would print it, too, where the user has not set it up
_MOST = 20


class Notices:
    """What was not told yet. May be used from any thread."""

    def __init__(self) -> None:
        self._waiting: deque[str] = deque(maxlen=_MOST)

    def add(self, text: str) -> None:
        """Have it told, once if it is the same again; it is logged now."""
        _LOGGER.warning("%s", text)
        if text not in self._waiting:
            self._waiting.append(text)

    def take(self) -> list[str]:
        """What was not told yet, oldest first; whoever takes it tells it."""
        taken: list[str] = []
        while self._waiting:
            taken.append(self._waiting.popleft())
        return taken
