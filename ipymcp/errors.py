"""The exceptions of ipymcp, grouped by what the caller can do about them.

    McpError
    ├── ConfigError                      a config file or definition is wrong: fix it
    ├── UnknownName                      no such server or tool (also an AttributeError and a KeyError)
    ├── SecretError                      a secret is unknown, or cannot be read or stored
    ├── PolicyError                      forbidden by a rule, or not approved: %mcp policy explain
    ├── LoopError                        called where waiting would deadlock, or in a forked child
    ├── ServerError                      the server is unavailable: start it, or read its log
    │   ├── StartError                   it did not start (base class of the reasons)
    │   │   └── CommandNotFound          its program was not found
    │   ├── ServerStopped                it is stopped or disabled
    │   ├── ConnectionLost               it died, closed its output, or cannot be reached
    │   ├── TrustError                   it is not approved to run (also a PolicyError): start it to approve it
    │   ├── AuthError                    it requires a login: start it again to log in
    │   └── ProtocolError                it violated MCP
    └── CallError                        this call failed; the server continues
        ├── ArgumentError                the arguments are invalid (also a TypeError and a ValueError)
        ├── ToolError                    the tool returned an error; .result holds the result
        ├── RpcError                     the server refused the request; see .code and .data
        ├── HttpError                    an HTTP error; see .status, .retry_after and .body
        ├── CallTimeout                  no response in time (also a TimeoutError)
        ├── CallCancelled                cancelled by %mcp cancel or Call.cancel()
        │   └── CallInterrupted          cancelled by an interrupt of the code that waited
        └── ResultTooLarge               the response is over max_result_bytes

Every error has `.server`, `.tool` and `.hint` (each may be None). Message and hint are one line each, with control
characters visible and secrets masked (see `ipymcp.text`). IPython shows two lines, the message and the hint, with the
user's own line; `%config IPyMCP.tracebacks = True` shows the whole traceback. Elsewhere the hint follows Python's own
traceback. Internal subclasses are shown as the class of this tree that they derive from.
"""

from __future__ import annotations

import contextlib
import linecache
import os
import sys
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol

from ipymcp.masking import mask
from ipymcp.text import colored, cut, one_line, several_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from types import TracebackType
    from typing import TypedDict, Unpack

    class ErrorContext(TypedDict, total=False):
        """The arguments that all errors have, see `McpError`."""

        server: str | None
        tool: str | None
        hint: str | None


_MAX_LINES = 12
_MAX_SHOWN = 2000
"""Characters shown per line of an error; `.message` and `.hint` are complete."""


