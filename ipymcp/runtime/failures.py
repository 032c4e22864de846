"""What a failure means: what to tell the user, and whether it is worth another attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ipymcp.errors import (
    AuthError,
    CommandNotFound,
    ConfigError,
    ConnectionLost,
    HttpError,
    McpError,
    PolicyError,
    ProtocolError,
    RpcError,
    ServerError,
    StartError,
    TrustError,
)
from ipymcp.protocol.jsontypes import is_array, is_object
from ipymcp.runtime.environment import forgotten_variable
from ipymcp.runtime.web import domain, is_web_address

if TYPE_CHECKING:
    from ipymcp.config.definition import ServerDefinition

__all__ = ["explain", "is_worth_retrying", "start_failure"]

_TOO_MANY = 429
_VISIT_FIRST = -32042
"""The call needs the user to have been at an address (MCP 2025-11-25, elicitation: URLElicitationRequiredError)."""


def start_failure(error: McpError, definition: ServerDefinition) -> McpError:
    """What a failure means for the start it came in."""
    if isinstance(error, (AuthError, ConfigError, PolicyError, ProtocolError, StartError)):
        return error
    what = "did not start" if definition.command is not None else "could not be opened"
    return StartError(f"{what}: {error.message}", hint=error.hint)


def is_worth_retrying(error: McpError) -> bool:
    """Whether a start that failed so may succeed when it is tried again."""
    if isinstance(error, HttpError):
        return error.status == _TOO_MANY or error.status >= 500
    if isinstance(error, ConnectionLost):
        return bool(getattr(error.__cause__, "may_pass", True))  # an HTTP transport's `Unreachable`, if it is one
    return isinstance(error, RpcError)


def explain(
    error: McpError, definition: ServerDefinition, last_words: tuple[str, ...], exit_code: int | None
) -> McpError:
    """The same error, with the server's name and, where the server is to blame, what it last said.

    Args:
        error: Of this server.
        definition: Of the server.
        last_words: The last lines of its standard error.
        exit_code: Of its process, where that has ended.
    """
    error.server = error.server or definition.name
    if isinstance(error, RpcError) and error.code == _VISIT_FIRST and error.hint is None:
        _name_addresses(error)
    if not isinstance(error, ServerError) or isinstance(error, (CommandNotFound, TrustError)) or error.stderr:
        return error
    error.stderr = last_words
    error.exit_code = exit_code if error.exit_code is None else error.exit_code
    if error.stderr and not isinstance(error, ProtocolError):
        error.message = f"{error.message}; it last wrote: {' / '.join(error.stderr[-3:])}"
    if error.hint is None:
        error.hint = _hint(error, definition)
    return error


def _name_addresses(error: RpcError) -> None:
    """Say where to go, in full and with the domain; going there is the user's to do, and so is calling again."""
    asked = error.data.get("elicitations") if is_object(error.data) else None
    urls = [each.get("url") for each in asked if is_object(each)] if is_array(asked) else []
    shown = [f"{url} (at {domain(url)})" for url in urls if isinstance(url, str) and is_web_address(url)]
    if shown:
        error.message = f"{error.message.rstrip('.')}: visit {' and '.join(shown)}"
        error.hint = "then call it again"


def _hint(error: ServerError, definition: ServerDefinition) -> str:
    if isinstance(error, AuthError):
        return f"%mcp start {definition.name}"
    variable = forgotten_variable(definition, error.stderr)
    if variable:
        return f"{variable} is set here but not passed on: add it by --env {variable}"
    return f"%mcp logs {definition.name} · %mcp restart {definition.name}"
