"""Config files: reading them, finding those of the user and the project for any host, and changing ipymcp's own.

Precedence, nearest first: the file in `IPYMCP_CONFIG`; each folder from the notebook's up to the repository's root,
home or the file system's boundary; the user's own file. Home itself is skipped: it has settings of other hosts, and
is not a project.

Changes are atomic, by one kernel at a time. A file with comments or trailing commas is refused, because they would be
lost; so is a file in another host's format.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from msgspec import Struct

from ipymcp.config.definition import ServerDefinition, Source
from ipymcp.config.hosts import HOSTS, MAX_PLAIN_SECONDS, adopted, as_own, host_of, project_of
from ipymcp.config.parsing import (
    FORMAT_HINT,
    RawServer,
    definition_of,
    definitions,
    entries,
    is_name,
    no_servers_error,
    recognise_format,
)
from ipymcp.config.paths import is_root, missing_file, own_files, read_text
from ipymcp.config.server_reader import shown
from ipymcp.config.translation import translated
from ipymcp.config.variables import mapped, respelled
from ipymcp.errors import ConfigError, doing
from ipymcp.files import (
    PRIVATE,
    SHARED,
    make_folder,
    make_private_folder,
    trusted_owners,
    try_lock,
    write_file,
    write_hint,
)
from ipymcp.names import identifier
from ipymcp.text import quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from ipymcp.config.definition import Scope
    from ipymcp.config.variables import Reference


# -- reading -----------------------------------------------------------------------------------------------------------


_STRING = r'"(?:\\.|[^"\\\n])*+\\?+(?:"|\Z|(?=\n))'
"""A string, up to the end of its line if it is not closed: a search that begins in it again would be quadratic."""
_COMMENT = rf"{_STRING}|(//[^\n]*|/\*(?:(?s:.)*?\*/|(?s:.)*))"
_COMMA = rf"{_STRING}|(,)(?=\s*[}}\]])"
_VISIBLE = r"[^\s]"


def without_comments(text: str) -> str:
    """Replace comments and trailing commas by spaces, so that lines and columns do not change."""
    for pattern in (_COMMENT, _COMMA):
        text = re.sub(pattern, _blank, text)
    return text


def _blank(match: re.Match[str]) -> str:
    return match[0] if match[1] is None else re.sub(_VISIBLE, " ", match[0])


JSON5_MAX_BYTES = 40_000
"""Maximum size for the JSON5 parser, which reads about 20,000 characters a second."""
_JSON5_ERROR = r"(?s)<string>:(\d+) (.*) at column (\d+)"
_UNEXPECTED = r'(?s)Unexpected "(.)"'


class ConfigDocument(Struct, frozen=True):
    """A decoded config file."""

    text: str
    data: Any
    is_plain: bool
    """Whether the text is strict JSON, without comments or trailing commas."""


Published: TypeAlias = "Callable[[Any, str], Mapping[str, Any] | None]"
"""Converts the file in which a server is published, given its path, to a config document; None for any other file."""


def named_source(file: str) -> Source:
    """Return the source of a file that the user names."""
    return Source(scope="named", file=file, folder=project_of(file))


def read_each(source: Source, published: Published | None = None) -> dict[str, ServerDefinition | ConfigError]:
    """Return the servers of a file by name, each as its definition or its error; unnamed errors have the empty name.

    Args:
        source: Source of the file.
        published: Converts a file that is no config file, but that publishes a server.

    Raises:
        ConfigError: The file cannot be read or decoded. The message names the file and the line.
    """
    assert source.file is not None
    with doing(f"reading {source.file}"):
        document = load(Path(source.file)).data
        if published is not None:
            document = published(document, source.file) or document
        read = entries(document, source)
        if read is None:
            raise no_servers_error(document, source.file)
        return dict(read)


def from_mapping(table: Mapping[str, Any], scope: Scope = "script") -> dict[str, ServerDefinition]:
    """Return the servers of a mapping from name to definition, or of a document such as `{"mcpServers": {…}}`.

    Raises:
        ConfigError: A value is invalid. The message names the key.
    """
    return definitions(table, Source(scope=scope), bare=True)


def load(file: Path, *, owners: frozenset[int] | None = None) -> ConfigDocument:
    """Read and decode a file.

    Args:
        file: Absolute path.
        owners: User ids that may own the file; None for anyone.

    Raises:
        ConfigError: The file does not exist, cannot be read, belongs to someone else or is not JSON. The message names
            the file, line and column.
    """
    document = load_if_there(file, owners=owners)
    if document is None:
        raise missing_file(file)
    return document


def load_if_there(file: Path, *, owners: frozenset[int] | None = None) -> ConfigDocument | None:
    """Read and decode a file, as `load`; return None if it does not exist."""
    text = read_text(file, owners)
    if text is None:
        return None
    match file.suffix.lower():
        case ".toml":
            return ConfigDocument(text, decode_toml(text, str(file)), is_plain=False)
        case ".yaml" | ".yml":
            raise ConfigError(f"{file}: is YAML, which ipymcp does not read", hint=_YAML_HINT)
        case _:
            data, is_plain = decode(text, str(file))
            return ConfigDocument(text, data, is_plain)


_YAML_HINT = "write its servers as JSON, or add each: %mcp config add NAME -- COMMAND ARG…"
TOML_MAX_BYTES = 200_000
"""Maximum size for the TOML parser, which copies all parts of a key for each of them."""
_LONG_KEY = r"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]{0,200}+"|'[^'\n]{0,200}+')[ \t]*+\.[ \t]*+){32}"""
_TOML_PLACE = r"(?s)(.*) \(at (?:line (\d+), column (\d+)|end of document)\)"


