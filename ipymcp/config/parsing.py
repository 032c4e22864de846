"""Parsing of config documents to server definitions: document formats, and validation.

{"mcpServers": {NAME: …}}                      ipymcp and most hosts
{"servers": {NAME: …}, "inputs": […]}          VS Code; Copilot and Dispatch, without inputs; also inside `mcp`
{"mcp": {NAME: {"type": "local", …}}}          opencode
{"context_servers": {NAME: …}}                 Zed
[mcp_servers.NAME]                             Codex, in TOML
{"mcp_servers": [{"name": NAME, …}]}           jupyter-ai, jupyter-mcp-manager (its settings: in `mcpSettings`)
{NAME: {"command": …}, …}                      a flat record, if every value is a server
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, TypeGuard, cast, get_args

import msgspec
from msgspec import Struct

from ipymcp.config.definition import ServerDefinition
from ipymcp.config.hosts import HOSTS, host_of
from ipymcp.config.server_reader import ServerReader, shown
from ipymcp.config.translation import translated
from ipymcp.config.variables import has_variables, references
from ipymcp.errors import ConfigError
from ipymcp.names import nearest
from ipymcp.protocol.transports.addresses import checked_headers, parse_address

if TYPE_CHECKING:
    from ipymcp.config.definition import Era, ReadOnly, Source, Transport


_CLIENT = (
    "client_id",
    "client_secret",
    "token_endpoint_auth_method",
    "private_key",
    "signing_algorithm",
    "issuer",
)
_AUTH_KEYS = {
    "bearer": ("token",),
    "oauth": (*_CLIENT, "client_metadata_url", "redirect_uri", "scopes"),
    "client_credentials": (*_CLIENT, "scopes"),
    "enterprise": (
        *(*_CLIENT, "scopes", "idp_issuer", "idp_token_endpoint", "idp_client_id", "idp_client_secret"),
        *("idp_token", "idp_token_type"),
    ),
}
_AUTH_HINT = 'write {"type": "bearer", "token": "…"}, or "type": "oauth", "client_credentials" or "enterprise"'


def auth(entry: ServerReader) -> Mapping[str, Any]:
    """Read and validate the login settings of a server; empty if there are none.

    Raises:
        ConfigError: The type is unknown, or a value has the wrong type. The message shows no values.
    """
    given = entry.get("auth")
    if given is None:
        return {}
    if "command" in entry:
        raise entry.error("a server with a command has no login", key="auth", hint="pass its credentials in env")
    if not isinstance(given, Mapping):
        raise entry.error("expected an object", key="auth", hint=_AUTH_HINT)
    values = cast("Mapping[str, Any]", given)
    inner = entry.within("auth", values)
    kind = inner.choice("type", _AUTH_KEYS) or "oauth"
    known = _AUTH_KEYS[kind]
    for key in values:
        if key != "type" and key not in known:
            raise inner.error(f"is not supported by {kind!r}", key=key, hint=f"the keys are {', '.join(known)}")
    read: dict[str, Any] = {"type": kind}
    for key in known:
        if key == "scopes":
            scopes = inner.get(key)
            text = scopes.split() if isinstance(scopes, str) else inner.texts(key, hint='such as ["files:read"]')
            read[key] = list(text)
        elif key == "token_endpoint_auth_method":
            from ipymcp.protocol.oauth.clients import AuthMethod  # few definitions name one

            read[key] = inner.choice(key, get_args(AuthMethod))
        else:
            read[key] = inner.secret(key)
    if kind == "bearer" and not read["token"]:
        raise inner.error("is missing", key="token", hint=_AUTH_HINT)
    return {key: value for key, value in read.items() if value}


FORMAT_HINT = 'the format is {"mcpServers": {"NAME": {"command": "…", "args": ["…"]}}}'
_MAIN_KEYS = ("command", "url")
_SERVER_KEYS = (*_MAIN_KEYS, "serverUrl", "httpUrl", "transport")
"""Keys by which an object is recognised as a server."""
_TABLES = {"mcpServers": "", "mcp_servers": "codex", "context_servers": "zed", "servers": "vscode"}
"""Keys of tables of servers, in the order in which they are looked for, each with the usual host."""
MAX_SERVERS = 1_000
"""Servers in one document."""
_MENTIONED = 5
_MAX_RULES = 100


class RawServer(Struct, frozen=True):
    """A server as written in a document."""

    name: str
    key: str
    """Path in the document, keys joined by dots."""
    values: Mapping[str, Any]


class DocumentFormat(Struct, frozen=True):
    """A document with its recognised format."""

    host: str
    """The host whose format it is; empty for the common one."""
    servers: tuple[RawServer | ConfigError, ...]
    """Each server, or its error."""
    inputs: Mapping[str, Mapping[str, Any]] = {}
    """Inputs for `${input:ID}`, by id."""
    table: str = ""
    """The key of the servers; empty for a flat record."""
    unused: Mapping[str, str] = {}
    """Paths of settings that restrict servers and that ipymcp does not use, each with what does not happen."""


def recognise_format(document: object, origin: str, host: str = "") -> DocumentFormat | None:
    """Recognise the format of a document; return None for an object without servers.

    Args:
        document: The decoded document.
        origin: Path of the document, the prefix of errors.
        host: The host whose file it is; empty to find it by the path.

    Raises:
        ConfigError: The document, or its table of servers, has the wrong type.
    """
    if not isinstance(document, Mapping):
        raise ConfigError(f"{origin}: expected an object, got {shown(document)}", hint=FORMAT_HINT)
    table = cast("Mapping[str, Any]", document)
    host = host or host_of(origin)

    def made(key: str, servers: object, usual: str, within: Mapping[str, Any] = table) -> DocumentFormat:
        name = host if host and HOSTS[host].table == key else usual
        listed = tuple(_servers_in(servers, key, origin))
        names = [one.name for one in listed if isinstance(one, RawServer)]
        settings = HOSTS[name].document_keys.items() if name else ()
        unused = {path.removesuffix(".*"): effect for path, effect in settings if _restricts(table, path, names)}
        return DocumentFormat(name, listed, _inputs(within), key, unused)

    for key, usual in _TABLES.items():
        if key in table and not (key != "mcpServers" and is_server(table[key])):
            return made(key, table[key], "jupyter-ai" if isinstance(table[key], list) and usual else usual)
    if host and HOSTS[host].has_other_settings and HOSTS[host].table != "mcp":
        return None
    settings = cast("object", table.get("mcpSettings"))
    if isinstance(settings, Mapping) and "mcp_servers" in settings:
        listed = cast("Mapping[str, object]", settings)["mcp_servers"]
        key = "mcpSettings.mcp_servers"
        return DocumentFormat("jupyter-mcp-manager", tuple(_servers_in(listed, key, origin)), table=key)
    inner = table.get("mcp")
    if isinstance(inner, Mapping) and not is_server(cast("object", inner)):
        held = cast("Mapping[str, Any]", inner)
        if isinstance(held.get("servers"), Mapping) and not is_server(held["servers"]):
            return made("mcp.servers", held["servers"], "vscode", held)
        if not any(is_server(table[name]) for name in table if name != "mcp"):
            return made("mcp", held, "opencode")
    flat = {name: value for name, value in table.items() if name != "$schema"}
    if flat and all(map(is_server, flat.values())):
        return bare_format(flat, origin)
    return None


def _restricts(document: Mapping[str, Any], path: str, servers: Iterable[object]) -> bool:
    """Whether a document has a setting that restricts servers: any but an empty one, or a rule for one of their tools.

    Args:
        document: The document.
        path: The path of the setting; with `.*` at its end, the setting has rules by globs over `server_tool`.
        servers: The names of the servers.
    """
    value: Any = document
    for key in path.removesuffix(".*").split("."):
        value = cast("Mapping[str, Any]", value).get(key) if isinstance(value, Mapping) else None
    if not path.endswith(".*") or not isinstance(value, Mapping):
        return bool(value) and value != ["*"]
    rules = cast("Mapping[str, Any]", value).items()
    globs = [glob for glob, rule in rules if rule not in (True, "allow")][:_MAX_RULES]
    return any(
        glob.startswith(f"{server}_") or fnmatchcase(f"{server}_tool", glob)
        for server in itertools.islice(servers, _MAX_RULES)
        for glob in globs
    )


def bare_format(table: object, origin: str) -> DocumentFormat:
    """Parse an object from name to definition.

    Raises:
        ConfigError: The value is not an object.
    """
    return DocumentFormat("", tuple(_servers_in(table, "", origin)))


def no_servers_error(document: Mapping[str, Any], origin: str) -> ConfigError:
    """Build the error for an object without servers."""
    keys = ", ".join(f'"{key}"' for key in list(document)[:_MENTIONED]) or "an empty object"
    hint = _suggestion(document, ("mcpServers", *_MAIN_KEYS)) or FORMAT_HINT
    servers = [key for key, value in document.items() if is_server(value)]
    if is_server(document):
        hint = 'it is one server: put it under a name, as in {"mcpServers": {"NAME": {…}}}'
    elif servers:
        other = next(key for key, value in document.items() if not is_server(value))
        hint = f'"{servers[0]}" looks like a server and "{other}" does not: put the servers into "mcpServers"'
    return ConfigError(f'{origin}: expected the key "mcpServers", found {keys}', hint=hint)


def _suggestion(keys: Iterable[str], known: Iterable[str]) -> str:
    """Suggest the known key that one of the keys may be meant for, or return the empty string."""
    return next(filter(None, (nearest(key, known, limit=1) for key in keys if len(key) > 1)), "")


def _servers_in(table: object, path: str, origin: str) -> Iterator[RawServer | ConfigError]:
    if isinstance(table, list):
        yield from _servers_in_list(cast("Sequence[object]", table), path, origin)
        return
    origin = f"{origin}: " if origin else ""
    where = f"{origin}{path}: " if path else origin
    if not isinstance(table, Mapping):
        wanted = "a list" if path.endswith("mcp_servers") else "an object"
        raise ConfigError(f"{where}expected {wanted}, got {shown(table)}", hint=FORMAT_HINT)
    for name, values in cast("Mapping[object, object]", table).items():
        key = f"{path}.{name}" if path else str(name)
        if not is_name(name):
            yield ConfigError(f"{where}expected a server's name, got {shown(name)}", hint=FORMAT_HINT)
        elif not isinstance(values, Mapping):
            yield ConfigError(f"{origin}{key}: expected an object, got {shown(values)}", hint=FORMAT_HINT)
        else:
            yield RawServer(name, key, cast("Mapping[str, Any]", values))


def _servers_in_list(table: Sequence[object], path: str, origin: str) -> Iterator[RawServer | ConfigError]:
    seen: set[str] = set()
    for index, item in enumerate(table):
        key = f"{path}[{index}]"
        if not isinstance(item, Mapping):
            yield ConfigError(f"{origin}: {key}: expected an object, got {shown(item)}", hint=FORMAT_HINT)
            continue
        values = dict(cast("Mapping[str, Any]", item))
        name = values.pop("name", None)
        if not is_name(name):
            yield ConfigError(f"{origin}: {key}.name: expected a server's name, got {shown(name)}", hint=FORMAT_HINT)
        elif name in seen:
            yield ConfigError(f'{origin}: {key}.name: "{name}" is defined twice', hint="keep one of the two")
        elif values.keys() != {"disabled"}:  # jupyter-mcp-manager's way to disable a server of another file
            seen.add(name)
            yield RawServer(name, key, values)


def is_name(name: object) -> TypeGuard[str]:
    """Whether a value is a valid server name: a string of visible characters."""
    return isinstance(name, str) and bool(name.strip()) and name.isprintable()


def is_server(value: object) -> bool:
    """Whether an object is a server, rather than a table of servers."""
    if not isinstance(value, Mapping):
        return False
    values = cast("Mapping[str, object]", value)
    return any(isinstance(values.get(key), str | list | Mapping) for key in _SERVER_KEYS)


def _inputs(table: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return VS Code's `inputs` by id, without invalid ones; a server that uses one of those reports it."""
    listed = table.get("inputs")
    if not isinstance(listed, list):
        return {}
    items = cast("list[object]", listed)
    inputs = [cast("Mapping[str, Any]", item) for item in items if isinstance(item, Mapping)]
    return {item["id"]: item for item in inputs if isinstance(item.get("id"), str)}


