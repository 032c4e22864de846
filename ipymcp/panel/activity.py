"""Calls in the panel's list of activity, running and finished, and the details of one call.

The history in the database has the sizes of arguments and results, and their values with `history = "values"`. The
history in memory also has the values of the latest calls of this kernel.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final, Self

from msgspec import Struct, convert
from msgspec.structs import replace

from ipymcp.errors import McpError, PolicyError, UnknownName
from ipymcp.masking import LABEL, masks
from ipymcp.panel.calls import CallFields, CallText, CodeFields, StartedCall, call_tool, write_code
from ipymcp.panel.messages import FromView, Problem, ToView
from ipymcp.panel.panel import Panel, View, command
from ipymcp.panel.problems import problem
from ipymcp.panel.results import Preview, kept_call, preview
from ipymcp.protocol import types
from ipymcp.protocol.recording import without_secrets
from ipymcp.results.tool_result import ToolResult
from ipymcp.storage.history import CallSummary, Outcome
from ipymcp.text import cut, visible

if TYPE_CHECKING:
    from msgspec import Raw

    from ipymcp.storage.history import HistoryEntry, KeptCall


MAX_ROWS: Final = 2_000
_MAX_TEXT: Final = 50_000


class HistoryFields(FromView):
    """A selection of finished calls."""

    words: str | None = None
    """Text to find in `server.tool`."""
    outcome: Outcome | None = None
    everywhere: bool = False
    """Whether to include the calls of other notebooks."""
    after: int | None = None
    """Only rows with a higher id."""
    before: int | None = None
    """Only rows with a lower id."""
    limit: int = 100


class PastCallFields(FromView):
    """A finished call, by the id of its row, or a running one, by its number."""

    row: int | None = None
    call: int | None = None


class HistoryRow(CallSummary, frozen=True, kw_only=True):
    """A finished call."""

    call: int | None = None
    """The number of the call, if this kernel made it recently."""

    def for_visitors(self) -> Self:
        """Return the row without the notebook, the cell and the text of the error."""
        return replace(self, notebook="", cell=None, error=self.error and "failed")


class CallDetails(ToView):
    """The details of one call that its row does not contain."""

    arguments: str | None = None
    """JSON; None if they are not known."""
    result: Preview | None = None
    is_too_large: bool = False
    """Whether the result was too large to be kept as a whole."""
    openable: bool = False
    """Whether the result can be kept in `mcp.results`."""
    error: Problem | None = None
    questions: list[str] = []
    """Questions that the user was asked, with the answers."""
    repeatable: bool = False
    """Whether the arguments are known exactly, so that the same call can be made again."""


class PastCall(Struct, kw_only=True):
    """A call that was made, or is running.

    Attributes:
        number: Its number in this kernel; None for the call of another kernel.
        origin: The maker of the call: `user`, `panel`, `model` or `app`.
        arguments: JSON; None if they are not known.
        is_exact: Whether these are the arguments as they were sent: neither masked, nor cut, nor those of a map's first
            call.
        result: JSON; None if there is none, or it is not known.
        is_too_large: Whether the result was too large to be kept.
        error: The error of a failed call.
        questions: The questions that the user was asked, with the answers.
    """

    server: str
    tool: str
    number: int | None
    origin: str
    arguments: bytes | None
    is_exact: bool
    result: Raw | bytes | None = None
    is_too_large: bool = False
    error: Problem | None = None
    questions: tuple[str, ...] = ()

    def values(self) -> dict[str, Any]:
        """The arguments as they were sent.

        Raises:
            McpError: The exact arguments are not known.
        """
        if self.arguments is None or not self.is_exact:
            raise McpError(
                "the arguments of this call were not kept",
                server=self.server,
                tool=self.tool,
                hint='%config IPyMCP.history = "values" keeps those of later calls',
            )
        return types.loads(self.arguments) if self.arguments else {}

    def shown_values(self) -> dict[str, Any]:
        """The arguments without secrets. Raises the error of `values`."""
        self.values()
        text = (self.arguments or b"{}").decode("utf-8", "replace")
        return masks.json(json.loads(without_secrets(text)))


@command("history")
async def _history(panel: Panel, view: View, message: HistoryFields) -> list[HistoryRow]:
    """Return rows of finished calls, newest first; a visitor gets those of this kernel only."""
    history, permissions = panel.host.history, view.permissions
    entries = await history.entries(
        words=message.words,
        outcomes=() if message.outcome is None else (message.outcome,),
        is_own=not message.everywhere,
        after=message.after,
        before=message.before,
        limit=max(1, min(message.limit, MAX_ROWS)),
    )
    kept = history.kept
    rows: list[HistoryRow] = []
    for entry in entries:
        own = kept.get(entry.id)
        if own is None and permissions.is_visitor:
            continue
        row = convert(entry, HistoryRow, from_attributes=True)
        row = replace(row, error=visible(row.error), call=own and own.record.number)
        rows.append(row.for_visitors() if permissions.is_visitor else row)
    return rows


async def _find_call(panel: Panel, view: View, message: PastCallFields) -> PastCall:
    """Find a call.

    Raises:
        UnknownName: The call is neither running nor in the history.
        PolicyError: The view may only see the row of the call.
    """
    found = _running(panel, message.call) or _kept(panel, message)
    if found is None:
        entry = await panel.host.history.entry(message.row or 0)  # also writes the calls that have just finished
        found = _kept(panel, message)
        if found is None and entry is not None and not view.permissions.is_visitor:
            found = _stored(entry)  # may be a call of another notebook of the author
    if found is None:
        raise UnknownName("this call is no longer known", hint="the history keeps calls for 30 days")
    if not view.permissions.may_open(found.origin):
        raise PolicyError("this panel may not open this call")
    return found


def _running(panel: Panel, number: int | None) -> PastCall | None:
    call = None if number is None else panel.host.calls.running.get(number)
    if call is None:
        return None
    return PastCall(
        server=call.session.name,
        tool=call.tool,
        number=call.number,
        origin=call.options.origin or call.options.caller,
        arguments=call.arguments,
        is_exact=call.options.batch is None,
        questions=call.questions,
    )


def _kept(panel: Panel, message: PastCallFields) -> PastCall | None:
    kept = panel.host.history.kept
    found = kept.get(message.row) if message.row is not None else None
    if found is None and message.call is not None:
        found = kept_call(panel, message.call)
    if found is None:
        return None
    record = found.record
    return PastCall(
        server=record.server,
        tool=record.tool,
        number=record.number,
        origin=record.caller,
        arguments=record.arguments,
        is_exact=record.map is None,
        result=record.result,
        is_too_large=found.is_too_large,
        error=_problem(found),
        questions=record.questions,
    )


def _problem(call: KeptCall) -> Problem | None:
    if not call.error_type:
        return None
    known = problem(McpError(call.error, hint=call.hint or None))
    return replace(known, type=call.error_type)


def _stored(entry: HistoryEntry) -> PastCall:
    arguments = entry.arguments
    return PastCall(
        server=entry.server,
        tool=entry.tool,
        number=None,
        origin=entry.caller,
        arguments=arguments,
        is_exact=entry.map is None
        and arguments is not None
        and len(arguments) == entry.sent
        and LABEL.encode() not in arguments,
        result=entry.result,
        error=Problem(message=visible(entry.error)) if entry.error else None,
        questions=tuple((entry.questions or "").split("\n")) if entry.questions else (),
    )


def _value(panel: Panel, call: PastCall) -> Any:
    """The value of a call's result; None if it is not known."""
    if call.number is not None and call.number in panel.mcp.results:
        return panel.mcp.results[call.number]
    return None if call.result is None else ToolResult(call.result, server=call.server, tool=call.tool)


