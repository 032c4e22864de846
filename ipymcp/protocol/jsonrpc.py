"""A JSON-RPC 2.0 peer without I/O: ids, pending requests, responses, late and malformed messages.

Requests are opened, settled and given up from many threads. The table of slots is one dict, and `dict.pop` is atomic:
whoever pops a slot owns its outcome, and everybody else finds nothing. Nothing else is locked.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import itertools
import re
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Raw, Struct

from ipymcp.errors import CallError, McpError, RpcError
from ipymcp.protocol import types
from ipymcp.text import one_line

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Generator

    pass
    pass
    from ipymcp.protocol.types import Progress


class Background:
    """Tasks that nobody awaits. Belongs to the loop."""

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
        """The connection is over."""
        for task in tuple(self._tasks):
            task.cancel()


class Clocks:
    """The timeouts of one connection's requests. Belongs to the loop."""

    def __init__(self) -> None:
        self._running: dict[PendingRequest, _Clock] = {}

    @contextlib.asynccontextmanager
    async def limit(self, slot: PendingRequest, seconds: float | None) -> AsyncGenerator[None]:
        """As `asyncio.timeout`, for as long as nothing holds the slot's clock.

        Raises:
            TimeoutError: The seconds have passed.
        """
        async with asyncio.timeout(seconds) as scope:
            self._running[slot] = _Clock(scope)
            try:
                yield
            finally:
                del self._running[slot]

    @contextlib.contextmanager
    def held(self, slot: PendingRequest | None) -> Generator[None]:
        """Hold the clock of one request, or of all where it is not known which one the server asks for."""
        clocks = [clock for of, clock in self._running.items() if slot is None or of is slot]
        for clock in clocks:
            clock.hold()
        try:
            yield
        finally:
            for clock in clocks:
                clock.release()


class _Clock:
    def __init__(self, scope: asyncio.Timeout) -> None:
        self._scope = scope
        self._holds = 0
        self._left: float | None = None

    def hold(self) -> None:
        self._holds += 1
        end = self._scope.when()
        if self._holds == 1 and end is not None and not self._scope.expired():
            self._left = max(end - asyncio.get_running_loop().time(), 0)
            self._scope.reschedule(None)

    def release(self) -> None:
        self._holds -= 1
        if self._holds == 0 and self._left is not None:
            with contextlib.suppress(RuntimeError):  # its request is over
                self._scope.reschedule(asyncio.get_running_loop().time() + self._left)
            self._left = None


_ID = rb'"id"\s*:\s*(?:(-?\d+)|"((?:[^"\\]|\\.)*)")'
_ID_FIRST = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?' + _ID)
_ID_LAST = re.compile(_ID + rb'\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$')
_NULL, _ABSENT = Raw(b"null"), Raw()
_ITS_FAULT = "a fault of the server; its log has the line"


class PendingRequest:
    """One question of ours and, once settled, what became of it.

    `deliver` is called, on whichever thread it happens, with each `wire.Progress` and in the end once with None, when
    `result` or `error` is set. A question may take several requests (input rounds): `id` is that of the last one.
    """

    __slots__ = ("body", "deliver", "error", "id", "method", "name", "result", "retry", "task", "wants_task")

    def __init__(self, deliver: Callable[[types.Progress | None], None]) -> None:
        self.deliver = deliver
        self.id = 0
        self.method = ""
        self.name: str | None = None
        """Of a tool call the tool's."""
        self.body = b""
        """The params, without `_meta`; of a tool call the arguments."""
        self.retry: Retry | None = None
        """Set once it is to be sent again."""
        self.wants_task = False
        """Handshake era: a call that is to be a task."""
        self.task: TaskState | None = None
        """The task that it has become, as the server last told of it."""
        self.result: Raw | None = None
        self.error: McpError | None = None

    def is_settled(self) -> bool:
        """Whether it has its outcome."""
        return self.result is not None or self.error is not None

    def settle(self, *, result: Raw | None = None, error: McpError | None = None) -> None:
        """Set the outcome. Only for whoever popped the slot."""
        self.result = result
        self.error = error
        self.deliver(None)


class Intercept(Protocol):
    """Looks at an answer before it settles its slot."""

    def __call__(self, slot: PendingRequest, result: Raw, error: Raw, line: bytes | bytearray) -> bool:
        """True where it settled or renewed the slot itself: the answer is dealt with."""
        ...


class Handler(Protocol):
    """What the peer's owner does with what the other side says of its own accord."""

    def on_request(self, request: types.Envelope, carrier: int | str | float | None) -> None:
        """The other side asks something, in the stream of our request `carrier` where there is one for each."""
        ...

    def on_notification(self, method: str, params: Raw) -> None:
        """The other side says something that needs no answer."""
        ...

    def on_noise(self, text: str) -> None:
        """Something that is no valid message; the text says what, for the log."""
        ...


