"""Parsing of config documents to server definitions: document formats, the names of each host, and validation.

A definition works in any document, because most formats are recognised by their keys. Exceptions: Gemini uses
milliseconds and `$NAME`; VS Code allows numbers in `env`, and null for a variable to omit.

{"mcpServers": {NAME: …}}                      ipymcp, Claude Desktop, Claude Code, Cursor, Cline, Gemini, Windsurf
{"servers": {NAME: …}, "inputs": […]}          VS Code; Dispatch, without inputs; either inside `mcp` in settings
{"mcp": {NAME: {"type": "local", …}}}          opencode
{"mcp_servers": [{"name": NAME, …}]}           jupyter-ai, jupyter-mcp-manager (its settings: in `mcpSettings`)
{NAME: {"command": …}, …}                      a flat record
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard, cast, get_args

import msgspec
from msgspec import Struct

from ipymcp.config.definition import ServerDefinition
from ipymcp.config.hosts import HOSTS
from ipymcp.config.redaction import masked
from ipymcp.config.variables import has_variables, references
from ipymcp.errors import ConfigError
from ipymcp.masking import looks_secret
from ipymcp.names import nearest
from ipymcp.protocol.transports.addresses import checked_headers, parse_address
from ipymcp.text import cut

if TYPE_CHECKING:
    from ipymcp.config.definition import Era, ReadOnly, Source, Transport
    from ipymcp.config.hosts import ConfigHost


_SHOWN = 60
_MAX_SECONDS = 1e9
"""The maximum for timers, about thirty years."""
_MAX_SIZE = 2**53


def shown(value: object) -> str:
    """Return an invalid value for an error message: masked and shortened; only the kind of an object or long list."""
    if isinstance(value, Mapping):
        return "an object"
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        return type(value).__name__
    if len(text) > _SHOWN and isinstance(value, list | tuple):
        return "a list"
    return cut(masked(text), _SHOWN)


class ServerReader:
    """Typed access to a server's object in a document. Each method reads a key, or raises a `ConfigError` naming it.

    Args:
        values: The object.
        source: Source of the server, the prefix of errors.
        within: Path of the object in the server.
    """

    def __init__(self, values: Mapping[str, Any], source: Source, within: str = "") -> None:
        self._values = values
        self._source = source
        self._within = within
        self._read: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return self._values.get(key) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def get(self, key: str) -> Any:
        """Return a value; None if the key is absent or null."""
        self._read.add(key)
        return self._values.get(key)

    def rest(self) -> dict[str, Any]:
        """Return the values that were never read."""
        return {key: value for key, value in self._values.items() if key not in self._read}

    def error(self, message: str, *, key: str | None = None, hint: str) -> ConfigError:
        """Return the error for a key, or for the whole object."""
        path = ".".join(part for part in (self._within, key) if part)
        return ConfigError(": ".join(filter(None, (self._source.where(path), message))), hint=hint)

    def expected(self, key: str, what: str, value: object, *, hint: str) -> ConfigError:
        """Return the error for a value of the wrong type."""
        return self.error(f"expected {what}, got {shown(value)}", key=key, hint=hint)

    def text(self, key: str, *, hint: str) -> str | None:
        """Read a non-empty string or path object."""
        value = self.get(key)
        if value is None:
            return None
        text = _text(value)
        if not text:
            raise self.expected(key, "a string", value, hint=hint)
        return text

    def secret(self, key: str) -> str | None:
        """Read a non-empty string that errors must not show."""
        value = self.get(key)
        if value is not None and (not isinstance(value, str) or not value):
            raise self.error("expected a string", key=key, hint=f'write "{key}": "…"')
        return value

    def within(self, key: str, values: Mapping[str, Any]) -> ServerReader:
        """Return a reader for the object under a key."""
        return ServerReader(values, self._source, key)

    def texts(self, key: str, *, hint: str) -> tuple[str, ...]:
        """Read a list of strings."""
        value = self.get(key)
        if value is None:
            return ()
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise self.expected(key, "a list of strings", value, hint=hint)
        items = cast("Sequence[object]", value)
        texts = [_text(item) for item in items]
        for index, text in enumerate(texts):
            if text is None:
                raise self.expected(f"{key}[{index}]", "a string", items[index], hint=_quoting_hint(items[index], hint))
        return tuple(text for text in texts if text is not None)

    def table(self, key: str, *, hint: str) -> dict[str, str]:
        """Read an object of strings. Errors show only the kind of a value that may be secret."""
        value = self.get(key)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise self.error(f"expected an object of strings, got {_kind(value)}", key=key, hint=hint)
        table: dict[str, str] = {}
        for name, item in cast("Mapping[str, object]", value).items():
            text = _text(item)
            if text is None:
                is_hidden = looks_secret(name)
                message = f"expected a string, got {_kind(item) if is_hidden else shown(item)}"
                raise self.error(message, key=f"{key}.{name}", hint=hint if is_hidden else _quoting_hint(item, hint))
            table[name] = text
        return table

    def seconds(self, key: str, default: float) -> float:
        """Read a positive number of seconds."""
        value = self.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= _MAX_SECONDS:
            hint = f'write the seconds as a number, such as "{key}": {default:g}'
            raise self.expected(key, "a number of seconds greater than 0", value, hint=hint)
        return float(value)

    def size(self, key: str, default: int, *, of: str = "bytes") -> int:
        """Read a positive integer; `of` is its unit in errors."""
        value = self.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= _MAX_SIZE:
            hint = f'write the {of} as a whole number, such as "{key}": {default}'
            raise self.expected(key, f"a number of {of} greater than 0", value, hint=hint)
        return value

    def flag(self, key: str, default: bool) -> bool:
        """Read a boolean."""
        value = self.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.expected(key, "true or false", value, hint=f'write "{key}": true or "{key}": false, unquoted')
        return value

    def choice(self, key: str, choices: Iterable[str]) -> str | None:
        """Read one of some words."""
        value = self.get(key)
        words = list(choices)
        if value is None or value in words:
            return value
        raise self.expected(key, "one of " + ", ".join(words), value, hint=f'leave "{key}" out for the default')


def _kind(value: object) -> str:
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return "a list"
    return "a string" if isinstance(value, str) else "a number or a boolean"


def _text(value: object) -> str | None:
    if isinstance(value, str):
        return value
    path = os.fspath(cast("os.PathLike[Any]", value)) if isinstance(value, os.PathLike) else None
    return path if isinstance(path, str) else None


def _quoting_hint(value: object, hint: str) -> str:
    """Return the hint for a value that should be a string."""
    if isinstance(value, bool | int | float):
        return f'put it in quotes: "{json.dumps(value)}"'
    return hint


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


_RENAMED = {
    theirs: own
    for host in HOSTS.values()
    for own, theirs in (
        *((own, theirs) for own, theirs in host.names.items() if own not in (theirs, "disabled")),
        *((own, theirs) for theirs, own in host.old_names.items()),
        *(("url", theirs) for theirs in host.url_keys.values()),
    )
}
_TRANSPORT_WORDS = {
    **dict.fromkeys(("streamable-http", "streamable_http", "streamablehttp"), "http"),
    **{theirs: own for host in HOSTS.values() for own, theirs in host.transports.items() if own != "sse"},
}
_LOGINS = {
    key: {theirs: own for host in HOSTS.values() if host.login_key == key for own, theirs in host.login_names.items()}
    for key in dict.fromkeys(host.login_key for host in HOSTS.values() if host.login_key)
}
_ALLOWED = [host.allowed_tools for host in HOSTS.values() if host.allowed_tools]
_DENIED = [host.denied_tools for host in HOSTS.values() if host.denied_tools]
OTHER_NAMES = frozenset(
    {*_RENAMED, *_DENIED, "enabled", "enabledTools", "oauth"}.union(*(host.marks for host in HOSTS.values()))
)
"""Other hosts' names of the values of a server."""
_DOLLAR = re.compile(r"\$(?=[A-Za-z_])(\w+)")


