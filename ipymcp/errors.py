"""Everything ipymcp raises, grouped by what the caller can do about it.

    McpError
    ├── ConfigError                      a file or a definition is wrong: mend it
    ├── UnknownName                      no such server or tool (also an AttributeError and a KeyError)
    ├── SecretError                      a secret is unknown, or cannot be read or kept
    ├── PolicyError                      a rule forbids it, or nobody agreed to it: %mcp policy explain
    ├── LoopError                        called where waiting would deadlock, or in a forked child
    ├── ServerError                      the server cannot be used now: start it, or read its log
    │   ├── StartError                   it did not start (also the class of every reason below it)
    │   │   └── CommandNotFound          there is no such program
    │   ├── ServerStopped                it is stopped or disabled
    │   ├── ConnectionLost               it died, closed its output, or cannot be reached
    │   ├── TrustError                   you have not agreed that it runs (also a PolicyError): start it, and it asks
    │   ├── AuthError                    it wants a login: there is none, or it was refused: start it again
    │   └── ProtocolError                it said what MCP does not allow
    └── CallError                        this call failed; the server goes on
        ├── ArgumentError                the arguments do not fit (also a TypeError and a ValueError)
        ├── ToolError                    the tool answered with an error; .result holds the answer
        ├── RpcError                     the server refused the request; .code and .data say why
        ├── HttpError                    it answered with an HTTP error; .status, .retry_after and .body say which
        ├── CallTimeout                  no answer in time (also a TimeoutError)
        ├── CallCancelled                cancelled by %mcp cancel or Call.cancel()
        └── ResultTooLarge               the answer is over max_result_bytes

Every error carries `.server`, `.tool` and `.hint` (each may be None). Message and hint are one line each, with control
characters, line breaks and the like shown as symbols and secrets masked (see `ipymcp.text`). In IPython it renders as
two lines, the message and what to do, with the user's own line; `%config IPyMCP.tracebacks = True` brings the whole
traceback back. Elsewhere the hint stands below Python's own traceback. A class that is not in this tree is one for
ipymcp's inside, and is shown as the one in the tree that it belongs to.
"""

from __future__ import annotations

import linecache
import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from ipymcp.text import colored, one_line

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

__all__ = [
    "ArgumentError",
    "AuthError",
    "CallCancelled",
    "CallError",
    "CallTimeout",
    "CommandNotFound",
    "ConfigError",
    "ConnectionLost",
    "HttpError",
    "LoopError",
    "McpError",
    "PolicyError",
    "ProtocolError",
    "ResultTooLarge",
    "RpcError",
    "SecretError",
    "ServerError",
    "ServerStopped",
    "StartError",
    "ToolError",
    "TrustError",
    "UnknownName",
    "note_line",
    "render_briefly",
]


_MAX_SHOWN = 2000
"""Characters of a line of an error that are shown; `.message` and `.hint` have all of it."""


class McpError(Exception):
    """Anything ipymcp raises.

    Args:
        message: One line that says what happened.
        server: The server it came from, by its name in this notebook.
        tool: The tool, by the server's own name for it.
        hint: What to do about it, one line.
    """

    full_tracebacks: ClassVar[bool] = False
    """Set by `%config IPyMCP.tracebacks`: show Python's whole traceback instead of two lines."""

    def __init__(
        self, message: str, *, server: str | None = None, tool: str | None = None, hint: str | None = None
    ) -> None:
        self.message = message
        super().__init__(self.message)
        self.server = server
        self.tool = tool
        self.hint = hint
        self._notes: list[str] = []
        self.line: str | None = None
        """The `%mcp` line that failed, where a magic raised this."""
        self.answer: Any = None
        """What a model had said and done of its `Answer` when it had to stop."""

    def __setattr__(self, name: str, value: object) -> None:
        if name in ("message", "hint") and isinstance(value, str):
            value = one_line(value)
        super().__setattr__(name, value)

    @property
    def where(self) -> str:
        """`server.tool`, `server` or the empty string, as one line that shows all of itself."""
        return one_line(".".join(part for part in (self.server, self.tool) if part))

    def __str__(self) -> str:
        where = self.where
        return f"{where}: {self.message}" if where else self.message

    @property
    def __notes__(self) -> list[str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """What Python prints below an error that nobody catches, such as that of a script: the hint, then notes."""
        hint = [self.hint] if self.hint else []
        return [*hint, *self._notes]

    def add_note(self, note: str) -> None:
        """Have Python print this below the error, too."""
        if not isinstance(note, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"a note is a string, not {type(note).__name__}")
        self._notes.append(note)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.__dict__)

    @property
    def _render_traceback_(self) -> Callable[[], list[str]]:
        """What IPython calls for the lines to show."""
        if not McpError.full_tracebacks:
            return self._two_lines
        if "IPython.core.getipython" not in sys.modules:
            raise AttributeError("_render_traceback_")
        return partial(_whole, self)

    def _two_lines(self) -> list[str]:
        public = next(kind for kind in type(self).__mro__ if kind.__module__ == __name__)
        return _two_lines(f"{public.__name__}: {self}", self.hint, self.line or _users_line(self.__traceback__))


