"""Tab in Python code: servers, tools, arguments, and what may follow them. Nothing is evaluated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipymcp.errors import McpError
from ipymcp.runtime.calls import Call
from ipymcp.runtime.names import RESERVED_HOST, RESERVED_SERVER
from ipymcp.tools.face import Mcp
from ipymcp.tools.results import ToolResult
from ipymcp.tools.servers import Server, Servers
from ipymcp.tools.tool import Tool
from ipymcp.tools.toolset import Toolset
from ipymcp.tools.waits import waits

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ipymcp.notebook.attribute_context import AttributeContext, Step
    from ipymcp.runtime.catalog import ToolEntry
    from ipymcp.runtime.server import ServerSession
    from ipymcp.tools.schema import Parameter

__all__ = ["in_code", "values"]

_CALLERS = ("aio", "submit")
"""Words of a tool that are called with its arguments."""


def in_code(context: AttributeContext, mcp: Mcp) -> tuple[Iterable[object], str]:
    """What may stand at the cursor in Python code, keys and values as they are, and its kind for IPython."""
    path, is_key = context.path, context.kind == "key"
    session = _session(path[0], mcp) if path and not _is_own_word(path[0]) else None
    if session is not None and len(path) > 1 and path[1].name in RESERVED_SERVER and not path[1].item:
        from ipymcp.notebook import offer_completion

        return offer_completion.in_code(context, mcp, session)
    if context.kind in ("argument", "value"):
        return _in_call(context, mcp)
    if not path:
        return (mcp if is_key else dir(mcp)), "module"
    if _is_own_word(path[0]):
        return _of_own_word(context, mcp), "module" if is_key else "function"
    if path[-1].called:
        return _of_called(path, mcp), "property"
    if session is None or len(path) > 2 or (is_key and len(path) == 2):
        return (), "function"
    if len(path) == 2:
        return _words_of(Tool), "function"
    if is_key:
        return session.catalog.tools, "function"
    return [*sorted(session.catalog.aliases), *_offered(session)], "function"


def _offered(session: ServerSession) -> list[str]:
    """Which of a server's own words lead to something."""
    client = session.client
    return [word for word in sorted(RESERVED_SERVER) if client is not None and word in client.capabilities]


def _is_own_word(step: Step) -> bool:
    """Whether this is a word of `mcp` itself, not a server."""
    return step.name in RESERVED_HOST and not step.item


def _of_own_word(context: AttributeContext, mcp: Mcp) -> Iterable[str]:
    """What may follow `mcp.servers`, `mcp.tools` or a word that waits, such as `mcp.load`."""
    first, *rest = context.path
    if first.called or len(rest) > 1:
        return ()
    if first.name == "servers":
        if rest:
            return _words_of(Server) if rest[0].item and context.kind == "attribute" else ()
        return mcp if context.kind == "key" else _words_of(Servers)
    if rest or context.kind == "key":
        return ()
    if first.name == "tools":
        return _words_of(Toolset)
    if first.name in RESERVED_SERVER:
        return ("df", "table")
    return ("aio",) if isinstance(getattr(Mcp, first.name, None), waits) else ()


def _of_called(path: Sequence[Step], mcp: Mcp) -> Iterable[str]:
    """What may follow the call of a tool."""
    *steps, last = path
    if _entry([*steps, last], mcp) is not None or (last.name == "call" and _entry(steps, mcp) is not None):
        return _words_of(ToolResult)
    return _words_of(Call) if last.name == "submit" and _entry(steps, mcp) is not None else ()


def _words_of(kind: type[object]) -> list[str]:
    return [word for word in dir(kind) if not word.startswith("_")]


def _entry(steps: Sequence[Step], mcp: Mcp) -> ToolEntry | None:
    """The tool that a path names, if it names one."""
    if len(steps) != 2 or _is_own_word(steps[0]):
        return None
    session = _session(steps[0], mcp)
    return session.catalog.find(steps[1].name) if session is not None else None


def _in_call(context: AttributeContext, mcp: Mcp) -> tuple[Iterable[object], str]:
    path = context.path
    is_caller = len(path) == 3 and path[2].name in _CALLERS and not path[2].item
    entry = _entry(path[:2] if is_caller else path, mcp)
    if entry is None:
        return (), "param"
    parameters = mcp._factory.schema(entry).parameters
    if context.kind == "value":
        name = context.argument or _positional(parameters, context.positional)
        return values(parameters, name), "value"
    filled = {parameter.alias for parameter in [p for p in parameters if p.required][: context.positional]}
    names = [p.alias for p in parameters if p.alias not in context.given and p.alias not in filled]
    return (f"{name}=" for name in names), "param"


def _session(step: Step, mcp: Mcp) -> ServerSession | None:
    try:
        return mcp._host.find(step.name)
    except McpError:
        return None


def _positional(parameters: Sequence[Parameter], position: int) -> str:
    required = [parameter for parameter in parameters if parameter.required]
    return required[position].alias if position < len(required) else ""


def values(parameters: Sequence[Parameter], name: str) -> Sequence[object]:
    """The values an argument may have, by its name or alias."""
    found = next((parameter for parameter in parameters if name in (parameter.name, parameter.alias)), None)
    if found is None:
        return ()
    return found.enum or ((True, False) if found.annotation is bool else ())
