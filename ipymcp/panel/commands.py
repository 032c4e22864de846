"""Commands of views: servers, tools, resources, prompts, calls and logs.

The name of a command is the `do` of an intent. Its function takes the intent's other fields as their type, and returns
the value of the reply.
"""

from __future__ import annotations

import asyncio
import glob
from base64 import b64encode
from typing import TYPE_CHECKING, Any

from ipymcp.api import restore
from ipymcp.api.namespace import factory_of
from ipymcp.api.resources import Resource, expand, prompt, template_schema
from ipymcp.errors import McpError, PolicyError, UnknownName
from ipymcp.interaction.forms import format_errors
from ipymcp.names import nearest
from ipymcp.panel.activity import details, find_call, history_rows, keep, shown_value
from ipymcp.panel.adding import ADDING
from ipymcp.panel.apps import APPS
from ipymcp.panel.messages import (
    AnswerFields,
    AnyServerFields,
    CallDetails,
    CallFields,
    CallText,
    CancelFields,
    CellFields,
    CodeFields,
    FailedCall,
    FieldError,
    FieldErrors,
    FileFields,
    FilePart,
    FinishedCall,
    FollowFields,
    HistoryFields,
    HistoryRow,
    IconFields,
    JsonObject,
    LoadFields,
    Malformed,
    MemoryUse,
    MissingServer,
    NoFields,
    PastCallFields,
    Preview,
    PromptFields,
    PromptRow,
    ReadFields,
    ResourceRow,
    ResourceRows,
    RestoredServers,
    RowsFields,
    ServerFields,
    StartedCall,
    StringParameter,
    SuggestFields,
    SwitchFields,
    TablePage,
    TableRecord,
    TemplateRow,
    ToolFields,
    ToolRow,
    UnloadedServer,
    UsedServers,
    ValueFields,
    sound,
)
from ipymcp.panel.panel import ResultFile, ViewCommands
from ipymcp.panel.rows import (
    LogReader,
    MessageReader,
    missing_value,
    preview,
    prompt_preview,
    shown_text,
    table_page,
    table_record,
    tool_details,
    tool_rows,
    where,
)
from ipymcp.protocol import types
from ipymcp.protocol.recording import MessageRecorder
from ipymcp.results.records import RecordTable
from ipymcp.results.rendering import shown_table
from ipymcp.runtime.call import Call, cancel_from
from ipymcp.runtime.server_status import State
from ipymcp.text import capitalized, quoted, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import TypeAlias

    from ipymcp.api.resources import PromptResult
    from ipymcp.panel.panel import Panel, View
    from ipymcp.protocol.client import Client
    from ipymcp.protocol.types import TemplateDefinition
    from ipymcp.results.resource_result import ResourceResult
    from ipymcp.results.tool_result import ToolResult
    from ipymcp.runtime.catalog import ToolEntry
    from ipymcp.runtime.session import ServerSession

    Value: TypeAlias = ToolResult | ResourceResult | PromptResult


COMMANDS = ViewCommands({**ADDING, **APPS})
"""The commands by name. What a mode permits is in `permissions.py`."""
_command = COMMANDS.command


@_command(AnyServerFields, "tools")
async def _tools(panel: Panel, view: View, message: AnyServerFields) -> list[ToolRow]:
    host = panel.host
    sessions = [*host.sessions.values()] if message.server is None else [host.find(message.server)]

    def rows() -> list[ToolRow]:
        return [row for one in sessions for row in tool_rows(host, one, one.catalog.tools.values())]

    return await asyncio.to_thread(rows)


@_command(ToolFields, "tool")
async def _tool(panel: Panel, view: View, message: ToolFields) -> ToolRow:
    session, entry = _entry(panel, message)
    return await asyncio.to_thread(tool_details, panel.host, session, entry)


@_command(IconFields, "icon")
async def _icon(panel: Panel, view: View, message: IconFields) -> str | None:
    """Return the icon of a running server, or of one of its tools, resources or prompts, as a data URL."""
    session = panel.host.find(message.server)
    icons = None if session.client is None else _icons(session, session.client, message)
    return await panel.icons.first(session.definition.url, icons)


