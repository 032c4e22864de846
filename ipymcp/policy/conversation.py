"""A conversation with a model, as policy sees it, and the code of the notebook that runs on the model's behalf."""

from __future__ import annotations

import contextlib
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ipymcp.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from ipymcp.policy.filters import Subject
    from ipymcp.policy.rules import Caller

__all__ = ["Actor", "Conversation", "acting", "current_actor", "refuse_models"]


class Conversation:
    """One conversation with a model. It lasts as long as what was said in it is sent to the model again.

    A model is doubted once it has been *given* untrusted content. What came back from calls is only received; it is
    given with the next request to the model.
    """

    def __init__(self) -> None:
        self.doubt = ""
        """The reason to doubt what the model wants, as half a sentence; empty while it has read nothing untrusted."""
        self._received = ""

    @property
    def sources(self) -> str:
        """Where the untrusted content is from that has been received or given; empty for nowhere."""
        return self._received

    def received(self, source: str) -> None:
        """Untrusted content came back, which the next request will give the model."""
        self._received = source

    def given(self) -> None:
        """The model is sent a request with all that was received."""
        if self._received:
            self.doubt = f"the model has read untrusted content from {self._received}"

    def read(self, source: str) -> None:
        """The model is given untrusted content now."""
        self.received(source)
        self.given()


@dataclass(frozen=True)
class Actor:
    """On whose behalf code of the notebook runs: a model's own code, or a function that a model called.

    Attributes:
        caller: Who makes the calls of this code: the model for its own code, the user for a function of theirs.
        conversation: What the code's calls receive comes back to this conversation.
        turn: Names the model's answer.
        permits: Whether the code may call a tool at all.
    """

    caller: Caller
    conversation: Conversation
    turn: str = ""
    permits: Callable[[Subject], bool] = field(default=lambda _: True)


_actor: ContextVar[Actor | None] = ContextVar("ipymcp_actor", default=None)


def current_actor() -> Actor | None:
    """On whose behalf the code that calls this runs; None for the user's own."""
    return _actor.get()


@contextlib.contextmanager
def acting(actor: Actor) -> Generator[None]:
    """Run code on somebody's behalf: in this thread or task, and whatever inherits its context."""
    token = _actor.set(actor)
    try:
        yield
    finally:
        _actor.reset(token)


def refuse_models(what: str) -> None:
    """Refuse what only the user may decide.

    Raises:
        PolicyError: A model's code does it.
    """
    actor = _actor.get()
    if actor is not None and actor.caller == "model":
        raise PolicyError(f"a model's code may not {what}", hint="the user can, in a cell")
