"""Pins: fingerprints of tool definitions at first use, and the detection of later changes.

A canonical definition is JSON with sorted keys and no whitespace; absent fields are omitted.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct

from ipymcp.errors import ConfigError, PolicyError
from ipymcp.files import SHARED, read_file, read_problem, trusted_owners, write_file, write_hint
from ipymcp.masking import mask
from ipymcp.protocol import types
from ipymcp.protocol.types import is_array, is_object
from ipymcp.security.scanner import skeleton
from ipymcp.text import quoted, shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from sqlite3 import Connection

    from msgspec import Raw

    from ipymcp.protocol.types import ToolDefinition
    from ipymcp.security.policy import Policy
    from ipymcp.storage.database import Database


_BLANKS = re.compile(r"[^\S \n]|[\x00-\x08\x0e-\x1f\x7f-\x9f]")
"""Look-alike whitespace and control characters."""
_LONG = 160
_AROUND = 50
"""Characters shown on either side of the difference in a long line."""


def diff(old: str, new: str) -> list[str]:
    """Return the unified diff of two canonical definitions, with three lines of context."""
    import difflib

    lines = list(difflib.unified_diff(_lines(old), _lines(new), "pinned", "now", lineterm=""))
    return [*lines[:2], *_readable(lines[2:])]


def _lines(text: str) -> list[str]:
    """Return one line per value, with the description split into its own lines for readable changes."""
    definition = json.loads(mask(text))  # stored definitions are masked, too
    description = definition.pop("description", None)
    paragraphs = [] if description is None else str(description).split("\n")
    values = json.dumps(definition, indent=2, sort_keys=True, ensure_ascii=False).split("\n")
    return [_BLANKS.sub(_escaped, line) for line in (*(f"description: {line}" for line in paragraphs), *values)]


def _readable(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a diff, with replaced lines shortened to their difference."""
    position = 0
    while position < len(lines):
        removed = _run(lines, position, "-")
        added = _run(lines, position + len(removed), "+")
        if len(removed) == len(added) and removed:
            pairs = [_compared(old, new) for old, new in zip(removed, added, strict=True)]
            yield from (old for old, _ in pairs)
            yield from (new for _, new in pairs)
        else:
            yield from (*removed, *added)
        position += len(removed) + len(added)
        if not removed and not added:
            yield lines[position]
            position += 1


def _run(lines: Sequence[str], start: int, mark: str) -> list[str]:
    """Return the consecutive lines from a position on that begin with a mark."""
    end = start
    while end < len(lines) and lines[end].startswith(mark):
        end += 1
    return list(lines[start:end])


def _compared(old: str, new: str) -> tuple[str, str]:
    """Return a removed and an added line, shortened to where they differ."""
    before = _common(old[1:], new[1:]) + 1
    after = _common(old[: before - 1 : -1], new[: before - 1 : -1])
    looks_same = skeleton(old) == skeleton(new)  # letters of other scripts or invisible characters
    return _shown(old, before, after, looks_same), _shown(new, before, after, looks_same)


def _common(one: str, other: str) -> int:
    """Return the length of the common prefix of two strings."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (left, right) in pairs if left != right), min(len(one), len(other)))


def _shown(line: str, before: int, after: int, looks_same: bool) -> str:
    head, part, tail = line[1:before], line[before : len(line) - after], line[len(line) - after :]
    if looks_same:
        part = part.encode("ascii", "backslashreplace").decode()
    if len(line) > _LONG:
        head = head if len(head) <= _AROUND else f"…{head[-_AROUND:]}"
        tail = tail if len(tail) <= _AROUND else f"{tail[:_AROUND]}…"
    return f"{line[0]}{head}{part}{tail}"


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")


INSTRUCTIONS = "(instructions)"
"""The name under which a server's instructions for models are pinned and scanned, which no tool has."""
_PARTS = ("inputSchema", "outputSchema", "annotations")


class Pin(Struct, frozen=True):
    """A pinned tool definition."""

    hash: str
    definition: str
    """The canonical definition with secrets masked."""
    pinned: float
    """Time of pinning, in seconds since the epoch."""


class CanonicalTool(NamedTuple):
    """A tool's current canonical definition."""

    text: str
    hash: str


