"""Maps that do not keep their rows: `tool.map.stream` calls them while they are read."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ipymcp.errors import ArgumentError, McpError, PolicyError, render_briefly
from ipymcp.maps.run import NOT_CALLED, Job, RowOutcome
from ipymcp.maps.running import CACHED, REDRAW_INTERVAL, RunningMap, not_called_error, stop_error
from ipymcp.runtime.waiting import Waiter
from ipymcp.security.untrusted import current_actor
from ipymcp.text import counted

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator

    from ipymcp.maps.request import MapRequest
    from ipymcp.maps.run import MapRun
    from ipymcp.results.tool_result import ToolResult
    from ipymcp.runtime.loop import BackgroundLoop
    from ipymcp.security.untrusted import Actor


Pair: TypeAlias = tuple[Any, "ToolResult | McpError"]
"""A row and its result; the result of a row that failed is its error."""
_MIN_WINDOW: Final = 64
"""Minimum number of rows that are called ahead of the reader, if calls may be repeated; else the concurrency."""
_WAIT_INTERVAL: Final = 1.0
"""Seconds between two calls of `on_wait`."""
_END_TIMEOUT: Final = 6.0
"""Seconds to wait for the calls of a stream that has ended early to end."""
_ASYNC_HINT: Final = "async for row, result in ….map.stream(rows)"


class MapStream:
    """Rows with their results, in the order of the rows, yielded while later rows are called; for `for` or `async for`.

    Args:
        request: The map.
        on_wait: Called by `for` in every second in which it waits for the next row.
    """

    def __init__(self, request: MapRequest, on_wait: Callable[[], None] | None = None) -> None:
        self._request = request
        self._on_wait = on_wait
        self._window: _Window | None = None
        self._drawn = 0.0

    def __iter__(self) -> Generator[Pair]:
        pairs = self._read(_BlockingReader(self._request.host.loop, self._on_wait))
        try:
            while True:
                try:
                    pairs.asend(None).send(None)  # runs until the next pair, because this reader's awaits block
                except StopIteration as step:
                    yield step.value
                except StopAsyncIteration:
                    return
        finally:
            with suppress(StopIteration):
                pairs.aclose().send(None)

    def __aiter__(self) -> AsyncGenerator[Pair]:
        return self._read(_AwaitingReader(self._request.host.loop))

    async def _read(self, reader: _BlockingReader | _AwaitingReader) -> AsyncGenerator[Pair]:
        """Call rows ahead of the reader, and yield each row when it has ended."""
        request = self._request
        window = self._window = _Window(request, reader.wake)
        source: Any = request.source.pairs()
        is_async = hasattr(source, "__aiter__")
        if is_async and not reader.is_async:
            raise ArgumentError("the rows are an async iterable", hint=_ASYNC_HINT)
        rows: Any = aiter(source) if is_async else iter(source)
        try:
            while True:
                try:
                    while window.has_room:
                        window.add(await anext(rows, None) if is_async else next(rows, None))
                except asyncio.CancelledError:
                    raise
                except BaseException as error:  # of the source: raised after the rows before it
                    window.fail(error)
                if window.is_empty:
                    break
                if window.unsent:
                    await reader.run(window.send())
                for pair in window.ready():
                    yield pair
                while window.is_waiting and not window.has_room:  # a row that was read makes room for another
                    await reader.wait(window.close)
            window.check()
        except (KeyboardInterrupt, asyncio.CancelledError) as error:
            hint = "the stream's .unread has the rows that were called ahead; start a new stream with those after them"
            render_briefly(error, f"{request.name}.map.stream was interrupted", hint)
            raise
        finally:
            window.close()

    @property
    def unread(self) -> list[Pair]:
        """The rows that were called ahead and have not been read, with their results, after a stream has ended early.

        They are the next rows of the input, up to the last that was called. The error of a row has its `row_state`:
        `unknown` for a call of a tool that may change something if the server had not answered yet.
        """
        return [] if self._window is None else self._window.unread()

    @property
    def _running(self) -> RunningMap | None:
        return None if self._window is None or self._window.run is None else self._window.running

    def show(self) -> None:
        """Show the progress, at most five times a second."""
        now = time.monotonic()
        if self._running is not None and now - self._drawn >= REDRAW_INTERVAL:
            self._drawn = now
            self._running.show()

    def show_end(self) -> None:
        """Replace the bar, if there is one, by a line."""
        if self._running is not None:
            self._running.show_end()

    def __repr__(self) -> str:
        return f"<stream of {self._request.name}: for row, result in …>"


class _BlockingReader:
    """A thread that reads a stream. Its coroutines block instead of awaiting."""

    is_async = False

    def __init__(self, loop: BackgroundLoop, on_wait: Callable[[], None] | None) -> None:
        self._loop = loop
        self._on_wait = on_wait
        self._waiter = Waiter(loop.callers)

    async def run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine on the background loop."""
        self._loop.run(coroutine, self._waiter)

    async def wait(self, give_up: Callable[[], None]) -> None:
        """Wait for `wake`. `give_up` is called when an interrupt ends the loop of an awaiting reader."""
        until = time.monotonic() + _WAIT_INTERVAL
        with self._waiter:
            is_woken = self._waiter.wait(None if self._on_wait is None else lambda: until)
        if self._on_wait is not None and not is_woken:
            self._on_wait()

    def wake(self) -> None:
        """End the wait. Runs on the background loop."""
        self._waiter.put(Waiter.DONE)


