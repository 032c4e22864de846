"""Many calls of one tool: at most so many at once and so many a second, repeated where that is safe, stopped in time.

A run belongs to the background loop. Jobs are fed to it, all at once or bit by bit, and each ends in one `RowOutcome`.
A tool that may change something is never called twice for a row: where it is not known whether the server has done what
was asked, the row is `unknown`.
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
_NOT_RECEIVED: Final = 429
"""The HTTP status of a request that the server has refused to look at."""
_ANSWERED: Final = (ToolError, RpcError, PolicyError, AuthError)
"""Errors by which the server says that it has not done what was asked, or before it was asked."""
_BURST_TIMEOUT: Final = 0.002
"""Seconds for which a call waits at most to be sent together with others."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
"""Seconds before a repeated call: the first time, and at most. A server's own Retry-After may be longer."""


class MapSettings(Struct, frozen=True, kw_only=True):
    """How a run calls.

    Attributes:
        concurrency: The number of calls at the same time, at most.
        rate: The number of calls a second, at most, over the whole run; None for no limit.
        retries: How often a call is repeated after a transient error.
        stop_after: The number of failures in a row after which the run stops; 0 for never.
        stops_at_error: Whether the first failure ends the run.
    """

    concurrency: int
    rate: float | None = None
    retries: int = 2
    stop_after: int = 20
    stops_at_error: bool = False


class RowOutcome(Struct, frozen=True):
    """The outcome of a row: a result, an error, or nothing yet."""

    state: RowState
    result: ToolResult | None = None
    error: McpError | None = None
    is_cached: bool = False
    """Whether the result is one of an earlier map."""


NOT_CALLED: Final = RowOutcome("not called")


class Job(Struct, frozen=True):
    """The rows that one call answers: several if their arguments are the same.

    Attributes:
        rows: The numbers of the rows.
        arguments: A JSON object.
    """

    rows: tuple[int, ...]
    arguments: bytes


class _Stopped(Exception):
    """The run was stopped before the call was made."""


class MapRun:
    """The calls of one map.

    Args:
        session: The server.
        make: Makes a call that is not sent yet, from a JSON object of arguments.
        settings: How to call.
        ended: Is given every job that has ended and its outcome, on the loop.
        is_repeatable: Whether the tool declares that a repeated call changes nothing more.
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
        """Number of calls made, repeated ones too."""
        self.retried = 0
        self.sent = self.received = 0
        """Bytes of the arguments of all calls, and of their results."""
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
        self._running: set[Call[ToolResult]] = set()
        self._burst: asyncio.Event | None = None
        self._burst_timer: asyncio.TimerHandle | None = None
        self._failures = 0
        self._next_start = 0.0
        self._held_until = 0.0

    @property
    def left(self) -> int:
        """Number of jobs that wait or are being called."""
        return len(self._waiting) + len(self._running)

    @property
    def held_for(self) -> float:
        """Seconds for which the server has asked to be left alone from now on."""
        return max(0.0, self._held_until - time.monotonic())

    def feed(self, jobs: Iterable[Job], *, is_last: bool = False) -> None:
        """On the loop: add jobs; after the last ones the run ends when they have ended."""
        self._is_closed = self._is_closed or is_last
        if self.stopped:
            for job in jobs:
                self._ended(job, NOT_CALLED)
        else:
            self._waiting.extend(jobs)
        self._changed.set()

    def start_after(self, seconds: float) -> None:
        """Make the first call of a run with a rate so many seconds from now."""
        self._next_start = time.monotonic() + seconds

    def stop(self, why: str) -> None:
        """On the loop: make no further calls. Those in progress go on to their end."""
        self.stopped = self.stopped or why
        self._is_closed = True
        self._halted.set()
        self._changed.set()
        while self._waiting:
            self._ended(self._waiting.popleft(), NOT_CALLED)

    def cancel(self) -> None:
        """On the loop: make no further calls, and give up those in progress."""
        self.stop(CANCELLED)
        for call in tuple(self._running):
            call.cancel()

    async def run(self) -> None:
        """Call until the last job has ended. Cancelling it cancels the calls in progress."""
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
                self._count(outcome)
            except BaseException:
                if self.calls > calls and not self._is_repeatable:
                    outcome = _interrupted()
                raise
            finally:
                self._ended(job, outcome)
            await self._until_burst()

    async def _until_burst(self) -> None:
        """Wait, for a moment at most, until others may call as well.

        A server and a client that take turns call by call pass the processor on with each; with several calls at a time
        a busy machine makes many times as many a second.
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
        """Call, and repeat the call while that is safe and may help."""
        for attempt in range(self.settings.retries + 1):
            call: Call[ToolResult] | None = None
            try:
                await self._until_turn()
                await self._until_settled()
                call = self._make(job.arguments)
                self.retried += attempt > 0
                return RowOutcome("succeeded", await self._answer(call))
            except _Stopped:
                return NOT_CALLED
            except CallCancelled:
                return NOT_CALLED if self._is_repeatable else _interrupted()
            except McpError as error:
                error.__traceback__ = None  # ten thousand of them would keep their frames
                self._respect(error)
                was_sent = call is not None and call.was_sent
                if attempt == self.settings.retries or not self._may_repeat(error, was_sent=was_sent):
                    return RowOutcome(self._state_after(error, was_sent=was_sent), error=error)
                if not isinstance(error, HttpError) or error.retry_after is None:
                    pause = min(_FIRST_PAUSE * 2**attempt, _LONGEST_PAUSE)
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

    async def _until_turn(self) -> None:
        """Wait until the rate allows a call, and the time has passed that the server has asked for.

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

    async def _until_settled(self) -> None:
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

    def _respect(self, error: McpError) -> None:
        """Hold all calls back for the time that the server has asked for."""
        if isinstance(error, HttpError) and error.retry_after is not None:
            self._held_until = max(self._held_until, time.monotonic() + error.retry_after)

    # -- errors -------------------------------------------------------------------------------------------------------

    def _may_repeat(self, error: McpError, *, was_sent: bool) -> bool:
        is_safe = self._is_repeatable or not was_sent
        if isinstance(error, HttpError):
            return error.status == _NOT_RECEIVED or (is_safe and error.status in _TRANSIENT)
        return is_safe and isinstance(error, CallTimeout | ConnectionLost | ServerStopped)

    def _state_after(self, error: McpError, *, was_sent: bool) -> RowState:
        """Whether a row has failed, or the server may have done what was asked."""
        if self._is_repeatable or not was_sent or isinstance(error, _ANSWERED):
            return "failed"
        return "failed" if isinstance(error, HttpError) and error.status < 500 else "unknown"

    def _count(self, outcome: RowOutcome) -> None:
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
    """An error in one line, as a table of results shows it."""
    return f"{type(error).__name__}: {error.message}"
