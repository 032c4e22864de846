"""What a failure means: what to tell the user, and whether it is worth another attempt."""

from __future__ import annotations

import shlex
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
)
from ipymcp.runtime.environment import forgotten_variable

if TYPE_CHECKING:
    from ipymcp.config.definition import ServerDefinition

__all__ = ["explain", "is_worth_retrying", "start_failure", "untrusted"]

_TOO_MANY = 429


def start_failure(error: McpError, definition: ServerDefinition) -> McpError:
    """What a failure means for the start it came in."""
    if isinstance(error, (AuthError, ConfigError, ProtocolError, StartError)):
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


def untrusted(definition: ServerDefinition) -> PolicyError:
    """Why a project's server does not run."""
    name, file = shlex.quote(definition.name), shlex.quote(str(definition.source))
    return PolicyError(
        f"is not trusted: a project's file defines it, {definition.source}",
        hint=f"%mcp config explain {name} shows what it would run; %mcp load {file} {name} runs it",
    )


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
    if not isinstance(error, ServerError) or isinstance(error, CommandNotFound) or error.stderr:
        return error
    error.stderr = last_words
    error.exit_code = exit_code if error.exit_code is None else error.exit_code
    if error.stderr and not isinstance(error, ProtocolError):
        error.message = f"{error.message}; it last wrote: {' / '.join(error.stderr[-3:])}"
    if error.hint is None:
        error.hint = _hint(error, definition)
    return error


def _hint(error: ServerError, definition: ServerDefinition) -> str:
    if isinstance(error, AuthError):
        return f"%mcp start {definition.name}"
    variable = forgotten_variable(definition, error.stderr)
    if variable:
        return f"{variable} is set here but not passed on: add it by --env {variable}"
    return f"%mcp logs {definition.name} · %mcp restart {definition.name}"
