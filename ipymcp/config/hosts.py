"""The other MCP hosts: the paths of their config files, the format in which they define servers, and export to it.

One record per host is the source for reading (`parsing`), discovery and export. Reading needs no host for most
documents: every host's names are understood in every file, so that a definition works wherever it is pasted.
Definitions are also written in ipymcp's own format here.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from msgspec import Struct, field

from ipymcp.config.definition import ServerDefinition
from ipymcp.config.variables import Reference, in_folder, mapped, respelled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


class ConfigHost(Struct, frozen=True, kw_only=True):
    """A host and its format. Names are mapped from ours to the host's."""

    files: Callable[[], list[Path]] | None = None
    """Returns the user's config files of the host, in order of precedence; None if they are not read."""
    project_files: tuple[str, ...] = ()
    """Paths of the config files in a project."""
    folders: tuple[str, ...] = ()
    """Names of the host's own folders in a project or at home, other than those of `project_files`."""
    path_names: tuple[str, ...] = ()
    """Names of files and folders by which the path of a config file elsewhere is recognised."""
    syntax: Literal["json", "toml", "yaml"] = "json"
    """Syntax of the files; JSON may have comments. YAML is not read."""
    has_projects: bool = False
    """Whether a file has tables for single projects, below `projects`."""
    has_other_settings: bool = False
    """Whether a file may have other settings only."""
    table: str = "mcpServers"
    """The key of the servers."""
    is_list: bool = False
    """Whether servers are a list, and `env` and headers lists of names and values."""
    transport_key: str = ""
    """The key of the transport; empty if there is none."""
    transports: Mapping[str, str] = field(default_factory=lambda: {"stdio": "stdio", "http": "http", "sse": "sse"})
    """Names of the supported transports."""
    has_command_list: bool = False
    """Whether program and arguments are one list."""
    url_keys: Mapping[str, str] = field(default_factory=dict[str, str])
    """Keys of the URL by transport, if other than `url`."""
    names: Mapping[str, str] = field(default_factory=dict[str, str])
    """Names of further keys."""
    old_names: Mapping[str, str] = field(default_factory=dict[str, str])
    """Further names that files of the host may have, mapped to ours."""
    constants: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Values without a meaning for ipymcp that definitions of the host have."""
    headers_within: str = ""
    """The key of an object that contains the headers."""
    bearer_variable: str = ""
    """The key of the name of the variable that has the bearer token."""
    header_variables: str = ""
    """The key of an object from headers to the names of the variables that have their values."""
    variables: Literal["", "dollar", "env", "brace"] = ""
    """Syntax of variables: `${A:-b}`, `${env:A}` or `{env:A}`; empty if not supported."""
    has_bare_variables: bool = False
    """Whether `$NAME` in `env` and headers is a variable, too."""
    secret_prefix: str = ""
    """The beginning of names that stand for a variable if they are the whole value in `env` or headers."""
    has_loose_env: bool = False
    """Whether `env` may have numbers, and null for a variable to omit."""
    timeout_unit: Literal["", "s", "ms"] = ""
    """Unit of the timeout; empty if the host has none or its documents do not agree."""
    login_key: str = ""
    """The key of a preregistered OAuth client."""
    login_names: Mapping[str, str] = field(default_factory=dict[str, str])
    """Names of that client's fields."""
    allowed_tools: str = ""
    """The key of the list of allowed tools."""
    denied_tools: str = ""
    """The key of the list of disabled tools."""
    other_meanings: tuple[str, ...] = ()
    """Keys that mean something else to ipymcp, and are stored under the host's name instead."""
    document_keys: Mapping[str, str] = field(default_factory=dict[str, str])
    """Paths of settings beside the table of servers that ipymcp does not use, each with what does not happen.

    A path that ends in `.*` has globs over `server_tool` as keys.
    """
    marks: frozenset[str] = frozenset()
    """Keys that only this host's definitions have, and by which they are recognised in any file."""


def _home(*names: str) -> Path:
    return Path(os.path.expanduser("~"), *names)


def _config(*names: str) -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or _home(".config"), *names)


