"""Server definitions as documents: in ipymcp's own format, and in the formats of other hosts."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from ipymcp.config.definition import ServerDefinition
from ipymcp.config.hosts import HOSTS
from ipymcp.config.variables import Reference, in_folder, mapped, respelled

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ipymcp.config.hosts import ConfigHost


_GLOB = re.compile(r"[*?\[]")
_NOT_VALUES = frozenset({"name", "source", "extra", "inputs"})
_PLAIN = ServerDefinition(name="")
SETTINGS = {key: getattr(_PLAIN, key) == {} for key in ServerDefinition.__struct_fields__ if key not in _NOT_VALUES}
"""Keys of a definition in ipymcp's own file, each with whether its value is an object."""


class Exported(Struct, frozen=True):
    """Definitions as a document of another host."""

    document: Mapping[str, Any]
    notes: tuple[str, ...]
    """Settings that the host does not support, one line each."""


def as_own(definition: ServerDefinition) -> dict[str, Any]:
    """Return a definition in the format of ipymcp's own file: changed settings and unknown keys."""
    values: dict[str, Any] = {}
    for key in SETTINGS:
        value = getattr(definition, key)
        if value != getattr(_PLAIN, key):
            whole = isinstance(value, float) and value.is_integer()
            values[key] = int(value) if whole else json.loads(msgspec.json.encode(value))
    if values.get("transport") == ("stdio" if definition.url is None else "http"):
        del values["transport"]
    if values.get("max_timeout") == definition.timeout > 600:
        del values["max_timeout"]
    return {**values, **definition.extra}


def adopted(definition: ServerDefinition) -> ServerDefinition:
    """Return another file's definition for ipymcp's own file, with paths relative to its folder made absolute."""
    folder = definition.source.folder
    if folder is None:
        return definition
    moved = mapped(definition, lambda _, text: in_folder(text, folder))
    if moved.env_file is not None:
        moved = moved.replace(env_file=os.path.join(folder, os.path.expanduser(moved.env_file)))
    if moved.command is not None:
        moved = moved.replace(cwd=os.path.normpath(os.path.join(folder, os.path.expanduser(moved.cwd or ""))))
    return moved


def exported(definitions: Iterable[ServerDefinition], host: str, folder: str) -> Exported:
    """Convert definitions to the format of another host.

    Args:
        definitions: The definitions.
        host: One of `HOSTS`.
        folder: The notebook's folder, the value of `${workspaceFolder}` for hosts that do not support it.
    """
    target = HOSTS[host]
    table: dict[str, Any] = {}
    notes: list[str] = []
    inputs: dict[str, Any] = {}
    for definition in definitions:
        if definition.transport not in target.transports:
            notes.append(f"{definition.name}: {host} does not support {definition.transport} servers")
            continue
        exporter = _Exporter(definition, target, host, folder)
        table[definition.name] = exporter.entry()
        notes += exporter.notes
        inputs |= exporter.inputs
    if not target.is_list:
        document: dict[str, Any] = {target.table: table}
    else:
        document = {target.table: [{"name": name, **entry} for name, entry in table.items()]}
    if inputs:
        document["inputs"] = list(inputs.values())
    return Exported(document, tuple(notes))


