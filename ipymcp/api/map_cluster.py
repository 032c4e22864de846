"""Maps on other processes: the workers of a Dask cluster or of any `concurrent.futures.Executor`.

The rows are cut into chunks. A worker makes the calls of a chunk as one machine does, and reports their outcomes. A
chunk of a tool that may change something is claimed before its first call, at a place that outlives the worker: Dask
runs the tasks of a lost worker again, and what was claimed before is not called again.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import importlib
import os
import shutil
import socket
import tempfile
import time
import uuid
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from ipymcp.api.pickled_tool import dask_worker, pickled, workplace
from ipymcp.api.tool_calls import new_call
from ipymcp.argument_checks import shown
from ipymcp.errors import ArgumentError, ConnectionLost, McpError, PolicyError
from ipymcp.files import make_new_folder
from ipymcp.runtime.map_run import CANCELLED, INTERRUPTED, NOT_CALLED, Job, MapRun, MapSettings, RowOutcome
from ipymcp.security.rules import CallBatch
from ipymcp.security.untrusted import quotes_server

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor, Future

    from ipymcp.api.map_request import MapRequest
    from ipymcp.api.pickled_tool import PickledTool, Workplace
    from ipymcp.results.tool_result import ToolResult
    from ipymcp.runtime.call import Call, CallOptions
    from ipymcp.runtime.map_run import RowState
    from ipymcp.storage.history import CallRecord


_CHUNK_SECONDS: Final = 1.0
"""Time that the calls of a chunk should take."""
_MAX_JOBS, _MAX_BYTES = 1_000, 1_000_000
"""Calls of a chunk, and the bytes of their arguments, at most."""
_FIRST_CHUNKS, _MAX_CHUNKS = 8, 64
"""Chunks that wait or run at the same time: before the first has ended, and at most."""
_STOPPED: Final = "stopped"
POLL: Final = 0.2
"""Seconds between two looks of a worker at whether the map goes on."""
_END_TIMEOUT: Final = 4.0
"""Seconds for the chunks of a cancelled map to report what they have done."""


Course: TypeAlias = Literal["running", "stopped", "cancelled"]
"""Whether a map goes on, makes no further calls, or also gives up those in progress."""


class FolderControl(Struct):
    """The link to a map on the same machine: a folder, with a folder in it for each claim.

    It also has one, `stopped`, once the map was stopped. It is gone once the map is over or was cancelled. Workers on
    other machines do not see it: chunks there end by themselves, and their executor runs none twice.
    """

    folder: str
    machine: str

    def enter(self) -> FolderControl:
        """Nothing has to be found."""
        return self

    def course(self) -> Course:
        """Look into the folder."""
        if not self._is_here:
            return "running"
        if not os.path.isdir(self.folder):
            return "cancelled"
        return "stopped" if os.path.exists(os.path.join(self.folder, _STOPPED)) else "running"

    def claim(self, chunk: str) -> bool:
        """Make the chunk's folder."""
        if not self._is_here:
            return True
        try:
            return make_new_folder(os.path.join(self.folder, chunk))
        except FileNotFoundError:  # cancelled
            return True

    @property
    def _is_here(self) -> bool:
        return self.machine == socket.gethostname()


class DaskControl(Struct):
    """The link to a map by its Dask scheduler: events that stop and cancel it, and a published name for each claim."""

    name: str
    client: Any = None
    worker: Any = None
    key: Any = None

    def enter(self) -> DaskControl:
        """Find the scheduler and the task."""
        worker = dask_worker()
        return DaskControl(self.name, _distributed().get_client(), worker, worker.get_current_task())

    def course(self) -> Course:
        """Look at the events and the task; without a scheduler there is no map."""
        try:
            if self.is_cancelled() or self.event("cancelled").is_set():
                return "cancelled"
            return "stopped" if self.event(_STOPPED).is_set() else "running"
        except OSError:
            return "cancelled"

    def is_cancelled(self) -> bool:
        """Whether the task was cancelled."""
        state = self.worker.state.tasks.get(self.key)
        return state is None or state.state == "cancelled"

    def event(self, course: Course) -> Any:
        """The event of a course."""
        return _distributed().Event(f"{self.name}-{course}", self.client)

    def claim(self, chunk: str) -> bool:
        """Publish the chunk's name, which is possible only once."""
        try:
            self.client.publish_dataset(True, name=self.claim_name(chunk))
        except KeyError:
            return False
        return True

    def claim_name(self, chunk: str) -> str:
        """The name under which a claim is published."""
        return f"{self.name}-{chunk}"


