"""Rows of the panel as plain JSON: servers, calls, tools, logs, previews; secrets masked."""

from __future__ import annotations

import json
import re
import shlex
import time
from typing import TYPE_CHECKING, Any, Final

from ipymcp.config.redaction import masked, masked_args
from ipymcp.errors import AuthError, TrustError
from ipymcp.masking import masks
from ipymcp.panel.messages import finite
from ipymcp.protocol import types
from ipymcp.results.content import Embedded, Image, Link
from ipymcp.results.rendering import is_shown_as_text
from ipymcp.runtime.interfaces import State
from ipymcp.security.rules import hints
from ipymcp.text import shown_json, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ipymcp.api.prompts import PromptResult
    from ipymcp.config.definition import ServerDefinition
    from ipymcp.errors import McpError
    from ipymcp.panel.messages import Message
    from ipymcp.protocol.client import Client
    from ipymcp.results.content import Part
    from ipymcp.results.resource_result import ResourceResult
    from ipymcp.results.tool_result import ToolResult
    from ipymcp.runtime.call import Call
    from ipymcp.runtime.catalog import ToolEntry
    from ipymcp.runtime.host import Host
    from ipymcp.runtime.logs import RollingLog
    from ipymcp.runtime.session import ServerSession
    from ipymcp.security.policy import Policy
    from ipymcp.security.rules import Decision


_MAX_LINES = 500
_MAX_CHARACTERS = 100_000
"""Maximum characters of one batch."""
_FLOODED = 0.3
"""Seconds between batches when lines were dropped: no one reads thousands of lines a second."""


