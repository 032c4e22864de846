"""The MCP registry as tables: a search, the details of a server, and newer versions of servers that came from it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from ipymcp.config.paths import cache_folder
from ipymcp.errors import McpError
from ipymcp.protocol.types import is_object
from ipymcp.registry.client import OFFICIAL, Registry, verified
from ipymcp.registry.install import WantedInput, ways
from ipymcp.results.tables import Table
from ipymcp.setup.load_request import TYPED_SCOPES
from ipymcp.text import quoted, shortened

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ipymcp.config.definition import ServerDefinition
    from ipymcp.registry.client import Entry, FoundEntries
    from ipymcp.runtime.host import Host


ORIGIN = "registry"
"""The key of a definition under which the server's name and version in the registry are stored."""
_MAX_REQUESTS = 8
"""Maximum concurrent requests for comparing versions."""
_MAX_REMARK = 100
"""Maximum length of a publisher's remark in a question."""


def registry_of(host: Host) -> Registry:
    """The configured registry, by default the official one."""
    return Registry(Path(cache_folder()) / "registry", host.registry_address or OFFICIAL)


def origin_of(entry: Entry, registry: Registry) -> str:
    """A server's name and version with its registry, its publisher, and whether it is deprecated, for questions."""
    remarks = [verified(entry.name, registry.address) or "publisher not verified"]
    if entry.status == "deprecated":
        why = f": {shortened(entry.status_message, _MAX_REMARK)!r}" if entry.status_message else ""
        remarks.append(f"deprecated{why}")
    return f"{entry.name} {entry.version} of {registry.host} ({'; '.join(remarks)})"


class FoundServers(Table):
    """A table of servers of a registry. `.entries` are the servers.

    Args:
        found: The result of a search.
        registry: The registry.
    """

    def __init__(self, found: FoundEntries, registry: Registry) -> None:
        self.entries = tuple(found.entries)
        rows = [
            (
                one.name,
                one.version,
                ", ".join(dict.fromkeys(way.label for way in ways(one))),
                "" if one.status == "active" else one.status,
                one.description,
            )
            for one in found.entries
        ]
        notes = [*found.notes]
        if not rows:
            notes.append(f"{registry.host} has no such server; it searches for one word, in names only")
        elif found.cursor:
            notes.append("there are more: -n N shows them, or add a word to narrow the search")
        if rows:
            notes.append("%mcp add NAME tries one and keeps it; %mcp search NAME shows a server in full")
        columns = ("name", "version", "runs as", "status", "description")
        super().__init__(columns, rows, title=f"servers of {registry.host}", note="\n".join(notes))


async def search(host: Host, words: Sequence[str], limit: int) -> Table:
    """Find servers of the registry, or show the details of one, given its full name."""
    registry = registry_of(host)
    if len(words) == 1 and "/" in words[0]:
        entry, notes = await registry.entry(words[0])
        return entry_table(entry, registry, notes)
    return FoundServers(await registry.search(words, limit=limit), registry)


def entry_table(entry: Entry, registry: Registry, notes: Iterable[str] = ()) -> Table:
    """A table with the details of one server."""
    message = f": {entry.status_message}" if entry.status_message else ""
    publisher = verified(entry.name, registry.address)
    rows = [
        ("description", entry.description),
        ("version", entry.version),
        ("publisher", publisher or f"{entry.publisher}; not known to be verified by {registry.host}"),
        ("source", entry.website),
    ]
    if entry.status != "active":
        rows.insert(2, ("status", f"{entry.status}{message}"))
    for way in ways(entry):
        rows.append((way.label, (way.problem and f"cannot be run: {way.problem}") or way.preview()))
        if way.problem or way.missing:
            missing = f"the program {way.missing!r} is not installed" if way.missing and not way.problem else ""
            rows.append(("", "; ".join(filter(None, (missing, way.remedy)))))
            continue
        rows += [("asks for", _input_line(one)) for one in way.inputs()]
    return Table(("what", "is"), rows, title=entry.title or entry.name, note="\n".join(notes))


def _input_line(one: WantedInput) -> str:
    words = ["required" if one.about.is_required else "optional", "secret" if one.about.is_secret else ""]
    words.append(f"default {one.default}" if one.default and not one.about.is_secret else "")
    return f"{one.key} ({', '.join(filter(None, words))}) {one.about.description or ''}"


async def outdated(host: Host) -> Table:
    """Compare the versions of servers that came from the registry with the latest ones."""
    found = await asyncio.to_thread(host.discovery.read)
    definitions = dict(found.definitions)
    for session in host.sessions.values():
        if session.name not in definitions or session.definition.source.scope in TYPED_SCOPES:
            definitions[session.name] = session.definition
    registry, limiter = registry_of(host), asyncio.Semaphore(_MAX_REQUESTS)

    async def row(one: ServerDefinition) -> tuple[str, str, str, str]:
        async with limiter:
            return (one.name, *await _compare(one, registry, host))

    rows = await asyncio.gather(*(row(one) for one in definitions.values()))
    behind = sum(bool(latest) for _, _, latest, _ in rows)
    note = "%mcp add NAME --name SERVER --replace takes the latest version" if behind else ""
    if not rows:
        note = "no servers are configured or loaded"
    return Table(("server", "version", "latest", "remark"), rows, title=f"versions by {registry.host}", note=note)


async def _compare(definition: ServerDefinition, registry: Registry, host: Host) -> tuple[str, str, str]:
    """Compare a server with the registry: its version, the latest version if it differs, and a remark."""
    if not await host.guard.trust.allows(definition):  # its file may claim any origin
        return "", "", "not compared: you have not agreed that it may run"
    origin = definition.extra.get(ORIGIN)
    name, version = (origin.get("name"), origin.get("version")) if is_object(origin) else (None, None)
    if not isinstance(name, str) or not isinstance(version, str):
        return "", "", "not compared: it was not added from the registry"
    try:
        latest, notes = await registry.entry(name)
        pinned = latest if latest.version == version else (await registry.entry(name, version))[0]
    except McpError as error:
        return version, "", f"not compared: {error.message}"
    remarks = (
        [] if pinned.status == "active" else [f"{version} is {pinned.status}: {pinned.status_message}".rstrip(": ")]
    )
    remarks += [f"{name} is deprecated"] if latest.status == "deprecated" and latest is not pinned else []
    if latest.version != version and latest.status != "deleted":
        kept = {"user": "", "project": " --for project"}.get(definition.source.scope, " --for notebook")
        line = f"%mcp add {quoted(name)} --name {quoted(definition.name)} --replace{kept}"
        return version, latest.version, "; ".join([*remarks, *notes]) or line
    return version, "", "; ".join([*remarks, *notes]) or "up to date"
