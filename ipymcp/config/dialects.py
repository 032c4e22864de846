"""What hosts call the values of a server, as the names and kinds of a `ServerDefinition`.

Most of it can be told from the keys themselves, so that a definition works wherever it is pasted. What depends on the
host: Gemini counts milliseconds and writes `$NAME`, VS Code allows numbers in `env`, and null for one to be left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from ipymcp.config.values import found
from ipymcp.errors import ConfigError

if TYPE_CHECKING:
    from ipymcp.config.definition import Source

__all__ = ["OTHER_NAMES", "normal"]

_SAME = {
    "environment": "env",
    "envFile": "env_file",
    "serverUrl": "url",
    "httpUrl": "url",
    "autoApprove": "auto_approve",
    "alwaysAllow": "auto_approve",
    "transportType": "transport",
}
_TRANSPORTS = {
    "local": "stdio",
    "remote": "http",
    "streamable-http": "http",
    "streamable_http": "http",
    "streamableHttp": "http",
    "streamablehttp": "http",
}
_OAUTH = {"clientId": "client_id", "clientSecret": "client_secret", "scopes": "scopes", "scope": "scopes"}
_CURSOR_AUTH = {"CLIENT_ID": "client_id", "CLIENT_SECRET": "client_secret", "scopes": "scopes"}
_GEMINI = frozenset({"httpUrl", "includeTools", "excludeTools", "trust"})
"""The keys that only Gemini's definitions have."""
_DENIED = ("disabledTools", "excludeTools")
OTHER_NAMES = frozenset({*_SAME, *_GEMINI, *_DENIED, "enabled", "enabledTools", "oauth"})
"""What hosts call the values of a server, where ours have other names."""
_DOLLAR = re.compile(r"\$(?=[A-Za-z_])(\w+)")


def normal(values: Mapping[str, Any], host: str, source: Source) -> tuple[dict[str, Any], dict[str, str]]:
    """A server's values under our names, and which of the names the document has otherwise.

    Args:
        values: As the document has them.
        host: Whose shape the document has.
        source: Where they stand, for errors.

    Raises:
        ConfigError: Two keys say the same thing differently, or a value is of the wrong kind.
    """
    reading = _Reading(dict(values), source)
    is_gemini = host == "gemini" or not _GEMINI.isdisjoint(values)
    reading.flatten_transport()
    for theirs, own in _SAME.items():
        reading.rename(theirs, own)
    reading.split_command()
    reading.read_switches()
    reading.read_tools()
    reading.read_login()
    for key in ("env", "headers"):
        reading.read_pairs(key)
    if host == "vscode":
        reading.loosen_env()
    if is_gemini:
        reading.read_gemini()
    elif host == "opencode":  # it is for the list of tools, 5 s unless set, which a first start does not keep
        reading.set_aside("timeout", "opencode")
    return reading.values, reading.names