def render_briefly(error: BaseException, message: str, hint: str | None = None) -> None:
    """Have IPython show an interrupt as it shows our own errors, in two lines; it stays the exception that it is.

    Where it hit a function of the user's that we had called, such as a progress function, that is what they say.

    Args:
        error: A `KeyboardInterrupt` or `CancelledError` on its way to the user.
        message: One line that says what happened.
        hint: What to do about it, one line.
    """
    error._render_traceback_ = partial(_brief_lines, error, message, hint)  # type: ignore[attr-defined]


def note_line(error: McpError | KeyboardInterrupt, line: str) -> None:
    """Keep the `%mcp` line that an error ended, to be shown with it."""
    error.__dict__["line"] = line


def _brief_lines(error: BaseException, message: str, hint: str | None) -> list[str]:
    if McpError.full_tracebacks:
        return _whole(error)
    line = getattr(error, "line", None) or _users_line(error.__traceback__)
    hit = _users_function(error.__traceback__)
    if hit is not None:
        message, hint = f"interrupted in {_named(hit)}", None
        line = " · ".join(part for part in (line, _placed(hit)) if part)
    return _two_lines(f"{type(error).__name__}: {one_line(message)}", hint, line)


def _two_lines(first: str, hint: str | None, line: str | None) -> list[str]:
    second = " · ".join(part for part in (hint, f"in: {line}" if line else None) if part)
    lines = [one_line(text) for text in ([first, f"  {second}"] if second else [first])]
    return [text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…" for text in lines]


def _whole(error: BaseException) -> list[str]:
    """Python's whole traceback as IPython shows it, with the secrets that causes and source lines hold masked."""
    shell: Any = sys.modules["IPython.core.getipython"].get_ipython()
    lines: list[str] = shell.InteractiveTB.structured_traceback(type(error), error, error.__traceback__)
    return [colored(line) for line in lines]


def _rebuild(kind: type[McpError], state: dict[str, Any]) -> McpError:
    error = kind.__new__(kind)
    error.args = (state.get("message", ""),)
    error.__dict__.update(state)
    return error


def _users_line(traceback: TracebackType | None) -> str | None:
    """The line of the user's cell that this traceback passed through, and of the innermost function of the user's."""
    steps = _steps(traceback)
    outer = next((step for step in steps if _is_cell(step.filename)), None)
    if outer is None:
        return None
    first = _first_of_ours(steps)
    inner = [step for step in steps[:first] if _is_users(step)][-1]
    line = _source(outer)
    if line is None or line.startswith("get_ipython()"):
        return None
    if inner is outer or (inner.filename, inner.number) == (outer.filename, outer.number):
        return line
    return f"{line} · {_placed(inner)}"


def _users_function(traceback: TracebackType | None) -> _Step | None:
    """The innermost frame of the user's own code that was called by us, if that is where it happened."""
    steps = _steps(traceback)
    called = [step for step in steps[_first_of_ours(steps) :] if _is_users(step)]
    return called[-1] if called else None


def _named(step: _Step) -> str:
    return step.function if step.function.startswith("<") else f"{step.function}()"


def _placed(step: _Step) -> str:
    where = "" if _is_cell(step.filename) else f" of {os.path.basename(step.filename)}"
    return f"{_named(step)}, line {step.number}{where}: {_source(step) or '?'}"


class _Step(NamedTuple):
    """One frame that an exception passed through."""

    filename: str
    number: int
    function: str
    module: str


def _steps(traceback: TracebackType | None) -> list[_Step]:
    steps: list[_Step] = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        module = traceback.tb_frame.f_globals.get("__name__")
        steps.append(_Step(code.co_filename, traceback.tb_lineno, code.co_name, str(module)))
        traceback = traceback.tb_next
    return steps


def _first_of_ours(steps: list[_Step]) -> int:
    return next((place for place, step in enumerate(steps) if _is_ours(step)), len(steps))


def _is_ours(step: _Step) -> bool:
    return step.module.partition(".")[0] == "ipymcp" and not _is_cell(step.filename)


def _is_cell(filename: str) -> bool:
    return filename.startswith("<ipython-input") or "ipykernel_" in filename


def _is_users(step: _Step) -> bool:
    """Whether a frame is of a cell or of a module of the user's, not of a library."""
    if _is_cell(step.filename):
        return True
    libraries = ("site-packages", "dist-packages", os.path.dirname(os.__file__))
    return not (step.filename.startswith("<") or _is_ours(step) or any(part in step.filename for part in libraries))


def _source(step: _Step) -> str | None:
    return linecache.getline(step.filename, step.number).strip() or None


class ConfigError(McpError):
    """A config file or a server definition is wrong. The message names the file and the key."""


class SecretError(McpError):
    """A secret is not known, or cannot be read or kept. The hint says what helps."""


class UnknownName(McpError, AttributeError, KeyError):
    """No server or tool of that name. The hint suggests the nearest."""


class PolicyError(McpError):
    """A rule forbids the call, or it needs a consent that was not given. The message names the rule."""


class LoopError(McpError, RuntimeError):
    """Waiting here would never end: on ipymcp's own loop thread, or in a forked child."""


class ServerError(McpError):
    """The server cannot be used now."""

    def __init__(
        self,
        message: str,
        *,
        server: str | None = None,
        tool: str | None = None,
        hint: str | None = None,
        stderr: tuple[str, ...] = (),
        exit_code: int | None = None,
    ) -> None:
        super().__init__(message, server=server, tool=tool, hint=hint)
        self.stderr = stderr
        """The last lines the server wrote to stderr, oldest first."""
        self.exit_code = exit_code
        """The process's exit code where it has ended; negative for a signal."""


class StartError(ServerError):
    """The server did not become ready."""


class CommandNotFound(StartError):
    """There is no such program on the PATH."""


class ServerStopped(ServerError):
    """The server is stopped or disabled, and a call does not start it."""


class ConnectionLost(ServerError):
    """The server died or closed its output. A call in flight is never sent again by itself."""


class TrustError(ServerError, PolicyError):
    """The server is defined in a project, or in a file that changed, and the user has not agreed that it may run."""


class AuthError(ServerError):
    """The server wants a login: there is none, it was refused, or it could not be had."""


class ProtocolError(ServerError):
    """The server said what MCP does not allow, such as a protocol version nobody knows."""


class CallError(McpError):
    """This call failed; the server and other calls go on."""


class ArgumentError(CallError, TypeError, ValueError):
    """An argument is missing, surplus or of the wrong kind. Nothing was sent.

    Args:
        message: What is wrong, naming the argument.
        argument: The argument's exact name in the tool's schema, where one is to blame.
    """

    def __init__(
        self,
        message: str,
        *,
        argument: str | None = None,
        server: str | None = None,
        tool: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, server=server, tool=tool, hint=hint)
        self.argument = argument


class ErrorResult(Protocol):
    """The result that a `ToolError` carries: an `ipymcp.ToolResult` whose `is_error` is true."""

    @property
    def text(self) -> str:
        """The text parts, joined by blank lines."""
        ...

    @property
    def content(self) -> Any:
        """The parts of the result, as `ToolResult.content`."""
        ...

    @property
    def data(self) -> Any:
        """The structured content, else what the text holds, as `ToolResult.data`."""
        ...

    @property
    def raw(self) -> dict[str, Any]:
        """The result as the server sent it."""
        ...


class ToolError(CallError):
    """The tool ran and answered with an error (`isError`)."""

    def __init__(
        self,
        message: str,
        *,
        result: ErrorResult,
        server: str | None = None,
        tool: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, server=server, tool=tool, hint=hint)
        self.result = result
        """The `ToolResult` that the tool answered with."""


class RpcError(CallError):
    """The server refused the request with a JSON-RPC error."""

    def __init__(
        self,
        message: str,
        *,
        code: int,
        data: object = None,
        server: str | None = None,
        tool: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, server=server, tool=tool, hint=hint)
        self.code = code
        """The JSON-RPC error code, such as -32602 for invalid parameters."""
        self.data = data
        """What the server added, decoded JSON; often None."""


class HttpError(CallError):
    """The server, or something on the way to it, answered this request with an HTTP error. Others are not touched.

    Args:
        message: Status, reason and the first lines of the body.
        status: Such as 429.
        retry_after: Seconds the server asks to wait, where it says so.
        body: The beginning of the body.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int,
        retry_after: float | None = None,
        body: str = "",
        server: str | None = None,
        tool: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, server=server, tool=tool, hint=hint)
        self.status = status
        self.retry_after = retry_after
        self.body = body


class CallTimeout(CallError, TimeoutError):
    """No answer in time. The server was told to cancel and the session goes on."""


class CallCancelled(CallError):
    """The call was cancelled by `%mcp cancel` or `Call.cancel()`."""


class ResultTooLarge(CallError):
    """The answer is over `max_result_bytes`; it was discarded unread."""

    def __init__(
        self, message: str, *, limit: int, server: str | None = None, tool: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, server=server, tool=tool, hint=hint)
        self.limit = limit
        """The limit in bytes."""
