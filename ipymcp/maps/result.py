"""The results of a map, and its progress while it runs."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import threading
import time
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn, overload

from ipymcp.errors import ArgumentError, McpError, render_briefly
from ipymcp.maps.request import SHOWN_ERRORS
from ipymcp.maps.run import NOT_CALLED, ROW_STATES, RowOutcome, message_of
from ipymcp.maps.running import CACHED, REDRAW_INTERVAL, RunningMap, not_called_error, use_executor
from ipymcp.results.content import FRAME_NAMES
from ipymcp.results.frames import columns_frame, merged, result_columns, with_columns
from ipymcp.results.tables import Table, TableView
from ipymcp.runtime.waiting import Waiter
from ipymcp.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ipymcp.maps.request import MapRequest
    from ipymcp.maps.run import Job, MapRun, RowState
    from ipymcp.results.tool_result import ToolResult


_SHOWN_ROWS: Final = 5
_END_TIMEOUT: Final = 5.0
"""Seconds that `retry` and `resume` wait for the calls of an interrupted run to end."""


_CANCEL_TIMEOUT: Final = 0.2
"""Seconds for which an interrupt waits for the last outcomes, which its message counts."""
_SAME: Final = object()
"""The executor that a map has had before."""


class MapResult(TableView):
    """The results of a map, in the order of its rows.

    `.df` has the input's columns, the results' and `error`; `.results` a result or None for each row; `.errors` the
    rows without a result. `.retry()` calls failed rows again, `.resume()` those that were not called.

    Attributes:
        is_untrusted: Whether results may contain content of third parties.
        source: The origin of the results: the server and the tool.

    Args:
        request: The map, whose rows are bound.

    Raises:
        ArgumentError: Rows do not fit the tool, and `on_error` is `"raise"`.
    """

    is_untrusted: bool = True
    _other_names: ClassVar[Mapping[str, str]] = {
        **FRAME_NAMES,
        **dict.fromkeys(("failed", "failures", "error"), "use .errors"),
        **dict.fromkeys(("data", "succeeded", "successes", "values"), "use .results, or .df"),
    }

    def __init__(self, request: MapRequest) -> None:
        if request.settings.stops_at_error:
            request.refuse_invalid_rows()
        self._request = request
        self._host = request.host
        self._jobs = request.jobs
        target = request.target
        self.is_untrusted = self._host.guard.policy.is_open_world(target.entry, target.session.rights)
        self.source = f"{target.entry.server}.{target.entry.name}"
        self._outcomes = [NOT_CALLED] * request.total
        for row, _, error in request.problems:
            self._outcomes[row] = RowOutcome("failed", error=error)
        self._run: MapRun | None = None
        self._running: RunningMap | None = None
        self._lock = threading.Lock()
        self._is_idle = threading.Event()
        self._is_idle.set()
        self._counts: Counter[str] = Counter(outcome.state for outcome in self._outcomes)
        self._calls = self._retried = 0
        self._seconds = 0.0
        self._stopped = ""
        request.target.maps.append(self)

    # -- the outcome --------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._outcomes)

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[ToolResult]:
        return (self[row] for row in range(len(self)))

    def __array__(self, *_: object, **__: object) -> NoReturn:
        """Refuse to become a column or an array: pandas would put the whole map into every cell."""
        hint = ".df has the input's columns with the results', and .results a list"
        raise ArgumentError(f"{self._request.name}.map: a map is no column", hint=hint)

    @overload
    def __getitem__(self, row: int) -> ToolResult: ...

    @overload
    def __getitem__(self, row: slice) -> list[ToolResult]: ...

    def __getitem__(self, row: int | slice) -> ToolResult | list[ToolResult]:
        """The result of a row, or a list of those of a slice. If a row failed, its error is raised."""
        if isinstance(row, slice):
            return [self[each] for each in range(len(self))[row]]
        outcome = self._outcomes[row]
        if outcome.result is not None:
            return outcome.result
        raise outcome.error or McpError(f"row {row} was not called", hint="resume() calls it")

    @property
    def results(self) -> list[ToolResult | None]:
        """The result of each row, or None."""
        return [outcome.result for outcome in self._outcomes]

    @property
    def errors(self) -> Table:
        """The rows without a result: their number, state and error."""
        rows = [
            (row, outcome.state, self._error_text(outcome))
            for row, outcome in enumerate(self._outcomes)
            if outcome.result is None
        ]
        return Table(("row", "state", "error"), rows, title=f"{self._request.name}: rows without a result")

    @property
    def summary(self) -> dict[str, Any]:
        """The numbers of rows by state, of cached results and of calls, the duration, and why the map stopped."""
        counts = {state: self._counts[state] for state in ROW_STATES}
        return {
            "rows": len(self),
            **counts,
            "cached": self._counts[CACHED],
            "calls": self._calls,
            "retried": self._retried,
            "duplicates": sum(len(job.rows) - 1 for job in self._jobs),
            "seconds": round(self._seconds, 3),
            "stopped": self._stopped,
        }

    @property
    def df(self) -> Any:
        """The input as it was called, with result columns and `error`.

        It is a table of the input's library. For rows that are not a table it is one of pandas or polars, with a column
        for each member of the mappings, or a column `row`.
        """
        results = [None if each.result is None else each.result.data for each in self._outcomes]
        return self._beside_input(range(len(self)), results)

    @property
    def long(self) -> Any:
        """Like `.df`, with a row for each record of each result: the input's columns are repeated.

        A result that is not a table has one row, as has an input row without a result; an empty table has none.
        """
        rows: list[int] = []
        records: list[Any] = []
        for row, outcome in enumerate(self._outcomes):
            result = outcome.result
            table = None if result is None else result.tables.main
            found = [None if result is None else result.data] if table is None else table.records
            rows += [row] * len(found)
            records += found
        return self._beside_input(rows, records)

    def _beside_input(self, rows: Sequence[int], data: Sequence[Any]) -> Any:
        """The input's rows with these numbers, the columns of data for each of them, and `error`."""
        columns = result_columns(data)
        columns["error"] = [self._error_text(self._outcomes[row]) for row in rows]
        source, is_whole = self._request.source, isinstance(rows, range)
        if source.frame is None:
            given = source.input_columns()
            return columns_frame(merged({name: [each[row] for row in rows] for name, each in given.items()}, columns))
        assert source.native is not None
        return source.native(with_columns(source.frame if is_whole else source.frame[rows], columns))

    @property
    def table(self) -> Table:
        """The counts, and the first errors, or the first results if there are no errors."""
        summary = self.summary
        counts = [f"{summary[state]:,} {state}" for state in (*ROW_STATES, CACHED) if summary[state]]
        title = f"{self._request.name}: {counted(len(self), 'row')}: {', '.join(counts) or 'none'}"
        notes = [f"stopped {self._stopped}"] if self._stopped else []
        calls, shared = f"{counted(self._calls, 'call')} in {self._seconds:.1f} s", summary["duplicates"]
        notes += [calls + (f", which {counted(shared, 'more row')} with the same arguments share" if shared else "")]
        notes.append(".df has all")
        if self._counts["succeeded"] < len(self):
            first = [tuple(row.values()) for row in itertools.islice(self.errors, SHOWN_ERRORS)]
            return Table(("row", "state", "error"), first, title=title, note="; ".join(notes))
        shown = result_columns([each.result.data for each in self._outcomes[:_SHOWN_ROWS] if each.result])
        rows = [(row, *cells) for row, cells in enumerate(zip(*shown.values(), strict=True))]
        return Table(("row", *shown), rows, title=title, note="; ".join(notes))

    def _error_text(self, outcome: RowOutcome) -> str | None:
        """The error of a row without a result, in a table; None for other rows."""
        if outcome.result is not None:
            return None
        return message_of(outcome.error or not_called_error(self._request, self._stopped))

    # -- running ------------------------------------------------------------------------------------------------------

    def retry(self, *, executor: object = _SAME) -> MapResult:
        """Call the failed rows again, except those that do not fit the tool and those in the state `unknown`.

        Args:
            executor: Another Dask client for the calls; None for this process.
        """
        return self._again("failed", executor)

    def resume(self, *, executor: object = _SAME) -> MapResult:
        """Call the rows that were not called because the run was interrupted or stopped.

        Args:
            executor: Another Dask client for the calls; None for this process.
        """
        return self._again("not called", executor)

    def cancel(self) -> None:
        """Stop the run, if there is one, and abandon the calls in progress."""
        if self._running is not None:
            self._running.cancel()

    def wait(self) -> MapResult:
        """Call all rows and wait. The results so far are kept after an interrupt."""
        return self._wait(self._jobs)

    def _again(self, state: RowState, executor: object) -> MapResult:
        self._is_idle.wait(_END_TIMEOUT)
        if executor is not _SAME:
            use_executor(self._request, executor)
        return self._wait([job for job in self._jobs if self._outcomes[job.rows[0]].state == state])

    def _wait(self, jobs: Sequence[Job]) -> MapResult:
        self._begin()
        waiter = Waiter()
        try:
            self._host.loop.run(self._call(jobs, partial(waiter.put, self._show)), waiter)
        except KeyboardInterrupt as error:
            self._is_idle.wait(_CANCEL_TIMEOUT)
            self._render_interrupt(error)
            raise
        finally:
            self._show_end()
        return self._finished()

    async def arun(self) -> MapResult:
        """Call all rows and await the end. The results so far are kept after a cancellation."""
        self._begin()
        here, context = asyncio.get_running_loop(), contextvars.copy_context()
        failed: list[Exception] = []

        def show() -> None:
            try:
                context.run(self._show)
            except Exception as error:  # the caller's on_progress failed: raised by the caller's await
                failed.append(error)
                running.cancel()

        show_here = partial(self._host.loop.call_on, here, show)
        running = asyncio.ensure_future(self._host.loop.arun(self._call(self._jobs, show_here)))
        try:
            await running
        except asyncio.CancelledError as error:
            if failed:
                raise failed[0] from None
            self._render_interrupt(error)
            raise
        finally:
            running.cancel()
            self._show_end()
        return self._finished()

    def _begin(self) -> None:
        """Mark the map as running.

        Raises:
            McpError: It is running already.
        """
        with self._lock:
            if not self._is_idle.is_set():
                raise McpError(f"{self._request.name}.map is still running", hint="wait for it, or %mcp cancel")
            self._is_idle.clear()

    async def _call(self, jobs: Sequence[Job], show: Callable[[], None]) -> None:
        """Ask for consent, then make the calls, and show the progress from time to time. Runs on the loop."""
        try:
            if not jobs:
                return
            if self._run is not None:
                self._request.number = self._host.calls.next_number()
            running = RunningMap(self._request, len(self), self._counts, self._end)
            cached = await running.find_cached(jobs)
            left = [job for job in jobs if job.arguments not in cached]
            await running.ask(left or jobs, len(left))
            for job in jobs:
                self._end(job, NOT_CALLED)
            run = self._run = running.feed(jobs, cached, is_last=True)
            self._running = running
            showing = asyncio.ensure_future(_every(REDRAW_INTERVAL, show))
            try:
                await run.run()
            finally:
                showing.cancel()
                running.finish()
                self._seconds += time.monotonic() - running.started
                self._calls += run.calls
                self._retried += run.retried
                self._stopped = run.stopped
        finally:
            self._is_idle.set()

    def _end(self, job: Job, outcome: RowOutcome) -> None:
        self._counts[self._outcomes[job.rows[0]].state] -= len(job.rows)
        self._counts[outcome.state] += len(job.rows)
        self._counts[CACHED] += len(job.rows) * outcome.is_cached
        for row in job.rows:
            self._outcomes[row] = outcome

    def _finished(self) -> MapResult:
        """Return this result, or raise the first failure if `on_error` is `"raise"`."""
        run = self._run
        if run is not None and run.settings.stops_at_error and run.failure is not None:
            raise run.failure
        return self

    def _show(self) -> None:
        if self._running is not None:
            self._running.show()

    def _show_end(self) -> None:
        if self._running is not None:
            self._running.show_end()

    def _render_interrupt(self, error: BaseException) -> None:
        unknown = self._counts["unknown"]
        done = len(self) - self._counts["not called"] - unknown
        message = f"{self._request.name}.map was interrupted: {done:,} of {counted(len(self), 'row')} are done"
        if unknown:
            message += f", and {unknown:,} may have been executed (unknown)"
        maps = [*self._request.target.maps]
        name = f"mcp.maps[{next((at for at in range(-1, -len(maps) - 1, -1) if maps[at] is self), -1)}]"
        render_briefly(error, message, f"{name} has their results; {name}.resume() continues")


async def _every(seconds: float, function: Callable[[], None]) -> None:
    while True:
        await asyncio.sleep(seconds)
        function()
