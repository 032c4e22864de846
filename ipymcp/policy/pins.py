"""What each tool was when it was first used: a hash over its canonical definition, and the definition itself.

Source: the canonical form is JSON with sorted keys and no blanks; what is absent is left out.
"""

from __future__ import annotations

import hashlib
import json
import time
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from ipymcp.masking import mask
from ipymcp.protocol import wire

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from msgspec import Raw

    from ipymcp.protocol.wire import ToolDefinition
    from ipymcp.state.db import Database

__all__ = ["Pin", "Pins", "canonical", "fingerprint"]

_PARTS = ("inputSchema", "outputSchema", "annotations")


class Pin(Struct, frozen=True):
    """A tool as it was pinned."""

    hash: str
    definition: str
    """Canonical, its secrets masked."""
    pinned: float
    """When, in seconds since the epoch."""


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


class Pins:
    """What was pinned of each definition's tools.

    Args:
        database: Where it is kept.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def compare(self, digest: str, server: str, tools: Iterable[ToolDefinition]) -> tuple[str, ...]:
        """The names of those that have changed. What is new is pinned.

        Args:
            digest: Of the server's definition.
            server: Its name, for people.
            tools: As they are now.
        """
        pinned = await self.of(digest)
        changed: list[str] = []
        new: list[tuple[str | float, ...]] = []
        for tool in tools:
            text = canonical(tool)
            found, known = fingerprint(text), pinned.get(tool.name)
            if known is None:
                new.append((digest, tool.name, found, _storable(text), server, time.time()))
            elif known.hash != found:
                changed.append(tool.name)
        if new:
            await self._insert("IGNORE", new)
        return tuple(changed)

    async def of(self, digest: str) -> Mapping[str, Pin]:
        """What is pinned of one definition, by tool."""
        rows = await self._database.aquery(
            "SELECT tool, hash, definition, pinned FROM pins WHERE digest = ?", (digest,)
        )
        return {tool: Pin(found, definition, pinned) for tool, found, definition, pinned in rows}

    async def accept(self, digest: str, server: str, tools: Iterable[ToolDefinition]) -> None:
        """Pin them as they are now."""
        texts = [(tool.name, canonical(tool)) for tool in tools]
        rows = [(digest, name, fingerprint(text), _storable(text), server, time.time()) for name, text in texts]
        await self._insert("REPLACE", rows)

    async def _insert(self, otherwise: str, rows: Sequence[tuple[str | float, ...]]) -> None:
        sql = f"INSERT OR {otherwise} INTO pins VALUES (?, ?, ?, ?, ?, ?)"
        await self._database.atransact(lambda connection: connection.executemany(sql, rows))


def _storable(text: str) -> str:
    return mask(text).encode("utf-8", "replace").decode()
