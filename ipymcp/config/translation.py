"""Translation of the definitions of other hosts to ipymcp's names and units.

Every host's names are understood in every document, so that a definition works wherever it is pasted. What a name does
not tell (the unit of a timeout, `$NAME` as a variable) follows from the host: that of the file's path or table, or the
one whose keys the definition has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from msgspec import Struct

from ipymcp.config.hosts import HOSTS, MAX_PLAIN_SECONDS
from ipymcp.config.server_reader import ServerReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from ipymcp.config.definition import Source
    from ipymcp.config.hosts import ConfigHost


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
_ALLOWED = ["enabledTools", *(host.allowed_tools for host in HOSTS.values() if host.allowed_tools not in ("", "tools"))]
_DENIED = list(dict.fromkeys(host.denied_tools for host in HOSTS.values() if host.denied_tools))
_HEADERS_WITHIN = [host.headers_within for host in HOSTS.values() if host.headers_within]
_HEADER_VARIABLES = [host.header_variables for host in HOSTS.values() if host.header_variables]
_BEARER_VARIABLES = [host.bearer_variable for host in HOSTS.values() if host.bearer_variable]
_MARKS = {name: host.marks for name, host in HOSTS.items() if host.marks}
_MAX_MILLISECONDS = 1e12
_START_MILLISECONDS = "startup_timeout_ms"
OTHER_NAMES = frozenset(
    {*_RENAMED, *_ALLOWED, *_DENIED, *_HEADERS_WITHIN, *_HEADER_VARIABLES, *_BEARER_VARIABLES, "enabled", "oauth"}
).union(*_MARKS.values())
"""Other hosts' names of the values of a server."""
_OWN_KEYS = frozenset({"era", "max_timeout", "start_timeout", "max_result_bytes", "inherit_env", "health_interval"})
"""Keys that only ipymcp's definitions have, whose timeouts are in seconds."""
_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_DOLLAR = re.compile(r"\$(?=[A-Za-z_])(\w+)")
_PREFIXES = "|".join(host.secret_prefix for host in HOSTS.values() if host.secret_prefix)
_SECRET_NAME = re.compile(rf"(?:{_PREFIXES})\w+")
_SECRET_REFERENCE = re.compile(rf"(?<!\$)\$((?:{_PREFIXES})\w+)|\$\{{\{{\s*secrets\.(\w+)\s*\}}\}}")


class TranslatedServer(Struct, frozen=True):
    """A server's values by ipymcp's names."""

    values: dict[str, Any]
    names: dict[str, str]
    """The document's names that differ, by ours."""
    remarks: dict[str, str]
    """Remarks on how values were read, by our name."""


def translated(values: Mapping[str, Any], host: str, source: Source, *, is_own: bool = False) -> TranslatedServer:
    """Translate a server's values to our names and units.

    Args:
        values: The values in the document.
        host: The host whose format the document has; empty for the common one.
        source: Source of the server, for errors.
        is_own: Whether the definition was written for ipymcp, so that its timeout is in seconds.

    Raises:
        ConfigError: Two keys contradict each other, or a value has the wrong type.
    """
    translation = _Translation(dict(values), source)
    marked = [name for name, marks in _MARKS.items() if not marks.isdisjoint(values)]
    hosts = marked or list(filter(None, [host]))
    is_own = is_own or not _OWN_KEYS.isdisjoint(values)
    for name in hosts:
        translation.set_aside(name, HOSTS[name])
    translation.flatten_transport()
    for theirs, own in _RENAMED.items():
        translation.rename(theirs, own)
    translation.split_command()
    translation.read_switches()
    translation.read_tools()
    translation.read_login()
    for key in ("env", "headers"):
        translation.read_pairs(key)
    translation.read_headers()
    translation.read_secret_names()
    for name in hosts:
        translation.read_format(name, HOSTS[name])
    translation.read_timeouts(hosts, is_own=is_own)
    return TranslatedServer(translation.values, translation.names, translation.remarks)


