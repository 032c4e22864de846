"""Live display of an answer in the thread or task where the user waits."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final, Protocol

from ipymcp.interaction.questions import ALLOWING, DECISIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipymcp.interaction.questions import ApprovalAnswer
    from ipymcp.llm.answer import ModelCall
    from ipymcp.llm.backend import Clock, RequestPreview
    from ipymcp.runtime.host import Host


_INTERVAL: Final = 0.1
"""Between two updates of the text."""


class OutputListener(Protocol):
    """A display of an answer as it arrives. Its methods are called where the user waits."""

    def show_request(self, beginning: RequestPreview) -> None:
        """Show the request that is sent."""
        ...

    def show_text(self, text: str) -> None:
        """Append text of the model."""
        ...

    def show_call(self, call: ModelCall) -> None:
        """Show a tool call that begins, asks for consent or has ended."""
        ...


class LiveOutput:
    """Forwards the events of an answer to a listener where the user waits, with text collected for 0.1 s.

    It is created on the background loop while the user waits. After that nothing more is shown.
    """

    def __init__(self, host: Host, listener: OutputListener | None) -> None:
        self._host = host
        self._place = host.desk.place()
        self._listener = listener
        self.is_seen = listener is not None
        self._texts: list[str] = []
        self._due: asyncio.TimerHandle | None = None

    def show_text(self, text: str) -> None:
        """Show text; called in the backend's thread."""
        if self._listener is not None and text:
            self._host.loop.call(self._note, text)

    def show_call(self, call: ModelCall) -> None:
        """Show a tool call; called on the background loop."""
        listener = self._listener
        if listener is not None:
            self.flush()
            self.post(lambda: listener.show_call(call))

    def post(self, show: Callable[[], None]) -> None:
        """Run a function where the user waits."""
        if self._place is not None:
            self._place.post(show)

    def _note(self, text: str) -> None:
        self._texts.append(text)
        if self._due is None:
            self._due = asyncio.get_running_loop().call_later(_INTERVAL, self.flush)

    def flush(self) -> None:
        """Show the collected text."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        text, listener = "".join(self._texts), self._listener
        self._texts.clear()
        if text and listener is not None:
            self.post(lambda: listener.show_text(text))


class CallCard:
    """The `Card` of one tool call of an answer, on the background loop. The clock is paused while the user is asked.

    Args:
        call: The call.
        output: Shows it.
        clock: The answer's clock.
    """

    def __init__(self, call: ModelCall, output: LiveOutput, clock: Clock) -> None:
        self.call = call
        self._output = output
        self._clock = clock
        self._began = time.monotonic()
        self._asked: float | None = None
        output.show_call(call)

    @property
    def key(self) -> str:
        """The card's key."""
        return self.call.card

    @property
    def number(self) -> int:
        """The call's number within the answer."""
        return self.call.number

    def asks(self, key: str) -> None:
        """Show that the user is being asked, on the card with this key."""
        self._asked = time.monotonic()
        self._clock.pause()
        self.call.asked_at = key
        self._output.show_call(self.call)

    def answered(self, answer: ApprovalAnswer | None) -> None:
        """Show the user's answer."""
        self._resume()
        self.call.decision, self.call.is_refused = DECISIONS[answer], answer not in ALLOWING
        if not self.call.is_done:
            self._output.show_call(self.call)

    def over(self, text: str, value: Any, *, is_error: bool) -> None:
        """Show the outcome of the call."""
        self._resume()
        call = self.call
        call.text, call.result, call.is_error = text, value, is_error
        call.seconds, call.is_done = time.monotonic() - self._began, True
        self._output.show_call(call)

    def _resume(self) -> None:
        self.call.asked_at = ""
        if self._asked is not None:
            self._clock.resume()
            self._began += time.monotonic() - self._asked
            self._asked = None
