"""The request of a map: the tool, the rows and the settings. Also the plan of a map.

Rows are bound and validated before the first call.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from msgspec.structs import replace

from ipymcp.api.history import moment
from ipymcp.api.tool_calls import cached_result, new_call
from ipymcp.argument_checks import COUNT, FLAG, FUNCTION, MAPPING, TEXT, checked, one_of, shown
from ipymcp.errors import ArgumentError, McpError, PolicyError
from ipymcp.maps.rows import RowProblem, read_rows
from ipymcp.maps.run import Job, MapRun, MapSettings, RowOutcome
from ipymcp.masking import mask
from ipymcp.names import expression
from ipymcp.results.tables import Table, TableView
from ipymcp.security.rules import CallBatch, hints
from ipymcp.storage.history import CallRecord
from ipymcp.text import counted, shortened

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Generator, Mapping, Sequence
    from typing import TypeAlias

    from ipymcp.maps.rows import Rows
    from ipymcp.protocol.types import Progress
    from ipymcp.results.tool_result import ToolResult
    from ipymcp.runtime.call import CallOptions
    from ipymcp.runtime.catalog import ToolEntry
    from ipymcp.runtime.host import Host
    from ipymcp.runtime.session import ServerSession
    from ipymcp.schema.tool_schema import ToolSchema
    from ipymcp.storage.cached_results import ResultCache

    OnError: TypeAlias = Literal["collect", "raise"]


READING_CONCURRENCY: Final = 8
"""Default concurrency of maps of a tool that is declared read-only; for other tools it is 1."""
MAX_CONCURRENCY: Final = 1_000
_RATE: Final = re.compile(r"\s*+(\d++(?:\.\d++)?)\s*+/\s*+(s|sec|second|m|min|minute|h|hour)\s*")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}
SHOWN_ERRORS: Final = 10
"""Maximum number of errors that are listed."""
_SHOWN_ROWS: Final = 5
_MAX_STEP: Final = 0.02
"""Seconds for which an awaited map may block the loop while it reads its rows."""
_MAX_SHOWN: Final = 200


class MapTarget(NamedTuple):
    """The tool of a map.

    Attributes:
        options: The options of its calls.
        maps: The latest maps of the host.
    """

    host: Host
    session: ServerSession
    entry: ToolEntry
    schema: ToolSchema
    options: CallOptions
    maps: deque[Any]

    @property
    def name(self) -> str:
        """The Python expression for the tool."""
        return expression(self.entry.server, self.entry.name)

    def cached_result(self, options: CallOptions, raw: bytes) -> ToolResult:
        """Convert a cached result to the result that a call with these options would return."""
        return cached_result(self.host, self.session, self.entry, options, raw)


class BoundRows(NamedTuple):
    """The rows of a map as arguments.

    Attributes:
        jobs: The calls.
        problems: The rows that do not fit the tool.
        total: The number of rows.
    """

    jobs: list[Job]
    problems: list[RowProblem]
    total: int


def run_steps(steps: Generator[None, None, BoundRows]) -> BoundRows:
    """Run all steps of a generator, and return its value."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


async def arun_steps(steps: Generator[None, None, BoundRows]) -> BoundRows:
    """Run all steps of a generator, and return its value. Other tasks run meanwhile, and may cancel this one."""
    began = time.monotonic()
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
        if time.monotonic() - began > _MAX_STEP:
            await asyncio.sleep(0)
            began = time.monotonic()


