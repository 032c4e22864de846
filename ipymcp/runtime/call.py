"""One call of a tool: sent from any thread, waited for in a thread, on a loop, or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

import msgspec

from ipymcp.argument_checks import TIMEOUT, checked
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
from ipymcp.runtime.interrupts import Interrupts, Waiter
from ipymcp.runtime.loop import run_nested
from ipymcp.runtime.tracing import end_span, start_span
from ipymcp.security.rules import hints
from ipymcp.security.untrusted import UNKNOWN, quotes_server
from ipymcp.storage.history import CallRecord
from ipymcp.text import one_line, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

    from msgspec import Raw

    from ipymcp.interaction.questions import Caller, Card
    from ipymcp.protocol.client import Client
    from ipymcp.protocol.jsonrpc import TaskState
    from ipymcp.protocol.types import Progress
    from ipymcp.runtime.client_handlers import ClientHandlers
    from ipymcp.runtime.loop import BackgroundLoop
    from ipymcp.runtime.server_status import CallTarget
    from ipymcp.security.rules import CallBatch
    from ipymcp.security.untrusted import CallingModel, Conversation
    from ipymcp.storage.history import History


class RunningCall(Protocol):
    """A call in progress, or a map of many calls.

    Attributes:
        number: Names it in this notebook.
        tool: The tool's exact name.
        arguments: A JSON object; of a map, the first row's.
        questions: What the user was asked for it, with the answers.
        options: How it is called.
        started: Start on the clock of `time.monotonic`.
        cell: The execution count of the calling cell.
    """

    number: int
    tool: str
    arguments: bytes
    questions: tuple[str, ...]
    options: CallOptions
    started: float
    cell: int | None

    @property
    def session(self) -> CallTarget:
        """The server."""
        ...

    @property
    def progress(self) -> Progress | None:
        """The last progress reported."""
        ...

    @property
    def task(self) -> TaskState | None:
        """The task that it has become, if it has."""
        ...

    def cancel(self) -> bool:
        """Give it up, from any thread. False if it was over already."""
        ...

    def end_if_late(self) -> None:
        """Give it up if its time has passed."""
        ...


class Presenter(Protocol):
    """Shows the user a call that takes long. Called where the caller waits."""

    def progress(self, call: RunningCall) -> None:
        """The call reported progress."""
        ...

    def finished(self, call: RunningCall) -> None:
        """A call that had reported progress is over."""
        ...


class CallOptions(msgspec.Struct, frozen=True):
    """How one call is made.

    Attributes:
        timeout: Seconds without progress after which it is given up.
        max_timeout: Seconds after which it is given up, progress or not.
        on_progress: Called with each `Progress`, where the caller waits; a coroutine function runs on its own loop.
        as_task: Whether to ask for a task, of a server of the handshake era.
        caller: On whose behalf: what a model or an app wants to call the user is asked about.
        turn: Names the model's answer that it is a part of, so that one consent may cover all of that.
        model: The model that makes it.
        conversation: That the answer is a part of.
        card: Shows it, and is told what the user is asked about it.
        origin: Where it is made, if not in a cell: `panel`.
        batch: The map that it belongs to.
    """

    timeout: float = 30.0
    max_timeout: float = 600.0
    on_progress: Callable[[Progress], Any] | None = None
    as_task: bool = False
    caller: Caller = "user"
    turn: str = ""
    model: CallingModel = UNKNOWN
    conversation: Conversation | None = None
    card: Card | None = None
    origin: str = ""
    batch: CallBatch | None = None

    def changed(
        self,
        timeout: float | None,
        on_progress: Callable[[Progress], Any] | None,
        as_task: bool | None = None,
        caller: Caller | None = None,
        turn: str | None = None,
    ) -> CallOptions:
        """With what is given instead of what was; a longer `timeout` also moves the last deadline."""
        options = msgspec.structs.replace(self, caller=caller or self.caller, turn=self.turn if turn is None else turn)
        if timeout is not None:
            options = msgspec.structs.replace(options, timeout=timeout, max_timeout=max(timeout, self.max_timeout))
        if as_task is not None:
            options = msgspec.structs.replace(options, as_task=as_task)
        return options if on_progress is None else msgspec.structs.replace(options, on_progress=on_progress)


class CallServices(msgspec.Struct, eq=False):
    """Services that all calls of a host share."""

    loop: BackgroundLoop
    handlers: BackgroundLoop
    running: dict[int, RunningCall]
    client_handlers: ClientHandlers
    history: History
    presenter: Presenter | None = None


if TYPE_CHECKING:
    Consent: TypeAlias = Callable[[Callable[[str], None]], Coroutine[Any, Any, bytes | None]]
    """Asks the user whether a call may be made; its argument is told the question with its answer."""


class Hooks(Protocol):
    """The user's functions before and after one call, run on the background loop."""

    @property
    def has_after(self) -> bool:
        """Whether there is a function after the call."""
        ...

    async def before(self, call: Call[Any]) -> Consent | None:
        """Run the function before a call, and return the question to the user, if there has to be one.

        Raises:
            McpError: The call must not be made.
        """
        ...

    async def after(self, call: Call[Any], result: Any, error: McpError | None) -> Any:
        """Run the function after a call, and return the result for its caller.

        Raises:
            McpError: The error for its caller.
        """
        ...