def _distributed() -> Any:
    return importlib.import_module("distributed")


Control: TypeAlias = FolderControl | DaskControl
"""The link of a chunk in a worker to its map, while the calls are made."""


class Chunk(Struct):
    """Calls for a worker.

    Attributes:
        name: Names it within the map.
        jobs: The calls.
        number: The map's number where it was started.
        is_repeatable: Whether a call may be made twice.
        waits_first: Whether the rate is kept before the first call, too.
    """

    name: str
    sent: PickledTool
    jobs: tuple[Job, ...]
    settings: MapSettings
    control: Control
    number: int
    is_repeatable: bool
    waits_first: bool


class ChunkReport(Struct):
    """The calls that a worker has made, and their outcomes.

    Attributes:
        outcomes: For each job its state, its error, and the place of its result among the records, or -1.
        records: The calls made; their times are relative to the report.
        seconds: Time from the first call to the end.
        stopped: The reason why calls were left out.
        failure: The reason why there were no calls at all.
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
    control, place = chunk.control.enter(), workplace(chunk.sent)
    nothing = ChunkReport([("not called", None, -1)] * len(chunk.jobs))
    turn = place.turn(chunk.sent.tool)
    while not turn.acquire(timeout=POLL):
        if control.course() != "running":
            return nothing
    try:
        place.entry(chunk.sent)  # before the claim: what is missing here has called nothing
        if not chunk.is_repeatable and not control.claim(chunk.name):
            lost = ConnectionLost("its worker was lost, perhaps while it was called", tool=chunk.sent.tool)
            return ChunkReport([("unknown", lost, -1)] * len(chunk.jobs))
        return _run(chunk, control, place) if control.course() == "running" else nothing
    except McpError as error:
        return replace(nothing, failure=error)
    finally:
        turn.release()


def _run(chunk: Chunk, control: Control, place: Workplace) -> ChunkReport:
    session, entry = place.session(), place.entry(chunk.sent)
    options = place.agreed_options(chunk.sent, entry, CallBatch(chunk.number, len(chunk.jobs)))
    loop, began = place.host.loop, time.monotonic()
    records: list[CallRecord] = []
    outcomes: dict[int, tuple[RowOutcome, int]] = {}
    calls: dict[Any, int] = {}
    """The number of the latest call of each task."""

    def make(arguments: bytes) -> Call[ToolResult]:
        call = new_call(place.host, session, entry, options, arguments)
        place.records[call.number] = records
        calls[asyncio.current_task()] = call.number
        return call

    def ended(job: Job, outcome: RowOutcome) -> None:
        outcomes[job.rows[0]] = outcome, calls.get(asyncio.current_task(), -1)

    run = MapRun(session, make, chunk.settings, ended, is_repeatable=chunk.is_repeatable)
    if chunk.waits_first and chunk.settings.rate:
        run.start_after(1 / chunk.settings.rate)
    run.feed(chunk.jobs, is_last=True)
    future = asyncio.run_coroutine_threadsafe(run.run(), loop.loop)
    try:
        while not concurrent.futures.wait([future], POLL).done:
            course = control.course()
            if course != "running":
                loop.call(run.cancel if course == "cancelled" else partial(run.stop, "elsewhere"))
        future.result()
    except BaseException:
        loop.call(run.cancel)
        raise
    now = time.monotonic()
    places = {record.number: at for at, record in enumerate(records)}
    listed = [outcomes.get(at, (NOT_CALLED, -1)) for at in range(len(chunk.jobs))]
    return ChunkReport(
        [
            (outcome.state, outcome.error, -1 if outcome.result is None else places.get(number, -1))
            for outcome, number in listed
        ],
        [_portable(record, now) for record in records],
        run.calls,
        run.retried,
        now - began,
        run.stopped,
    )


def _portable(record: CallRecord, now: float) -> CallRecord:
    result = None if record.result is None else bytes(record.result)
    return replace(record, began=record.began - now, ended=record.ended - now, result=result)


# -- where the map was started ----------------------------------------------------------------------------------------


class ExecutorCluster:
    """The workers of an executor.

    Args:
        executor: The executor.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._folder = tempfile.mkdtemp(prefix="ipymcp-map-")
        self.control = FolderControl(self._folder, socket.gethostname())

    def size(self) -> int:
        """The number of workers."""
        return getattr(self._executor, "_max_workers", None) or os.cpu_count() or 1

    def submit(self, chunk: Chunk) -> Future[ChunkReport]:
        """Have a chunk called."""
        return self._executor.submit(run_chunk, chunk)

    def tell(self, course: Course) -> None:
        """Mark the folder, or remove it."""
        if course == "cancelled":
            shutil.rmtree(self._folder, ignore_errors=True)
        else:
            make_new_folder(os.path.join(self._folder, _STOPPED))

    def close(self) -> None:
        """Remove the folder."""
        self.tell("cancelled")


