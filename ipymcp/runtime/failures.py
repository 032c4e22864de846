"""Failures of servers: the error message and hint, and whether another attempt is worthwhile.

The standard error of a program that did not start is searched for the lines with the cause, and whether it is final.
"""

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
from ipymcp.runtime.process_env import missing_sources, missing_variable
from ipymcp.text import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ipymcp.config.definition import ServerDefinition

_TOO_MANY_REQUESTS = 429
_UNSUPPORTED = frozenset({501, 505})
"""HTTP statuses of servers that lack what was asked for, and will lack it the next time."""
_URL_ELICITATION_REQUIRED = -32042
"""The user has to visit a URL before the call (MCP 2025-11-25, elicitation: URLElicitationRequiredError)."""
_MAX_STDERR = 5
"""Maximum number of lines that an error keeps of a program's standard error."""
_LOST_SESSION = re.compile(
    r"\bsession\b.{0,80}?\b(?:expired|not found|unknown|invalid|terminated|closed)|\bunknown session", re.I
)
"""Messages of servers that do not know a session any more, with a status from which that cannot be told for sure."""
_CRLF_SCRIPT = re.compile(r"\benv: .{0,100}\\r\W")
"""The complaint of `env` about an interpreter whose name ends in a carriage return."""
_NO_ENGINE = re.compile(
    r"\bdocker daemon running\b|\b(?:connect to|find) (?:the )?(?:Docker|Podman) (?:daemon|socket)", re.I
)
"""The complaint of a container program without its engine."""
_MISSING_MODULE = r"No module named '?([\w.]+)"


def start_failure(
    error: McpError, definition: ServerDefinition, exit_code: int | None = None, unread: str = ""
) -> McpError:
    """The error for a failed start.

    Args:
        error: The error of the attempt.
        definition: The definition of the server.
        exit_code: The exit code of its process, if that has ended.
        unread: What it wrote instead of messages, as a clause.
    """
    if exit_code == 0 and isinstance(error, ConnectionLost):
        wrote = unread or "it sent no MCP message"
        return StartError(
            f"the program ended at once, with exit code 0, and does not look like an MCP server: {wrote}",
            hint=f"check its command; %mcp logs {quoted(definition.name)} has what it wrote",
        )
    if not isinstance(error, (AuthError, ConfigError, PolicyError, ProtocolError, StartError)):
        is_program = definition.command is not None
        problem = "could not start" if is_program else "could not be opened"
        reason = error.message.removeprefix("the server ") if is_program else error.message
        error = StartError(f"{problem}: {reason}", hint=error.hint)
    if unread and isinstance(error, StartError):
        error.message = f"{error.message}; {unread}"
    return error


def is_worth_retrying(
    error: McpError, exit_code: int | None = None, *, is_first: bool = False, is_typed: bool = False
) -> bool:
    """Whether a start that failed with this error may succeed when it is tried again.

    Args:
        error: The error of the start.
        exit_code: The exit code of its process, if that has ended.
        is_first: Whether the server never ran before: a regular end or a missing host is then final.
        is_typed: Whether the user has just typed its command, and waits: any end by itself is then final, too.
    """
    if is_first and (exit_code == 0 or hasattr(error.__cause__, "may_pass")):
        return False
    if is_first and is_typed and exit_code is not None and exit_code > 0:  # not killed by a signal
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
    if isinstance(error, (RpcError, HttpError, AuthError)) and definition.url and _LOST_SESSION.search(error.message):
        error.hint = f"%mcp restart {quoted(definition.name)} opens a new session"
    if not isinstance(error, ServerError) or isinstance(error, (CommandNotFound, TrustError)) or error.stderr:
        return error
    error.stderr = tuple(line.strip() for line in stderr[-_MAX_STDERR:])
    error.exit_code = exit_code if error.exit_code is None else error.exit_code
    if error.stderr and not isinstance(error, ProtocolError):
        error.message = f"{error.message.rstrip('.')}. Last output: {' / '.join(cause(stderr))}"
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
    if any(_NO_ENGINE.search(line) for line in stderr):
        return f"start Docker or Podman, then %mcp start {name}"
    if any(_CRLF_SCRIPT.search(line) for line in stderr):
        return "the first line of its script ends in a carriage return: save the file with Unix line ends"
    if any(_SDK_2.search(_plain(line)) for line in stderr):
        return "it was written for version 1 of the MCP SDK and has version 2: `uvx --with mcp<2`, or install mcp<2"
    sources = missing_sources(definition) if isinstance(error, StartError) and _may_be_a_download(stderr) else []
    if sources:
        given = " ".join(f"--env {one}" for one in sources)
        are, they = ("is", "passes it") if len(sources) == 1 else ("are", "passes them")
        return f"{' and '.join(sources)} {are} set here but not passed on: {given} {they} on"
    missing = next((found[1] for line in stderr if (found := re.search(_MISSING_MODULE, line))), None)
    if missing and re.fullmatch(r"python[\d.]*", definition.command or ""):
        here = f'"command": {json.dumps(sys.executable)}'
        return (
            f"the {definition.command} on PATH lacks {missing}: install it there, or write {here}, this kernel's Python"
        )
    return f"%mcp logs {name} · %mcp restart {name}"


