"""The files in which a server's publisher describes it, as config documents whose inputs are asked for at the start.

- `server.json`, the server's entry in a registry, also in the older formats with other names
- `manifest.json` of an unpacked MCPB (or DXT) bundle

Sources: modelcontextprotocol/registry, docs/reference/server-json; modelcontextprotocol/mcpb, MANIFEST.md.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from ipymcp.errors import ConfigError
from ipymcp.names import server_name

if TYPE_CHECKING:
    from ipymcp.registry.install import WantedInput


def config_document(document: object, file: str) -> dict[str, Any] | None:
    """Convert a file in which a server is published to a config document; return None for any other file.

    Args:
        document: The decoded file.
        file: Path of the file, the prefix of errors; relative for pasted text.

    Raises:
        ConfigError: The file does not follow its format, or the server cannot be run here.
    """
    if not isinstance(document, Mapping):
        return None
    table = cast("Mapping[str, Any]", document)
    answer = _object(table.get("server"))
    if "packages" in answer or "remotes" in answer:  # as a registry answers
        table = answer
    if "mcpServers" in table or not isinstance(table.get("name"), str):
        return None
    if isinstance(table.get("packages"), list) or isinstance(table.get("remotes"), list):
        return _registry_document(table, file)
    if ("manifest_version" in table or "dxt_version" in table) and isinstance(table.get("server"), Mapping):
        return _Bundle(table, file).document()
    return None


def _input_id(key: str) -> str:
    return re.sub(r"[^\w .:/@-]|^\W", "_", key)


# -- entries of a registry --------------------------------------------------------------------------------------------


_OLD_FLAGS = {"required": "isRequired", "secret": "isSecret", "repeated": "isRepeated"}
_OLD_NAMES = (
    ("packages", "registryName", "registryType"),
    ("packages", "name", "identifier"),
    ("remotes", "transportType", "type"),
)
"""Lists of an entry with older names of keys of their items, and the current ones."""


def _registry_document(table: Mapping[str, Any], file: str) -> dict[str, Any]:
    from ipymcp.registry.client import read_entry
    from ipymcp.registry.install import ways

    what = f"{file}: is a server's entry in an MCP registry"
    try:
        entry = read_entry({"server": _modern(table)})
    except ValueError as error:
        raise ConfigError(f"{what} that does not follow the format ({error})", hint="ask its publisher") from None
    every = ways(entry)
    way = next((one for one in every if one.is_ready), None) or next((one for one in every if not one.problem), None)
    if way is None:
        problem = f"that cannot be run: {every[0].problem}" if every else "without a package or an address"
        raise ConfigError(f"{what} {problem}", hint=every[0].remedy if every else entry.website or None)
    wanted = [one for one in way.inputs() if one.about.is_required]
    try:
        made = way.definition({one.key: f"${{input:{_input_id(one.key)}}}" for one in wanted})
    except ValueError as error:
        raise ConfigError(f"{what} that cannot be run: {error}") from None
    return {"mcpServers": {server_name(entry.short_name): made}, "inputs": [_described(one) for one in wanted]}


def _modern(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry with the names of the current format."""
    entry = _camel(table)
    if "/" not in entry["name"]:
        entry["name"] = f"local/{entry['name']}"  # not published yet
    detail = entry.get("versionDetail")
    if "version" not in entry and isinstance(detail, Mapping):
        entry["version"] = cast("Mapping[str, Any]", detail).get("version")
    for key, old, new in _OLD_NAMES:
        parts: Any = entry.get(key)
        for part in cast("list[Any]", parts) if isinstance(parts, list) else ():
            if isinstance(part, dict) and new not in part and old in part:
                part[new] = part[old]
    return entry


def _camel(value: Any) -> Any:
    if isinstance(value, list):
        return [_camel(item) for item in cast("list[Any]", value)]
    if not isinstance(value, Mapping):
        return value
    made: dict[str, Any] = {}
    for key, item in cast("Mapping[str, Any]", value).items():
        if key == "variables" and isinstance(item, Mapping):  # its keys are names, not fields
            made[key] = {name: _camel(inner) for name, inner in cast("Mapping[str, Any]", item).items()}
        else:
            name = re.sub(r"(?<=[a-z])_([a-z])", lambda match: match[1].upper(), key)
            made[_OLD_FLAGS.get(name, name)] = _camel(item)
    return made


def _described(one: WantedInput) -> dict[str, Any]:
    """Describe an input as VS Code does."""
    described: dict[str, Any] = {"id": _input_id(one.key), "type": "promptString"}
    described["description"] = one.schema["description"] or one.key
    if one.choices:
        described |= {"type": "pickString", "options": one.choices}
    if one.about.is_secret:
        described["password"] = True
    elif one.default:
        described["default"] = one.default
    return described


