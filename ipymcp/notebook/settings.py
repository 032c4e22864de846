"""What `%config IPyMCP` sets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from traitlets import Bool, Unicode, observe, validate
from traitlets.config import Configurable

from ipymcp.errors import McpError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["IPyMCP"]


class IPyMCP(Configurable):
    """MCP in the notebook."""

    namespace = Unicode("mcp", help="The name that the notebook's servers are bound to; empty for none.").tag(
        config=True
    )
    tracebacks = Bool(False, help="Show Python's whole traceback for ipymcp's errors instead of two lines.").tag(
        config=True
    )
    quiet = Bool(False, help="Show no progress of calls and no lines while servers load.").tag(config=True)

    def __init__(self, on_namespace: Callable[[], None], **kwargs: Any) -> None:
        self._on_namespace: Callable[[], None] = _nothing
        super().__init__(**kwargs)
        self._on_namespace = on_namespace
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

    @observe("namespace")
    def _set_namespace(self, change: dict[str, Any]) -> None:
        self._on_namespace()


def _nothing() -> None: ...
