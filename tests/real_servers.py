"""The servers of others that the tests load, as a user defines them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.environments import server_command

NPM = ("everything", "filesystem", "memory", "sequential")
PYPI = ("time", "git", "fetch", "excel")
SDKS = ("sdk1", "sdk2")
ALL = (*NPM, *PYPI, *SDKS)

COMMITTER = {
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
}


def definition(name: str, folder: Path, **more: Any) -> dict[str, Any]:
    """One server as it stands in `mcpServers`, at work in `folder`."""
    command = server_command(name, *([str(folder)] if name == "filesystem" else []))
    env = {"memory": {"MEMORY_FILE_PATH": str(folder / "memory.json")}, "git": COMMITTER}.get(name, {})
    return {"command": command[0], "args": command[1:], "cwd": str(folder), "env": env, **more}


def definitions(names: Sequence[str], folder: Path, **more: Any) -> dict[str, dict[str, Any]]:
    """Several of them, by name."""
    return {name: definition(name, folder, **more) for name in names}
