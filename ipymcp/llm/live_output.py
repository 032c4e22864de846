"""The live display of a model's answer: its text, its reasoning, and a card for each tool call."""

from __future__ import annotations

import asyncio
import importlib
import time
from typing import TYPE_CHECKING, Any, Final, Protocol

from ipymcp.interaction.questions import ALLOWING, DECISIONS
from ipymcp.protocol.types import is_object
from ipymcp.text import cut, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ipymcp.interaction.questions import ApprovalAnswer, CallApp
    from ipymcp.llm.answer import ModelCall, ToolCallRequest
    from ipymcp.llm.backend import Clock, RequestPreview
    from ipymcp.runtime.host import Host


_INTERVAL: Final = 0.1
"""Seconds between two updates of the text, or of the arguments of a call."""
_TICK: Final = 1.0
"""Seconds between two updates of how long the model has been thinking."""
_MAX_DRAFT: Final = 1_000_000
"""Maximum characters of unfinished arguments that an app is given, and their number in a second."""
_REASONS: Final = {"refused": "the call was refused", "cancelled": "the call was cancelled"}
"""The reasons for which a call has no result, by its state, as apps are told. The server need not know a policy."""
_MAX_REASON: Final = 300


class OutputListener(Protocol):
    """A display of an answer as it arrives. Its methods are called in the thread where the user waits."""

    def show_request(self, request: RequestPreview) -> None:
        """Show the request that is sent."""
        ...

    def show_waiting(self, seconds: int | None) -> None:
        """Show for how long the model has been thinking; None when it no longer is."""
        ...

    def show_text(self, text: str) -> None:
        """Append text of the model."""
        ...

    def show_thinking(self, text: str) -> None:
        """Append reasoning of the model."""
        ...

    def show_call(self, call: ModelCall) -> None:
        """Show a tool call after each change of its state: when it begins, needs consent, or has ended."""
        ...

    def remove_call(self, call: ModelCall) -> None:
        """Remove a tool call that the model has begun to write, and that is not made."""
        ...

    def show_app(self, call: ModelCall, app: CallApp) -> None:
        """Show the app of a tool call that has not ended, below the call."""
        ...


