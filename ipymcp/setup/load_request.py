"""The arguments of `load` and `%mcp config add` (names, files, URLs, mappings, pasted text) as server definitions."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct, field

from ipymcp.argument_checks import shown
from ipymcp.config import unused_settings
from ipymcp.config.definition import ServerDefinition, Source
from ipymcp.config.parsing import RawServer, definition_of, definitions, is_server, no_servers_error, recognise_format
from ipymcp.config.pasted import (
    ORIGIN,
    PastedServers,
    default_name,
    is_link,
    package_hint,
    read_mapping,
    read_pasted,
    read_words,
)
from ipymcp.config.programs import program
from ipymcp.errors import ConfigError, PolicyError, UnknownName
from ipymcp.names import nearest
from ipymcp.protocol.transports.addresses import parse_address
from ipymcp.protocol.types import is_object
from ipymcp.registry.published import config_document
from ipymcp.runtime.server_status import State
from ipymcp.text import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ipymcp.config.config_files import Configuration
    from ipymcp.runtime.host import Host
    from ipymcp.storage.notebooks import UsedServer


_TEXTS = frozenset({"command", "cwd", "url", "env_file", "era", "transport", "type", "restart"})
"""Keys with string values, which are not decoded as JSON."""
_TABLES_OF_TEXTS = frozenset({"env", "headers", "auth", "tools"})


def settings(pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Convert `key=value` pairs to changes of a definition: `env.X` sets a nested key, an empty value removes a key."""
    change: dict[str, Any] = {}
    for path, text in pairs:
        key, dot, inner = path.partition(".")
        value = None if not text else text if (dot and key in _TABLES_OF_TEXTS) or key in _TEXTS else _decoded(text)
        if dot:
            change[key] = {**(change.get(key) or {}), inner: value}
        else:
            change[key] = value
    return change


def config_path(text: str, host: Host, *, project: bool) -> str:
    """Convert a path relative to the notebook's folder to one for the configuration file; other text stays unchanged.

    The path becomes absolute, unless it is for a project's file in the notebook's folder: servers of that file run
    there.
    """
    if text not in (".", "..", "~") and not text.startswith(("./", "../", "~/", ".\\", "..\\")):
        return text
    from ipymcp.config.config_files import project_file

    path = os.path.normpath(os.path.join(host.folder, os.path.expanduser(text)))
    if not project or not os.path.samefile(host.folder, project_file(host.folder).parent):
        return path
    return text


def read_definitions(
    name: str | None, values: Mapping[str, Any], source: Source, *, is_own: bool = False
) -> list[ServerDefinition]:
    """Read the definitions to add from a single definition or a document.

    Args:
        name: The name of the server; for a document with several servers, the one to add; None for all of a document,
            and for the usual name of a single definition.
        values: A definition, or a document of any host.
        source: The file to add to.
        is_own: Whether the definition was written for ipymcp.
    """
    values = config_document(values, ORIGIN) or values
    if is_server(values) or recognise_format(values, ORIGIN) is None:
        if name is None and not (is_server(values) or "command" in values or "url" in values):
            raise no_servers_error(values, ORIGIN)
        from ipymcp.config.config_files import changed

        name = name or default_name(values)
        written = RawServer(name, f"mcpServers.{name}", changed({}, values))
        return [definition_of(written, "", source, {}, is_own=is_own)]
    found = definitions(values, Source(scope="named", file=ORIGIN))
    if name is None or not found:
        return list(found.values())
    return [_chosen(name, found)]


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


TYPED_SCOPES = frozenset({"cell", "script", "named"})
"""The scopes of definitions that take precedence over discovered files."""

_PROGRAMS = {".py": "python ", ".js": "node ", ".mjs": "node ", ".ts": "npx tsx ", ".sh": "sh "}
"""Commands that run program files, by suffix."""
DOCUMENTS = (".json", ".json5", ".jsonc", ".toml", ".yaml", ".yml")
"""Suffixes of files that may define servers."""
_BUNDLES = (".mcpb", ".dxt")
_ADDRESS = r"(?!\.)(localhost|[\w-]++(\.[\w-]++)++|\[[0-9a-f:]++\])(:\d++)?(/.*)?|[\w-]++:\d++(/.*)?"
_PORT = r"[\w.-]+:\d+(/|$)"
_LOCAL = r"localhost|127\.|\[::1\]|[\w-]+:\d"


