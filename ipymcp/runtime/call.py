"""One call of a tool: sent from any thread, waited for in a thread, on a loop, or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ipymcp.argument_checks import TIMEOUT, checked, missing_attribute
from ipymcp.errors import (
    CallCancelled,
    CallError,
    CallInterrupted,
    CallTimeout,
    LoopError,
    McpError,
    render_briefly,
)
from ipymcp.names import expression
from ipymcp.protocol.jsonrpc import HandshakeNeeded, PendingRequest
from ipymcp.runtime.loop import run_nested
from ipymcp.runtime.tracing import end_span, is_configured, start_span
from ipymcp.runtime.waiting import Interrupts, Waiter
from ipymcp.security.rules import hints
from ipymcp.security.untrusted import copy_actor_to_context, quotes_server
from ipymcp.storage.history import CallRecord
from ipymcp.text import one_line, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from msgspec import Raw

    from ipymcp.protocol.client import Client
    from ipymcp.protocol.jsonrpc import TaskState
    from ipymcp.protocol.types import Progress
    from ipymcp.runtime.call_hooks import CallHooks, Permission
    from ipymcp.runtime.call_options import CallOptions, CallServices
    from ipymcp.runtime.server_status import CallTarget


T = TypeVar("T")
MAX_QUEUED = 64_000_000
"""Maximum number of bytes that a server has not read yet; further calls wait before they are sent."""
_QUEUE_POLL = 0.05
_DIRECT_READ_TIMEOUT = 0.005
"""Seconds for which the calling thread reads the answer itself. Waking two threads is cheap beside a longer call."""
_PAUSE_POLL = 0.25
"""Seconds until the deadline is computed again while the timeout is paused."""
_MAX_MISSED_POLLS = 3
"""Number of polls of a task that may go unanswered before its call times out."""
_INTERRUPTED = "the user interrupted it"
_OTHER_NAMES = {
    **dict.fromkeys(("data", "df", "images", "text", "value"), "its result has that: .result().text, .data or .df"),
    **dict.fromkeys(("abort", "kill", "stop", "terminate"), "use .cancel()"),
    **dict.fromkeys(("get", "join", "wait"), "use .result(), or await the call"),
    **dict.fromkeys(("is_done", "state", "status"), "use .done, and .progress"),
}
"""Hints for attributes that a call does not have, but people expect."""


class Call(Generic[T]):
    """One call of a tool, running or done.

    Args:
        number: The number of the call in this notebook.
        session: The server.
        tool: The tool's exact name.
        arguments: The arguments as a JSON object.
        options: The options of the call.
        convert: Converts the JSON of the result to a value, or raises the error that the caller sees.
        services: The services of the host.
        permission: The permission to obtain before the call is sent; None if none is needed.
        receiver: Records the server's answer, once; for answers that may contain untrusted content.
        hooks: The user's functions, if one of them runs after the call.
    """

    __slots__ = (
        "_client",
        "_convert",
        "_hooks",
        "_last_activity",
        "_listeners",
        "_open_pauses",
        "_paused_for",
        "_paused_since",
        "_pending",
        "_permission",
        "_receiver",
        "_resend",
        "_services",
        "_span",
        "arguments",
        "cell",
        "done",
        "is_edited",
        "number",
        "options",
        "progress",
        "questions",
        "session",
        "started",
        "tool",
        "was_sent",
        "where_cancelled",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        session: CallTarget,
        tool: str,
        arguments: bytes,
        options: CallOptions,
        convert: Callable[[Raw], T],
        services: CallServices,
        permission: Permission | None = None,
        receiver: Callable[[bytes | memoryview], None] | None = None,
        hooks: CallHooks | None = None,
    ) -> None:
        self.number = number
        self.session = session
        self.tool = tool
        self.arguments = arguments
        self.is_edited = False
        """Whether the user changed the arguments when asked for consent."""
        self.options = options
        self.progress: Progress | None = None
        """The last progress reported."""
        self.done = False
        self.was_sent = False
        """Whether the server may have received the call."""
        self.started = self._last_activity = time.monotonic()
        self._open_pauses = 0
        """Number of `pause_timeout` blocks that are entered now."""
        self._paused_for = self._paused_since = 0.0
        self._convert = convert
        self._services = services
        self._pending = PendingRequest(self._deliver)
        self._resend: _Resend | None = None
        """The second sending of the call, once it is needed."""
        self._client: Client | None = None
        self._permission = permission
        """The permission that is still to be obtained."""
        self.where_cancelled = ""
        """The place where the user cancelled the call, if the error names it."""
        self._receiver = receiver
        self._hooks = hooks
        self._span: Any = None
        """The call's OpenTelemetry span, if one is recorded."""
        self.cell = services.history.calling_cell(options)
        """The execution count of the calling cell."""
        self.questions: tuple[str, ...] = ()
        """The questions that the user was asked about the call, with the answers."""
        self._listeners: list[Callable[[Progress | None], None]] = []
        """Called from any thread: with each progress, then once with None when the call is over."""

    def __repr__(self) -> str:
        state = "done" if self.done else "running"
        return one_line(f"<Call {self.number} {self.session.name}.{self.tool}, {state}>")

    if not TYPE_CHECKING:  # for type checkers a call has no other attributes

        def __getattr__(self, name: str) -> Any:
            return missing_attribute(self, name, "a call", _OTHER_NAMES)

    # -- ways to send the call and to wait for it ---------------------------------------------------------------------

    def run(self) -> T:
        """Send the call and wait for its result in this thread. An interrupt cancels the call.

        Raises:
            KeyboardInterrupt: The user interrupted the call.
            McpError: The call failed.
        """
        self._services.loop.refuse_own_thread()
        if self._services.client_handlers.nested_loop == "always" and asyncio._get_running_loop() is not None:
            return run_nested(self.arun())
        if self._permission is not None:
            self._services.loop.run(self._obtain(self._permission))
        with Waiter(self._services.loop.callers, self) as waiter:
            self._listeners.append(partial(self._wake, waiter))
            try:
                while not self._has_room():
                    waiter.wait(_at(time.monotonic() + _QUEUE_POLL))
                self._begin_and_read()
                if not waiter.wait(self.deadline):
                    self._expire()
            except BaseException as error:
                self._abandon(error)
                raise
            finally:
                self._present_end()
        return self._final_result()

    async def arun(self) -> T:
        """Send the call and await its result. Cancelling the task cancels the call.

        Raises:
            McpError: The call failed.
        """
        loop = asyncio.get_running_loop()
        if loop is self._services.loop.loop:
            raise LoopError("a call cannot be awaited on ipymcp's own loop", hint="await it on a loop of yours")
        if self._permission is not None:
            await self._services.loop.arun(self._obtain(self._permission))
        future: asyncio.Future[None] = loop.create_future()
        context = contextvars.copy_context()

        def listener(progress: Progress | None) -> None:
            if progress is None:
                self._services.loop.call_on(loop, partial(_resolve, future))
            else:
                self._services.loop.call_on(loop, partial(context.run, partial(on_progress, progress)))

        def on_progress(progress: Progress) -> None:
            try:
                self._report_progress(progress)
            except Exception as error:  # an error of the user's `on_progress` ends the await
                if not future.done():
                    future.set_exception(error)

        self._listeners.append(listener)
        try:
            while not self._has_room():
                await asyncio.sleep(_QUEUE_POLL)
            with self._services.loop.awaiting.entered(partial(self._give_up, _INTERRUPTED), self):
                with Interrupts():
                    self._begin()
                await future
        except BaseException as error:
            with Interrupts():
                self._abandon(error)
            raise
        finally:
            self._present_end()
        return await self._afinal_result()

    def submit(self) -> Call[T]:
        """Send the call and return without waiting for its result: use `result()`, `await` or `cancel()` later.

        Sending waits for the user's consent, if needed, and while the server has 64 MB of earlier messages unread.
        """
        if self._permission is not None:
            self._services.loop.run(self._obtain(self._permission))
        if self._hooks is not None:
            self.when_over(self._spawn_after_hook)
        if not self._has_room():
            self._services.loop.refuse_own_thread()
            with Waiter() as waiter:
                while not self._has_room():
                    waiter.wait(_at(time.monotonic() + _QUEUE_POLL))
        if self.options.on_progress is not None:
            with copy_actor_to_context():
                self._listeners.append(partial(self._on_submitted_progress, contextvars.copy_context()))
        try:
            with Interrupts():
                self._begin()
                self._services.loop.start_beat()
        except KeyboardInterrupt as error:  # the caller never gets this call
            with Interrupts():
                self._abandon(error)
            raise
        return self

    async def run_on_loop(self) -> None:
        """On the background loop: send the call and wait until it is over; `result` then returns at once.

        Raises:
            McpError: The call could not be sent.
        """
        if self._permission is not None:
            await self._obtain(self._permission)
        while not self._has_room():
            await asyncio.sleep(_QUEUE_POLL)
        ended = asyncio.Event()
        self.when_over(ended.set)
        self._begin()
        self._services.loop.start_beat()
        await ended.wait()
        await self._run_after_hook()

    @checked(timeout=TIMEOUT.or_none)
    def result(self, timeout: float | None = None) -> T:
        """Wait for the result of a submitted call.

            call = mcp.demo.slow.submit(seconds=0.1)
            call.result(timeout=10)

        Args:
            timeout: Maximum number of seconds to wait; the call continues after that.

        Raises:
            TimeoutError: The call is still running.
            KeyboardInterrupt: The user interrupted the wait; the call continues.
            McpError: The call failed.
        """
        if not self.done:
            self._services.loop.refuse_own_thread()
            deadline = None if timeout is None else _at(time.monotonic() + timeout)
            with self._continuing_when_interrupted(), Waiter(self._services.loop.callers, self) as waiter:
                self._add_listener(lambda progress: waiter.put(Waiter.DONE) if progress is None else None)
                is_over = waiter.wait(deadline)
            if not is_over:
                raise TimeoutError(f"call {self.number} ({self.session.name}.{self.tool}) is still running")
        return self._final_result()

    def __await__(self) -> Generator[Any, None, T]:
        return self._await().__await__()

    async def _await(self) -> T:
        loop = asyncio.get_running_loop()
        if not self.done:
            future: asyncio.Future[None] = loop.create_future()
            resolve = partial(_resolve, future)
            self._add_listener(lambda progress: None if progress else self._services.loop.call_on(loop, resolve))
            with self._services.loop.awaiting.entered(subject=self), self._continuing_when_interrupted():
                await future
        return await self._afinal_result()

    @contextlib.contextmanager
    def _continuing_when_interrupted(self) -> Generator[None]:
        """Say in the error of an interrupted wait that the call continues."""
        try:
            yield
        except (KeyboardInterrupt, asyncio.CancelledError) as error:
            waiting = f"waiting for call {self.number} ({self.session.name}.{self.tool}) was interrupted"
            render_briefly(error, waiting, f"the call continues: %mcp cancel {self.number} cancels it")
            raise

    @checked()
    def cancel(self) -> bool:
        """Cancel the call and notify the server; thread-safe.

            call = mcp.demo.slow.submit(seconds=30)
            call.cancel()

        Returns:
            False if the call was over already.
        """
        stop = None if self._permission is None else self._permission.cancel()
        if stop is not None:
            self._services.loop.call(stop)
            return True
        with Interrupts():
            return self._give_up("the user cancelled it", self._cancelled())

    def _cancelled(self) -> CallCancelled:
        place = self.where_cancelled
        return CallCancelled(f"cancelled by you in {place}" if place else f"call {self.number} was cancelled")

    @property
    def task(self) -> TaskState | None:
        """The task that the call has become, as the server last reported it: `.id`, `.status`, `.message`.

        None for a call that is not a task.
        """
        return self._pending.task

    def leave(self) -> str:
        """Stop waiting for a call that has become a task. The task continues.

        Returns:
            The task's id, with which `mcp.servers[NAME].task(id)` waits for it again.

        Raises:
            CallError: The call is over, or has not become a task.
        """
        with Interrupts():
            task = self._client.tasks.detach(self._pending) if self._client is not None else None
            if task is not None:
                hint = f"its task continues: {_task_expression(self, task)}"
                self._pending.settle(error=CallCancelled(f"call {self.number} was ended by leave()", hint=hint))
                return task
        if self.done:
            error = CallError(f"call {self.number} is over", hint="call.result() has its outcome")
        else:
            hint = "call.leave() is only for tasks; call.cancel() cancels the call"
            error = CallError(f"call {self.number} has not become a task", hint=hint)
        raise self._explain(error)

    def deadline(self) -> float:
        """The time at which the call fails, on the clock of `time.monotonic`; progress moves it.

        While the timeout is paused it is always a moment in the near future, at which it has to be computed again.
        """
        if self._open_pauses:
            return time.monotonic() + _PAUSE_POLL
        timeout = self.options.timeout
        if self._pending.task is not None:  # the server sends nothing between two polls
            timeout = max(timeout, _MAX_MISSED_POLLS * self._pending.task.interval)
        return min(self._last_activity + timeout, self.started + self._paused_for + self.options.max_timeout)

    @contextlib.contextmanager
    def pause_timeout(self) -> Generator[None]:
        """On the background loop: pause the timeout, while the server waits for an answer of the user or the host."""
        if not self._open_pauses:
            self._paused_since = time.monotonic()
        self._open_pauses += 1
        try:
            yield
        finally:
            self._last_activity = time.monotonic()
            if self._open_pauses == 1:
                self._paused_for += self._last_activity - self._paused_since
            self._open_pauses -= 1

    def note_question(self, summary: str) -> None:
        """Record a question that the user was asked about the call, with its answer and without secrets."""
        self.questions = (*self.questions, summary)

    def when_over(self, function: Callable[[], object]) -> None:
        """Run a function on the background loop once the call is over."""
        self._add_listener(lambda progress: None if progress else self._services.loop.call(function))

    def has_request(self, pending: PendingRequest) -> bool:
        """Whether a pending request is the one that this call has sent."""
        return pending is self._pending

    # -- from the user's consent to the outcome -----------------------------------------------------------------------

    async def _obtain(self, permission: Permission) -> None:
        """Obtain the permission for the call, whose time starts after that."""
        try:
            edited = await permission.obtain(self, self.note_question)
        except (McpError, asyncio.CancelledError) as error:
            self.done = True
            task = asyncio.current_task()
            if isinstance(error, McpError):
                failure = error
            elif task is not None and task.cancelling():
                failure = CallInterrupted(_INTERRUPTED)
            else:
                failure = self._cancelled()
            self._record(failure)
            raise error if isinstance(failure, CallInterrupted) else failure from None
        finally:
            self._permission = None
        if edited is not None:
            self.arguments, self.is_edited = edited, True
        self.started = self._last_activity = time.monotonic()

    def _spawn_after_hook(self) -> None:
        self._services.loop.spawn(self._run_after_hook(), f"ipymcp-after-{self.number}")

    async def _run_after_hook(self) -> None:
        """Run the user's function after the call, if there is one. What it raises is the error of `result`."""
        if self._hooks is not None:
            with contextlib.suppress(McpError):
                await self._hooks.after(self, self._outcome)

    def _final_result(self) -> T:
        """The result for the caller, after the user's function if there is one."""
        if self._hooks is None:
            return self._outcome()
        outcome = self._hooks.outcome
        if outcome is not None and outcome.done():
            return outcome.result()
        return self._services.loop.run(self._hooks.after(self, self._outcome))

    async def _afinal_result(self) -> T:
        if self._hooks is None:
            return self._outcome()
        return await self._services.loop.arun(self._hooks.after(self, self._outcome))

    def _has_room(self) -> bool:
        """Whether the server has read enough of the earlier messages that this call can be sent.

        Raises:
            McpError: There is no connection, or the call's time has passed.
        """
        client = self._client
        if client is None:
            try:
                client = self._client = self.session.require()
            except McpError as error:
                self._record(error)
                raise
        if not client.queued or client.queued + len(self.arguments) <= MAX_QUEUED:
            return True
        if self.deadline() <= time.monotonic():
            self.done = True
            error = CallTimeout(
                f"not sent: the server did not read the earlier messages within {self.options.timeout:g} s",
                hint=f"{self._longer_hint(self.options.timeout)}, or %mcp restart {quoted(self.session.name)}",
            )
            self._record(error)
            raise self._explain(error)
        return False

    def _begin(self) -> None:
        if self.options.card is not None and not self.options.card.begin(self.arguments):
            self.done = True
            error = self._cancelled()
            self._services.history.add(CallRecord.of(self, self._pending.result, error))
            raise error
        client = self._client or self.session.require()
        self._client = client
        self.session.calls += 1
        self._services.running[self.number] = self
        if is_configured():
            self._span = start_span(self.session, self.tool, self.options.caller)
        try:
            self.was_sent = True
            self._send(client)
        except McpError as error:
            self.was_sent = False
            self._finish(error)
            raise self._explain(error) from error

    def _send(self, client: Client) -> None:
        client.call_tool(self._pending, self.tool, self.arguments, as_task=self.options.as_task)

    def _begin_and_read(self) -> None:
        """Send the call, and read the answer in this thread if it comes soon and no other thread reads."""
        lease = self._client.lease_reads() if self._client is not None else None
        try:
            self._begin()
            if lease is not None and self._client is not None:
                self._client.read_directly(self._pending, lease, _DIRECT_READ_TIMEOUT)
        finally:
            if lease is not None:
                lease.give_back()

    def _deliver(self, progress: Progress | None) -> None:
        """Take progress, or with None the outcome, from the pending request; from any thread."""
        if progress is None and self._try_resend():
            return
        if progress is None:
            self._finish(self._pending.error)
            self.session.answered(self._pending.error)
        else:
            self.progress = progress
            self._last_activity = time.monotonic()
        for listener in tuple(self._listeners):
            listener(progress)
        if progress is None:  # breaks the reference cycle of call and pending request
            self._pending.deliver = _ignore
            self._listeners.clear()

    def _try_resend(self) -> bool:
        """Send a call again that failed because the session needs a handshake, if a second call is harmless.

        Returns:
            False if the call is not sent again.
        """
        error = self._pending.error
        if not isinstance(error, HandshakeNeeded) or not error.is_reopening or self._resend is not None:
            return False
        entry = self.session.catalog.tools.get(self.tool)
        declared = hints(entry, self.session.rights) if entry is not None else {}
        if declared.get("readOnlyHint") is not True and declared.get("idempotentHint") is not True:
            return False
        self._resend = _Resend()
        self._services.loop.spawn(self._send_again(self._resend, error), f"ipymcp-resend-{self.number}")
        return True

    async def _send_again(self, resend: _Resend, error: HandshakeNeeded) -> None:
        """Send the call once more, on the session's next connection. Its deadlines do not change."""
        await self.session.settled()
        with resend.lock:
            if not resend.is_waiting:
                return  # given up meanwhile
            resend.is_waiting, self._pending.error = False, None
            try:
                self._client = self.session.require()
                self._send(self._client)
            except McpError as failure:
                failure.hint = failure.hint or error.hint
                self._pending.settle(error=failure)

    def _finish(self, error: McpError | None) -> None:
        self.done = True
        self._services.running.pop(self.number, None)
        if self._span is not None:
            end_span(self._span, self._pending.id, self._pending.result, error)
        self._record(error)

    def _record(self, error: McpError | None) -> None:
        self._services.history.add(CallRecord.of(self, self._pending.result, error))

    def _give_up(self, reason: str, error: McpError | None = None) -> bool:
        """Fail the call and notify the server; False if the call was over already."""
        resend = self._resend
        with resend.lock if resend is not None else contextlib.nullcontext():
            if resend is not None and resend.is_waiting:
                resend.is_waiting = False
            elif self._client is None or not self._client.give_up(self._pending, reason):
                return False
        kind = CallInterrupted if reason == _INTERRUPTED else CallCancelled
        self._pending.settle(error=error or kind(reason))
        return True

    def _abandon(self, error: BaseException) -> None:
        """Give the call up because the wait for it ended with an error."""
        interrupted = isinstance(error, (KeyboardInterrupt, asyncio.CancelledError))
        was_given_up = self._give_up(_INTERRUPTED if interrupted else "the host gave up")
        if interrupted:
            suffix = ", and the server was told to stop" if was_given_up else ""
            render_briefly(error, f"{self.session.name}.{self.tool} was interrupted{suffix}")

    def _expire(self) -> None:
        """Fail the call with a timeout. A task continues on the server: it may take longer than any caller waits."""
        error = self._timed_out()
        task = self._client.tasks.detach(self._pending) if self._client is not None else None
        if task is None:
            self._give_up("no answer in time", error)
        else:
            error.hint = f"its task continues: {_task_expression(self, task)}"
            self._pending.settle(error=error)

    def _timed_out(self) -> CallTimeout:
        total = time.monotonic() - self.started - self._paused_for
        if total >= self.options.max_timeout:
            return CallTimeout(
                f"no answer within {self.options.max_timeout:g} s", hint=self._longer_hint(self.options.max_timeout)
            )
        silence = "and no progress " if self.progress else ""
        return CallTimeout(
            f"no answer {silence}within {self.options.timeout:g} s", hint=self._longer_hint(self.options.timeout)
        )

    def _longer_hint(self, seconds: float) -> str:
        """The hint that shows the same call with twice the time."""
        return f"give it longer: {expression(self.session.name, self.tool)}.options(timeout={2 * seconds:g})(…)"

    def end_if_late(self) -> None:
        """Fail the call with a timeout if its deadline has passed; for calls that block no thread."""
        if not self.done and self.deadline() <= time.monotonic():
            self._expire()

    def _outcome(self) -> T:
        error, result = self._pending.error, self._pending.result
        if error is not None:
            explained = self._explain(error)
            if quotes_server(explained):
                self._receive(str(explained).encode("utf-8", "replace"))
            raise explained
        assert result is not None
        self._receive(memoryview(result))
        try:
            return self._convert(result)
        except McpError as failure:
            raise self._explain(failure) from failure.__cause__

    def _receive(self, content: bytes | memoryview) -> None:
        if self._receiver is not None:
            self._receiver(content)
            self._receiver = None

    def _explain(self, error: McpError) -> McpError:
        error.tool = error.tool or self.tool
        return self.session.explain(error)

    # -- progress -----------------------------------------------------------------------------------------------------

    def _add_listener(self, listener: Callable[[Progress | None], None]) -> None:
        self._listeners.append(listener)
        if self.done:  # perhaps before the listener was added
            listener(None)

    def _wake(self, waiter: Waiter, progress: Progress | None) -> None:
        waiter.put(Waiter.DONE if progress is None else partial(self._report_progress, progress))

    def _report_progress(self, progress: Progress) -> None:
        """In the thread or task of the caller: report progress to the caller's function and to the user."""
        self._call_on_progress(progress)
        presenter = self._services.presenter
        if presenter is not None:
            presenter.progress(self)

    def _call_on_progress(self, progress: Progress) -> None:
        function = self.options.on_progress
        if function is None:
            return
        if inspect.iscoroutinefunction(function):
            asyncio.run_coroutine_threadsafe(function(progress), self._services.handlers.loop)
        else:
            function(progress)

    def _on_submitted_progress(self, context: contextvars.Context, progress: Progress | None) -> None:
        if progress is not None:
            loop = self._services.handlers.loop
            loop.call_soon_threadsafe(self._call_on_progress, progress, context=context)

    def _present_end(self) -> None:
        presenter = self._services.presenter
        if presenter is not None and self.progress is not None:
            presenter.finished(self)


class _Resend:
    """The second sending of a call.

    Attributes:
        lock: Held while the call is sent or given up.
        is_waiting: Whether the call waits for the session's next connection.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.is_waiting = True


def _task_expression(call: Call[Any], task: str) -> str:
    """The expression with which a user waits for a task again."""
    return f"mcp.servers[{call.session.name!r}].task({task!r})"


def _at(moment: float) -> Callable[[], float]:
    return lambda: moment


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _ignore(progress: Progress | None) -> None: ...