class Peer:
    """Our end of one JSON-RPC connection."""

    def __init__(self, handler: Handler, session_tag: str) -> None:
        self.session_tag = session_tag
        self._handler = handler
        self._slots: dict[int | str | float, PendingRequest] = {}
        self._next_id = itertools.count(1).__next__
        self._given_up: deque[int | str | float] = deque(maxlen=256)
        """The last requests nobody waits for any more: a late answer to one of them is nothing to speak of."""
        self.intercept: Intercept | None = None
        """Shown every answer first, where it is set."""

    def __len__(self) -> int:
        """How many requests are in flight."""
        return len(self._slots)

    def open(self, slot: PendingRequest, method: str) -> int:
        """Register a request, before it is sent, and give it its id."""
        slot.id = identifier = self._next_id()
        slot.method = method
        self._slots[identifier] = slot
        return identifier

    def holds(self, slot: PendingRequest) -> bool:
        """Whether it still waits for its outcome."""
        return self._slots.get(slot.id) is slot

    def slot(self, identifier: int | str | float | None) -> PendingRequest | None:
        """The request in flight that has this id."""
        return self._slots.get(identifier) if identifier is not None else None

    def waiting(self) -> list[PendingRequest]:
        """All requests in flight, oldest first."""
        return list(self._slots.values())

    def reassign_id(self, slot: PendingRequest) -> bool:
        """Give it a new id, under which it is to be sent again. False if somebody else has settled it or given it up.

        At no moment is it under neither id, so that `take` always finds it; who takes it meanwhile keeps it.
        """
        old, new = slot.id, self._next_id()
        self._slots[new] = slot
        slot.id = new
        if self._slots.pop(old, None) is not None:
            return True
        self._slots.pop(new, None)
        return False

    def claim(self, slot: PendingRequest) -> bool:
        """Give the request up. True if it was still in flight: its outcome is the caller's to set."""
        identifier = slot.id
        while self._slots.pop(identifier, None) is None:
            if slot.id == identifier:
                return False
            identifier = slot.id  # renewed just now
        self._given_up.append(identifier)
        return True

    def fail(self, identifier: int | str | float, error: McpError) -> bool:
        """Settle one request with an error. False if it is not in flight."""
        slot = self._slots.pop(identifier, None)
        if slot is None:
            return False
        slot.settle(error=error)
        return True

    def succeed(self, identifier: int | str | float, result: Raw) -> bool:
        """Settle one request with a result. False if it is not in flight."""
        slot = self._slots.pop(identifier, None)
        if slot is None:
            return False
        slot.settle(result=result)
        return True

    def fail_all(self, error: Callable[[], McpError]) -> None:
        """Settle all requests with an error of their own each."""
        for identifier in list(self._slots):
            self.fail(identifier, error())

    def concerns(self, slot: PendingRequest, line: bytes | bytearray) -> bool:
        """Whether a line is this request's result or progress and nothing else."""
        try:
            message = types.read_envelope(line)
            if isinstance(message, list):
                return False
            if message.method == "notifications/progress":
                return types.decode(message.params, types.Progress).progressToken == slot.id
        except ValueError:
            return False
        return message.method is None and message.id == slot.id and len(message.result) > 0

    def receive(self, line: bytes | bytearray, carrier: int | str | float | None = None) -> None:
        """Act on one line from the other side: a message, or a batch of them.

        Args:
            line: JSON.
            carrier: The request of ours in whose stream it came, where there is one for each.
        """
        try:
            message = types.read_envelope(line)
        except ValueError as error:
            self._receive_garbage(line, error)
            return
        if isinstance(message, list):
            for item in message:
                self._receive_item(bytes(item), carrier)
        else:
            self._dispatch(message, line, carrier)

    def _receive_item(self, item: bytes, carrier: int | str | float | None) -> None:
        """One message of a batch; a broken one costs the others nothing."""
        try:
            message = types.decode(item, types.Envelope)
        except ValueError as error:
            self._receive_garbage(item, error)
        else:
            self._dispatch(message, item, carrier)

    def _dispatch(self, message: types.Envelope, line: bytes | bytearray, carrier: int | str | float | None) -> None:
        if message.method is None:
            self._receive_answer(message, line)
        elif message.id is not None:
            self._handler.on_request(message, carrier)
        elif message.method == "notifications/progress":
            self._receive_progress_of(message.params)
        else:
            self._handler.on_notification(message.method, message.params)

    def _receive_answer(self, message: types.Envelope, line: bytes | bytearray) -> None:
        result = message.result
        error = message.error if message.error != _NULL else _ABSENT
        identifier = _own_id(message.id) if isinstance(message.id, str) else message.id
        if self.intercept is not None:
            slot = self.slot(identifier)
            if slot is not None and self.intercept(slot, result, error, line):
                return
        slot = self._slots.pop(identifier, None) if identifier is not None else None
        if slot is not None and len(error):
            slot.settle(error=rpc_error(error))
        elif slot is not None and len(result):
            slot.settle(result=result)
        elif slot is not None:
            slot.settle(error=CallError("the server's answer holds neither a result nor an error", hint=_ITS_FAULT))
        elif identifier in self._given_up:
            self._given_up.remove(identifier)
        elif len(result) or len(error):
            what = excerpt(bytes(error)) if len(error) else "a result"
            self._handler.on_noise(f"an answer to no request in flight (id {message.id!r}): {what}")
        else:
            self._handler.on_noise(f"JSON, but no JSON-RPC message: {excerpt(line)}")

    def _receive_progress_of(self, params: Raw) -> None:
        try:
            progress = types.decode(params, types.Progress)
        except ValueError:
            self._handler.on_noise(f"progress without a usable token: {excerpt(bytes(params))}")
            return
        slot = self._slots.get(progress.progressToken)
        if slot is not None:
            slot.deliver(progress)

    def _receive_garbage(self, line: bytes | bytearray, error: ValueError) -> None:
        """Not JSON, or not JSON-RPC. If it was meant as somebody's answer, that call fails now rather than hangs."""
        identifier = find_id(line[:4096], line[-4096:])
        if identifier is not None and isinstance(error, types.InvalidJson):
            failure = CallError(f"the server's answer is not valid JSON ({error})", hint=_ITS_FAULT)
            if self.fail(identifier, failure):
                self._handler.on_noise(f"an answer that is not valid JSON ({error}): {excerpt(line)}")
                return
        self._handler.on_noise(f"not a message: {excerpt(line)}")


