"""Requests from the server (elicitation, sampling, roots), and requests that take several rounds, in both eras.

In the handshake era a server's request is a message. Servers of the stateless era must not send requests. Some do so
nevertheless; in others the SDK refuses, and the refusal becomes the response to the call: a JSON-RPC error (Python SDK
2.x) or a tool error (fastmcp 4, TypeScript SDK 2.x). The SDKs give these no code of their own, so they are recognized
by their text. The call fails, and the session is reopened with a handshake.

In the stateless era a server's request is inside a response, `input_required`: the requested input is gathered and the
request is sent again with it, under a new id. A call is repeated with other headers in the same way. Callers see one
`PendingRequest`, whose id changes. Every response passes the interceptors, so they first search the bytes for a few
markers before they decode.

Source: MCP 2025-11-25 and 2026-07-28, client/elicitation, client/sampling, client/roots; 2025-11-25 basic (messages),
ping, cancellation, tasks (related-task metadata); 2026-07-28 transports (servers send no requests), basic (resultType),
patterns/mrtr and transports/streamable-http (HeaderMismatch).
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from msgspec import Raw, Struct

from ipymcp.errors import CallError, McpError, RpcError
from ipymcp.protocol import types
from ipymcp.protocol.jsonrpc import METHOD_NOT_FOUND, HandshakeNeeded, Retry, rpc_error
from ipymcp.protocol.types import is_object

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from ipymcp.protocol.jsonrpc import Background, Peer, PendingRequest, RequestTimeouts
    from ipymcp.protocol.subscriptions import Listener

MAX_CONCURRENT_REQUESTS = 32
"""Maximum concurrent requests from one server."""
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
BUSY = -32000
CAPABILITIES = {"elicitation/create": "elicitation", "roots/list": "roots", "sampling/createMessage": "sampling"}
"""The client capability that permits each method."""
ROUND_METHODS = frozenset({"prompts/get", "resources/read", "tools/call"})
"""Our requests for which a server may require input from the user (2026-07-28, patterns/mrtr)."""


class Responder(Protocol):
    """Answers requests from the server, on the client's loop."""

    def capabilities(self) -> dict[str, Any]:
        """Return the `ClientCapabilities` to declare: `elicitation`, `sampling`, `roots`, `extensions`."""
        ...

    async def answer(self, method: str, params: dict[str, Any], request: PendingRequest | None) -> dict[str, Any]:
        """Answer one request. Runs in its own task and may wait for the user.

        Args:
            method: `elicitation/create`, `sampling/createMessage` or `roots/list`, if declared.
            params: Params of the request, with their shape checked.
            request: Our request that this one belongs to, if known.

        Raises:
            RpcError: The request is refused.
        """
        ...


class RequestAnswers:
    """Checks, limits and answers the requests on one connection.

    Args:
        responder: Answers the requests.
        timeouts: Timeouts, which are paused meanwhile.
    """

    def __init__(self, responder: Responder, timeouts: RequestTimeouts) -> None:
        self._responder = responder
        self._timeouts = timeouts
        self.declared = responder.capabilities()
        self._in_progress = 0

    def declare(self) -> bool:
        """Update the declared capabilities from the responder. True if they have changed."""
        before, self.declared = self.declared, self._responder.capabilities()
        return self.declared != before

    def is_outdated(self, capability: str) -> bool:
        """Return whether the responder's capability differs from the declared one."""
        return self._responder.capabilities().get(capability) != self.declared.get(capability)

    def check(self, method: str, params: Raw) -> dict[str, Any]:
        """Check a request and decode its params.

        Raises:
            RpcError: The error to respond with.
        """
        capability = CAPABILITIES.get(method)
        if capability is None or not is_object(self.declared.get(capability)):
            raise RpcError(f"{method} is not supported by this host", code=METHOD_NOT_FOUND)
        try:
            decoded: object = types.loads(params) if len(params) else {}
            if method == "elicitation/create":
                mode = types.decode(params, _Elicitation).mode
                if mode not in (self.declared["elicitation"] or {"form": {}}):
                    raise ValueError(f"the mode {mode!r} was not declared")
                types.decode(params, _UrlElicitation if mode == "url" else _FormElicitation)
            elif method == "sampling/createMessage":
                request = types.decode(params, _Sampling)
                has_tools = request.tools is not None or request.toolChoice is not None
                if has_tools and "tools" not in self.declared["sampling"]:
                    raise ValueError("tools were not declared")
        except ValueError as error:
            raise RpcError(f"the params of {method} are malformed: {error}", code=INVALID_PARAMS) from None
        if not is_object(decoded):
            raise RpcError(f"the params of {method} are not an object", code=INVALID_PARAMS)
        return decoded

    async def answer(self, method: str, params: dict[str, Any], pending: PendingRequest | None) -> Raw:
        """Answer a checked request as JSON, with the timeout of the call it belongs to paused.

        Raises:
            RpcError: The request was refused or failed.
        """
        try:
            with self._timeouts.paused(pending):
                result: object = await self._responder.answer(method, params, pending)
                if not is_object(result):
                    raise TypeError(f"{type(result).__name__} is not a result object")
                return Raw(types.encode(result))
        except RpcError:
            raise
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise RpcError(f"{method} was cancelled in the host", code=INTERNAL_ERROR) from error
        except Exception as error:  # in the host or a user's function; the server gets no details
            raise RpcError(f"{method} failed in the host", code=INTERNAL_ERROR) from error

    def reserve(self, wanted: int = 1) -> None:
        """Reserve capacity for some answers, until `release`.

        Raises:
            RpcError: The limit would be exceeded.
        """
        if self._in_progress + wanted > MAX_CONCURRENT_REQUESTS:
            raise RpcError(f"this host handles {MAX_CONCURRENT_REQUESTS} requests at a time; try later", code=BUSY)
        self._in_progress += wanted

    def release(self, count: int = 1) -> None:
        """Release capacity."""
        self._in_progress -= count


