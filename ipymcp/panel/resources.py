"""Resources and prompts in the panel."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from ipymcp.api.resources import Resource, expand, prompt, template_schema
from ipymcp.errors import McpError, UnknownName
from ipymcp.names import nearest
from ipymcp.panel.messages import JsonObject, Malformed, ServerFields, Text, ToView, shown_text, sound
from ipymcp.panel.panel import Panel, View, command
from ipymcp.panel.results import Preview, keep_result, preview, prompt_preview
from ipymcp.panel.servers import ready_session
from ipymcp.text import quoted, visible

if TYPE_CHECKING:
    from ipymcp.protocol.types import TemplateDefinition
    from ipymcp.runtime.session import ServerSession


class ReadFields(ServerFields):
    """A resource to read: a URI, or a template with its arguments."""

    uri: Text | None = None
    template: Text | None = None
    arguments: JsonObject = {}


class PromptFields(ServerFields):
    """A prompt to get."""

    prompt: Text
    arguments: JsonObject = {}


class SuggestFields(ServerFields, kw_only=True):
    """An argument of a prompt or a parameter of a template that is being typed."""

    prompt: Text | None = None
    template: Text | None = None
    argument: Text
    typed: Annotated[str, Meta(max_length=10_000)] = ""
    others: dict[str, str] = {}
    """The values of the other arguments."""


class StringParameter(ToView):
    """A parameter of a resource template or a prompt."""

    name: str
    description: str | None = None
    required: bool = False


class OfferRow(ToView, kw_only=True):
    """The common fields of resources, templates and prompts."""

    name: str
    title: str | None = None
    description: str | None = None
    has_icon: bool = False


class ResourceRow(OfferRow):
    """A resource."""

    uri: str
    mime: str | None = None
    size: float | None = None


class TemplateRow(OfferRow):
    """A resource template (RFC 6570)."""

    template: str
    parameters: list[StringParameter]


class ResourceRows(ToView):
    """The resources and templates of a server."""

    resources: list[ResourceRow]
    templates: list[TemplateRow]


class PromptRow(OfferRow):
    """A prompt."""

    arguments: list[StringParameter]


@command("resources")
async def _resources(panel: Panel, view: View, message: ServerFields) -> ResourceRows:
    session = await ready_session(panel, view, message)
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


def _names(definition: Any) -> dict[str, Any]:
    return {
        "name": visible(definition.name),
        "title": shown_text(definition.title),
        "description": shown_text(definition.description),
        "has_icon": len(definition.icons) > 0,
    }


def _parameters(server: str, definition: TemplateDefinition) -> list[StringParameter]:
    parameters = template_schema(server, definition).parameters
    return [StringParameter(name=each.name, required=each.required) for each in parameters]


@command("read")
async def _read(panel: Panel, view: View, message: ReadFields) -> Preview:
    session = await ready_session(panel, view, message)
    uri = message.uri
    if message.template is not None:
        uri = await _expand_template(session, message.template, sound(message.arguments))
    if uri is None:
        raise Malformed("'read' needs 'uri' or 'template'")
    result = await Resource(panel.host, session.name, uri).read.aio()
    return await keep_result(panel, view, panel.host.calls.next_number(), result, preview)


async def _expand_template(session: ServerSession, written: str, arguments: dict[str, Any]) -> str:
    """Expand a resource template (RFC 6570)."""
    catalog = await session.resources.refresh("templates")
    definition = next((one for one in catalog.templates.values() if one.uriTemplate == written), None)
    if definition is None:
        raise UnknownName(f"there is no template {written!r}", server=session.name)
    schema = template_schema(session.name, definition)
    return expand(definition, schema.check(arguments))


@command("prompts")
async def _prompts(panel: Panel, view: View, message: ServerFields) -> list[PromptRow]:
    session = await ready_session(panel, view, message)
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


@command("prompt")
async def _prompt(panel: Panel, view: View, message: PromptFields) -> Preview:
    session = await ready_session(panel, view, message)
    name = message.prompt
    entry = session.catalog.find_prompt(name) or (await session.resources.refresh("prompts")).find_prompt(name)
    if entry is None:
        hint = nearest(name, session.catalog.prompts) or f"%mcp prompts {quoted(session.name)}"
        raise UnknownName(f"there is no prompt {name!r}", server=session.name, hint=hint)
    result = await prompt(panel.host, entry).aio(**sound(message.arguments))
    return await keep_result(panel, view, panel.host.calls.next_number(), result, prompt_preview)


_SUGGEST_TIMEOUT = 2.0
"""Seconds for the server's suggestions: later ones would not match the text that the user has typed by then."""
_MAX_SUGGESTIONS = 100
_MAX_SUGGESTION = 1_000
"""Maximum characters; longer suggestions, and those with hidden characters or line breaks, are dropped."""


@command("suggest")
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
