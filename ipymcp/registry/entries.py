"""Entries of a registry as records, read from the answers of its API.

Source: modelcontextprotocol/registry, docs/reference/api/openapi.yaml (v0.1, schema 2025-12-11). Every text in an entry
is its publisher's, and is shown only after `text.py` has made it harmless.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec
from msgspec import Struct, field

from ipymcp.protocol.types import is_array, is_object
from ipymcp.text import cut, one_line

if TYPE_CHECKING:
    from collections.abc import Sequence


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


class _Server(_Part, frozen=True):
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

    server: _Server
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
