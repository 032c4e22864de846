"""The user's config files of other hosts. They are read on request, and never written."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from ipymcp.config.definition import ServerDefinition, Source
from ipymcp.config.parsing import entries
from ipymcp.config.reading import load_if_there
from ipymcp.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable


class HostServers(Struct, frozen=True):
    """Servers and errors from the files of a host."""

    definitions: Mapping[str, ServerDefinition]
    problems: tuple[ConfigError, ...]
    files: tuple[Path, ...]
    """The files that were read."""


def read_host(host: str, folder: str) -> HostServers:
    """Read the servers that the user has configured for another host.

    Args:
        host: One of `HOSTS`.
        folder: The notebook's folder, for hosts that store servers by project in a file of the user.

    Raises:
        ConfigError: The host has no config file.
    """
    places = HOSTS[host]()
    definitions: dict[str, ServerDefinition] = {}
    problems: list[ConfigError] = []
    files: list[Path] = []
    for path in places:
        try:
            document = load_if_there(path)
        except ConfigError as error:
            problems.append(error)
            continue
        if document is None:
            continue
        files.append(path)
        for part in _parts(host, document.data, folder):
            for name, entry in entries(part, Source(scope="user", file=str(path))) or ():
                if isinstance(entry, ConfigError):
                    problems.append(entry)
                else:
                    definitions.setdefault(name, entry)
    if not files and not problems:
        raise ConfigError(f"{host} has no servers here", hint=f"looked for {', '.join(map(str, places))}")
    return HostServers(definitions, tuple(problems), tuple(files))


def _parts(host: str, data: Any, folder: str) -> list[Any]:
    """Return the parts of a document with servers, nearest first: Claude Code stores those of projects separately."""
    if host != "claude-code" or not isinstance(data, Mapping):
        return [data]
    document = cast("Mapping[str, Any]", data)
    projects = document.get("projects")
    local = cast("Mapping[str, Any]", projects).get(folder) if isinstance(projects, Mapping) else None
    return [part for part in (local, document) if isinstance(part, Mapping) and "mcpServers" in part]


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


HOSTS: Mapping[str, Callable[[], list[Path]]] = {
    "claude-desktop": lambda: [_settings("Claude", "claude_desktop_config.json")],
    "claude-code": lambda: [_home(".claude.json")],
    "vscode": lambda: _editors("mcp.json"),
    "cursor": lambda: [_home(".cursor", "mcp.json")],
    "cline": _cline,
    "opencode": _opencode,
    "gemini": lambda: [_home(".gemini", "settings.json")],
    "windsurf": lambda: [_home(".codeium", "windsurf", "mcp_config.json")],
    "jupyter-ai": lambda: _jupyter("mcp_settings.json"),
    "jupyter-mcp-manager": _jupyter_manager,
}
"""Functions that return the config files of each host, in order of precedence."""
