"""A map in progress: what every map does between its rows and its outcomes, wherever the outcomes go."""

from __future__ import annotations

import asyncio
import inspect
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from ipymcp.errors import CallCancelled, CallError, CallInterrupted, McpError, PolicyError
from ipymcp.maps.run import CANCELLED, INTERRUPTED, ROW_STATES, MapRun, RowOutcome
from ipymcp.protocol import types
from ipymcp.protocol.types import Progress
from ipymcp.security.rules import CallBatch
from ipymcp.storage.history import CallRecord
from ipymcp.text import one_line

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Mapping, Sequence

    from ipymcp.maps.request import MapRequest
    from ipymcp.maps.run import Job


REDRAW_INTERVAL: Final = 0.2
_MEASURE_INTERVAL: Final = 0.25
CACHED: Final = "cached"
"""The key of the number of rows with a cached result, in summaries."""


class RunningMap:
    """A map in progress, for the cell, the panel and `%mcp cancel`.

    In this order, on the loop: `ask` for consent, `feed` jobs, run `.run`, and `finish`.

    Args:
        request: The map.
        total: Number of rows; None if unknown.
        counts: The numbers of rows by state, and of cached results (`CACHED`); `ended` keeps them up to date.
        ended: Called on the loop with every job that has ended and its outcome.
    """

    def __init__(
        self, request: MapRequest, total: int | None, counts: Counter[str], ended: Callable[[Job, RowOutcome], None]
    ) -> None:
        self.number = request.number
        self.session = request.target.session
        self.tool = request.target.entry.name
        self.arguments = b""
        self.questions: tuple[str, ...] = ()
        self.options = request.options
        self.started = time.monotonic()
        self.cell = request.cell
        self.task = None
        self.run: MapRun | None = None
        """The calls, from the first `feed` on."""
        self._request = request
        self._total = total
        self._counts = counts
        self._ended = ended
        self._progress = Progress(self.number, 0, total, "")
        self._measured = float("-inf")

    async def find_cached(self, jobs: Sequence[Job]) -> Mapping[bytes, bytes]:
        """The JSON of cached results of earlier maps, by the arguments of the call."""
        cache = self._request.cache
        return {} if cache is None else await cache.find(job.arguments for job in jobs)

    async def ask(self, jobs: Sequence[Job], count: int | None) -> None:
        """Check the policy for the calls, and ask the user once about all of them if necessary.

        Args:
            jobs: The calls that are known so far, at least one. The question shows the first and up to three others.
            count: The number of calls; None if unknown. If it is 0, because all results are cached, the user is not
                asked about a map of their own, but is asked about a map of a model, which reads the results.

        Raises:
            PolicyError: The calls are not allowed.
        """
        target, guard = self._request.target, self._request.host.guard
        await target.session.awake()
        options = guard.on_behalf(target.entry, self._request.options)  # of the caller that runs it now
        shown = sorted({0, min(1, len(jobs) - 1), len(jobs) // 2, len(jobs) - 1})
        self.arguments, *samples = (jobs[index].arguments for index in shown)
        self.options = options = replace(options, batch=CallBatch(self.number, count or 0, samples))
        self.started = time.monotonic()
        questions: list[str] = []
        try:
            consent = guard.permit(target.session, target.entry, options, self.arguments)
            if consent is not None and (count != 0 or options.caller != "user"):
                await consent(questions.append)
        except PolicyError as error:
            self.questions = tuple(questions)
            self._record(calls=0, error=error)
            raise
        self.questions = tuple(questions)

    def feed(self, jobs: Sequence[Job], cached: Mapping[bytes, bytes], *, is_last: bool = False) -> MapRun:
        """Add calls; those with a cached result end at once. The first calls begin the run, which is returned."""
        request = self._request
        target, cache, ended = request.target, request.cache, self._ended
        if self.run is None:

            def keep(job: Job, outcome: RowOutcome) -> None:
                if cache is not None and outcome.result is not None:
                    cache.keep(job.arguments, outcome.result.json_bytes)
                ended(job, outcome)

            if request.cluster_run is not None:
                self.run = request.cluster_run(self.options, keep)
            else:
                make, is_repeatable = partial(target.new_call, self.options), request.is_repeatable
                self.run = MapRun(target.session, make, request.settings, keep, is_repeatable=is_repeatable)
            self.started = time.monotonic()
            request.host.calls.running[self.number] = self
        for job in jobs:
            if job.arguments in cached:
                result = target.cached_result(self.options, cached[job.arguments])
                ended(job, RowOutcome("succeeded", result, is_cached=True))
        self.run.feed([job for job in jobs if job.arguments not in cached], is_last=is_last)
        return self.run

    def finish(self) -> None:
        """Write the cache and add the map to the history. Runs on the loop after the last call."""
        run, request = self.run, self._request
        self._measured = float("-inf")
        if run is None or request.host.calls.running.pop(self.number, None) is None:
            return
        if request.cache is not None:
            request.cache.flush()
        counts = {state: self._counts[state] for state in (*ROW_STATES, CACHED) if self._counts[state]}
        error = None
        if run.stopped or any(counts.get(state) for state in ROW_STATES if state != "succeeded"):
            message = ", ".join(f"{number:,} {state}" for state, number in counts.items())
            error = stop_error(run.stopped)(message + (f"; stopped {run.stopped}" if run.stopped else ""))
        summary = {**counts, "calls": run.calls, "retried": run.retried}
        result = types.encode({"content": [], "structuredContent": summary})
        self._record(calls=run.calls, error=error, sent=run.sent, received=run.received, result=result)

    def _record(self, **details: Any) -> None:
        """Add the map, which ends now, to the history."""
        options = self.options
        self._request.host.history.add(
            CallRecord(
                began=self.started,
                ended=time.monotonic(),
                caller=options.origin or options.caller,
                model=options.model.name,
                provider=options.model.provider,
                answer=options.turn,
                server=self.session.name,
                tool=self.tool,
                arguments=self.arguments,
                cell=self.cell,
                number=self.number,
                map=self.number,
                questions=self.questions,
                **details,
            )
        )

    def cancel(self) -> bool:
        """Stop the map, and abandon the calls in progress. Results so far are kept."""
        if self.run is None or self.run.stopped:
            return False
        self._request.host.loop.call(self.run.cancel)
        return True

    def end_if_late(self) -> None:
        """Do nothing, because each call has its own timeout."""

    # -- progress -----------------------------------------------------------------------------------------------------

    @property
    def progress(self) -> Progress:
        """The number of finished rows, with failures, cached results, calls per second and the time left as text."""
        now, run, counts = time.monotonic(), self.run, self._counts
        if run is None or now - self._measured < _MEASURE_INTERVAL:
            return self._progress
        done = sum(counts[state] for state in ROW_STATES if state != "not called")
        seconds = now - self.started
        speed = run.calls / seconds if seconds else 0.0
        failed = counts["failed"] + counts["unknown"]
        words = [f"{failed:,} failed"] if failed else []
        words += [f"{counts[CACHED]:,} cached"] if counts[CACHED] else []
        words.append(f"{speed:,.3g} calls/s")
        if run.held_for:
            words.append(f"the server asked to wait {run.held_for:,.0f} s")
        elif run.is_without_workers:
            words.append("the cluster has no workers")
        elif self._total is not None and speed and done < self._total:
            words.append(f"{run.left / speed:,.0f} s left")
        self._measured, self._progress = now, Progress(self.number, done, self._total, " · ".join(words))
        return self._progress

    def show(self) -> None:
        """Show the progress: call `on_progress`, and draw the bar."""
        function, host = self._request.on_progress, self._request.host
        if inspect.iscoroutinefunction(function):
            asyncio.run_coroutine_threadsafe(function(self.progress), host.handler_loop.loop)
        elif function is not None:
            function(self.progress)
        if host.calls.presenter is not None:
            host.calls.presenter.progress(self)

    def show_end(self) -> None:
        """Replace the bar, if there is one, by a line."""
        self._measured = float("-inf")
        if (presenter := self._request.host.calls.presenter) is not None:
            presenter.finished(self)

    def __repr__(self) -> str:
        return one_line(f"<map {self.number} of {self.session.name}.{self.tool}, running>")


def use_executor(request: MapRequest, executor: object) -> None:
    """Have the workers of a Dask client make the calls of a map; None for this process.

    Raises:
        ArgumentError: The object is not a Dask client.
        McpError: The tool cannot be sent to other processes.
    """
    request.cluster_run = None
    if executor is not None:
        from ipymcp.maps.cluster import cluster_run

        request.cluster_run = cluster_run(request, executor)


def stop_error(reason: str) -> type[CallError]:
    """The class of the error of a map that was stopped for a reason."""
    return {CANCELLED: CallCancelled, INTERRUPTED: CallInterrupted}.get(reason, CallError)


def not_called_error(request: MapRequest, stopped: str) -> McpError:
    """The error of a row that was not called because its map was stopped."""
    message = "was not called" + (f": the map was stopped {stopped}" if stopped else "")
    return McpError(message, **request.target.origin)
