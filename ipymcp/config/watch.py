"""The configuration of one notebook, read when it is asked for, and what has changed in its files since."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ipymcp.config.definition import Source
from ipymcp.config.discovery import Configuration, candidates, discover, marked, stamp
from ipymcp.config.files import read_each
from ipymcp.errors import ConfigError
from ipymcp.text import quoted

if TYPE_CHECKING:
    from ipymcp.config.definition import ServerDefinition
    from ipymcp.config.discovery import Stamp

__all__ = ["Discovery"]


class Discovery:
    """Finds the servers that were configured for a folder.

    Args:
        folder: The notebook's.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._stamps: dict[Path, Stamp] = {}
        self._named: set[Path] = set()

    def read(self) -> Configuration:
        """What the files say now.

        Raises:
            ConfigError: The file that `IPYMCP_CONFIG` names cannot be used.
        """
        files = candidates(self.folder)
        kept = {path: self._stamps[path] for path in self._named if path in self._stamps}
        self._stamps = {**kept, **{file.path: stamp(file.path) for file in files}}  # before: no change is missed
        return discover(files)

    def peek(self) -> Configuration:
        """What the files say now, for Tab: changes are still to be told of, and what is wrong as well."""
        try:
            return discover(candidates(self.folder))
        except ConfigError:
            return Configuration({}, {}, (), ())

    def named(self, path: str | os.PathLike[str]) -> Source:
        """What a file is that the user names; its changes are noticed, too.

        One that would have been found is what it was found to be: naming a project's file shows nobody what it says.
        """
        file = Path(os.path.abspath(os.path.join(self.folder, os.path.expanduser(path))))
        self._named.add(file)
        self._stamps[file] = stamp(file)
        real = os.path.realpath(file)
        for one in candidates(self.folder):
            if os.path.realpath(one.path) == real:
                return Source(scope=one.scope, file=str(one.path), folder=one.folder)
        return Source(scope="named", file=str(file), folder=str(file.parent))

    def read_named(self, source: Source) -> dict[str, ServerDefinition | ConfigError]:
        """The servers of a file that `named` gave, a project's as `read` has them. Raises as `read_each`."""
        servers = read_each(source)
        for file in candidates(self.folder) if source.scope == "project" else ():
            if file.scope == "user" and str(file.path) != source.file:
                servers |= {name: marked(servers[name], file) for name in discover([file]).servers if name in servers}
        return servers

    def wrote(self, path: Path) -> None:
        """What has changed in a file is known: we did it ourselves."""
        self._stamps[path] = stamp(path)

    def changes(self) -> list[str]:
        """The files that came, went or changed since they were last read or told of, as lines to show."""
        lines: list[str] = []
        for path, before in self._stamps.items():
            now = stamp(path)
            if now != before:
                self._stamps[path] = now
                what = "is new" if before is None else "is gone" if now is None else "has changed"
                then = "its servers stay until %mcp unload NAME"
                if path not in self._named:
                    then = "%mcp load brings the servers up to date"
                elif now is not None:
                    then = f"%mcp load {quoted(str(path))} brings the servers up to date"
                lines.append(f"{path} {what}: {then}")
        return lines
