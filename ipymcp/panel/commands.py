"""Commands of views: servers, tools, resources, prompts, calls and logs."""

from __future__ import annotations

import asyncio
import glob
from typing import TYPE_CHECKING, Any

from ipymcp.api.namespace import factory_of
from ipymcp.api.prompts import prompt
from ipymcp.api.resources import Resource, expand, template_schema
from ipymcp.errors import McpError, PolicyError, UnknownName
from ipymcp.names import nearest
from ipymcp.panel.messages import Malformed, Message, sound, text, texts
from ipymcp.panel.rows import LogReader, preview, problem, prompt_preview, tool_details, tool_rows, where
from ipymcp.protocol.types import is_object
from ipymcp.runtime.interfaces import State
from ipymcp.text import quoted, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import TypeAlias

    from ipymcp.api.prompts import PromptResult
    from ipymcp.panel.panel import Act, Panel, View
    from ipymcp.protocol.types import TemplateDefinition
    from ipymcp.results.resource_result import ResourceResult
    from ipymcp.results.tool_result import ToolResult
    from ipymcp.runtime.call import Call
    from ipymcp.runtime.catalog import ToolEntry
    from ipymcp.runtime.session import ServerSession

    Value: TypeAlias = ToolResult | ResourceResult | PromptResult


async def _tools(panel: Panel, view: View, message: Message) -> list[Message]:
    host = panel.host
    server = message.get("server")
    sessions = [*host.sessions.values()] if server is None else [host.find(text(message, "server"))]

    def rows() -> list[Message]:
        return [row for one in sessions for row in tool_rows(host, one, one.catalog.tools.values())]

    return await asyncio.to_thread(rows)


async def _tool(panel: Panel, view: View, message: Message) -> Message:
    session, entry = _entry(panel, message)
    return await asyncio.to_thread(tool_details, panel.host, session, entry)


async def _validate(panel: Panel, view: View, message: Message) -> Message:
    _, entry = _entry(panel, message)
    arguments = _arguments(message)
    complaints = await asyncio.to_thread(factory_of(panel.mcp).schema(entry).problems, arguments)
    return {"errors": [{"path": [*one.path], "message": visible(one.problem)} for one in complaints]}


async def _call(panel: Panel, view: View, message: Message) -> Message:
    session = panel.host.find(text(message, "server"))
    if session.client is None:
        await _wake(session, panel, view)
    _, entry = _entry(panel, message)
    factory, arguments = factory_of(panel.mcp), _arguments(message)
    checked = await asyncio.to_thread(factory.schema(entry).check, arguments)
    call = factory.checked_call(session, entry, checked)
    panel.calls[call.number] = call
    panel.spawn(_follow(panel, view, call))
    return {"call": call.number}


async def _follow(panel: Panel, view: View, call: Call[ToolResult]) -> None:
    """Make a call and send its outcome to the view."""
    try:
        await call.run_on_loop()
        shown = await _kept(panel, view, call.number, await asyncio.to_thread(call.result), preview)
        view.say({"kind": "result", "call": call.number, "ok": True, "preview": shown})
    except McpError as error:
        view.say(
            {"kind": "result", "call": call.number, "ok": False, "error": problem(view.permissions.shown_error(error))}
        )
    except Exception as error:  # a bug of ours must not leave the view waiting
        fault = problem(view.permissions.shown_error(McpError(f"a fault of ipymcp: {error!r}")))
        view.say({"kind": "result", "call": call.number, "ok": False, "error": fault})
    finally:
        panel.calls.pop(call.number, None)


async def _kept(
    panel: Panel, view: View, number: int, value: Value, show: Callable[[Any, str | None], Message]
) -> Message:
    """Keep a value in `mcp.results` and return its preview."""
    panel.mcp.results.keep(number, value, value.size)
    namespace = "" if view.permissions.is_visitor else panel.context.namespace()
    return await asyncio.to_thread(show, value, f"{namespace}.results[{number}]" if namespace else None)


async def _wake(session: ServerSession, panel: Panel, view: View) -> None:
    """Wait until a server is ready; start a lazy one.

    Raises:
        PolicyError: The server needs trust, which the view may not grant.
    """
    is_limited = not view.permissions.may_answer("trust")
    if session.is_lazy and is_limited and not await panel.host.guard.trust.allows(session.definition):
        raise PolicyError("needs an agreement that this panel may not give", server=session.name)
    await session.awake()


async def _code(panel: Panel, view: View, message: Message) -> Message:
    _, entry = _entry(panel, message)
    arguments, form, schema = _arguments(message), message.get("form"), factory_of(panel.mcp).schema(entry)
    if form == "python":
        return {"text": panel.context.code.python(panel.host, entry, schema, arguments, panel.context.namespace())}
    if form == "magic":
        return {"text": panel.context.code.magic(panel.host, entry, schema, arguments)}
    raise Malformed("'code' needs 'form', python or magic")