def _may_be_a_download(stderr: Iterable[str]) -> bool:
    """Whether a program that wrote this, or nothing, may have failed to find or download a package."""
    lines = [line for line in stderr if line.strip()]
    return not lines or any(_DOWNLOAD.search(line) for line in lines)


# -- the output of programs --------------------------------------------------------------------------------------------


_MAX_LINES = 3
"""Maximum number of lines of a program that an error quotes."""
_FINAL_CODES = frozenset({64, 66, 77, 78, 126, 127})
"""Exit codes for a wrong command line, a missing input, missing rights and a wrong configuration (`sysexits.h`), and
those of a shell that cannot run or find a command."""
_USAGE = re.compile(r"^\s*usage\b.*:", re.IGNORECASE)
_FINAL = re.compile(
    "|".join(
        (
            # interpreters: a module or a file is missing, or the code cannot be parsed
            r"^(?:\w+\.)*(?:ModuleNotFoundError|ImportError|SyntaxError): ",
            r"No module named ",
            r"can't open file '.*': \[Errno",
            r"Cannot find (?:module|package) ",
            r"^error: Module not found ",
            # command lines that are not accepted
            r"^error: unrecognized|[Uu]nknown (?:option|argument)|[Nn]o such option|unrecognized arguments?\b",
            r"bad option: |flag provided but not defined|^error: (?:unexpected|invalid) (?:argument|value)\b",
            r"required arguments? .*(?:not provided|missing)|arguments? (?:are|is) required|missing required argument",
            # settings that are missing
            r"environment variables? .*(?:required|missing|must be|not (?:set|defined|found|provided))",
            r"(?:[Mm]issing|[Rr]equired|[Uu]nset)(?: \w+)? environment variable",
            r"\b[A-Z][A-Z0-9]*_[A-Z0-9_]+ (?:(?:is |was )?(?:required|missing|not set|not defined|undefined|unset)\b"
            r"|(?:must|has to|needs to) be (?:set|provided|defined))",
            # npx and npm, bun, pnpm, yarn, deno
            r"^npm (?:error|ERR!) code E(?:404|401|403|NEEDAUTH|TARGET|NOVERSIONS|NOENT|USAGE|BADPLATFORM|BADENGINE)$",
            r"^npm (?:error|ERR!) code E(?:INVALIDTAGNAME|INVALIDPACKAGENAME|UNSUPPORTEDPROTOCOL)$",
            r"could not determine executable to run",
            r"^error: GET https?://\S+ - 40[134]\b",
            r"ERR_PNPM_FETCH_40[134]|ERR_PNPM_NO_MATCHING_VERSION|is not in the (?:npm|this) registry",
            r"^error: (?:npm|JSR) package .* (?:does not exist|not found)",
            # uvx and uv, pipx and pip
            r"No solution found when resolving|was not found in the package registry|there is no version of ",
            r"executable named `[^`]*` is not provided by|executable `[^`]*` was not found",
            r"Distribution not found at: |No interpreter found for |^error: Failed to (?:parse|spawn): ",
            r"No matching distribution found for |executable script not found in package",
            # docker and podman
            r"pull access denied|repository does not exist|manifest(?: for \S+)?(?: not found|:? unknown)",
            r"invalid reference format|did not resolve to an alias|executable file not found in \$PATH",
            r"requested access to the resource is denied|failed to resolve reference .*: not found",
        )
    )
)
"""Lines after which another start would end the same way."""
_UNREACHABLE = re.compile(
    "|".join(
        (
            r"^npm (?:error|ERR!) code (?:ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ENETUNREACH|EHOSTUNREACH|ETIMEDOUT)$",
            r"^error: Request failed after \d+ retries|^(?:cause: |Caused by: )?(?:error: )?Failed to fetch: ",
            r"Cannot connect to the (?:Docker daemon|Podman socket)|error during connect: ",
            r"NewConnectionError|NameResolutionError",
        )
    )
)
"""Lines of runners whose registry or daemon cannot be reached; they have tried again themselves."""
_MISMATCH = re.compile(
    "|".join(
        (
            r"^(?:AttributeError: (?!'NoneType')|NameError: |TypeError: .* unexpected keyword argument )",
            r"^(?:Uncaught )?ReferenceError: \S+ is not defined|ERR_UNKNOWN_BUILTIN_MODULE|ERR_REQUIRE_ESM",
            r"version `GLIBC(?:XX)?_[\d.]+' not found",
        )
    )
)
"""Lines of code that does not fit its libraries or interpreter. A running server may log the same about one call."""
_SDK_2 = re.compile(
    r"pin 'mcp<2'|^ImportError: cannot import name '\w+' from 'mcp\b|^AttributeError: '(?:Server|FastMCP)' object "
)
"""Lines of a server that was written for version 1 of the official SDK and has version 2."""
_DOWNLOAD = re.compile(
    r"fetch|download|registry|\bindex\b|resol[uv]|connect|network|\bdns\b|certificate|\bE?40[134]\b|not found"
    r"|no matching|no version|timed? ?out|ENOTFOUND|EAI_AGAIN|ETIMEDOUT",
    re.IGNORECASE,
)
"""Lines of a package runner about a package that it cannot get."""
_ERROR = re.compile(
    r"^(?:[\w.-]+: )?(?:fatal |uncaught )?(?:error|fatal|panic|critical)\b|^[\w.]*(?:Error|Exception)\b|panicked at",
    re.IGNORECASE,
)
"""Lines that look like an error."""
_NOISE = re.compile(
    "|".join(
        (
            r"^npm (?:notice|warn|WARN)\b",
            r"^npm (?:error|ERR!)(?: \d+| \w+)?\s*$",
            r"^npm (?:error|ERR!) (?:syscall|errno|path|dest) ",
            r"^npm (?:error|ERR!) (?:\d+ )?(?:Note that you can also install from a|tarball, folder, http url)",
            r"^npm (?:error|ERR!) (?:A complete log of this run|notarget In most cases)",
            r"^npm (?:error|ERR!)\s+(?:/\S*_logs/|[A-Z]:\\\S*_logs\\)",
            r"^npm (?:error|ERR!) enoent This is related to npm not being able to find a file",
            r"^(?:npm (?:error|ERR!)\s+)?(?:at |[{}\[\]]$)",
            r"^(?:npm (?:error|ERR!)\s+)?(?:code|errno|syscall|type|address|port|requireStack): (?:'|-?\d|\[).*$",
            r"^node:internal/|^throw |^\^+$|^Node\.js v|^Stack backtrace:|^\d+: <unknown>$",
            r"^(?:Installed|Resolved|Prepared|Downloaded|Audited) \d+ packages? in |^ ?Download(?:ing|ed) \S+(?: \(|$)",
            r"^Run 'docker |^See 'docker |^\[notice\]|^note: run with `RUST_BACKTRACE",
            r"^\+[-+\d ]*$",
        )
    )
)
"""Lines around an error that tell nothing about its cause."""
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_GUTTER = re.compile(r"^\s*\| ")
"""The prefix of each line of an exception in a group, as Python writes it."""


