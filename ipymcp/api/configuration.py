"""`mcp.config`: the configured servers, and changes to ipymcp's own files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ipymcp.argument_checks import FLAG, MAPPING, TEXT, checked
from ipymcp.results.tables import TableView
from ipymcp.setup import config_edits
from ipymcp.setup.load_request import notices

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from ipymcp.results.tables import Table
    from ipymcp.runtime.host import Host
    from ipymcp.setup.config_edits import ConfigListing


class ConfigFiles(TableView):
    """The configured servers: `mcp.config.explain("fs")`, `mcp.config.add("fs", {"command": …})`.

    Other hosts' files are read and never written.

    Args:
        host: The host of the notebook.
    """

    def __init__(self, host: Host) -> None:
        self._host = host

    @property
    def table(self) -> Table:
        """A table with a row per definition."""
        found = self._host.discovery.read()
        self._notify(notices(found, self._host))
        return config_edits.listing(found, self._host)

    @checked(name=TEXT)
    def explain(self, name: str) -> Table:
        """The values of a server with their origins, and what it shadows.

            mcp.config.explain("demo")

        Raises:
            UnknownName: The server is not defined anywhere.
        """
        return config_edits.explanation(name, self._host.discovery.read(), self._host)

    @checked(project=FLAG)
    def init(self, *, project: bool = False) -> Path:
        """Create your own file, with comments and a disabled example: `mcp.config.init()`.

        Args:
            project: Create the project's file instead.

        Returns:
            The file.

        Raises:
            ConfigError: The file exists, or cannot be written.
        """
        return config_edits.create_starter_file(self._host, project=project)

    @checked(name=TEXT.or_none, definition=MAPPING, project=FLAG)
    def add(self, name: str | None, definition: Mapping[str, Any], *, project: bool = False) -> Path:
        """Write a new server into your own file.

            mcp.config.add("time", {"command": "uvx", "args": ["mcp-server-time"]})

        Args:
            name: The name of the server; None to add all servers of a document.
            definition: A definition, such as `{"command": "uvx", "args": […]}`, or a document of any host.
            project: Write the project's file instead.

        Returns:
            The file.

        Raises:
            ConfigError: The name is taken, the definition is invalid, or the file cannot be written.
        """
        added = config_edits.add(name, definition, self._host, project=project)
        self._notify(added.notes)
        return added.file

    @checked(name=TEXT, values=MAPPING, project=FLAG)
    def update(self, name: str, values: Mapping[str, Any], *, project: bool = False) -> Path:
        """Change some values of a server; None removes a value. Returns the file.

            mcp.config.update("time", {"env": {"TZ": "UTC"}, "timeout": 60})

        Raises:
            ConfigError: Your own files do not define the server, or the result is invalid.
        """
        return config_edits.update(name, values, self._host, project=project)

    @checked(name=TEXT, definition=MAPPING)
    def edit(self, name: str, definition: Mapping[str, Any]) -> Path:
        """Replace the definition of a server. Returns the file. Errors are those of `update`.

        For example `mcp.config.edit("time", {"command": "uvx", "args": ["mcp-server-time", "--local-timezone=UTC"]})`.
        """
        return config_edits.rewrite(name, definition, self._host)

    @checked(name=TEXT, new=TEXT)
    def copy(self, name: str, new: str) -> Path:
        """Copy a server under another name, in the same file. Returns the file. Errors are those of `update`.

        For example `mcp.config.copy("time", "clock")`.
        """
        return config_edits.copy(name, new, self._host)

    @checked(names=TEXT, project=FLAG)
    def remove(self, *names: str, project: bool = False) -> None:
        """Remove servers, and the secrets that were stored for them only. Errors are those of `update`.

        For example `mcp.config.remove("clock")`.
        """
        for name in names:
            config_edits.remove(name, self._host, project=project)

    @checked(place=TEXT, names=TEXT, project=FLAG, replace=FLAG)
    def import_from(self, place: str, *names: str, project: bool = False, replace: bool = False) -> list[str]:
        """Import servers from another host's files, or from a file, about which you are asked.

            mcp.config.import_from("vscode", "github")

        Args:
            place: A host, such as `vscode`, or a path.
            names: The servers; all by default.
            project: Write the project's file instead of your own.
            replace: Replace servers of the same names.

        Returns:
            The names of the imported servers.

        Raises:
            UnknownName: There is no such host or server.
            ConfigError: There is nothing to read, or the file cannot be written.
        """
        imported = config_edits.import_from(place, names, self._host, project=project, replace=replace)
        self._notify(imported.notes)
        return list(imported.names)

    @checked(target=TEXT, names=TEXT)
    def export(self, target: str, *names: str) -> ConfigListing:
        """The servers as a document of another host, such as `claude-code`; writes no file.

        For example `print(mcp.config.export("claude-code", "time").text)`.
        """
        document = config_edits.export_to(target, names, self._host)
        self._notify(document.notes)
        return document

    def _notify(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._host.notices.add(line)
