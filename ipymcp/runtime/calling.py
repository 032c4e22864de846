"""How calls are made: what one is told, what all of a host share, and who shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipymcp.policy.conversation import Conversation
    from ipymcp.policy.questions import Card
    from ipymcp.policy.rules import Caller
    from ipymcp.protocol.wire import Progress
    from ipymcp.runtime.answers import Answers
    from ipymcp.runtime.calls import Call
    from ipymcp.runtime.loop import BackgroundLoop
    from ipymcp.state.history import History

__all__ = ["CallOptions", "CallServices", "Presenter"]


class Presenter(Protocol):
    """Shows the user a call that takes long. Called where the caller waits."""

    def progress(self, call: Call[Any]) -> None:
        """The call reported progress."""
        ...

    def finished(self, call: Call[Any]) -> None:
        """A call that had reported progress is over."""
        ...


class CallOptions(msgspec.Struct, frozen=True):
    """How one call is made.

    Attributes:
        timeout: Seconds without progress after which it is given up.
        max_timeout: Seconds after which it is given up, progress or not.
        on_progress: Called with each `Progress`, where the caller waits; a coroutine function runs on its own loop.
        as_task: Whether to ask for a task, of a server of the handshake era.
        caller: On whose behalf: what a model or an app wants to call the user is asked about.
        turn: Names the model's answer that it is a part of, so that one consent may cover all of that.
        conversation: That the answer is a part of.
        card: Shows it, and is told what the user is asked about it.
    """

    timeout: float = 30.0
    max_timeout: float = 600.0
    on_progress: Callable[[Progress], Any] | None = None
    as_task: bool = False
    caller: Caller = "user"
    turn: str = ""
    conversation: Conversation | None = None
    card: Card | None = None

    def changed(
        self,
        timeout: float | None,
        on_progress: Callable[[Progress], Any] | None,
        as_task: bool | None = None,
        caller: Caller | None = None,
        turn: str | None = None,
    ) -> CallOptions:
        """With what is given instead of what was; a longer `timeout` also moves the last deadline."""
        options = msgspec.structs.replace(self, caller=caller or self.caller, turn=self.turn if turn is None else turn)
        if timeout is not None:
            options = msgspec.structs.replace(options, timeout=timeout, max_timeout=max(timeout, self.max_timeout))
        if as_task is not None:
            options = msgspec.structs.replace(options, as_task=as_task)
        return options if on_progress is None else msgspec.structs.replace(options, on_progress=on_progress)


class CallServices(msgspec.Struct, eq=False):
    """What all calls of a host share."""

    loop: BackgroundLoop
    handlers: BackgroundLoop
    running: dict[int, Call[Any]]
    answers: Answers
    history: History
    presenter: Presenter | None = None
