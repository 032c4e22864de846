"""Rows of the panel: servers, calls, tools, logs, previews; secrets masked."""

from __future__ import annotations

import json
import os
import re
import shlex
import time
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from msgspec.structs import replace

from ipymcp.config.redaction import masked, masked_args
from ipymcp.errors import AuthError, ConfigError, TrustError
from ipymcp.masking import masks
from ipymcp.panel.messages import (
    Badge,
    CallProgress,
    CallRow,
    LogBatch,
    LogRow,
    MessageBatch,
    MessageRow,
    Preview,
    PreviewImage,
    PreviewLink,
    Problem,
    ResultTable,
    ServerRow,
    StartProgress,
    TableColumn,
    TablePage,
    TableRecord,
    ToolRow,
    finite,
)
from ipymcp.protocol import types
from ipymcp.results.content import Embedded, Image, Link
from ipymcp.results.records import RecordTable, json_head
from ipymcp.results.rendering import is_shown_as_text, other_members, shown_table, warnings
from ipymcp.results.tables import cell_text, numeric_columns
from ipymcp.runtime.server_status import State
from ipymcp.security.rules import hints
from ipymcp.text import capitalized, cut, shown_json, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ipymcp.api.resources import PromptResult
    from ipymcp.config.definition import ServerDefinition
    from ipymcp.errors import McpError
    from ipymcp.protocol.client import Client
    from ipymcp.protocol.recording import MessageRecorder, RecordedMessage
    from ipymcp.results.content import Part
    from ipymcp.results.resource_result import ResourceResult
    from ipymcp.results.tool_result import ToolResult
    from ipymcp.runtime.call import RunningCall
    from ipymcp.runtime.catalog import ToolEntry
    from ipymcp.runtime.events import RollingLog
    from ipymcp.runtime.host import Host
    from ipymcp.runtime.session import ServerSession
    from ipymcp.security.policy import Policy
    from ipymcp.security.rules import Decision


_MAX_LINES = 500
_MAX_CHARACTERS = 100_000
"""Maximum characters of one batch."""
_MAX_METHOD = 200
_FLOOD_INTERVAL = 0.3
"""Seconds between batches while lines are dropped: no one reads thousands of lines a second."""


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


class Reader(Protocol):
    """Reads the new lines of a log, or the new messages of a server, for a view."""

    @property
    def has_news(self) -> bool:
        """Whether there is anything new to read."""
        ...

    def read(self) -> LogBatch | MessageBatch | None:
        """Return the new lines or messages; None if there are none."""
        ...


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

    def read(self) -> LogBatch | None:
        """Return the last of the new lines, and the number of dropped ones; None if there are none."""
        session = self._host.sessions.get(self._server)
        if session is None or not self.has_news:
            return None
        log = session.log
        total = self._numbers.first(self._server, log) + log.total
        unread = log.total if self._last is None or self._last > total else total - self._last
        self._last = total
        lines = log.tail(min(unread, _MAX_LINES))
        shown: list[LogRow] = []
        size = 0
        for number, line in zip(range(total, 0, -1), reversed(lines), strict=False):
            size += len(line.text)
            if size > _MAX_CHARACTERS:
                break
            level, text = visible(line.level), visible(line.text)
            shown.append(LogRow(n=number, time=line.time, level=level, source=line.source, text=text))
        dropped = unread - len(shown)
        self._not_before = time.monotonic() + _FLOOD_INTERVAL if dropped else 0.0
        return LogBatch(server=self._server, lines=shown[::-1], dropped=dropped)


class MessageReader:
    """Reader that follows the JSON-RPC messages of one server, also after the server is reloaded.

    Args:
        server: The server's name.
        host: The host, which may reload the server.
        recorder: Records the messages.
        since: The number of the last message that the view has; None for all kept messages.
    """

    def __init__(self, server: str, host: Host, recorder: MessageRecorder, since: int | None) -> None:
        self._server = server
        self._host = host
        self._recorder = recorder
        self._last = since or 0
        self._not_before = 0.0

    @property
    def has_news(self) -> bool:
        """Whether there are new messages."""
        session = self._host.sessions.get(self._server)
        if session is not None and session.recorder is not self._recorder:
            session.record(self._recorder)
        return self._recorder.total != self._last and time.monotonic() >= self._not_before

    def read(self) -> MessageBatch | None:
        """Return the last of the new messages, and the number of dropped ones; None if there are none."""
        if not self.has_news:
            return None
        messages = self._recorder.tail(_MAX_LINES)
        first, total = self._last, self._recorder.total
        shown: list[MessageRow] = []
        size = 0
        for message in reversed(messages):
            size += len(message.head)
            if message.number <= first or (shown and size > _MAX_CHARACTERS):
                break
            shown.append(_message_row(message))
        self._last = max(total if not messages else messages[-1].number, first)
        dropped = self._last - first - len(shown)
        self._not_before = time.monotonic() + _FLOOD_INTERVAL if dropped else 0.0
        return MessageBatch(server=self._server, lines=shown[::-1], dropped=dropped)


