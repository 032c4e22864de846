"""Discovery of the config files of the user and the project, for any host.

Precedence, nearest first: the file in `IPYMCP_CONFIG`; each folder from the notebook's up to the repository's root,
home or the file system's boundary; the user's own file. Home itself is skipped: it has settings of other hosts, and
is not a project.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from ipymcp.config.definition import ServerDefinition, Source
from ipymcp.config.hosts import HOSTS, IMPORTED
from ipymcp.config.parsing import entries, no_servers_error
from ipymcp.config.paths import is_root, own_files
from ipymcp.config.reading import load_if_there, read_each
from ipymcp.errors import ConfigError
from ipymcp.files import trusted_owners
from ipymcp.names import identifier
from ipymcp.text import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from ipymcp.config.definition import Scope


PROJECT_FILES = ("mcp.json", *(host.project_file for host in HOSTS.values() if host.project_file))
"""Config files of a project folder, in order of precedence."""
_MIXED = {os.path.basename(host.project_file) for host in HOSTS.values() if host.has_other_settings}
"""Files that may also contain other settings of a host."""

Stamp = tuple[int, int, int] | None
"""Modification time, size and inode of a file; None if it does not exist."""


class CandidateFile(Struct, frozen=True):
    """A file that may define servers."""

    path: Path
    scope: Scope
    folder: str
    """The folder that its servers belong to."""


class Configuration(Struct, frozen=True):
    """Servers and errors from all config files."""

    servers: Mapping[str, ServerDefinition | ConfigError]
    """The nearest definition of each name, or its error."""
    shadowed: Mapping[str, tuple[ServerDefinition, ...]]
    """Other definitions of a name, nearest first."""
    problems: tuple[ConfigError, ...]
    """Errors of unusable or ignored files, and of definitions without a name."""
    files: tuple[CandidateFile, ...]
    """The files that were read."""

    @property
    def definitions(self) -> dict[str, ServerDefinition]:
        """The valid definitions, by name."""
        return {name: entry for name, entry in self.servers.items() if isinstance(entry, ServerDefinition)}

    def find(self, name: str) -> ServerDefinition | None:
        """Find a valid definition by its name or its Python identifier."""
        found = self.definitions
        return found.get(name) or next((one for own, one in found.items() if identifier(own) == name), None)

    @property
    def errors(self) -> tuple[ConfigError, ...]:
        """All errors."""
        return (*(entry for entry in self.servers.values() if isinstance(entry, ConfigError)), *self.problems)


def discover(files: Iterable[CandidateFile]) -> Configuration:
    """Read the files that exist. Files that cannot be used are among the problems, also the one that the user named."""
    servers: dict[str, ServerDefinition | ConfigError] = {}
    shadowed: dict[str, tuple[ServerDefinition, ...]] = {}
    problems: list[ConfigError] = []
    read: list[CandidateFile] = []
    for file in files:
        try:
            found = _read(file)
            if found is None and file.scope == "named":
                hint = "fix or unset the variable; the other files are read"
                raise ConfigError(f"{file.path}: no such file", hint=hint)
        except ConfigError as error:
            if file.scope == "named":
                error = ConfigError(f"IPYMCP_CONFIG: {error.message}", hint=error.hint)
            problems.append(error)
            continue
        if found is None:
            continue
        read.append(file)
        for name, entry in found:
            if not name and isinstance(entry, ConfigError):
                problems.append(entry)
            elif name not in servers:
                servers[name] = entry
            else:
                servers[name] = mark_shadowing(servers[name], file)
                if isinstance(entry, ServerDefinition):
                    shadowed[name] = (*shadowed.get(name, ()), entry)
    return Configuration(servers, shadowed, tuple(problems), tuple(read))


def mark_shadowing(entry: ServerDefinition | ConfigError, own: CandidateFile) -> ServerDefinition | ConfigError:
    """Return a project's server marked as shadowing one of the user's own file; return any other entry unchanged."""
    if isinstance(entry, ServerDefinition) and (entry.source.scope, own.scope) == ("project", "user"):
        return entry.shadowing(str(own.path))
    return entry


def candidates(
    folder: str, environ: Mapping[str, str] = os.environ, own: Sequence[str] | None = None
) -> list[CandidateFile]:
    """Return every file that could define servers, existing or not, nearest first.

    Args:
        folder: The notebook's folder.
        environ: The environment, for `IPYMCP_CONFIG`.
        own: The user's own files; None for those in Jupyter's config folders.
    """
    named = environ.get("IPYMCP_CONFIG")
    users = dict.fromkeys(map(Path, own_files() if own is None else own))
    found: dict[Path, CandidateFile] = {}
    if named:
        path = Path(os.path.abspath(os.path.join(folder, os.path.expanduser(named))))
        found[path] = CandidateFile(path, "named", str(path.parent))
    for parent in project_folders(folder):
        for path in (Path(parent, name) for name in PROJECT_FILES):
            if path not in users:
                found.setdefault(path, CandidateFile(path, "project", parent))
    for path in users:
        found.setdefault(path, CandidateFile(path, "user", str(path.parent)))
    return list(found.values())


def stamp(path: Path) -> Stamp:
    """Return the values whose change shows that a file has changed."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def project_folders(folder: str) -> Iterator[str]:
    """Yield the folder and its parents up to the boundary of the project, nearest first; none for home."""
    current, home = os.path.realpath(folder), os.path.realpath(os.path.expanduser("~"))
    try:
        device = os.stat(current).st_dev
    except OSError:
        return
    while current != home:
        yield current
        parent = os.path.dirname(current)
        if parent == current or is_root(current):
            return
        try:
            if os.stat(parent).st_dev != device:
                return
        except OSError:
            return
        current = parent


