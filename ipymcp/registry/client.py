"""The client of a registry's API, with a cache on disk.

Source: modelcontextprotocol/registry, docs/reference/api/openapi.yaml (v0.1). The official registry compares `search`
with names only, so the other words are compared here, also with titles and descriptions.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

import msgspec
from msgspec import Struct, field

from ipymcp.errors import ConfigError, McpError, UnknownName
from ipymcp.files import PRIVATE, foreign, make_private_folder, read_file, write_file
from ipymcp.protocol.transports.addresses import OutOfReach, Zone, parse_address, zone_of
from ipymcp.protocol.types import InvalidJson, loads
from ipymcp.registry.entries import OFFICIAL, Entry, read_entry, read_list

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path


_TIMEOUT = 15.0
"""Seconds for one request."""
_FRESH_INTERVAL = 600.0
"""Seconds for which a cached answer is used without a request, if its `Cache-Control` has no `max-age`."""
_MAX_FRESH_INTERVAL = 86_400.0
_MAX_PAGES = 5
_MAX_CACHED_BYTES = 10_000_000
"""Pages read for one search."""
_PAGE_SIZE = 30
"""Entries requested per page."""
_MAX_FILES = 300
"""Answers kept in the cache."""


class RegistryAnswer(Struct, frozen=True):
    """A document from the registry, or from the cache."""

    document: Any
    fetched: float
    """Seconds since the epoch."""
    problem: str = ""
    """The reason why the registry could not be reached, if the document is an outdated one from the cache."""


class FoundEntries(Struct, frozen=True):
    """The result of a search."""

    entries: list[Entry]
    cursor: str = ""
    """The cursor of the next page; empty after the last one."""
    notes: list[str] = field(default_factory=list[str])
    """Notes for the user: about answers from the cache, and about entries that were left out."""


class _Cached(Struct):
    url: str
    fetched: float
    fresh_until: float
    etag: str
    body: msgspec.Raw


class Registry:
    """A registry of servers. Use on the background loop.

    Args:
        folder: The folder of the cache, made at first use.
        address: The address of the registry.
    """

    def __init__(self, folder: Path, address: str = OFFICIAL) -> None:
        self.address = address.rstrip("/")
        self._shown = re.sub(r"(?<=://)[^/?#]*@", "", self.address)
        """The address without the login that it may contain, for messages and the cache."""
        self._folder = folder

    @property
    def host(self) -> str:
        """The registry's host, for messages."""
        return self._shown.partition("://")[2].partition("/")[0] or self._shown

    async def search(self, words: Sequence[str], *, limit: int = _PAGE_SIZE, cursor: str = "") -> FoundEntries:
        """Find the latest versions of servers whose name, title or description contains all words.

        Args:
            words: The words; the longest must occur in the name.
            limit: The number of entries after which no further page is read.
            cursor: The `cursor` of the search that is continued.

        Raises:
            McpError: The registry cannot be reached, and the cache has no answer.
        """
        longest = max(words, key=len, default="")
        found: dict[str, Entry] = {}
        unreadable = 0
        answer: RegistryAnswer | None = None
        for _ in range(_MAX_PAGES):
            query = {"search": longest, "version": "latest", "limit": str(_PAGE_SIZE), "cursor": cursor}
            path = f"/v0.1/servers?{urlencode({key: text for key, text in query.items() if text})}"
            try:
                answer = await self._get(path)
            except _Unavailable as error:
                if found:
                    return FoundEntries([*found.values()], cursor, [f"the next page is missing: {error.reason}"])
                return await asyncio.to_thread(self._search_cache, words, error.reason)
            try:
                page = read_list(answer.document)
            except ValueError as error:
                raise self._not_a_registry(str(error)) from None
            found |= {entry.name: entry for entry in page.entries if all(map(entry.has, words))}
            unreadable += page.unreadable
            cursor = page.cursor
            if not cursor or len(found) >= limit:
                break
        notes = [self._offline(answer.problem, answer.fetched)] if answer is not None and answer.problem else []
        if unreadable:
            number = "an entry is" if unreadable == 1 else f"{unreadable:,} entries are"
            notes.append(f"{number} left out: not in the published format")
        return FoundEntries([*found.values()], cursor, notes)

    async def entry(self, name: str, version: str = "latest", *, fresh: bool = False) -> tuple[Entry, list[str]]:
        """Get a version of a server, which may be deleted, and notes about an answer from the cache.

        Args:
            name: The full name.
            version: The version.
            fresh: Whether to ignore the cache, whose answer may be about a version that was deleted since then.

        Raises:
            UnknownName: The registry has no such server or version.
            McpError: The registry cannot be reached, and the cache has no answer.
        """
        path = f"/v0.1/servers/{quote(name, safe='')}/versions/{quote(version, safe='')}"
        queries = ("", "?include_deleted=true") if version == "latest" else ("?include_deleted=true",)
        for query in queries:
            try:
                answer = await self._get(path + query, fresh=fresh)
            except _Unavailable as error:
                hint = "check the network, or %config IPyMCP.registry"
                cache = "" if fresh else f", and {name} is not in the cache"
                raise McpError(f"{self.host} cannot be reached ({error.reason}){cache}", hint=hint) from None
            if answer.document is not None:
                break
        else:
            what = f"no server {name!r}" if version == "latest" else f"no version {version} of {name!r}"
            raise UnknownName(f"{self.host} has {what}", hint="%mcp search WORDS lists servers")
        try:
            entry = read_entry(answer.document)
        except ValueError as error:
            raise self._not_a_registry(str(error)) from None
        if entry.name != name or version not in ("latest", entry.version):
            raise self._not_a_registry(f"asked for {name} {version}, it sent {entry.name} {entry.version}")
        return entry, [self._offline(answer.problem, answer.fetched)] if answer.problem else []

    def _offline(self, problem: str, fetched: float) -> str:
        return f"offline: {self.host} cannot be reached ({problem}); this is its answer of {_moment(fetched)}"

    def _not_a_registry(self, why: str) -> McpError:
        message = f"{self._shown} does not answer as an MCP registry ({why})"
        return McpError(message, hint="%config IPyMCP.registry is its address, without /v0.1")

    # -- requests -----------------------------------------------------------------------------------------------------

    async def _get(self, path: str, *, fresh: bool = False) -> RegistryAnswer:
        """Get a document, from the cache while it is fresh; None as the document if there is none (404).

        With `fresh`, the cache only saves the transfer of a document that has not changed (by its ETag).

        Raises:
            _Unavailable: The registry gave no usable answer, and the cache has none or must not be used.
        """
        url = f"{self._shown}{path}"
        cached = await asyncio.to_thread(self._read_cache, url)
        now = time.time()
        if cached is not None and not fresh and now < cached.fresh_until and cached.fetched <= now:
            return RegistryAnswer(loads(cached.body), cached.fetched)
        try:
            status, headers, body = await self._fetch(self.address + path, cached.etag if cached is not None else "")
            if status == 304 and cached is not None:
                body = bytes(cached.body)
            elif status == 404:
                return RegistryAnswer(None, now)
            elif status != 200:
                raise _Unavailable(f"HTTP {status}")
            document = loads(body)
        except InvalidJson:
            raise self._not_a_registry("not JSON") from None
        except _Unavailable as error:
            if cached is None or fresh:
                raise
            return RegistryAnswer(loads(cached.body), cached.fetched, error.reason)
        fresh_until = now + _freshness(headers)
        etag = headers.get("etag", cached.etag if cached is not None and status == 304 else "")
        await asyncio.to_thread(self._write_cache, _Cached(url, now, fresh_until, etag, msgspec.Raw(body)))
        return RegistryAnswer(document, now)

    async def _fetch(self, url: str, etag: str) -> tuple[int, Mapping[str, str], bytes]:
        from ipymcp.protocol.oauth.http import MAX_BODY, fetch  # importing HTTP takes long

        parts = urlsplit(parse_address(url).url)
        if parts.scheme == "http" and not zone_of(parts.hostname or ""):
            raise ConfigError(f"{self._shown}: not encrypted", hint="an http:// registry must be in your own network")
        # Another registry was chosen by the user, and may be in any network.
        reach = Zone.PUBLIC if self.address == OFFICIAL else Zone.LOCAL
        headers = {"Accept": "application/json", **({"If-None-Match": etag} if etag else {})}
        try:
            async with asyncio.timeout(_TIMEOUT):
                status, answered, body = await fetch("GET", url, headers, b"", reach=reach)
        except TimeoutError:
            raise _Unavailable(f"no answer within {_TIMEOUT:g} s") from None
        except (OutOfReach, McpError, OSError) as error:
            raise _Unavailable(getattr(error, "message", None) or str(error) or type(error).__name__) from error
        if len(body) > MAX_BODY:
            raise _Unavailable(f"an answer of more than {MAX_BODY:,} bytes")
        return status, answered, body

    # -- the cache ----------------------------------------------------------------------------------------------------

    def _file(self, url: str) -> Path:
        return self._folder / f"{hashlib.sha256(url.encode()).hexdigest()[:32]}.json"

    def _read_cache(self, url: str) -> _Cached | None:
        cached = _decoded(self._file(url)) if self._is_private() else None
        return cached if cached is not None and cached.url == url else None

    def _is_private(self) -> bool:
        """Whether no other user can have written to the cache, for example in a shared folder."""
        try:
            return not foreign(self._folder)
        except OSError:
            return False

    def _write_cache(self, answer: _Cached) -> None:
        with contextlib.suppress(OSError):  # without the cache, later searches are slower
            make_private_folder(self._folder)
            if not self._is_private():
                return
            write_file(self._file(answer.url), msgspec.json.encode(answer), PRIVATE, durable=False)
            files = sorted(self._folder.glob("*.json"), key=lambda file: file.stat().st_mtime)
            for old in files[:-_MAX_FILES]:
                old.unlink()

    def _search_cache(self, words: Sequence[str], reason: str) -> FoundEntries:
        """Search all cached answers of this registry."""
        found: dict[str, tuple[float, Entry]] = {}
        oldest = time.time()
        for cached in self._cached():
            for entry in _entries_of(loads(cached.body)):
                if cached.fetched >= found.get(entry.name, (0.0,))[0] and all(map(entry.has, words)):
                    found[entry.name] = cached.fetched, entry
            oldest = min(oldest, cached.fetched)
        if not found:
            hint = "check the network, or %config IPyMCP.registry"
            raise McpError(f"{self.host} cannot be reached ({reason}), and the cache has no such server", hint=hint)
        note = (
            f"offline: {self.host} cannot be reached ({reason}); these are in the cache, some since {_moment(oldest)}"
        )
        return FoundEntries([entry for _, entry in found.values()], notes=[note])

    def _cached(self) -> Iterator[_Cached]:
        for file in self._folder.glob("*.json") if self._is_private() else ():
            cached = _decoded(file)
            if cached is not None and cached.url.startswith(f"{self._shown}/v0.1/servers"):
                yield cached


class _Unavailable(Exception):
    """The registry gave no usable answer."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def _decoded(file: Path) -> _Cached | None:
    try:
        if foreign(file):
            return None
        cached = msgspec.json.decode(read_file(file, _MAX_CACHED_BYTES), type=_Cached)
    except (OSError, ValueError):
        return None
    cached.fresh_until = min(cached.fresh_until, cached.fetched + _MAX_FRESH_INTERVAL)
    return cached


def _entries_of(document: Any) -> list[Entry]:
    try:
        return read_list(document).entries
    except ValueError:
        pass
    try:
        return [read_entry(document)]
    except ValueError:
        return []


def _freshness(headers: Mapping[str, str]) -> float:
    """Seconds that an answer stays fresh, by its `Cache-Control` (RFC 9111)."""
    control = headers.get("cache-control", "").lower()
    if "no-store" in control or "no-cache" in control:
        return 0.0
    age = re.search(r"max-age=(\d{1,9})", control)
    return min(float(age[1]), _MAX_FRESH_INTERVAL) if age else _FRESH_INTERVAL


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
