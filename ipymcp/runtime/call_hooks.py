"""The user's functions before and after a call of a tool, and the permission to make it."""

from __future__ import annotations

import asyncio
import contextlib
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from ipymcp.argument_checks import shown
from ipymcp.errors import CallError, McpError, PolicyError
from ipymcp.protocol import types
from ipymcp.protocol.types import is_object
from ipymcp.results.tool_result import ToolResult
from ipymcp.security.untrusted import Actor, acting
from ipymcp.text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator
    from typing import TypeAlias

    from ipymcp.interaction.questions import Caller
    from ipymcp.runtime.call_options import RunningCall
    from ipymcp.runtime.catalog import ToolEntry
    from ipymcp.runtime.client_handlers import ClientHandlers

    Consent: TypeAlias = Callable[[Callable[[str], None]], Coroutine[Any, Any, bytes | None]]
    """Asks the user whether a call may be made. Its argument is called with a summary of the question and its answer.

    Returns the arguments to send instead, if the user changed them.
    """


_MAX_TEXT: Final = 300
_is_in_hook: ContextVar[bool] = ContextVar("ipymcp_hook", default=False)


class HookedCall(Struct):
    """A call of a tool, as passed to the functions of `mcp.before_call` and `mcp.after_call`.

    Attributes:
        server: The server's name.
        tool: The tool's exact name.
        arguments: The arguments by name. A function before the call may change them or return others.
        caller: The caller: `user`, `model` or `app`.
        number: The call's number.
        result: After the call, its result; None if it failed.
        error: After the call, its error; None if it succeeded.
    """

    server: str
    tool: str
    arguments: dict[str, Any]
    caller: Caller
    number: int
    result: Any = None
    error: McpError | None = None

    def __repr__(self) -> str:
        return one_line(f"<HookedCall {self.number} {self.server}.{self.tool} by the {self.caller}>")


class Permission:
    """The user's permission for one call: the function before it, then the question, if one is needed.

    Args:
        consent: Asks the user; None if only a function before the call decides whether to ask.
        hooks: The user's functions.
    """

    def __init__(self, consent: Consent | None, hooks: CallHooks | None) -> None:
        self._consent = consent
        self._hooks = hooks
        self._task: asyncio.Task[bytes | None] | None = None
        """Obtains the permission, until that is over or cancelled."""

    async def obtain(self, call: RunningCall, note: Callable[[str], None]) -> bytes | None:
        """Obtain the permission, on the background loop, and return the arguments that the user changed, if any.

        Args:
            call: The call.
            note: Called with a summary of the question and its answer.

        Raises:
            McpError: The call must not be made.
            CancelledError: It was cancelled meanwhile.
        """
        task = self._task = asyncio.ensure_future(self._ask(call, note))
        try:
            edited = await task
            if self._task is not task:  # `cancel` was called while the answer arrived
                raise asyncio.CancelledError
        finally:
            self._task = None
        return edited

    async def _ask(self, call: RunningCall, note: Callable[[str], None]) -> bytes | None:
        if self._hooks is not None:
            self._consent = await self._hooks.before(call)
        return None if self._consent is None else await self._consent(note)

    def cancel(self) -> Callable[[], object] | None:
        """Give the permission up, from any thread. Return what the loop must call for that; None if it is over."""
        task, self._task = self._task, None  # at once: the task may be ending, and then ignores its cancellation
        return None if task is None else task.cancel


