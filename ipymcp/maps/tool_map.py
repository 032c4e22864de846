"""`tool.map`: a call for every row of a table or list."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from ipymcp.argument_checks import checked
from ipymcp.errors import ArgumentError
from ipymcp.maps.request import MapPlan, arun_steps, map_request, run_steps
from ipymcp.maps.result import MapResult, use_executor
from ipymcp.maps.stream import MapStream, write_map

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from os import PathLike

    from ipymcp.maps.request import MapRequest, MapTarget


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
        request = self._request(rows, options)
        if to is not None:
            return write_map(request, to)
        return MapResult(request, run_steps(request.keep_rows())).wait()

    @checked("map.aio")
    async def aio(self, rows: object, /, **options: Any) -> MapResult:
        """Call the tool for every row and await all results. Arguments and errors are those of `.map`."""
        if "to" in options:
            raise ArgumentError("map.aio: to: is for .map", argument="to", hint="async for … in ….map.stream(rows)")
        request = _request(await self._atarget(), rows, options)
        return await MapResult(request, await arun_steps(request.keep_rows())).arun()

    @checked("map.stream")
    def stream(self, rows: object, /, **options: Any) -> MapStream:
        """Call the tool row by row while the results are read: `for row, result in tool.map.stream(rows)`.

        The input may be endless, an async iterable (for `async for`), or a pyarrow RecordBatchReader. Some rows are
        called ahead of the row that is read: 64 if calls of the tool may be repeated, else `concurrency`. For a row
        that failed, the result is its error. Options and errors are those of `.map`, without
        `on_progress`.
        """
        request = self._request(rows, options)
        if request.on_progress is not None:
            message = "map.stream: on_progress: a stream shows its progress by the rows that are read"
            raise ArgumentError(
                message, argument="on_progress", hint="call the function in the loop that reads the rows"
            )
        return MapStream(request)

    @checked("map.plan")
    def plan(self, rows: object, /, **options: Any) -> MapPlan:
        """Show the calls that `.map` would make with the same arguments; sends nothing."""
        return MapPlan(self._request(rows, options))

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

    def _request(self, rows: object, options: Mapping[str, Any]) -> MapRequest:
        return _request(self.target(), rows, options)


def _request(target: MapTarget, rows: object, options: Mapping[str, Any]) -> MapRequest:
    request = map_request(target, rows, **options)
    use_executor(request, request.executor)
    return request