_TRANSPORTS: dict[str, Transport] = {"stdio": "stdio", "http": "http", "sse": "sse"}
_PROGRAM_HINT = 'put the program in "command" and each of its arguments in "args"'
_TABLE_HINT = 'write an object of strings, such as {"NAME": "value"}'
_RULES_HINT = 'write rules by tool, such as {"*": "ask", "read_*": "allow"}'
_HINTS_HINT = 'write hints by tool, such as {"read_*": {"readOnlyHint": true}}'
_HINT_NAMES = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")


def definitions(document: object, source: Source, *, bare: bool = False) -> dict[str, ServerDefinition]:
    """Return every server of a document, by name, in order.

    Args:
        document: The decoded document.
        source: Source of the document, the prefix of errors.
        bare: Also accept an object from name to definition that is not recognised as servers.

    Raises:
        ConfigError: The format is unknown, or a value is invalid. The message names document and key.
    """
    read = entries(document, source, bare=bare)
    if read is None:
        raise no_servers_error(cast("Mapping[str, Any]", document), str(source))
    found: dict[str, ServerDefinition] = {}
    for _, entry in read:
        if isinstance(entry, ConfigError):
            raise entry
        found[entry.name] = entry
    return found


def entries(
    document: object, source: Source, *, bare: bool = False, host: str = ""
) -> list[tuple[str, ServerDefinition | ConfigError]] | None:
    """Return every server of a document as its name and its definition or error; None if there are no servers.

    An entry without a valid name has the empty one.

    Args:
        document: The decoded document.
        source: Source of the document.
        bare: As for `definitions`.
        host: The host whose file it is; empty to find it by the path.

    Raises:
        ConfigError: The document as a whole cannot be used.
    """
    document_format = recognise_format(document, str(source), host)
    if document_format is None and not bare:
        return None
    document_format = document_format or bare_format(document, source.file or "")
    if len(document_format.servers) > MAX_SERVERS:
        message = f"{source}: defines {len(document_format.servers):,} servers; at most {MAX_SERVERS:,} are read"
        raise ConfigError(message, hint="split the file, and load each part when it is needed")
    source = msgspec.structs.replace(source, document_keys=document_format.unused)
    is_scripts = source.scope in ("cell", "script") and not document_format.table
    is_own = is_scripts or (source.scope == "user" and not host and not document_format.host)
    read: list[tuple[str, ServerDefinition | ConfigError]] = []
    for written in document_format.servers:
        if isinstance(written, ConfigError):
            read.append(("", written))
            continue
        try:
            definition = definition_of(written, document_format.host, source, document_format.inputs, is_own=is_own)
            read.append((written.name, definition))
        except ConfigError as error:
            read.append((written.name, error))
    return read