class CallHooks:
    """The user's functions before and after one call. Used on the background loop.

    Args:
        handlers: The handlers that contain the functions, and run them.
        entry: The tool.
        consent: Checks the policy for the final arguments; returns the function that asks for consent, if needed.
    """

    def __init__(self, handlers: ClientHandlers, entry: ToolEntry, consent: Callable[[bytes], Consent | None]) -> None:
        self._handlers = handlers
        self._before = handlers.before_call
        self._after = handlers.after_call
        self._entry = entry
        self._consent = consent
        self.outcome: asyncio.Task[Any] | None = None
        """The outcome for the caller, once the call itself is over: runs the function after it."""

    @staticmethod
    def of(handlers: ClientHandlers, entry: ToolEntry, consent: Callable[[bytes], Consent | None]) -> CallHooks | None:
        """The functions for a call; None if none are set, or if one of them makes the call."""
        is_hooked = handlers.before_call is not None or handlers.after_call is not None
        return CallHooks(handlers, entry, consent) if is_hooked and not _is_in_hook.get() else None

    @property
    def has_after(self) -> bool:
        """Whether there is a function after the call."""
        return self._after is not None

    async def before(self, call: RunningCall) -> Consent | None:
        """Run the function before a call, and check the policy for the arguments that it leaves.

        Returns:
            The function that asks the user for consent, if that is needed.

        Raises:
            PolicyError: The function or the policy refuses the call.
            McpError: The function failed, or its arguments are invalid. The call must not be made.
        """
        if self._before is not None:
            seen = self._seen(call)
            changed = await self._run(self._before, "before_call", seen, call)
            arguments: Any = seen.arguments if changed is None else changed
            if not is_object(arguments):
                raise CallError(
                    f"not made: {_name(self._before)}() of mcp.before_call returned {shown(arguments)}",
                    server=seen.server,
                    tool=seen.tool,
                    hint="it returns None or a dict of arguments; it raises an exception to refuse the call",
                )
            if arguments != types.loads(call.arguments or b"{}"):
                call.arguments = types.encode(self._checked(arguments))
        return self._consent(call.arguments)

    async def after(self, call: RunningCall, outcome: Callable[[], Any]) -> Any:
        """Run the function after a call, once, and return the result for the caller: the function's, or the original.

        Args:
            call: The call, which is over.
            outcome: Returns or raises its outcome.

        Raises:
            McpError: The error of the call, or of the function.
        """
        if self.outcome is None:
            self.outcome = asyncio.ensure_future(self._run_after(call, outcome))
        return await asyncio.shield(self.outcome)

    async def _run_after(self, call: RunningCall, outcome: Callable[[], Any]) -> Any:
        assert self._after is not None
        seen = self._seen(call)
        try:
            seen.result = await asyncio.to_thread(outcome)
        except McpError as failure:
            seen.error = failure
        result, error = seen.result, seen.error
        changed = await self._run(self._after, "after_call", seen, call)
        if changed is None and error is not None:
            raise error
        return result if changed is None else self._result(changed, result)

    def _result(self, value: Any, before: Any) -> ToolResult:
        """Convert the value that the user's function returned to a result.

        Raises:
            CallError: It cannot be written as JSON.
        """
        if isinstance(value, ToolResult):
            return value
        try:
            text = value if isinstance(value, str) else types.encode(value).decode()
        except (TypeError, ValueError) as error:
            raise CallError(
                f"made, but its result is withheld: {_name(self._after)}() of mcp.after_call returned {shown(value)}",
                server=self._entry.server,
                tool=self._entry.name,
                hint="it returns None, a result, a string or JSON values",
            ) from error
        content: dict[str, Any] = {"content": [{"type": "text", "text": text}]}
        if is_object(value):
            content["structuredContent"] = value
        is_untrusted = getattr(before, "is_untrusted", True)
        entry = self._entry
        return ToolResult(
            types.encode(content), server=entry.server, tool=entry.name, output_schema=None, is_untrusted=is_untrusted
        )

    def _seen(self, call: RunningCall) -> HookedCall:
        arguments = types.loads(call.arguments or b"{}")
        return HookedCall(call.session.name, call.tool, arguments, call.options.caller, call.number)

    def _checked(self, arguments: dict[str, Any]) -> dict[str, Any]:
        from ipymcp.schema.tool_schema import ToolSchema

        entry = self._entry
        schema = ToolSchema(bytes(entry.definition.inputSchema), server=entry.server, tool=entry.name)
        return schema.check(arguments)

    async def _run(self, function: Callable[[Any], Any], place: str, seen: HookedCall, call: RunningCall) -> Any:
        try:
            with _in_hook(call):
                return await self._handlers.run(function, seen, call)
        except Exception as error:
            name, where = _name(function), {"server": seen.server, "tool": seen.tool}
            text = one_line(str(error))[:_MAX_TEXT]
            if place == "before_call" and isinstance(error, (PermissionError, PolicyError)):
                raise PolicyError(f"refused by {name}() of mcp.before_call: {text}", **where) from error
            done = "not made" if place == "before_call" else "made, but its result is withheld"
            raise CallError(
                f"{done}: {name}() of mcp.{place} raised {type(error).__name__}: {text}",
                hint=f"fix it, or remove it with mcp.{place}(None)",
                **where,
            ) from error


def _name(function: Callable[[Any], Any] | None) -> str:
    return getattr(function, "__name__", type(function).__name__)


@contextlib.contextmanager
def _in_hook(call: RunningCall) -> Generator[None]:
    """Context manager for running a function of the user, whose own calls are the user's and run without hooks."""
    token = _is_in_hook.set(True)
    conversation = call.options.conversation
    try:
        with acting(Actor("user", conversation)) if conversation is not None else contextlib.nullcontext():
            yield
    finally:
        _is_in_hook.reset(token)
