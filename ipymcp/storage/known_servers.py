"""The servers that were ever loaded, by the digest of their definition: how they are, and what they have.

What changes is gathered and written a little later, many changes at once, off the hot path. Nothing here starts
anything: the catalog of a server that does not run can be looked at, and be called from once it is started.
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
"""What is kept of a catalog: definitions, by kind."""
KINDS: Mapping[str, type[msgspec.Struct]] = {
    "tools": types.ToolDefinition,
    "resources": types.ResourceDefinition,
    "templates": types.TemplateDefinition,
    "prompts": types.PromptDefinition,
}
_CALLED = ("tools", "prompts")
_FIELDS = "digest, name, transport, auth, enabled, status, era, version, instructions, error, last_seen"
_LOGGED_IN = "EXISTS (SELECT 1 FROM secrets WHERE kind = 'tokens' AND instr(secrets.name, digest))"
_COLUMNS = _FIELDS.replace("auth", f"CASE WHEN {_LOGGED_IN} THEN 'oauth2' ELSE auth END")


class KnownServer(Struct, frozen=True):
    """One definition that was loaded once, in any kernel."""

    digest: str
    name: str
    """What it was called last."""
    transport: str
    auth: AuthType
    enabled: bool
    status: Status
    era: EraChoice | None
    """The era it answered in."""
    version: str
    """The protocol version settled with it last, or the empty string."""
    instructions: str
    error: str
    """Its last failure, one line."""
    last_seen: float | None
    """When it last answered, in seconds since 1970."""


class _Changes(NamedTuple):
    """What is to be written."""

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
    """Reads and writes what is known. May be used from any thread.

    Args:
        database: Where it is kept.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._changes: dict[str, dict[str, Any]] = {}
        self._lists: dict[tuple[str, str], tuple[bytes, int, float]] = {}
        self._is_scheduled = False
        self._eras: dict[str, EraChoice | None] = {}

    # -- writing ------------------------------------------------------------------------------------------------------

    def loaded(self, definition: ServerDefinition, digest: str) -> None:
        """A definition was loaded."""
        self._change(
            digest,
            name=definition.name,
            transport=definition.transport,
            auth=_auth_type(definition),
            enabled=not definition.disabled,
        )

    def moved(self, digest: str, status: Status, error: str = "") -> None:
        """A server is in another state."""
        self._change(digest, status=status, error=mask(error))

    def connected(self, digest: str, version: str, instructions: str) -> None:
        """A server answers."""
        self._change(
            digest,
            status="connected",
            error="",
            version=version,
            instructions=mask(instructions),
            last_seen=time.time(),
        )

    def listed(self, digest: str, kind: str, definitions: Iterable[msgspec.Struct]) -> None:
        """A server has these, of one of `KINDS`."""
        items = [_masked(_lean(each), kind in _CALLED) for each in definitions]
        with self._lock:
            self._lists[digest, kind] = b"[" + b",".join(items) + b"]", len(items), time.time()
        self._schedule()

    def keep_era(self, digest: str, era: EraChoice) -> None:
        """A server answered in this era."""
        self._eras[digest] = era
        self._change(digest, era=era)

    def forget_era(self, digest: str) -> None:
        """It did not answer as it was remembered: ask it anew."""
        self._eras[digest] = None

    def _change(self, digest: str, **values: Any) -> None:
        with self._lock:
            self._changes.setdefault(digest, {}).update(values)
        self._schedule()

    def _schedule(self) -> None:
        with self._lock:
            if self._is_scheduled:
                return
            self._is_scheduled = True
        taken: list[_Changes] = []

        def write(connection: Connection) -> None:
            if not taken:  # a second time it is for a file that failed
                taken.append(self._take())
            taken[0].write(connection)

        self._database.post(write)

    def _take(self) -> _Changes:
        with self._lock:
            taken = _Changes(self._changes, self._lists)
            self._changes, self._lists, self._is_scheduled = {}, {}, False
        return taken

    # -- reading ------------------------------------------------------------------------------------------------------

    async def era(self, digest: str) -> EraChoice | None:
        """The era a server answered in when it last did, here or in another kernel."""
        if digest not in self._eras:
            rows = await self._database.aquery("SELECT era FROM servers WHERE digest = ?", (digest,))
            self._eras.setdefault(digest, rows[0][0] if rows else None)
        return self._eras[digest]

    def all(self) -> list[tuple[KnownServer, int]]:
        """Every known server and how many tools it has, by name."""
        rows = self._database.query(
            f"SELECT {_COLUMNS}, (SELECT count FROM catalogs WHERE catalogs.digest = servers.digest AND kind = 'tools')"
            " FROM servers ORDER BY name, last_seen DESC"
        )
        return [(_server(row[:-1]), row[-1] or 0) for row in rows]

    def named(self, name: str) -> KnownServer | None:
        """The server that was called so, seen last where there are several."""
        rows = self._database.query(
            f"SELECT {_COLUMNS} FROM servers WHERE name = ? ORDER BY last_seen DESC LIMIT 1", (name,)
        )
        return _server(rows[0]) if rows else None

    async def kinds(self, digest: str) -> set[str]:
        """Of which `KINDS` is kept what a server has."""
        return {kind for [kind] in await self._database.aquery("SELECT kind FROM catalogs WHERE digest = ?", (digest,))}

    def catalog(self, digest: str) -> Definitions:
        """What a server had when it last said so; empty where it never did."""
        return _definitions(self._database.query(*_catalog_query(digest)))

    async def acatalog(self, digest: str) -> Definitions:
        """The same, awaited."""
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


def _lean(definition: msgspec.Struct) -> dict[str, Any]:
    """Without what is absent, for which a definition has `None` or an empty `Raw`."""
    values = msgspec.structs.asdict(definition)
    return {name: value for name, value in values.items() if value is not None and value != msgspec.Raw()}


def _masked(definition: dict[str, Any], is_called: bool) -> bytes:
    """As JSON, without secrets; but what is called by its name keeps it: `postgres` may be a password, too."""
    name = msgspec.json.encode({"name": definition.pop("name")})[:-1] if is_called else b"{"
    rest = mask(msgspec.json.encode(definition).decode("utf-8", "replace")).encode()
    return name + (b"," if is_called and definition else b"") + rest[1:]


def _auth_type(definition: ServerDefinition) -> AuthType:
    """How a definition says that it logs in."""
    kind = definition.auth.get("type")
    if kind is not None:
        return "bearer" if kind == "bearer" else "oauth2"
    headers = {name.lower(): value for name, value in definition.headers.items()}
    if headers.get("authorization", "").lower().startswith("bearer "):
        return "bearer"
    return "api_key" if any(map(looks_secret, [*headers, *definition.env])) else "none"
