"""The options of a call of a tool, and what every call of a host uses and is seen as."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from ipymcp.security.untrusted import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipymcp.interaction.questions import Caller, Card
    from ipymcp.protocol.jsonrpc import TaskState
    from ipymcp.protocol.types import Progress
    from ipymcp.runtime.client_handlers import ClientHandlers
    from ipymcp.runtime.loop import BackgroundLoop
    from ipymcp.runtime.server_status import CallTarget
    from ipymcp.security.rules import CallBatch
    from ipymcp.security.untrusted import CallingModel, Conversation
    from ipymcp.storage.history import History


class RunningCall(Protocol):
    """A call in progress, or a map of many calls.

    Attributes:
        number: The number of the call in this notebook.
        tool: The tool's exact name.
        arguments: The arguments as a JSON object; for a map, those of its first row.
        questions: The questions that the user was asked about the call, with the answers.
        options: The options of the call.
        started: The time of the start, on the clock of `time.monotonic`.
        cell: The execution count of the calling cell.
    """

    number: int
    tool: str
    arguments: bytes
    questions: tuple[str, ...]
    options: CallOptions
    started: float
    cell: int | None

    @property
    def session(self) -> CallTarget:
        """The server."""
        ...

    @property
    def progress(self) -> Progress | None:
        """The last progress reported."""
        ...

    @property
    def task(self) -> TaskState | None:
        """The state of the task that the call has become; None if it is not a task."""
        ...

    def cancel(self) -> bool:
        """Cancel the call; thread-safe. False if it was over already."""
        ...

    def end_if_late(self) -> None:
        """Fail the call with a timeout if its deadline has passed."""
        ...


class Presenter(Protocol):
    """Shows the user a call that takes long. Used in the thread or task that waits for the call."""

    def progress(self, call: RunningCall) -> None:
        """The call reported progress."""
        ...

    def finished(self, call: RunningCall) -> None:
        """A call that had reported progress is over."""
        ...


class CallOptions(msgspec.Struct, frozen=True):
    """The options of one call.

    Attributes:
        timeout: Seconds without progress after which the call fails.
        max_timeout: Seconds after which the call fails, even with progress.
        on_progress: Called with each `Progress` in the thread or task that waits for the call; a coroutine function
            runs on the loop of the user's handlers.
        as_task: Whether to request a task from a server of the handshake era.
        caller: The caller on whose behalf the call is made. Calls of models and apps may need the user's consent.
        turn: Identifies the model's answer that the call belongs to, so that one consent can cover all its calls.
        model: The model that makes the call.
        conversation: The conversation that the model's answer belongs to.
        card: Displays the call and the questions about it.
        origin: The place where the call is made, if not a cell: `panel`.
        batch: The map that the call belongs to.
        is_assumed: Whether the call counts as the model's only because it may be, see `Actor`.
    """

    timeout: float = 30.0
    max_timeout: float = 600.0
    on_progress: Callable[[Progress], Any] | None = None
    as_task: bool = False
    caller: Caller = "user"
    turn: str = ""
    model: CallingModel = UNKNOWN
    conversation: Conversation | None = None
    card: Card | None = None
    origin: str = ""
    batch: CallBatch | None = None
    is_assumed: bool = False

    def changed(
        self,
        timeout: float | None,
        on_progress: Callable[[Progress], Any] | None,
        as_task: bool | None = None,
        caller: Caller | None = None,
        turn: str | None = None,
    ) -> CallOptions:
        """Copy the options with the given values; `max_timeout` becomes at least `timeout`."""
        options = msgspec.structs.replace(self, caller=caller or self.caller, turn=self.turn if turn is None else turn)
        if timeout is not None:
            options = msgspec.structs.replace(options, timeout=timeout, max_timeout=max(timeout, self.max_timeout))
        if as_task is not None:
            options = msgspec.structs.replace(options, as_task=as_task)
        return options if on_progress is None else msgspec.structs.replace(options, on_progress=on_progress)


class CallServices(msgspec.Struct, eq=False):
    """Services that all calls of a host share."""

    loop: BackgroundLoop
    handlers: BackgroundLoop
    running: dict[int, RunningCall]
    client_handlers: ClientHandlers
    history: History
    presenter: Presenter | None = None