def _read(file: CandidateFile) -> list[tuple[str, ServerDefinition | ConfigError]] | None:
    """Return the servers of a file; None if it does not exist, or has only other settings."""
    is_named = file.scope == "named"
    document = load_if_there(file.path, owners=None if is_named else trusted_owners())
    if document is None:
        return None
    source = Source(scope=file.scope, file=str(file.path), folder=file.folder)
    found = entries(document.data, source)
    if found is None and document.data and (is_named or file.path.name not in _MIXED):
        raise no_servers_error(document.data, str(file.path))
    return found


class HostServers(Struct, frozen=True):
    """Servers and errors from the files of a host."""

    definitions: Mapping[str, ServerDefinition]
    problems: tuple[ConfigError, ...]
    files: tuple[Path, ...]
    """The files that were read."""


def read_host(host: str, folder: str) -> HostServers:
    """Read the servers that the user has configured for another host. Its files are never written.

    Args:
        host: One of `IMPORTED`.
        folder: The notebook's folder, for hosts that store servers by project in a file of the user.

    Raises:
        ConfigError: The host has no config file.
    """
    candidate_files = IMPORTED[host]()
    definitions: dict[str, ServerDefinition] = {}
    problems: list[ConfigError] = []
    files: list[Path] = []
    for path in candidate_files:
        try:
            document = load_if_there(path)
        except ConfigError as error:
            problems.append(error)
            continue
        if document is None:
            continue
        files.append(path)
        for part in _parts(host, document.data, folder):
            for name, entry in entries(part, Source(scope="user", file=str(path))) or ():
                if isinstance(entry, ConfigError):
                    problems.append(entry)
                else:
                    definitions.setdefault(name, entry)
    if not files and not problems:
        raise ConfigError(f"{host} has no servers here", hint=f"looked for {', '.join(map(str, candidate_files))}")
    return HostServers(definitions, tuple(problems), tuple(files))


def _parts(host: str, data: Any, folder: str) -> list[Any]:
    """Return the parts of a document with servers, nearest first."""
    if not HOSTS[host].has_projects or not isinstance(data, Mapping):
        return [data]
    document = cast("Mapping[str, Any]", data)
    projects = document.get("projects")
    local = cast("Mapping[str, Any]", projects).get(folder) if isinstance(projects, Mapping) else None
    return [part for part in (local, document) if isinstance(part, Mapping) and "mcpServers" in part]


class ConfigurationWatch:
    """The configuration of a folder, and the changes of its files.

    Args:
        folder: The notebook's folder.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._stamps: dict[Path, Stamp] = {}
        """The watched files, as they were last read or reported."""
        self._named: set[Path] = set()
        """The watched files that the user has named."""

    def read(self) -> Configuration:
        """Read the current configuration."""
        files = candidates(self.folder)
        kept = {path: self._stamps[path] for path in self._named if path in self._stamps}
        # The stamps are taken before the files are read, so that no change is missed.
        self._stamps = {**kept, **{file.path: stamp(file.path) for file in files}}
        return discover(files)

    def peek(self) -> Configuration:
        """Read the current configuration for completion, without marking changes as reported."""
        return discover(candidates(self.folder))

    def named(self, path: str | os.PathLike[str]) -> Source:
        """Return the source of a file that the user names, and watch the file.

        A discovered file keeps its scope: naming a project's file does not show the user its contents.
        """
        file = Path(os.path.abspath(os.path.join(self.folder, os.path.expanduser(path))))
        self._named.add(file)
        self._stamps[file] = stamp(file)
        real = os.path.realpath(file)
        for candidate in candidates(self.folder):
            if os.path.realpath(candidate.path) == real:
                return Source(scope=candidate.scope, file=str(candidate.path), folder=candidate.folder)
        return Source(scope="named", file=str(file), folder=str(file.parent))

    def read_named(self, source: Source) -> dict[str, ServerDefinition | ConfigError]:
        """Read the servers of a source returned by `named`. Raises the same errors as `read_each`."""
        servers = read_each(source)
        for file in candidates(self.folder) if source.scope == "project" else ():
            if file.scope == "user" and str(file.path) != source.file:
                shared = [name for name in discover([file]).servers if name in servers]
                servers |= {name: mark_shadowing(servers[name], file) for name in shared}
        return servers

    def ignore_change(self, path: Path) -> None:
        """Do not report the latest change of a file, because ipymcp made it."""
        self._stamps[path] = stamp(path)

    def changes(self) -> list[str]:
        """Return a line for each file that was created, deleted or changed since it was last read or reported."""
        lines: list[str] = []
        for path, before in self._stamps.items():
            now = stamp(path)
            if now != before:
                self._stamps[path] = now
                change = "is new" if before is None else "is gone" if now is None else "has changed"
                advice = "its servers stay until %mcp unload NAME"
                if path not in self._named:
                    advice = "%mcp load brings the servers up to date"
                elif now is not None:
                    advice = f"%mcp load {quoted(str(path))} brings the servers up to date"
                lines.append(f"{path} {change}: {advice}")
        return lines