class LogNumbers:
    """Line numbers of server logs, which continue when a reloaded server gets a new log."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[RollingLog, int]] = {}

    def first(self, server: str, log: RollingLog) -> int:
        """The number before the first line of a log."""
        known = self._known.get(server)
        if known is None or known[0] is not log:
            known = self._known[server] = log, 0 if known is None else known[1] + known[0].total
        return known[1]


class LogReader:
    """Reader that follows one server's log.

    Args:
        server: The server's name.
        host: The host, which may reload the server.
        numbers: The panel's line numbers.
        since: The number of the last line that the view has; None for all kept lines.
    """

    def __init__(self, server: str, host: Host, numbers: LogNumbers, since: int | None) -> None:
        self._server = server
        self._host = host
        self._numbers = numbers
        self._last = since
        """The number of the last line that was read or dropped."""
        self._not_before = 0.0

    @property
    def has_news(self) -> bool:
        """Whether there are new lines."""
        session = self._host.sessions.get(self._server)
        if session is None or time.monotonic() < self._not_before:
            return False
        return self._last is None or self._numbers.first(self._server, session.log) + session.log.total != self._last

    def read(self) -> Message | None:
        """Return the newest of the new lines, and how many were dropped; None if there are none."""
        session = self._host.sessions.get(self._server)
        if session is None or not self.has_news:
            return None
        log = session.log
        total = self._numbers.first(self._server, log) + log.total
        unread = log.total if self._last is None or self._last > total else total - self._last
        self._last = total
        lines = log.tail(min(unread, _MAX_LINES))
        shown: list[Message] = []
        size = 0
        for number, line in zip(range(total, 0, -1), reversed(lines), strict=False):
            size += len(line.text)
            if size > _MAX_CHARACTERS:
                break
            text = visible(line.text)
            shown.append(
                {"n": number, "time": line.time, "level": visible(line.level), "source": line.source, "text": text}
            )
        dropped = unread - len(shown)
        self._not_before = time.monotonic() + _FLOODED if dropped else 0.0
        return {"lines": shown[::-1], "dropped": dropped} if shown or dropped else None


_MAX_PREVIEW_CHARACTERS = 50_000
_MAX_HTML = 300_000
_MAX_JSON = 100_000
_MAX_IMAGE = 4_000_000
"""Maximum characters of an image, in base64 for binary formats."""
_MAX_LINKS = 100
_IMAGES = ("image/png", "image/jpeg", "image/gif")


def preview(result: ToolResult | ResourceResult, variable: str | None) -> Message:
    """Preview the result of a call or a resource.

    Args:
        result: The result.
        variable: The expression for the result in the notebook.
    """
    bundle = result._repr_mimebundle_()  # pyright: ignore[reportPrivateUsage]
    image = _image(bundle)
    is_text = is_shown_as_text(result)
    html = None if is_text else bundle.get("text/html")
    html = html if html is not None and len(html) <= _MAX_HTML else None
    text = result.text
    data = None if is_text else _small_json(result.data)
    shown = _head(text)
    is_cut = len(text) > _MAX_PREVIEW_CHARACTERS or (
        data is None and not is_text and not isinstance(result.data, str | bytes)
    )
    is_cut |= _has_images(result.content) and image is None and html is None
    size = result.size
    return _preview(shown, html, image, data, _links(result.content), is_cut, size, variable)


def prompt_preview(result: PromptResult, variable: str | None) -> Message:
    """Preview the messages of a prompt; arguments as for `preview`."""
    text = "\n\n".join(f"{message.role}: {message.text}" for message in result.messages)
    html = result._repr_mimebundle_()["text/html"] if _has_images([one.content for one in result.messages]) else None  # pyright: ignore[reportPrivateUsage]
    html = html if html is not None and len(html) <= _MAX_HTML else None
    links = _links([one.content for one in result.messages])
    size = result.size
    return _preview(_head(text), html, None, None, links, len(text) > _MAX_PREVIEW_CHARACTERS, size, variable)


def _preview(
    text: str,
    html: str | None,
    image: Message | None,
    data: Any,
    links: list[Message],
    is_cut: bool,
    size: int,
    variable: str | None,
) -> Message:
    return {
        "text": text or None,
        "html": html,
        "image": image,
        "json": data,
        "links": links,
        "truncated": is_cut,
        "size": size,
        "variable": variable,
    }


def _head(text: str) -> str:
    return visible(masks.head(text, _MAX_PREVIEW_CHARACTERS))


def _image(bundle: dict[str, Any]) -> Message | None:
    """The image of a MIME bundle, unless it is too large."""
    kind = next((kind for kind in _IMAGES if kind in bundle), None)
    if kind is None:
        return None
    data = bundle[kind]
    return {"mime": kind, "data": data} if len(data) <= _MAX_IMAGE else None


def _small_json(data: Any) -> Any:
    """Masked JSON data; None for text and for large data."""
    if isinstance(data, str | bytes):
        return None
    size = 0
    for piece in json.JSONEncoder(default=str).iterencode(data):
        size += len(piece)
        if size > _MAX_JSON:
            return None
    return shown_json(data)


def _has_images(parts: Sequence[Part]) -> bool:
    return any(isinstance(part, Image) or (isinstance(part, Embedded) and part.image is not None) for part in parts)


def _links(parts: Sequence[Part]) -> list[Message]:
    links = [part for part in parts if isinstance(part, Link)][:_MAX_LINKS]
    return [{"uri": visible(link.uri), "name": visible(link.title or link.name or link.uri)} for link in links]


_CLAUSES: Final = re.compile(r"\s+·\s+|;\s+|,\s+or\s+")
_BUTTON: Final = re.compile(
    r"%mcp (start|stop|restart|enable|disable)(?: (?:'(?:[^']|'')*'|\S+))?(?: (?:asks|tries)(?: again)?)?"
)
_TAB: Final = re.compile(r"%mcp (logs|tools|resources|prompts|history)\b.*")
_STATES: Final = re.compile(r"%mcp( shows.*)?")
_WORTHLESS: Final = re.compile(r"\bIPYMCP_\w+=|\.result\b|\btimeout=")
"""Hints that do not apply to a panel, which shows whole results and can ask the user."""
_CODE: Final = re.compile(r"%%?\w|\bmcp\.\w")
_TABS: Final = {"history": "Calls"}


def panel_hint(error: McpError) -> str | None:
    """Reword an error's hint for a panel: a button where there is one, else the code to type."""
    clauses = [_clause(one.strip(), error) for one in _CLAUSES.split(error.hint or "")]
    return "; ".join(dict.fromkeys(filter(None, clauses))) or None


def _clause(text: str, error: McpError) -> str:
    if _WORTHLESS.search(text):
        return ""
    code = text[text.index("%") :] if "%" in text else ""
    before = text[: len(text) - len(code)]
    if (button := _BUTTON.fullmatch(code)) is not None:
        return f"{before}press {_title(button[1], error)}"
    if (tab := _TAB.fullmatch(code)) is not None:
        return f"{before}see {_TABS.get(tab[1], tab[1].capitalize())}"
    if _STATES.fullmatch(code) is not None:
        return f"{before}see Servers"
    return f"in a cell: {text}" if _CODE.search(text) else text


def _title(verb: str, error: McpError) -> str:
    if verb == "start" and isinstance(error, TrustError):
        return "Trust…"
    return "Log in" if verb == "start" and isinstance(error, AuthError) else verb.capitalize()


