"""The catalog of one server: an immutable snapshot with lookup by name and by alias."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from ipymcp.names import RESERVED_PROMPTS, RESERVED_SERVER, aliases
from ipymcp.protocol.apps import read_tool_app

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ipymcp.protocol.apps import ToolApp
    from ipymcp.protocol.types import PromptDefinition, ResourceDefinition, TemplateDefinition, ToolDefinition


T = TypeVar("T")
Warn = Callable[[str], None]


class ToolEntry(Struct, frozen=True, gc=False):
    """One tool: its exact name, its alias, which is a Python identifier, and the server's definition."""

    server: str
    name: str
    alias: str
    definition: ToolDefinition

    @property
    def first_line(self) -> str:
        """The first line of its description, for listings."""
        text = (self.definition.description or self.definition.title or "").strip()
        return text.split("\n", 1)[0]

    @property
    def app(self) -> ToolApp:
        """The tool's interactive page and the callers that it is for (MCP Apps)."""
        return read_tool_app(self.definition.meta)

    @property
    def is_for_apps_only(self) -> bool:
        """Whether only apps are to call the tool, so that lists leave it out; a person can still call it by name."""
        return bool(len(self.definition.meta)) and not self.app.is_for_models


class PromptEntry(Struct, frozen=True, gc=False):
    """One prompt: its alias, which is a Python identifier, and the server's definition."""

    server: str
    alias: str
    definition: PromptDefinition

    @property
    def name(self) -> str:
        """The exact name."""
        return self.definition.name


class Catalog(Struct, frozen=True):
    """The tools, resources and prompts of one server. Tools are known while it runs, the rest after their first use.

    Attributes:
        tools: By exact name, in the server's order.
        aliases: The tools by alias.
        resources: By URI, in the server's order.
        templates: By URI template.
        prompts: By exact name.
        prompt_aliases: The prompts by alias.
    """

    tools: Mapping[str, ToolEntry] = {}
    aliases: Mapping[str, ToolEntry] = {}
    resources: Mapping[str, ResourceDefinition] = {}
    templates: Mapping[str, TemplateDefinition] = {}
    prompts: Mapping[str, PromptEntry] = {}
    prompt_aliases: Mapping[str, PromptEntry] = {}

    def find(self, name: str) -> ToolEntry | None:
        """A tool by its exact name, else by its alias."""
        return self.tools.get(name) or self.aliases.get(name)

    def for_people(self) -> list[ToolEntry]:
        """The tools except those that only apps are to call, which can still be called by name."""
        return [one for one in self.tools.values() if not one.is_for_apps_only]

    def find_prompt(self, name: str) -> PromptEntry | None:
        """A prompt by its exact name, else by its alias."""
        return self.prompts.get(name) or self.prompt_aliases.get(name)

    def with_tools(self, server: str, found: Iterable[ToolDefinition], warn: Warn) -> Catalog:
        """Copy the catalog with other tools. Of tools with the same name the first is kept; `warn` is called."""
        first = _by_name(found, lambda tool: tool.name, "tool", warn)
        typed = aliases(first, RESERVED_SERVER)
        tools = {name: ToolEntry(server, name, typed[name], definition) for name, definition in first.items()}
        return replace(self, tools=tools, aliases={entry.alias: entry for entry in tools.values()})

    def with_resources(self, found: Iterable[ResourceDefinition], warn: Warn) -> Catalog:
        """Copy the catalog with other resources."""
        return replace(self, resources=_by_name(found, lambda resource: resource.uri, "resource", warn))

    def with_templates(self, found: Iterable[TemplateDefinition], warn: Warn) -> Catalog:
        """Copy the catalog with other templates."""
        return replace(self, templates=_by_name(found, lambda template: template.uriTemplate, "template", warn))

    def with_prompts(self, server: str, found: Iterable[PromptDefinition], warn: Warn) -> Catalog:
        """Copy the catalog with other prompts."""
        first = _by_name(found, lambda prompt: prompt.name, "prompt", warn)
        typed = aliases(first, RESERVED_PROMPTS)
        prompts = {name: PromptEntry(server, typed[name], definition) for name, definition in first.items()}
        return replace(self, prompts=prompts, prompt_aliases={entry.alias: entry for entry in prompts.values()})

    def filled(self, other: Catalog) -> Catalog:
        """Copy the catalog; lists that are empty in it are those of another catalog."""
        own = {name: value for name in Catalog.__struct_fields__ if (value := getattr(self, name))}
        return replace(other, **own)


EMPTY = Catalog()


def remembered(server: str, definitions: Mapping[str, Iterable[Any]]) -> Catalog:
    """The catalog of a server's last run, from its stored definitions. Faults in them were logged then."""
    catalog = EMPTY.with_tools(server, definitions.get("tools", ()), _silently)
    catalog = catalog.with_resources(definitions.get("resources", ()), _silently)
    catalog = catalog.with_templates(definitions.get("templates", ()), _silently)
    return catalog.with_prompts(server, definitions.get("prompts", ()), _silently)


def _by_name(found: Iterable[T], name_of: Callable[[T], str], kind: str, warn: Warn) -> dict[str, T]:
    first: dict[str, T] = {}
    for definition in found:
        name = name_of(definition)
        if name in first:
            warn(f"two {kind}s are named {name!r}; the first is used")
        else:
            first[name] = definition
    return first


def _silently(text: str) -> None: ...
