"""Many calls of one tool, with limits of concurrency and rate, retries where they are safe, and an early stop.

A run belongs to the background loop. Jobs are fed to it, all at once or bit by bit, and each ends in one `RowOutcome`.
A tool that may change something is never called twice for a row: if it is not known whether the server has executed the
call, the row is `unknown`.
"""

from __future__ import annotations

import asyncio
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
CANCELLED, INTERRUPTED = "by the user", "when it was interrupted"
_TRANSIENT: Final = frozenset({429, 502, 503, 504})
"""HTTP statuses after which the same request may succeed."""
_TOO_MANY_REQUESTS: Final = 429
"""The HTTP status of a request that the server has refused without processing it."""
_NOT_EXECUTED: Final = (ToolError, RpcError, PolicyError, AuthError)
"""Errors after which it is known that the call failed: reported by the server, or raised before the call was sent."""
_BURST_TIMEOUT: Final = 0.002
"""Maximum seconds for which a call waits to be sent together with others."""
_FIRST_PAUSE, _MAX_PAUSE = 0.5, 30.0
"""Seconds before the first retry of a call, and their maximum. A server's own Retry-After may be longer."""


class MapSettings(Struct, frozen=True, kw_only=True):
    """The settings of a run.

    Attributes:
        concurrency: Maximum number of calls at the same time.
        rate: Maximum number of calls a second over the whole run; None for no limit.
        retries: Maximum number of retries of a call after transient errors.
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
            self.stop(INTERRUPTED)
            raise
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            if self._waiting:
                self.stop("by an error")

    async def _work(self) -> None:
        while (job := await self._next()) is not None:
            calls = self.calls
            outcome = NOT_CALLED
            try:
                outcome = await self._outcome(job)
                self._stop_after_failures(outcome)
            except BaseException:
                if self.calls > calls and not self._is_repeatable:
                    outcome = _interrupted()
                raise
            finally:
                self._ended(job, outcome)
            await self._wait_for_burst()

    async def _wait_for_burst(self) -> None:
        """Wait for a short time, until several workers can send their calls together.

        If client and server alternate for every single call, each call costs a switch of the process: on a busy
        machine, bursts of several calls give many times the throughput.
        """
        if len(self._running) <= self.settings.concurrency // 4:
            self._begin_burst()
            return
        if self._burst is None:
            self._burst = asyncio.Event()
            self._burst_timer = asyncio.get_running_loop().call_later(_BURST_TIMEOUT, self._begin_burst)
        await self._burst.wait()

    def _begin_burst(self) -> None:
        if self._burst is not None and self._burst_timer is not None:
            self._burst.set()
            self._burst_timer.cancel()
            self._burst = self._burst_timer = None

    async def _next(self) -> Job | None:
        while not self._waiting:
            if self._is_closed:
                return None
            self._changed.clear()
            await self._changed.wait()
        return self._waiting.popleft()

    async def _outcome(self, job: Job) -> RowOutcome:
        """Call, and retry while that is safe and may help."""
        for attempt in range(self.settings.retries + 1):
            call: Call[ToolResult] | None = None
            try:
                await self._wait_for_turn()
                await self._wait_for_server()
                call = self._make(job.arguments)
                self.retried += attempt > 0
                return RowOutcome("succeeded", await self._answer(call))
            except _Stopped:
                return NOT_CALLED
            except CallCancelled:
                return NOT_CALLED if self._is_repeatable else _interrupted()
            except McpError as error:
                error.__traceback__ = None  # or thousands of errors would keep their frames in memory
                self._hold_calls(error)
                was_sent = call is not None and call.was_sent
                if attempt == self.settings.retries or not self._may_repeat(error, was_sent=was_sent):
                    return RowOutcome(self._state_after(error, was_sent=was_sent), error=error)
                if not isinstance(error, HttpError) or error.retry_after is None:
                    pause = min(_FIRST_PAUSE * 2**attempt, _MAX_PAUSE)
                    await self._sleep(pause * random.uniform(0.5, 1.0))
        raise AssertionError("unreachable")

    async def _answer(self, call: Call[ToolResult]) -> ToolResult:
        self.calls += 1
        self.sent += len(call.arguments)
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

    # -- waiting ------------------------------------------------------------------------------------------------------

    async def _wait_for_turn(self) -> None:
        """Wait until the rate allows a call and the server has not asked to wait.

        Raises:
            _Stopped: The run was stopped.
        """
        if self.settings.rate is not None:
            turn = max(self._next_start, time.monotonic())
            self._next_start = turn + 1 / self.settings.rate
            await self._sleep(turn - time.monotonic())
        while self.held_for:
            await self._sleep(self.held_for)
        if self.stopped:
            raise _Stopped

    async def _wait_for_server(self) -> None:
        if self._session.client is None:
            settled = asyncio.ensure_future(self._session.settled())
            halted = asyncio.ensure_future(self._halted.wait())
            try:
                await asyncio.wait((settled, halted), return_when=asyncio.FIRST_COMPLETED)
            finally:
                settled.cancel()
                halted.cancel()
            if self.stopped:
                raise _Stopped

    async def _sleep(self, seconds: float) -> None:
        if seconds <= 0:
            return
        try:
            async with asyncio.timeout(seconds):
                await self._halted.wait()
        except TimeoutError:
            return
        raise _Stopped

    def _hold_calls(self, error: McpError) -> None:
        """Delay all further calls by the time that the server has asked for (Retry-After)."""
        if isinstance(error, HttpError) and error.retry_after is not None:
            self._held_until = max(self._held_until, time.monotonic() + error.retry_after)

    # -- errors -------------------------------------------------------------------------------------------------------

    def _may_repeat(self, error: McpError, *, was_sent: bool) -> bool:
        is_safe = self._is_repeatable or not was_sent
        if isinstance(error, HttpError):
            return error.status == _TOO_MANY_REQUESTS or (is_safe and error.status in _TRANSIENT)
        return is_safe and isinstance(error, CallTimeout | ConnectionLost | ServerStopped)

    def _state_after(self, error: McpError, *, was_sent: bool) -> RowState:
        """The state of a row after an error: `unknown` if the server may have executed the call."""
        if self._is_repeatable or not was_sent or isinstance(error, _NOT_EXECUTED):
            return "failed"
        return "failed" if isinstance(error, HttpError) and error.status < 500 else "unknown"

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


def _interrupted() -> RowOutcome:
    return RowOutcome("unknown", error=CallCancelled("was interrupted before the server had answered"))


def message_of(error: McpError) -> str:
    """The line that a table of results shows for an error."""
    return f"{type(error).__name__}: {error.message}"
