"""Tab for what is kept or written elsewhere: secrets, agreements, hosts, the keys of definitions, running calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipymcp.errors import McpError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ipymcp.notebook.context import LineContext
    from ipymcp.tools.face import Mcp

__all__ = ["kept"]


def kept(context: LineContext, mcp: Mcp) -> Iterable[str]:
    """What may stand at the cursor."""
    match context.kind:
        case "secret":
            return _secrets(mcp)
        case "trusted":
            return _trusted(mcp)
        case "target-host":
            from ipymcp.config.convert import TARGETS

            return TARGETS
        case "setting":
            from ipymcp.config.convert import SETTINGS

            return (f"{key}{'.' if is_table else '='}" for key, is_table in SETTINGS.items())
        case "call":
            return (str(call.number) for call in mcp.calls)
        case _:
            return ()


def _secrets(mcp: Mcp) -> Iterator[str]:
    """Those that are kept, and those that definitions ask for."""
    from ipymcp.config.definition import ServerDefinition
    from ipymcp.config.variables import references

    try:
        yield from (one.name for one in mcp._host.state.secrets.kept())
    except McpError:
        return
    for definition in mcp._host.discovery.peek().servers.values():
        if isinstance(definition, ServerDefinition):
            yield from (one.name for one in references(definition) if one.kind == "secret")


def _trusted(mcp: Mcp) -> Iterator[str]:
    for one in mcp.trust.table:
        yield str(one["server"])
        yield str(one["file"])