class LoadRequest(Struct, frozen=True):
    """The servers to load."""

    definitions: list[ServerDefinition]
    named: list[str] = field(default_factory=list[str])
    """The names of servers whose failure to start is an error."""
    notices: list[str] = field(default_factory=list[str])
    """Lines for the user about the configuration."""
    again: bool = True
    """Whether to ask again about servers that the user has refused."""
    links: dict[str, str] = field(default_factory=dict[str, str])
    """The origins of servers from links, in which the user cannot read what would run."""


def demo_definition() -> ServerDefinition:
    """The server that ships with ipymcp; see `ipymcp.demo`."""
    script = Path(__file__).parent.parent / "demo" / "__main__.py"
    return ServerDefinition(name="demo", command=sys.executable, args=("-I", "-S", str(script)))


def remembered_definition(used: UsedServer) -> ServerDefinition:
    """The definition of a server that this notebook loaded, and that was typed in a cell.

    Raises:
        ConfigError: It was not stored, or cannot be read.
    """
    demo = demo_definition()
    if used.name == demo.name and (used.typed is None or used.typed.args == demo.args):
        return demo  # the interpreter may be another one now
    if used.typed is None:
        raise ConfigError(used.problem or "its definition was not stored", hint="run the cell that loads it")
    return used.typed


def url_definition(url: str, name: str | None = None) -> ServerDefinition:
    """The definition of a remote server, by default named after its host: `example` for `mcp.example.com`.

    Raises:
        ConfigError: The URL is invalid.
    """
    from ipymcp.config.config_files import from_mapping

    parse_address(url)
    name = default_name({"url": url}) if name is None else name
    return from_mapping({name: {"url": url}}, scope="cell")[name]


def from_pasted(pasted: PastedServers, host: Host, names: Sequence[str] = ()) -> LoadRequest:
    """The servers of a pasted text, to be loaded.

    Args:
        pasted: The text.
        host: The host of the notebook.
        names: The servers to load, or the name of the only one; empty for all.

    Raises:
        ConfigError: The text defines no servers, or a value is invalid.
        UnknownName: The text has no server of that name.
    """
    document = config_document(pasted.document, ORIGIN) or pasted.document
    if recognise_format(document, ORIGIN) is None:
        raise no_servers_error(document, ORIGIN)
    available = definitions(document, Source(scope="script"))
    if not available:
        raise ConfigError(f"{ORIGIN}: defines no servers", hint="%mcp help load shows what can be loaded")
    found = [*available.values()] if not names else [_chosen(name, available) for name in names]
    links = {one.name: pasted.origin for one in found if pasted.origin}
    lines = [*pasted.notes, *_unused_lines(found, host)]
    return LoadRequest(found, [one.name for one in found if not one.disabled], lines, links=links)


def _chosen(name: str, available: Mapping[str, ServerDefinition]) -> ServerDefinition:
    """The server of a pasted text with a name, or its only server under that name."""
    if name not in available and len(available) > 1:
        hint = nearest(name, available) or "without a name, all servers are taken"
        raise UnknownName(f"the pasted text has no server {name!r}", hint=hint)
    return available.get(name) or next(iter(available.values())).replace(name=name)


async def agree_to_links(request: LoadRequest, host: Host) -> None:
    """Ask about the servers from links, in which the user cannot read what would run.

    Raises:
        PolicyError: The user refuses.
        TrustError: No one could be asked.
    """
    for definition in request.definitions:
        origin = request.links.get(definition.name)
        session = host.sessions.get(definition.name)
        if origin is None or (session is not None and session.definition == definition):
            continue
        if await host.guard.trust.ask_about_addition(origin, "this notebook", definition, host.folder) is None:
            raise PolicyError("is not loaded: you did not agree to it", server=definition.name)


