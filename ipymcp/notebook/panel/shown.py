"""What views are shown now, noticed by looking: nothing hooks into calls, which an open panel costs nothing."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

from ipymcp.errors import McpError
from ipymcp.notebook.panel.state import call_row, disabled_tools, server_row
from ipymcp.runtime.events import OffersChanged

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipymcp.notebook.panel.messages import Message
    from ipymcp.protocol.client import Client
    from ipymcp.runtime.calls import Call
    from ipymcp.runtime.catalog import Catalog
    from ipymcp.runtime.events import Event
    from ipymcp.runtime.host import Host
    from ipymcp.runtime.offers import Kind
    from ipymcp.runtime.server import ServerSession

__all__ = ["Shown"]

_SHOW_AFTER = 0.1
"""Seconds that a call runs before it is worth showing."""
_MOST_CALLS = 200


class Shown:
    """The rows of servers and calls. A row that has changed is another object. Belongs to the background loop.

    Args:
        host: Whose.
        is_own: Whether a call was made in a panel.
    """

    def __init__(self, host: Host, is_own: Callable[[Call[Any]], bool]) -> None:
        self.rows: dict[str, dict[str, Message]] = {"servers": {}, "calls": {}, "questions": {}}
        self.version = 0
        """Counts the changes."""
        self._host = host
        self._is_own = is_own
        self._keys: dict[tuple[str, str], tuple[Any, ...]] = {}
        self._disabled: dict[str, tuple[Catalog, object, int]] = {}
        self._tools: dict[str, tuple[tuple[Any, ...], int]] = {}
        """What the list of a server's tools was made from, and the number of that version."""
        self._tools_versions = 0
        self._looked: dict[str, Client] = {}
        """The connections whose resources and prompts were listed, by server."""

    def look(self) -> None:
        """Bring the rows up to date."""
        self._look_at_servers()
        self._look_at_calls()

    def ask(self, question: Message) -> None:
        """Show a question."""
        self._put("questions", question["id"], question)

    def withdraw(self, question: str) -> None:
        """Show it no more."""
        self._keep("questions", self.rows["questions"].keys() - {question})

    def heard(self, event: Event) -> None:
        """A server says that it has other resources or prompts."""
        if isinstance(event, OffersChanged):
            self._looked.pop(event.server, None)

    def _look_at_servers(self) -> None:
        host = self._host
        sessions = host.sessions
        aliases = host.aliases() if sessions.keys() != self.rows["servers"].keys() else None
        rules = host.guard.policy.filters.rules
        for name, session in sessions.items():
            alias = aliases[name] if aliases else self.rows["servers"][name]["alias"]
            tools_version = self._tools_version(session)
            key = (
                session, alias, session.state, session.is_lazy, session.client, session.calls, session.catalog,
                session.error, session.last_error, rules, tools_version,
            )  # fmt: skip
            if self._is_news("servers", name, key):
                disabled = self._count_disabled(session, rules)
                self._put("servers", name, server_row(session, alias, disabled, tools_version))
            if session.client is not None and self._looked.get(name) is not session.client:
                self._looked[name] = session.client
                session.spawn(_list_offers(session, session.client), "panel")
        self._keep("servers", sessions.keys())

    def _tools_version(self, session: ServerSession) -> int:
        """Number what a list of its tools shows; views that have a list of an older version ask for it again."""
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
        """How many of its tools are switched off, counted once for these tools and rules."""
        known = self._disabled.get(session.name)
        if known is None or known[0] is not session.catalog or known[1] is not rules:
            known = session.catalog, rules, disabled_tools(self._host, session)
            self._disabled[session.name] = known
        return known[2]

    def _look_at_calls(self) -> None:
        latest = time.monotonic() - _SHOW_AFTER
        running = {str(call.number): call for call in list(self._host.running.values())[:_MOST_CALLS]}
        running = {number: call for number, call in running.items() if call.started <= latest}
        for number, call in running.items():
            if self._is_news("calls", number, (call, call.progress)):
                self._put("calls", number, call_row(call, "panel" if self._is_own(call) else "notebook"))
        self._keep("calls", running.keys())

    def _is_news(self, part: str, name: str, key: tuple[Any, ...]) -> bool:
        if self._keys.get((part, name)) == key:
            return False
        self._keys[part, name] = key
        return True

    def _put(self, part: str, name: str, row: Message) -> None:
        if self.rows[part].get(name) != row:
            self.rows[part][name] = row
            self.version += 1

    def _keep(self, part: str, names: Any) -> None:
        gone = self.rows[part].keys() - names
        for name in gone:
            del self.rows[part][name]
            self._keys.pop((part, name), None)
            if part == "servers":
                self._looked.pop(name, None)
                self._disabled.pop(name, None)
                self._tools.pop(name, None)
        self.version += bool(gone)


async def _list_offers(session: ServerSession, client: Client) -> None:
    """Somebody looks: what it has beside tools is listed, so that it can be counted."""
    kinds: list[Kind] = ["resources", "templates"] if "resources" in client.capabilities else []
    if "prompts" in client.capabilities:
        kinds.append("prompts")
    if kinds:
        with contextlib.suppress(McpError):  # it is in the log
            await session.offers.look(*kinds)