def _message_row(message: RecordedMessage) -> MessageRow:
    return MessageRow(
        n=message.number,
        time=message.time,
        sent=message.is_sent,
        type=message.kind,
        method=visible(message.method[:_MAX_METHOD]),
        id=None if message.id is None else visible(str(message.id)[:_MAX_METHOD]),
        size=message.size,
        duration=message.duration,
        text=message.text,
    )


_MAX_PREVIEW_CHARACTERS = 50_000
_MAX_HTML = 300_000
_MAX_JSON = 100_000
_MAX_IMAGE = 4_000_000
"""Maximum characters of an image, in base64 for binary formats."""
_MAX_LINKS = 100
_IMAGES = ("image/png", "image/jpeg", "image/gif")
_PAGE_ROWS = 50
_MAX_COLUMNS = 50
_MAX_CELL = 100
"""Maximum characters of a table cell."""
_MAX_RECORD_MEMBERS = 500
_MAX_LINE = 60
"""Maximum characters of JSON on one line; longer JSON is indented."""
_MAX_VALUE = 20_000
"""Maximum characters of a value of one row."""


def preview(result: ToolResult | ResourceResult, variable: str | None, number: int | None = None) -> Preview:
    """Preview the result of a call or a resource.

    Args:
        result: The result.
        variable: The expression for the result in the notebook.
        number: The number of the result in `mcp.results`, by which a view asks for more rows.
    """
    shown = shown_table(result)
    if shown is not None and number is not None:
        return Preview(
            text=_head(result.text),
            html=None,
            image=None,
            json=_small_json(result.data),
            links=[],
            truncated=False,
            size=result.size,
            variable=variable,
            table=ResultTable(
                result=number,
                page=table_page(RecordTable(shown.records), 0),
                notes=[one for one in (other_members(result), *warnings(result)) if one],
            ),
        )
    bundle = result._repr_mimebundle_()  # pyright: ignore[reportPrivateUsage]
    markdown = bundle.get("text/markdown", "")
    is_text = is_shown_as_text(result)
    html = None if is_text else _small_html(bundle.get("text/html"))
    image = _image(bundle) if html is None else None  # the HTML has the images
    data = None if is_text else _small_json(result.data)
    is_cut = data is None and not is_text and not isinstance(result.data, str | bytes)
    is_cut |= _has_images(result.content) and image is None and html is None
    is_data_only = data is not None and html is None and image is None
    return Preview(
        text=None if is_data_only else _head(result.text),
        html=html,
        image=image,
        json=data,
        links=_links(result.content) if html is None else [],
        truncated=is_cut or len(result.text) > _MAX_PREVIEW_CHARACTERS,
        size=result.size,
        variable=variable,
        markdown=_head(markdown) if len(markdown) <= _MAX_PREVIEW_CHARACTERS else None,
    )


def table_page(table: RecordTable, first: int, *, sort: int | None = None, descending: bool = False) -> TablePage:
    """A page of a result's table; arguments as for `RecordTable.page`."""
    rows = table.page(first, _PAGE_ROWS, _MAX_COLUMNS, sort=sort, descending=descending)
    numeric = numeric_columns(rows)
    names = table.names[:_MAX_COLUMNS]
    return TablePage(
        columns=[
            TableColumn(name=cut(cell_text(name), _MAX_CELL), is_numeric=bool(numeric) and numeric[place])
            for place, name in enumerate(names)
        ],
        more_columns=len(table.names) - len(names),
        rows=[[cut(cell_text(each), _MAX_CELL) for each in row] for row in rows],
        first=first,
        total=len(table),
    )


def table_record(record: dict[str, Any]) -> TableRecord:
    """All values of a record."""
    members: list[tuple[str, str]] = []
    characters = _MAX_PREVIEW_CHARACTERS
    for name, value in record.items():
        if len(members) == _MAX_RECORD_MEMBERS or characters < 0:
            break
        text = value if isinstance(value, str) else _json_text(value)
        text = visible(masks.head(text, _MAX_VALUE)) + ("…" if len(text) > _MAX_VALUE else "")
        members.append((cut(cell_text(name), _MAX_CELL), text))
        characters -= len(text)
    return TableRecord(members=members, more=len(record) - len(members))


