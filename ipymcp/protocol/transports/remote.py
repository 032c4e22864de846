"""What both HTTP transports share: connections to the server and a queue of outgoing messages.

Nothing keeps requests of HTTP in order by itself. What must not be overtaken is waited for: a notification by the next
one, `notifications/initialized` by all that follows, and a call by its own cancellation.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
from typing import TYPE_CHECKING

from ipymcp.errors import CallError, ConnectionLost, LoopError, McpError
from ipymcp.protocol.transports.http_link import HttpLink

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping

    from ipymcp.protocol.transports.base import Authorizer, OutboundMessage, Receiver, RequestId


_TIMEOUT = 5.0
"""Seconds a message waits at most for those that go first: a server that is deaf to one may hear the next."""
_AFTERLIFE = 2.0
"""Seconds a request that was given up keeps its connection: a server need not answer what was cancelled."""


class QueuedPost:
    """One message on its way; a request until its answer has come."""

    __slots__ = ("is_aborted", "is_answered", "is_sent", "message", "session", "task", "untaken", "written")

    def __init__(self, message: OutboundMessage) -> None:
        self.message = message
        self.untaken = len(message.frame)
        """Bytes the server has not yet been given."""
        self.written: asyncio.Future[None] | None = None
        """Done when it has been given to the server; made for whoever waits for that."""
        self.task: asyncio.Task[None] | None = None
        self.session: str | None = None
        """The session it was last sent in."""
        self.is_sent = False
        """Whether sending has begun. Set by the loop before it looks at `is_aborted`."""
        self.is_aborted = False
        """Set by whoever gives up, before looking at `is_sent`."""
        self.is_answered = False

    @property
    def can_be_aborted(self) -> bool:
        """In the stateless era, whose requests name their method, the end of the answer is the cancellation."""
        return "Mcp-Method" in self.message.headers


class SendQueue:
    """Delivers messages.

    Args:
        deliver: Delivers one, and what is answered; for requests, what to say to whoever still waits afterwards.
    """

    def __init__(self, deliver: Callable[[QueuedPost], Awaitable[McpError | None]]) -> None:
        self._deliver = deliver
        self._posts: dict[RequestId, QueuedPost] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._last_notification: asyncio.Task[None] | None = None
        self._initialized: asyncio.Task[None] | None = None
        self._given_up: set[QueuedPost] = set()
        self._queued = 0
        self._is_closed = True
        self._pid = os.getpid()
        self._context = contextvars.Context()
        """Whose call a message belongs to is nothing its delivery should see, or keep alive."""

    @property
    def queued(self) -> int:
        """Bytes accepted and not yet given to the server."""
        return self._queued

    def open(self, receiver: Receiver) -> None:
        """Start. On the loop."""
        self._receiver = receiver
        self._loop = asyncio.get_running_loop()
        self._is_closed = False

    # -- from any thread ----------------------------------------------------------------------------------------------

    def send(self, message: OutboundMessage) -> None:
        """Take a message."""
        if self._is_closed:
            raise ConnectionLost("the connection is closed")
        if os.getpid() != self._pid:
            raise LoopError("this process was forked after its servers were started", hint="use them from the parent")
        post = QueuedPost(message)
        if message.kind == "request" and message.id is not None:
            self._posts[message.id] = post
        self._loop.call_soon_threadsafe(self._start, post, context=self._context)

    def abort(self, identifier: RequestId) -> bool:
        """Give up a request. False: the server has to be told by a notification."""
        post = self._posts.get(identifier)
        if post is None:
            return False
        post.is_aborted = True
        was_sent = post.is_sent
        self._loop.call_soon_threadsafe(self._give_up, post, context=self._context)
        return post.can_be_aborted or not was_sent

    # -- on the loop --------------------------------------------------------------------------------------------------

    def written(self, post: QueuedPost) -> None:
        """The server has been given this message."""
        self._queued -= post.untaken
        post.untaken = 0
        self._given_up.discard(post)
        if post.written is not None and not post.written.done():
            post.written.set_result(None)

    def answered(self, identifier: RequestId) -> QueuedPost | None:
        """An answer to this request has come; the post, if it is still under way."""
        post = self._posts.get(identifier)
        if post is not None:
            post.is_answered = True
        return post

    def spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """A task that ends when this is closed."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def aclose(self) -> None:
        """Give up all that is under way."""
        self._is_closed = True
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self, post: QueuedPost) -> None:
        message = post.message
        self._queued += post.untaken
        if self._is_closed or post.is_aborted:
            self._over(post)
            return
        post.task = self.spawn(self._carry(post, self._predecessors(post)))
        if message.kind == "notification":
            self._last_notification = post.task
            if message.method == "notifications/initialized":
                self._initialized = post.task

    def _predecessors(self, post: QueuedPost) -> set[asyncio.Future[None]]:
        """What has to be with the server first."""
        first: set[asyncio.Future[None]] = set()
        for task in (self._initialized, self._last_notification if post.message.kind == "notification" else None):
            if task is not None and not task.done():
                first.add(task)
        if post.message.method == "notifications/cancelled":
            for other in self._given_up:
                other.written = other.written or self._loop.create_future()
                first.add(other.written)
        return first

    async def _carry(self, post: QueuedPost, first: set[asyncio.Future[None]]) -> None:
        message = post.message
        error: McpError | None = None
        try:
            if first:
                await asyncio.wait(first, timeout=_TIMEOUT)
            error = await self._deliver(post)
        except McpError as failure:
            error = failure
        except Exception as fault:  # a fault of ours must fail this call rather than hang it
            error = CallError(f"the message failed by a fault of ipymcp: {fault!r}")
        finally:
            self._over(post)
        if message.kind == "request" and message.id is not None:
            if error is not None:
                self._receiver.undelivered(message.id, error)  # of no consequence where the answer has come
        elif error is not None:
            self._receiver.noise(f"{message.method or 'an answer'} was not delivered: {error.message}")

    def _over(self, post: QueuedPost) -> None:
        self.written(post)
        identifier = post.message.id
        if identifier is not None and self._posts.get(identifier) is post:
            del self._posts[identifier]

    def _give_up(self, post: QueuedPost) -> None:
        """Nobody waits for it any more."""
        if post.task is None or post.task.done():
            return
        if post.can_be_aborted or not post.is_sent:
            post.task.cancel()
            return
        if post.untaken:
            self._given_up.add(post)
        self._loop.call_later(_AFTERLIFE, post.task.cancel)


