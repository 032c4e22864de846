"""The state that the panel shows, and the part of it that each view has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

from ipymcp.panel.messages import StateRow, ToView

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from ipymcp.panel.messages import ViewHello
    from ipymcp.panel.permissions import Permissions
    from ipymcp.runtime.events import Event
    from ipymcp.runtime.host import Host


Part: TypeAlias = Literal["servers", "calls", "questions"]
Row: TypeAlias = StateRow | dict[str, Any]
"""A row of a part; that of a question is the object that the page receives."""


_PARTS: Final[tuple[Part, ...]] = get_args(Part)


class StateRows(ToView):
    """The state by row keys."""

    servers: dict[str, Row]
    calls: dict[str, Row]
    questions: dict[str, Row]


class StateChanges(ToView, omit_defaults=True):
    """The changed rows by row keys; None for a removed row."""

    servers: dict[str, Row | None] = {}
    calls: dict[str, Row | None] = {}
    questions: dict[str, Row | None] = {}


class Snapshot(ToView, tag_field="kind", tag="snapshot"):
    """The whole state."""

    seq: int
    state: StateRows


class Patch(ToView, tag_field="kind", tag="patch"):
    """The changes since the previous snapshot or patch, whose number is lower by one."""

    seq: int
    set: StateChanges


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
                if permissions.shows(row) and (server is None or _is_of(row, server))
            }
            for part in self.parts
        }


def _is_of(row: Row, server: str) -> bool:
    return row["server"] == server if isinstance(row, dict) else row.is_of(server)


def _shown(rows: dict[str, Any], permissions: Permissions) -> dict[str, Any]:
    return {key: row and permissions.shown(row) for key, row in rows.items()}


def _difference(before: dict[str, Row], now: dict[str, Row]) -> dict[str, Row | None]:
    changed: dict[str, Row | None] = {key: row for key, row in now.items() if before.get(key) is not row}
    return changed | {key: None for key in before if key not in now}


class PanelState:
    """Rows of servers, calls and questions; a changed row is a new object. Runs on the background loop.

    Args:
        host: The host of the servers.
        sections: The classes of the sections that keep the rows of a part up to date.
    """

    def __init__(self, host: Host, sections: Iterable[type[StateSection]]) -> None:
        self.rows: dict[Part, dict[str, Row]] = {part: {} for part in _PARTS}
        self.version = 0
        """Number of changes so far."""
        self._keys: dict[tuple[Part, str], tuple[Any, ...]] = {}
        self._sections = [section(host, self) for section in sections]

    def update(self) -> None:
        """Update the rows of all sections."""
        for section in self._sections:
            section.update()

    def handle(self, event: Event) -> None:
        """Pass an event of the host to the sections."""
        for section in self._sections:
            section.handle(event)

    def has_changed(self, part: Part, name: str, key: tuple[Any, ...]) -> bool:
        """Whether what a row is made of differs from the last time; it is compared with `==`."""
        if self._keys.get((part, name)) == key:
            return False
        self._keys[part, name] = key
        return True

    def put(self, part: Part, name: str, row: Row) -> None:
        """Show a row, unless it is shown already."""
        if self.rows[part].get(name) != row:
            self.rows[part][name] = row
            self.version += 1

    def keep(self, part: Part, names: Container[str]) -> list[str]:
        """Remove all other rows of a part, and return their names."""
        removed = [name for name in self.rows[part] if name not in names]
        for name in removed:
            del self.rows[part][name]
            self._keys.pop((part, name), None)
        self.version += bool(removed)
        return removed


class StateSection(ABC):
    """Keeps the rows of one part of the state up to date.

    Args:
        host: The host of the servers.
        state: The state of the panel.
    """

    def __init__(self, host: Host, state: PanelState) -> None:
        self._host = host
        self._state = state

    @abstractmethod
    def update(self) -> None:
        """Update the rows."""

    def handle(self, event: Event) -> None:  # noqa: B027 - most sections need no events
        """Handle an event of the host."""