class MapRequest:
    """The tool to call, the rows, and the settings.

    Args:
        target: The tool.
        settings: Concurrency, rate, retries and when to stop.
        source: The rows.
        on_progress: Called with the progress of the map.
        executor: The Dask client whose workers make the calls; None for this process. `cluster_run` must then be set.
    """

    def __init__(
        self,
        target: MapTarget,
        settings: MapSettings,
        source: Rows,
        on_progress: Callable[[Progress], Any] | None = None,
        executor: object = None,
    ) -> None:
        self.target = target
        self.settings = settings
        self.source = source
        self.host = target.host
        self.number = self.host.calls.next_number()
        self.on_progress = on_progress or target.options.on_progress
        self._options = self.host.guard.on_behalf(target.entry, replace(target.options, on_progress=None))
        self.cell = self.host.history.calling_cell(self._options)
        self.cache: ResultCache | None = None
        known = hints(target.entry, target.session.rights)
        self.is_read_only = known.get("readOnlyHint") is True
        self.is_repeatable = self.is_read_only or known.get("idempotentHint") is True
        self.executor = executor
        self.cluster_run: Callable[..., MapRun] | None = None
        """Makes a run on the cluster; None for runs in this process."""

    @property
    def name(self) -> str:
        """The Python expression for the tool."""
        return self.target.name

    def keep_rows(self) -> Generator[None, None, BoundRows]:
        """Keep the rows and bind them. Yields after every row."""
        self.source = yield from self.source.keep()
        return (yield from self.bind_rows())

    def bind_rows(self) -> Generator[None, None, BoundRows]:
        """Bind all rows to arguments. Rows with the same arguments share one call if the tool is read-only.

        Yields after every row, so that other code can run meanwhile.
        """
        bind, values, problems, count = self.source.bind, self.source.values, list[RowProblem](), 0
        if isinstance(values, AsyncIterable):
            raise ArgumentError("the rows are an async iterable", hint="async for row, result in ….map.stream(rows)")
        numbers_of: dict[bytes, list[int]] = {}
        calls: list[tuple[bytes, list[int]]] = []
        for row, cells in enumerate(values):
            yield
            count += 1
            try:
                arguments = bind(cells)
            except ArgumentError as error:
                problems.append(RowProblem(row, self.source.column_of(error.argument), error))
                continue
            known = numbers_of.get(arguments)
            if known is not None:
                known.append(row)
                continue
            calls.append((arguments, numbers := [row]))
            if self.is_read_only:
                numbers_of[arguments] = numbers
        return BoundRows([Job(tuple(numbers), arguments) for arguments, numbers in calls], problems, count)

    async def request_consent(self, jobs: Sequence[Job], count: int | None, note: Callable[[str], None]) -> CallOptions:
        """Check the policy for the calls of one run, and ask the user once about all of them if necessary.

        Args:
            jobs: The calls that are known so far, at least one. The question shows the first and up to three others.
            count: The number of calls; None if unknown. If it is 0, because all results are cached, the user is not
                asked about a map of their own, but is asked about a map of a model, which reads the results.
            note: Called with the question and its answer.

        Returns:
            The options of the calls.

        Raises:
            PolicyError: The calls are not allowed.
        """
        options = self.host.guard.on_behalf(self.target.entry, self._options)  # of the caller that runs it now
        shown = sorted({0, min(1, len(jobs) - 1), len(jobs) // 2, len(jobs) - 1})
        first, *samples = (jobs[number].arguments for number in shown)
        options, began = replace(options, batch=CallBatch(self.number, count or 0, samples)), time.monotonic()
        questions: list[str] = []

        def noted(question: str) -> None:
            questions.append(question)
            note(question)

        try:
            consent = self.host.guard.permit(self.target.session, self.target.entry, options, first)
            if consent is not None and (count != 0 or options.caller != "user"):
                await consent(noted)
        except PolicyError as error:
            self.record(options, first, began=began, calls=0, questions=questions, error=error)
            raise
        return options

    def record(self, options: CallOptions, first: bytes, *, began: float, calls: int, **details: Any) -> None:
        """Add the map, which ends now, to the history.

        Args:
            options: The options of its calls.
            first: The arguments of the first call.
            began: The start, by `time.monotonic`.
            calls: The number of calls made.
            **details: Other fields of `CallRecord`.
        """
        record = CallRecord(
            began=began,
            ended=time.monotonic(),
            caller=options.origin or options.caller,
            model=options.model.name,
            provider=options.model.provider,
            answer=options.turn,
            server=self.target.session.name,
            tool=self.target.entry.name,
            arguments=first,
            cell=self.cell,
            number=self.number,
            map=self.number,
            calls=calls,
        )
        self.host.history.add(replace(record, **{**details, "questions": tuple(details.get("questions", ()))}))

    async def cached_results(self, jobs: Sequence[Job]) -> dict[bytes, bytes]:
        """The JSON of cached results of earlier maps, by the arguments of the call."""
        return {} if self.cache is None else await self.cache.find(job.arguments for job in jobs)

    def cached_outcomes(
        self, options: CallOptions, jobs: Sequence[Job], cached: Mapping[bytes, bytes]
    ) -> Iterator[tuple[Job, RowOutcome]]:
        """The calls whose results are cached, with their outcomes."""
        for job in jobs:
            if job.arguments in cached:
                result = self.target.cached_result(options, cached[job.arguments])
                yield job, RowOutcome("succeeded", result, is_cached=True)

    def run(self, options: CallOptions, ended: Callable[[Job, RowOutcome], None]) -> MapRun:
        """Make a run of the calls. Runs on the loop."""
        target, cache = self.target, self.cache

        def kept(job: Job, outcome: RowOutcome) -> None:
            if cache is not None and outcome.result is not None:
                cache.keep(job.arguments, outcome.result.json_bytes)
            ended(job, outcome)

        if self.cluster_run is not None:
            return self.cluster_run(options, kept)
        make = partial(new_call, target.host, target.session, target.entry, options)
        return MapRun(target.session, make, self.settings, kept, is_repeatable=self.is_repeatable)


@checked(
    "map",
    columns=MAPPING.or_none,
    concurrency=COUNT.or_none,
    retries=COUNT,
    on_error=one_of("collect", "raise"),
    stop_after=COUNT,
    cache=FLAG | TEXT,
    on_progress=FUNCTION.or_none,
    constants=MAPPING.or_none,
)
def map_request(
    target: MapTarget,
    rows: object,
    /,
    *,
    columns: Mapping[str, str] | None = None,
    concurrency: int | None = None,
    rate: str | None = None,
    retries: int = 2,
    on_error: OnError = "collect",
    stop_after: int = 20,
    cache: bool | str = False,
    on_progress: Callable[[Progress], Any] | None = None,
    constants: Mapping[str, Any] | None = None,
    executor: object = None,
    **arguments: Any,
) -> MapRequest:
    """Check the options of `.map` and read the rows.

    Raises:
        ArgumentError: An option is invalid, or the input has no rows for this tool.
    """
    if concurrency is not None and not 1 <= concurrency <= MAX_CONCURRENCY:
        message = f"map: concurrency: expected a whole number from 1 to {MAX_CONCURRENCY:,}, got {concurrency:,}"
        raise ArgumentError(message, argument="concurrency")

    def note(text: str) -> None:
        target.host.notices.add(f"{target.name}.map: {text}")

    source = read_rows(rows, target.schema, columns, {**(constants or {}), **arguments}, note)
    _refuse_columns(target, source, arguments)
    settings = MapSettings(
        concurrency=concurrency or 1,
        rate=read_rate(rate) if rate is not None else None,
        retries=retries,
        stop_after=stop_after,
        stops_at_error=on_error == "raise",
    )
    request = MapRequest(target, settings, source, on_progress, executor)
    if cache is not False:
        request.cache = _cache(request, cache)
    if concurrency is None and request.is_read_only:
        request.settings = replace(settings, concurrency=READING_CONCURRENCY)
    return request


def _refuse_columns(target: MapTarget, source: Rows, constants: Mapping[str, Any]) -> None:
    """Raise an ArgumentError for a constant that is the name of a column, which may be meant instead of the word."""
    for name, value in constants.items():
        if isinstance(value, str) and value in source.available:
            message = f"map: {name}={value!r} would send the word {value!r} in every row, and the table has that column"
            hint = f"columns={{{name!r}: {value!r}}} sends the column, constants={{{name!r}: {value!r}}} the word"
            entry = target.entry
            raise ArgumentError(message, argument=name, server=entry.server, tool=entry.name, hint=hint)


def _cache(request: MapRequest, cache: bool | str) -> ResultCache:
    from ipymcp.security.pins import canonical, fingerprint
    from ipymcp.storage.cached_results import ResultCache

    if not request.is_read_only:
        raise ArgumentError(
            f"map: cache: {request.name} does not declare that it only reads, and results of tools that may change "
            "something are not cached",
            argument="cache",
            hint='if it only reads: "hints": {"TOOL": {"readOnlyHint": true}} in the definition of its server',
        )
    try:
        since = 0.0 if cache is True else moment(cache)
    except McpError:
        message = f"map: cache: expected True or an age, got {shown(cache)}"
        raise ArgumentError(message, argument="cache", hint='cache="7d"') from None
    target = request.target
    tool = fingerprint(canonical(target.entry.definition))
    return ResultCache(request.host.store.cached_results, target.session.digest, tool, since)


def read_rate(text: object) -> float:
    """Read a number of calls a second from `10/s`, `600/min` or `1000/h`.

    Raises:
        ArgumentError: The text is not a rate.
    """
    found = _RATE.fullmatch(text) if isinstance(text, str) else None
    if found is None or not float(found[1]):
        message = f"map: rate: expected calls per time, got {shown(text)}"
        raise ArgumentError(message, argument="rate", hint='rate="10/s"')
    return float(found[1]) / _SECONDS[found[2][0]]


def invalid_rows_error(request: MapRequest, problems: Sequence[RowProblem], count: int) -> ArgumentError:
    """The error for rows that do not fit, listed by row and column."""
    lines = [
        f"row {row}{f', {column}' if column else ''}: {error.message}" for row, column, error in problems[:SHOWN_ERRORS]
    ]
    if len(problems) > SHOWN_ERRORS:
        lines.append(f"and {len(problems) - SHOWN_ERRORS:,} more")
    message = f"{len(problems):,} of {counted(count, 'row')} do not fit, and nothing was sent: "
    return ArgumentError(
        message + "; ".join(lines),
        argument=problems[0].error.argument,
        server=request.target.entry.server,
        tool=request.target.entry.name,
        hint='on_error="collect" sends the others',
    )


class MapPlan(TableView):
    """The calls that a map would make: the first arguments, the number of calls, and the rows that do not fit.

    Attributes:
        rows: Number of rows.
        calls: Number of calls; rows with the same arguments share one if the tool is read-only.
        duplicates: Number of rows that share the call of another row.
        cached: Number of rows whose result is cached from an earlier map, so that no call is needed.
        problems: The rows that do not fit, as `(row, column, error)`.
    """

    def __init__(self, request: MapRequest) -> None:
        if isinstance(request.source.values, Iterator):
            raise ArgumentError("a plan would consume these rows", hint="make a list of them: list(…)")
        jobs, problems, self.rows = run_steps(request.bind_rows())
        self.duplicates = sum(len(job.rows) - 1 for job in jobs)
        cached = request.host.loop.run(request.cached_results(jobs)) if request.cache is not None else {}
        self.cached = sum(len(job.rows) for job in jobs if job.arguments in cached)
        self.calls = len(jobs) - len(cached)
        self.problems = tuple(problems)
        self._request = request
        self._first = jobs[:_SHOWN_ROWS]

    @property
    def table(self) -> Table:
        """The first calls and the first rows that do not fit."""
        settings = self._request.settings
        first = [(job.rows[0], shortened(mask(job.arguments.decode()), _MAX_SHOWN)) for job in self._first]
        unfit = [(row, f"does not fit: {error.message}") for row, _, error in self.problems[:SHOWN_ERRORS]]
        rows = sorted([*first, *unfit])
        notes = [f"… {counted(self.rows - len(rows), 'more row')}"] if self.rows > len(rows) else []
        notes.append(f"{settings.concurrency} at a time")
        notes += [f"at most {settings.rate:g} a second"] if settings.rate else []
        title = f"{self._request.name}: {counted(self.calls, 'call')} for {counted(self.rows, 'row')}"
        notes += [counted(self.duplicates, "duplicate")] if self.duplicates else []
        notes += [f"{self.cached:,} cached"] if self._request.cache is not None else []
        return Table(("row", "arguments"), rows, title=title, note="; ".join([*notes, "nothing was sent"]))
