"""What a view may ask of tools, resources and prompts. A panel's call is the user's own call, made the usual way."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ipymcp.errors import McpError, PolicyError, UnknownName
from ipymcp.notebook.panel.code import magic, python
from ipymcp.notebook.panel.messages import Malformed, Message, sound, text
from ipymcp.notebook.panel.preview import preview, prompt_preview
from ipymcp.notebook.panel.state import problem, tool_details, tool_rows
from ipymcp.protocol.jsontypes import is_object
from ipymcp.runtime.names import nearest
from ipymcp.text import quoted, visible
from ipymcp.tools.prompts import prompt
from ipymcp.tools.resources import Resource
from ipymcp.tools.templates import expand, template_schema

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from ipymcp.notebook.panel.panel import Panel
    from ipymcp.notebook.panel.view import View
    from ipymcp.protocol.wire import TemplateDefinition
    from ipymcp.runtime.calls import Call
    from ipymcp.runtime.catalog import ToolEntry
    from ipymcp.runtime.server import ServerSession
    from ipymcp.tools.prompts import PromptResult
    from ipymcp.tools.readings import ResourceResult
    from ipymcp.tools.results import ToolResult

    Value: TypeAlias = ToolResult | ResourceResult | PromptResult

__all__ = ["TOOL_VERBS"]


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
    complaints = await asyncio.to_thread(panel.mcp._factory.schema(entry).complaints, arguments)
    return {"errors": [{"path": [*one.path], "message": visible(one.problem)} for one in complaints]}


async def _call(panel: Panel, view: View, message: Message) -> Message:
    session = panel.host.find(text(message, "server"))
    if session.client is None:
        await _wake(session, panel, view)
    _, entry = _entry(panel, message)
    factory, arguments = panel.mcp._factory, _arguments(message)
    checked = await asyncio.to_thread(factory.schema(entry).check, arguments)
    call = factory.tool(entry)._new_call(session, entry, checked)
    panel.calls[call.number] = call
    panel.spawn(_follow(panel, view, call))
    return {"call": call.number}


async def _follow(panel: Panel, view: View, call: Call[ToolResult]) -> None:
    """Make a call, and tell the view how it ended."""
    try:
        await call.over()
        shown = await _kept(panel, view, call.number, await asyncio.to_thread(call.result), preview)
        view.say({"kind": "result", "call": call.number, "ok": True, "preview": shown})
    except McpError as error:
        view.say(
            {"kind": "result", "call": call.number, "ok": False, "error": problem(view.permissions.shown_error(error))}
        )
    except Exception as error:  # a fault of ours must not leave the view waiting
        fault = problem(view.permissions.shown_error(McpError(f"a fault of ipymcp: {error!r}")))
        view.say({"kind": "result", "call": call.number, "ok": False, "error": fault})
    finally:
        panel.calls.pop(call.number, None)


async def _kept(
    panel: Panel, view: View, number: int, value: Value, show: Callable[[Any, str | None], Message]
) -> Message:
    """Keep a value in the kernel, and give what is shown of it."""
    panel.mcp.results.keep(number, value, memoryview(value._raw).nbytes)
    namespace = "" if view.permissions.is_visitor else panel.surroundings.namespace()
    return await asyncio.to_thread(show, value, f"{namespace}.results[{number}]" if namespace else None)


async def _wake(session: ServerSession, panel: Panel, view: View) -> None:
    """Wait until a server can be used; a lazy one is started.

    Raises:
        PolicyError: Somebody has to agree first that the server runs, and the view may not.
    """
    is_limited = not view.permissions.may_answer("trust")
    if session.is_lazy and is_limited and not await panel.host.guard.trust.allows(session.definition):
        raise PolicyError("needs an agreement that this panel may not give", server=session.name)
    await session.awake()


async def _code(panel: Panel, view: View, message: Message) -> Message:
    _, entry = _entry(panel, message)
    arguments, form, schema = _arguments(message), message.get("form"), panel.mcp._factory.schema(entry)
    if form == "python":
        return {"text": python(panel.host, entry, schema, arguments, panel.surroundings.namespace())}
    if form == "magic":
        return {"text": magic(panel.host, entry, schema, arguments)}
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
    """The address that a template of a server comes to (RFC 6570)."""
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
    return sound(arguments)  # 1e999 is infinite to Python, and nothing that can be sent


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
