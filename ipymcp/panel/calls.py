"""Calls in the panel: the running ones, and making, cancelling and writing them as code."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Literal, TypeAlias

from ipymcp.api.parts import parts_of
from ipymcp.errors import UnknownName
from ipymcp.interaction.forms import format_errors
from ipymcp.panel.messages import MAX_ABOUT, FromView, JsonObject, Problem, StateRow, ToView, finite, sound
from ipymcp.panel.panel import Panel, View, command
from ipymcp.panel.questions import FieldError, FieldErrors
from ipymcp.panel.results import Preview, keep_result, preview
from ipymcp.panel.servers import ready_session
from ipymcp.panel.state import StateSection
from ipymcp.panel.tools import ToolFields, find_tool
from ipymcp.protocol import types
from ipymcp.runtime.call import Call
from ipymcp.text import capitalized, visible

if TYPE_CHECKING:
    from ipymcp.results.tool_result import ToolResult
    from ipymcp.runtime.call_options import RunningCall
    from ipymcp.runtime.catalog import ToolEntry


_SHOW_DELAY = 0.1
"""Seconds that a call must run before it is shown."""
_MAX_CALLS = 200
CodeForm: TypeAlias = Literal["python", "magic"]


class CallFields(ToolFields):
    """A call."""

    arguments: JsonObject = {}


class CodeFields(CallFields, kw_only=True):
    """A call to convert to code."""

    form: CodeForm


class CancelFields(FromView):
    """A call to cancel."""

    call: int


class CallProgress(ToView):
    """The progress that a server has reported."""

    progress: float
    total: float | None
    message: str | None


class CallRow(StateRow):
    """A running call."""

    id: int
    server: str
    tool: str
    started: float
    progress: CallProgress | None
    origin: str
    """Maker of the call: `user`, `panel`, `model` or `app`."""
    cell: int | None
    waits: bool
    """Whether it waits for an answer of the user."""

    def is_of(self, server: str) -> bool:
        """Whether it is a call of that server."""
        return self.server == server


class StartedCall(ToView):
    """The number of a started call; a `result` message follows."""

    call: int


class CallText(ToView):
    """A call as code."""

    text: str


class FinishedCall(ToView, tag_field="kind", tag="result"):
    """The result of a call that the view has made."""

    call: int
    ok: Literal[True]
    preview: Preview


class FailedCall(ToView, tag_field="kind", tag="result"):
    """The error of a call that the view has made."""

    call: int
    ok: Literal[False]
    error: Problem


def call_row(call: RunningCall, *, waits: bool) -> CallRow:
    """Row of a running call; `waits` tells whether it waits for an answer of the user."""
    progress = call.progress
    shown = None
    if progress is not None:
        message = visible(progress.message[:MAX_ABOUT]) if progress.message else None
        value, total = finite(progress.progress) or 0, finite(progress.total)
        shown = CallProgress(progress=value, total=total, message=message)
    return CallRow(
        id=call.number,
        server=call.session.name,
        tool=call.tool,
        started=time.time() - (time.monotonic() - call.started),
        progress=shown,
        origin=call.options.origin or call.options.caller,
        cell=call.cell,
        waits=waits,
    )


class CallRows(StateSection):
    """The rows of running calls. A map has one row, that of its first call."""

    def update(self) -> None:
        """Update the rows."""
        latest = time.monotonic() - _SHOW_DELAY
        running = {str(call.number): call for call in list(self._host.calls.running.values())[:_MAX_CALLS]}
        running = {
            number: call
            for number, call in running.items()
            if call.started <= latest and (call.options.batch is None or call.options.batch.number == call.number)
        }
        for number, call in running.items():
            waits = any(subject is call for subject in self._host.questions.subjects)
            if self._state.has_changed("calls", number, (call, call.progress, waits)):
                self._state.put("calls", number, call_row(call, waits=waits))
        self._state.keep("calls", running)


@command("validate")
async def _validate(panel: Panel, view: View, message: CallFields) -> FieldErrors:
    _, entry = find_tool(panel, message)
    return FieldErrors(errors=await asyncio.to_thread(_errors, panel, entry, sound(message.arguments)))


def _errors(panel: Panel, entry: ToolEntry, arguments: JsonObject) -> list[FieldError]:
    """The errors that the schema finds in a form's values; if none, the values that do not match their `format`."""
    found = parts_of(panel.mcp).factory.schema(entry).problems(arguments)
    if found:
        return [FieldError(path=[*one.path], message=visible(one.at_field)) for one in found]
    formats = format_errors(types.loads(entry.definition.inputSchema), arguments)
    return [FieldError(path=[*path], message=capitalized(text)) for path, text in formats]


@command("call")
async def call_tool(panel: Panel, view: View, message: CallFields) -> StartedCall:
    """Start a call; a `result` message follows."""
    session = panel.host.find(message.server)
    if session.client is None:
        await ready_session(panel, view, message)
    _, entry = find_tool(panel, message)
    factory = parts_of(panel.mcp).factory
    checked = await asyncio.to_thread(factory.schema(entry).check, sound(message.arguments))
    call = factory.panel_call(session, entry, checked)
    panel.calls[call.number] = call
    panel.spawn(_follow(panel, view, call))
    return StartedCall(call=call.number)


async def _follow(panel: Panel, view: View, call: Call[ToolResult]) -> None:
    """Make a call and send its outcome to the view."""
    try:
        await call.run_on_loop()
        shown = await keep_result(panel, view, call.number, await asyncio.to_thread(call.result), preview)
        view.send(FinishedCall(call=call.number, ok=True, preview=shown))
    except Exception as error:  # even a bug in ipymcp must not leave the view waiting
        view.send(FailedCall(call=call.number, ok=False, error=view.problem(error)))
    finally:
        panel.calls.pop(call.number, None)


@command("code")
async def write_code(panel: Panel, view: View, message: CodeFields) -> CallText:
    """Write a call as the user would type it."""
    _, entry = find_tool(panel, message)
    arguments, schema, code = sound(message.arguments), parts_of(panel.mcp).factory.schema(entry), panel.context.code
    if message.form == "python":
        return CallText(text=code.python(panel.host, entry, schema, arguments, panel.context.namespace()))
    return CallText(text=code.magic(panel.host, entry, schema, arguments))


@command("cancel")
async def _cancel(panel: Panel, view: View, message: CancelFields) -> None:
    call = panel.host.calls.running.get(message.call) or panel.calls.get(message.call)
    if call is None:
        raise UnknownName(f"no call {message.call} is running", hint="it may have finished")
    if isinstance(call, Call):  # and no map
        call.where_cancelled = "the panel"
    call.cancel()
