"""The base of both HTTP transports: requests to the server, with logins, and a queue of outgoing messages.

HTTP does not keep requests in order, so some wait for others: a notification for the one before it, every message for
`notifications/initialized`, and a cancellation for its call. httpx is imported when a connection is opened.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import itertools
import os
from typing import TYPE_CHECKING

from ipymcp.errors import AuthError, CallError, ConfigError, ConnectionLost, LoopError, McpError
from ipymcp.protocol.transports import http_errors
from ipymcp.protocol.transports.addresses import checked_headers, parse_address
from ipymcp.protocol.transports.base import NO_HEADERS, NoConnection, Transport
from ipymcp.protocol.transports.http_errors import Unreachable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping

    from ipymcp.protocol.transports.base import Authorizer, OutboundMessage, Receiver, RequestId
    from ipymcp.protocol.transports.http_client import HttpClient, HttpResponse


_SECOND_ATTEMPT = 0.25
"""Seconds before the second attempt to connect."""
_MAX_LOGINS = 5
"""Maximum logins for one request."""


class HttpLink:
    """Sends requests to one server.

    Args:
        url: See `parse_address`.
        headers: Headers of every request, from the server's definition.
        authorizer: Logs in if the server requires it.

    Raises:
        ConfigError: The URL or a header is invalid.
    """

    def __init__(self, url: str, headers: Mapping[str, str], authorizer: Authorizer | None) -> None:
        self.address = parse_address(url)
        self._headers = dict(checked_headers(headers))
        self._authorizer = authorizer
        self._client: HttpClient | None = None

    async def open(self, receiver: Receiver) -> None:
        """Create the HTTP client, without connecting."""
        self._receiver = receiver
        self._client = await asyncio.get_running_loop().run_in_executor(None, self._make_client)

    def _make_client(self) -> HttpClient:
        """Import httpx and read the CA bundle; both are slow, so this runs in a thread."""
        from ipymcp.protocol.transports.http_client import HttpClient

        try:
            return HttpClient(self.address, self._headers)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"connections to {self.address.shown} cannot be prepared ({error})",
                hint="check the URL, the proxy variables, SSL_CERT_FILE and SSL_CERT_DIR",
            ) from error

    @contextlib.asynccontextmanager
    async def request(
        self,
        method: str,
        headers: Mapping[str, str],
        content: bytes = b"",
        *,
        url: str | None = None,
        on_written: Callable[[], None] = lambda: None,
    ) -> AsyncGenerator[HttpResponse, None]:
        """Send a request and yield its response, after a login if needed. See `HttpClient.send` for the arguments.

        Raises:
            AuthError: The login is impossible or failed.
            ConnectionLost: No connection could be made, or it was dropped.
            CallError: A redirect is not allowed.
        """
        for attempt in itertools.count(1):
            credentials = await self._credentials()
            fields = {**headers, **credentials} if credentials else headers
            answer = await self._connect(method, fields, content, url, on_written)
            try:
                challenges = answer.challenges if answer.status in (401, 403) else []
                if answer.status != 401 and not challenges:
                    yield answer
                    return
                body = await answer.read_beginning(http_errors.BEGINNING)
                peer = answer.peer
            finally:
                await answer.aclose()
            try:
                goes_on = (
                    self._authorizer is not None
                    and attempt <= _MAX_LOGINS
                    and await self._authorizer.challenged(answer.status, challenges, credentials, peer)
                )
            except AuthError as error:
                if not challenges and (said := http_errors.said(body)):
                    error.message = f"{error.message}: {said}"
                raise
            if not goes_on:
                had_credentials = bool(credentials) or any(name.lower() == "authorization" for name in self._headers)
                raise http_errors.unauthorized(answer.phrase, challenges, body, had_credentials=had_credentials)

    def forget_cookies(self) -> None:
        """Forget the cookies of a session that is over."""
        if self._client is not None:
            self._client.cookies.clear()

    async def send_and_forget(self, method: str, headers: Mapping[str, str]) -> None:
        """Send a request and ignore its response and errors."""
        with contextlib.suppress(McpError, Unreachable):
            if self._client is not None:
                answer = await self._client.send(method, {**headers, **await self._credentials()})
                await answer.aclose()

    async def _credentials(self) -> Mapping[str, str]:
        return await self._authorizer.headers() if self._authorizer is not None else NO_HEADERS

    async def _connect(
        self,
        method: str,
        headers: Mapping[str, str],
        content: bytes,
        url: str | None,
        on_written: Callable[[], None],
    ) -> HttpResponse:
        client = self._client
        if client is None:
            raise ConnectionLost("the connection is closed")
        may_retry = True
        while True:
            try:
                return await client.send(method, headers, content, url=url, on_written=on_written)
            except Unreachable as failure:
                if not (may_retry and failure.may_pass):
                    self._receiver.unreachable(failure.reason)
                    raise NoConnection(failure.reason, hint=failure.hint) from failure
            may_retry = False
            await asyncio.sleep(_SECOND_ATTEMPT)

    async def aclose(self) -> None:
        """Close all connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def drop(self) -> None:
        """Release the sockets in a forked child."""
        if self._client is not None:
            self._client.drop()