def _settings(*names: str) -> Path:
    """Return a path in the settings folder of desktop programs."""
    if sys.platform == "darwin":
        return _home("Library", "Application Support", *names)
    if sys.platform == "win32":
        return Path(os.environ.get("APPDATA") or _home("AppData", "Roaming"), *names)
    return _config(*names)


def _editors(*names: str) -> list[Path]:
    """Return paths in the user folders of VS Code, its variants and its remote server."""
    programs = ("Code", "Code - Insiders", "VSCodium")
    return [
        *(_settings(program, "User", *names) for program in programs),
        _home(".vscode-server", "data", "User", *names),
    ]


def _extension(name: str, file: str) -> list[Path]:
    """Return paths of the settings of an extension of VS Code."""
    return _editors("globalStorage", name, "settings", file)


def _zed() -> Path:
    return _settings("Zed", "settings.json") if sys.platform == "win32" else _config("zed", "settings.json")


def _goose() -> Path:
    if sys.platform == "win32":
        return _settings("Block", "goose", "config", "config.yaml")
    return _config("goose", "config.yaml")


def _copilot_ide() -> list[Path]:
    folder = _settings("github-copilot") if sys.platform == "win32" else _config("github-copilot")
    return [folder / program / "mcp.json" for program in ("intellij", "xcode", "eclipse")]


def _nbi() -> list[Path]:
    return [_home(".jupyter", "nbi", "mcp.json"), Path(sys.prefix, "share", "jupyter", "nbi", "mcp.json")]


def _jupyter(*names: str) -> list[Path]:
    from jupyter_core.paths import jupyter_config_path

    folders = list(dict.fromkeys([*jupyter_config_path(), str(_home(".jupyter"))]))
    return [Path(folder, name) for folder in folders for name in names]


def _jupyter_manager() -> list[Path]:
    settings = os.path.join("lab", "user-settings", "jupyter-mcp-manager", "plugin.jupyterlab-settings")
    return _jupyter(settings, "mcp_settings.json", "mcp_servers.json")