def _icons(session: ServerSession, client: Client, message: IconFields) -> Any:
    catalog, name = session.catalog, message.name
    if message.of == "server":
        return client.server_info.get("icons")
    if message.of == "tools":
        return next((one.definition.icons for one in catalog.tools.values() if one.name == name), None)
    if message.of == "prompts":
        prompt = catalog.find_prompt(name)
        return prompt and prompt.definition.icons
    offered = catalog.resources.get(name) or catalog.templates.get(name)
    return offered and offered.icons


@_command(CallFields, "validate")
async def _validate(panel: Panel, view: View, message: CallFields) -> FieldErrors:
    _, entry = _entry(panel, message)
    return FieldErrors(errors=await asyncio.to_thread(_errors, panel, entry, sound(message.arguments)))


def _errors(panel: Panel, entry: ToolEntry, arguments: JsonObject) -> list[FieldError]:
    """The errors that the schema finds in a form's values; if none, the values that do not match their `format`."""
    found = factory_of(panel.mcp).schema(entry).problems(arguments)
    if found:
        return [FieldError(path=[*one.path], message=visible(one.at_field)) for one in found]
    formats = format_errors(types.loads(entry.definition.inputSchema), arguments)
    return [FieldError(path=[*path], message=capitalized(text)) for path, text in formats]


@_command(CallFields, "call")
async def _call(panel: Panel, view: View, message: CallFields) -> StartedCall:
    session = panel.host.find(message.server)
    if session.client is None:
        await _ready_session(panel, view, message)
    _, entry = _entry(panel, message)
    factory = factory_of(panel.mcp)
    checked = await asyncio.to_thread(factory.schema(entry).check, sound(message.arguments))
    call = factory.panel_call(session, entry, checked)
    panel.calls[call.number] = call
    panel.spawn(_follow(panel, view, call))
    return StartedCall(call=call.number)


async def _follow(panel: Panel, view: View, call: Call[ToolResult]) -> None:
    """Make a call and send its outcome to the view."""
    try:
        await call.run_on_loop()
        shown = await _keep_result(panel, view, call.number, await asyncio.to_thread(call.result), preview)
        view.send(FinishedCall(call=call.number, ok=True, preview=shown))
    except Exception as error:  # even a bug in ipymcp must not leave the view waiting
        view.send(FailedCall(call=call.number, ok=False, error=view.problem(error)))
    finally:
        panel.calls.pop(call.number, None)


async def _keep_result(
    panel: Panel, view: View, number: int, value: Value, show: Callable[[Any, str | None, int], Preview]
) -> Preview:
    """Keep a value in `mcp.results` and return its preview."""
    panel.mcp.results.keep(number, value, value.size)
    kept = {one.record.number for one in panel.host.history.kept.values()}
    panel.previewed = {one for one in panel.previewed if one in panel.mcp.results or one in kept} | {number}
    for old in panel.tables.keys() - panel.previewed:
        del panel.tables[old]
    namespace = "" if view.permissions.is_visitor else panel.context.namespace()
    return await asyncio.to_thread(show, value, f"{namespace}.results[{number}]" if namespace else None, number)


_MAX_TABLES = 4
_MAX_FILE = 200_000_000
_PART_BYTES = 500_000


@_command(RowsFields, "rows")
async def _rows(panel: Panel, view: View, message: RowsFields) -> TablePage:
    table = await _table(panel, message.result)
    return await asyncio.to_thread(table_page, table, message.first, sort=message.sort, descending=message.descending)


@_command(RowsFields, "row")
async def _row(panel: Panel, view: View, message: RowsFields) -> TableRecord:
    table = await _table(panel, message.result)
    record = await asyncio.to_thread(table.record, message.first, sort=message.sort, descending=message.descending)
    return await asyncio.to_thread(table_record, record)


@_command(FileFields, "file")
async def _file(panel: Panel, view: View, message: FileFields) -> FilePart:
    """Return a part of the file. The view requests the parts in order, and the first request creates the file."""
    result, kind, offset = message.result, message.format, message.offset
    if view.file is None or (view.file.result, view.file.format) != (result, kind) or not offset:
        table = await _table(panel, result)
        data = await asyncio.to_thread(table.file, kind)
        if len(data) > _MAX_FILE:
            raise McpError(f"the file would have {len(data):,} bytes", hint="write it from .df in a cell")
        view.file = ResultFile(result, kind, data)
    data = view.file.data
    part, end = data[offset : offset + _PART_BYTES], offset + _PART_BYTES
    if end >= len(data):
        view.file = None
    return FilePart(data=b64encode(part).decode(), size=len(data), next=end if end < len(data) else None)