def cannot_improve(exit_code: int | None, stderr: Iterable[str], *, is_first: bool = False) -> bool:
    """Whether a program has ended in a way that another start would not change.

    Args:
        exit_code: The exit code of its process; None while it runs.
        stderr: The last lines of its standard error.
        is_first: Whether the server never ran before: a registry or a daemon that cannot be reached, and code that does
            not fit its libraries, are then final.
    """
    if exit_code is None or exit_code == 0:
        return False
    if exit_code in _FINAL_CODES:
        return True
    final = (_FINAL, _USAGE, _UNREACHABLE, _MISMATCH) if is_first else (_FINAL, _USAGE)
    return any(pattern.search(line) for line in map(_plain, stderr) for pattern in final)


def cause(stderr: Iterable[str]) -> tuple[str, ...]:
    """The lines of a program's standard error that tell why it failed, at most three; its last ones if none does.

    Notices, stack frames and advice are left out. The last line that looks like an error is always among them.

    Args:
        stderr: The last lines of its standard error, with their indentation.
    """
    lines = [line.strip() for line in stderr if line.strip()]
    telling = [line for line in _without_frames(map(_unguttered, stderr)) if not _NOISE.search(line)] or lines
    start = max(len(telling) - _MAX_LINES, 0)
    for pattern in (_FINAL, _UNREACHABLE, _MISMATCH, _ERROR):
        found = [index for index, line in enumerate(telling) if pattern.search(line)]
        if found:
            first = found[-1]
            while first - 1 in found and found[-1] - first < _MAX_LINES - 1:
                first -= 1
            start = min(start, first)
            break
    return tuple(telling[start : start + _MAX_LINES])


def _plain(line: str) -> str:
    return _unguttered(line).strip()


def _unguttered(line: str) -> str:
    return _GUTTER.sub("", _COLOR.sub("", line).rstrip())


def _without_frames(lines: Iterable[str]) -> Iterator[str]:
    """Each line but blank ones and Python's stack frames, stripped."""
    is_frame = False
    for line in lines:
        if line.endswith("Traceback (most recent call last):"):
            is_frame = True
        elif is_frame and (not line or line[0].isspace()):
            continue
        else:
            is_frame = False
            if line.strip():
                yield line.strip()
