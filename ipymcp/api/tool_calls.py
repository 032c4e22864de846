"""Making calls of tools whose arguments have been checked, and converting their results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ipymcp.errors import CallError, ToolError
from ipymcp.masking import mask
from ipymcp.protocol import types
from ipymcp.protocol.types import is_object
from ipymcp.results.tool_result import ToolResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from msgspec import Raw

    from ipymcp.runtime.call import Call
    from ipymcp.runtime.call_options import CallOptions
    from ipymcp.runtime.catalog import ToolEntry
    from ipymcp.runtime.host import Host
    from ipymcp.runtime.session import ServerSession


_MAX_MESSAGE = 300


def new_call(
    host: Host, session: ServerSession, entry: ToolEntry, options: CallOptions, arguments: bytes
) -> Call[ToolResult]:
    """Make a call with a JSON object of checked arguments.

    Raises:
        PolicyError: The call is not allowed.
    """
    convert, is_untrusted = _converter(host, session, entry)
    if host.client_handlers.shows_apps and entry.app.uri:
        from ipymcp.api.apps import apps_of

        app = options.card.app if options.card is not None else None
        convert = apps_of(host).attach_app(session, entry, arguments, convert, app)
    if options.as_task or len(entry.definition.execution):
        options = replace(options, as_task=_runs_as_task(session, entry, requested=options.as_task))
    return host.calls.new(session, entry, arguments, options, convert, is_untrusted=is_untrusted)


def cached_result(host: Host, session: ServerSession, entry: ToolEntry, options: CallOptions, raw: bytes) -> ToolResult:
    """Convert a cached result to the result that a call with these options would return."""
    convert, is_untrusted = _converter(host, session, entry)
    if is_untrusted:
        host.guard.received(f"{session.name}.{entry.name}", options.conversation, raw)
    return convert(raw)


def _converter(
    host: Host, session: ServerSession, entry: ToolEntry
) -> tuple[Callable[[Raw | bytes], ToolResult], bool]:
    """The converter of a result's JSON, and whether a result may have content of third parties."""
    output_schema = entry.definition.outputSchema
    is_untrusted = host.guard.policy.is_open_world(entry, session.rights)

    def convert(raw: Raw | bytes) -> ToolResult:
        schema = bytes(output_schema) if len(output_schema) else None
        return tool_result(raw, entry.server, entry.name, schema, is_untrusted=is_untrusted)

    return convert, is_untrusted


def _runs_as_task(session: ServerSession, entry: ToolEntry, *, requested: bool) -> bool:
    """Whether to run a call as a task: if the tool requires it, or supports it and the user requested it.

    Source: MCP 2025-11-25, basic/utilities/tasks, tool-level negotiation.
    """
    client = session.client
    if client is None or client.era.kind == "stateless" or not client.tasks.are_supported:
        return False
    execution = types.loads(entry.definition.execution) if len(entry.definition.execution) else None
    support = execution.get("taskSupport") if is_object(execution) else None
    return support == "required" or (requested and support == "optional")


def tool_result(
    raw: Raw | bytes, server: str, tool: str, output_schema: bytes | None, *, is_untrusted: bool = True
) -> ToolResult:
    """Convert the JSON of a `tools/call` result.

    Raises:
        ToolError: The tool reported an error.
        CallError: The result is of another type than `complete`, or is invalid.
    """
    result = ToolResult(raw, server=server, tool=tool, output_schema=output_schema, is_untrusted=is_untrusted)
    kind = result.kind
    if kind != "complete":
        raise CallError(f"answered with a result of unknown type {kind!r}", hint="a fault of the server")
    if result.is_error:
        from ipymcp.text import cut, visible

        message = _in_one_line(result.text)
        shown = cut(message, _MAX_MESSAGE)
        hint = "reported by the tool" if shown == message else "reported by the tool; .result has all of it"
        raise ToolError(visible(shown), result=result, hint=hint)
    return result


def _in_one_line(text: str) -> str:
    line = mask(" / ".join(part.strip() for part in text.strip().splitlines() if part.strip()))
    return line or "failed without a message"
