"""The client of a registry's API, with a cache on disk, and the entries it reads as records.

Source: modelcontextprotocol/registry, docs/reference/api/openapi.yaml (v0.1, schema 2025-12-11). Every text in an entry
is its publisher's, and is shown only after `text.py` has made it harmless. The official registry compares `search` with
names only, so the other words are compared here, also with titles and descriptions.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import time
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from urllib.parse import quote, urlencode, urlsplit

import msgspec
from msgspec import Struct, field

from ipymcp.errors import ConfigError, McpError, UnknownName, doing
from ipymcp.files import PRIVATE, foreign, make_private_folder, read_file, write_file
from ipymcp.protocol.transports.addresses import OutOfReach, Zone, parse_address, zone_of
from ipymcp.protocol.types import InvalidJson, is_array, is_object, loads
from ipymcp.text import cut, one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

# -- entries -----------------------------------------------------------------------------------------------------------


OFFICIAL = "https://registry.modelcontextprotocol.io"
"""The address of the official registry."""
Status: TypeAlias = Literal["active", "deprecated", "deleted"]
_NAME = re.compile(r"[A-Za-z0-9.-]{1,199}/[A-Za-z0-9._-]{1,199}")
_MAX_TEXT = 300
"""Characters shown of a description or a message."""
_Scalar: TypeAlias = str | int | float | bool | None


class _Part(Struct, frozen=True, rename="camel"):
    """Base of the parts of an entry. Unknown fields are ignored; lists may be null."""


class Input(_Part, frozen=True):
    """A value that the server needs, or a part of one."""

    description: str | None = None
    is_required: bool = False
    is_secret: bool = False
    format: str = "string"
    value: str | None = None
    """The value itself, in which `{name}` stands for the variable of that name; None if the user gives it."""
    default: _Scalar = None
    placeholder: str | None = None
    choices: list[_Scalar] | None = None
    variables: dict[str, Input] | None = None
    name: str = ""
    """The name of a variable, header or option."""
    type: str = ""
    """The kind of an argument: `positional` or `named`."""
    value_hint: str | None = None
    is_repeated: bool = False


class EntryTransport(_Part, frozen=True):
    """The transport of a package, or a remote server."""

    type: str
    url: str = ""
    headers: list[Input] | None = None
    variables: dict[str, Input] | None = None


class Package(_Part, frozen=True):
    """A package that contains the server."""

    registry_type: str
    identifier: str
    transport: EntryTransport = EntryTransport("stdio")
    version: str | None = None
    registry_base_url: str | None = None
    runtime_hint: str | None = None
    runtime_arguments: list[Input] | None = None
    package_arguments: list[Input] | None = None
    environment_variables: list[Input] | None = None


class _Repository(_Part, frozen=True):
    url: str = ""


class _RegistryServer(_Part, frozen=True):
    name: str
    version: str
    description: str = ""
    title: str | None = None
    website_url: str | None = None
    repository: _Repository | None = None
    packages: list[Package] | None = None
    remotes: list[EntryTransport] | None = None


class _Official(_Part, frozen=True):
    status: Status = "active"
    status_message: str | None = None
    is_latest: bool | None = None


class _RegistryMeta(Struct, frozen=True):
    official: _Official = field(default_factory=_Official, name="io.modelcontextprotocol.registry/official")


class Entry(_Part, frozen=True):
    """One version of a server in a registry."""

    server: _RegistryServer
    meta: _RegistryMeta | None = field(default=None, name="_meta")

    @property
    def name(self) -> str:
        """The full name, `namespace/name`."""
        return self.server.name

    @property
    def version(self) -> str:
        """The version of the server."""
        return self.server.version

    @property
    def short_name(self) -> str:
        """The name without its namespace."""
        return self.name.partition("/")[2]

    @property
    def publisher(self) -> str:
        """The namespace, which identifies the publisher."""
        return self.name.partition("/")[0]

    @property
    def title(self) -> str:
        """The display name; empty if there is none."""
        return _shown(self.server.title)

    @property
    def description(self) -> str:
        """The description, as one short visible line."""
        return _shown(self.server.description)

    @property
    def website(self) -> str:
        """The URL of the source code or the website; empty if there is none."""
        repository = self.server.repository
        return one_line(repository.url if repository is not None and repository.url else self.server.website_url or "")

    @property
    def status(self) -> Status:
        """Whether the version is active, deprecated or deleted."""
        return self._official.status

    @property
    def status_message(self) -> str:
        """The publisher's reason for the status, as one short visible line; empty if there is none."""
        return _shown(self._official.status_message)

    @property
    def is_latest(self) -> bool | None:
        """Whether this is the latest version; None if the registry does not say."""
        return self._official.is_latest

    @property
    def packages(self) -> Sequence[Package]:
        """The packages that contain the server."""
        return self.server.packages or ()

    @property
    def remotes(self) -> Sequence[EntryTransport]:
        """The remote servers that the publisher runs."""
        return self.server.remotes or ()

    @property
    def _official(self) -> _Official:
        return (self.meta or _RegistryMeta()).official

    def has(self, word: str) -> bool:
        """Whether a word occurs in name, title or description, regardless of case."""
        return word.casefold() in f"{self.name} {self.server.title or ''} {self.server.description}".casefold()


