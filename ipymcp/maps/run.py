"""Many calls of one tool, with limits of concurrency and rate, retries where they are safe, and an early stop.

A run belongs to the background loop. Jobs are fed to it, all at once or bit by bit, and each ends in one `RowOutcome`.
A tool that may change something is never called twice for a row: if it is not known whether the server has executed the
call, the row is `unknown`.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import deque
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import Struct

from ipymcp.errors import (
    AuthError,
    CallCancelled,
    CallTimeout,
    ConnectionLost,
    HttpError,
    McpError,
    PolicyError,
    RpcError,
    ServerStopped,
    ToolError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ipymcp.results.tool_result import ToolResult
    from ipymcp.runtime.call import Call
    from ipymcp.runtime.session import ServerSession


RowState: TypeAlias = Literal["succeeded", "failed", "unknown", "not called"]
ROW_STATES: Final[tuple[RowState, ...]] = ("succeeded", "failed", "unknown", "not called")
CANCELLED, INTERRUPTED, SERVER_STOPPED = "by the user", "when it was interrupted", "because its server was stopped"
_TRANSIENT: Final = frozenset({502, 503, 504})
"""HTTP statuses after which the same request may succeed."""
_TOO_MANY_REQUESTS: Final = 429
"""The HTTP status of a request that the server has refused without processing it."""
_NOT_EXECUTED: Final = (ToolError, RpcError, PolicyError, AuthError)
"""Errors after which it is known that the call failed: reported by the server, or raised before the call was sent."""
_BURST_TIMEOUT: Final = 0.002
"""Maximum seconds for which a call waits to be sent together with others."""
_FIRST_PAUSE, _MAX_PAUSE = 0.5, 30.0
"""Seconds before the first retry of a call, and their maximum. A server's own Retry-After may be longer."""
_REFUSAL_TIMEOUT: Final = 600.0
"""Seconds after which 429 is a failure if the server has refused every call since."""
_MAX_LATENESS: Final = 0.02
"""Maximum seconds by which a timer may be late without lowering the rate of the calls after it."""


class MapSettings(Struct, frozen=True, kw_only=True):
    """The settings of a run.

    Attributes:
        concurrency: Maximum number of calls at the same time.
        rate: Maximum number of calls a second over the whole run; None for no limit.
        retries: Maximum number of retries of a call after transient errors. Unless it is 0, a call that was refused by
            429 is repeated without counting, because the server has done nothing.
        stop_after: The number of failures in a row after which the run stops; 0 for never.
        stops_at_error: Whether the first failure ends the run.
    """

    concurrency: int
    rate: float | None = None
    retries: int = 2
    stop_after: int = 20
    stops_at_error: bool = False


class RowOutcome(Struct, frozen=True):
    """The outcome of a row: a result, an error, or neither if it was not called."""

    state: RowState
    result: ToolResult | None = None
    error: McpError | None = None
    is_cached: bool = False
    """Whether the result is one of an earlier map."""


NOT_CALLED: Final = RowOutcome("not called")


class Job(Struct, frozen=True):
    """One call and the rows that it is for: several rows if their arguments are the same.

    Attributes:
        rows: The numbers of the rows.
        arguments: The arguments as a JSON object.
    """

    rows: tuple[int, ...]
    arguments: bytes


class _Stopped(Exception):
    """The run was stopped before the call was made."""


