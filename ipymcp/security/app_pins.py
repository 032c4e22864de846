"""Pins of apps: the pages that the user has seen, and the rights that the user has granted them.

A page is pinned together with the needs that it declares (see `AppPage.hash`), by the digest of its server's definition
and its URI. The pins are stored in the table of the pins of tools, under digests that no server's definition has.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipymcp.storage.database import Database


class AppPin(Struct, frozen=True):
    """A page that the user has seen.

    Attributes:
        hash: Hash of the page.
        is_granted: Whether the user has granted the needs that the page declares: domains and permissions.
        allows_eval: Whether scripts of the page may compile text.
    """

    hash: str
    is_granted: bool = False
    allows_eval: bool = False


class AppPins:
    """The stored pins of apps. Its coroutines run on the background loop.

    Args:
        database: Returns the database.
    """

    def __init__(self, database: Callable[[], Database]) -> None:
        self._database = database

    async def of(self, digest: str, uri: str) -> AppPin | None:
        """Return the pin of a page; None if it was never seen."""
        rows = await self._database().aquery(
            "SELECT definition FROM pins WHERE digest = ? AND tool = ?", (_key(digest), uri)
        )
        try:
            return msgspec.json.decode(rows[0][0], type=AppPin) if rows else None
        except msgspec.MsgspecError:
            return None

    async def keep(self, digest: str, server: str, uri: str, pin: AppPin) -> None:
        """Store a pin, in place of an earlier one."""
        row = (_key(digest), uri, pin.hash, msgspec.json.encode(pin).decode(), server, time.time())
        await self._database().atransact(
            lambda connection: connection.execute("INSERT OR REPLACE INTO pins VALUES (?, ?, ?, ?, ?, ?)", row)
        )


def _key(digest: str) -> str:
    return f"apps of {digest}"