class _Translation(ServerReader):
    """Translation of one server's values to our names."""

    def __init__(self, values: dict[str, Any], source: Source) -> None:
        super().__init__(values, source)
        self.values = values
        self.names: dict[str, str] = {}
        self.remarks: dict[str, str] = {}

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
        """Split a list of program and arguments (opencode), or an object of them (older versions of Zed)."""
        command = self.values.get("command")
        if isinstance(command, Mapping):
            parts = dict(cast("Mapping[str, Any]", command))
            self.values["command"] = parts.pop("path", None)
            self.names["command"] = "command.path"
            for key, value in parts.items():
                if self.values.setdefault(key, value) != value:
                    raise self.error(f'contradicts "{key}"', key=f"command.{key}", hint="keep one of the two")
                self.names[key] = f"command.{key}"
            return
        if isinstance(command, list) and command:
            program, *args = cast("list[Any]", command)
            self.values["command"] = program
            self.values["args"] = [*args, *(self.values.get("args") or ())]
            self.names |= {"command": "command[0]", "args": "command"}

    def read_switches(self) -> None:
        """Translate `enabled` to `disabled`, and true for all tools that may be called (notebook-intelligence)."""
        if isinstance(self.values.get("auto_approve"), bool):
            self.values["auto_approve"] = ["*"] if self.values["auto_approve"] else []
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
        if isinstance(self.values.get("auth"), bool):  # Copilot: whether to log in as the server requires
            self.values.setdefault("oauth", self.values.pop("auth"))
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

    def read_headers(self) -> None:
        """Collect headers from another object (Copilot's `requestInit`), and those with values in variables (Codex)."""
        for key in _HEADERS_WITHIN:
            outer = self.values.get(key)
            if isinstance(outer, Mapping):
                rest = dict(cast("Mapping[str, Any]", outer))
                inner = rest.pop("headers", None)
                if isinstance(inner, Mapping):
                    for name, value in cast("Mapping[str, Any]", inner).items():
                        self._add_header(name, value, f"{key}.headers.{name}")
                    self.values[key] = rest
                    if not rest:
                        del self.values[key]
        for key in _HEADER_VARIABLES:
            table: object = self.values.pop(key, None)
            if table is not None and not isinstance(table, Mapping):
                raise self.expected(key, "an object of strings", table, hint='such as {"X-Key": "VARIABLE"}')
            for name, variable in cast("Mapping[str, Any]", table or {}).items():
                self._add_header(name, self._reference(variable, f"{key}.{name}"), f"{key}.{name}")
        for key in _BEARER_VARIABLES:
            variable: object = self.values.pop(key, None)
            if variable is not None:
                self._add_header("Authorization", f"Bearer {self._reference(variable, key)}", key)

    def _reference(self, variable: object, key: str) -> str:
        if not isinstance(variable, str) or not _VARIABLE.fullmatch(variable):
            raise self.error("expected the name of a variable", key=key, hint="write the name alone, such as TOKEN")
        return f"${{{variable}}}"

    def _add_header(self, name: str, value: Any, path: str) -> None:
        before = self.values.get("headers")
        headers = dict(cast("Mapping[str, Any]", before)) if isinstance(before, Mapping) else {}
        same = next((one for one in headers if one.lower() == name.lower()), name)
        if headers.setdefault(same, value) != value:
            raise self.error(f'contradicts "{self.names.get("headers", "headers")}.{same}"', key=path, hint="keep one")
        self.values["headers"] = headers
        self.names[f"headers.{same}"] = path

    def read_secret_names(self) -> None:
        """Translate the names of secrets at GitHub (Copilot's coding agent) to variables."""

        def change(value: Any) -> Any:
            if not isinstance(value, str):
                return value
            if _SECRET_NAME.fullmatch(value):
                return f"${{{value}}}"
            return _SECRET_REFERENCE.sub(lambda match: f"${{{match[1] or match[2]}}}", value)

        for key in ("env", "headers"):
            self._change_texts(key, change)

    def read_timeouts(self, hosts: list[str], *, is_own: bool) -> None:
        """Convert timeouts to seconds."""
        milliseconds = self.values.pop(_START_MILLISECONDS, None)
        if _is_number(milliseconds) and milliseconds < _MAX_MILLISECONDS and "start_timeout" not in self.values:
            self.values["start_timeout"] = milliseconds / 1000
            self.names["start_timeout"] = _START_MILLISECONDS
        timeout = self.values.get("timeout")
        if not _is_number(timeout) or not 0 < timeout < _MAX_MILLISECONDS:
            return
        known = next((name for name in hosts if HOSTS[name].timeout_unit), None)
        if known is not None and HOSTS[known].timeout_unit == "ms":
            self.remarks["timeout"] = f"{timeout:,} milliseconds, the unit of {known}"
        elif known is None and not is_own and timeout > MAX_PLAIN_SECONDS:
            self.remarks["timeout"] = f"{timeout:,}, taken for milliseconds as it is above {MAX_PLAIN_SECONDS:,}"
        else:
            return
        self.values["timeout"] = timeout / 1000
        self.names.setdefault("timeout", "timeout")  # perhaps the same name with another unit

    def set_aside(self, name: str, host: ConfigHost) -> None:
        """Store values that mean something else to ipymcp under the name of their host."""
        for key in host.other_meanings:
            if key in self.values:
                self.values[f"{name}.{key}"] = self.values.pop(key)
                self.names[f"{name}.{key}"] = key

    def read_format(self, name: str, host: ConfigHost) -> None:
        """Translate values that have a special meaning in the definitions of one host."""
        for key, value in host.constants.items():
            if self.values.get(key) == value:
                del self.values[key]
        inherited = self.values.get("inherit_env")
        if isinstance(inherited, list):  # Codex may name a variable in an object
            items = cast("list[Any]", inherited)
            named = [cast("Mapping[str, Any]", one).get("name") if isinstance(one, Mapping) else one for one in items]
            self.values["inherit_env"] = named
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


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
