"""Where things lie: the notebook, the user's own config file, what ipymcp keeps for itself."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["notebook_file", "own_files", "state_folder", "user_file"]

_NAME = os.path.join("ipymcp", "mcp.json")


def notebook_file(told: str | None = None, environ: Mapping[str, str] = os.environ) -> str | None:
    """The path of the notebook that this kernel belongs to, where that is known.

    Args:
        told: It, where the front end (VS Code) has told it.
        environ: Jupyter's server gives it as `JPY_SESSION_NAME`.
    """
    for path in (told, environ.get("JPY_SESSION_NAME")):
        if path and os.path.isabs(path) and os.path.isdir(os.path.dirname(path)):
            return os.path.normpath(path)
    return None


def user_file() -> str:
    """The user's own config file, which `%mcp config` writes; it need not be there."""
    from jupyter_core.paths import jupyter_config_dir

    return os.path.join(jupyter_config_dir(), _NAME)


def own_files() -> list[str]:
    """That file in each of Jupyter's config folders, the nearest first; they need not be there."""
    from jupyter_core.paths import jupyter_config_path

    return [os.path.join(folder, _NAME) for folder in jupyter_config_path()]


def state_folder() -> str:
    """What outlives the kernel is kept here: `IPYMCP_STATE_DIR`, else `ipymcp` in Jupyter's data folder."""
    given = os.environ.get("IPYMCP_STATE_DIR")
    if given:
        return os.path.abspath(os.path.expanduser(given))
    from jupyter_core.paths import jupyter_data_dir

    return os.path.join(jupyter_data_dir(), "ipymcp")