class _Exporter:
    """Conversion of one definition to another host's format."""

    def __init__(self, definition: ServerDefinition, target: ConfigHost, host: str, folder: str) -> None:
        self.notes: list[str] = []
        self.inputs: dict[str, Any] = {}
        self._target = target
        self._host = host
        self._name = definition.name
        own = definition.source.folder if definition.source.scope == "project" else None
        self._folder = own or folder
        self._described = definition.inputs
        self._definition = mapped(definition, lambda key, text: respelled(text, self._spell, key=key))

    def entry(self) -> dict[str, Any]:
        """Return the server's object."""
        one, target = self._definition, self._target
        values: dict[str, Any] = (
            {target.transport_key: target.transports[one.transport]} if target.transport_key else {}
        )
        if one.command is not None and target.has_command_list:
            values["command"] = [one.command, *one.args]
        elif one.command is not None:
            values |= {"command": one.command, "args": list(one.args)}
        if one.url is not None:
            values[target.url_keys.get(one.transport, "url")] = one.url
        for key in ("env", "headers"):
            table = getattr(one, key)
            if table:
                named = [{"name": name, "value": text} for name, text in table.items()]
                values[target.names.get(key, key)] = named if target.is_list else dict(table)
        self._add_settings(values)
        return values

    def _add_settings(self, values: dict[str, Any]) -> None:
        own = as_own(self._definition.replace(extra={}))
        lost: list[str] = []
        for key in own.keys() - {"command", "args", "env", "url", "headers", "transport"}:
            if (key == "auth" and self._add_login(values)) or (key == "tools" and self._add_tools(values)):
                continue
            theirs = self._target.names.get(key)
            if theirs is None:
                lost.append(key)
            elif theirs == "enabled":
                values[theirs] = not own[key]
            elif key == "timeout":
                values[theirs] = int(own[key] * 1000) if self._target.has_milliseconds else own[key]
            else:
                values[theirs] = own[key]
        self._add_extra(values)
        if lost:
            self.notes.append(f"{self._name}: {self._host} has no {', '.join(sorted(lost))}")

    def _add_login(self, values: dict[str, Any]) -> bool:
        """Add the login; return False if the host does not support all of it."""
        auth, names = self._definition.auth, self._target.login_names
        if auth["type"] != "oauth" or not auth.keys() <= {"type", *names}:
            return False
        login = {theirs: auth[own] for own, theirs in names.items() if own in auth}
        if "scope" in login:
            login["scope"] = " ".join(login["scope"])
        values[self._target.login_key] = login
        return True

    def _add_tools(self, values: dict[str, Any]) -> bool:
        """Add tool rules as included and excluded tools; return False if the host does not support all of them."""
        rules, target = dict(self._definition.tools), self._target
        is_list = next(iter(rules)) == "*" and rules.pop("*") == "deny"
        included = [name for name, rule in rules.items() if rule == "ask"] if is_list else []
        excluded = [name for name, rule in rules.items() if rule == "deny"]
        named = len(included) + len(excluded) == len(rules) and not any(map(_GLOB.search, rules))
        if not named or (is_list and not target.allowed_tools) or (excluded and not target.denied_tools):
            return False
        if is_list:
            values[target.allowed_tools] = included
        if excluded:
            values[target.denied_tools] = excluded
        return True

    def _add_extra(self, values: dict[str, Any]) -> None:
        """Add unknown keys; those of a specific host only for that host."""
        for key, value in self._definition.extra.items():
            host, dot, theirs = key.partition(".")
            if not dot or host not in HOSTS:
                inner = values.get(key)
                values[key] = {**inner, **value} if isinstance(inner, dict) and isinstance(value, Mapping) else value
            elif host == self._host:
                values[theirs] = value

    def _spell(self, one: Reference) -> str:
        style = self._target.variables
        if one.kind == "place":
            is_kept = style == "env" and one.name != "workspaceFolderBasename"
            return one.text if is_kept else in_folder(one.text, self._folder)
        if self._host == "vscode" and one.kind in ("secret", "input"):
            described = self._described.get(one.name, {"type": "promptString", "password": one.kind == "secret"})
            self.inputs[one.name] = {"id": one.name, "description": one.name, **described}
            return f"${{input:{one.name}}}"
        if one.kind != "variable" or not style:
            self.notes.append(f"{self._name}: {self._host} does not read {one.text} in {one.where}")
            return one.text
        if one.default is not None and style != "dollar":
            self.notes.append(f"{self._name}: {self._host} has no default for {one.text} in {one.where}")
        if style == "brace":
            return f"{{env:{one.name}}}"
        if style == "env":
            return f"${{env:{one.name}}}"
        return f"${{{one.name}}}" if one.default is None else f"${{{one.name}:-{one.default}}}"