def find_id(head: bytes | bytearray, tail: bytes | bytearray) -> int | str | None:
    """The id of an answer that cannot be decoded, from where JSON-RPC writers put it: first or last."""
    if b'"method"' in head[:256]:
        return None
    match = _ID_FIRST.match(head) or _ID_LAST.search(tail)
    if match is None:
        return None
    number, text = match.groups()
    return int(number) if number is not None else _own_id(text.decode("utf-8", "replace"))


def excerpt(line: bytes | bytearray, limit: int = 200) -> str:
    """The beginning of a line, readable, for a log; never anything of a `requestState`, which nobody may see."""
    secret = line.find(b'"requestState"')
    shown = line if secret < 0 else line[:secret]
    text = shown[: limit + 1].decode("utf-8", "replace").strip()
    return text if len(shown) <= limit and shown is line else text[:limit] + "…"


def _own_id(text: str) -> int | str:
    """Our ids are numbers; some servers give them back as text."""
    return int(text) if len(text) < 20 and text.isdecimal() else text


def rpc_error(raw: Raw) -> RpcError:
    """A JSON-RPC error as what is raised."""
    try:
        error = types.decode(raw, types.ErrorObject)
        data = types.loads(error.data) if len(error.data) else None
    except ValueError:
        return RpcError(f"the server refused: {excerpt(bytes(raw))}", code=0)
    return RpcError(error.message or "the server refused", code=error.code, data=data)


def put(
    ask: Callable[[PendingRequest, str, bytes], None], method: str, body: bytes
) -> tuple[PendingRequest, asyncio.Future[Raw]]:
    """Put a question.

    Args:
        ask: Sends it; `Client.ask`.
        method: Such as `tools/list`.
        body: The params without `_meta`, a JSON object.

    Returns:
        Its slot, and a future of the answer.
    """
    future: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()

    def deliver(progress: Progress | None) -> None:
        if progress is not None or future.done():
            return
        if slot.error is not None:
            future.set_exception(slot.error)
        elif slot.result is not None:
            future.set_result(slot.result)

    slot = PendingRequest(deliver)
    ask(slot, method, body)
    return slot, future


class Retry:
    """What is known of a question that is sent more than once."""

    __slots__ = ("headers_renewed", "rounds", "work")

    def __init__(self) -> None:
        self.rounds = 0
        self.headers_renewed = False
        self.work: asyncio.Task[None] | None = None
        """What is done before the next request is sent; None once that is on its way."""


_POLL, _QUICKEST, _SLOWEST = 1.0, 0.05, 10.0
"""Seconds between two questions: where the server does not say, and what it may say."""


_MAX_SHOWN = 200


class TaskState(Struct, rename={"id": "taskId", "message": "statusMessage"}):
    """A task as the server last told of it, in both forms."""

    id: str
    status: str = "working"
    """`working`, `input_required`, `completed`, `failed` or `cancelled`."""
    message: str | None = None
    ttl: float | None = None
    """Milliseconds from its creation for which the server keeps it (2025-11-25)."""
    ttlMs: float | None = None
    """The same in the extension."""
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
        """The message with its secrets masked: only what is whole is known for one, so before it is cut."""
        message = one_line(self.message or "")
        return message if len(message) <= _MAX_SHOWN else f"{message[:_MAX_SHOWN]}…"

    @property
    def interval(self) -> float:
        """Seconds between two questions about it."""
        asked = self.pollIntervalMs if self.pollIntervalMs is not None else self.pollInterval
        return _POLL if asked is None else min(max(asked / 1000, _QUICKEST), _SLOWEST)

    @property
    def is_over(self) -> bool:
        """Whether nothing will change any more."""
        return self.status in ("completed", "failed", "cancelled")