class MapRun:
    """The calls of one map.

    Args:
        session: The server.
        make: Makes a call that is not sent yet, from the arguments as a JSON object.
        settings: The settings of the run.
        ended: Called on the loop with every job that has ended and its outcome.
        is_repeatable: Whether the tool declares that a repeated call has no additional effect.
    """

    def __init__(
        self,
        session: ServerSession,
        make: Callable[[bytes], Call[ToolResult]],
        settings: MapSettings,
        ended: Callable[[Job, RowOutcome], None],
        *,
        is_repeatable: bool,
    ) -> None:
        self.settings = settings
        self.calls = 0
        """Number of calls made, including retries."""
        self.retried = 0
        """Number of retries."""
        self.sent = self.received = 0
        """Bytes of the arguments of all calls, and bytes of their results."""
        self.stopped: str = ""
        """The reason why the run stopped early; empty if it did not."""
        self.failure: McpError | None = None
        """The first failure."""
        self.is_without_workers = False
        """Whether the calls wait for workers, of which there are none."""
        self._session = session
        self._make = make
        self._is_repeatable = is_repeatable
        self._ended = ended
        self._waiting: deque[Job] = deque()
        self._is_closed = False
        self._changed = asyncio.Event()
        """Set when jobs were fed, or the run was stopped."""
        self._halted = asyncio.Event()
        """Set when the run was stopped."""
        self._entry = asyncio.Lock()
        """Held by the worker that is next to make a call, while it waits until it may."""
        self._call_ended = asyncio.Event()
        """Set when a call has ended, or the run was stopped."""
        self._running: set[Call[ToolResult]] = set()
        self._burst: asyncio.Event | None = None
        """Set when the workers that wait for the next burst of calls may continue."""
        self._burst_timer: asyncio.TimerHandle | None = None
        self._failures = 0
        """Number of failures since the last success."""
        self._next_start = 0.0
        """Earliest time of the next call at the given rate, on the clock of `time.monotonic`."""
        self._held_until = 0.0
        """End of the time for which the server has asked to wait, on the clock of `time.monotonic`."""
        self._width = self._threshold = float(settings.concurrency)
        """Maximum number of concurrent calls for now, and the number from which it grows slowly."""
        self._refusals = 0
        """Number of times that the run has slowed down since the server has last executed a call."""
        self._refused_since, self._slowed_at = math.inf, 0.0
        """Times of the first and the latest of them, on the clock of `time.monotonic`."""

    @property
    def left(self) -> int:
        """Number of jobs that wait or are being called."""
        return len(self._waiting) + len(self._running)

    @property
    def held_for(self) -> float:
        """Seconds from now for which the server has asked to wait (Retry-After)."""
        return max(0.0, self._held_until - time.monotonic())

    def feed(self, jobs: Iterable[Job], *, is_last: bool = False) -> None:
        """On the loop: add jobs. `is_last` ends the run when these and the earlier jobs have ended."""
        self._is_closed = self._is_closed or is_last
        if self.stopped:
            for job in jobs:
                self._ended(job, NOT_CALLED)
        else:
            self._waiting.extend(jobs)
        self._changed.set()

    def start_after(self, seconds: float) -> None:
        """Delay the first call of a run with a rate by this many seconds from now."""
        self._next_start = time.monotonic() + seconds

    def stop(self, why: str) -> None:
        """On the loop: make no further calls. The calls in progress continue."""
        self.stopped = self.stopped or why
        self._is_closed = True
        self._halted.set()
        self._changed.set()
        self._call_ended.set()
        while self._waiting:
            self._ended(self._waiting.popleft(), NOT_CALLED)

    def cancel(self) -> None:
        """On the loop: make no further calls, and cancel the calls in progress."""
        self.stop(CANCELLED)
        for call in tuple(self._running):
            call.cancel()

    async def run(self) -> None:
        """Make the calls until the last job has ended. Cancellation cancels the calls in progress."""
        workers = [asyncio.ensure_future(self._work()) for _ in range(self.settings.concurrency)]
        try:
            await asyncio.gather(*workers)
        except asyncio.CancelledError:
            reason = INTERRUPTED
            try:
                self._session.require()
            except ServerStopped:  # a closing host stops its servers and cancels this
                reason = SERVER_STOPPED
            except McpError:
                pass
            self.stop(reason)
            raise
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            if self._waiting:
                self.stop("by an error")

    async def _work(self) -> None:
        """Make one call after the other.

        After a call, a worker waits for a short time, until several can send their calls together. If client and server
        alternate for every single call, each call costs a switch of the process: on a busy machine, bursts of several
        calls give many times the throughput.
        """
        while True:
            while not self._waiting:
                if self._is_closed:
                    return
                self._changed.clear()
                await self._changed.wait()
            self._stop_after_failures(await self._call(self._waiting.popleft()))
            if len(self._running) <= self.settings.concurrency // 4:
                self._begin_burst()
                continue
            if self._burst is None:
                self._burst = asyncio.Event()
                self._burst_timer = asyncio.get_running_loop().call_later(_BURST_TIMEOUT, self._begin_burst)
            await self._burst.wait()

    def _begin_burst(self) -> None:
        if self._burst is not None and self._burst_timer is not None:
            self._burst.set()
            self._burst_timer.cancel()
            self._burst = self._burst_timer = None

    async def _call(self, job: Job) -> RowOutcome:
        """Call, and retry while that is safe and may help. If the run ends before a retry, the last error remains."""
        outcome, failures, began = NOT_CALLED, 0, 0.0
        call: Call[ToolResult] | None = None
        try:
            while True:
                try:
                    await self._wait_for_turn()
                    self.retried += began > 0
                    began = time.monotonic()
                    call = self._make(job.arguments)
                    outcome = RowOutcome("succeeded", await self._answer(call))
                    self._adapt(None, began)
                    return outcome
                except CallCancelled:
                    outcome = self._abandoned(call)
                    return outcome
                except McpError as error:
                    error.__traceback__ = None  # or thousands of errors would keep their frames in memory
                    self._adapt(error, began)
                    was_sent, call = call is not None and call.was_sent, None
                    if isinstance(error, ServerStopped):
                        self.failure = self.failure or error
                        self.stop(SERVER_STOPPED)
                        if self._is_repeatable or not was_sent:
                            outcome = NOT_CALLED
                            return outcome
                    outcome = RowOutcome(self._state_after(error, was_sent=was_sent), error=error)
                    is_refused = _status(error) == _TOO_MANY_REQUESTS
                    failures += not is_refused
                    if not self._may_repeat(error, failures, was_sent=was_sent):
                        return outcome
                    if is_refused:
                        outcome = NOT_CALLED
                    elif not isinstance(error, HttpError) or error.retry_after is None:
                        await self._sleep(_pause(failures))
        except _Stopped:
            return outcome
        except BaseException:
            if call is not None:
                outcome = self._abandoned(call)
            raise
        finally:
            self._ended(job, outcome)

    async def _answer(self, call: Call[ToolResult]) -> ToolResult:
        self._running.add(call)
        try:
            await call.run_on_loop()
            result = call.result()
            self.received += result.size
            return result
        except asyncio.CancelledError:
            call.cancel()
            raise
        finally:
            self._running.discard(call)
            self._call_ended.set()
            if call.was_sent:
                self.calls += 1
                self.sent += len(call.arguments)

    # -- waiting ------------------------------------------------------------------------------------------------------

    async def _wait_for_turn(self) -> None:
        """Wait until the server is ready and has not asked to wait, and until concurrency and rate allow a call.

        Raises:
            _Stopped: The run was stopped.
        """
        async with self._entry:
            while True:
                if self._session.client is None:
                    waits = [asyncio.ensure_future(wait) for wait in (self._session.settled(), self._halted.wait())]
                    try:
                        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                    finally:
                        for wait in waits:
                            wait.cancel()
                if self.stopped:
                    raise _Stopped
                now = time.monotonic()
                if (pause := max(self._held_until, self._next_start) - now) > 0:
                    await self._sleep(pause)
                elif len(self._running) >= int(self._width):
                    self._call_ended.clear()
                    await self._call_ended.wait()
                else:
                    break
            if self.settings.rate is not None:
                is_late = now - self._next_start < _MAX_LATENESS
                self._next_start = (self._next_start if is_late else now) + 1 / self.settings.rate

    async def _sleep(self, seconds: float) -> None:
        if seconds <= 0:
            return
        try:
            async with asyncio.timeout(seconds):
                await self._halted.wait()
        except TimeoutError:
            return
        raise _Stopped

    def _adapt(self, error: McpError | None, began: float) -> None:
        """Adapt the number of concurrent calls to the server's answers, as TCP adapts its window.

        After a refusal all calls are delayed, for as long as the server asks (Retry-After). Then one call goes first;
        with each success there may be more, quickly up to half of the former number, and slowly from there.

        Args:
            error: The error of a call; None after a success.
            began: The start of the call, on the clock of `time.monotonic`.
        """
        if error is None or isinstance(error, ToolError | RpcError):
            growth = 1.0 if self._width < self._threshold else 1 / self._width
            self._width = min(self._width + growth, float(self.settings.concurrency))
            self._refusals, self._refused_since = 0, math.inf
            return
        asked = error.retry_after if isinstance(error, HttpError) else None
        if asked is None and _status(error) != _TOO_MANY_REQUESTS:
            return
        now = time.monotonic()
        if began >= self._slowed_at:  # other calls were sent before the run slowed down
            self._refusals, self._refused_since = self._refusals + 1, min(self._refused_since, now)
            self._threshold, self._width, self._slowed_at = max(1.0, self._width / 2), 1.0, now
        pause = _pause(self._refusals) if asked is None else max(asked, _pause(self._refusals - 1))
        self._held_until = max(self._held_until, now + pause)

    # -- errors -------------------------------------------------------------------------------------------------------

    def _may_repeat(self, error: McpError, failures: int, *, was_sent: bool) -> bool:
        if _status(error) == _TOO_MANY_REQUESTS:
            return self.settings.retries > 0 and time.monotonic() - self._refused_since < _REFUSAL_TIMEOUT
        is_transient = _status(error) in _TRANSIENT or isinstance(error, CallTimeout | ConnectionLost)
        return is_transient and failures <= self.settings.retries and (self._is_repeatable or not was_sent)

    def _state_after(self, error: McpError, *, was_sent: bool) -> RowState:
        """The state of a row after an error: `unknown` if the server may have executed the call."""
        if self._is_repeatable or not was_sent or isinstance(error, _NOT_EXECUTED):
            return "failed"
        return "failed" if isinstance(error, HttpError) and error.status < 500 else "unknown"

    def _abandoned(self, call: Call[ToolResult] | None) -> RowOutcome:
        """The outcome of a row whose call was given up."""
        if self._is_repeatable or call is None or not call.was_sent:
            return NOT_CALLED
        return RowOutcome("unknown", error=CallCancelled("was interrupted before the server had answered"))

    def _stop_after_failures(self, outcome: RowOutcome) -> None:
        """Count a failure, and stop the run if that was one too many; a success resets the count."""
        if outcome.error is None:
            self._failures = 0 if outcome.result is not None else self._failures
            return
        self.failure = self.failure or outcome.error
        self._failures += 1
        if self.settings.stops_at_error:
            self.stop("at the first failure")
        elif isinstance(outcome.error, PolicyError):
            self.stop("because its calls are not allowed")
        elif self.settings.stop_after and self._failures >= self.settings.stop_after:
            self.stop(f"after {self._failures} failures in a row")


def _status(error: McpError) -> int | None:
    """The HTTP status of an error; None if it is not one of HTTP."""
    return error.status if isinstance(error, HttpError) else None


def _pause(failures: int) -> float:
    """Seconds to wait after this many failures in a row, with jitter."""
    return min(_FIRST_PAUSE * 2 ** (failures - 1), _MAX_PAUSE) * random.uniform(0.5, 1.0) if failures else 0.0


def message_of(error: McpError) -> str:
    """The line that a table of results shows for an error."""
    return f"{type(error).__name__}: {error.message}"