def definition_of(
    written: RawServer,
    host: str,
    source: Source,
    inputs: Mapping[str, Mapping[str, Any]],
    *,
    is_own: bool = False,
) -> ServerDefinition:
    """Return the definition of one server.

    Args:
        written: The server in its document.
        host: The host whose format the document has; empty for the common one.
        source: Source of the document.
        inputs: The document's inputs, by id.
        is_own: Whether the definition was written for ipymcp.

    Raises:
        ConfigError: A value is invalid.
    """
    own_source = msgspec.structs.replace(source, key=written.key)
    server = translated(written.values, host, own_source, is_own=is_own)
    own_source = msgspec.structs.replace(own_source, names=server.names, remarks=server.remarks)
    definition = _server(written.name, ServerReader(server.values, own_source), own_source)
    if inputs:
        asked = {one.name for one in references(definition) if one.kind == "input"}
        used = {name: inputs[name] for name in inputs if name in asked}
        definition = definition.replace(inputs=used) if used else definition
    return definition


def _server(name: str, entry: ServerReader, source: Source) -> ServerDefinition:
    command = entry.text("command", hint=_PROGRAM_HINT)
    url = entry.text("url", hint="write the server's address, such as https://host/mcp")
    headers = entry.table("headers", hint=_TABLE_HINT)
    _check_remote(entry, url, headers)
    timeout = entry.seconds("timeout", 30.0)
    return ServerDefinition(
        name=name,
        command=command,
        args=entry.texts("args", hint=_PROGRAM_HINT),
        env=entry.table("env", hint=_TABLE_HINT),
        env_file=entry.text("env_file", hint="write a file's path"),
        cwd=entry.text("cwd", hint="write a folder's path"),
        url=url,
        headers=headers,
        auth=auth(entry),
        transport=_transport(entry, command, url),
        era=cast("Era", entry.choice("era", ("auto", "legacy", "modern")) or "auto"),
        timeout=timeout,
        max_timeout=_max_timeout(entry, timeout),
        start_timeout=entry.seconds("start_timeout", 120.0),
        restart=_restart(entry),
        inherit_env=_inherit_env(entry),
        max_result_bytes=entry.size("max_result_bytes", 64_000_000),
        disabled=entry.flag("disabled", default=False),
        lazy=entry.flag("lazy", default=False),
        auto_approve=entry.texts("auto_approve", hint='name the tools, such as ["read_file"]'),
        tools=_rules(entry),
        read_only=_read_only(entry),
        instructions=entry.flag("instructions", default=True),
        hints=_hints(entry),
        concurrency=entry.size("concurrency", 1, of="calls"),
        health_interval=entry.seconds("health_interval", 60.0),
        log_lines=entry.size("log_lines", 1000, of="lines"),
        source=source,
        extra=entry.rest(),
    )


