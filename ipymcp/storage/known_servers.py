"""Status and catalogs of all servers that were ever loaded, by the digest of their definition.

Changes are collected and written in batches, so that calls and starts do not wait for them. With the stored catalog, a
server can be browsed without being started.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct

from ipymcp.masking import looks_secret, mask
from ipymcp.protocol import types

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from sqlite3 import Connection

    from ipymcp.config.definition import ServerDefinition
    from ipymcp.protocol.negotiation import EraChoice
    from ipymcp.storage.database import Database, Row


Status = Literal["pending", "connected", "unreachable", "error"]
AuthType = Literal["none", "api_key", "bearer", "oauth2"]
Definitions: TypeAlias = "dict[str, list[Any]]"
"""Definitions of a catalog, by kind."""
KINDS: Mapping[str, type[msgspec.Struct]] = {
    "tools": types.ToolDefinition,
    "resources": types.ResourceDefinition,
    "templates": types.TemplateDefinition,
    "prompts": types.PromptDefinition,
}
_CALLED = ("tools", "prompts")
"""The kinds whose names must not be masked, because they are needed for calls."""
_FIELDS = "digest, name, transport, auth, enabled, status, era, version, instructions, error, last_seen"
_LOGGED_IN = "EXISTS (SELECT 1 FROM secrets WHERE kind = 'tokens' AND instr(secrets.name, digest))"
_COLUMNS = _FIELDS.replace("auth", f"CASE WHEN {_LOGGED_IN} THEN 'oauth2' ELSE auth END")


class KnownServer(Struct, frozen=True):
    """A definition that some kernel has loaded."""

    digest: str
    name: str
    """The server's latest name."""
    transport: str
    auth: AuthType
    enabled: bool
    status: Status
    era: EraChoice | None
    """The era of the latest handshake."""
    version: str
    """The latest negotiated protocol version, or the empty string."""
    instructions: str
    error: str
    """The latest failure, in one line."""
    last_seen: float | None
    """The latest response, in seconds since the epoch."""


class _PendingRows(NamedTuple):
    """Pending changes to the tables."""

    servers: dict[str, dict[str, Any]]
    lists: dict[tuple[str, str], tuple[bytes, int, float]]

    def write(self, connection: Connection) -> None:
        for digest, values in self.servers.items():
            connection.execute(
                "INSERT OR IGNORE INTO servers VALUES (?, '', '', 'none', 1, 'pending', NULL, '', '', '', NULL)",
                (digest,),
            )
            columns = ", ".join(f"{name} = ?" for name in values)
            connection.execute(f"UPDATE servers SET {columns} WHERE digest = ?", (*values.values(), digest))
        for (digest, kind), row in self.lists.items():
            connection.execute("INSERT OR REPLACE INTO catalogs VALUES (?, ?, ?, ?, ?)", (digest, kind, *row))


