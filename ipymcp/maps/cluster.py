"""Maps on the workers of a Dask cluster.

The rows are split into chunks. A worker makes the calls of a chunk in a `MapRun` of its own, and reports the outcomes.
Dask runs the tasks of a lost worker again, but calls that may change something must not be repeated. A chunk of such
calls is therefore claimed before its first call, with the scheduler, which outlives the worker.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import importlib
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from ipymcp.api.pickled_tool import dask_worker, pickled, worker_server
from ipymcp.api.tool_calls import new_call
from ipymcp.argument_checks import shown
from ipymcp.errors import ArgumentError, ConnectionLost, McpError, PolicyError
from ipymcp.maps.run import CANCELLED, INTERRUPTED, NOT_CALLED, Job, MapRun, MapSettings, RowOutcome
from ipymcp.security.rules import CallBatch
from ipymcp.security.untrusted import copy_actor_to_context, quotes_server

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipymcp.api.pickled_tool import PickledTool, WorkerServer
    from ipymcp.maps.request import MapRequest
    from ipymcp.maps.run import RowState
    from ipymcp.results.tool_result import ToolResult
    from ipymcp.runtime.call import Call
    from ipymcp.runtime.call_options import CallOptions
    from ipymcp.storage.history import CallRecord


_CHUNK_SECONDS: Final = 1.0
"""Seconds that the calls of a chunk should take."""
_MAX_JOBS, _MAX_BYTES = 1_000, 1_000_000
"""Maximum calls of a chunk, and bytes of their arguments."""
_FIRST_CHUNKS, _MAX_CHUNKS = 8, 64
"""Maximum chunks in flight, before and after the first report."""
POLL_INTERVAL: Final = 0.2
"""Seconds between two checks of a worker whether the map was stopped."""
_END_TIMEOUT: Final = 4.0
"""Seconds that a cancelled map waits for the reports of its chunks."""
_WATCH_INTERVAL: Final = 1.0
"""Seconds between two looks for workers while no chunk ends."""
_CONTROL_TIMEOUT: Final = 3.0
"""Seconds that a map waits for the answer of its cluster about its state and claims."""
_ELSEWHERE: Final = "mcp.maps[-1].resume(executor=…) continues on another one, with None in this process"


T = TypeVar("T")
MapState: TypeAlias = Literal["running", "stopped", "cancelled"]
"""A stopped map makes no further calls; a cancelled one also abandons the calls in progress."""


def _event(client: Any, name: str, state: MapState) -> Any:
    """The event of the scheduler that is set when a map has a state."""
    return importlib.import_module("distributed").Event(f"{name}-{state}", client)


def _claim(client: Any, name: str) -> bool:
    """Claim a chunk by publishing its name. Returns False if the chunk was claimed before."""
    try:
        client.publish_dataset(True, name=name)
    except KeyError:
        return False
    return True


class WorkerTask:
    """The task that a thread of a Dask worker runs."""

    def __init__(self, worker: Any) -> None:
        self._worker = worker
        self._key = worker.get_current_task()

    @property
    def is_cancelled(self) -> bool:
        """Whether the task was cancelled."""
        task = self._worker.state.tasks.get(self._key)
        return task is None or task.state == "cancelled"

    def map_state(self, client: Any, name: str) -> MapState:
        """The state of the map that the task belongs to; `cancelled` if the scheduler is gone."""
        try:
            if self.is_cancelled or _event(client, name, "cancelled").is_set():
                return "cancelled"
            return "stopped" if _event(client, name, "stopped").is_set() else "running"
        except OSError:
            return "cancelled"


class Chunk(Struct):
    """Calls for a worker.

    Attributes:
        name: The name of the chunk, under which it is claimed.
        map_name: The name of the map at the scheduler.
        jobs: The calls.
        number: The map's number in the process that started it.
        is_repeatable: Whether a call may be made twice.
        waits_first: Whether to wait for one interval of the rate before the first call.
    """

    name: str
    map_name: str
    sent: PickledTool
    jobs: tuple[Job, ...]
    settings: MapSettings
    number: int
    is_repeatable: bool
    waits_first: bool


class ChunkReport(Struct):
    """The calls that a worker has made, and their outcomes.

    Attributes:
        outcomes: For each job its state, its error, and the index of its result in `records`, or -1.
        records: The calls that were made; their times are relative to the time of the report.
        seconds: The time from the first call to the end.
        stopped: The reason why some jobs were not called.
        failure: The reason why no job was called.
    """

    outcomes: list[tuple[RowState, McpError | None, int]]
    records: list[CallRecord] = []
    calls: int = 0
    retried: int = 0
    seconds: float = 0.0
    stopped: str = ""
    failure: McpError | None = None


# -- in a worker ------------------------------------------------------------------------------------------------------


def run_chunk(chunk: Chunk) -> ChunkReport:
    """Make the calls of a chunk, after those of another chunk of the same map in this process."""
    client = importlib.import_module("distributed").get_client()
    state = partial(WorkerTask(dask_worker()).map_state, client, chunk.map_name)
    server = worker_server(chunk.sent)
    nothing = ChunkReport([("not called", None, -1)] * len(chunk.jobs))
    lock = server.map_lock(chunk.sent.tool)
    while not lock.acquire(timeout=POLL_INTERVAL):
        if state() != "running":
            return nothing
    try:
        server.entry(chunk.sent)  # before the claim, so that the chunk stays unclaimed if this fails
        if not chunk.is_repeatable and not _claim(client, chunk.name):
            lost = ConnectionLost("its worker was lost, perhaps while it was called", tool=chunk.sent.tool)
            return ChunkReport([("unknown", lost, -1)] * len(chunk.jobs))
        return _run(chunk, state, server) if state() == "running" else nothing
    except McpError as error:
        return replace(nothing, failure=error)
    finally:
        lock.release()


def _run(chunk: Chunk, map_state: Callable[[], MapState], server: WorkerServer) -> ChunkReport:
    session, entry = server.session(), server.entry(chunk.sent)
    options = server.agreed_options(chunk.sent, entry, CallBatch(chunk.number, len(chunk.jobs)))
    loop, began = server.host.loop, time.monotonic()
    records: list[CallRecord] = []
    outcomes: dict[int, tuple[RowOutcome, int]] = {}
    calls: dict[Any, int] = {}
    """The number of the latest call of each task."""

    def make(arguments: bytes) -> Call[ToolResult]:
        call = new_call(server.host, session, entry, options, arguments)
        server.records[call.number] = records
        calls[asyncio.current_task()] = call.number
        return call

    def ended(job: Job, outcome: RowOutcome) -> None:
        outcomes[job.rows[0]] = outcome, calls.get(asyncio.current_task(), -1)

    run = MapRun(session, make, chunk.settings, ended, is_repeatable=chunk.is_repeatable)
    if chunk.waits_first and chunk.settings.rate:
        run.start_after(1 / chunk.settings.rate)
    run.feed(chunk.jobs, is_last=True)
    with copy_actor_to_context():
        future = asyncio.run_coroutine_threadsafe(run.run(), loop.loop)
    try:
        while not concurrent.futures.wait([future], POLL_INTERVAL).done:
            state = map_state()
            if state != "running":
                loop.call(run.cancel if state == "cancelled" else partial(run.stop, "elsewhere"))
        future.result()
    except BaseException:
        loop.call(run.cancel)
        raise
    now = time.monotonic()
    indices = {record.number: at for at, record in enumerate(records)}
    listed = [outcomes.get(at, (NOT_CALLED, -1)) for at in range(len(chunk.jobs))]
    return ChunkReport(
        [
            (outcome.state, outcome.error, -1 if outcome.result is None else indices.get(number, -1))
            for outcome, number in listed
        ],
        [
            replace(
                record,
                began=record.began - now,
                ended=record.ended - now,
                result=None if record.result is None else bytes(record.result),
            )
            for record in records
        ],
        run.calls,
        run.retried,
        now - began,
        run.stopped,
    )


# -- in the process of the map ----------------------------------------------------------------------------------------


def cluster_run(request: MapRequest, executor: Any) -> Callable[..., MapRun] | None:
    """Return a function that makes a run of the map on a cluster; None if the workers are threads of this process.

    Raises:
        ArgumentError: The object is not a Dask client.
        McpError: The tool cannot be sent to other processes.
    """
    if isinstance(executor, ThreadPoolExecutor):
        return None
    if type(executor).__module__.partition(".")[0] != "distributed" or not hasattr(executor, "get_executor"):
        message = f"map: executor: expected a dask.distributed Client, got {shown(executor)}"
        hint = "from dask.distributed import Client; .map(rows, executor=Client()) starts workers on this machine"
        raise ArgumentError(message, argument="executor", hint=hint)
    if executor.asynchronous:
        message = "map: executor: an asynchronous Client cannot be used"
        raise ArgumentError(message, argument="executor", hint="Client(…) without asynchronous=True")
    target = request.target
    sent = pickled(request.host, target.session, target.entry, target.options)
    return partial(ClusterRun, request, sent, executor)


class ClusterRun(MapRun):
    """The calls of one map, made by workers.

    Args:
        request: The map.
        sent: The tool for the workers.
        client: The Dask client.
        options: The options of the calls, to which the user has agreed.
        ended: Called with every job that has ended and its outcome, on the loop.
    """

    def __init__(
        self,
        request: MapRequest,
        sent: PickledTool,
        client: Any,
        options: CallOptions,
        ended: Callable[[Job, RowOutcome], None],
    ) -> None:
        target = request.target
        make = partial(target.new_call, options)  # not used, because the workers make the calls
        super().__init__(target.session, make, request.settings, ended, is_repeatable=request.is_repeatable)
        self._request = request
        self._options = options
        self._sent = replace(sent, caller=options.caller)
        self._client = client
        self._executor: Any = None
        self._name = f"ipymcp-{uuid.uuid4().hex}"
        self._claims: list[str] = []
        """The names of chunks that workers may have claimed."""
        self._in_flight: dict[asyncio.Task[None], tuple[Job, ...]] = {}
        self._size = max(1, request.settings.concurrency)
        """The number of jobs of the next chunk."""
        self._sent_chunks = self._ended_chunks = 0
        self._submitter = ThreadPoolExecutor(1, "ipymcp-map")
        """The thread that submits chunks, because that blocks."""
        self._workers = 1
        self._has_report = False
        self._fatal: McpError | None = None
        self._is_cancelled = asyncio.Event()

    @property
    def left(self) -> int:
        """The number of jobs that are waiting or in flight."""
        return len(self._waiting) + sum(map(len, self._in_flight.values()))

    def cancel(self) -> None:
        """Make no further calls, and abandon those in progress. Runs on the loop."""
        self.stop(CANCELLED)
        self._is_cancelled.set()

    async def run(self) -> None:
        """Run until the last job has ended. Cancelling this cancels the calls in progress.

        Raises:
            McpError: A worker cannot call the tool.
        """
        try:
            self._executor = await self._in_thread(self._client.get_executor, pure=False)
            workers = await self._in_thread(self._count_workers)
            self._workers, self.is_without_workers = max(1, workers), not workers
        except Exception as error:
            self._submitter.shutdown(wait=False)
            reason = f"{type(error).__name__}: {error}"
            self._fail(ConnectionLost(f"the workers cannot be used: {reason}", hint=_ELSEWHERE))
            raise self._fatal or error from error
        running = asyncio.ensure_future(self._call_all())
        watching = asyncio.ensure_future(self._watch_workers())
        cancelled = asyncio.ensure_future(self._is_cancelled.wait())
        halted = asyncio.ensure_future(self._halted.wait())
        try:
            await asyncio.wait((running, cancelled, halted), return_when=asyncio.FIRST_COMPLETED)
            if not running.done() and not self._is_cancelled.is_set():
                await self._signal("stopped")
                await asyncio.wait((running, cancelled), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (running, watching, cancelled, halted):
                task.cancel()
            await asyncio.wait((running,))
            try:
                await self._cancel_chunks()
            finally:
                self._submitter.shutdown(wait=False)
                if self._claims:
                    await _attempt(self._withdraw_claims)
        if not running.cancelled():
            running.result()
        if self._fatal is not None:
            raise self._fatal

    async def _in_thread(self, function: Callable[..., T], *arguments: Any, **options: Any) -> T:
        call = partial(function, *arguments, **options)
        return await asyncio.get_running_loop().run_in_executor(self._submitter, call)

    def _count_workers(self) -> int:
        return len(self._client.nthreads())

    async def _signal(self, state: MapState) -> None:
        """Set the event of a state, which the workers look at."""
        await _attempt(lambda: _event(self._client, self._name, state).set())

    def _withdraw_claims(self) -> None:
        """Remove the claims. The event stays set, so that a chunk that Dask runs again later calls nothing."""
        _event(self._client, self._name, "cancelled").set()
        for name in self._claims:
            self._client.unpublish_dataset(name)

    async def _watch_workers(self) -> None:
        """Look for workers while no chunk ends."""
        ended = -1
        while True:
            await asyncio.sleep(_WATCH_INTERVAL)
            if ended == (ended := self._ended_chunks):
                with contextlib.suppress(Exception):
                    self.is_without_workers = not await self._in_thread(self._count_workers)

    async def _call_all(self) -> None:
        rate = self.settings.rate
        slots = min(self._workers, max(1, int(rate))) if rate else 0
        settings = replace(self.settings, rate=rate / slots) if rate else self.settings
        while self._waiting or self._in_flight or not self._is_closed:
            limit = slots or (_MAX_CHUNKS if self._has_report else min(2 * self._workers, _FIRST_CHUNKS))
            if self._waiting and len(self._in_flight) < limit:
                self._send(settings)
            else:
                self._changed.clear()
                await self._changed.wait()

    def _send(self, settings: MapSettings) -> None:
        """Send the next chunk if the policy still allows the calls."""
        target = self._request.target
        try:
            if self._request.host.guard.permit(target.session, target.entry, self._options, b"") is not None:
                raise PolicyError("needs your consent again, because the rules or what the model has read have changed")
        except PolicyError as error:
            error.server, error.tool = target.entry.server, target.entry.name
            self._fail(error)
            return
        room, jobs = _MAX_BYTES, list[Job]()
        share = -(-len(self._waiting) // self._workers)
        for job in islice(self._waiting, min(self._size, share)):
            room -= len(job.arguments)
            if jobs and room < 0:
                break
            jobs.append(job)
        for _ in jobs:
            self._waiting.popleft()
        number, self._sent_chunks = self._sent_chunks, self._sent_chunks + 1
        chunk = Chunk(
            f"{self._name}-{number}",
            self._name,
            self._sent,
            tuple(Job((index,), job.arguments) for index, job in enumerate(jobs)),
            settings,
            self._request.number,
            self._is_repeatable,
            number > 0,
        )
        sending = asyncio.ensure_future(self._run_chunk(chunk, tuple(jobs)))
        self._in_flight[sending] = tuple(jobs)
        sending.add_done_callback(self._chunk_done)

    async def _run_chunk(self, chunk: Chunk, jobs: tuple[Job, ...]) -> None:
        """Send a chunk, wait for its report and record it."""
        was_sent = False
        try:
            if not chunk.is_repeatable:
                self._claims.append(chunk.name)
            future = await self._in_thread(self._executor.submit, run_chunk, chunk)
            was_sent = True
            report = await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            is_open = not was_sent or self._is_repeatable or await self._is_open(chunk)
            self._record_lost(jobs, "its worker did not report what it has done", is_open=is_open)
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            self.stop("because its tasks were cancelled")
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            is_over = isinstance(error, ImportError) or not was_sent
            if is_over:
                hint = f"install ipymcp there; {_ELSEWHERE}" if isinstance(error, ImportError) else _ELSEWHERE
                self._fail(ConnectionLost(f"the workers cannot be used: {reason}", hint=hint))
            if self._is_repeatable:
                is_open = is_over or self.stopped != ""
            else:
                is_open = not was_sent or await self._is_open(chunk)
            self._record_lost(jobs, f"its worker was lost: {reason}", is_open=is_open)
        else:
            try:
                self._record_report(report, jobs)
            except Exception as error:  # a worker with another version of ipymcp has returned something else
                self._record_lost(jobs, f"its report could not be read: {error!r}", is_open=False)
                self._fail(McpError(f"a report could not be read: {error!r}"))

    async def _is_open(self, chunk: Chunk) -> bool:
        """Whether no worker has begun with a chunk; none will afterwards. False if the cluster does not answer."""
        try:
            return await asyncio.wait_for(self._in_thread(_claim, self._client, chunk.name), _CONTROL_TIMEOUT)
        except (Exception, asyncio.CancelledError):  # cancelled: the caller records the jobs and raises it again
            return False

    def _record_lost(self, jobs: tuple[Job, ...], reason: str, *, is_open: bool) -> None:
        """Record the outcomes of a chunk without a report. All of it counts as one failure.

        Args:
            jobs: The jobs of the chunk.
            reason: The reason why there is no report, as an error message.
            is_open: Whether the jobs count as not called, so that they may be called again.
        """
        entry, outcome = self._request.target.entry, NOT_CALLED
        if not is_open:
            error = ConnectionLost(reason, server=entry.server, tool=entry.name)
            outcome = RowOutcome("failed" if self._is_repeatable else "unknown", error=error)
        for job in jobs:
            self._ended(job, outcome)
        self._stop_after_failures(outcome)

    def _record_report(self, report: ChunkReport, jobs: tuple[Job, ...]) -> None:
        """Record the calls and outcomes in the report of a chunk."""
        now, host, entry = time.monotonic(), self._request.host, self._request.target.entry
        outcomes: list[RowOutcome] = []
        for _, (state, error, index) in zip(jobs, report.outcomes, strict=True):
            raw = report.records[index].result if index >= 0 else None
            result = None if raw is None else self._request.target.cached_result(self._options, bytes(raw))
            outcomes.append(RowOutcome(state, result, error))
        self.calls += report.calls
        self.retried += report.retried
        for record in report.records:
            began, ended, number = record.began + now, record.ended + now, host.calls.next_number()
            self.sent += len(record.arguments)
            self.received += record.received
            host.history.add(replace(record, began=began, ended=ended, number=number, cell=self._request.cell))
        for job, outcome in zip(jobs, outcomes, strict=True):
            if outcome.error is not None and quotes_server(outcome.error):
                content = str(outcome.error).encode("utf-8", "replace")
                host.guard.received(f"{entry.server}.{entry.name}", self._options.conversation, content)
            self._ended(job, outcome)
            self._stop_after_failures(outcome)
        if report.failure is not None:
            self._fail(report.failure)
        elif report.stopped:
            self.stop(report.stopped)
        done = sum(state != "not called" for state, _, _ in report.outcomes)
        if done and report.seconds:
            self._has_report = True
            suitable = int(done * _CHUNK_SECONDS / report.seconds)
            self._size = max(1, min(suitable, 4 * self._size, _MAX_JOBS))

    def _fail(self, error: McpError) -> None:
        self._fatal = self._fatal or error
        self.stop("because a worker cannot call it")

    def _chunk_done(self, task: asyncio.Task[None]) -> None:
        self._in_flight.pop(task, None)
        self._ended_chunks += 1
        self.is_without_workers = False
        self._changed.set()

    async def _cancel_chunks(self) -> None:
        """Cancel the chunks in flight, and wait up to `_END_TIMEOUT` for their reports."""
        if self._waiting:
            self.stop(INTERRUPTED)
        if chunks := [*self._in_flight]:
            await self._signal("cancelled")
            _, late = await asyncio.wait(chunks, timeout=_END_TIMEOUT)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)


async def _attempt(function: Callable[..., None], *arguments: Any) -> None:
    """Tell the cluster something, if it can be reached within `_CONTROL_TIMEOUT`."""
    with contextlib.suppress(Exception):
        await asyncio.wait_for(asyncio.to_thread(function, *arguments), _CONTROL_TIMEOUT)