class _AwaitingReader:
    """A task that reads a stream; the methods are those of `_BlockingReader`."""

    is_async = True

    def __init__(self, loop: BackgroundLoop) -> None:
        self._loop = loop
        self._here = asyncio.get_running_loop()
        self._woken = asyncio.Event()

    async def run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        await self._loop.arun(coroutine)

    async def wait(self, give_up: Callable[[], None]) -> None:
        with self._loop.awaiting.entered(give_up):
            await self._woken.wait()
        self._woken.clear()

    def wake(self) -> None:
        self._loop.call_on(self._here, self._woken.set)


class _Window:
    """The rows of a stream that are being called or have not been read yet, in order.

    Args:
        request: The map.
        wake: Called on the loop when the row that the reader waits for may have ended.
    """

    def __init__(self, request: MapRequest, wake: Callable[[], None]) -> None:
        self._request = request
        self._wake = wake
        concurrency = request.settings.concurrency
        self._size = max(_MIN_WINDOW, 4 * concurrency) if request.is_repeatable else concurrency
        self._rows: deque[tuple[int, Any]] = deque()
        self._outcomes: dict[int, RowOutcome] = {}
        self._counts: Counter[str] = Counter()
        self.running = RunningMap(request, request.source.count, self._counts, self._end)
        self.run: MapRun | None = None
        self.unsent: list[Job] = []
        """The rows that were read from the source and not sent yet."""
        self._task: asyncio.Task[None] | None = None
        self._actor: Actor | None = None
        """The actor that made the first calls."""
        self._number = 0
        self._awaited = -1
        """The number of the row that the reader waits for; -1 for none."""
        self._failure: BaseException | None = None
        """An exception of the source, or of the run by a bug; raised after the rows before it."""
        self._is_exhausted = self._is_closed = False
        self._is_over = threading.Event()
        """Set when the last call has ended."""

    @property
    def is_empty(self) -> bool:
        """Whether there are no rows that were not read yet."""
        return not self._rows

    @property
    def has_room(self) -> bool:
        """Whether another row is to be read from the source."""
        is_stopped = self.run is not None and bool(self.run.stopped)
        return not self._is_exhausted and not is_stopped and len(self._rows) < self._size

    @property
    def is_waiting(self) -> bool:
        """Whether the next row has not ended yet; `wake` is then called when it has."""
        self._awaited = self._rows[0][0] if self._rows else -1
        if self._awaited in self._outcomes or self._awaited < 0 or self._is_closed:
            self._awaited = -1
            return False
        return True

    def add(self, pair: tuple[Any, Any] | None) -> None:
        """Add a row, as the user sees it and as it is bound; None for the end of the source."""
        if pair is None:
            self._is_exhausted = True
            return
        number, self._number = self._number, self._number + 1
        self._rows.append((number, pair[0]))
        try:
            self.unsent.append(Job((number,), self._request.source.bind(pair[1])))
        except ArgumentError as error:
            self._outcomes[number] = RowOutcome("failed", error=error)

    def fail(self, error: BaseException) -> None:
        """End the source with an exception, which `check` raises."""
        self._failure, self._is_exhausted = error, True

    async def send(self) -> None:
        """Call the rows that were read. Runs on the loop. Before the first call, the user is asked if necessary.

        Raises:
            PolicyError: The calls are not allowed, or a model's code continues a stream that it did not start.
        """
        unsent, self.unsent = self.unsent, []
        actor, starter = current_actor(), self._actor
        is_first = self.run is None
        if is_first:
            self._actor = actor
            await self.running.ask(unsent, self._request.source.count)
        elif (
            actor is not None
            and actor.caller == "model"
            and (starter is None or (starter.conversation, starter.turn) != (actor.conversation, actor.turn))
        ):
            message = "a model's code may not continue a stream that it did not start"
            raise PolicyError(message, hint="start a new stream", **self._request.target.origin)
        cached = await self.running.find_cached(unsent)
        if is_first and self._is_closed:
            return
        self.run = self.running.feed(unsent, cached)
        if is_first:
            self._task = asyncio.ensure_future(self.run.run())
            self._task.add_done_callback(self._finish)

    def ready(self) -> Iterator[Pair]:
        """Yield the rows that have ended, up to the first that has not.

        Raises:
            McpError: The first failure, if `on_error` is `"raise"`.
        """
        while self._rows and self._rows[0][0] in self._outcomes:
            number, row = self._rows[0]
            outcome = self._outcomes[number]
            if outcome.result is None and self._request.settings.stops_at_error:
                raise self._error(outcome)
            del self._rows[0], self._outcomes[number]
            yield row, outcome.result or self._error(outcome)

    def check(self) -> None:
        """Raise the exception of the source or the run, if there was one.

        Raises:
            McpError: The run was stopped before all rows were called.
        """
        if self._failure is not None:
            raise self._failure
        reason, left_out = "" if self.run is None else self.run.stopped, self._counts["not called"]
        if reason and (left_out or not self._is_exhausted):
            message = f"stopped {reason}: {counted(self._number, 'row')} read, {left_out:,} of them not called"
            hint = "start a new stream with the remaining rows"
            raise stop_error(reason)(message, hint=hint, **self._request.target.origin)

    def unread(self) -> list[Pair]:
        """The rows that were called and not read, when the calls have ended; those between them are `not called`."""
        if self.run is None:
            return []
        self._is_over.wait(_END_TIMEOUT)
        outcomes = [(row, self._outcomes.get(number, NOT_CALLED)) for number, row in self._rows]
        while outcomes and outcomes[-1][1].state == "not called":
            outcomes.pop()
        return [(row, outcome.result or self._error(outcome)) for row, outcome in outcomes]

    def close(self) -> None:
        """End the calls in progress. Thread-safe."""
        self._is_closed = True
        loop = self._request.host.loop
        if loop.is_running:
            loop.call(self._end_run)

    def _end_run(self) -> None:
        if self.run is not None and self._task is not None:
            if self._is_exhausted and not self._rows and self._failure is None:
                self.run.feed((), is_last=True)  # all rows were read
            else:
                self.run.stop("by its reader")
                self._task.cancel()
        self._wake()

    def _end(self, job: Job, outcome: RowOutcome) -> None:
        self._counts[outcome.state] += 1
        self._counts[CACHED] += outcome.is_cached
        self._outcomes[job.rows[0]] = outcome
        if self._awaited == job.rows[0]:
            self._awaited = -1
            self._wake()

    def _finish(self, task: asyncio.Task[None]) -> None:
        """Finish the stream when its run has ended. After a bug, wake the reader, which would wait forever."""
        self.running.finish()
        self._is_over.set()
        if not task.cancelled() and task.exception() is not None:
            self.fail(task.exception() or RuntimeError())
            self._is_closed = True
            self._wake()

    def _error(self, outcome: RowOutcome) -> McpError:
        error = outcome.error or not_called_error(self._request, "" if self.run is None else self.run.stopped)
        error.row_state = outcome.state
        return error