def canonical(definition: ToolDefinition) -> str:
    """Return the parts of a definition that a model or a person reads, as canonical JSON."""
    parts: dict[str, Any] = {"name": definition.name, "title": definition.title, "description": definition.description}
    for part in _PARTS:
        raw: Raw = getattr(definition, part)
        if len(raw):
            parts[part] = types.loads(raw)
    present = {key: value for key, value in parts.items() if value is not None}
    try:
        return msgspec.json.encode(present, order="sorted").decode()
    except UnicodeEncodeError:  # lone surrogates
        return json.dumps(present, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def fingerprint(text: str) -> str:
    """Return the SHA-256, in hex, of a canonical definition."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


_WORDS = re.compile(r"\w+|\W")
_SETS = frozenset({"enum", "required", "examples"})
"""Keywords whose arrays mean the same in any order."""
_UNORDERED = "unordered "
"""The prefix of the hash of a pin that accepts the words of its descriptions in any order."""


def _unordered_fingerprint(text: str) -> str | None:
    """Return a hash of a canonical definition that ignores the order of words in descriptions and of items in sets.

    Servers that print a Python set have another order at each start. Returns None if the definition has masked text or
    is nested too deeply: then only its exact hash counts.
    """
    if _storable(text) != text:
        return None
    try:
        unordered = _unordered(json.loads(text))
    except RecursionError:
        return None
    return _UNORDERED + fingerprint(json.dumps(unordered, sort_keys=True))


def _unordered(value: Any, key: str = "") -> Any:
    if is_object(value):
        return {name: _unordered(item, name) for name, item in value.items()}
    if is_array(value):
        items = [_unordered(item) for item in value]
        return sorted(items, key=json.dumps) if key in _SETS else items
    return sorted(_WORDS.findall(value)) if key == "description" and isinstance(value, str) else value


def described_instructions(text: str) -> ToolDefinition:
    """Return a server's instructions in the form of a tool definition, so that they are pinned and scanned like one."""
    return types.ToolDefinition(name=INSTRUCTIONS, description=text)


def canonical_tools(tools: Iterable[ToolDefinition]) -> dict[str, CanonicalTool]:
    """Return each tool's canonical definition by name; the first of tools with the same name counts."""
    by_name: dict[str, CanonicalTool] = {}
    for tool in tools:
        if tool.name not in by_name:
            text = canonical(tool)
            by_name[tool.name] = CanonicalTool(text, fingerprint(text))
    return by_name


class Differences(NamedTuple):
    """Current fingerprints of the tools that differ from their pins, by tool."""

    changed: dict[str, str]
    new: dict[str, str]
    """Tools added after the server's others were pinned."""
    reordered: tuple[str, ...] = ()
    """Tools of which only the order of words had changed for the first time; they are accepted."""

    def without(self, names: Iterable[str]) -> Differences:
        """Return the changed and new tools except some."""
        excluded = frozenset(names)
        changed = {name: now for name, now in self.changed.items() if name not in excluded}
        return Differences(changed, {name: now for name, now in self.new.items() if name not in excluded})


class Pins:
    """The stored pins of tools, by the digest of the server's definition."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def compare(self, digest: str, server: str, tools: Mapping[str, CanonicalTool]) -> Differences:
        """Return the differences to the pins. The first tools seen of a definition are pinned.

        If only the order of words differs, the tool is pinned again, from then on in any order.

        Args:
            digest: Digest of the server's definition.
            server: Display name of the server.
            tools: The server's current tools.
        """
        rows = await self._database.aquery("SELECT tool, hash FROM pins WHERE digest = ?", (digest,))
        pinned: dict[str, str] = dict(rows)
        if not pinned:
            if tools:
                await self._insert("IGNORE", digest, server, tools)
            return Differences({}, {})
        changed = {name: now for name, now in tools.items() if pinned.get(name, now.hash) != now.hash}
        same: dict[str, CanonicalTool] = {}
        if changed:
            same = await asyncio.to_thread(_same_words, await self.of(digest), changed)
        reordered = {name: now for name, now in same.items() if pinned[name] != now.hash}
        if reordered:
            await self.accept(digest, server, reordered)
        return Differences(
            {name: now.hash for name, now in changed.items() if name not in same},
            {name: now.hash for name, now in tools.items() if name not in pinned},
            tuple(reordered),
        )

    async def of(self, digest: str) -> Mapping[str, Pin]:
        """Return the pins of one server definition, by tool."""
        rows = await self._database.aquery(
            "SELECT tool, hash, definition, pinned FROM pins WHERE digest = ?", (digest,)
        )
        return {tool: Pin(fingerprint, definition, pinned) for tool, fingerprint, definition, pinned in rows}

    async def accept(self, digest: str, server: str, tools: Mapping[str, CanonicalTool]) -> None:
        """Pin the current definitions of some tools."""
        await self._insert("REPLACE", digest, server, tools)

    async def _insert(self, otherwise: str, digest: str, server: str, tools: Mapping[str, CanonicalTool]) -> None:
        def insert(connection: Connection) -> None:
            now = time.time()
            rows = ((digest, name, tool.hash, _storable(tool.text), server, now) for name, tool in tools.items())
            connection.executemany(f"INSERT OR {otherwise} INTO pins VALUES (?, ?, ?, ?, ?, ?)", rows)

        await self._database.atransact(insert)


def _same_words(pinned: Mapping[str, Pin], changed: Mapping[str, CanonicalTool]) -> dict[str, CanonicalTool]:
    """Return the tools that differ from their pins only in the order of words, with the hash for any order."""
    same: dict[str, CanonicalTool] = {}
    for name, now in changed.items():
        unordered, pin = _unordered_fingerprint(now.text), pinned[name]
        if unordered in (pin.hash, _unordered_fingerprint(pin.definition)) and unordered is not None:
            same[name] = CanonicalTool(now.text, unordered)
    return same


def _storable(text: str) -> str:
    return mask(text).encode("utf-8", "replace").decode()


LOCK_FILE = "mcp.lock"
_VERSION = 1
_MAX_LOCK_BYTES = 10_000_000
Lock: TypeAlias = "Mapping[str, Mapping[str, str]]"
"""Fingerprints by server and tool."""


_REORDERED = "{server}: only the order of words changed since it was pinned, which is accepted from now on: {tools}"


class Pinning:
    """Comparison of servers' tools with their pins and the lock file. Its coroutines run on the background loop.

    Args:
        policy: Receives the tools that have changed.
        database: Returns the database that stores the pins.
        notify: Shows a notice below the user's next cell.
    """

    def __init__(
        self, policy: Policy, database: Callable[[], Database], notify: Callable[[str], None] = lambda _: None
    ) -> None:
        self.lock: dict[str, Mapping[str, str]] = {}
        """Locked servers with the fingerprints that the lock file requires."""
        self._policy = policy
        self._database = database
        self._notify = notify
        self._differences: dict[str, Differences] = {}
        """Differences to the pins, by digest."""
        self._unlocked: dict[str, frozenset[str]] = {}
        """The tools of locked servers that differ from the lock file, by digest."""

    @property
    def pins(self) -> Pins:
        """The stored pins."""
        return Pins(self._database())

    async def compare(
        self, digest: str, server: str, tools: Iterable[ToolDefinition], *, starting: bool
    ) -> Differences:
        """Compare a server's tools with their pins before they can be called.

        Args:
            digest: Digest of the server's definition.
            server: Display name of the server.
            tools: The server's current tools.
            starting: Whether the server has just started.

        Raises:
            PolicyError: The server is starting, and differs from the lock file.
        """
        now = await asyncio.to_thread(canonical_tools, list(tools))  # there may be ten thousand
        locked = self.lock.get(server)
        if locked is not None:
            differing = _differing({name: tool for name, tool in now.items() if name != INSTRUCTIONS}, locked)
            if differing and starting:
                text = ", ".join(f"{name} {difference}" for name, difference in differing.items())
                raise PolicyError(
                    f"differs from {LOCK_FILE}: {text}",
                    server=server,
                    hint=f"%mcp load {quoted(server)} runs it unlocked; then %mcp pins export updates the file",
                )
            self._unlocked[digest] = frozenset(differing)
        else:
            self._unlocked.pop(digest, None)
        differences = await self.pins.compare(digest, server, now)
        if differences.reordered:
            self._notify(_REORDERED.format(server=server, tools=shortened(", ".join(differences.reordered), _LONG)))
        self._differences[digest] = differences
        self._update_policy()
        return differences

    def is_locked_out(self, server: str, tools: Iterable[ToolDefinition]) -> bool:
        """Whether a locked server's tools differ from the lock file."""
        locked = self.lock.get(server)
        return locked is not None and bool(_differing(canonical_tools(tools), locked))

    async def refresh(self) -> None:
        """Apply the changes that other kernels have accepted."""
        for digest, before in [*self._differences.items()]:
            if before.changed or before.new:
                pinned = await self.pins.of(digest)
                still = before.without(
                    name
                    for name, now in {**before.changed, **before.new}.items()
                    if name in pinned and pinned[name].hash == now
                )
                if self._differences.get(digest) is before:
                    self._differences[digest] = still
        self._update_policy()

    async def accept(self, digest: str, server: str, tools: Iterable[ToolDefinition]) -> None:
        """Pin the current definitions of some tools."""
        accepted = canonical_tools(tools)
        await self.pins.accept(digest, server, accepted)
        before = self._differences.get(digest, Differences({}, {}))
        self._differences[digest] = before.without(accepted)
        self._update_policy()

    def lock_servers(self, servers: Iterable[str], lock: Lock | None) -> None:
        """Lock servers to a lock file from their next start on, or unlock them with None.

        Raises:
            PolicyError: The lock file does not have the server.
        """
        for server in servers:
            if lock is None:
                self.lock.pop(server, None)
            elif server in lock:
                self.lock[server] = lock[server]
            else:
                raise PolicyError(f"is not in {LOCK_FILE}", server=server, hint="%mcp pins export updates the file")

    def has_changed(self, digest: str, tool: str) -> bool:
        """Whether a tool differs from its pin."""
        return digest in self._differences and tool in self._differences[digest].changed

    def is_new(self, digest: str, tool: str) -> bool:
        """Whether a tool was added after its server's others were pinned."""
        return digest in self._differences and tool in self._differences[digest].new

    def _update_policy(self) -> None:
        self._policy.set_changed(
            _pairs({digest: each.changed for digest, each in self._differences.items()}),
            _pairs(self._unlocked),
            _pairs({digest: each.new for digest, each in self._differences.items()}),
        )


def _pairs(names: Mapping[str, Iterable[str]]) -> frozenset[tuple[str, str]]:
    return frozenset((digest, name) for digest, tools in names.items() for name in tools)


def _differing(now: Mapping[str, CanonicalTool], locked: Mapping[str, str]) -> dict[str, str]:
    """Return the tools that differ from a lock file, each with the difference as a phrase."""
    changed = {name: "has changed" for name, tool in now.items() if locked.get(name, tool.hash) != tool.hash}
    new = {name: "is new" for name in now if name not in locked}
    gone = {name: "is gone" for name in locked if name not in now}
    return changed | new | gone


def write_lock(path: Path, servers: Mapping[str, Iterable[ToolDefinition]]) -> None:
    """Write the fingerprints of servers' current tools to a lock file.

    Raises:
        ConfigError: The file cannot be written.
    """
    hashes = {
        server: {name: tool.hash for name, tool in sorted(canonical_tools(tools).items())}
        for server, tools in sorted(servers.items())
    }
    text = json.dumps({"version": _VERSION, "servers": hashes}, indent=2, ensure_ascii=False) + "\n"
    try:
        write_file(path, text, SHARED)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}", hint=write_hint(error)) from None


def read_lock(folder: str) -> Lock:
    """Read the lock file in a folder.

    Raises:
        ConfigError: The file does not exist or is invalid.
    """
    hint = "%mcp pins export writes one from the servers that are loaded"
    path = Path(folder, LOCK_FILE)
    try:
        document: Any = json.loads(read_file(path, _MAX_LOCK_BYTES, owners=trusted_owners()))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file", hint=hint) from None
    except OSError as error:
        raise ConfigError(f"{path}: {read_problem(error)}", hint=f"delete it; {hint}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: not JSON: {error}", hint=hint) from None
    except RecursionError:
        raise ConfigError(f"{path}: nested too deeply", hint=hint) from None
    servers = document.get("servers") if is_object(document) and document.get("version") == _VERSION else None
    if not is_object(servers) or not all(is_object(hashes) for hashes in servers.values()):
        raise ConfigError(f"{path}: not a lock file of version {_VERSION}", hint=hint)
    return servers