def _read_only(entry: ServerReader) -> ReadOnly:
    return "hinted" if entry.get("read_only") == "hinted" else entry.flag("read_only", default=False)


def _rules(entry: ServerReader) -> dict[str, str]:
    rules = entry.table("tools", hint=_RULES_HINT)
    inner = entry.within("tools", rules)
    for pattern in rules:
        inner.choice(pattern, ("allow", "ask", "deny"))
    return rules


def _hints(entry: ServerReader) -> dict[str, dict[str, bool]]:
    given: object = entry.get("hints") or {}
    if not isinstance(given, Mapping):
        raise entry.expected("hints", "an object of objects", given, hint=_HINTS_HINT)
    hints: dict[str, dict[str, bool]] = {}
    for pattern, named in cast("Mapping[str, object]", given).items():
        if not isinstance(named, Mapping):
            raise entry.expected(f"hints.{pattern}", "an object", named, hint=_HINTS_HINT)
        inner = entry.within(f"hints.{pattern}", cast("Mapping[str, Any]", named))
        unknown = [name for name in inner if name not in _HINT_NAMES]
        if unknown:
            raise inner.error("is not a hint", key=unknown[0], hint=f"the hints are {', '.join(_HINT_NAMES)}")
        hints[pattern] = {name: inner.flag(name, default=False) for name in inner}
    return hints