class LiveOutput:
    """Forwards the events of an answer to a listener in the thread where the user waits; text is collected for 0.1 s.

    It is created on the background loop while the user waits. When the user no longer waits, nothing is shown.
    """

    def __init__(self, host: Host, listener: OutputListener | None) -> None:
        self._host = host
        self._caller = host.questions.caller()
        self._listener = listener
        self.is_seen = listener is not None
        self._texts: list[str] = []
        self._thinking: list[str] = []
        self._due: asyncio.TimerHandle | None = None
        self._open_cards = set[str]()
        self._ticker: asyncio.TimerHandle | None = None
        self._is_asked = False
        """Whether a model is asked, so that it thinks about the results of its calls, too."""

    def begin_waiting(self) -> None:
        """Show each second, from now on, for how long the model has been thinking; called on the background loop."""
        self._is_asked = True
        if self._listener is not None and self._ticker is None:
            self._tick(time.monotonic())

    def _tick(self, began: float) -> None:
        seconds, listener = round(time.monotonic() - began), self._listener
        if listener is not None:
            self.post(lambda: listener.show_waiting(seconds))
        self._ticker = asyncio.get_running_loop().call_later(_TICK, self._tick, began)

    def end_waiting(self) -> None:
        """Show no longer that the model is thinking; called on the background loop."""
        ticker, self._ticker, listener = self._ticker, None, self._listener
        if ticker is not None and listener is not None:
            ticker.cancel()
            self.post(lambda: listener.show_waiting(None))

    def show_request(self, request: RequestPreview) -> None:
        """Show a line about the request; called on the background loop."""
        listener = self._listener
        if listener is not None:
            self.post(lambda: listener.show_request(request))

    def show_text(self, text: str) -> None:
        """Show text; called in the backend's thread."""
        if self._listener is not None and text:
            self._host.loop.call(self.add_text, text)

    def show_thinking(self, text: str) -> None:
        """Show reasoning; called in the backend's thread."""
        if self._listener is not None and text:
            self._host.loop.call(self.add_thinking, text)

    def show_call(self, call: ModelCall) -> None:
        """Show a tool call; called on the background loop."""
        listener = self._listener
        if listener is not None:
            self.flush()
            self.end_waiting()
            self.post(lambda: listener.show_call(call))
            (self._open_cards.discard if call.is_done else self._open_cards.add)(call.card)
            if self._is_asked and not self._open_cards and not call.is_cancelled:
                self.begin_waiting()

    def remove_call(self, call: ModelCall) -> None:
        """Remove a tool call that is not made; called on the background loop."""
        listener = self._listener
        self._open_cards.discard(call.card)
        if listener is not None:
            self.post(lambda: listener.remove_call(call))

    def show_app(self, call: ModelCall, app: CallApp) -> None:
        """Show the app of a tool call; called on the background loop."""
        listener = self._listener
        if listener is not None:
            self.post(lambda: listener.show_app(call, app))

    def post(self, show: Callable[[], None]) -> None:
        """Run a function in the thread where the user waits."""
        if self._caller is not None:
            self._caller.post(show)

    def add_text(self, text: str) -> None:
        """Show text; called on the background loop."""
        if self._thinking:
            self.flush()
        self._collect(self._texts, text)

    def add_thinking(self, text: str) -> None:
        """Show reasoning; called on the background loop."""
        if self._texts:
            self.flush()
        self._collect(self._thinking, text)

    def _collect(self, texts: list[str], text: str) -> None:
        self.end_waiting()
        texts.append(text)
        if self._due is None:
            self._due = asyncio.get_running_loop().call_later(_INTERVAL, self.flush)

    def flush(self) -> None:
        """Show the collected text or reasoning."""
        if self._due is not None:
            self._due.cancel()
            self._due = None
        text, thinking, listener = "".join(self._texts), "".join(self._thinking), self._listener
        self._texts.clear()
        self._thinking.clear()
        if thinking and listener is not None:
            self.post(lambda: listener.show_thinking(thinking))
        if text and listener is not None:
            self.post(lambda: listener.show_text(text))


class CallCard:
    """The `Card` of one tool call of an answer, on the background loop. The clock is paused while the user is asked.

    Args:
        call: The call.
        output: The display of the answer.
        clock: The answer's clock.
        is_over: Returns whether the answer was stopped.
        app: The app that shows the call before it has a result; None if there is none.
    """

    def __init__(
        self,
        call: ModelCall,
        output: LiveOutput,
        clock: Clock,
        is_over: Callable[[], bool] = lambda: False,
        app: CallApp | None = None,
    ) -> None:
        self.call = call
        self.app = app
        self._output = output
        self._clock = clock
        self._is_over = is_over
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

    def write(self, arguments: Any) -> None:
        """Show the arguments as far as the model has written them."""
        self.call.arguments = arguments
        self._output.show_call(self.call)

    def make(self, arguments: Any) -> None:
        """Show the complete arguments of a call that the model has written, and that is made now."""
        self.call.is_draft, self._began = False, time.monotonic()
        self.write(arguments)

    def remove(self) -> None:
        """Remove a call that the model has begun to write, and that is not made."""
        self._output.remove_call(self.call)

    def show_question(self, key: str) -> None:
        """Show that the user is being asked, on the card with this key."""
        self._asked = time.monotonic()
        self._clock.pause()
        self.call.asked_at = key
        self._output.show_call(self.call)

    def set_arguments(self, arguments: Mapping[str, Any]) -> None:
        """Set the arguments that are sent to the tool."""
        self.call.is_edited = self.call.sent is not None
        self.call.sent = dict(arguments)

    def show_answer(self, answer: ApprovalAnswer | None) -> None:
        """Show the user's answer."""
        self._resume()
        self.call.decision, self.call.is_refused = DECISIONS[answer], answer not in ALLOWING
        if not self.call.is_done:
            self._output.show_call(self.call)

    def begin(self, arguments: bytes) -> bool:
        """Note that the call is about to be made; False if it must not be made, because the answer was stopped."""
        self.call.was_made = True  # before the check, because the answer may be stopped in another thread
        if self._is_over():
            self.call.was_made = False
        elif self.app is not None:
            self.app.begin(arguments)
        return self.call.was_made

    def finish(self, text: str, value: Any, *, is_error: bool) -> None:
        """Show the outcome of the call."""
        self._resume()
        call = self.call
        call.text, call.result, call.is_error = text, value, is_error
        call.seconds, call.is_done = time.monotonic() - self._began, True
        if self.app is not None and is_error:  # no result of the tool, or one that the app has already
            reason = _REASONS.get(call.state) or one_line(cut(text, _MAX_REASON))
            self.app.cancel(reason, call.sent)
        self._output.show_call(call)

    def _resume(self) -> None:
        self.call.asked_at = ""
        if self._asked is not None:
            self._clock.resume()
            self._began += time.monotonic() - self._asked
            self._asked = None


