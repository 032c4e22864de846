"""The error message and hint for a failure, and whether another attempt is worthwhile."""

from __future__ import annotations

import json
import re
import sys
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
from ipymcp.interaction.questions import domain, is_web_address
from ipymcp.protocol.types import is_array, is_object
from ipymcp.runtime.process_env import missing_variable
from ipymcp.runtime.program_output import cause
from ipymcp.text import quoted

if TYPE_CHECKING:
    from ipymcp.config.definition import ServerDefinition


_TOO_MANY_REQUESTS = 429
_UNSUPPORTED = frozenset({501, 505})
"""HTTP statuses of servers that lack what was asked for, and will lack it the next time."""
_URL_ELICITATION_REQUIRED = -32042
"""The user has to visit a URL before the call (MCP 2025-11-25, elicitation: URLElicitationRequiredError)."""
_MAX_STDERR = 5
"""Maximum number of lines that an error keeps of a program's standard error."""
_MISSING_MODULE = r"No module named '?([\w.]+)"


def start_failure(error: McpError, definition: ServerDefinition, exit_code: int | None = None) -> McpError:
    """The error for a failed start."""
    if exit_code == 0 and isinstance(error, ConnectionLost):
        return StartError(
            "the program ended at once, with exit code 0, and sent no MCP message: it does not look like an MCP server",
            hint=f"check its command; %mcp logs {quoted(definition.name)} has what it wrote",
        )
    if isinstance(error, (AuthError, ConfigError, PolicyError, ProtocolError, StartError)):
        return error
    problem = "did not start" if definition.command is not None else "could not be opened"
    return StartError(f"{problem}: {error.message}", hint=error.hint)


def is_worth_retrying(error: McpError, exit_code: int | None = None, *, is_first: bool = False) -> bool:
    """Whether a start that failed with this error may succeed when it is tried again.

    Args:
        error: The error of the start.
        exit_code: The exit code of its process, if that has ended.
        is_first: Whether the server never ran before: a regular end or a missing host is then final.
    """
    if is_first and (exit_code == 0 or hasattr(error.__cause__, "may_pass")):
        return False
    if isinstance(error, HttpError):
        return error.status == _TOO_MANY_REQUESTS or (error.status >= 500 and error.status not in _UNSUPPORTED)
    if isinstance(error, ConnectionLost):
        return bool(getattr(error.__cause__, "may_pass", True))  # the cause may be `Unreachable` of an HTTP transport
    return isinstance(error, RpcError)


def explain(error: McpError, definition: ServerDefinition, stderr: tuple[str, ...], exit_code: int | None) -> McpError:
    """Add the server's name to an error and, where the server is to blame, its last output.

    Args:
        error: The error.
        definition: The definition of the server.
        stderr: The last lines of its standard error, with their indentation.
        exit_code: The exit code of its process, if that has ended.
    """
    error.server = error.server or definition.name
    if error.hint:  # lower layers do not know the server's name
        error.hint = error.hint.replace("%mcp start NAME", f"%mcp start {quoted(definition.name)}")
    if isinstance(error, RpcError) and error.code == _URL_ELICITATION_REQUIRED and error.hint is None:
        _name_addresses(error)
    if not isinstance(error, ServerError) or isinstance(error, (CommandNotFound, TrustError)) or error.stderr:
        return error
    error.stderr = tuple(line.strip() for line in stderr[-_MAX_STDERR:])
    error.exit_code = exit_code if error.exit_code is None else error.exit_code
    if error.stderr and not isinstance(error, ProtocolError):
        error.message = f"{error.message}; it last wrote: {' / '.join(cause(stderr))}"
    if error.hint is None:
        error.hint = _hint(error, definition, stderr)
    return error


def _name_addresses(error: RpcError) -> None:
    """Add the URLs that the user has to visit before calling again, with their domains, to the message."""
    required = error.data.get("elicitations") if is_object(error.data) else None
    urls = [each.get("url") for each in required if is_object(each)] if is_array(required) else []
    shown = [f"{url} (at {domain(url)})" for url in urls if isinstance(url, str) and is_web_address(url)]
    if shown:
        error.message = f"{error.message.rstrip('.')}: visit {' and '.join(shown)}"
        error.hint = "then call it again"


def _hint(error: ServerError, definition: ServerDefinition, stderr: tuple[str, ...]) -> str:
    name = quoted(definition.name)
    if isinstance(error, AuthError):
        return f"%mcp start {name}"
    variable = missing_variable(definition, stderr)
    if variable:
        in_file = f'"env": {{"{variable}": "${{{variable}}}"}} in its definition'
        return f"{variable} is set here but not passed on: add it by --env {variable}, or {in_file}"
    missing = next((found[1] for line in stderr if (found := re.search(_MISSING_MODULE, line))), None)
    if missing and re.fullmatch(r"python[\d.]*", definition.command or ""):
        here = f'"command": {json.dumps(sys.executable)}'
        return (
            f"the {definition.command} on PATH lacks {missing}: install it there, or write {here}, this kernel's Python"
        )
    return f"%mcp logs {name} · %mcp restart {name}"
