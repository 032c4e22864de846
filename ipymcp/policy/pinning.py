"""Watches that servers' tools stay what they were: against their pins, and against a lock file where one is used."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ipymcp.errors import ConfigError, PolicyError
from ipymcp.files import SHARED, write_file, write_hint
from ipymcp.policy.pins import Differences, Pins, spelled
from ipymcp.protocol.jsontypes import is_object
from ipymcp.text import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ipymcp.policy.pins import Spelled
    from ipymcp.policy.policy import Policy
    from ipymcp.protocol.wire import ToolDefinition
    from ipymcp.state.db import Database

__all__ = ["LOCK_FILE", "Lock", "Pinning", "read_lock", "write_lock"]

LOCK_FILE = "mcp.lock"
_VERSION = 1
Lock: TypeAlias = "Mapping[str, Mapping[str, str]]"
"""Hashes of tools, by server and tool."""


class Pinning:
    """Compares what servers have with what they had. Its coroutines belong to the background loop.

    Args:
        policy: Told of the tools that have changed.
        database: Keeps the pins.
    """

    def __init__(self, policy: Policy, database: Callable[[], Database]) -> None:
        self.lock: dict[str, Mapping[str, str]] = {}
        """Servers that must be what a lock file says, and what it says of them."""
        self._policy = policy
        self._database = database
        self._found: dict[str, Differences] = {}
        """What differs, by definition."""
        self._unlocked: dict[str, frozenset[str]] = {}

    @property
    def pins(self) -> Pins:
        """What is kept."""
        return Pins(self._database())

    async def compare(
        self, digest: str, server: str, tools: Iterable[ToolDefinition], *, starting: bool
    ) -> Differences:
        """Compare a server's tools before anybody may call them.

        Args:
            digest: Of its definition.
            server: Its name.
            tools: As they are now.
            starting: Whether it has just started.

        Returns:
            Those that have changed since they were pinned, or are new since the others were.

        Raises:
            PolicyError: It is starting, and is not what the lock file says.
        """
        now = await asyncio.to_thread(spelled, list(tools))  # there may be ten thousand
        locked = self.lock.get(server)
        if locked is not None:
            differing = _differing(now, locked)
            if differing and starting:
                text = ", ".join(f"{name} {how}" for name, how in differing.items())
                raise PolicyError(
                    f"differs from {LOCK_FILE}: {text}",
                    server=server,
                    hint=f"%mcp load {quoted(server)} runs it unlocked; then %mcp pins export writes the file anew",
                )
            self._unlocked[digest] = frozenset(differing)
        else:
            self._unlocked.pop(digest, None)
        self._found[digest] = found = await self.pins.compare(digest, server, now)
        self._tell()
        return found

    def is_locked_out(self, server: str, tools: Iterable[ToolDefinition]) -> bool:
        """Whether tools are not what a lock file says that this server must have."""
        locked = self.lock.get(server)
        return locked is not None and bool(_differing(spelled(tools), locked))

    async def refresh(self) -> None:
        """Another kernel may have been told to accept what has changed here, too."""
        for digest, found in [*self._found.items()]:
            if found.changed or found.new:
                pinned = await self.pins.of(digest)
                still = found.without(
                    name
                    for name, now in {**found.changed, **found.new}.items()
                    if name in pinned and pinned[name].hash == now
                )
                if self._found.get(digest) is found:
                    self._found[digest] = still
        self._tell()

    async def accept(self, digest: str, server: str, tools: Iterable[ToolDefinition]) -> None:
        """Pin tools as they are now."""
        accepted = spelled(tools)
        await self.pins.accept(digest, server, accepted)
        found = self._found.get(digest, Differences({}, {}))
        self._found[digest] = found.without(accepted)
        self._tell()

    def hold_to(self, lock: Lock | None, servers: Iterable[str]) -> None:
        """From their next start on hold servers to a lock file, or to none.

        Raises:
            PolicyError: The lock file has no such server.
        """
        for server in servers:
            if lock is None:
                self.lock.pop(server, None)
            elif server in lock:
                self.lock[server] = lock[server]
            else:
                raise PolicyError(f"is not in {LOCK_FILE}", server=server, hint="%mcp pins export writes the file anew")

    def has_changed(self, digest: str, tool: str) -> bool:
        """Whether a tool is not what was pinned."""
        return digest in self._found and tool in self._found[digest].changed

    def is_new(self, digest: str, tool: str) -> bool:
        """Whether a tool came after its server's others were pinned."""
        return digest in self._found and tool in self._found[digest].new

    def _tell(self) -> None:
        self._policy.set_changed(
            _pairs({digest: found.changed for digest, found in self._found.items()}),
            _pairs(self._unlocked),
            _pairs({digest: found.new for digest, found in self._found.items()}),
        )


def _pairs(names: Mapping[str, Iterable[str]]) -> frozenset[tuple[str, str]]:
    return frozenset((digest, name) for digest, tools in names.items() for name in tools)


def _differing(now: Mapping[str, Spelled], locked: Mapping[str, str]) -> dict[str, str]:
    """The tools that differ, and how, for people."""
    changed = {name: "has changed" for name, found in now.items() if locked.get(name, found.hash) != found.hash}
    new = {name: "is new" for name in now if name not in locked}
    gone = {name: "is gone" for name in locked if name not in now}
    return changed | new | gone


def write_lock(path: Path, servers: Mapping[str, Iterable[ToolDefinition]]) -> None:
    """Write a lock file: what each tool of these servers is now.

    Raises:
        ConfigError: It cannot be written.
    """
    hashes = {
        server: {name: one.hash for name, one in sorted(spelled(tools).items())}
        for server, tools in sorted(servers.items())
    }
    text = json.dumps({"version": _VERSION, "servers": hashes}, indent=2, ensure_ascii=False) + "\n"
    try:
        write_file(path, text, SHARED)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}", hint=write_hint(error)) from None


def read_lock(folder: str) -> Lock:
    """The hashes of the lock file in a folder, by server and tool.

    Raises:
        ConfigError: There is none, or it is none.
    """
    hint = "%mcp pins export writes one from the servers that are loaded"
    path = Path(folder, LOCK_FILE)
    try:
        document: Any = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file", hint=hint) from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}", hint=hint) from None
    except ValueError as error:
        raise ConfigError(f"{path}: not JSON: {error}", hint=hint) from None
    servers = document.get("servers") if is_object(document) and document.get("version") == _VERSION else None
    if not is_object(servers) or not all(is_object(hashes) for hashes in servers.values()):
        raise ConfigError(f"{path}: is no lock file of version {_VERSION}", hint=hint)
    return servers
