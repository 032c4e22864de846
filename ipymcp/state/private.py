"""Files that nobody but the user may read or write."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["foreign", "make_private"]

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def make_private(path: Path) -> bool:
    """Take other users' rights to a file away. Whether they have none now.

    Raises:
        OSError: There is no such file.
    """
    if not hasattr(os, "getuid"):  # Windows: who may read it is the folder's business
        return True
    if not path.stat().st_mode & _OTHERS:
        return True
    try:
        path.chmod(0o600)
    except OSError:
        return False
    return not path.stat().st_mode & _OTHERS  # some file systems take the order and do nothing


def foreign(path: Path) -> bool:
    """Whether a file, if it exists, is another user's."""
    try:
        return hasattr(os, "getuid") and path.stat().st_uid != os.getuid()
    except FileNotFoundError:
        return False