class DaskCluster:
    """The workers of a Dask cluster.

    Args:
        client: A `distributed.Client`.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._executor = client.get_executor(pure=False)
        self._claimed: list[str] = []
        self.control = DaskControl(f"ipymcp-{uuid.uuid4().hex}")

    def size(self) -> int:
        """The number of workers."""
        return len(self._client.nthreads())

    def submit(self, chunk: Chunk) -> Future[ChunkReport]:
        """Have a chunk called."""
        if not chunk.is_repeatable:
            self._claimed.append(self.control.claim_name(chunk.name))
        return self._executor.submit(run_chunk, chunk)

    def tell(self, course: Course) -> None:
        """Set the event."""
        replace(self.control, client=self._client).event(course).set()

    def close(self) -> None:
        """Withdraw the claims. The event stays set: a chunk that Dask runs again after this calls nothing."""
        if self._claimed:
            self.tell("cancelled")
        for name in self._claimed:
            self._client.unpublish_dataset(name)
        self._claimed.clear()


Cluster: TypeAlias = ExecutorCluster | DaskCluster
"""The workers of a map. Every method may wait."""


def cluster_run(request: MapRequest, executor: Any) -> Callable[..., MapRun] | None:
    """The maker of the runs of a map on an executor; None if its workers are threads of this process.

    Raises:
        ArgumentError: It is no executor.
        McpError: The tool cannot be sent.
    """
    if isinstance(executor, ThreadPoolExecutor):
        return None
    if type(executor).__module__.partition(".")[0] == "distributed" and hasattr(executor, "get_executor"):
        if executor.asynchronous:
            message = "map: executor: an asynchronous Client cannot be used"
            raise ArgumentError(message, argument="executor", hint="Client(…) without asynchronous=True")
        make: Callable[[], Cluster] = partial(DaskCluster, executor)
    elif isinstance(executor, concurrent.futures.Executor):
        make = partial(ExecutorCluster, executor)
    else:
        message = f"map: executor: expected a dask.distributed Client or an Executor, got {shown(executor)}"
        raise ArgumentError(message, argument="executor")
    target = request.target
    sent = pickled(request.host, target.session, target.entry, target.options)
    return partial(ClusterRun, request, sent, make)


class ClusterRun(MapRun):
    """The calls of one map, made by workers.

    Args:
        request: The map.
        sent: The tool.
        make_cluster: Makes the cluster of this run.
        options: The options of its calls, to which the user has agreed.
        ended: Is given every job that has ended and its outcome, on the loop.
    """

    def __init__(
        self,
        request: MapRequest,
        sent: PickledTool,
        make_cluster: Callable[[], Cluster],
        options: CallOptions,
        ended: Callable[[Job, RowOutcome], None],
    ) -> None:
        target = request.target
        make = partial(new_call, target.host, target.session, target.entry, options)  # not used: workers call
        super().__init__(target.session, make, request.settings, ended, is_repeatable=request.is_repeatable)
        self._request = request
        self._options = options
        self._sent = replace(sent, caller=options.caller)
        self._make_cluster = make_cluster
        self._flying: dict[asyncio.Task[None], tuple[Job, ...]] = {}
        self._size = max(1, request.settings.concurrency)
        """Jobs of the next chunk."""
        self._sent_chunks = 0
        self._workers = 1
        self._has_report = False
        self._fatal: McpError | None = None
        self._is_cancelled = asyncio.Event()

    @property
    def left(self) -> int:
        """Number of jobs that wait or are being called."""
        return len(self._waiting) + sum(map(len, self._flying.values()))

    def cancel(self) -> None:
        """On the loop: make no further calls, and give up those in progress."""
        self.stop(CANCELLED)
        self._is_cancelled.set()

    async def run(self) -> None:
        """Call until the last job has ended. Cancelling it cancels the calls in progress.

        Raises:
            McpError: A worker cannot call the tool.
        """
        cluster = await asyncio.to_thread(self._make_cluster)
        running = asyncio.ensure_future(self._call_all(cluster))
        cancelled = asyncio.ensure_future(self._is_cancelled.wait())
        halted = asyncio.ensure_future(self._halted.wait())
        try:
            await asyncio.wait((running, cancelled, halted), return_when=asyncio.FIRST_COMPLETED)
            if not running.done() and not self._is_cancelled.is_set():
                await asyncio.to_thread(cluster.tell, _STOPPED)
                await asyncio.wait((running, cancelled), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (running, cancelled, halted):
                task.cancel()
            await asyncio.wait((running,))
            try:
                await self._give_up(cluster)
            finally:
                await asyncio.to_thread(cluster.close)
        if not running.cancelled():
            running.result()
        if self._fatal is not None:
            raise self._fatal

    async def _call_all(self, cluster: Cluster) -> None:
        self._workers = max(1, await asyncio.to_thread(cluster.size))
        rate = self.settings.rate
        slots = min(self._workers, max(1, int(rate))) if rate else 0
        settings = replace(self.settings, rate=rate / slots) if rate else self.settings
        while self._waiting or self._flying or not self._is_closed:
            places = slots or (_MAX_CHUNKS if self._has_report else min(2 * self._workers, _FIRST_CHUNKS))
            if self._waiting and len(self._flying) < places:
                self._send(cluster, settings)
            else:
                self._changed.clear()
                await self._changed.wait()

    def _send(self, cluster: Cluster, settings: MapSettings) -> None:
        """Send the next chunk, if the calls are still allowed."""
        target = self._request.target
        try:
            if self._request.host.guard.permit(target.session, target.entry, self._options, b"") is not None:
                raise PolicyError("needs your consent again, because the rules or what the model has read have changed")
        except PolicyError as error:
            error.server, error.tool = target.entry.server, target.entry.name
            self._end_by(error)
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
            str(number),
            self._sent,
            tuple(Job((place,), job.arguments) for place, job in enumerate(jobs)),
            settings,
            cluster.control,
            self._request.number,
            self._is_repeatable,
            number > 0,
        )
        sending = asyncio.ensure_future(self._follow(cluster, chunk, tuple(jobs)))
        self._flying[sending] = tuple(jobs)
        sending.add_done_callback(self._landed)

    async def _follow(self, cluster: Cluster, chunk: Chunk, jobs: tuple[Job, ...]) -> None:
        """Send a chunk, wait for its report and take note of it."""
        was_sent = False
        try:
            future = await asyncio.to_thread(cluster.submit, chunk)
            was_sent = True
            report = await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            self._lose(jobs, "its worker did not report what it has done", is_known=self._is_repeatable or not was_sent)
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            self.stop("because its tasks were cancelled")
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            is_over = isinstance(error, BrokenExecutor | ImportError) or not was_sent
            is_known = not was_sent or (is_over and self._is_repeatable)
            self._lose(jobs, f"its worker was lost: {what}", is_known=is_known)
            if is_over:
                hint = "install ipymcp there; a broken pool must be replaced"
                self._end_by(ConnectionLost(f"the workers cannot be used: {what}", hint=hint))
        else:
            self._take(report, jobs)

    def _lose(self, jobs: tuple[Job, ...], what: str, *, is_known: bool) -> None:
        """Note that a chunk has no report.

        Args:
            jobs: Its jobs.
            what: The reason.
            is_known: Whether they may be called again.
        """
        entry = self._request.target.entry
        for job in jobs:
            outcome = NOT_CALLED
            if not is_known:
                error = ConnectionLost(what, server=entry.server, tool=entry.name)
                outcome = RowOutcome("failed" if self._is_repeatable else "unknown", error=error)
            self._ended(job, outcome)
            self._stop_after_failures(outcome)

    def _take(self, report: ChunkReport, jobs: tuple[Job, ...]) -> None:
        """Take note of what a worker has done."""
        now, host = time.monotonic(), self._request.host
        self.calls += report.calls
        self.retried += report.retried
        for record in report.records:
            began, ended, number = record.began + now, record.ended + now, host.calls.next_number()
            self.sent += len(record.arguments)
            self.received += record.received
            host.history.add(replace(record, began=began, ended=ended, number=number, cell=self._request.cell))
        for job, (state, error, place) in zip(jobs, report.outcomes, strict=True):
            raw = report.records[place].result if place >= 0 else None
            result = None if raw is None else self._request.target.known_result(self._options, bytes(raw))
            outcome = RowOutcome(state, result, error)
            if error is not None and quotes_server(error):
                self._receive(str(error).encode("utf-8", "replace"))
            self._ended(job, outcome)
            self._stop_after_failures(outcome)
        if report.failure is not None:
            self._end_by(report.failure)
        elif report.stopped:
            self.stop(report.stopped)
        done = sum(state != "not called" for state, _, _ in report.outcomes)
        if done and report.seconds:
            self._has_report = True
            fitting = int(done * _CHUNK_SECONDS / report.seconds)
            self._size = max(1, min(fitting, 4 * self._size, _MAX_JOBS))

    def _receive(self, content: bytes) -> None:
        entry = self._request.target.entry
        self._request.host.guard.received(f"{entry.server}.{entry.name}", self._options.conversation, content)

    def _end_by(self, error: McpError) -> None:
        self._fatal = self._fatal or error
        self.stop("because a worker cannot call it")

    def _landed(self, task: asyncio.Task[None]) -> None:
        self._flying.pop(task, None)
        if not task.cancelled() and task.exception() is not None:
            self._end_by(McpError(f"a report could not be read: {task.exception()!r}"))
        self._changed.set()

    async def _give_up(self, cluster: Cluster) -> None:
        """Have the workers give up what is left, and wait for what they report; not for long."""
        if self._waiting:
            self.stop(INTERRUPTED)
        if self._flying:
            await asyncio.to_thread(cluster.tell, "cancelled")
            _, late = await asyncio.wait([*self._flying], timeout=_END_TIMEOUT)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