class _Elicitation(Struct):
    mode: str = "form"


class _FormSchema(Struct):
    properties: dict[str, dict[str, Any]]
    type: Literal["object"] = "object"
    required: list[str] | None = None


class _FormElicitation(Struct):
    message: str
    requestedSchema: _FormSchema


class _UrlElicitation(Struct):
    message: str
    url: str


class _SamplingMessage(Struct):
    role: Literal["user", "assistant"]
    content: dict[str, Any] | list[dict[str, Any]]


class _Sampling(Struct):
    messages: list[_SamplingMessage]
    maxTokens: int
    systemPrompt: str | None = None
    temperature: float | None = None
    stopSequences: list[str] | None = None
    modelPreferences: dict[str, Any] | None = None
    includeContext: str | None = None
    tools: list[dict[str, Any]] | None = None
    toolChoice: dict[str, Any] | None = None


_RELATED_TASK = "io.modelcontextprotocol/related-task"


class ServerRequestDispatcher:
    """Dispatches requests from the server. Belongs to the loop.

    Args:
        answers: Answers them.
        background: Runs the tasks.
        respond: Sends a response, given the request id, the member name (`result` or `error`) and its JSON.
        find: Finds our pending request by task id or request id.
        warn: Writes to the log.
    """

    def __init__(
        self,
        answers: RequestAnswers,
        background: Background,
        respond: Callable[[int | str | float, str, Raw], None],
        find: Callable[[str | None, int | str | float | None], PendingRequest | None],
        warn: Callable[[str], None],
    ) -> None:
        self._answers = answers
        self._background = background
        self._respond = respond
        self._find = find
        self._warn = warn
        self._tasks: dict[int | str | float, asyncio.Task[None]] = {}

    def serve(self, request: types.Envelope, origin_request_id: int | str | float | None) -> None:
        """Handle one request.

        Args:
            request: The request.
            origin_request_id: Id of our request whose response stream carried it, if any.
        """
        identifier, method = request.id, request.method or ""
        assert identifier is not None
        if method == "ping":
            self._respond(identifier, "result", Raw(b"{}"))
            return
        if identifier in self._tasks:  # two responses with one id would be ambiguous
            self._warn(f"the server sent {method} with an id in use ({identifier!r}): not answered")
            return
        try:
            params = self._answers.check(method, request.params)
            self._answers.reserve()
        except RpcError as error:
            why = "which this host does not offer" if error.code == METHOD_NOT_FOUND else f"refused: {error.message}"
            self._warn(f"the server sent {method}, {why}")
            self._refuse(identifier, error)
            return
        pending = self._find(_related_task(params), origin_request_id)
        work = self._answer(identifier, method, params, pending)
        task = self._background.spawn(work, f"ipymcp-answer-{identifier}")
        self._tasks[identifier] = task
        task.add_done_callback(lambda _: self._over(identifier))

    def withdraw(self, identifier: int | str) -> bool:
        """Cancel a request that the server has withdrawn. False if it is not running."""
        task = self._tasks.get(identifier)
        if task is None:
            return False
        task.cancel()
        self._warn(f"the server withdrew its request {identifier!r}")
        return True

    def withdraw_all(self) -> None:
        """Cancel all requests when their session ends."""
        for task in self._tasks.values():
            task.cancel()

    def _over(self, identifier: int | str | float) -> None:
        del self._tasks[identifier]
        self._answers.release()

    async def _answer(
        self, identifier: int | str | float, method: str, params: dict[str, Any], pending: PendingRequest | None
    ) -> None:
        try:
            result = await self._answers.answer(method, params, pending)
        except RpcError as error:
            if error.__cause__ is not None:
                self._warn(f"{error.message}: {error.__cause__!r}")
            self._refuse(identifier, error)
        else:
            self._respond(identifier, "result", result)

    def _refuse(self, identifier: int | str | float, error: RpcError) -> None:
        data = {} if error.data is None else {"data": error.data}
        error_object = {"code": error.code, "message": error.message, **data}
        self._respond(identifier, "error", Raw(types.encode(error_object)))


