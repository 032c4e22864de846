"""The state that the panel shows, and the part of it that each view has."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any, Final, TypeAlias, get_args

from ipymcp.errors import McpError
from ipymcp.panel.messages import Part, Patch, ServerRow, Snapshot, StateChanges, StateRows
from ipymcp.panel.rows import call_row, disabled_tools, server_row
from ipymcp.runtime.events import ListChanged

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipymcp.panel.messages import CallRow, QuestionRow, ViewHello
    from ipymcp.panel.permissions import Permissions
    from ipymcp.protocol.client import Client
    from ipymcp.runtime.catalog import Catalog
    from ipymcp.runtime.events import Event
    from ipymcp.runtime.host import Host
    from ipymcp.runtime.resources import Kind
    from ipymcp.runtime.session import ServerSession

    Row: TypeAlias = ServerRow | CallRow | QuestionRow


_PARTS: Final[tuple[Part, ...]] = get_args(Part)


class ViewSnapshot:
    """The state as one view has received it.

    Args:
        shown: The current state.
    """

    def __init__(self, shown: PanelState) -> None:
        self.parts: tuple[Part, ...] = _PARTS
        """The parts of the state that the view asked for."""
        self._shown = shown
        self._server: str | None = None
        self._sent: dict[Part, dict[str, Row]] = {}
        self._sent_version = -1
        self._wants_all = False
        self._permissions: Permissions | None = None
        self._number = 0

    @property
    def is_old(self) -> bool:
        """Whether the state may have changed since the last update."""
        return self._wants_all or self._sent_version != self._shown.version

    def begin(self, hello: ViewHello) -> None:
        """Send a complete snapshot next, of the parts that the view wants."""
        self.parts = _PARTS if hello.wants is None else tuple(part for part in _PARTS if part in hello.wants)
        self._server = hello.server
        self._wants_all = True

    def invalidate(self) -> None:
        """Compare all rows at the next update, because the view's permissions may have changed."""
        self._sent_version = -1

    def update(self, permissions: Permissions) -> Snapshot | Patch | None:
        """Return a snapshot if one is due, a patch if something has changed, else None.

        Args:
            permissions: Current permissions of the view; if they have changed, a snapshot is due.
        """
        if permissions != self._permissions:
            self._permissions, self._wants_all = permissions, True
        if self._wants_all:
            self._shown.update()
        elif not self.is_old:
            return None
        now, before = self._scoped(permissions), self._sent
        self._sent, self._sent_version = now, self._shown.version
        if self._wants_all:
            self._wants_all = False
            self._number += 1
            rows: Any = {part: _shown(now.get(part, {}), permissions) for part in _PARTS}
            return Snapshot(seq=self._number, state=StateRows(**rows))
        changed = {part: change for part in now if (change := _difference(before.get(part, {}), now[part]))}
        if not changed:
            return None
        self._number += 1
        rows = {part: _shown(change, permissions) for part, change in changed.items()}
        return Patch(seq=self._number, set=StateChanges(**rows))

    def _scoped(self, permissions: Permissions) -> dict[Part, dict[str, Row]]:
        server = self._server
        return {
            part: {
                key: row
                for key, row in self._shown.rows[part].items()
                if permissions.shows(row) and (server is None or _server_of(row) == server)
            }
            for part in self.parts
        }


def _server_of(row: Row) -> str:
    if isinstance(row, ServerRow):
        return row.name
    return row["server"] if isinstance(row, dict) else row.server


def _shown(rows: dict[str, Any], permissions: Permissions) -> dict[str, Any]:
    return {key: row and permissions.shown(row) for key, row in rows.items()}


def _difference(before: dict[str, Row], now: dict[str, Row]) -> dict[str, Row | None]:
    changed: dict[str, Row | None] = {key: row for key, row in now.items() if before.get(key) is not row}
    return changed | {key: None for key in before if key not in now}


_SHOW_DELAY = 0.1
"""Seconds that a call must run before it is shown."""
_MAX_CALLS = 200