_PREDECESSOR_TIMEOUT = 5.0
"""Seconds after which later messages no longer wait for one; a server may ignore it and still accept the next."""
_ABANDONED_TIMEOUT = 2.0
"""Seconds that an abandoned request keeps its connection, because the server need not respond to it."""


class QueuedPost:
    """An outgoing message; a request stays queued until its response has arrived."""

    __slots__ = ("done", "is_aborted", "is_answered", "is_sent", "message", "task", "unwritten", "written")

    def __init__(self, message: OutboundMessage) -> None:
        self.message = message
        self.unwritten = len(message.frame)
        """Number of bytes not yet written to the server."""
        self.written: asyncio.Future[None] | None = None
        """Completes when the message is written; created on demand."""
        self.task: asyncio.Task[None] | None = None
        self.done: asyncio.Future[None] | None = None
        """For a notification: completes when it is accepted, and at the latest when it is overdue."""
        self.is_sent = False
        """Whether sending has begun. Set on the loop, which reads `is_aborted` after that."""
        self.is_aborted = False
        """Whether the request was abandoned. Set by any thread, which reads `is_sent` after that."""
        self.is_answered = False

    @property
    def can_be_aborted(self) -> bool:
        """Whether closing the response cancels the request, as it does in the stateless era."""
        return "Mcp-Method" in self.message.headers


class SendQueue:
    """Delivers messages in tasks.

    Args:
        deliver: Delivers a message and its response; returns the error for a request that is still pending then.
    """

    def __init__(self, deliver: Callable[[QueuedPost], Awaitable[McpError | None]]) -> None:
        self._deliver = deliver
        self._posts: dict[RequestId, QueuedPost] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._last_notification: QueuedPost | None = None
        self._initialized: QueuedPost | None = None
        self._given_up: set[QueuedPost] = set()
        self._queued = 0
        self._is_closed = True
        self._pid = os.getpid()
        self._context = contextvars.Context()
        """An empty context, so that deliveries neither see nor keep the context of their call."""

    @property
    def queued(self) -> int:
        """Number of bytes accepted and not yet written to the server."""
        return self._queued

    def open(self, receiver: Receiver) -> None:
        """Start on the running loop."""
        self._receiver = receiver
        self._loop = asyncio.get_running_loop()
        self._is_closed = False

    # -- from any thread ----------------------------------------------------------------------------------------------

    def send(self, message: OutboundMessage) -> None:
        """Queue a message."""
        if self._is_closed:
            raise ConnectionLost("the connection is closed")
        if os.getpid() != self._pid:
            raise LoopError("this process was forked after its servers were started", hint="use them from the parent")
        post = QueuedPost(message)
        if message.kind == "request" and message.id is not None:
            self._posts[message.id] = post
        self._loop.call_soon_threadsafe(self._start, post, context=self._context)

    def abort(self, identifier: RequestId) -> bool:
        """Abandon a request. False if the server needs a cancel notification."""
        post = self._posts.get(identifier)
        if post is None:
            return False
        post.is_aborted = True
        was_sent = post.is_sent
        self._loop.call_soon_threadsafe(self._give_up, post, context=self._context)
        return post.can_be_aborted or not was_sent

    # -- on the loop --------------------------------------------------------------------------------------------------

    def written(self, post: QueuedPost) -> None:
        """Record that a message is written to the server."""
        self._queued -= post.unwritten
        post.unwritten = 0
        self._given_up.discard(post)
        if post.written is not None and not post.written.done():
            post.written.set_result(None)

    def answered(self, identifier: RequestId) -> QueuedPost | None:
        """Record a response; return the message if it is still being delivered."""
        post = self._posts.get(identifier)
        if post is not None:
            post.is_answered = True
        return post

    def spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Start a task that is cancelled when the queue is closed."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def aclose(self) -> None:
        """Cancel all deliveries."""
        self._is_closed = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, post: QueuedPost) -> None:
        message = post.message
        self._queued += post.unwritten
        if self._is_closed or post.is_aborted:
            self._finish(post)
            return
        predecessors: set[asyncio.Future[None]] = set()  # complete with the messages that must be delivered before
        for earlier in (self._initialized, self._last_notification if message.kind == "notification" else None):
            if earlier is not None and earlier.done is not None and not earlier.done.done():
                predecessors.add(earlier.done)
        if message.method == "notifications/cancelled":
            for other in self._given_up:
                other.written = other.written or self._loop.create_future()
                predecessors.add(other.written)
        post.task = self.spawn(self._run(post, predecessors))
        if message.kind == "notification":
            post.done = self._loop.create_future()
            self._last_notification = post
            if message.method == "notifications/initialized":
                self._initialized = post

    async def _run(self, post: QueuedPost, predecessors: set[asyncio.Future[None]]) -> None:
        message = post.message
        error: McpError | None = None
        overdue: asyncio.TimerHandle | None = None
        try:
            if predecessors:
                await asyncio.wait(predecessors, timeout=_PREDECESSOR_TIMEOUT)
            if post.done is not None:
                overdue = self._loop.call_later(_PREDECESSOR_TIMEOUT, self._stop_waiting, post)
            error = await self._deliver(post)
        except McpError as failure:
            error = failure
        except Exception as fault:  # a bug must fail this call rather than hang it
            error = CallError(f"the message failed because of a bug in ipymcp: {fault!r}")
        finally:
            if overdue is not None:
                overdue.cancel()
            self._finish(post)
        if message.kind == "request" and message.id is not None:
            if error is not None:
                self._receiver.undelivered(message.id, error)  # ignored if the response has arrived
        elif error is not None:
            self._receiver.protocol_warning(f"{message.method or 'an answer'} was not delivered: {error.message}")

    def _stop_waiting(self, post: QueuedPost) -> None:
        """Let later messages go out, although the server has not answered a notification."""
        if post.done is not None and not post.done.done():
            post.done.set_result(None)
            method, seconds = post.message.method, _PREDECESSOR_TIMEOUT
            self._receiver.protocol_warning(f"{method} was not answered within {seconds:g} s; no longer waiting for it")

    def _finish(self, post: QueuedPost) -> None:
        self.written(post)
        if post.done is not None and not post.done.done():
            post.done.set_result(None)
        identifier = post.message.id
        if identifier is not None and self._posts.get(identifier) is post:
            del self._posts[identifier]

    def _give_up(self, post: QueuedPost) -> None:
        if post.task is None or post.task.done():
            return
        if post.can_be_aborted or not post.is_sent:
            post.task.cancel()
            return
        if post.unwritten:
            self._given_up.add(post)
        self._loop.call_later(_ABANDONED_TIMEOUT, post.task.cancel)


