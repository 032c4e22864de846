"""Tools in the panel: their rows, and switching them on and off."""

from __future__ import annotations

import asyncio
import glob
from typing import TYPE_CHECKING, Annotated, Final, Literal

from msgspec import Meta
from msgspec.structs import replace

from ipymcp.panel.messages import MAX_ABOUT, FromView, JsonObject, ServerFields, Text, ToView, shown_text
from ipymcp.panel.panel import Panel, View, command
from ipymcp.protocol import types
from ipymcp.security.rules import Decision, hints
from ipymcp.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ipymcp.runtime.catalog import ToolEntry
    from ipymcp.runtime.host import Host
    from ipymcp.runtime.session import ServerSession
    from ipymcp.security.policy import Policy


class AnyServerFields(FromView):
    """A command to one server or to all."""

    server: Text | None = None


class ToolFields(ServerFields):
    """A command about a tool."""

    tool: Text


class SwitchFields(FromView):
    """Tools to enable or disable."""

    tools: Annotated[list[ToolFields], Meta(min_length=1, max_length=10_000)]


class Badge(ToView):
    """A property of a tool."""

    text: str
    kind: Literal["safe", "danger", "neutral"]


class ToolRow(ToView, omit_defaults=True):
    """A tool. Only the command `tool` returns the schemas."""

    server: str
    name: str
    alias: str
    title: str | None
    description: str | None
    badges: list[Badge]
    decision: Decision
    disabled: bool
    changed: bool
    findings: list[str]
    has_icon: bool = False
    schema: JsonObject | None = None
    output_schema: JsonObject | None = None


_MAX_FINDINGS = 20
_BADGES: Final = (
    ("readOnlyHint", True, Badge(text="read-only", kind="safe")),
    ("readOnlyHint", False, Badge(text="writes", kind="neutral")),
    ("destructiveHint", True, Badge(text="destructive", kind="danger")),
    ("idempotentHint", True, Badge(text="idempotent", kind="neutral")),
    ("openWorldHint", True, Badge(text="open world", kind="neutral")),
)


def disabled_tools(host: Host, session: ServerSession) -> int:
    """Number of disabled tools of a server."""
    filters = host.guard.policy.filters
    if not filters.rules:
        return 0
    return sum(filters.forbidding(entry) is not None for entry in session.catalog.tools.values())


def tool_rows(host: Host, session: ServerSession, entries: Iterable[ToolEntry]) -> list[ToolRow]:
    """Rows of a server's tools."""
    found: dict[str, list[str]] = {}
    for finding in host.guard.findings.get(session.name, ()):
        found.setdefault(finding.tool, []).append(visible(f"{finding.where}: {finding.what}"))
    return [_tool_row(host, session, one, found.get(f"{one.server}.{one.name}", [])) for one in entries]


def _tool_row(host: Host, session: ServerSession, entry: ToolEntry, findings: list[str]) -> ToolRow:
    policy, definition = host.guard.policy, entry.definition
    known = hints(entry, session.rights)
    if known.get("readOnlyHint") is True:  # a read-only tool destroys nothing, whatever its other hints
        known.pop("destructiveHint", None)
        known.pop("idempotentHint", None)
    return ToolRow(
        server=entry.server,
        name=entry.name,
        alias=entry.alias,
        title=shown_text(definition.title, MAX_ABOUT),
        description=shown_text(definition.description, MAX_ABOUT),
        badges=[badge for hint, value, badge in _BADGES if known.get(hint) is value],
        decision=_decision(policy, entry, session),
        disabled=policy.filters.forbidding(entry) is not None,
        changed=host.guard.pinning.has_changed(session.rights.digest, entry.name),
        findings=findings[:_MAX_FINDINGS],
        has_icon=len(definition.icons) > 0,
    )


def _decision(policy: Policy, entry: ToolEntry, session: ServerSession) -> Decision:
    """The policy's decision about a user's own call, as if the tool were enabled."""
    if policy.filters.forbidding(entry) is None:
        return policy.verdict(entry, session.rights, "user").decision
    return policy.rules(entry, session.rights, "user")[-1].decision


def tool_details(host: Host, session: ServerSession, entry: ToolEntry) -> ToolRow:
    """Row of a tool with its full description and its schemas."""
    definition = entry.definition
    [row] = tool_rows(host, session, [entry])
    return replace(
        row,
        description=shown_text(definition.description),
        schema=types.loads(definition.inputSchema),
        output_schema=types.loads(definition.outputSchema) if len(definition.outputSchema) else None,
    )


def find_tool(panel: Panel, message: ToolFields) -> tuple[ServerSession, ToolEntry]:
    """Find a tool and its server."""
    session = panel.host.find(message.server)
    return session, panel.host.entry(session, message.tool)


@command("tools")
async def _tools(panel: Panel, view: View, message: AnyServerFields) -> list[ToolRow]:
    host = panel.host
    sessions = [*host.sessions.values()] if message.server is None else [host.find(message.server)]

    def rows() -> list[ToolRow]:
        return [row for one in sessions for row in tool_rows(host, one, one.catalog.tools.values())]

    return await asyncio.to_thread(rows)


@command("tool")
async def _tool(panel: Panel, view: View, message: ToolFields) -> ToolRow:
    session, entry = find_tool(panel, message)
    return await asyncio.to_thread(tool_details, panel.host, session, entry)


@command("enable_tools")
async def _enable_tools(panel: Panel, view: View, message: SwitchFields) -> None:
    _switch(panel, message, on=True)


@command("disable_tools")
async def _disable_tools(panel: Panel, view: View, message: SwitchFields) -> None:
    _switch(panel, message, on=False)


def _switch(panel: Panel, message: SwitchFields, *, on: bool) -> None:
    """Enable or disable tools; none is changed if one is unknown."""
    entries = [find_tool(panel, one)[1] for one in message.tools]
    patterns = [glob.escape(f"{entry.server}.{entry.name}") for entry in entries]
    panel.host.guard.policy.filters.set(*patterns, allowed=on)
