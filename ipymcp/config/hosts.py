"""The other MCP hosts: the paths of their config files, and the format in which they define servers.

One record per host is the source for reading (`parsing`), discovery and export. Reading needs no host for most
documents: every host's names are understood in every file, so that a definition works wherever it is pasted.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct, field

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class ConfigHost(Struct, frozen=True, kw_only=True):
    """A host and its format. Names are mapped from ours to the host's."""

    files: Callable[[], list[Path]] | None = None
    """Returns the user's config files of the host, in order of precedence; None if they are not read."""
    project_file: str = ""
    """Path of the config file in a project."""
    folder: str = ""
    """The name of a folder whose files with the common table `mcpServers` are recognised as this host's."""
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
    variables: Literal["", "dollar", "env", "brace"] = ""
    """Syntax of variables: `${A:-b}`, `${env:A}` or `{env:A}`; empty if not supported."""
    has_bare_variables: bool = False
    """Whether `$NAME` in `env` and headers is a variable, too."""
    has_loose_env: bool = False
    """Whether `env` may have numbers, and null for a variable to omit."""
    has_milliseconds: bool = False
    """Whether the timeout is in milliseconds."""
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
    marks: frozenset[str] = frozenset()
    """Keys that only this host's definitions have, and by which they are recognised in any file."""


def _home(*names: str) -> Path:
    return Path(os.path.expanduser("~"), *names)


def _settings(*names: str) -> Path:
    """Return a path in the settings folder of desktop programs."""
    if sys.platform == "darwin":
        return _home("Library", "Application Support", *names)
    if sys.platform == "win32":
        return Path(os.environ.get("APPDATA") or _home("AppData", "Roaming"), *names)
    return Path(os.environ.get("XDG_CONFIG_HOME") or _home(".config"), *names)


def _editors(*names: str) -> list[Path]:
    """Return paths in the user folders of VS Code, its variants and its remote server."""
    programs = ("Code", "Code - Insiders", "VSCodium")
    return [
        *(_settings(program, "User", *names) for program in programs),
        _home(".vscode-server", "data", "User", *names),
    ]


def _cline() -> list[Path]:
    settings = ("settings", "cline_mcp_settings.json")
    return [*_editors("globalStorage", "saoudrizwan.claude-dev", *settings), _home(".cline", "data", *settings)]


def _opencode() -> list[Path]:
    folder = Path(os.environ.get("XDG_CONFIG_HOME") or _home(".config"), "opencode")
    return [folder / "opencode.json", folder / "opencode.jsonc"]


def _jupyter(*names: str) -> list[Path]:
    from jupyter_core.paths import jupyter_config_path

    folders = list(dict.fromkeys([*jupyter_config_path(), str(_home(".jupyter"))]))
    return [Path(folder, name) for folder in folders for name in names]


def _jupyter_manager() -> list[Path]:
    settings = os.path.join("lab", "user-settings", "jupyter-mcp-manager", "plugin.jupyterlab-settings")
    return _jupyter(settings, "mcp_settings.json", "mcp_servers.json")


_LOGIN = {"client_id": "clientId", "client_secret": "clientSecret", "scopes": "scopes"}
_NO_SSE = {"stdio": "stdio", "http": "http"}
HOSTS: dict[str, ConfigHost] = {
    "claude-desktop": ConfigHost(
        files=lambda: [_settings("Claude", "claude_desktop_config.json")], transports={"stdio": "stdio"}
    ),
    "claude-code": ConfigHost(
        files=lambda: [_home(".claude.json")],
        project_file=".mcp.json",
        has_projects=True,
        transport_key="type",
        variables="dollar",
        login_key="oauth",
        login_names={"client_id": "clientId"},
    ),
    "vscode": ConfigHost(
        files=lambda: _editors("mcp.json"),
        project_file=".vscode/mcp.json",
        table="servers",
        transport_key="type",
        names={"cwd": "cwd", "env_file": "envFile"},
        variables="env",
        has_loose_env=True,
    ),
    "cursor": ConfigHost(
        files=lambda: [_home(".cursor", "mcp.json")],
        project_file=".cursor/mcp.json",
        names={"env_file": "envFile"},
        variables="env",
        login_key="auth",
        login_names={"client_id": "CLIENT_ID", "client_secret": "CLIENT_SECRET", "scopes": "scopes"},
    ),
    "cline": ConfigHost(
        files=_cline,
        transport_key="type",
        transports={"stdio": "stdio", "http": "streamableHttp", "sse": "sse"},
        names={"cwd": "cwd", "timeout": "timeout", "disabled": "disabled", "auto_approve": "autoApprove"},
        old_names={"alwaysAllow": "auto_approve", "transportType": "transport"},
        variables="env",
    ),
    "opencode": ConfigHost(
        files=_opencode,
        project_file="opencode.json",
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
    ),
    "gemini": ConfigHost(
        files=lambda: [_home(".gemini", "settings.json")],
        folder=".gemini",
        url_keys={"http": "httpUrl"},
        names={"cwd": "cwd", "timeout": "timeout"},
        variables="dollar",
        has_bare_variables=True,
        has_milliseconds=True,
        login_key="oauth",
        login_names=_LOGIN,
        allowed_tools="includeTools",
        denied_tools="excludeTools",
        other_meanings=("trust",),  # would allow every tool
        marks=frozenset({"httpUrl", "includeTools", "excludeTools", "trust"}),
    ),
    "windsurf": ConfigHost(
        files=lambda: [_home(".codeium", "windsurf", "mcp_config.json")],
        url_keys={"http": "serverUrl", "sse": "serverUrl"},
        names={"disabled": "disabled"},
        variables="env",
        denied_tools="disabledTools",
    ),
    "jupyter-ai": ConfigHost(
        files=lambda: _jupyter("mcp_settings.json"),
        project_file=".jupyter/mcp_settings.json",
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
    "boocode": ConfigHost(
        transport_key="type",
        transports={"stdio": "stdio", "http": "streamableHttp"},
        names={"disabled": "enabled"},
    ),
    "dispatch": ConfigHost(table="servers", transport_key="transport", names={"disabled": "disabled"}),
}
"""The hosts by name. Servers can be exported to all of them, and imported from those in `IMPORTED`."""
IMPORTED = {name: host.files for name, host in HOSTS.items() if host.files is not None}
"""Functions that return the user's config files, by host."""
