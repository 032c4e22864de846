"""`tool.map`: a call for every row of a table or list."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from ipymcp.api.map_request import MapPlan, map_request
from ipymcp.api.map_result import MapResult
from ipymcp.api.map_stream import MapStream, write_map
from ipymcp.argument_checks import checked
from ipymcp.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from os import PathLike

    from ipymcp.api.map_request import MapRequest, MapTarget


class ToolMap:
    """`tool.map`: call a tool for every row.

    `.map(rows)` waits for all, `.map.aio(rows)` is awaited, `.map.stream(rows)` gives results one by one, and
    `.map.plan(rows)` shows what would be called.

    Args:
        name: The tool, as one writes it.
        tool: The tool.
        target: Finds the tool, and starts its server if that is needed.
        atarget: The same, awaited.
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
                A Dask DataFrame or Bag stays lazy: what comes back is one, and is called when Dask computes it.
            to: A file, `.jsonl` or `.parquet`, to which results are written as they come, instead of keeping them.
            **options: `columns`: the column for each argument that is not named like its column. `concurrency`: the
                number of calls at the same time; by default 8 if the tool declares that it only reads, else 1. `rate`:
                calls a second, such as `"10/s"` or `"600/min"`. `retries`: how often a call is repeated after a
                transient error, if that is safe; 2 by default. `on_error`: `"collect"` (default) or `"raise"`.
                `stop_after`: failures in a row after which the run stops; 20 by default, 0 for never. `cache`: True, or
                an age such as `"7d"`: take results of earlier maps with `cache`, and keep the new ones; for tools that
                declare that they only read. `on_progress`: a function that is given the map's `Progress`. `executor`: a
                `dask.distributed.Client` or a `concurrent.futures.Executor` whose workers make the calls; then
                `concurrency` counts for each worker. `constants`:
                arguments with the same value in every row, if they are named like one of these options. Any other
                keyword is an argument with the same value in every row.

        Raises:
            ArgumentError: A row does not fit and `on_error` is `"raise"`, or an option is wrong. Nothing was sent.
            PolicyError: The calls are not allowed.
            McpError: The first failure, if `on_error` is `"raise"`; `mcp.maps[-1]` has the results until then.
            KeyboardInterrupt: The user interrupted; `mcp.maps[-1].resume()` goes on.
        """
        if options.get("executor") is None and type(rows).__module__.startswith("dask."):
            from ipymcp.api.map_lazy import is_lazy, lazy_map

            if is_lazy(rows):
                return lazy_map(self._tool, self.target(), rows, options)
        request = self._request(rows, options)
        if to is not None:
            return write_map(request, to)
        return MapResult(request).wait()

    @checked("map.aio")
    async def aio(self, rows: object, /, **options: Any) -> MapResult:
        """Call the tool for every row and await all results. Arguments and errors are those of `.map`."""
        if "to" in options:
            raise ArgumentError("map.aio: to: is for .map", argument="to", hint="async for … in ….map.stream(rows)")
        return await MapResult(_request(await self._atarget(), rows, options)).arun()

    @checked("map.stream")
    def stream(self, rows: object, /, **options: Any) -> MapStream:
        """Call the tool for one row after the other while results are read: `for row, result in tool.map.stream(rows)`.

        The input may be endless, an async iterable (for `async for`), or a pyarrow RecordBatchReader. Some rows are
        called ahead of the one that is read: 64 of a tool that may be repeated, else as many as are called at once. In
        place of a result, a row that failed has its error. Options and errors are those of `.map`, without
        `on_progress`.
        """
        request = self._request(rows, options)
        if request.on_progress is not None:
            message = "map.stream: on_progress: a stream is read row by row, which is its progress"
            raise ArgumentError(message, argument="on_progress", hint="call the function where the rows are read")
        return MapStream(request)

    @checked("map.plan")
    def plan(self, rows: object, /, **options: Any) -> MapPlan:
        """Show the calls that `.map` would make with the same arguments; sends nothing."""
        return MapPlan(self._request(rows, options))

    @property
    def __signature__(self) -> inspect.Signature:
        """The options, and the tool's arguments as constants: for `?`, Shift-Tab and Tab."""
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
        return f"<{self._name}.map: a call for every row; .aio, .stream and .plan are others>"

    def _request(self, rows: object, options: Mapping[str, Any]) -> MapRequest:
        return _request(self.target(), rows, options)


def _request(target: MapTarget, rows: object, options: Mapping[str, Any]) -> MapRequest:
    request = map_request(target, rows, **options)
    if request.executor is not None:
        from ipymcp.api.map_cluster import cluster_run

        request.cluster_run = cluster_run(request, request.executor)
    return request
