"""The states of a server's life."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["State"]


class State(StrEnum):
    """Where a server is in its life."""

    DISABLED = "disabled"
    STOPPED = "stopped"
    STARTING = "starting"
    READY = "ready"
    RESTARTING = "restarting"
    ERROR = "error"

    @property
    def is_moving(self) -> bool:
        """Whether it will be another soon, by itself."""
        return self in (State.STARTING, State.RESTARTING)