# -- bundles ----------------------------------------------------------------------------------------------------------


_FOLDERS = {"HOME": "", "DESKTOP": "Desktop", "DOCUMENTS": "Documents", "DOWNLOADS": "Downloads"}
_VARIABLE = re.compile(r"\$\{(__dirname|user_config\.([^{}]*)|HOME|DESKTOP|DOCUMENTS|DOWNLOADS)\}")
_COMMANDS = {
    "node": ["node", "${__dirname}/ENTRY"],
    "python": ["python", "${__dirname}/ENTRY"],
    "uv": ["uv", "run", "--directory", "${__dirname}", "ENTRY"],
    "binary": ["${__dirname}/ENTRY"],
}
"""Commands of bundles that name only an entry point, by type."""


class _Bundle:
    """The manifest of an unpacked bundle."""

    def __init__(self, manifest: Mapping[str, Any], file: str) -> None:
        self._what = f"{file}: is the manifest of an MCPB bundle"
        if not os.path.isabs(file):
            hint = "save it in the bundle's folder, then %mcp load FOLDER/manifest.json"
            raise ConfigError(f"{self._what}, whose command begins in its folder", hint=hint)
        self._folder = os.path.dirname(file).replace("${", "$${")
        self._manifest = manifest
        self._fields = _object(manifest.get("user_config"))
        self._inputs: dict[str, dict[str, Any]] = {}

    def document(self) -> dict[str, Any]:
        config = self._config()
        made: dict[str, Any] = {}
        for key in ("command", "args", "env"):
            value = config.get(key)
            if isinstance(value, str):
                made[key] = self._filled(value)
            elif isinstance(value, list):
                made[key] = self._mapped(cast("list[Any]", value))
            elif isinstance(value, Mapping):
                table = cast("Mapping[str, Any]", value)
                made[key] = dict(zip(table, self._mapped(list(table.values())), strict=True))
        return {
            "mcpServers": {server_name(self._manifest["name"]): made},
            "inputs": list(self._inputs.values()),
        }

    def _mapped(self, values: list[Any]) -> list[Any]:
        return [self._filled(one) if isinstance(one, str) else one for one in values]

    def _config(self) -> dict[str, Any]:
        server = cast("Mapping[str, Any]", self._manifest["server"])
        given = server.get("mcp_config")
        if isinstance(given, Mapping):
            config = dict(cast("Mapping[str, Any]", given))
            overrides = _object(config.pop("platform_overrides", None))
            return {**config, **_object(overrides.get(sys.platform))}
        kind, entry = server.get("type"), server.get("entry_point")
        if not isinstance(kind, str) or kind not in _COMMANDS or not isinstance(entry, str):
            raise ConfigError(f"{self._what} without a command (server.mcp_config)", hint="ask its publisher")
        command, *args = (word.replace("ENTRY", entry) for word in _COMMANDS[kind])
        return {"command": command, "args": args}

    def _filled(self, text: str) -> str:
        """Replace a bundle's variables; those of the user's become inputs."""

        def value(match: re.Match[str]) -> str:
            if match[1] == "__dirname":
                return self._folder
            return self._input(match[2]) if match[2] is not None else _user_folder(match[1], "${userHome}")

        return _VARIABLE.sub(value, text)

    def _input(self, key: str) -> str:
        about = _object(self._fields.get(key))
        if not about:
            raise ConfigError(f"{self._what} that has no user_config.{key}, which it uses", hint="ask its publisher")
        name = _input_id(key)
        if name not in self._inputs:
            self._inputs[name] = _bundle_input(name, about)
        return f"${{input:{name}}}"


def _object(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _user_folder(name: str, home: str) -> str:
    return "/".join(filter(None, (home, _FOLDERS[name])))


def _bundle_input(name: str, about: Mapping[str, Any]) -> dict[str, Any]:
    texts = [text for key in ("title", "description") if isinstance(text := about.get(key), str)]
    default: Any = about.get("default")
    if about.get("multiple") is True:
        texts.append("one value; for several, write them into args")
        default = cast("list[Any]", default)[0] if isinstance(default, list) and default else None
    described: dict[str, Any] = {"id": name, "type": "promptString", "description": ": ".join(texts) or name}
    if about.get("type") == "boolean":
        described |= {"type": "pickString", "options": ["true", "false"]}
        default = str(default is True).lower()
    elif isinstance(default, int | float):
        default = str(default)
    if about.get("sensitive") is True:
        return {**described, "password": True}
    if isinstance(default, str):
        home = os.path.expanduser("~")
        described["default"] = _VARIABLE.sub(
            lambda match: _user_folder(match[1], home) if match[1] in _FOLDERS else match[0], default
        )
    elif about.get("required") is not True:
        described["default"] = ""
    return described