@command("details")
async def _details(panel: Panel, view: View, message: PastCallFields) -> CallDetails:
    """Return all known details of a call."""
    call = await _find_call(panel, view, message)
    number = call.number if view.permissions.may("rows") else None
    if number is not None:
        panel.previewed.add(number)
    variable, namespace = None, panel.context.namespace()
    if namespace and call.number is not None and call.number in panel.mcp.results:
        variable = f"{namespace}.results[{call.number}]"
    return await asyncio.to_thread(_call_details, call, _value(panel, call), variable, number)


def _call_details(call: PastCall, value: Any, variable: str | None, number: int | None) -> CallDetails:
    arguments = None
    if call.arguments is not None:
        text = call.arguments[:_MAX_TEXT].decode("utf-8", "replace") or "{}"
        text = without_secrets(text if len(call.arguments) <= _MAX_TEXT else f"{text}…")
        arguments = cut(visible(_indented(text)), _MAX_TEXT)
    result, error, is_too_large = None, call.error, call.is_too_large
    if value is not None:
        try:
            result = preview(value, variable, number)
            if getattr(value, "is_error", False):
                result, error = None, Problem(message=visible(cut(value.text, _MAX_TEXT)), type="ToolError")
        except McpError:  # the database stores only the beginning of a long result
            assert call.result is not None
            is_too_large = True
            text = bytes(call.result).decode("utf-8", "replace")
            result = Preview(
                text=visible(cut(text, _MAX_TEXT)), html=None, image=None, json=None, links=[], truncated=True,
                size=len(text), variable=None,
            )  # fmt: skip
    return CallDetails(
        arguments=arguments,
        result=result,
        is_too_large=is_too_large,
        openable=result is not None and call.number is not None,
        error=error,
        questions=[visible(one) for one in call.questions if one],
        repeatable=call.is_exact,
    )


def _indented(text: str) -> str:
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except ValueError:  # the JSON was cut
        return text


@command("repeat")
async def _repeat(panel: Panel, view: View, message: PastCallFields) -> StartedCall:
    call = await _find_call(panel, view, message)
    return await call_tool.act(panel, view, CallFields(server=call.server, tool=call.tool, arguments=call.values()))


@command("repeat_code")
async def _repeat_code(panel: Panel, view: View, message: PastCallFields) -> CallText:
    call = await _find_call(panel, view, message)
    fields = CodeFields(server=call.server, tool=call.tool, arguments=call.shown_values(), form="python")
    return await write_code.act(panel, view, fields)


@command("keep_result")
async def _keep_result(panel: Panel, view: View, message: PastCallFields) -> CallText:
    """Keep a call's result in `mcp.results`, and return the expression for it."""
    call, results = await _find_call(panel, view, message), panel.mcp.results
    number = call.number
    value = None if number is None else _value(panel, call)
    if number is None or value is None or getattr(value, "is_error", False):
        hint = "it was too large; run it again" if call.is_too_large else None
        raise McpError("the result of this call was not kept", server=call.server, tool=call.tool, hint=hint)
    if number not in results:
        results.keep(number, value, value.size)
    return CallText(text=f"{panel.context.namespace() or 'mcp'}.results[{number}]")