_MAX_CONCURRENT = 20
"""Maximum concurrent messages, except those that are long-lived or urgent."""


class RemoteTransport(Transport):
    """A server behind one URL.

    Args:
        url: `http://…`, `https://…`, or `unix:///path/to.sock:/mcp` for a unix socket (the path is `/mcp` by default).
        headers: Headers of every request, from the server's definition.
        authorizer: Logs in if the server requires it.
        limit: Maximum message size in bytes; a larger response fails its call.

    Raises:
        ConfigError: The URL or a header is invalid.
    """

    uses_headers = True

    def __init__(self, url: str, *, headers: Mapping[str, str], authorizer: Authorizer | None, limit: int) -> None:
        self._link = HttpLink(url, headers, authorizer)
        self._limit = limit
        self._outbox = SendQueue(self._deliver)
        self._concurrency = asyncio.Semaphore(_MAX_CONCURRENT)

    async def open(self, receiver: Receiver) -> None:
        """Prepare the connection; the first message connects."""
        self._receiver = receiver
        await self._link.open(receiver)
        self._outbox.open(receiver)

    @property
    def queued(self) -> int:
        """Number of bytes accepted by `send` and not yet written to the server."""
        return self._outbox.queued

    def send(self, message: OutboundMessage) -> None:
        """Send a message from any thread without waiting."""
        self._outbox.send(message)

    def abort(self, identifier: RequestId) -> bool:
        """Abort a request by closing its response (stateless era), or before it is sent."""
        return self._outbox.abort(identifier)

    async def aclose(self) -> None:
        """End the session and close all connections."""
        try:
            await self._outbox.aclose()
            await self._end_session()
        finally:
            await self._link.aclose()

    def close_in_fork(self) -> None:
        """Release the sockets in a forked child."""
        self._link.drop()

    async def _deliver(self, post: QueuedPost) -> McpError | None:
        """Deliver a message and its response; return the error for a request that is still pending then."""
        raise NotImplementedError

    async def _end_session(self) -> None:
        """Ask the server to end the session, if there is one."""
