"""Paths of the notebook, the user's own config file and the state folder, and reading of text files."""

from __future__ import annotations

import errno
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ipymcp.errors import ConfigError
from ipymcp.files import UnreadableFile, read_file, read_problem
from ipymcp.text import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping


_NAME = os.path.join("ipymcp", "mcp.json")


def notebook_file(reported: str | None = None, environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the path of this kernel's notebook, if known.

    Args:
        reported: The path from the front end (VS Code).
        environ: The environment, for `JPY_SESSION_NAME` of the Jupyter server.
    """
    for path in (reported, environ.get("JPY_SESSION_NAME")):
        if path and os.path.isabs(path) and os.path.isdir(os.path.dirname(path)):
            return os.path.normpath(path)
    return None


def user_file() -> str:
    """Return the path of the user's own config file, which `%mcp config` writes; it may not exist."""
    from jupyter_core.paths import jupyter_config_dir

    return os.path.join(jupyter_config_dir(), _NAME)


def own_files() -> list[str]:
    """Return the user's own config files in all of Jupyter's config folders, nearest first; they may not exist."""
    from jupyter_core.paths import jupyter_config_path

    return [os.path.join(folder, _NAME) for folder in jupyter_config_path()]


def state_folder() -> str:
    """Return the folder of the database: `IPYMCP_STATE_DIR`, else `ipymcp` in Jupyter's data folder."""
    given = os.environ.get("IPYMCP_STATE_DIR")
    if given:
        return os.path.abspath(os.path.expanduser(given))
    from jupyter_core.paths import jupyter_data_dir

    return os.path.join(jupyter_data_dir(), "ipymcp")


def cache_folder() -> str:
    """Return the folder of cached data: in `IPYMCP_STATE_DIR`, else `ipymcp` in the user's cache folder."""
    given = os.environ.get("IPYMCP_STATE_DIR")
    if given:
        return os.path.join(state_folder(), "cache")
    usual = {"win32": "~/AppData/Local", "darwin": "~/Library/Caches"}.get(sys.platform, "~/.cache")
    chosen = os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME", "")
    return os.path.join(chosen if os.path.isabs(chosen) else os.path.expanduser(usual), "ipymcp")


_ROOTS = (".git", ".hg", ".jj", ".svn")


def is_root(folder: str) -> bool:
    """Whether a folder is a repository's root."""
    return any(os.path.lexists(os.path.join(folder, name)) for name in _ROOTS)


MAX_BYTES = 1_000_000
"""Maximum size of a config file or a file of variables; real ones have a few kilobytes."""


_ASSIGNMENT = (
    r"(?:export\s+)?(?P<name>[A-Za-z_][\w.-]*)\s*="
    r"""\s*(?:'(?P<single>[^']*)'|"(?P<double>[^"]*)"|(?P<plain>[^'"#\s].*?|))(?:\s+\#.*)?"""
)


def missing_file(file: Path) -> ConfigError:
    """The error for a config file that does not exist."""
    return ConfigError(f"{file}: no such file", hint="a relative path starts at the notebook's folder")


def read_env_file(path: str, where: str) -> dict[str, str]:
    """Read a file of `NAME=VALUE` lines, with comments and quotes as in shells, without expansion.

    Args:
        path: Absolute path.
        where: Document and key that name the file, for errors.

    Raises:
        ConfigError: The file cannot be read, or a line is invalid.
    """
    file = Path(path)
    try:
        text = read_text(file, None)
        if text is None:
            raise missing_file(file)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error.message}", hint=error.hint) from None
    variables: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        match = re.fullmatch(_ASSIGNMENT, stripped)
        if match is None:
            raise ConfigError(f"{where}: {path}, line {number}: expected NAME=VALUE", hint="begin a comment with #")
        quoted = match["single"] if match["single"] is not None else match["double"]
        variables[match["name"]] = quoted if quoted is not None else match["plain"].strip()
    return variables


def read_text(file: Path, owners: frozenset[int] | None) -> str | None:
    """Return the text of a file; None if it does not exist.

    Args:
        file: Absolute path.
        owners: User ids that may own the file; None for anyone.

    Raises:
        ConfigError: The file cannot be read, is too large, or belongs to someone else.
    """
    try:
        data = read_file(file, MAX_BYTES, owners=owners)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unreadable(file, error) from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{file}, line {line}: not UTF-8", hint="save the file as UTF-8") from None


def _unreadable(file: Path, error: OSError) -> ConfigError:
    problem, hint = read_problem(error), "check the file's permissions"
    if isinstance(error, UnreadableFile):
        match error.errno:
            case errno.EISDIR:
                hint = f"name the file in it, such as {file / 'mcp.json'}"
            case errno.EFBIG:
                hint = "is this a config file?"
            case errno.EPERM:
                problem = f"ignored: it {problem}"
                hint = f"if you wrote it, make it yours; else read it, then %mcp load {quoted(str(file))}"
            case _:
                hint = "name a file on disk"
    return ConfigError(f"{file}: {problem}", hint=hint)