def translated(values: Mapping[str, Any], host: str, source: Source) -> tuple[dict[str, Any], dict[str, str]]:
    """Translate a server's values to our names, and return them with the document's differing names.

    Args:
        values: The values in the document.
        host: The host whose format the document has; empty for the common one.
        source: Source of the server, for errors.

    Raises:
        ConfigError: Two keys contradict each other, or a value has the wrong type.
    """
    translation = _Translation(dict(values), source)
    marked = [name for name, one in HOSTS.items() if not one.marks.isdisjoint(values)]
    translation.flatten_transport()
    for theirs, own in _RENAMED.items():
        translation.rename(theirs, own)
    translation.split_command()
    translation.read_switch()
    translation.read_tools()
    translation.read_login()
    for key in ("env", "headers"):
        translation.read_pairs(key)
    for name in marked or filter(None, [host]):
        translation.read_format(name, HOSTS[name])
    return translation.values, translation.names


class _Translation(ServerReader):
    """Translation of one server's values to our names."""

    def __init__(self, values: dict[str, Any], source: Source) -> None:
        super().__init__(values, source)
        self.values = values
        self.names: dict[str, str] = {}

    def rename(self, theirs: str, own: str) -> None:
        """Rename a key to ours; if both exist, they must be equal."""
        value = self.values.pop(theirs, None)
        if value is None:
            return
        kept = self.values.get(own)
        if kept is not None and kept != value:
            spelled = self.names.get(own, own)
            hint = f'keep one of "{spelled}" and "{theirs}"'
            raise self.error(f'contradicts "{spelled}"', key=theirs, hint=hint)
        self.values[own] = value
        self.names[own] = theirs

    def flatten_transport(self) -> None:
        """Move the values of an object `transport` (Cline's command line) to the server's object."""
        inner = self.values.get("transport")
        if isinstance(inner, Mapping):
            del self.values["transport"]
            for key, value in cast("Mapping[str, Any]", inner).items():
                if self.values.setdefault(key, value) != value:
                    hint = "keep one of the two"
                    raise self.error(f'contradicts "{key}"', key=f"transport.{key}", hint=hint)
                self.names[key] = f"transport.{key}"
        for key in ("type", "transport", "transportType"):
            word = self.values.get(key)
            if isinstance(word, str):
                self.values[key] = _TRANSPORT_WORDS.get(word, word)
        if "httpUrl" in self.values:
            self.values.pop("url", None)  # Gemini's older key, kept for older versions
            self.values.setdefault("type", "http")

    def split_command(self) -> None:
        """Split a list of program and arguments (opencode)."""
        command = self.values.get("command")
        if isinstance(command, list) and command:
            program, *args = cast("list[Any]", command)
            self.values["command"] = program
            self.values["args"] = [*args, *(self.values.get("args") or ())]
            self.names |= {"command": "command[0]", "args": "command"}

    def read_switch(self) -> None:
        """Translate `enabled` to `disabled`."""
        if "enabled" in self:
            disabled = not self.flag("enabled", default=True)
            if self.values.get("disabled") not in (None, disabled):
                raise self.error('contradicts "disabled"', key="enabled", hint='keep "disabled"')
            self.values["disabled"] = disabled
            self.names["disabled"] = "enabled"
        self.values.pop("enabled", None)

    def read_tools(self) -> None:
        """Translate lists of included and excluded tools to rules."""
        rules: dict[str, str] = {}
        tools = ["tools"] if isinstance(self.values.get("tools"), list) else _ALLOWED  # a list: GitHub Copilot's
        for key in tools:
            allowed = self._pop_tools(key)
            if allowed is not None and "*" not in allowed:
                rules = {"*": "deny", **dict.fromkeys(allowed, "ask")}
                self.names["tools"] = key
        for key in _DENIED:
            denied = self._pop_tools(key)
            if denied:
                rules = {name: rule for name, rule in rules.items() if name not in denied}
                rules |= dict.fromkeys(denied, "deny")
                self.names.setdefault("tools", key)
        if rules and isinstance(self.values.setdefault("tools", {}), Mapping):
            self.values["tools"] = {**rules, **self.values["tools"]}

    def _pop_tools(self, key: str) -> list[str] | None:
        value: object = self.values.pop(key, None)
        if value is None:
            return None
        items = cast("list[object]", value) if isinstance(value, list) else [None]
        names = [item.partition("(")[0] for item in items if isinstance(item, str)]
        if len(names) < len(items):
            raise self.expected(key, "a list of strings", cast("object", value), hint='name tools, such as ["read"]')
        return names

    def read_login(self) -> None:
        """Translate a preregistered client in `oauth` (Claude Code, VS Code, opencode, Gemini) or `auth` (Cursor)."""
        for key, known in _LOGINS.items():
            given = self.values.get(key)
            if not isinstance(given, Mapping) or "type" in given:
                continue
            client = cast("Mapping[str, Any]", given)
            login = {own: client[theirs] for theirs, own in known.items() if client.get(theirs) is not None}
            if login and (key == "auth" or "auth" not in self.values):
                self.values[key] = {name: value for name, value in client.items() if name not in known}
                if not self.values[key]:
                    del self.values[key]
                self.values["auth"] = {"type": "oauth", **login}
                self.names["auth"] = key
                self.names |= {f"auth.{known[name]}": f"{key}.{name}" for name in client if name in known}

    def read_pairs(self, key: str) -> None:
        """Translate a list of `{"name": …, "value": …}` (Jupyter) to an object."""
        listed = self.values.get(key)
        if not isinstance(listed, list):
            return
        table: dict[str, Any] = {}
        for index, item in enumerate(cast("list[object]", listed)):
            pair: Mapping[str, Any] = cast("Mapping[str, Any]", item) if isinstance(item, Mapping) else {}
            name = pair.get("name")
            if not isinstance(name, str) or not name or "value" not in pair:
                if not index and not isinstance(item, Mapping):
                    return  # not such a list: validation of the object gives a better error
                hint = 'write {"name": "NAME", "value": "…"}'
                raise self.expected(f"{key}[{index}]", "a name and a value", cast("object", item), hint=hint)
            if name in table:
                raise self.error(f'"{name}" is given twice', key=f"{key}[{index}].name", hint="keep one of the two")
            table[name] = pair["value"]
        self.values[key] = table

    def read_format(self, name: str, host: ConfigHost) -> None:
        """Translate values that have a special meaning in the definitions of one host."""
        for key in host.other_meanings:
            if key in self.values:
                self.values[f"{name}.{key}"] = self.values.pop(key)
                self.names[f"{name}.{key}"] = key
        timeout = self.values.get("timeout")
        if host.has_milliseconds and isinstance(timeout, int | float) and not isinstance(timeout, bool):
            self.values["timeout"] = timeout / 1000
            self.names["timeout"] = "timeout"  # the same name with another unit
        if host.has_bare_variables:
            for key in ("env", "headers"):
                self._change_texts(key, lambda value: _DOLLAR.sub(r"${\1}", value) if isinstance(value, str) else value)
        if host.has_loose_env:
            self._change_texts("env", lambda value: json.dumps(value) if type(value) in (int, float) else value)
            env = self.values.get("env")
            if isinstance(env, Mapping):
                given = cast("Mapping[str, Any]", env)
                self.values["env"] = {key: value for key, value in given.items() if value is not None}

    def _change_texts(self, key: str, change: Callable[[Any], Any]) -> None:
        table = self.values.get(key)
        if isinstance(table, Mapping):
            self.values[key] = {name: change(value) for name, value in cast("Mapping[str, Any]", table).items()}


