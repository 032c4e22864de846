"""An import hook that stops ipymcp from importing modules from the working folder.

A kernel has the notebook's folder first in `sys.path`. In an untrusted project a file such as `json5.py` would
run as soon as ipymcp imports the library of that name, before the user has approved anything.
"""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from importlib.machinery import PathFinder
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType


def install() -> None:
    """Install the hook; a second call does nothing."""
    if not any(isinstance(finder, _Guard) for finder in sys.meta_path):
        finders = list(sys.meta_path)
        place = finders.index(PathFinder) if PathFinder in finders else len(finders)
        sys.meta_path.insert(place, _Guard())


def is_installed(name: str) -> bool:
    """Return whether ipymcp can import an optional module."""
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # it exists only in the working folder
        return False


class _Guard:
    """Finds top-level modules for ipymcp and the libraries it calls, in `sys.path` without the working folder.

    Imports by the user's own code are not affected, not even if ipymcp calls that code, such as a handler.
    """

    def __init__(self) -> None:
        self._last: tuple[str, list[str]] | None = None
        """The working folder and `sys.path` from which the next two were computed."""
        self._here = ""
        """The working folder, with links resolved."""
        self._safe: list[str] = []
        """`sys.path` without the working folder."""

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Find the module's spec, or return None to leave the import to the next finders.

        Raises:
            ModuleNotFoundError: ipymcp imports a module that exists only in the working folder.
        """
        if path is not None:
            return None
        try:
            folder = os.getcwd()
        except OSError:  # the folder was deleted
            return None
        if self._last != (folder, sys.path):
            self._last, self._here = (folder, list(sys.path)), os.path.realpath(folder)
            self._safe = [entry for entry in sys.path if entry and os.path.realpath(entry) != self._here]
        here, safe = self._here, self._safe
        if len(safe) == len(sys.path) or not _is_for_ipymcp(here):
            return None
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            spec = finder.find_spec(name, safe if finder is PathFinder else None, target)
            if spec is not None:
                return spec
        if PathFinder.find_spec(name, [here]) is None:
            return None  # it does not exist: the default finders raise the usual error
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def _is_for_ipymcp(here: str) -> bool:
    """Return whether ipymcp, or a library that it has called, runs the import, and not the user's code."""
    frame = sys._getframe(2)  # pyright: ignore[reportPrivateUsage] - inspect.currentframe is the same, slower to import
    while frame is not None:
        names = frame.f_globals
        name = names.get("__name__") or ""
        if name.partition(".")[0] == "ipymcp":
            return True
        file = names.get("__file__")
        if name == "__main__" or (isinstance(file, str) and _folder(name, file) == here):
            return False
        frame = frame.f_back
    return False


@lru_cache(1000)
def _folder(name: str, file: str) -> str | None:
    """Find the entry of `sys.path` that a loaded module came from.

    The result is cached, because every import asks for all modules on the call stack.
    """
    levels = name.count(".") + (os.path.basename(file) == "__init__.py")
    for _ in range(levels + 1):
        file = os.path.dirname(file)
    return os.path.realpath(file) if file else None
