"""Resources and prompts in the panel."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from ipymcp.api.resources import Resource, expand, prompt, template_schema
from ipymcp.errors import CallError, McpError, UnknownName
from ipymcp.names import nearest
from ipymcp.panel.logs import Reader
from ipymcp.panel.messages import JsonObject, Malformed, Problem, ServerFields, Text, ToView, shown_text, sound
from ipymcp.panel.panel import Panel, View, command
from ipymcp.panel.results import Preview, keep_result, preview, prompt_preview
from ipymcp.panel.servers import ready_session
from ipymcp.runtime.resources import announces_changes
from ipymcp.text import quoted, visible

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipymcp.api.resources import Subscription
    from ipymcp.protocol.types import TemplateDefinition
    from ipymcp.runtime.host import Host
    from ipymcp.runtime.session import ServerSession


class ReadFields(ServerFields):
    """A resource to read: a URI, or a template with its arguments."""

    uri: Text | None = None
    template: Text | None = None
    arguments: JsonObject = {}
    again: bool = False
    """Whether a change of a subscribed resource is read: it does not take a place in `mcp.results`."""


class SubscribeFields(ServerFields):
    """A command to start or end the subscription to a resource."""

    uri: Text
    on: bool
    """Whether to start."""


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
    subscribable: bool = False
    """Whether the server announces changes of its resources."""


class PromptRow(OfferRow):
    """A prompt."""

    arguments: list[StringParameter]


class ResourceUpdate(ToView, tag_field="kind", tag="resource"):
    """The subscription of the view to a resource has begun or ended, or the resource has changed."""

    server: str
    uri: str
    updates: int | None
    """The number of changes so far; None after the end, also if the server was unloaded."""
    problem: Problem | None = None
    """The error of reading the new content, which `read` returns otherwise."""


class ResourceReader(Reader):
    """Reader of the changes of a subscribed resource.

    Args:
        host: The host, which may unload the server.
        subscription: The subscription.
        problem: Describes an error to the view.
    """

    def __init__(self, host: Host, subscription: Subscription, problem: Callable[[Exception], Problem]) -> None:
        self.subscription = subscription
        self._host = host
        self._problem = problem
        self._sent: object = ()

    @property
    def has_news(self) -> bool:
        """Whether the view does not know the state of the subscription."""
        return self._state() != self._sent

    def _state(self) -> tuple[int, McpError | None] | None:
        """The number of changes and the current error; None if the server was unloaded."""
        subscription = self.subscription
        return (subscription.updated, subscription.error) if subscription.server in self._host.sessions else None

    def read(self) -> ResourceUpdate | None:
        """Return one update for all changes since the last one; None if there were none."""
        if not self.has_news:
            return None
        self._sent = state = self._state()
        updates, error = state or (None, None)
        of = {"server": self.subscription.server, "uri": self.subscription.uri}
        return ResourceUpdate(**of, updates=updates, problem=error and self._problem(error))

    def close(self) -> None:
        """End the subscription."""
        self.subscription.close()


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
    subscribable = session.client is not None and announces_changes(session.client)
    return ResourceRows(resources=resources, templates=templates, subscribable=subscribable)


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
    reader = view.readers.get(_reader_key(session.name, uri))
    if message.again and isinstance(reader, ResourceReader):
        return await asyncio.to_thread(preview, reader.subscription.value, None)
    result = await Resource(panel.host, session.name, uri).read.aio()
    return await keep_result(panel, view, panel.host.calls.next_number(), result, preview)


@command("subscribe")
async def _subscribe(panel: Panel, view: View, message: SubscribeFields) -> None:
    if not message.on:
        view.close_readers(lambda key: key == _reader_key(message.server, message.uri))
        view.send(ResourceUpdate(server=message.server, uri=message.uri, updates=None))
        return
    session = await ready_session(panel, view, message)
    key = _reader_key(session.name, message.uri)
    if sum(verb == "subscribe" for verb, _ in view.readers) >= _MAX_SUBSCRIPTIONS:
        raise CallError(f"this panel is subscribed to {_MAX_SUBSCRIPTIONS} resources", hint="unsubscribe from some")
    subscription = await Resource(panel.host, session.name, message.uri).subscribe.aio()
    view.close_readers(lambda other: other == key)
    view.readers[key] = ResourceReader(panel.host, subscription, view.problem)
    view.wake_if_changed()


_MAX_SUBSCRIPTIONS = 100
"""Maximum subscriptions of one view."""


def _reader_key(server: str, uri: str) -> tuple[str, str]:
    return "subscribe", f"{server}\n{uri}"


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