_LOGIN = {"client_id": "clientId", "client_secret": "clientSecret", "scopes": "scopes"}
_NO_SSE = {"stdio": "stdio", "http": "http"}
_STREAMABLE = {"stdio": "stdio", "http": "streamable-http", "sse": "sse"}
_COPILOT = {"stdio": "local", "http": "http", "sse": "sse"}
_CLINE_NAMES = {"cwd": "cwd", "timeout": "timeout", "disabled": "disabled", "auto_approve": "alwaysAllow"}
_NO_RULES = "its rules for tools do not apply"
_KIRO_NAMES = {"timeout": "timeout", "disabled": "disabled", "auto_approve": "autoApprove"}
HOSTS: dict[str, ConfigHost] = {
    "claude-desktop": ConfigHost(
        files=lambda: [_settings("Claude", "claude_desktop_config.json")], transports={"stdio": "stdio"}
    ),
    "claude-code": ConfigHost(
        files=lambda: [_home(".claude.json")],
        project_files=(".mcp.json",),
        folders=(".claude",),
        has_projects=True,
        transport_key="type",
        variables="dollar",
        login_key="oauth",
        login_names={"client_id": "clientId"},
    ),
    "vscode": ConfigHost(
        files=lambda: _editors("mcp.json"),
        project_files=(".vscode/mcp.json",),
        table="servers",
        transport_key="type",
        names={"cwd": "cwd", "env_file": "envFile"},
        variables="env",
        has_loose_env=True,
        document_keys={"sandbox": "no server is confined"},
    ),
    "cursor": ConfigHost(
        files=lambda: [_home(".cursor", "mcp.json")],
        project_files=(".cursor/mcp.json",),
        names={"env_file": "envFile"},
        variables="env",
        login_key="auth",
        login_names={"client_id": "CLIENT_ID", "client_secret": "CLIENT_SECRET", "scopes": "scopes"},
    ),
    "cline": ConfigHost(
        files=lambda: [
            *_extension("saoudrizwan.claude-dev", "cline_mcp_settings.json"),
            _home(".cline", "data", "settings", "cline_mcp_settings.json"),
        ],
        path_names=("cline_mcp_settings.json",),
        transport_key="type",
        transports={"stdio": "stdio", "http": "streamableHttp", "sse": "sse"},
        names={**_CLINE_NAMES, "auto_approve": "autoApprove"},
        old_names={"alwaysAllow": "auto_approve", "transportType": "transport"},
        variables="env",
        timeout_unit="s",
    ),
    "opencode": ConfigHost(
        files=lambda: [_config("opencode", "opencode.json"), _config("opencode", "opencode.jsonc")],
        project_files=("opencode.json", "opencode.jsonc", ".opencode/opencode.json", ".opencode/opencode.jsonc"),
        has_other_settings=True,
        table="mcp",
        transport_key="type",
        transports={"stdio": "local", "http": "remote", "sse": "remote"},
        has_command_list=True,
        names={"env": "environment", "disabled": "enabled"},
        variables="brace",
        login_key="oauth",
        login_names={**_LOGIN, "scopes": "scope"},
        other_meanings=("timeout",),  # for listing tools, too short for a first start
        document_keys=dict.fromkeys(("tools.*", "permission.*"), _NO_RULES),
    ),
    "jupyter-ai": ConfigHost(
        files=lambda: _jupyter("mcp_settings.json"),
        project_files=(".jupyter/mcp_settings.json",),
        table="mcp_servers",
        is_list=True,
        transport_key="type",
        transports=_NO_SSE,
    ),
    "jupyter-mcp-manager": ConfigHost(
        files=_jupyter_manager,
        table="mcp_servers",
        is_list=True,
        transport_key="type",
        transports=_NO_SSE,
        names={"disabled": "disabled"},
    ),
    "notebook-intelligence": ConfigHost(
        files=_nbi,
        path_names=("nbi",),
        names={"disabled": "disabled", "auto_approve": "autoApprove"},
        transports=_NO_SSE,
    ),
    "codex": ConfigHost(
        files=lambda: [Path(os.environ.get("CODEX_HOME") or _home(".codex"), "config.toml")],
        project_files=(".codex/config.toml",),
        syntax="toml",
        has_other_settings=True,
        table="mcp_servers",
        names={
            "timeout": "tool_timeout_sec",
            "start_timeout": "startup_timeout_sec",
            "headers": "http_headers",
            "inherit_env": "env_vars",
        },
        bearer_variable="bearer_token_env_var",
        header_variables="env_http_headers",
        timeout_unit="s",
        login_key="oauth",
        login_names={"client_id": "client_id"},
        allowed_tools="enabled_tools",
        denied_tools="disabled_tools",
        other_meanings=("tools",),  # approvals by tool
        marks=frozenset({"tool_timeout_sec", "startup_timeout_sec", "bearer_token_env_var", "env_http_headers"}),
    ),
    "gemini": ConfigHost(
        files=lambda: [_home(".gemini", "settings.json")],
        project_files=(".gemini/settings.json",),
        has_other_settings=True,
        url_keys={"http": "httpUrl"},
        names={"cwd": "cwd", "timeout": "timeout"},
        variables="dollar",
        has_bare_variables=True,
        timeout_unit="ms",
        login_key="oauth",
        login_names=_LOGIN,
        allowed_tools="includeTools",
        denied_tools="excludeTools",
        other_meanings=("trust",),  # would allow every tool
        document_keys=dict.fromkeys(("mcp.allowed", "mcp.excluded"), "all servers are there"),
        marks=frozenset({"httpUrl", "includeTools", "excludeTools", "trust"}),
    ),
    "zed": ConfigHost(
        files=lambda: [_zed()],
        project_files=(".zed/settings.json",),
        has_other_settings=True,
        table="context_servers",
        transports=_NO_SSE,
        names={"disabled": "enabled"},
        constants={"source": "custom"},
    ),
    "kiro": ConfigHost(
        files=lambda: [_home(".kiro", "settings", "mcp.json")],
        project_files=(".kiro/settings/mcp.json",),
        transports=_NO_SSE,
        names=_KIRO_NAMES,
        variables="dollar",
        timeout_unit="ms",
        denied_tools="disabledTools",
        document_keys={"powers.mcpServers": "the servers of powers are not read"},
    ),
    "amazon-q": ConfigHost(
        files=lambda: [_home(".aws", "amazonq", "default.json"), _home(".aws", "amazonq", "mcp.json")],
        project_files=(".amazonq/default.json", ".amazonq/mcp.json"),
        folders=(".aws",),
        has_other_settings=True,
        document_keys={"tools": _NO_RULES},
        transport_key="type",
        transports=_NO_SSE,
        names=_KIRO_NAMES,
        timeout_unit="ms",
    ),
    "roo": ConfigHost(
        files=lambda: _extension("rooveterinaryinc.roo-cline", "mcp_settings.json"),
        project_files=(".roo/mcp.json",),
        path_names=("rooveterinaryinc.roo-cline",),
        transport_key="type",
        transports=_STREAMABLE,
        names=_CLINE_NAMES,
        variables="env",
        timeout_unit="s",
        denied_tools="disabledTools",
    ),
    "kilo": ConfigHost(
        files=lambda: _extension("kilocode.kilo-code", "mcp_settings.json"),
        project_files=(".kilocode/mcp.json",),
        path_names=("kilocode.kilo-code",),
        transport_key="type",
        transports=_STREAMABLE,
        names=_CLINE_NAMES,
        variables="env",
        timeout_unit="s",
        denied_tools="disabledTools",
    ),
    "junie": ConfigHost(
        files=lambda: [_home(".junie", "mcp", "mcp.json")],
        project_files=(".junie/mcp/mcp.json",),
        transports=_NO_SSE,
        names={"disabled": "disabled"},
    ),
    "copilot-cli": ConfigHost(
        files=lambda: [_home(".copilot", "mcp-config.json")],
        project_files=(".copilot/mcp-config.json", ".github/mcp.json"),
        transport_key="type",
        transports=_COPILOT,
        names={"cwd": "cwd", "timeout": "timeout"},
        constants={"tools": ["*"]},
        variables="dollar",
        timeout_unit="ms",
        allowed_tools="tools",
    ),
    "copilot-agent": ConfigHost(  # its configuration is a setting of a repository at GitHub
        transport_key="type",
        transports=_COPILOT,
        constants={"tools": ["*"]},
        variables="dollar",
        secret_prefix="COPILOT_MCP_",
        timeout_unit="ms",
        allowed_tools="tools",
    ),
    "copilot-ide": ConfigHost(
        files=_copilot_ide,
        path_names=("github-copilot",),
        table="servers",
        headers_within="requestInit",
        has_loose_env=True,
    ),
    "windsurf": ConfigHost(
        files=lambda: [_home(".codeium", "windsurf", "mcp_config.json")],
        folders=(".codeium",),
        url_keys={"http": "serverUrl", "sse": "serverUrl"},
        names={"disabled": "disabled"},
        variables="env",
        denied_tools="disabledTools",
    ),
    "warp": ConfigHost(
        files=lambda: [_home(".warp", ".mcp.json")],
        project_files=(".warp/.mcp.json",),
        transports=_NO_SSE,
        names={"cwd": "working_directory"},
        variables="dollar",
    ),
    "lm-studio": ConfigHost(
        files=lambda: [_home(".lmstudio", "mcp.json"), _home(".cache", "lm-studio", "mcp.json")],
        folders=(".lmstudio",),
        transports=_NO_SSE,
        names={"timeout": "timeout"},
        timeout_unit="ms",
    ),
    "boocode": ConfigHost(
        transport_key="type",
        transports={"stdio": "stdio", "http": "streamableHttp"},
        names={"disabled": "enabled"},
    ),
    "dispatch": ConfigHost(
        project_files=(".dispatch/mcp.json",),
        table="servers",
        transport_key="transport",
        names={"disabled": "disabled"},
    ),
    "goose": ConfigHost(
        files=lambda: [_goose()], project_files=(".goose/config.yaml",), syntax="yaml", table="extensions"
    ),
    "librechat": ConfigHost(project_files=("librechat.yaml",), syntax="yaml"),
    "continue": ConfigHost(
        files=lambda: [_home(".continue", "config.yaml")],
        project_files=(".continue/config.yaml", ".continue/mcpServers"),
        syntax="yaml",
    ),
}
"""The hosts by name."""
IMPORTED = {name: host.files for name, host in HOSTS.items() if host.files is not None and host.syntax != "yaml"}
"""Functions that return the user's config files, by host."""
EXPORTED = tuple(name for name, host in HOSTS.items() if host.syntax == "json")
"""The hosts that servers can be exported to."""