def typed_definition(what: Sequence[object], values: Mapping[str, Any]) -> Mapping[str, Any]:
    """A mapping of one server, from the keywords of `mcp.load("NAME", command=…, args=…)`.

    Raises:
        ConfigError: There is more than one name, or a command cannot be read.
    """
    given = {key: value for key, value in values.items() if value is not None}
    if len(what) > 1 or (what and not isinstance(what[0], str)):
        hint = 'such as mcp.load("time", command="uvx", args=["mcp-server-time"])'
        raise ConfigError(f"{next(iter(given))}= defines one server, so one name goes before it", hint=hint)
    text = str(what[0]) if what else ""
    if not given.keys() & {"command", "url"}:
        if not (text.split()[1:] or "://" in text):
            hint = f"as in load({text or 'NAME'!r}, command=…); %mcp load NAME --env K=V changes a configured server"
            raise ConfigError(f"{next(iter(given))}= needs command= or url=", hint=hint)
        pasted = read_pasted(text, is_command=True)
        return {pasted.name or default_name(pasted.values): {**pasted.values, **given}}
    command = given.get("command")
    if isinstance(command, str) and program(command.partition(" ")[0]).is_launcher and command.split()[1:]:
        words = list(read_pasted(command, is_command=True).values["args"])
        given |= {"command": command.split()[0], "args": [*words, *given.get("args", ())]}
    return {text or default_name(given): given}


def gather(what: Iterable[str | os.PathLike[str] | Mapping[str, Any] | Sequence[str]], host: Host) -> LoadRequest:
    """Resolve the arguments of `load`; without any, all servers of the discovered configuration.

    Raises:
        ConfigError: A file or definition is invalid.
        UnknownName: A name is not defined anywhere.
    """
    from ipymcp.config.config_files import from_mapping

    items: list[str | os.PathLike[str] | Mapping[str, Any] | Sequence[str]] = list(what)
    if not items:
        return _everything(host)
    if len(items) == 2 and (own := _named_definition(items[0], items[1], host)) is not None:
        items = [own]
    definitions: dict[str, ServerDefinition] = {}
    named: list[str] = []
    path: Path | None = None
    available: dict[str, ServerDefinition | ConfigError] = {}
    pending: dict[str, ServerDefinition | ConfigError] = {}
    found: Configuration | None = None
    lines: list[str] = []
    links: dict[str, str] = {}
    for item in items:
        if isinstance(item, Mapping):
            mapped = from_mapping(read_mapping(item))
            definitions.update(mapped)
            named.extend(name for name, one in mapped.items() if not one.disabled)
        elif (pasted := _pasted(item, available, host)) is not None:
            read = from_pasted(pasted, host)
            definitions.update((one.name, one) for one in read.definitions)
            named += read.named
            lines += read.notices
            links |= read.links
        elif not isinstance(item, (str, os.PathLike)):
            raise UnknownName(f"{shown(item)} is not a server")
        elif isinstance(item, str) and "://" in item:
            remote = url_definition(item)
            definitions[remote.name] = remote
            named.append(remote.name)
        elif isinstance(item, os.PathLike) or _looks_like_path(item):
            _check_file(os.fspath(item), host)
            definitions.update(_valid(pending))
            source = host.discovery.named(item)
            path = Path(str(source))
            read = host.discovery.read_named(source)
            available = pending = {name: _marked_if_shadowing(entry, host) for name, entry in read.items()}
            if not available:
                lines.append(f"{path} defines no servers")
        else:
            pending = {}
            if path is None and found is None and not _is_typed(item, host):
                found = host.discovery.read()
            definitions[item] = _from_file(path, item, available) if path else _named(item, found, host)
            if found is not None:
                lines += map(_line, host.discovery.unreported(found.named_file_problems, found))
            named.append(item)
    definitions.update(_valid(pending))
    lines += [line for line in _unused_lines(definitions.values(), host) if line not in lines]
    return LoadRequest(list(definitions.values()), named, lines, links=links)


