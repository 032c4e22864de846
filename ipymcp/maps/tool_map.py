"""`tool.map`: a call for every row of a table or list."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from ipymcp.argument_checks import checked
from ipymcp.errors import ArgumentError
from ipymcp.maps.file import write_map
from ipymcp.maps.request import SHOWN_ERRORS, map_request
from ipymcp.maps.result import MapResult
from ipymcp.maps.running import use_executor
from ipymcp.maps.stream import MapStream
from ipymcp.masking import mask
from ipymcp.results.tables import Table, TableView
from ipymcp.text import counted, shortened

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from os import PathLike

    from ipymcp.maps.request import MapRequest, MapTarget


_SHOWN_CALLS: Final = 5
"""Number of calls that a plan shows."""
_MAX_SHOWN: Final = 200


class ToolMap:
    """`tool.map`: call a tool for every row.

    `.map(rows)` waits for all results, `.map.aio(rows)` is awaited, `.map.stream(rows)` yields results one by one, and
    `.map.plan(rows)` shows the calls that would be made.

    Args:
        name: The Python expression for the tool.
        tool: The tool.
        target: Returns the target of maps; starts the server if necessary.
        atarget: The same as a coroutine function.
    """

    def __init__(
        self, name: str, tool: object, target: Callable[[], MapTarget], atarget: Callable[[], Awaitable[MapTarget]]
    ) -> None:
        self._name = name
        self._tool = tool
        self.target = target
        self._atarget = atarget

    @checked("map")
    def __call__(self, rows: object, /, *, to: str | PathLike[str] | None = None, **options: Any) -> Any:
        """Call the tool for every row and wait for all results.

        Args:
            rows: A table of pandas, polars, pyarrow or DuckDB, a Series, or an iterable of mappings, tuples or values.
                For a Dask DataFrame or Series the result is a lazy one, too; the calls are made when Dask computes it.
            to: A file, `.jsonl` or `.parquet`, to which results are written as they arrive, instead of keeping them.
            **options: `columns`: the column for each argument whose column has another name. `concurrency`: the maximum
                number of concurrent calls; by default 8 if the tool declares that it only reads, else 1. `rate`: the
                maximum calls per time, such as `"10/s"` or `"600/min"`. `retries`: how often a call is repeated after
                a transient error, if that is safe; 2 by default. `on_error`: `"collect"` (default) or `"raise"`.
                `stop_after`: consecutive failures after which the run stops; 20 by default, 0 for never. `cache`:
                True, or a maximum age such as `"7d"`: use results that earlier maps with `cache` have kept, and keep
                the new ones; for tools that declare that they only read. `on_progress`: a function that is called with
                the map's `Progress`. `executor`: a `dask.distributed.Client` whose workers make the calls;
                `concurrency` is then that of each worker. `constants`: arguments with the same value in every row whose
                names are those of options, or whose value is the name of a column. Any other keyword is an argument
                with the same value in every row.

        Raises:
            ArgumentError: A row does not fit the tool and `on_error` is `"raise"`, or an option is invalid. Nothing was
                sent.
            PolicyError: The calls are not allowed.
            McpError: The first failure, if `on_error` is `"raise"`; `mcp.maps[-1]` has the results until then.
            KeyboardInterrupt: The user interrupted the map; `mcp.maps[-1].resume()` continues it.
        """
        if options.get("executor") is None and type(rows).__module__.startswith("dask."):
            from ipymcp.maps.lazy import is_lazy, lazy_map

            if is_lazy(rows):
                return lazy_map(self._tool, self.target(), rows, options if to is None else {**options, "to": to})
        request = _request(self.target(), rows, options)
        if to is not None:
            return write_map(request, to)
        request.bind()
        return MapResult(request).wait()

    @checked("map.aio")
    async def aio(self, rows: object, /, **options: Any) -> MapResult:
        """Call the tool for every row and await all results. Arguments and errors are those of `.map`.

        For example `out = await mcp.demo.echo.map.aio(["one", "two"])`.
        """
        if "to" in options:
            raise ArgumentError("map.aio: to: is for .map", argument="to", hint="async for … in ….map.stream(rows)")
        request = _request(await self._atarget(), rows, options)
        await request.abind()
        return await MapResult(request).arun()

    @checked("map.stream")
    def stream(self, rows: object, /, **options: Any) -> MapStream:
        """Call the tool row by row while the results are read.

            for row, result in mcp.demo.echo.map.stream(["one", "two"]):
                print(row, result)

        The input may be endless, an async iterable (for `async for`), or a pyarrow RecordBatchReader. Some rows are
        called ahead of the row that is read: 64 if calls of the tool may be repeated, else `concurrency`. For a row
        that failed, the result is its error. Options and errors are those of `.map`, without
        `on_progress`.
        """
        request = _request(self.target(), rows, options)
        if request.on_progress is not None:
            message = "map.stream: on_progress: a stream shows its progress by the rows that are read"
            raise ArgumentError(
                message, argument="on_progress", hint="call the function in the loop that reads the rows"
            )
        return MapStream(request)

    @checked("map.plan")
    def plan(self, rows: object, /, **options: Any) -> MapPlan:
        """Show the calls that `.map` would make with the same arguments; sends nothing.

        For example `mcp.demo.echo.map.plan(["one", "two"])`.
        """
        return MapPlan(_request(self.target(), rows, options))

    @property
    def __signature__(self) -> inspect.Signature:
        """The options, and the tool's arguments as constants, for `?`, Shift-Tab and Tab."""
        kinds = inspect.Parameter
        options = [
            each for each in inspect.signature(map_request).parameters.values() if each.kind is kinds.KEYWORD_ONLY
        ]
        taken = {"rows", "to", *(each.name for each in options)}
        arguments = [
            kinds(each.alias, kinds.KEYWORD_ONLY, default=...)
            for each in self.target().schema.parameters
            if each.alias not in taken
        ]
        to = kinds("to", kinds.KEYWORD_ONLY, default=None)
        return inspect.Signature([kinds("rows", kinds.POSITIONAL_ONLY), *options, to, *arguments])

    def __repr__(self) -> str:
        return f"<{self._name}.map: a call for every row; see also .aio, .stream and .plan>"