FORMAT_HINT = 'the format is {"mcpServers": {"NAME": {"command": "…", "args": ["…"]}}}'
_MAIN_KEYS = ("command", "url")
_SERVER_KEYS = (*_MAIN_KEYS, "serverUrl", "httpUrl", "transport")
"""Keys by which an object is recognised as a server."""
_TABLES = {
    table: next(name for name, host in HOSTS.items() if host.table == table)
    for table in ("mcpServers", "mcp_servers", "servers")
}
"""Keys of tables of servers, in the order in which they are looked for, each with the first host that uses it."""
_MENTIONED = 5


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
    inputs: Mapping[str, Mapping[str, Any]]
    """Inputs for `${input:ID}`, by id."""


def recognise_format(document: object, origin: str) -> DocumentFormat | None:
    """Recognise the format of a document; return None for an object without servers.

    Args:
        document: The decoded document.
        origin: Prefix of errors.

    Raises:
        ConfigError: The document, or its table of servers, has the wrong type.
    """
    if not isinstance(document, Mapping):
        raise ConfigError(f"{origin}: expected an object, got {shown(document)}", hint=FORMAT_HINT)
    table = cast("Mapping[str, Any]", document)
    inputs = _inputs(table)
    if "mcpServers" in table:
        folder = os.path.basename(os.path.dirname(origin))
        host = next((name for name, one in HOSTS.items() if one.folder and one.folder == folder), "")
        return DocumentFormat(host, tuple(_servers_in(table["mcpServers"], "mcpServers", origin)), inputs)
    for key, host in _TABLES.items():
        if key in table and key != "mcp" and not is_server(table[key]):
            return DocumentFormat(host, tuple(_servers_in(table[key], key, origin)), inputs)
    settings = cast("object", table.get("mcpSettings"))
    if isinstance(settings, Mapping) and "mcp_servers" in settings:
        listed = cast("Mapping[str, object]", settings)["mcp_servers"]
        return DocumentFormat("jupyter-mcp-manager", tuple(_servers_in(listed, "mcpSettings.mcp_servers", origin)), {})
    inner = table.get("mcp")
    if isinstance(inner, Mapping) and not is_server(cast("object", inner)):
        held = cast("Mapping[str, Any]", inner)
        if isinstance(held.get("servers"), Mapping) and not is_server(held["servers"]):
            return DocumentFormat("vscode", tuple(_servers_in(held["servers"], "mcp.servers", origin)), _inputs(held))
        if not any(is_server(table[name]) for name in table if name != "mcp"):
            return DocumentFormat("opencode", tuple(_servers_in(held, "mcp", origin)), {})
    if any(is_server(value) for value in table.values()):
        return bare_format(table, origin)
    return None