class McpError(Exception):
    """Base class of all errors of ipymcp.

    Args:
        message: The problem, in one line.
        server: Name of the server in this notebook.
        tool: Name of the tool on the server.
        hint: Advice for the user, in one line.
    """

    full_tracebacks: ClassVar[bool] = False
    """Show whole tracebacks instead of two lines; set by `%config IPyMCP.tracebacks`."""
    row_state: str | None = None
    """In a stream of a map: `failed`, `unknown` (perhaps executed) or `not called`."""

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
        """The `%mcp` line that failed, if a magic raised the error."""
        self.answer: Any = None
        """The partial `Answer` of a model that was stopped by the error."""

    def __setattr__(self, name: str, value: object) -> None:
        if name in ("message", "hint") and isinstance(value, str):
            value = one_line(mask(value))
        super().__setattr__(name, value)

    @property
    def where(self) -> str:
        """The source as one visible line: `server.tool`, `server` or the empty string."""
        return one_line(".".join(part for part in (self.server, self.tool) if part))

    def __str__(self) -> str:
        where = self.where
        return f"{where}: {self.message}" if where else self.message

    @property
    def lines(self) -> list[str]:
        """The visible lines that the server wrote, at most 12, if it wrote several; `.message` has them in one."""
        return []

    @property
    def __notes__(self) -> list[str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Hint and notes, which Python prints below an uncaught error."""
        hint = [self.hint] if self.hint else []
        return [*hint, *self._notes]

    @__notes__.setter
    def __notes__(self, notes: list[str]) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        # Libraries that pickle tracebacks set the notes, for example Dask.
        self._notes = notes[1:] if self.hint and notes[:1] == [self.hint] else [*notes]

    def add_note(self, note: str) -> None:
        """Add a note that Python prints below the error."""
        if not isinstance(note, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"a note is a string, not {type(note).__name__}")
        self._notes.append(note)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.__dict__)

    @property
    def _render_traceback_(self) -> Callable[[], list[str]]:
        """The hook that IPython calls for the lines to show."""
        if not McpError.full_tracebacks:
            return self._two_lines
        if "IPython.core.getipython" not in sys.modules:
            raise AttributeError("_render_traceback_")
        return partial(_full_traceback, self)

    def _two_lines(self) -> list[str]:
        public = next(kind for kind in type(self).__mro__ if kind.__module__ == __name__)
        first, *others = self.lines or [self.message]
        where = f"{self.where}: " if self.where else ""
        shown = _two_lines(f"{public.__name__}: {where}{first}", self.hint, self.line or _user_line(self.__traceback__))
        return [shown[0], *(cut(f"│ {each}", _MAX_SHOWN) for each in others), *shown[1:]]


def render_briefly(error: BaseException, message: str, hint: str | None = None) -> None:
    """Have IPython show an interrupt in two lines, like an `McpError`, without changing its class.

    If it interrupted a user function called by ipymcp, such as a progress callback, the lines name that function.

    Args:
        error: A `KeyboardInterrupt` or `CancelledError` that is about to reach the user.
        message: The problem, in one line.
        hint: Advice for the user, in one line.
    """
    error._render_traceback_ = partial(_brief_lines, error, message, hint)  # type: ignore[attr-defined]


_ONGOING: ContextVar[list[str] | None] = ContextVar("_ONGOING", default=None)
_MAX_NAMED = 3


def track_work() -> list[str]:
    """Begin a list of what is done on behalf of this context, also in the tasks and workers that it starts."""
    work: list[str] = []
    _ONGOING.set(work)
    return work


@contextlib.contextmanager
def doing(what: str) -> Generator[None]:
    """Name in the message of an interrupt what it interrupts, such as `reading /home/ada/mcp.json`."""
    work = _ONGOING.get()
    if work is not None:
        work.append(what)
    try:
        yield
    except KeyboardInterrupt as error:
        render_briefly(error, interrupted([what]))
        raise
    finally:
        if work is not None:
            work.remove(what)


def interrupted(work: Sequence[str] = ()) -> str:
    """The message of an interrupt of this work."""
    named = [*dict.fromkeys(work)]
    rest = f" and {len(named) - _MAX_NAMED} more" if len(named) > _MAX_NAMED else ""
    return f"interrupted while {', '.join(named[:_MAX_NAMED])}{rest}" if named else "interrupted"


def note_line(error: McpError | KeyboardInterrupt, line: str) -> None:
    """Attach the failed `%mcp` line to an error, to be shown with it."""
    error.__dict__["line"] = line


def _brief_lines(error: BaseException, message: str, hint: str | None) -> list[str]:
    if McpError.full_tracebacks:
        return _full_traceback(error)
    line = getattr(error, "line", None) or _user_line(error.__traceback__)
    frames = _frames(error.__traceback__)
    callbacks = [frame for frame in frames[_first_own_frame(frames) :] if _is_user_code(frame)]
    if callbacks:
        message, hint = f"interrupted in {_function_name(callbacks[-1])}", None
        line = " · ".join(part for part in (line, _location(callbacks[-1])) if part)
    return _two_lines(f"{type(error).__name__}: {one_line(message)}", hint, line)


def _two_lines(first: str, hint: str | None, line: str | None) -> list[str]:
    second = " · ".join(part for part in (hint, f"in: {line}" if line else None) if part)
    lines = [one_line(mask(text)) for text in ([first, f"  {second}"] if second else [first])]
    return [cut(text, _MAX_SHOWN) for text in lines]


def _full_traceback(error: BaseException) -> list[str]:
    """Format the whole traceback as IPython does, with secrets masked."""
    shell: Any = sys.modules["IPython.core.getipython"].get_ipython()
    lines: list[str] = shell.InteractiveTB.structured_traceback(type(error), error, error.__traceback__)
    return [colored(line) for line in lines]


def _rebuild(kind: type[McpError], state: dict[str, Any]) -> McpError:
    error = kind.__new__(kind)
    error.args = (state.get("message", ""),)
    error.__dict__.update(state)
    return error


def _user_line(traceback: TracebackType | None) -> str | None:
    """Find the user's cell line that the traceback passed through, and the innermost user function."""
    frames = _frames(traceback)
    outer = next((frame for frame in frames if _is_cell(frame.filename)), None)
    if outer is None:
        return None
    first = _first_own_frame(frames)
    inner = [frame for frame in frames[:first] if _is_user_code(frame)][-1]
    line = _source(outer)
    if line is None or line.startswith("get_ipython()"):
        return None
    if inner is outer or (inner.filename, inner.number) == (outer.filename, outer.number):
        return line
    return f"{line} · {_location(inner)}"


def _function_name(frame: _Frame) -> str:
    return frame.function if frame.function.startswith("<") else f"{frame.function}()"


def _location(frame: _Frame) -> str:
    where = "" if _is_cell(frame.filename) else f" of {os.path.basename(frame.filename)}"
    return f"{_function_name(frame)}, line {frame.number}{where}: {_source(frame) or '?'}"


class _Frame(NamedTuple):
    filename: str
    number: int
    function: str
    module: str


def _frames(traceback: TracebackType | None) -> list[_Frame]:
    frames: list[_Frame] = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        module = traceback.tb_frame.f_globals.get("__name__")
        frames.append(_Frame(code.co_filename, traceback.tb_lineno, code.co_name, str(module)))
        traceback = traceback.tb_next
    return frames


def _first_own_frame(frames: list[_Frame]) -> int:
    return next((index for index, frame in enumerate(frames) if _is_own(frame)), len(frames))


def _is_own(frame: _Frame) -> bool:
    return frame.module.partition(".")[0] == "ipymcp" and not _is_cell(frame.filename)


def _is_cell(filename: str) -> bool:
    return filename.startswith("<ipython-input") or "ipykernel_" in filename


def _is_user_code(frame: _Frame) -> bool:
    """Return whether a frame is in a cell or a user module, not in a library."""
    if _is_cell(frame.filename):
        return True
    if not os.path.isabs(frame.filename):  # generated, or compiled by Cython
        return False
    libraries = ("site-packages", "dist-packages", os.path.dirname(os.__file__))
    return not (_is_own(frame) or any(part in frame.filename for part in libraries))


def _source(frame: _Frame) -> str | None:
    return linecache.getline(frame.filename, frame.number).strip() or None


class ConfigError(McpError):
    """A config file or server definition is wrong. The message names the file and the key."""

    missing: tuple[Literal["variable", "secret"], str] | None = None
    """The kind and the name of the value that a definition needs and that the user could set."""
    key: str = ""
    """The key of the wrong value in the server's definition, such as `env.TOKEN`; empty if no single value is wrong."""


class SecretError(McpError):
    """A secret is unknown, or cannot be read or stored."""


class UnknownName(McpError, AttributeError, KeyError):
    """No server or tool has this name. The hint suggests similar names."""


class PolicyError(McpError):
    """A rule forbids the call, or it was not approved. The message names the rule."""


class LoopError(McpError, RuntimeError):
    """Waiting here would deadlock: on ipymcp's own loop thread, or in a forked child."""


class ServerError(McpError):
    """The server is unavailable."""

    def __init__(
        self,
        message: str,
        *,
        stderr: tuple[str, ...] = (),
        exit_code: int | None = None,
        **context: Unpack[ErrorContext],
    ) -> None:
        super().__init__(message, **context)
        self.stderr = stderr
        """The server's last lines on stderr, oldest first."""
        self.exit_code = exit_code
        """The exit code of a process that has ended; negative for a signal."""


class StartError(ServerError):
    """The server did not start."""


class CommandNotFound(StartError):
    """The server's program was not found on the PATH."""


class ServerStopped(ServerError):
    """The server is stopped or disabled; a call does not start it."""


class ConnectionLost(ServerError):
    """The server died or closed its output. Pending calls are never repeated automatically."""


class TrustError(ServerError, PolicyError):
    """The server comes from a project or a changed file, and the user has not approved that it runs."""


class AuthError(ServerError):
    """The server requires a login that is missing, was refused or failed."""


class ProtocolError(ServerError):
    """The server violated MCP, for example with an unknown protocol version."""


class CallError(McpError):
    """This call failed; the server and other calls continue."""


class ArgumentError(CallError, TypeError, ValueError):
    """An argument is missing, unexpected or of the wrong type. Nothing was sent.

    Args:
        message: The problem, with the name of the argument.
        argument: Exact name of the argument in the tool's schema, if one is at fault.
    """

    def __init__(self, message: str, *, argument: str | None = None, **context: Unpack[ErrorContext]) -> None:
        super().__init__(message, **context)
        self.argument = argument


class ErrorResult(Protocol):
    """The result of a `ToolError`: an `ipymcp.ToolResult` whose `is_error` is true."""

    @property
    def text(self) -> str:
        """The text blocks, joined by blank lines."""
        ...

    @property
    def content(self) -> Any:
        """The content blocks, see `ToolResult.content`."""
        ...

    @property
    def data(self) -> Any:
        """The structured content or decoded text, see `ToolResult.data`."""
        ...

    @property
    def raw(self) -> dict[str, Any]:
        """The result as sent by the server."""
        ...


class ToolError(CallError):
    """The tool returned an error (`isError`)."""

    def __init__(self, message: str, *, result: ErrorResult, **context: Unpack[ErrorContext]) -> None:
        super().__init__(message, **context)
        self.result = result
        """The tool's `ToolResult`."""

    @property
    def lines(self) -> list[str]:
        """See `McpError.lines`."""
        return several_lines(self.result.text, _MAX_LINES)


class RpcError(CallError):
    """The server refused the request with a JSON-RPC error."""

    def __init__(self, message: str, *, code: int, data: object = None, **context: Unpack[ErrorContext]) -> None:
        super().__init__(message, **context)
        self._text = message
        self.code = code
        """JSON-RPC error code, such as -32602 for invalid parameters."""
        self.data = data
        """Additional data from the server as decoded JSON, often None."""

    @property
    def lines(self) -> list[str]:
        """See `McpError.lines`."""
        is_changed = self.message != one_line(mask(self._text))
        return [] if is_changed else several_lines(self._text, _MAX_LINES)


class HttpError(CallError):
    """The server, or a proxy, responded with an HTTP error. Other calls are not affected.

    Args:
        message: Status, reason and the first lines of the body.
        status: HTTP status, such as 429.
        retry_after: Seconds to wait as requested by the server, if any.
        body: The beginning of the body.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int,
        retry_after: float | None = None,
        body: str = "",
        **context: Unpack[ErrorContext],
    ) -> None:
        super().__init__(message, **context)
        self.status = status
        self.retry_after = retry_after
        self.body = body


class CallTimeout(CallError, TimeoutError):
    """No response in time. The server was asked to cancel, and the session continues."""


class CallCancelled(CallError):
    """The call was cancelled by `%mcp cancel` or `Call.cancel()`."""


class CallInterrupted(CallCancelled):
    """The call was cancelled because the user interrupted the code that waited for it."""


class ResultTooLarge(CallError):
    """The response is over `max_result_bytes` and was discarded unread."""

    def __init__(self, message: str, *, limit: int, **context: Unpack[ErrorContext]) -> None:
        super().__init__(message, **context)
        self.limit = limit
        """The limit in bytes."""