async def _table(panel: Panel, number: int) -> RecordTable:
    """The table of a result that was shown in a view.

    Raises:
        UnknownName: The result was not shown in a view, is no longer kept, or is not a table.
    """
    table, value = panel.tables.pop(number, None), shown_value(panel, number)
    if value is None:
        raise UnknownName(f"result {number} is no longer kept", hint="run the tool again")
    if table is None:
        found = await asyncio.to_thread(shown_table, value)
        if found is None:
            raise UnknownName(f"result {number} is not a table")
        table = await asyncio.to_thread(RecordTable, found.records)
    panel.tables[number] = table
    while len(panel.tables) > _MAX_TABLES:
        panel.tables.popitem(last=False)
    return table


async def _ready_session(panel: Panel, view: View, message: ServerFields) -> ServerSession:
    """Find a server and wait until it is ready; a lazy server is started.

    Raises:
        PolicyError: The server needs trust, which the view may not grant.
    """
    session = panel.host.find(message.server)
    is_limited = not view.permissions.may_answer("trust")
    if session.is_lazy and is_limited and not await panel.host.guard.trust.allows(session.definition):
        raise PolicyError("needs trust, which this panel may not grant", server=session.name)
    await session.awake()
    return session


@_command(CodeFields, "code")
async def _code(panel: Panel, view: View, message: CodeFields) -> CallText:
    _, entry = _entry(panel, message)
    arguments, schema, code = sound(message.arguments), factory_of(panel.mcp).schema(entry), panel.context.code
    if message.form == "python":
        return CallText(text=code.python(panel.host, entry, schema, arguments, panel.context.namespace()))
    return CallText(text=code.magic(panel.host, entry, schema, arguments))


@_command(ServerFields, "resources")
async def _resources(panel: Panel, view: View, message: ServerFields) -> ResourceRows:
    session = await _ready_session(panel, view, message)
    catalog = await session.resources.refresh("resources", "templates")
    resources = [
        ResourceRow(**_names(one), uri=one.uri, mime=shown_text(one.mimeType), size=one.size)
        for one in catalog.resources.values()
    ]
    templates = [
        TemplateRow(**_names(one), template=one.uriTemplate, parameters=_parameters(session.name, one))
        for one in catalog.templates.values()
    ]
    return ResourceRows(resources=resources, templates=templates)


def _parameters(server: str, definition: TemplateDefinition) -> list[StringParameter]:
    parameters = template_schema(server, definition).parameters
    return [StringParameter(name=each.name, required=each.required) for each in parameters]


@_command(ReadFields, "read")
async def _read(panel: Panel, view: View, message: ReadFields) -> Preview:
    session = await _ready_session(panel, view, message)
    uri = message.uri
    if message.template is not None:
        uri = await _expand_template(session, message.template, sound(message.arguments))
    if uri is None:
        raise Malformed("'read' needs 'uri' or 'template'")
    result = await Resource(panel.host, session.name, uri).read.aio()
    return await _keep_result(panel, view, panel.host.calls.next_number(), result, preview)


async def _expand_template(session: ServerSession, written: str, arguments: dict[str, Any]) -> str:
    """Expand a resource template (RFC 6570)."""
    catalog = await session.resources.refresh("templates")
    definition = next((one for one in catalog.templates.values() if one.uriTemplate == written), None)
    if definition is None:
        raise UnknownName(f"there is no template {written!r}", server=session.name)
    schema = template_schema(session.name, definition)
    return expand(definition, schema.check(arguments))


@_command(ServerFields, "prompts")
async def _prompts(panel: Panel, view: View, message: ServerFields) -> list[PromptRow]:
    session = await _ready_session(panel, view, message)
    catalog = await session.resources.refresh("prompts")
    return [
        PromptRow(
            **(_names(one.definition) | dict[str, Any](name=one.name)),
            arguments=[
                StringParameter(name=each.name, description=shown_text(each.description), required=bool(each.required))
                for each in one.definition.arguments or ()
            ],
        )
        for one in catalog.prompts.values()
    ]