class PanelState:
    """Rows of servers, calls and questions; a changed row is a new object. Runs on the background loop.

    Args:
        host: The host of the servers.
        is_own: Whether a call was made in a panel.
    """

    def __init__(self, host: Host, is_own: Callable[[object], bool]) -> None:
        self.rows: dict[Part, dict[str, Row]] = {"servers": {}, "calls": {}, "questions": {}}
        self.version = 0
        """Number of changes so far."""
        self._host = host
        self._is_own = is_own
        self._keys: dict[tuple[str, str], tuple[Any, ...]] = {}
        self._disabled: dict[str, tuple[Catalog, object, int]] = {}
        self._tools: dict[str, tuple[tuple[Any, ...], int]] = {}
        """Inputs of each server's tool list, and the version number of the list."""
        self._tools_versions = 0
        self._listed: dict[str, Client] = {}
        """Connections whose resources and prompts were listed, by server."""

    def update(self) -> None:
        """Update the rows of servers and calls."""
        self._update_servers()
        self._update_calls()

    def add_question(self, question: QuestionRow) -> None:
        """Show a question."""
        self._put("questions", question["id"], question)

    def remove_question(self, question: str) -> None:
        """Remove a question, by its id."""
        self._keep("questions", self.rows["questions"].keys() - {question})

    def handle(self, event: Event) -> None:
        """List resources and prompts again after a server has changed them."""
        if isinstance(event, ListChanged):
            self._listed.pop(event.server, None)

    def _update_servers(self) -> None:
        host = self._host
        sessions = host.sessions
        shown: dict[str, Any] = self.rows["servers"]
        aliases = host.aliases() if sessions.keys() != shown.keys() else None
        rules = host.guard.policy.filters.rules
        for name, session in sessions.items():
            alias = aliases[name] if aliases else shown[name].alias
            tools_version = self._tools_version(session)
            key = (
                session, alias, session.state, session.is_lazy, session.client, session.calls, session.catalog,
                session.status.error, session.status.last_error, rules, tools_version,
                session.status.moving_since and (session.status.attempt, session.log.total),
            )  # fmt: skip
            if self._has_changed("servers", name, key):
                disabled = self._count_disabled(session, rules)
                self._put("servers", name, server_row(session, alias, disabled, tools_version))
            if session.client is not None and self._listed.get(name) is not session.client:
                self._listed[name] = session.client
                self._host.loop.spawn(_list_offers(session, session.client), f"ipymcp-panel-{session.name}")
        self._keep("servers", sessions.keys())

    def _tools_version(self, session: ServerSession) -> int:
        """The version of the server's tool list; views with an older list request it again."""
        guard = self._host.guard
        key = (
            session, session.catalog.tools, session.rights, guard.policy.filters.rules, guard.policy.state,
            guard.findings.get(session.name),
        )  # fmt: skip
        known = self._tools.get(session.name)
        if known is None or known[0] != key:
            self._tools_versions += 1
            known = self._tools[session.name] = key, self._tools_versions
        return known[1]

    def _count_disabled(self, session: ServerSession, rules: object) -> int:
        known = self._disabled.get(session.name)
        if known is None or known[0] is not session.catalog or known[1] is not rules:
            known = session.catalog, rules, disabled_tools(self._host, session)
            self._disabled[session.name] = known
        return known[2]

    def _update_calls(self) -> None:
        latest = time.monotonic() - _SHOW_DELAY
        running = {str(call.number): call for call in list(self._host.calls.running.values())[:_MAX_CALLS]}
        running = {
            number: call
            for number, call in running.items()
            if call.started <= latest and (call.options.batch is None or call.options.batch.number == call.number)
        }
        for number, call in running.items():
            waits = any(subject is call for subject in self._host.questions.subjects)
            if self._has_changed("calls", number, (call, call.progress, waits)):
                self._put("calls", number, call_row(call, waits=waits))
        self._keep("calls", running.keys())

    def _has_changed(self, part: Part, name: str, key: tuple[Any, ...]) -> bool:
        if self._keys.get((part, name)) == key:
            return False
        self._keys[part, name] = key
        return True

    def _put(self, part: Part, name: str, row: Row) -> None:
        if self.rows[part].get(name) != row:
            self.rows[part][name] = row
            self.version += 1

    def _keep(self, part: Part, names: Any) -> None:
        gone = self.rows[part].keys() - names
        for name in gone:
            del self.rows[part][name]
            self._keys.pop((part, name), None)
            if part == "servers":
                self._listed.pop(name, None)
                self._disabled.pop(name, None)
                self._tools.pop(name, None)
        self.version += bool(gone)


async def _list_offers(session: ServerSession, client: Client) -> None:
    kinds: list[Kind] = ["resources", "templates"] if "resources" in client.capabilities else []
    if "prompts" in client.capabilities:
        kinds.append("prompts")
    if kinds:
        with contextlib.suppress(McpError):  # logged already
            await session.resources.refresh(*kinds)