def bare_format(table: object, origin: str) -> DocumentFormat:
    """Parse an object from name to definition.

    Raises:
        ConfigError: The value is not an object.
    """
    return DocumentFormat("", tuple(_servers_in(table, "", origin)), {})


def no_servers_error(document: Mapping[str, Any], origin: str) -> ConfigError:
    """Build the error for an object without servers."""
    keys = ", ".join(f'"{key}"' for key in list(document)[:_MENTIONED]) or "an empty object"
    hint = _suggestion(document, ("mcpServers", *_MAIN_KEYS)) or FORMAT_HINT
    return ConfigError(f'{origin}: expected the key "mcpServers", found {keys}', hint=hint)


def _suggestion(keys: Iterable[str], known: Iterable[str]) -> str:
    """Suggest the known key that one of the keys may be meant for, or return the empty string."""
    return next(filter(None, (nearest(key, known, limit=1) for key in keys if len(key) > 1)), "")


def _servers_in(table: object, path: str, origin: str) -> Iterator[RawServer | ConfigError]:
    if isinstance(table, list) and path != "mcpServers":
        yield from _servers_in_list(cast("Sequence[object]", table), path, origin)
        return
    origin = f"{origin}: " if origin else ""
    where = f"{origin}{path}: " if path else origin
    if not isinstance(table, Mapping):
        wanted = "a list" if path.endswith("mcp_servers") else "an object"
        raise ConfigError(f"{where}expected {wanted}, got {shown(cast('object', table))}", hint=FORMAT_HINT)
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
    document: object, source: Source, *, bare: bool = False
) -> list[tuple[str, ServerDefinition | ConfigError]] | None:
    """Return every server of a document as its name and its definition or error; None if there are no servers.

    An entry without a valid name has the empty one. Arguments as in `definitions`.

    Raises:
        ConfigError: The document as a whole cannot be used.
    """
    document_format = recognise_format(document, str(source))
    if document_format is None and not bare:
        return None
    document_format = document_format or bare_format(document, source.file or "")
    read: list[tuple[str, ServerDefinition | ConfigError]] = []
    for written in document_format.servers:
        if isinstance(written, ConfigError):
            read.append(("", written))
            continue
        try:
            read.append((written.name, definition_of(written, document_format.host, source, document_format.inputs)))
        except ConfigError as error:
            read.append((written.name, error))
    return read


def definition_of(
    written: RawServer, host: str, source: Source, inputs: Mapping[str, Mapping[str, Any]]
) -> ServerDefinition:
    """Return the definition of one server.

    Args:
        written: The server in its document.
        host: The host whose format the document has; empty for the common one.
        source: Source of the document.
        inputs: The document's inputs, by id.

    Raises:
        ConfigError: A value is invalid.
    """
    own_source = msgspec.structs.replace(source, key=written.key)
    values, names = translated(written.values, host, own_source)
    own_source = msgspec.structs.replace(own_source, names=names)
    definition = _server(written.name, ServerReader(values, own_source), own_source)
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