def _related_task(params: dict[str, Any]) -> str | None:
    meta = params.get("_meta")
    related = meta.get(_RELATED_TASK) if is_object(meta) else None
    task = related.get("taskId") if is_object(related) else None
    return task if isinstance(task, str) else None


_NO_CHANNEL = (
    r"(?is)\bno back-channel\b"
    r"|\bserver[- ](?:initiated|to[- ]client) requests?\b.{0,60}\b(?:unavailable|not (?:available|supported|possible))"
)
_MAX_LENGTH = 1000
"""Maximum length of an SDK's refusal, including the server's prefix, in characters."""


class UnexpectedRequests:
    """Detects requests to the client by servers of the stateless era, and reopens the session. Belongs to the loop.

    Args:
        peer: The connection's peer, for its pending requests.
        listener: The listener to notify that the session needs a handshake.
    """

    def __init__(self, peer: Peer, listener: Listener) -> None:
        self._peer = peer
        self._listener = listener
        self.may_reopen = True
        """Whether the era may change."""

    def request(self, method: str, origin_request_id: int | str | float | None) -> None:
        """Handle a request: fail the call that caused it, or all candidates if unknown."""
        self._listener.protocol_warning(f"request {method} from the server is not part of this era: not answered")
        if method not in CAPABILITIES:
            return
        pending = self._peer.find(origin_request_id)
        candidates = (
            [pending]
            if pending
            else [waiting for waiting in self._peer.all_pending() if waiting.method in ROUND_METHODS]
        )
        self._fail(
            candidates,
            f"the server asked for {method} without a handshake",
            f"it asks for {method} without a handshake",
        )

    def error(self, pending: PendingRequest, error: RpcError) -> bool:
        """Handle an error -32600; False if it has another cause."""
        if not re.search(_NO_CHANNEL, error.message[:_MAX_LENGTH]):
            return False
        self._fail([pending], error.message, "it asks for something without a handshake")
        return True

    def tool_error(self, pending: PendingRequest, result: Raw) -> bool:
        """Handle a tool error; False if it has another cause."""
        try:
            texts = [block.text for block in types.decode(result, _ErrorContent).content]
        except ValueError:
            return False
        text = " ".join(texts)
        if len(text) > _MAX_LENGTH or not re.search(_NO_CHANNEL, text):
            return False
        self._fail([pending], text, "it asks for something without a handshake")
        return True

    def _fail(self, requests: list[PendingRequest], message: str, reason: str) -> None:
        if self.may_reopen:  # first: a caller that sees its call fail may retry at once
            self._listener.wants_handshake(reason)
        for pending in requests:
            self._peer.settle(pending.id, error=HandshakeNeeded(message, is_reopening=self.may_reopen))


class _TextBlock(Struct):
    text: str = ""


class _ErrorContent(Struct):
    content: list[_TextBlock] = []


# -- rounds ------------------------------------------------------------------------------------------------------------


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
        if not self._markers:
            return True
        # JSON writers put the type of a large result near its beginning or end.
        if len(line) > _LARGE and (_COMPLETE.search(line[:_ENDS]) or _COMPLETE.search(line[-_ENDS:])):
            return True
        return not any(marker in line for marker in self._markers)

    def intercept(self, pending: PendingRequest, result: Raw, error: Raw, line: bytes | bytearray) -> bool:
        """Pass a response to its handler; see `Intercept`."""
        if len(error):
            return self.handle_error(pending, rpc_error(error))
        if self.has_none(line):
            return False
        try:
            answer = types.decode(result, _ResultKind)
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


class _ResultKind(Struct):
    resultType: str = "complete"
    isError: bool = False


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