class KnownServers:
    """Access to the stored status and catalogs of servers. Thread-safe."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._changes: dict[str, dict[str, Any]] = {}
        self._lists: dict[tuple[str, str], tuple[bytes, int, float]] = {}
        self._is_scheduled = False
        self._eras: dict[str, EraChoice | None] = {}

    # -- writing ------------------------------------------------------------------------------------------------------

    def loaded(self, definition: ServerDefinition, digest: str) -> None:
        """Record that a definition was loaded."""
        self._change(
            digest,
            name=definition.name,
            transport=definition.transport,
            auth=_auth_type(definition),
            enabled=not definition.disabled,
        )

    def moved(self, digest: str, status: Status, error: str = "") -> None:
        """Record a new status of a server."""
        self._change(digest, status=status, error=mask(error))

    def connected(self, digest: str, version: str, instructions: str) -> None:
        """Record a successful connection."""
        self._change(
            digest,
            status="connected",
            error="",
            version=version,
            instructions=mask(instructions),
            last_seen=time.time(),
        )

    def listed(self, digest: str, kind: str, definitions: Iterable[msgspec.Struct]) -> None:
        """Record the listing of one of the `KINDS` of definitions."""
        items = [_masked_json(each, kind in _CALLED) for each in definitions]
        with self._lock:
            self._lists[digest, kind] = b"[" + b",".join(items) + b"]", len(items), time.time()
        self._schedule()

    def keep_era(self, digest: str, era: EraChoice) -> None:
        """Record the era of a successful handshake."""
        self._eras[digest] = era
        self._change(digest, era=era)

    def forget_era(self, digest: str) -> None:
        """Discard the era of a server whose handshake failed, so that it is probed again."""
        self._eras[digest] = None

    def forget_trial(self, digest: str) -> None:
        """Remove what was recorded about a server that was tried, unless the same definition was ever loaded."""
        unnamed = "(SELECT digest FROM servers WHERE digest = ? AND name = '')"

        def remove(connection: Connection) -> None:
            connection.execute(f"DELETE FROM catalogs WHERE digest IN {unnamed}", (digest,))
            connection.execute(f"DELETE FROM servers WHERE digest IN {unnamed}", (digest,))

        self._database.post(remove)

    def _change(self, digest: str, **values: Any) -> None:
        with self._lock:
            self._changes.setdefault(digest, {}).update(values)
        self._schedule()

    def _schedule(self) -> None:
        with self._lock:
            if self._is_scheduled:
                return
            self._is_scheduled = True
        taken: list[_PendingRows] = []

        def write(connection: Connection) -> None:
            if not taken:  # the database repeats a transaction when its file fails
                with self._lock:
                    taken.append(_PendingRows(self._changes, self._lists))
                    self._changes, self._lists, self._is_scheduled = {}, {}, False
            taken[0].write(connection)

        self._database.post(write)

    # -- reading ------------------------------------------------------------------------------------------------------

    async def era(self, digest: str) -> EraChoice | None:
        """Return the era of the latest handshake, in this kernel or another."""
        if digest not in self._eras:
            rows = await self._database.aquery("SELECT era FROM servers WHERE digest = ?", (digest,))
            self._eras.setdefault(digest, rows[0][0] if rows else None)
        return self._eras[digest]

    def all(self) -> list[tuple[KnownServer, int]]:
        """Return every known server and its number of tools, sorted by name."""
        rows = self._database.query(
            f"SELECT {_COLUMNS}, (SELECT count FROM catalogs WHERE catalogs.digest = servers.digest AND kind = 'tools')"
            " FROM servers ORDER BY name, last_seen DESC"
        )
        return [(_server(row[:-1]), row[-1] or 0) for row in rows]

    def named(self, name: str) -> KnownServer | None:
        """Return the latest seen server of a name."""
        rows = self._database.query(
            f"SELECT {_COLUMNS} FROM servers WHERE name = ? ORDER BY last_seen DESC LIMIT 1", (name,)
        )
        return _server(rows[0]) if rows else None

    async def kinds(self, digest: str) -> set[str]:
        """Return the `KINDS` that are stored for a server."""
        return {kind for [kind] in await self._database.aquery("SELECT kind FROM catalogs WHERE digest = ?", (digest,))}

    def catalog(self, digest: str) -> Definitions:
        """Return the latest stored catalog of a server; empty if there is none."""
        return _definitions(self._database.query(*_catalog_query(digest)))

    async def acatalog(self, digest: str) -> Definitions:
        """Async variant of `catalog`."""
        return _definitions(await self._database.aquery(*_catalog_query(digest)))


def _catalog_query(digest: str) -> tuple[str, tuple[str]]:
    return "SELECT kind, items FROM catalogs WHERE digest = ?", (digest,)


def _definitions(rows: Sequence[Row]) -> Definitions:
    return {
        kind: [types.decode(item, KINDS[kind]) for item in types.decode(items, list[msgspec.Raw])]
        for kind, items in rows
        if kind in KINDS
    }


def _server(row: Row) -> KnownServer:
    values: dict[str, Any] = dict(zip(_FIELDS.split(", "), row, strict=True))
    values["enabled"] = bool(values["enabled"])
    return KnownServer(**values)


def _masked_json(definition: msgspec.Struct, is_called: bool) -> bytes:
    """Encode a definition without its icons and absent members, which are `None` or an empty `Raw`.

    Secrets are masked, except in the name of a callable, which may equal a secret (`postgres`).
    """
    values = zip(definition.__struct_encode_fields__, msgspec.structs.astuple(definition), strict=True)
    members = {key: value for key, value in values if key != "icons" and value is not None and value != msgspec.Raw()}
    name = msgspec.json.encode({"name": members.pop("name")})[:-1] if is_called else b"{"
    rest = mask(msgspec.json.encode(members).decode("utf-8", "replace")).encode()
    return name + (b"," if is_called and members else b"") + rest[1:]


def _auth_type(definition: ServerDefinition) -> AuthType:
    kind = definition.auth.get("type")
    if kind is not None:
        return "bearer" if kind == "bearer" else "oauth2"
    headers = {name.lower(): value for name, value in definition.headers.items()}
    if headers.get("authorization", "").lower().startswith("bearer "):
        return "bearer"
    return "api_key" if any(map(looks_secret, [*headers, *definition.env])) else "none"
