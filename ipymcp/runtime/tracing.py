"""OpenTelemetry spans of tool calls, if the user has imported and configured OpenTelemetry.

Source: OpenTelemetry semantic conventions for generative AI, MCP client spans (in development), October 2026.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec

from ipymcp.errors import RpcError
from ipymcp.masking import mask

if TYPE_CHECKING:
    from msgspec import Raw

    from ipymcp.errors import McpError
    from ipymcp.runtime.server_status import CallTarget


_METHOD: Final = "tools/call"
_TOOL_ERROR: Final = "tool_error"
_PORTS: Final = {"http": 80, "https": 443}


class _Outcome(msgspec.Struct):
    isError: bool = False


def is_configured() -> bool:
    """Whether OpenTelemetry is in this process and has a tracer provider; imports nothing."""
    api: Any = sys.modules.get("opentelemetry.trace")
    return api is not None and not type(api.get_tracer_provider()).__module__.startswith("opentelemetry.trace")


def start_span(session: CallTarget, tool: str, caller: str) -> Any:
    """Start the span of a call as a child of the current span, if `is_configured`; None if it would not be recorded."""
    api: Any = sys.modules["opentelemetry.trace"]
    attributes: dict[str, Any] = {
        "mcp.method.name": _METHOD,
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": tool,
        "ipymcp.server": session.name,
        "ipymcp.caller": caller,
    }
    if version := getattr(session, "protocol_version", ""):
        attributes["mcp.protocol.version"] = version
    url = getattr(getattr(session, "definition", None), "url", None)
    attributes["network.transport"] = "pipe" if url is None else "tcp"
    if url is not None:
        parts = urlsplit(mask(url))
        attributes["server.address"] = parts.hostname or ""
        attributes["server.port"] = _port(parts)
    span = api.get_tracer("ipymcp").start_span(f"{_METHOD} {tool}", kind=api.SpanKind.CLIENT, attributes=attributes)
    return span if span.is_recording() else None


def end_span(span: Any, request: int, result: Raw | None, error: McpError | None) -> None:
    """End a call's span with its outcome.

    Args:
        span: The span.
        request: The id of the request; 0 if it was not sent.
        result: The JSON of the result.
        error: The error instead of a result.
    """
    api: Any = sys.modules["opentelemetry.trace"]
    if request:
        span.set_attribute("jsonrpc.request.id", str(request))
    kind, text = "", ""
    if error is not None:
        kind, text = type(error).__name__, mask(error.message)
        if isinstance(error, RpcError):
            kind = str(error.code)
            span.set_attribute("rpc.response.status_code", kind)
    elif result is not None and _is_error(result):
        kind = _TOOL_ERROR
    if kind:
        span.set_attribute("error.type", kind)
        span.set_status(api.Status(api.StatusCode.ERROR, text or None))
    span.end()


def _is_error(result: Raw) -> bool:
    try:
        return msgspec.json.decode(result, type=_Outcome).isError
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False


def _port(parts: Any) -> int:
    try:
        return parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError:
        return 0
