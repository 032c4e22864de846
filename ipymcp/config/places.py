"""Where things lie: the notebook's folder, the user's own config file, what ipymcp keeps for itself."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["notebook_folder", "own_files", "state_folder", "user_file"]

_NAME = os.path.join("ipymcp", "mcp.json")


def notebook_folder(file: str | None = None, environ: Mapping[str, str] = os.environ) -> str:
    """The folder of the notebook that this kernel belongs to; where that is not known, the working folder.

    Args:
        file: The notebook's path, where the front end (VS Code) has told it.
        environ: Jupyter's server gives the notebook's path as `JPY_SESSION_NAME`.
    """
    for notebook in (file, environ.get("JPY_SESSION_NAME")):
        folder = os.path.dirname(notebook) if notebook else ""
        if os.path.isabs(folder) and os.path.isdir(folder):
            return os.path.normpath(folder)
    return os.getcwd()


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
