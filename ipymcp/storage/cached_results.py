"""Stored results of tools that only read, for later maps in all notebooks.

The least recently used results are deleted. A result with a known secret is not stored, because masking would change
it.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from typing import TYPE_CHECKING, Final

import msgspec

from ipymcp.masking import mask

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from sqlite3 import Connection

    from ipymcp.storage.database import Database


MAX_BYTES: Final = 100_000_000
"""Maximum size of all stored results."""
MAX_RESULT_BYTES: Final = 1_000_000
_ROW_BYTES: Final = 200
"""Size of a row in addition to its result."""
_PRUNE_EVERY: Final = 5_000_000
"""Number of bytes written by this process after which the least recently used rows are deleted."""
_MAX_PARAMETERS: Final = 990
_FLUSH_INTERVAL: Final = 0.5
"""Seconds."""
_MAX_BATCH: Final = 500


def result_key(server: str, tool: str, arguments: bytes) -> bytes:
    """The key of a result, which does not reveal the arguments.

    Args:
        server: Digest of the server's definition.
        tool: Fingerprint of the tool's definition.
        arguments: The arguments as a JSON object.
    """
    return hashlib.sha256(b"\0".join((server.encode(), tool.encode(), arguments))).digest()


class CachedResults:
    """The stored results that all kernels of the user share."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._unpruned = float("inf")

    async def find(self, keys: Sequence[bytes], since: float) -> dict[bytes, bytes]:
        """Return the JSON of the results that were stored since a time, in seconds since the epoch."""
        results: dict[bytes, bytes] = {}
        for start in range(0, len(keys), _MAX_PARAMETERS):
            some = keys[start : start + _MAX_PARAMETERS]
            sql = f"SELECT key, result FROM cached_results WHERE key IN ({_places(some)}) AND stored >= ?"
            results.update(await self._database.aquery(sql, (*some, since)))
        if results:
            used = [*results]
            self._database.post(lambda connection: _touch(connection, used))
        return results

    def keep(self, results: Mapping[bytes, bytes]) -> None:
        """Store the JSON of results by key, without waiting for the write."""
        kept = {
            key: result
            for key, result in results.items()
            if len(result) <= MAX_RESULT_BYTES and mask(text := result.decode("utf-8", "replace")) == text
        }
        if kept:
            self._database.post(lambda connection: self._write(connection, kept))

    def _write(self, connection: Connection, results: Mapping[bytes, bytes]) -> None:
        now = time.time()
        rows = [(key, result, len(result) + _ROW_BYTES, now, now) for key, result in results.items()]
        sql = "INSERT OR REPLACE INTO cached_results (key, result, size, stored, used) VALUES (?, ?, ?, ?, ?)"
        connection.executemany(sql, rows)
        self._unpruned += sum(row[2] for row in rows)
        if self._unpruned >= _PRUNE_EVERY:
            self._unpruned = 0
            connection.execute(
                "DELETE FROM cached_results WHERE key IN (SELECT key FROM ("
                "SELECT key, sum(size) OVER (ORDER BY used DESC, key) AS total FROM cached_results) WHERE total > ?)",
                (MAX_BYTES,),
            )


def _touch(connection: Connection, keys: Sequence[bytes]) -> None:
    for start in range(0, len(keys), _MAX_PARAMETERS):
        some = keys[start : start + _MAX_PARAMETERS]
        sql = f"UPDATE cached_results SET used = ? WHERE key IN ({_places(some)})"
        connection.execute(sql, (time.time(), *some))


def _places(keys: Sequence[bytes]) -> str:
    return ", ".join("?" * len(keys))


class ResultCache:
    """The stored results of one tool, for one map. Belongs to the background loop.

    Args:
        results: The results of all tools.
        server: Digest of the server's definition.
        tool: Fingerprint of the tool's definition.
        since: The earliest time at which a usable result was stored, in seconds since the epoch.
    """

    def __init__(self, results: CachedResults, server: str, tool: str, since: float) -> None:
        self._results = results
        self._server = server
        self._tool = tool
        self._since = since
        self._pending: dict[bytes, bytes] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def find(self, arguments: Iterable[bytes]) -> dict[bytes, bytes]:
        """Return the JSON of the known results, by the JSON of the arguments."""
        keys = {self._key(each): each for each in arguments}
        results = await self._results.find([*keys], self._since)
        return {keys[key]: result for key, result in results.items()}

    def keep(self, arguments: bytes, result: bytes) -> None:
        """Store a result with the next flush: a kernel that is killed loses the results of at most half a second."""
        self._pending[self._key(arguments)] = result
        if len(self._pending) >= _MAX_BATCH:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_FLUSH_INTERVAL, self.flush)

    def flush(self) -> None:
        """Pass the pending results to the database's thread."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pending, self._pending = self._pending, {}
        self._results.keep(pending)

    def _key(self, arguments: bytes) -> bytes:
        return result_key(self._server, self._tool, msgspec.json.encode(msgspec.json.decode(arguments), order="sorted"))