def _own_folders(host: ConfigHost) -> Iterator[str]:
    yield from host.folders
    yield from (path.partition("/")[0] for path in host.project_files if "/" in path)


_FOLDERS = {folder: name for name, host in HOSTS.items() for folder in _own_folders(host)}
"""Hosts by the names of their own folders."""
_PATH_NAMES = {part: name for name, host in HOSTS.items() for part in host.path_names}
_PROJECT_FILES = {path: name for name, host in HOSTS.items() for path in host.project_files}
_LEVELS = 2
"""Maximum number of folders between a config file and the folder above its host's own one."""


def _own_folder(path: Path) -> Path | None:
    """Return the folder of a host that a config file lies in."""
    return next((parent for parent in list(path.parents)[:_LEVELS] if parent.name in _FOLDERS), None)


def host_of(file: str) -> str:
    """Return the host whose config file has this path, by its name and folders; empty if it can be any host's."""
    path = Path(file)
    for depth in range(1, _LEVELS + 2):
        name = _PROJECT_FILES.get("/".join(path.parts[-depth:]))
        if name is not None:
            return name
    name = next((_PATH_NAMES[part] for part in path.parts if part in _PATH_NAMES), None)
    folder = _own_folder(path)
    return name or (_FOLDERS[folder.name] if folder is not None else "")


