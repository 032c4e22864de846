"""The SQLite database that all kernels of a user share, and its migrations. An unusable file is replaced by memory.

A database counts its migrations (`PRAGMA user_version`). A released migration is never changed: new ones are appended.
Each table is read and written by the one module that is named above it.

Each process has one connection, owned by a thread that starts at the first use. Callers block until that thread has
finished, await it (the methods with an `a`), or do not wait for it (`post`). The journal mode is TRUNCATE, because WAL
is unsafe on network file systems.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from ipymcp.files import create_file, foreign, make_private

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from sqlite3 import Connection


MIGRATIONS: Final[tuple[tuple[str, ...], ...]] = (
    (
        # known_servers.py
        """
        CREATE TABLE servers (
            digest TEXT PRIMARY KEY,  -- of the definition
            name TEXT NOT NULL,
            transport TEXT NOT NULL,
            auth TEXT NOT NULL,
            enabled INTEGER NOT NULL,
            status TEXT NOT NULL,
            era TEXT,
            version TEXT NOT NULL,
            instructions TEXT NOT NULL,
            error TEXT NOT NULL,
            last_seen REAL  -- time of the last response, in seconds since 1970
        )
        """,
        """
        CREATE TABLE catalogs (
            digest TEXT NOT NULL,
            kind TEXT NOT NULL,  -- tools, resources, templates, prompts
            items BLOB NOT NULL,  -- a JSON array of definitions
            count INTEGER NOT NULL,
            listed REAL NOT NULL,
            PRIMARY KEY (digest, kind)
        )
        """,
        # secrets.py
        """
        CREATE TABLE secrets (
            kind TEXT NOT NULL,  -- secret, input, tokens, registration
            name TEXT NOT NULL,
            place TEXT NOT NULL,  -- keyring, vault, memory
            sealed BLOB,  -- in the vault: id of the key, nonce, ciphertext; in memory: the value
            changed REAL NOT NULL,
            PRIMARY KEY (kind, name)
        )
        """,
        # security/trust.py
        """
        CREATE TABLE trust (
            digest TEXT PRIMARY KEY,  -- of the definition
            server TEXT NOT NULL,
            file TEXT NOT NULL,
            is_own INTEGER NOT NULL,  -- whether the file is the user's own
            may_run INTEGER NOT NULL,  -- the decision of the user
            secrets TEXT NOT NULL,  -- JSON: the names of the secrets it may get
            decided REAL NOT NULL  -- seconds since 1970
        )
        """,
        # security/rules.py
        """
        CREATE TABLE approvals (
            id INTEGER PRIMARY KEY,
            digest TEXT NOT NULL,  -- of the definition of the server; empty for any server
            pattern TEXT NOT NULL,
            decision TEXT NOT NULL,
            server TEXT NOT NULL,
            caller TEXT NOT NULL,  -- the only caller it applies to; empty for all callers
            decided REAL NOT NULL,
            UNIQUE (digest, pattern, caller)
        )
        """,
        # security/pins.py
        """
        CREATE TABLE pins (
            digest TEXT NOT NULL,
            tool TEXT NOT NULL,
            hash TEXT NOT NULL,  -- of the tool's canonical definition
            definition TEXT NOT NULL,
            server TEXT NOT NULL,
            pinned REAL NOT NULL,
            PRIMARY KEY (digest, tool)
        )
        """,
        # history.py
        """
        CREATE TABLE history (
            id INTEGER PRIMARY KEY,
            time REAL NOT NULL,  -- start, in seconds since 1970
            duration REAL NOT NULL,
            caller TEXT NOT NULL,
            server TEXT NOT NULL,
            tool TEXT NOT NULL,
            sent INTEGER NOT NULL,  -- bytes
            received INTEGER NOT NULL,
            error TEXT NOT NULL,
            notebook TEXT NOT NULL,
            cell INTEGER,
            arguments BLOB,  -- with history = "values"
            result BLOB
        )
        """,
    ),
    (
        # security/trust.py: the files that an agreement is bound to, as a phrase
        "ALTER TABLE trust ADD COLUMN bound TEXT NOT NULL DEFAULT ''",
    ),
    (
        # notebooks.py: the servers that a notebook has loaded and not unloaded
        """
        CREATE TABLE notebook_servers (
            notebook TEXT NOT NULL,  -- its path
            name TEXT NOT NULL,
            digest TEXT NOT NULL,
            file TEXT NOT NULL,  -- of the definition; empty if it was typed in a cell
            loaded REAL NOT NULL,  -- seconds since 1970
            PRIMARY KEY (notebook, name)
        )
        """,
    ),
    (
        # history.py
        "ALTER TABLE history ADD COLUMN outcome TEXT NOT NULL DEFAULT 'done'",
        "ALTER TABLE history ADD COLUMN questions TEXT",  # with history = "values"
        """
        UPDATE history SET outcome = CASE
            WHEN error = 'CallCancelled: the user interrupted it' THEN 'interrupted'
            WHEN error LIKE 'CallCancelled: %' THEN 'cancelled'
            WHEN error LIKE 'PolicyError: %' OR error LIKE 'TrustError: %' THEN 'refused'
            ELSE 'failed' END
        WHERE error != ''
        """,
    ),
    (
        # chats.py
        """
        CREATE TABLE chats (
            notebook TEXT NOT NULL,  -- its path, or its folder
            name TEXT NOT NULL,
            messages BLOB NOT NULL,  -- a JSON array
            source TEXT NOT NULL,  -- of untrusted content that the model has read
            changed REAL NOT NULL,  -- seconds since 1970
            PRIMARY KEY (notebook, name)
        )
        """,
    ),
    (
        # history.py
        "ALTER TABLE history ADD COLUMN map INTEGER",  # of a row for a map: the number of the map in its kernel
        "ALTER TABLE history ADD COLUMN calls INTEGER",  # of a row for a map: the number of its calls
        """
        CREATE TABLE map_calls (  -- the calls of maps, with the columns of history
            id INTEGER PRIMARY KEY,
            time REAL NOT NULL,
            duration REAL NOT NULL,
            caller TEXT NOT NULL,
            server TEXT NOT NULL,
            tool TEXT NOT NULL,
            sent INTEGER NOT NULL,
            received INTEGER NOT NULL,
            error TEXT NOT NULL,
            notebook TEXT NOT NULL,
            cell INTEGER,
            map INTEGER NOT NULL,
            calls INTEGER,  -- always NULL
            outcome TEXT NOT NULL,
            arguments BLOB,
            result BLOB,
            questions TEXT
        )
        """,
        "CREATE INDEX map_calls_map ON map_calls (map)",
        # cached_results.py
        """
        CREATE TABLE cached_results (
            key BLOB PRIMARY KEY,  -- SHA-256 of the definitions of server and tool, and the arguments
            result BLOB NOT NULL,
            size INTEGER NOT NULL,  -- bytes
            stored REAL NOT NULL,  -- seconds since 1970
            used REAL NOT NULL
        )
        """,
        "CREATE INDEX cached_results_used ON cached_results (used, size)",
    ),
    (
        # security/rules.py: whether the rule also covers calls of a model that has read untrusted content
        "ALTER TABLE approvals ADD COLUMN doubted INTEGER NOT NULL DEFAULT 0",
        # history.py: the model that made the call, and its answer
        *(
            f"ALTER TABLE {table} ADD COLUMN {column} TEXT NOT NULL DEFAULT ''"
            for table in ("history", "map_calls")
            for column in ("model", "provider", "answer")
        ),
    ),
    (
        # notebooks.py: a JSON object, encrypted if it holds a secret
        "ALTER TABLE notebook_servers ADD COLUMN stored BLOB NOT NULL DEFAULT ''",
        "ALTER TABLE notebook_servers ADD COLUMN is_sealed INTEGER NOT NULL DEFAULT 0",
        """
        CREATE TABLE notebook_rules (
            notebook TEXT NOT NULL,  -- its path, or its folder
            kind TEXT NOT NULL,  -- rule, tool, server
            pattern TEXT NOT NULL,
            decision TEXT NOT NULL,
            digest TEXT NOT NULL,  -- of the definition of the server; empty for any server
            doubted INTEGER NOT NULL,
            decided REAL NOT NULL,  -- seconds since 1970
            PRIMARY KEY (notebook, kind, pattern, digest)
        )
        """,
    ),
)


if TYPE_CHECKING:
    Value: TypeAlias = str | bytes | int | float | None
    Row: TypeAlias = tuple[Any, ...]


T = TypeVar("T")
_LOGGER = logging.getLogger("ipymcp.storage")
_TIMEOUT = 5.0
_CLOSE_TIMEOUT = 0.5
_REASONS = {
    3: "cannot be opened",  # SQLITE_PERM
    5: "is locked by another program",  # SQLITE_BUSY
    6: "is locked by another program",  # SQLITE_LOCKED
    8: "cannot be written",  # SQLITE_READONLY
    10: "cannot be read or written",  # SQLITE_IOERR
    11: "is damaged",  # SQLITE_CORRUPT
    13: "is full: no space is left",  # SQLITE_FULL
    14: "cannot be opened",  # SQLITE_CANTOPEN
    15: "is locked by another program",  # SQLITE_PROTOCOL
    26: "is damaged",  # SQLITE_NOTADB
}
"""SQLite error codes that mean an unusable file. Any other code is a fault of the statement."""
_STILL_READABLE = (8, 10, 13)


class _Unusable(Exception):
    """The file cannot be used; the message is the reason."""


class Database:
    """A SQLite database in a file or in memory. Thread-safe, and usable from any event loop.

    Args:
        path: The file, created at the first use; None for memory.
        warn: Called once, from another thread, if the file cannot be used.
        timeout: Seconds to wait for writes of other processes.
    """

    def __init__(
        self, path: Path | None, warn: Callable[[str], None] = _LOGGER.warning, timeout: float = _TIMEOUT
    ) -> None:
        self.path = path
        self.is_lasting = path is not None
        """Whether stored data outlives the process, as far as is known."""
        self._warn = warn
        self._timeout = timeout
        self._parents: Connection | None = None
        """In a forked child: the parent's connection, kept because SQLite forbids even to close it here."""
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._ending: threading.Thread | None = None
        """The previous thread, which may still have jobs to finish."""
        self._connection: Connection | None = None

    def __del__(self) -> None:
        if self._connection is not None and self._pid == os.getpid():  # a database in memory, which ends with this
            self._connection.close()

    # -- queries ------------------------------------------------------------------------------------------------------

    def query(self, sql: str, parameters: Sequence[Value] = ()) -> list[Row]:
        """Return the rows of one reading statement."""
        return self._submit(lambda connection: connection.execute(sql, parameters).fetchall()).result()

    async def aquery(self, sql: str, parameters: Sequence[Value] = ()) -> list[Row]:
        """Async variant of `query`."""
        return await asyncio.wrap_future(
            self._submit(lambda connection: connection.execute(sql, parameters).fetchall())
        )

    def execute(self, sql: str, parameters: Sequence[Value] = ()) -> int:
        """Run one writing statement and return the number of affected rows."""
        return self.transact(lambda connection: connection.execute(sql, parameters).rowcount)

    async def aexecute(self, sql: str, parameters: Sequence[Value] = ()) -> int:
        """Async variant of `execute`."""
        return await self.atransact(lambda connection: connection.execute(sql, parameters).rowcount)

    def transact(self, function: Callable[[Connection], T]) -> T:
        """Run a function in an exclusive transaction, which an exception rolls back.

        The function runs in the database's thread, and may run twice: first on a file that turns out to be unusable.
        """
        return self._submit(lambda connection: _transaction(connection, function)).result()

    async def atransact(self, function: Callable[[Connection], T]) -> T:
        """Async variant of `transact`."""
        return await asyncio.wrap_future(self._submit(lambda connection: _transaction(connection, function)))

    def post(self, function: Callable[[Connection], object]) -> None:
        """Schedule a transaction without waiting for it; an exception is logged."""
        self._submit(lambda connection: _transaction(connection, function)).add_done_callback(_log_failure)

    def close(self, timeout: float = _CLOSE_TIMEOUT) -> None:
        """Finish the posted transactions and close the file, within `timeout` seconds. The next use reopens it."""
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is None or self._pid != os.getpid():
                return
            self._ending = thread
            self._jobs.put(None)
            self._jobs = SimpleQueue()
        thread.join(timeout)

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _submit(self, function: Callable[[Connection], T]) -> Future[T]:
        future: Future[T] = Future()

        def job() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(self._perform(function))
            except BaseException as error:
                future.set_exception(error)

        if self._pid != os.getpid():  # this is a forked child
            self._parents = self._connection
            self._reset()
        with self._lock:
            if self._thread is None:
                before, self._ending = self._ending, None
                self._thread = threading.Thread(
                    target=self._work, args=(self._jobs, before), name="ipymcp-state", daemon=True
                )
                self._thread.start()
            self._jobs.put(job)
        return future

    def _work(self, jobs: SimpleQueue[Callable[[], None] | None], before: threading.Thread | None) -> None:
        if before is not None:
            before.join()
        while (job := jobs.get()) is not None:
            job()
        if self._connection is not None and self.is_lasting:  # closing a memory database would drop it
            self._connection.close()
            self._connection = None

    def _perform(self, function: Callable[[Connection], T]) -> T:
        import sqlite3

        try:
            if self._connection is None:
                self._connection = self._open()
            return function(self._connection)
        except _Unusable as unusable:
            self._degrade(str(unusable), None)
        except OSError as error:
            self._degrade(f"cannot be opened ({error.strerror})", None)
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the primary code
            if code not in _REASONS or not self.is_lasting:
                raise
            self._degrade(_REASONS[code], self._connection if code in _STILL_READABLE else None)
        assert self._connection is not None
        return function(self._connection)

    # -- the file -----------------------------------------------------------------------------------------------------

    def _open(self) -> Connection:
        if self.path is None or not self.is_lasting:
            return _connect(":memory:", self._timeout)
        if foreign(self.path.parent) or foreign(self.path):
            raise _Unusable("belongs to another user")
        create_file(self.path)
        make_private(self.path)
        return _connect(str(self.path), self._timeout)

    def _degrade(self, reason: str, readable: Connection | None) -> None:
        """Continue in memory with the data that can still be read."""
        import sqlite3

        failed, self.is_lasting = self._connection, False
        self._connection = _connect(":memory:", self._timeout)
        if readable is not None:
            tables = self._connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            with suppress(sqlite3.Error):
                for (table,) in tables:
                    rows = readable.execute(f"SELECT * FROM {table}")
                    placeholders = ", ".join("?" * len(rows.description))
                    self._connection.executemany(f"INSERT INTO {table} VALUES ({placeholders})", rows)
        if failed is not None:
            failed.close()
        self._warn(f"{self.path} {reason}: new data is kept in memory, until this kernel ends")