def _named_definition(name: object, value: object, host: Host) -> Mapping[str, Any] | None:
    """One server from its name and its definition: JSON, a mapping, or a command as a list; None for anything else."""
    if not isinstance(name, str) or not name or "://" in name or name.split()[1:] or _looks_like_path(name):
        return None
    if isinstance(value, str) and value.lstrip().startswith("{"):
        value = _decoded(value)
    if is_object(value) and is_server(value):
        return {name: value}
    if isinstance(value, (list, tuple)):
        return {name: _command([str(word) for word in cast("Sequence[object]", value)], host).values}
    return None


def _pasted(item: object, available: Mapping[str, object], host: Host) -> PastedServers | None:
    """The servers of an argument that is a command or a text; None if it is a name, an address or a path.

    Raises:
        ConfigError: The text defines no server, or may mean several things.
    """
    if isinstance(item, (list, tuple)):
        return _command([str(word) for word in cast("Sequence[object]", item)], host)
    if not isinstance(item, str):
        return None
    is_text = "\n" in item or is_link(item) or item.lstrip().startswith(("{", "[", '"'))
    if not is_text and (not item.split()[1:] or item in available or item in host.sessions):
        return None
    path = os.path.join(host.folder, os.path.expanduser(item))
    if not is_text and (item in host.discovery.peek().servers or os.path.exists(path)):
        return None
    return read_pasted(item)


def _command(words: Sequence[str], host: Host) -> PastedServers:
    """Read a command that is a list of words.

    Raises:
        ConfigError: They may be the names of servers.
    """
    known = {*host.sessions, *host.discovery.peek().servers, "demo"}
    if words and known.issuperset(words):
        names, first = ", ".join(map(repr, words)), words[0]
        hint = f"as servers: load({names}); as a command: load({first!r}, command={first!r}, args={list(words[1:])})"
        raise ConfigError(f"{list(words)} may be servers or a command", hint=hint)
    return read_words(words)


def _unused_lines(definitions: Iterable[ServerDefinition], host: Host) -> list[str]:
    """Lines about settings without effect, of servers that are not loaded yet."""
    loaded = [session.definition for session in host.sessions.values()]
    return unused_settings.lines(one for one in definitions if one not in loaded and not one.disabled)


def notices(configuration: Configuration, host: Host) -> list[str]:
    """Lines for the user about errors of files, files that are not read, and shadowed servers."""
    errors = host.discovery.unreported(configuration.errors, configuration)
    lines = [*map(_line, errors), *configuration.unread]
    for name, shadowed in configuration.shadowed.items():
        used = configuration.servers[name]
        if isinstance(used, ServerDefinition):
            lines += [f"{name}: the one in {used.source} shadows that in {other.source}" for other in shadowed]
    return lines


def _line(error: ConfigError) -> str:
    return f"{error.message} · {error.hint}" if error.hint else error.message


def _everything(host: Host) -> LoadRequest:
    configuration = host.discovery.read()
    definitions: list[ServerDefinition] = []
    lines = notices(configuration, host)
    for name, definition in configuration.definitions.items():
        session = host.sessions.get(name)
        is_off = session is not None and session.state is State.DISABLED and not session.definition.disabled
        if is_off and not definition.disabled:
            lines.append(f"{name} is disabled in this notebook: %mcp enable {quoted(name)}")
            continue
        if _is_typed(name, host):
            loaded = host.sessions[name].definition
            if loaded.source.file != definition.source.file:
                lines.append(f"{name}: the one that is loaded ({loaded.source}) stays; {definition.source} has another")
                continue
        definitions.append(definition)
    lines += [
        f"{name}: no file defines it any more; it stays until %mcp unload {quoted(name)}"
        for name, session in host.sessions.items()
        if name not in configuration.servers and session.definition.source.scope not in TYPED_SCOPES
    ]
    lines += _unused_lines(definitions, host)
    if not definitions and not configuration.servers:
        lines.append("no servers are configured here: %mcp load demo, or %mcp config add NAME -- COMMAND ARG…")
    return LoadRequest(definitions, [], lines, again=False)


def _is_typed(name: str, host: Host) -> bool:
    session = host.sessions.get(name)
    return session is not None and session.definition.source.scope in TYPED_SCOPES


