"""What `%config IPyMCP` sets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from traitlets import Bool, Enum, Unicode, observe, validate
from traitlets.config import Configurable

from ipymcp.errors import McpError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipymcp.runtime.nested import NestedMode

__all__ = ["IPyMCP"]


class IPyMCP(Configurable):
    """MCP in the notebook."""

    namespace = Unicode("mcp", help="The name that the notebook's servers are bound to; empty for none.").tag(
        config=True
    )
    tracebacks = Bool(False, help="Show Python's whole traceback for ipymcp's errors instead of two lines.").tag(
        config=True
    )
    nested_loop = Enum(
        ("off", "handlers", "always"),
        "off",
        help="Where your coroutine functions for servers (mcp.on_sampling, mcp.on_elicitation) run: on a loop of"
        " ipymcp's (off), or on the kernel's, by nest_asyncio where a call blocks that (handlers); always: calls wait"
        " by nesting the kernel's loop, too, so that your tasks go on meanwhile.",
    ).tag(config=True)
    quiet = Bool(False, help="Show no progress of calls and no lines while servers load.").tag(config=True)

    def __init__(
        self, on_namespace: Callable[[], None], on_nested_loop: Callable[[NestedMode], None], **kwargs: Any
    ) -> None:
        self._on_namespace: Callable[[], None] = _nothing
        self._on_nested_loop = on_nested_loop
        super().__init__(**kwargs)
        self._on_namespace = on_namespace
        self._on_nested_loop(cast("NestedMode", self.nested_loop))
        McpError.full_tracebacks = self.tracebacks

    @validate("namespace")
    def _identifier(self, proposal: dict[str, Any]) -> str:
        name: str = proposal["value"]
        if name and not name.isidentifier():
            raise ValueError(f"IPyMCP.namespace must be a Python name, not {name!r}")
        return name

    @observe("tracebacks")
    def _set_tracebacks(self, change: dict[str, Any]) -> None:
        McpError.full_tracebacks = change["new"]

    @observe("nested_loop")
    def _set_nested_loop(self, change: dict[str, Any]) -> None:
        self._on_nested_loop(change["new"])

    @observe("namespace")
    def _set_namespace(self, change: dict[str, Any]) -> None:
        self._on_namespace()


def _nothing() -> None: ...