@_command(PromptFields, "prompt")
async def _prompt(panel: Panel, view: View, message: PromptFields) -> Preview:
    session = await _ready_session(panel, view, message)
    name = message.prompt
    entry = session.catalog.find_prompt(name) or (await session.resources.refresh("prompts")).find_prompt(name)
    if entry is None:
        hint = nearest(name, session.catalog.prompts) or f"%mcp prompts {quoted(session.name)}"
        raise UnknownName(f"there is no prompt {name!r}", server=session.name, hint=hint)
    result = await prompt(panel.host, entry).aio(**sound(message.arguments))
    return await _keep_result(panel, view, panel.host.calls.next_number(), result, prompt_preview)


_SUGGEST_TIMEOUT = 2.0
"""Seconds for the server's suggestions: later ones would not match the text that the user has typed by then."""
_MAX_SUGGESTIONS = 100
_MAX_SUGGESTION = 1_000
"""Maximum characters; longer suggestions, and those with hidden characters or line breaks, are dropped."""


@_command(SuggestFields, "suggest")
async def _suggest(panel: Panel, view: View, message: SuggestFields) -> list[str]:
    """Request suggestions from the server (`completion/complete`); an empty list if the request fails."""
    session = panel.host.find(message.server)
    if session.client is None:
        return []
    reference = {"type": "ref/prompt", "name": message.prompt or ""}
    if message.template is not None:
        reference = {"type": "ref/resource", "uri": message.template}
    try:
        async with asyncio.timeout(_SUGGEST_TIMEOUT):
            found = await session.resources.suggestions(
                reference, message.argument, sound(message.typed), sound(message.others), timeout=_SUGGEST_TIMEOUT
            )
    except (McpError, TimeoutError):
        return []
    suggestions = [
        text for text in found if len(text) <= _MAX_SUGGESTION and visible(text) == text and "\n" not in text
    ]
    return suggestions[:_MAX_SUGGESTIONS]


def _entry(panel: Panel, message: ToolFields) -> tuple[ServerSession, ToolEntry]:
    session = panel.host.find(message.server)
    return session, panel.host.entry(session, message.tool)


def _names(definition: Any) -> dict[str, Any]:
    return {
        "name": visible(definition.name),
        "title": shown_text(definition.title),
        "description": shown_text(definition.description),
        "has_icon": len(definition.icons) > 0,
    }


_REPLY_TIMEOUT = 1.0
"""Seconds that a reply waits for a server to start or stop; after that the server's row shows the outcome."""


async def _run_briefly(coroutine: Coroutine[Any, Any, object], panel: Panel) -> None:
    """Run a coroutine and raise an early failure; longer work continues in the background."""

    async def act() -> None:
        await coroutine

    task = panel.spawn(act())
    done, _ = await asyncio.wait({task}, timeout=_REPLY_TIMEOUT)
    if done:
        return task.result()
    task.add_done_callback(_ignore_failure)
    return None


def _ignore_failure(task: asyncio.Task[None]) -> None:
    """Retrieve a late exception, so that asyncio does not report it; the server's state and log show it."""
    if not task.cancelled():
        task.exception()


@_command(ServerFields, "start", "enable", "trust", "login")  # a start asks for trust and a login if it needs them
async def _start(panel: Panel, view: View, message: ServerFields) -> None:
    await _run_briefly(panel.mcp.start.aio(panel.host.find(message.server).name), panel)


@_command(ValueFields, "set_value")
async def _set_value(panel: Panel, view: View, message: ValueFields) -> None:
    """Set the value that was missing when a server was started, and start the server again."""
    session = panel.host.find(message.server)
    missing, store = missing_value(session), panel.host.store
    if missing is None or missing[1] != message.name:
        raise UnknownName(f"{message.name!r} is not the missing value", server=session.name)
    kind, name = missing
    if kind == "secret":
        await asyncio.to_thread(store.secrets.set, name, message.value)
    else:
        arguments = session.definition, name, session.digest, message.value
        await asyncio.to_thread(store.inputs.set_variable, *arguments)
    await _run_briefly(panel.mcp.start.aio(session.name), panel)


