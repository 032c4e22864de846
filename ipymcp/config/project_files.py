"""The files of a project that one of its server definitions names: what they hold decides what runs."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from ipymcp.config.variables import in_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipymcp.config.definition import ServerDefinition

__all__ = ["content_digests", "project_files"]

_OPTION = re.compile(r"--?[\w-]+=(.*)", re.DOTALL)
_CHUNK = 1 << 20


def project_files(definition: ServerDefinition) -> tuple[Path, ...]:
    """The files in the definition's folder that its command, arguments, variables or `env_file` name.

    A module that Python is to run (`-m NAME`) is one; what such a file imports or reads is not.
    """
    folder = definition.source.folder
    if folder is None:
        return ()
    root = Path(os.path.realpath(folder))
    start = os.path.join(root, os.path.expanduser(in_folder(definition.cwd or "", folder)))
    found: dict[Path, None] = {}
    for part in _parts(definition):
        path = Path(os.path.realpath(os.path.join(start, os.path.expanduser(in_folder(part, folder)))))
        if path.is_relative_to(root) and path.is_file():
            found[path] = None
    return tuple(found)


def content_digests(definition: ServerDefinition) -> dict[str, str]:
    """SHA-256, in hex, of each of `project_files`, by path; of one that cannot be read, nothing that ever matches."""
    return {str(path): _digest(path) for path in project_files(definition)}


def _parts(definition: ServerDefinition) -> Iterator[str]:
    words = [definition.command or "", *definition.args, *definition.env.values(), definition.env_file or ""]
    for word in words:
        if word and "\0" not in word:
            yield word
            option = _OPTION.fullmatch(word)
            if option:
                yield option[1]
    for flag, module in zip(definition.args, definition.args[1:], strict=False):
        if flag == "-m":
            path = module.replace(".", "/")
            yield from (f"{path}.py", f"{path}/__main__.py")


def _digest(path: Path) -> str:
    import hashlib

    digest = hashlib.sha256()
    try:
        with path.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
    except OSError:
        return f"unreadable {os.urandom(16).hex()}"
    return digest.hexdigest()
