"""What a panel shows, as plain JSON: secrets masked, and what servers wrote made visible. Names stay what they are."""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING, Any

from ipymcp.config.secrecy import masked, masked_args
from ipymcp.notebook.panel.hints import panel_hint
from ipymcp.notebook.panel.messages import finite
from ipymcp.policy.rules import hints
from ipymcp.protocol import wire
from ipymcp.runtime.states import State
from ipymcp.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ipymcp.config.definition import ServerDefinition
    from ipymcp.errors import McpError
    from ipymcp.notebook.panel.messages import Message
    from ipymcp.policy.policy import Policy
    from ipymcp.policy.rules import Decision
    from ipymcp.protocol.client import Client
    from ipymcp.runtime.calls import Call
    from ipymcp.runtime.catalog import ToolEntry
    from ipymcp.runtime.host import Host
    from ipymcp.runtime.server import ServerSession

__all__ = ["call_row", "disabled_tools", "problem", "server_row", "tool_details", "tool_rows", "where"]

_LONGEST_TEXT = 20_000
_LONGEST_ABOUT = 2_000
"""Characters of a description in a list of tools."""
_MOST_FINDINGS = 20
_BADGES: tuple[tuple[str, bool, str, str], ...] = (
    ("readOnlyHint", True, "only reads", "safe"),
    ("readOnlyHint", False, "changes things", "neutral"),
    ("destructiveHint", True, "may destroy", "danger"),
    ("idempotentHint", True, "can be repeated", "neutral"),
    ("openWorldHint", True, "reaches outside", "neutral"),
)


def server_row(session: ServerSession, alias: str, disabled: int, tools_version: int) -> Message:
    """One server.

    Args:
        session: It.
        alias: What a user types for it.
        disabled: How many of its tools are switched off.
        tools_version: Another number after every change of its tools, or of what is decided of them.
    """
    client, definition = session.client, session.definition
    return {
        "name": session.name,
        "alias": alias,
        "state": session.state.value,
        "lazy": session.is_lazy,
        "transport": definition.transport,
        "era": client.era.kind if client else None,
        "version": _version(client),
        "where": where(definition),
        "source": visible(definition.source.file or "this notebook"),
        "since": session.connected_since if client else None,
        "pid": session.pid if client else None,
        "calls": session.calls,
        "tools": len(session.catalog.tools),
        "resources": _count(session, client, "resources"),
        "prompts": _count(session, client, "prompts"),
        "disabled_tools": disabled,
        "tools_version": tools_version,
        "error": _error(session),
        "instructions": _text(client.instructions if client else None),
        "capabilities": sorted(visible(str(name)) for name in client.capabilities) if client else [],
    }


def where(definition: ServerDefinition) -> str:
    """The command line, or the address, of a server."""
    if definition.url is not None:
        return visible(masked(definition.url))
    return visible(shlex.join([definition.command or "", *masked_args(definition.args)]))


def problem(error: McpError) -> Message:
    """A fault, and what mends it."""
    hint = panel_hint(error)
    return {"message": visible(error.message), "hint": hint and visible(hint), "type": type(error).__name__}


def call_row(call: Call[Any], where: str) -> Message:
    """One call that runs; `where` it was made: `panel` or `notebook`."""
    progress = call.progress
    shown = None
    if progress is not None:
        message = visible(progress.message[:_LONGEST_ABOUT]) if progress.message else None
        shown = {"progress": finite(progress.progress) or 0, "total": finite(progress.total), "message": message}
    return {
        "id": call.number,
        "server": call.session.name,
        "tool": call.tool,
        "caller": call.options.caller,
        "started": time.time() - (time.monotonic() - call.started),
        "progress": shown,
        "where": where,
    }


def disabled_tools(host: Host, session: ServerSession) -> int:
    """How many of its tools are switched off."""
    filters = host.guard.policy.filters
    if not filters.rules:
        return 0
    return sum(filters.forbidding(entry) is not None for entry in session.catalog.tools.values())


def tool_rows(host: Host, session: ServerSession, entries: Iterable[ToolEntry]) -> list[Message]:
    """Tools of one server, as a list shows them."""
    found: dict[str, list[str]] = {}
    for finding in host.guard.findings.get(session.name, ()):
        found.setdefault(finding.tool, []).append(visible(f"{finding.where}: {finding.what}"))
    return [_tool_row(host, session, one, found.get(f"{one.server}.{one.name}", [])) for one in entries]


def _tool_row(host: Host, session: ServerSession, entry: ToolEntry, findings: list[str]) -> Message:
    policy, definition = host.guard.policy, entry.definition
    known = hints(entry, session.rights)
    if known.get("readOnlyHint") is True:  # what only reads destroys nothing, whatever else is said
        known.pop("destructiveHint", None)
        known.pop("idempotentHint", None)
    badges = [{"text": text, "kind": kind} for key, value, text, kind in _BADGES if known.get(key) is value]
    return {
        "server": entry.server,
        "name": entry.name,
        "alias": entry.alias,
        "title": _text(definition.title, _LONGEST_ABOUT),
        "description": _text(definition.description, _LONGEST_ABOUT),
        "badges": badges,
        "decision": _decision(policy, entry, session),
        "disabled": policy.filters.forbidding(entry) is not None,
        "changed": host.guard.pinning.has_changed(session.rights.digest, entry.name),
        "findings": findings[:_MOST_FINDINGS],
    }


def _decision(policy: Policy, entry: ToolEntry, session: ServerSession) -> Decision:
    """What the policy says of a person's own call; of a tool that is switched off, what it would say."""
    if policy.filters.forbidding(entry) is None:
        return policy.verdict(entry, session.rights, "user").decision
    return policy.rules(entry, session.rights, "user")[-1].decision


def tool_details(host: Host, session: ServerSession, entry: ToolEntry) -> Message:
    """One tool with all of its description, and its schemas."""
    definition = entry.definition
    output = wire.loads(definition.outputSchema) if len(definition.outputSchema) else None
    return {
        **tool_rows(host, session, [entry])[0],
        "description": _text(definition.description),
        "schema": wire.loads(definition.inputSchema),
        "output_schema": output,
    }


def _version(client: Client | None) -> str | None:
    """The server's own version, as it says."""
    version = client.server_info.get("version") if client else None
    return visible(version[:100]) if isinstance(version, str) else None


def _count(session: ServerSession, client: Client | None, kind: str) -> int | None:
    """How many resources (with templates) or prompts it has, as far as it is known; None where it has none to give."""
    catalog = session.catalog
    count = len(catalog.prompts) if kind == "prompts" else len(catalog.resources) + len(catalog.templates)
    return count if count or (client is not None and kind in client.capabilities) else None


def _error(session: ServerSession) -> Message | None:
    """Why it is not what it should be. A call that failed is no fault of the server's state."""
    if session.error is not None:
        return problem(session.error)
    if session.last_error and (session.state.is_troubled or session.state is State.RESTARTING):
        return {"message": visible(session.last_error), "hint": None}
    return None


def _text(text: str | None, longest: int = _LONGEST_TEXT) -> str | None:
    if not text:
        return None
    return visible(text if len(text) <= longest else f"{text[:longest]}…")
