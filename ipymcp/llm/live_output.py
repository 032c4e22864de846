"""An answer as it comes, brought to where the user waits."""

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
"""Seconds between two looks of the audience at what is said."""


class OutputListener(Protocol):
    """Shows an answer as it comes. Called where the user waits."""

    def begins(self, beginning: RequestPreview) -> None:
        """This is sent."""
        ...

    def says(self, text: str) -> None:
        """The model says more."""
        ...

    def calls(self, call: ModelCall) -> None:
        """A call begins, is asked about, or has ended."""
        ...


class LiveOutput:
    """Brings what happens to an audience, where the user waits, at a pace that can be watched.

    Made on the background loop once the user waits. When they wait no more, nothing is shown any more: what still
    happens happens elsewhere.
    """

    def __init__(self, host: Host, audience: OutputListener | None) -> None:
        self._host = host
        self._place = host.desk.place()
        self._audience = audience
        self.is_seen = audience is not None
        self._said: list[str] = []
        self._due: asyncio.TimerHandle | None = None

    def says(self, text: str) -> None:
        """From the driver's thread."""
        if self._audience is not None and text:
            self._host.loop.call(self._note, text)

    def calls(self, call: ModelCall) -> None:
        """On the background loop."""
        audience = self._audience
        if audience is not None:
            self.flush()
            self.post(lambda: audience.calls(call))

    def post(self, show: Callable[[], None]) -> None:
        """Have something shown."""
        if self._place is not None:
            self._place.post(show)

    def _note(self, text: str) -> None:
        self._said.append(text)
        if self._due is None:
            self._due = asyncio.get_running_loop().call_later(_INTERVAL, self.flush)

    def flush(self) -> None:
        """Show what was said and is not shown yet."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        text, audience = "".join(self._said), self._audience
        self._said.clear()
        if text and audience is not None:
            self.post(lambda: audience.says(text))


class CallCard:
    """A `Card` of one call of an answer, on the background loop. The answer's clock stands still while it asks.

    Args:
        call: Which.
        scene: Where it is shown.
        clock: The answer's.
    """

    def __init__(self, call: ModelCall, scene: LiveOutput, clock: Clock) -> None:
        self.call = call
        self._scene = scene
        self._clock = clock
        self._began = time.monotonic()
        self._asked: float | None = None
        scene.calls(call)

    @property
    def key(self) -> str:
        """Names it."""
        return self.call.card

    @property
    def number(self) -> int:
        """Which call of its answer it is."""
        return self.call.number

    def asks(self, key: str) -> None:
        """The user is being asked."""
        self._asked = time.monotonic()
        self._clock.pause()
        self.call.asked_at = key
        self._scene.calls(self.call)

    def answered(self, answer: ApprovalAnswer | None) -> None:
        """The user has answered."""
        self._go_on()
        self.call.decision, self.call.is_refused = DECISIONS[answer], answer not in ALLOWING
        if not self.call.is_done:
            self._scene.calls(self.call)

    def over(self, text: str, value: Any, *, is_error: bool) -> None:
        """It has ended."""
        self._go_on()
        call = self.call
        call.text, call.result, call.is_error = text, value, is_error
        call.seconds, call.is_done = time.monotonic() - self._began, True
        self._scene.calls(call)

    def _go_on(self) -> None:
        self.call.asked_at = ""
        if self._asked is not None:
            self._clock.go_on()
            self._began += time.monotonic() - self._asked
            self._asked = None