@_command(ServerFields, "stop")
async def _stop(panel: Panel, view: View, message: ServerFields) -> None:
    await _run_briefly(panel.mcp.stop.aio(panel.host.find(message.server).name), panel)


@_command(ServerFields, "restart")
async def _restart(panel: Panel, view: View, message: ServerFields) -> None:
    await _run_briefly(panel.mcp.restart.aio(panel.host.find(message.server).name), panel)


@_command(ServerFields, "unload")
async def _unload(panel: Panel, view: View, message: ServerFields) -> None:
    await _run_briefly(panel.mcp.unload.aio(panel.host.find(message.server).name), panel)


@_command(NoFields, "start_all")
async def _start_all(panel: Panel, view: View, message: NoFields) -> None:
    await _run_briefly(panel.host.start(_enabled(panel)), panel)


@_command(NoFields, "stop_all")
async def _stop_all(panel: Panel, view: View, message: NoFields) -> None:
    await _run_briefly(panel.host.stop(_enabled(panel)), panel)


@_command(NoFields, "restart_all")
async def _restart_all(panel: Panel, view: View, message: NoFields) -> None:
    await _run_briefly(panel.host.restart(_enabled(panel)), panel)


@_command(NoFields, "refresh")
async def _refresh(panel: Panel, view: View, message: NoFields) -> None:
    """List the tools of all ready servers again."""
    ready = [one for one in panel.host.sessions.values() if one.state is State.READY]
    await asyncio.gather(*(session.refreshed() for session in ready))


def _enabled(panel: Panel) -> list[str]:
    return [one.name for one in panel.host.sessions.values() if one.state is not State.DISABLED]


@_command(ServerFields, "disable")
async def _disable(panel: Panel, view: View, message: ServerFields) -> None:
    await _run_briefly(panel.host.stop([panel.host.find(message.server).name], State.DISABLED), panel)


@_command(SwitchFields, "enable_tools")
async def _enable_tools(panel: Panel, view: View, message: SwitchFields) -> None:
    _switch(panel, message, on=True)


@_command(SwitchFields, "disable_tools")
async def _disable_tools(panel: Panel, view: View, message: SwitchFields) -> None:
    _switch(panel, message, on=False)


def _switch(panel: Panel, message: SwitchFields, *, on: bool) -> None:
    """Enable or disable tools; none is changed if one is unknown."""
    entries = [_entry(panel, one)[1] for one in message.tools]
    patterns = [glob.escape(f"{entry.server}.{entry.name}") for entry in entries]
    panel.host.guard.policy.filters.set(*patterns, allowed=on)


@_command(LoadFields, "load")
async def _load(panel: Panel, view: View, message: LoadFields) -> None:
    await _run_briefly(panel.mcp.load.aio(*message.what), panel)


@_command(NoFields, "known")
async def _known(panel: Panel, view: View, message: NoFields) -> list[UnloadedServer]:
    found = await asyncio.to_thread(panel.host.discovery.peek)
    return [
        UnloadedServer(
            name=name,
            source=visible(str(definition.source)),
            where=where(definition),
            is_project=definition.source.scope == "project",
        )
        for name, definition in found.definitions.items()
        if name not in panel.host.sessions
    ]


@_command(NoFields, "used")
async def _used(panel: Panel, view: View, message: NoFields) -> UsedServers:
    host = panel.host
    known = await asyncio.to_thread(host.used_servers) if host.notebook is not None else []
    if not known:
        return UsedServers(names=[], what=[], line="", typed=[])
    found = (await asyncio.to_thread(host.discovery.peek)).definitions
    by_name: list[str] = []
    by_file: dict[str, list[str]] = {}
    lost: list[str] = []
    for one in known:
        definition = found.get(one.name)
        if (
            one.typed is not None
            or (one.name == "demo" and not one.file)
            or (definition is not None and definition.source.file == one.file)
        ):
            by_name.append(one.name)
        elif one.file:
            by_file.setdefault(one.file, []).append(one.name)
        else:
            lost.append(one.name)
    what = by_name + [word for file, names in by_file.items() for word in (file, *names)]
    line = " ".join(["%mcp load", *map(quoted, what)]) if what else ""
    return UsedServers(names=[one.name for one in known], what=what, line=line, typed=lost)


