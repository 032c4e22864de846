"""`mcp.pins`: whether servers' tools are what they were, what differs, and what the scan finds in them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from ipymcp.errors import UnknownName
from ipymcp.policy.conversation import refuse_models
from ipymcp.policy.diffs import diff
from ipymcp.policy.findings import look_alikes
from ipymcp.policy.pinning import LOCK_FILE, write_lock
from ipymcp.policy.pins import canonical
from ipymcp.runtime.checked import PATH, TEXT, checked
from ipymcp.text import escaped, visible
from ipymcp.tools.live import Listing
from ipymcp.tools.tables import Table
from ipymcp.tools.waits import waits

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from ipymcp.policy.pins import Pin
    from ipymcp.runtime.catalog import ToolEntry
    from ipymcp.runtime.host import Host
    from ipymcp.runtime.loop import BackgroundLoop
    from ipymcp.runtime.server import ServerSession

__all__ = ["Changes", "ToolPins"]


class Changes:
    """What differs between tools as they were pinned and as they are.

    Args:
        diffs: Unified diffs, by `server.tool`.
    """

    def __init__(self, diffs: Mapping[str, list[str]]) -> None:
        self.diffs = dict(diffs)

    def __len__(self) -> int:
        return len(self.diffs)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        parts = [f"{name}\n" + "\n".join(f"  {visible(line)}" for line in lines) for name, lines in self.diffs.items()]
        return "\n\n".join(parts) or "nothing has changed since it was pinned"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": f"<pre>{escaped(repr(self))}</pre>"}


class ToolPins(Listing):
    """The pins of the tools of the servers that are loaded: `mcp.pins.diff("fs")`, `mcp.pins.accept("fs.read_file")`.

    Args:
        host: Whose.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._pinning = host.guard.pinning

    @property
    def _loop(self) -> BackgroundLoop:
        return self._host.loop

    @property
    def table(self) -> Table:
        """One row a tool."""
        rows: list[tuple[str, ...]] = []
        for session in self._host.sessions.values():
            pinned = self._loop.run(self._pinning.pins.of(session.rights.digest))
            conspicuous = {finding.tool for finding in self._host.guard.findings.get(session.name, ())}
            for entry in session.catalog.tools.values():
                name = f"{entry.server}.{entry.name}"
                state = self._state(session, entry, pinned)
                scan = "conspicuous" if name in conspicuous else ""
                rows.append((name, state, _day(pinned.get(entry.name)), scan))
        states = {state for _, state, *_ in rows}
        notes = ["%mcp pins NAME shows what changed, %mcp pins accept NAME takes it"] if "changed" in states else []
        if "new" in states:
            notes.append("new: not there when the others were pinned; %mcp pins accept NAME takes it")
        if any(scan for *_, scan in rows):
            notes.append("%mcp pins scan says what is conspicuous")
        return Table(("tool", "definition", "pinned", "scan"), rows, title="MCP pins", note=" · ".join(notes))

    @waits
    @checked(names=TEXT)
    async def diff(self, *names: str) -> Changes:
        """What changed.

        Args:
            names: `server` or `server.tool`; all servers unless given.
        """
        diffs: dict[str, list[str]] = {}
        for session, entries in self._meant(names):
            pinned = await self._pinning.pins.of(session.rights.digest)
            for entry in entries:
                if self._state(session, entry, pinned) in ("changed", "new"):
                    before = pinned[entry.name].definition if entry.name in pinned else "{}"
                    diffs[f"{entry.server}.{entry.name}"] = diff(before, canonical(entry.definition))
        return Changes(diffs)

    @waits
    @checked(names=TEXT)
    async def accept(self, *names: str) -> list[str]:
        """Take what changed as it is now.

        Args:
            names: `server` or `server.tool`; all servers unless given.

        Returns:
            What was taken.
        """
        refuse_models("accept pins")
        taken: list[str] = []
        for session, entries in self._meant(names):
            digest = session.rights.digest
            changed = [
                entry
                for entry in entries
                if self._pinning.has_changed(digest, entry.name) or self._pinning.is_new(digest, entry.name)
            ]
            await self._pinning.accept(digest, session.name, [entry.definition for entry in changed])
            taken += [f"{entry.server}.{entry.name}" for entry in changed]
        return taken

    def scan(self) -> Table:
        """What is conspicuous in what servers say of their tools, and where."""
        sessions = self._host.sessions
        found = [finding for name in sessions for finding in self._host.guard.findings.get(name, ())]
        found += look_alikes({name: session.catalog.tools for name, session in sessions.items()})
        rows = [(finding.tool, finding.where, finding.what) for finding in found]
        return Table(("tool", "where", "what"), rows, title="MCP scan", note="" if rows else "nothing conspicuous")

    @checked(path=PATH.or_none)
    def export(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Write what the tools of the servers that are ready are now: `mcp.lock` beside the notebook unless named.

        Returns:
            The file. `load(locked=True)` and `%mcp load --locked` refuse what differs from it.
        """
        file = Path(self._host.folder, path or LOCK_FILE)
        ready = {name: session for name, session in self._host.sessions.items() if session.client is not None}
        tools = {name: session.catalog.tools.values() for name, session in ready.items()}
        write_lock(file, {name: [entry.definition for entry in entries] for name, entries in tools.items()})
        return file

    def _state(self, session: ServerSession, entry: ToolEntry, pinned: Mapping[str, Pin]) -> str:
        if self._pinning.is_new(session.rights.digest, entry.name):
            return "new"
        if entry.name not in pinned:
            return "not pinned"
        return "changed" if self._pinning.has_changed(session.rights.digest, entry.name) else "as pinned"

    def _meant(self, names: tuple[str, ...]) -> list[tuple[ServerSession, list[ToolEntry]]]:
        if not names:
            return [(session, list(session.catalog.tools.values())) for session in self._host.sessions.values()]
        meant: list[tuple[ServerSession, list[ToolEntry]]] = []
        for name in names:
            try:
                session = self._host.find(name)
            except UnknownName:
                session, tool = self._host.resolve(name)
                meant.append((session, [self._host.entry(session, tool)]))
            else:
                meant.append((session, list(session.catalog.tools.values())))
        return meant


def _day(pin: Pin | None) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(pin.pinned)) if pin is not None else ""
