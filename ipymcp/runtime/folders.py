"""The folder a server's process runs in.

One typed in a cell runs in the notebook's folder, one of a file in that file's folder (or its project's), and one of
the user's own file in a private folder: what lies in a stranger's folder must not run in place of the user's servers.
"""

from __future__ import annotations

import os
import re
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from ipymcp.config.places import state_folder
from ipymcp.errors import StartError
from ipymcp.files import make_private_folder

if TYPE_CHECKING:
    from ipymcp.config.definition import ServerDefinition

__all__ = ["folder_of", "made_folder", "program_folder"]

_FOLDER_NAME = re.compile(r"[A-Za-z0-9_][\w.-]{0,63}", re.ASCII)
_NO_FOLDER_NAME = re.compile(r"\W", re.ASCII)


def folder_of(definition: ServerDefinition, folder: str) -> str:
    """Where a server runs.

    Args:
        definition: Of a stdio server, expanded.
        folder: The notebook's.
    """
    return _private_folder(definition.name) if _is_private(definition) else program_folder(definition, folder)


def program_folder(definition: ServerDefinition, folder: str) -> str:
    """Where a relative path of its program starts: its `cwd`, else the folder of its file, else the notebook's."""
    base = definition.source.folder or folder
    return os.path.normpath(os.path.join(base, os.path.expanduser(definition.cwd or "")))


def made_folder(definition: ServerDefinition, folder: str) -> str:
    """The same as `folder_of`, and it is there; a private one is made.

    Raises:
        StartError: It is not there, or cannot be made.
    """
    path = folder_of(definition, folder)
    if not _is_private(definition):
        if not os.path.isdir(path):
            raise StartError(f"its folder does not exist: {path}", hint="mend cwd in its definition")
        return path
    try:
        make_private_folder(Path(path))
        os.chmod(path, 0o700)  # fails where it belongs to somebody else
    except OSError as error:
        hint = "give it a cwd in its definition, or name another folder in IPYMCP_STATE_DIR"
        raise StartError(f"no private folder for it: {path}: {error.strerror}", hint=hint) from None
    return path


def _is_private(definition: ServerDefinition) -> bool:
    return definition.source.scope == "user" and definition.cwd is None


def _private_folder(name: str) -> str:
    safe = name
    if not _FOLDER_NAME.fullmatch(name):
        safe = f"{_NO_FOLDER_NAME.sub('_', name)[:40]}-{zlib.crc32(name.encode()):08x}"
    return os.path.join(state_folder(), "servers", safe)