async def _resources(panel: Panel, view: View, message: Message) -> Message:
    session = panel.host.find(text(message, "server"))
    await _wake(session, panel, view)
    catalog = await session.offers.look("resources", "templates")
    resources = [
        {**_about(one), "uri": one.uri, "mime": _shown(one.mimeType), "size": one.size}
        for one in catalog.resources.values()
    ]
    return {
        "resources": resources,
        "templates": [
            {**_about(one), "template": one.uriTemplate, "parameters": _parameters(session.name, one)}
            for one in catalog.templates.values()
        ],
    }


def _parameters(server: str, definition: TemplateDefinition) -> list[Message]:
    return [{"name": each.name, "required": each.required} for each in template_schema(server, definition).parameters]


async def _read(panel: Panel, view: View, message: Message) -> Message:
    session = panel.host.find(text(message, "server"))
    await _wake(session, panel, view)
    if message.get("template") is None:
        uri = text(message, "uri")
    else:
        uri = await _expanded(session, text(message, "template"), _arguments(message))
    result = await Resource(panel.host, session.name, uri).read.aio()
    return await _kept(panel, view, panel.host.number(), result, preview)


async def _expanded(session: ServerSession, written: str, arguments: Message) -> str:
    """Expand a resource template (RFC 6570)."""
    catalog = await session.offers.look("templates")
    definition = next((one for one in catalog.templates.values() if one.uriTemplate == written), None)
    if definition is None:
        raise UnknownName(f"there is no template {written!r}", server=session.name)
    schema = template_schema(session.name, definition)
    return expand(definition, schema.check(arguments))


async def _prompts(panel: Panel, view: View, message: Message) -> list[Message]:
    session = panel.host.find(text(message, "server"))
    await _wake(session, panel, view)
    catalog = await session.offers.look("prompts")
    return [
        {
            **_about(one.definition),
            "name": one.name,
            "arguments": [
                {"name": each.name, "description": _shown(each.description), "required": bool(each.required)}
                for each in one.definition.arguments or ()
            ],
        }
        for one in catalog.prompts.values()
    ]


async def _prompt(panel: Panel, view: View, message: Message) -> Message:
    session = panel.host.find(text(message, "server"))
    await _wake(session, panel, view)
    name = text(message, "prompt")
    entry = session.catalog.find_prompt(name) or (await session.offers.look("prompts")).find_prompt(name)
    if entry is None:
        hint = nearest(name, session.catalog.prompts) or f"%mcp prompts {quoted(session.name)}"
        raise UnknownName(f"there is no prompt {name!r}", server=session.name, hint=hint)
    result = await prompt(panel.host, entry).aio(**_arguments(message))
    return await _kept(panel, view, panel.host.number(), result, prompt_preview)


def _entry(panel: Panel, message: Message) -> tuple[ServerSession, ToolEntry]:
    session = panel.host.find(text(message, "server"))
    return session, panel.host.entry(session, text(message, "tool"))


def _arguments(message: Message) -> dict[str, Any]:
    arguments = message.get("arguments", {})
    if not is_object(arguments):
        raise Malformed(f"{message.get('do')!r} needs 'arguments', an object")
    return sound(arguments)  # Python reads 1e999 as infinity, which JSON cannot express


def _about(definition: Any) -> Message:
    name, title = definition.name, definition.title
    return {"name": visible(name), "title": _shown(title), "description": _shown(definition.description)}


def _shown(text: str | None) -> str | None:
    return visible(text[:20_000]) if text else None


TOOL_VERBS = {
    "tools": _tools,
    "tool": _tool,
    "validate": _validate,
    "call": _call,
    "code": _code,
    "resources": _resources,
    "read": _read,
    "prompts": _prompts,
    "prompt": _prompt,
}


_REPLY_TIMEOUT = 1.0
"""Seconds that a reply waits for a server to start or stop; later its row shows the outcome."""
_MAX_HISTORY = 2_000


async def _soon(coroutine: Coroutine[Any, Any, object], panel: Panel) -> None:
    """Run a coroutine; raise an early failure, let longer work continue in the background."""

    async def act() -> None:
        await coroutine

    task = panel.spawn(act())
    done, _ = await asyncio.wait({task}, timeout=_REPLY_TIMEOUT)
    if done:
        return task.result()
    task.add_done_callback(_ignore_failure)
    return None


def _ignore_failure(task: asyncio.Task[None]) -> None:
    """Retrieve a late exception: the server's state and log show it."""
    if not task.cancelled():
        task.exception()


async def _start(panel: Panel, view: View, message: Message) -> None:
    await _soon(panel.mcp.start.aio(_server(panel, message)), panel)


async def _stop(panel: Panel, view: View, message: Message) -> None:
    await _soon(panel.mcp.stop.aio(_server(panel, message)), panel)


async def _restart(panel: Panel, view: View, message: Message) -> None:
    await _soon(panel.mcp.restart.aio(_server(panel, message)), panel)