def decode_toml(text: str, origin: str) -> Any:
    """Decode TOML. Dates become strings.

    Args:
        text: The document.
        origin: Prefix of error messages.

    Raises:
        ConfigError: The text is invalid or too large. The message names line and column.
    """
    import tomllib

    if len(text) > TOML_MAX_BYTES or re.search(_LONG_KEY, text):
        raise ConfigError(f"{origin}: is too large to be read as TOML", hint="is this a config file?")
    try:
        return _without_dates(tomllib.loads(text))
    except RecursionError:
        raise ConfigError(f"{origin}: nested too deeply", hint=FORMAT_HINT) from None
    except ValueError as error:
        found = re.fullmatch(_TOML_PLACE, str(error))
        reason = found[1] if found is not None else str(error)
        where = f", line {found[2]}, column {found[3]}" if found is not None and found[2] else ""
        hint = "look there for a missing quote, bracket or ="
        raise ConfigError(f"{origin}{where}: not TOML: {reason}", hint=hint) from None


def _without_dates(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_dates(item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_without_dates(item) for item in cast("list[Any]", value)]
    return value if isinstance(value, str | int | float) else str(value)


def decode(text: str, origin: str) -> tuple[Any, bool]:
    """Decode JSON, JSON with comments or JSON5, and return the data and whether it was strict JSON.

    Args:
        text: The document.
        origin: Prefix of error messages.

    Raises:
        ConfigError: The text is invalid. The message names line and column.
    """
    if not text.strip():
        raise ConfigError(f"{origin}: is empty", hint=FORMAT_HINT)

    def once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        table: dict[str, Any] = {}
        for key, value in pairs:
            if key in table:
                raise ConfigError(f'{origin}: "{key}" is defined twice in one object', hint="keep one of the two")
            table[key] = value
        return table

    def parse(text: str, loads: Callable[..., Any] = json.loads) -> Any:
        try:
            return loads(text, object_pairs_hook=once)
        except RecursionError:
            raise ConfigError(f"{origin}: nested too deeply", hint=FORMAT_HINT) from None
        except json.JSONDecodeError:
            raise
        except ValueError as error:
            if "digits" not in str(error):
                raise
            raise ConfigError(
                f"{origin}: a number in it is too long", hint="write it as a string, or shorter"
            ) from None

    with contextlib.suppress(json.JSONDecodeError):
        return parse(text), True
    try:
        return parse(without_comments(text)), False
    except json.JSONDecodeError as error:
        strict = error
    wrong = _syntax_error(origin, strict.lineno, strict.colno, strict.msg)
    if len(text) > JSON5_MAX_BYTES:
        raise wrong
    import json5  # the last resort: slow to import and to parse

    try:
        return parse(text, json5.loads), False
    except ValueError as error:
        match = re.fullmatch(_JSON5_ERROR, str(error))
        raise (_syntax_error(origin, int(match[1]), int(match[3]), match[2]) if match else wrong) from None


def _syntax_error(origin: str, line: int, column: int, reason: str) -> ConfigError:
    found = re.fullmatch(_UNEXPECTED, reason)
    if found is not None:
        reason = f"unexpected {found[1]!r}" if found[1].isprintable() else "unexpected line break"
    hint = "look there, and just before, for a missing comma, quote or bracket"
    return ConfigError(f"{origin}, line {line}, column {column}: not JSON: {reason}", hint=hint)


# -- discovery ---------------------------------------------------------------------------------------------------------


_VARIABLE = "IPYMCP_CONFIG"
"""The environment variable that names a config file."""
PROJECT_FILES = tuple(
    dict.fromkeys(
        [
            *HOSTS["dispatch"].project_files,  # a project that has this file means it for programs such as this one
            "mcp.json",
            *(path for host in HOSTS.values() if host.syntax != "yaml" for path in host.project_files),
        ]
    )
)
"""Config files of a project folder, in order of precedence."""
UNREAD_FILES = {path: name for name, host in HOSTS.items() if host.syntax == "yaml" for path in host.project_files}
"""Files and folders of a project that may define servers and are not read, with their hosts."""

Stamp = tuple[int, int, int] | None
"""Modification time, size and inode of a file; None if it does not exist."""


class CandidateFile(Struct, frozen=True):
    """A file that may define servers."""

    path: Path
    scope: Scope
    folder: str
    """The folder that its servers belong to."""
    is_unread: bool = False
    """Whether it is in a syntax that is not read."""


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
    unread: tuple[str, ...] = ()
    """A line for each file with servers in a syntax that is not read."""

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

    @property
    def named_file_problems(self) -> tuple[ConfigError, ...]:
        """The errors of the file that `IPYMCP_CONFIG` names."""
        return tuple(one for one in self.problems if one.message.startswith(_VARIABLE))


def discover(files: Iterable[CandidateFile]) -> Configuration:
    """Read the files that exist. Files that cannot be used are among the problems, also the one that the user named."""
    servers: dict[str, ServerDefinition | ConfigError] = {}
    shadowed: dict[str, tuple[ServerDefinition, ...]] = {}
    problems: list[ConfigError] = []
    read: list[CandidateFile] = []
    unread: list[str] = []
    for file in files:
        if file.is_unread:
            if _has_servers(file):
                unread.append(f"{file.path} is there; ipymcp does not read YAML · {_YAML_HINT}")
            continue
        try:
            with doing(f"reading {file.path}"):
                found = _read(file)
            if found is None and file.scope == "named":
                hint = "fix or unset the variable; the other files are read"
                raise ConfigError(f"{file.path}: no such file", hint=hint)
        except ConfigError as error:
            if file.scope == "named":
                error = ConfigError(f"{_VARIABLE}: {error.message}", hint=error.hint)
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
                others = [one for one in (servers[name], *shadowed.get(name, ())) if not isinstance(one, ConfigError)]
                if isinstance(entry, ServerDefinition) and any(_is_same(entry, one) for one in others):
                    continue
                servers[name] = mark_shadowing(servers[name], file)
                if isinstance(entry, ServerDefinition):
                    shadowed[name] = (*shadowed.get(name, ()), entry)
    return Configuration(servers, shadowed, tuple(problems), tuple(read), tuple(unread))


def _has_servers(file: CandidateFile) -> bool:
    """Whether a file that is not read seems to have the table of servers of its host, or a folder has such files."""
    if not os.path.lexists(file.path):
        return False
    host = HOSTS[UNREAD_FILES[file.path.relative_to(file.folder).as_posix()]]
    try:
        if file.path.is_dir():
            return any(name.endswith((".yaml", ".yml")) for name in os.listdir(file.path))
        text = read_text(file.path, trusted_owners())
    except (OSError, ConfigError):
        return False
    return text is not None and re.search(rf"(?m)^{host.table}[ \t]*:", text) is not None


def _is_same(one: ServerDefinition, other: ServerDefinition) -> bool:
    """Whether two definitions mean the same: equal values, in the same folder, with the same rights."""
    return _meaning(one) == _meaning(other)


def _meaning(definition: ServerDefinition) -> ServerDefinition:
    """Return a definition without the notation of its host: its source, unused keys, and syntax of variables."""
    source, folder = definition.source, definition.source.folder or ""

    def plain(one: Reference) -> str:
        if one.kind == "variable":
            return f"${{{one.name}}}" if one.default is None else f"${{{one.name}:-{one.default}}}"
        return one.text

    own = adopted(definition) if source.scope == "project" else definition
    own = mapped(own, lambda key, text: respelled(text, plain, key=key, literal="$${"))
    if source.scope == "project":
        cwd = own.cwd or ""
        own = own.replace(args=tuple(_absolute(one, cwd) for one in own.args))
    folder = folder if definition.command is not None and source.scope == "project" else ""
    return own.replace(source=Source(scope=source.scope, folder=folder), extra={}, inputs={})


def _absolute(argument: str, cwd: str) -> str:
    """Return an argument that is visibly a path as a normal absolute path; return any other unchanged."""
    is_path = argument.startswith(("./", "../", "/"))
    return os.path.normpath(os.path.join(cwd, argument)) if is_path else argument


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
    named = environ.get(_VARIABLE)
    users = dict.fromkeys(map(Path, own_files() if own is None else own))
    found: dict[Path, CandidateFile] = {}
    if named:
        path = Path(os.path.abspath(os.path.join(folder, os.path.expanduser(named))))
        found[path] = CandidateFile(path, "named", project_of(str(path)))
    for parent in project_folders(folder):
        for name in (*PROJECT_FILES, *UNREAD_FILES):
            path = Path(parent, name)
            if path not in users and path not in found:
                found[path] = CandidateFile(path, "project", parent, name in UNREAD_FILES)
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
    if not os.path.lexists(file.path):  # quicker than to fail to open it, and most are not there
        return None
    document = load_if_there(file.path, owners=None if is_named else trusted_owners())
    if document is None:
        return None
    source = Source(scope=file.scope, file=str(file.path), folder=file.folder)
    found = entries(document.data, source)
    host = host_of(str(file.path))
    has_others = bool(host) and HOSTS[host].has_other_settings
    if found is None and document.data and (is_named or not has_others):
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
        host: One of `HOSTS` with files of the user.
        folder: The notebook's folder, for hosts that store servers by project in a file of the user.

    Raises:
        ConfigError: The host has no config file.
    """
    find = HOSTS[host].files
    candidate_files = find() if find is not None else []
    definitions: dict[str, ServerDefinition] = {}
    problems: list[ConfigError] = []
    files: list[Path] = []
    for path in candidate_files:
        source = Source(scope="user", file=str(path))
        try:
            with doing(f"reading {path}"):
                document = load_if_there(path)
                parts = _parts(host, document.data, folder) if document is not None else []
                found = [entry for part in parts for entry in entries(part, source, host=host) or ()]
        except ConfigError as error:
            problems.append(error)
            continue
        if document is None:
            continue
        files.append(path)
        for name, entry in found:
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
        return [data] if data else []
    document = cast("Mapping[str, Any]", data)
    projects = document.get("projects")
    local = cast("Mapping[str, Any]", projects).get(folder) if isinstance(projects, Mapping) else None
    return [part for part in (local, document) if isinstance(part, Mapping) and "mcpServers" in part]


class ConfigurationWatch:
    """The configuration of a folder, and the changes of its files.

    Args:
        folder: The notebook's folder.
        published: Converts a file in which a server is published.
    """

    def __init__(self, folder: str, published: Published | None = None) -> None:
        self.folder = folder
        self._published = published
        self._stamps: dict[Path, Stamp] = {}
        """The watched files, as they were last read or reported."""
        self._named: set[Path] = set()
        """The watched files that the user has named."""
        self._peeked: tuple[list[tuple[CandidateFile, Stamp]], Configuration] | None = None
        """The configuration that `peek` has read last, and the files and stamps that it was made from."""
        self._reported: set[str] = set()
        """The problems of the file in `IPYMCP_CONFIG` that were reported; each is reported once."""

    def read(self) -> Configuration:
        """Read the current configuration."""
        files = candidates(self.folder)
        kept = {path: self._stamps[path] for path in self._named if path in self._stamps}
        # The stamps are taken before the files are read, so that no change is missed.
        self._stamps = {**kept, **{file.path: stamp(file.path) for file in files}}
        return discover(files)

    def peek(self) -> Configuration:
        """Return the configuration for hints and completion: read again only if a file has changed since."""
        files = candidates(self.folder)
        stamps = [(file, stamp(file.path)) for file in files]
        if self._peeked is None or self._peeked[0] != stamps:
            self._peeked = stamps, discover(files)
        return self._peeked[1]

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
        return named_source(str(file))

    def read_named(self, source: Source) -> dict[str, ServerDefinition | ConfigError]:
        """Read the servers of a file, which may also be one that publishes a server.

        Raises the same errors as `read_each`.
        """
        servers = read_each(source, self._published)
        for file in candidates(self.folder) if source.scope == "project" else ():
            if file.scope == "user" and str(file.path) != source.file:
                shared = [name for name in discover([file]).servers if name in servers]
                servers |= {name: mark_shadowing(servers[name], file) for name in shared}
        return servers

    def unreported(self, errors: Iterable[ConfigError], found: Configuration) -> list[ConfigError]:
        """Return the errors without those of the file in `IPYMCP_CONFIG` that this method has returned before."""
        once = {str(one) for one in found.named_file_problems}
        new = [one for one in errors if str(one) not in once & self._reported]
        self._reported |= once
        return new

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


# -- changes -----------------------------------------------------------------------------------------------------------


def put(definition: ServerDefinition, document: dict[str, Any], source: Source) -> ServerDefinition:
    """Add a definition to a document and return it as it is read back."""
    document["mcpServers"][definition.name] = as_own(definition)
    _add_inputs(document, definition)
    return read_back(definition.name, document, source)


def _add_inputs(document: dict[str, Any], definition: ServerDefinition) -> None:
    existing = document.get("inputs")
    inputs = cast("list[Mapping[str, Any]]", existing) if isinstance(existing, list) else []
    known = {one.get("id") for one in inputs}
    new = [dict(described) for name, described in definition.inputs.items() if name not in known]
    if new:
        document["inputs"] = [*inputs, *new]


def changed(entry: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry with some values changed; None removes a value, and objects are merged."""
    result = dict(entry)
    for key, value in values.items():
        before = result.get(key)
        if isinstance(value, Mapping) and (before is None or isinstance(before, Mapping)):
            table = changed(cast("Mapping[str, Any]", before or {}), cast("Mapping[str, Any]", value))
            value = table or None
        if value is None:
            result.pop(key, None)
        else:
            result[key] = value
    return result


def translated_entry(entry: Mapping[str, Any], values: Mapping[str, Any], source: Source) -> Mapping[str, Any]:
    """Return an entry, with our names for all keys if it uses another name for one of the values."""
    try:
        server = translated(entry, "", source, is_own=source.scope == "user")
    except ConfigError:  # perhaps the error that the change fixes
        return entry
    return server.values if server.names.keys() & values.keys() else entry


def read_back(name: str, document: Mapping[str, Any], source: Source) -> ServerDefinition:
    """Return a server of a document; raise `ConfigError` if it cannot be read back."""
    if not is_name(name):
        raise ConfigError(f"{name!r} is not a valid server name", hint="use visible characters")
    listed = cast("list[Mapping[str, Any]]", document.get("inputs") or [])
    inputs = {str(one.get("id")): one for one in listed}
    written = RawServer(name, f"mcpServers.{name}", document["mcpServers"][name])
    return definition_of(written, "", source, inputs, is_own=source.scope == "user")


def with_unit(entry: Mapping[str, Any], before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return an entry with `max_timeout` if its timeout, typed in seconds, could be taken for milliseconds.

    Args:
        entry: The entry.
        before: The entry before its timeout was changed, whose `max_timeout` may be such a mark.
    """
    made, timeout, limit = dict(entry), entry.get("timeout"), entry.get("max_timeout")
    if before is not None and limit is not None and limit == before.get("max_timeout") == before.get("timeout"):
        limit = None
        del made["max_timeout"]
    if limit is None and isinstance(timeout, int | float) and timeout > MAX_PLAIN_SECONDS:
        made["max_timeout"] = timeout
    return made


_INDENT = re.compile(r"\n([ \t]+)\S")
_TIMEOUT = 5.0
"""Seconds to wait for another kernel that writes the same file."""


def project_file(folder: str) -> Path:
    """Return the project's `mcp.json`: the nearest existing one, else in the repository's root, else in this folder.

    Raises:
        ConfigError: The folder is home, which is not a project.
    """
    folders = list(project_folders(folder))
    if not folders:
        raise ConfigError(f"{folder} belongs to no project", hint="leave --project out: the user's own file is for all")
    existing = next((one for one in folders if os.path.lexists(os.path.join(one, "mcp.json"))), None)
    return Path(existing or (folders[-1] if is_root(folders[-1]) else folders[0]), "mcp.json")


def edit(file: Path, alter: Callable[[dict[str, Any]], None], *, private: bool) -> None:
    """Change or create one of ipymcp's own files.

    Args:
        file: The file.
        alter: Function that changes the document, which has an object `mcpServers`, in place.
        private: Create a new file readable by the user alone.

    Raises:
        ConfigError: The file cannot be read or written, is in another host's format, or has comments.
    """
    file = Path(os.path.realpath(file.parent), file.name)
    try:
        make_private_folder(file.parent) if private else make_folder(file.parent)
        with _locked(file):
            text, document = editable(file)
            alter(document)
            write_file(file, _text(document, text), PRIVATE if private else SHARED)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be written: {error.strerror}", hint=write_hint(error)) from None


def editable(file: Path) -> tuple[str, dict[str, Any]]:
    """Return the text and document of one of ipymcp's own files; an empty document if it does not exist.

    Raises:
        ConfigError: The file cannot be read, is in another host's format, or has comments.
    """
    read = load_if_there(file, owners=trusted_owners())
    if read is None:
        return "", {"mcpServers": {}}
    if not read.is_plain:
        raise ConfigError(
            f"{file}: its comments would be lost", hint="change it in an editor; ipymcp reads it as it is"
        )
    document_format = recognise_format(read.data, str(file))
    document = dict(cast("Mapping[str, Any]", read.data))
    if document_format is not None and "mcpServers" not in document:
        raise ConfigError(f"{file}: is in another host's format", hint="change it there; ipymcp reads it as it is")
    servers = document.get("mcpServers", {})
    if not isinstance(servers, Mapping):
        raise ConfigError(f"{file}: mcpServers: expected an object, got {shown(servers)}", hint=FORMAT_HINT)
    document["mcpServers"] = dict(cast("Mapping[str, Any]", document.get("mcpServers", {})))
    return read.text, document


def _text(document: Mapping[str, Any], before: str) -> bytes:
    """Encode a document with the indentation of the file's previous text."""
    found = _INDENT.search(before)
    indent: str | int = found[1] if found else 2
    end = "\n" if not before or before.endswith("\n") else ""
    try:
        return (json.dumps(document, indent=indent, ensure_ascii=False) + end).encode()
    except UnicodeEncodeError:  # half a surrogate pair
        return (json.dumps(document, indent=indent) + end).encode()


@contextlib.contextmanager
def _locked(file: Path) -> Generator[None]:
    """Lock the file's folder against other kernels, where the system supports it, without a lock file."""
    if os.name == "nt":  # folders cannot be locked
        yield
        return
    descriptor = os.open(file.parent, os.O_RDONLY)
    try:
        deadline = time.monotonic() + _TIMEOUT
        while not try_lock(descriptor):
            if time.monotonic() > deadline:
                raise ConfigError(f"{file}: another kernel is writing it", hint="try again")
            time.sleep(0.02)
        yield
    finally:
        os.close(descriptor)