T = TypeVar("T")
MAX_QUEUED = 64_000_000
"""Bytes that may wait for a server to read them; who wants to send more waits."""
_QUEUE_POLL = 0.05
_DIRECT_READ_TIMEOUT = 0.005
"""Seconds for which a thread reads for itself. Whoever waits longer than that does not mind waking two threads."""
_OWING_POLL = 0.25
_MISSED = 3
"""Questions about a task that may go unanswered before it is given up."""
_INTERRUPTED = "the user interrupted it"


class Call(Generic[T]):
    """One call, running or done.

    Args:
        number: Names it in this notebook.
        session: The server.
        tool: The tool's exact name.
        arguments: A JSON object.
        options: How.
        convert: Makes the answer's JSON a value, or raises what the caller is to see.
        services: The host's.
        consent: Asks the user, before it is sent, whether it may be.
        receiver: Is told what the server said, once, where that may be anybody's words.
        hooks: The user's functions before and after it.
    """

    __slots__ = (
        "_asking",
        "_client",
        "_concluding",
        "_consent",
        "_convert",
        "_hooks",
        "_is_waiting",
        "_last_activity",
        "_listeners",
        "_owing",
        "_paused_for",
        "_paused_since",
        "_pending",
        "_receiver",
        "_repeating",
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
        consent: Consent | None = None,
        receiver: Callable[[bytes | memoryview], None] | None = None,
        hooks: Hooks | None = None,
    ) -> None:
        self.number = number
        self.session = session
        self.tool = tool
        self.arguments = arguments
        self.is_edited = False
        """Whether the user changed the arguments in the question."""
        self.options = options
        self.progress: Progress | None = None
        """The last progress reported."""
        self.done = False
        self.was_sent = False
        """Whether the server may have received it."""
        self.started = self._last_activity = time.monotonic()
        self._owing = 0
        self._paused_for = self._paused_since = 0.0
        self._convert = convert
        self._services = services
        self._pending = PendingRequest(self._deliver)
        self._repeating: threading.RLock | None = None
        """Lock of a call that is sent again, held while it is sent or given up."""
        self._is_waiting = False
        """Whether it is to be sent again once the session is open."""
        self._client: Client | None = None
        self._consent = consent
        self._asking: asyncio.Task[bytes | None] | None = None
        """Asks for the user's consent, while that is open."""
        self._receiver = receiver
        self._hooks = hooks
        self._concluding: asyncio.Task[T] | None = None
        """Runs the user's function after the call, on the background loop."""
        self._span: Any = None
        """The call's span, where OpenTelemetry records it."""
        self.cell = services.history.calling_cell(options)
        """The execution count of the calling cell."""
        self.questions: tuple[str, ...] = ()
        """Questions that the user was asked for it, with the answers."""
        self._listeners: list[Callable[[Progress | None], None]] = []

    def __repr__(self) -> str:
        state = "done" if self.done else "running"
        return one_line(f"<Call {self.number} {self.session.name}.{self.tool}, {state}>")

    # -- three ways to wait -------------------------------------------------------------------------------------------

    def run(self) -> T:
        """Send it and wait for it in this thread. An interrupt cancels it.

        Raises:
            KeyboardInterrupt: The user interrupted; the server was told.
            McpError: It failed.
        """
        self._services.loop.refuse_own_thread()
        if self._services.client_handlers.nested_loop == "always" and asyncio._get_running_loop() is not None:
            return run_nested(self.arun())
        if self._is_asked_about:
            self._services.loop.run(self._ask())
        waiter = Waiter()
        with Interrupts(waiter.queue) as interrupts, self._services.loop.places.blocked(waiter, self):
            self._listeners.append(partial(self._wake, waiter))
            try:
                while not self._has_room():
                    waiter.wait(_at(time.monotonic() + _QUEUE_POLL), interrupts)
                self._begin_and_attend()
                if not waiter.wait(self.deadline, interrupts):
                    self._expire()
            except BaseException as error:
                self._abandon(error)
                raise
            finally:
                self._present_end()
        return self._concluded()

    async def arun(self) -> T:
        """Send it and await it. Cancelling the task cancels the call.

        Raises:
            McpError: It failed.
        """
        loop = asyncio.get_running_loop()
        if loop is self._services.loop.loop:
            raise LoopError("a call made on ipymcp's own loop", hint="make it from your own")
        if self._is_asked_about:
            await self._services.loop.arun(self._ask())
        future: asyncio.Future[None] = loop.create_future()
        context = contextvars.copy_context()

        def heard(progress: Progress | None) -> None:
            told = settle if progress is None else partial(context.run, partial(on_progress, progress))
            self._services.loop.tell(loop, told)

        def settle() -> None:
            if not future.done():
                future.set_result(None)

        def on_progress(progress: Progress) -> None:
            try:
                self._tell_progress(progress)
            except Exception as error:  # the caller's own function failed: so does the caller's await
                if not future.done():
                    future.set_exception(error)

        self._listeners.append(heard)
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
        return await self._aconcluded()

    def submit(self) -> Call[T]:
        """Send it and do not wait for the answer; `result`, `await` and `cancel` are for later.

        It waits only for the user's consent, where that is needed, and for a server that has 64 MB unread before it.
        """
        if self._is_asked_about:
            self._services.loop.run(self._ask())
        if self._hooks is not None:
            self.when_over(self._conclude_soon)
        if not self._has_room():
            self._services.loop.refuse_own_thread()
            waiter = Waiter()
            while not self._has_room():
                waiter.wait(_at(time.monotonic() + _QUEUE_POLL))
        if self.options.on_progress is not None:
            self._listeners.append(self._tell_submitted)
        try:
            with Interrupts():
                self._begin()
                self._services.loop.start_beat()
        except KeyboardInterrupt as error:  # nobody will ever hold this call
            with Interrupts():
                self._abandon(error)
            raise
        return self

    async def run_on_loop(self) -> None:
        """On the background loop: send it, and wait until it is over. `result` has the outcome then.

        Raises:
            McpError: It could not be sent.
        """
        if self._is_asked_about:
            await self._ask()
        while not self._has_room():
            await asyncio.sleep(_QUEUE_POLL)
        ended = asyncio.Event()
        self.when_over(ended.set)
        self._begin()
        self._services.loop.start_beat()
        await ended.wait()
        if self._hooks is not None and self._hooks.has_after:
            with contextlib.suppress(McpError):  # it is the outcome
                await self._conclude()

    @checked(timeout=TIMEOUT.or_none)
    def result(self, timeout: float | None = None) -> T:
        """Wait for a submitted call.

        Args:
            timeout: Seconds to wait at most; the call goes on when they have passed.

        Raises:
            TimeoutError: It is still running.
            KeyboardInterrupt: The user interrupted the waiting; the call goes on.
            McpError: It failed.
        """
        if not self.done:
            self._services.loop.refuse_own_thread()
            waiter = Waiter()
            self._listen(lambda progress: waiter.put(Waiter.DONE) if progress is None else None)
            end = None if timeout is None else time.monotonic() + timeout
            with self._services.loop.places.blocked(waiter, self), self._goes_on_when_interrupted():
                is_over = waiter.wait(None if end is None else _at(end))
            if not is_over:
                raise TimeoutError(f"call {self.number} ({self.session.name}.{self.tool}) is still running")
        return self._concluded()

    def __await__(self) -> Generator[Any, None, T]:
        return self._await().__await__()

    async def _await(self) -> T:
        loop = asyncio.get_running_loop()
        if not self.done:
            future: asyncio.Future[None] = loop.create_future()

            def settle() -> None:
                if not future.done():
                    future.set_result(None)

            self._listen(lambda progress: None if progress else self._services.loop.tell(loop, settle))
            with self._services.loop.awaiting.entered(subject=self), self._goes_on_when_interrupted():
                await future
        return await self._aconcluded()

    @contextlib.contextmanager
    def _goes_on_when_interrupted(self) -> Generator[None]:
        try:
            yield
        except (KeyboardInterrupt, asyncio.CancelledError) as error:
            waiting = f"waiting for call {self.number} ({self.session.name}.{self.tool}) was interrupted"
            render_briefly(error, waiting, f"the call goes on: %mcp cancel {self.number} ends it")
            raise

    def cancel(self) -> bool:
        """Give it up and tell the server, from any thread.

        Returns:
            False if it was over already.
        """
        asking = self._asking
        if asking is not None:
            self._asking = None  # now: the answer may be on its way
            self._services.loop.call(asking.cancel)
            return True
        with Interrupts():
            return self._give_up("the user cancelled it", self._cancelled())

    def _cancelled(self) -> CallCancelled:
        return CallCancelled(f"call {self.number} was cancelled")

    @property
    def task(self) -> TaskState | None:
        """The task that it has become, if it has: `.id`, `.status`, `.message`, as the server last told of it."""
        return self._pending.task

    def leave(self) -> str:
        """Stop waiting for a call that has become a task. The task goes on.

        Returns:
            The task's id: `mcp.servers[NAME].task(id)` picks it up again.

        Raises:
            CallError: It is no task (yet), or is over.
        """
        with Interrupts():
            task = self._client.tasks.detach(self._pending) if self._client is not None else None
            if task is not None:
                self._pending.settle(error=_left(self, task))
                return task
        is_over = "is over" if self.done else "has not become a task"
        hint = (
            "call.result() has its outcome" if self.done else "only tasks go on without anybody: call.cancel() ends it"
        )
        raise self._explain(CallError(f"call {self.number} {is_over}", hint=hint))

    def deadline(self) -> float:
        """When it is given up, on `time.monotonic`'s clock; progress moves it.

        While the host owes the server an answer the clock stands still: then it is to be asked again, soon.
        """
        if self._owing:
            return time.monotonic() + _OWING_POLL
        timeout = self.options.timeout
        if self._pending.task is not None:  # it is silent between two questions
            timeout = max(timeout, _MISSED * self._pending.task.interval)
        return min(self._last_activity + timeout, self.started + self._paused_for + self.options.max_timeout)

    @contextlib.contextmanager
    def pause_timeout(self) -> Generator[None]:
        """While the host owes the server an answer, on the background loop: the call's clock stands still."""
        if not self._owing:
            self._paused_since = time.monotonic()
        self._owing += 1
        try:
            yield
        finally:
            self._last_activity = time.monotonic()
            if self._owing == 1:
                self._paused_for += self._last_activity - self._paused_since
            self._owing -= 1

    def note_question(self, summary: str) -> None:
        """Record a question that the user was asked for the call, with its answer and without secrets."""
        self.questions = (*self.questions, summary)

    def when_over(self, function: Callable[[], object]) -> None:
        """Run a function on the background loop once the call is over."""
        self._listen(lambda progress: None if progress else self._services.loop.call(function))

    def is_at(self, pending: PendingRequest) -> bool:
        """Whether that is its request on the wire."""
        return pending is self._pending

    # -- one life -----------------------------------------------------------------------------------------------------

    async def _ask(self) -> None:
        """Run the user's function and wait for the user's consent; its time counts from then on."""
        asking = self._asking = asyncio.ensure_future(self._obtain())
        try:
            edited = await asking
            if edited is not None:
                self.arguments, self.is_edited = edited, True
            if self._asking is not asking:  # cancelled while the answer came
                raise self._cancelled()
        except (McpError, asyncio.CancelledError) as error:
            self.done = True
            task = asyncio.current_task()
            if isinstance(error, McpError):
                failure = error
            elif task is not None and task.cancelling():
                failure = CallInterrupted(_INTERRUPTED)
            else:
                failure = self._cancelled()
            self._services.history.add(CallRecord.of(self, self._pending.result, failure))
            raise error if isinstance(failure, CallInterrupted) else failure from None
        finally:
            self._asking = None
        self.started = self._last_activity = time.monotonic()

    @property
    def _is_asked_about(self) -> bool:
        """Whether something has to agree to it before it is sent: a function of the user, or the user."""
        return self._consent is not None or self._hooks is not None

    async def _obtain(self) -> bytes | None:
        if self._hooks is not None:
            self._consent = await self._hooks.before(self)
        if self._consent is not None:
            return await self._consent(self.note_question)
        return None

    async def _conclude(self) -> T:
        """Run the user's function after the call, once, on the background loop."""
        if self._concluding is None:
            self._concluding = asyncio.ensure_future(self._run_after())
        return await asyncio.shield(self._concluding)

    async def _run_after(self) -> T:
        assert self._hooks is not None
        try:
            result, error = await asyncio.to_thread(self._outcome), None
        except McpError as failure:
            result, error = None, failure
        return await self._hooks.after(self, result, error)

    def _conclude_soon(self) -> None:
        async def conclude() -> None:
            with contextlib.suppress(McpError):  # whoever waits for the outcome is told
                await self._conclude()

        if self._hooks is not None and self._hooks.has_after:
            self._services.loop.spawn(conclude(), f"ipymcp-after-{self.number}")

    def _concluded(self) -> T:
        if self._hooks is None or not self._hooks.has_after:
            return self._outcome()
        done = self._concluding
        return done.result() if done is not None and done.done() else self._services.loop.run(self._conclude())

    async def _aconcluded(self) -> T:
        if self._hooks is None or not self._hooks.has_after:
            return self._outcome()
        return await self._services.loop.arun(self._conclude())

    def _has_room(self) -> bool:
        client = self._client
        if client is None:
            try:
                client = self._client = self.session.require()
            except McpError as error:
                self._services.history.add(CallRecord.of(self, self._pending.result, error))
                raise
        if not client.queued or client.queued + len(self.arguments) <= MAX_QUEUED:
            return True
        if self.deadline() <= time.monotonic():
            self.done = True
            error = CallTimeout(
                f"not sent: the server has not read what was sent before within {self.options.timeout:g} s",
                hint=f"{self._longer(self.options.timeout)}, or %mcp restart {quoted(self.session.name)}",
            )
            self._services.history.add(CallRecord.of(self, self._pending.result, error))
            raise self._explain(error)
        return False

    def _begin(self) -> None:
        if self.options.card is not None and not self.options.card.begin():
            self.done = True
            error = self._cancelled()
            self._services.history.add(CallRecord.of(self, self._pending.result, error))
            raise error
        client = self._client or self.session.require()
        self._client = client
        self.session.calls += 1
        self._services.running[self.number] = self
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

    def _begin_and_attend(self) -> None:
        """Send it and read the answer in this thread, if that comes soon and nobody else reads."""
        turn = self._client.lease_reads() if self._client is not None else None
        try:
            self._begin()
            if turn is not None and self._client is not None:
                self._client.read_directly(self._pending, turn, _DIRECT_READ_TIMEOUT)
        finally:
            if turn is not None:
                turn.give_back()

    def _deliver(self, progress: Progress | None) -> None:
        if progress is None and self._is_repeated():
            return
        if progress is None:
            self._finish(self._pending.error)
            self.session.answered(self._pending.error)
        else:
            self.progress = progress
            self._last_activity = time.monotonic()
        for listener in tuple(self._listeners):
            listener(progress)
        if progress is None:  # call and pending know each other: without this only the collector would free them
            self._pending.deliver = _ignore
            self._listeners.clear()

    def _is_repeated(self) -> bool:
        """Have a call sent again that needs a handshake, where it can have changed nothing; false for any other."""
        error = self._pending.error
        if not isinstance(error, HandshakeNeeded) or not error.is_reopening or self._repeating is not None:
            return False
        entry = self.session.catalog.tools.get(self.tool)
        said = hints(entry, self.session.rights) if entry is not None else {}
        if said.get("readOnlyHint") is not True and said.get("idempotentHint") is not True:
            return False
        self._repeating, self._is_waiting = threading.RLock(), True
        self._services.loop.spawn(self._repeat(self._repeating, error), f"ipymcp-repeat-{self.number}")
        return True

    async def _repeat(self, lock: threading.RLock, error: HandshakeNeeded) -> None:
        """Send it once more, on the session's next connection. Its deadlines stay as they are."""
        await self.session.settled()
        with lock:
            if not self._is_waiting:
                return  # given up meanwhile
            self._is_waiting, self._pending.error = False, None
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
        self._services.history.add(CallRecord.of(self, self._pending.result, error))

    def _give_up(self, reason: str, error: McpError | None = None) -> bool:
        with self._repeating or contextlib.nullcontext():
            if self._is_waiting:
                self._is_waiting = False
            elif self._client is None or not self._client.give_up(self._pending, reason):
                return False
        kind = CallInterrupted if reason == _INTERRUPTED else CallCancelled
        self._pending.settle(error=error or kind(reason))
        return True

    def _abandon(self, error: BaseException) -> None:
        interrupted = isinstance(error, (KeyboardInterrupt, asyncio.CancelledError))
        was_told = self._give_up(_INTERRUPTED if interrupted else "the host gave up")
        if interrupted:
            told = ", and the server was told to stop" if was_told else ""
            render_briefly(error, f"{self.session.name}.{self.tool} was interrupted{told}")

    def _expire(self) -> None:
        """Fail the call with a timeout. A task goes on at the server: it may take longer than any caller waits."""
        error = self._timed_out()
        task = self._client.tasks.detach(self._pending) if self._client is not None else None
        if task is None:
            self._give_up("no answer in time", error)
        else:
            error.hint = f"its task goes on: {_picking_up(self, task)}"
            self._pending.settle(error=error)

    def _timed_out(self) -> CallTimeout:
        total = time.monotonic() - self.started - self._paused_for
        if total >= self.options.max_timeout:
            return CallTimeout(
                f"no answer within {self.options.max_timeout:g} s", hint=self._longer(self.options.max_timeout)
            )
        silence = "and no progress " if self.progress else ""
        return CallTimeout(
            f"no answer {silence}within {self.options.timeout:g} s", hint=self._longer(self.options.timeout)
        )

    def _longer(self, seconds: float) -> str:
        """How to make the same call with more time."""
        return f"give it longer: {expression(self.session.name, self.tool)}.options(timeout={2 * seconds:g})(…)"

    def end_if_late(self) -> None:
        """Give it up if its time has passed; for calls that nobody waits for in a thread."""
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

    def _listen(self, listener: Callable[[Progress | None], None]) -> None:
        self._listeners.append(listener)
        if self.done:  # it may have been over before we listened
            listener(None)

    def _wake(self, waiter: Waiter, progress: Progress | None) -> None:
        waiter.put(Waiter.DONE if progress is None else partial(self._tell_progress, progress))

    def _tell_progress(self, progress: Progress) -> None:
        """Report progress where the caller waits: to the caller's function and to the user."""
        self._tell_function(progress)
        presenter = self._services.presenter
        if presenter is not None:
            presenter.progress(self)

    def _tell_function(self, progress: Progress) -> None:
        function = self.options.on_progress
        if function is None:
            return
        if inspect.iscoroutinefunction(function):
            asyncio.run_coroutine_threadsafe(function(progress), self._services.handlers.loop)
        else:
            function(progress)

    def _tell_submitted(self, progress: Progress | None) -> None:
        if progress is not None:
            self._services.handlers.call(self._tell_function, progress)

    def _present_end(self) -> None:
        presenter = self._services.presenter
        if presenter is not None and self.progress is not None:
            presenter.finished(self)


def _left(call: Call[Any], task: str) -> CallCancelled:
    return CallCancelled(f"call {call.number} was left", hint=f"its task goes on: {_picking_up(call, task)}")


def _picking_up(call: Call[Any], task: str) -> str:
    return f"mcp.servers[{call.session.name!r}].task({task!r})"


def _at(moment: float) -> Callable[[], float]:
    return lambda: moment


def _ignore(progress: Progress | None) -> None: ...