def _request(target: MapTarget, rows: object, options: Mapping[str, Any]) -> MapRequest:
    request = map_request(target, rows, **options)
    use_executor(request, request.executor)
    return request


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
        request.bind(keeps=False)
        jobs, cache, cached = request.jobs, request.cache, dict[bytes, bytes]()
        if cache is not None:
            cached = request.host.loop.run(cache.find(job.arguments for job in jobs))
        self.rows = request.total
        self.calls = len(jobs) - len(cached)
        self.duplicates = sum(len(job.rows) - 1 for job in jobs)
        self.cached = sum(len(job.rows) for job in jobs if job.arguments in cached)
        self.problems = tuple(request.problems)
        self._name, self._settings, self._uses_cache = request.name, request.settings, cache is not None
        self._first = jobs[:_SHOWN_CALLS]

    @property
    def table(self) -> Table:
        """The first calls and the first rows that do not fit."""
        settings = self._settings
        first = [(job.rows[0], shortened(mask(job.arguments.decode()), _MAX_SHOWN)) for job in self._first]
        unfit = [(row, f"does not fit: {error.message}") for row, _, error in self.problems[:SHOWN_ERRORS]]
        rows = sorted([*first, *unfit])
        notes = [f"… {counted(self.rows - len(rows), 'more row')}"] if self.rows > len(rows) else []
        notes.append(f"{settings.concurrency} at a time")
        notes += [f"at most {settings.rate:g} a second"] if settings.rate else []
        notes += [counted(self.duplicates, "duplicate")] if self.duplicates else []
        notes += [f"{self.cached:,} cached"] if self._uses_cache else []
        title = f"{self._name}: {counted(self.calls, 'call')} for {counted(self.rows, 'row')}"
        return Table(("row", "arguments"), rows, title=title, note="; ".join([*notes, "nothing was sent"]))
