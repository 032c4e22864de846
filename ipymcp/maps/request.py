"""The request of a map: the tool, the rows and the settings. Rows are bound and validated before the first call."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterable
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from msgspec.structs import replace

from ipymcp.api.history import moment
from ipymcp.api.tool_calls import cached_result, new_call
from ipymcp.argument_checks import COUNT, FLAG, FUNCTION, MAPPING, TEXT, checked, one_of, shown
from ipymcp.errors import ArgumentError, McpError
from ipymcp.maps.rows import RowProblem, read_rows
from ipymcp.maps.run import Job, MapRun, MapSettings
from ipymcp.names import expression
from ipymcp.security.rules import hints
from ipymcp.text import counted

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Generator, Mapping
    from typing import TypeAlias

    from ipymcp.maps.rows import Rows
    from ipymcp.protocol.types import Progress
    from ipymcp.results.tool_result import ToolResult
    from ipymcp.runtime.call import Call
    from ipymcp.runtime.call_options import CallOptions
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
_MAX_STEP: Final = 0.02
"""Seconds for which an awaited map may block the loop while it reads its rows."""


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

    @property
    def origin(self) -> dict[str, str]:
        """The server and the tool, as arguments of an error."""
        return {"server": self.entry.server, "tool": self.entry.name}

    def new_call(self, options: CallOptions, arguments: bytes) -> Call[ToolResult]:
        """Make a call, which is not sent yet."""
        return new_call(self.host, self.session, self.entry, options, arguments)

    def cached_result(self, options: CallOptions, raw: bytes) -> ToolResult:
        """Convert a cached result to the result that a call with these options would return."""
        return cached_result(self.host, self.session, self.entry, options, raw)


class MapRequest:
    """The tool to call, the rows, and the settings.

    Attributes:
        cache: The stored results of earlier maps; None if the map does not use them.
        cluster_run: Makes a run on a cluster; None for runs in this process.
        jobs: The calls, after `bind`.
        problems: The rows that do not fit the tool, after `bind`.
        total: The number of rows, after `bind`.

    Args:
        target: The tool.
        settings: Concurrency, rate, retries and when to stop.
        source: The rows.
        on_progress: Called with the progress of the map.
        executor: The Dask client whose workers make the calls; None for this process. `use_executor` must follow.
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
        self.name = target.name
        self.settings = settings
        self.source = source
        self.host = target.host
        self.number = self.host.calls.next_number()
        self.on_progress = on_progress or target.options.on_progress
        self.options = self.host.guard.on_behalf(target.entry, replace(target.options, on_progress=None))
        self.cell = self.host.history.calling_cell(self.options)
        declared = hints(target.entry, target.session.rights)
        self.is_read_only = declared.get("readOnlyHint") is True
        self.is_repeatable = self.is_read_only or declared.get("idempotentHint") is True
        self.cache: ResultCache | None = None
        self.executor = executor
        self.cluster_run: Callable[..., MapRun] | None = None
        self.jobs: list[Job] = []
        self.problems: list[RowProblem] = []
        self.total = 0

    def bind(self, *, keeps: bool = True) -> None:
        """Bind all rows to arguments. `keeps` makes them independent of the input, which may be used up by it."""
        for _ in self._bind_steps(keeps=keeps):
            pass

    async def abind(self) -> None:
        """Like `bind`, while other tasks run, which may cancel this one."""
        began = time.monotonic()
        for _ in self._bind_steps(keeps=True):
            if time.monotonic() - began > _MAX_STEP:
                await asyncio.sleep(0)
                began = time.monotonic()

    def _bind_steps(self, *, keeps: bool) -> Generator[None]:
        """Bind all rows. Rows with the same arguments share one call if the tool is read-only. Yields for every row."""
        if keeps:
            self.source = yield from self.source.keep()
        bind, values = self.source.bind, self.source.values
        if isinstance(values, AsyncIterable):
            raise ArgumentError("the rows are an async iterable", hint="async for row, result in ….map.stream(rows)")
        numbers_of: dict[bytes, list[int]] = {}
        calls: list[tuple[bytes, list[int]]] = []
        for row, cells in enumerate(values):
            yield
            self.total += 1
            try:
                arguments = bind(cells)
            except ArgumentError as error:
                self.problems.append(RowProblem(row, self.source.column_of(error.argument), error))
                continue
            if arguments in numbers_of:
                numbers_of[arguments].append(row)
                continue
            calls.append((arguments, numbers := [row]))
            if self.is_read_only:
                numbers_of[arguments] = numbers
        self.jobs = [Job(tuple(numbers), arguments) for arguments, numbers in calls]

    def refuse_invalid_rows(self) -> None:
        """Raise an ArgumentError that lists the rows that do not fit, by row and column, if there are any."""
        if not self.problems:
            return
        lines = [
            f"row {row}{f', {column}' if column else ''}: {error.message}"
            for row, column, error in self.problems[:SHOWN_ERRORS]
        ]
        if len(self.problems) > SHOWN_ERRORS:
            lines.append(f"and {len(self.problems) - SHOWN_ERRORS:,} more")
        message = f"{len(self.problems):,} of {counted(self.total, 'row')} do not fit, and nothing was sent: "
        hint, argument = 'on_error="collect" sends the others', self.problems[0].error.argument
        raise ArgumentError(message + "; ".join(lines), argument=argument, hint=hint, **self.target.origin)


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
    for name, value in arguments.items():
        if isinstance(value, str) and value in source.available:  # the column may be meant instead of the word
            message = f"map: {name}={value!r} would send the word {value!r} in every row, and the table has that column"
            hint = f"columns={{{name!r}: {value!r}}} sends the column, constants={{{name!r}: {value!r}}} the word"
            raise ArgumentError(message, argument=name, hint=hint, **target.origin)
    settings = MapSettings(
        concurrency=concurrency or 1,
        rate=_read_rate(rate) if rate is not None else None,
        retries=retries,
        stop_after=stop_after,
        stops_at_error=on_error == "raise",
    )
    request = MapRequest(target, settings, source, on_progress, executor)
    if cache is not False:
        request.cache = _result_cache(request, cache)
    if concurrency is None and request.is_read_only:
        request.settings = replace(settings, concurrency=READING_CONCURRENCY)
    return request


def _result_cache(request: MapRequest, cache: bool | str) -> ResultCache:
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


def _read_rate(text: object) -> float:
    """Read a number of calls a second from `10/s`, `600/min` or `1000/h`."""
    match = _RATE.fullmatch(text) if isinstance(text, str) else None
    if match is None or not float(match[1]):
        message = f"map: rate: expected calls per time, got {shown(text)}"
        raise ArgumentError(message, argument="rate", hint='rate="10/s"')
    return float(match[1]) / _SECONDS[match[2][0]]
