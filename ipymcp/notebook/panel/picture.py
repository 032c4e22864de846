"""What one view has been told of the state, and what has changed since."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ipymcp.protocol.jsontypes import is_array

if TYPE_CHECKING:
    from ipymcp.notebook.panel.messages import Message
    from ipymcp.notebook.panel.permissions import Permissions
    from ipymcp.notebook.panel.shown import Shown

__all__ = ["Picture"]

_PARTS: Final = ("servers", "calls", "questions")
_OWNERS: Final = {"servers": "name", "calls": "server", "questions": "server"}
"""The field of a row that names its server."""


class Picture:
    """A view's picture of the state.

    Args:
        shown: What there is to show.
    """

    def __init__(self, shown: Shown) -> None:
        self.parts: tuple[str, ...] = _PARTS
        """What of the state the view wants."""
        self._shown = shown
        self._server: str | None = None
        self._sent: dict[str, dict[str, Message]] = {}
        self._sent_version = -1
        self._wants_all = False
        self._permissions: Permissions | None = None
        self._number = 0

    @property
    def is_old(self) -> bool:
        """Whether something may have changed."""
        return self._wants_all or self._sent_version != self._shown.version

    def begin(self, wants: object, server: object) -> None:
        """The view has nothing yet, or lost it.

        Args:
            wants: The parts it wants; all, where that is no list.
            server: The one server it is about, if that is a name.
        """
        self.parts = tuple(part for part in _PARTS if part in wants) if is_array(wants) else _PARTS
        self._server = server if isinstance(server, str) else None
        self._wants_all = True

    def look_again(self) -> None:
        """Something else decides now what is its own to see."""
        self._sent_version = -1

    def update(self, permissions: Permissions) -> Message | None:
        """A snapshot where one is due, else a patch where something has changed.

        Args:
            permissions: What the view may see. Where they are others than before, it gets everything anew.
        """
        if permissions != self._permissions:
            self._permissions, self._wants_all = permissions, True
        if self._wants_all:
            self._shown.look()
        elif not self.is_old:
            return None
        now, before = self._scoped(permissions), self._sent
        self._sent, self._sent_version = now, self._shown.version
        if self._wants_all:
            self._wants_all = False
            self._number += 1
            state = {part: _shown(part, now.get(part, {}), permissions) for part in _PARTS}
            return {"kind": "snapshot", "seq": self._number, "state": state}
        changed = {part: change for part in now if (change := _difference(before.get(part, {}), now[part]))}
        if not changed:
            return None
        self._number += 1
        changed = {part: _shown(part, rows, permissions) for part, rows in changed.items()}
        return {"kind": "patch", "seq": self._number, "set": changed}

    def _scoped(self, permissions: Permissions) -> dict[str, dict[str, Message]]:
        """The rows that are its own to see."""
        server = self._server
        return {
            part: {
                name: row
                for name, row in self._shown.rows[part].items()
                if permissions.shows(part, row) and (server is None or row[_OWNERS[part]] == server)
            }
            for part in self.parts
        }


def _shown(part: str, rows: dict[str, Any], permissions: Permissions) -> dict[str, Any]:
    return {name: row and permissions.shown(part, row) for name, row in rows.items()}


def _difference(before: dict[str, Message], now: dict[str, Message]) -> dict[str, Any]:
    changed: dict[str, Any] = {name: row for name, row in now.items() if before.get(name) is not row}
    return changed | {name: None for name in before if name not in now}
