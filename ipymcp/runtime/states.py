"""The states of a server's life."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["State", "state_word"]


class State(StrEnum):
    """Where a server is in its life."""

    DISABLED = "disabled"
    STOPPED = "stopped"
    STARTING = "starting"
    READY = "ready"
    NEEDS_TRUST = "needs_trust"
    """The user has not agreed that it may run."""
    NEEDS_AUTH = "needs_auth"
    """It wants a login: one is under way, or was not made."""
    UNREACHABLE = "unreachable"
    """A remote server that was there and cannot be reached now; it is looked for."""
    RESTARTING = "restarting"
    ERROR = "error"

    @property
    def word(self) -> str:
        """The state as users read it, the same in tables, messages and the panel."""
        return state_word(self.value)

    @property
    def is_moving(self) -> bool:
        """Whether it will be another soon, by itself."""
        return self in (State.STARTING, State.RESTARTING)

    @property
    def is_troubled(self) -> bool:
        """Whether a call may be refused, and may as well be answered."""
        return self in (State.NEEDS_AUTH, State.UNREACHABLE)


def state_word(value: str) -> str:
    """A state, or the last known status of a server, as users read it."""
    return _WORDS.get(value, value)


_WORDS = {"error": "failed", "needs_trust": "needs trust", "needs_auth": "needs login"}