class CallDraft:
    """A call whose arguments the model is writing; on the background loop.

    All that was written is parsed each time, so the more it is, the less often that happens.

    Args:
        request: The call, with the beginning of its arguments.
        card: The call's card, which shows the arguments, unless an app does.
        app: The app, which is given the arguments; None if the tool has none.
        restore: Gives renamed arguments their own names.
    """

    def __init__(
        self, request: ToolCallRequest, card: CallCard, app: CallApp | None, restore: Callable[[Any], Any]
    ) -> None:
        self.card = card
        self._request = request
        self._app = app
        self._restore = restore
        self._texts: list[str] = []
        self._size = 0
        self._due: asyncio.TimerHandle | None = None
        self.add(request.arguments)

    def is_of(self, request: ToolCallRequest) -> bool:
        """Whether this is the draft of a call. The backend adds a number to an id that occurs twice."""
        own = self._request
        return request.name == own.name and (request.id == own.id or request.id.startswith(f"{own.id}-"))

    def add(self, text: str) -> None:
        """Add to the JSON text of the arguments."""
        self._size += len(text)
        if self._size > _MAX_DRAFT:
            self._end()
        elif text:
            self._texts.append(text)
            if self._due is None:
                delay = max(_INTERVAL, self._size / _MAX_DRAFT)
                self._due = asyncio.get_running_loop().call_later(delay, self._send)

    def finish(self, arguments: Any) -> CallCard:
        """Show all arguments, which the user may still be asked about, and return the call's card."""
        self._end()
        if self._app is not None and is_object(arguments) and self._size <= _MAX_DRAFT:
            self._app.write(self._restore(arguments))
        self.card.make(arguments)
        return self.card

    def cancel(self) -> None:
        """End the draft of a call that will not be made. Its card stays only with an app, which it is the title of."""
        self._end()
        if self._app is None:
            self.card.remove()
            return
        self.card.call.is_draft, self.card.call.is_cancelled = False, True
        self.card.finish("cancelled", None, is_error=True)

    def _send(self) -> None:
        self._due = None
        text = "".join(self._texts)
        self._texts = [text]
        if is_object(arguments := _completed(text)):
            shown_on = self.card if self._app is None else self._app
            shown_on.write(self._restore(arguments))

    def _end(self) -> None:
        self._texts.clear()
        if self._due is not None:
            self._due.cancel()
            self._due = None


def _completed(text: str) -> Any:
    """The value of incomplete JSON, with what is open closed; None if there is none yet."""
    parser: Any = importlib.import_module("pydantic_core")  # is there, since a model writes
    try:
        return parser.from_json(text, allow_partial="trailing-strings", allow_inf_nan=False)
    except (TypeError, ValueError):  # a TypeError for lone surrogates
        return None