class _Reading:
    """The values of one server, on their way to our names."""

    def __init__(self, values: dict[str, Any], source: Source) -> None:
        self.values = values
        self.names: dict[str, str] = {}
        self._source = source

    def rename(self, theirs: str, own: str) -> None:
        """One key under our name. Where both are there, they must agree."""
        if theirs not in self.values:
            return
        value = self.values.pop(theirs)
        if value is None:
            return
        kept = self.values.get(own)
        if kept is not None and kept != value:
            spelled = self.names.get(own, own)
            raise self._error(theirs, f'it and "{spelled}" disagree', f'keep one of "{spelled}" and "{theirs}"')
        self.values[own] = value
        self.names[own] = theirs

    def flatten_transport(self) -> None:
        """What stands in an object `transport` (Cline's command line) beside it."""
        inner = self.values.get("transport")
        if isinstance(inner, Mapping):
            del self.values["transport"]
            for key, value in cast("Mapping[str, Any]", inner).items():
                if self.values.setdefault(key, value) != value:
                    raise self._error(f"transport.{key}", f'it and "{key}" disagree', "keep one of the two")
                self.names[key] = f"transport.{key}"
        for key in ("type", "transport", "transportType"):
            word = self.values.get(key)
            if isinstance(word, str) and word in _TRANSPORTS:
                self.values[key] = _TRANSPORTS[word]
        if "httpUrl" in self.values:
            self.values.pop("url", None)  # Gemini's older way, for those that know only that
            self.values.setdefault("type", "http")

    def split_command(self) -> None:
        """A program and its arguments in one list (opencode)."""
        command = self.values.get("command")
        if isinstance(command, list) and command:
            program, *args = cast("list[Any]", command)
            self.values["command"] = program
            self.values["args"] = [*args, *(self.values.get("args") or ())]
            self.names |= {"command": "command[0]", "args": "command"}

    def read_switches(self) -> None:
        """`enabled` instead of `disabled`."""
        enabled = self.values.pop("enabled", None)
        if enabled is None:
            return
        if not isinstance(enabled, bool):
            hint = 'write "enabled": true or "enabled": false, unquoted'
            raise self._error("enabled", f"expected true or false, got {found(enabled)}", hint)
        if self.values.get("disabled") not in (None, not enabled):
            raise self._error("enabled", 'it and "disabled" disagree', 'keep "disabled"')
        self.values["disabled"] = not enabled
        self.names["disabled"] = "enabled"

    def read_tools(self) -> None:
        """Lists of tools that are there, or are not."""
        rules: dict[str, str] = {}
        key = "tools" if isinstance(self.values.get("tools"), list) else "includeTools"  # a list: GitHub Copilot's
        included = self._names_of_tools(key)
        if included is not None and "*" not in included:
            rules = {"*": "deny", **dict.fromkeys(included, "ask")}
            self.names["tools"] = key
        for key in _DENIED:
            denied = self._names_of_tools(key)
            if denied:
                rules = {
                    **{name: rule for name, rule in rules.items() if name not in denied},
                    **dict.fromkeys(denied, "deny"),
                }
                self.names.setdefault("tools", key)
        if rules and isinstance(self.values.setdefault("tools", {}), Mapping):
            self.values["tools"] = {**rules, **self.values["tools"]}

    def _names_of_tools(self, key: str) -> list[str] | None:
        value: object = self.values.pop(key, None)
        if value is None:
            return None
        what = found(value)
        items = cast("list[object]", value) if isinstance(value, list) else [None]
        names = [item.partition("(")[0] for item in items if isinstance(item, str)]
        if len(names) < len(items):
            raise self._error(key, f"expected a list of strings, got {what}", 'name tools, such as ["read"]')
        return names

    def read_login(self) -> None:
        """A client registered beforehand, as `oauth` (Claude Code, VS Code, opencode, Gemini) or `auth` (Cursor)."""
        for key, known in (("oauth", _OAUTH), ("auth", _CURSOR_AUTH)):
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
        """A list of `{"name": …, "value": …}` (Jupyter) as an object."""
        listed = self.values.get(key)
        if not isinstance(listed, list):
            return
        items = cast("list[object]", listed)
        table: dict[str, Any] = {}
        for index, item in enumerate(items):
            what = found(item)
            pair: Mapping[str, Any] = cast("Mapping[str, Any]", item) if isinstance(item, Mapping) else {}
            name = pair.get("name")
            if not isinstance(name, str) or not name or "value" not in pair:
                if not index and not isinstance(item, Mapping):
                    return  # no such list: the error for an object of texts says it better
                hint = 'write {"name": "NAME", "value": "…"}'
                raise self._error(f"{key}[{index}]", f"expected a name and a value, got {what}", hint)
            if name in table:
                raise self._error(f"{key}[{index}].name", f'"{name}" is there twice', "keep one of the two")
            table[name] = pair["value"]
        self.values[key] = table

    def loosen_env(self) -> None:
        """VS Code takes numbers, and null for what is to be left out."""
        env = self.values.get("env")
        if isinstance(env, Mapping):
            given = cast("Mapping[str, Any]", env)
            self.values["env"] = {
                name: json.dumps(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
                for name, value in given.items()
                if value is not None
            }

    def read_gemini(self) -> None:
        """Milliseconds, and `$NAME` in `env` and headers; `trust` would let every tool run unasked."""
        self.set_aside("trust", "gemini")
        timeout = self.values.get("timeout")
        if isinstance(timeout, int | float) and not isinstance(timeout, bool):
            self.values["timeout"] = timeout / 1000
            self.names["timeout"] = "timeout"  # called the same, it says something else
        for key in ("env", "headers"):
            table = self.values.get(key)
            if isinstance(table, Mapping):
                given = cast("Mapping[str, Any]", table)
                self.values[key] = {
                    name: _DOLLAR.sub(r"${\1}", value) if isinstance(value, str) else value
                    for name, value in given.items()
                }

    def set_aside(self, key: str, host: str) -> None:
        """A key that means something else here: kept with those that are not known."""
        if key in self.values:
            self.values[f"{host}.{key}"] = self.values.pop(key)
            self.names[f"{host}.{key}"] = key

    def _error(self, key: str, message: str, hint: str) -> ConfigError:
        return ConfigError(f"{self._source.where(key)}: {message}", hint=hint)
