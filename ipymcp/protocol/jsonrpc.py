"""A JSON-RPC 2.0 peer without I/O: ids, pending requests, responses, late and malformed messages.

Requests are opened, settled and abandoned from many threads without a lock: the table of pending requests is a dict,
and `dict.pop` is atomic. The thread that pops a request owns its outcome.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import itertools
import re
from collections import deque
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Raw, Struct

from ipymcp.errors import CallError, McpError, RpcError
from ipymcp.protocol import types
from ipymcp.protocol.eras import OTHER_ERA
from ipymcp.text import one_line

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Generator

    from ipymcp.protocol.types import Progress


class Background:
    """Fire-and-forget tasks. Belongs to the loop."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Start a task in an empty context."""
        loop = asyncio.get_running_loop()
        task = contextvars.Context().run(loop.create_task, coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def cancel_all(self) -> None:
        """Cancel all running tasks."""
        for task in tuple(self._tasks):
            task.cancel()


class RequestTimeouts:
    """The timeouts of one connection's requests. Belongs to the loop."""

    def __init__(self) -> None:
        self._running: dict[PendingRequest, _PausableTimeout] = {}

    @contextlib.asynccontextmanager
    async def limit(self, pending: PendingRequest, seconds: float | None) -> AsyncGenerator[None]:
        """Limit a block like `asyncio.timeout`, except while the request's timeout is on hold.

        Raises:
            TimeoutError: The time is up.
        """
        async with asyncio.timeout(seconds) as scope:
            self._running[pending] = _PausableTimeout(scope)
            try:
                yield
            finally:
                del self._running[pending]

    @contextlib.contextmanager
    def paused(self, pending: PendingRequest | None) -> Generator[None]:
        """Pause the timeout of one request, or of all requests if `pending` is None."""
        timeouts = [timeout for of, timeout in self._running.items() if pending is None or of is pending]
        for timeout in timeouts:
            timeout.pause()
        try:
            yield
        finally:
            for timeout in timeouts:
                timeout.resume()


class _PausableTimeout:
    def __init__(self, scope: asyncio.Timeout) -> None:
        self._scope = scope
        self._pauses = 0
        self._left: float | None = None

    def pause(self) -> None:
        self._pauses += 1
        end = self._scope.when()
        if self._pauses == 1 and end is not None and not self._scope.expired():
            self._left = max(end - asyncio.get_running_loop().time(), 0)
            self._scope.reschedule(None)

    def resume(self) -> None:
        self._pauses -= 1
        if self._pauses == 0 and self._left is not None:
            with contextlib.suppress(RuntimeError):  # the request has finished
                self._scope.reschedule(asyncio.get_running_loop().time() + self._left)
            self._left = None


_ID = rb'"id"\s*:\s*(?:(-?\d+)|"((?:[^"\\]|\\.)*)")'
_ID_FIRST = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?' + _ID)
_ID_LAST = re.compile(_ID + rb'\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$')
_NULL, _ABSENT = Raw(b"null"), Raw()
METHOD_NOT_FOUND = -32601
_LONG_LIVED = frozenset({"subscriptions/listen"})
"""Requests that stay pending for as long as the connection."""
_SERVER_FAULT = "a fault of the server; see its log"
_MAX_UNREAD, _MAX_UNREAD_LENGTH = 3, 80
_MAX_SKIPPED, _MAX_BRACES = 256, 16
"""How much output beside a message is skipped: bytes at either end, and braces before its own."""
_BRACE = re.compile(rb"\{")
_ESCAPES = re.compile(rb"(?:\x1b\[[0-9;?]*+[A-Za-z]|\s)*+")


class PendingRequest:
    """A request to the server and, once settled, its outcome.

    `deliver` is called on any thread: with each `Progress`, then once with None when `result` or `error` is set. One
    call may take several requests on the wire (input rounds); `id` is the id of the latest.
    """

    __slots__ = ("body", "deliver", "error", "id", "method", "name", "result", "retry", "task", "wants_task")

    def __init__(self, deliver: Callable[[types.Progress | None], None]) -> None:
        self.deliver = deliver
        self.id = 0
        self.method = ""
        self.name: str | None = None
        """Name of the tool, for a tool call."""
        self.body = b""
        """JSON of the params without `_meta`, or of the arguments for a tool call."""
        self.retry: Retry | None = None
        """Set once the request has to be sent again."""
        self.wants_task = False
        """Handshake era: request that the server runs the call as a task."""
        self.task: TaskState | None = None
        """The latest known state of the task that this call became."""
        self.result: Raw | None = None
        self.error: McpError | None = None

    def is_settled(self) -> bool:
        """Whether the outcome is set."""
        return self.result is not None or self.error is not None

    def settle(self, *, result: Raw | None = None, error: McpError | None = None) -> None:
        """Set the outcome. Only for the thread that popped the request."""
        self.result = result
        self.error = error
        self.deliver(None)


Intercept: TypeAlias = "Callable[[PendingRequest, Raw, Raw, bytes | bytearray], bool]"
"""A hook that sees a response before it settles its request: the request, the result, the error, and the whole line.

It returns whether it has settled or renewed the request itself.
"""


class Peer:
    """The client's end of one JSON-RPC connection.

    Args:
        on_request: Handles a request; its second argument is the id of our request whose response stream carried it.
        on_notification: Handles a notification.
        warn: Logs a message that violates the protocol.
        session_tag: Names the connection in logs.
    """

    def __init__(
        self,
        on_request: Callable[[types.Envelope, int | str | float | None], None],
        on_notification: Callable[[str, Raw], None],
        warn: Callable[[str], None],
        session_tag: str,
    ) -> None:
        self.session_tag = session_tag
        self._on_request = on_request
        self._on_notification = on_notification
        self._warn = warn
        self._pending: dict[int | str | float, PendingRequest] = {}
        self._next_id = itertools.count(1).__next__
        self._abandoned: deque[int | str | float] = deque(maxlen=256)
        """Ids of recently abandoned requests, whose late responses are ignored."""
        self.intercept: Intercept | None = None
        """Called with every response before it is matched to its request."""
        self.unread: list[str] = []
        """The first lines that are not messages, shortened."""

    def __len__(self) -> int:
        return len(self._pending)

    def open(self, pending: PendingRequest, method: str) -> int:
        """Register a request before it is sent, and assign its id."""
        pending.id = identifier = self._next_id()
        pending.method = method
        self._pending[identifier] = pending
        return identifier

    def is_pending(self, pending: PendingRequest) -> bool:
        """Return whether the request is still pending."""
        return self._pending.get(pending.id) is pending

    def find(self, identifier: int | str | float | None) -> PendingRequest | None:
        """Find the pending request with this id."""
        return self._pending.get(identifier) if identifier is not None else None

    def all_pending(self) -> list[PendingRequest]:
        """List all pending requests, oldest first."""
        return list(self._pending.values())

    def reassign_id(self, pending: PendingRequest) -> bool:
        """Assign a new id before the request is sent again. False if it was settled or abandoned meanwhile.

        The request is registered under at least one id at every moment, so that a concurrent `claim` always finds it.
        """
        old, new = pending.id, self._next_id()
        self._pending[new] = pending
        pending.id = new
        if self._pending.pop(old, None) is not None:
            return True
        self._pending.pop(new, None)
        return False

    def claim(self, pending: PendingRequest) -> bool:
        """Abandon a request. True if it was pending, so that the caller sets its outcome."""
        identifier = pending.id
        while self._pending.pop(identifier, None) is None:
            if pending.id == identifier:
                return False
            identifier = pending.id  # reassigned concurrently
        self._abandoned.append(identifier)
        return True

    def settle(
        self, identifier: int | str | float, *, result: Raw | None = None, error: McpError | None = None
    ) -> bool:
        """Settle one request with a result or an error. False if it is not pending."""
        pending = self._pending.pop(identifier, None)
        if pending is None:
            return False
        pending.settle(result=result, error=error)
        return True

    def fail_all(self, error: Callable[[], McpError]) -> None:
        """Settle every request with a new error."""
        for identifier in list(self._pending):
            self.settle(identifier, error=error())

    def receive_own(
        self, line: bytes | bytearray, pending: PendingRequest, is_final: Callable[[bytes | bytearray], bool]
    ) -> bool:
        """Handle a line in the thread that waits for a request, if it is a result or progress of this request.

        Args:
            line: JSON.
            pending: The request.
            is_final: Whether a line with a result needs no interceptor.

        Returns:
            False if the line is anything else, which has to be handled on the loop.
        """
        try:
            message = types.read_envelope(line)
            if isinstance(message, list):
                return False
            is_progress = message.method == "notifications/progress" and message.id is None
            progress = types.decode(message.params, types.Progress) if is_progress else None
        except ValueError:
            return False
        if progress is not None:
            if progress.progressToken != pending.id or not self.is_pending(pending):
                return False
            pending.deliver(progress)
            return True
        identifier = pending.id  # the loop may give the request another one meanwhile
        if message.method is not None or message.id != identifier or not len(message.result):
            return False
        has_error = len(message.error) > 0 and message.error != _NULL
        return not has_error and is_final(line) and self.settle(identifier, result=message.result)

    def receive(self, line: bytes | bytearray, origin_request_id: int | str | float | None = None) -> None:
        """Handle one line from the other side: a message, or a batch of messages.

        Args:
            line: JSON.
            origin_request_id: Id of our request whose response stream carried the line, if any.
        """
        try:
            message = types.read_envelope(line)
        except ValueError as error:
            inner = _message_within(line)
            if inner is None:
                self._receive_malformed(line, error)
            else:
                self._warn(f"output beside a message was skipped: {excerpt(line.replace(inner, b''))}")
                self.receive(inner, origin_request_id)
            return
        if not isinstance(message, list):
            self._dispatch(message, line, origin_request_id)
            return
        for item in map(bytes, message):
            try:
                part = types.decode(item, types.Envelope)
            except ValueError as error:
                self._receive_malformed(item, error)
            else:
                self._dispatch(part, item, origin_request_id)

    def _dispatch(
        self, message: types.Envelope, line: bytes | bytearray, origin_request_id: int | str | float | None
    ) -> None:
        if message.method is None:
            self._receive_answer(message, line, origin_request_id)
        elif message.id is not None:
            self._on_request(message, origin_request_id)
        elif message.method == "notifications/progress":
            self._receive_progress(message.params)
        else:
            self._on_notification(message.method, message.params)

    def _receive_answer(
        self, message: types.Envelope, line: bytes | bytearray, origin_request_id: int | str | float | None
    ) -> None:
        result = message.result
        error = message.error if message.error != _NULL else _ABSENT
        identifier = _own_id(message.id) if isinstance(message.id, str) else message.id
        if identifier is None and len(error):
            identifier = origin_request_id if origin_request_id is not None else self._addressee(rpc_error(error))
        if self.intercept is not None:
            pending = self.find(identifier)
            if pending is not None and self.intercept(pending, result, error, line):
                return
        pending = self._pending.pop(identifier, None) if identifier is not None else None
        if pending is not None and len(error):
            pending.settle(error=rpc_error(error))
        elif pending is not None and len(result):
            pending.settle(result=result)
        elif pending is not None:
            pending.settle(
                error=CallError("the server's answer contains neither a result nor an error", hint=_SERVER_FAULT)
            )
        elif identifier in self._abandoned:
            self._abandoned.remove(identifier)
        elif len(result) or len(error):
            content = excerpt(bytes(error)) if len(error) else "a result"
            self._warn(f"an answer to no request in flight (id {message.id!r}): {content}")
        else:
            self._warn(f"not a JSON-RPC message: {excerpt(line)}")

    def _addressee(self, error: RpcError) -> int | str | float | None:
        """Return the id of the only request that an error without an id can be about.

        Some servers answer our notifications with such errors, which are about no request.
        """
        waiting = [pending for pending in self.all_pending() if pending.method not in _LONG_LIVED]
        is_about_notification = error.code == METHOD_NOT_FOUND or "notification" in error.message.lower()
        return waiting[0].id if len(waiting) == 1 and not is_about_notification else None

    def _receive_progress(self, params: Raw) -> None:
        try:
            progress = types.decode(params, types.Progress)
        except ValueError:
            self._warn(f"progress without a usable token: {excerpt(bytes(params))}")
            return
        pending = self._pending.get(progress.progressToken)
        if pending is not None:
            pending.deliver(progress)

    def _receive_malformed(self, line: bytes | bytearray, error: ValueError) -> None:
        """Handle a line that is not JSON or not JSON-RPC. If it was meant as a response, fail that request at once."""
        identifier = find_id(line[:4096], line[-4096:])
        if identifier is not None and isinstance(error, types.InvalidJson):
            failure = CallError(f"the server's answer is not valid JSON ({error})", hint=_SERVER_FAULT)
            if self.settle(identifier, error=failure):
                self._warn(f"an answer that is not valid JSON ({error}): {excerpt(line)}")
                return
        if len(self.unread) < _MAX_UNREAD:
            self.unread.append(excerpt(line, _MAX_UNREAD_LENGTH))
        self._warn(f"not a message: {excerpt(line)}")


class _JsonRpcMessage(Struct):
    jsonrpc: Literal["2.0"]


def _message_within(line: bytes | bytearray) -> bytes | bytearray | None:
    """Find the message on a line that begins with other output, such as a spinner, or ends with escape sequences."""
    if b'"jsonrpc"' not in line:
        return None
    after = line[-_MAX_SKIPPED:].rpartition(b"}")[2]
    end = len(line) - len(after) if _ESCAPES.fullmatch(after) else len(line)
    begins = [match.start() for match, _ in zip(_BRACE.finditer(line[:_MAX_SKIPPED]), range(_MAX_BRACES), strict=False)]
    for start in begins if line[:1] != b"{" else [0]:
        with contextlib.suppress(ValueError):
            types.decode(line[start:end], _JsonRpcMessage)
            return line[start:end]
    return None


def find_id(head: bytes | bytearray, tail: bytes | bytearray) -> int | str | None:
    """Find the id of an undecodable response where JSON-RPC libraries write it: first or last."""
    if b'"method"' in head[:256]:
        return None
    match = _ID_FIRST.match(head) or _ID_LAST.search(tail)
    if match is None:
        return None
    number, text = match.groups()
    return int(number) if number is not None else _own_id(text.decode("utf-8", "replace"))


def excerpt(line: bytes | bytearray, limit: int = 200) -> str:
    """The beginning of a line as readable text for a log, without any `requestState`, which is confidential."""
    secret = line.find(b'"requestState"')
    shown = line if secret < 0 else line[:secret]
    text = shown[: limit + 1].decode("utf-8", "replace").strip()
    return text if len(shown) <= limit and shown is line else text[:limit] + "…"


def _own_id(text: str) -> int | str:
    """Convert an id back to a number; some servers return our numeric ids as strings."""
    return int(text) if len(text) < 20 and text.isdecimal() else text


def rpc_error(raw: Raw) -> RpcError:
    """Convert a JSON-RPC error object to an exception."""
    try:
        error = types.decode(raw, types.ErrorObject)
        data = types.loads(error.data) if len(error.data) else None
    except ValueError:
        return RpcError(f"the server refused: {excerpt(bytes(raw))}", code=0)
    return RpcError(error.message or "the server refused", code=error.code, data=data)


def send_request(
    ask: Callable[[PendingRequest, str, bytes], None], method: str, body: bytes
) -> tuple[PendingRequest, asyncio.Future[Raw]]:
    """Send a request.

    Args:
        ask: The function that sends, such as `Client.ask`.
        method: Method name, such as `tools/list`.
        body: JSON object of the params without `_meta`.

    Returns:
        The pending request and a future of its result.
    """
    future: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()

    def deliver(progress: Progress | None) -> None:
        if progress is not None or future.done():
            return
        if pending.error is not None:
            future.set_exception(pending.error)
        elif pending.result is not None:
            future.set_result(pending.result)

    pending = PendingRequest(deliver)
    ask(pending, method, body)
    return pending, future


class Retry:
    """State of a request that is sent more than once."""

    __slots__ = ("headers_renewed", "rounds", "work")

    def __init__(self) -> None:
        self.rounds = 0
        """Number of input rounds so far."""
        self.headers_renewed = False
        """Whether the request was already sent again with other headers."""
        self.work: asyncio.Task[None] | None = None
        """The task that prepares the next request; None once that is sent."""


POLL_INTERVAL, _MIN_INTERVAL, _MAX_INTERVAL = 1.0, 0.05, 10.0
"""Seconds between two status requests: the default, and the range that a server may choose from."""
_MAX_SHOWN = 200
"""Maximum length of a task's message when it is displayed, in characters."""


class TaskState(Struct, rename={"id": "taskId", "message": "statusMessage"}):
    """The state of a task as last reported by the server, in the form of either era."""

    id: str
    status: str = "working"
    """`working`, `input_required`, `completed`, `failed` or `cancelled`."""
    message: str | None = None
    ttl: float | None = None
    """Milliseconds that the server keeps the task after its creation (2025-11-25)."""
    ttlMs: float | None = None
    """The same as `ttl`, in the tasks extension."""
    pollInterval: float | None = None
    pollIntervalMs: float | None = None
    result: Raw = Raw()
    error: Raw = Raw()
    inputRequests: dict[str, Raw] | None = None

    def __repr__(self) -> str:
        return one_line(f"<task {self.id}, {self.status}{f': {self._shown_message}' if self.message else ''}>")

    def __rich_repr__(self) -> list[tuple[str, str]]:
        shown = [("id", one_line(self.id)), ("status", one_line(self.status))]
        return [*shown, ("message", one_line(self._shown_message))] if self.message else shown

    @property
    def _shown_message(self) -> str:
        """The message, masked before it is cut: masking finds only whole secrets."""
        message = one_line(self.message or "")
        return message if len(message) <= _MAX_SHOWN else f"{message[:_MAX_SHOWN]}…"

    @property
    def interval(self) -> float:
        """Seconds between two status requests."""
        asked = self.pollIntervalMs if self.pollIntervalMs is not None else self.pollInterval
        return POLL_INTERVAL if asked is None else min(max(asked / 1000, _MIN_INTERVAL), _MAX_INTERVAL)

    @property
    def is_over(self) -> bool:
        """Whether the state is final."""
        return self.status in ("completed", "failed", "cancelled")


class HandshakeNeeded(CallError):
    """A call failed because the server cannot send requests on a stateless connection.

    Args:
        message: The server's message.
        is_reopening: Whether the session is being reopened with a handshake; False if the user fixed the era.
    """

    def __init__(self, message: str, *, is_reopening: bool) -> None:
        reopened = "the session is reopened with a handshake: call the tool again"
        super().__init__(message, hint=reopened if is_reopening else OTHER_ERA)
        self.is_reopening = is_reopening
