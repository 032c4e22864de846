"""Tab for resources, templates and prompts: their names, their arguments, and the values that the server suggests.

A server is waited for a second at most; what it does not say in that time is not offered.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from ipymcp.errors import McpError
from ipymcp.tools.looking import look_quickly
from ipymcp.tools.prompts import Prompt, PromptResult, Prompts, prompt_schema
from ipymcp.tools.readings import ResourceResult
from ipymcp.tools.resources import Resource, Resources
from ipymcp.tools.templates import Template, template_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ipymcp.notebook.attribute_context import AttributeContext, Step
    from ipymcp.notebook.context import LineContext
    from ipymcp.runtime.server import ServerSession
    from ipymcp.tools.face import Mcp
    from ipymcp.tools.schema import Parameter, ToolSchema

__all__ = ["in_code", "on_line"]

_PATIENCE = 1.0


def on_line(context: LineContext, mcp: Mcp) -> tuple[Iterable[str], str]:
    """What may stand at the cursor of `%mcp read|subscribe|prompt`, and its kind for IPython."""
    if context.kind == "prompt":
        return _prompt_paths(context.partial, mcp), "function"
    if context.subcommand == "prompt":
        try:
            session, name = mcp._host.resolve(context.tool)
        except McpError:
            return (), "param"
        named = _Named.prompt(mcp, session, name)
    else:
        session = _session(context.server, mcp)
        if session is None:
            return (), "param"
        if context.kind == "resource":
            return Resources(mcp._host, session.name)._ipython_key_completions_(), "path"
        named = _Named.template(mcp, session, context.tool)
    if named is None:
        return (), "param"
    if context.kind == "argument":
        return (each.name for each in named.schema.parameters if each.name not in context.given), "param"
    return named.suggestions(context.argument, context.partial, dict(context.values)), "value"


def in_code(context: AttributeContext, mcp: Mcp, session: ServerSession) -> tuple[Iterable[str], str]:
    """The same after `mcp.SERVER.resources` and `mcp.SERVER.prompts` in Python code."""
    word, *steps = context.path[1:]
    if context.kind in ("argument", "value"):
        return _in_call(context, steps, mcp, session, is_prompt=word.name == "prompts")
    if context.kind == "key":
        of: type[Resources | Prompts] = Prompts if word.name == "prompts" else Resources
        keys = of(mcp._host, session.name)._ipython_key_completions_() if not steps else []
        return keys, "function" if of is Prompts else "path"
    if word.name == "prompts":
        if not steps:
            return dir(Prompts(mcp._host, session.name)), "function"
        return _words_of(PromptResult if steps[-1].called else Prompt), "property"
    return _words_of(_kind_after(steps)), "property"


def _kind_after(steps: Sequence[Step]) -> type[object]:
    if not steps:
        return Resources
    if steps[-1].called:
        return Resource if steps[-1].item else ResourceResult
    return Template if "{" in steps[0].name else Resource


def _in_call(
    context: AttributeContext, steps: Sequence[Step], mcp: Mcp, session: ServerSession, *, is_prompt: bool
) -> tuple[Iterable[str], str]:
    is_aio = len(steps) == 2 and is_prompt and steps[1].name == "aio" and not steps[1].item
    if len(steps) != 1 and not is_aio:
        return (), "param"
    named = (_Named.prompt if is_prompt else _Named.template)(mcp, session, steps[0].name)
    if named is None:
        return (), "param"
    parameters = named.schema.parameters
    required = [each.alias for each in parameters if each.required]
    filled = set(required[: context.positional])
    if context.kind == "argument":
        free = [each.alias for each in parameters if each.alias not in context.given and each.alias not in filled]
        return (f"{name}=" for name in free), "param"
    argument = context.argument or (required[context.positional] if context.positional < len(required) else "")
    others = {
        key if isinstance(key, str) else required[key]: text
        for key, text in context.literals
        if isinstance(key, str) or key < len(required)
    }
    found = named.suggestions(argument, context.partial if context.quote else "", others)
    return found, "value"


class _Named:
    """A prompt or template that is being called."""

    def __init__(self, mcp: Mcp, session: ServerSession, schema: ToolSchema, reference: Mapping[str, str]) -> None:
        self._mcp = mcp
        self._session = session
        self._reference = reference
        self.schema = schema

    @classmethod
    def prompt(cls, mcp: Mcp, session: ServerSession, name: str) -> _Named | None:
        entry = session.catalog.find_prompt(name) or look_quickly(mcp._host, session, "prompts").find_prompt(name)
        return entry and cls(mcp, session, prompt_schema(entry), {"type": "ref/prompt", "name": entry.name})

    @classmethod
    def template(cls, mcp: Mcp, session: ServerSession, uri: str) -> _Named | None:
        found = session.catalog.templates.get(uri) or look_quickly(mcp._host, session, "templates").templates.get(uri)
        if found is None:
            return None
        return cls(mcp, session, template_schema(session.name, found), {"type": "ref/resource", "uri": uri})

    def suggestions(self, argument: str, typed: str, others: Mapping[str, str]) -> list[str]:
        """What the server suggests for an argument, by its name or alias."""
        parameter = self._parameter(argument)
        if parameter is None or self._session.client is None:
            return []
        exact = {found.name: value for name, value in others.items() if (found := self._parameter(name))}
        return self._mcp._host.loop.run(self._ask(parameter.name, typed, exact))

    def _parameter(self, name: str) -> Parameter | None:
        return next((each for each in self.schema.parameters if name in (each.name, each.alias)), None)

    async def _ask(self, argument: str, typed: str, others: Mapping[str, str]) -> list[str]:
        with contextlib.suppress(McpError, TimeoutError):
            async with asyncio.timeout(_PATIENCE):  # of the whole wait: a server may be slow to read, too
                return await self._session.offers.suggestions(
                    self._reference, argument, typed, others, timeout=_PATIENCE
                )
        return []


def _prompt_paths(partial: str, mcp: Mcp) -> Iterable[str]:
    for name, session in mcp._host.sessions.items():
        if not partial.startswith(f"{name}."):
            yield f"{name}."
        else:
            yield from (f"{name}.{prompt}" for prompt in look_quickly(mcp._host, session, "prompts").prompts)


def _session(name: str, mcp: Mcp) -> ServerSession | None:
    try:
        return mcp._host.find(name)
    except McpError:
        return None


def _words_of(kind: type[object]) -> list[str]:
    return [word for word in dir(kind) if not word.startswith("_")]