def _json_text(value: object) -> str:
    """A value as JSON, on one line if it is short."""
    line, is_whole = json_head(value, _MAX_LINE)
    return line if is_whole else json_head(value, _MAX_VALUE + masks.longest, indent=2)[0]


def prompt_preview(result: PromptResult, variable: str | None, number: int | None = None) -> Preview:
    """Preview the messages of a prompt; arguments as for `preview`."""
    text = "\n\n".join(f"{message.role}: {message.text}" for message in result.messages)
    parts = [message.content for message in result.messages]
    html = _small_html(result._repr_mimebundle_()["text/html"])  # pyright: ignore[reportPrivateUsage]
    return Preview(
        text=_head(text),
        html=html,
        image=None,
        json=None,
        links=_links(parts) if html is None else [],
        truncated=len(text) > _MAX_PREVIEW_CHARACTERS,
        size=result.size,
        variable=variable,
    )


def _head(text: str) -> str | None:
    return visible(masks.head(text, _MAX_PREVIEW_CHARACTERS)) or None


def _small_html(html: str | None) -> str | None:
    return html if html is not None and len(html) <= _MAX_HTML else None


def _image(bundle: dict[str, Any]) -> PreviewImage | None:
    """The image of a MIME bundle, unless it is too large."""
    kind = next((kind for kind in _IMAGES if kind in bundle), None)
    if kind is None:
        return None
    data = bundle[kind]
    return PreviewImage(mime=kind, data=data) if len(data) <= _MAX_IMAGE else None


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


def _links(parts: Sequence[Part]) -> list[PreviewLink]:
    links = [part for part in parts if isinstance(part, Link)][:_MAX_LINKS]
    return [PreviewLink(uri=visible(one.uri), name=visible(one.title or one.name or one.uri)) for one in links]


_CLAUSES: Final = re.compile(r"((?<!\s)\s+·\s+|;\s+|,\s+or\s+)")
_BUTTON: Final = re.compile(
    r"%mcp (start|stop|restart|enable|disable)(?: (?:'(?:[^']|'')*'|\S+))?(?: (?:asks|tries)(?: again| for it)?)?"
)
_TAB: Final = re.compile(r"%mcp (logs|tools|resources|prompts|history)\b.*")
_STATES: Final = re.compile(r"%mcp( shows.*)?")
_INAPPLICABLE: Final = re.compile(r"\bIPYMCP_\w+=|\.result\b|\btimeout=")
"""Hints that do not apply to a panel, because it shows whole results and can ask the user."""
_CODE: Final = re.compile(r"%%?\w|\bmcp\.\w")
_REPEATED: Final = frozenset({"see Logs", "choose Start", "choose Restart"})
"""Hints that repeat the buttons below the error of a server."""
_TABS: Final = {"history": "Activity", "resources": "Tools", "prompts": "Tools"}


def panel_hint(error: McpError, *, without: frozenset[str] = frozenset()) -> str | None:
    """Adapt an error's hint to a panel: name the button or tab where there is one, else the code to type.

    Args:
        error: The error.
        without: Parts of the adapted hint that are left out.
    """
    pieces = _CLAUSES.split(error.hint or "")
    text, done = "", {"", *without}
    for separator, clause in zip(("", *pieces[1::2]), pieces[::2], strict=True):
        adapted = _clause(clause.strip(), error)
        if adapted not in done:
            done.add(adapted)
            joint = ", or " if separator.strip(" ,") == "or" else "; "
            text = f"{text}{joint}{adapted}" if text else adapted
    return text or None


def _clause(text: str, error: McpError) -> str:
    if _INAPPLICABLE.search(text):
        return ""
    code = text[text.index("%") :] if "%" in text else ""
    before = text[: len(text) - len(code)]
    if (button := _BUTTON.fullmatch(code)) is not None:
        return f"{before}choose {_title(button[1], error)}"
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
_BADGES: Final = (
    ("readOnlyHint", True, Badge(text="read-only", kind="safe")),
    ("readOnlyHint", False, Badge(text="writes", kind="neutral")),
    ("destructiveHint", True, Badge(text="destructive", kind="danger")),
    ("idempotentHint", True, Badge(text="idempotent", kind="neutral")),
    ("openWorldHint", True, Badge(text="open world", kind="neutral")),
)