_AT_ONCE = 20
"""Messages on their way at a time, but for those that last or must get through."""


class RemoteTransport:
    """A server behind one URL.

    Args:
        url: `http://…`, `https://…`, or `unix:///path/to.sock:/mcp` for a unix socket (`/mcp` if nothing follows).
        headers: Of every request, from the server's definition.
        authorizer: Logs in, where there is one.
        limit: Largest message in bytes; a larger one fails its call.

    Raises:
        ConfigError: The URL or a header cannot be used.
    """

    uses_headers = True

    def __init__(self, url: str, *, headers: Mapping[str, str], authorizer: Authorizer | None, limit: int) -> None:
        self._link = HttpLink(url, headers, authorizer)
        self._limit = limit
        self._outbox = SendQueue(self._deliver)
        self._turns = asyncio.Semaphore(_AT_ONCE)

    @property
    def exit_code(self) -> int | None:
        """None: the process is not ours."""
        return None

    @property
    def pid(self) -> int | None:
        """None: the process is not ours."""
        return None

    @property
    def queued(self) -> int:
        """Bytes accepted by `send` and not yet given to the server."""
        return self._outbox.queued

    def send(self, message: OutboundMessage) -> None:
        """Send, from any thread, without waiting."""
        self._outbox.send(message)

    async def answers_anew(self, seconds: float) -> bool:
        """False: each request has an answer of its own."""
        return False

    def turn(self) -> None:
        """Answers are the loop's to read: there is no turn to take."""

    def abort(self, identifier: RequestId) -> bool:
        """Give up a request: in the stateless era by ending its answer, and in any where it was not sent yet."""
        return self._outbox.abort(identifier)

    async def aclose(self) -> None:
        """End the session and all connections."""
        try:
            await self._outbox.aclose()
            await self._say_goodbye()
        finally:
            await self._link.aclose()

    def close_input(self) -> None:
        """At the interpreter's exit: nothing can be said without waiting; the connections end with the process."""

    def close_in_fork(self) -> None:
        """In a forked child: let go of the sockets."""
        self._link.drop()

    async def _deliver(self, post: QueuedPost) -> McpError | None:
        """Deliver a message; what to say to whoever still waits for its answer afterwards."""
        raise NotImplementedError

    async def _say_goodbye(self) -> None:
        """Tell the server that the session ends, where it keeps one."""