def _connect(path: str, timeout: float) -> Connection:
    """Open a connection and migrate its tables; raises `_Unusable` for a newer database version."""
    import sqlite3

    connection = sqlite3.connect(path, timeout=timeout, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode=TRUNCATE").close()
        if _version(connection) != len(MIGRATIONS):
            _transaction(connection, _migrate)
    except BaseException:
        connection.close()
        raise
    return connection


def _version(connection: Connection) -> int:
    return connection.execute("PRAGMA user_version").fetchone()[0]


def _migrate(connection: Connection) -> None:
    version = _version(connection)
    if version > len(MIGRATIONS):
        raise _Unusable(f"was written by a newer ipymcp (version {version}; this one supports {len(MIGRATIONS)})")
    for statements in MIGRATIONS[version:]:
        for statement in statements:
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version={len(MIGRATIONS)}")


def _transaction(connection: Connection, function: Callable[[Connection], T]) -> T:
    import sqlite3

    connection.execute("BEGIN IMMEDIATE")  # a deferred transaction that reads before it writes cannot wait for others
    try:
        result = function(connection)
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # SQLite may have rolled back already
            connection.execute("ROLLBACK")
        raise
    return result


def _log_failure(future: Future[Any]) -> None:
    error = future.exception()
    if error is not None:
        _LOGGER.error("writing to the database failed: %s", error, exc_info=error)