def server_row(session: ServerSession, alias: str, disabled: int, tools_version: int) -> ServerRow:
    """Row of a server.

    Args:
        session: The server's session.
        alias: The server's name in Python.
        disabled: Number of disabled tools.
        tools_version: Version of the tool list; changes with the tools and with the policy.
    """
    client, definition, missing = session.client, session.definition, missing_value(session)
    return ServerRow(
        name=session.name,
        alias=alias,
        state=session.state,
        lazy=session.is_lazy,
        transport=definition.transport,
        protocol=visible(session.protocol_version) or None,
        version=_version(client),
        where=where(definition),
        source=visible(definition.source.file or "this notebook"),
        own=is_own(definition),
        since=session.status.connected_since if client else None,
        pid=session.pid if client else None,
        calls=session.calls,
        tools=len(session.catalog.tools),
        resources=_count(session, client, "resources"),
        prompts=_count(session, client, "prompts"),
        disabled_tools=disabled,
        tools_version=tools_version,
        error=_error(session),
        missing=missing[1] if missing is not None else None,
        starting=start_progress(session),
        instructions=shown_text(client.instructions if client else None),
        capabilities=sorted(visible(str(name)) for name in client.capabilities) if client else [],
        has_icon=client is not None and bool(client.server_info.get("icons")),
    )


def is_own(definition: ServerDefinition) -> bool:
    """Whether a server is defined in a file that ipymcp writes: the user's own file, or a project's `mcp.json`."""
    source = definition.source
    place = os.path.join(source.folder or "", "mcp.json")
    return source.scope == "user" or (source.scope == "project" and source.file == place)


def where(definition: ServerDefinition) -> str:
    """The command line or URL of a server, without secrets."""
    if definition.url is not None:
        return visible(masked(definition.url))
    return visible(shlex.join([definition.command or "", *masked_args(definition.args)]))


def start_problem(error: McpError, *, without: frozenset[str] = frozenset()) -> Problem:
    """Like `problem`, for the error of a server that does not run, which is shown in sentences of its own."""
    shown = problem(error, without=without)
    return replace(shown, message=capitalized(shown.message), hint=shown.hint and capitalized(shown.hint))


def problem(error: McpError, *, without: frozenset[str] = frozenset()) -> Problem:
    """An error with its hint; see `panel_hint` for the arguments."""
    hint = panel_hint(error, without=without)
    message = "\n".join(error.lines) or visible(error.message)
    return Problem(message=message, hint=hint and visible(hint), type=type(error).__name__)


def missing_value(session: ServerSession) -> tuple[Literal["variable", "secret"], str] | None:
    """The kind and the name of the value that was missing when a server was last started."""
    error = session.status.error
    return error.missing if isinstance(error, ConfigError) else None


def call_row(call: RunningCall, *, waits: bool) -> CallRow:
    """Row of a running call; `waits` tells whether it waits for an answer of the user."""
    progress = call.progress
    shown = None
    if progress is not None:
        message = visible(progress.message[:_MAX_ABOUT]) if progress.message else None
        value, total = finite(progress.progress) or 0, finite(progress.total)
        shown = CallProgress(progress=value, total=total, message=message)
    return CallRow(
        id=call.number,
        server=call.session.name,
        tool=call.tool,
        started=time.time() - (time.monotonic() - call.started),
        progress=shown,
        origin=call.options.origin or call.options.caller,
        cell=call.cell,
        waits=waits,
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
        title=shown_text(definition.title, _MAX_ABOUT),
        description=shown_text(definition.description, _MAX_ABOUT),
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


def _version(client: Client | None) -> str | None:
    version = client.server_info.get("version") if client else None
    return visible(version[:100]) if isinstance(version, str) else None


def _count(session: ServerSession, client: Client | None, kind: str) -> int | None:
    """Known number of resources (with templates) or prompts; None if the server does not offer them."""
    catalog = session.catalog
    count = len(catalog.prompts) if kind == "prompts" else len(catalog.resources) + len(catalog.templates)
    return count if count or (client is not None and kind in client.capabilities) else None


def _error(session: ServerSession) -> Problem | None:
    """The error that explains the server's state; not the error of a call."""
    if session.status.error is not None:
        shown = start_problem(session.status.error, without=_REPEATED)
        has_field = missing_value(session) is not None  # the field replaces the hint
        return replace(shown, hint=None) if has_field else shown
    if session.status.last_error and (session.state.record.is_troubled or session.state is State.RESTARTING):
        return Problem(message=capitalized(visible(session.status.last_error)))
    return None


def start_progress(session: ServerSession) -> StartProgress | None:
    """The progress of a server's start; None if it is not starting."""
    status = session.status
    if status.moving_since is None:
        return None
    attempt, attempts = status.attempt
    lines = session.connection.last_stderr if session.connection is not None else ()
    line = shown_text(lines[-1].strip(), _MAX_ABOUT) if lines else None
    return StartProgress(attempt=attempt, attempts=attempts, since=status.moving_since, line=line)


def shown_text(text: str | None, limit: int = _MAX_TEXT) -> str | None:
    """Return a text of a server for display, shortened to `limit` characters; None for an empty text."""
    if not text:
        return None
    return visible(cut(text, limit))