@_command(NoFields, "restore")
async def _restore(panel: Panel, view: View, message: NoFields) -> RestoredServers:
    host = panel.host
    found = await restore.plan(host)
    await restore.load(host, found)
    return RestoredServers(
        servers=[one.name for one in found.definitions],
        rules=len(found.rules),
        missing=[MissingServer(name=name, reason=visible(why)) for name, why in found.missing.items()],
    )


@_command(LoadFields, "forget")
async def _forget(panel: Panel, view: View, message: LoadFields) -> None:
    """Offer servers that the notebook used no longer."""
    host = panel.host
    if host.remembered_as is not None:
        host.store.notebooks.unloaded(host.remembered_as, set(message.what) - host.sessions.keys())


@_command(ServerFields, "memory")
async def _memory(panel: Panel, view: View, message: ServerFields) -> MemoryUse:
    session = panel.host.find(message.server)
    if session.pid is None:
        raise McpError("has no process", server=session.name)
    return await asyncio.to_thread(_measure, session.pid)


def _measure(pid: int) -> MemoryUse:
    import psutil

    sizes: list[int] = []
    try:
        root = psutil.Process(pid)
        for process in [root, *root.children(recursive=True)]:
            try:
                sizes.append(process.memory_info().rss)
            except psutil.Error:  # it has just exited
                continue
    except psutil.Error as error:
        raise McpError(f"its process {pid} has exited") from error
    return MemoryUse(bytes=sum(sizes), processes=len(sizes))


@_command(FollowFields, "logs")
async def _logs(panel: Panel, view: View, message: FollowFields) -> None:
    if not message.on:
        view.readers.pop(("logs", message.server), None)
        return
    name = panel.host.find(message.server).name
    view.readers["logs", name] = LogReader(name, panel.host, panel.numbers, message.since)
    view.wake_if_changed()


@_command(FollowFields, "protocol")
async def _protocol(panel: Panel, view: View, message: FollowFields) -> None:
    if not message.on:
        view.readers.pop(("protocol", message.server), None)
        panel.stop_recording()
        return
    name = panel.host.find(message.server).name
    recorder = panel.recorders.setdefault(name, MessageRecorder(message.since or 0))
    view.readers["protocol", name] = MessageReader(name, panel.host, recorder, message.since)
    view.wake_if_changed()


@_command(HistoryFields, "history")
async def _history(panel: Panel, view: View, message: HistoryFields) -> list[HistoryRow]:
    return await history_rows(panel, view, message)


@_command(PastCallFields, "details")
async def _details(panel: Panel, view: View, message: PastCallFields) -> CallDetails:
    return await details(panel, view, await find_call(panel, view, message))


@_command(PastCallFields, "repeat")
async def _repeat(panel: Panel, view: View, message: PastCallFields) -> StartedCall:
    call = await find_call(panel, view, message)
    return await _call(panel, view, CallFields(server=call.server, tool=call.tool, arguments=call.values()))


@_command(PastCallFields, "repeat_code")
async def _repeat_code(panel: Panel, view: View, message: PastCallFields) -> CallText:
    call = await find_call(panel, view, message)
    fields = CodeFields(server=call.server, tool=call.tool, arguments=call.shown_values(), form="python")
    return await _code(panel, view, fields)


@_command(PastCallFields, "keep_result")
async def _keep(panel: Panel, view: View, message: PastCallFields) -> CallText:
    return CallText(text=keep(panel, await find_call(panel, view, message)))


@_command(CancelFields, "cancel")
async def _cancel(panel: Panel, view: View, message: CancelFields) -> None:
    call = panel.host.calls.running.get(message.call) or panel.calls.get(message.call)
    if call is None:
        raise UnknownName(f"no call {message.call} is running", hint="it may have finished")
    if isinstance(call, Call):
        cancel_from(call, "the panel")  # pyright: ignore[reportUnknownArgumentType]
    else:  # a map
        call.cancel()


@_command(CellFields, "cells")
async def _cells(panel: Panel, view: View, message: CellFields) -> None:
    panel.cells.answer(message)


@_command(AnswerFields, "answer")
async def _answer(panel: Panel, view: View, message: AnswerFields) -> FieldErrors | None:
    return panel.questions.answer(message, view.permissions)