async def _unload(panel: Panel, view: View, message: Message) -> None:
    await _soon(panel.mcp.unload.aio(_server(panel, message)), panel)


async def _start_all(panel: Panel, view: View, message: Message) -> None:
    sessions = panel.host.sessions.values()
    await _soon(panel.host.start([one.name for one in sessions if one.state is not State.DISABLED]), panel)


async def _stop_all(panel: Panel, view: View, message: Message) -> None:
    sessions = panel.host.sessions.values()
    await _soon(panel.host.stop([one.name for one in sessions if one.state is not State.DISABLED]), panel)


async def _enable(panel: Panel, view: View, message: Message) -> None:
    await _switch(panel, message, on=True)


async def _disable(panel: Panel, view: View, message: Message) -> None:
    await _switch(panel, message, on=False)


async def _switch(panel: Panel, message: Message, *, on: bool) -> None:
    session = panel.host.find(text(message, "server"))
    if message.get("tool") is not None:
        entry = panel.host.entry(session, text(message, "tool"))
        panel.host.guard.policy.filters.set(glob.escape(f"{entry.server}.{entry.name}"), allowed=on)
    elif on:
        await _soon(panel.mcp.start.aio(session.name), panel)
    else:
        await _soon(panel.host.stop([session.name], State.DISABLED), panel)


async def _load(panel: Panel, view: View, message: Message) -> None:
    what = texts(message, "what")
    if not what:
        raise Malformed("'load' needs 'what', a list of names")
    await _soon(panel.mcp.load.aio(*what), panel)


async def _known(panel: Panel, view: View, message: Message) -> list[Message]:
    """Configured servers that are not loaded."""
    found = await asyncio.to_thread(panel.host.discovery.peek)
    return [
        {"name": name, "source": visible(str(definition.source)), "where": where(definition)}
        for name, definition in found.definitions.items()
        if name not in panel.host.sessions
    ]


async def _memory(panel: Panel, view: View, message: Message) -> Message:
    session = panel.host.find(text(message, "server"))
    if session.pid is None:
        raise McpError("has no process", server=session.name)
    size, count = await asyncio.to_thread(_measure, session.pid)
    return {"bytes": size, "processes": count}


def _measure(pid: int) -> tuple[int, int]:
    """Resident memory in bytes of a process tree, and the number of its processes."""
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
        raise McpError(f"its process {pid} is gone") from error
    return sum(sizes), len(sizes)


async def _logs(panel: Panel, view: View, message: Message) -> None:
    on, since = message.get("on"), message.get("since")
    if not isinstance(on, bool) or not (since is None or isinstance(since, int)):
        raise Malformed("'logs' needs 'on', true or false, and 'since' is a number")
    if not on:
        view.logs.pop(text(message, "server"), None)
        return
    name = _server(panel, message)
    view.logs[name] = LogReader(name, panel.host, panel.numbers, since)
    view.look()


async def _history(panel: Panel, view: View, message: Message) -> list[Message]:
    limit = message.get("limit")
    limit = min(limit, _MAX_HISTORY) if isinstance(limit, int) and limit > 0 else 100
    panel.host.history.flush()
    entries = await panel.host.history.entries(
        server=glob.escape(text(message, "server")) if message.get("server") is not None else None,
        tool=glob.escape(text(message, "tool")) if message.get("tool") is not None else None,
        failed=message.get("failed") is True,
        limit=limit,
    )
    rows = [
        {
            "id": entry.id,
            "time": entry.time,
            "duration": entry.duration,
            "caller": entry.caller,
            "server": entry.server,
            "tool": entry.tool,
            "sent": entry.sent,
            "received": entry.received,
            "outcome": entry.outcome,
            "error": visible(entry.error),
        }
        for entry in entries
    ]
    return [view.permissions.shown_history(row) for row in rows]


async def _cancel(panel: Panel, view: View, message: Message) -> None:
    number = message.get("call")
    call = panel.host.running.get(number) if isinstance(number, int) else None
    if call is None:
        raise UnknownName(f"no call {number} is running", hint="it may be over")
    call.cancel()


async def _answer(panel: Panel, view: View, message: Message) -> Any:
    return panel.questions.answered(text(message, "question"), message, view.permissions)


def _server(panel: Panel, message: Message) -> str:
    return panel.host.find(text(message, "server")).name


VERBS: dict[str, Act] = {
    "start": _start,
    "stop": _stop,
    "restart": _restart,
    "unload": _unload,
    "start_all": _start_all,
    "stop_all": _stop_all,
    "enable": _enable,
    "disable": _disable,
    "trust": _start,  # a start asks for trust and a login if it needs them
    "login": _start,
    "load": _load,
    "known": _known,
    "memory": _memory,
    "logs": _logs,
    "history": _history,
    "cancel": _cancel,
    "answer": _answer,
    **TOOL_VERBS,
}