_MAX_TEXT = 20_000
_MAX_ABOUT = 2_000
"""Maximum characters of a description in a list of tools."""
_MAX_FINDINGS = 20
_BADGES: tuple[tuple[str, bool, str, str], ...] = (
    ("readOnlyHint", True, "only reads", "safe"),
    ("readOnlyHint", False, "changes things", "neutral"),
    ("destructiveHint", True, "may destroy", "danger"),
    ("idempotentHint", True, "can be repeated", "neutral"),
    ("openWorldHint", True, "reaches outside", "neutral"),
)


def server_row(session: ServerSession, alias: str, disabled: int, tools_version: int) -> Message:
    """Row of a server.

    Args:
        session: The server's session.
        alias: The server's name in Python.
        disabled: Number of disabled tools.
        tools_version: Version of the tool list; changes with the tools and with the policy.
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
    """The command line or URL of a server, without secrets."""
    if definition.url is not None:
        return visible(masked(definition.url))
    return visible(shlex.join([definition.command or "", *masked_args(definition.args)]))


def problem(error: McpError) -> Message:
    """An error with its hint."""
    hint = panel_hint(error)
    return {"message": visible(error.message), "hint": hint and visible(hint), "type": type(error).__name__}


def call_row(call: Call[Any], where: str) -> Message:
    """Row of a running call, made in the `panel` or the `notebook` (`where`)."""
    progress = call.progress
    shown = None
    if progress is not None:
        message = visible(progress.message[:_MAX_ABOUT]) if progress.message else None
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
    """Number of disabled tools of a server."""
    filters = host.guard.policy.filters
    if not filters.rules:
        return 0
    return sum(filters.forbidding(entry) is not None for entry in session.catalog.tools.values())


def tool_rows(host: Host, session: ServerSession, entries: Iterable[ToolEntry]) -> list[Message]:
    """Rows of a server's tools."""
    found: dict[str, list[str]] = {}
    for finding in host.guard.findings.get(session.name, ()):
        found.setdefault(finding.tool, []).append(visible(f"{finding.where}: {finding.what}"))
    return [_tool_row(host, session, one, found.get(f"{one.server}.{one.name}", [])) for one in entries]


def _tool_row(host: Host, session: ServerSession, entry: ToolEntry, findings: list[str]) -> Message:
    policy, definition = host.guard.policy, entry.definition
    known = hints(entry, session.rights)
    if known.get("readOnlyHint") is True:  # a read-only tool destroys nothing, whatever its other hints
        known.pop("destructiveHint", None)
        known.pop("idempotentHint", None)
    badges = [{"text": text, "kind": kind} for key, value, text, kind in _BADGES if known.get(key) is value]
    return {
        "server": entry.server,
        "name": entry.name,
        "alias": entry.alias,
        "title": _text(definition.title, _MAX_ABOUT),
        "description": _text(definition.description, _MAX_ABOUT),
        "badges": badges,
        "decision": _decision(policy, entry, session),
        "disabled": policy.filters.forbidding(entry) is not None,
        "changed": host.guard.pinning.has_changed(session.rights.digest, entry.name),
        "findings": findings[:_MAX_FINDINGS],
    }


def _decision(policy: Policy, entry: ToolEntry, session: ServerSession) -> Decision:
    """The policy's decision about a user's own call, as if the tool were enabled."""
    if policy.filters.forbidding(entry) is None:
        return policy.verdict(entry, session.rights, "user").decision
    return policy.rules(entry, session.rights, "user")[-1].decision


def tool_details(host: Host, session: ServerSession, entry: ToolEntry) -> Message:
    """Row of a tool with its full description and its schemas."""
    definition = entry.definition
    output = types.loads(definition.outputSchema) if len(definition.outputSchema) else None
    return {
        **tool_rows(host, session, [entry])[0],
        "description": _text(definition.description),
        "schema": types.loads(definition.inputSchema),
        "output_schema": output,
    }


def _version(client: Client | None) -> str | None:
    version = client.server_info.get("version") if client else None
    return visible(version[:100]) if isinstance(version, str) else None


def _count(session: ServerSession, client: Client | None, kind: str) -> int | None:
    """Known number of resources (with templates) or prompts; None if the server does not offer them."""
    catalog = session.catalog
    count = len(catalog.prompts) if kind == "prompts" else len(catalog.resources) + len(catalog.templates)
    return count if count or (client is not None and kind in client.capabilities) else None


def _error(session: ServerSession) -> Message | None:
    """The error behind the server's state; the failure of a call is not one."""
    if session.error is not None:
        return problem(session.error)
    if session.last_error and (session.state.is_troubled or session.state is State.RESTARTING):
        return {"message": visible(session.last_error), "hint": None}
    return None


def _text(text: str | None, longest: int = _MAX_TEXT) -> str | None:
    if not text:
        return None
    return visible(text if len(text) <= longest else f"{text[:longest]}…")
