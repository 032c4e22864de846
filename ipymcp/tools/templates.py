"""Resource templates: a resource for each set of parameters.

Source: MCP 2026-07-28, server/resources; RFC 6570, which `uritemplate` implements.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ipymcp.runtime.checked import MAPPING, checked
from ipymcp.text import one_line
from ipymcp.tools.arguments import Argument, callable_class, named, schema_of
from ipymcp.tools.live import Live
from ipymcp.tools.resources import Resource

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ipymcp.protocol.wire import TemplateDefinition
    from ipymcp.runtime.host import Host
    from ipymcp.tools.schema import ToolSchema

__all__ = ["Template", "expand", "template", "template_schema"]

_OPTIONAL = ("?", "&", "#", ";")
"""Expressions that leave nothing behind where their parameters are not given."""


class Template(Live):
    """A template of resources: called with its parameters it is a resource, `.read()` and `.subscribe()` and all."""

    def __init__(self, host: Host, server: str, definition: TemplateDefinition, schema: ToolSchema) -> None:
        self._host = host
        self._server = server
        self._definition = definition
        self._schema = schema

    def __call__(self, /, *args: Any, **kwargs: Any) -> Resource:
        """The resource of these parameters. Nothing is read yet.

        Raises:
            ArgumentError: One is missing, or there is none of that name.
        """
        return self.resource(named(self._schema, args, kwargs))

    @checked(parameters=MAPPING)
    def resource(self, parameters: Mapping[str, Any]) -> Resource:
        """The resource of parameters that are ready, by their exact names."""
        return Resource(self._host, self._server, expand(self._definition, parameters))

    @property
    def server(self) -> str:
        """The server's name."""
        return self._server

    @property
    def uri_template(self) -> str:
        """The template as the server wrote it."""
        return self._definition.uriTemplate

    @property
    def name(self) -> str:
        """What the server calls it."""
        return self._definition.name

    @property
    def description(self) -> str:
        """What the server says of it."""
        return self._definition.description or ""

    @property
    def mime_type(self) -> str:
        """The MIME type of all its resources, where they have one in common."""
        return self._definition.mimeType or ""

    def __repr__(self) -> str:
        words = (self._definition.title or self.name, self.mime_type)
        about = " · ".join(word for word in words if word)
        return one_line(f"Template {self._server} {self.uri_template}" + (f" ({about})" if about else ""))


def template(host: Host, server: str, definition: TemplateDefinition) -> Template:
    """The template as the user gets it, with a signature and a docstring of its own."""
    schema = template_schema(server, definition)
    kind = callable_class(
        Template,
        schema,
        alias="Template",
        kind="Resource template",
        gives="Resource",
        title=definition.title or definition.name,
        description=definition.description,
    )
    return kind(host, server, definition, schema)


def expand(definition: TemplateDefinition, parameters: Mapping[str, Any]) -> str:
    """The address that a template comes to with these parameters, by their exact names (RFC 6570)."""
    return _parsed(definition.uriTemplate).expand(dict(parameters))


def template_schema(server: str, definition: TemplateDefinition) -> ToolSchema:
    """The parameters of a template."""
    arguments: dict[str, Argument] = {}
    for expression in _parsed(definition.uriTemplate).variables:
        required = not expression.original.startswith(_OPTIONAL)
        for name, options in expression.variables:
            arguments.setdefault(name, Argument(name, required, takes_many=bool(options.get("explode"))))
    return schema_of(arguments.values(), server=server, owner=definition.uriTemplate)


def _parsed(text: str) -> Any:
    return importlib.import_module("uritemplate").URITemplate(text)
