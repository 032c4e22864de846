"""Requests that take several rounds: input rounds, and calls repeated with other headers.

On a response `input_required`, the requested input is gathered and the request is sent again with it, under a new id.
Callers see one `PendingRequest`, whose id changes. Every response passes the interceptors, so they first search the
bytes for a few markers before they decode.

Source: MCP 2026-07-28, basic (resultType), patterns/mrtr and transports/streamable-http (HeaderMismatch).
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from msgspec import Raw, Struct

from ipymcp.errors import CallError, McpError, RpcError
from ipymcp.protocol import types
from ipymcp.protocol.jsonrpc import Retry, rpc_error
from ipymcp.protocol.server_requests import ROUND_METHODS

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from ipymcp.protocol.jsonrpc import Background, Peer, PendingRequest
    from ipymcp.protocol.server_requests import RequestAnswers


_LARGE = 1 << 20
_COMPLETE = re.compile(rb'"resultType"\s*:\s*"complete"')
_ENDS = 1000
_TOOL_ERROR = (b'"isError":true', b'"isError": true')


class ResponseInterceptors:
    """Handlers for responses that are not final. Belongs to the loop."""

    def __init__(self) -> None:
        self._results: dict[str, Callable[[PendingRequest, Raw], None]] = {}
        self._errors: dict[int, Callable[[PendingRequest, RpcError], bool]] = {}
        self._tool_error: Callable[[PendingRequest, Raw], bool] | None = None
        self._markers: tuple[bytes, ...] = ()
        """Bytes that occur in every response with a handler."""

    def on_result(self, result_type: str, handler: Callable[[PendingRequest, Raw], None]) -> None:
        """Register a handler for results of this `resultType`. The handler fails or renews the request."""
        self._results[result_type] = handler
        self._markers = (*self._markers, types.encode(result_type))

    def on_error(self, code: int, handler: Callable[[PendingRequest, RpcError], bool]) -> None:
        """Register a handler for errors of this code. It returns whether it failed or renewed the request."""
        self._errors[code] = handler

    def on_tool_error(self, handler: Callable[[PendingRequest, Raw], bool]) -> None:
        """Register a handler for tool errors. It returns whether it failed or renewed the request."""
        self._tool_error = handler
        self._markers = (*self._markers, *_TOOL_ERROR)

    def has_none(self, line: bytes | bytearray) -> bool:
        """Return whether a result certainly needs no handler; from any thread."""
        return not self._markers or _is_plainly_complete(line) or not any(marker in line for marker in self._markers)

    def intercept(self, pending: PendingRequest, result: Raw, error: Raw, line: bytes | bytearray) -> bool:
        """Pass a response to its handler; see `Intercept`."""
        if len(error):
            return self.handle_error(pending, rpc_error(error))
        if self.has_none(line):
            return False
        try:
            answer = types.decode(result, _Answer)
        except ValueError:
            return False
        if answer.isError and self._tool_error is not None:
            return self._tool_error(pending, result)
        handler = self._results.get(answer.resultType)
        if handler is None:
            return False
        handler(pending, result)
        return True

    def handle_error(self, pending: PendingRequest, error: RpcError) -> bool:
        """Pass an error to its handler; True if that failed or renewed the request."""
        handler = self._errors.get(error.code)
        return handler is not None and handler(pending, error)


class _Answer(Struct):
    resultType: str = "complete"
    isError: bool = False


def _is_plainly_complete(line: bytes | bytearray) -> bool:
    """Return whether a large result has the type `complete` near its beginning or end, where JSON writers put it."""
    return len(line) > _LARGE and any(_COMPLETE.search(end) for end in (line[:_ENDS], line[-_ENDS:]))


MAX_ROUNDS = 10
_SERVER_FAULT = "a fault of the server"


class RequestOwner(Protocol):
    """The part of a `Client` that sends requests."""

    async def request(self, method: str, body: bytes = b"{}", *, timeout: float | None = None) -> Raw:
        """Send a request and wait for its result."""
        ...

    def send_again(self, pending: PendingRequest, extra: bytes) -> bool:
        """Send a request with its new id and more params; False if it is no longer pending."""
        ...

    def cancel_request(self, pending: PendingRequest, reason: str) -> None:
        """Cancel a request at the server."""
        ...

    def give_up(self, pending: PendingRequest, reason: str) -> bool:
        """Abandon a request and notify the server; False if it was already settled."""
        ...


class InputRounds:
    """Gathers requested input and resends requests. Belongs to the loop, except `withdraw`.

    Args:
        client: The client.
        peer: The peer with the pending requests.
        answers: Answers requests from the server.
        background: Runs the tasks.
    """

    def __init__(self, client: RequestOwner, peer: Peer, answers: RequestAnswers, background: Background) -> None:
        self._client = client
        self._peer = peer
        self._answers = answers
        self._background = background
        self._loop = asyncio.get_running_loop()

    def begin(self, pending: PendingRequest, result: Raw) -> None:
        """Handle a result whose `resultType` is `input_required`."""
        retry = _retry_of(pending)
        retry.rounds += 1
        try:
            if pending.method not in ROUND_METHODS:
                raise CallError(f"the server asks for input to answer {pending.method}", hint=_SERVER_FAULT)
            required = _read(result)
            if retry.rounds > MAX_ROUNDS:
                hint = f"{_SERVER_FAULT}; ipymcp gives up after {MAX_ROUNDS} rounds"
                raise CallError(f"the server asked for input {MAX_ROUNDS} times and still wants more", hint=hint)
            requests = self._check(required.inputRequests or {})
        except CallError as error:
            self._peer.settle(pending.id, error=error)
            return
        self.resend(pending, self._gather(pending, requests, required.requestState))

    def resend(self, pending: PendingRequest, prepare: Coroutine[Any, Any, bytes]) -> None:
        """Send a request again after `prepare` has returned the additional params."""
        retry = _retry_of(pending)
        if self._peer.reassign_id(pending):
            retry.work = self._background.spawn(self._send(pending, retry, prepare), f"ipymcp-round-{pending.id}")
        else:
            prepare.close()

    def resend_once(self, pending: PendingRequest, prepare: Coroutine[Any, Any, bytes]) -> bool:
        """Call `resend`, but at most once for each request; False if it was already tried."""
        retry = _retry_of(pending)
        if retry.headers_renewed:
            prepare.close()
            return False
        retry.headers_renewed = True
        self.resend(pending, prepare)
        return True

    def withdraw(self, pending: PendingRequest, reason: str) -> None:
        """Cancel an abandoned request; from any thread. Message order is decided on the loop."""
        self.on_loop(self._withdraw, pending, reason)

    def on_loop(self, function: Callable[[PendingRequest, str], None], pending: PendingRequest, text: str) -> None:
        """Call a function on the loop; from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed, and the connection with it
            self._loop.call_soon_threadsafe(function, pending, text)

    def _withdraw(self, pending: PendingRequest, reason: str) -> None:
        assert pending.retry is not None
        if pending.retry.work is None:
            self._client.cancel_request(pending, reason)
        else:
            pending.retry.work.cancel()

    async def _send(self, pending: PendingRequest, retry: Retry, prepare: Coroutine[Any, Any, bytes]) -> None:
        try:
            if self._client.send_again(pending, await prepare):
                retry.work = None
        except McpError as error:
            self._peer.settle(pending.id, error=error)
        except Exception as error:  # a bug must not leave the caller waiting forever
            self._peer.settle(pending.id, error=CallError(f"failed because of a bug in ipymcp: {error!r}"))
            raise

    async def answer_all(self, pending: PendingRequest, requests: Mapping[str, Raw]) -> dict[str, Raw]:
        """Answer a server's input requests, by key.

        Raises:
            CallError: A request is not allowed, or is refused.
        """
        return await self._answer(pending, self._check(requests))

    def _check(self, requests: Mapping[str, Raw]) -> list[_Request]:
        """Check all requests before any of them is answered."""
        checked: list[_Request] = []
        for key, raw in requests.items():
            try:
                request = types.decode(raw, _InputRequest)
            except ValueError as error:
                raise CallError(f"the server sent a malformed input request ({error})", hint=_SERVER_FAULT) from None
            try:
                params = self._answers.check(request.method, request.params)
            except RpcError as error:
                message = f"the server sent an input request that is not allowed: {error.message}"
                raise CallError(message, hint=_SERVER_FAULT) from None
            checked.append(_Request(key, request.method, params))
        return checked

    async def _gather(self, pending: PendingRequest, requests: list[_Request], state: Raw) -> bytes:
        members: list[bytes] = []
        if requests:
            responses = await self._answer(pending, requests)
            members.append(b'"inputResponses":%s' % types.encode(responses))
        if len(state):
            members.append(b'"requestState":%s' % bytes(state))
        return b",".join(members)

    async def _answer(self, pending: PendingRequest, requests: list[_Request]) -> dict[str, Raw]:
        try:
            self._answers.reserve(len(requests))
        except RpcError as error:
            raise CallError(f"the server asks for {len(requests)} inputs at once: {error.message}") from None
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._answers.answer(request.method, request.params, pending))
                    for request in requests
                ]
        except* RpcError as errors:
            error = _first(errors)
            raise CallError(f"the server asked for input and was refused: {error.message}") from error
        finally:
            self._answers.release(len(requests))
        return {request.key: task.result() for request, task in zip(requests, tasks, strict=True)}


class _InputRequired(Struct):
    inputRequests: dict[str, Raw] | None = None
    requestState: Raw = Raw()


class _InputRequest(Struct):
    method: str
    params: Raw = Raw()


class _Request(NamedTuple):
    key: str
    method: str
    params: dict[str, Any]


def _read(result: Raw) -> _InputRequired:
    try:
        required = types.decode(result, _InputRequired)
    except ValueError as error:
        raise CallError(f"the server sent a malformed input request ({error})", hint=_SERVER_FAULT) from None
    if required.requestState == Raw(b"null"):
        required.requestState = Raw()
    if required.inputRequests is None and not len(required.requestState):
        raise CallError("the server asks for input without saying which", hint=_SERVER_FAULT)
    return required


def _retry_of(pending: PendingRequest) -> Retry:
    if pending.retry is None:
        pending.retry = Retry()
    return pending.retry


def _first(errors: BaseExceptionGroup[RpcError]) -> RpcError:
    error = errors.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
