"""Imports a module late and not from the notebook's folder, which may be a stranger's and come first in `sys.path`."""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["import_late"]


def import_late(name: str) -> ModuleType:
    """The top-level module of that name, found in `sys.path` without the working folder.

    Raises:
        ModuleNotFoundError: It is nowhere else.
    """
    if (known := sys.modules.get(name)) is not None:
        return known
    here = os.path.realpath(os.getcwd())
    spec = PathFinder.find_spec(name, [path for path in sys.path if path and os.path.realpath(path) != here])
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