def project_of(file: str) -> str:
    """Return the folder that the servers of a file belong to: the project above its host's own folder, else its own.

    Home is not a project.
    """
    path = Path(file)
    folder = _own_folder(path)
    is_projects = folder is not None and os.path.realpath(folder.parent) != os.path.realpath(_home())
    return str(folder.parent if folder is not None and is_projects else path.parent)


# -- definitions as documents ------------------------------------------------------------------------------------------


_GLOB = re.compile(r"[*?\[]")
_NOT_VALUES = frozenset({"name", "source", "extra", "inputs"})
_PLAIN = ServerDefinition(name="")
SETTINGS = {key: getattr(_PLAIN, key) == {} for key in ServerDefinition.__struct_fields__ if key not in _NOT_VALUES}
"""Keys of a definition in ipymcp's own file, each with whether its value is an object."""
MAX_PLAIN_SECONDS: Final = 1_000
"""Maximum timeout that is read as seconds in a definition of unknown origin; a longer one is in milliseconds."""


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
    # beyond `MAX_PLAIN_SECONDS`, the limit marks the timeout as seconds
    if 600 < definition.timeout <= MAX_PLAIN_SECONDS and values["max_timeout"] == definition.timeout:
        del values["max_timeout"]
    return {**values, **definition.extra}


def adopted(definition: ServerDefinition) -> ServerDefinition:
    """Return another file's definition for ipymcp's own file, with paths relative to its folder made absolute."""
    folder = definition.source.folder
    if folder is None:
        return definition
    moved = mapped(definition, lambda _, text: in_folder(text, folder, os.path.dirname(definition.source.file or "")))
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
        self._folder = definition.source.project or folder
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
            table: Any = dict(getattr(one, key))
            if table:
                if target.is_list:
                    table = [{"name": name, "value": text} for name, text in table.items()]
                if key == "headers" and target.headers_within:
                    values[target.headers_within] = {key: table}
                else:
                    values[target.names.get(key, key)] = table
        self._add_settings(values)
        return {**values, **{key: value for key, value in target.constants.items() if key not in values}}

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
                values[theirs] = int(own[key] * 1000) if self._target.timeout_unit == "ms" else own[key]
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
        if one.kind == "file" and style == "brace":
            return one.text
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
