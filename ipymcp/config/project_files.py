"""The files of a project that one of its server definitions names: what they hold decides what runs."""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from ipymcp.config.variables import in_folder, respelled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ipymcp.config.definition import ServerDefinition
    from ipymcp.config.variables import Reference

__all__ = ["content_digests", "project_files"]

_BETWEEN = re.compile(r"""[\s"'`=;|&()<>,]+|file:(?://)?""")
"""What stands between the words of an argument that is a line of shell, an option or a list of options."""
_MODULE = re.compile(r"-[A-Za-z]*m(.*)", re.DOTALL)
_INTERPRETER = re.compile(r"((python|pypy)[\d.]*w?|node|bun|deno|tsx)(\.exe)?")
_ENTRIES = ("__main__.py", "package.json", "index.js", "index.cjs", "index.mjs")
"""What an interpreter runs where it is given a folder."""
_ENDINGS = (".py", ".js", ".cjs", ".mjs", ".ts")
"""What an interpreter may add to a name."""
_DEEPEST = 5
_CHUNK = 1 << 20


def project_files(definition: ServerDefinition) -> tuple[Path, ...]:
    """The files in the definition's folder that its command, arguments, variables or `env_file` name.

    A module that Python is to run (`-m NAME`) is one, with the packages that it is in; so is what a folder is run by.
    What such a file imports or reads is not. A link in the project counts as what it leads to, wherever that is.
    """
    folder = definition.source.folder
    if folder is None:
        return ()
    root = os.path.realpath(folder)
    starts = dict.fromkeys((os.path.join(root, _path(definition.cwd or "", definition)), root))
    found: dict[Path, None] = {}
    for part in _parts(definition):
        for start in starts:
            named = os.path.normpath(os.path.join(start, part))
            if os.path.isfile(named):
                path = os.path.realpath(named)
                if any(_is_within(one, folder) or _is_within(one, root) for one in (named, path)):
                    found[Path(path)] = None
    return tuple(found)


def content_digests(definition: ServerDefinition) -> dict[str, str]:
    """SHA-256, in hex, of each of `project_files`, by path; of one that cannot be read, nothing that ever matches."""
    return {str(path): _digest(path) for path in project_files(definition)}


def _parts(definition: ServerDefinition) -> Iterator[str]:
    """Each text of the definition that may be the name of a file."""
    words = [definition.command or "", *definition.args, *definition.env.values(), definition.env_file or ""]
    is_interpreted = any(_INTERPRETER.fullmatch(os.path.basename(word)) for word in words)
    for word in words:
        path = _path(word, definition)
        for part in dict.fromkeys((path, *_BETWEEN.split(path))):
            if part and "\0" not in part:
                yield part
                if is_interpreted:
                    yield from (part + ending for ending in _ENDINGS)
                    yield from (os.path.join(part, entry) for entry in _ENTRIES)
    for option, behind in itertools.pairwise((*definition.args, "")):
        module = _MODULE.fullmatch(option)
        if module:
            yield from _modules(module[1] or behind)


def _modules(name: str) -> Iterator[str]:
    names = name.split(".") if "\0" not in name else []
    for depth in range(1, len(names) + 1):
        path = os.path.join(*names[:depth])
        yield from (f"{path}.py", os.path.join(path, "__init__.py"), os.path.join(path, "__main__.py"))


def _path(text: str, definition: ServerDefinition) -> str:
    """A text as a path, with the variables as they are now: which file it names depends on them."""
    folder = definition.source.folder or ""

    def value(one: Reference, depth: int = 0) -> str:
        if one.kind == "place":
            return in_folder(one.text, folder)
        held = os.environ.get(one.name) or (definition.env.get(one.name) if depth < _DEEPEST else None) or one.default
        if one.kind != "variable" or held is None or depth > _DEEPEST:
            return one.text
        return held if one.name in os.environ else respelled(held, lambda inner: value(inner, depth + 1))

    return os.path.expanduser(respelled(text, value))


def _is_within(path: str, folder: str) -> bool:
    return path.startswith(os.path.join(folder, ""))


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
