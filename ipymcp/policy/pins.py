"""What each tool was when it was first used: a hash over its canonical definition, and the definition itself.

Source: the canonical form is JSON with sorted keys and no blanks; what is absent is left out.
"""

from __future__ import annotations

import hashlib
import json
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import Struct

from ipymcp.masking import mask
from ipymcp.protocol import wire

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from sqlite3 import Connection

    from msgspec import Raw

    from ipymcp.protocol.wire import ToolDefinition
    from ipymcp.state.db import Database

__all__ = ["Differences", "Pin", "Pins", "Spelled", "canonical", "fingerprint", "spelled"]

_PARTS = ("inputSchema", "outputSchema", "annotations")


class Pin(Struct, frozen=True):
    """A tool as it was pinned."""

    hash: str
    definition: str
    """Canonical, its secrets masked."""
    pinned: float
    """When, in seconds since the epoch."""


class Spelled(NamedTuple):
    """A tool as it is now."""

    text: str
    """Its canonical definition."""
    hash: str


def canonical(definition: ToolDefinition) -> str:
    """All of a definition that a model or a person reads, as JSON in one spelling."""
    parts: dict[str, Any] = {"name": definition.name, "title": definition.title, "description": definition.description}
    for part in _PARTS:
        raw: Raw = getattr(definition, part)
        if len(raw):
            parts[part] = wire.loads(raw)
    said = {key: value for key, value in parts.items() if value is not None}
    try:
        return msgspec.json.encode(said, order="sorted").decode()
    except UnicodeEncodeError:  # lone surrogates
        return json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def fingerprint(text: str) -> str:
    """SHA-256, in hex, of a canonical definition."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def spelled(tools: Iterable[ToolDefinition]) -> dict[str, Spelled]:
    """Each tool's canonical definition and its fingerprint, by name; of two of one name the first's."""
    found: dict[str, Spelled] = {}
    for tool in tools:
        if tool.name not in found:
            text = canonical(tool)
            found[tool.name] = Spelled(text, fingerprint(text))
    return found


class Differences(NamedTuple):
    """What differs from what was pinned: the fingerprints now, by tool."""

    changed: dict[str, str]
    new: dict[str, str]
    """Tools that there were none of when the server's others were pinned."""

    def without(self, names: Iterable[str]) -> Differences:
        """The same without these tools."""
        gone = frozenset(names)
        return Differences(*({name: now for name, now in one.items() if name not in gone} for one in self))


class Pins:
    """What was pinned of each definition's tools.

    Args:
        database: Where it is kept.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def compare(self, digest: str, server: str, tools: Mapping[str, Spelled]) -> Differences:
        """What differs from what was pinned. All tools are pinned when the first of the definition are seen.

        Args:
            digest: Of the server's definition.
            server: Its name, for people.
            tools: As they are now.
        """
        rows = await self._database.aquery("SELECT tool, hash FROM pins WHERE digest = ?", (digest,))
        pinned: dict[str, str] = dict(rows)
        if not pinned:
            if tools:
                await self._insert("IGNORE", digest, server, tools)
            return Differences({}, {})
        return Differences(
            {name: now.hash for name, now in tools.items() if pinned.get(name, now.hash) != now.hash},
            {name: now.hash for name, now in tools.items() if name not in pinned},
        )

    async def of(self, digest: str) -> Mapping[str, Pin]:
        """What is pinned of one definition, by tool."""
        rows = await self._database.aquery(
            "SELECT tool, hash, definition, pinned FROM pins WHERE digest = ?", (digest,)
        )
        return {tool: Pin(found, definition, pinned) for tool, found, definition, pinned in rows}

    async def accept(self, digest: str, server: str, tools: Mapping[str, Spelled]) -> None:
        """Pin them as they are now."""
        await self._insert("REPLACE", digest, server, tools)

    async def _insert(self, otherwise: str, digest: str, server: str, tools: Mapping[str, Spelled]) -> None:
        def insert(connection: Connection) -> None:
            now = time.time()
            rows = ((digest, name, one.hash, _storable(one.text), server, now) for name, one in tools.items())
            connection.executemany(f"INSERT OR {otherwise} INTO pins VALUES (?, ?, ?, ?, ?, ?)", rows)

        await self._database.atransact(insert)


def _storable(text: str) -> str:
    return mask(text).encode("utf-8", "replace").decode()