def verified(name: str, registry: str) -> str:
    """The phrase for what the registry verifies about a publisher; empty for an unknown registry.

    In the official registry, a GitHub account may publish under `io.github.ACCOUNT/…`, and the owner of a domain under
    the reversed name of that domain or of a subdomain. The registry does not verify what a server does.
    """
    if registry.rstrip("/") != OFFICIAL:
        return ""
    namespace = name.partition("/")[0]
    labels = namespace.split(".")
    if labels[:2] == ["io", "github"] and len(labels) == 3:
        return f"published by the GitHub account {labels[2]}"
    domain = ".".join(reversed(labels))
    above = " or a domain above it" if len(labels) > 2 else ""
    return f"published by the owner of {domain}{above}" if len(labels) > 1 else ""


class ListedEntries(Struct, frozen=True):
    """A page of entries."""

    entries: list[Entry]
    cursor: str
    """The cursor of the next page; empty after the last one."""
    unreadable: int
    """Entries that do not follow the published format, which are left out."""


def read_list(document: Any) -> ListedEntries:
    """Read the answer of `GET /v0.1/servers`.

    Raises:
        ValueError: It is not such an answer.
    """
    servers = document.get("servers") if is_object(document) else None
    if not is_object(document) or not is_array(servers):
        raise ValueError("not a list of servers")
    entries: dict[str, Entry] = {}
    unreadable = 0
    for each in servers:
        try:
            entry = read_entry(each)
        except ValueError:
            unreadable += 1
        else:
            entries.setdefault(entry.name, entry)
    metadata = document.get("metadata")
    cursor = metadata.get("nextCursor") if is_object(metadata) else None
    return ListedEntries([*entries.values()], cursor if isinstance(cursor, str) else "", unreadable)


def read_entry(document: Any) -> Entry:
    """Read one entry.

    Raises:
        ValueError: It does not follow the published format.
    """
    entry = msgspec.convert(document, Entry)
    if _NAME.fullmatch(entry.name) is None or not is_version(entry.version):
        raise ValueError("its name or version is invalid")
    return entry


def is_version(text: str) -> bool:
    """Whether a text may be a version, and is safe in a command-line argument and in a URL."""
    return re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+!-]{0,254}", text) is not None


_FIXED = {
    "npm": r"v?\d+\.\d+\.\d+([-+][0-9A-Za-z.+-]+)?",
    "nuget": r"\d+\.\d+\.\d+(\.\d+)?([-+][0-9A-Za-z.+-]+)?",
    "pypi": r"v?(\d+!)?\d+(\.\d+)*([-_.]?(a|b|c|rc|alpha|beta|pre|preview|post|rev|r|dev)[-_.]?\d*){0,3}(-\d+)?"
    r"(\+[a-z0-9]+([-_.][a-z0-9]+)*)?",
    "oci": r"(?!.*(latest|main|master|stable|edge|nightly))v?\d+([.-]\d+)+([-._+][\w.+-]*|[a-z][\w.+-]*)?|\d{6,}",
}
"""Patterns of versions that name one release, by the kind of package: `1.2` is a range in npm, a version in PyPI."""


def is_fixed(text: str, kind: str) -> bool:
    """Whether a version names exactly one release of a package of that kind, not a range or a movable tag."""
    return is_version(text) and kind in _FIXED and re.fullmatch(_FIXED[kind], text, re.ASCII | re.I) is not None


def _shown(text: str | None) -> str:
    return cut(one_line(text or "").strip(), _MAX_TEXT)


# -- the client --------------------------------------------------------------------------------------------------------


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
        with doing(f"asking {self.host}"):
            return await self._current(path, fresh)

    async def _current(self, path: str, fresh: bool) -> RegistryAnswer:
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
