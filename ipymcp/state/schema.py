"""The tables of the database, as one migration after the other.

A database knows how many it has seen (`PRAGMA user_version`). Once released, a migration is never changed: what comes
later is appended. Each table is read and written by one module, which is named here.
"""

from __future__ import annotations

from typing import Final

__all__ = ["MIGRATIONS"]

MIGRATIONS: Final[tuple[tuple[str, ...], ...]] = (
    (
        # known.py
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
            last_seen REAL  -- seconds since 1970; when it last answered
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
        # safe.py
        """
        CREATE TABLE secrets (
            kind TEXT NOT NULL,  -- secret, input, tokens, registration
            name TEXT NOT NULL,
            place TEXT NOT NULL,  -- keyring, vault, memory
            sealed BLOB,  -- in the vault: the key's id, nonce, ciphertext; in memory: the text
            changed REAL NOT NULL,
            PRIMARY KEY (kind, name)
        )
        """,
        # trust.py
        """
        CREATE TABLE trust (
            digest TEXT PRIMARY KEY,  -- of the definition
            server TEXT NOT NULL,
            file TEXT NOT NULL,
            is_own INTEGER NOT NULL,  -- whether the file is the user's own
            may_run INTEGER NOT NULL,  -- what the user said
            secrets TEXT NOT NULL,  -- JSON: the names of those it may have
            decided REAL NOT NULL  -- seconds since 1970
        )
        """,
        # policy/remembered.py
        """
        CREATE TABLE approvals (
            id INTEGER PRIMARY KEY,
            digest TEXT NOT NULL,  -- of the definition whose tools it is about; empty: of any
            pattern TEXT NOT NULL,
            decision TEXT NOT NULL,
            server TEXT NOT NULL,
            caller TEXT NOT NULL,  -- whose calls it is about; empty: everybody's
            decided REAL NOT NULL,
            UNIQUE (digest, pattern, caller)
        )
        """,
        # policy/pins.py
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
            time REAL NOT NULL,  -- when it began
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
        # trust.py: the files that an agreement is bound to, in words
        "ALTER TABLE trust ADD COLUMN bound TEXT NOT NULL DEFAULT ''",
    ),
)