def _marked_if_shadowing(entry: ServerDefinition | ConfigError, host: Host) -> ServerDefinition | ConfigError:
    """A definition, marked if it is a project's and would replace a server that the user has typed or named."""
    if isinstance(entry, ConfigError) or entry.source.scope != "project" or not _is_typed(entry.name, host):
        return entry
    return entry.shadowing("this notebook")


def _valid(entries: Mapping[str, ServerDefinition | ConfigError]) -> dict[str, ServerDefinition]:
    """The definitions of a file; raises the first error among them."""
    valid: dict[str, ServerDefinition] = {}
    for name, entry in entries.items():
        if isinstance(entry, ConfigError):
            raise entry
        valid[name] = entry
    return valid


def _from_file(path: Path, name: str, available: Mapping[str, ServerDefinition | ConfigError]) -> ServerDefinition:
    if name in available:
        return _valid({name: available[name]})[name]
    hint = nearest(name, available) or f"it defines: {', '.join(available) or 'none'}"
    raise UnknownName(f"{path} defines no server {name!r}", hint=hint)


def _named(name: str, found: Configuration | None, host: Host) -> ServerDefinition:
    entry = found.servers.get(name) if found is not None else None
    if isinstance(entry, ConfigError):
        raise entry
    if entry is not None:
        return entry
    if name in host.sessions:
        return host.sessions[name].definition
    if name == "demo":
        return demo_definition()
    used = next((one for one in host.used_servers() if one.name == name), None)
    if used is not None and used.file:
        hint = f"%mcp restore, or %mcp load {quoted(used.file)} {quoted(name)}"
        raise UnknownName(f"{host.rememberer} loaded {shown(name)} from {used.file}", hint=hint)
    if used is not None:
        return remembered_definition(used)
    known = found.servers if found is not None else ()
    if host.store.known.named(name) is not None:
        hint = f"give its command: %mcp load {quoted(name)} -- COMMAND ARG…, or %mcp load FILE {quoted(name)}"
        raise UnknownName(f"no file here defines {shown(name)}, which was loaded in another notebook", hint=hint)
    missing = "; ".join(_missing(found))
    hint = (
        nearest(name, [*host.sessions, *known, "demo"])
        or package_hint(name)
        or f"give its command: %mcp load {quoted(name)} -- COMMAND ARG…"
    )
    raise UnknownName(f"no server {shown(name)} is known here", hint=missing or hint)


def _missing(found: Configuration | None) -> list[str]:
    """Errors of the file that IPYMCP_CONFIG refers to."""
    return [_line(error) for error in found.named_file_problems] if found is not None else []


def _check_file(text: str, host: Host) -> None:
    """Raise an error if an argument looks like a path but is a command, a program or a URL without a scheme."""
    path = os.path.join(host.folder, os.path.expanduser(text))
    if text.startswith("@") and package_hint(text) and not os.path.exists(path):
        raise UnknownName(f"{shown(text)}: no such file", hint=package_hint(text))
    program = next((word for end, word in _PROGRAMS.items() if text.endswith(end)), None)
    if program is not None:
        raise UnknownName(
            f"{shown(text)} is a program, not a config file", hint=f"%mcp load -- {program}{quoted(text)}"
        )
    if text.endswith(_BUNDLES) and os.path.exists(path):
        hint = "unpack it (it is a zip file), then %mcp load FOLDER/manifest.json"
        raise UnknownName(f"{shown(text)} is an MCPB bundle, not a config file", hint=hint)
    is_document = "/" not in text and text.endswith(DOCUMENTS)
    if re.fullmatch(_ADDRESS, text) and not is_document and not os.path.exists(path):
        scheme = "http" if re.match(_LOCAL, text) else "https"
        hint = f"an address begins with http:// or https://: %mcp load {scheme}://{text}"
        raise UnknownName(f"{shown(text)}: no such file", hint=hint)


def _looks_like_path(text: str) -> bool:
    is_file = text.endswith((*DOCUMENTS, *_BUNDLES, *_PROGRAMS)) or re.match(_PORT, text) is not None
    return is_file or "/" in text or os.sep in text or text in (".", "..", "~")