def _check_remote(entry: ServerReader, url: str | None, headers: Mapping[str, str]) -> None:
    """Validate the URL and headers; a URL with variables is validated after expansion."""
    whole = url if url is not None and not has_variables(url) else None
    for key, check in (("url", lambda: whole and parse_address(whole)), ("headers", lambda: checked_headers(headers))):
        try:
            check()
        except ConfigError as error:
            raise entry.error(error.message, key=key, hint=error.hint or _TABLE_HINT) from None


def _transport(entry: ServerReader, command: str | None, url: str | None) -> Transport:
    if command is None and url is None:
        if entry.get("source") == "extension" or "settings" in entry:
            hint = "define it with the command that the extension runs"
            raise entry.error("is run by an extension of Zed, which ipymcp cannot start", hint=hint)
        hint = _suggestion(entry, _MAIN_KEYS) or FORMAT_HINT
        raise entry.error('expected "command" or "url", found neither', hint=hint)
    if command is not None and url is not None:
        raise entry.error('expected "command" or "url", found both', hint='keep "command" for a local server')
    named: dict[str, Transport] = {
        key: _TRANSPORTS[word] for key in ("type", "transport") if (word := entry.choice(key, _TRANSPORTS))
    }
    if len(set(named.values())) > 1:
        raise entry.error('"type" and "transport" contradict each other', hint='keep "type"')
    transport = named.get("type") or named.get("transport") or ("http" if command is None else "stdio")
    if (transport == "stdio") != (command is not None):
        target = "url" if command is None else "command"
        hint = f'leave "{next(iter(named))}" out: "{target}" implies the transport'
        raise entry.error(
            f'a server with a "{target}" cannot use the transport {transport}', key=next(iter(named)), hint=hint
        )
    return transport


def _max_timeout(entry: ServerReader, timeout: float) -> float:
    """Read the limit for a call, by default at least the `timeout`."""
    limit = entry.seconds("max_timeout", max(600.0, timeout))
    if limit < timeout:
        hint = 'lower "timeout" or raise "max_timeout"'
        raise entry.error(f"{limit:g} s is less than the timeout of {timeout:g} s", key="max_timeout", hint=hint)
    return limit


def _restart(entry: ServerReader) -> bool:
    return entry.get("restart") != "no" and entry.flag("restart", default=True)


def _inherit_env(entry: ServerReader) -> bool | tuple[str, ...]:
    value = entry.get("inherit_env")
    if value is None or isinstance(value, bool):
        return bool(value)
    return entry.texts("inherit_env", hint='write true, false, or the names, such as ["AWS_PROFILE"]')
